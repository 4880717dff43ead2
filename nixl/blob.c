/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the NIXL backend's messages: the connection information and the pieces of notifications. */
#include "nixl/blob.h"
#include "wire/wire.h"

#define INFO_MAGIC 0x584e5748u /* "HWNX" */
#define NOTE_MAGIC 0x4e4e5748u /* "HWNN" */
#define VERSION    1
#define AT_ADDR    64
#define ADDR_SIZE  19

/* Offsets: 0 magic, 4 version, 6 port, 8 host, 16 process, 24 key, 56 zero, 64 addresses (family, 16 bytes, port). */
void hx_info_encode(uint8_t out[HX_INFO], const struct hx_info *info)
{
    memset(out, 0, HX_INFO);
    hw_put32(out, INFO_MAGIC);
    hw_put16(out + 4, VERSION);
    hw_put16(out + 6, info->port);
    hw_put64(out + 8, info->host);
    hw_put64(out + 16, info->process);
    memcpy(out + 24, info->key, HX_KEY);
    for (size_t i = 0; i < HX_ADDRS; i++) {
        uint8_t *p = out + AT_ADDR + ADDR_SIZE * i;
        p[0] = info->addr[i].family;
        memcpy(p + 1, info->addr[i].ip, 16);
        hw_put16(p + 17, info->addr[i].port);
    }
}

int hx_info_decode(const uint8_t *in, size_t len, struct hx_info *info)
{
    if (len != HX_INFO || hw_get32(in) != INFO_MAGIC)
        return hw_fail(-EPROTO, "these %zu bytes are not connection information of the HAWSER backend", len);
    if (hw_get16(in + 4) != VERSION)
        return hw_fail(
            -EPROTO,
            "the connection information has version %u, but this HAWSER backend supports version %d: install "
            "the same version on both sides",
            hw_get16(in + 4), VERSION);
    info->port = hw_get16(in + 6);
    info->host = hw_get64(in + 8);
    info->process = hw_get64(in + 16);
    memcpy(info->key, in + 24, HX_KEY);
    for (size_t i = 0; i < HX_ADDRS; i++) {
        const uint8_t *p = in + AT_ADDR + ADDR_SIZE * i;
        info->addr[i].family = p[0];
        memcpy(info->addr[i].ip, p + 1, 16);
        info->addr[i].port = hw_get16(p + 17);
        if (p[0] != 0 && p[0] != 4 && p[0] != 6)
            return hw_fail(-EPROTO, "the connection information has an address of unknown family %u", p[0]);
    }
    return info->port ? 0 : hw_fail(-EPROTO, "the connection information has no port");
}

/* Offsets: 0 magic, 4 version, 6 length of the name, 8 id, 16 total, 20 offset, 24 zero, 32 name, then the data. */
void hx_note_encode(uint8_t *out, const struct hx_note *note)
{
    memset(out, 0, HX_NOTE);
    hw_put32(out, NOTE_MAGIC);
    hw_put16(out + 4, VERSION);
    hw_put16(out + 6, (uint16_t)note->name_len);
    hw_put64(out + 8, note->id);
    hw_put32(out + 16, note->total);
    hw_put32(out + 20, note->offset);
    memcpy(out + HX_NOTE, note->name, note->name_len);
}

int hx_note_decode(const uint8_t *in, size_t len, struct hx_note *note)
{
    if (len < HX_NOTE || hw_get32(in) != NOTE_MAGIC || hw_get16(in + 4) != VERSION)
        return hw_fail(-EPROTO, "a notification of %zu bytes is not from this version of the HAWSER backend", len);
    note->name_len = hw_get16(in + 6);
    note->id = hw_get64(in + 8);
    note->total = hw_get32(in + 16);
    note->offset = hw_get32(in + 20);
    if (note->name_len > HX_NAME_MAX || note->name_len > len - HX_NOTE)
        return hw_fail(-EPROTO, "a notification has an agent name of %u bytes, which is invalid", note->name_len);
    note->name = (const char *)in + HX_NOTE;
    note->data = in + HX_NOTE + note->name_len;
    note->len = (uint32_t)(len - HX_NOTE - note->name_len);
    if (note->total > HX_NOTE_MAX || note->offset > note->total || note->len > note->total - note->offset ||
        (note->len == 0 && note->total != 0))
        return hw_fail(-EPROTO, "invalid piece of a notification: %u bytes at %u of %u", note->len, note->offset,
                       note->total);
    return 0;
}

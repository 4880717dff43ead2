/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

void hw_setup_head(uint8_t out[HW_SETUP_HEAD], const struct hw_setup *s)
{
    hw_put16(out, s->n);
    hw_put16(out + 2, s->via);
}

size_t hw_setup_entry_encode(uint8_t *out, const struct hw_setup_entry *e)
{
    memcpy(out, e->nic, HAWSER_NIC_NAME);
    hw_put16(out + HAWSER_NIC_NAME, e->handle_index);
    hw_put16(out + HAWSER_NIC_NAME + 2, e->handle_len);
    memcpy(out + HAWSER_NIC_NAME + 4, e->handle, e->handle_len);
    return HAWSER_NIC_NAME + 4u + e->handle_len;
}

int hw_setup_decode(const uint8_t *body, size_t len, struct hw_setup *s)
{
    if (len < HW_SETUP_HEAD)
        return hw_fail(-EPROTO, "a SETUP has an invalid length: %zu bytes", len);
    s->n = hw_get16(body);
    s->via = hw_get16(body + 2);
    if (s->n > HW_SETUP_MAX)
        return hw_fail(-EPROTO, "a SETUP has %u entries; at most %u are allowed", s->n, HW_SETUP_MAX);
    if (s->via > s->n)
        return hw_fail(-EPROTO, "invalid SETUP: the connection arrived at entry %u of %u", s->via, s->n);
    return 0;
}

int hw_setup_entry_decode(const uint8_t *body, size_t len, size_t *at, struct hw_setup_entry *e)
{
    const size_t head = HAWSER_NIC_NAME + 4;
    if (*at > len || len - *at < head)
        return hw_fail(-EPROTO, "a SETUP is truncated in an entry");
    const uint8_t *p = body + *at;
    memcpy(e->nic, p, HAWSER_NIC_NAME);
    e->handle_index = hw_get16(p + HAWSER_NIC_NAME);
    e->handle_len = hw_get16(p + HAWSER_NIC_NAME + 2);
    if (e->handle_len > HW_HANDLE_MAX || len - *at - head < e->handle_len)
        return hw_fail(-EPROTO, "a SETUP has a handle of %u bytes, which is too long or cut off", e->handle_len);
    /* users see the name, so it must be printable and terminated */
    if (!memchr(e->nic, 0, sizeof(e->nic)))
        return hw_fail(-EPROTO, "a SETUP has an unterminated NIC name");
    for (const char *c = e->nic; *c; c++)
        if (*c <= ' ' || *c > '~')
            return hw_fail(-EPROTO, "a SETUP has an unprintable NIC name");
    memset(e->handle, 0, sizeof(e->handle));
    memcpy(e->handle, p + head, e->handle_len);
    *at += head + e->handle_len;
    return 0;
}

enum { ITEM_TRANSPORT = 1, ITEM_VERSIONS = 2 };

size_t hw_setup_transport_encode(uint8_t *out, const char *text)
{
    const size_t n = HW_MIN(strlen(text), (size_t)HW_TRANSPORT_TEXT - 1);
    hw_put16(out, ITEM_TRANSPORT);
    hw_put16(out + 2, (uint16_t)n);
    for (size_t i = 0; i < n; i++)
        out[4 + i] = (uint8_t)text[i];
    return 4 + n;
}

/* Copies text that users see, and replaces characters that must not reach a terminal. */
static void copy_text(char *out, size_t cap, const uint8_t *in, size_t n)
{
    n = HW_MIN(n, cap - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(in[i] >= ' ' && in[i] <= '~' ? in[i] : '?');
    out[n] = 0;
}

/* Finds the last item of this type in a whole body. Returns its bytes and size in *item and *n, or NULL and 0 if there
 * is no such item. Fails with -EPROTO. */
static int find_item(const uint8_t *body, size_t len, unsigned wanted, const uint8_t **item, size_t *n)
{
    struct hw_setup s = {0};
    struct hw_setup_entry e;
    size_t at = HW_SETUP_HEAD;
    *item = NULL;
    *n = 0;
    int rc = hw_setup_decode(body, len, &s);
    for (uint16_t i = 0; rc == 0 && i < s.n; i++)
        rc = hw_setup_entry_decode(body, len, &at, &e);
    while (rc == 0 && len - at >= 4) {
        const unsigned type = hw_get16(body + at), size = hw_get16(body + at + 2);
        at += 4;
        if (size > len - at)
            return hw_fail(-EPROTO, "a SETUP is truncated in an item");
        if (type == wanted) {
            *item = body + at;
            *n = size;
        }
        at += size;
    }
    return rc;
}

int hw_setup_transport_decode(const uint8_t *body, size_t len, char text[HW_TRANSPORT_TEXT])
{
    const uint8_t *item;
    size_t n;
    int rc = find_item(body, len, ITEM_TRANSPORT, &item, &n);
    copy_text(text, HW_TRANSPORT_TEXT, item, n);
    return rc;
}

size_t hw_setup_versions_encode(uint8_t *out, uint16_t least, uint16_t most)
{
    hw_put16(out, ITEM_VERSIONS);
    hw_put16(out + 2, 4);
    hw_put16(out + 4, least);
    hw_put16(out + 6, most);
    return 8;
}

int hw_setup_versions_decode(const uint8_t *body, size_t len, uint16_t *least, uint16_t *most)
{
    const uint8_t *item;
    size_t n;
    *least = *most = 1;
    int rc = find_item(body, len, ITEM_VERSIONS, &item, &n);
    if (rc < 0 || !item)
        return rc;
    if (n != 4)
        return hw_fail(-EPROTO, "a version range has an invalid length: %zu bytes", n);
    *least = hw_get16(item);
    *most = hw_get16(item + 2);
    return *least && *least <= *most ? 0 : hw_fail(-EPROTO, "invalid version range %u to %u", *least, *most);
}

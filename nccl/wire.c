/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's two messages: the handle, which NCCL carries, and the hello, which is a libhawser notification. */
#include "wire/wire.h"
#include "inner.h"

#define HANDLE_MAGIC 0x434e5748u /* "HWNC" */
#define HELLO_MAGIC  0x484e5748u /* "HWNH" */
#define VERSION      3
#define AT_ADDR      72
#define AT_ATTEMPT   124

/* Returns the number of bytes of an address of this family, or 0 if the family is unknown. */
static size_t address_size(uint8_t family)
{
    return family == 4 ? 4 : family == 6 ? 16 : 0;
}

/* Offsets in a handle: 0 magic, 4 version, 6 port, 8 host, 16 process, 24 key, 56 secret, 64 listen, 68 zero, 72
 * addresses, 124 attempt. An address is a byte for its family, and 4 or 16 bytes. Zeros follow the last address. */
void hn_handle_encode(uint8_t out[NCCL_NET_HANDLE_MAXSIZE], const struct hn_handle *h)
{
    memset(out, 0, NCCL_NET_HANDLE_MAXSIZE);
    hw_put32(out, HANDLE_MAGIC);
    hw_put16(out + 4, VERSION);
    hw_put16(out + 6, h->port);
    hw_put64(out + 8, h->host);
    hw_put64(out + 16, h->process);
    memcpy(out + 24, h->key, HN_KEY);
    hw_put64(out + 56, h->secret);
    hw_put32(out + 64, h->listen);
    for (size_t i = 0, at = AT_ADDR; i < HN_ADDRS && h->addr[i].family; i++) {
        const size_t n = address_size(h->addr[i].family);
        if (at + 1 + n > AT_ATTEMPT)
            break;
        out[at] = h->addr[i].family;
        memcpy(out + at + 1, h->addr[i].ip, n);
        at += 1 + n;
    }
    hn_handle_note(out, h->attempt);
}

void hn_handle_note(uint8_t handle[NCCL_NET_HANDLE_MAXSIZE], uint32_t attempt)
{
    hw_put32(handle + AT_ATTEMPT, attempt);
}

int hn_handle_decode(const uint8_t in[NCCL_NET_HANDLE_MAXSIZE], struct hn_handle *h)
{
    if (hw_get32(in) != HANDLE_MAGIC)
        return hw_fail(
            -EPROTO, "the handle was not made by this plugin: every rank must load the same plugin (NCCL_NET_PLUGIN)");
    if (hw_get16(in + 4) != VERSION)
        return hw_fail(-EPROTO,
                       "the handle has version %u, but this side has version %d: install the same version of the "
                       "plugin on every node",
                       hw_get16(in + 4), VERSION);
    h->port = hw_get16(in + 6);
    h->host = hw_get64(in + 8);
    h->process = hw_get64(in + 16);
    memcpy(h->key, in + 24, HN_KEY);
    h->secret = hw_get64(in + 56);
    h->listen = hw_get32(in + 64);
    memset(h->addr, 0, sizeof(h->addr));
    for (size_t i = 0, at = AT_ADDR; i < HN_ADDRS && at < AT_ATTEMPT && in[at]; i++) {
        const size_t n = address_size(in[at]);
        if (!n || at + 1 + n > AT_ATTEMPT)
            return hw_fail(-EPROTO, "the handle has an invalid address of family %u", in[at]);
        h->addr[i].family = in[at];
        memcpy(h->addr[i].ip, in + at + 1, n);
        at += 1 + n;
    }
    h->attempt = hw_get32(in + AT_ATTEMPT);
    return h->port ? 0 : hw_fail(-EPROTO, "the handle has no port");
}

/* Offsets in a hello: 0 magic, 4 version, 8 listen, 12 stream, 16 secret, 24 process. */
void hn_hello_encode(uint8_t out[HN_HELLO], const struct hn_hello *h)
{
    memset(out, 0, HN_HELLO);
    hw_put32(out, HELLO_MAGIC);
    hw_put32(out + 4, VERSION);
    hw_put32(out + 8, h->listen);
    hw_put32(out + 12, h->stream);
    hw_put64(out + 16, h->secret);
    hw_put64(out + 24, h->process);
}

int hn_hello_decode(const uint8_t *in, size_t len, struct hn_hello *h)
{
    if (len != HN_HELLO || hw_get32(in) != HELLO_MAGIC || hw_get32(in + 4) != VERSION)
        return hw_fail(-EPROTO, "a notification of %zu bytes is not a hello", len);
    h->listen = hw_get32(in + 8);
    h->stream = hw_get32(in + 12);
    h->secret = hw_get64(in + 16);
    h->process = hw_get64(in + 24);
    return h->stream ? 0 : hw_fail(-EPROTO, "the hello is for stream 0");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/helper.h"

/* Requests and replies begin with u32 magic, u16 version, u16 type (with the top bit set in replies) and u32 seq. */
#define REPLY_BIT 0x8000u

unsigned hw_helper_fds(uint16_t type)
{
    return type == HW_H_BIND_RX || type == HW_H_BIND_TX || type == HW_H_STEER;
}

bool hw_helper_page(uint32_t page)
{
    return page == 0 || (page >= HW_HELPER_PAGE_MIN && page <= HW_HELPER_PAGE_MAX && (page & (page - 1)) == 0);
}

static void encode_helper_head(uint8_t *out, size_t size, uint16_t type, uint32_t seq)
{
    memset(out, 0, size);
    hw_put32(out, HW_HELPER_MAGIC);
    hw_put16(out + 4, HW_HELPER_VERSION);
    hw_put16(out + 6, type);
    hw_put32(out + 8, seq);
}

static int decode_helper_head(const uint8_t *in, size_t n, size_t size, const char *what, uint16_t *type, uint32_t *seq)
{
    if (n < 12)
        return hw_fail(-EPROTO, "%s of %zu bytes where %zu were expected", what, n, size);
    if (hw_get32(in) != HW_HELPER_MAGIC)
        return hw_fail(-EPROTO, "%s of %zu bytes does not begin with hawserd's magic number", what, n);
    *type = hw_get16(in + 6);
    *seq = hw_get32(in + 8);
    if (hw_get16(in + 4) != HW_HELPER_VERSION)
        return hw_fail(
            -EPROTONOSUPPORT,
            "%s has version %u of hawserd's protocol, but this side has version %u: upgrade the older program", what,
            hw_get16(in + 4), HW_HELPER_VERSION);
    if (n != size)
        return hw_fail(-EPROTO, "%s of %zu bytes where %zu were expected", what, n, size);
    return 0;
}

static bool all_zero(const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        if (b[i])
            return false;
    return true;
}

/* Returns true if the field holds a NUL-terminated text followed only by zeros. */
static bool text_field(const char *s, size_t cap)
{
    size_t n = strnlen(s, cap);
    return n < cap && all_zero(s + n, cap - n);
}

/* Accepts the names that the kernel accepts for a device (dev_valid_name(), net/core/dev.c), if they are printable,
 * because the name is logged. */
static bool nic_name(const char *s)
{
    if (!*s || !text_field(s, HAWSER_NIC_NAME) || strcmp(s, ".") == 0 || strcmp(s, "..") == 0)
        return false;
    for (; *s; s++)
        if (*s <= ' ' || *s > '~' || *s == '/' || *s == ':')
            return false;
    return true;
}

void hw_helper_request_encode(uint8_t out[HW_HELPER_REQUEST], const struct hw_helper_request *q)
{
    encode_helper_head(out, HW_HELPER_REQUEST, q->type, q->seq);
    hw_put32(out + 12, q->id);
    hw_put32(out + 16, q->count);
    memcpy(out + 20, q->nic, HAWSER_NIC_NAME);
    hw_put32(out + 36, q->page);
}

int hw_helper_request_decode(const uint8_t *in, size_t n, struct hw_helper_request *q)
{
    *q = (struct hw_helper_request){0};
    int rc = decode_helper_head(in, n, HW_HELPER_REQUEST, "a request", &q->type, &q->seq);
    if (rc)
        return rc;
    q->id = hw_get32(in + 12);
    q->count = hw_get32(in + 16);
    memcpy(q->nic, in + 20, HAWSER_NIC_NAME);
    q->page = hw_get32(in + 36);

    if (q->type == 0 || q->type >= HW_H_COUNT)
        return hw_fail(-EPROTO, "unknown request type %u", q->type);
    bool bind = q->type == HW_H_BIND_RX || q->type == HW_H_BIND_TX;
    bool id = q->type == HW_H_STEER || q->type == HW_H_RELEASE;
    if (bind ? !nic_name(q->nic) : !all_zero(q->nic, sizeof(q->nic)))
        return hw_fail(-EPROTO, "a request of type %u has an invalid NIC name", q->type);
    if (id != (q->id != 0))
        return hw_fail(-EPROTO, "a request of type %u has an invalid id: %u", q->type, q->id);
    if (q->type == HW_H_BIND_RX ? q->count < 1 || q->count > HW_HELPER_QUEUES : q->count != 0)
        return hw_fail(-EPROTO, "a request of type %u has an invalid number of queues: %u", q->type, q->count);
    if (q->type == HW_H_BIND_RX ? !hw_helper_page(q->page) : q->page != 0)
        return hw_fail(-EPROTO, "a request of type %u has an invalid buffer size: %u bytes", q->type, q->page);
    return 0;
}

void hw_helper_reply_encode(uint8_t out[HW_HELPER_REPLY], const struct hw_helper_reply *r)
{
    encode_helper_head(out, HW_HELPER_REPLY, r->type | REPLY_BIT, r->seq);
    hw_put32(out + 12, (uint32_t)-r->status);
    hw_put32(out + 16, r->id);
    hw_put32(out + 20, r->dmabuf_id);
    hw_put32(out + 24, r->count);
    for (size_t i = 0; i < HW_HELPER_QUEUES; i++)
        hw_put32(out + 28 + 4 * i, r->queues[i]);
    hw_put32(out + 92, r->page);
    /* the 8 bytes before the text are reserved */
    memcpy(out + 104, r->text, strnlen(r->text, HW_ERR_TEXT - 1));
}

int hw_helper_reply_decode(const uint8_t *in, size_t n, struct hw_helper_reply *r)
{
    *r = (struct hw_helper_reply){0};
    int rc = decode_helper_head(in, n, HW_HELPER_REPLY, "an answer", &r->type, &r->seq);
    if (rc)
        return rc;
    bool reply = r->type & REPLY_BIT;
    r->type &= (uint16_t)~REPLY_BIT;
    uint32_t err = hw_get32(in + 12);
    r->id = hw_get32(in + 16);
    r->dmabuf_id = hw_get32(in + 20);
    r->count = hw_get32(in + 24);
    for (size_t i = 0; i < HW_HELPER_QUEUES; i++)
        r->queues[i] = hw_get32(in + 28 + 4 * i);
    r->page = hw_get32(in + 92);
    memcpy(r->text, in + 104, HW_ERR_TEXT);

    if (!reply)
        return hw_fail(-EPROTO, "an answer of type %u is not marked as a reply", r->type);
    if (r->type == 0 || r->type >= HW_H_COUNT)
        return hw_fail(-EPROTO, "unknown reply type %u", r->type);
    if (err > 4095) /* MAX_ERRNO, include/linux/err.h */
        return hw_fail(-EPROTO, "a reply has an invalid error number: %u", err);
    r->status = -(int32_t)err;
    if (!text_field(r->text, sizeof(r->text)))
        return hw_fail(-EPROTO, "a reply has a text that does not end in zeros");
    for (const char *c = r->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return hw_fail(-EPROTO, "a reply has an unprintable text");
    if ((err != 0) != (r->text[0] != 0) || !all_zero(in + 96, 8))
        return hw_fail(-EPROTO, "a reply of type %u has inconsistent fields", r->type);

    bool bind = err == 0 && (r->type == HW_H_BIND_RX || r->type == HW_H_BIND_TX);
    bool queues = err == 0 && (r->type == HW_H_BIND_RX || r->type == HW_H_STEER);
    bool id = bind || queues;
    uint32_t max = !queues ? 0 : r->type == HW_H_STEER ? 1 : HW_HELPER_QUEUES;
    if (err == 0 && r->type == HW_H_BIND_RX ? !hw_helper_page(r->page) : r->page != 0)
        return hw_fail(-EPROTO, "a reply of type %u has an invalid buffer size: %u bytes", r->type, r->page);
    if (id != (r->id != 0) || (!bind && r->dmabuf_id) || r->count > max || (queues && r->count == 0) ||
        !all_zero(&r->queues[r->count], (HW_HELPER_QUEUES - r->count) * sizeof(r->queues[0])))
        return hw_fail(-EPROTO, "a reply of type %u has inconsistent fields", r->type);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/message.h"

#include "wire/wire.h"

void hw_control_encode(uint8_t out[HW_CONTROL_SIZE], const struct hw_control_head *h)
{
    hw_put32(out, h->sequence);
    hw_put32(out + 4, h->kind);
    hw_put64(out + 8, h->a);
    hw_put64(out + 16, h->b);
    hw_put64(out + 24, h->c);
    hw_put64(out + 32, h->d);
}

int hw_control_decode(const uint8_t *in, uint32_t size, struct hw_control_head *h)
{
    if (size != HW_CONTROL_SIZE)
        return hw_fail(-EPROTO, "a control message has an invalid length: %u bytes", size);
    *h = (struct hw_control_head){.sequence = hw_get32(in),
                                  .kind = hw_get32(in + 4),
                                  .a = hw_get64(in + 8),
                                  .b = hw_get64(in + 16),
                                  .c = hw_get64(in + 24),
                                  .d = hw_get64(in + 32)};
    if (h->kind == 0 || h->kind >= HW_CONTROL_KINDS)
        return hw_fail(-EPROTO, "unknown control message kind %u", h->kind);
    bool fails = h->kind == HW_CONTROL_FAIL || h->kind == HW_CONTROL_UNREAD;
    if ((fails && (h->b == 0 || h->b >= HW_MSG_ERRNO_MAX)) ||
        (h->kind == HW_CONTROL_HANDLE && (h->c >= HW_MSG_ERRNO_MAX || h->b > UINT32_MAX)))
        return hw_fail(-EPROTO, "a control message of kind %u has an invalid error number or handle", h->kind);
    if ((h->kind == HW_CONTROL_GRANT && h->b >= HW_MSG_LANDING_MAX - 1) ||
        (h->kind == HW_CONTROL_MATCHED && ((uint32_t)h->b >= HW_MSG_ERRNO_MAX || h->b >> 32 > HW_MSG_EAGER_MAX)))
        return hw_fail(-EPROTO, "a control message of kind %u has an invalid length or error: 0x%llx", h->kind,
                       (unsigned long long)h->b);
    return 0;
}

void hw_msg_vecs_encode(uint8_t *out, uint64_t id, uint32_t flags, uint32_t n)
{
    hw_put64(out, id);
    hw_put32(out + 8, flags);
    hw_put32(out + 12, n);
}

void hw_msg_vec_encode(uint8_t *out, uint32_t k, const struct hw_msg_vec *v)
{
    uint8_t *at = out + HW_MSG_VECS_HEAD + (size_t)HW_MSG_VEC_SIZE * k;
    hw_put32(at, v->handle);
    hw_put32(at + 4, v->len);
    hw_put64(at + 8, v->offset);
}

int hw_msg_vecs_decode(const uint8_t *in, uint32_t size, uint64_t *id, uint32_t *flags, uint32_t *n)
{
    if (size < HW_MSG_VECS_HEAD)
        return hw_fail(-EPROTO, "a list of descriptors has an invalid length: %u bytes", size);
    *id = hw_get64(in);
    *flags = hw_get32(in + 8);
    *n = hw_get32(in + 12);
    if (*n > HW_MSG_VECS_MAX || size != HW_MSG_VECS_HEAD + HW_MSG_VEC_SIZE * *n ||
        *flags & ~(HW_MSG_COUNTED | HW_MSG_STAGED))
        return hw_fail(-EPROTO, "invalid list of %u descriptors in %u bytes, flags 0x%x", *n, size, *flags);
    return 0;
}

struct hw_msg_vec hw_msg_vec_decode(const uint8_t *in, uint32_t k)
{
    const uint8_t *at = in + HW_MSG_VECS_HEAD + (size_t)HW_MSG_VEC_SIZE * k;
    return (struct hw_msg_vec){.handle = hw_get32(at), .len = hw_get32(at + 4), .offset = hw_get64(at + 8)};
}

void hw_data_encode(uint8_t out[HW_MSG_DATA_SIZE], const struct hw_data_head *h)
{
    hw_put64(out, h->landing);
    hw_put64(out + 8, h->offset);
    hw_put64(out + 16, h->total);
    hw_put64(out + 24, h->rest);
}

int hw_data_decode(const uint8_t *in, uint32_t size, uint32_t pay, struct hw_data_head *h)
{
    if (size != HW_MSG_DATA_SIZE)
        return hw_fail(-EPROTO, "a placement header has an invalid length: %u bytes", size);
    *h = (struct hw_data_head){hw_get64(in), hw_get64(in + 8), hw_get64(in + 16), hw_get64(in + 24)};
    if ((pay == 0 && (h->total || !h->rest)) || h->rest > HW_MSG_LANDING_MAX || h->total > HW_MSG_LANDING_MAX ||
        h->offset > h->total || pay > h->total - h->offset)
        return hw_fail(-EPROTO, "invalid placement header: %u bytes at %llu of %llu, and %llu more", pay,
                       (unsigned long long)h->offset, (unsigned long long)h->total, (unsigned long long)h->rest);
    return 0;
}

void hw_noted_encode(uint8_t out[HW_MSG_NOTED_SIZE], uint64_t op, uint64_t total)
{
    hw_put64(out, op);
    hw_put64(out + 8, total);
}

int hw_noted_decode(const uint8_t *in, uint32_t size, uint64_t *op, uint64_t *total)
{
    if (size != HW_MSG_NOTED_SIZE)
        return hw_fail(-EPROTO, "the header of a write's notification has an invalid length: %u bytes", size);
    *op = hw_get64(in);
    *total = hw_get64(in + 8);
    return *total > HW_MSG_LANDING_MAX
               ? hw_fail(-EPROTO, "a notification belongs to a write of %llu bytes, which is too long",
                         (unsigned long long)*total)
               : 0;
}

void hw_taken_encode(uint8_t out[HW_MSG_TAKEN_SIZE], uint32_t sequence, uint64_t notes)
{
    hw_put32(out, sequence);
    hw_put32(out + 4, 0);
    hw_put64(out + 8, notes);
}

int hw_taken_decode(const uint8_t *in, uint32_t size, uint32_t *sequence, uint64_t *notes)
{
    if (size != HW_MSG_TAKEN_SIZE)
        return hw_fail(-EPROTO, "a confirmation of messages has an invalid length: %u bytes", size);
    *sequence = hw_get32(in);
    *notes = hw_get64(in + 8);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/link.h"

#include "wire/wire.h"

void hw_link_head_encode(uint8_t out[HW_LINK_HEAD], const struct hw_link_head *h)
{
    hw_put16(out, HW_LINK_MAGIC);
    out[2] = h->type;
    out[3] = h->flags;
    hw_put32(out + 4, h->ext);
    hw_put32(out + 8, h->pay);
    hw_put32(out + 12, h->number);
}

int hw_link_head_decode(const uint8_t in[HW_LINK_HEAD], struct hw_link_head *h)
{
    *h = (struct hw_link_head){
        .type = in[2], .flags = in[3], .ext = hw_get32(in + 4), .pay = hw_get32(in + 8), .number = hw_get32(in + 12)};
    if (hw_get16(in) != HW_LINK_MAGIC)
        return hw_fail(-EPROTO, "a frame begins with 0x%04x, which is not the magic number", hw_get16(in));
    const unsigned unknown = h->flags & ~(HW_LINK_UNCOUNTED | HW_LINK_PATIENT | HW_LINK_APART | HW_LINK_BULK);
    if (unknown)
        return hw_fail(-EPROTO, "a frame of type %u has unknown flags 0x%02x", h->type, unknown);
    if (h->ext > HW_LINK_EXT_MAX)
        return hw_fail(-EPROTO, "a frame of type %u has an extension of %u bytes; at most %u are allowed", h->type,
                       h->ext, HW_LINK_EXT_MAX);
    if (h->pay > HW_LINK_PAY_MAX)
        return hw_fail(-EPROTO, "a frame of type %u has a payload of %u bytes; at most %u are allowed", h->type, h->pay,
                       HW_LINK_PAY_MAX);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of each frame of a link (lib/core/link.h) has 16 bytes, little-endian:
 *
 *   u16 magic "HL"   u8 type   u8 flags   u32 extension bytes   u32 payload bytes   u32 number
 *
 * The extension follows the header. The payload follows the extension, or travels on the connection's second stream, in
 * the order of the headers. The number is the low half of the count of counted frames before this frame. The number
 * reveals at once whether the two sides disagree on the frames that have been sent.
 */
#ifndef HW_WIRE_LINK_H
#define HW_WIRE_LINK_H

#include "base/base.h"

#define HW_LINK_MAGIC   0x4c48u /* "HL" */
#define HW_LINK_HEAD    16
#define HW_LINK_EXT_MAX 8192u
#define HW_LINK_PAY_MAX (64u << 20)

/* Flags. */
#define HW_LINK_UNCOUNTED 1u /* not confirmed, and not sent again if the link dies */
#define HW_LINK_PATIENT   2u /* no operation waits for the frame's confirmation, which may therefore come later */
#define HW_LINK_APART     4u /* the payload travels on the connection's second stream */
#define HW_LINK_BULK      8u /* the frame carries bulk data, not a small parcel */

struct hw_link_head {
    uint8_t type; /* defined by the layer above */
    uint8_t flags;
    uint32_t ext; /* bytes, up to HW_LINK_EXT_MAX */
    uint32_t pay; /* bytes, up to HW_LINK_PAY_MAX */
    uint32_t number;
};

/* Encodes h. All fields must be within their limits. */
void hw_link_head_encode(uint8_t out[HW_LINK_HEAD], const struct hw_link_head *h);
/* Decodes a header. Fails with -EPROTO for a wrong magic number, an unknown flag, or a size above its limit. */
int hw_link_head_decode(const uint8_t in[HW_LINK_HEAD], struct hw_link_head *h);

#endif

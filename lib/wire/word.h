/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A last word reports how many frames arrived on each link of a rail in a generation that has ended.
 *
 *   u32 generation   u32 mark   u32 n   n times u64 frames
 *
 * A last word travels after the rail's number (u32) in a frame of a rail that is up, and in an ASK, which both sides
 * send on each new link of the rail. An ASK consists of u32 links, a last word and zeros.
 */
#ifndef HW_WIRE_WORD_H
#define HW_WIRE_WORD_H

#include "base/base.h"

#define HW_RAIL_LINKS 17
#define HW_WORD_MAX   (12 + 8 * HW_RAIL_LINKS)
#define HW_ASK_SIZE   (4 + HW_WORD_MAX)

struct hw_word {
    uint32_t gen; /* 0 if there was no generation before */
    uint32_t mark;
    uint32_t n;
    uint64_t count[HW_RAIL_LINKS];
};

/* Encodes w, whose n is at most HW_RAIL_LINKS. Returns the size. */
uint32_t hw_word_encode(uint8_t out[HW_WORD_MAX], const struct hw_word *w);
/* Fails with -EPROTO if there are more than HW_RAIL_LINKS links, or if the counts do not fit into len bytes. */
int hw_word_decode(const uint8_t *in, uint32_t len, struct hw_word *w);

/* Encodes an ASK. links is the number of links of the new generation. */
void hw_ask_encode(uint8_t out[HW_ASK_SIZE], uint32_t links, const struct hw_word *w);
/* Fails with -EPROTO if links is 0 or above HW_RAIL_LINKS, or if the last word is invalid. */
int hw_ask_decode(const uint8_t in[HW_ASK_SIZE], uint32_t *links, struct hw_word *w);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/word.h"

#include "wire/wire.h"

#include <string.h>

#define HEAD 12

uint32_t hw_word_encode(uint8_t out[HW_WORD_MAX], const struct hw_word *w)
{
    hw_put32(out, w->gen);
    hw_put32(out + 4, w->mark);
    hw_put32(out + 8, w->n);
    for (uint32_t i = 0; i < w->n; i++)
        hw_put64(out + HEAD + 8ull * i, w->count[i]);
    return HEAD + 8 * w->n;
}

int hw_word_decode(const uint8_t *in, uint32_t len, struct hw_word *w)
{
    uint32_t n = len < HEAD ? 0 : hw_get32(in + 8);
    if (len < HEAD || n > HW_RAIL_LINKS || len < HEAD + 8 * n)
        return hw_fail(-EPROTO, "invalid final confirmation of %u bytes (number of links: %u)", len, n);
    *w = (struct hw_word){.gen = hw_get32(in), .mark = hw_get32(in + 4), .n = n};
    for (uint32_t i = 0; i < n; i++)
        w->count[i] = hw_get64(in + HEAD + 8ull * i);
    return 0;
}

void hw_ask_encode(uint8_t out[HW_ASK_SIZE], uint32_t links, const struct hw_word *w)
{
    memset(out, 0, HW_ASK_SIZE);
    hw_put32(out, links);
    (void)hw_word_encode(out + 4, w);
}

int hw_ask_decode(const uint8_t in[HW_ASK_SIZE], uint32_t *links, struct hw_word *w)
{
    *links = hw_get32(in);
    if (*links < 1 || *links > HW_RAIL_LINKS)
        return hw_fail(-EPROTO, "the peer requests a rail with an invalid number of links: %u", *links);
    return hw_word_decode(in + 4, HW_WORD_MAX, w);
}

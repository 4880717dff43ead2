/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

#define NO_GPU   0xffffu
#define WAIT_MAX 600000u
#define V1_UNIT  4096

static uint16_t encode_gpu(int gpu)
{
    return gpu >= 0 && gpu < HW_GPU_MOST ? (uint16_t)gpu : NO_GPU;
}

static int decode_gpu(uint16_t gpu)
{
    return gpu < HW_GPU_MOST ? gpu : -1;
}

void hw_plugin_greet_encode(uint8_t out[HW_PLUGIN_GREET], const struct hw_plugin_greet *g)
{
    hw_put32(out, HW_PLUGIN_MAGIC);
    hw_put16(out + 4, HW_PLUGIN_VERSION);
    hw_put16(out + 6, HW_PLUGIN_GREET);
    hw_put32(out + 8, g->longest);
    hw_put16(out + 12, encode_gpu(g->gpu));
    hw_put16(out + 14, encode_gpu(g->peer_gpu));
    hw_put32(out + 16, g->wait_ms);
    memcpy(out + 20, g->handle, HW_PLUGIN_HANDLE);
}

int hw_plugin_greet_size(const uint8_t head[HW_PLUGIN_HEAD])
{
    const unsigned version = hw_get16(head + 4), size = hw_get16(head + 6);
    if (hw_get32(head) != HW_PLUGIN_MAGIC)
        return hw_fail(-EPROTO, "the peer uses another transport: set knob transport to the same value on both sides");
    /* Version 1 has the size of its longest message at the offset of the version. The size is a multiple of V1_UNIT, so
     * its low 16 bits, which are read as the version here, are 0 or at least V1_UNIT. */
    if (version < HW_PLUGIN_VERSION || version >= V1_UNIT)
        return hw_fail(-EPROTO,
                       "the peer's hawser is older: its plugin greeting has version 1, but this side's has version %d: "
                       "upgrade the peer's hawser",
                       HW_PLUGIN_VERSION);
    if (size < HW_PLUGIN_GREET || size > HW_PLUGIN_GREET_MOST)
        return hw_fail(-EPROTO, "a plugin greeting has an invalid length: %u bytes", size);
    return (int)size;
}

int hw_plugin_greet_decode(const uint8_t *in, size_t len, struct hw_plugin_greet *g)
{
    int size = len < HW_PLUGIN_HEAD ? hw_fail(-EPROTO, "a plugin greeting has an invalid length: %zu bytes", len)
                                    : hw_plugin_greet_size(in);
    if (size < 0)
        return size;
    if (len < (size_t)size)
        return hw_fail(-EPROTO, "a plugin greeting ends after %zu of %d bytes", len, size);
    g->longest = hw_get32(in + 8);
    g->gpu = decode_gpu(hw_get16(in + 12));
    g->peer_gpu = decode_gpu(hw_get16(in + 14));
    g->wait_ms = HW_MIN(hw_get32(in + 16), WAIT_MAX);
    memcpy(g->handle, in + 20, HW_PLUGIN_HANDLE);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a benchmark, on either side: slots that iterations use in turn, filled and checked with the pattern. It
 * is host or GPU memory. The GPU fills and checks GPU memory if its driver accepts our kernels and a slot is worth a
 * launch; otherwise a block of host memory is used. */
#ifndef HW_TOOL_BUFFER_H
#define HW_TOOL_BUFFER_H

#include "tool/peer/proto.h"

#define BUFFER_HOST  (-1)       /* instead of a GPU */
#define BUFFER_BLOCK (1u << 20) /* bytes of the host block for GPU memory */

struct buffer {
    uint8_t *base;                /* NULL: a GPU's */
    uint8_t *block;               /* BUFFER_BLOCK bytes; NULL: host memory */
    const struct hw_space *space; /* space whose kernels fill and check; NULL: none */
    uint64_t len;                 /* made and registered */
    hawser_mem *mem;
    uint64_t size, stride, seed; /* of an iteration, between slots, of the run */
    uint32_t slots;
    bool hot; /* all slots are the first one */
};

/* Returns the bytes of `slots` slots; 0 on overflow. At least 1. */
uint64_t buffer_need(uint64_t size, uint64_t stride, uint32_t slots, bool hot);
/* Maps, touches and registers host memory, or allocates memory of GPU gpu. -ENOMEM, or errors of hawser_mem_register()
 * and hawser_mem_alloc(). */
int buffer_make(struct buffer *b, hawser *h, int gpu, uint64_t size, uint64_t stride, uint32_t slots, bool hot,
                uint64_t seed);
/* Deregisters and unmaps; a zeroed struct is allowed. Memory that the library still uses stays: -EBUSY. */
int buffer_free(struct buffer *b);

static inline uint64_t buffer_offset(const struct buffer *b, uint64_t iteration)
{
    return b->hot ? 0 : iteration % b->slots * b->stride;
}

/* Fills the slots of iterations [first, first+count), count <= slots. Hot: the one slot, for the last of them. These
 * three functions fail only if a GPU does: -EIO. */
int buffer_fill(struct buffer *b, uint64_t first, uint32_t count);
/* Checks the slots: *bad receives how many bytes differ, *checked how many were checked, *first_bad the offset of the
 * first bad one. */
int buffer_check(struct buffer *b, uint64_t first, uint32_t count, uint64_t *bad, uint64_t *checked,
                 uint64_t *first_bad);
/* Sets all of it to zero. */
int buffer_clear(struct buffer *b);

#endif

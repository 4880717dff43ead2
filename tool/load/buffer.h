/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a benchmark, on either side: slots that iterations cycle through, filled and checked by the pattern.
 * It is the host's or a GPU's. The latter is filled and checked by the GPU, where its driver takes our kernels and a
 * slot is worth a launch; else through a block of the host's memory. */
#ifndef HW_TOOL_BUFFER_H
#define HW_TOOL_BUFFER_H

#include "tool/peer/proto.h"

#define BUFFER_HOST  (-1)       /* instead of a GPU */
#define BUFFER_BLOCK (1u << 20) /* of host memory that a GPU's passes through */

struct buffer {
    uint8_t *base;                /* NULL: a GPU's */
    uint8_t *block;               /* BUFFER_BLOCK bytes; NULL: the host's */
    const struct hw_space *space; /* whose kernels do it; NULL: none do */
    uint64_t len;                 /* made and registered */
    hawser_mem *mem;
    uint64_t size, stride, seed; /* of an iteration, between slots, of the run */
    uint32_t slots;
    bool hot; /* all slots are the first one */
};

/* Bytes that `slots` slots take; 0 where that overflows. Never less than 1. */
uint64_t buffer_need(uint64_t size, uint64_t stride, uint32_t slots, bool hot);
/* Maps, touches and registers the host's memory, or allocates GPU gpu's. -ENOMEM, or what hawser_mem_register() and
 * hawser_mem_alloc() say. */
int buffer_make(struct buffer *b, hawser *h, int gpu, uint64_t size, uint64_t stride, uint32_t slots, bool hot,
                uint64_t seed);
/* Deregisters and unmaps; all zero is allowed. Memory that the library still uses is kept: -EBUSY. */
int buffer_free(struct buffer *b);

static inline uint64_t buffer_offset(const struct buffer *b, uint64_t iteration)
{
    return b->hot ? 0 : iteration % b->slots * b->stride;
}

/* Fills the slots of iterations [first, first+count), count <= slots. Hot: the one slot, as of the last of them. These
 * three fail only where a GPU does: -EIO. */
int buffer_fill(struct buffer *b, uint64_t first, uint32_t count);
/* Checks them and says in *bad how many bytes differ, in *checked how many were looked at, in *first_bad the offset of
 * the first bad one. */
int buffer_check(struct buffer *b, uint64_t first, uint32_t count, uint64_t *bad, uint64_t *checked,
                 uint64_t *first_bad);
/* All of it to zeros. */
int buffer_clear(struct buffer *b);

#endif

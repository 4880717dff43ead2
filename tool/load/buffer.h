/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a benchmark, on either side: slots that iterations use cyclically, filled and checked with the pattern of
 * hw_pattern_fill(). The memory is host or GPU memory. The GPU itself fills and checks GPU memory if its driver accepts
 * our kernels and a slot is large enough to be worth a launch. Otherwise the data passes through a block of host
 * memory. */
#ifndef HW_TOOL_BUFFER_H
#define HW_TOOL_BUFFER_H

#include "tool/peer/proto.h"

#define BUFFER_HOST  (-1)       /* value of gpu that selects host memory */
#define BUFFER_BLOCK (1u << 20) /* bytes of the host block for GPU memory */

struct buffer {
    uint8_t *base; /* host memory; NULL for GPU memory */
    /* BUFFER_BLOCK bytes, through which the CPU fills, checks and clears GPU memory; NULL for host memory */
    uint8_t *block;
    const struct hw_space *space; /* space whose kernels fill and check, or NULL if the CPU does */
    uint64_t len;                 /* bytes allocated and registered */
    hawser_mem *mem;
    /* bytes of an iteration, bytes from the start of a slot to the start of the next, and seed of the run */
    uint64_t size, stride, seed;
    uint32_t slots;
    bool hot; /* all iterations use the first slot */
};

/* Returns the size of `slots` slots, or of one slot if hot is set, in bytes: at least 1, or 0 on overflow. */
uint64_t buffer_need(uint64_t size, uint64_t stride, uint32_t slots, bool hot);
/* Allocates, populates and registers host memory, or allocates memory of the given GPU. Fails with -ENOMEM, or with an
 * error of hawser_mem_register() or hawser_mem_alloc(). */
int buffer_make(struct buffer *b, hawser *h, int gpu, uint64_t size, uint64_t stride, uint32_t slots, bool hot,
                uint64_t seed);
/* Deregisters and frees the memory; a zeroed struct is allowed. Fails with -EBUSY and frees nothing while the library
 * still uses the memory. */
int buffer_free(struct buffer *b);

static inline uint64_t buffer_offset(const struct buffer *b, uint64_t iteration)
{
    return b->hot ? 0 : iteration % b->slots * b->stride;
}

/* Fills the slots of iterations [first, first+count); count must not exceed slots. If hot is set, fills the only slot
 * for the last iteration. This function and the next two can fail only for GPU memory. */
int buffer_fill(struct buffer *b, uint64_t first, uint32_t count);
/* Checks the slots. Stores the number of wrong bytes in *bad, the number of checked bytes in *checked, and the offset
 * of the first wrong byte in *first_bad. */
int buffer_check(struct buffer *b, uint64_t first, uint32_t count, uint64_t *bad, uint64_t *checked,
                 uint64_t *first_bad);
/* Sets all bytes of the memory to zero. */
int buffer_clear(struct buffer *b);

#endif

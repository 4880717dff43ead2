/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between pinned host memory and memory that the CPU cannot use (a GPU's), for one connection: a block of host
 * memory for each direction, and a copy queue for each space in use. Only hw_copies_wait(), hw_copies_find_stuck() and
 * hw_copies_free() block.
 *
 * Errors: -EBUSY: the device is not done yet, ask again soon; -ENXIO: the device failed, see the text.
 */
#ifndef HW_TCP_COPIES_H
#define HW_TCP_COPIES_H

#include "base/base.h"
#include "base/knob.h"
#include "mem/space.h"

#define HW_COPIES_DEPTH   64u /* copies in flight in one queue */
#define HW_COPIES_WAIT_MS 500

/* The copies of one space. */
struct hw_copy_queue {
    struct hw_copy_queue *next;
    const struct hw_space *space;
    struct hw_copyq *q; /* NULL: the space has no queue, see hw_copies_queue() */
    uint64_t started, over;
    uint64_t waiting_since; /* start of the wait for the oldest copy; 0: none */
    bool named;             /* the stall was logged */
};

/* One direction. */
struct hw_copy_way {
    struct hw_copy_queue *queues; /* most connections see one space only, but any number may occur */
    uint8_t *base;                /* NULL: no memory was allocated yet */
    size_t size;
    const struct hw_space *pinned_by; /* NULL: the memory is not pinned */
};

struct hw_copies {
    struct hw_copies *next;
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    struct hw_copy_way out, in; /* separate, because a GPU copies in both directions at once */
};

/* Returns NULL if there is no memory. k (stall_ms) and log must outlive the copies. */
struct hw_copies *hw_copies_new(const struct hw_knobs *k, const struct hw_logger *log);
/* Waits for all copies up to HW_COPIES_WAIT_MS. If a device is stuck for longer, memory and queues stay allocated until
 * it answers. NULL is allowed. */
void hw_copies_free(struct hw_copies *c);

/* Allocates size bytes of host memory near the space, once, and pins them. -ENOMEM: no memory; another -errno:
 * allocated, but cannot be pinned. */
int hw_copies_pin(struct hw_copy_way *w, const struct hw_space *space, size_t size);
/* Returns the queue of a space. -errno if the space opens none; with may_lack an entry without a queue is made then.
 * -ENOMEM. */
int hw_copies_queue(struct hw_copy_way *w, const struct hw_space *space, bool may_lack, struct hw_copy_queue **out);
/* Starts a copy; q->started is then its number. -EBUSY if HW_COPIES_DEPTH copies are in flight, -ENXIO. */
int hw_copy_start(const struct hw_copies *c, struct hw_copy_queue *q, void *to, const void *from, size_t len);
/* Tests whether the copy of that number is complete: 0, -EBUSY, -ENXIO. */
int hw_copy_test(const struct hw_copies *c, struct hw_copy_queue *q, uint64_t number);
/* Waits for all copies of a queue. Returns false after HW_COPIES_WAIT_MS. */
bool hw_copies_wait(const struct hw_copies *c, struct hw_copy_queue *q);
/* Waits for all copies, up to HW_COPIES_WAIT_MS for each queue. Returns the first queue that did not finish in time, or
 * NULL. */
const struct hw_copy_queue *hw_copies_find_stuck(const struct hw_copies *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between pinned host memory and memory that the CPU cannot access (a GPU's), for one connection: for each
 * direction, a block of host memory and a copy queue for each space in use. Only hw_copies_wait(),
 * hw_copies_find_stuck() and hw_copies_free() wait for copies. hw_copy_test() sleeps 20 us if a copy is slow.
 *
 * Functions return -EBUSY if the device has not finished (the caller must then try again soon), and -ENXIO if the
 * device has failed, with the reason in the error text.
 */
#ifndef HW_TCP_COPIES_H
#define HW_TCP_COPIES_H

#include "base/base.h"
#include "base/knob.h"
#include "mem/space.h"

#define HW_COPIES_DEPTH   64u /* maximum number of copies in flight in one queue */
#define HW_COPIES_WAIT_MS 500

/* The copies of one space in one direction. */
struct hw_copy_queue {
    struct hw_copy_queue *next;
    const struct hw_space *space;
    struct hw_copyq *q; /* NULL if the space has no queue, see hw_copies_queue() */
    uint64_t started, over;
    uint64_t waiting_since; /* start of the wait for the oldest copy, or 0 */
    bool named;             /* the stall was logged */
};

/* The copies of one direction. */
struct hw_copy_way {
    struct hw_copy_queue *queues; /* most connections use only one space, but there is no limit */
    uint8_t *base;                /* NULL before the memory is allocated */
    size_t size;
    const struct hw_space *pinned_by; /* space that the memory is pinned for, or NULL */
};

struct hw_copies {
    struct hw_copies *next;
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    struct hw_copy_way out, in; /* separate, because a GPU copies in both directions at the same time */
};

/* Returns NULL if out of memory. k (stall_ms) and log must outlive the copies. */
struct hw_copies *hw_copies_new(const struct hw_knobs *k, const struct hw_logger *log);
/* Waits for all copies, up to HW_COPIES_WAIT_MS for each queue, and frees c. If a device is stuck for longer, a later
 * call of this function or of hw_copies_new() frees the memory and the queues once the device has responded. c may be
 * NULL. */
void hw_copies_free(struct hw_copies *c);

/* Allocates size bytes of host memory near the space and pins them. Has no effect if the memory is pinned already.
 * Fails with a negative errno if out of memory, or if the memory cannot be pinned; w->base is set in the second case.
 */
int hw_copies_pin(struct hw_copy_way *w, const struct hw_space *space, size_t size);
/* Returns the queue of a space in *out. If the space cannot open a queue, fails with a negative errno or, if may_lack
 * is set, returns an entry without a queue. Also fails with -ENOMEM. */
int hw_copies_queue(struct hw_copy_way *w, const struct hw_space *space, bool may_lack, struct hw_copy_queue **out);
/* Starts a copy; q->started is its number afterwards. Fails with -EBUSY if HW_COPIES_DEPTH copies are in flight, or
 * with -ENXIO. */
int hw_copy_start(const struct hw_copies *c, struct hw_copy_queue *q, void *to, const void *from, size_t len);
/* Reports that the device has failed, with hw_error() as the reason. Returns -ENXIO. */
int hw_copy_fail(const struct hw_copy_queue *q);
/* Returns 0 if the copy with this number is complete, or else -EBUSY or -ENXIO. */
int hw_copy_test(const struct hw_copies *c, struct hw_copy_queue *q, uint64_t number);
/* Waits until all copies of a queue are complete or the device has failed. Returns false if neither happens within
 * HW_COPIES_WAIT_MS. */
bool hw_copies_wait(const struct hw_copies *c, struct hw_copy_queue *q);
/* Waits for all copies, up to HW_COPIES_WAIT_MS for each queue. Returns the first queue that did not finish in time, or
 * NULL. */
const struct hw_copy_queue *hw_copies_find_stuck(const struct hw_copies *c);

#endif

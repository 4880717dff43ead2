/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between pinned host memory and memory that the CPU cannot use (a GPU's), of one connection: a run of host
 * memory each way, and a queue of copies for each space that was met. Nothing here blocks, but for hw_copies_wait(),
 * hw_copies_find_stuck() and hw_copies_free().
 *
 * Errors: -EBUSY the device has not got there yet, ask again soon; -ENXIO the device failed, as the text says.
 */
#ifndef HW_TCP_COPIES_H
#define HW_TCP_COPIES_H

#include "base/base.h"
#include "base/knob.h"
#include "mem/space.h"

#define HW_COPIES_DEPTH   64u /* under way in one queue */
#define HW_COPIES_WAIT_MS 500

/* The copies of one space. */
struct hw_copy_queue {
    struct hw_copy_queue *next;
    const struct hw_space *space;
    struct hw_copyq *q; /* NULL: the space has none, see hw_copies_queue() */
    uint64_t started, over;
    uint64_t waiting_since; /* for the oldest; 0: nobody waits */
    bool named;             /* its stall was logged */
};

/* One direction. */
struct hw_copy_way {
    struct hw_copy_queue *queues; /* a connection mostly sees one space; a list, since it may see any */
    uint8_t *base;                /* NULL: no memory was taken yet */
    size_t size;
    const struct hw_space *pinned_by; /* NULL: the memory is not pinned */
};

struct hw_copies {
    struct hw_copies *next;
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    struct hw_copy_way out, in; /* apart, as a GPU copies in both directions at once */
};

/* NULL: no memory. k (stall_ms) and log outlive it. */
struct hw_copies *hw_copies_new(const struct hw_knobs *k, const struct hw_logger *log);
/* Waits for all copies for HW_COPIES_WAIT_MS. A device that is stuck for longer keeps the memory and the queues until
 * it no longer is. NULL is allowed. */
void hw_copies_free(struct hw_copies *c);

/* Takes size bytes of host memory near the space, once, and pins them. -ENOMEM: there is no such memory; another
 * -errno: there is, and it cannot be pinned. */
int hw_copies_pin(struct hw_copy_way *w, const struct hw_space *space, size_t size);
/* The queue of a space. -errno where the space opens none; with may_lack such a queue is made all the same. -ENOMEM. */
int hw_copies_queue(struct hw_copy_way *w, const struct hw_space *space, bool may_lack, struct hw_copy_queue **out);
/* Starts a copy: its number is q->started then. -EBUSY where HW_COPIES_DEPTH are under way, -ENXIO. */
int hw_copy_start(const struct hw_copies *c, struct hw_copy_queue *q, void *to, const void *from, size_t len);
/* Is the copy of that number over? 0, -EBUSY, -ENXIO. */
int hw_copy_test(const struct hw_copies *c, struct hw_copy_queue *q, uint64_t number);
/* Waits for all copies of a queue. False: HW_COPIES_WAIT_MS have passed. */
bool hw_copies_wait(const struct hw_copies *c, struct hw_copy_queue *q);
/* Waits for all copies, for so long in each queue. NULL, or the first queue whose copies were not over in time. */
const struct hw_copy_queue *hw_copies_find_stuck(const struct hw_copies *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Checks limits that hold at any time: on what a peer keeps (lib/message/peer.h, lib/core/link.h), and on how long it
 * waits. */
#ifndef HW_SIM_BOUNDS_H
#define HW_SIM_BOUNDS_H

#include "message/op.h"
#include "world.h"

/* Checks the limits on what the peer of this node keeps. */
void bounds_check(struct world *w, int side, struct hw_peer *p);

/* The state of bounds_watch() for an operation that has not ended. */
struct bounds_op {
    uint64_t deadline; /* HW_NEVER: none */
    uint64_t off;      /* when it was first seen to be cancelled, in ns; 0: it is not */
};

/* Checks that an operation is cancelled soon after its deadline, and ends soon after its peer's time to answer. */
void bounds_watch(struct world *w, int side, struct bounds_op *b, const struct hw_op *op);
/* Returns true for a cancelled operation if the peer's time to answer is over, or ends within 100 us. */
bool bounds_is_overdue(const struct hw_op *op, uint64_t now);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the limits that hold at all times: how much data a peer keeps (lib/message/peer.h, lib/core/link.h), and how
 * long a peer waits. */
#ifndef HW_SIM_BOUNDS_H
#define HW_SIM_BOUNDS_H

#include "message/op.h"
#include "world.h"

/* Checks the limits on the data that a node keeps for its peer. */
void bounds_check(struct world *w, int side, struct hw_peer *p);

/* The state of bounds_watch() for an unfinished operation. */
struct bounds_op {
    uint64_t deadline; /* HW_NEVER if there is none */
    uint64_t off;      /* time (ns) at which the cancellation was first seen; 0 if not cancelled */
};

/* Checks that an operation is cancelled soon after its deadline, and that a cancelled operation ends soon after the
 * peer's time limit for answering. */
void bounds_watch(struct world *w, int side, struct bounds_op *b, const struct hw_op *op);
/* Returns true for a cancelled operation if the peer's time limit for answering has expired or expires within
 * 100 us. */
bool bounds_is_overdue(const struct hw_op *op, uint64_t now);

#endif

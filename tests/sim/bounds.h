/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds that hold at any time: of what a peer keeps (lib/message/peer.h, lib/core/link.h), and of how long it waits.
 */
#ifndef HW_SIM_BOUNDS_H
#define HW_SIM_BOUNDS_H

#include "message/op.h"
#include "world.h"

/* Nothing of the peer of this node exceeds what the constants say. */
void bounds_check(struct world *w, int side, struct hw_peer *p);

/* What is watched of an operation that has not ended. */
struct bounds_op {
    uint64_t deadline; /* HW_NEVER: none */
    uint64_t off;      /* ns: it was seen to be called off; 0: it was not */
};

/* An operation is called off soon after its deadline, and ends in the time that its peer has to answer. */
void bounds_watch(struct world *w, int side, struct bounds_op *b, const struct hw_op *op);
/* True if the peer has not answered in time. */
bool bounds_is_overdue(const struct hw_op *op, uint64_t now);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Operations, inside the message layer: their life (op.c, deadline.c), and their use by rails (flow_out.c, flow_in.c).
 */
#ifndef HW_OP_H
#define HW_OP_H

#include "message/control.h"
#include "message/peer.h"

/* The operation ends with this error, unless it has one. */
void hw_op_set_result(struct hw_op *op, int why);
/* Subtracts n from the remaining count of the operation. Not under the lock. */
void hw_op_sub(struct hw_op *op, uint64_t n);
/* The same, under the lock. */
void hw_op_sub_locked(struct hw_op *op, uint64_t n);
/* hw_op_cancel() under the lock. */
void hw_op_cancel_locked(struct hw_op *op, int why);
/* Has the home loop check the operation at op->deadline, or no more (deadline.c). Under the lock. */
void hw_op_time(struct hw_peer *p, struct hw_op *op);
void hw_op_untime(struct hw_op *op);
void hw_deadlines_init(struct hw_peer *p);
/* Advances the operations of this list, whose region is known now, or refused. Under the lock. */
void hw_ops_resume(struct hw_peer *p, struct hw_list *ops);
/* Starts operations that waited for room for their notification. Under the lock. */
void hw_notes_resume(struct hw_peer *p);
/* Ends operations that waited for control messages. Under the lock. */
void hw_ops_unfence(struct hw_peer *p);
/* Releases the lock, and calls over() of the operations that have ended: used wherever the lock was held for a function
 * of this file. */
void hw_ops_unlock(struct hw_peer *p);
/* Calls over() of these operations after the lock was released otherwise. */
void hw_ops_flush(struct hw_peer *p);
/* The operation with this number, or NULL. Under the lock. */
struct hw_op *hw_op_find(struct hw_peer *p, uint64_t id);
/* Returns a landing that has ended to the table. Under the lock. */
void hw_op_end_landing(struct hw_op *op, struct hw_landing *g);
/* Sends STOP for requests that are not wanted any more. Under the lock. */
void hw_stops_send(struct hw_peer *p);
/* The peer has answered, or will never answer, one more request. Under the lock. */
void hw_request_ended(struct hw_peer *p);
/* All of a serve was cut, or will never be. */
void hw_serve_was_cut(struct hw_op *op);
/* The peer is dead: ends all operations. */
void hw_ops_die(struct hw_peer *p);
void hw_ops_init(struct hw_peer *p);
void hw_ops_free(struct hw_peer *p);
/* Room that a notification takes at the peer. */
static inline uint64_t hw_note_cost(const struct hw_note *note)
{
    return note->len + HW_NOTE_COST;
}

/* The callbacks of rails into the message layer: for outgoing frames (flow_out.c), .. */
extern const struct hw_session_ops hw_peer_session_ops;
uint32_t hw_span_at(const struct hw_op *op, uint64_t at);
/* Lists the memory of bytes [at, end), up to HW_LINK_PIECES pieces. Returns their number. */
uint32_t hw_op_list_pieces(const struct hw_op *op, uint64_t at, uint64_t end, struct hw_piece *piece);
/* .. and for incoming frames (flow_in.c): the members of that name. */
int hw_flow_place(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
int hw_flow_more(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                 uint32_t *n);
int hw_flow_arrived(void *up, unsigned rail, const struct hw_link_in *in);
void hw_counts_free(struct hw_peer *p);
void hw_flow_abandoned(void *up, unsigned rail, const struct hw_link_in *in);
int hw_flow_refused(void *up, unsigned rail, struct hw_link_in *in);
/* Cuts requests of reads. Under the lock. */
void hw_requests_cut(struct hw_peer *p);
/* Has rails cut the operation, or sends it whole. Under the lock. */
void hw_op_send(struct hw_op *op);
/* Processes the next control message in order, on the home loop. May take ownership of c->note. -EPROTO, -ENOMEM. */
int hw_peer_control(struct hw_peer *p, struct hw_control_in *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Operations inside the message layer: their lifetime (op.c, deadline.c) and how rails use them (flow_out.c,
 * flow_in.c). */
#ifndef HW_OP_H
#define HW_OP_H

#include "message/control.h"
#include "message/peer.h"

/* Sets the operation's result unless it has one already. */
void hw_op_set_result(struct hw_op *op, int why);
/* Subtracts n from the operation's count, and ends the operation if the count is then 0. Called without the lock. */
void hw_op_sub(struct hw_op *op, uint64_t n);
/* Works like hw_op_sub(), with the lock held. */
void hw_op_sub_locked(struct hw_op *op, uint64_t n);
/* Works like hw_op_cancel(), with the lock held. */
void hw_op_cancel_locked(struct hw_op *op, int why);
/* Schedule and cancel the home loop's check of the operation at op->deadline (deadline.c). Called with the lock
 * held. */
void hw_op_time(struct hw_peer *p, struct hw_op *op);
void hw_op_untime(struct hw_op *op);
void hw_deadlines_init(struct hw_peer *p);
/* Advances the operations in this list, because the peer has answered about their region, or because the last deserted
 * write has ended. Called with the lock held. */
void hw_ops_resume(struct hw_peer *p, struct hw_list *ops);
/* Starts operations that waited for buffer space for their notification. Called with the lock held. */
void hw_notes_resume(struct hw_peer *p);
/* Ends operations that waited until control messages were read. Called with the lock held. */
void hw_ops_unfence(struct hw_peer *p);
/* Works like hw_ops_unlock(), but is called without the lock. */
void hw_ops_flush(struct hw_peer *p);
/* Records that hw_ops_unlock() may have something to flush. Called with the lock held. */
static inline void hw_ops_need_flush(struct hw_peer *p)
{
    atomic_store_explicit(&p->unflushed, true, memory_order_release);
}
/* Returns the operation with this number, or NULL. Called with the lock held. */
struct hw_op *hw_op_find(struct hw_peer *p, uint64_t id);
/* Returns a landing that has ended to the table. Called with the lock held. */
void hw_op_end_landing(struct hw_op *op, struct hw_landing *g);
/* Sends STOP for requests that are no longer wanted. Called with the lock held. */
void hw_stops_send(struct hw_peer *p);
/* Counts a request as ended, because the peer has answered it or never will. Called with the lock held. */
void hw_request_ended(struct hw_peer *p);
/* Stops counting the answer as uncut, because it was cut completely, or because the rest will never be cut. */
void hw_serve_was_cut(struct hw_op *op);
/* Implements the member flushed of hw_peer_session_ops: ends the flush of the BYE operations. */
void hw_ops_flushed(void *up);
/* Cancels all operations of a dead peer. */
void hw_ops_die(struct hw_peer *p);
void hw_ops_init(struct hw_peer *p);
void hw_ops_free(struct hw_peer *p);
/* Returns the buffer space that a notification takes at its receiver. */
static inline uint64_t hw_note_cost(const struct hw_note *note)
{
    return note->len + HW_NOTE_COST;
}

/* Callbacks of the session into the message layer (flow_out.c). */
extern const struct hw_session_ops hw_peer_session_ops;
/* Returns the index of the span that contains byte `at`. */
uint32_t hw_span_at(const struct hw_op *op, uint64_t at);
/* Lists the memory of bytes [at, end) in up to HW_LINK_PIECES pieces. Returns the number of pieces. */
uint32_t hw_op_list_pieces(const struct hw_op *op, uint64_t at, uint64_t end, struct hw_piece *piece);
/* Incoming frames (flow_in.c). hw_flow_X() implements the member X of hw_peer_session_ops. */
int hw_flow_place(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
int hw_flow_more(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                 uint32_t *n);
int hw_flow_arrived(void *up, unsigned rail, const struct hw_link_in *in);
void hw_counts_free(struct hw_peer *p);
void hw_flow_abandoned(void *up, unsigned rail, const struct hw_link_in *in);
int hw_flow_refused(void *up, unsigned rail, struct hw_link_in *in);
/* Cuts reads into requests. Called with the lock held. */
void hw_requests_cut(struct hw_peer *p);
/* Lets rails cut the operation into chunks, or sends a small operation whole. Called with the lock held. */
void hw_op_send(struct hw_op *op);
/* Processes the next control message in order, on the home loop. May take ownership of c->note. Fails with a negative
 * errno such as -EPROTO or -ENOMEM. */
int hw_peer_control(struct hw_peer *p, struct hw_control_in *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues: the k-th message that is sent to a queue is matched with the k-th receive that is posted to it. The name of a
 * queue is 64 bits (the API puts a stream and a tag there); a queue exists on each side while it has operations, and
 * needs no opening. The sender decides which receive gets a message:
 *
 *   - The receiver announces a receive by a GRANT, which names its landing. A message that finds a grant is
 *     sent directly to that landing, as DATA.
 *   - A message that finds none is sent as EAGER if it is short, is in host memory, and the peer has room for it;
 *     otherwise it waits, and so do those behind it. The receiver gives an eager message to the oldest receive that was
 *     posted and is not taken, or keeps it for the next one, and answers MATCHED. Until all eager messages of a queue
 *     are answered, no grant of it is used, so both sides agree on the match.
 *   - A receive in memory that the CPU cannot access takes no eager message: the receiver drops it and answers MATCHED
 *     with EAGAIN and the receive's landing, and the sender sends the message there.
 *   - The b of an EAGER defines "taken": to the sender's knowledge all grants whose control message has a lower number
 *     are taken, and none of the others.
 *
 * After a send has succeeded, its message is with a receive that was long enough. A message that is too long fails the
 * send and the receive with -EMSGSIZE. A receive that is cancelled leaves the message to the next one (WITHDRAW); if
 * data for it was in flight, that message is lost, and its send fails with -ECANCELED. Likewise, a send that is
 * cancelled fails the receive to which its data was in flight; an eager message that no receive has got yet has no
 * effect (UNSEND).
 */
#ifndef HW_QUEUE_H
#define HW_QUEUE_H

#include "message/peer.h"

/* Starts an operation of kind HW_OP_SEND or HW_OP_RECV. Under the lock. 0; -ENOMEM, -EAGAIN: too many queues. */
int hw_queue_post(struct hw_op *op);
/* Drops a cancelled operation, which is in no list any more. Under the lock. Returns how much of its remaining count is
 * over. */
uint64_t hw_queue_drop(struct hw_op *op);
/* The landing of a receive is full. Under the lock. */
void hw_queue_filled(struct hw_op *op);
/* Copies the eager message that the receive was given, and ends it. Not under the lock. */
void hw_queue_copy(struct hw_op *op);

/* Streams (stream.c): the queues whose names have the stream's number, above 0, in the upper half.
 *
 * Closes one for good: its operations here end with -ECANCELED, later ones of the peer are refused with -ESHUTDOWN.
 * From any thread. 0, -EINVAL it is closed already, -ENOMEM, -EAGAIN too many are closed, or the error with which the
 * peer died. */
int hw_stream_close(struct hw_peer *p, uint32_t stream);
/* True if the stream of this queue was closed by this side (here), or by the peer. Under the lock. */
bool hw_stream_is_closed(struct hw_queues *t, uint64_t queue, bool here);
/* Refuses the receives and messages of the peer that have no partner here. Under the lock. */
void hw_queues_refuse(struct hw_peer *p, uint32_t stream);
void hw_streams_free(struct hw_queues *t);

/* Process received control messages, on the home loop. -ENOMEM: nothing was done; -EPROTO. */
int hw_queue_granted(struct hw_peer *p, const struct hw_control_head *h);
int hw_queue_withdrawn(struct hw_peer *p, const struct hw_control_head *h);
/* *note: the message; the callee owns it after success. */
int hw_queue_eager(struct hw_peer *p, const struct hw_control_head *h, struct hw_note **note);
int hw_queue_matched(struct hw_peer *p, const struct hw_control_head *h);
int hw_queue_unsent(struct hw_peer *p, const struct hw_control_head *h);
int hw_stream_closed(struct hw_peer *p, const struct hw_control_head *h);

/* Reserves room for an eager message of this length, until a receive gets it. False: the peer sends too many. */
bool hw_eager_take(struct hw_peer *p, uint32_t len);
void hw_eager_give(struct hw_peer *p, uint32_t len);

void hw_queues_init(struct hw_queues *t);
void hw_queues_free(struct hw_queues *t);

#endif

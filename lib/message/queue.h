/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues: the k-th message that is sent to a queue meets the k-th receive that is posted to it. A queue is named by 64
 * bits (the API puts a stream and a tag there), exists on each side while something of it is under way, and needs no
 * opening. The sender decides which message goes to which receive:
 *
 *   - A receive is made known to the sender by a GRANT, which names its landing. A message that finds a grant goes
 *     straight there, as DATA.
 *   - A message that finds none goes as EAGER, if it is short, lies in host memory, and there is room for it at the
 *     peer; otherwise it waits, and those behind it. The receiver gives an eager message to the oldest receive that
 *     was posted and is not taken, or keeps it for the next one, and answers MATCHED. Until all eager messages of a
 *     queue are answered no grant of it is used, so both sides agree on who gets what.
 *   - A receive in memory that the CPU cannot use takes no eager message: the receiver drops it and answers MATCHED
 * with EAGAIN and the receive's landing, and the sender sends the message there.
 *   - The b of an EAGER says what "taken" means: all grants whose control message has a lower number are, as far as the
 *     sender knows, and none of the others.
 *
 * A send that ends well has its message with a receive that was long enough. One that is too long fails, and the
 * receive with it, -EMSGSIZE. A receive that is called off leaves the message to the next one (WITHDRAW); where data
 * for it was on its way that message is lost, and its send fails with -ECANCELED. A send that is called off fails the
 * receive that its data was on its way to, likewise; an eager message that nobody has received yet leaves nothing
 * behind (UNSEND).
 */
#ifndef HW_QUEUE_H
#define HW_QUEUE_H

#include "message/peer.h"

/* An operation of kind HW_OP_SEND or HW_OP_RECV begins. Under the lock. 0; -ENOMEM, -EAGAIN: too many queues. */
int hw_queue_post(struct hw_op *op);
/* It is called off, and not in a list any more. Under the lock. Returns how much is over of what was left. */
uint64_t hw_queue_drop(struct hw_op *op);
/* The landing of a receive is full. Under the lock. */
void hw_queue_filled(struct hw_op *op);
/* Copies the eager message that the receive was given, and ends it. Not under the lock. */
void hw_queue_copy(struct hw_op *op);

/* Streams (stream.c): the queues whose names have the stream's number, above 0, in the upper half.
 *
 * Closes one for good: what is under way of it here ends with -ECANCELED, what comes of it is refused with -ESHUTDOWN.
 * From any thread. 0, -EINVAL it is closed already, -ENOMEM, -EAGAIN too many are, or why the peer died. */
int hw_stream_close(struct hw_peer *p, uint32_t stream);
/* Is the stream of this queue closed by this side (here), or by the peer? Under the lock. */
bool hw_stream_is_closed(struct hw_queues *t, uint64_t queue, bool here);
/* Refuses the receives and messages of the peer's that nothing here has met. Under the lock. */
void hw_queues_refuse(struct hw_peer *p, uint32_t stream);
void hw_streams_free(struct hw_queues *t);

/* Control messages have come, on the home loop. -ENOMEM: nothing was done; -EPROTO. */
int hw_queue_granted(struct hw_peer *p, const struct hw_control_head *h);
int hw_queue_withdrawn(struct hw_peer *p, const struct hw_control_head *h);
/* *note: the message; taken where this succeeds. */
int hw_queue_eager(struct hw_peer *p, const struct hw_control_head *h, struct hw_note **note);
int hw_queue_matched(struct hw_peer *p, const struct hw_control_head *h);
int hw_queue_unsent(struct hw_peer *p, const struct hw_control_head *h);
int hw_stream_closed(struct hw_peer *p, const struct hw_control_head *h);

/* Room for an eager message of this length, until it is given to a receive. False: the peer sends too many. */
bool hw_eager_take(struct hw_peer *p, uint32_t len);
void hw_eager_give(struct hw_peer *p, uint32_t len);

void hw_queues_init(struct hw_queues *t);
void hw_queues_free(struct hw_queues *t);

#endif

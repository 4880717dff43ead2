/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues: the k-th message that is sent to a queue matches the k-th receive that is posted to the queue. The name of a
 * queue has 64 bits, in which the API stores a stream and a tag. A queue exists on each side while it is in use, and
 * need not be opened. Messages are matched with receives as follows:
 *
 *  - The receiver announces a receive with a GRANT, which contains the number of its landing. If a grant is available,
 *    the message is sent directly to this landing, as DATA.
 *  - Without a usable grant a message is sent as EAGER if it is short and in host memory, and if the peer has buffer
 *    space for it. Otherwise the message waits, and so do later messages. The receiver assigns an eager message to the
 *    oldest posted receive that is not taken, or keeps it for the next receive. Once the message has a receive, the
 *    receiver answers MATCHED. Until all eager messages of a queue are answered, the sender uses no grant of the queue.
 *    Both sides therefore agree on the match.
 *  - A receive in memory that the CPU cannot access takes no eager message. The receiver drops the message and answers
 *    MATCHED with EAGAIN and the receive's landing. The sender then sends the message to this landing.
 *  - Field b of an EAGER defines "taken": all grants whose control message has a lower number are taken, as far as the
 *    sender knows, and later grants are not.
 *
 * After a send has succeeded, its message has been received in full. A message that is too long fails the send and the
 * receive with -EMSGSIZE. A cancelled receive leaves the message to the next receive (WITHDRAW). If data for the
 * cancelled receive was in flight, the message is lost, and its send fails with -ECANCELED. In the same way a cancelled
 * send fails the receive that its data was in flight to. A cancelled eager message that no receive has taken yet has no
 * effect (UNSEND).
 */
#ifndef HW_QUEUE_H
#define HW_QUEUE_H

#include "message/peer.h"

/* Starts an operation of kind HW_OP_SEND or HW_OP_RECV. Called with the lock held. Fails with -ENOMEM, -ESHUTDOWN for a
 * closed stream, or -EAGAIN for too many queues. */
int hw_queue_post(struct hw_op *op);
/* Drops a cancelled operation that was removed from its queue's lists. Returns how much to subtract from the
 * operation's count. Called with the lock held. */
uint64_t hw_queue_drop(struct hw_op *op);
/* Handles a receive whose landing is full. Called with the lock held. */
void hw_queue_filled(struct hw_op *op);
/* Copies the eager message that was assigned to the receive, and ends the receive. Called without the lock. */
void hw_queue_copy(struct hw_op *op);

/* Streams (stream.c): a stream consists of the queues whose names have the stream's number, above 0, in the upper half.
 *
 * Closes a stream. Its operations on this side end with -ECANCELED, and later operations of the peer are refused with
 * -ESHUTDOWN. May be called from any thread. Fails with -EINVAL if this side, but not the peer, has already closed the
 * stream, -ENOMEM, -EAGAIN if too many streams are closed by this side only, or the error that the peer died with. */
int hw_stream_close(struct hw_peer *p, uint32_t stream);
/* Returns true if this side (here) or the peer (not here), but not both, has closed the queue's stream. Called with the
 * lock held. */
bool hw_stream_is_closed(struct hw_queues *t, uint64_t queue, bool here);
/* Refuses the peer's receives and messages in this stream that have no partner on this side. Called with the lock held.
 */
void hw_queues_refuse(struct hw_peer *p, uint32_t stream);
void hw_streams_init(struct hw_queues *t);
void hw_streams_free(struct hw_queues *t);

/* Process received control messages, on the home loop. Fail with -EPROTO, with the error that the peer died with, or
 * with -ENOMEM, after which the message can be processed again. */
int hw_queue_granted(struct hw_peer *p, const struct hw_control_head *h);
int hw_queue_withdrawn(struct hw_peer *p, const struct hw_control_head *h);
/* *note is the message. If this function keeps the message, it sets *note to NULL. Otherwise the caller frees the
 * message. */
int hw_queue_eager(struct hw_peer *p, const struct hw_control_head *h, struct hw_note **note);
int hw_queue_matched(struct hw_peer *p, const struct hw_control_head *h);
int hw_queue_unsent(struct hw_peer *p, const struct hw_control_head *h);
int hw_stream_closed(struct hw_peer *p, const struct hw_control_head *h);

/* Reserves buffer space for an eager message until a receive takes it. Returns false if the message is too long or
 * exceeds the space. */
bool hw_eager_take(struct hw_peer *p, uint32_t len);
void hw_eager_give(struct hw_peer *p, uint32_t len);

void hw_queues_init(struct hw_queues *t);
void hw_queues_free(struct hw_queues *t);

#endif

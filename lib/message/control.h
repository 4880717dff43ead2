/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages: small, and read in the order in which they were sent, over a session that does not keep the order.
 * Up to HW_CONTROL_WINDOW of them are sent and unread; later ones wait. TAKEN frames tell the peer how many were read,
 * and how many bytes of notifications the application has taken.
 */
#ifndef HW_CONTROL_H
#define HW_CONTROL_H

#include "message/peer.h"

/* A received message until it is read in order. */
struct hw_control_in {
    struct hw_control_in *next; /* in the inbox: newest first */
    struct hw_control_head head;
    struct hw_note *note; /* NOTE, EAGER: the payload */
};

/* Sends a copy of c: kind, a to d, op. 0, -ENOMEM, or the error with which the peer died. From any thread. */
int hw_control_send(struct hw_peer *p, const struct hw_control *c);
/* The same; the caller holds the peer's lock. */
int hw_control_send_locked(struct hw_peer *p, const struct hw_control *c);
/* Sends c, which is at the start of allocated memory and is freed with it. Cannot fail; if the peer is dead, c is freed
 * at once. Under the lock. */
void hw_control_send_own(struct hw_peer *p, struct hw_control *c);
/* The same in op->last, so that memory is available: once for each operation. Does nothing if the peer is dead. Under
 * the lock. */
void hw_control_send_within(struct hw_op *op, const struct hw_control *c);
/* The same in the peer's spare message, for STOP. False: the spare message is in use. Under the lock. */
bool hw_control_send_spare(struct hw_peer *p, const struct hw_control *c);
/* Tells the peer that its request is refused: a is an operation (FAIL) or a landing (UNREAD) of the peer. On the loop
 * of the rail that refuses, before the refused frame is counted. 0, or -errno: the rail must end. */
int hw_control_refuse(struct hw_peer *p, enum hw_control_kind kind, uint64_t a, int error);
/* The mark of hw_session_ops. */
uint32_t hw_control_mark(const struct hw_peer *p);

/* A rail's side. */
void hw_control_fill(const struct hw_control *c, struct hw_link_out *out);
/* The peer has received it, or the session is dead. */
void hw_control_done(struct hw_peer *p, struct hw_control *c);
/* One arrived. The inbox takes ownership. */
void hw_control_arrived(struct hw_peer *p, struct hw_control_in *c);
void hw_taken_fill(struct hw_peer *p, struct hw_link_out *out);
void hw_taken_done(struct hw_peer *p);
/* The peer has read and taken this much. -EPROTO: more than was sent. */
int hw_taken_arrived(struct hw_peer *p, uint32_t sequence, uint64_t notes);

/* Tells the peer how much was read and taken, if it is enough for a frame. */
void hw_taken_tell(struct hw_peer *p);
void hw_control_init(struct hw_peer *p);
/* The peer is dead: drops all messages that wait. On the home loop. */
void hw_control_die(struct hw_peer *p);
void hw_control_free(struct hw_peer *p);

#endif

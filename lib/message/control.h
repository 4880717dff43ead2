/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages: small, and read in the order in which they were sent, over a session that keeps no order. Up to
 * HW_CONTROL_WINDOW are with the peer and not read; later ones wait. TAKEN frames tell the peer how many were read, and
 * how many bytes of notifications the application has taken.
 */
#ifndef HW_CONTROL_H
#define HW_CONTROL_H

#include "message/peer.h"

/* One that came, until its turn. */
struct hw_control_in {
    struct hw_control_in *next; /* newest first, in the inbox */
    struct hw_control_head head;
    struct hw_note *note; /* NOTE, EAGER: the payload */
};

/* Sends a copy of c: kind, a to d, op. 0, -ENOMEM, or why the peer died. From any thread. */
int hw_control_send(struct hw_peer *p, const struct hw_control *c);
/* The same, where the caller holds the peer's lock. */
int hw_control_send_locked(struct hw_peer *p, const struct hw_control *c);
/* Sends c, at the start of memory that was allocated and is freed with it. Cannot fail; where the peer is dead c is
 * freed at once. Under the lock. */
void hw_control_send_own(struct hw_peer *p, struct hw_control *c);
/* The same, in op->last, so that there is memory for it: once for each operation. Nothing where the peer is dead. */
void hw_control_send_within(struct hw_op *op, const struct hw_control *c);
/* The same in the peer's spare message, of STOP. False: it is on its way already. Under the lock. */
bool hw_control_send_spare(struct hw_peer *p, const struct hw_control *c);
/* Tells the peer that it will not get what it asked for: a is an operation (FAIL) or a landing (UNREAD) of the peer's.
 * On the loop of the rail that refuses, before the refused frame is counted. 0, or -errno: the rail has to end. */
int hw_control_refuse(struct hw_peer *p, enum hw_control_kind kind, uint64_t a, int error);
/* The mark of hw_session_ops. */
uint32_t hw_control_mark(const struct hw_peer *p);

/* A rail's side. */
void hw_control_fill(const struct hw_control *c, struct hw_link_out *out);
/* The peer has it, or the session is dead. */
void hw_control_done(struct hw_peer *p, struct hw_control *c);
/* One arrived. The inbox's from here on. */
void hw_control_arrived(struct hw_peer *p, struct hw_control_in *c);
void hw_taken_fill(struct hw_peer *p, struct hw_link_out *out);
void hw_taken_done(struct hw_peer *p);
/* The peer has read and taken so much. -EPROTO: more than was sent. */
int hw_taken_arrived(struct hw_peer *p, uint32_t sequence, uint64_t notes);

/* Tells the peer how much was read and taken, if that is enough to tell. */
void hw_taken_tell(struct hw_peer *p);
void hw_control_init(struct hw_peer *p);
/* The peer is dead: what waits is dropped. On the home loop. */
void hw_control_die(struct hw_peer *p);
void hw_control_free(struct hw_peer *p);

#endif

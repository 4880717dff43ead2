/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages travel as small parcels and are read in the order in which they were sent, although the session
 * below does not keep the order. Up to HW_CONTROL_WINDOW messages may be sent and unread; later messages wait. TAKEN
 * frames tell the peer how many messages were read, and how many bytes of notifications the application has taken.
 */
#ifndef HW_CONTROL_H
#define HW_CONTROL_H

#include "message/peer.h"

/* A received message that waits to be read in order. */
struct hw_control_in {
    struct hw_control_in *next; /* list of the inbox, newest first */
    struct hw_control_head head;
    struct hw_note *note; /* NOTE and EAGER: the payload */
};

/* Fails with -EAGAIN if too many control messages wait that the peer did not cause. Called with the lock held. */
int hw_control_check_own(const struct hw_peer *p);
/* Sends a copy of c. The caller sets the members kind, a to d, note and op. Fails with -ENOMEM or the error that the
 * peer died with. May be called from any thread. */
int hw_control_send(struct hw_peer *p, const struct hw_control *c);
/* Works like hw_control_send(), with the peer's lock held. */
int hw_control_send_locked(struct hw_peer *p, const struct hw_control *c);
/* Sends c, which is at the start of allocated memory and is freed with this memory. Cannot fail. If the peer is dead, c
 * is freed at once. Called with the lock held. */
void hw_control_send_own(struct hw_peer *p, struct hw_control *c);
/* Sends c from op->last, without allocating memory. May be called once for each operation. Does nothing if the peer is
 * dead. Called with the lock held. */
void hw_control_send_within(struct hw_op *op, const struct hw_control *c);
/* Sends a STOP from the peer's spare message, without allocating memory. Returns false if the spare message is in use
 * or the peer is dead. Called with the lock held. */
bool hw_control_send_spare(struct hw_peer *p, const struct hw_control *c);
/* Tells the peer that its frame was refused. a is the peer's operation. Called on the loop of the rail that received
 * the frame, before the frame is counted as received. Returns 0, or a negative errno if the rail must end. */
int hw_control_refuse(struct hw_peer *p, enum hw_control_kind kind, uint64_t a, int error);
/* Returns the mark for struct hw_session_ops. */
uint32_t hw_control_mark(const struct hw_peer *p);

/* Fills the frame that carries the control message. */
void hw_control_fill(const struct hw_control *c, struct hw_link_out *out);
/* Ends a control message that the peer has received or that is lost with the session. */
void hw_control_done(struct hw_peer *p, struct hw_control *c);
/* Records the error for a control message that arrived twice, or outside the window that begins with `next`. Returns
 * -EPROTO. */
int hw_control_misplaced(uint32_t sequence, uint32_t next);
/* Takes ownership of a message that this rail received. On the home loop, the message is processed at once if it is the
 * next message in order. On another loop, a task of the home loop processes it. */
void hw_control_arrived(struct hw_peer *p, unsigned rail, struct hw_control_in *c);
void hw_taken_fill(struct hw_peer *p, struct hw_link_out *out);
void hw_taken_done(struct hw_peer *p);
/* Processes a TAKEN frame: the peer has read the messages before `sequence`, and its application has taken `notes`
 * bytes. Fails with -EPROTO if either number exceeds the amount sent, or is smaller than in an earlier TAKEN frame. */
int hw_taken_arrived(struct hw_peer *p, uint32_t sequence, uint64_t notes);

/* Sends TAKEN if enough messages were read, or enough notifications taken, since the last TAKEN. */
void hw_taken_tell(struct hw_peer *p);
void hw_control_init(struct hw_peer *p);
/* Drops all waiting messages of a dead peer. Called on the home loop. */
void hw_control_die(struct hw_peer *p);
void hw_control_free(struct hw_peer *p);

#endif

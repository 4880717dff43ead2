/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container has one broker, even if several of its programs have separate filters and listeners. A program started by
 * the container runtime's exec joins the existing broker, so that quotas apply to the whole container. The broker
 * receives datagrams on the socket STATE/ID.join, to which only root may write. ECONNREFUSED means that the broker has
 * exited.
 *
 * If the broker of a container dies, the remaining objects of the container are no longer counted. The container then
 * gets no new broker as long as the program for which the dead broker was started is running. STATE/ID.lock contains
 * the PID and the start time of this program.
 */
#ifndef HW_VERBS_JOIN_H
#define HW_VERBS_JOIN_H

#include "verbs/broker/broker.h"

/* Passes c->listener to the broker of c's container and returns 1. If there is no broker, creates the socket c->join,
 * so that this process receives the datagrams, and returns 0. Fails with -EOWNERDEAD if the broker has died and the
 * program for which it was started is still running, -EBUSY if the broker did not answer within 5 s or another program
 * held the container's lock for 10 s, -EPERM if the rules (section, annotations) of the broker differ from the rules of
 * c, -E2BIG if the annotations are too long to compare, -EUSERS if the broker has too many listeners, or with another
 * -errno. */
int vb_join(const char *state_dir, struct vb_container *c);
/* Receives the listener of another program that has the same rules as c. The broker calls this function when c->join is
 * readable. Returns the listener, which the caller owns; the caller must answer on *reply with vb_join_answer().
 * Returns -EAGAIN if there was no listener or the program was refused. */
int vb_join_take(const struct vb_container *c, int *reply);
void vb_join_answer(int reply, int rc); /* sends rc and closes reply */
/* Removes the sockets and the lock of a container unless a broker is still listening. over is true if the last program
 * of the container exited before the broker. If over is false, nothing is removed while the program for which the
 * broker was started is running. */
void vb_join_clean(const char *state_dir, const char *id, bool over);
/* Returns true if the program for which the container's broker was started is still running. Call this function only
 * after the broker has exited. */
bool vb_join_owned(const char *state_dir, const char *id);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One broker for each container, whatever number of its programs have a filter and a listener of their own: what runs
 * in it by exec joins the broker that is there, so that quotas are the container's. The broker takes datagrams at
 * STATE/ID.join, a socket that root alone may write to; the kernel says by ECONNREFUSED that a broker has ended.
 *
 * A container whose broker has died has objects still that nobody counts: it gets no other broker as long as the
 * program lives that the first one came with. STATE/ID.lock names that program.
 */
#ifndef HW_VERBS_JOIN_H
#define HW_VERBS_JOIN_H

#include "verbs/broker/broker.h"

/* Gives c->listener to the broker of c's container: 1. Or, where there is none, makes this process the one that takes
 * datagrams there, c->join: 0. -EOWNERDEAD: its broker has died. -EBUSY: the broker has not answered within 5 s;
 * -EPERM: it has other rules (section, annotations) than c says; -E2BIG: there are too many annotations to compare, or
 * listeners; -errno. */
int vb_join(const char *state_dir, struct vb_container *c);
/* In the broker, when c->join is readable: the listener of one more program, whose rules are c's; it is the caller's,
 * who then answers rc to *reply by vb_join_answer(). -EAGAIN: there was none, or it has been refused. */
int vb_join_take(const struct vb_container *c, int *reply);
void vb_join_answer(int reply, int rc); /* closes reply */
/* Removes the sockets and the lock of a container whose broker has ended. over: the broker has seen the last of its
 * programs go; else its first program is looked for. */
void vb_join_clean(const char *state_dir, const char *id, bool over);
/* Does the first program of a container live, whose broker has ended? */
bool vb_join_owned(const char *state_dir, const char *id);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One broker per container, even if several of its programs have a filter and a listener of their own: a program
 * started by exec joins the existing broker, so that quotas apply to the whole container. The broker receives datagrams
 * at STATE/ID.join, a socket to which only root may write; ECONNREFUSED tells that a broker has ended.
 *
 * If a container's broker dies, nobody counts the container's remaining objects: it gets no new broker while the
 * program lives that the first one was started for. STATE/ID.lock names that program.
 */
#ifndef HW_VERBS_JOIN_H
#define HW_VERBS_JOIN_H

#include "verbs/broker/broker.h"

/* Passes c->listener to the broker of c's container: 1. If there is none, makes this process the receiver of datagrams,
 * c->join: 0. -EOWNERDEAD: its broker has died. -EBUSY: the broker did not answer within 5 s; -EPERM: it has other
 * rules (section, annotations) than c; -E2BIG: too many annotations to compare, or too many listeners; -errno. */
int vb_join(const char *state_dir, struct vb_container *c);
/* In the broker, when c->join is readable: takes the listener of one more program with c's rules. The caller owns it,
 * and answers rc to *reply with vb_join_answer(). -EAGAIN: there was none, or it was refused. */
int vb_join_take(const struct vb_container *c, int *reply);
void vb_join_answer(int reply, int rc); /* closes reply */
/* Removes the sockets and the lock of a container whose broker has ended. over: the broker has seen the last of its
 * programs end; otherwise checks for its first program. */
void vb_join_clean(const char *state_dir, const char *id, bool over);
/* Returns true if the first program of a container lives whose broker has ended. */
bool vb_join_owned(const char *state_dir, const char *id);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes in one process over real threads and sockets: each loop has a driver, each rail a few socket pairs or TCP
 * connections over loopback. Tests with real concurrency what the simulator tests for one order of events at a time.
 */
#ifndef HW_REAL_H
#define HW_REAL_H

#include "core/session.h"
#include "transport/tcp/tcp.h"

#define REAL_LOOPS 2
#define REAL_RAILS 2

struct real_node {
    struct hw_driver driver[REAL_LOOPS];
    struct hw_knobs knobs; /* all 0 */
    struct hw_session *session;
    unsigned rails, links;
    bool tcp;                           /* if false: Unix socket pairs */
    int cut[REAL_RAILS][HW_RAIL_LINKS]; /* side 0: copies of the newest file descriptors */
};

/* Makes both nodes' loops. Rail i must be on loop i % REAL_LOOPS. */
void real_init(struct real_node node[2]);
/* Starts their threads, after the sessions are made. */
void real_start(struct real_node node[2]);
/* Stops them, before the sessions are freed. */
void real_stop(struct real_node node[2]);
/* Runs fn(arg) on the node's home loop and waits for it. */
void real_call(struct real_node *n, void (*fn)(void *arg), void *arg);
/* Connects rail i of both sessions, once it is down. Returns false if that was refused, or takes more than 10 s. */
bool real_connect(struct real_node node[2], unsigned i);
/* Cuts one connection of rail i. */
void real_cut(struct real_node node[2], unsigned i, unsigned link);

#endif

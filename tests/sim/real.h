/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes in one process with real threads and sockets: each loop has a driver, and each rail has a few socket pairs
 * or loopback TCP connections. Tests under real concurrency what the simulator tests with one event at a time.
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
    bool tcp;                           /* false: Unix socket pairs */
    int cut[REAL_RAILS][HW_RAIL_LINKS]; /* duplicates of side 0's newest file descriptors */
};

/* Creates both nodes' loops. Rail i must use loop i % REAL_LOOPS. */
void real_init(struct real_node node[2]);
/* Starts the nodes' threads. Call after the sessions are created. */
void real_start(struct real_node node[2]);
/* Stops the nodes' threads. Call before the sessions are freed. */
void real_stop(struct real_node node[2]);
/* Runs fn(arg) on the node's home loop and waits for it. */
void real_call(struct real_node *n, void (*fn)(void *arg), void *arg);
/* Waits until rail i is down, and connects it in both sessions. Returns false on refusal or after more than 10 s. */
bool real_connect(struct real_node node[2], unsigned i);
/* Cuts one connection of rail i. */
void real_cut(struct real_node node[2], unsigned i, unsigned link);

#endif

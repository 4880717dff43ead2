/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes client connections that have ended. The queue of a connection may contain unread messages with descriptors.
 * Closing the connection also closes these descriptors, and a client can make this block indefinitely
 * (helper/child/child.h). A child process therefore gets the connections, hawserd closes its references, and the child
 * closes the last references when it exits.
 */
#ifndef HW_HELPER_DISCARD_H
#define HW_HELPER_DISCARD_H

#include "helper/child/child.h"

#define HD_CLIENTS_MAX  1024 /* maximum number of connected clients */
#define HD_DISCARD_ROOM 512  /* no connection is accepted while this many are waiting to be closed */
/* All connections may end while HD_DISCARD_ROOM connections are waiting to be closed. */
#define HD_DISCARD_MAX (HD_CLIENTS_MAX + HD_DISCARD_ROOM)
/* this many queued connections are closed immediately; fewer are closed after HD_DISCARD_MS */
#define HD_DISCARD_BATCH    16
#define HD_DISCARD_MS       100
#define HD_DISCARD_CHILDREN 8

struct hd_discard {
    int fd[HD_DISCARD_MAX];
    unsigned n;
    uint64_t due;                   /* hd_discard_run() does nothing before this time, in hw_now() time */
    int child[HD_DISCARD_CHILDREN]; /* socket pairs of the children that are still running */
    unsigned n_children;
};

void hd_discard_init(struct hd_discard *d);
/* Returns true if a new connection may be accepted, because there is space to discard it later. */
bool hd_discard_room(const struct hd_discard *d);
/* Shuts down a connection, which ends the connection for the client immediately, and queues the connection to be
 * closed. Takes ownership of *fd and sets it to -1. */
void hd_discard_add(struct hd_discard *d, int *fd);
/* Starts a child that closes up to HD_CHILD_FDS queued connections, if they are due and fewer than HD_DISCARD_CHILDREN
 * children are running. */
void hd_discard_run(struct hd_discard *d);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client connections that have ended. Such a connection's queue may hold unread messages with descriptors; closing the
 * connection closes these too, which may take as long as the client likes (helper/child/child.h). So a child process
 * gets the connections, hawserd closes its own references, and the child closes the last ones by exiting.
 */
#ifndef HW_HELPER_DISCARD_H
#define HW_HELPER_DISCARD_H

#include "helper/child/child.h"

#define HD_DISCARD_MAX      1024
#define HD_DISCARD_BATCH    16 /* connections that start a process at once; fewer after HD_DISCARD_MS */
#define HD_DISCARD_MS       100
#define HD_DISCARD_CHILDREN 8

struct hd_discard {
    int fd[HD_DISCARD_MAX];
    unsigned n;
    uint64_t due;                   /* when to run, in hw_now() time */
    int child[HD_DISCARD_CHILDREN]; /* socket pairs of the children that are still running */
    unsigned n_children;
};

void hd_discard_init(struct hd_discard *d);
/* Returns true if a connection can be added. If not, do not accept new ones. */
bool hd_discard_room(const struct hd_discard *d);
/* Takes a connection, sets *fd to -1, and ends the connection for the other side at once. */
void hd_discard_add(struct hd_discard *d, int *fd);
/* Closes the connections that are due. */
void hd_discard_run(struct hd_discard *d);

#endif

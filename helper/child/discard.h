/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client connections that have ended. In the queue of such a connection there may be messages with descriptors that
 * nobody has read; closing it closes these too, which may take as long as the client likes (helper/child/child.h). So a
 * child process gets the connections, hawserd closes its own references, and the child closes the last ones by exiting.
 */
#ifndef HW_HELPER_DISCARD_H
#define HW_HELPER_DISCARD_H

#include "helper/child/child.h"

#define HD_DISCARD_MAX      1024
#define HD_DISCARD_BATCH    16 /* connections are worth a process at once; fewer after: */
#define HD_DISCARD_MS       100
#define HD_DISCARD_CHILDREN 8

struct hd_discard {
    int fd[HD_DISCARD_MAX];
    unsigned n;
    uint64_t due;                   /* when to run, in hw_now() terms */
    int child[HD_DISCARD_CHILDREN]; /* the pairs of children that are not gone yet */
    unsigned n_children;
};

void hd_discard_init(struct hd_discard *d);
/* May a connection be added? Where not, no new one should be accepted. */
bool hd_discard_room(const struct hd_discard *d);
/* Takes a connection, whose other end sees its end at once, and leaves -1 behind. */
void hd_discard_add(struct hd_discard *d, int *fd);
/* Closes what is due. */
void hd_discard_run(struct hd_discard *d);

#endif

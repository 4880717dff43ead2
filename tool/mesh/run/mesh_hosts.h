/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser mesh --hosts`: the starter, which runs `hawser mesh --agent` on each host by ssh. An agent greets by a line
 * on its standard output. What it is to know, the key first, comes by its standard input, so that no command line shows
 * it: lines NAME=VALUE for its environment, up to an empty one. It ends when its standard input does. The first host
 * that greets is rank 0, whose JSON lines the starter reads.
 */
#ifndef HW_MESH_HOSTS_H
#define HW_MESH_HOSTS_H

#include "tool/mesh/data/mesh.h"

struct mesh_hosts {
    const char *file, *ssh, *remote;
};

/* Runs a mesh on the hosts and reads what came of it. args: the agents' options, ended by NULL; words that no shell
 * changes. 0 or -errno; m is to be freed in any case. */
int mesh_hosts_run(const struct mesh_hosts *h, const char *const *args, struct mesh *m);

/* The agent's end: greets, and puts what comes by standard input into the environment. -EPROTO, -EPIPE. */
int mesh_take_orders(void);
/* Ends the process as SIGTERM does, once standard input ends. Starts a thread. */
void mesh_follow_starter(void);

#endif

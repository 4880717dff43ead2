/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser mesh --hosts`: the starter runs `hawser mesh --agent` on each host by ssh. An agent first prints a greeting
 * line on its standard output. The starter writes the agent's settings, the key first, to the agent's standard input,
 * so that they do not appear on a command line. The settings are NAME=VALUE lines for the agent's environment, followed
 * by an empty line. The agent exits at the end of its standard input. Rank 0 runs on the first host of the file whose
 * agent prints the greeting, and the starter reads the JSON lines that rank 0 prints.
 */
#ifndef HW_MESH_HOSTS_H
#define HW_MESH_HOSTS_H

#include "tool/mesh/data/mesh.h"

struct mesh_hosts {
    const char *file, *ssh, *remote;
};

/* Runs a mesh on the hosts and reads the results. args are the agents' options, terminated by NULL. Returns 0 or
 * -errno, such as -EINVAL if a shell would change one of the options. The caller frees m in any case. */
int mesh_hosts_run(const struct mesh_hosts *h, const char *const *args, struct mesh *m);

/* Runs in an agent: sends the greeting, and sets the environment variables that standard input contains. Fails with
 * -EPROTO, -EPIPE or -ENOMEM. */
int mesh_take_orders(void);
/* Starts a thread that waits for the end of standard input, and then sends SIGTERM to this process. */
void mesh_follow_starter(void);

#endif

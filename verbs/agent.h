/* SPDX-License-Identifier: Apache-2.0 */
/* The agent: takes listeners from OCI runtimes over a UNIX socket (runtime-spec, config-linux.md, "The Container
 * Process State"), and starts a broker for each, a process of its own. */
#ifndef HW_VERBS_AGENT_H
#define HW_VERBS_AGENT_H

#include "verbs/broker.h"

#define VB_STATE_MAX (1u << 20) /* of a container process state */

struct vb_agent_options {
    const char *socket, *state_dir;
    const struct vb_policy *policy;
    const struct vb_kernel *kernel;
    const struct hw_logger *log;
    struct vb_audit *audit;
    unsigned containers_max;
    int stop;
};

/* The text that a runtime sends. *whole false: it goes on. Strings are copied; annotations are the container's own
 * words: only "hawser.verbs.*" are kept. -EINVAL, -E2BIG. fds: how many were sent with it; *which: the one that is the
 * listener. */
int vb_state_parse(const char *text, size_t len, unsigned fds, struct vb_container *c, unsigned *which, bool *whole);
void vb_container_free(struct vb_container *c);
/* Serves until stop; brokers end with it, unless it dies: they go on, and a new agent leaves them alone. */
int vb_agent(const struct vb_agent_options *o);

#endif

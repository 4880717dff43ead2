/* SPDX-License-Identifier: Apache-2.0 */
/* The agent: takes listeners from OCI runtimes over a UNIX socket (runtime-spec, config-linux.md, "The Container
 * Process State"), and starts a broker for each, a process of its own. */
#ifndef HW_VERBS_AGENT_H
#define HW_VERBS_AGENT_H

#include "verbs/broker/broker.h"

#define VB_STATE_MAX     (1u << 20) /* of a container process state */
#define VB_AGENT_SOCKET  "/run/hawser/verbs.sock"
#define VB_AGENT_STATE   "/run/hawser/verbs"
#define VB_AGENT_TALK_MS 5000 /* in which a runtime has said all */
#define VB_AGENT_HALVES  32   /* runtimes that have not; more wait in the socket's queue */

struct vb_agent_options {
    const char *socket, *state_dir;
    const struct vb_policy *policy;
    const char *policy_file; /* where it is from: what reload reads */
    const char *section;     /* of the policy, for all containers, whatever theirs says; NULL: none */
    const struct vb_kernel *kernel;
    const struct hw_logger *log;
    struct vb_audit *audit; /* NULL: what is refused is told in the log only */
    unsigned containers_max;
    /* Readable (-1: never): all is to end; the agent alone; the policy is to be read again (a signalfd or eventfd) for
     * containers that start from then on. */
    int stop, leave, reload;
    int (*serve)(const struct vb_container *c, const struct vb_broker_options *o); /* vb_serve(), or a test's */
};

/* Has all of a JSON object come, or what cannot become one? Each part of a text is looked at once. */
struct vb_state_scan {
    int depth;
    bool string, escaped, whole;
};
bool vb_state_whole(struct vb_state_scan *s, const char *text, size_t len);

/* The text that a runtime sends. *whole false: it goes on. Strings are copied; annotations are the container's own
 * words: only "hawser.verbs.*" are kept, with that prefix. -EINVAL, -E2BIG. fds: how many were sent with it; *which:
 * the one that is the listener. c is to be freed after 0; its listener is -1. */
int vb_state_parse(const char *text, size_t len, unsigned fds, struct vb_container *c, unsigned *which, bool *whole);
/* Closes the listener too. */
void vb_container_free(struct vb_container *c);

/* Starts a process for c, and frees c here: it gives the listener to the broker of the container, and exits with
 * VB_JOINED; or, where there is none, it is the broker, in a mount namespace of its own, with no more privilege than it
 * needs. stop: as vb_broker_options'. tied: it ends with this process, however that ends. Whatever fails, here or
 * there, closes the listener: the container's programs get ENOSYS, and the log says why. */
#define VB_JOINED 3
int vb_broker_start(const struct vb_agent_options *o, struct vb_container *c, int stop, bool tied, pid_t *pid);
/* What a broker's end by that signal means, behind its number in a line of the log; "" where nothing is to be said. */
const char *vb_broker_signal(int sig);

/* Serves until stop, which ends its brokers too, or leave. Then, as where it dies, they go on, and a new agent leaves
 * them alone; but with leave those runtimes are served that had come before. */
int vb_agent(const struct vb_agent_options *o);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The agent: receives listeners from OCI runtimes over a UNIX socket (runtime-spec, config-linux.md, "The Container
 * Process State"), and starts a broker process for each. */
#ifndef HW_VERBS_AGENT_H
#define HW_VERBS_AGENT_H

#include "verbs/broker/broker.h"

#define VB_STATE_MAX     (1u << 20) /* bytes of a container process state */
#define VB_AGENT_SOCKET  "/run/hawser/verbs.sock"
#define VB_AGENT_STATE   "/run/hawser/verbs"
#define VB_AGENT_TALK_MS 5000 /* within which a runtime must have sent everything */
#define VB_AGENT_HALVES  32   /* incomplete runtimes; more wait in the socket's queue */

struct vb_agent_options {
    const char *socket, *state_dir;
    const struct vb_policy *policy;
    const char *policy_file; /* the file of policy, which reload reads */
    const char *section;     /* section of the policy for all containers, whatever they request; NULL: none */
    const struct vb_kernel *kernel;
    const struct hw_logger *log;
    struct vb_audit *audit; /* NULL: refusals go to the log only */
    unsigned containers_max;
    /* Descriptors (-1: never): readable when everything must end; when only the agent must end; when the policy must be
     * reloaded (a signalfd or eventfd), for containers that start afterwards. */
    int stop, leave, reload;
    int (*serve)(const struct vb_container *c, const struct vb_broker_options *o); /* vb_serve(), or a test's */
};

/* Detects whether a complete JSON object has arrived, or text that cannot become one. Scans each part of the text
 * once. */
struct vb_state_scan {
    int depth;
    bool string, escaped, whole;
};
bool vb_state_whole(struct vb_state_scan *s, const char *text, size_t len);

/* Parses a runtime's text. *whole false: incomplete. Copies strings; annotations are untrusted, and only
 * "hawser.verbs.*" are kept, with that prefix. -EINVAL, -E2BIG. fds: how many were sent with it; *which: index of the
 * listener. After 0 the caller frees c; its listener is -1. */
int vb_state_parse(const char *text, size_t len, unsigned fds, struct vb_container *c, unsigned *which, bool *whole);
/* Closes the listener too. */
void vb_container_free(struct vb_container *c);

/* Starts a process for c, and frees c here. The process gives the listener to the container's broker and exits with
 * VB_JOINED; if there is no broker, it becomes the broker, in a mount namespace of its own, with minimal privileges.
 * stop: as in vb_broker_options. tied: it ends with this process, however that ends. Any failure closes the listener:
 * the container's programs get ENOSYS, and the log has the reason. */
#define VB_JOINED 3
int vb_broker_start(const struct vb_agent_options *o, struct vb_container *c, int stop, bool tied, pid_t *pid);
/* Explains the end of a broker by that signal, to follow its number in a log line; "" if there is nothing to say. */
const char *vb_broker_signal(int sig);

/* Serves until stop, which also ends its brokers, or leave. After leave, or if the agent dies, the brokers continue,
 * and a new agent leaves them alone; with leave, runtimes that were already waiting are served first. */
int vb_agent(const struct vb_agent_options *o);

#endif

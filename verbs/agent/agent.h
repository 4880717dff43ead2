/* SPDX-License-Identifier: Apache-2.0 */
/* The agent receives listeners from OCI runtimes over a UNIX socket ("The Container Process State" in config-linux.md
 * of the OCI runtime specification) and starts a process for each. This process becomes the broker of the container, or
 * passes the listener to the container's broker. */
#ifndef HW_VERBS_AGENT_H
#define HW_VERBS_AGENT_H

#include "verbs/broker/broker.h"

#define VB_STATE_MAX     (1u << 20) /* maximum size of a container process state, in bytes */
#define VB_AGENT_SOCKET  "/run/hawser/verbs.sock"
#define VB_AGENT_STATE   "/run/hawser/verbs"
#define VB_AGENT_TALK_MS 5000 /* time in which a runtime must send its complete message */
#define VB_AGENT_HALVES  32   /* maximum number of incomplete messages; further runtimes wait in the socket's queue */

struct vb_agent_options {
    const char *socket, *state_dir;
    const struct vb_policy *policy;
    const char *policy_file; /* the file of the policy, which is read again on reload */
    const char *section;     /* section of the policy for all containers, or NULL to use the section of each container's
                                annotation */
    const struct vb_kernel *kernel;
    const struct hw_logger *log;
    struct vb_audit *audit; /* NULL to report refusals in the log only */
    unsigned containers_max;
    /* Descriptors (signalfd or eventfd) that become readable when the agent and its brokers must exit, when only the
     * agent must exit, and when the policy must be reloaded for containers that start afterwards. -1 disables the
     * event. */
    int stop, leave, reload;
    int (*serve)(const struct vb_container *c,
                 const struct vb_broker_options *o); /* vb_serve(), or a replacement in tests */
};

/* Returns true if the object or array with which the text begins is complete, or if the text begins with something
 * else. Each call scans the next part of the text. */
struct vb_state_scan {
    int depth;
    bool string, escaped, whole;
};
bool vb_state_whole(struct vb_state_scan *s, const char *text, size_t len);

/* Parses a runtime's message. Sets *whole to false if the message is incomplete. fds is the number of descriptors that
 * were sent with the message, and *which is set to the index of the listener. Keeps only the annotations with the
 * prefix "hawser.verbs.", except "hawser.verbs.spec"; "hawser.verbs.policy" becomes c->section. Annotations are
 * untrusted. Fails with -EINVAL, -E2BIG or -ENOMEM. On success, c->listener is -1, and the caller must call
 * vb_container_free(). */
int vb_state_parse(const char *text, size_t len, unsigned fds, struct vb_container *c, unsigned *which, bool *whole);
/* Frees the members of c and closes its descriptors. */
void vb_container_free(struct vb_container *c);

/* Starts a process for c, and frees the members of c in the calling process. If the container already has a broker, the
 * new process passes the listener to the broker and exits with VB_JOINED. Otherwise it becomes the broker, with a
 * separate mount namespace and minimal privileges. stop has the same meaning as in vb_broker_options. If tied is true,
 * the kernel kills the new process when the calling process exits.
 *
 * If this function or the new process fails, the listener is closed, so that RDMA calls of the container's programs
 * fail with ENOSYS. The new process logs the reason for its failure. */
#define VB_JOINED 3
int vb_broker_start(const struct vb_agent_options *o, struct vb_container *c, int stop, bool tied, pid_t *pid);
/* Returns the text to append to the signal's number when logging that the signal has killed a broker. Returns an empty
 * string if there is nothing to explain. */
const char *vb_broker_signal(int sig);

/* Runs the agent until stop or leave becomes readable. stop, or an error, also ends the brokers. If leave becomes
 * readable, the agent first serves the runtimes that are already waiting, and the brokers continue. The brokers also
 * continue if the agent dies. A new agent does not affect existing brokers. Returns 0 or -errno. */
int vb_agent(const struct vb_agent_options *o);

#endif

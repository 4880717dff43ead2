/* SPDX-License-Identifier: Apache-2.0 */
/* A broker's process. */
#include "verbs/agent.h"
#include "verbs/guard.h"
#include "verbs/join.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A file system for device nodes that nobody else sees, and that goes with this process. */
static int make_nodes(const char *state_dir, char *out, size_t cap)
{
    if (snprintf(out, cap, "%s/nodes", state_dir) >= (int)cap)
        return hw_fail(-ENAMETOOLONG, "%s is too long", state_dir);
    if (mkdir(out, 0700) < 0 && errno != EEXIST)
        return hw_fail(-errno, "making the folder %s: %s", out, hw_errno_name(errno));
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return hw_fail(-errno, "a mount namespace: %s", hw_errno_name(errno));
    if (mount("hawser-nodes", out, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0700,size=1m") < 0)
        return hw_fail(-errno, "a file system for device nodes at %s: %s", out, hw_errno_name(errno));
    return 0;
}

/* Does the policy give it, of any device, what takes CAP_NET_RAW? */
static bool wants_raw(const struct vb_agent_options *o, const struct vb_container *c)
{
    static struct vb_device device[VB_DEVICES_MAX];
    struct vb_rules rules;
    int n = o->kernel->devices(device, VB_DEVICES_MAX);
    for (int i = 0; i < n; i++)
        if (vb_policy_rules(o->policy, *c->section ? c->section : NULL, c->annotations, c->n_annotations,
                            device[i].ibdev, &rules) == 0 &&
            rules.allowed && rules.allow & (VB_ALLOW_RAW | VB_ALLOW_FLOW))
            return true;
    return false;
}

/* 1: the container has a broker, which has the listener now. */
static int broker(const struct vb_agent_options *o, struct vb_container *c, int stop, pid_t parent)
{
    char nodes[256];
    struct vb_audit log_only;
    (void)vb_audit_open(&log_only, NULL, o->log); /* opens nothing, so does not fail */
    struct vb_audit *audit = o->audit ? o->audit : &log_only;
    int fds[] = {c->listener, stop, audit->fd};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_NAME, "hawser-broker", 0, 0, 0);
    (void)setsid(); /* out of reach of a terminal's Ctrl-C: stop is how it ends */
    if (parent && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent))
        return hw_fail(-ESRCH, "who started it has ended");
    /* A listener of another container's that stayed here would keep its programs waiting when its own broker dies. */
    int rc = vb_guard_fds(3, fds, HW_ARRAY_LEN(fds));
    if (rc == 0)
        rc = vb_join(o->state_dir, c);
    if (rc != 0)
        return rc;
    hw_log(o->log, HAWSER_LOG_INFO, "%s: its broker is process %d", c->id, (int)getpid());
    bool raw = wants_raw(o, c);
    if (rc == 0)
        rc = make_nodes(o->state_dir, nodes, sizeof(nodes));
    if (rc == 0)
        rc = vb_guard_broker(raw);
    if (rc < 0)
        return rc;
    struct vb_broker_options b = {.kernel = o->kernel,
                                  .policy = o->policy,
                                  .log = o->log,
                                  .audit = audit,
                                  .state_dir = o->state_dir,
                                  .node_dir = nodes,
                                  .stop = stop,
                                  .guarded = true};
    rc = o->serve(c, &b);
    vb_audit_close(audit);
    return rc;
}

/* Its first process has, perhaps before its broker could begin: a process that waits to be reaped is in no namespace.
 */
static bool ended(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    return pid && access(path, F_OK) < 0 && errno == ENOENT;
}

int vb_broker_start(const struct vb_agent_options *o, struct vb_container *c, int stop, bool tied, pid_t *pid)
{
    pid_t me = getpid();
    int rc = 0;
    *pid = fork();
    if (*pid == 0) {
        rc = broker(o, c, stop, tied ? me : 0);
        if (rc < 0 && ended(c->pid))
            rc = 0;
        if (rc < 0)
            hw_log(o->log, HAWSER_LOG_ERROR, "%s: its broker ends: %s", c->id, hw_error());
        _exit(rc < 0 ? 1 : rc ? VB_JOINED : 0);
    }
    if (*pid < 0)
        rc = hw_fail(-errno, "a process for its broker: %s", hw_errno_name(errno));
    vb_container_free(c);
    return rc;
}

const char *vb_broker_signal(int sig)
{
    return sig == SIGSYS ? " for a system call that its filter forbids (the kernel's audit has its number)" : "";
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and sets up the process of a broker. */
#include "verbs/agent/agent.h"
#include "verbs/agent/cgroup.h"
#include "verbs/broker/join.h"
#include "verbs/stub/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Mounts a file system for device nodes in a new mount namespace, so that other programs do not see it and the kernel
 * removes it when the broker and its tracer have exited. */
static int make_nodes(const char *state_dir, char *out, size_t cap)
{
    if (snprintf(out, cap, "%s/nodes", state_dir) >= (int)cap)
        return hw_fail(-ENAMETOOLONG, "the path %s is too long", state_dir);
    if (mkdir(out, 0700) < 0 && errno != EEXIST)
        return hw_fail(-errno, "cannot create the folder %s: %s", out, hw_errno_text(errno));
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return hw_fail(-errno, "cannot create a mount namespace: %s", hw_errno_text(errno));
    if (mount("hawser-nodes", out, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0700,size=1m") < 0)
        return hw_fail(-errno, "cannot mount a file system for device nodes at %s: %s", out, hw_errno_text(errno));
    return 0;
}

/* Returns true if the policy allows the container raw packets or flow steering on any existing device. The broker needs
 * CAP_NET_RAW for both. */
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

/* Joins the container's network namespace, which the kernel checks for some device operations. If own_pids is true,
 * also mounts a /proc of the container's PID namespace, in which vb_broker_start() has started this process. */
static int join_container(int folder, bool own_pids)
{
    if (folder >= 0) {
        HW_AUTO_CLOSE int fd = openat(folder, "ns/net", O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, CLONE_NEWNET))
            return hw_fail(-errno, "cannot join the container's network namespace: %s", hw_errno_text(errno));
    }
    if (own_pids && mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return hw_fail(-errno, "cannot mount a /proc of the container's PID namespace: %s", hw_errno_text(errno));
    return 0;
}

/* Returns the PID of this process in the PID namespace of the mounted /proc, or 0 if the process is not visible
 * there. */
static pid_t number_in_proc(void)
{
    char text[32] = "";
    return readlink("/proc/self", text, sizeof(text) - 1) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* Range of user ids for brokers, 0x70000000 to 0x7ffdffff, which systemd leaves unused. systemd 258 and later use ids
 * from 0x7ffe0000 up for files of other systems (UIDS-GIDS of systemd). */
#define FIRST_USER 0x70000000u
#define USERS      0x0ffe0000u

/* Returns true if any process on the machine has this user id. */
static bool is_taken(DIR *proc, uid_t uid)
{
    bool taken = false;
    rewinddir(proc);
    for (struct dirent *e; !taken && (e = readdir(proc));) {
        struct stat st;
        taken =
            *e->d_name >= '1' && *e->d_name <= '9' && fstatat(dirfd(proc), e->d_name, &st, 0) == 0 && st.st_uid == uid;
    }
    return taken;
}

/* Chooses a random user id for this broker. If a container with CAP_SETUID, which Docker grants, could predict the user
 * of the next broker, the container could exhaust the kernel's limits for this user. */
static int choose_user(uid_t *out)
{
    DIR *proc = opendir("/proc");
    uint32_t chance;
    int rc = proc ? -EAGAIN : -errno;
    for (int i = 0; proc && rc && i < 16; i++) {
        if (getrandom(&chance, sizeof(chance), 0) != sizeof(chance)) {
            rc = -errno;
            break;
        }
        *out = FIRST_USER + chance % USERS;
        rc = is_taken(proc, *out) ? -EAGAIN : 0;
    }
    if (proc)
        closedir(proc);
    return rc ? hw_fail(rc, "cannot choose a user for the broker: %s", hw_errno_text(-rc)) : 0;
}

/* Unblocks all signals, resets SIGTERM and SIGINT to their default actions, ignores SIGPIPE, and detaches from the
 * terminal. If parent is not 0, the kernel kills this process when its parent exits. */
static int detach_broker(pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_NAME, "hawser-broker", 0, 0, 0);
    (void)setsid(); /* Ctrl-C on the terminal must not kill the broker */
    if (parent && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent))
        return hw_fail(-ESRCH, "the process that started the broker has ended");
    return 0;
}

/* Sets up and runs the broker. Returns 1 if the container's existing broker has accepted the listener, 0 when this
 * broker has stopped serving, or -errno. Sets *folder to the folder of process c->pid in /proc, or to -1. */
static int run_container_broker(const struct vb_agent_options *o, struct vb_container *c, int stop, bool own_pids,
                                pid_t parent, int *folder)
{
    char nodes[256], path[64];
    struct vb_audit log_only;
    (void)vb_audit_open(&log_only, NULL, o->log); /* cannot fail without a path */
    struct vb_audit *audit = o->audit ? o->audit : &log_only;
    int fds[] = {c->listener, stop, audit->fd};
    int rc = detach_broker(parent);
    if (rc)
        return rc;
    /* Closes descriptors that were inherited. If this process kept the listener of another container open, programs of
     * that container would wait forever if their broker died. */
    rc = vb_guard_fds(3, fds, HW_ARRAY_LEN(fds));
    snprintf(path, sizeof(path), "/proc/%d", (int)c->pid);
    if (rc)
        return rc;
    *folder = c->pid ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (c->pid && *folder < 0)
        return hw_fail(-errno, "cannot open %s: %s", path, hw_errno_text(errno));
    rc = vb_join(o->state_dir, c);
    if (rc)
        return rc;
    pid_t number = number_in_proc();
    if (number <= 0)
        return hw_fail(-ENOENT, "this process is not visible in /proc");
    int cgroup = c->pid ? vb_cgroup_open(c->pid, NULL, NULL) : -1;
    if (cgroup < 0 && c->pid && cgroup != -ENOENT)
        hw_log(o->log, HAWSER_LOG_WARN, "%s: RDMA objects of the container are not charged to its cgroup: %s", c->id,
               hw_error());
    hw_log(o->log, HAWSER_LOG_INFO, "%s: the broker is process %d", c->id, (int)number);
    bool raw = wants_raw(o, c);
    uid_t uid = 0;
    if ((rc = choose_user(&uid)) || (rc = make_nodes(o->state_dir, nodes, sizeof(nodes))) ||
        (rc = join_container(*folder, own_pids)) || (rc = vb_guard_broker(raw)))
        return rc;
    struct vb_broker_options b = {.kernel = o->kernel,
                                  .policy = o->policy,
                                  .log = o->log,
                                  .audit = audit,
                                  .state_dir = o->state_dir,
                                  .node_dir = nodes,
                                  .stop = stop,
                                  .cgroup = cgroup,
                                  .uid = uid,
                                  .shown = number,
                                  .guarded = true};
    rc = o->serve(c, &b);
    vb_audit_close(audit);
    return rc;
}

/* Returns true if process pid has exited. folder is its folder in /proc, or -1 if it was not opened. A zombie has no
 * namespaces. */
static bool has_container_ended(pid_t pid, int folder)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    return pid && faccessat(folder, folder < 0 ? path : "ns/net", F_OK, 0) < 0 && (errno == ENOENT || errno == ESRCH);
}

/* Makes children of this process start in the PID namespace of process pid, or in the caller's if pid is 0. If the
 * container has a separate namespace, its broker can then address the processes of the container and no others. Sets
 * *own to true if the namespace differs from the caller's. */
static int choose_pids(pid_t pid, bool *own)
{
    char path[64];
    struct stat mine = {0}, theirs = {0};
    *own = false;
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    HW_AUTO_CLOSE int here = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    HW_AUTO_CLOSE int there = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (here < 0 || fstat(here, &mine))
        return hw_fail(-errno, "cannot open this process's PID namespace: %s", hw_errno_text(errno));
    if (pid && there < 0 && errno != ENOENT && errno != ESRCH)
        return hw_fail(-errno, "cannot open the PID namespace of process %d: %s", (int)pid, hw_errno_text(errno));
    if (pid && (there < 0 || fstat(there, &theirs)))
        return hw_fail(-ESRCH, "process %d of the container has ended", (int)pid);
    *own = pid && mine.st_ino != theirs.st_ino;
    if (setns(*own ? there : here, CLONE_NEWPID))
        return hw_fail(-errno, "cannot set the PID namespace of the broker: %s", hw_errno_text(errno));
    return 0;
}

int vb_broker_start(const struct vb_agent_options *o, struct vb_container *c, int stop, bool tied, pid_t *pid)
{
    pid_t me = getpid();
    bool own_pids;
    int rc = choose_pids(c->pid, &own_pids);
    if (rc == 0) {
        *pid = fork();
        if (*pid == 0) {
            int folder = -1;
            rc = run_container_broker(o, c, stop, own_pids, tied ? me : 0, &folder);
            if (rc < 0 && has_container_ended(c->pid, folder))
                rc = 0;
            if (rc < 0)
                hw_log(o->log, HAWSER_LOG_ERROR, "%s: the broker exits after an error: %s", c->id, hw_error());
            _exit(rc < 0 ? 1 : rc ? VB_JOINED : 0);
        }
        if (*pid < 0)
            rc = hw_fail(-errno, "cannot start a process for the broker: %s", hw_errno_text(errno));
        HW_KEEP_ERROR();
        (void)choose_pids(0, &own_pids);
    }
    vb_container_free(c);
    return rc;
}

const char *vb_broker_signal(int sig)
{
    return sig == SIGSYS ? " for a system call that the broker's seccomp filter forbids (the kernel's audit log has "
                           "the number of the call)"
                         : "";
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "oci/run.h"
#include "oci/oci.h"
#include "sandbox/move/again.h"
#include "sandbox/move/move_int.h"
#include "sandbox/sysfs/sysfs.h"
#include "sys/netns.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY "\001" /* no error text begins with this byte */
static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/* ---- the command's side --------------------------------------------------------------------------- */

struct inside {
    const struct sbx_run *r;
    /* ends of pipes: the child writes READY to say when its namespaces exist, and later any error; it receives a byte
     * on go when the NICs have arrived */
    int say, go;
    pid_t parent;
    const sigset_t *mask;
};

static int enter_netns(const char *netns)
{
    if (netns) {
        struct sb_ns ns __attribute__((cleanup(sb_ns_close))) = SB_NS_NONE;
        char path[256];
        pid_t holder;
        uint64_t start;
        int rc = sb_ns_open(netns, &ns, path, &holder, &start);
        if (rc == 0 && setns(ns.fd, CLONE_NEWNET) < 0)
            rc = hw_fail(-errno, "entering the network namespace %s: %s", netns, strerror(errno));
        return rc;
    }
    struct hw_netlink rt __attribute__((cleanup(hw_netlink_close))) = {.fd = -1};
    if (unshare(CLONE_NEWNET) < 0)
        return hw_fail(-errno, "creating a network namespace: %s", strerror(errno));
    int rc = hw_netlink_open(&rt, NETLINK_ROUTE);
    return rc < 0 ? rc : hw_rtnl_link_up(&rt, 1, true); /* index 1 is lo */
}

static int enter_sandbox_namespaces(const struct inside *i)
{
    int rc = enter_netns(i->r->netns);
    if (rc < 0)
        return rc;
    /* Later mounts on the host also appear here, but not vice versa. */
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return hw_fail(-errno, "entering a private mount namespace: %s", strerror(errno));
    return 0;
}

static int set_env(const struct sbx_run *r)
{
    struct sbx_env env __attribute__((cleanup(sbx_env_free))) = {0};
    struct sbx_env_want want = r->env;
    want.moved = true;
    int rc = sbx_env_make(&env, r->p, &want);
    for (size_t k = 0; rc == 0 && k < env.n; k++)
        if (!env.v[k].callers && setenv(env.v[k].name, env.v[k].value, 0) < 0)
            rc = hw_no_memory("the environment");
    return rc;
}

static int set_sysfs(const struct sbx_run *r)
{
    struct sbx_tree t __attribute__((cleanup(sbx_tree_free))) = {0};
    int rc = sbx_sysfs_build(&t, r->s, r->p);
    if (rc < 0)
        return rc;
    HW_AUTO_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? hw_fail(-errno, "/: %s", strerror(errno)) : sbx_mount_tree(root, &t);
}

static int equip_sandbox_child(const struct sbx_run *r)
{
    int rc = r->move.n ? sbx_again_in(r->s, r->p, r->want, NULL, 0, r->move.log) : 0;
    if (rc == 0 && !r->no_sysfs)
        rc = set_sysfs(r);
    if (r->memlock &&
        setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY}) < 0)
        hw_log(r->move.log, HAWSER_LOG_WARN,
               "the limit for locked memory is unchanged (%s), so RDMA may not be able to register all the memory it "
               "needs",
               strerror(errno));
    return rc == 0 ? set_env(r) : rc;
}

/* Reports the error through the pipe, and exits. */
static _Noreturn void fail_sandbox_child(const struct inside *i, int status)
{
    if (write(i->say, hw_error(), strlen(hw_error())) < 0)
        _exit(125);
    _exit(status);
}

static _Noreturn void run_sandbox_child(const struct inside *i)
{
    char byte;
    /* The command must not outlive the process that restores its NICs. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != i->parent)
        _exit(125);
    if (enter_sandbox_namespaces(i) < 0)
        fail_sandbox_child(i, 125);
    if (write(i->say, READY, 1) != 1 || read(i->go, &byte, 1) != 1)
        _exit(125); /* the NICs did not arrive */
    if (equip_sandbox_child(i->r) < 0)
        fail_sandbox_child(i, 125);
    sigprocmask(SIG_SETMASK, i->mask, NULL);
    execvp(i->r->argv[0], i->r->argv);
    int rc = hw_fail(-errno, "%s: %s", i->r->argv[0], strerror(errno));
    fail_sandbox_child(i, rc == -ENOENT ? 127 : 126);
}

/* ---- ours ---------------------------------------------------------------------------------------- */

/* Reads the child's error message until the child executes the command or exits. Stores "" if there was no error. */
static void read_sandbox_error(int say, char out[HW_ERR_TEXT])
{
    size_t len = 0;
    for (ssize_t n; (n = read(say, out + len, HW_ERR_TEXT - 1 - len)) > 0 || (n < 0 && errno == EINTR);)
        len += n > 0 ? (size_t)n : 0;
    out[len] = 0;
}

/* Waits for the command to exit, and forwards signals. Signals from a terminal reach the command directly, because the
 * command is in the same process group. */
static int await_sandbox_child(pid_t child, int signals)
{
    int status = 0;
    for (;;) {
        struct signalfd_siginfo s;
        pid_t k = waitpid(child, &status, WNOHANG);
        if (k == child)
            return status;
        ssize_t n = read(signals, &s, sizeof(s));
        if (n == (ssize_t)sizeof(s) && s.ssi_signo != SIGCHLD && s.ssi_code != SI_KERNEL)
            kill(child, (int)s.ssi_signo);
    }
}

static void put_down(pid_t child)
{
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* Supervises the child from its first message until it exits, and reaps it. */
static int supervise_sandbox_child(const struct sbx_run *r, pid_t child, int say, int *go, int signals, int *status)
{
    char why[HW_ERR_TEXT], pid[16], ready = 0;
    struct sb_move_options m = r->move;
    ssize_t n;
    snprintf(pid, sizeof(pid), "%d", (int)child);
    m.netns = pid;
    while ((n = read(say, &ready, 1)) < 0 && errno == EINTR)
        ;
    if (n != 1 || ready != *READY) {
        read_sandbox_error(say, why);
        put_down(child);
        return n == 1 ? hw_fail(-EIO, "%c%s", ready, why)
                      : hw_fail(-EIO, "the command's process ended before the command started");
    }
    int rc = m.n ? sb_move(&m) : 0;
    if (rc < 0) {
        put_down(child);
        return rc;
    }
    if (write(*go, "g", 1) != 1)
        hw_log(m.log, HAWSER_LOG_WARN, "the command's process ended before the command started");
    hw_close(go);
    read_sandbox_error(say, why);
    *status = await_sandbox_child(child, signals);
    unsigned lost = 0;
    struct sb_restore_options back = {.id = m.id, .journal_dir = m.journal_dir, .log = m.log};
    rc = m.n ? sb_restore(&back, &lost) : 0;
    if (rc < 0)
        return rc;
    if (lost)
        return hw_fail(-ENODEV, "%u of the NICs %s lost", lost, lost == 1 ? "is" : "are");
    int code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 125;
    return *why ? hw_fail(code == 127 ? -ENOENT : code == 126 ? -ENOEXEC : -EIO, "%s", why) : 0;
}

static void close_pipe(int (*ends)[2])
{
    hw_close(&(*ends)[0]);
    hw_close(&(*ends)[1]);
}

/* Starts the command's process with the signal mask `mask`, and supervises it. `set` contains the signals that are
 * blocked here. */
static int start_and_supervise(const struct sbx_run *r, const sigset_t *set, const sigset_t *mask, int *status)
{
    __attribute__((cleanup(close_pipe))) int say[2] = {-1, -1}, go[2] = {-1, -1};
    HW_AUTO_CLOSE int signals = signalfd(-1, set, SFD_CLOEXEC);
    if (signals < 0 || pipe2(say, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0)
        return hw_fail(-errno, "preparing pipes and signals for the command: %s", strerror(errno));
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        return hw_fail(-errno, "fork: %s", strerror(errno));
    if (child == 0) {
        hw_close(&say[0]);
        hw_close(&go[1]);
        run_sandbox_child(&(struct inside){r, say[1], go[0], parent, mask});
    }
    hw_close(&say[1]);
    hw_close(&go[0]);
    return supervise_sandbox_child(r, child, say[0], &go[1], signals, status);
}

int sbx_run(const struct sbx_run *r, int *status)
{
    sigset_t set, old;
    *status = -1;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < HW_ARRAY_LEN(handed_on); i++)
        sigaddset(&set, handed_on[i]);
    if (sigprocmask(SIG_BLOCK, &set, &old) < 0)
        return hw_fail(-errno, "blocking signals: %s", strerror(errno));
    int rc = start_and_supervise(r, &set, &old, status);
    /* Discards signals that arrived during the restore: they were meant for the command, which has exited. */
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0)
        ;
    sigprocmask(SIG_SETMASK, &old, NULL);
    return rc;
}

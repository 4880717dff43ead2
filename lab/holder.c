/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps labs without root. A process in a separate user namespace holds file descriptors of the nodes' network
 * namespaces. The process passes these descriptors, the user namespace, and a route-netlink socket in each network
 * namespace to every process of the same user that connects to the abstract socket "hawser-lab/<uid>/<lab>". The kernel
 * removes the socket's name when the process exits, and the namespaces when the last process in them exits, so no file
 * can become stale.
 *
 * The name also serves as the lock for `up` and `down`, for root's labs too. If the name is bound but no process is
 * listening, `up` or `down` is in progress.
 */
#include "lab/lab_int.h"
#include "sys/pass.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREFIX "hawser-lab"
/* time limit in ms for the lab's process to answer; longer than the time to build the largest lab, because
 * holder_open() may have to wait until a lab is built */
#define ANSWER_MS 5000
#define MAX_FDS   (1 + 2 * (HW_LAB_MAX_NODES + 1))

/* The only message of the protocol. The file descriptors are the user namespace, the network namespaces of all nodes
 * and of the switch (if any), and then the sockets in the same order. */
struct hello {
    char magic[8];
    uint32_t nodes, has_switch;
};
static const char magic[8] = "hwlab 1";

static socklen_t make_holder_address(const char *name, struct sockaddr_un *a)
{
    memset(a, 0, sizeof(*a));
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s/%u/%s", PREFIX, (unsigned)geteuid(), name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int holder_lock(const char *name, int *fd)
{
    struct sockaddr_un a;
    socklen_t len = make_holder_address(name, &a);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (s < 0)
        return hw_fail(-errno, "creating a socket: %s", strerror(errno));
    if (bind(s, (struct sockaddr *)&a, len) < 0) {
        int rc = errno == EADDRINUSE ? -EBUSY : -errno;
        hw_close(&s);
        return hw_fail(rc, "binding the abstract socket @%s: %s", a.sun_path + 1, strerror(-rc));
    }
    *fd = s;
    return 0;
}

/* Connects to a lab's process, which must belong to this user. *pid is its PID in this namespace. */
static int connect_lab_holder(const char *name, pid_t *pid)
{
    struct sockaddr_un a;
    socklen_t len = make_holder_address(name, &a);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (s < 0)
        return hw_fail(-errno, "creating a socket: %s", strerror(errno));
    int rc = 0;
    struct ucred c = {0};
    socklen_t clen = sizeof(c);
    struct timeval wait = {.tv_sec = ANSWER_MS / 1000};
    (void)setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)); /* also limits connect() */
    (void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (connect(s, (struct sockaddr *)&a, len) < 0)
        rc = errno == ECONNREFUSED
                 ? hw_fail(-ENOENT, "no lab '%s'; `hawser lab up` creates one", name)
                 : hw_fail(-errno, "connecting to the process of lab '%s': %s", name, strerror(errno));
    else if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &c, &clen) < 0 || c.uid != geteuid() || c.pid <= 0)
        rc = c.uid != geteuid()
                 ? hw_fail(-EACCES, "the abstract socket @%s belongs to user %u: choose another lab name",
                           a.sun_path + 1, c.uid)
                 : hw_fail(-EACCES, "the process of lab '%s' is not visible in this PID namespace", name);
    if (rc < 0) {
        hw_close(&s);
        return rc;
    }
    *pid = c.pid;
    return s;
}

/* ---- the process ---------------------------------------------------------------------------- */

static int write_userns_file(const char *path, const char *text)
{
    HW_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return hw_fail(-errno, "writing %s: %s", path, strerror(errno));
    return 0;
}

static int enter_user_namespace(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();
    /* Threads return to the new network namespace, since this process can never enter its original namespace again. */
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return hw_fail(
            errno == ENOSPC ? -EPERM : -errno,
            "a lab needs root or a user namespace, and no user namespace could be created (%s): create the lab as "
            "root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)",
            strerror(errno));
    snprintf(map, sizeof(map), "0 %u 1", uid);
    int rc = write_userns_file("/proc/self/uid_map", map);
    if (rc < 0)
        return rc;
    /* without this, writing gid_map is refused (user_namespaces(7)) */
    rc = write_userns_file("/proc/self/setgroups", "deny");
    if (rc < 0)
        return rc;
    snprintf(map, sizeof(map), "0 %u 1", gid);
    return write_userns_file("/proc/self/gid_map", map);
}

static int make_held_lab(const struct hw_lab_spec *spec, struct lab *l)
{
    int rc;
    for (unsigned i = 0; i < spec->nodes; i++, l->nodes++)
        if ((rc = hw_netns_create_anonymous(&l->node[i].ns, &l->node[i].rt)) < 0)
            return rc;
    if (lab_has_switch(spec) && (rc = hw_netns_create_anonymous(&l->sw.ns, &l->sw.rt)) < 0)
        return rc;
    if ((rc = lab_build(l, spec)) < 0)
        return rc;
    return lab_has_relay(spec) ? lab_relay_start(l, spec, true) : 0;
}

static int holder_build(const struct hw_lab_spec *spec, struct lab *l)
{
    int rc = enter_user_namespace();
    if (rc < 0)
        return rc;
    l->user = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    if (l->user < 0)
        return hw_fail(-errno, "opening /proc/self/ns/user: %s", strerror(errno));
    rc = make_held_lab(spec, l);
    if (rc == -EPERM || rc == -EACCES)
        return hw_wrap(rc, "this system gives user namespaces no privileges (for example because of AppArmor): create "
                           "the lab as root");
    return rc;
}

/* Sends all file descriptors of the lab to a client. A client that fails or stalls affects only itself. */
static void hand_out(int to, const struct lab *l)
{
    struct hello m = {.nodes = l->nodes, .has_switch = l->sw.ns >= 0};
    memcpy(m.magic, magic, sizeof(magic));
    size_t spaces = l->nodes + m.has_switch, n = 1 + 2 * spaces;
    int fds[MAX_FDS];
    struct hw_netlink rt[HW_LAB_MAX_NODES + 1];
    fds[0] = l->user;
    size_t made = 0;
    for (; made < spaces; made++) {
        int ns = made < l->nodes ? l->node[made].ns : l->sw.ns;
        /* a new socket for each client, because replies to several clients would mix on one socket */
        if (hw_netns_rtnl(ns, &rt[made]) < 0)
            break;
        fds[1 + made] = ns;
        fds[1 + spaces + made] = rt[made].fd;
    }
    if (made == spaces)
        (void)hw_pass_send(to, NULL, &m, sizeof(m), fds, (unsigned)n, MSG_DONTWAIT);
    while (made > 0)
        hw_netlink_close(&rt[--made]);
}

int holder_detach(const char *title, int *fd, unsigned n)
{
    (void)setsid();
    (void)prctl(PR_SET_NAME, title);
    (void)!chdir("/");
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i <= 2; i++)
        (void)dup2(null, i);
    for (unsigned i = 0; i < n; i++) {
        fd[i] = fcntl(fd[i], F_DUPFD_CLOEXEC, 100);
        if (fd[i] < 0)
            return -errno;
    }
    for (unsigned from = 3;;) { /* closes every file descriptor from 3 up that is not in fd */
        unsigned next = ~0u;
        for (unsigned i = 0; i < n; i++)
            if ((unsigned)fd[i] >= from)
                next = HW_MIN(next, (unsigned)fd[i]);
        if (next > from)
            (void)syscall(SYS_close_range, from, next == ~0u ? next : next - 1, 0);
        if (next == ~0u)
            break;
        from = next + 1;
    }
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    return 0;
}

int holder_verdict_read(int fd, const char *what)
{
    struct holder_verdict v;
    ssize_t n;
    do {
        n = read(fd, &v, sizeof(v));
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(v))
        return hw_fail(-ECHILD, "%s ended before it was ready", what);
    return v.rc < 0 ? hw_fail_copy(v.rc, v.text) : 0;
}

static _Noreturn void holder_main(const struct hw_lab_spec *spec, int lock, int report)
{
    /* This process outlives the process that started it. */
    struct holder_verdict v = {0};
    struct lab l;
    int fd[] = {lock, report};
    lab_init(&l);
    if (holder_detach("hawser-lab", fd, 2) < 0)
        _exit(1);
    lock = fd[0];
    report = fd[1];

    /* Start listening before anything is built, so that `down` can end this process from now on. */
    v.rc = listen(lock, 16) < 0 ? hw_fail(-errno, "listening on the lab's socket: %s", strerror(errno))
                                : holder_build(spec, &l);
    if (v.rc < 0)
        snprintf(v.text, sizeof(v.text), "%s", hw_error());
    (void)!write(report, &v, sizeof(v));
    hw_close(&report);
    if (v.rc < 0)
        _exit(1);
    for (;;) {
        int s = accept4(lock, NULL, NULL, SOCK_CLOEXEC);
        if (s < 0) {
            if (errno != EINTR && errno != ECONNABORTED)
                (void)poll(NULL, 0, 100); /* out of file descriptors or memory: wait, rather than spin or exit */
            continue;
        }
        struct ucred c;
        socklen_t len = sizeof(c);
        if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0 && c.uid == geteuid())
            hand_out(s, &l);
        hw_close(&s);
    }
}

int holder_start(const struct hw_lab_spec *spec, int lock)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return hw_fail(-errno, "creating a pipe: %s", strerror(errno));
    /* Fork twice, so that the caller does not have to reap the lab's process. */
    pid_t pid = fork();
    if (pid == 0) {
        pid_t again = fork();
        if (again == 0)
            holder_main(spec, lock, p[1]);
        _exit(again < 0 ? 1 : 0);
    }
    int rc = pid < 0 ? hw_fail(-errno, "starting the lab's process: %s", strerror(errno)) : 0;
    hw_close(&p[1]);
    if (pid > 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        rc = holder_verdict_read(p[0], "the lab's process");
    }
    hw_close(&p[0]);
    return rc;
}

/* ---- clients -------------------------------------------------------------------------------- */

static int receive_lab_namespaces(int s, const char *name, struct lab *l)
{
    struct hello m;
    int fds[MAX_FDS];
    bool cut = false;
    ssize_t n = hw_pass_receive(s, &m, sizeof(m), fds, MAX_FDS, 0, &cut);
    if (n < 0)
        return hw_fail((int)n, "the lab's process does not answer: %s", strerror((int)-n));
    size_t count = 0;
    while (count < MAX_FDS && fds[count] >= 0)
        count++;
    size_t spaces = n == (ssize_t)sizeof(m) ? (size_t)m.nodes + m.has_switch : 0;
    if (n != (ssize_t)sizeof(m) || memcmp(m.magic, magic, sizeof(magic)) != 0 || m.nodes > HW_LAB_MAX_NODES ||
        m.has_switch > 1 || cut || count != 1 + 2 * spaces) {
        while (count > 0)
            hw_close(&fds[--count]);
        if (cut)
            return hw_fail(-EPROTO,
                           "this process cannot open all file descriptors of the lab: raise the limit (ulimit -n)");
        return hw_fail(-EPROTO,
                       "the process of lab %s speaks another version of hawser's protocol, or has just ended; `hawser "
                       "lab down --name %s` removes the lab",
                       name, name);
    }
    l->user = fds[0];
    l->nodes = m.nodes;
    for (size_t i = 0; i < spaces; i++) {
        struct lab_ns *to = i < m.nodes ? &l->node[i] : &l->sw;
        to->ns = fds[1 + i];
        hw_netlink_adopt(&to->rt, fds[1 + spaces + i]);
    }
    return 0;
}

int holder_open(const char *name, struct lab *l)
{
    pid_t pid = 0;
    HW_AUTO_CLOSE int s = connect_lab_holder(name, &pid);
    return s < 0 ? s : receive_lab_namespaces(s, name, l);
}

int holder_end(const char *name)
{
    pid_t pid = 0;
    HW_AUTO_CLOSE int s = connect_lab_holder(name, &pid);
    if (s == -ENOENT) { /* no process is listening: there is no lab, or an up or down is in progress */
        int fd;
        int rc = holder_lock(name, &fd);
        if (rc < 0)
            return rc == -EBUSY ? -EAGAIN : rc;
        hw_close(&fd);
        return -ENOENT;
    }
    if (s < 0)
        return s;
    HW_AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno == ESRCH ? 0 : hw_fail(-errno, "opening process %d: %s", (int)pid, strerror(errno));
    /* If the process is still listening after the pidfd was opened, its PID has not been reused. */
    pid_t same = 0;
    HW_AUTO_CLOSE int again = connect_lab_holder(name, &same);
    if (again < 0 || same != pid)
        return 0;
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
        return hw_fail(-errno, "ending the lab's process %d: %s", (int)pid, strerror(errno));
    struct pollfd gone = {.fd = fd, .events = POLLIN};
    return poll(&gone, 1, ANSWER_MS) == 0
               ? hw_fail(-EBUSY, "the lab's process %d has not exited after SIGKILL", (int)pid)
               : 0;
}

int holder_names(char (*out)[HW_LAB_NAME_MAX + 1], size_t cap, size_t n)
{
    char want[64], line[512];
    int len = snprintf(want, sizeof(want), " @%s/%u/", PREFIX, (unsigned)geteuid());
    FILE *f = fopen("/proc/net/unix", "re");
    if (!f)
        return (int)n; /* without /proc, no lab of this kind can exist */
    while (fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, want);
        char flags[16];
        /* a line has "address: refs protocol flags type state inode path"; flag 0x10000 is __SO_ACCEPTCON
         * (listening) */
        if (!at || sscanf(line, "%*s %*s %*s %15s", flags) != 1 || !(strtoul(flags, NULL, 16) & 0x10000))
            continue;
        if (n < cap)
            snprintf(out[n], sizeof(out[n]), "%.*s", (int)strcspn(at + len, "\n"), at + len);
        n++;
    }
    fclose(f);
    return (int)n;
}

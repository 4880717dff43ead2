/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracer's process. It is started before the broker has a filter of system calls of its own, as only who has none
 * may suspend those of a tracee (PTRACE_O_SUSPEND_SECCOMP; kernel/ptrace.c, check_ptrace_options()), and a filter
 * passes to children. All that it does is to take orders from the broker and to start a child for each (trace.c): a
 * thread that cannot be stopped holds up nobody.
 */
#include "verbs/guard.h"
#include "verbs/inject_int.h"
#include "verbs/notify.h"

#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What an order is, but for what is shared and the descriptors, which come beside it. */
struct order {
    uint32_t place; /* in vb_tracer's shared */
    bool wall;
    struct seccomp_notif n;
    dev_t dev;
    ino_t fixed_ino, results_ino;
};
enum { FD_LISTENER, FD_FIXED, FD_RESULTS, FDS };
union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(FDS * sizeof(int))];
};

void vb_shared_set(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- the process -------------------------------------------------------------------------------------- */

static void on_child(int sig)
{
    (void)sig; /* it is there to end ppoll() */
}

static void take_up(pid_t *child, struct vb_shared *shared)
{
    for (pid_t pid; (pid = waitpid(-1, NULL, __WALL | WNOHANG)) > 0;)
        for (unsigned i = 0; i < VB_ORDERS; i++)
            if (child[i] == pid) {
                child[i] = 0;
                vb_shared_set(&shared[i].busy, 0);
            }
}

/* The next order and its descriptors: 1; 0: nothing; -1: the broker has gone, or is not ours. */
static int receive(int sock, struct order *o, int fd[FDS])
{
    union control c;
    struct iovec iov = {.iov_base = o, .iov_len = sizeof(*o)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
    ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    const struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (n != sizeof(*o) || !h || h->cmsg_type != SCM_RIGHTS || h->cmsg_len != CMSG_LEN(FDS * sizeof(int)) ||
        o->place >= VB_ORDERS)
        return -1;
    memcpy(fd, CMSG_DATA(h), FDS * sizeof(int));
    return 1;
}

static void start(const struct order *o, const int fd[FDS], pid_t *child, struct vb_shared *shared)
{
    struct vb_shared *sh = &shared[o->place];
    const struct vb_window w = {.fixed = fd[FD_FIXED],
                                .results = fd[FD_RESULTS],
                                .dev = o->dev,
                                .fixed_ino = o->fixed_ino,
                                .results_ino = o->results_ino};
    pid_t me = getpid(), pid = fork();
    if (pid == 0)
        vb_trace(sh, &w, fd[FD_LISTENER], &o->n, o->wall, me);
    if (pid > 0) {
        child[o->place] = pid;
        return;
    }
    sh->rc = hw_fail(-errno, "starting a tracer: %s", strerror(errno));
    snprintf(sh->text, sizeof(sh->text), "%s", hw_error());
    vb_notify_answer(fd[FD_LISTENER], o->n.id, 0, sh->rc);
    vb_shared_set(&sh->state, VB_FAILED);
    vb_shared_set(&sh->busy, 0);
}

static void serve(int sock, struct vb_shared *shared)
{
    static pid_t child[VB_ORDERS];
    struct pollfd p = {.fd = sock, .events = POLLIN};
    struct sigaction act = {.sa_handler = on_child};
    sigset_t chld, rest;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &rest);
    sigdelset(&rest, SIGCHLD);
    sigaction(SIGCHLD, &act, NULL);
    for (;;) {
        struct order o;
        int fd[FDS], got = 0;
        if (ppoll(&p, 1, NULL, &rest) > 0 && (got = receive(sock, &o, fd)) < 0)
            return;
        if (got) {
            start(&o, fd, child, shared);
            for (unsigned i = 0; i < FDS; i++)
                close(fd[i]);
        }
        take_up(child, shared);
    }
}

/* It ends with the broker: by that signal, and by the end of the socket. */
static void process(int sock, struct vb_shared *shared, pid_t broker)
{
    prctl(PR_SET_NAME, "hawser-tracer");
    /* It has no business with the broker's other files, and would keep them open. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != broker || vb_guard_tracer() || vb_guard_fds(0, &sock, 1) ||
        send(sock, "", 1, MSG_NOSIGNAL) != 1)
        return;
    serve(sock, shared);
}

/* ---- the broker's side -------------------------------------------------------------------------------- */

int vb_tracer_start(struct vb_tracer *t)
{
    int pair[2], rc = 0;
    char ready;
    *t = (struct vb_tracer){.sock = -1};
    struct vb_shared *shared =
        mmap(NULL, VB_ORDERS * sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return hw_fail(-errno, "memory to share with a tracer: %s", strerror(errno));
    t->shared = shared;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        rc = hw_fail(-errno, "a socket to a tracer: %s", strerror(errno));
        vb_tracer_end(t);
        return rc;
    }
    t->sock = pair[0];
    pid_t me = getpid();
    /* No SIGCHLD: nothing that the broker's own children are mixed up with. */
    t->pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
    if (t->pid == 0) {
        process(pair[1], shared, me);
        _exit(1);
    }
    if (t->pid < 0)
        rc = hw_fail(-errno, "a process for a tracer: %s", strerror(errno));
    close(pair[1]);
    if (rc == 0 && recv(t->sock, &ready, 1, 0) != 1)
        rc = hw_fail(-EIO, "the tracer, process %d, has ended at its start", (int)t->pid);
    if (rc)
        vb_tracer_end(t);
    return rc;
}

void vb_tracer_end(struct vb_tracer *t)
{
    if (t->sock >= 0)
        shutdown(t->sock, SHUT_RDWR); /* whoever else has it */
    hw_close(&t->sock);
    if (t->pid > 0)
        while (waitpid(t->pid, NULL, __WALL) < 0 && errno == EINTR)
            continue;
    t->pid = 0;
    if (t->shared)
        munmap(t->shared, VB_ORDERS * sizeof(*t->shared));
    t->shared = NULL;
    if (t->spare)
        vb_window_drop(t->spare);
    free(t->spare);
    t->spare = NULL;
}

int vb_tracer_order(struct vb_tracer *t, int listener, const struct seccomp_notif *n, const struct vb_window *w,
                    struct vb_shared **out)
{
    struct order o;
    const int fd[FDS] = {[FD_LISTENER] = listener, [FD_FIXED] = w->fixed, [FD_RESULTS] = w->results};
    unsigned place = 0;
    if (!t->shared)
        return hw_fail(-EIO, "there is no tracer");
    while (place < VB_ORDERS && atomic_load(&t->shared[place].busy))
        place++;
    if (place == VB_ORDERS)
        return hw_fail(-EAGAIN, "%d threads of the application could not be stopped yet: no more", VB_ORDERS);
    struct vb_shared *sh = &t->shared[place];
    memset(sh, 0, sizeof(*sh)); /* VB_RUN */
    memset(&o, 0, sizeof(o));
    o.place = place;
    o.wall = vb_inject_hold == VB_HOLD_WALL;
    o.n = *n;
    o.dev = w->dev;
    o.fixed_ino = w->fixed_ino;
    o.results_ino = w->results_ino;
    union control c = {.head = {.cmsg_len = CMSG_LEN(sizeof(fd)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&c.head), fd, sizeof(fd));
    struct iovec iov = {.iov_base = &o, .iov_len = sizeof(o)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
    atomic_store(&sh->busy, 1);
    if (sendmsg(t->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(o)) {
        int err = errno;
        atomic_store(&sh->busy, 0);
        /* A new one would have the broker's filter. */
        if (err == EPIPE || err == ECONNRESET)
            return hw_fail(-EIO,
                           "the tracer, process %d, has ended: no program gets a stub any more, until the "
                           "container is started anew",
                           (int)t->pid);
        return hw_fail(-err, "an order to the tracer, process %d: %s", (int)t->pid, strerror(err));
    }
    *out = sh;
    return 0;
}

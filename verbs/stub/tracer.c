/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracer process. It is started before the broker installs its seccomp filter, because children inherit filters,
 * and only a process without filters may suspend the filters of a tracee (PTRACE_O_SUSPEND_SECCOMP;
 * check_ptrace_options() in kernel/ptrace.c).
 *
 * The tracer handles two kinds of orders from the broker. To inject a stub, it starts a child (trace.c), so that a
 * thread that cannot be stopped delays only the child. It answers queries itself (lookup.c).
 */
#include "sys/pass.h"
#include "verbs/stub/guard.h"
#include "verbs/stub/inject_int.h"
#include "verbs/stub/lookup.h"
#include "verbs/stub/notify.h"

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

/* An order from the broker. Descriptors are sent in the same message. */
struct order {
    bool lookup; /* true for a query, false for the injection of a stub */
    union {
        struct {
            uint32_t place; /* index in the shared memory */
            bool wall;
            struct seccomp_notif n;
            dev_t dev;
            ino_t fixed_ino, results_ino;
        };
        struct {
            uint32_t serial;
            struct vb_lookup q;
        };
    };
};
struct answer {
    uint32_t serial;
    struct vb_found f;
};
enum { FD_LISTENER, FD_FIXED, FD_RESULTS, FDS };
void vb_shared_set(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- the process -------------------------------------------------------------------------------------- */

static void on_child(int sig)
{
    (void)sig; /* the signal only has to interrupt ppoll() */
}

static void reap_trace_children(pid_t *child, struct vb_shared *shared)
{
    for (pid_t pid; (pid = waitpid(-1, NULL, __WALL | WNOHANG)) > 0;)
        for (unsigned i = 0; i < VB_ORDERS; i++)
            if (child[i] == pid) {
                child[i] = 0;
                vb_shared_set(&shared[i].busy, 0);
            }
}

static void answer_tracer_lookup(int sock, struct vb_lookups *l, const struct order *o, int given)
{
    struct answer a = {.serial = o->serial};
    int fd;
    vb_lookup_answer(l, &o->q, given, &a.f, &fd);
    (void)hw_pass_send(sock, NULL, &a, sizeof(a), &fd, fd >= 0,
                       MSG_DONTWAIT); /* errors are ignored, because the broker may no longer be waiting */
    hw_close(&fd);
}

static void start_trace_child(const struct order *o, const int fd[FDS], pid_t *child, struct vb_shared *shared)
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
    sh->rc = hw_fail(-errno, "cannot start a tracing process: %s", strerror(errno));
    snprintf(sh->text, sizeof(sh->text), "%s", hw_error());
    vb_notify_answer(fd[FD_LISTENER], o->n.id, 0, sh->rc);
    vb_shared_set(&sh->state, VB_FAILED);
    vb_shared_set(&sh->busy, 0);
}

/* Handles the next order. Returns 0, or -1 if the broker has exited or the order is invalid. */
static int handle_tracer_order(int sock, struct vb_lookups *l, pid_t *child, struct vb_shared *shared)
{
    struct order o;
    int fd[FDS];
    ssize_t n = hw_pass_receive(sock, &o, sizeof(o), fd, FDS, MSG_DONTWAIT, NULL);
    if (n == -EAGAIN || n == -EINTR)
        return 0;
    bool good = n == sizeof(o) && (o.lookup || (fd[FDS - 1] >= 0 && o.place < VB_ORDERS));
    if (good && o.lookup)
        answer_tracer_lookup(sock, l, &o, fd[0]);
    else if (good)
        start_trace_child(&o, fd, child, shared);
    for (unsigned i = 0; i < FDS; i++)
        hw_close(&fd[i]);
    return good ? 0 : -1;
}

static void serve_tracer_orders(int sock, struct vb_lookups *l, struct vb_shared *shared)
{
    static pid_t child[VB_ORDERS];
    const struct timespec soon = {0, 50 * HW_MS};
    struct pollfd p = {.fd = sock, .events = POLLIN};
    struct sigaction act = {.sa_handler = on_child};
    sigset_t chld, rest;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &rest);
    sigdelset(&rest, SIGCHLD);
    sigaction(SIGCHLD, &act, NULL);
    for (;;) {
        bool waits = l->nodes >= 0 && vb_lookups_wait(l);
        int ready = ppoll(&p, 1, waits ? &soon : NULL, &rest);
        if (ready > 0 && handle_tracer_order(sock, l, child, shared) < 0)
            return;
        if (ready == 0)
            vb_lookups_idle(l);
        reap_trace_children(child, shared);
    }
}

/* Runs the tracer process. When the broker exits, the tracer exits too, because it gets a signal and its socket is
 * closed. */
static void run_tracer_process(int sock, struct vb_lookups *l, struct vb_shared *shared, pid_t broker, uid_t uid)
{
    int keep[] = {sock, l->nodes, l->inotify, l->mount};
    prctl(PR_SET_NAME, "hawser-tracer");
    /* The user is changed first, because the kernel clears PR_SET_PDEATHSIG when the user changes. The broker's other
     * descriptors are closed, because the tracer would keep the files open. */
    if (vb_guard_tracer(uid) || prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != broker ||
        vb_guard_fds(0, keep, HW_ARRAY_LEN(keep)) || send(sock, "", 1, MSG_NOSIGNAL) != 1)
        return;
    serve_tracer_orders(sock, l, shared);
}

/* ---- the broker's side -------------------------------------------------------------------------------- */

int vb_tracer_start(struct vb_tracer *t, const struct vb_lookups *l, uid_t uid)
{
    struct vb_lookups his = {.nodes = -1, .inotify = -1, .mount = -1, .spent = -1};
    int pair[2], rc = 0;
    char ready;
    *t = (struct vb_tracer){.sock = -1};
    struct vb_shared *shared =
        mmap(NULL, VB_ORDERS * sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return hw_fail(-errno, "cannot allocate memory to share with the tracer: %s", strerror(errno));
    t->shared = shared;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        rc = hw_fail(-errno, "cannot create a socket for the tracer: %s", strerror(errno));
        vb_tracer_end(t);
        return rc;
    }
    t->sock = pair[0];
    pid_t me = getpid();
    /* The tracer sends no SIGCHLD when it exits, so the broker's waitpid() for other children ignores the tracer. */
    t->pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
    if (t->pid == 0) {
        if (l)
            his = *l;
        run_tracer_process(pair[1], &his, shared, me, uid);
        _exit(1);
    }
    if (t->pid < 0)
        rc = hw_fail(-errno, "cannot start the tracer process: %s", strerror(errno));
    close(pair[1]);
    if (rc == 0 && recv(t->sock, &ready, 1, 0) != 1)
        rc = hw_fail(-EIO, "the tracer process %d ended during its start", (int)t->pid);
    if (rc)
        vb_tracer_end(t);
    return rc;
}

void vb_tracer_end(struct vb_tracer *t)
{
    if (t->sock >= 0)
        shutdown(t->sock, SHUT_RDWR); /* other processes may have the socket open too */
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

/* Fails with -EIO. The tracer cannot be started again, because a new tracer would inherit the broker's filter. */
static int has_ended(const struct vb_tracer *t)
{
    return hw_fail(-EIO,
                   "the tracer process %d has ended: programs of the container get no stub and no device until the "
                   "container is restarted",
                   (int)t->pid);
}

static int give_order(const struct vb_tracer *t, const struct order *o, const int *fd, unsigned fds)
{
    if (t->sock < 0)
        return hw_fail(-EIO, "the tracer is not running");
    int rc = hw_pass_send(t->sock, NULL, o, sizeof(*o), fd, fds, MSG_DONTWAIT);
    if (rc == -EPIPE || rc == -ECONNRESET)
        return has_ended(t);
    return rc ? hw_fail(rc, "cannot send an order to the tracer process %d: %s", (int)t->pid, strerror(-rc)) : 0;
}

int vb_tracer_order(struct vb_tracer *t, int listener, const struct seccomp_notif *n, const struct vb_window *w,
                    struct vb_shared **out)
{
    struct order o;
    const int fd[FDS] = {[FD_LISTENER] = listener, [FD_FIXED] = w->fixed, [FD_RESULTS] = w->results};
    unsigned place = 0;
    if (!t->shared)
        return hw_fail(-EIO, "the tracer is not running");
    while (place < VB_ORDERS && atomic_load(&t->shared[place].busy))
        place++;
    if (place == VB_ORDERS)
        return hw_fail(-EAGAIN, "the limit of %d injections at a time into threads of the container is reached",
                       VB_ORDERS);
    struct vb_shared *sh = &t->shared[place];
    memset(sh, 0, sizeof(*sh)); /* sets the state to VB_RUN, which is 0 */
    memset(&o, 0, sizeof(o));
    o.place = place;
    o.wall = vb_inject_hold == VB_HOLD_WALL;
    o.n = *n;
    o.dev = w->dev;
    o.fixed_ino = w->fixed_ino;
    o.results_ino = w->results_ino;
    atomic_store(&sh->busy, 1);
    int rc = give_order(t, &o, fd, FDS);
    if (rc)
        atomic_store(&sh->busy, 0);
    else
        *out = sh;
    return rc;
}

int vb_tracer_ask(struct vb_tracer *t, const struct vb_lookup *q, int given, struct vb_found *f, int *fd)
{
    struct answer a;
    struct order o;
    int got;
    memset(f, 0, sizeof(*f));
    *fd = -1;
    memset(&o, 0, sizeof(o));
    o.lookup = true;
    o.serial = ++t->serial;
    o.q = *q;
    int rc = give_order(t, &o, &given, given >= 0);
    if (rc)
        return rc;
    for (uint64_t deadline = hw_deadline(VB_INJECT_MS);;) {
        struct pollfd p = {.fd = t->sock, .events = POLLIN};
        uint64_t now = hw_now();
        int ready = poll(&p, 1, now < deadline ? (int)((deadline - now) / HW_MS + 1) : 0);
        if (ready == 0)
            return hw_fail(-ETIMEDOUT,
                           "the tracer process %d does not answer; it may be blocked by a path that the program opened",
                           (int)t->pid);
        ssize_t n = ready < 0 ? -EINTR : hw_pass_receive(t->sock, &a, sizeof(a), &got, 1, MSG_DONTWAIT, NULL);
        if (n == -EAGAIN || n == -EINTR)
            continue;
        if (n == sizeof(a) && a.serial == o.serial)
            break;
        hw_close(&got); /* unused, or for an earlier query that was abandoned */
        if (n != sizeof(a))
            return has_ended(t);
    }
    *f = a.f;
    *fd = got;
    return f->rc ? hw_fail_copy(f->rc, f->text) : 0;
}

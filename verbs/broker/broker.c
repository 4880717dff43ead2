/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's setup, and its loop, which handles notifications, closed files, ended stubs, status queries, new
 * listeners and timers. */
#include "verbs/broker/broker_int.h"
#include "verbs/broker/join.h"
#include "verbs/stub/guard.h"
#include "verbs/stub/lookup.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int watch_broker_fd(struct vb_broker *b, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    if (fd >= 0 && epoll_ctl(b->epoll, EPOLL_CTL_ADD, fd, &e))
        return hw_fail(-errno, "epoll_ctl: %s", strerror(errno));
    return 0;
}

/* Raises the limit of open files, because the broker needs several descriptors for each stub and one for each waiting
 * request. */
static void raise_broker_fd_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
}

/* Adds a listener. On success, the broker owns fd. */
static int add_listener(struct vb_broker *b, int fd)
{
    if (b->n_listeners == VB_LISTENERS_MAX)
        return hw_fail(-EUSERS, "%d programs of the container are already running", VB_LISTENERS_MAX);
    int rc = watch_broker_fd(b, fd);
    if (rc)
        return rc;
    if (vb_notify_sync(fd))
        hw_log(b->o->log, HAWSER_LOG_DEBUG, "verbs: %s", hw_error());
    b->listener[b->n_listeners++] = fd;
    return 0;
}

static int *find_listener(struct vb_broker *b, int fd)
{
    for (unsigned i = 0; i < b->n_listeners; i++)
        if (b->listener[i] == fd)
            return &b->listener[i];
    return NULL;
}

/* Receives the listener of another program of the container. */
static void take_listener(struct vb_broker *b)
{
    int reply, fd = vb_join_take(b->container, &reply);
    if (fd < 0)
        return;
    int rc = add_listener(b, fd);
    if (rc) {
        close(fd);
        hw_log(b->o->log, HAWSER_LOG_ERROR, "verbs: %s: RDMA calls of a new program fail with ENOSYS: %s",
               b->container->id, hw_error());
    }
    vb_join_answer(reply, rc);
}

/* Closes a listener after its last program has exited. */
static void end_listener(struct vb_broker *b, int *l)
{
    vb_workers_end(b, *l);
    close(*l); /* also removes the listener from epoll as soon as no tracing process refers to it */
    *l = b->listener[--b->n_listeners];
}

static int watch_all(struct vb_broker *b)
{
    int rc;
    if ((rc = add_listener(b, b->container->listener)) || (rc = watch_broker_fd(b, b->inotify)) ||
        (rc = watch_broker_fd(b, b->status)) || (rc = watch_broker_fd(b, b->container->join)))
        return rc;
    return watch_broker_fd(b, b->o->stop);
}

/* Starts the tracer. Must be called after everything that the tracer inherits has been created. */
static int start_tracer(struct vb_broker *b)
{
    struct vb_lookups l;
    int rc = vb_lookups_open(&l, b->o->kernel, b->o->node_dir, b->o->uid, b->inotify, &b->nodes_dev);
    if (rc == 0)
        rc = vb_tracer_start(&b->tracer, &l, b->o->uid);
    vb_lookups_close(&l);
    return rc;
}

/* Moves the broker to the container's cgroup, because the kernel charges an object to the cgroup of the process that
 * creates it (ib_rdmacg_try_charge()). The tracer, which opens devices, does not join the cgroup, because the
 * container's device rules must not apply to the tracer. */
static void join_cgroup(const struct vb_broker *b)
{
    if (b->o->cgroup >= 0 && write(b->o->cgroup, "0", 1) != 1)
        hw_log(b->o->log, HAWSER_LOG_WARN,
               "verbs: %s: RDMA objects of the container are not charged to its cgroup, so rdma.max does not apply: %s",
               b->container->id, strerror(errno));
}

static int make_counted(void *arg)
{
    struct vb_broker *b = arg;
    b->epoll = epoll_create1(EPOLL_CLOEXEC);
    b->inotify = b->epoll < 0 ? -1 : inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    return b->inotify >= 0 ? 0
                           : hw_fail(-errno, "cannot create an epoll and an inotify descriptor: %s", strerror(errno));
}

static int set_up_broker(struct vb_broker *b)
{
    raise_broker_fd_limit();
    tzset(); /* reads a file, which is not possible later; needed for the timestamps of the audit */
    /* The kernel limits the instances and watches of inotify, and the watches of epoll, for each user. Root in a
     * container may be root of the machine. If the broker created instances and watches as root, a container could
     * exhaust the limit for all brokers. */
    int rc = vb_guard_as(b->o->uid, make_counted, b);
    if (rc)
        return rc;
    b->null = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b->null < 0)
        return hw_fail(-errno, "cannot create an eventfd: %s", strerror(errno));
    if (b->o->state_dir && vb_status_open(b)) /* the broker works without a status socket */
        hw_log(b->o->log, HAWSER_LOG_WARN, "verbs: `hawser verbs status` will not show this container: %s", hw_error());
    (void)vb_inject_possible(); /* reads a file, which is not possible later, and caches the result */
    rc = watch_all(b);
    if (rc == 0)
        rc = start_tracer(b);
    if (rc)
        return rc;
    join_cgroup(b);
    if (b->o->guarded && (rc = vb_guard_serving(b->o->uid)))
        return rc;
    vb_inject_idle(&b->tracer);
    return b->o->guarded ? vb_guard_calls() : 0;
}

static void tear_down(struct vb_broker *b)
{
    vb_workers_end(b, -1);
    vb_tracer_end(&b->tracer);
    if (b->container->join >= 0)
        close(b->container->join);
    vb_status_close(b);
    if (b->inotify >= 0)
        vb_contexts_free(b);
    while (b->n_listeners) /* waiting programs get ENOSYS (seccomp_notify_release() in kernel/seccomp.c) */
        hw_close(&b->listener[--b->n_listeners]);
    for (unsigned i = 0; i < b->n_slots; i++)
        free(b->slot[i]);
    hw_close(&b->null);
    hw_close(&b->inotify);
    hw_close(&b->epoll);
}

static void dispatch_notified_call(struct vb_broker *b, const struct vb_call *call)
{
    if (vb_worker_call(b, call))
        return;
    if (!call->n.pid) /* the process is not in the broker's PID namespace */
        vb_notify_answer(call->listener, call->n.id, 0, EPERM);
    else if (call->n.data.nr == SYS_ioctl)
        vb_ioctl(b, call);
    else if (call->n.data.nr == SYS_write)
        vb_doorbell(b, call);
    else
        vb_open(b, call);
}

/* Handles events of a listener. Returns 0, or 1 if the last program has exited and the broker must exit, or -errno. */
static int listen_on(struct vb_broker *b, int *l, uint32_t events)
{
    struct vb_call call = {.listener = *l};
    if (!(events & EPOLLIN)) {
        struct pollfd p = {.fd = *l}; /* the event may belong to a closed descriptor with the same number */
        if (poll(&p, 1, 0) == 1 && p.revents & POLLHUP)
            end_listener(b, l);
        return b->n_listeners ? 0 : 1;
    }
    int rc = vb_notify_next(*l, &call.n);
    if (rc)
        return rc == -EAGAIN ? 0 : rc;
    dispatch_notified_call(b, &call);
    return 0;
}

static int run_broker_loop(struct vb_broker *b)
{
    uint64_t swept = hw_now();
    for (;;) {
        struct epoll_event e[16];
        uint64_t ms = 0;
        if (b->n_cached || vb_inject_waits(&b->tracer))
            ms = VB_CACHE_NS / HW_MS;
        else if (!hw_list_empty(&b->workers))
            ms = VB_ALONE_NS / HW_MS;
        else if (b->n_kept)
            ms = 1000;
        int n = epoll_wait(b->epoll, e, HW_ARRAY_LEN(e), ms ? (int)ms : -1);
        if (n < 0 && errno != EINTR)
            return hw_fail(-errno, "epoll_wait: %s", strerror(errno));
        bool joins = false;
        b->now = hw_now();
        if (n == 0)
            vb_inject_idle(&b->tracer);
        for (int i = 0; i < n; i++) {
            int fd = e[i].data.fd, rc = 0, *l = find_listener(b, fd);
            if (l)
                rc = listen_on(b, l, e[i].events);
            else if (fd == b->inotify)
                vb_contexts_ended(b);
            else if (fd == b->status)
                vb_status_answer(b);
            else if (fd == b->container->join)
                joins = true;
            else if (fd == b->o->stop)
                return 0;
            else
                vb_worker_gone(b, fd);
            if (rc)
                return rc < 0 ? rc : 0;
        }
        /* New listeners are received last. A later event in this batch may belong to a stub's descriptor that was
         * closed in the meantime. If a new listener had the same number, the broker would take the event for a
         * notification and block. */
        if (joins)
            take_listener(b);
        if (b->now - swept >= VB_CACHE_NS / 2) {
            swept = b->now;
            vb_cache_sweep(b, false, -1);
            vb_workers_sweep(b);
            vb_kept_sweep(b, false);
        }
    }
}

int vb_serve(const struct vb_container *c, const struct vb_broker_options *o)
{
    struct vb_broker *b = aligned_alloc(_Alignof(struct vb_broker), sizeof *b);
    int rc = b ? 0 : hw_no_memory("a broker");
    if (!b) {
        close(c->listener);
        if (c->join >= 0)
            close(c->join);
        return rc;
    }
    memset(b, 0, sizeof *b);
    b->container = c;
    b->o = o;
    b->epoll = b->inotify = b->status = b->null = b->tracer.sock = -1;
    b->started = b->now = hw_now();
    b->me = getpid();
    hw_list_init(&b->contexts);
    hw_list_init(&b->kept);
    hw_list_init(&b->workers);
    for (unsigned i = 0; i < VB_CACHE; i++)
        b->cache[i].mine = -1;
    rc = set_up_broker(b);
    if (!b->n_listeners)
        close(c->listener);
    if (!rc)
        rc = run_broker_loop(b);
    tear_down(b);
    free(b);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that pin the application's memory: one at a time in each of its memories, by the stub there. */
#include "verbs/broker_int.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* The device is at VB_STUB_FD in the stub's table, and descriptors that a request names behind it. */
#define STUB_SWAP (VB_STUB_FD + 1)

struct vb_job {
    struct hw_list link;
    struct seccomp_notif n;
    struct vb_context *context;
    int device; /* keeps the context alive */
    uint64_t ticket;
    struct vb_layout layout;
    struct vb_request r;
};

static void job_free(struct vb_job *j)
{
    hw_close(&j->device);
    free(j);
}

/* It did not run, or nobody knows: rc is what the application is told; ran: what it made may be there. */
static void job_drop(struct vb_broker *b, struct vb_job *j, int rc, bool ran)
{
    vb_settle(j->context->objects, &j->r, j->ticket, ran ? VB_UNKNOWN : rc, false);
    vb_notify_answer(b->listener, j->n.id, 0, -rc);
    job_free(j);
}

static struct vb_worker *by_tid(struct vb_broker *b, pid_t tid)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (w->stub.tid == tid)
            return w;
    }
    return NULL;
}

static void worker_free(struct vb_broker *b, struct vb_worker *w)
{
    hw_list_remove(&w->link);
    if (w->running)
        job_drop(b, w->running, -EIO, true);
    hw_list_each(i, next, &w->jobs)
    {
        struct vb_job *j = hw_container_of(i, struct vb_job, link);
        hw_list_remove(&j->link);
        job_drop(b, j, -EIO, false);
    }
    epoll_ctl(b->epoll, EPOLL_CTL_DEL, vb_stub_watch(&w->stub), NULL);
    vb_stub_end(&w->stub, b->listener);
    hw_close(&w->device);
    free(w);
}

bool vb_worker_gone(struct vb_broker *b, int pidfd)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (vb_stub_watch(&w->stub) == pidfd && vb_stub_gone(&w->stub)) { /* it may have been another's a moment ago */
            w->stub.dead = true;
            worker_free(b, w);
            return true;
        }
    }
    return false;
}

void vb_workers_end(struct vb_broker *b)
{
    hw_list_each(i, next, &b->workers) worker_free(b, hw_container_of(i, struct vb_worker, link));
}

void vb_workers_sweep(struct vb_broker *b)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (b->now - w->looked < VB_ALONE_NS)
            continue;
        w->looked = b->now;
        if (!vb_worker_gone(b, vb_stub_watch(&w->stub)) && w->stub.parked && !w->running && hw_list_empty(&w->jobs) &&
            vb_stub_alone(&w->stub))
            worker_free(b, w);
    }
}

void vb_workers_clear(struct vb_broker *b, bool all)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (w->device >= 0 && !w->running && (all || b->now - w->used >= VB_CACHE_NS / 2) &&
            vb_stub_clear(&w->stub, b->listener) == 0)
            hw_close(&w->device);
    }
}

/* Lays it into the window, and moves its header to where the stub looks for it. Between there and its first attribute
 * come attributes that no kernel has, which it passes over (drivers/infiniband/core/uverbs_ioctl.c, uverbs_set_attr():
 * what is not mandatory and not known). */
static int lay(struct vb_worker *w, struct vb_job *j)
{
    const uint32_t requests = VB_WINDOW_SPLIT - VB_WINDOW_CODE, at = VB_WINDOW_HEADER - VB_WINDOW_CODE;
    const struct ib_uverbs_attr unknown = {.attr_id = 0x0fff}; /* the last of the core's, UVERBS_ID_NS_SHIFT */
    struct vb_header h;
    uint8_t *out = w->stub.mine + VB_WINDOW_CODE;
    size_t inputs = 0;
    for (unsigned i = 0; i < j->r.n; i++)
        inputs += (j->r.attr[i].len + 7u) & ~7u; /* of outputs too, which are behind the split: as well */
    int rc = vb_request_build(&j->r, out, VB_WINDOW_SIZE - VB_WINDOW_CODE, w->stub.window + VB_WINDOW_CODE, requests,
                              &j->layout);
    if (rc)
        return rc;
    uint32_t from = (uint32_t)(j->layout.header - (w->stub.window + VB_WINDOW_CODE));
    if (inputs > at || from < at || (from - at) % sizeof unknown)
        return hw_fail(-E2BIG, "%s: more than the stub's window takes", j->r.command->name);
    memcpy(&h, out + from, sizeof h);
    for (uint32_t a = at; a < from; a += sizeof unknown) {
        memcpy(out + a + sizeof h, &unknown, sizeof unknown);
        h.num_attrs++;
        h.length += sizeof unknown;
    }
    memcpy(out + at, &h, sizeof h);
    return 0;
}

/* Puts the descriptors that a request names into the stub's table, and their numbers there into the request. -ENOENT:
 * the stub's call was taken back, and comes again. */
static int give_swaps(struct vb_broker *b, struct vb_worker *w, struct vb_job *j, struct vb_swaps *s)
{
    int rc = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < s->n && rc >= 0; i++) {
        if (s->swap[i].mine < 0)
            continue;
        rc = vb_notify_give(b->listener, w->stub.parked, s->swap[i].mine, STUB_SWAP + (int)n, true, false);
        if (rc < 0)
            break;
        vb_swap_put(&s->swap[i], STUB_SWAP + (int)n++);
        w->given = HW_MAX(w->given, n);
    }
    if (rc >= 0)
        rc = lay(w, j);
    vb_swap_back(s);
    return rc;
}

/* Something without power in the place of each, as the stub's table lives as long as it does. What cannot be done, as
 * its call was taken back, is done when it comes again. */
static void take_swaps(struct vb_broker *b, struct vb_worker *w)
{
    while (w->given &&
           vb_notify_give(b->listener, w->stub.parked, b->null, STUB_SWAP + (int)w->given - 1, true, false) >= 0)
        w->given--;
}

static void not_run(struct vb_broker *b, struct vb_worker *w, struct vb_job *j, int rc)
{
    char text[256];
    vb_refused(b, (pid_t)j->n.pid, j->context->slot, vb_request_text(&j->r, text, sizeof text), "stub", hw_error(), rc);
    take_swaps(b, w);
    job_drop(b, j, rc, false);
}

/* -ENOENT is no failure: the stub's call was taken back, and comes again, or it has died, and that is seen. */
static int run(struct vb_broker *b, struct vb_worker *w, struct vb_job *j)
{
    int rc = vb_stub_run(&w->stub, b->listener, j->device);
    w->running = rc == 0 || rc == -ENOENT ? j : NULL;
    return w->running ? 0 : rc;
}

static void next_job(struct vb_broker *b, struct vb_worker *w)
{
    struct vb_job *j;
    struct vb_swaps swaps;
    while (w->stub.parked && !w->running && (j = hw_list_first(&w->jobs, struct vb_job, link))) {
        hw_list_remove(&j->link);
        if (!vb_notify_valid(b->listener, j->n.id)) {
            job_drop(b, j, -EINTR, false);
            continue;
        }
        int rc = vb_swap_in((pid_t)j->n.pid, &j->r, &swaps);
        if (rc) { /* the program has no such descriptor: nothing to tell the operator */
            job_drop(b, j, rc, false);
            continue;
        }
        rc = give_swaps(b, w, j, &swaps);
        if (rc == -ENOENT) {
            w->stub.parked = 0;
            hw_list_append(w->jobs.next, &j->link); /* the first again */
            return;
        }
        if (rc >= 0)
            rc = run(b, w, j);
        if (rc < 0)
            not_run(b, w, j, rc);
    }
    if (w->stub.parked && !w->running)
        take_swaps(b, w);
}

static void job_done(struct vb_broker *b, struct vb_worker *w, struct vb_job *j, int64_t result)
{
    w->running = NULL;
    take_swaps(b, w);
    int rc = result < -4095 || result > INT_MAX ? -EIO : (int)result;
    if (rc >= 0)
        vb_request_collect(&j->r, w->stub.mine + VB_WINDOW_CODE, &j->layout);
    vb_finish(b, &j->n, j->context, j->device, &j->r, j->ticket, rc, false);
    /* It stays there for a moment, since to take it out means to wait for the stub, twice a switch of address spaces.
     * The one that was there before was replaced. */
    hw_close(&w->device);
    w->device = j->device;
    w->used = b->now;
    j->device = -1;
    job_free(j);
}

bool vb_worker_call(struct vb_broker *b, const struct seccomp_notif *n)
{
    int64_t result;
    struct vb_worker *w = by_tid(b, (pid_t)n->pid);
    if (!w)
        return false;
    struct vb_job *j = w->running;
    int rc = vb_stub_park(&w->stub, n, &result);
    if (rc == -ESRCH) { /* a thread of the application's, that has got the number of a stub which has ended */
        worker_free(b, w);
        return false;
    }
    if (rc < 0) {
        vb_notify_answer(b->listener, n->id, 0, EPERM);
        return true;
    }
    w->looked = b->now;
    if (j && rc == 0) {
        rc = run(b, w, j);
        if (rc)
            not_run(b, w, j, rc);
    } else if (j) {
        job_done(b, w, j, result);
    }
    next_job(b, w);
    return true;
}

/* 0: a stub is on its way, and the thread makes its call anew; else it has been told. */
static int inject(struct vb_broker *b, const struct seccomp_notif *n)
{
    struct vb_worker *w = calloc(1, sizeof *w);
    if (!w) {
        vb_notify_answer(b->listener, n->id, 0, ENOMEM);
        return hw_fail(-ENOMEM, "out of memory for a stub");
    }
    int rc = vb_inject(&b->tracer, &w->stub, b->listener, n);
    if (rc) {
        free(w);
        return rc;
    }
    w->device = -1;
    hw_list_init(&w->jobs);
    hw_list_append(&b->workers, &w->link);
    w->looked = b->now;
    struct epoll_event e = {.events = EPOLLIN, .data.fd = vb_stub_watch(&w->stub)};
    if (epoll_ctl(b->epoll, EPOLL_CTL_ADD, e.data.fd, &e)) /* its end is seen by the next sweep */
        hw_log(b->o->log, HAWSER_LOG_WARN, "verbs: %s: watching a stub: %s", b->container->id, strerror(errno));
    return 0;
}

void vb_memory(struct vb_broker *b, const struct seccomp_notif *n, struct vb_context *c, int fd,
               const struct vb_request *r, uint64_t ticket)
{
    struct vb_worker *w = NULL;
    char text[256];
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *of = hw_container_of(i, struct vb_worker, link);
        if (vb_stub_serves(&of->stub, (pid_t)n->pid)) {
            w = of;
            break;
        }
    }
    if (!w) {
        vb_settle(c->objects, r, ticket, -EAGAIN, true);
        int rc = vb_inject_possible();
        if (rc)
            vb_notify_answer(b->listener, n->id, 0, -rc);
        else
            rc = inject(b, n);
        if (rc && rc != -ESRCH)
            vb_refused(b, (pid_t)n->pid, c->slot, vb_request_text(r, text, sizeof text), "stub", hw_error(), rc);
        return;
    }
    struct vb_job *j = malloc(sizeof *j);
    int device = j ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (device < 0) {
        free(j);
        vb_settle(c->objects, r, ticket, -ENOMEM, true);
        vb_notify_answer(b->listener, n->id, 0, ENOMEM);
        return;
    }
    j->n = *n;
    j->context = c;
    j->device = device;
    j->ticket = ticket;
    vb_request_copy(&j->r, r);
    hw_list_append(&w->jobs, &j->link);
    hw_list_remove(&w->link);
    hw_list_append(b->workers.next, &w->link); /* the first to be asked next time */
    next_job(b, w);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The work of stubs for the broker, one thing at a time in each address space of the application: they run the requests
 * that pin memory, and they copy the results of all requests. */
#include "verbs/broker/broker_int.h"
#include "verbs/policy/policy_int.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* VB_STUB_FD in the stub's table is the device; the descriptors that a request names come after it. */
#define STUB_SWAP (VB_STUB_FD + 1)

/* A request to run and then to copy the results of; or, with gives, one that has already run in the broker. */
struct vb_job {
    struct hw_list link;
    struct vb_call call;
    struct vb_context *context;
    int device; /* keeps the context alive */
    bool gives;
    int rc;          /* gives: the application's result */
    uint64_t ticket; /* otherwise: of the reservation */
    struct vb_layout layout;
    struct vb_request r; /* last member: only the used part is allocated */
};

static struct vb_job *job_new(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd,
                              const struct vb_request *r)
{
    struct vb_job *j = malloc(offsetof(struct vb_job, r) + vb_request_size(r));
    int device = j ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (device < 0) {
        free(j);
        return NULL;
    }
    j->call = *call;
    j->context = c;
    j->device = device;
    j->gives = false;
    vb_request_copy(&j->r, r);
    b->n_jobs++;
    return j;
}

static void job_free(struct vb_broker *b, struct vb_job *j)
{
    hw_close(&j->device);
    free(j);
    b->n_jobs--;
}

static void answer_job_error(const struct vb_job *j, int rc)
{
    vb_notify_answer(j->call.listener, j->call.n.id, 0, -rc);
}

/* Drops a job that did not run, or whose result is unknown: rc is the application's result; ran: its objects may exist.
 * If results can no longer be copied because the process has ended, the context keeps the objects. */
static void job_drop(struct vb_broker *b, struct vb_job *j, int rc, bool ran)
{
    if (!j->gives && ran) {
        vb_settle_stub(b, j->context, j->device, &j->r, j->ticket, VB_UNKNOWN);
    } else if (!j->gives) {
        j->context->running--;
        j->context->doubt = true; /* the size of an MR being changed is no longer trusted */
        vb_settle(j->context->objects, &j->r, j->ticket, rc, false);
    }
    answer_job_error(j, rc);
    job_free(b, j);
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
    if (w->stub.seq == 0) { /* a filter of the application can cause that repeatedly */
        b->barren[b->n_barren % VB_BARREN_MAX].tid = w->made_for;
        b->barren[b->n_barren++ % VB_BARREN_MAX].since = b->now;
    }
    if (w->running)
        job_drop(b, w->running, -EIO, true);
    hw_list_each(i, next, &w->jobs)
    {
        struct vb_job *j = hw_container_of(i, struct vb_job, link);
        hw_list_remove(&j->link);
        job_drop(b, j, -EIO, false);
    }
    epoll_ctl(b->epoll, EPOLL_CTL_DEL, vb_stub_watch(&w->stub), NULL);
    vb_stub_end(&w->stub, w->listener);
    hw_close(&w->device);
    free(w);
}

bool vb_worker_gone(struct vb_broker *b, int pidfd)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        /* the pidfd may have been another worker's until now */
        if (vb_stub_watch(&w->stub) == pidfd && vb_stub_gone(&w->stub)) {
            w->stub.dead = true;
            worker_free(b, w);
            return true;
        }
    }
    return false;
}

void vb_workers_end(struct vb_broker *b, int listener)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (listener < 0 || w->listener == listener)
            worker_free(b, w);
    }
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
            vb_stub_alone(&b->tracer, &w->stub))
            worker_free(b, w);
    }
}

void vb_workers_clear(struct vb_broker *b, bool all)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (w->device >= 0 && !w->running && (all || b->now - w->used >= VB_CACHE_NS / 2) &&
            vb_stub_clear(&w->stub, w->listener) == 0)
            hw_close(&w->device);
    }
}

/* Writes the request into the window, and its header to where the stub expects it. Attributes unknown to every kernel
 * fill the space up to its first attribute; the kernel skips them (drivers/infiniband/core/uverbs_ioctl.c,
 * uverbs_set_attr(): neither mandatory nor known). */
static int write_window_request(struct vb_worker *w, struct vb_job *j)
{
    const uint32_t requests = VB_WINDOW_SPLIT - VB_WINDOW_CODE, at = VB_WINDOW_HEADER - VB_WINDOW_CODE;
    const struct ib_uverbs_attr unknown = {.attr_id = 0x0fff}; /* the last of the core's ids, UVERBS_ID_NS_SHIFT */
    struct vb_header h;
    uint8_t *out = w->stub.mine + VB_WINDOW_CODE;
    size_t inputs = 0;
    for (unsigned i = 0; i < j->r.n; i++)
        inputs += (j->r.attr[i].len + 7u) & ~7u; /* counts outputs too, which are after the split: a safe upper bound */
    int rc = vb_request_build(&j->r, out, VB_WINDOW_SIZE - VB_WINDOW_CODE, w->stub.window + VB_WINDOW_CODE, requests,
                              &j->layout);
    if (rc)
        return rc;
    uint32_t from = (uint32_t)(j->layout.header - (w->stub.window + VB_WINDOW_CODE));
    if (inputs > at || from < at || (from - at) % sizeof unknown)
        return hw_fail(-E2BIG, "%s: more than the stub's window holds", j->r.command->name);
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
 * the stub's call was interrupted, and will be repeated. */
static int give_swaps(struct vb_worker *w, struct vb_job *j, struct vb_swaps *s)
{
    int rc = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        if (s->swap[i].mine < 0)
            continue;
        rc = vb_notify_give(w->listener, w->stub.parked, s->swap[i].mine, STUB_SWAP + (int)n, true, false);
        if (rc < 0)
            break;
        vb_swap_put(&s->swap[i], STUB_SWAP + (int)n++);
        w->given = HW_MAX(w->given, n);
    }
    if (rc >= 0)
        rc = write_window_request(w, j);
    vb_swap_back(s);
    return rc;
}

/* Replaces each of them by a harmless descriptor, because the stub's table lives as long as the stub. If the stub's
 * call was interrupted, this is done when it is repeated. */
static void take_swaps(struct vb_broker *b, struct vb_worker *w)
{
    while (w->given &&
           vb_notify_give(w->listener, w->stub.parked, b->null, STUB_SWAP + (int)w->given - 1, true, false) >= 0)
        w->given--;
}

static void not_run(struct vb_broker *b, struct vb_worker *w, struct vb_job *j, int rc)
{
    char text[256];
    vb_refused(b, (pid_t)j->call.n.pid, j->context->slot, vb_request_text(&j->r, text, sizeof text), "stub", hw_error(),
               rc);
    take_swaps(b, w);
    if (j->gives && j->rc >= 0)
        vb_undo(b, j->context, j->device, &j->r);
    job_drop(b, j, rc, false);
}

struct copies {
    struct vb_stub *stub;
    unsigned n;
    uint32_t used; /* of VB_REPLY_SIZE */
};

static int add_copy(void *arg, uint64_t address, const void *src, size_t n)
{
    struct copies *l = arg;
    if (l->n == VB_COPIES_MAX || n > VB_REPLY_SIZE - l->used)
        return -E2BIG;
    const struct vb_copy copy = {address, n, VB_REPLY_AT + l->used};
    memcpy(l->stub->mine + VB_WINDOW_SIZE + l->used, src, n);
    memcpy(l->stub->mine + VB_COPIES_AT + l->n * sizeof copy, &copy, sizeof copy);
    l->used += (uint32_t)n;
    l->n++;
    return 0;
}

/* -ENOENT is no failure: the stub's call was interrupted and will be repeated, or the stub has died, which is
 * noticed. */
static int start_worker_job(struct vb_worker *w, struct vb_job *j)
{
    struct copies copies = {.stub = &w->stub};
    int rc = j->gives ? vb_request_give(&j->r, add_copy, &copies) : 0;
    if (rc == 0)
        rc = j->gives ? vb_stub_copy(&w->stub, w->listener, copies.n) : vb_stub_run(&w->stub, w->listener, j->device);
    w->running = rc == 0 || rc == -ENOENT ? j : NULL;
    return w->running ? 0 : rc;
}

/* Puts the request's descriptors into the stub's table and the request into the window. 1: the job was dropped;
 * -ENOENT: the stub's call was interrupted. */
static int prepare_worker_job(struct vb_broker *b, struct vb_worker *w, struct vb_job *j)
{
    struct vb_swaps swaps;
    int rc = vb_swap_in(b, &j->call, &j->r, &swaps);
    if (rc) { /* the program lacks the descriptor or has gone: nothing to report to the operator */
        job_drop(b, j, rc, false);
        return 1;
    }
    return give_swaps(w, j, &swaps);
}

/* Pinned memory counts against the limit of the requester, but the kernel checks the capabilities of the process that
 * pins: the stub must not have a right to lock memory that the program has dropped. 0: it has not; 1: it was told to
 * drop the right, or will be when its call is repeated. */
static int check_rights(struct vb_broker *b, struct vb_worker *w, const struct vb_job *j)
{
    int rc = w->unlimited ? vb_stub_locks(&b->tracer, &w->stub, (pid_t)j->call.n.pid) : 0;
    if (rc <= 0)
        return rc;
    if (w->dropping)
        return hw_fail(-EPERM, "the program has dropped CAP_IPC_LOCK, but its stub cannot: check for a seccomp filter "
                               "that forbids capset()");
    rc = vb_stub_drop(&w->stub, w->listener);
    w->dropping = rc == 0;
    return rc == 0 || rc == -ENOENT ? 1 : rc;
}

static void next_job(struct vb_broker *b, struct vb_worker *w)
{
    struct vb_job *j;
    while (w->stub.parked && !w->running && (j = hw_list_first(&w->jobs, struct vb_job, link))) {
        hw_list_remove(&j->link);
        if (!j->gives && !vb_notify_valid(j->call.listener, j->call.n.id)) {
            job_drop(b, j, -EINTR, false);
            continue;
        }
        int rc = j->gives ? 0 : check_rights(b, w, j);
        bool later = rc == 1;
        if (rc == 0 && !j->gives && (rc = prepare_worker_job(b, w, j)) == 1)
            continue;
        if (later || rc == -ENOENT) {
            w->stub.parked = 0;
            hw_list_append(w->jobs.next, &j->link); /* the first again */
            return;
        }
        w->dropping = false;
        if (rc >= 0)
            rc = start_worker_job(w, j);
        if (rc < 0)
            not_run(b, w, j, rc);
    }
    if (w->stub.parked && !w->running)
        take_swaps(b, w);
}

/* The job has run; registers report result; known false: no result is known. */
static void job_ran(struct vb_broker *b, struct vb_worker *w, struct vb_job *j, int64_t result, bool known)
{
    take_swaps(b, w);
    int rc = !known || result < -4095 || result > INT_MAX ? -EIO : (int)result;
    if (rc >= 0)
        vb_request_collect(&j->r, w->stub.mine + VB_WINDOW_CODE, &j->layout);
    vb_settle_stub(b, j->context, j->device, &j->r, j->ticket, known ? rc : VB_UNKNOWN);
    int device = fcntl(j->device, F_DUPFD_CLOEXEC, 3);
    if (rc >= 0 && vb_request_gives(&j->r) && device >= 0 && vb_notify_valid(j->call.listener, j->call.n.id)) {
        j->gives = true;
        j->rc = rc;
        hw_list_append(w->jobs.next, &j->link); /* next */
    } else {
        vb_finish(b, &j->call, j->context, j->device, &j->r, rc);
        job_free(b, j);
    }
    /* The device stays in the stub's table for a while: to remove it the broker must wait for the stub, twice a context
     * switch. The device that was there before was replaced. */
    hw_close(&w->device);
    w->device = device;
    w->used = b->now;
    if (device < 0)
        vb_stub_clear(&w->stub, w->listener);
}

/* The results are copied, or a copy failed. */
static void job_given(struct vb_broker *b, struct vb_job *j, bool copied)
{
    if (copied) {
        if (vb_notify_answer(j->call.listener, j->call.n.id, j->rc, 0) == -ENOENT)
            vb_keep(b, &j->call, j->context, &j->r, j->rc);
    } else { /* like the kernel, which would have undone it */
        vb_undo(b, j->context, j->device, &j->r);
        answer_job_error(j, -EFAULT);
    }
    job_free(b, j);
}

bool vb_worker_call(struct vb_broker *b, const struct vb_call *call)
{
    int64_t result;
    struct vb_worker *w = by_tid(b, (pid_t)call->n.pid);
    if (!w) {
        bool left = vb_stub_is_left(&call->n);
        if (left)
            vb_notify_answer(call->listener, call->n.id, VB_STUB_QUIT, 0);
        return left;
    }
    struct vb_job *j = w->running;
    int rc = vb_stub_park(&w->stub, &call->n, &result);
    if (rc == -ESRCH) { /* a thread of the application has got the number of an ended stub */
        worker_free(b, w);
        return false;
    }
    if (rc < 0) {
        vb_notify_answer(call->listener, call->n.id, 0, EPERM);
        return true;
    }
    w->looked = b->now;
    w->dropping &= rc != 0; /* otherwise it was not told */
    if (j && rc == 0) {
        rc = start_worker_job(w, j);
        if (rc)
            not_run(b, w, j, rc);
    } else if (j) {
        w->running = NULL;
        if (j->gives)
            job_given(b, j, rc == 1 && result == 0);
        else
            job_ran(b, w, j, result, rc == 1);
    }
    next_job(b, w);
    return true;
}

/* Returns 0: a stub is being injected, and the thread repeats its call; else the thread has got the error. */
static int inject_worker_stub(struct vb_broker *b, const struct vb_call *call)
{
    struct vb_worker *w = calloc(1, sizeof *w);
    if (!w) {
        vb_notify_answer(call->listener, call->n.id, 0, ENOMEM);
        return hw_no_memory("a stub");
    }
    int rc = vb_inject(&b->tracer, &w->stub, call->listener, &call->n);
    if (rc) {
        free(w);
        return rc;
    }
    w->listener = call->listener;
    w->made_for = (pid_t)call->n.pid;
    w->device = -1;
    w->unlimited = vb_stub_locks(&b->tracer, &w->stub, 0) != 0;
    hw_list_init(&w->jobs);
    hw_list_append(&b->workers, &w->link);
    w->looked = b->now;
    struct epoll_event e = {.events = EPOLLIN, .data.fd = vb_stub_watch(&w->stub)};
    if (epoll_ctl(b->epoll, EPOLL_CTL_ADD, e.data.fd, &e)) /* the next sweep notices its end */
        hw_log(b->o->log, HAWSER_LOG_WARN, "verbs: %s: watching a stub: %s", b->container->id, strerror(errno));
    return 0;
}

static struct vb_worker *worker_of(struct vb_broker *b, pid_t tid)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (vb_stub_serves(&w->stub, tid)) {
            hw_list_remove(&w->link);
            hw_list_append(b->workers.next, &w->link); /* asked first next time */
            return w;
        }
    }
    return NULL;
}

static bool is_barren(const struct vb_broker *b, pid_t tid)
{
    for (unsigned i = 0; i < HW_MIN(b->n_barren, VB_BARREN_MAX); i++)
        if (b->barren[i].tid == tid && b->now - b->barren[i].since < VB_BARREN_NS)
            return true;
    return false;
}

/* *told: the thread has got the error, or repeats its call. */
static int provide_worker(struct vb_broker *b, const struct vb_call *call, struct vb_worker **out, bool *told)
{
    *out = worker_of(b, (pid_t)call->n.pid);
    if (b->n_jobs >= VB_JOBS_MAX)
        return hw_fail(-EAGAIN, "%d requests of the container are waiting already", VB_JOBS_MAX);
    if (*out)
        return 0;
    if (is_barren(b, (pid_t)call->n.pid))
        return hw_fail(-EIO, "its stub has ended before its first call: check for a seccomp filter that forbids it");
    int rc = vb_inject_possible();
    if (rc)
        return rc;
    *told = true;
    return inject_worker_stub(b, call);
}

int vb_worker_for(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r,
                  struct vb_worker **out)
{
    char text[256];
    bool told = false;
    int rc = provide_worker(b, call, out, &told);
    if (rc && rc != -ESRCH)
        vb_refused(b, (pid_t)call->n.pid, c->slot, vb_request_text(r, text, sizeof text), "stub", hw_error(), rc);
    return told ? 1 : rc;
}

void vb_run_in_stub(struct vb_broker *b, struct vb_worker *w, const struct vb_call *call, struct vb_context *c, int fd,
                    const struct vb_request *r, uint64_t ticket)
{
    struct vb_job *j = job_new(b, call, c, fd, r);
    if (!j) {
        vb_settle(c->objects, r, ticket, -ENOMEM, true);
        vb_notify_answer(call->listener, call->n.id, 0, ENOMEM);
        return;
    }
    /* An MR destroyed before this runs releases nothing: by then another MR may have its number and a large size. */
    struct vb_mr_ask m;
    vb_mr_ask(r, &m);
    if (m.kind == VB_MR_AGAIN)
        vb_objects_forget_mr(c->objects, m.number);
    j->ticket = ticket;
    c->running++;
    hw_list_append(&w->jobs, &j->link);
    next_job(b, w);
}

void vb_give(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, const struct vb_request *r,
             int rc)
{
    struct vb_worker *w = worker_of(b, (pid_t)call->n.pid);
    /* Check after the fetch: the number may belong to another process by now, into whose memory the results would
     * go. */
    if (!vb_notify_valid(call->listener, call->n.id)) {
        vb_keep(b, call, c, r, rc);
        return;
    }
    struct vb_job *j = w ? job_new(b, call, c, fd, r) : NULL;
    if (!j) { /* no memory, or the process is ending: it had a stub a moment ago */
        vb_undo(b, c, fd, r);
        vb_notify_answer(call->listener, call->n.id, 0, w ? ENOMEM : EIO);
        return;
    }
    j->gives = true;
    j->rc = rc;
    hw_list_append(&w->jobs, &j->link);
    next_job(b, w);
}

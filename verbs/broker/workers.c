/* SPDX-License-Identifier: Apache-2.0 */
/* Manages the work of stubs. A stub runs the requests that access the application's memory, and copies the results of
 * all requests to the application. Each address space of the application has at most one stub, which does one job at a
 * time. */
#include "verbs/broker/broker_int.h"
#include "verbs/policy/policy_int.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* The device is at VB_STUB_FD in the stub's descriptor table. The descriptors of a request follow. */
#define STUB_SWAP (VB_STUB_FD + 1)

/* A request for a stub. The stub runs the request and then copies its results. If gives is set, the request has already
 * run, and the stub only copies the results. */
struct vb_job {
    struct hw_list link;
    struct vb_call call;
    struct vb_context *context;
    int device; /* descriptor of the device, which keeps the context alive */
    bool gives;
    int rc;          /* if gives is set: the result for the application */
    uint64_t ticket; /* otherwise: the ticket of vb_reserve() */
    struct vb_layout layout;
    struct vb_request r; /* must be last, because only the used part is allocated */
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

/* Drops a job that did not run or has an unknown result. The application gets the error rc. ran is true if the objects
 * of the request may exist. If the stub exited before it copied the results, the objects remain in the context. */
static void job_drop(struct vb_broker *b, struct vb_job *j, int rc, bool ran)
{
    if (!j->gives && ran) {
        vb_settle_stub(b, j->context, j->device, &j->r, j->ticket, VB_UNKNOWN);
    } else if (!j->gives) {
        j->context->running--;
        j->context->doubt = true; /* sizes that this request may have changed are no longer trusted */
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
    if (w->stub.seq == 0) { /* a seccomp filter of the application can cause this repeatedly */
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
        /* The event may belong to another worker that had the same pidfd. */
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

/* Writes the request to the window and its header to the fixed address that the stub uses. Fills the space between the
 * header and the first attribute with optional attributes of an unknown type, which the kernel skips (uverbs_set_attr()
 * in drivers/infiniband/core/uverbs_ioctl.c). */
static int write_window_request(struct vb_worker *w, struct vb_job *j)
{
    const uint32_t requests = VB_WINDOW_SPLIT - VB_WINDOW_CODE, at = VB_WINDOW_HEADER - VB_WINDOW_CODE;
    /* the last id of the core namespace (UVERBS_ID_NS_SHIFT) */
    const struct ib_uverbs_attr unknown = {.attr_id = 0x0fff};
    struct vb_header h;
    uint8_t *out = w->stub.mine + VB_WINDOW_CODE;
    size_t inputs = 0;
    for (unsigned i = 0; i < j->r.n; i++)
        /* an upper bound, because it includes outputs, which are after the split */
        inputs += (j->r.attr[i].len + 7u) & ~7u;
    int rc = vb_request_build(&j->r, out, VB_WINDOW_SIZE - VB_WINDOW_CODE, w->stub.window + VB_WINDOW_CODE, requests,
                              &j->layout);
    if (rc)
        return rc;
    uint32_t from = (uint32_t)(j->layout.header - (w->stub.window + VB_WINDOW_CODE));
    if (inputs > at || from < at || (from - at) % sizeof unknown)
        return hw_fail(-E2BIG, "%s: the request does not fit into the window of the stub", j->r.command->name);
    memcpy(&h, out + from, sizeof h);
    for (uint32_t a = at; a < from; a += sizeof unknown) {
        memcpy(out + a + sizeof h, &unknown, sizeof unknown);
        h.num_attrs++;
        h.length += sizeof unknown;
    }
    memcpy(out + at, &h, sizeof h);
    return 0;
}

/* Installs the descriptors of a request in the stub's table, and writes the request with their new numbers to the
 * window. Fails with -ENOENT if the stub's call was interrupted (the stub will repeat the call), or with another
 * -errno. */
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

/* Replaces the request's descriptors in the stub's table with an unused eventfd, because the table exists as long as
 * the stub and would keep the files open. If the stub's call was interrupted, this is done when the stub repeats the
 * call. */
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
    uint32_t used; /* number of bytes used of VB_REPLY_SIZE */
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

/* Starts a job. -ENOENT from the stub is not a failure: either the stub's call was interrupted and the stub will repeat
 * it, or the stub has died, which is detected elsewhere. */
static int start_worker_job(struct vb_worker *w, struct vb_job *j)
{
    struct copies copies = {.stub = &w->stub};
    int rc = j->gives ? vb_request_give(&j->r, add_copy, &copies) : 0;
    if (rc == 0)
        rc = j->gives ? vb_stub_copy(&w->stub, w->listener, copies.n) : vb_stub_run(&w->stub, w->listener, j->device);
    w->running = rc == 0 || rc == -ENOENT ? j : NULL;
    return w->running ? 0 : rc;
}

/* Installs the request's descriptors in the stub's table and writes the request to the window. Returns 0, or 1 if the
 * job was dropped. Fails with -ENOENT if the stub's call was interrupted, or with another -errno. */
static int prepare_worker_job(struct vb_broker *b, struct vb_worker *w, struct vb_job *j)
{
    struct vb_swaps swaps;
    int rc = vb_swap_in(b, &j->call, &j->r, &swaps);
    if (rc) { /* the program lacks the descriptor or is no longer waiting; not worth a report */
        job_drop(b, j, rc, false);
        return 1;
    }
    return give_swaps(w, j, &swaps);
}

/* Makes sure that the stub may not lock memory without limit if the program has dropped this right: the kernel checks
 * the capabilities of the thread that pins memory, which is the stub. Returns 0 if the job may run, or 1 if the stub
 * was told to drop the right, or will be told when it repeats its call. Fails with -EPERM if the stub cannot drop the
 * right, or with another -errno. */
static int check_rights(struct vb_broker *b, struct vb_worker *w, const struct vb_job *j)
{
    int rc = w->unlimited ? vb_stub_locks(&b->tracer, &w->stub, (pid_t)j->call.n.pid) : 0;
    if (rc <= 0)
        return rc;
    if (w->dropping)
        return hw_fail(-EPERM, "the program has dropped CAP_IPC_LOCK, but its stub cannot drop it: check for a seccomp "
                               "filter that forbids capset()");
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
            hw_list_append(w->jobs.next, &j->link); /* put the job back at the front */
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

/* Handles the completion of a request that the stub has run. result is the value that the stub's registers report.
 * known is false if there is no result. */
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
        hw_list_append(w->jobs.next, &j->link); /* the stub copies the results next */
    } else {
        vb_finish(b, &j->call, j->context, j->device, &j->r, rc);
        job_free(b, j);
    }
    /* The device remains in the stub's table for some time, because its removal costs two context switches: the broker
     * must wait for the stub. This device has replaced the previous device in the table. */
    hw_close(&w->device);
    w->device = device;
    w->used = b->now;
    if (device < 0)
        vb_stub_clear(&w->stub, w->listener);
}

/* Answers the application after the stub has copied the results or a copy has failed. */
static void job_given(struct vb_broker *b, struct vb_job *j, bool copied)
{
    if (copied) {
        if (vb_notify_answer(j->call.listener, j->call.n.id, j->rc, 0) == -ENOENT)
            vb_keep(b, &j->call, j->context, &j->r, j->rc);
    } else { /* the kernel also destroys the object if it cannot write the results */
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
    if (rc == -ESRCH) { /* a thread of the application has the TID of a stub that has exited */
        worker_free(b, w);
        return false;
    }
    if (rc < 0) {
        vb_notify_answer(call->listener, call->n.id, 0, EPERM);
        return true;
    }
    w->looked = b->now;
    w->dropping &= rc != 0; /* 0 means that the stub did not receive the order */
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

/* Injects a stub. Returns 0 if the thread will repeat its call, or an error that the thread has already received. */
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
    if (epoll_ctl(b->epoll, EPOLL_CTL_ADD, e.data.fd, &e)) /* the next sweep will detect that the stub has exited */
        hw_log(b->o->log, HAWSER_LOG_WARN, "verbs: %s: cannot watch a stub: %s", b->container->id, strerror(errno));
    return 0;
}

static struct vb_worker *worker_of(struct vb_broker *b, pid_t tid)
{
    hw_list_each(i, next, &b->workers)
    {
        struct vb_worker *w = hw_container_of(i, struct vb_worker, link);
        if (vb_stub_serves(&w->stub, tid)) {
            hw_list_remove(&w->link);
            hw_list_append(b->workers.next,
                           &w->link); /* move to the front of the list, so that it is checked first next time */
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

/* Finds or creates the worker of a call. Sets *told if the thread needs no answer, because the thread has already
 * received the error or will repeat its call. */
static int provide_worker(struct vb_broker *b, const struct vb_call *call, struct vb_worker **out, bool *told)
{
    *out = worker_of(b, (pid_t)call->n.pid);
    if (b->n_jobs >= VB_JOBS_MAX)
        return hw_fail(-EAGAIN, "%d requests of the container are already waiting", VB_JOBS_MAX);
    if (*out)
        return 0;
    if (is_barren(b, (pid_t)call->n.pid))
        return hw_fail(
            -EIO, "the program's stub ended before its first call: check for a seccomp filter that kills the stub");
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
    /* Marks the size of the MR as unknown, so that nothing is subtracted if the MR is destroyed before this request
     * runs. Another MR may have the same number when the request runs, and may then get a large size. */
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
    /* This check must follow worker_of(): the thread's number may have been reused by another process, and the results
     * must not be written to the memory of that process. */
    if (!vb_notify_valid(call->listener, call->n.id)) {
        vb_keep(b, call, c, r, rc);
        return;
    }
    struct vb_job *j = w ? job_new(b, call, c, fd, r) : NULL;
    if (!j) { /* out of memory or descriptors, or the stub has exited because the process is exiting */
        vb_undo(b, c, fd, r);
        vb_notify_answer(call->listener, call->n.id, 0, w ? ENOMEM : EIO);
        return;
    }
    j->gives = true;
    j->rc = rc;
    hw_list_append(&w->jobs, &j->link);
    next_job(b, w);
}

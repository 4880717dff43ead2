/* SPDX-License-Identifier: Apache-2.0 */
/* The child's listeners, connections, memory and registrations. */
#include "base/sanitizers.h"
#include "transport/netplugin/child/child.h"
#include "transport/netplugin/table/trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD ((size_t)64 << 10)

enum { PAUSE_MIN_US = 50, PAUSE_MAX_US = 2000 }; /* pause between two calls of connect or accept */
#define TSAN_STACK ((size_t)8 << 20)

static unsigned window_of(const struct kid *k)
{
    unsigned most = k->t.version == 6 ? NCCL_NET_MAX_REQUESTS_V6 : NCCL_NET_MAX_REQUESTS;
    return k->q->max_requests ? HW_MIN(k->q->max_requests, most) : most;
}

/* Creates a connection or a listener in an empty slot. */
static int create_child_comm(struct kid *k, uint32_t slot, enum kid_kind kind, struct kid_comm **out)
{
    if (slot >= NP_COMMS || k->comm[slot])
        return hw_fail(-EINVAL, "connection slot %u does not exist or is in use", slot);
    struct kid_comm *c = calloc(1, sizeof(*c));
    if (!c)
        return hw_no_memory("a connection");
    c->k = k;
    c->kind = kind;
    c->ring = &k->s->ring[slot];
    c->bell = -1;
    c->window = window_of(k);
    c->dh = &c->dh_room; /* 32 bytes that accept() may write */
    k->comm[slot] = c;
    k->top = HW_MAX(k->top, slot + 1);
    *out = c;
    return 0;
}

static struct kid_comm *comm_at(const struct kid *k, uint32_t slot)
{
    return slot < NP_COMMS ? k->comm[slot] : NULL;
}

/* ---- listening ------------------------------------------------------------------------------ */

struct listening {
    struct kid *k;
    struct kid_comm *c;
    uint8_t *handle;
    ncclResult_t result;
};

static void *listen_thread(void *arg)
{
    struct listening *l = arg;
    struct kid_comm *c = l->c;
    const bool entered = c->gpu && hw_cuda_enter(c->gpu) == 0;
    if (entered)
        np_trace_gpu(c->gpu->device);
    kid_here = NP_LISTEN;
    l->result = np_table_listen(&l->k->t, c->dev, l->handle, &c->comm);
    kid_here = NP_NOTHING;
    if (entered)
        hw_cuda_leave();
    return NULL;
}

static int start_thread(void *(*fn)(void *), void *arg, const char *why, pthread_t *out)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
#if HW_TSAN
    /* TSan assumes that the parent's threads still exist after the fork. If a new thread reused the stack of an old
     * one, or a part of its addresses after glibc has unmapped the old stack, TSan would mistake the new thread for the
     * old one ("dup thread with used id"). Stacks from here are never unmapped, and glibc keeps the old ones. */
    void *stack =
        mmap(NULL, TSAN_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack != MAP_FAILED)
        (void)pthread_attr_setstack(&attr, stack, TSAN_STACK);
#endif
    int e = pthread_create(out, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return e ? hw_fail(-e, "starting a thread for %s: %s", why, strerror(e)) : 0;
}

/* Calls listen, in a separate thread unless one_thread is set, and waits for the result. aws-ofi-nccl assigns one
 * endpoint to all listeners of a thread. When one of the listeners is closed with receives posted, aws-ofi-nccl aborts
 * the endpoint with all its connections.
 */
static int call_listen(struct kid *k, struct kid_comm *c, uint8_t *handle)
{
    struct listening l = {.k = k, .c = c, .handle = handle};
    pthread_t thread;
    int rc = 0;
    kid_enter(k, NP_LISTEN);
    if (k->c->one_thread) {
        kid_set_gpu(k, c->gpu);
        l.result = np_table_listen(&k->t, c->dev, handle, &c->comm);
    } else if ((rc = start_thread(listen_thread, &l, "listen", &thread)) == 0)
        pthread_join(thread, NULL);
    kid_leave(k);
    return rc < 0 ? rc : kid_result(NP_LISTEN, l.result);
}

int kid_listen(struct kid *k, const struct np_message *m, uint8_t handle[NCCL_NET_HANDLE_MAXSIZE])
{
    static _Alignas(16) uint8_t room[1024];
    struct kid_comm *c;
    if (m->number >= NP_DEVICES)
        return hw_fail(-EINVAL, "invalid device number %u", m->number);
    const struct hw_space *gpu;
    int rc = kid_gpu_of(m, &gpu);
    if (rc == 0)
        rc = create_child_comm(k, m->slot, KID_LISTENER, &c);
    if (rc)
        return rc;
    c->dev = (int)m->number;
    c->gpu = gpu;
    memset(room, 0, sizeof(room));
    rc = call_listen(k, c, room);
    if (rc == 0 && !c->comm)
        rc = hw_fail(-EIO, "listen: the plugin returned success but no listener");
    for (size_t i = NCCL_NET_HANDLE_MAXSIZE; rc == 0 && i < sizeof(room); i++)
        if (room[i])
            rc = hw_fail(-EIO, "listen: the plugin wrote beyond the %d bytes of a handle", NCCL_NET_HANDLE_MAXSIZE);
    memcpy(handle, room, NCCL_NET_HANDLE_MAXSIZE);
    if (rc < 0) {
        k->comm[m->slot] = NULL;
        free(c);
    }
    return rc;
}

/* ---- connect and accept --------------------------------------------------------------------- */

static ncclResult_t try_once(struct kid *k, struct kid_comm *c)
{
    c->tries++;
    return c->kind == KID_SEND ? np_table_connect(&k->t, c->dev, c->handle, &c->comm, &c->dh)
                               : np_table_accept(&k->t, c->listener->comm, &c->comm, &c->dh);
}

static enum np_call get_setup_call(const struct kid_comm *c)
{
    return c->kind == KID_SEND ? NP_CONNECT : NP_ACCEPT;
}

/* The thread of one connection. connect or accept may sleep (accept() of GPUDirect-TCPX sleeps for 5 s by default) or
 * wait for the peer. NCCL also makes these calls from several threads if a process has several communicators. */
static void *setup_thread(void *arg)
{
    struct kid_comm *c = arg;
    struct np_shared *s = c->k->s;
    unsigned pause_us = PAUSE_MIN_US;
    const bool entered = c->gpu && hw_cuda_enter(c->gpu) == 0;
    if (entered)
        np_trace_gpu(c->gpu->device);
    kid_here = get_setup_call(c);
    for (;;) {
        uint32_t mine = kid_here;
        atomic_store(&c->calling, hw_now());
        atomic_store(&s->joining, mine);
        c->result = try_once(c->k, c);
        (void)atomic_compare_exchange_strong(&s->joining, &mine, NP_NOTHING);
        atomic_store(&c->calling, 0);
        if (c->result || c->comm || hw_now() >= c->deadline)
            break;
        usleep(pause_us);
        pause_us = HW_MIN(2 * pause_us, (unsigned)PAUSE_MAX_US);
    }
    kid_here = NP_NOTHING;
    if (entered)
        hw_cuda_leave();
    atomic_store_explicit(&c->over, true, memory_order_release);
    return NULL;
}

static void join_thread(struct kid *k, struct kid_comm *c)
{
    pthread_join(c->thread, NULL);
    c->threaded = false;
    k->joining--;
}

static void watch_call(struct kid *k, const struct kid_comm *c, uint64_t now)
{
    const uint64_t since = c->threaded ? atomic_load(&c->calling) : 0;
    if (since && now > since && now - since > k->hang_ms * HW_MS)
        atomic_store(&k->s->hung, get_setup_call(c));
}

void kid_watch(struct kid *k)
{
    const uint64_t now = hw_now_coarse();
    for (unsigned i = 0; i < k->top; i++)
        if (k->comm[i])
            watch_call(k, k->comm[i], now);
    for (const struct kid_comm *c = k->orphans; c; c = c->next_orphan)
        watch_call(k, c, now);
}

static int start_setup(struct kid_comm *c)
{
    int rc = start_thread(setup_thread, c, np_call_names[get_setup_call(c)], &c->thread);
    if (rc < 0)
        return rc;
    c->threaded = true;
    c->k->joining++;
    return 0;
}

static int open_child_comm(struct kid *k, const struct np_message *m, enum kid_kind kind, int *fd)
{
    struct kid_comm *c = NULL, *listener = NULL;
    if (fd[0] < 0)
        return hw_fail(-EINVAL, "a connection message has no eventfd");
    if (kind == KID_RECV) {
        listener = comm_at(k, m->number);
        if (!listener || listener->kind != KID_LISTENER)
            return hw_fail(-EINVAL, "slot %u has no listener", m->number);
    }
    if (kind == KID_SEND && m->number >= NP_DEVICES)
        return hw_fail(-EINVAL, "invalid device number %u", m->number);
    const struct hw_space *gpu = NULL;
    int rc = listener ? 0 : kid_gpu_of(m, &gpu);
    if (rc == 0)
        rc = create_child_comm(k, m->slot, kind, &c);
    if (rc)
        return rc;
    c->listener = listener;
    c->dev = listener ? listener->dev : (int)m->number;
    c->gpu = listener ? listener->gpu : gpu;
    memcpy(c->handle, m->handle, sizeof(c->handle));
    c->deadline = m->deadline;
    if (fd[1] >= 0) {
        void *p = mmap(NULL, sizeof(*c->frags), PROT_READ | PROT_WRITE, MAP_SHARED, fd[1], 0);
        if (p == MAP_FAILED)
            rc = hw_fail(-errno, "mapping the list of fragments: %s", strerror(errno));
        else
            c->frags = p;
    }
    if (rc == 0 && (k->q->setup_threads || !k->c->one_thread))
        rc = start_setup(c);
    if (rc < 0) {
        if (c->frags)
            munmap(c->frags, sizeof(*c->frags));
        k->comm[m->slot] = NULL;
        free(c);
        return rc;
    }
    c->bell = fd[0];
    fd[0] = -1;
    return 0;
}

static int setup_and_close(struct kid *k, const struct np_message *m, enum kid_kind kind, int *fd)
{
    int rc = open_child_comm(k, m, kind, fd);
    hw_close(&fd[0]);
    hw_close(&fd[1]);
    return rc;
}

int kid_connect(struct kid *k, const struct np_message *m, int *fd)
{
    return setup_and_close(k, m, KID_SEND, fd);
}

int kid_accept(struct kid *k, const struct np_message *m, int *fd)
{
    return setup_and_close(k, m, KID_RECV, fd);
}

unsigned kid_setup(struct kid *k, struct kid_comm *c)
{
    const enum np_call call = get_setup_call(c);
    if (c->threaded) {
        if (!atomic_load_explicit(&c->over, memory_order_acquire))
            return KID_PENDING;
        join_thread(k, c);
    } else {
        kid_set_gpu(k, c->gpu);
        kid_enter(k, call);
        c->result = try_once(k, c);
        kid_leave(k);
    }
    int rc = kid_result(call, c->result);
    if (rc == 0 && !c->comm) {
        if (hw_now() < c->deadline)
            return KID_PENDING;
        rc = hw_fail(-ETIMEDOUT, "%s: not done before the deadline (calls: %llu): %s", np_call_names[call],
                     (unsigned long long)c->tries,
                     call == NP_CONNECT ? "check that the other side runs and is reachable" : "no peer connected");
    }
    if (rc == 0)
        rc = kid_unpack_open(k, c);
    if (rc < 0) {
        kid_fail(c, rc);
        return KID_MOVED;
    }
    if (!c->meta && c->frags) { /* the connection never receives scattered data */
        munmap(c->frags, sizeof(*c->frags));
        c->frags = NULL;
    }
    atomic_store_explicit(&c->ring->state, NP_OPEN, memory_order_release);
    kid_ring(c);
    return KID_MOVED;
}

/* ---- closing -------------------------------------------------------------------------------- */

static int deregister_child_mr(struct kid *k, struct kid_mr *mr)
{
    kid_set_gpu(k, mr->comm->gpu);
    kid_enter(k, NP_DEREGMR);
    ncclResult_t rc = np_table_dereg(&k->t, mr->comm->comm, mr->mh);
    kid_leave(k);
    *mr = (struct kid_mr){0};
    return kid_result(NP_DEREGMR, rc);
}

static int close_comm(struct kid *k, struct kid_comm *c)
{
    ncclResult_t result = ncclSuccess;
    int rc = 0;
    kid_unpack_close(c); /* before the plugin frees the memory that the gather reads */
    kid_set_gpu(k, c->gpu);
    for (size_t i = 0; i < NP_MRS; i++)
        if (k->mr[i].comm == c)
            rc = deregister_child_mr(k, &k->mr[i]) < 0 ? -EIO : rc;
    if (c->comm) {
        kid_enter(k, NP_CLOSE);
        result = c->kind == KID_LISTENER ? np_table_close_listen(&k->t, c->comm)
                 : c->kind == KID_SEND   ? np_table_close_send(&k->t, c->comm)
                                         : np_table_close_recv(&k->t, c->comm);
        kid_leave(k);
    }
    if (c->frags)
        munmap(c->frags, sizeof(*c->frags));
    hw_close(&c->bell);
    free(c);
    return result ? kid_result(NP_CLOSE, result) : rc;
}

/* Returns true if an accept is in progress on this listener. */
static bool listened_on(const struct kid *k, const struct kid_comm *listener)
{
    for (unsigned i = 0; i < k->top; i++) {
        const struct kid_comm *c = k->comm[i];
        if (c && c->listener == listener && atomic_load(&c->ring->state) == NP_OPENING)
            return true;
    }
    for (const struct kid_comm *c = k->orphans; c; c = c->next_orphan)
        if (c->listener == listener)
            return true;
    return false;
}

int kid_close(struct kid *k, const struct np_message *m)
{
    struct kid_comm *c = comm_at(k, m->slot);
    if (!c)
        return hw_fail(-EINVAL, "slot %u has no connection", m->slot);
    k->comm[m->slot] = NULL;
    while (k->top > 0 && !k->comm[k->top - 1])
        k->top--;
    if (c->threaded || listened_on(k, c)) {
        c->deadline = 0;
        c->next_orphan = k->orphans;
        k->orphans = c;
        return 0;
    }
    return close_comm(k, c);
}

void kid_orphans(struct kid *k)
{
    for (struct kid_comm **at = &k->orphans; *at;) {
        struct kid_comm *c = *at;
        if (c->kind == KID_LISTENER ? listened_on(k, c) : !atomic_load_explicit(&c->over, memory_order_acquire)) {
            at = &c->next_orphan;
            continue;
        }
        if (c->threaded)
            join_thread(k, c);
        *at = c->next_orphan;
        (void)close_comm(k, c);
    }
}

bool kid_close_all(struct kid *k)
{
    bool all = true;
    for (int kind = KID_RECV; kind >= KID_LISTENER; kind--)
        for (unsigned i = 0; i < NP_COMMS; i++) {
            struct kid_comm *c = k->comm[i];
            if (!c || (int)c->kind != kind)
                continue;
            if (c->threaded || listened_on(k, c)) {
                all = false;
                continue;
            }
            k->comm[i] = NULL;
            (void)close_comm(k, c);
        }
    return all && !k->orphans;
}

/* ---- memory --------------------------------------------------------------------------------- */

int kid_map(struct kid *k, const struct np_message *m, int fd)
{
    if (m->number >= NP_MEMS || k->mem[m->number].at || fd < 0)
        return hw_fail(-EINVAL, "memory %u %s", m->number,
                       fd < 0 ? "has no descriptor" : "does not exist or is in use");
    /* Guard areas before and after the memory stop a plugin that writes out of bounds. */
    uint8_t *room = mmap(NULL, m->len + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED ||
        mmap(room + GUARD, m->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)m->offset) == MAP_FAILED)
        return hw_fail(-errno, "mapping %llu bytes of shared memory: %s", (unsigned long long)m->len, strerror(errno));
    k->mem[m->number].at = room + GUARD;
    k->mem[m->number].len = m->len;
    return 0;
}

int kid_unmap(struct kid *k, const struct np_message *m)
{
    if (m->number >= NP_MEMS || !k->mem[m->number].at)
        return hw_fail(-EINVAL, "memory %u does not exist", m->number);
    const struct hw_space *gpu = k->mem[m->number].gpu;
    if (gpu)
        gpu->ops->free(gpu, k->mem[m->number].at, k->mem[m->number].len);
    else
        munmap(k->mem[m->number].at - GUARD, k->mem[m->number].len + 2 * GUARD);
    k->mem[m->number].at = NULL;
    k->mem[m->number].gpu = NULL;
    return 0;
}

/* Registers GPU memory as NCCL does, as a dma-buf if the plugin and the driver support it. */
static ncclResult_t reg_cuda(struct kid *k, struct kid_comm *c, const struct hw_space *gpu, struct kid_mr *mr)
{
    ncclNetProperties_v12_t p;
    int fd = -1;
    c->gpu = c->gpu ? c->gpu : gpu;
    kid_set_gpu(k, gpu);
    if (np_table_has_dmabuf(&k->t) && np_table_properties(&k->t, c->dev, &p) == ncclSuccess &&
        (p.ptrSupport & NCCL_PTR_DMABUF))
        fd = hw_cuda_export(gpu, mr->at, mr->len, false);
    kid_enter(k, NP_REGMR);
    ncclResult_t rc = fd >= 0 ? np_table_reg_dmabuf(&k->t, c->comm, mr->at, mr->len, fd, &mr->mh)
                              : np_table_reg(&k->t, c->comm, mr->at, mr->len, NCCL_PTR_CUDA, &mr->mh);
    kid_leave(k);
    if (fd >= 0)
        hw_close(&fd);
    return rc;
}

int kid_reg(struct kid *k, const struct np_message *m)
{
    ncclResult_t rc;
    struct kid_comm *c = comm_at(k, m->slot);
    if (!c || !c->comm || c->kind == KID_LISTENER)
        return hw_fail(-EINVAL, "slot %u has no connection", m->slot);
    if (m->number >= NP_MRS || k->mr[m->number].comm)
        return hw_fail(-EINVAL, "registration %u does not exist or is in use", m->number);
    if (m->memory >= NP_MEMS || !k->mem[m->memory].at || m->offset > k->mem[m->memory].len ||
        m->len > k->mem[m->memory].len - m->offset)
        return hw_fail(-EINVAL, "a registration exceeds memory %u, or this memory does not exist", m->memory);
    const struct hw_space *gpu = k->mem[m->memory].gpu;
    struct kid_mr mr = {.comm = c, .at = k->mem[m->memory].at + m->offset, .len = m->len, .cuda = gpu != NULL};
    if (gpu) {
        rc = reg_cuda(k, c, gpu, &mr);
    } else {
        kid_set_gpu(k, c->gpu);
        kid_enter(k, NP_REGMR);
        rc = np_table_reg(&k->t, c->comm, mr.at, mr.len, NCCL_PTR_HOST, &mr.mh);
        kid_leave(k);
    }
    if (rc == ncclSuccess)
        k->mr[m->number] = mr;
    return kid_result(NP_REGMR, rc);
}

int kid_dereg(struct kid *k, const struct np_message *m)
{
    if (m->number >= NP_MRS || !k->mr[m->number].comm)
        return hw_fail(-EINVAL, "registration %u does not exist", m->number);
    return deregister_child_mr(k, &k->mr[m->number]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: listen, connect and accept; memory; sends and receives. */
#include "inner.h"
#include "wire/wire.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- connecting -------------------------------------------------------------------------------------------- */

ncclResult_t hn_listen(int dev, void *handle, void **lc)
{
    *lc = NULL;
    int rc = hn_check_device(dev);
    if (rc)
        return hn_error(rc, "listen");
    struct hn_listen *l = calloc(1, sizeof(*l));
    if (!l)
        return hn_error(hw_no_memory("a listener"), "listen");
    pthread_mutex_lock(&hn_g.mu);
    rc = hn_open();
    if (rc == 0) {
        hn_g.comms++;
        l->id = ++hn_g.next_listen;
        hw_random(&l->secret, sizeof(l->secret));
        hw_list_init(&l->arrived);
        hw_list_append(&hn_g.listens, &l->all);
        struct hn_handle h = {
            .port = hn_g.port, .host = hn_g.host, .process = hn_g.process, .listen = l->id, .secret = l->secret};
        memcpy(h.key, hn_g.key, HN_KEY);
        hn_group_addresses(hn_group_of(dev), h.addr);
        hn_handle_encode(handle, &h);
    }
    pthread_mutex_unlock(&hn_g.mu);
    if (rc) {
        free(l);
        return hn_error(rc, "listen");
    }
    *lc = l;
    return ncclSuccess;
}

static struct hn_comm *create_nccl_comm(struct hn_link *l, uint32_t stream, bool out)
{
    struct hn_comm *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->link = l;
    c->stream = stream;
    c->out = out;
    (void)pthread_mutex_init(&c->mu, NULL); /* never fails on Linux */
    for (unsigned i = 0; i < HN_REQUESTS; i++)
        c->req[i].comm = c;
    hn_g.comms++;
    return c;
}

/* A connection that is being set up. The handle contains the attempt's ID. */
struct attempt {
    struct hw_list all;
    uint32_t id;
    struct hn_comm *comm;
};

static struct attempt *find_attempt(uint32_t id)
{
    hw_list_each(it, tmp, &hn_g.attempts)
    {
        struct attempt *a = hw_container_of(it, struct attempt, all);
        if (a->id == id)
            return a;
    }
    return NULL;
}

static int start_connect_attempt(int dev, const struct hn_handle *h, void *handle, struct attempt **out)
{
    struct hn_link *l;
    struct attempt *a = calloc(1, sizeof(*a));
    int rc = a ? hn_open() : hw_no_memory("a connection");
    if (rc == 0)
        rc = hn_link_get(h, hn_group_of(dev), &l);
    if (rc == 0 && !(a->comm = create_nccl_comm(l, hn_link_stream(l), true))) {
        hn_link_put(l);
        rc = hw_no_memory("a connection");
    }
    if (rc) {
        free(a);
        return rc;
    }
    while ((a->id = ++hn_g.next_attempt) == 0)
        ;
    hn_handle_note(handle, a->id);
    hw_list_append(&hn_g.attempts, &a->all);
    *out = a;
    return 0;
}

void hn_attempts_move(struct hn_link *from, struct hn_link *to)
{
    hw_list_each(it, tmp, &hn_g.attempts)
    {
        struct hn_comm *c = hw_container_of(it, struct attempt, all)->comm;
        if (c->link != from)
            continue;
        hn_link_put(from);
        to->refs++;
        c->link = to;
        c->stream = hn_link_stream(to);
    }
}

/* Continues a connection attempt. Returns 0 when connected, -EAGAIN if not connected yet, or another -errno. */
static int go_on(struct attempt *a, const struct hn_handle *h)
{
    struct hn_comm *c = a->comm;
    struct hn_link *l = c->link;
    int state = atomic_load(&l->state);
    if (state == HN_WAITING || state == HN_DIALLING)
        return -EAGAIN;
    if (state == HN_DEAD)
        return hw_fail(l->rc, "%s", l->err);
    if (!c->hello) {
        uint8_t hello[HN_HELLO];
        hn_hello_encode(
            hello,
            &(struct hn_hello){.listen = h->listen, .stream = c->stream, .secret = h->secret, .process = hn_g.process});
        int rc = hawser_notify(l->peer, hello, sizeof(hello), NULL, &c->hello);
        if (rc)
            return rc;
    }
    return hawser_test(c->hello);
}

/* Unless the communicator has failed, waits up to HN_LINGER_MS for the peer to receive the data of copied sends. NCCL
 * considers these sends complete, and may close the communicator immediately. */
static void linger(const struct hn_comm *c)
{
    uint64_t until = hw_now() + HN_LINGER_MS * HW_MS;
    for (unsigned i = 0; i < HN_REQUESTS && !c->failed; i++)
        if (c->req[i].told) {
            uint64_t now = hw_now();
            (void)hawser_wait(c->req[i].op, now < until ? (int)((until - now) / HW_MS) : 0);
        }
}

static void free_comm(struct hn_comm *c)
{
    /* Ends the pending operations before they are freed. There are none if the link is not connected yet or dead. */
    if (atomic_load(&c->link->state) == HN_UP)
        (void)hawser_stream_close(c->link->peer, c->stream);
    for (unsigned i = 0; i < HN_REQUESTS; i++) {
        if (c->req[i].event)
            hn_event_lost(&c->req[i]);
        hawser_op_free(c->req[i].op);
    }
    hawser_op_free(c->hello);
    hn_link_put(c->link);
    pthread_mutex_destroy(&c->mu);
    free(c);
}

void hn_attempts_drop(void)
{
    hw_list_each(it, tmp, &hn_g.attempts)
    {
        struct attempt *a = hw_container_of(it, struct attempt, all);
        hw_list_remove(&a->all);
        free_comm(a->comm);
        hn_g.comms--;
        free(a);
    }
}

ncclResult_t hn_connect(int dev, void *handle, void **sc)
{
    struct hn_handle h;
    struct attempt *a = NULL;
    *sc = NULL;
    int rc = hn_check_device(dev);
    if (rc == 0)
        rc = hn_handle_decode(handle, &h);
    if (rc)
        return hn_error(rc, "connect");
    pthread_mutex_lock(&hn_g.mu);
    if (h.attempt && hn_g.h)
        a = find_attempt(h.attempt);
    if (!a)
        rc = start_connect_attempt(dev, &h, handle, &a);
    if (rc == 0)
        rc = go_on(a, &h);
    if (a && rc != -EAGAIN) {
        hw_list_remove(&a->all);
        hn_handle_note(handle, 0);
        if (rc) {
            free_comm(a->comm);
            hn_drop();
        } else {
            *sc = a->comm;
        }
        free(a);
    }
    pthread_mutex_unlock(&hn_g.mu);
    return rc && rc != -EAGAIN ? hn_error(rc, "connect") : ncclSuccess;
}

bool hn_arrived(struct hn_link *l, const struct hn_hello *h)
{
    struct hn_listen *to = NULL;
    hw_list_each(it, tmp, &hn_g.listens)
    {
        struct hn_listen *n = hw_container_of(it, struct hn_listen, all);
        if (n->id == h->listen && n->secret == h->secret)
            to = n;
    }
    struct hn_arrival *a = to ? calloc(1, sizeof(*a)) : NULL;
    if (a && !(a->comm = create_nccl_comm(l, h->stream, false))) {
        free(a);
        a = NULL;
    }
    if (!a) {
        hn_say(NCCL_LOG_WARN, "connection from %s dropped: %s", hawser_peer_name(l->peer),
               to ? "out of memory" : "no listener has the connection's ID and secret");
        (void)hawser_stream_close(l->peer, h->stream);
        return false;
    }
    l->refs++;
    hw_list_append(&to->arrived, &a->link);
    return true;
}

static struct hn_comm *first_arrival(struct hn_listen *l)
{
    struct hn_arrival *a = hw_list_first(&l->arrived, struct hn_arrival, link);
    if (!a)
        return NULL;
    struct hn_comm *c = a->comm;
    hw_list_remove(&a->link);
    free(a);
    return c;
}

ncclResult_t hn_accept(void *lc, void **rc)
{
    pthread_mutex_lock(&hn_g.mu);
    hn_links_serve();
    *rc = first_arrival(lc);
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

ncclResult_t hn_close_listen(void *lc)
{
    struct hn_listen *l = lc;
    struct hn_comm *c;
    if (!l)
        return ncclSuccess;
    pthread_mutex_lock(&hn_g.mu);
    hw_list_remove(&l->all);
    while ((c = first_arrival(l))) {
        free_comm(c);
        hn_g.comms--;
    }
    free(l);
    hn_drop();
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

ncclResult_t hn_close_send(void *sc)
{
    if (!sc)
        return ncclSuccess;
    linger(sc);
    pthread_mutex_lock(&hn_g.mu);
    free_comm(sc);
    hn_drop();
    pthread_mutex_unlock(&hn_g.mu);
    return ncclSuccess;
}

ncclResult_t hn_close_recv(void *rc)
{
    return hn_close_send(rc);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

struct mem {
    hawser_mem *mem;
    uint8_t *ptr;
    size_t size;
    bool host;
};

ncclResult_t hn_reg(void *comm, void *data, size_t size, int type, void **mh)
{
    (void)comm; /* memory belongs to the context, whichever communicator it is registered for */
    *mh = NULL;
    if (type != NCCL_PTR_HOST && !(type == NCCL_PTR_CUDA && hn_g.gpu))
        return hn_error(hw_fail(-EINVAL, "memory of type %d is not supported; this plugin supports only host memory %s",
                                type, hn_g.gpu ? "and GPU memory" : "(and GPU memory with HAWSER_TRANSPORT=devmem)"),
                        "regMr");
    enum hawser_mem_kind kind = type == NCCL_PTR_CUDA ? HAWSER_MEM_CUDA : HAWSER_MEM_HOST;
    struct mem *m = calloc(1, sizeof(*m));
    int rc = m ? hawser_mem_register(hn_g.h, kind, data, size, &m->mem) : hw_no_memory("a registration");
    if (rc) {
        free(m);
        return hn_error(rc, "regMr");
    }
    m->ptr = data;
    m->size = size;
    m->host = type == NCCL_PTR_HOST;
    *mh = m;
    return ncclSuccess;
}

ncclResult_t hn_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh)
{
    (void)comm;
    (void)data;
    (void)size;
    (void)type;
    (void)offset;
    (void)fd;
    *mh = NULL;
    return hn_error(hw_fail(-EINVAL, "dma-bufs are not supported"), "regMrDmaBuf");
}

ncclResult_t hn_refuse_size(const char *what, int size)
{
    return hn_error(hw_fail(-EINVAL,
                            "the size is %d: NCCL counts bytes in an int here, and the size has overflowed; reduce "
                            "NCCL_BUFFSIZE or NCCL_P2P_NET_CHUNKSIZE",
                            size),
                    what);
}

/* Returns the newest request whose number is in [first, end), or NULL. */
static struct hn_req *find_newest(struct hn_comm *c, uint64_t first, uint64_t end)
{
    struct hn_req *newest = NULL;
    for (unsigned i = 0; i < HN_REQUESTS; i++) {
        struct hn_req *r = &c->req[i];
        if (r->op && r->number >= first && r->number < end && (!newest || r->number > newest->number))
            newest = r;
    }
    return newest;
}

/* Cancels the communicator's requests on m, and all later ones: a later message or receive would take the place of a
 * cancelled one, and the ranks would get wrong data without an error. For the same reason, cancels the newest request
 * first. NCCL may still test earlier requests. Fails with -ETIMEDOUT if a request on m has not ended and may still
 * access the memory. */
static int cancel_requests_on(struct hn_comm *c, const struct mem *m)
{
    int rc = 0;
    uint64_t first = UINT64_MAX;
    pthread_mutex_lock(&c->mu);
    for (unsigned i = 0; i < HN_REQUESTS; i++)
        if (c->req[i].op && c->req[i].mem == m)
            first = HW_MIN(first, c->req[i].number);
    c->cut |= first != UINT64_MAX;
    struct hn_req *r = NULL;
    while ((r = find_newest(c, first, r ? r->number : UINT64_MAX)))
        (void)hawser_cancel(r->op);
    for (unsigned i = 0; i < HN_REQUESTS && rc != -EAGAIN; i++)
        if (c->req[i].op && c->req[i].mem == m)
            rc = hawser_wait(c->req[i].op, HN_CANCEL_MS);
    pthread_mutex_unlock(&c->mu);
    return rc == -EAGAIN
               ? hw_fail(-ETIMEDOUT, "a request that uses the memory has not ended within %d s", HN_CANCEL_MS / 1000)
               : 0;
}

ncclResult_t hn_dereg(void *comm, void *mh)
{
    struct mem *m = mh;
    if (!m)
        return ncclSuccess;
    int rc = hawser_mem_deregister(m->mem);
    if (rc == -EBUSY) { /* an abort: NCCL deregisters memory while requests on it are in flight */
        rc = cancel_requests_on(comm, m);
        if (rc == 0)
            rc = hawser_mem_deregister(m->mem);
    }
    if (rc)
        return hn_error(rc, "deregMr");
    free(m);
    return ncclSuccess;
}

/* ---- sends and receives ------------------------------------------------------------------------------------------ */

typedef int (*post_fn)(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                       hawser_op **op);

static ncclResult_t say_failed(struct hn_comm *c, int rc)
{
    if (c->failed)
        return ncclRemoteError;
    c->failed = true;
    return hn_error(rc, c->out ? "sending" : "receiving");
}

/* Frees a request. Its operation must have ended. */
static void free_request(struct hn_req *r)
{
    hawser_op_free(r->op);
    r->op = NULL;
    r->mem = NULL;
    r->copied = r->told = false;
}

/* Sets *r to a free request, or to NULL if all requests are in use. Fails if the search finds a failed copied send,
 * which NCCL considers complete. */
static ncclResult_t find_free_request(struct hn_comm *c, struct hn_req **r)
{
    *r = NULL;
    for (unsigned i = 0; i < HN_REQUESTS && !*r; i++) {
        struct hn_req *at = &c->req[(c->at + i) % HN_REQUESTS];
        int rc = at->op && at->told ? hawser_test(at->op) : -EAGAIN;
        if (rc != -EAGAIN)
            free_request(at);
        if (rc < 0 && rc != -EAGAIN)
            return say_failed(c, rc);
        if (!at->op)
            *r = at;
    }
    return ncclSuccess;
}

static ncclResult_t start_request(struct hn_comm *c, post_fn fn, void *data, size_t size, const struct mem *m,
                                  void *phandle, void **req, const char *what)
{
    struct hn_req *r;
    ncclResult_t failed = find_free_request(c, &r);
    if (!r)
        return failed; /* if ncclSuccess, NCCL tries again later */
    if (c->cut)
        return say_failed(c, hw_fail(-ECANCELED, "memory was deregistered while an earlier request used it"));
    if (size && !m)
        return hn_error(hw_fail(-EINVAL, "the memory of a message of %zu bytes is not registered", size), what);
    struct hawser_vec v = {.mem = size ? m->mem : NULL, .length = size};
    if (size)
        v.offset = (uint64_t)((uint8_t *)data - m->ptr);
    r->copied = fn == hawser_send && size <= HAWSER_INLINE_MAX && (!size || m->host);
    if (size && r->copied) {
        /* libhawser does not know the registration of a copied message */
        if (v.offset > m->size || size > m->size - v.offset)
            return hn_error(hw_fail(-EFAULT, "%zu bytes at offset %llu exceed the registered memory of %zu bytes", size,
                                    (unsigned long long)v.offset, m->size),
                            what);
        v = (struct hawser_vec){.data = data, .length = size};
    }
    struct hawser_op_options o = {.size = sizeof(o), .stream = c->stream, .timeout_ms = -1};
    int rc = fn(c->link->peer, &v, 1, &o, &r->op);
    if (rc == -EAGAIN)
        return ncclSuccess;
    if (rc)
        return hn_error(rc, what);
    c->at = (unsigned)(r - c->req + 1) % HN_REQUESTS;
    r->number = c->posted++;
    r->mem = size && !r->copied ? m : NULL;
    *req = r;
    if (hn_g.profiler && phandle)
        hn_event_start(r, phandle, size);
    return ncclSuccess;
}

static ncclResult_t post_nccl_request(struct hn_comm *c, post_fn fn, void *data, size_t size, const struct mem *m,
                                      void *phandle, void **req, const char *what)
{
    pthread_mutex_lock(&c->mu);
    ncclResult_t rc = start_request(c, fn, data, size, m, phandle, req, what);
    pthread_mutex_unlock(&c->mu);
    return rc;
}

ncclResult_t hn_isend(void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req)
{
    (void)tag; /* not needed: each request is one receive, and messages are received in order */
    *req = NULL;
    return post_nccl_request(sc, hawser_send, data, size, mh, phandle, req, "isend");
}

ncclResult_t hn_irecv(void *rc, int n, void **data, const size_t *sizes, const int *tags, void **mhs, void **phandles,
                      void **req)
{
    (void)tags;
    *req = NULL;
    if (n != 1)
        return hn_error(hw_fail(-EINVAL, "a request of %d receives; only 1 is supported", n), "irecv");
    return post_nccl_request(rc, hawser_recv, data[0], sizes[0], mhs[0], phandles ? phandles[0] : NULL, req, "irecv");
}

/* NCCL calls this after receives into GPU memory, because a NIC's writes may still be in flight when a kernel reads the
 * memory. This plugin needs no flush: a receive is complete only when the GPU has reported the end of its copy or
 * gather (an event in its stream: lib/transport/tcp/staging.c, lib/transport/devmem/rx.c), and hw_store(), which places
 * small messages, waits for its stream. */
ncclResult_t hn_iflush(void *rc, int n, void **data, const int *sizes, void **mhs, void **req)
{
    (void)rc;
    (void)n;
    (void)data;
    (void)sizes;
    (void)mhs;
    *req = NULL;
    return ncclSuccess;
}

static ncclResult_t test_request(struct hn_req *r, int *done, int *sizes)
{
    struct hn_comm *c = r->comm;
    *done = 0;
    int rc = hawser_test(r->op);
    bool goes_on = rc == -EAGAIN;
    if (goes_on && !r->copied)
        return ncclSuccess;
    if (rc && !goes_on) {
        if (r->event)
            hn_event_lost(r);
        return say_failed(c, rc);
    }
    uint64_t len = hawser_op_length(r->op);
    if (r->event)
        hn_event_done(r, len);
    if (goes_on)
        r->told = true;
    else
        free_request(r);
    if (sizes)
        sizes[0] = (int)HW_MIN(len, (uint64_t)INT_MAX); /* a larger size would become negative */
    *done = 1;
    return ncclSuccess;
}

ncclResult_t hn_test(void *req, int *done, int *sizes)
{
    struct hn_req *r = req;
    struct hn_comm *c = r->comm;
    pthread_mutex_lock(&c->mu);
    ncclResult_t rc = test_request(r, done, sizes);
    pthread_mutex_unlock(&c->mu);
    return rc;
}

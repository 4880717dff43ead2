/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the process with itself by libnccl-net-tcpxlike.so, and what is sent over it. */
#ifndef TCPXLIKE_LINK_H
#define TCPXLIKE_LINK_H

#include "tcpxlike_try.h"

#define MIB       (1u << 20)
#define UNTOUCHED 0x7eadbeef /* in *size: test must leave it */

static const ncclNet_v7_t *net;
static const char *const plain[] = {NULL};
#define WITH(...) ((const char *[]){__VA_ARGS__, NULL})

/* In the parent. Both ends are in one process here, and NCCL_DYNAMIC_CHUNK_SIZE must always be set. */
static inline void defaults(void)
{
    setenv("TCPXLIKE_LOOPBACK", "1", 1);
    setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288", 1);
    setenv("NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", "0", 1);
    setenv("TCPXLIKE_CONNECT_MICROS", "0", 1);
}

static inline void load(void)
{
    void *lib = dlopen(TCPXLIKE, RTLD_NOW | RTLD_LOCAL);
    CHECK(lib);
    net = dlsym(lib, "ncclNetPlugin_v7");
    CHECK(net);
    CHECK(net->init(say) == ncclSuccess);
}

/* ---- a connection of the process with itself -------------------------------------------------- */

struct link {
    void *lc, *sc, *rc;
    char handle[NCCL_NET_HANDLE_MAXSIZE];
    ncclNetDeviceHandle_v7_t side;
    unsigned connects, accepts;
};

static inline uint64_t pointer_in(const char *handle)
{
    uint64_t p;
    memcpy(&p, handle + 80, sizeof(p));
    return p;
}

static inline void start(struct link *l)
{
    memset(l, 0, sizeof(*l));
    memset(l->handle, 0xee, sizeof(l->handle));
    CHECK(net->listen(0, l->handle, &l->lc) == ncclSuccess && l->lc);
    CHECK(pointer_in(l->handle) != 0);
    memset(l->handle + 80, 0, 8);
}

static inline void join(struct link *l)
{
    ncclNetDeviceHandle_v7_t *rdev = &l->side, *sdev = NULL;
    uint64_t end = hw_deadline(20000);
    while (!l->sc || !l->rc) {
        CHECK(hw_now() < end);
        if (!l->sc) {
            l->connects++;
            CHECK(net->connect(0, l->handle, &l->sc, &sdev) == ncclSuccess);
        }
        if (!l->rc) {
            l->accepts++;
            CHECK(net->accept(l->lc, &l->rc, &rdev) == ncclSuccess);
        }
        usleep(100);
    }
}

static inline void leave(struct link *l)
{
    CHECK(net->closeSend(l->sc) == ncclSuccess);
    CHECK(net->closeRecv(l->rc) == ncclSuccess);
    CHECK(net->closeListen(l->lc) == ncclSuccess);
    closed = true;
}

/* Memory of both sides, registered there. */
struct memory {
    uint8_t *from, *to;
    int type;
    void *from_mr, *to_mr;
};

static inline struct memory register_both(const struct link *l, void *from, void *to, int len, int type)
{
    struct memory m = {.from = from, .to = to, .type = type};
    CHECK(net->regMr(l->sc, from, len, type, &m.from_mr) == ncclSuccess);
    CHECK(net->regMr(l->rc, to, len, type, &m.to_mr) == ncclSuccess);
    return m;
}

static inline struct memory host_memory(const struct link *l, int len)
{
    return register_both(l, calloc(1, (size_t)len), calloc(1, (size_t)len), len, NCCL_PTR_HOST);
}

static inline void forget(const struct link *l, struct memory *m)
{
    CHECK(net->deregMr(l->sc, m->from_mr) == ncclSuccess);
    CHECK(net->deregMr(l->rc, m->to_mr) == ncclSuccess);
    if (m->type == NCCL_PTR_HOST) {
        free(m->from);
        free(m->to);
    }
}

/* An error of isend's or irecv's comes out; success gives a request. */
static inline ncclResult_t try_send(const struct link *l, const struct memory *m, size_t off, int len, void **request)
{
    *request = (void *)0x1;
    ncclResult_t rc = net->isend(l->sc, m->from + off, len, 77, m->from_mr, request);
    CHECK(rc == ncclSuccess ? *request && *request != (void *)0x1 : !*request);
    return rc;
}

static inline ncclResult_t try_recv(const struct link *l, const struct memory *m, size_t off, int len, void **request)
{
    void *data = m->to + off, *mr = m->to_mr;
    int tag = 11; /* not the sender's */
    *request = (void *)0x1;
    ncclResult_t rc = net->irecv(l->rc, 1, &data, &len, &tag, &mr, request);
    CHECK(rc == ncclSuccess ? *request && *request != (void *)0x1 : !*request);
    return rc;
}

static inline void *send_now(const struct link *l, const struct memory *m, size_t off, int len)
{
    void *r;
    CHECK(try_send(l, m, off, len, &r) == ncclSuccess);
    return r;
}

static inline void *recv_now(const struct link *l, const struct memory *m, size_t off, int len)
{
    void *r;
    CHECK(try_recv(l, m, off, len, &r) == ncclSuccess);
    return r;
}

static inline bool is_done(void *request)
{
    int done = 77, size = UNTOUCHED;
    CHECK(net->test(request, &done, &size) == ncclSuccess);
    CHECK(done == 0 || done == 1);
    CHECK(size == UNTOUCHED);
    return done;
}

/* Until both are; NULL: there is none. False: not within that time. */
static inline bool both_done(void *a, void *b, int ms)
{
    uint64_t end = hw_deadline(ms);
    while (a || b) {
        if (a && is_done(a))
            a = NULL;
        if (b && is_done(b))
            b = NULL;
        if (hw_now() > end)
            return false;
    }
    return true;
}

static inline void consume(const struct link *l, void *request)
{
    CHECK(net->irecvConsumed(l->rc, 1, request) == ncclSuccess);
}

/* Until one of them gives an error. */
static inline ncclResult_t error_of(void *a, void *b)
{
    uint64_t end = hw_deadline(10000);
    for (;;) {
        int done;
        ncclResult_t rc = a ? net->test(a, &done, NULL) : ncclSuccess;
        a = a && done ? NULL : a;
        if (!rc && b) {
            rc = net->test(b, &done, NULL);
            b = done ? NULL : b;
        }
        if (rc)
            return rc;
        CHECK((a || b) && hw_now() < end);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The plain plugin with the endpoint behaviour of aws-ofi-nccl: all listeners that a thread creates share an endpoint.
 * If a receiving connection is closed while receives are posted, its endpoint fails for all connections that use it.
 * ENDS_LISTEN=ms sets the duration of listen. */
#include "plain.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define ENDS 256

struct end {
    pid_t thread;
    atomic_bool aborted;
};

struct listener {
    void *inner;
    struct end *end;
};

struct request {
    struct comm *c;
    void *inner;
};

struct comm {
    void *inner;
    struct end *end; /* NULL for a sending connection */
    unsigned posted, tested;
    struct request ring[NCCL_NET_MAX_REQUESTS];
};

static struct end ends[ENDS];

static struct end *end_of_thread(void)
{
    static atomic_flag lock = ATOMIC_FLAG_INIT;
    const pid_t me = gettid();
    struct end *found = NULL;
    while (atomic_flag_test_and_set(&lock))
        ;
    for (int i = 0; i < ENDS && !found; i++)
        if (ends[i].thread == 0 || (ends[i].thread == me && !ends[i].aborted)) {
            found = &ends[i];
            found->thread = me;
        }
    atomic_flag_clear(&lock);
    return found;
}

static ncclResult_t listen_end(int dev, void *handle, void **lc)
{
    struct listener *l = calloc(1, sizeof(*l));
    const char *ms = getenv("ENDS_LISTEN");
    usleep(ms ? (useconds_t)strtoul(ms, NULL, 10) * 1000 : 0);
    if (!l || !(l->end = end_of_thread()) || plain_listen(dev, handle, &l->inner)) {
        free(l);
        return ncclSystemError;
    }
    *lc = l;
    return ncclSuccess;
}

static ncclResult_t wrap_comm(ncclResult_t rc, void *inner, struct end *end, void **out)
{
    struct comm *c = rc == ncclSuccess && inner ? calloc(1, sizeof(*c)) : NULL;
    *out = c;
    if (c)
        *c = (struct comm){.inner = inner, .end = end};
    return rc;
}

static ncclResult_t connect_end(int dev, void *handle, void **sc)
{
    void *inner = NULL;
    ncclResult_t rc = plain_connect(dev, handle, &inner);
    return wrap_comm(rc, inner, NULL, sc);
}

static ncclResult_t accept_end(void *lc, void **rc)
{
    struct listener *l = lc;
    void *inner = NULL;
    ncclResult_t result = plain_accept(l->inner, &inner);
    return wrap_comm(result, inner, l->end, rc);
}

static ncclResult_t reg(void *comm, void *data, int size, int type, void **mh)
{
    struct comm *c = comm;
    return plain_reg(c->inner, data, (size_t)size, type, mh);
}

static ncclResult_t dereg(void *comm, void *mh)
{
    struct comm *c = comm;
    return plain_dereg(c->inner, mh);
}

static ncclResult_t post(struct comm *c, ncclResult_t rc, void *inner, void **req)
{
    struct request *q = &c->ring[c->posted % NCCL_NET_MAX_REQUESTS];
    *req = NULL;
    if (rc == ncclSuccess && inner) {
        *q = (struct request){c, inner};
        c->posted++;
        *req = q;
    }
    return rc;
}

static ncclResult_t isend(void *sc, void *data, int size, int tag, void *mh, void **req)
{
    struct comm *c = sc;
    void *inner = NULL;
    ncclResult_t rc = plain_isend(c->inner, data, (size_t)size, tag, mh, &inner);
    return post(c, rc, inner, req);
}

static ncclResult_t irecv(void *comm, int n, void **data, int *sizes, int *tags, void **mhs, void **req)
{
    struct comm *c = comm;
    void *inner = NULL;
    size_t size = (size_t)sizes[0];
    if (c->end->aborted)
        return ncclInternalError;
    ncclResult_t rc = plain_irecv(c->inner, n, data, &size, tags, mhs, &inner);
    return post(c, rc, inner, req);
}

static ncclResult_t test(void *req, int *done, int *sizes)
{
    struct request *q = req;
    if (q->c->end && q->c->end->aborted)
        return ncclInternalError;
    ncclResult_t rc = plain_test(q->inner, done, sizes);
    q->c->tested += rc == ncclSuccess && *done;
    return rc;
}

static ncclResult_t close_comm(void *comm)
{
    struct comm *c = comm;
    if (c->end && c->posted != c->tested)
        c->end->aborted = true;
    ncclResult_t rc = plain_close(c->inner);
    free(c);
    return rc;
}

static ncclResult_t close_listen(void *lc)
{
    struct listener *l = lc;
    ncclResult_t rc = plain_close_listen(l->inner);
    free(l);
    return rc;
}

static ncclResult_t properties(int dev, ncclNetProperties_v6_t *p)
{
    static char name[] = "lo";
    *p = (ncclNetProperties_v6_t){.name = name,
                                  .guid = (uint64_t)dev,
                                  .ptrSupport = NCCL_PTR_HOST,
                                  .speed = 1000,
                                  .maxComms = 100,
                                  .maxRecvs = 1};
    return ncclSuccess;
}

__attribute__((visibility("default"))) extern const ncclNet_v6_t ncclNetPlugin_v6;
const ncclNet_v6_t ncclNetPlugin_v6 = {
    .name = "Libfabric",
    .init = plain_init,
    .devices = plain_devices,
    .getProperties = properties,
    .listen = listen_end,
    .connect = connect_end,
    .accept = accept_end,
    .regMr = reg,
    .deregMr = dereg,
    .isend = isend,
    .irecv = irecv,
    .iflush = plain_iflush,
    .test = test,
    .closeSend = close_comm,
    .closeRecv = close_comm,
    .closeListen = close_listen,
};

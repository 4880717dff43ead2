/* SPDX-License-Identifier: Apache-2.0 */
/* The plain plugin with the behaviour of google/nccl-fastsocket: connect() and accept() block until they succeed or
 * fail, and each waits for the other side. WAITS=ms sets the time limit for the wait. */
#include "plain.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int connecting, accepting;

static ncclResult_t finish(atomic_int *mine, atomic_int *other, void **comm, ncclResult_t (*call)(void *), void *arg)
{
    const char *ms = getenv("WAITS");
    ncclResult_t rc = ncclSuccess;
    long left = ms ? strtol(ms, NULL, 10) : 60000;
    atomic_fetch_add(mine, 1);
    while (*other < *mine && left-- > 0)
        usleep(1000);
    while (rc == ncclSuccess && !*comm && left-- > 0) {
        rc = call(arg);
        usleep(1000);
    }
    return *comm ? rc : ncclSystemError;
}

struct connecting {
    int dev;
    void *handle, **sc;
};

static ncclResult_t connect_once(void *arg)
{
    const struct connecting *c = arg;
    return plain_connect(c->dev, c->handle, c->sc);
}

static ncclResult_t connect_all(int dev, void *handle, void **sc)
{
    struct connecting c = {dev, handle, sc};
    *sc = NULL;
    return finish(&connecting, &accepting, sc, connect_once, &c);
}

struct accepting {
    void *lc, **rc;
};

static ncclResult_t accept_once(void *arg)
{
    const struct accepting *a = arg;
    return plain_accept(a->lc, a->rc);
}

static ncclResult_t accept_all(void *lc, void **rc)
{
    struct accepting a = {lc, rc};
    *rc = NULL;
    return finish(&accepting, &connecting, rc, accept_once, &a);
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

static ncclResult_t reg(void *comm, void *data, int size, int type, void **mh)
{
    return plain_reg(comm, data, (size_t)size, type, mh);
}

static ncclResult_t isend(void *sc, void *data, int size, int tag, void *mh, void **req)
{
    return plain_isend(sc, data, (size_t)size, tag, mh, req);
}

static ncclResult_t irecv(void *rc, int n, void **data, int *sizes, int *tags, void **mhs, void **req)
{
    size_t size = (size_t)sizes[0];
    return plain_irecv(rc, n, data, &size, tags, mhs, req);
}

__attribute__((visibility("default"))) extern const ncclNet_v6_t ncclNetPlugin_v6;
const ncclNet_v6_t ncclNetPlugin_v6 = {
    .name = "FastSocket",
    .init = plain_init,
    .devices = plain_devices,
    .getProperties = properties,
    .listen = plain_listen,
    .connect = connect_all,
    .accept = accept_all,
    .regMr = reg,
    .deregMr = plain_dereg,
    .isend = isend,
    .irecv = irecv,
    .iflush = plain_iflush,
    .test = plain_test,
    .closeSend = plain_close,
    .closeRecv = plain_close,
    .closeListen = plain_close_listen,
};

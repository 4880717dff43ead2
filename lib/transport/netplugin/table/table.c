/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/table/table_raw.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

/* NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type's name */
#define T(t, n) ((const ncclNet_v##n##_t *)(t)->t)
/* NOLINTEND(bugprone-macro-parentheses) */

/* An entry with the same offset and type in all versions. */
#define SAME(t, call) (T(t, 6)->call)

#define SAME_PLACE(field)                                                                 \
    _Static_assert(offsetof(ncclNet_v6_t, field) == offsetof(ncclNet_v7_t, field) &&      \
                       offsetof(ncclNet_v6_t, field) == offsetof(ncclNet_v9_t, field) &&  \
                       offsetof(ncclNet_v6_t, field) == offsetof(ncclNet_v10_t, field) && \
                       offsetof(ncclNet_v6_t, field) == offsetof(ncclNet_v12_t, field),   \
                   "same offset in all tables")
SAME_PLACE(name);
SAME_PLACE(devices);
SAME_PLACE(regMrDmaBuf);
SAME_PLACE(deregMr);
SAME_PLACE(iflush);
SAME_PLACE(test);
SAME_PLACE(closeSend);
SAME_PLACE(closeRecv);
SAME_PLACE(closeListen);
_Static_assert(offsetof(ncclNet_v7_t, irecvConsumed) == offsetof(ncclNet_v12_t, irecvConsumed),
               "same offset in all tables since v7");

bool np_table_find(void *library, unsigned newest, struct np_table *out)
{
    for (unsigned v = newest; v >= NP_OLDEST; v--) {
        char symbol[32];
        snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%u", v);
        const void *t = dlsym(library, symbol);
        if (t) {
            *out = (struct np_table){.version = v, .t = t};
            return true;
        }
    }
    return false;
}

const char *np_table_name(const struct np_table *t)
{
    return SAME(t, name);
}

const char *np_table_lacks(const struct np_table *t)
{
    /* All entries are pointers, in this order in all versions. */
    static const char *const names[] = {"name",   "init",  "devices",   "getProperties", "listen",     "connect",
                                        "accept", "regMr", NULL,        "deregMr",       "isend",      "irecv",
                                        NULL,     "test",  "closeSend", "closeRecv",     "closeListen"};
    const void *const *entry = t->t;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i] && !entry[i])
            return names[i];
    return t->version >= 11 && !T(t, 11)->finalize ? "finalize" : NULL;
}

ncclResult_t np_raw_init(struct np_table *t, ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
    ncclNetCommConfig_v11_t config = {.trafficClass = -1}; /* no traffic class requested */
    if (t->version >= 11)
        return T(t, 11)->init(&t->ctx, 1, &config, log, prof);
    return t->version == 10 ? T(t, 10)->init(log, prof) : T(t, 6)->init(log);
}

ncclResult_t np_raw_devices(const struct np_table *t, int *n)
{
    return SAME(t, devices(n));
}

#define COPY_V6(from)                        \
    do {                                     \
        out->name = (from).name;             \
        out->pciPath = (from).pciPath;       \
        out->guid = (from).guid;             \
        out->ptrSupport = (from).ptrSupport; \
        out->speed = (from).speed;           \
        out->port = (from).port;             \
        out->latency = (from).latency;       \
        out->maxComms = (from).maxComms;     \
        out->maxRecvs = (from).maxRecvs;     \
    } while (0)
#define COPY_V7(from)                                    \
    do {                                                 \
        COPY_V6(from);                                   \
        out->netDeviceType = (from).netDeviceType;       \
        out->netDeviceVersion = (from).netDeviceVersion; \
    } while (0)
#define COPY_V9(from)                            \
    do {                                         \
        COPY_V7(from);                           \
        out->regIsGlobal = (from).regIsGlobal;   \
        out->forceFlush = (from).forceFlush;     \
        out->maxP2pBytes = (from).maxP2pBytes;   \
        out->maxCollBytes = (from).maxCollBytes; \
    } while (0)

ncclResult_t np_raw_properties(const struct np_table *t, int dev, ncclNetProperties_v12_t *out)
{
    /* Zeroed, unlike in NCCL, so that a field that a plugin does not set has a defined value. */
    union {
        ncclNetProperties_v6_t v6;
        ncclNetProperties_v7_t v7;
        ncclNetProperties_v8_t v8;
        ncclNetProperties_v9_t v9;
        ncclNetProperties_v11_t v11;
        ncclNetProperties_v12_t v12;
        char room[1024]; /* for a plugin that was built for larger structures */
    } p = {.room = {0}};
    ncclResult_t rc;

    *out = (ncclNetProperties_v12_t){.maxP2pBytes = (size_t)1 << 30, .maxCollBytes = (size_t)1 << 30};
    switch (t->version) {
    case 6:
        rc = T(t, 6)->getProperties(dev, &p.v6);
        COPY_V6(p.v6);
        break;
    case 7:
        rc = T(t, 7)->getProperties(dev, &p.v7);
        COPY_V7(p.v7);
        break;
    case 8:
        rc = T(t, 8)->getProperties(dev, &p.v8);
        COPY_V7(p.v8);
        out->regIsGlobal = p.v8.regIsGlobal;
        break;
    case 9:
    case 10:
        rc = T(t, 9)->getProperties(dev, &p.v9);
        COPY_V9(p.v9);
        break;
    case 11:
        rc = T(t, 11)->getProperties(dev, &p.v11);
        COPY_V9(p.v11);
        break;
    default:
        rc = T(t, 12)->getProperties(dev, &p.v12);
        COPY_V9(p.v12);
    }
    return rc;
}

ncclResult_t np_raw_listen(const struct np_table *t, int dev, void *handle, void **lc)
{
    return t->version >= 11 ? T(t, 11)->listen(t->ctx, dev, handle, lc) : T(t, 6)->listen(dev, handle, lc);
}

ncclResult_t np_raw_connect(const struct np_table *t, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    ncclNetCommConfig_v10_t config = {.trafficClass = -1};
    if (t->version >= 11)
        return T(t, 11)->connect(t->ctx, dev, handle, sc, dh);
    if (t->version == 10)
        return T(t, 10)->connect(dev, &config, handle, sc, dh);
    return t->version >= 7 ? T(t, 7)->connect(dev, handle, sc, dh) : T(t, 6)->connect(dev, handle, sc);
}

ncclResult_t np_raw_accept(const struct np_table *t, void *lc, void **rc, ncclNetDeviceHandle_t **dh)
{
    return t->version >= 7 ? T(t, 7)->accept(lc, rc, dh) : T(t, 6)->accept(lc, rc);
}

ncclResult_t np_raw_reg(const struct np_table *t, void *comm, void *data, size_t size, int type, void **mh)
{
    return t->version >= 8 ? T(t, 8)->regMr(comm, data, size, type, mh)
                           : T(t, 6)->regMr(comm, data, (int)size, type, mh);
}

bool np_table_has_dmabuf(const struct np_table *t)
{
    return SAME(t, regMrDmaBuf);
}

ncclResult_t np_raw_reg_dmabuf(const struct np_table *t, void *comm, void *data, size_t size, int fd, void **mh)
{
    return SAME(t, regMrDmaBuf(comm, data, size, NCCL_PTR_CUDA, 0, fd, mh));
}

ncclResult_t np_raw_dereg(const struct np_table *t, void *comm, void *mh)
{
    return SAME(t, deregMr(comm, mh));
}

ncclResult_t np_raw_isend(const struct np_table *t, void *sc, void *data, size_t size, int tag, void *mh, void **req)
{
    if (t->version >= 10)
        return T(t, 10)->isend(sc, data, size, tag, mh, NULL, req);
    return t->version == 9 ? T(t, 9)->isend(sc, data, size, tag, mh, req)
                           : T(t, 6)->isend(sc, data, (int)size, tag, mh, req);
}

ncclResult_t np_raw_irecv(const struct np_table *t, void *rc, void *data, size_t size, int tag, void *mh, void **req)
{
    int small = (int)size;
    void *phandle = NULL;
    if (t->version >= 10)
        return T(t, 10)->irecv(rc, 1, &data, &size, &tag, &mh, &phandle, req);
    return t->version == 9 ? T(t, 9)->irecv(rc, 1, &data, &size, &tag, &mh, req)
                           : T(t, 6)->irecv(rc, 1, &data, &small, &tag, &mh, req);
}

bool np_table_has_flush(const struct np_table *t)
{
    return SAME(t, iflush);
}

ncclResult_t np_raw_flush(const struct np_table *t, void *rc, void *data, int size, void *mh, void **req)
{
    return SAME(t, iflush(rc, 1, &data, &size, &mh, req));
}

ncclResult_t np_raw_test(const struct np_table *t, void *req, int *done, int *size)
{
    return SAME(t, test(req, done, size));
}

ncclResult_t np_raw_close_send(const struct np_table *t, void *sc)
{
    return SAME(t, closeSend(sc));
}

ncclResult_t np_raw_close_recv(const struct np_table *t, void *rc)
{
    return SAME(t, closeRecv(rc));
}

ncclResult_t np_raw_close_listen(const struct np_table *t, void *lc)
{
    return SAME(t, closeListen(lc));
}

bool np_table_has_consumed(const struct np_table *t)
{
    return t->version >= 7 && T(t, 7)->irecvConsumed;
}

ncclResult_t np_raw_consumed(const struct np_table *t, void *rc, void *req)
{
    return T(t, 7)->irecvConsumed(rc, 1, req);
}

ncclResult_t np_raw_finalize(const struct np_table *t)
{
    return t->version >= 11 ? T(t, 11)->finalize(t->ctx) : ncclSuccess;
}

size_t np_table_reg_max(unsigned version)
{
    return version >= 8 ? SIZE_MAX / 2 : (size_t)INT_MAX;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The plain plugin's tables v6 to v12. With them, tests can cover each version of the code that drives plugins. */
#include "plain.h"

#define SHOWN __attribute__((visibility("default")))

static char names[PLAIN_MOST][8] = {"plain0",  "plain1",  "plain2",  "plain3", "plain4",  "plain5",
                                    "plain6",  "plain7",  "plain8",  "plain9", "plain10", "plain11",
                                    "plain12", "plain13", "plain14", "plain15"};

/* The fields that the properties have in all versions. */
#define PROPS_V6(dev)                                                                                        \
    .name = names[dev], .pciPath = plain_pci(dev), .guid = (uint64_t)(dev) + 1, .ptrSupport = NCCL_PTR_HOST, \
    .speed = 10000, .port = 1, .latency = 20, .maxComms = 65536, .maxRecvs = 1
#define PROPS_V7(dev) \
    PROPS_V6(dev), .netDeviceType = NCCL_NET_DEVICE_HOST, .netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION
#define PROPS_V9(dev) \
    PROPS_V7(dev), .vProps = {.ndevs = 1, .devs = {dev}}, .maxP2pBytes = 1u << 30, .maxCollBytes = 1u << 30
#define PROPS_V12(dev) PROPS_V9(dev), .railId = NCCL_NET_ID_UNDEF, .planeId = NCCL_NET_ID_UNDEF

#define PROPERTIES(v, values)                                              \
    static ncclResult_t props_v##v(int dev, ncclNetProperties_v##v##_t *p) \
    {                                                                      \
        int n;                                                             \
        (void)plain_devices(&n);                                           \
        if (dev < 0 || dev >= n)                                           \
            return ncclInvalidArgument;                                    \
        *p = (ncclNetProperties_v##v##_t){values(dev)};                    \
        return ncclSuccess;                                                \
    }
PROPERTIES(6, PROPS_V6)
PROPERTIES(7, PROPS_V7)
PROPERTIES(8, PROPS_V7)
PROPERTIES(9, PROPS_V9)
PROPERTIES(11, PROPS_V9)
PROPERTIES(12, PROPS_V12)

/* v7 added device handles. Sizes are int before v9, and in regMr before v8. */

static ncclResult_t connect_v7(int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    *dh = NULL;
    return plain_connect(dev, handle, sc);
}

static ncclResult_t accept_v7(void *lc, void **rc, ncclNetDeviceHandle_t **dh)
{
    *dh = NULL;
    return plain_accept(lc, rc);
}

static ncclResult_t reg_v6(void *comm, void *data, int size, int type, void **mh)
{
    return size < 0 ? ncclInvalidArgument : plain_reg(comm, data, (size_t)size, type, mh);
}

static ncclResult_t isend_v6(void *sc, void *data, int size, int tag, void *mh, void **req)
{
    return size < 0 ? ncclInvalidArgument : plain_isend(sc, data, (size_t)size, tag, mh, req);
}

static ncclResult_t irecv_v6(void *rc, int n, void **data, int *sizes, int *tags, void **mhs, void **req)
{
    size_t size = (size_t)sizes[0];
    return n != 1 || sizes[0] < 0 ? ncclInvalidArgument : plain_irecv(rc, n, data, &size, tags, mhs, req);
}

/* v10 added the profiler and its handles; v11 added a context for each communicator. */

static ncclResult_t init_v10(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
    (void)profiler;
    return plain_init(logger);
}

static ncclResult_t connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle, void **sc,
                                ncclNetDeviceHandle_t **dh)
{
    (void)config;
    return connect_v7(dev, handle, sc, dh);
}

static ncclResult_t isend_v10(void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req)
{
    (void)phandle;
    return plain_isend(sc, data, size, tag, mh, req);
}

static ncclResult_t irecv_v10(void *rc, int n, void **data, size_t *sizes, int *tags, void **mhs, void **phandles,
                              void **req)
{
    (void)phandles;
    return plain_irecv(rc, n, data, sizes, tags, mhs, req);
}

static ncclResult_t init_v11(void **ctx, uint64_t id, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t logger,
                             ncclProfilerCallback_t profiler)
{
    (void)id;
    (void)config;
    *ctx = names[0]; /* any value except NULL */
    return init_v10(logger, profiler);
}

static ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **lc)
{
    return ctx == names[0] ? plain_listen(dev, handle, lc) : ncclInvalidArgument;
}

static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    return ctx == names[0] ? connect_v7(dev, handle, sc, dh) : ncclInvalidArgument;
}

static ncclResult_t finalize_v11(void *ctx)
{
    return ctx == names[0] ? ncclSuccess : ncclInvalidArgument;
}

#define TABLE(v, f_init, f_props, f_listen, f_connect, f_accept, f_reg, f_isend, f_irecv, ...) \
    SHOWN extern const ncclNet_v##v##_t ncclNetPlugin_v##v;                                    \
    const ncclNet_v##v##_t ncclNetPlugin_v##v = {.name = "Plain",                              \
                                                 .init = f_init,                               \
                                                 .devices = plain_devices,                     \
                                                 .getProperties = f_props,                     \
                                                 .listen = f_listen,                           \
                                                 .connect = f_connect,                         \
                                                 .accept = f_accept,                           \
                                                 .regMr = f_reg,                               \
                                                 .deregMr = plain_dereg,                       \
                                                 .isend = f_isend,                             \
                                                 .irecv = f_irecv,                             \
                                                 .iflush = plain_iflush,                       \
                                                 .test = plain_test,                           \
                                                 .closeSend = plain_close,                     \
                                                 .closeRecv = plain_close,                     \
                                                 .closeListen = plain_close_listen,            \
                                                 __VA_ARGS__};

TABLE(6, plain_init, props_v6, plain_listen, plain_connect, plain_accept, reg_v6, isend_v6, irecv_v6, )
TABLE(7, plain_init, props_v7, plain_listen, connect_v7, accept_v7, reg_v6, isend_v6, irecv_v6, )
TABLE(8, plain_init, props_v8, plain_listen, connect_v7, accept_v7, plain_reg, isend_v6, irecv_v6, )
TABLE(9, plain_init, props_v9, plain_listen, connect_v7, accept_v7, plain_reg, plain_isend, plain_irecv, )
TABLE(10, init_v10, props_v9, plain_listen, connect_v10, accept_v7, plain_reg, isend_v10, irecv_v10, )
TABLE(11, init_v11, props_v11, listen_v11, connect_v11, accept_v7, plain_reg, isend_v10, irecv_v10,
      .finalize = finalize_v11)
TABLE(12, init_v11, props_v12, listen_v11, connect_v11, accept_v7, plain_reg, isend_v10, irecv_v10,
      .finalize = finalize_v11)

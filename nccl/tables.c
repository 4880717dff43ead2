/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's net tables, v6 to v12, each a thin wrapper around net.h. All versions share a function where the ABI allows
 * it. Where versions differ (sizes of 32 or 64 bits, device handles, profiler handles, properties), a function's name
 * ends in the first version that uses it.
 *
 * No version has makeVDevice, which would merge the plugin's devices under one NIC, or getDeviceMr and irecvConsumed,
 * which are for devices that unpack on the GPU. Each function that creates an object sets its output to NULL first: on
 * entry a request is stale or contains NCCL_NET_OPTIONAL_RECV_COMPLETION.
 */
#include "net.h"
#include "params.h"

#include <string.h>

#define NAME     "hawser"
#define EXPORTED __attribute__((visibility("default")))

/* One receive per request, although a message could carry NCCL's tag. If more were allowed, NCCL would give all local
 * ranks that send through one proxy (PXN) a single connection to each remote rank and channel (sendProxyConnect() in
 * src/transport/net.cc), and would post the receives of several ranks as one request. This would have three
 * disadvantages:
 *  - Only the tag, which is the sender's rank in the topmost communicator, would distinguish messages. Communicators
 *    that were split from it, with shared resources, would share one queue. With one receive per request, each
 *    communicator has its own queue.
 *  - A request would complete only with its slowest receive, and the buffers of the other receives would stay in use
 *    until then.
 *  - All these ranks would share the one link to which the connection was assigned.
 * There would be no advantage: NCCL would save connections, and a connection is only a stream number in this plugin. */
#define MAX_RECVS 1

extern const ncclNet_v6_t ncclNetPlugin_v6;
extern const ncclNet_v7_t ncclNetPlugin_v7;
extern const ncclNet_v8_t ncclNetPlugin_v8;
extern const ncclNet_v9_t ncclNetPlugin_v9;
extern const ncclNet_v10_t ncclNetPlugin_v10;
extern const ncclNet_v11_t ncclNetPlugin_v11;
extern const ncclNet_v12_t ncclNetPlugin_v12;

/* Init and finalize. NCCL reads the parameters of params.h after the first init of the net plugin, so init sets them
 * first. */

static ncclResult_t init_v6(ncclDebugLogger_t logger)
{
    hn_params_set(logger);
    return hn_init(logger, NULL);
}

static ncclResult_t init_v10(ncclDebugLogger_t logger, ncclProfilerCallback_t prof)
{
    hn_params_set(logger);
    return hn_init(logger, prof);
}

static ncclResult_t init_v11(void **ctx, uint64_t comm_id, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t logger,
                             ncclProfilerCallback_t prof)
{
    static char context; /* shared by all communicators; any address except NULL */

    (void)comm_id;
    (void)config; /* contains the traffic class, which is for RDMA NICs */
    *ctx = &context;
    return init_v10(logger, prof);
}

static ncclResult_t init_v12(void **ctx, uint64_t comm_id, ncclNetCommConfig_v12_t *config, ncclDebugLogger_t logger,
                             ncclProfilerCallback_t prof)
{
    (void)config;
    return init_v11(ctx, comm_id, NULL, logger, prof);
}

static ncclResult_t finalize_v11(void *ctx)
{
    (void)ctx;
    return hn_finalize();
}

static ncclResult_t set_net_attr_v11(void *ctx, ncclNetAttr_v11_t *attr)
{
    (void)ctx;
    (void)attr; /* hints about future traffic; not needed, because each rail takes chunks when it has capacity */
    return ncclSuccess;
}

static ncclResult_t set_net_attr_v12(void *ctx, ncclNetAttr_v12_t *attr)
{
    (void)attr;
    return set_net_attr_v11(ctx, NULL);
}

/* Properties. NCCL does not zero its struct, so each version sets its own fields and those of the versions before. */

#define FILL_V6(to, from)                       \
    do {                                        \
        (to)->name = (from)->name;              \
        (to)->pciPath = (from)->pci_path;       \
        (to)->guid = (from)->guid;              \
        (to)->ptrSupport = (from)->ptr_support; \
        (to)->speed = (from)->speed;            \
        (to)->port = (from)->port;              \
        (to)->latency = (from)->latency;        \
        (to)->maxComms = (from)->max_comms;     \
        (to)->maxRecvs = MAX_RECVS;             \
    } while (0)

#define FILL_V7(to, from)                                         \
    do {                                                          \
        FILL_V6(to, from);                                        \
        (to)->netDeviceType = NCCL_NET_DEVICE_HOST;               \
        (to)->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION; \
    } while (0)

#define FILL_V8(to, from)      \
    do {                       \
        FILL_V7(to, from);     \
        (to)->regIsGlobal = 0; \
    } while (0)

/* A physical device lists only itself. NCCL copies ndevs entries of devs to its stack, so ndevs and devs must match. */
#define FILL_V9(to, from, dev)                          \
    do {                                                \
        FILL_V8(to, from);                              \
        (to)->forceFlush = 0;                           \
        memset(&(to)->vProps, 0, sizeof((to)->vProps)); \
        (to)->vProps.ndevs = 1;                         \
        (to)->vProps.devs[0] = (dev);                   \
        (to)->maxP2pBytes = (from)->max_p2p_bytes;      \
        (to)->maxCollBytes = (from)->max_coll_bytes;    \
    } while (0)

#define FILL_V11(to, from, dev)        \
    do {                               \
        FILL_V9(to, from, dev);        \
        (to)->maxMultiRequestSize = 1; \
    } while (0)

/* The speeds of ranks may differ here: NCCL versions that use this table choose the smallest number of channels of any
 * rank (init.cc, allGather3Data; since 2.29.2). */
#define FILL_V12(to, from, dev)               \
    do {                                      \
        FILL_V11(to, from, dev);              \
        (to)->speed = (from)->real_speed;     \
        (to)->railId = (int16_t)(from)->rail; \
        (to)->planeId = NCCL_NET_ID_UNDEF;    \
    } while (0)

static ncclResult_t get_properties_v6(int dev, ncclNetProperties_v6_t *props)
{
    struct hn_props p;
    ncclResult_t rc = hn_properties(dev, &p);

    if (rc == ncclSuccess)
        FILL_V6(props, &p);
    return rc;
}

static ncclResult_t get_properties_v7(int dev, ncclNetProperties_v7_t *props)
{
    struct hn_props p;
    ncclResult_t rc = hn_properties(dev, &p);

    if (rc == ncclSuccess)
        FILL_V7(props, &p);
    return rc;
}

static ncclResult_t get_properties_v8(int dev, ncclNetProperties_v8_t *props)
{
    struct hn_props p;
    ncclResult_t rc = hn_properties(dev, &p);

    if (rc == ncclSuccess)
        FILL_V8(props, &p);
    return rc;
}

static ncclResult_t get_properties_v9(int dev, ncclNetProperties_v9_t *props)
{
    struct hn_props p;
    ncclResult_t rc = hn_properties(dev, &p);

    if (rc == ncclSuccess)
        FILL_V9(props, &p, dev);
    return rc;
}

static ncclResult_t get_properties_v10(int dev, ncclNetProperties_v10_t *props)
{
    struct hn_props p;
    ncclResult_t rc = hn_properties(dev, &p);

    if (rc == ncclSuccess)
        FILL_V9(props, &p, dev);
    return rc;
}

static ncclResult_t get_properties_v11(int dev, ncclNetProperties_v11_t *props)
{
    struct hn_props p;
    ncclResult_t rc = hn_properties(dev, &p);

    if (rc == ncclSuccess)
        FILL_V11(props, &p, dev);
    return rc;
}

static ncclResult_t get_properties_v12(int dev, ncclNetProperties_v12_t *props)
{
    struct hn_props p;
    ncclResult_t rc = hn_properties(dev, &p);

    if (rc == ncclSuccess)
        FILL_V12(props, &p, dev);
    return rc;
}

/* Connections. There is no device handle, because NCCL's kernels do not have to unpack received data. */

static ncclResult_t listen_v6(int dev, void *handle, void **lc)
{
    *lc = NULL;
    return hn_listen(dev, handle, lc);
}

static ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **lc)
{
    (void)ctx;
    return listen_v6(dev, handle, lc);
}

static ncclResult_t connect_v6(int dev, void *handle, void **sc)
{
    *sc = NULL;
    return hn_connect(dev, handle, sc);
}

static ncclResult_t connect_v7(int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    if (dh)
        *dh = NULL;
    return connect_v6(dev, handle, sc);
}

static ncclResult_t connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle, void **sc,
                                ncclNetDeviceHandle_t **dh)
{
    (void)config;
    return connect_v7(dev, handle, sc, dh);
}

static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **sc, ncclNetDeviceHandle_t **dh)
{
    (void)ctx;
    return connect_v7(dev, handle, sc, dh);
}

static ncclResult_t accept_v6(void *lc, void **rc)
{
    *rc = NULL;
    return hn_accept(lc, rc);
}

static ncclResult_t accept_v7(void *lc, void **rc, ncclNetDeviceHandle_t **dh)
{
    if (dh)
        *dh = NULL;
    return accept_v6(lc, rc);
}

/* Memory. */

static ncclResult_t reg_mr_v8(void *comm, void *data, size_t size, int type, void **mh)
{
    *mh = NULL;
    return hn_reg(comm, data, size, type, mh);
}

static ncclResult_t reg_mr_v6(void *comm, void *data, int size, int type, void **mh)
{
    *mh = NULL;
    return size < 0 ? hn_refuse_size("regMr", size) : hn_reg(comm, data, (size_t)size, type, mh);
}

static ncclResult_t reg_mr_dma_buf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh)
{
    *mh = NULL;
    return hn_reg_dmabuf(comm, data, size, type, offset, fd, mh);
}

/* Transfers. */

static ncclResult_t isend_v10(void *sc, void *data, size_t size, int tag, void *mh, void *phandle, void **req)
{
    *req = NULL;
    return hn_isend(sc, data, size, tag, mh, phandle, req);
}

static ncclResult_t isend_v9(void *sc, void *data, size_t size, int tag, void *mh, void **req)
{
    return isend_v10(sc, data, size, tag, mh, NULL, req);
}

static ncclResult_t isend_v6(void *sc, void *data, int size, int tag, void *mh, void **req)
{
    *req = NULL;
    return size < 0 ? hn_refuse_size("isend", size) : isend_v10(sc, data, (size_t)size, tag, mh, NULL, req);
}

static ncclResult_t irecv_v10(void *rc, int n, void **data, size_t *sizes, int *tags, void **mhs, void **phandles,
                              void **req)
{
    *req = NULL;
    return hn_irecv(rc, n, data, sizes, tags, mhs, phandles, req);
}

static ncclResult_t irecv_v9(void *rc, int n, void **data, size_t *sizes, int *tags, void **mhs, void **req)
{
    return irecv_v10(rc, n, data, sizes, tags, mhs, NULL, req);
}

static ncclResult_t irecv_v6(void *rc, int n, void **data, int *sizes, int *tags, void **mhs, void **req)
{
    size_t size = n == MAX_RECVS ? (size_t)sizes[0] : 0;

    *req = NULL;
    if (n == MAX_RECVS && sizes[0] < 0)
        return hn_refuse_size("irecv", sizes[0]);
    return irecv_v10(rc, n, data, &size, tags, mhs, NULL, req);
}

static ncclResult_t iflush_v6(void *rc, int n, void **data, int *sizes, void **mhs, void **req)
{
    *req = NULL;
    return hn_iflush(rc, n, data, sizes, mhs, req);
}

EXPORTED const ncclNet_v6_t ncclNetPlugin_v6 = {
    .name = NAME,
    .init = init_v6,
    .devices = hn_devices,
    .getProperties = get_properties_v6,
    .listen = listen_v6,
    .connect = connect_v6,
    .accept = accept_v6,
    .regMr = reg_mr_v6,
    .regMrDmaBuf = reg_mr_dma_buf,
    .deregMr = hn_dereg,
    .isend = isend_v6,
    .irecv = irecv_v6,
    .iflush = iflush_v6,
    .test = hn_test,
    .closeSend = hn_close_send,
    .closeRecv = hn_close_recv,
    .closeListen = hn_close_listen,
};

EXPORTED const ncclNet_v7_t ncclNetPlugin_v7 = {
    .name = NAME,
    .init = init_v6,
    .devices = hn_devices,
    .getProperties = get_properties_v7,
    .listen = listen_v6,
    .connect = connect_v7,
    .accept = accept_v7,
    .regMr = reg_mr_v6,
    .regMrDmaBuf = reg_mr_dma_buf,
    .deregMr = hn_dereg,
    .isend = isend_v6,
    .irecv = irecv_v6,
    .iflush = iflush_v6,
    .test = hn_test,
    .closeSend = hn_close_send,
    .closeRecv = hn_close_recv,
    .closeListen = hn_close_listen,
};

EXPORTED const ncclNet_v8_t ncclNetPlugin_v8 = {
    .name = NAME,
    .init = init_v6,
    .devices = hn_devices,
    .getProperties = get_properties_v8,
    .listen = listen_v6,
    .connect = connect_v7,
    .accept = accept_v7,
    .regMr = reg_mr_v8,
    .regMrDmaBuf = reg_mr_dma_buf,
    .deregMr = hn_dereg,
    .isend = isend_v6,
    .irecv = irecv_v6,
    .iflush = iflush_v6,
    .test = hn_test,
    .closeSend = hn_close_send,
    .closeRecv = hn_close_recv,
    .closeListen = hn_close_listen,
};

EXPORTED const ncclNet_v9_t ncclNetPlugin_v9 = {
    .name = NAME,
    .init = init_v6,
    .devices = hn_devices,
    .getProperties = get_properties_v9,
    .listen = listen_v6,
    .connect = connect_v7,
    .accept = accept_v7,
    .regMr = reg_mr_v8,
    .regMrDmaBuf = reg_mr_dma_buf,
    .deregMr = hn_dereg,
    .isend = isend_v9,
    .irecv = irecv_v9,
    .iflush = iflush_v6,
    .test = hn_test,
    .closeSend = hn_close_send,
    .closeRecv = hn_close_recv,
    .closeListen = hn_close_listen,
};

EXPORTED const ncclNet_v10_t ncclNetPlugin_v10 = {
    .name = NAME,
    .init = init_v10,
    .devices = hn_devices,
    .getProperties = get_properties_v10,
    .listen = listen_v6,
    .connect = connect_v10,
    .accept = accept_v7,
    .regMr = reg_mr_v8,
    .regMrDmaBuf = reg_mr_dma_buf,
    .deregMr = hn_dereg,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .iflush = iflush_v6,
    .test = hn_test,
    .closeSend = hn_close_send,
    .closeRecv = hn_close_recv,
    .closeListen = hn_close_listen,
};

EXPORTED const ncclNet_v11_t ncclNetPlugin_v11 = {
    .name = NAME,
    .init = init_v11,
    .devices = hn_devices,
    .getProperties = get_properties_v11,
    .listen = listen_v11,
    .connect = connect_v11,
    .accept = accept_v7,
    .regMr = reg_mr_v8,
    .regMrDmaBuf = reg_mr_dma_buf,
    .deregMr = hn_dereg,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .iflush = iflush_v6,
    .test = hn_test,
    .closeSend = hn_close_send,
    .closeRecv = hn_close_recv,
    .closeListen = hn_close_listen,
    .finalize = finalize_v11,
    .setNetAttr = set_net_attr_v11,
};

EXPORTED const ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = NAME,
    .init = init_v12,
    .devices = hn_devices,
    .getProperties = get_properties_v12,
    .listen = listen_v11,
    .connect = connect_v11,
    .accept = accept_v7,
    .regMr = reg_mr_v8,
    .regMrDmaBuf = reg_mr_dma_buf,
    .deregMr = hn_dereg,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .iflush = iflush_v6,
    .test = hn_test,
    .closeSend = hn_close_send,
    .closeRecv = hn_close_recv,
    .closeListen = hn_close_listen,
    .finalize = finalize_v11,
    .setNetAttr = set_net_attr_v12,
};

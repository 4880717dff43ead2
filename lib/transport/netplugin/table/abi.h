/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's plugin ABI, for a plugin and for its loader: net tables v6 to v12, tuner tables v4 to v6, and the structures
 * that NCCL's GPU kernels read if the plugin unpacks on the device. Based on the facts of the ABI (names, order, types,
 * sizes), for Linux on 64-bit machines. tests/nccl/test_nccl_abi.c compares this file with NCCL's own header if this
 * header is installed.
 *
 * A plugin exports one data object for each version, such as ncclNetPlugin_v11. NCCL uses the newest version that it
 * supports: v7 since NCCL 2.19, v8 since 2.20, v9 since 2.24, v10 since 2.26, v11 since 2.28, v12 since 2.30.3.
 *
 * NCCL calls a plugin from several threads. The thread that creates the communicator calls init, devices, getProperties
 * and makeVDevice. "NCCL Service" calls getProperties, listen, connect, accept, regMr*, deregMr and close*. "NCCL
 * Progress", one thread for each communicator, calls isend, irecv, test, iflush and irecvConsumed. regMr can run
 * concurrently with isend.
 */
#ifndef HW_NETPLUGIN_ABI_H
#define HW_NETPLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;

#define NCCL_NET_HANDLE_MAXSIZE 128

/* Maximum number of requests in flight per connection, and the lower maximum of version 6. */
#define NCCL_NET_MAX_REQUESTS    32
#define NCCL_NET_MAX_REQUESTS_V6 8

/* Kinds of memory: ptrSupport is a set of these flags. regMr's type is NCCL_PTR_HOST or NCCL_PTR_CUDA. */
#define NCCL_PTR_HOST   0x1
#define NCCL_PTR_CUDA   0x2
#define NCCL_PTR_DMABUF 0x4

/* Maximum bytes of one isend with int sizes (v6 to v8), and the upper limit of maxP2pBytes and maxCollBytes since v9.
 */
#define NCCL_MAX_NET_SIZE       (1024 * 1024 * 1024)
#define NCCL_MAX_NET_SIZE_BYTES (1024ull * 1024 * 1024 * 1024)

/* Possible value of irecv's *request on entry, which means that NCCL will not read the result. irecv must overwrite it.
 */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1

#define NCCL_NET_MAX_DEVS_PER_NIC_V9  4
#define NCCL_NET_MAX_DEVS_PER_NIC_V12 8

/* Value of railId and planeId if a NIC has no such ID. */
#define NCCL_NET_ID_UNDEF (-1)

/* NCCL's log callback. Its arguments are the level, a set of NCCL_* subsystems, the location, and printf arguments. */
typedef enum {
    NCCL_LOG_NONE = 0,
    NCCL_LOG_VERSION = 1,
    NCCL_LOG_WARN = 2,
    NCCL_LOG_INFO = 3,
    NCCL_LOG_ABORT = 4,
    NCCL_LOG_TRACE = 5,
} ncclDebugLogLevel;

typedef enum {
    NCCL_INIT = 0x1,
    NCCL_NET = 0x10,
    NCCL_ENV = 0x80,
} ncclDebugLogSubSys;

typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                                  const char *fmt, ...);

/* Callback that passes the plugin's own events to NCCL's profiler, since v10. pHandle is the value passed to isend and
 * irecv. */
typedef enum {
    ncclProfilerNetEventStart = 0,
    ncclProfilerNetEventStop = 1,
    ncclProfilerNetEventUpdate = 2,
    ncclProfilerNetEventUpdateAndStop = 3,
} ncclProfilerNetEventType;

/* Values of pluginId, to be ORed with the version of the plugin's event descriptor. */
#define NCCL_PROFILER_NET_TYPE_IB   (1 << 16)
#define NCCL_PROFILER_NET_TYPE_SOCK (2 << 16)

/* Event descriptor of NET/Socket, with the id NCCL_PROFILER_NET_TYPE_SOCK | 1. NCCL's example profiler prints this
 * descriptor (plugins/profiler/example/nccl/net_socket_v1.h). op is as in src/include/socket.h. */
#define ncclProfileSocket (1 << 0)
#define NCCL_SOCKET_SEND  0
#define NCCL_SOCKET_RECV  1
typedef struct {
    uint8_t type;
    union {
        struct {
            int fd;
            int op;
            size_t length;
        } sock;
    };
} ncclProfilerNetSockDescr_v1_t;

_Static_assert(sizeof(ncclProfilerNetSockDescr_v1_t) == 24, "NCCL's ABI");
_Static_assert(offsetof(ncclProfilerNetSockDescr_v1_t, sock) == 8, "NCCL's ABI");

typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *pHandle, int64_t pluginId,
                                               void *extData);

/* Kinds of a connection's GPU side, since v7. */
typedef enum {
    NCCL_NET_DEVICE_HOST = 0,
    NCCL_NET_DEVICE_UNPACK = 1,
    NCCL_NET_DEVICE_GIN_PROXY = 2,
    NCCL_NET_DEVICE_GIN_GDAKI = 3,
} ncclNetDeviceType;

#define NCCL_NET_DEVICE_INVALID_VERSION 0x0
#define NCCL_NET_DEVICE_UNPACK_VERSION  0x7

typedef struct {
    ncclNetDeviceType netDeviceType;
    int netDeviceVersion;
    void *handle; /* in GPU memory */
    size_t size;
    int needsProxyProgress;
} ncclNetDeviceHandle_v7_t;

typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v8_t;
typedef ncclNetDeviceHandle_v8_t ncclNetDeviceHandle_v9_t;
typedef ncclNetDeviceHandle_v9_t ncclNetDeviceHandle_v10_t;
typedef ncclNetDeviceHandle_v10_t ncclNetDeviceHandle_v11_t;
typedef ncclNetDeviceHandle_v11_t ncclNetDeviceHandle_v12_t;
typedef ncclNetDeviceHandle_v12_t ncclNetDeviceHandle_t;

_Static_assert(sizeof(ncclNetDeviceHandle_t) == 32, "NCCL's ABI");
_Static_assert(offsetof(ncclNetDeviceHandle_t, netDeviceVersion) == 4, "NCCL's ABI");
_Static_assert(offsetof(ncclNetDeviceHandle_t, handle) == 8, "NCCL's ABI");
_Static_assert(offsetof(ncclNetDeviceHandle_t, size) == 16, "NCCL's ABI");
_Static_assert(offsetof(ncclNetDeviceHandle_t, needsProxyProgress) == 24, "NCCL's ABI");

/* Structures of an unpacking device, version 7. The handle points to a struct unpackNetDeviceHandle. struct
 * netUnpackMeta lists the fragments of each irecv's payload, in the slot whose index is the irecv's number, counted
 * since the connection was made, modulo the queue's depth: len bytes at bounce_buf + src_off belong at the irecv's data
 * + dst_off. */
#define NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH 16
#define NET_UNPACK_MAX_SLICE_PAGES             2048
#define NET_UNPACK_MAX_SLICE_SIZE              (4 * 1024 * 1024) /* maximum size of one irecv */

struct loadMeta {
    uint32_t src_off;
    uint32_t len;
    uint64_t dst_off;
};

struct netUnpackMeta {
    struct loadMeta mem[NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH][NET_UNPACK_MAX_SLICE_PAGES];
    uint64_t cnt[NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH];
};

struct unpackNetDeviceHandle {
    struct netUnpackMeta *meta; /* pinned host memory */
    void *bounce_buf;           /* GPU memory */
    uint64_t head;
};

_Static_assert(sizeof(struct loadMeta) == 16, "NCCL's ABI");
_Static_assert(offsetof(struct loadMeta, dst_off) == 8, "NCCL's ABI");
_Static_assert(sizeof(struct netUnpackMeta) == 524416, "NCCL's ABI");
_Static_assert(offsetof(struct netUnpackMeta, cnt) == 524288, "NCCL's ABI");
_Static_assert(sizeof(struct unpackNetDeviceHandle) == 24, "NCCL's ABI");
_Static_assert(offsetof(struct unpackNetDeviceHandle, head) == 16, "NCCL's ABI");

/* Properties of a device. NCCL does not zero the structure, so the plugin must write every field. */

typedef struct {
    char *name;
    char *pciPath; /* path in /sys, or NULL for none */
    uint64_t guid;
    int ptrSupport;
    int speed; /* Mbit/s */
    int port;
    float latency; /* us */
    int maxComms;
    int maxRecvs; /* maximum number of buffers of one irecv */
} ncclNetProperties_v6_t;

typedef struct {
    char *name;
    char *pciPath;
    uint64_t guid;
    int ptrSupport;
    int speed;
    int port;
    float latency;
    int maxComms;
    int maxRecvs;
    ncclNetDeviceType netDeviceType;
    int netDeviceVersion;
} ncclNetProperties_v7_t;

typedef struct {
    char *name;
    char *pciPath;
    uint64_t guid;
    int ptrSupport;
    int regIsGlobal; /* a registration is valid for all connections, and NCCL caches it */
    int speed;
    int port;
    float latency;
    int maxComms;
    int maxRecvs;
    ncclNetDeviceType netDeviceType;
    int netDeviceVersion;
} ncclNetProperties_v8_t;

/* Physical devices of a virtual device. A physical device contains only itself. */
typedef struct {
    int ndevs;
    int devs[NCCL_NET_MAX_DEVS_PER_NIC_V9];
} ncclNetVDeviceProps_v9_t;

typedef struct {
    char *name;
    char *pciPath;
    uint64_t guid;
    int ptrSupport;
    int regIsGlobal;
    int forceFlush;
    int speed;
    int port;
    float latency;
    int maxComms;
    int maxRecvs;
    ncclNetDeviceType netDeviceType;
    int netDeviceVersion;
    ncclNetVDeviceProps_v9_t vProps;
    size_t maxP2pBytes; /* maximum size of one isend */
    size_t maxCollBytes;
} ncclNetProperties_v9_t;

typedef ncclNetVDeviceProps_v9_t ncclNetVDeviceProps_v10_t;
typedef ncclNetProperties_v9_t ncclNetProperties_v10_t;
typedef ncclNetVDeviceProps_v10_t ncclNetVDeviceProps_v11_t;

typedef struct {
    char *name;
    char *pciPath;
    uint64_t guid;
    int ptrSupport;
    int regIsGlobal;
    int forceFlush;
    int speed;
    int port;
    float latency;
    int maxComms;
    int maxRecvs;
    ncclNetDeviceType netDeviceType;
    int netDeviceVersion;
    ncclNetVDeviceProps_v11_t vProps;
    size_t maxP2pBytes;
    size_t maxCollBytes;
    int maxMultiRequestSize;
} ncclNetProperties_v11_t;

typedef struct {
    int ndevs;
    int devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
} ncclNetVDeviceProps_v12_t;

typedef struct {
    char *name;
    char *pciPath;
    uint64_t guid;
    int ptrSupport;
    int regIsGlobal;
    int forceFlush;
    int speed;
    int port;
    float latency;
    int maxComms;
    int maxRecvs;
    ncclNetDeviceType netDeviceType;
    int netDeviceVersion;
    ncclNetVDeviceProps_v12_t vProps;
    size_t maxP2pBytes;
    size_t maxCollBytes;
    int maxMultiRequestSize;
    int16_t railId; /* NCCL_NET_ID_UNDEF if there is none */
    int16_t planeId;
} ncclNetProperties_v12_t;

_Static_assert(sizeof(ncclNetProperties_v6_t) == 48, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v6_t, guid) == 16, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v6_t, ptrSupport) == 24, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v6_t, speed) == 28, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v6_t, latency) == 36, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v6_t, maxRecvs) == 44, "NCCL's ABI");
_Static_assert(sizeof(ncclNetProperties_v7_t) == 56, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v7_t, maxRecvs) == 44, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v7_t, netDeviceType) == 48, "NCCL's ABI");
_Static_assert(sizeof(ncclNetProperties_v8_t) == 64, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v8_t, regIsGlobal) == 28, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v8_t, speed) == 32, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v8_t, netDeviceType) == 52, "NCCL's ABI");
_Static_assert(sizeof(ncclNetVDeviceProps_v9_t) == 20, "NCCL's ABI");
_Static_assert(sizeof(ncclNetProperties_v9_t) == 104, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v9_t, forceFlush) == 32, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v9_t, speed) == 36, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v9_t, netDeviceType) == 56, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v9_t, vProps) == 64, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v9_t, maxP2pBytes) == 88, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v9_t, maxCollBytes) == 96, "NCCL's ABI");
_Static_assert(sizeof(ncclNetProperties_v11_t) == 112, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v11_t, maxCollBytes) == 96, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v11_t, maxMultiRequestSize) == 104, "NCCL's ABI");
_Static_assert(sizeof(ncclNetVDeviceProps_v12_t) == 36, "NCCL's ABI");
_Static_assert(sizeof(ncclNetProperties_v12_t) == 128, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v12_t, maxP2pBytes) == 104, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v12_t, maxMultiRequestSize) == 120, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v12_t, railId) == 124, "NCCL's ABI");
_Static_assert(offsetof(ncclNetProperties_v12_t, planeId) == 126, "NCCL's ABI");

/* Settings of a communicator. v10 passes them to connect, and later versions to init. */
typedef struct {
    int trafficClass;
} ncclNetCommConfig_v10_t;

typedef ncclNetCommConfig_v10_t ncclNetCommConfig_v11_t;
typedef ncclNetCommConfig_v11_t ncclNetCommConfig_v12_t;

/* Description of the expected traffic for setNetAttr. */
typedef struct {
    int32_t maxConcurrentPeers;
    int32_t minConcurrentPeers;
    int32_t maxFlowsPerPeer;
    int32_t minFlowsPerPeer;
} ncclNetCommAttr_v11_t;

typedef struct {
    ncclNetCommAttr_v11_t sendCommAttr;
    ncclNetCommAttr_v11_t recvCommAttr;
    uint32_t op; /* op, algo and proto are bit sets */
    uint32_t algo;
    uint32_t proto;
} ncclNetAttr_v11_t;

typedef ncclNetCommAttr_v11_t ncclNetCommAttr_v12_t;
typedef ncclNetAttr_v11_t ncclNetAttr_v12_t;

_Static_assert(sizeof(ncclNetCommConfig_v11_t) == 4, "NCCL's ABI");
_Static_assert(sizeof(ncclNetAttr_v11_t) == 44, "NCCL's ABI");
_Static_assert(offsetof(ncclNetAttr_v11_t, recvCommAttr) == 16, "NCCL's ABI");
_Static_assert(offsetof(ncclNetAttr_v11_t, op) == 32, "NCCL's ABI");

/*
 * The tables. regMrDmaBuf, getDeviceMr, irecvConsumed, makeVDevice and setNetAttr may be NULL. iflush may be NULL if
 * all memory is host memory. finalize must not be NULL.
 *
 * connect and accept must not block. If they return success with *comm set to NULL, NCCL calls them again with the same
 * handle bytes, including the plugin's changes. In the same way, isend and irecv may return success with *request set
 * to NULL. NCCL calls test only on a connection's oldest request. irecv's sizes are upper limits. Sends of 0 bytes are
 * allowed.
 */

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v6_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm);
    ncclResult_t (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle, void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
} ncclNet_v6_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v7_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm, ncclNetDeviceHandle_v7_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_v7_t **recvDevComm);
    ncclResult_t (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle, void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
} ncclNet_v7_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v8_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm, ncclNetDeviceHandle_v8_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_v8_t **recvDevComm);
    /* size is a size_t since this version */
    ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle, void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
} ncclNet_v8_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, void *handle, void **sendComm, ncclNetDeviceHandle_v9_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_v9_t **recvDevComm);
    ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle, void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                          void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
    ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props);
} ncclNet_v9_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v10_t *props);
    ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(int dev, ncclNetCommConfig_v10_t *config, void *handle, void **sendComm,
                            ncclNetDeviceHandle_v10_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_v10_t **recvDevComm);
    ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                          void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                          void **phandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
    ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v10_t *props);
} ncclNet_v10_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_v11_t *config, ncclDebugLogger_t logFunction,
                         ncclProfilerCallback_t profFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v11_t *props);
    ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm, ncclNetDeviceHandle_v11_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_v11_t **recvDevComm);
    ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                          void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                          void **phandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
    ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v11_t *props);
    ncclResult_t (*finalize)(void *ctx);
    ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_v11_t *netAttr);
} ncclNet_v11_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_v12_t *config, ncclDebugLogger_t logFunction,
                         ncclProfilerCallback_t profFunction);
    ncclResult_t (*devices)(int *ndev);
    ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
    ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
    ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm, ncclNetDeviceHandle_v12_t **sendDevComm);
    ncclResult_t (*accept)(void *listenComm, void **recvComm, ncclNetDeviceHandle_v12_t **recvDevComm);
    ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
    ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
    ncclResult_t (*deregMr)(void *comm, void *mhandle);
    ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                          void **request);
    ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                          void **phandles, void **request);
    ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
    ncclResult_t (*test)(void *request, int *done, int *sizes);
    ncclResult_t (*closeSend)(void *sendComm);
    ncclResult_t (*closeRecv)(void *recvComm);
    ncclResult_t (*closeListen)(void *listenComm);
    ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
    ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
    ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props);
    ncclResult_t (*finalize)(void *ctx);
    ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_v12_t *netAttr);
} ncclNet_v12_t;

_Static_assert(sizeof(ncclNet_v6_t) == 136, "NCCL's ABI");
_Static_assert(offsetof(ncclNet_v6_t, closeListen) == 128, "NCCL's ABI");
_Static_assert(sizeof(ncclNet_v7_t) == 152, "NCCL's ABI");
_Static_assert(offsetof(ncclNet_v7_t, irecvConsumed) == 144, "NCCL's ABI");
_Static_assert(sizeof(ncclNet_v8_t) == 152, "NCCL's ABI");
_Static_assert(sizeof(ncclNet_v9_t) == 160, "NCCL's ABI");
_Static_assert(offsetof(ncclNet_v9_t, makeVDevice) == 152, "NCCL's ABI");
_Static_assert(sizeof(ncclNet_v10_t) == 160, "NCCL's ABI");
_Static_assert(sizeof(ncclNet_v11_t) == 176, "NCCL's ABI");
_Static_assert(offsetof(ncclNet_v11_t, finalize) == 160, "NCCL's ABI");
_Static_assert(offsetof(ncclNet_v11_t, setNetAttr) == 168, "NCCL's ABI");
_Static_assert(sizeof(ncclNet_v12_t) == 176, "NCCL's ABI");

#include "tuner_abi.h"

#endif

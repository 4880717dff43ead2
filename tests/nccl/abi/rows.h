/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists types, fields and constants of NCCL's plugin ABI. Two files compile this list: test_nccl_abi.c with hawser's
 * header, and theirs.c with NCCL's own headers, if installed. One file cannot include both.
 */
#ifndef NCCL_ABI_ROWS_H
#define NCCL_ABI_ROWS_H

#include <stddef.h>

struct abi_row {
    const char *type, *field; /* field NULL: size is that of the type, or a constant's value */
    size_t size, offset;
};

extern const struct abi_row abi_theirs[]; /* ends with a NULL type */

#define TYPE(t)     {#t, NULL, sizeof(t), 0},
#define FIELD(t, f) {#t, #f, sizeof(((t *)0)->f), offsetof(t, f)},
#define VALUE(v)    {#v, NULL, (size_t)(v), 0},

/* clang-format off */
#define PROPS_HEAD(t) TYPE(t) FIELD(t, name) FIELD(t, pciPath) FIELD(t, guid) FIELD(t, ptrSupport)
#define PROPS_SPEED(t) FIELD(t, speed) FIELD(t, port) FIELD(t, latency) FIELD(t, maxComms) FIELD(t, maxRecvs)
#define PROPS_DEVICE(t) FIELD(t, netDeviceType) FIELD(t, netDeviceVersion)
#define PROPS_V9(t) \
    PROPS_HEAD(t) FIELD(t, regIsGlobal) FIELD(t, forceFlush) PROPS_SPEED(t) PROPS_DEVICE(t) FIELD(t, vProps) \
    FIELD(t, maxP2pBytes) FIELD(t, maxCollBytes)

#define NET_V6(t) \
    TYPE(t) FIELD(t, name) FIELD(t, init) FIELD(t, devices) FIELD(t, getProperties) FIELD(t, listen) FIELD(t, connect) \
    FIELD(t, accept) FIELD(t, regMr) FIELD(t, regMrDmaBuf) FIELD(t, deregMr) FIELD(t, isend) FIELD(t, irecv) \
    FIELD(t, iflush) FIELD(t, test) FIELD(t, closeSend) FIELD(t, closeRecv) FIELD(t, closeListen)
#define NET_V7(t) NET_V6(t) FIELD(t, getDeviceMr) FIELD(t, irecvConsumed)
#define NET_V9(t) NET_V7(t) FIELD(t, makeVDevice)
#define NET_V11(t) NET_V9(t) FIELD(t, finalize) FIELD(t, setNetAttr)
#define VPROPS(t) TYPE(t) FIELD(t, ndevs) FIELD(t, devs)
#define HANDLE(t) \
    TYPE(t) FIELD(t, netDeviceType) FIELD(t, netDeviceVersion) FIELD(t, handle) FIELD(t, size) FIELD(t, needsProxyProgress)

#define ABI_COMMON \
    HANDLE(ncclNetDeviceHandle_v7_t) TYPE(ncclResult_t) TYPE(ncclDebugLogLevel) TYPE(ncclDebugLogger_t) \
    VALUE(ncclUnhandledCudaError) VALUE(ncclSystemError) VALUE(ncclInternalError) VALUE(ncclInvalidArgument) \
    VALUE(ncclInvalidUsage) VALUE(ncclRemoteError) VALUE(NCCL_LOG_WARN) VALUE(NCCL_LOG_INFO) VALUE(NCCL_LOG_TRACE) \
    VALUE(NCCL_INIT) VALUE(NCCL_NET) VALUE(NCCL_ENV) VALUE(NCCL_NET_HANDLE_MAXSIZE) VALUE(NCCL_PTR_HOST) \
    VALUE(NCCL_PTR_CUDA) VALUE(NCCL_PTR_DMABUF) VALUE(NCCL_NET_MAX_REQUESTS) VALUE(NCCL_NET_DEVICE_HOST) \
    VALUE(NCCL_NET_DEVICE_UNPACK) VALUE(NCCL_NET_DEVICE_UNPACK_VERSION) VALUE(NCCL_NET_DEVICE_INVALID_VERSION)
#define ABI_V6 PROPS_HEAD(ncclNetProperties_v6_t) PROPS_SPEED(ncclNetProperties_v6_t) NET_V6(ncclNet_v6_t)
#define ABI_V7 \
    PROPS_HEAD(ncclNetProperties_v7_t) PROPS_SPEED(ncclNetProperties_v7_t) PROPS_DEVICE(ncclNetProperties_v7_t) \
    NET_V7(ncclNet_v7_t)
#define ABI_V8 \
    PROPS_HEAD(ncclNetProperties_v8_t) FIELD(ncclNetProperties_v8_t, regIsGlobal) PROPS_SPEED(ncclNetProperties_v8_t) \
    PROPS_DEVICE(ncclNetProperties_v8_t) NET_V7(ncclNet_v8_t)
#define ABI_V9 VPROPS(ncclNetVDeviceProps_v9_t) PROPS_V9(ncclNetProperties_v9_t) NET_V9(ncclNet_v9_t)
#define ABI_V10 \
    VPROPS(ncclNetVDeviceProps_v10_t) PROPS_V9(ncclNetProperties_v10_t) NET_V9(ncclNet_v10_t) \
    TYPE(ncclNetCommConfig_v10_t) FIELD(ncclNetCommConfig_v10_t, trafficClass) TYPE(ncclProfilerCallback_t) \
    VALUE(ncclProfilerNetEventStart) VALUE(ncclProfilerNetEventStop) VALUE(ncclProfilerNetEventUpdate) \
    VALUE(ncclProfilerNetEventUpdateAndStop) VALUE(NCCL_NET_OPTIONAL_RECV_COMPLETION) VALUE(NCCL_MAX_NET_SIZE_BYTES)
#define ATTR(c, t) \
    TYPE(c) FIELD(c, maxConcurrentPeers) FIELD(c, minConcurrentPeers) FIELD(c, maxFlowsPerPeer) \
    FIELD(c, minFlowsPerPeer) TYPE(t) FIELD(t, sendCommAttr) FIELD(t, recvCommAttr) FIELD(t, op) FIELD(t, algo) FIELD(t, proto)
#define ABI_V11 \
    VPROPS(ncclNetVDeviceProps_v11_t) PROPS_V9(ncclNetProperties_v11_t) \
    FIELD(ncclNetProperties_v11_t, maxMultiRequestSize) NET_V11(ncclNet_v11_t) TYPE(ncclNetCommConfig_v11_t) \
    ATTR(ncclNetCommAttr_v11_t, ncclNetAttr_v11_t)
#define ABI_V12 \
    VPROPS(ncclNetVDeviceProps_v12_t) PROPS_V9(ncclNetProperties_v12_t) \
    FIELD(ncclNetProperties_v12_t, maxMultiRequestSize) FIELD(ncclNetProperties_v12_t, railId) \
    FIELD(ncclNetProperties_v12_t, planeId) NET_V11(ncclNet_v12_t) TYPE(ncclNetCommConfig_v12_t) \
    ATTR(ncclNetCommAttr_v12_t, ncclNetAttr_v12_t)

#define ABI_TUNER \
    TYPE(ncclFunc_t) VALUE(ncclFuncBroadcast) VALUE(ncclFuncReduce) VALUE(ncclFuncAllGather) \
    VALUE(ncclFuncReduceScatter) VALUE(ncclFuncAllReduce) VALUE(NCCL_NUM_ALGORITHMS) VALUE(NCCL_NUM_PROTOCOLS) \
    VALUE(NCCL_ALGO_TREE) VALUE(NCCL_ALGO_RING) VALUE(NCCL_ALGO_COLLNET_DIRECT) VALUE(NCCL_ALGO_COLLNET_CHAIN) \
    VALUE(NCCL_ALGO_NVLS) VALUE(NCCL_ALGO_NVLS_TREE) VALUE(NCCL_ALGO_PAT) VALUE(NCCL_PROTO_LL) VALUE(NCCL_PROTO_LL128) \
    VALUE(NCCL_PROTO_SIMPLE) VALUE(-(NCCL_ALGO_PROTO_IGNORE))
#define ABI_TUNER_V4 \
    TYPE(ncclTuner_v4_t) FIELD(ncclTuner_v4_t, name) FIELD(ncclTuner_v4_t, init) FIELD(ncclTuner_v4_t, getCollInfo) \
    FIELD(ncclTuner_v4_t, destroy)
/* Omits ncclTunerConstants_v5_t, because NCCL's example tuner lacks the last array of this struct in NCCL itself. */
#define ABI_TUNER_V5 \
    TYPE(ncclTuner_v5_t) FIELD(ncclTuner_v5_t, name) FIELD(ncclTuner_v5_t, init) FIELD(ncclTuner_v5_t, getCollInfo) \
    FIELD(ncclTuner_v5_t, finalize) TYPE(ncclNvlDomainInfo_v5_t) \
    FIELD(ncclNvlDomainInfo_v5_t, nNvlDomains) FIELD(ncclNvlDomainInfo_v5_t, minRanksPerNvlDomain) \
    FIELD(ncclNvlDomainInfo_v5_t, maxRanksPerNvlDomain)
#define ABI_TUNER_V6 \
    TYPE(ncclTuner_v6_t) FIELD(ncclTuner_v6_t, name) FIELD(ncclTuner_v6_t, init) FIELD(ncclTuner_v6_t, getCollInfo) \
    FIELD(ncclTuner_v6_t, finalize) FIELD(ncclTuner_v6_t, getChunkSize)
/* clang-format on */

#endif

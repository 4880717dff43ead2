/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner's part of NCCL's plugin ABI. Included by abi.h, which defines the common types. */
#ifndef HW_NETPLUGIN_TUNER_ABI_H
#define HW_NETPLUGIN_TUNER_ABI_H

#include "abi.h"

/* The tuner chooses the algorithm, the protocol, the channels and (v6) the chunk size of a collective operation. If
 * NCCL finds no libnccl-tuner.so, it searches the net plugin's library for ncclTunerPlugin_v5 and older versions, and
 * since 2.30 first for v6. */

typedef enum {
    ncclFuncBroadcast = 0,
    ncclFuncReduce = 1,
    ncclFuncAllGather = 2,
    ncclFuncReduceScatter = 3,
    ncclFuncAllReduce = 4,
} ncclFunc_t;

#define NCCL_NUM_ALGORITHMS      7
#define NCCL_ALGO_TREE           0
#define NCCL_ALGO_RING           1
#define NCCL_ALGO_COLLNET_DIRECT 2
#define NCCL_ALGO_COLLNET_CHAIN  3
#define NCCL_ALGO_NVLS           4
#define NCCL_ALGO_NVLS_TREE      5
#define NCCL_ALGO_PAT            6

#define NCCL_NUM_PROTOCOLS 3
#define NCCL_PROTO_LL      0
#define NCCL_PROTO_LL128   1
#define NCCL_PROTO_SIMPLE  2

/* Value in the cost table for a combination that is not available. */
#define NCCL_ALGO_PROTO_IGNORE (-1.0f)

/* collCostTable is actually a float[numAlgo][numProto], in microseconds, which NCCL passes as a float **. */
typedef struct {
    const char *name;
    ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction, void **context);
    ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int numPipeOps,
                                float **collCostTable, int numAlgo, int numProto, int regBuff, int *nChannels);
    ncclResult_t (*destroy)(void *context);
} ncclTuner_v4_t;

typedef struct {
    int nNvlDomains;
    int minRanksPerNvlDomain;
    int maxRanksPerNvlDomain;
} ncclNvlDomainInfo_v5_t;

/* NCCL's model of latencies and bandwidths, which is writable. Only its size matters here. */
typedef struct {
    double value[144];
} ncclTunerConstants_v5_t;

typedef struct {
    const char *name;
    ncclResult_t (*init)(void **ctx, uint64_t commId, size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction,
                         ncclNvlDomainInfo_v5_t *nvlDomainInfo, ncclTunerConstants_v5_t *constants);
    ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int numPipeOps,
                                float **collCostTable, int numAlgo, int numProto, int regBuff, int *nChannels);
    ncclResult_t (*finalize)(void *context);
} ncclTuner_v5_t;

typedef ncclNvlDomainInfo_v5_t ncclNvlDomainInfo_v6_t;
typedef ncclTunerConstants_v5_t ncclTunerConstants_v6_t;

/* Since NCCL 2.30 (src/include/plugin/tuner/tuner_v6.h). On entry, *chunkSize is NCCL's choice, in bytes of a channel's
 * buffer. NCCL limits the result to a chunk of the protocol's buffer (calcCollChunking() in src/enqueue.cc). *chunkSize
 * must be the same on all ranks. getChunkSize may be NULL. */
typedef struct {
    const char *name;
    ncclResult_t (*init)(void **ctx, uint64_t commId, size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction,
                         ncclNvlDomainInfo_v6_t *nvlDomainInfo, ncclTunerConstants_v6_t *constants);
    ncclResult_t (*getCollInfo)(void *context, ncclFunc_t collType, size_t nBytes, int numPipeOps,
                                float **collCostTable, int numAlgo, int numProto, int regBuff, int *nChannels);
    ncclResult_t (*finalize)(void *context);
    ncclResult_t (*getChunkSize)(void *context, ncclFunc_t collType, size_t nBytes, int algo, int proto, int nChannels,
                                 size_t *chunkSize);
} ncclTuner_v6_t;

_Static_assert(sizeof(ncclTuner_v4_t) == 32, "NCCL's ABI");
_Static_assert(sizeof(ncclNvlDomainInfo_v5_t) == 12, "NCCL's ABI");
_Static_assert(sizeof(ncclTunerConstants_v5_t) == 1152, "NCCL's ABI");
_Static_assert(sizeof(ncclTuner_v5_t) == 32, "NCCL's ABI");
_Static_assert(sizeof(ncclTuner_v6_t) == 40, "NCCL's ABI");

#endif

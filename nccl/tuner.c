/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner, which NCCL finds in the net plugin's library.
 *
 * Between nodes, the tuner disables the low-latency protocols LL and LL128 if the network carries more than STEP_MAX
 * bytes in one step of an algorithm and the protocol Simple is enabled. Over TCP each step is a message, so the flags
 * (half of LL's bytes, a sixteenth of LL128's) and the small steps cost more than NCCL's model assumes. If each node
 * has one GPU, the tuner also requests few channels. Channels then serve only the network, and fewer of them make
 * larger messages (docs/performance.md has the figures). Within a node, the tuner reverses the effect of the plugin's
 * NCCL_BUFFSIZE on the chunk size if NCCL asks for that size (2.30 and later). NCCL decides everything else.
 *
 * All ranks must make the same choices. The choices depend on the operation, its size, the numbers of ranks and nodes,
 * and environment variables, and never on the local hardware.
 */
#include "base/base.h"
#include "params.h"

#include <stdlib.h>
#include <string.h>

#define STEP_MAX ((size_t)128 * 1024)
#define CHANNELS 4
/* Operations of at least this size use as many channels as a process has links to a peer (HN_LANES in inner.h). The
 * limit is lower for broadcast and reduce, because each of their links carries data in only one direction. */
#define LARGE          ((size_t)8 << 20)
#define LARGE_ONE_WAY  ((size_t)512 << 10)
#define CHANNELS_LARGE 6
#define BUFFSIZE       ((size_t)4 << 20) /* NCCL's default NCCL_BUFFSIZE */
/* A cost in us that NCCL does not choose while another protocol is possible. NCCL_ALGO_PROTO_IGNORE is negative:
 * NCCL 2.28 ignores such an entry, but NCCL 2.32 (src/tuning/tuning.cc) takes the lowest cost. */
#define NEVER    1e30F
#define EXPORTED __attribute__((visibility("default")))

extern const ncclTuner_v4_t ncclTunerPlugin_v4;
extern const ncclTuner_v5_t ncclTunerPlugin_v5;
extern const ncclTuner_v6_t ncclTunerPlugin_v6;

/* The tuner's state for one communicator. */
struct context {
    size_t ranks;
    bool protocols, channels; /* whether the tuner chooses protocols and channels */
    size_t chunk_part;        /* divisor of NCCL's chunk size; 1 for no change */
};

static bool any_set(const char *const *names)
{
    while (*names && !getenv(*names))
        names++;
    return *names != NULL;
}

/* Returns the factor by which the plugin's NCCL_BUFFSIZE enlarges the default buffers, and with them the chunks.
 * Returns 1 if NCCL_BUFFSIZE does not have the plugin's value. Considers only the number, read as NCCL reads it
 * (src/misc/param.cc), and neither its origin nor its spelling, because these may differ between ranks. */
static size_t count_buffers(void)
{
    const char *value = getenv("NCCL_BUFFSIZE");
    for (const struct hn_param *p = hn_params; p->name && value; p++)
        if (strcmp(p->name, "NCCL_BUFFSIZE") == 0 && strtoll(p->value, NULL, 0) == strtoll(value, NULL, 0))
            return HW_MAX((size_t)strtoull(p->value, NULL, 0) / BUFFSIZE, (size_t)1);
    return 1;
}

static ncclResult_t init_v4(size_t ranks, size_t nodes, ncclDebugLogger_t logger, void **ctx)
{
    /* A user who sets one of these variables has chosen the number of channels. */
    static const char *const users[] = {"NCCL_MIN_NCHANNELS",
                                        "NCCL_MAX_NCHANNELS",
                                        "NCCL_MIN_NRINGS",
                                        "NCCL_MAX_NRINGS",
                                        "NCCL_MIN_CTAS",
                                        "NCCL_MAX_CTAS",
                                        NULL};
    struct context *c = calloc(1, sizeof(*c));
    if (!c)
        return ncclSystemError;
    const bool allowed = hn_tune(logger), tune = nodes > 1 && allowed;
    c->ranks = ranks;
    c->chunk_part = allowed && nodes <= 1 ? count_buffers() : 1;
    c->protocols = tune && !getenv("NCCL_PROTO");
    c->channels = tune && ranks == nodes && !any_set(users);
    *ctx = c;
    return ncclSuccess;
}

static ncclResult_t init_v5(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, ncclDebugLogger_t logger,
                            ncclNvlDomainInfo_v5_t *nvl, ncclTunerConstants_v5_t *constants)
{
    (void)comm_id;
    (void)nvl;
    (void)constants;
    return init_v4(ranks, nodes, logger, ctx);
}

/* Returns the number of bytes that one step carries from a rank to the next, over all channels. For allreduce,
 * allgather and reducescatter, a ring divides the data into as many pieces as there are ranks, and each step carries
 * one piece. NCCL has two trees, and each carries half of the data. The other algorithms count as trees. */
static size_t step_bytes(ncclFunc_t func, int algo, size_t bytes, size_t ranks)
{
    bool in_pieces = func == ncclFuncAllReduce || func == ncclFuncAllGather || func == ncclFuncReduceScatter;
    if (algo == NCCL_ALGO_RING)
        return in_pieces ? bytes / HW_MAX(ranks, (size_t)1) : bytes;
    return bytes / 2;
}

/* Returns the number of channels for an operation of this size. */
static int choose_channels(ncclFunc_t func, size_t bytes)
{
    bool one_way = func == ncclFuncBroadcast || func == ncclFuncReduce;
    return bytes < (one_way ? LARGE_ONE_WAY : LARGE) ? CHANNELS : CHANNELS_LARGE;
}

static ncclResult_t get_coll_info(void *ctx, ncclFunc_t func, size_t bytes, int pipe_ops, float **table, int algos,
                                  int protos, int reg_buff, int *channels)
{
    float *cost = (float *)(void *)table; /* NCCL passes a float[algos][protos] */
    const struct context *c = ctx;

    (void)pipe_ops;
    (void)reg_buff;
    if (c->channels)
        *channels = choose_channels(func, bytes); /* 0 on entry, which means NCCL's choice */
    if (!c->protocols || protos <= NCCL_PROTO_SIMPLE)
        return ncclSuccess;
    for (int a = 0; a < algos; a++, cost += protos)
        /* Never disables the last protocol of an algorithm, since the user may have disabled the others. */
        if (step_bytes(func, a, bytes, c->ranks) > STEP_MAX && cost[NCCL_PROTO_SIMPLE] >= 0)
            for (int p = NCCL_PROTO_LL; p <= NCCL_PROTO_LL128; p++)
                cost[p] = cost[p] < 0 ? cost[p] : NEVER;
    return ncclSuccess;
}

/* Large chunks help only the network. Of the algorithms that use only NVLink or shared memory, rings and trees derive
 * their chunks from NCCL_BUFFSIZE. */
static ncclResult_t get_chunk_size(void *ctx, ncclFunc_t func, size_t bytes, int algo, int proto, int channels,
                                   size_t *chunk)
{
    const struct context *c = ctx;
    (void)func;
    (void)bytes;
    (void)channels;
    if (proto == NCCL_PROTO_SIMPLE && (algo == NCCL_ALGO_RING || algo == NCCL_ALGO_TREE))
        *chunk /= c->chunk_part;
    return ncclSuccess;
}

static ncclResult_t destroy_tuner_context(void *ctx)
{
    free(ctx);
    return ncclSuccess;
}

EXPORTED const ncclTuner_v4_t ncclTunerPlugin_v4 = {
    .name = "hawser",
    .init = init_v4,
    .getCollInfo = get_coll_info,
    .destroy = destroy_tuner_context,
};

EXPORTED const ncclTuner_v5_t ncclTunerPlugin_v5 = {
    .name = "hawser",
    .init = init_v5,
    .getCollInfo = get_coll_info,
    .finalize = destroy_tuner_context,
};

EXPORTED const ncclTuner_v6_t ncclTunerPlugin_v6 = {
    .name = "hawser",
    .init = init_v5,
    .getCollInfo = get_coll_info,
    .finalize = destroy_tuner_context,
    .getChunkSize = get_chunk_size,
};

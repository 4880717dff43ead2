/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner, which NCCL finds in the net plugin's library: between nodes it disables the low-latency protocols where
 * the network carries more than STEP_MAX in one step of an algorithm. Their flags (half of LL's bytes, a sixteenth of
 * LL128's) and small steps cost more over TCP, where each step is a message, than NCCL's model of them knows. Where
 * each node has one GPU it also asks for few channels: there they serve the network alone, and fewer of them make
 * larger messages (docs/performance.md has the figures). Within a node it takes back what the plugin's NCCL_BUFFSIZE
 * does to chunks, where NCCL asks for their size (2.30 and later). Everything else stays NCCL's. All ranks must choose
 * alike: what is chosen depends on the operation, its bytes and the numbers of ranks and nodes, and on nothing of this
 * machine.
 */
#include "base/base.h"
#include "params.h"

#include <stdlib.h>
#include <string.h>

#define STEP_MAX       ((size_t)128 * 1024)
#define CHANNELS       4
#define LARGE          ((size_t)8 << 20) /* from which on there are more: one for each link of a process (inner.h) */
#define CHANNELS_LARGE 6
#define BUFFSIZE       ((size_t)4 << 20) /* NCCL's own NCCL_BUFFSIZE */
#define EXPORTED       __attribute__((visibility("default")))

extern const ncclTuner_v4_t ncclTunerPlugin_v4;
extern const ncclTuner_v5_t ncclTunerPlugin_v5;
extern const ncclTuner_v6_t ncclTunerPlugin_v6;

/* A communicator's. */
struct context {
    size_t ranks;
    bool protocols, channels; /* what to have a say in */
    size_t chunk_part;        /* the part of NCCL's chunk that is wanted: one of so many; 1: all of it */
};

static bool any_set(const char *const *names)
{
    while (*names && !getenv(*names))
        names++;
    return *names != NULL;
}

/* How many times as large as NCCL's own the buffers are by the plugin's NCCL_BUFFSIZE, and with them the chunks; 1
 * where the user has chosen another size. By the value and not by who set it, which ranks need not agree on. */
static size_t count_buffers(void)
{
    const char *value = getenv("NCCL_BUFFSIZE");
    for (const struct hn_param *p = hn_params; p->name && value; p++)
        if (strcmp(p->name, "NCCL_BUFFSIZE") == 0 && strcmp(p->value, value) == 0)
            return HW_MAX((size_t)strtoull(value, NULL, 10) / BUFFSIZE, (size_t)1);
    return 1;
}

static ncclResult_t init_v4(size_t ranks, size_t nodes, ncclDebugLogger_t logger, void **ctx)
{
    /* Who names protocols, or numbers of channels, has chosen them. */
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

/* Bytes that one step carries from a rank to the next one, over all channels. A ring takes these operations apart into
 * as many pieces as there are ranks, and each step carries one. NCCL's trees are two, with half of the data each. */
static size_t step_bytes(ncclFunc_t func, int algo, size_t bytes, size_t ranks)
{
    bool in_pieces = func == ncclFuncAllReduce || func == ncclFuncAllGather || func == ncclFuncReduceScatter;
    if (algo == NCCL_ALGO_RING)
        return in_pieces ? bytes / HW_MAX(ranks, (size_t)1) : bytes;
    return bytes / 2;
}

static ncclResult_t get_coll_info(void *ctx, ncclFunc_t func, size_t bytes, int pipe_ops, float **table, int algos,
                                  int protos, int reg_buff, int *channels)
{
    float *cost = (float *)(void *)table; /* [algos][protos] in truth */
    const struct context *c = ctx;

    (void)pipe_ops;
    (void)reg_buff;
    if (c->channels)
        *channels = bytes < LARGE ? CHANNELS : CHANNELS_LARGE; /* it was 0: NCCL's choice */
    if (!c->protocols || protos <= NCCL_PROTO_SIMPLE)
        return ncclSuccess;
    for (int a = 0; a < algos; a++, cost += protos)
        /* Never the last protocol that an algorithm has: the user may have disabled the others. */
        if (step_bytes(func, a, bytes, c->ranks) > STEP_MAX && cost[NCCL_PROTO_SIMPLE] >= 0)
            cost[NCCL_PROTO_LL] = cost[NCCL_PROTO_LL128] = NCCL_ALGO_PROTO_IGNORE;
    return ncclSuccess;
}

/* Large chunks are for the network. Of the algorithms that cross NVLink or shared memory alone, rings and trees cut
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

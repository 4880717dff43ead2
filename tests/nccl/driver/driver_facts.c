/* SPDX-License-Identifier: Apache-2.0 */
/* Prints as JSON the values that NCCL takes from a rank without comparing them with the other ranks' values: device
 * properties, NCCL's parameters in the environment after the plugin is loaded, and the tuner's results. */
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static int print_devices(struct rank *r)
{
    int n = 0, rc = net_fail(net_devices(r, &n), "devices");
    printf("{\"devices\": [");
    for (int i = 0; i < n && !rc; i++) {
        struct props p;
        rc = net_fail(net_props(r, i, &p), "getProperties");
        if (!rc)
            printf("%s[%d, %d, %d, %d, %d, %g, %zu, %zu]", i ? ", " : "", p.ptr_support, p.speed, p.port, p.max_comms,
                   p.max_recvs, (double)p.latency, p.max_p2p, p.max_coll);
    }
    printf("], \"parameters\": [");
    for (size_t i = 0, any = 0; environ[i]; i++)
        if (strncmp(environ[i], "NCCL_", 5) == 0)
            printf("%s\"%s\"", any++ ? ", " : "", environ[i]);
    printf("]");
    return rc;
}

static void print_answers(const ncclTuner_v5_t *t, size_t ranks, size_t nodes)
{
    void *ctx = NULL;
    if (t->init(&ctx, 1, ranks, nodes, NULL, NULL, NULL) != ncclSuccess)
        return;
    for (int func = ncclFuncBroadcast; func <= ncclFuncAllReduce; func++)
        for (size_t bytes = 8; bytes <= (size_t)1 << 32; bytes *= 4) {
            float cost[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
            int channels = 0;
            for (size_t i = 0; i < sizeof(cost) / sizeof(float); i++)
                ((float *)cost)[i] = (float)(i + 1);
            (void)t->getCollInfo(ctx, (ncclFunc_t)func, bytes, 1, (float **)(void *)cost, NCCL_NUM_ALGORITHMS,
                                 NCCL_NUM_PROTOCOLS, 0, &channels);
            printf(", [%zu, %zu, %d, %zu, %d", ranks, nodes, func, bytes, channels);
            for (size_t i = 0; i < sizeof(cost) / sizeof(float); i++)
                printf(", %g", (double)((float *)cost)[i]);
            printf("]");
        }
    (void)t->finalize(ctx);
}

/* Prints the tuner's chunk sizes for allreduce, for each algorithm, protocol and size. */
static void print_chunks(const ncclTuner_v6_t *t, size_t ranks, size_t nodes)
{
    void *ctx = NULL;
    if (t->init(&ctx, 1, ranks, nodes, NULL, NULL, NULL) != ncclSuccess)
        return;
    for (int algo = 0; algo < NCCL_NUM_ALGORITHMS; algo++)
        for (int proto = 0; proto < NCCL_NUM_PROTOCOLS; proto++)
            for (size_t bytes = 8; bytes <= (size_t)1 << 32; bytes *= 64) {
                size_t chunk = (size_t)4 << 20;
                (void)t->getChunkSize(ctx, ncclFuncAllReduce, bytes, algo, proto, 4, &chunk);
                printf(", [%zu, %zu, %d, %d, %zu, %zu]", ranks, nodes, algo, proto, bytes, chunk);
            }
    (void)t->finalize(ctx);
}

int run_facts(void)
{
    static const size_t shapes[][2] = {{2, 2}, {2, 1}, {16, 2}, {64, 64}, {1024, 128}};
    struct shared shared = {0};
    struct rank r = {.sh = &shared};
    int rc = net_load(&r);
    if (!rc)
        rc = print_devices(&r);
    if (rc) {
        fprintf(stderr, "driver: %s\n", hw_error());
        return 1;
    }
    void *dl = dlopen(opt.plugin, RTLD_NOW | RTLD_NOLOAD);
    const ncclTuner_v5_t *t = dl ? dlsym(dl, "ncclTunerPlugin_v5") : NULL;
    printf(", \"tuner\": [%d", t != NULL);
    for (size_t i = 0; t && i < HW_ARRAY_LEN(shapes); i++)
        print_answers(t, shapes[i][0], shapes[i][1]);
    const ncclTuner_v6_t *v6 = dl ? dlsym(dl, "ncclTunerPlugin_v6") : NULL;
    printf("], \"chunks\": [%d", v6 != NULL);
    for (size_t i = 0; v6 && i < HW_ARRAY_LEN(shapes); i++)
        print_chunks(v6, shapes[i][0], shapes[i][1]);
    printf("]}\n");
    return 0;
}

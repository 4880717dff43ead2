/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of GPUs: a GPU of this node, a GPU of the serving node, the NICs between them and the CPUs near the local GPU.
 */
#ifndef HW_TOOL_GPUS_H
#define HW_TOOL_GPUS_H

#include "base/base.h"

#include <sched.h>

#define GPUS_MAX  64   /* maximum number of pairs */
#define GPUS_TOP  4095 /* largest GPU number */
#define GPUS_SAME (-1) /* peer GPU before gpus_resolve(): the same number as the local GPU */

struct gpu_pair {
    int gpu, peer;
    char nics[256]; /* planned NICs, such as "eth1,eth2"; "" means every NIC that reaches the peer */
    cpu_set_t cpus; /* CPUs of the GPU's NUMA node; valid if has_cpus is set */
    bool has_cpus;
    int numa; /* NUMA node of the GPU, or -1 if unknown */
};

struct gpus {
    bool all; /* gpus_resolve() adds a pair for every GPU of this node */
    struct gpu_pair pair[GPUS_MAX];
    size_t n;
};

/* Parses "all", or a list of items such as 0 (the same number at the peer), 0-3 (GPUs 0 to 3) and 0:5 (GPU 5 at the
 * peer). Rejects a pair that is written twice. Fails with -EINVAL, quoting the text, or with -E2BIG; *out is then
 * invalid. */
int gpus_parse(const char *text, struct gpus *out);

/* Matches the pairs to the GPUs that exist on both nodes. If the serving node has fewer GPUs, peer numbers that the
 * user did not give start again at 0, and *wrapped is set. Fails with -ENODEV if a GPU does not exist; the error text
 * contains the number of GPUs. Fails with -E2BIG if "all" gives more than GPUS_MAX pairs. */
int gpus_resolve(struct gpus *g, int here, int there, bool *wrapped);

/* Queries the serving node's number of GPUs (*there), resolves the pairs, and fills in the NICs, CPUs and NUMA node of
 * each pair from this node's plan. Of the planned NICs that the user did not choose, only those that reach the peer are
 * used. If there is no such NIC, nics stays "", so every NIC that reaches the peer is used. nics and map are passed to
 * the plan and may be NULL; see hw_plan_want. Returns 0 or -errno. */
int gpus_fit(struct gpus *g, hawser *h, const char *host, uint16_t port, const char *nics, const char *map, int *there,
             bool *wrapped);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU of this node works with which GPU of the serving node, over which NICs and near which CPUs. */
#ifndef HW_TOOL_GPUS_H
#define HW_TOOL_GPUS_H

#include "base/base.h"

#include <sched.h>

#define GPUS_MAX  64   /* pairs */
#define GPUS_TOP  4095 /* the largest ordinal */
#define GPUS_SAME (-1) /* a pair's peer before gpus_resolve(): the same number at the peer */

struct gpu_pair {
    int gpu, peer;
    char nics[256]; /* "eth1,eth2" as planned; "": every NIC that reaches the peer */
    cpu_set_t cpus; /* of its NUMA node; valid if has_cpus */
    bool has_cpus;
    int numa; /* -1: not known */
};

struct gpus {
    bool all; /* gpus_resolve() makes the pairs */
    struct gpu_pair pair[GPUS_MAX];
    size_t n;
};

/* Parses "all", or a list of 0 (same number at the peer), 0-3 (likewise), 0:5 (5 at the peer). No pair twice. -EINVAL
 * echoes the text; -E2BIG; *out is invalid then. */
int gpus_parse(const char *text, struct gpus *out);

/* Matches the pairs to the GPUs that exist on both sides. "Same number" starts again from 0 if the serving node has
 * fewer GPUs: *wrapped tells. -ENODEV: a GPU that does not exist, with the number of existing ones. */
int gpus_resolve(struct gpus *g, int here, int there, bool *wrapped);

/* Does everything: asks the serving node how many GPUs it has (*there), resolves the pairs, and fills in NICs, CPUs and
 * NUMA node of each pair from this node's plan. Of the planned NICs only those that reach the peer count; if none of a
 * GPU's does, it gets all (nics ""). nics and map are used unchanged; they may be NULL: see hw_plan_want. -EINVAL,
 * -ENODEV, or errors of connecting. */
int gpus_fit(struct gpus *g, hawser *h, const char *host, uint16_t port, const char *nics, const char *map, int *there,
             bool *wrapped);

#endif

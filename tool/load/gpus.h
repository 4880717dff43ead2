/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU of this node works with which of the serving node's, by which NICs and near which CPUs. */
#ifndef HW_TOOL_GPUS_H
#define HW_TOOL_GPUS_H

#include "base/base.h"

#include <sched.h>

#define GPUS_MAX  64   /* pairs */
#define GPUS_TOP  4095 /* the largest ordinal that can be named */
#define GPUS_SAME (-1) /* a pair's peer before gpus_resolve(): the same number there */

struct gpu_pair {
    int gpu, peer;
    char nics[256]; /* "eth1,eth2" as planned; "": every NIC that reaches the peer */
    cpu_set_t cpus; /* of its NUMA node; of use where has_cpus */
    bool has_cpus;
    int numa; /* -1: not known */
};

struct gpus {
    bool all; /* pairs are made by gpus_resolve() */
    struct gpu_pair pair[GPUS_MAX];
    size_t n;
};

/* "all", or a list of 0 (the same number there), 0-3 (likewise), 0:5 (5 there). No pair twice. -EINVAL echoing the
 * text, -E2BIG; *out is of no use then. */
int gpus_parse(const char *text, struct gpus *out);

/* Fits the pairs to the GPUs that there are on both sides. What is the same number there starts again from 0 where the
 * serving node has fewer: *wrapped says whether so. -ENODEV one that is not there, with how many there are. */
int gpus_resolve(struct gpus *g, int here, int there, bool *wrapped);

/* All of it: asks the serving node what it has (*there GPUs), resolves, and fills in the NICs, CPUs and NUMA node of
 * each pair by this node's plan. Of the planned NICs only those count by which the peer can be reached; where none of a
 * GPU's is among them it has all (nics ""). What nics and map name is taken as it is; they may be NULL: see
 * hw_plan_want. -EINVAL, -ENODEV, or what connecting says. */
int gpus_fit(struct gpus *g, hawser *h, const char *host, uint16_t port, const char *nics, const char *map, int *there,
             bool *wrapped);

#endif

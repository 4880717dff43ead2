/* SPDX-License-Identifier: Apache-2.0 */
/* The results of `hawser topo`, and their output formats. */
#ifndef HW_TOOL_TOPO_H
#define HW_TOOL_TOPO_H

#include "mem/cuda.h"
#include "node/plan.h"

#include <stdio.h>

struct topo {
    const char *from; /* the snapshot's file; NULL: this machine */
    struct hw_node node;
    struct hw_plan plan;
    bool planned;
    char why[HW_ERR_TEXT];    /* why there is no plan */
    char cuda[HW_ERR_TEXT];   /* why CUDA was not asked or did not answer; "": it answered */
    struct hw_gpu_info *info; /* of CUDA's GPUs, by ordinal; NULL: unknown */
};

/* Returns the PCI devices to show (GPUs, NICs, RDMA devices and the bridges above them), as indices in node.pci: by
 * NUMA node, parents before their children. The caller frees it; NULL: no memory. */
int *topo_order(const struct topo *t, size_t *n);
/* Returns the GPU with that index in node.pci, or NULL. */
const struct hw_gpu *topo_gpu_at(const struct topo *t, int pci);
/* Returns true if interface d has a PCI device of its own. */
static inline bool topo_on_pci(const struct hw_netdev *d)
{
    return d->pci >= 0 && !d->over[0];
}
/* Returns the plan in the format of --map. The caller frees it; NULL: no memory. */
char *topo_map(const struct topo *t);
/* Writes "GPU 3", or "GPU" for one that is not CUDA's. Returns buf. */
char *topo_gpu_name(const struct hw_gpu *g, char *buf, size_t cap);
/* Writes "200 Gb/s", "2.5 Gb/s", "100 Mb/s"; "" if the speed is unknown. Returns buf. */
char *topo_speed(int64_t mbps, char *buf, size_t cap);

/* 0 or -errno with hw_error(). */
int topo_text(const struct topo *t, FILE *out);
int topo_json(const struct topo *t, FILE *out);
int topo_svg(const struct topo *t, FILE *out);
/* Writes a snapshot of this machine without MAC and IP addresses and serial numbers. */
int topo_save(const char *path);
/* Scans a snapshot like a machine. The caller frees n, also after a failure. */
int topo_from(struct hw_node *n, const char *file);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The result of `hawser topo`, and its output formats. */
#ifndef HW_TOOL_TOPO_H
#define HW_TOOL_TOPO_H

#include "mem/cuda.h"
#include "node/plan.h"

#include <stdio.h>

struct topo {
    const char *from; /* file of the snapshot, or NULL for this machine */
    struct hw_node node;
    struct hw_plan plan;
    bool planned;
    char why[HW_ERR_TEXT];    /* reason if planned is false */
    char cuda[HW_ERR_TEXT];   /* why CUDA's order of GPUs is unknown; empty if known */
    struct hw_gpu_info *info; /* CUDA's GPUs by ordinal, or NULL if unknown */
};

/* Returns the PCI devices to show (GPUs, NICs, RDMA devices and the bridges above them) as indexes into node.pci,
 * sorted by NUMA node and, within a node, with parents before their children. The caller frees the array. Returns NULL
 * if out of memory. */
int *topo_order(const struct topo *t, size_t *n);
/* Returns the GPU with this index in node.pci, or NULL. */
const struct hw_gpu *topo_gpu_at(const struct topo *t, int pci);
/* Returns true if interface d has its own PCI device. */
static inline bool topo_on_pci(const struct hw_netdev *d)
{
    return d->pci >= 0 && !d->over[0];
}
/* Returns the plan in the format of --map. The caller frees the text. Returns NULL if out of memory. */
char *topo_map(const struct topo *t);
/* Writes a name such as "GPU 3", or "GPU" for a GPU without a CUDA ordinal. Returns buf. */
char *topo_gpu_name(const struct hw_gpu *g, char *buf, size_t cap);
/* Writes a speed such as "200 Gb/s", "2.5 Gb/s" or "100 Mb/s", or "" if the speed is unknown. Returns buf. */
char *topo_speed(int64_t mbps, char *buf, size_t cap);

/* Write the result as text, JSON or SVG. Return 0, or a negative errno with hw_error(). */
int topo_text(const struct topo *t, FILE *out);
int topo_json(const struct topo *t, FILE *out);
int topo_svg(const struct topo *t, FILE *out);
/* Writes a snapshot of this machine, without MAC or IP addresses, GIDs, GUIDs or the host's name. */
int topo_save(const char *path);
/* Scans a snapshot as if it were a machine. The caller frees n, even after a failure. */
int topo_from(struct hw_node *n, const char *file);

#endif

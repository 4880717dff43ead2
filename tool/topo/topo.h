/* SPDX-License-Identifier: Apache-2.0 */
/* What `hawser topo` found, and the forms in which it is shown. */
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
    char why[HW_ERR_TEXT];    /* there is no plan */
    char cuda[HW_ERR_TEXT];   /* CUDA was not asked, or had no answer; "": it had */
    struct hw_gpu_info *info; /* of CUDA's GPUs, by ordinal; NULL: not known */
};

/* The PCI devices worth showing, which are GPUs, NICs, RDMA devices and the bridges above them, as places in node.pci:
 * a NUMA node after the other, parents before their children. To be freed; NULL: no memory. */
int *topo_order(const struct topo *t, size_t *n);
/* The GPU at that place in node.pci, or NULL. */
const struct hw_gpu *topo_gpu_at(const struct topo *t, int pci);
/* Does interface d stand on a PCI device of its own? */
static inline bool topo_on_pci(const struct hw_netdev *d)
{
    return d->pci >= 0 && !d->over[0];
}
/* The plan as --map takes it. To be freed; NULL: no memory. */
char *topo_map(const struct topo *t);
/* "GPU 3", or "GPU" of one that is not CUDA's. Returns buf. */
char *topo_gpu_name(const struct hw_gpu *g, char *buf, size_t cap);
/* "200 Gb/s", "2.5 Gb/s", "100 Mb/s"; "" where speed is not known. Returns buf. */
char *topo_speed(int64_t mbps, char *buf, size_t cap);

/* 0 or -errno with hw_error(). */
int topo_text(const struct topo *t, FILE *out);
int topo_json(const struct topo *t, FILE *out);
int topo_svg(const struct topo *t, FILE *out);
/* Writes a snapshot of this machine: no MAC or IP address, no serial number. */
int topo_save(const char *path);
/* Scans a snapshot as a machine is scanned. To be freed, also after a failure. */
int topo_from(struct hw_node *n, const char *file);

#endif

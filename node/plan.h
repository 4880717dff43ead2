/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: which NICs serve which of CUDA's GPUs, and on which CPUs its threads run.
 *
 * Which NICs may serve. Never: one that is down (operstate), part of a bond, or, on this machine, without an IP
 * address. Of a snapshot addresses are not known and operstate alone counts. Then the first of these kinds that there
 * is any of:
 *   1. network controllers on PCI, and bonds and VLANs over them (not a VLAN over one that serves itself: it is the
 * same wire), if they are not where a default route leaves: that one is the machine's management
 *   2. those with a default route too
 *   3. other interfaces: veth, USB...
 *   4. loopback
 * and of these none that is known to have less than a tenth of the fastest one's speed. A list of names overrules it
 * all.
 *
 * Which serve a GPU: the nearest, as hw_pci_distance() has it; among those on other NUMA nodes, the nearest of these.
 * GPUs that have the same nearest NICs share them so that each NIC has the same part of GPUs, counting what nearer GPUs
 * have laid on it already: 4 GPUs and 2 NICs make 2 GPUs a NIC; 2 and 4 make 2 NICs a GPU; 3 and 2: the middle GPU has
 * both. A NIC that is nearest to no GPU serves none. Every GPU has at least one NIC, or there is an error.
 */
#ifndef HW_PLAN_H
#define HW_PLAN_H

#include "node/node.h"

struct hw_plan_gpu {
    int gpu;  /* the ordinal, which is its place in hw_node.gpu too */
    int *nic; /* places in hw_node.netdev, by PCI address */
    size_t n_nics;
    const char *cpus; /* the node's, see hw_node_cpus(); "": not known */
    bool mapped;      /* by hand */
};

struct hw_plan {
    struct hw_plan_gpu *gpu;
    size_t n_gpus;
    const char **why; /* of each of hw_node.netdev: why it serves none; NULL: it serves */
};

struct hw_plan_want {
    const char *gpus; /* "0-3,6"; NULL or "all": all. Only these are planned, and share. */
    const char *nics; /* "eth1,eth2": only these; NULL: as above */
    const char *map;  /* "0,1=eth1;2-3=eth2,eth4": these GPUs have exactly these NICs, whatever they are; the others are
                         planned as if these were not there. NULL: none */
};

/* -EINVAL what is no list or map, or names twice what may be named once; -ENODEV a GPU or NIC that is not there, or no
 * NIC for the GPUs. To be freed after either. The node must outlive it. */
int hw_plan_make(struct hw_plan *out, const struct hw_node *n, const struct hw_plan_want *want);
void hw_plan_free(struct hw_plan *p);

#endif

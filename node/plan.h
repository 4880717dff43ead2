/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: which NICs serve which of CUDA's GPUs, and on which CPUs a GPU's threads run.
 *
 * Candidate NICs. Never: a NIC that is down (operstate), part of a bond, or, on this machine, without an IP address. In
 * a snapshot addresses are unknown, so only operstate counts. Of the rest, the first of these kinds that exists:
 *   1. network controllers on PCI, and bonds and VLANs over them (but no VLAN over a NIC that serves itself: both are
 *      the same wire), without a default route: a default route marks the machine's management NIC
 *   2. the same with a default route
 *   3. other interfaces: veth, USB...
 *   4. loopback
 * Of these, none whose known speed is below a tenth of the fastest one's. A list of names overrides all of this.
 *
 * NICs of a GPU: the nearest by hw_pci_distance(); among NICs on other NUMA nodes the nearest of these. GPUs with the
 * same nearest NICs share them so that each NIC serves an equal share of GPUs, including the nearer GPUs that it
 * already serves: 4 GPUs and 2 NICs: 2 GPUs per NIC; 2 and 4: 2 NICs per GPU; 3 and 2: the middle GPU has both NICs. A
 * NIC that is nearest to no GPU serves none. Every GPU has at least one NIC, or there is an error.
 */
#ifndef HW_PLAN_H
#define HW_PLAN_H

#include "node/node.h"

struct hw_plan_gpu {
    int gpu;  /* the ordinal, which is also its index in hw_node.gpu */
    int *nic; /* indices in hw_node.netdev, by PCI address */
    size_t n_nics;
    const char *cpus; /* of the NUMA node, see hw_node_cpus(); "": unknown */
    bool mapped;      /* by hand */
};

struct hw_plan {
    struct hw_plan_gpu *gpu;
    size_t n_gpus;
    const char **why; /* by hw_node.netdev: why it serves no GPU; NULL: it serves one */
};

struct hw_plan_want {
    const char *gpus; /* "0-3,6"; NULL or "all": all. Only these are planned, and share NICs. */
    const char *nics; /* "eth1,eth2": only these; NULL: chosen as above */
    /* "0,1=eth1;2-3=eth2,eth4": these GPUs get exactly these NICs, of any kind; the others are planned as if these
     * were absent. NULL: none */
    const char *map;
};

/* Makes the plan. -EINVAL: an invalid list or map, or a name that is repeated; -ENODEV: an unknown GPU or NIC, or no
 * NIC for the GPUs. The caller frees out in any case; n must outlive the plan. */
int hw_plan_make(struct hw_plan *out, const struct hw_node *n, const struct hw_plan_want *want);
void hw_plan_free(struct hw_plan *p);

#endif

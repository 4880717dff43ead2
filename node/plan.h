/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan determines which NICs serve which of CUDA's GPUs, and on which CPUs a GPU's threads run.
 *
 * Candidate NICs. A NIC is never a candidate if it is down (operstate), part of another interface (such as a bond or
 * bridge) or, on this machine, without an IP address. A snapshot has no addresses, so a NIC does not need one there.
 * The candidates are the remaining NICs of the first of these kinds that exists:
 *   1. network controllers on PCI, and bonds and VLANs above them, without a default route, because a default route
 *      marks a management NIC. A VLAN above a NIC of kind 1 or 2 is left out, because both use the same wire.
 *   2. the same kinds of interfaces, with a default route
 *   3. other interfaces, such as veth and USB
 *   4. loopback
 * A candidate with a known speed below a tenth of the fastest candidate's is left out. If a list of names is given, it
 * replaces the candidates.
 *
 * The NICs of a GPU are the nearest candidates by hw_pci_distance() and, among NICs on other NUMA nodes, by the
 * firmware's distance. GPUs with the same nearest NICs share these NICs as evenly as possible, counting nearer GPUs
 * that a NIC already serves. With 4 GPUs and 2 NICs, each NIC serves 2 GPUs. With 2 GPUs and 4 NICs, each GPU has 2
 * NICs. With 3 GPUs and 2 NICs, the middle GPU has both NICs. A NIC that is not among the nearest of any GPU serves
 * none. Every GPU has at least one NIC, or the plan fails.
 */
#ifndef HW_PLAN_H
#define HW_PLAN_H

#include "node/node.h"

struct hw_plan_gpu {
    int gpu;  /* CUDA's ordinal, which is also the index in hw_node.gpu */
    int *nic; /* indices in hw_node.netdev, sorted by PCI address */
    size_t n_nics;
    const char *cpus; /* CPUs of the GPU's NUMA node, see hw_node_cpus(); "" if unknown */
    bool mapped;      /* assigned by hw_plan_want.map */
};

struct hw_plan {
    struct hw_plan_gpu *gpu;
    size_t n_gpus;
    const char **why; /* by hw_node.netdev: why the NIC serves no GPU, or NULL if it serves one */
};

struct hw_plan_want {
    const char *gpus; /* such as "0-3,6"; NULL or "all" for all. Only these GPUs are planned and share NICs. */
    const char *nics; /* such as "eth1,eth2", to use only these; NULL to choose as above */
    /* A map such as "0,1=eth1;2-3=eth2,eth4", or NULL. The listed GPUs get exactly these NICs, of any kind. The other
     * GPUs are planned as if the listed GPUs were absent. */
    const char *map;
};

/* Makes the plan. Fails with -EINVAL for an invalid list or map or a repeated name, with -ENODEV for an unknown GPU or
 * NIC or if no NIC can serve the GPUs, or with -ENOMEM. The caller frees out in any case. n must outlive the plan. */
int hw_plan_make(struct hw_plan *out, const struct hw_node *n, const struct hw_plan_want *want);
void hw_plan_free(struct hw_plan *p);

#endif

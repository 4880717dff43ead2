/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine as its sysfs shows it: PCI functions, GPUs, network interfaces, RDMA devices, NUMA nodes; of this machine
 * or of a snapshot (see sysfs.h). Nothing is guessed: a value that no file gives is unknown, and so is a malformed
 * value, with a note.
 */
#ifndef HW_NODE_H
#define HW_NODE_H

#include "net/pci.h"

#define HW_NODE_NAME 64 /* of a device or driver, including the NUL: IFNAMSIZ is 16, IB_DEVICE_NAME_MAX 64 */

struct hw_pci_dev {
    struct hw_pci_path path; /* the last element is the device's own address */
    uint32_t class;          /* 0x030200: base class, subclass, programming interface */
    uint16_t vendor, device;
    int numa;                                /* -1: not reported */
    unsigned mts, lanes, max_mts, max_lanes; /* of its link; 0: not reported */
    char driver[HW_NODE_NAME];               /* "": none */
};

struct hw_gpu {
    struct hw_bdf at;
    int pci;     /* index in hw_node.pci; -1: CUDA knows it, sysfs does not */
    int ordinal; /* CUDA's ordinal; -1: not a CUDA GPU, or hidden from CUDA */
};

struct hw_netdev {
    char name[HW_NODE_NAME];
    char driver[HW_NODE_NAME], state[HW_NODE_NAME]; /* operstate: "up", "down", "unknown"...; "": not reported */
    char master[HW_NODE_NAME];                      /* the bond or bridge that contains it; "": none */
    char over[HW_NODE_NAME];                        /* the first interface that it is stacked on (lower_*); "": none */
    char rdma[HW_NODE_NAME];                        /* the first RDMA device on the same PCI function; "": none */
    int pci;            /* index in hw_node.pci, its own or the lower interface's; -1: virtual */
    int64_t speed, mtu; /* Mb/s and bytes; -1: not reported */
    bool loopback, default_route;
    bool address; /* up with an IP address that is not link-local; only on this machine, see hw_node.live */
};

struct hw_rdma {
    char name[HW_NODE_NAME];
    int pci;                                      /* -1: software */
    char state[HW_NODE_NAME], rate[64], link[32]; /* of port 1: "ACTIVE", "400 Gb/sec (4X NDR)", "Ethernet" */
};

struct hw_numa {
    int id;
    char *cpus; /* "0-51,104-155"; "": a node with memory only */
    size_t n_cpus;
    int package;        /* of its first CPU; -1: not reported */
    unsigned *distance; /* to each of hw_node.numa; NULL: not reported */
};

struct hw_node {
    char machine[128];        /* "Google Google Compute Engine", from the firmware; "": not reported */
    char *cpus;               /* all online CPUs; "": not reported */
    bool live;                /* this machine, so addresses are known */
    struct hw_pci_dev *pci;   /* by address */
    struct hw_gpu *gpu;       /* CUDA's by ordinal, then other display controllers by address */
    struct hw_netdev *netdev; /* by name, eth2 before eth10 */
    struct hw_rdma *rdma;
    struct hw_numa *numa; /* by id */
    char **note;          /* faults in the files, one line each */
    size_t n_pci, n_gpu, n_cuda, n_netdev, n_rdma, n_numa, n_note, notes_lost;
};

struct hw_scan {
    /* PCI addresses of CUDA's GPUs, by ordinal. NULL: NVIDIA's display controllers are numbered by address, like
     * CUDA_DEVICE_ORDER=PCI_BUS_ID (CUDA C++ Programming Guide, "CUDA Environment Variables"). */
    const struct hw_bdf *cuda;
    size_t n_cuda;
    bool live; /* root is this machine's: ask the kernel for the interfaces' addresses */
};

/* Reads everything from root (see hw_root_open()). -ENOENT if root has no sys/, -ENOMEM. The caller frees out in any
 * case. */
int hw_node_scan(struct hw_node *out, int root, const struct hw_scan *opt);
void hw_node_free(struct hw_node *n);

/* Returns the distance; HW_DIST_SYS if one of them has no PCI path (pci < 0). */
enum hw_dist hw_node_distance(const struct hw_node *n, int pci_a, int pci_b);
/* Returns the distance between NUMA nodes by id, in the firmware's units (10: the same node); 0: not reported. */
unsigned hw_node_numa_distance(const struct hw_node *n, int a, int b);
/* Returns numa's CPUs, or all CPUs if numa is -1 or has none. */
const char *hw_node_cpus(const struct hw_node *n, int numa);
static inline int hw_node_numa_of(const struct hw_node *n, int pci)
{
    return pci < 0 ? -1 : n->pci[pci].numa;
}
/* Returns "NVIDIA", "AMD"... for vendors of GPUs, "" for others. */
const char *hw_pci_vendor(uint16_t vendor);

#endif

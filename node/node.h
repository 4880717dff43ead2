/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a machine from its sysfs: PCI functions, GPUs, network interfaces, RDMA devices and NUMA nodes. The sysfs
 * is either this machine's or a snapshot's (see sysfs.h). A value that no file contains is unknown, and is not guessed.
 * A malformed value is also unknown, and most such values are recorded in a note.
 */
#ifndef HW_NODE_H
#define HW_NODE_H

#include "net/pci.h"

#define HW_NODE_NAME 64 /* bytes of a device or driver name with its NUL; IFNAMSIZ is 16, IB_DEVICE_NAME_MAX 64 */

struct hw_pci_dev {
    struct hw_pci_path path; /* the last element is the device's own address */
    uint32_t class;          /* base class, subclass and programming interface, such as 0x030200 */
    uint16_t vendor, device;
    int numa;                                /* -1 if not reported */
    unsigned mts, lanes, max_mts, max_lanes; /* transfer rates (MT/s) and widths of the PCIe link; 0 if not reported */
    char driver[HW_NODE_NAME];               /* "" if none */
};

struct hw_gpu {
    struct hw_bdf at;
    int pci;     /* index in hw_node.pci, or -1 if CUDA reports the GPU but sysfs does not */
    int ordinal; /* CUDA's ordinal, or -1 if the GPU is hidden from CUDA or does not support it */
};

struct hw_netdev {
    char name[HW_NODE_NAME];
    /* state is operstate, such as "up", "down" or "unknown"; both are "" if not reported */
    char driver[HW_NODE_NAME], state[HW_NODE_NAME];
    char master[HW_NODE_NAME]; /* the bond, bridge or other interface that contains this interface; "" if none */
    char over[HW_NODE_NAME]; /* if the interface has no PCI function, the first interface below it (lower_*); else "" */
    char rdma[HW_NODE_NAME]; /* the first RDMA device on the interface's own PCI function; "" if none */
    int pci; /* index in hw_node.pci of the PCI function, its own or the lower interface's; -1 if none, as for a veth */
    int64_t speed, mtu; /* Mbit/s and bytes; -1 if not reported */
    bool loopback, default_route;
    bool address; /* up and has an IPv4 or a non-link-local IPv6 address; known only if hw_node.live */
};

struct hw_rdma {
    char name[HW_NODE_NAME];
    int pci; /* index in hw_node.pci; -1 if none, as for a software device */
    /* values of port 1, such as "ACTIVE", "400 Gb/sec (4X NDR)" and "Ethernet" */
    char state[HW_NODE_NAME], rate[64], link[32];
};

struct hw_numa {
    int id;
    char *cpus; /* such as "0-51,104-155"; "" if the node has only memory */
    size_t n_cpus;
    int package;        /* package of the node's first CPU; -1 if not reported */
    unsigned *distance; /* distance to each of hw_node.numa; NULL if not reported */
};

struct hw_node {
    char machine[128];        /* the firmware's name, such as "Google Compute Engine"; "" if not reported */
    char *cpus;               /* all online CPUs; "" if not reported */
    bool live;                /* the scan was of this machine, so IP addresses are known */
    struct hw_pci_dev *pci;   /* sorted by address */
    struct hw_gpu *gpu;       /* CUDA's GPUs by ordinal, then the others by address */
    struct hw_netdev *netdev; /* sorted by name, eth2 before eth10 */
    struct hw_rdma *rdma;
    struct hw_numa *numa; /* sorted by ID */
    char **note;          /* problems that the scan found, one line each */
    size_t n_pci, n_gpu, n_cuda, n_netdev, n_rdma, n_numa, n_note, notes_lost;
};

struct hw_scan {
    /* PCI addresses of CUDA's GPUs, by ordinal. If NULL, NVIDIA's GPUs are numbered by address, as with
     * CUDA_DEVICE_ORDER=PCI_BUS_ID (CUDA C++ Programming Guide, "CUDA Environment Variables"). */
    const struct hw_bdf *cuda;
    size_t n_cuda;
    bool live; /* root belongs to this machine, so the kernel is asked for addresses */
};

/* Scans the machine or snapshot below root (see hw_root_open()). Returns 0. Fails with -ENOENT if root has no sys/,
 * with -ENOMEM or, if opt->live, with another -errno from listing the addresses. The caller frees out in any case. */
int hw_node_scan(struct hw_node *out, int root, const struct hw_scan *opt);
void hw_node_free(struct hw_node *n);

/* Returns the distance between two PCI functions, or HW_DIST_SYS if one of them has no PCI path (index < 0). */
enum hw_dist hw_node_distance(const struct hw_node *n, int pci_a, int pci_b);
/* Returns the distance between two NUMA nodes by ID, in the firmware's units (10 is the same node), or 0 if not
 * reported. */
unsigned hw_node_numa_distance(const struct hw_node *n, int a, int b);
/* Returns the CPUs of a NUMA node, or all online CPUs if the node is unknown (such as -1) or has none. */
const char *hw_node_cpus(const struct hw_node *n, int numa);
static inline int hw_node_numa_of(const struct hw_node *n, int pci)
{
    return pci < 0 ? -1 : n->pci[pci].numa;
}
/* Returns the name of a vendor of GPUs, such as "NVIDIA" or "AMD", or "" for other vendors. */
const char *hw_pci_vendor(uint16_t vendor);

#endif

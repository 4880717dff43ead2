/* SPDX-License-Identifier: Apache-2.0 */
/* PCI addresses, the path from a device up to its root complex, the distance between two devices, and link speeds. No
 * function reads sysfs. */
#ifndef HW_PCI_H
#define HW_PCI_H

#include "base/base.h"

struct hw_bdf {
    uint32_t domain;
    uint8_t bus, slot, fn;
};
#define HW_BDF_TEXT 20

/* Parses an address such as "0000:19:00.0", in upper or lower case, with a domain of 4 to 8 digits (sysfs uses 4 or
 * more, NVML 8). Fails with -EINVAL and echoes the text. */
int hw_bdf_parse(const char *text, struct hw_bdf *out);
/* Writes the address in the format of sysfs. buf must hold HW_BDF_TEXT bytes. Returns buf. */
char *hw_bdf_text(struct hw_bdf b, char *buf);
int hw_bdf_cmp(struct hw_bdf a, struct hw_bdf b);

#define HW_PCI_DEPTH 32 /* maximum number of devices on a path */

/* The bridges from the host bridge down. The device itself is last. */
struct hw_pci_path {
    char root[20]; /* such as "pci0000:00", or "" if there is none */
    unsigned depth;
    struct hw_bdf at[HW_PCI_DEPTH];
};
/* Parses a sysfs link such as "../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/virtio2/net/eth0", from the root to
 * the last PCI device. Fails with -ENOENT if there is no PCI device (a virtual device), and with -E2BIG if there are
 * more than HW_PCI_DEPTH PCI devices. */
int hw_pci_path_parse(const char *link, struct hw_pci_path *out);

/* Parses a speed such as "16.0 GT/s PCIe" into MT/s. "Unknown" results in 0 (drivers/pci/probe.c, pci_speed_string()).
 * Fails with -EINVAL and echoes the text. */
int hw_pci_speed_parse(const char *text, unsigned *out);
/* Returns the rate of a link with this number of lanes, in MB/s for one direction and before packet overhead, or 0 if
 * unknown. The coding is 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, and 242 bytes of each 256-byte flit at 64 GT/s
 * (PCI Express Base Specification 6.0, 4.2). */
unsigned hw_pci_MBps(unsigned mts, unsigned lanes);

/*
 * Names and meaning are those of `nvidia-smi topo --matrix` (see its legend; NVML's nvmlGpuTopologyLevel_t has the same
 * levels):
 *   X     the same device
 *   PIX   at most a single PCIe bridge: the same bus, or two ports of one switch
 *   PXB   several bridges, but not the host bridge
 *   PHB   the host bridge: the same root complex, different root ports
 *   NODE  two host bridges of one NUMA node
 *   SYS   two NUMA nodes
 * In sysfs each port of a switch is a device. Let c be the number of steps that the two paths have in common. Different
 * roots: NODE if numa_node is the same number, which may be -1 (unknown), else SYS. Equal paths: X. c = 0: PHB. Then,
 * if each path has at most one bridge below the common part, PIX, else PXB.
 */
enum hw_dist { HW_DIST_X, HW_DIST_PIX, HW_DIST_PXB, HW_DIST_PHB, HW_DIST_NODE, HW_DIST_SYS };
enum hw_dist hw_pci_distance(const struct hw_pci_path *a, int numa_a, const struct hw_pci_path *b, int numa_b);
const char *hw_dist_name(enum hw_dist d);

#endif

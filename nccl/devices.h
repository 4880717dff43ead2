/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that the plugin presents to NCCL. NCCL spreads its channels over the devices, so there are at least
 * HN_DEVICES if there is a NIC, assigned to the NICs round-robin. Each device has its NIC's position in the PCI tree,
 * so that NCCL gives a GPU the devices near it.
 *
 * NICs that are near the same GPUs form a group. If several groups have a GPU, and there are at least as many processes
 * as groups with a GPU, a link that this process connects for a device uses the NICs of the device's group, and other
 * NICs only while no NIC of the group works (hawser_connect_options.prefer). Otherwise every link uses all NICs.
 * HAWSER_NCCL_NEAR overrides both the groups and the choice, for measurements.
 */
#ifndef HN_DEVICES_H
#define HN_DEVICES_H

#include "net/nic.h"
#include "net/pci.h"

#define HN_DEVICES  5
#define HN_NICS_MAX 32
#define HN_NO_RAIL  (-1) /* same value as NCCL_NET_ID_UNDEF */

struct hn_nic {
    char name[HAWSER_NIC_NAME];
    union hw_addr ip;
    /* set by hn_find_places() */
    struct hw_pci_path pci; /* depth is 0 if the NIC has no PCI path */
    int numa;               /* -1 if unknown */
    uint64_t mbps;          /* 0 if unknown */
    bool down;              /* has no carrier; physical NICs then report no speed */
};

struct hn_device {
    unsigned nic;
    int mbps; /* this device's share of its NIC's speed, or of the speed of all NICs (share_speed()) */
    int rail; /* number of the rail in the map; HN_NO_RAIL if unknown, or if each device sends over several NICs */
    char name[32], pci[256];
};

/* Reads each NIC's position in the machine and speed from sysfs below root (net/sysfs.h). Values that sysfs does not
 * report remain unknown. */
void hn_find_places(int root, struct hn_nic *nic, unsigned n);

/* Returns the sum of the NICs' speeds in Mb/s, or 0 if a NIC with a carrier does not report its speed, or if no NIC has
 * a carrier. */
uint64_t hn_sum_speeds(const struct hn_nic *nic, unsigned n);

/* Assigns each of at most HN_NICS_MAX NICs to a group, numbered from 0, in group[]. If an NVIDIA GPU is below a PCIe
 * root port, the NICs below this port form a group. The other physical NICs form one group per NUMA node, and so do the
 * virtual NICs. Returns how many groups have a GPU below the same root port or, if there is no such group, a GPU on the
 * same NUMA node. */
unsigned hn_group_nics(int root, const struct hn_nic *nic, unsigned n, uint8_t *group);

/* Fills out, which needs at least HN_NICS_MAX entries, and returns the number of devices, or 0 if n is 0. If apart is
 * true, there are several groups of NICs: each NIC has at least one device, and the NIC's devices have its position and
 * share its speed. Otherwise there are HN_DEVICES devices, which share the speed of all NICs. The number of devices
 * must not depend on the NICs, because NCCL before 2.29.2 hangs if ranks have different numbers of devices. rails is a
 * map of rails (net/rails.h), or "" for none. */
unsigned hn_make_devices(const struct hn_nic *nic, unsigned n, bool apart, const char *rails, struct hn_device *out);

#endif

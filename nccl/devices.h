/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that NCCL is shown. NCCL spreads its channels over devices, two for each, so that there are four at
 * least, dealt to the NICs in turn. Each has the place of its NIC in the machine, so that NCCL gives a GPU the devices
 * near it.
 *
 * NICs that are near the same GPUs are a group. Where each group has a GPU, and there are as many processes as groups,
 * what NCCL sends by a device goes by the NICs of its group, and by the others where none of these works
 * (hawser_connect_options.prefer). In all other cases every device sends by all NICs.
 */
#ifndef HN_DEVICES_H
#define HN_DEVICES_H

#include "net/nic.h"
#include "net/pci.h"

#define HN_DEVICES  5
#define HN_NICS_MAX 32
#define HN_NO_RAIL  (-1) /* NCCL_NET_ID_UNDEF */

struct hn_nic {
    char name[HAWSER_NIC_NAME];
    union hw_addr ip;
    /* hn_find_places() */
    struct hw_pci_path pci; /* depth 0: a virtual one */
    int numa;               /* -1: not said */
    uint64_t mbps;          /* 0: not said */
};

struct hn_device {
    unsigned nic;
    int mbps; /* of the NIC's rate this device's part */
    int rail; /* NICs of one number are on one rail; HN_NO_RAIL: not said */
    char name[32], pci[256];
};

/* Reads from sysfs below root (net/sysfs.h) where each NIC is and how fast; what is not said there stays unknown. */
void hn_find_places(int root, struct hn_nic *nic, unsigned n);

/* Fills group[i] for each of at most HN_NICS_MAX NICs, numbered from 0: those below one PCIe root port with a GPU of
 * NVIDIA's are a group; the others on one NUMA node; and those without a place. Returns how many groups have a GPU:
 * below the same root port, or, where there is none of these, on the same NUMA node. */
unsigned hn_group_nics(int root, const struct hn_nic *nic, unsigned n, uint8_t *group);

/* Fills out (HN_NICS_MAX at least) and returns how many there are; 0 where n is. apart: there are several groups of
 * NICs: each NIC has a device at least, at its place and with its rate. Else there are HN_DEVICES, whatever the NICs,
 * that share the rate of all: NCCL before 2.29.2 hangs where ranks count devices differently. rails: a map of rails
 * (net/paths.h), "": none. */
unsigned hn_make_devices(const struct hn_nic *nic, unsigned n, bool apart, const char *rails, struct hn_device *out);

#endif

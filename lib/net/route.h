/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of the way to an address, and of the hardware below a NIC: rtnetlink(7). */
#ifndef HW_ROUTE_H
#define HW_ROUTE_H

#include "net/nic.h"

/* A socket for the functions below. A descriptor or -errno: without one (a sandbox that has no netlink) they guess. */
int hw_route_open(void);

/*
 * Fills device[i] with a number of the hardware below nics[i]: the same for a NIC and the VLANs and macvlans on it; 0
 * where there is none (a veth, a tunnel, a bridge without ports of hardware). Where fd < 0, or no NIC has any, all are
 * taken for hardware of their own.
 */
void hw_route_devices(int fd, const struct hw_nic *nics, size_t n, uint64_t *device);

/* How `to` is reached from nic with its address as source: HW_WAY_* (net/paths.h). Where fd < 0: a subnet is a link,
 * all else may be behind a gateway. */
uint8_t hw_route_way(int fd, const struct hw_nic *nic, const union hw_addr *to);

#endif

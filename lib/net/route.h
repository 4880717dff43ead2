/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of the route to an address and of the hardware below a NIC: rtnetlink(7). */
#ifndef HW_ROUTE_H
#define HW_ROUTE_H

#include "net/nic.h"

/* Opens a socket for the functions below. Returns a descriptor or -errno; without a socket (in a sandbox without
 * netlink) they guess. */
int hw_route_open(void);

/*
 * Sets device[i] to a number for the hardware below nics[i]: equal for a NIC and its VLANs and macvlans; 0 if there is
 * none (a veth, a tunnel, a bridge without hardware ports). If fd < 0, or no NIC has hardware, each NIC counts as
 * separate hardware.
 */
void hw_route_devices(int fd, const struct hw_nic *nics, size_t n, uint64_t *device);

/* Returns how `to` is reached from nic with nic's address as source: HW_WAY_* (net/paths.h). If fd < 0: an address in
 * nic's subnet is on the link, every other one may be behind a gateway. */
uint8_t hw_route_way(int fd, const struct hw_nic *nic, const union hw_addr *to);

#endif

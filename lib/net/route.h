/* SPDX-License-Identifier: Apache-2.0 */
/* Queries the kernel for the route to an address and for the hardware below a NIC, through rtnetlink(7). */
#ifndef HW_ROUTE_H
#define HW_ROUTE_H

#include "net/nic.h"

/* Opens a socket for the functions below. Returns a descriptor or a negative errno. Without a socket (in a sandbox
 * without netlink) the functions guess. */
int hw_route_open(void);

/*
 * Sets device[i] to a number for the hardware below nics[i]. The number is equal for a NIC and its VLANs and macvlans,
 * and 0 if there is no hardware (a veth, a tunnel, a bridge without hardware ports). If fd is negative, if the query
 * fails, or if no NIC has hardware, each NIC counts as separate hardware.
 */
void hw_route_devices(int fd, const struct hw_nic *nics, size_t n, uint64_t *device);

/* Returns how `to` is reached from nic with the address of nic as source, as HW_WAY_* (net/paths.h). If fd is negative,
 * guesses the result from the subnet of nic. */
uint8_t hw_route_way(int fd, const struct hw_nic *nic, const union hw_addr *to);

#endif

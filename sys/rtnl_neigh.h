/* SPDX-License-Identifier: Apache-2.0 */
/* The rtnetlink functions for neighbours. A neighbour is the Ethernet address to which the kernel sends packets for an
 * IP address on a link. */
#ifndef HW_SYS_RTNL_NEIGH_H
#define HW_SYS_RTNL_NEIGH_H

#include "sys/netlink.h"

struct hw_rtnl_neigh {
    int index;      /* index of the link */
    uint8_t family; /* AF_INET or AF_INET6 */
    uint8_t ip[16]; /* in network order */
    uint8_t mac[6];
    uint16_t state; /* NUD_* from linux/neighbour.h */
};

/* Lists up to cap neighbours of this link that have an IP address and an Ethernet address. Leaves out neighbours that
 * need no resolution (NUD_NOARP), such as broadcast and multicast addresses. r is a NETLINK_ROUTE socket. Returns the
 * number of neighbours, which may exceed cap, or -errno. */
int hw_rtnl_neigh_list(struct hw_netlink *r, int index, struct hw_rtnl_neigh *out, size_t cap);
/* Adds a neighbour, or replaces the neighbour with the same address. Returns 0 or -errno. */
int hw_rtnl_neigh_set(struct hw_netlink *r, const struct hw_rtnl_neigh *n);

#endif

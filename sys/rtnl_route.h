/* SPDX-License-Identifier: Apache-2.0 */
/* The rtnetlink functions for fabrics: IPv4 routes and rules, and the forwarding and ARP of a link. */
#ifndef HW_SYS_RTNL_ROUTE_H
#define HW_SYS_RTNL_ROUTE_H

#include "sys/rtnl.h"

struct hw_rtnl_route {
    struct in_addr to; /* network order */
    unsigned prefix;
    struct in_addr via; /* gateway; 0 if the destination is on the link */
    int index;          /* index of the link; 0 makes the destination unreachable */
    uint32_t table;     /* 0 means the main table */
};

struct hw_rtnl_rule {
    uint32_t priority, table;
    const char *iif;     /* matches packets that arrive on this link; NULL matches all */
    struct in_addr from; /* matches packets with this source; 0 matches all */
};

/* Adds a route. Fails with -EEXIST if the table already has the route. */
int hw_rtnl_route_add(struct hw_netlink *r, const struct hw_rtnl_route *route);
int hw_rtnl_rule_add(struct hw_netlink *r, const struct hw_rtnl_rule *rule);

/* Enables forwarding of packets that arrive on this link. This sets the link's sysctl "forwarding" without a writable
 * /proc/sys. */
int hw_rtnl_link_forward(struct hw_netlink *r, int index);
/* Disables sending and answering ARP requests on the link. */
int hw_rtnl_link_no_arp(struct hw_netlink *r, int index);

#endif

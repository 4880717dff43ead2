/* SPDX-License-Identifier: Apache-2.0 */
/* The rtnetlink of fabrics: IPv4 routes, rules, and what makes a router's port of a link. */
#ifndef HW_SYS_RTNL_ROUTE_H
#define HW_SYS_RTNL_ROUTE_H

#include "sys/rtnl.h"

struct hw_rtnl_route {
    struct in_addr to; /* network order */
    unsigned prefix;
    struct in_addr via; /* the gateway; 0: on the link */
    int index;          /* the link; 0: none, the destination is unreachable */
    uint32_t table;     /* 0: main */
};

struct hw_rtnl_rule {
    uint32_t priority, table;
    const char *iif;     /* packets that come in by this link; NULL: any */
    struct in_addr from; /* packets of this source; 0: any */
};

/* Adds a route. -EEXIST where the table has it already. */
int hw_rtnl_route_add(struct hw_netlink *r, const struct hw_rtnl_route *route);
int hw_rtnl_rule_add(struct hw_netlink *r, const struct hw_rtnl_rule *rule);

/* Lets packets that come in by this link be forwarded: the link's sysctl "forwarding", without a writable /proc/sys. */
int hw_rtnl_link_forward(struct hw_netlink *r, int index);
/* The link neither sends nor answers ARP requests. */
int hw_rtnl_link_no_arp(struct hw_netlink *r, int index);

#endif

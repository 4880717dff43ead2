/* SPDX-License-Identifier: Apache-2.0 */
/* The rtnetlink that labs and sandboxes need: links, addresses, a token bucket. r: a socket of NETLINK_ROUTE. */
#ifndef HW_SYS_RTNL_H
#define HW_SYS_RTNL_H

#include "sys/netlink.h"

#include <net/if.h>
#include <netinet/in.h>

struct hw_rtnl_link {
    int index;
    int peer;   /* a veth's other end: its index, in its own namespace; a VLAN's lower device; 0: none */
    int master; /* the bridge it is a port of; 0: none */
    uint32_t mtu;
    bool up;      /* the administrator's wish */
    bool running; /* and it has a carrier */
    char name[IFNAMSIZ];
    char kind[16]; /* "veth", "bridge", ...; empty for hardware and lo */
    uint8_t mac[6];
};

/* Finds a link by name. -ENODEV. */
int hw_rtnl_link_get(struct hw_netlink *r, const char *name, struct hw_rtnl_link *out);
/* Fills up to cap links in the kernel's order. Returns how many there are (perhaps more than cap), or -errno. */
int hw_rtnl_link_list(struct hw_netlink *r, struct hw_rtnl_link *out, size_t cap);

/* One end of a veth pair to be. */
struct hw_rtnl_end {
    const char *name;
    int index; /* 0: the kernel picks one. See hw_rtnl_veth_add() */
    int ns;    /* -1: the socket's */
};

/* Makes a veth pair, both ends with this MTU (0: default). Where the ends lie in two namespaces, give them two indices:
 * the kernel takes an end whose peer has the same index for no veth, and acts on its carrier up to a second late
 * (linkwatch_urgent_event() in net/core/link_watch.c). */
int hw_rtnl_veth_add(struct hw_netlink *r, const struct hw_rtnl_end *here, const struct hw_rtnl_end *there,
                     uint32_t mtu);
int hw_rtnl_bridge_add(struct hw_netlink *r, const char *name, uint32_t mtu);
/* Deletes a link; a veth's other end goes with it. */
int hw_rtnl_link_del(struct hw_netlink *r, int index);

int hw_rtnl_link_up(struct hw_netlink *r, int index, bool up);
int hw_rtnl_link_master(struct hw_netlink *r, int index, int master); /* master 0: leaves its bridge */
/* The link must be down on old kernels (before 6.2). */
int hw_rtnl_link_rename(struct hw_netlink *r, int index, const char *name);
/* Moves a link to the namespace behind ns, under a new name or (NULL) its own. It arrives down, with no addresses. */
int hw_rtnl_link_move(struct hw_netlink *r, int index, int ns, const char *name);

/* addr is in network order. -EEXIST where it has it already. */
int hw_rtnl_addr_add(struct hw_netlink *r, int index, struct in_addr addr, unsigned prefix);
/* The link's first IPv4 address; prefix may be NULL. -EADDRNOTAVAIL where it has none. */
int hw_rtnl_addr_get(struct hw_netlink *r, int index, struct in_addr *addr, unsigned *prefix);

/* Puts a token bucket at the link's root, or changes the one that is there. rate in bits a second, burst and limit
 * in bytes. rate 0: takes it away; harmless where there is none. */
int hw_rtnl_tbf_set(struct hw_netlink *r, int index, uint64_t rate, uint32_t burst, uint32_t limit);
/* The rate of the token bucket at the link's root in bits a second; 0: there is none. */
int hw_rtnl_tbf_get(struct hw_netlink *r, int index, uint64_t *rate);

#endif

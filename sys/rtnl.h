/* SPDX-License-Identifier: Apache-2.0 */
/* The rtnetlink functions of labs and sandboxes: links, addresses, a token bucket. r: a socket of NETLINK_ROUTE. */
#ifndef HW_SYS_RTNL_H
#define HW_SYS_RTNL_H

#include "sys/netlink.h"

#include <net/if.h>
#include <netinet/in.h>

struct hw_rtnl_link {
    int index;
    int peer;   /* a veth's other end: its index in its own namespace; a VLAN's lower device; 0: none */
    int master; /* the bridge of a port; 0: none */
    uint32_t mtu;
    bool up;      /* administratively up */
    bool running; /* up, and has a carrier */
    char name[IFNAMSIZ];
    char kind[16]; /* "veth", "bridge", ...; empty for hardware and lo */
    uint8_t mac[6];
};

/* Finds a link by name. -ENODEV. */
int hw_rtnl_link_get(struct hw_netlink *r, const char *name, struct hw_rtnl_link *out);
/* Lists up to cap links in the kernel's order. Returns how many there are (may exceed cap), or -errno. */
int hw_rtnl_link_list(struct hw_netlink *r, struct hw_rtnl_link *out, size_t cap);

/* One end of a new veth pair. */
struct hw_rtnl_end {
    const char *name;
    int index; /* 0: the kernel picks one. See hw_rtnl_veth_add() */
    int ns;    /* -1: the namespace of the socket */
};

/* Makes a veth pair, both ends with this MTU (0: default). If the ends are in two namespaces, give them different
 * indices: the kernel does not recognise an end as a veth if its peer has the same index, and handles its carrier up to
 * a second late (linkwatch_urgent_event() in net/core/link_watch.c). */
int hw_rtnl_veth_add(struct hw_netlink *r, const struct hw_rtnl_end *here, const struct hw_rtnl_end *there,
                     uint32_t mtu);
int hw_rtnl_bridge_add(struct hw_netlink *r, const char *name, uint32_t mtu);
/* Deletes a link; also deletes a veth's other end. */
int hw_rtnl_link_del(struct hw_netlink *r, int index);

int hw_rtnl_link_up(struct hw_netlink *r, int index, bool up);
int hw_rtnl_link_master(struct hw_netlink *r, int index, int master); /* master 0: leaves its bridge */
/* The link must be down on old kernels (before 6.2). */
int hw_rtnl_link_rename(struct hw_netlink *r, int index, const char *name);
/* Moves a link to the namespace ns, with a new name or (NULL) its own. It arrives down and without addresses. */
int hw_rtnl_link_move(struct hw_netlink *r, int index, int ns, const char *name);

/* Adds an address in network order. -EEXIST if the link has it already. */
int hw_rtnl_addr_add(struct hw_netlink *r, int index, struct in_addr addr, unsigned prefix);
/* Returns the link's first IPv4 address; prefix may be NULL. -EADDRNOTAVAIL if it has none. */
int hw_rtnl_addr_get(struct hw_netlink *r, int index, struct in_addr *addr, unsigned *prefix);

/* Adds a token bucket at the link's root, or changes the existing one. rate in bits per second, burst and limit in
 * bytes. rate 0: removes it; harmless if there is none. */
int hw_rtnl_tbf_set(struct hw_netlink *r, int index, uint64_t rate, uint32_t burst, uint32_t limit);
/* Reads the rate of the token bucket at the link's root in bits per second; 0: there is none. */
int hw_rtnl_tbf_get(struct hw_netlink *r, int index, uint64_t *rate);

#endif

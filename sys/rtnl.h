/* SPDX-License-Identifier: Apache-2.0 */
/* The rtnetlink functions that labs and sandboxes use, for links, IPv4 addresses and a token bucket. r is a
 * NETLINK_ROUTE socket. */
#ifndef HW_SYS_RTNL_H
#define HW_SYS_RTNL_H

#include "sys/netlink.h"

#include <net/if.h>
#include <netinet/in.h>

struct hw_rtnl_link {
    int index;
    int peer;   /* index of a veth's other end in that end's namespace, or of the device below a VLAN; 0 if none */
    int master; /* index of the bridge or bond that the link belongs to; 0 if none */
    uint32_t mtu;
    bool up;      /* administratively up */
    bool running; /* up and has a carrier */
    char name[IFNAMSIZ];
    char kind[16]; /* such as "veth" or "bridge"; empty for hardware and lo */
    uint8_t mac[6];
};

/* Finds a link by name. Fails with -ENODEV if there is none. */
int hw_rtnl_link_get(struct hw_netlink *r, const char *name, struct hw_rtnl_link *out);
/* Lists up to cap links in the kernel's order. Returns the number of links, which may exceed cap, or -errno. */
int hw_rtnl_link_list(struct hw_netlink *r, struct hw_rtnl_link *out, size_t cap);

/* One end of a new veth pair. */
struct hw_rtnl_end {
    const char *name;
    int index; /* 0 lets the kernel choose; see hw_rtnl_veth_add() */
    int ns;    /* -1 means the namespace of the socket */
};

/* Creates a veth pair, with this MTU on both ends (0 for the default). If the ends are in two namespaces, give them
 * different indices: the kernel does not recognise an end as a veth if its peer has the same index, and then handles
 * carrier changes up to a second late (linkwatch_urgent_event() in net/core/link_watch.c). */
int hw_rtnl_veth_add(struct hw_netlink *r, const struct hw_rtnl_end *here, const struct hw_rtnl_end *there,
                     uint32_t mtu);
int hw_rtnl_bridge_add(struct hw_netlink *r, const char *name, uint32_t mtu);
/* Deletes a link. The other end of a veth is deleted with it. */
int hw_rtnl_link_del(struct hw_netlink *r, int index);

int hw_rtnl_link_up(struct hw_netlink *r, int index, bool up);
int hw_rtnl_link_master(struct hw_netlink *r, int index, int master); /* master 0 removes the link from its bridge */
/* Renames a link. Before Linux 6.2 the link must be down. */
int hw_rtnl_link_rename(struct hw_netlink *r, int index, const char *name);
/* Moves a link to the namespace ns, under a new name unless name is NULL. The link arrives down and without
 * addresses. */
int hw_rtnl_link_move(struct hw_netlink *r, int index, int ns, const char *name);

/* Adds an address in network order. Fails with -EEXIST if the link already has the address. */
int hw_rtnl_addr_add(struct hw_netlink *r, int index, struct in_addr addr, unsigned prefix);
/* Gets the link's first IPv4 address, in network order. prefix may be NULL. Fails with -EADDRNOTAVAIL if the link has
 * none. */
int hw_rtnl_addr_get(struct hw_netlink *r, int index, struct in_addr *addr, unsigned *prefix);

/* Adds a token bucket at the link's root, or changes the existing one. rate is in bits per second, burst and limit in
 * bytes. A rate of 0 removes the token bucket, if there is one. */
int hw_rtnl_tbf_set(struct hw_netlink *r, int index, uint64_t rate, uint32_t burst, uint32_t limit);
/* Reads the rate of the token bucket at the link's root, in bits per second; 0 if there is none. */
int hw_rtnl_tbf_get(struct hw_netlink *r, int index, uint64_t *rate);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rtnetlink that labs and sandboxes need: links, addresses, a token bucket. A socket belongs to the network
 * namespace that the calling thread was in when it was opened, and keeps working on it from anywhere.
 */
#ifndef HW_SYS_RTNL_H
#define HW_SYS_RTNL_H

#include "base/base.h"

#include <net/if.h>
#include <netinet/in.h>

struct hw_rtnl {
    int fd; /* -1: closed */
    uint32_t seq;
    bool torn; /* what the last dump listed changed under it (NLM_F_DUMP_INTR): dump again */
};

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

/* Opens a socket in the calling thread's network namespace. */
int hw_rtnl_open(struct hw_rtnl *r);
/* Takes over a route-netlink socket made elsewhere (in another namespace, say). */
void hw_rtnl_adopt(struct hw_rtnl *r, int fd);
void hw_rtnl_close(struct hw_rtnl *r);

/* The talk itself, for who needs more than what is below; also with other protocols than NETLINK_ROUTE. */
struct nlmsghdr;
int hw_rtnl_open_protocol(struct hw_rtnl *r, int protocol);
#define HW_RTNL_REQUEST 1024 /* bytes: the longest request made here is some 200 */
/* A request in buf (HW_RTNL_REQUEST bytes), without its family's header. */
struct nlmsghdr *hw_rtnl_request(void *buf, uint16_t type, uint16_t flags);
/* Called for each message that answers a request; returns 0 or -errno, which ends the talk. */
typedef int (*hw_rtnl_fn)(const struct nlmsghdr *h, void *arg);
/* Sends h, which is complete but for its sequence number, and hands the answers to fn (may be NULL), up to the
 * acknowledgement or the end of a dump. what: for the error's text. -errno, the kernel's too, with its reason. */
int hw_rtnl_talk(struct hw_rtnl *r, struct nlmsghdr *h, hw_rtnl_fn fn, void *arg, const char *what);

/* Finds a link by name. -ENODEV. */
int hw_rtnl_link_get(struct hw_rtnl *r, const char *name, struct hw_rtnl_link *out);
/* Fills up to cap links in the kernel's order. Returns how many there are (perhaps more than cap), or -errno. */
int hw_rtnl_link_list(struct hw_rtnl *r, struct hw_rtnl_link *out, size_t cap);

/* One end of a veth pair to be. */
struct hw_rtnl_end {
    const char *name;
    int index; /* 0: the kernel picks one. See hw_rtnl_veth_add() */
    int ns;    /* -1: the socket's */
};

/* Makes a veth pair, both ends with this MTU (0: default). Where the ends lie in two namespaces, give them two indices:
 * the kernel takes an end whose peer has the same index for no veth, and acts on its carrier up to a second late
 * (linkwatch_urgent_event() in net/core/link_watch.c). */
int hw_rtnl_veth_add(struct hw_rtnl *r, const struct hw_rtnl_end *here, const struct hw_rtnl_end *there, uint32_t mtu);
int hw_rtnl_bridge_add(struct hw_rtnl *r, const char *name, uint32_t mtu);
/* Deletes a link; a veth's other end goes with it. */
int hw_rtnl_link_del(struct hw_rtnl *r, int index);

int hw_rtnl_link_up(struct hw_rtnl *r, int index, bool up);
int hw_rtnl_link_mtu(struct hw_rtnl *r, int index, uint32_t mtu);
int hw_rtnl_link_master(struct hw_rtnl *r, int index, int master); /* master 0: leaves its bridge */
/* The link must be down on old kernels (before 6.2). */
int hw_rtnl_link_rename(struct hw_rtnl *r, int index, const char *name);
/* Moves a link to the namespace behind ns, under a new name or (NULL) its own. It arrives down, with no addresses. */
int hw_rtnl_link_move(struct hw_rtnl *r, int index, int ns, const char *name);

/* addr is in network order. -EEXIST where it has it already. */
int hw_rtnl_addr_add(struct hw_rtnl *r, int index, struct in_addr addr, unsigned prefix);
/* The link's first IPv4 address; prefix may be NULL. -EADDRNOTAVAIL where it has none. */
int hw_rtnl_addr_get(struct hw_rtnl *r, int index, struct in_addr *addr, unsigned *prefix);

/* Puts a token bucket at the link's root, or changes the one that is there. rate in bits a second, burst and limit
 * in bytes. rate 0: takes it away; harmless where there is none. */
int hw_rtnl_tbf_set(struct hw_rtnl *r, int index, uint64_t rate, uint32_t burst, uint32_t limit);
/* The rate of the token bucket at the link's root in bits a second; 0: there is none. */
int hw_rtnl_tbf_get(struct hw_rtnl *r, int index, uint64_t *rate);

#endif

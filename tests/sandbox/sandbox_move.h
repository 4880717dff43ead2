/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine for the tests of `sandbox move`: the program makes itself namespaces of its own (also without rights, by a
 * user namespace) in which it is the host; a peer and containers are namespaces that it holds by descriptors. What a
 * namespace has is read attribute by attribute, by code that shares nothing with what is tested.
 */
#ifndef SANDBOX_MOVE_H
#define SANDBOX_MOVE_H

#include "sandbox/move/move.h"
#include "sys/netns.h"
#include "tests/tap.h"

struct sm_ns {
    int fd;
    struct hw_netlink rt;
    char path[32]; /* /proc/self/fd/N: as --netns */
};

extern struct sm_ns sm_host, sm_peer;
extern char sm_dir[64]; /* the journal folder */

/* Makes host and peer, or ends the program as skipped, with the reason. */
void sm_start(void);
void sm_end(void);
void sm_ns_make(struct sm_ns *n);
void sm_ns_drop(struct sm_ns *n);
/* Runs fn in a namespace. */
void sm_in(const struct sm_ns *n, void (*fn)(void *arg), void *arg);

/* A veth NIC in the host, up, its other end NAME-p in the peer, up, a port of br0 there. Returns its index. */
int sm_nic(const char *name);
int sm_macvlan(const char *name, const char *lower);
int sm_index(const struct sm_ns *n, const char *name); /* 0: there is none */
void sm_link_del(const struct sm_ns *n, const char *name);
/* Text: "10.0.0.1/16" or "fd00::1/64". Die on errors: what a test builds on. */
void sm_addr(const struct sm_ns *n, const char *dev, const char *addr);
void sm_addr_like(const struct sm_ns *n, const char *dev, const char *addr, const char *label, uint32_t valid_s);
/* A default route as a router's advertisement makes it. */
void sm_route_ra(const struct sm_ns *n, const char *via, const char *dev);
/* dst "default" too; via, dev2 and via2 (a second nexthop) may be NULL. */
void sm_route(const struct sm_ns *n, const char *dst, const char *via, const char *dev, uint32_t table,
              uint32_t metric);
void sm_route2(const struct sm_ns *n, const char *dst, const char *via, const char *dev, const char *via2,
               const char *dev2);
void sm_rule(const struct sm_ns *n, const char *from, const char *iif, uint32_t table, uint32_t priority);
void sm_neigh(const struct sm_ns *n, const char *dev, const char *addr, bool proxy);
void sm_set(const struct sm_ns *n, const char *dev, const char *what,
            uint32_t value); /* mtu, txqlen, group, promisc, up */
void sm_mac(const struct sm_ns *n, const char *dev, const uint8_t mac[6]);
void sm_alias(const struct sm_ns *n, const char *dev, const char *alias);
void sm_sysctl(const struct sm_ns *n, const char *path, const char *value);
/* The value of one, in buf. */
const char *sm_sysctl_get(const struct sm_ns *n, const char *path, char buf[64]);

/* Everything in a namespace: links, addresses, permanent neighbours, routes, rules, the sysctls of each device, but for
 * counters and times; sorted lines, to be freed. */
char *sm_state(const struct sm_ns *n);
/* The host's, once it no longer changes by itself: addresses are checked for duplicates, carriers seen. */
char *sm_settled(void);
/* Is it as `was` within some seconds (duplicate address detection and carriers take their time)? Says what is not. */
bool sm_same(const struct sm_ns *n, const char *was);
/* Nothing is left of journals and pins. */
bool sm_clean(void);

/* sb_move(), sb_restore() of container "box" with the journal folder. names: "n0,n1=x". */
int sm_move(const struct sm_ns *to, const char *names, bool force);
int sm_restore(unsigned *lost);
extern struct hw_logger sm_log;
extern char sm_logged[8192]; /* all that was logged since it was emptied */

#endif

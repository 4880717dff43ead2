/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets up a machine for the tests of `sandbox move`. The program enters new namespaces (through a user namespace if it
 * has no privileges) in which it acts as the host. The peer and the containers are further namespaces, which the
 * program holds open with file descriptors. The state of a namespace is read attribute by attribute.
 */
#ifndef SANDBOX_MOVE_H
#define SANDBOX_MOVE_H

#include "sandbox/move/move.h"
#include "sys/netns.h"
#include "tests/tap.h"

struct sm_ns {
    int fd;
    struct hw_netlink rt;
    char path[32]; /* /proc/self/fd/N, an argument of --netns */
};

extern struct sm_ns sm_host, sm_peer;
extern char sm_dir[64]; /* the journal folder */

/* Creates the host and the peer. If this is impossible, exits with the test skipped, and prints the reason. */
void sm_start(void);
void sm_end(void);
void sm_ns_make(struct sm_ns *n);
void sm_ns_drop(struct sm_ns *n);
/* Runs fn in a namespace. */
void sm_in(const struct sm_ns *n, void (*fn)(void *arg), void *arg);

/* Creates a veth NIC in the host. Its other end, NAME-p, is in the peer and is a port of br0 there. Both ends are up.
 * Returns the index of the NIC. */
int sm_nic(const char *name);
int sm_macvlan(const char *name, const char *lower);
int sm_index(const struct sm_ns *n, const char *name); /* returns 0 if there is no such device */
void sm_link_del(const struct sm_ns *n, const char *name);
/* Adds an address such as "10.0.0.1/16" or "fd00::1/64". Like the other setup functions, exits the program on
 * errors. */
void sm_addr(const struct sm_ns *n, const char *dev, const char *addr);
void sm_addr_like(const struct sm_ns *n, const char *dev, const char *addr, const char *label, uint32_t valid_s);
/* Adds a default route such as the kernel adds for a router advertisement. */
void sm_route_ra(const struct sm_ns *n, const char *via, const char *dev);
/* Adds a route. dst may be "default"; via may be NULL. sm_route2() adds a route with two nexthops. */
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
/* Copies the value of a sysctl into buf. Returns buf. */
const char *sm_sysctl_get(const struct sm_ns *n, const char *path, char buf[64]);

/* Returns the contents of a namespace as sorted lines without counters and times: links, addresses, permanent
 * neighbours, routes, rules, queueing disciplines, and each device's sysctls, ethtool settings and sysfs files. The
 * caller frees the string. */
char *sm_state(const struct sm_ns *n);
/* Waits until the host's state has been unchanged for 0.3 s. Returns the state. */
char *sm_settled(void);
/* Waits up to 10 s until the state equals `was` (duplicate address detection and carrier changes take time). Returns
 * whether it does. Prints any remaining differences. */
bool sm_same(const struct sm_ns *n, const char *was);
/* Returns whether no journals and no pins are left behind. */
bool sm_clean(void);

/* Call sb_move() and sb_restore() for container "box" with the journal folder. names is a list such as "n0,n1=x". */
int sm_move(const struct sm_ns *to, const char *names, bool force);
int sm_restore(unsigned *lost);
extern struct hw_logger sm_log;
extern char sm_logged[8192]; /* all log messages since the buffer was last emptied */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a network device, in the form of the kernel's own rtnetlink messages. The messages of addresses,
 * neighbours, routes and rules are read in one namespace, rewritten for another, and sent there. As with `ip route
 * save`, this preserves attributes that are unknown to this program.
 */
#ifndef HW_SANDBOX_NETDEV_H
#define HW_SANDBOX_NETDEV_H

#include "sandbox/netdev/journal.h"
#include "sys/rtnl.h"

/* ---- one message (netdev_msg.c): pure functions; fuzzed with the journal ------------------------ */

/* Returns true if h, which has len bytes, is complete and of this kind, and all the parts that netdev_msg.c reads have
 * valid lengths. */
bool sb_msg_ok(enum sb_kind kind, const struct nlmsghdr *h, size_t len);

/* Parses a link message that sb_msg_ok() has accepted. */
void sb_link_parse(const struct nlmsghdr *h, struct sb_link *out);
/* Returns the index of the device that an address or neighbour belongs to. */
int sb_msg_index(enum sb_kind kind, const struct nlmsghdr *h);
/* sb_route_uses() returns true if a route uses the device. sb_rule_names() returns true if a rule refers to the device
 * by its name. */
bool sb_route_uses(const struct nlmsghdr *h, int index);
bool sb_rule_names(const struct nlmsghdr *h, const char *name);
/* Returns true for a unicast IPv4 or IPv6 default route in the main or default table. */
bool sb_route_default(const struct nlmsghdr *h);
bool sb_route_by_object(const struct nlmsghdr *h); /* the route uses a nexthop object (`ip nexthop`) */
/* Returns true for a unicast route of the main table through a single gateway over the device. */
bool sb_route_gateway(const struct nlmsghdr *h, int index);
void sb_route_set_table(struct nlmsghdr *h, uint32_t table);
/* Returns the bytes of an address, which are inside h, and stores its family and prefix length. Returns NULL if there
 * is no address. */
const uint8_t *sb_addr_bytes(const struct nlmsghdr *h, int *family, unsigned *prefix);
/* Returns the source of a rule if it is a single address, and stores its family. Returns NULL otherwise. */
const uint8_t *sb_rule_source(const struct nlmsghdr *h, int *family);

#define SB_TEXT 80
/* Formats an address, neighbour, route or rule, as in "address 10.0.0.1/16" or "route to 10.1.0.0/24". Returns out. */
const char *sb_msg_text(enum sb_kind kind, const struct nlmsghdr *h, char out[SB_TEXT]);

/* Maps devices of one namespace to devices of another. */
struct sb_map {
    size_t n;
    struct {
        int from, to; /* to is 0 if the device is not in the other namespace */
        const char *from_name, *to_name;
    } dev[SB_NICS_MAX];
    bool others;      /* keep devices that are not in the map; otherwise they cause -ENODEV */
    uint64_t elapsed; /* seconds since the message was read, which are subtracted from lifetimes */
    bool skip6;       /* leave out IPv6 routes and rules */
    bool nodad;       /* skip duplicate address detection, because the IPv6 addresses were in use until now */
};

#define SB_MSG_MAX 16384

/* Writes the message that creates, in the map's target namespace, the object that `in` describes in the source
 * namespace. cap must be at least SB_MSG_MAX. Returns the message's size, or -ENODEV if a device is not in the target
 * namespace, -ESTALE if the object's lifetime has expired, or -EMSGSIZE. */
int sb_msg_rewrite(enum sb_kind kind, const struct nlmsghdr *in, const struct sb_map *map, void *out, size_t cap);
/* Returns true if two messages are equal except for volatile fields such as times, counts and progress. b is rewritten
 * with map first. */
bool sb_msg_same(enum sb_kind kind, const struct nlmsghdr *a, const struct nlmsghdr *b, const struct sb_map *map);

/* ---- reading (netdev_read.c) -------------------------------------------------------------------- */

/* Finds a device by index or, if index is 0, by name. Fails with -ENODEV or another -errno. */
int sb_netdev_find(struct hw_netlink *rt, int index, const char *name, struct sb_link *out);
/* Passes the kernel's description of a device to fn. ext_mask is a combination of RTEXT_FILTER_*. */
int sb_netdev_message(struct hw_netlink *rt, int index, uint32_t ext_mask, hw_netlink_fn fn, void *arg);
/* Calls fn for each link that netdev_msg.c can parse. A nonzero result ends the iteration and is returned. */
int sb_netdev_links(struct hw_netlink *rt, int (*fn)(const struct sb_link *l, void *arg), void *arg);
/* Adds to j the records of the n named devices in this order: the link and the sysctls of each device, and then the
 * addresses, the permanent and proxy neighbours, the routes and the rules of all devices. Leaves out objects that the
 * kernel creates by itself. rt and the calling thread must be in the same namespace. Fails with -ENODEV or another
 * -errno. */
int sb_netdev_read(struct hw_netlink *rt, struct sb_journal *j, const char *const *name, size_t n);

/* ---- changing (netdev_apply.c) ------------------------------------------------------------------ */

/* How to handle failures. A restore logs and counts failures, to restore as much as possible. A move stops at the first
 * failure. */
struct sb_faults {
    const struct hw_logger *log;
    bool stop;
    unsigned n;
    char first[HW_ERR_TEXT];
};
/* Handles a failure with result rc and message hw_error(). Returns rc if the caller must stop, and 0 otherwise. */
int sb_fault(struct sb_faults *f, int rc);
/* Calls hw_log() unless log is NULL. */
void sb_log(const struct hw_logger *log, int level, const char *fmt, ...) HW_PRINTF(3, 4);

/* Moves a device to the namespace ns, and gives it a name and an index. If the index is 0, the kernel chooses one. */
int sb_netdev_move(struct hw_netlink *rt, int index, int ns, const char *name, int new_index);
/* Removes all alternative names of a device. */
int sb_netdev_drop_altnames(struct hw_netlink *rt, int index);
/* Sets the MAC, MTU, queue length, group, alias and flags of the device `now` to the values in want, and sets its
 * name. Does not set the device up. */
int sb_netdev_set(struct hw_netlink *rt, const struct sb_link *now, const struct sb_link *want, const char *name,
                  struct sb_faults *f);
/* sb_netdev_addrs() adds j's addresses of one family to a NIC. sb_netdev_neighs() adds j's neighbours. */
int sb_netdev_addrs(struct hw_netlink *rt, const struct sb_journal *j, int nic, const struct sb_map *map, int family,
                    struct sb_faults *f);
int sb_netdev_neighs(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f);
/* Adds j's routes. Leaves out routes over a device that is not in the target namespace, with a warning. */
int sb_netdev_routes(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f);
/* Adds the rule, or removes it if make is false. Succeeds if the rule already exists or has already been removed. */
int sb_netdev_rule(struct hw_netlink *rt, bool make, const struct nlmsghdr *rewritten);
/* Sends h, which creates an address, neighbour, route or rule. Succeeds if the object already exists. */
int sb_netdev_add(struct hw_netlink *rt, enum sb_kind kind, struct nlmsghdr *h);

/* ---- sysctls of the calling thread's namespace (netdev_sysctl.c) --------------------------------- */

/* Adds a record for each sysctl that can be read and written in a device's IPv4, IPv6 and MPLS folders. */
int sb_sysctl_read(struct sb_journal *j, int nic, const char *name);
/* Sets the device's sysctls that differ from j's records. */
int sb_sysctl_apply(const struct sb_journal *j, int nic, const char *name, struct sb_faults *f);
/* Returns true if IPv6 is disabled on a device, or the device has no IPv6. */
bool sb_sysctl_no_ipv6(const char *name);
/* Sets the sysctls that make a NIC answer ARP only for its own addresses. Warns if `all` overrides them. */
int sb_sysctl_arp(const char *name, const struct hw_logger *log);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a netdev as the kernel's own rtnetlink messages: read in one namespace, rewritten for another,
 * and sent there. That preserves every attribute that the kernel knows, also future ones, like `ip route save`.
 */
#ifndef HW_SANDBOX_NETDEV_H
#define HW_SANDBOX_NETDEV_H

#include "sandbox/netdev/journal.h"
#include "sys/rtnl.h"

/* ---- one message (netdev_msg.c): pure functions; fuzzed with the journal ------------------------ */

/* Returns true if h, len bytes, is complete and of this kind, and all parts that are read here have valid lengths. */
bool sb_msg_ok(enum sb_kind kind, const struct nlmsghdr *h, size_t len);

/* Parses a message that sb_msg_ok() has accepted. */
void sb_link_parse(const struct nlmsghdr *h, struct sb_link *out);
/* Returns the index of the device that an address or neighbour belongs to. */
int sb_msg_index(enum sb_kind kind, const struct nlmsghdr *h);
/* Return true if a route uses the device; if a rule names it (name) or has one of its addresses as source. */
bool sb_route_uses(const struct nlmsghdr *h, int index);
bool sb_rule_names(const struct nlmsghdr *h, const char *name);
/* Returns true for a unicast IPv4 or IPv6 default route in a table that everybody uses. */
bool sb_route_default(const struct nlmsghdr *h);
bool sb_route_by_object(const struct nlmsghdr *h); /* uses a nexthop object (`ip nexthop`) */
/* Returns true for a route of the main table through a single gateway by the device. */
bool sb_route_gateway(const struct nlmsghdr *h, int index);
void sb_route_set_table(struct nlmsghdr *h, uint32_t table);
/* Returns the bytes of an address (inside h), its family and prefix length; NULL: none. */
const uint8_t *sb_addr_bytes(const struct nlmsghdr *h, int *family, unsigned *prefix);
/* Returns the source of a rule if it is a single address of this family; NULL: it is not. */
const uint8_t *sb_rule_source(const struct nlmsghdr *h, int *family);

#define SB_TEXT 80
/* Formats an address, neighbour, route or rule: "address 10.0.0.1/16", "route to 10.1.0.0/24". Returns out. */
const char *sb_msg_text(enum sb_kind kind, const struct nlmsghdr *h, char out[SB_TEXT]);

/* Maps devices of one namespace to those of another. */
struct sb_map {
    size_t n;
    struct {
        int from, to; /* to 0: it no longer exists */
        const char *from_name, *to_name;
    } dev[SB_NICS_MAX];
    bool others;      /* devices that are not in the map stay unchanged; otherwise they are -ENODEV */
    uint64_t elapsed; /* seconds since the message was read, which lifetimes have lost */
    bool skip6;       /* no IPv6 routes */
    bool nodad;       /* IPv6 addresses skip duplicate address detection, because they were in use until now */
};

#define SB_MSG_MAX 16384

/* Writes the message that makes in the map's target namespace what `in` describes in the other. cap >= SB_MSG_MAX.
 * Returns its size, or -ENODEV: a device that is not in the map; -ESTALE: its lifetime is over; -EMSGSIZE. */
int sb_msg_rewrite(enum sb_kind kind, const struct nlmsghdr *in, const struct sb_map *map, void *out, size_t cap);
/* Returns true if two messages are equal except for volatile fields: times, counts, progress. b is rewritten by map. */
bool sb_msg_same(enum sb_kind kind, const struct nlmsghdr *a, const struct nlmsghdr *b, const struct sb_map *map);

/* ---- reading (netdev_read.c) -------------------------------------------------------------------- */

/* Finds a device by index, or (0) by name. -ENODEV. */
int sb_netdev_find(struct hw_netlink *rt, int index, const char *name, struct sb_link *out);
/* Passes the kernel's description of a device to fn. ext_mask: of RTEXT_FILTER_*. */
int sb_netdev_message(struct hw_netlink *rt, int index, uint32_t ext_mask, hw_netlink_fn fn, void *arg);
/* Calls fn for each link; a nonzero result ends the iteration and is returned. */
int sb_netdev_links(struct hw_netlink *rt, int (*fn)(const struct sb_link *l, void *arg), void *arg);
/* Adds to j the records of the n named devices, in this order: link, sysctls, addresses, permanent neighbours of each;
 * then their routes and rules, without those that the kernel makes by itself. rt and the calling thread are in one
 * namespace. -ENODEV. */
int sb_netdev_read(struct hw_netlink *rt, struct sb_journal *j, const char *const *name, size_t n);

/* ---- changing (netdev_apply.c) ------------------------------------------------------------------ */

/* How to handle failures: log and count them (restore as much as possible), or stop at the first one (move). */
struct sb_faults {
    const struct hw_logger *log;
    bool stop;
    unsigned n;
    char first[HW_ERR_TEXT];
};
/* Handles hw_error() of a failure with rc. Returns rc to stop, else 0. */
int sb_fault(struct sb_faults *f, int rc);
/* hw_log() with log NULL allowed. */
void sb_log(const struct hw_logger *log, int level, const char *fmt, ...) HW_PRINTF(3, 4);

/* Moves a device to the namespace ns, with a name and an index (0: the kernel chooses). */
int sb_netdev_move(struct hw_netlink *rt, int index, int ns, const char *name, int new_index);
/* Removes all alternative names of a device. */
int sb_netdev_drop_altnames(struct hw_netlink *rt, int index);
/* Sets MAC, MTU, queue length, group, alias and flags of the device `now` as in want, and its name; all except up. */
int sb_netdev_set(struct hw_netlink *rt, const struct sb_link *now, const struct sb_link *want, const char *name,
                  struct sb_faults *f);
/* Adds j's addresses of one family (with neighbours set also its neighbours) to a NIC. */
int sb_netdev_addrs(struct hw_netlink *rt, const struct sb_journal *j, int nic, const struct sb_map *map, int family,
                    struct sb_faults *f);
int sb_netdev_neighs(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f);
/* Adds the routes, or rules. Omits routes through a device that is not in the map, with a warning. */
int sb_netdev_routes(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f);
/* Adds or removes a rule; 0 if it already exists, or does not exist. */
int sb_netdev_rule(struct hw_netlink *rt, bool make, const struct nlmsghdr *rewritten);
/* Sends a route or rule that was made elsewhere; 0 if it already exists. */
int sb_netdev_add(struct hw_netlink *rt, enum sb_kind kind, struct nlmsghdr *h);

/* ---- sysctls (netdev_sysctl.c): of the calling thread's namespace --------------------------------- */

/* Adds a record for each writable sysctl of a device. */
int sb_sysctl_read(struct sb_journal *j, int nic, const char *name);
/* Sets the device's sysctls that differ from j's records. */
int sb_sysctl_apply(const struct sb_journal *j, int nic, const char *name, struct sb_faults *f);
/* Returns true if IPv6 is disabled on a device. */
bool sb_sysctl_no_ipv6(const char *name);
/* Sets the sysctls by which a NIC answers ARP only for itself; warns if `all` overrides them. */
int sb_sysctl_arp(const char *name, const struct hw_logger *log);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a netdev has, as the kernel's own rtnetlink messages: read in one namespace, rewritten for another, said again
 * there. That keeps every attribute the kernel knows of, and those it will know, as `ip route save` does.
 */
#ifndef HW_SANDBOX_NETDEV_H
#define HW_SANDBOX_NETDEV_H

#include "sandbox/netdev/journal.h"
#include "sys/rtnl.h"

/* ---- one message (netdev_msg.c): pure functions; fuzzed with the journal ------------------------ */

/* True where h, len bytes, is whole and of this kind, and all that is read of it here has its right length. */
bool sb_msg_ok(enum sb_kind kind, const struct nlmsghdr *h, size_t len);

/* Fills *out from a message that sb_msg_ok() likes. */
void sb_link_parse(const struct nlmsghdr *h, struct sb_link *out);
/* The one device that an address or neighbour belongs to. */
int sb_msg_index(enum sb_kind kind, const struct nlmsghdr *h);
/* Does a route lead through the device; does a rule name it (name) or one of its addresses as its source? */
bool sb_route_uses(const struct nlmsghdr *h, int index);
bool sb_rule_names(const struct nlmsghdr *h, const char *name);
/* A unicast IPv4 or IPv6 default route in a table that everybody uses. */
bool sb_route_default(const struct nlmsghdr *h);
bool sb_route_by_object(const struct nlmsghdr *h); /* through a nexthop object (`ip nexthop`) */
/* One of the main table, through a single gateway by the device. */
bool sb_route_gateway(const struct nlmsghdr *h, int index);
void sb_route_set_table(struct nlmsghdr *h, uint32_t table);
/* An address: family, bytes and prefix length. Returns its bytes (inside h), or NULL. */
const uint8_t *sb_addr_bytes(const struct nlmsghdr *h, int *family, unsigned *prefix);
/* The source that a rule is about, where it is a single address of this family; NULL: it is not. */
const uint8_t *sb_rule_source(const struct nlmsghdr *h, int *family);

#define SB_TEXT 80
/* "address 10.0.0.1/16", "route to 10.1.0.0/24": of an address, neighbour, route or rule. Returns out. */
const char *sb_msg_text(enum sb_kind kind, const struct nlmsghdr *h, char out[SB_TEXT]);

/* Which device here is which there. */
struct sb_map {
    size_t n;
    struct {
        int from, to; /* to 0: it is no more */
        const char *from_name, *to_name;
    } dev[SB_NICS_MAX];
    bool others;      /* devices that are not in the map stay as they are; else they are -ENODEV */
    uint64_t elapsed; /* seconds since the message was read: what lifetimes have lost */
    bool skip6;       /* no IPv6 routes */
    bool nodad;       /* IPv6 addresses need no duplicate address detection: they were in use a moment ago */
};

#define SB_MSG_MAX 16384

/* Writes the message that makes in the map's namespace what `in` says of another. cap >= SB_MSG_MAX. Its size, or
 * -ENODEV a device that is not in the map, -ESTALE its lifetime is over, -EMSGSIZE. */
int sb_msg_rewrite(enum sb_kind kind, const struct nlmsghdr *in, const struct sb_map *map, void *out, size_t cap);
/* Do two messages say the same, but for what changes by itself: times, counts, progress? b is as rewritten by map. */
bool sb_msg_same(enum sb_kind kind, const struct nlmsghdr *a, const struct nlmsghdr *b, const struct sb_map *map);

/* ---- reading (netdev_read.c) -------------------------------------------------------------------- */

/* A device by index, or (0) by name. -ENODEV. */
int sb_netdev_find(struct hw_netlink *rt, int index, const char *name, struct sb_link *out);
/* Hands the kernel's description of a device to fn. ext_mask: of RTEXT_FILTER_*. */
int sb_netdev_message(struct hw_netlink *rt, int index, uint32_t ext_mask, hw_netlink_fn fn, void *arg);
/* Calls fn for each; what it returns other than 0 ends it and is returned. */
int sb_netdev_links(struct hw_netlink *rt, int (*fn)(const struct sb_link *l, void *arg), void *arg);
/* Adds to j the records of the n devices named, in this order: link, sysctls, addresses, permanent neighbours of each;
 * then the routes and rules that belong to them, but for what the kernel makes by itself. rt and the calling thread
 * are in one namespace. -ENODEV. */
int sb_netdev_read(struct hw_netlink *rt, struct sb_journal *j, const char *const *name, size_t n);

/* ---- changing (netdev_apply.c) ------------------------------------------------------------------ */

/* What is done about what cannot be done: logged and counted (give back what can be given back), or the first one ends
 * it all (move). */
struct sb_faults {
    const struct hw_logger *log;
    bool stop;
    unsigned n;
    char first[HW_ERR_TEXT];
};
/* hw_error() of what failed with rc. Returns rc where it is to stop, else 0. */
int sb_fault(struct sb_faults *f, int rc);
/* hw_log() with log NULL allowed. */
void sb_log(const struct hw_logger *log, int level, const char *fmt, ...) HW_PRINTF(3, 4);

/* Moves a device to the namespace ns, under a name and an index (0: the kernel chooses). */
int sb_netdev_move(struct hw_netlink *rt, int index, int ns, const char *name, int new_index);
/* Takes away all alternative names of a device. */
int sb_netdev_drop_altnames(struct hw_netlink *rt, int index);
/* Makes MAC, MTU, queue length, group, alias, flags of the device `now` as wanted, and its name `name`; all but up. */
int sb_netdev_set(struct hw_netlink *rt, const struct sb_link *now, const struct sb_link *want, const char *name,
                  struct sb_faults *f);
/* Says j's addresses of one family (and with neighbours set its neighbours too) of a NIC again. */
int sb_netdev_addrs(struct hw_netlink *rt, const struct sb_journal *j, int nic, const struct sb_map *map, int family,
                    struct sb_faults *f);
int sb_netdev_neighs(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f);
/* Says its routes, or rules, again. Routes through a device that is not in the map are left out, with a warning. */
int sb_netdev_routes(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f);
/* One rule, made or taken away; 0 where it is there, or not there, already. */
int sb_netdev_rule(struct hw_netlink *rt, bool make, const struct nlmsghdr *rewritten);
/* Sends one route or rule made elsewhere; 0 where it is there already. */
int sb_netdev_add(struct hw_netlink *rt, enum sb_kind kind, struct nlmsghdr *h);

/* ---- sysctls (netdev_sysctl.c): of the calling thread's namespace --------------------------------- */

/* Adds a record for each writable sysctl of a device. */
int sb_sysctl_read(struct sb_journal *j, int nic, const char *name);
/* Gives a device those of j's records that it has not. */
int sb_sysctl_apply(const struct sb_journal *j, int nic, const char *name, struct sb_faults *f);
/* Is IPv6 switched off on a device? */
bool sb_sysctl_no_ipv6(const char *name);
/* Sets those by which a NIC answers ARP for itself only; warns where `all` overrides them. */
int sb_sysctl_arp(const char *name, const struct hw_logger *log);

#endif

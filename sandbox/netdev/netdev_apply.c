/* SPDX-License-Identifier: Apache-2.0 */
/* Moves and changes network devices, and applies their recorded configuration. */
#include "sandbox/netdev/netdev.h"

#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_MAX 1024
/* Maximum wait for duplicate address detection, in ms. The kernel refuses an IPv6 route with a preferred source until
 * the detection for this source has completed, which takes a second or two. */
#define DAD_MS 4000

void sb_log(const struct hw_logger *log, int level, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    if (!log)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    hw_log(log, level, "%s", line);
}

int sb_fault(struct sb_faults *f, int rc)
{
    if (rc >= 0)
        return 0;
    if (f->n++ == 0)
        snprintf(f->first, sizeof(f->first), "%s", hw_error());
    if (f->stop)
        return rc;
    sb_log(f->log, HAWSER_LOG_ERROR, "%s", hw_error());
    return 0;
}

/* ---- the link ------------------------------------------------------------------------------------ */

static struct nlmsghdr *build_link_change(char buf[REQUEST_MAX], int index)
{
    struct nlmsghdr *h = hw_netlink_request(buf, REQUEST_MAX, RTM_NEWLINK, 0);
    struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));
    i->ifi_index = index;
    return h;
}

int sb_netdev_move(struct hw_netlink *rt, int index, int ns, const char *name, int new_index)
{
    char buf[REQUEST_MAX], what[96];
    struct nlmsghdr *h = build_link_change(buf, index);
    mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)ns);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    if (new_index) /* kernels before 5.13 choose the index themselves */
        mnl_attr_put_u32(h, IFLA_NEW_IFINDEX, (uint32_t)new_index);
    snprintf(what, sizeof(what), "moving a network device to another namespace, with the name %s", name);
    return hw_netlink_talk(rt, h, NULL, NULL, what);
}

/* Size of a request, in bytes: up to 64 KiB of names (rtnl_alt_ifname() in net/core/rtnetlink.c) and a header. */
#define NAMES_MAX (72u << 10)

/* Copies a device's list of alternative names, if there is one, into a request. */
static int take_names(const struct nlmsghdr *h, void *arg)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct ifinfomsg))
    {
        if (mnl_attr_get_type(a) == IFLA_PROP_LIST &&
            !mnl_attr_put_check(arg, NAMES_MAX, IFLA_PROP_LIST | NLA_F_NESTED, mnl_attr_get_payload_len(a),
                                mnl_attr_get_payload(a)))
            return hw_fail(-EMSGSIZE, "the alternative names of a network device exceed %u bytes", NAMES_MAX);
    }
    return 0;
}

int sb_netdev_drop_altnames(struct hw_netlink *rt, int index)
{
    char *buf = calloc(1, NAMES_MAX);
    if (!buf)
        return hw_no_memory("alternative names");
    struct nlmsghdr *h = build_link_change(buf, index);
    uint32_t bare = h->nlmsg_len;
    h->nlmsg_type = RTM_DELLINKPROP;
    int rc = sb_netdev_message(rt, index, 0, take_names, h);
    if (rc == 0 && h->nlmsg_len > bare)
        rc = hw_netlink_talk(rt, h, NULL, NULL, "removing alternative names of a network device");
    free(buf);
    return rc;
}

static int set_attr(struct hw_netlink *rt, const struct sb_link *l, uint16_t type, const void *data, size_t len,
                    const char *what, struct sb_faults *f)
{
    char buf[REQUEST_MAX], text[96];
    struct nlmsghdr *h = build_link_change(buf, l->index);
    mnl_attr_put(h, type, len, data);
    snprintf(text, sizeof(text), "setting the %s of %s", what, l->name);
    return sb_fault(f, hw_netlink_talk(rt, h, NULL, NULL, text));
}

static int set_flags(struct hw_netlink *rt, const struct sb_link *l, uint32_t flags, uint32_t mask, struct sb_faults *f)
{
    char buf[REQUEST_MAX], text[96];
    struct nlmsghdr *h = build_link_change(buf, l->index);
    struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
    i->ifi_flags = flags & mask;
    i->ifi_change = mask;
    snprintf(text, sizeof(text), "setting the flags of %s", l->name);
    return sb_fault(f, hw_netlink_talk(rt, h, NULL, NULL, text));
}

int sb_netdev_set(struct hw_netlink *rt, const struct sb_link *now, const struct sb_link *want, const char *name,
                  struct sb_faults *f)
{
    const uint32_t settable = IFF_NOARP | IFF_ALLMULTI | IFF_PROMISC | IFF_MULTICAST | IFF_DYNAMIC;
    int rc = 0;
    if (now->mtu != want->mtu)
        rc = set_attr(rt, now, IFLA_MTU, &want->mtu, 4, "MTU", f);
    if (rc == 0 && want->mac_len && (now->mac_len != want->mac_len || memcmp(now->mac, want->mac, want->mac_len) != 0))
        rc = set_attr(rt, now, IFLA_ADDRESS, want->mac, want->mac_len, "MAC address", f);
    if (rc == 0 && now->txqlen != want->txqlen)
        rc = set_attr(rt, now, IFLA_TXQLEN, &want->txqlen, 4, "queue length", f);
    if (rc == 0 && now->group != want->group)
        rc = set_attr(rt, now, IFLA_GROUP, &want->group, 4, "group", f);
    if (rc == 0 && strcmp(now->alias, want->alias) != 0)
        rc = set_attr(rt, now, IFLA_IFALIAS, want->alias, strlen(want->alias), "alias", f);
    if (rc == 0 && (now->flags ^ want->flags) & settable)
        rc = set_flags(rt, now, want->flags, settable, f);
    if (rc == 0 && strcmp(now->name, name) != 0)
        rc = set_attr(rt, now, IFLA_IFNAME, name, strlen(name) + 1, "name", f);
    return rc;
}

/* ---- addresses, neighbours, routes, rules -------------------------------------------------------- */

int sb_netdev_add(struct hw_netlink *rt, enum sb_kind kind, struct nlmsghdr *h)
{
    char what[SB_TEXT + 16], text[SB_TEXT];
    int family = ((const struct rtgenmsg *)mnl_nlmsg_get_payload(h))->rtgen_family;
    uint16_t flags = NLM_F_CREATE | NLM_F_EXCL;
    if (kind == SB_NEIGH) {
        flags = NLM_F_CREATE | NLM_F_REPLACE;
    } else if (kind == SB_ROUTE) {
        /* Several routes to one destination are valid, and adding an identical route still fails with EEXIST. Some
         * nexthops of a multipath IPv6 route may still exist, so that route is replaced as a whole. */
        flags = NLM_F_CREATE | NLM_F_APPEND;
        const struct nlattr *a;
        mnl_attr_for_each(a, h, sizeof(struct rtmsg))
        {
            if (family == AF_INET6 && mnl_attr_get_type(a) == RTA_MULTIPATH)
                flags = NLM_F_CREATE | NLM_F_REPLACE;
        }
    }
    h->nlmsg_flags = NLM_F_REQUEST | flags;
    snprintf(what, sizeof(what), "creating the %s", sb_msg_text(kind, h, text));
    int rc = hw_netlink_talk(rt, h, NULL, NULL, what);
    return rc == -EEXIST ? 0 : rc;
}

int sb_netdev_rule(struct hw_netlink *rt, bool make, const struct nlmsghdr *rewritten)
{
    char buf[SB_MSG_MAX] __attribute__((aligned(8)));
    struct nlmsghdr *h = (struct nlmsghdr *)buf;
    memcpy(buf, rewritten, rewritten->nlmsg_len);
    if (make)
        return sb_netdev_add(rt, SB_RULE, h);
    h->nlmsg_type = RTM_DELRULE;
    h->nlmsg_flags = NLM_F_REQUEST;
    int rc = hw_netlink_talk(rt, h, NULL, NULL, "removing a rule");
    return rc == -ENOENT ? 0 : rc;
}

static int family_of_record(const struct sb_record *r)
{
    return ((const struct rtgenmsg *)mnl_nlmsg_get_payload(r->data))->rtgen_family;
}

/* Rewrites and adds one record. Also returns 0 if the lifetime of the object has expired. */
static int apply_netdev_record(struct hw_netlink *rt, const struct sb_record *r, const struct sb_map *map)
{
    char buf[SB_MSG_MAX] __attribute__((aligned(8))), text[SB_TEXT];
    int n = sb_msg_rewrite(r->kind, r->data, map, buf, sizeof(buf));
    if (n == -ESTALE)
        return 0;
    if (n == -ENODEV)
        return hw_fail(-EXDEV, "the %s cannot be created: one of its network devices was not moved or no longer exists",
                       sb_msg_text(r->kind, r->data, text));
    if (n < 0)
        return hw_fail(n, "a message from the kernel exceeds %zu bytes", sizeof(buf));
    return sb_netdev_add(rt, r->kind, (struct nlmsghdr *)buf);
}

int sb_netdev_addrs(struct hw_netlink *rt, const struct sb_journal *j, int nic, const struct sb_map *map, int family,
                    struct sb_faults *f)
{
    int rc = 0;
    for (size_t i = 0; i < j->n && rc == 0; i++) {
        /* The kernel lists IPv4 addresses in the order in which they were added, and IPv6 addresses in reverse
         * (ipv6_link_dev_addr() in net/ipv6/addrconf.c). The order determines which addresses are secondary, and which
         * source address is used. */
        const struct sb_record *r = &j->rec[family == AF_INET ? i : j->n - 1 - i];
        if (r->kind != SB_ADDR || r->nic != nic || family_of_record(r) != family)
            continue;
        int err = apply_netdev_record(rt, r, map);
        if (err < 0)
            rc = sb_fault(f, hw_wrap(err, "%s", j->nic[nic].link.name));
    }
    return rc;
}

int sb_netdev_neighs(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f)
{
    int rc = 0;
    for (size_t i = 0; i < j->n && rc == 0; i++) {
        int err = j->rec[i].kind == SB_NEIGH ? apply_netdev_record(rt, &j->rec[i], map) : 0;
        if (err < 0)
            rc = sb_fault(f, hw_wrap(err, "%s", j->nic[j->rec[i].nic].link.name));
    }
    return rc;
}

int sb_netdev_routes(struct hw_netlink *rt, const struct sb_journal *j, const struct sb_map *map, struct sb_faults *f)
{
    /* A route may require a later route to its gateway. The loop therefore repeats until all routes are added or no
     * more can be added. */
    bool *done = calloc(j->n ? j->n : 1, sizeof(*done));
    uint64_t deadline = hw_deadline(DAD_MS);
    int rc = 0;
    if (!done)
        return hw_no_memory("%zu records", j->n);
    for (bool last = false, again = true; again && rc == 0;) {
        bool progress = false, slow = false;
        again = false;
        for (size_t i = 0; i < j->n && rc == 0; i++) {
            if (j->rec[i].kind != SB_ROUTE || done[i] || (map->skip6 && family_of_record(&j->rec[i]) == AF_INET6))
                continue;
            int err = apply_netdev_record(rt, &j->rec[i], map);
            if (err == -EXDEV) {
                sb_log(f->log, HAWSER_LOG_WARN, "left out a route: %s", hw_error());
                err = 0;
            }
            if (err == 0) {
                done[i] = progress = true;
            } else if (last) {
                done[i] = true;
                rc = sb_fault(f, err);
            } else {
                again = true;
                slow |= err == -EINVAL && family_of_record(&j->rec[i]) == AF_INET6;
            }
        }
        if (again && !progress) {
            last = !slow || hw_now() >= deadline;
            if (!last)
                (void)poll(NULL, 0, 50);
        }
    }
    free(done);
    return rc;
}

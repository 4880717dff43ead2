/* SPDX-License-Identifier: Apache-2.0 */
/* Finds network devices, and reads their configuration from the kernel into a journal. */
#include "sandbox/netdev/netdev.h"

#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_MAX 256
#define TRIES       10

static struct nlmsghdr *build_netdev_query(void *buf, uint16_t type, uint16_t flags, size_t head, void **extra)
{
    struct nlmsghdr *h = hw_netlink_request(buf, REQUEST_MAX, type, flags);
    *extra = mnl_nlmsg_put_extra_header(h, head);
    return h;
}

/* ---- links --------------------------------------------------------------------------------------- */

struct link_sink {
    int (*fn)(const struct sb_link *l, void *arg);
    void *arg;
    struct sb_journal *j; /* the journal to which the link is added as the next NIC; may be NULL */
    bool many;            /* set when all links are listed: skip links that cannot be parsed */
};

static int on_netdev_link(const struct nlmsghdr *h, void *arg)
{
    static const struct sb_map as_is = {.others = true};
    struct link_sink *s = arg;
    struct sb_link l;
    if (h->nlmsg_type != RTM_NEWLINK)
        return 0;
    if (!sb_msg_ok(SB_LINK, h, h->nlmsg_len))
        return s->many
                   ? 0
                   : hw_fail(-EBADMSG, "the kernel describes a network device in a format that hawser does not know");
    if (s->j) {
        char buf[SB_MSG_MAX] __attribute__((aligned(8)));
        int n = sb_msg_rewrite(SB_LINK, h, &as_is, buf, sizeof(buf));
        return n < 0 ? hw_fail(n, "the kernel's description of a network device has more than %zu bytes", sizeof(buf))
                     : sb_journal_add(s->j, SB_LINK, (int)s->j->nics, buf, (size_t)n);
    }
    sb_link_parse(h, &l);
    return s->fn(&l, s->arg);
}

/* Reads a link without its counters, which are not needed (RTEXT_FILTER_SKIP_STATS; older kernels send some counters
 * anyway). */
static int get_link(struct hw_netlink *rt, int index, const char *name, struct link_sink *s)
{
    char buf[REQUEST_MAX], what[64];
    void *extra;
    struct nlmsghdr *h = build_netdev_query(buf, RTM_GETLINK, 0, sizeof(struct ifinfomsg), &extra);
    ((struct ifinfomsg *)extra)->ifi_index = index;
    if (index == 0) {
        if (strlen(name) >= IFNAMSIZ)
            return hw_fail(-ENODEV, "'%.64s' is too long for the name of a network device (at most %d bytes)", name,
                           IFNAMSIZ - 1);
        mnl_attr_put_strz(h, IFLA_IFNAME, name);
    }
    mnl_attr_put_u32(h, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    snprintf(what, sizeof(what), "looking for the network device %.32s", name ? name : "by its index");
    return hw_netlink_talk(rt, h, on_netdev_link, s, what);
}

int sb_netdev_message(struct hw_netlink *rt, int index, uint32_t ext_mask, hw_netlink_fn fn, void *arg)
{
    char buf[REQUEST_MAX];
    void *extra;
    struct nlmsghdr *h = build_netdev_query(buf, RTM_GETLINK, 0, sizeof(struct ifinfomsg), &extra);
    ((struct ifinfomsg *)extra)->ifi_index = index;
    mnl_attr_put_u32(h, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS | ext_mask);
    return hw_netlink_talk(rt, h, fn, arg, "reading a network device");
}

static int take_one(const struct sb_link *l, void *arg)
{
    *(struct sb_link *)arg = *l;
    return 0;
}

int sb_netdev_find(struct hw_netlink *rt, int index, const char *name, struct sb_link *out)
{
    struct link_sink s = {.fn = take_one, .arg = out};
    out->index = 0;
    int rc = get_link(rt, index, name, &s);
    if (rc == 0 && out->index == 0)
        return hw_fail(-EIO, "the kernel did not describe a network device although it exists");
    return rc;
}

int sb_netdev_links(struct hw_netlink *rt, int (*fn)(const struct sb_link *l, void *arg), void *arg)
{
    char buf[REQUEST_MAX];
    void *extra;
    struct link_sink s = {.fn = fn, .arg = arg, .many = true};
    struct nlmsghdr *h = build_netdev_query(buf, RTM_GETLINK, NLM_F_DUMP, sizeof(struct ifinfomsg), &extra);
    mnl_attr_put_u32(h, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    return hw_netlink_talk(rt, h, on_netdev_link, &s, "listing network devices");
}

/* ---- addresses, neighbours, routes, rules -------------------------------------------------------- */

struct sink {
    struct sb_journal *j;
    enum sb_kind kind;
};

/* Returns the number of the NIC with this index, or -1. */
static int nic_of(const struct sb_journal *j, int index)
{
    for (unsigned i = 0; i < j->nics; i++) {
        if (j->nic[i].link.index == index)
            return (int)i;
    }
    return -1;
}

/* Returns true for objects that the kernel creates by itself: link-local addresses (marked as such since Linux 5.18),
 * temporary addresses, routes that result from addresses, and neighbours that are neither permanent nor proxies. Routes
 * from a router advertisement reappear with the next advertisement. Routes from redirects are only hints. */
static bool by_itself(enum sb_kind kind, const struct nlmsghdr *h)
{
    const struct nlattr *a;
    if (kind == SB_ADDR) {
        const struct ifaddrmsg *m = mnl_nlmsg_get_payload(h);
        uint32_t flags = m->ifa_flags;
        mnl_attr_for_each(a, h, sizeof(*m))
        {
            if (mnl_attr_get_type(a) == IFA_PROTO && *(uint8_t *)mnl_attr_get_payload(a) == IFAPROT_KERNEL_LL)
                return true;
            if (mnl_attr_get_type(a) == IFA_FLAGS)
                flags = mnl_attr_get_u32(a);
        }
        return m->ifa_family == AF_INET6 && flags & IFA_F_TEMPORARY;
    }
    if (kind == SB_ROUTE) {
        const struct rtmsg *m = mnl_nlmsg_get_payload(h);
        return m->rtm_protocol == RTPROT_KERNEL || m->rtm_protocol == RTPROT_REDIRECT ||
               (m->rtm_protocol == RTPROT_RA && m->rtm_family == AF_INET6) || m->rtm_flags & RTM_F_CLONED;
    }
    if (kind == SB_NEIGH) {
        const struct ndmsg *m = mnl_nlmsg_get_payload(h);
        return !(m->ndm_state & NUD_PERMANENT) && !(m->ndm_flags & NTF_PROXY);
    }
    return false;
}

static bool is_nic_rule(const struct sb_journal *j, const struct nlmsghdr *rule)
{
    int family, other;
    unsigned prefix;
    const uint8_t *src = sb_rule_source(rule, &family), *addr;
    for (unsigned i = 0; i < j->nics; i++) {
        if (sb_rule_names(rule, j->nic[i].link.name))
            return true;
    }
    for (size_t i = 0; src && i < j->n; i++) {
        if (j->rec[i].kind == SB_ADDR && (addr = sb_addr_bytes(j->rec[i].data, &other, &prefix)) && other == family &&
            memcmp(src, addr, family == AF_INET ? 4 : 16) == 0)
            return true;
    }
    return false;
}

static int record_netdev_message(const struct nlmsghdr *h, void *arg)
{
    struct sink *s = arg;
    int nic = -1;
    if (!sb_msg_ok(s->kind, h, h->nlmsg_len)) /* a message of another family or kind */
        return 0;
    for (unsigned i = 0; s->kind == SB_ROUTE && sb_route_default(h) && i < s->j->nics; i++)
        s->j->nic[i].gateway |= sb_route_uses(h, s->j->nic[i].link.index);
    if (by_itself(s->kind, h))
        return 0;
    if (s->kind == SB_ADDR || s->kind == SB_NEIGH) {
        nic = nic_of(s->j, sb_msg_index(s->kind, h));
        if (nic < 0)
            return 0;
    } else if (s->kind == SB_ROUTE) {
        bool uses = false;
        for (unsigned i = 0; i < s->j->nics && !uses; i++)
            uses = sb_route_uses(h, s->j->nic[i].link.index);
        if (!uses)
            return 0;
    } else if (!is_nic_rule(s->j, h)) {
        return 0;
    }
    return sb_journal_add(s->j, s->kind, nic, h, h->nlmsg_len);
}

static int dump_netdev_records(struct hw_netlink *rt, struct sb_journal *j, enum sb_kind kind, uint16_t type,
                               int family, uint8_t nflags)
{
    char buf[REQUEST_MAX], what[64];
    void *extra;
    struct sink s = {j, kind};
    size_t before = j->n;
    snprintf(what, sizeof(what), "listing IPv%d %s", family == AF_INET ? 4 : 6,
             kind == SB_ADDR    ? "addresses"
             : kind == SB_NEIGH ? "neighbours"
             : kind == SB_ROUTE ? "routes"
                                : "rules");
    for (int i = 0; i < TRIES; i++) {
        /* The size of the header of this kind of message. The headers of all four kinds begin with the family. */
        size_t head = kind == SB_ADDR    ? sizeof(struct ifaddrmsg)
                      : kind == SB_NEIGH ? sizeof(struct ndmsg)
                      : kind == SB_ROUTE ? sizeof(struct rtmsg)
                                         : sizeof(struct fib_rule_hdr);
        struct nlmsghdr *h = build_netdev_query(buf, type, NLM_F_DUMP, head, &extra);
        ((struct rtgenmsg *)extra)->rtgen_family = (uint8_t)family;
        if (kind == SB_NEIGH)
            ((struct ndmsg *)extra)->ndm_flags = nflags;
        int rc = hw_netlink_talk(rt, h, record_netdev_message, &s, what);
        if (rc < 0 || !rt->torn)
            return rc;
        while (j->n > before)
            free(j->rec[--j->n].data);
    }
    return hw_fail(-EAGAIN, "%s: the list changed during each of %d reads", what, TRIES);
}

int sb_netdev_read(struct hw_netlink *rt, struct sb_journal *j, const char *const *name, size_t n)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct link_sink s = {.j = j};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        unsigned before = j->nics;
        rc = get_link(rt, 0, name[i], &s);
        if (rc == 0 && j->nics == before)
            rc = hw_fail(-EIO, "the kernel did not describe the network device %s", name[i]);
        if (rc == 0 && strcmp(j->nic[before].link.name, name[i]) != 0)
            rc = hw_fail(-ENODEV, "%.32s is an alternative name of the network device %s: use the device's own name",
                         name[i], j->nic[before].link.name);
        if (rc == 0)
            rc = sb_sysctl_read(j, (int)before, name[i]);
    }
    for (size_t i = 0; i < 2 && rc == 0; i++)
        rc = dump_netdev_records(rt, j, SB_ADDR, RTM_GETADDR, families[i], 0);
    for (size_t i = 0; i < 4 && rc == 0; i++)
        rc = dump_netdev_records(rt, j, SB_NEIGH, RTM_GETNEIGH, families[i / 2], i % 2 ? NTF_PROXY : 0);
    for (size_t i = 0; i < 2 && rc == 0; i++)
        rc = dump_netdev_records(rt, j, SB_ROUTE, RTM_GETROUTE, families[i], 0);
    for (size_t i = 0; i < 2 && rc == 0; i++)
        rc = dump_netdev_records(rt, j, SB_RULE, RTM_GETRULE, families[i], 0);
    return rc;
}

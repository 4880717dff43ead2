/* SPDX-License-Identifier: Apache-2.0 */
/* Checks, parses and rewrites single rtnetlink messages. */
#include "sandbox/netdev/netdev.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>

#define STRING 0x8000u /* STRING plus n is a string of at most n bytes, including its NUL */

/* The valid lengths of attributes. attr_ok() checks further attributes. */
static const struct {
    enum sb_kind kind;
    uint16_t type, len; /* len is the minimum, or STRING plus the maximum */
} known[] = {
    {SB_LINK, IFLA_IFNAME, STRING | IFNAMSIZ},
    {SB_LINK, IFLA_MTU, 4},
    {SB_LINK, IFLA_TXQLEN, 4},
    {SB_LINK, IFLA_GROUP, 4},
    {SB_LINK, IFLA_LINK, 4},
    {SB_LINK, IFLA_MASTER, 4},
    {SB_LINK, IFLA_IFALIAS, STRING | 256},
    {SB_LINK, IFLA_PHYS_PORT_NAME, STRING | 64},
    {SB_LINK, IFLA_PARENT_DEV_NAME, STRING | 256},
    {SB_LINK, IFLA_PARENT_DEV_BUS_NAME, STRING | 256},
    {SB_ADDR, IFA_CACHEINFO, sizeof(struct ifa_cacheinfo)},
    {SB_ADDR, IFA_FLAGS, 4},
    {SB_ADDR, IFA_PROTO, 1},
    {SB_ADDR, IFA_LABEL, STRING | IFNAMSIZ},
    {SB_ROUTE, RTA_OIF, 4},
    {SB_ROUTE, RTA_TABLE, 4},
    {SB_ROUTE, RTA_PRIORITY, 4},
    {SB_ROUTE, RTA_CACHEINFO, sizeof(struct rta_cacheinfo)},
    {SB_RULE, FRA_IIFNAME, STRING | IFNAMSIZ},
    {SB_RULE, FRA_OIFNAME, STRING | IFNAMSIZ},
    {SB_RULE, FRA_TABLE, 4},
};

static const struct {
    uint16_t type;
    size_t head;
} heads[SB_KINDS] = {
    [SB_LINK] = {RTM_NEWLINK, sizeof(struct ifinfomsg)},    [SB_ADDR] = {RTM_NEWADDR, sizeof(struct ifaddrmsg)},
    [SB_NEIGH] = {RTM_NEWNEIGH, sizeof(struct ndmsg)},      [SB_ROUTE] = {RTM_NEWROUTE, sizeof(struct rtmsg)},
    [SB_RULE] = {RTM_NEWRULE, sizeof(struct fib_rule_hdr)}, [SB_MADE] = {RTM_NEWRULE, sizeof(struct fib_rule_hdr)},
};

static unsigned bits_of_family(int family)
{
    return family == AF_INET ? 32 : family == AF_INET6 ? 128 : 0;
}

/* Checks the nexthops of a multipath route, up to the end of the attribute. */
static bool hops_ok(const struct nlattr *a)
{
    const char *p = mnl_attr_get_payload(a);
    size_t left = mnl_attr_get_payload_len(a);
    while (left > 0) {
        struct rtnexthop h;
        if (left < sizeof(h))
            return false;
        memcpy(&h, p, sizeof(h));
        size_t len = MNL_ALIGN(h.rtnh_len);
        if (h.rtnh_len < sizeof(h) || h.rtnh_len > left)
            return false;
        len = HW_MIN(len, left);
        p += len;
        left -= len;
    }
    return true;
}

static bool attr_ok(enum sb_kind kind, int family, const struct nlattr *a)
{
    uint16_t type = mnl_attr_get_type(a);
    size_t len = mnl_attr_get_payload_len(a);
    const char *text = mnl_attr_get_payload(a);
    for (size_t i = 0; i < HW_ARRAY_LEN(known); i++) {
        if (known[i].kind != kind || known[i].type != type)
            continue;
        size_t most = known[i].len & ~STRING;
        if (known[i].len & STRING)
            return len > 0 && len <= most && text[len - 1] == 0;
        return len >= most;
    }
    if (kind == SB_LINK && (type == IFLA_ADDRESS || type == IFLA_PERM_ADDRESS || type == IFLA_PHYS_PORT_ID))
        return len <= sizeof(((struct sb_link *)NULL)->mac);
    if ((kind == SB_ADDR && (type == IFA_LOCAL || type == IFA_ADDRESS)) || (kind == SB_RULE && type == FRA_SRC))
        return len * 8 == bits_of_family(family);
    if (kind == SB_ROUTE && type == RTA_MULTIPATH)
        return hops_ok(a);
    if (kind == SB_LINK && type == IFLA_LINKINFO) {
        const struct nlattr *k;
        mnl_attr_for_each_nested(k, a)
        {
            const char *s = mnl_attr_get_payload(k);
            size_t n = mnl_attr_get_payload_len(k);
            if (mnl_attr_get_type(k) == IFLA_INFO_KIND && (n == 0 || n > 16 || s[n - 1] != 0))
                return false;
        }
    }
    return true;
}

bool sb_msg_ok(enum sb_kind kind, const struct nlmsghdr *h, size_t len)
{
    size_t head = MNL_NLMSG_HDRLEN + MNL_ALIGN(heads[kind].head);
    if (kind == SB_MADE)
        kind = SB_RULE;
    /* libmnl iterates up to the rounded length. A link's message can be long because of alternative names, which are
     * not kept. */
    if (len < head || (len > SB_MSG_MAX && kind != SB_LINK) || len % MNL_ALIGNTO || h->nlmsg_len != len ||
        h->nlmsg_type != heads[kind].type)
        return false;
    /* The headers of routes, rules, addresses and neighbours all begin with the family (struct rtgenmsg). */
    int family = ((const struct rtgenmsg *)mnl_nlmsg_get_payload(h))->rtgen_family;
    if (kind != SB_LINK && !bits_of_family(family))
        return false;
    const struct nlattr *a;
    const char *end = (const char *)h + len, *last = (const char *)h + head;
    mnl_attr_for_each(a, h, heads[kind].head)
    {
        if (!attr_ok(kind, family, a))
            return false;
        last = (const char *)a + MNL_ALIGN(a->nla_len);
    }
    return last >= end;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static void copy_rtnl_string(char *out, size_t cap, const struct nlattr *a)
{
    snprintf(out, cap, "%s", mnl_attr_get_str(a));
}

void sb_link_parse(const struct nlmsghdr *h, struct sb_link *l)
{
    const struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
    *l = (struct sb_link){.index = i->ifi_index, .flags = i->ifi_flags};
    char bus[32] = "", dev[64] = "";
    const struct nlattr *a, *k;
    mnl_attr_for_each(a, h, sizeof(*i))
    {
        size_t len = mnl_attr_get_payload_len(a);
        switch (mnl_attr_get_type(a)) {
        case IFLA_IFNAME:
            copy_rtnl_string(l->name, sizeof(l->name), a);
            break;
        case IFLA_MTU:
            l->mtu = mnl_attr_get_u32(a);
            break;
        case IFLA_TXQLEN:
            l->txqlen = mnl_attr_get_u32(a);
            break;
        case IFLA_GROUP:
            l->group = mnl_attr_get_u32(a);
            break;
        case IFLA_LINK:
            l->iflink = (int)mnl_attr_get_u32(a);
            break;
        case IFLA_LINK_NETNSID:
            l->far = true;
            break;
        case IFLA_MASTER:
            l->master = (int)mnl_attr_get_u32(a);
            break;
        case IFLA_IFALIAS:
            copy_rtnl_string(l->alias, sizeof(l->alias), a);
            break;
        case IFLA_ADDRESS:
            memcpy(l->mac, mnl_attr_get_payload(a), len);
            l->mac_len = (uint8_t)len;
            break;
        case IFLA_PERM_ADDRESS:
            memcpy(l->perm, mnl_attr_get_payload(a), len);
            l->perm_len = (uint8_t)len;
            break;
        case IFLA_PHYS_PORT_NAME:
            copy_rtnl_string(l->port, sizeof(l->port), a);
            break;
        case IFLA_PHYS_PORT_ID:
            memcpy(l->port_id, mnl_attr_get_payload(a), len);
            l->port_id_len = (uint8_t)len;
            break;
        case IFLA_PARENT_DEV_NAME:
            copy_rtnl_string(dev, sizeof(dev), a);
            break;
        case IFLA_PARENT_DEV_BUS_NAME:
            copy_rtnl_string(bus, sizeof(bus), a);
            break;
        case IFLA_LINKINFO:
            mnl_attr_for_each_nested(k, a)
            {
                if (mnl_attr_get_type(k) == IFLA_INFO_KIND)
                    copy_rtnl_string(l->kind, sizeof(l->kind), k);
            }
            break;
        default:
            break;
        }
    }
    if (dev[0])
        (void)snprintf(l->parent, sizeof(l->parent), "%s/%s", bus, dev);
}

/* Returns the attribute of this type, or NULL. */
static const struct nlattr *find_rtnl_attr(enum sb_kind kind, const struct nlmsghdr *h, int type)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, heads[kind].head)
    {
        if (mnl_attr_get_type(a) == type)
            return a;
    }
    return NULL;
}

int sb_msg_index(enum sb_kind kind, const struct nlmsghdr *h)
{
    if (kind == SB_ADDR)
        return (int)((const struct ifaddrmsg *)mnl_nlmsg_get_payload(h))->ifa_index;
    return ((const struct ndmsg *)mnl_nlmsg_get_payload(h))->ndm_ifindex;
}

/* Calls fn for each nexthop until fn returns true. Returns true if fn has returned true. */
static bool each_hop(const struct nlattr *a, bool (*fn)(struct rtnexthop *hop, void *arg), void *arg)
{
    char *p = mnl_attr_get_payload(a);
    size_t left = mnl_attr_get_payload_len(a);
    while (left >= sizeof(struct rtnexthop)) {
        struct rtnexthop *hop = (struct rtnexthop *)(void *)p;
        size_t len = HW_MIN((size_t)MNL_ALIGN(hop->rtnh_len), left);
        if (fn(hop, arg))
            return true;
        p += len;
        left -= len;
    }
    return false;
}

static bool hop_is(struct rtnexthop *hop, void *index)
{
    return hop->rtnh_ifindex == *(int *)index;
}

bool sb_route_uses(const struct nlmsghdr *h, int index)
{
    const struct nlattr *a = find_rtnl_attr(SB_ROUTE, h, RTA_OIF);
    if (a && (int)mnl_attr_get_u32(a) == index)
        return true;
    a = find_rtnl_attr(SB_ROUTE, h, RTA_MULTIPATH);
    return a && each_hop(a, hop_is, &index);
}

static uint32_t table_of(const struct nlmsghdr *h)
{
    const struct nlattr *a = find_rtnl_attr(SB_ROUTE, h, RTA_TABLE);
    return a ? mnl_attr_get_u32(a) : ((const struct rtmsg *)mnl_nlmsg_get_payload(h))->rtm_table;
}

bool sb_route_default(const struct nlmsghdr *h)
{
    const struct rtmsg *r = mnl_nlmsg_get_payload(h);
    uint32_t table = table_of(h);
    return r->rtm_dst_len == 0 && r->rtm_type == RTN_UNICAST && (table == RT_TABLE_MAIN || table == RT_TABLE_DEFAULT);
}

bool sb_route_by_object(const struct nlmsghdr *h)
{
    return find_rtnl_attr(SB_ROUTE, h, RTA_NH_ID) != NULL;
}

bool sb_route_gateway(const struct nlmsghdr *h, int index)
{
    const struct rtmsg *r = mnl_nlmsg_get_payload(h);
    const struct nlattr *a = find_rtnl_attr(SB_ROUTE, h, RTA_OIF);
    return a && (int)mnl_attr_get_u32(a) == index && r->rtm_type == RTN_UNICAST && table_of(h) == RT_TABLE_MAIN &&
           find_rtnl_attr(SB_ROUTE, h, RTA_GATEWAY) != NULL;
}

void sb_route_set_table(struct nlmsghdr *h, uint32_t table)
{
    struct nlattr *a;
    ((struct rtmsg *)mnl_nlmsg_get_payload(h))->rtm_table = RT_TABLE_UNSPEC;
    mnl_attr_for_each(a, h, sizeof(struct rtmsg))
    {
        if (mnl_attr_get_type(a) == RTA_TABLE)
            memcpy(mnl_attr_get_payload(a), &table, sizeof(table));
    }
}

bool sb_rule_names(const struct nlmsghdr *h, const char *name)
{
    const struct nlattr *in = find_rtnl_attr(SB_RULE, h, FRA_IIFNAME), *out = find_rtnl_attr(SB_RULE, h, FRA_OIFNAME);
    return (in && strcmp(mnl_attr_get_str(in), name) == 0) || (out && strcmp(mnl_attr_get_str(out), name) == 0);
}

const uint8_t *sb_addr_bytes(const struct nlmsghdr *h, int *family, unsigned *prefix)
{
    const struct ifaddrmsg *m = mnl_nlmsg_get_payload(h);
    /* an IPv6 address without a peer has only IFA_ADDRESS */
    const struct nlattr *a = find_rtnl_attr(SB_ADDR, h, IFA_LOCAL);
    if (!a)
        a = find_rtnl_attr(SB_ADDR, h, IFA_ADDRESS);
    *family = m->ifa_family;
    *prefix = m->ifa_prefixlen;
    return a ? mnl_attr_get_payload(a) : NULL;
}

const uint8_t *sb_rule_source(const struct nlmsghdr *h, int *family)
{
    const struct fib_rule_hdr *r = mnl_nlmsg_get_payload(h);
    const struct nlattr *a = find_rtnl_attr(SB_RULE, h, FRA_SRC);
    *family = r->family;
    return a && r->src_len == bits_of_family(r->family) ? mnl_attr_get_payload(a) : NULL;
}

const char *sb_msg_text(enum sb_kind kind, const struct nlmsghdr *h, char out[SB_TEXT])
{
    static const char *const nouns[SB_KINDS] = {
        [SB_ADDR] = "address", [SB_NEIGH] = "neighbour", [SB_ROUTE] = "route to", [SB_RULE] = "rule from"};
    int family = ((const struct rtgenmsg *)mnl_nlmsg_get_payload(h))->rtgen_family;
    const uint8_t *head = mnl_nlmsg_get_payload(h);
    const struct nlattr *a = kind == SB_ADDR    ? find_rtnl_attr(kind, h, IFA_LOCAL)
                             : kind == SB_NEIGH ? find_rtnl_attr(kind, h, NDA_DST)
                             : kind == SB_ROUTE ? find_rtnl_attr(kind, h, RTA_DST)
                                                : find_rtnl_attr(kind, h, FRA_SRC);
    if (!a && kind == SB_ADDR)
        a = find_rtnl_attr(kind, h, IFA_ADDRESS);
    char text[INET6_ADDRSTRLEN] = "everywhere";
    /* The prefix length is the second byte in the header of an address or a route. In the header of a rule, the length
     * of the source's prefix is the third byte. */
    unsigned prefix = kind == SB_NEIGH ? bits_of_family(family) : head[kind == SB_RULE ? 2 : 1];
    if (a && mnl_attr_get_payload_len(a) * 8 == bits_of_family(family) &&
        inet_ntop(family, mnl_attr_get_payload(a), text, sizeof(text)))
        snprintf(out, SB_TEXT, "%s %s/%u", nouns[kind], text, prefix);
    else
        snprintf(out, SB_TEXT, "%s %s", nouns[kind], text);
    return out;
}

/* ---- rewriting ----------------------------------------------------------------------------------- */

static int map_index(const struct sb_map *map, int index, int *out)
{
    *out = index;
    for (size_t i = 0; i < map->n; i++) {
        if (map->dev[i].from == index) {
            *out = map->dev[i].to;
            return *out ? 0 : -ENODEV;
        }
    }
    return map->others ? 0 : -ENODEV;
}

static int map_name(const struct sb_map *map, const char *name, const char **out)
{
    *out = name;
    for (size_t i = 0; i < map->n; i++) {
        if (strcmp(map->dev[i].from_name, name) == 0) {
            *out = map->dev[i].to_name;
            return map->dev[i].to ? 0 : -ENODEV;
        }
    }
    return map->others ? 0 : -ENODEV;
}

static bool put_rtnl_attr(struct nlmsghdr *h, size_t cap, uint16_t type, const void *data, size_t len)
{
    char *end = (char *)mnl_nlmsg_get_payload_tail(h) + MNL_ATTR_HDRLEN + len;
    if (!mnl_attr_put_check(h, cap, type, len, data))
        return false;
    memset(end, 0, MNL_ALIGN(len) - len); /* libmnl leaves old bytes in the padding, and messages are compared */
    return true;
}

struct hops {
    const struct sb_map *map;
    int rc;
};

static bool map_hop(struct rtnexthop *hop, void *arg)
{
    struct hops *s = arg;
    /* DEAD, LINKDOWN, OFFLOAD and TRAP report the kernel's state. A request with DEAD or LINKDOWN is refused
     * (net/ipv4/fib_semantics.c). */
    hop->rtnh_flags &= RTNH_F_ONLINK;
    s->rc = map_index(s->map, hop->rtnh_ifindex, &hop->rtnh_ifindex);
    return s->rc < 0;
}

/* Writes the label, rewritten from "eth0:1" to "x:1" if eth0 becomes x. */
static bool put_label(struct nlmsghdr *h, size_t cap, const struct sb_map *map, const char *label)
{
    char out[2 * IFNAMSIZ];
    for (size_t i = 0; i < map->n; i++) {
        size_t n = strlen(map->dev[i].from_name);
        if (strncmp(label, map->dev[i].from_name, n) == 0 && (label[n] == 0 || label[n] == ':')) {
            int len = snprintf(out, sizeof(out), "%s%s", map->dev[i].to_name, label + n);
            /* drop a label that would be too long */
            return len >= IFNAMSIZ || put_rtnl_attr(h, cap, IFA_LABEL, out, (size_t)len + 1);
        }
    }
    return put_rtnl_attr(h, cap, IFA_LABEL, label, strlen(label) + 1);
}

/* Returns the remainder of a lifetime v after `elapsed` seconds. UINT32_MAX means forever. */
static uint32_t left_of(uint32_t v, uint64_t elapsed)
{
    return v == UINT32_MAX ? v : v > elapsed ? (uint32_t)(v - elapsed) : 0;
}

/* Copies, rewrites or leaves out one attribute. Returns 0, -ENODEV, -ESTALE or -EMSGSIZE. */
static int rewrite_rtnl_attr(enum sb_kind kind, int family, const struct nlattr *a, const struct sb_map *map,
                             struct nlmsghdr *out, size_t cap)
{
    uint16_t type = mnl_attr_get_type(a);
    const void *data = mnl_attr_get_payload(a);
    size_t len = mnl_attr_get_payload_len(a);
    int index, rc = 0;
    bool fits;
    if (kind == SB_ADDR && type == IFA_CACHEINFO) {
        struct ifa_cacheinfo c;
        memcpy(&c, data, sizeof(c));
        struct ifa_cacheinfo left = {.ifa_prefered = left_of(c.ifa_prefered, map->elapsed),
                                     .ifa_valid = left_of(c.ifa_valid, map->elapsed)};
        if (left.ifa_valid == 0)
            return -ESTALE;
        fits = put_rtnl_attr(out, cap, type, &left, sizeof(left));
    } else if (kind == SB_ADDR && type == IFA_FLAGS && family == AF_INET6 && map->nodad) {
        uint32_t flags = mnl_attr_get_u32(a) | IFA_F_NODAD;
        fits = put_rtnl_attr(out, cap, type, &flags, sizeof(flags));
    } else if (kind == SB_ADDR && type == IFA_LABEL) {
        fits = put_label(out, cap, map, data);
    } else if (kind == SB_ROUTE && type == RTA_OIF) {
        rc = map_index(map, (int)mnl_attr_get_u32(a), &index);
        fits = put_rtnl_attr(out, cap, type, &index, sizeof(index));
    } else if (kind == SB_ROUTE && type == RTA_MULTIPATH) {
        struct nlattr *copy = mnl_nlmsg_get_payload_tail(out);
        struct hops s = {map, 0};
        fits = put_rtnl_attr(out, cap, type, data, len);
        if (fits)
            (void)each_hop(copy, map_hop, &s);
        rc = s.rc;
    } else if (kind == SB_ROUTE && type == RTA_CACHEINFO) {
        /* The kernel reports the lifetime of a route in clock ticks, but expects seconds in a request. */
        struct rta_cacheinfo c;
        memcpy(&c, data, sizeof(c));
        if (c.rta_expires == 0 || family != AF_INET6)
            return 0;
        /* USER_HZ is 100 */
        uint32_t left = left_of(c.rta_expires < 0 ? 0 : (uint32_t)c.rta_expires / 100, map->elapsed);
        if (left == 0)
            return -ESTALE;
        fits = put_rtnl_attr(out, cap, RTA_EXPIRES, &left, sizeof(left));
    } else if (kind == SB_RULE && (type == FRA_IIFNAME || type == FRA_OIFNAME)) {
        const char *name;
        rc = map_name(map, data, &name);
        fits = put_rtnl_attr(out, cap, type, name, strlen(name) + 1);
    } else if ((kind == SB_NEIGH && (type == NDA_CACHEINFO || type == NDA_PROBES)) ||
               (kind == SB_ROUTE && type == RTA_IIF)) {
        return 0; /* these are only reported and cannot be set */
    } else {
        fits = put_rtnl_attr(out, cap, a->nla_type, data, len);
    }
    return !fits ? -EMSGSIZE : rc;
}

/* Returns true if an attribute is kept. For a link, only the attributes that this program uses are kept. */
static bool is_kept_rtnl_attr(enum sb_kind kind, int type)
{
    static const int link[] = {IFLA_IFNAME,
                               IFLA_ADDRESS,
                               IFLA_PERM_ADDRESS,
                               IFLA_MTU,
                               IFLA_TXQLEN,
                               IFLA_GROUP,
                               IFLA_IFALIAS,
                               IFLA_LINK,
                               IFLA_MASTER,
                               IFLA_LINK_NETNSID,
                               IFLA_LINKINFO,
                               IFLA_PHYS_PORT_NAME,
                               IFLA_PHYS_PORT_ID,
                               IFLA_PARENT_DEV_NAME,
                               IFLA_PARENT_DEV_BUS_NAME};
    for (size_t i = 0; kind == SB_LINK && i < HW_ARRAY_LEN(link); i++) {
        if (link[i] == type)
            return true;
    }
    return kind != SB_LINK;
}

int sb_msg_rewrite(enum sb_kind kind, const struct nlmsghdr *in, const struct sb_map *map, void *buf, size_t cap)
{
    if (kind == SB_MADE)
        kind = SB_RULE;
    size_t head = heads[kind].head;
    memset(buf, 0, MNL_NLMSG_HDRLEN + MNL_ALIGN(head));
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = in->nlmsg_type;
    h->nlmsg_flags = NLM_F_REQUEST;
    void *to = mnl_nlmsg_put_extra_header(h, head);
    memcpy(to, mnl_nlmsg_get_payload(in), head);
    int family = ((const struct rtgenmsg *)to)->rtgen_family, index, rc = 0;
    if (kind == SB_ADDR) {
        struct ifaddrmsg *m = to;
        rc = map_index(map, (int)m->ifa_index, &index);
        m->ifa_index = (uint32_t)index;
        if (map->nodad && family == AF_INET6)
            m->ifa_flags |= IFA_F_NODAD;
    } else if (kind == SB_NEIGH) {
        struct ndmsg *m = to;
        rc = map_index(map, m->ndm_ifindex, &m->ndm_ifindex);
    } else if (kind == SB_ROUTE) {
        ((struct rtmsg *)to)->rtm_flags &= RTNH_F_ONLINK;
    } else if (kind == SB_RULE) {
        /* `ip rule` sets no other flag; most other flags report state, such as a missing device or goto target */
        ((struct fib_rule_hdr *)to)->flags &= FIB_RULE_INVERT;
    }
    const struct nlattr *a;
    mnl_attr_for_each(a, in, head)
    {
        if (rc == 0 && is_kept_rtnl_attr(kind, mnl_attr_get_type(a)))
            rc = rewrite_rtnl_attr(kind, family, a, map, h, cap);
    }
    return rc < 0 ? rc : (int)h->nlmsg_len;
}

/* Clears the volatile fields of a rewritten message. */
static void clear_volatile_fields(enum sb_kind kind, struct nlmsghdr *h)
{
    struct nlattr *a;
    uint32_t progress = IFA_F_TENTATIVE | IFA_F_DADFAILED | IFA_F_OPTIMISTIC | IFA_F_DEPRECATED, flags;
    if (kind == SB_ADDR)
        ((struct ifaddrmsg *)mnl_nlmsg_get_payload(h))->ifa_flags &= (uint8_t)~progress;
    if (kind == SB_NEIGH) /* the other state bits may change when the neighbour is used */
        ((struct ndmsg *)mnl_nlmsg_get_payload(h))->ndm_state &= NUD_PERMANENT;
    mnl_attr_for_each(a, h, heads[kind].head)
    {
        char *data = mnl_attr_get_payload(a);
        int type = mnl_attr_get_type(a);
        if (kind == SB_ADDR && type == IFA_FLAGS) {
            flags = mnl_attr_get_u32(a) & ~progress;
            memcpy(data, &flags, sizeof(flags));
        } else if ((kind == SB_ADDR && type == IFA_CACHEINFO) || (kind == SB_ROUTE && type == RTA_EXPIRES)) {
            memset(data, 0, mnl_attr_get_payload_len(a));
        }
    }
}

bool sb_msg_same(enum sb_kind kind, const struct nlmsghdr *a, const struct nlmsghdr *b, const struct sb_map *map)
{
    static const struct sb_map as_is = {.others = true};
    char x[SB_MSG_MAX] __attribute__((aligned(8))), y[SB_MSG_MAX] __attribute__((aligned(8)));
    int n = sb_msg_rewrite(kind, a, &as_is, x, sizeof(x)), m = sb_msg_rewrite(kind, b, map, y, sizeof(y));
    if (n < 0 || n != m)
        return false;
    clear_volatile_fields(kind, (struct nlmsghdr *)x);
    clear_volatile_fields(kind, (struct nlmsghdr *)y);
    return memcmp(x, y, (size_t)n) == 0;
}

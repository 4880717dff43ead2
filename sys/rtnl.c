/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/rtnl.h"

#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- links ---------------------------------------------------------------------------------- */

static struct nlmsghdr *make_rtnl_link_request(void *buf, uint16_t type, uint16_t flags, int index)
{
    struct nlmsghdr *h = hw_netlink_request(buf, HW_NETLINK_REQUEST, type, flags);
    struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));
    i->ifi_family = AF_UNSPEC;
    i->ifi_index = index;
    return h;
}

static void link_parse(const struct nlmsghdr *h, struct hw_rtnl_link *l)
{
    const struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
    *l = (struct hw_rtnl_link){.index = i->ifi_index,
                               .up = i->ifi_flags & IFF_UP,
                               .running = (i->ifi_flags & IFF_UP) && i->ifi_flags & IFF_RUNNING};
    const struct nlattr *a, *k;
    mnl_attr_for_each(a, h, sizeof(*i))
    {
        switch (mnl_attr_get_type(a)) {
        case IFLA_IFNAME:
            snprintf(l->name, sizeof(l->name), "%s", mnl_attr_get_str(a));
            break;
        case IFLA_MTU:
            l->mtu = mnl_attr_get_u32(a);
            break;
        case IFLA_LINK:
            l->peer = (int)mnl_attr_get_u32(a);
            break;
        case IFLA_MASTER:
            l->master = (int)mnl_attr_get_u32(a);
            break;
        case IFLA_ADDRESS:
            if (mnl_attr_get_payload_len(a) == sizeof(l->mac))
                memcpy(l->mac, mnl_attr_get_payload(a), sizeof(l->mac));
            break;
        case IFLA_LINKINFO:
            mnl_attr_for_each_nested(k, a)
            {
                if (mnl_attr_get_type(k) == IFLA_INFO_KIND)
                    snprintf(l->kind, sizeof(l->kind), "%.*s", (int)mnl_attr_get_payload_len(k), mnl_attr_get_str(k));
            }
            break;
        default:
            break;
        }
    }
}

static int link_one(const struct nlmsghdr *h, void *arg)
{
    if (h->nlmsg_type == RTM_NEWLINK)
        link_parse(h, arg);
    return 0;
}

int hw_rtnl_link_get(struct hw_netlink *r, const char *name, struct hw_rtnl_link *out)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    if (strlen(name) >= IFNAMSIZ)
        return hw_fail(-ENODEV, "'%s' is too long for a network device's name (at most %d bytes)", name, IFNAMSIZ - 1);
    struct nlmsghdr *h = make_rtnl_link_request(buf, RTM_GETLINK, 0, 0);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    snprintf(what, sizeof(what), "looking for the network device %s", name);
    memset(out, 0, sizeof(*out));
    return hw_netlink_talk(r, h, link_one, out, what);
}

struct link_sink {
    struct hw_rtnl_link *out;
    size_t cap, n;
};

static int collect_rtnl_link(const struct nlmsghdr *h, void *arg)
{
    struct link_sink *s = arg;
    if (h->nlmsg_type != RTM_NEWLINK)
        return 0;
    if (s->n < s->cap)
        link_parse(h, &s->out[s->n]);
    s->n++;
    return 0;
}

int hw_rtnl_link_list(struct hw_netlink *r, struct hw_rtnl_link *out, size_t cap)
{
    char buf[HW_NETLINK_REQUEST];
    struct link_sink s = {.out = out, .cap = cap};
    int rc = hw_netlink_dump(r, make_rtnl_link_request(buf, RTM_GETLINK, NLM_F_DUMP, 0), collect_rtnl_link, &s,
                             sizeof(s), "listing network devices");
    return rc < 0 ? rc : (int)s.n;
}

static void put_end(struct nlmsghdr *h, const struct hw_rtnl_end *e, uint32_t mtu)
{
    mnl_attr_put_strz(h, IFLA_IFNAME, e->name);
    if (mtu)
        mnl_attr_put_u32(h, IFLA_MTU, mtu);
    if (e->ns >= 0)
        mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)e->ns);
}

int hw_rtnl_veth_add(struct hw_netlink *r, const struct hw_rtnl_end *here, const struct hw_rtnl_end *there,
                     uint32_t mtu)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = make_rtnl_link_request(buf, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, here->index);
    put_end(h, here, mtu);
    struct nlattr *info = mnl_attr_nest_start(h, IFLA_LINKINFO);
    mnl_attr_put_str(h, IFLA_INFO_KIND, "veth");
    struct nlattr *data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
    struct nlattr *peer = mnl_attr_nest_start(h, VETH_INFO_PEER);
    struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i)); /* the peer's header; its attributes follow */
    i->ifi_index = there->index;
    put_end(h, there, mtu);
    mnl_attr_nest_end(h, peer);
    mnl_attr_nest_end(h, data);
    mnl_attr_nest_end(h, info);
    snprintf(what, sizeof(what), "creating the veth pair %s and %s", here->name, there->name);
    int rc = hw_netlink_talk(r, h, NULL, NULL, what);
    if (rc == -EOPNOTSUPP)
        return hw_wrap(rc, "this kernel seems to lack veth (CONFIG_VETH, module veth)");
    return rc;
}

int hw_rtnl_bridge_add(struct hw_netlink *r, const char *name, uint32_t mtu)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = make_rtnl_link_request(buf, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    if (mtu)
        mnl_attr_put_u32(h, IFLA_MTU, mtu);
    struct nlattr *info = mnl_attr_nest_start(h, IFLA_LINKINFO);
    mnl_attr_put_str(h, IFLA_INFO_KIND, "bridge");
    mnl_attr_nest_end(h, info);
    snprintf(what, sizeof(what), "creating the bridge %s", name);
    int rc = hw_netlink_talk(r, h, NULL, NULL, what);
    if (rc == -EOPNOTSUPP)
        return hw_wrap(rc, "this kernel seems to lack bridges (CONFIG_BRIDGE, module bridge)");
    return rc;
}

int hw_rtnl_link_del(struct hw_netlink *r, int index)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    snprintf(what, sizeof(what), "deleting the network device with index %d", index);
    return hw_netlink_talk(r, make_rtnl_link_request(buf, RTM_DELLINK, 0, index), NULL, NULL, what);
}

int hw_rtnl_link_up(struct hw_netlink *r, int index, bool up)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = make_rtnl_link_request(buf, RTM_NEWLINK, 0, index);
    struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
    i->ifi_flags = up ? IFF_UP : 0;
    i->ifi_change = IFF_UP;
    snprintf(what, sizeof(what), "setting the network device with index %d %s", index, up ? "up" : "down");
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

int hw_rtnl_link_master(struct hw_netlink *r, int index, int master)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = make_rtnl_link_request(buf, RTM_NEWLINK, 0, index);
    mnl_attr_put_u32(h, IFLA_MASTER, (uint32_t)master);
    snprintf(what, sizeof(what), "attaching the network device with index %d to the bridge with index %d", index,
             master);
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

int hw_rtnl_link_rename(struct hw_netlink *r, int index, const char *name)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = make_rtnl_link_request(buf, RTM_NEWLINK, 0, index);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    snprintf(what, sizeof(what), "renaming the network device with index %d to %s", index, name);
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

int hw_rtnl_link_move(struct hw_netlink *r, int index, int ns, const char *name)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = make_rtnl_link_request(buf, RTM_NEWLINK, 0, index);
    mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)ns);
    if (name)
        mnl_attr_put_strz(h, IFLA_IFNAME, name);
    snprintf(what, sizeof(what), "moving the network device with index %d to another namespace", index);
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

/* ---- addresses ------------------------------------------------------------------------------ */

int hw_rtnl_addr_add(struct hw_netlink *r, int index, struct in_addr addr, unsigned prefix)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = hw_netlink_request(buf, HW_NETLINK_REQUEST, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
    struct ifaddrmsg *a = mnl_nlmsg_put_extra_header(h, sizeof(*a));
    a->ifa_family = AF_INET;
    a->ifa_prefixlen = (uint8_t)prefix;
    a->ifa_index = (uint32_t)index;
    mnl_attr_put_u32(h, IFA_LOCAL, addr.s_addr);
    mnl_attr_put_u32(h, IFA_ADDRESS, addr.s_addr);
    snprintf(what, sizeof(what), "adding an address to the network device with index %d", index);
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

struct addr_find {
    int index;
    bool found;
    struct in_addr addr;
    unsigned prefix;
};

static int addr_each(const struct nlmsghdr *h, void *arg)
{
    struct addr_find *f = arg;
    const struct ifaddrmsg *m = mnl_nlmsg_get_payload(h);
    if (h->nlmsg_type != RTM_NEWADDR || f->found || (int)m->ifa_index != f->index)
        return 0;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(*m))
    {
        if (mnl_attr_get_type(a) == IFA_LOCAL) {
            f->addr.s_addr = mnl_attr_get_u32(a);
            f->prefix = m->ifa_prefixlen;
            f->found = true;
        }
    }
    return 0;
}

int hw_rtnl_addr_get(struct hw_netlink *r, int index, struct in_addr *addr, unsigned *prefix)
{
    char buf[HW_NETLINK_REQUEST];
    struct nlmsghdr *h = hw_netlink_request(buf, HW_NETLINK_REQUEST, RTM_GETADDR, NLM_F_DUMP);
    struct ifaddrmsg *a = mnl_nlmsg_put_extra_header(h, sizeof(*a));
    a->ifa_family = AF_INET;
    struct addr_find f = {.index = index};
    int rc = hw_netlink_dump(r, h, addr_each, &f, sizeof(f), "listing addresses");
    if (rc < 0)
        return rc;
    if (!f.found)
        return hw_fail(-EADDRNOTAVAIL, "the network device with index %d has no IPv4 address", index);
    *addr = f.addr;
    if (prefix)
        *prefix = f.prefix;
    return 0;
}

/* ---- the token bucket ----------------------------------------------------------------------- */

#define TBF_HANDLE 0x10000u /* 1:0, so that a later call finds and changes the qdisc that the first call added */

static struct nlmsghdr *qdisc_request(void *buf, uint16_t type, uint16_t flags, int index)
{
    struct nlmsghdr *h = hw_netlink_request(buf, HW_NETLINK_REQUEST, type, flags);
    struct tcmsg *t = mnl_nlmsg_put_extra_header(h, sizeof(*t));
    t->tcm_family = AF_UNSPEC;
    t->tcm_ifindex = index;
    t->tcm_parent = TC_H_ROOT;
    return h;
}

struct tbf_find {
    int index;
    bool found;
    uint64_t bytes; /* bytes per second */
};

static int tbf_each(const struct nlmsghdr *h, void *arg)
{
    struct tbf_find *f = arg;
    const struct tcmsg *t = mnl_nlmsg_get_payload(h);
    if (h->nlmsg_type != RTM_NEWQDISC || t->tcm_ifindex != f->index || t->tcm_parent != TC_H_ROOT)
        return 0;
    const struct nlattr *a, *o;
    bool tbf = false;
    uint64_t rate = 0, rate64 = 0;
    mnl_attr_for_each(a, h, sizeof(*t))
    {
        if (mnl_attr_get_type(a) == TCA_KIND)
            tbf = strcmp(mnl_attr_get_str(a), "tbf") == 0;
        if (mnl_attr_get_type(a) != TCA_OPTIONS || !tbf) /* the kernel sends the kind before the options */
            continue;
        mnl_attr_for_each_nested(o, a)
        {
            if (mnl_attr_get_type(o) == TCA_TBF_PARMS && mnl_attr_get_payload_len(o) >= sizeof(struct tc_tbf_qopt))
                rate = ((const struct tc_tbf_qopt *)mnl_attr_get_payload(o))->rate.rate;
            if (mnl_attr_get_type(o) == TCA_TBF_RATE64)
                rate64 = mnl_attr_get_u64(o);
        }
    }
    if (tbf) {
        f->found = true;
        f->bytes = HW_MAX(rate, rate64);
    }
    return 0;
}

static int tbf_find(struct hw_netlink *r, int index, struct tbf_find *f)
{
    char buf[HW_NETLINK_REQUEST];
    *f = (struct tbf_find){.index = index};
    return hw_netlink_dump(r, qdisc_request(buf, RTM_GETQDISC, NLM_F_DUMP, index), tbf_each, f, sizeof(*f),
                           "listing queueing disciplines");
}

int hw_rtnl_tbf_get(struct hw_netlink *r, int index, uint64_t *rate)
{
    struct tbf_find f;
    int rc = tbf_find(r, index, &f);
    *rate = rc < 0 ? 0 : f.bytes * 8;
    return rc;
}

int hw_rtnl_tbf_set(struct hw_netlink *r, int index, uint64_t rate, uint32_t burst, uint32_t limit)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    snprintf(what, sizeof(what), "setting the rate of the network device with index %d", index);
    if (rate == 0) {
        struct tbf_find f;
        int rc = tbf_find(r, index, &f);
        if (rc < 0 || !f.found)
            return rc;
        return hw_netlink_talk(r, qdisc_request(buf, RTM_DELQDISC, 0, index), NULL, NULL, what);
    }
    struct nlmsghdr *h = qdisc_request(buf, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, index);
    ((struct tcmsg *)mnl_nlmsg_get_payload(h))->tcm_handle = TBF_HANDLE;
    mnl_attr_put_strz(h, TCA_KIND, "tbf");
    struct nlattr *options = mnl_attr_nest_start(h, TCA_OPTIONS);
    uint64_t bytes = rate / 8;
    /* tbf_change() in net/sched/sch_tbf.c needs no tables of transmission times if the link layer and the burst in
     * bytes are given. Rates of 2^32 bytes per second and more use a separate attribute. */
    struct tc_tbf_qopt q = {
        .rate = {.linklayer = TC_LINKLAYER_ETHERNET, .rate = (uint32_t)HW_MIN(bytes, (uint64_t)UINT32_MAX)},
        .limit = limit};
    mnl_attr_put(h, TCA_TBF_PARMS, sizeof(q), &q);
    mnl_attr_put_u32(h, TCA_TBF_BURST, burst);
    if (bytes > UINT32_MAX)
        mnl_attr_put_u64(h, TCA_TBF_RATE64, bytes);
    mnl_attr_nest_end(h, options);
    int rc = hw_netlink_talk(r, h, NULL, NULL, what);
    if (rc == -ENOENT)
        return hw_wrap(rc, "this kernel seems to lack the token bucket (CONFIG_NET_SCH_TBF, module sch_tbf)");
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/rtnl_route.h"

#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int hw_rtnl_route_add(struct hw_netlink *r, const struct hw_rtnl_route *route)
{
    char buf[HW_NETLINK_REQUEST];
    uint32_t table = route->table ? route->table : RT_TABLE_MAIN;
    struct nlmsghdr *h = hw_netlink_request(buf, HW_NETLINK_REQUEST, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
    struct rtmsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
    *m = (struct rtmsg){.rtm_family = AF_INET,
                        .rtm_dst_len = (unsigned char)route->prefix,
                        .rtm_table = (unsigned char)(table < 256 ? table : RT_TABLE_UNSPEC),
                        .rtm_protocol = RTPROT_STATIC,
                        .rtm_scope = route->via.s_addr || !route->index ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
                        .rtm_type = route->index ? RTN_UNICAST : RTN_UNREACHABLE};
    if (route->prefix)
        mnl_attr_put_u32(h, RTA_DST, route->to.s_addr);
    if (route->via.s_addr)
        mnl_attr_put_u32(h, RTA_GATEWAY, route->via.s_addr);
    if (route->index)
        mnl_attr_put_u32(h, RTA_OIF, (uint32_t)route->index);
    mnl_attr_put_u32(h, RTA_TABLE, table);
    return hw_netlink_talk(r, h, NULL, NULL, "adding a route");
}

int hw_rtnl_rule_add(struct hw_netlink *r, const struct hw_rtnl_rule *rule)
{
    char buf[HW_NETLINK_REQUEST];
    struct nlmsghdr *h = hw_netlink_request(buf, HW_NETLINK_REQUEST, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL);
    struct fib_rule_hdr *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
    *m = (struct fib_rule_hdr){.family = AF_INET,
                               .src_len = rule->from.s_addr ? 32 : 0,
                               .table = (uint8_t)(rule->table < 256 ? rule->table : RT_TABLE_UNSPEC),
                               .action = FR_ACT_TO_TBL};
    mnl_attr_put_u32(h, FRA_PRIORITY, rule->priority);
    mnl_attr_put_u32(h, FRA_TABLE, rule->table);
    if (rule->iif)
        mnl_attr_put_strz(h, FRA_IIFNAME, rule->iif);
    if (rule->from.s_addr)
        mnl_attr_put_u32(h, FRA_SRC, rule->from.s_addr);
    int rc = hw_netlink_talk(r, h, NULL, NULL, "adding a routing rule");
    if (rc == -EOPNOTSUPP || rc == -EAFNOSUPPORT)
        return hw_wrap(rc, "this kernel seems to lack routing rules (CONFIG_IP_MULTIPLE_TABLES)");
    return rc;
}

static struct nlmsghdr *start_link(void *buf, int index)
{
    struct nlmsghdr *h = hw_netlink_request(buf, HW_NETLINK_REQUEST, RTM_NEWLINK, 0);
    struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));
    i->ifi_family = AF_UNSPEC;
    i->ifi_index = index;
    return h;
}

int hw_rtnl_link_forward(struct hw_netlink *r, int index)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = start_link(buf, index);
    struct nlattr *spec = mnl_attr_nest_start(h, IFLA_AF_SPEC);
    struct nlattr *inet = mnl_attr_nest_start(h, AF_INET);
    struct nlattr *conf = mnl_attr_nest_start(h, IFLA_INET_CONF);
    mnl_attr_put_u32(h, IPV4_DEVCONF_FORWARDING, 1);
    mnl_attr_nest_end(h, conf);
    mnl_attr_nest_end(h, inet);
    mnl_attr_nest_end(h, spec);
    snprintf(what, sizeof(what), "enabling forwarding on the network device with index %d", index);
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

int hw_rtnl_link_no_arp(struct hw_netlink *r, int index)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = start_link(buf, index);
    struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
    i->ifi_flags = i->ifi_change = IFF_NOARP;
    snprintf(what, sizeof(what), "disabling ARP on the network device with index %d", index);
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

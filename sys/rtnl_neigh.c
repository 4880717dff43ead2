/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/rtnl_neigh.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

struct neigh_list {
    int index;
    struct hw_rtnl_neigh *out;
    size_t cap, n;
};

static size_t get_ip_size(uint8_t family)
{
    return family == AF_INET6 ? 16 : 4;
}

static int neigh_each(const struct nlmsghdr *h, void *arg)
{
    struct neigh_list *list = arg;
    const struct ndmsg *m = mnl_nlmsg_get_payload(h);
    struct hw_rtnl_neigh n = {.index = m->ndm_ifindex, .family = m->ndm_family, .state = m->ndm_state};
    bool ip = false, mac = false;
    if (h->nlmsg_type != RTM_NEWNEIGH || m->ndm_ifindex != list->index || m->ndm_state & NUD_NOARP ||
        (m->ndm_family != AF_INET && m->ndm_family != AF_INET6))
        return 0;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(*m))
    {
        size_t len = mnl_attr_get_payload_len(a);
        if (mnl_attr_get_type(a) == NDA_DST && len == get_ip_size(n.family)) {
            memcpy(n.ip, mnl_attr_get_payload(a), len);
            ip = true;
        } else if (mnl_attr_get_type(a) == NDA_LLADDR && len == sizeof(n.mac)) {
            memcpy(n.mac, mnl_attr_get_payload(a), len);
            mac = true;
        }
    }
    if (!ip || !mac)
        return 0;
    if (list->n < list->cap)
        list->out[list->n] = n;
    list->n++;
    return 0;
}

int hw_rtnl_neigh_list(struct hw_netlink *r, int index, struct hw_rtnl_neigh *out, size_t cap)
{
    char buf[HW_NETLINK_REQUEST];
    struct neigh_list list = {.index = index, .out = out, .cap = cap};
    struct nlmsghdr *h = hw_netlink_request(buf, sizeof(buf), RTM_GETNEIGH, NLM_F_DUMP);
    struct ndmsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
    m->ndm_family = AF_UNSPEC;
    int rc = hw_netlink_dump(r, h, neigh_each, &list, sizeof(list), "listing the neighbours of a network device");
    return rc < 0 ? rc : (int)list.n;
}

int hw_rtnl_neigh_set(struct hw_netlink *r, const struct hw_rtnl_neigh *n)
{
    char buf[HW_NETLINK_REQUEST], what[96];
    struct nlmsghdr *h = hw_netlink_request(buf, sizeof(buf), RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
    struct ndmsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
    m->ndm_family = n->family;
    m->ndm_ifindex = n->index;
    m->ndm_state = n->state;
    mnl_attr_put(h, NDA_DST, get_ip_size(n->family), n->ip);
    mnl_attr_put(h, NDA_LLADDR, sizeof(n->mac), n->mac);
    snprintf(what, sizeof(what), "setting a neighbour of the network device with index %d", n->index);
    return hw_netlink_talk(r, h, NULL, NULL, what);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "net/route.h"
#include "net/paths.h"
#include "net/rtattr.h"

#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Maximum bytes of one read; the kernel rarely sends a dump in larger parts (net/netlink/af_netlink.c). */
#define ANSWER_MAX 32768
#define LINKS_MAX  4096

int hw_route_open(void)
{
    const struct timeval patience = {.tv_sec = 1};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return hw_fail(-errno, "opening a netlink socket for routes: %s", strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

/* ---- hardware --------------------------------------------------------------------------------------------------- */

struct link {
    unsigned index, lower, master;
    bool far;      /* lower is an index in another network namespace */
    bool hardware; /* the link has no kind and is not loopback, so it was not made by software */
    char kind[16];
};

struct links {
    struct link *l;
    unsigned n;
};

static uint32_t attr_u32(const struct rtattr *a)
{
    uint32_t v = 0;
    if (a && RTA_PAYLOAD(a) >= sizeof(v))
        memcpy(&v, RTA_DATA(a), sizeof(v));
    return v;
}

static void take_link(const struct nlmsghdr *h, struct links *all)
{
    const struct ifinfomsg *m = NLMSG_DATA(h);
    if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)) || all->n == LINKS_MAX)
        return;
    size_t len = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
    const struct rtattr *first = IFLA_RTA(m), *info = hw_rtattr_find(first, len, IFLA_LINKINFO), *kind = NULL;
    struct link *l = &all->l[all->n++];
    *l = (struct link){.index = (unsigned)m->ifi_index,
                       .lower = attr_u32(hw_rtattr_find(first, len, IFLA_LINK)),
                       .master = attr_u32(hw_rtattr_find(first, len, IFLA_MASTER)),
                       .far = hw_rtattr_find(first, len, IFLA_LINK_NETNSID) != NULL};
    if (info)
        kind = hw_rtattr_find(RTA_DATA(info), RTA_PAYLOAD(info), IFLA_INFO_KIND);
    if (kind)
        memcpy(l->kind, RTA_DATA(kind), HW_MIN(RTA_PAYLOAD(kind), sizeof(l->kind) - 1));
    l->hardware = !kind && !(m->ifi_flags & IFF_LOOPBACK);
}

/* Sends q and calls take() for each message of the answer. Returns 0, or a negative errno without an error text. */
static int query_kernel(int fd, struct nlmsghdr *q, void (*take)(const struct nlmsghdr *h, void *arg), void *arg)
{
    static _Atomic uint32_t next;
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    uint32_t seq = q->nlmsg_seq = ++next;
    char *buf = malloc(ANSWER_MAX);
    int rc = 1;
    if (!buf)
        return -ENOMEM;
    if (sendto(fd, q, q->nlmsg_len, 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
        rc = -errno;
    while (rc == 1) {
        struct sockaddr_nl from = {0};
        socklen_t from_len = sizeof(from);
        ssize_t n = recvfrom(fd, buf, ANSWER_MAX, 0, (struct sockaddr *)&from, &from_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            rc = n < 0 ? -errno : -EIO;
            break;
        }
        if (from.nl_pid != 0) /* not from the kernel */
            continue;
        size_t left = (size_t)n;
        for (const struct nlmsghdr *h = (const void *)buf; NLMSG_OK(h, left) && rc == 1; h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_seq != seq)
                continue;
            if (h->nlmsg_type == NLMSG_ERROR && h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)))
                rc = HW_MIN(((const struct nlmsgerr *)NLMSG_DATA(h))->error, 0);
            else if (h->nlmsg_type == NLMSG_DONE)
                rc = 0;
            else
                take(h, arg);
            if (rc == 1 && !(h->nlmsg_flags & NLM_F_MULTI))
                rc = 0;
        }
    }
    free(buf);
    return rc;
}

static void take_one_link(const struct nlmsghdr *h, void *arg)
{
    if (h->nlmsg_type == RTM_NEWLINK)
        take_link(h, arg);
}

static const struct link *link_at(const struct links *all, unsigned index)
{
    for (unsigned i = 0; i < all->n; i++)
        if (all->l[i].index == index)
            return &all->l[i];
    return NULL;
}

static bool is_kind(const struct link *l, const char *const *kinds)
{
    for (; *kinds; kinds++)
        if (strcmp(l->kind, *kinds) == 0)
            return true;
    return false;
}

static uint64_t device_of(const struct links *all, unsigned index)
{
    static const char *const on_one[] = {"vlan", "macvlan", "ipvlan", "macvtap", "ipvtap", NULL};
    static const char *const of_many[] = {"bond", "team", "bridge", NULL};
    const struct link *l = link_at(all, index);
    for (int depth = 0; l && depth < 4; depth++) {
        if (l->hardware)
            return l->index;
        if (is_kind(l, of_many)) {
            for (unsigned i = 0; i < all->n; i++)
                if (all->l[i].master == l->index && (all->l[i].hardware || is_kind(&all->l[i], on_one)))
                    return l->index;
            return 0;
        }
        if (!is_kind(l, on_one) || !l->lower)
            return 0;
        if (l->far) /* this is a container, and the underlying NIC belongs to the host */
            return (uint64_t)1 << 32 | l->lower;
        l = link_at(all, l->lower);
    }
    return 0;
}

void hw_route_devices(int fd, const struct hw_nic *nics, size_t n, uint64_t *device)
{
    struct {
        struct nlmsghdr h;
        struct ifinfomsg m;
    } q = {.h = {.nlmsg_len = sizeof(q), .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
    struct links all = {.l = fd < 0 ? NULL : calloc(LINKS_MAX, sizeof(*all.l))};
    bool any = false, good = all.l && query_kernel(fd, &q.h, take_one_link, &all) == 0;
    for (size_t i = 0; i < n; i++) {
        device[i] = good ? device_of(&all, if_nametoindex(nics[i].name)) : 0;
        any |= device[i] != 0;
    }
    for (size_t i = 0; i < n && !any; i++) { /* numbers the names; no interface index is this large */
        device[i] = (uint64_t)1 << 40 | i;
        for (size_t k = 0; k < i; k++)
            if (strcmp(nics[k].name, nics[i].name) == 0)
                device[i] = device[k];
    }
    free(all.l);
}

/* ---- routes ----------------------------------------------------------------------------------------------------- */

struct answer {
    bool found, link;
    bool many; /* the route has several next hops, one of them through the requested interface */
    unsigned oif;
};

static void take_route(const struct nlmsghdr *h, void *arg)
{
    struct answer *a = arg;
    const struct rtmsg *m = NLMSG_DATA(h);
    if (h->nlmsg_type != RTM_NEWROUTE || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
        return;
    size_t len = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
    const struct rtattr *first = RTM_RTA(m);
    a->found = m->rtm_type == RTN_UNICAST;
    a->link = !hw_rtattr_find(first, len, RTA_GATEWAY) && !hw_rtattr_find(first, len, RTA_VIA);
    a->oif = attr_u32(hw_rtattr_find(first, len, RTA_OIF));
    if (hw_rtattr_find(first, len, RTA_MULTIPATH)) {
        a->many = true;
        a->link = false;
    }
}

struct query {
    struct nlmsghdr h;
    struct rtmsg m;
    uint8_t attr[96];
};

static void add_route_attr(struct query *q, unsigned short type, const void *data, size_t len)
{
    struct rtattr *a = (struct rtattr *)(void *)((char *)q + NLMSG_ALIGN(q->h.nlmsg_len));
    a->rta_type = type;
    a->rta_len = (unsigned short)RTA_LENGTH(len);
    memcpy(RTA_DATA(a), data, len);
    q->h.nlmsg_len = NLMSG_ALIGN(q->h.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static void add_route_addr(struct query *q, unsigned short type, const union hw_addr *a)
{
    if (a->sa.sa_family == AF_INET)
        add_route_attr(q, type, &a->in.sin_addr, sizeof(a->in.sin_addr));
    else
        add_route_attr(q, type, &a->in6.sin6_addr, sizeof(a->in6.sin6_addr));
}

/*
 * Queries the route to `to`, optionally from address `from` and through interface oif. match requests the entry of the
 * routing table (RTM_F_FIB_MATCH, Linux 4.13). Without match, if an interface is given and no route uses this
 * interface, the kernel answers that the address is on the interface's link (net/ipv4/route.c,
 * ip_route_output_key_hash_rcu).
 */
static struct answer ask_route(int fd, const union hw_addr *to, const union hw_addr *from, uint32_t oif, bool match)
{
    struct answer a = {0};
    struct query q = {.h = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST}};
    q.h.nlmsg_len = NLMSG_LENGTH(sizeof(q.m));
    q.m.rtm_family = (unsigned char)to->sa.sa_family;
    q.m.rtm_dst_len = to->sa.sa_family == AF_INET ? 32 : 128;
    q.m.rtm_flags = match ? RTM_F_FIB_MATCH : 0;
    add_route_addr(&q, RTA_DST, to);
    if (from) {
        q.m.rtm_src_len = q.m.rtm_dst_len;
        add_route_addr(&q, RTA_SRC, from);
    }
    if (oif)
        add_route_attr(&q, RTA_OIF, &oif, sizeof(oif));
    if (query_kernel(fd, &q.h, take_route, &a) < 0)
        a.found = false;
    return a;
}

uint8_t hw_route_way(int fd, const struct hw_nic *nic, const union hw_addr *to)
{
    uint32_t index = if_nametoindex(nic->name);
    if (nic->addr.sa.sa_family != to->sa.sa_family)
        return HW_WAY_NONE;
    if (nic->loopback)
        return hw_addr_is_loopback(to) ? HW_WAY_LINK | HW_WAY_NATURAL : HW_WAY_NONE;
    if (fd < 0 || !index)
        return hw_nic_reaches(nic, to) ? HW_WAY_LINK | HW_WAY_NATURAL : HW_WAY_GATEWAY;
    /* IPv6 restricts the lookup to the interface only if there is no source address or the destination is link-local
     * (net/ipv6/route.c) */
    struct answer a = ask_route(fd, to, to->sa.sa_family == AF_INET ? &nic->addr : NULL, index, true);
    /* the route that the policy rules select for the NIC's address */
    struct answer own = ask_route(fd, to, &nic->addr, 0, false);
    if (!a.found || (!a.many && a.oif != index))
        a = own;
    if (!a.found || (!a.many && a.oif != index))
        return HW_WAY_NONE;
    return (uint8_t)((a.link ? HW_WAY_LINK : HW_WAY_GATEWAY) |
                     (own.found && own.oif == index ? HW_WAY_NATURAL : HW_WAY_NONE));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox_move.h"
#include "sandbox_move_int.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

struct sm_ns sm_host, sm_peer;
char sm_dir[64], sm_logged[8192];

int sm_must(int rc, const char *what, int line)
{
    if (rc < 0) {
        printf("Bail out! %s:%d: %s: %s %s\n", __FILE__, line, what, strerror(-rc), hw_error());
        exit(1);
    }
    return rc;
}

static void keep_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    size_t n = strlen(sm_logged);
    snprintf(sm_logged + n, sizeof(sm_logged) - n, "%s\n", line);
}

struct hw_logger sm_log = {.fn = keep_line, .level = HAWSER_LOG_DEBUG};

/* ---- namespaces ---------------------------------------------------------------------------------- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    hw_close(&fd);
    return done;
}

void sm_ns_make(struct sm_ns *n)
{
    MUST(hw_netns_create_anonymous(&n->fd, &n->rt));
    snprintf(n->path, sizeof(n->path), "/proc/self/fd/%d", n->fd);
}

void sm_ns_drop(struct sm_ns *n)
{
    hw_netlink_close(&n->rt);
    hw_close(&n->fd);
}

void sm_in(const struct sm_ns *n, void (*fn)(void *arg), void *arg)
{
    int own = MUST(hw_netns_own());
    MUST(setns(n->fd, CLONE_NEWNET) < 0 ? -errno : 0);
    fn(arg);
    MUST(setns(own, CLONE_NEWNET) < 0 ? -errno : 0);
    hw_close(&own);
}

void sm_start(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) < 0)
            tap_skip_all("neither root's namespaces nor a user's are allowed here: %s", strerror(errno));
        snprintf(map, sizeof(map), "0 %u 1", uid);
        bool mapped = write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof(map), "0 %u 1", gid);
        if (!mapped || !write_text("/proc/self/gid_map", map))
            tap_skip_all("a user namespace without root in it: %s", strerror(errno));
    }
    MUST(mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0);
    snprintf(sm_dir, sizeof(sm_dir), "/tmp/hawser-sm-XXXXXX");
    MUST(mkdtemp(sm_dir) ? 0 : -errno);
    /* A folder on a separate tmpfs, so the files disappear however the test exits. */
    MUST(mount("none", sm_dir, "tmpfs", 0, "mode=700") < 0 ? -errno : 0);
    sm_host.fd = MUST(hw_netns_own());
    MUST(hw_netlink_open(&sm_host.rt, NETLINK_ROUTE));
    snprintf(sm_host.path, sizeof(sm_host.path), "/proc/self/fd/%d", sm_host.fd);
    if (sm_sysctl_get(&sm_host, "ipv6/conf/all/accept_dad", map)[0] == 0)
        tap_skip_all("no IPv6 in this kernel");
    sm_ns_make(&sm_peer);
    /* Disabled because duplicate address detection takes seconds. */
    sm_sysctl(&sm_host, "ipv6/conf/default/accept_dad", "0");
    sm_set(&sm_host, "lo", "up", 1);
    MUST(hw_rtnl_bridge_add(&sm_peer.rt, "br0", 0));
    sm_set(&sm_peer, "br0", "up", 1);
}

void sm_end(void)
{
    sm_ns_drop(&sm_peer);
    sm_ns_drop(&sm_host);
    (void)umount2(sm_dir, MNT_DETACH);
    (void)rmdir(sm_dir);
}

/* setting things up */

struct nlmsghdr *sm_request(char buf[1024], uint16_t type, uint16_t flags, size_t head, void *extra)
{
    memset(buf, 0, 1024);
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = type;
    h->nlmsg_flags = NLM_F_REQUEST | flags;
    *(void **)extra = mnl_nlmsg_put_extra_header(h, head);
    return h;
}

static void send_it(const struct sm_ns *n, struct nlmsghdr *h, const char *what)
{
    struct hw_netlink rt = n->rt;
    sm_must(hw_netlink_talk(&rt, h, NULL, NULL, what), what, 0);
    ((struct sm_ns *)n)->rt.seq = rt.seq; /* NOLINT: the counter belongs to the socket */
}

int sm_index(const struct sm_ns *n, const char *name)
{
    struct hw_rtnl_link l;
    return hw_rtnl_link_get((struct hw_netlink *)&n->rt, name, &l) == 0 ? l.index : 0;
}

static int index_of(const struct sm_ns *n, const char *name)
{
    int i = sm_index(n, name);
    if (!i)
        sm_must(-ENODEV, name, 0);
    return i;
}

int sm_nic(const char *name)
{
    char other[IFNAMSIZ];
    snprintf(other, sizeof(other), "%.12s-p", name);
    struct hw_rtnl_end here = {name, 0, -1}, there = {other, 0, sm_peer.fd};
    MUST(hw_rtnl_veth_add(&sm_host.rt, &here, &there, 0));
    int i = index_of(&sm_peer, other);
    MUST(hw_rtnl_link_master(&sm_peer.rt, i, index_of(&sm_peer, "br0")));
    MUST(hw_rtnl_link_up(&sm_peer.rt, i, true));
    i = index_of(&sm_host, name);
    MUST(hw_rtnl_link_up(&sm_host.rt, i, true));
    return i;
}

int sm_macvlan(const char *name, const char *lower)
{
    char buf[1024];
    struct ifinfomsg *i;
    struct nlmsghdr *h = sm_request(buf, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(*i), &i);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    mnl_attr_put_u32(h, IFLA_LINK, (uint32_t)index_of(&sm_host, lower));
    struct nlattr *info = mnl_attr_nest_start(h, IFLA_LINKINFO);
    mnl_attr_put_str(h, IFLA_INFO_KIND, "macvlan");
    struct nlattr *data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
    mnl_attr_put_u32(h, IFLA_MACVLAN_MODE, MACVLAN_MODE_BRIDGE);
    mnl_attr_nest_end(h, data);
    mnl_attr_nest_end(h, info);
    send_it(&sm_host, h, "a macvlan device");
    int index = index_of(&sm_host, name);
    MUST(hw_rtnl_link_up(&sm_host.rt, index, true));
    return index;
}

void sm_link_del(const struct sm_ns *n, const char *name)
{
    MUST(hw_rtnl_link_del((struct hw_netlink *)&n->rt, index_of(n, name)));
}

/* Parses an address such as "10.0.0.1/16" into its family, bytes and prefix (32 or 128 if none is given). */
static int parse(const char *text, uint8_t out[16], unsigned *prefix)
{
    char addr[64];
    const char *slash = strchr(text, '/');
    snprintf(addr, sizeof(addr), "%.*s", slash ? (int)(slash - text) : (int)strlen(text), text);
    int family = strchr(addr, ':') ? AF_INET6 : AF_INET;
    MUST(inet_pton(family, addr, out) == 1 ? 0 : -EINVAL);
    *prefix = slash ? (unsigned)strtoul(slash + 1, NULL, 10) : family == AF_INET ? 32 : 128;
    return family;
}

static size_t size_of(int family)
{
    return family == AF_INET ? 4 : 16;
}

void sm_addr_like(const struct sm_ns *n, const char *dev, const char *addr, const char *label, uint32_t valid_s)
{
    char buf[1024];
    uint8_t bytes[16];
    unsigned prefix;
    int family = parse(addr, bytes, &prefix);
    struct ifaddrmsg *m;
    struct nlmsghdr *h = sm_request(buf, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m), &m);
    *m = (struct ifaddrmsg){
        .ifa_family = (uint8_t)family, .ifa_prefixlen = (uint8_t)prefix, .ifa_index = (uint32_t)index_of(n, dev)};
    mnl_attr_put(h, IFA_LOCAL, size_of(family), bytes);
    mnl_attr_put(h, IFA_ADDRESS, size_of(family), bytes);
    if (label)
        mnl_attr_put_strz(h, IFA_LABEL, label);
    if (valid_s) {
        struct ifa_cacheinfo c = {.ifa_valid = valid_s, .ifa_prefered = valid_s / 2};
        mnl_attr_put(h, IFA_CACHEINFO, sizeof(c), &c);
    }
    send_it(n, h, addr);
}

void sm_addr(const struct sm_ns *n, const char *dev, const char *addr)
{
    sm_addr_like(n, dev, addr, NULL, 0);
}

static struct nlmsghdr *route(char buf[1024], const char *dst, uint32_t table, int family)
{
    uint8_t bytes[16];
    unsigned prefix = 0;
    struct rtmsg *m;
    if (strcmp(dst, "default") != 0)
        family = parse(dst, bytes, &prefix);
    struct nlmsghdr *h = sm_request(buf, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_APPEND, sizeof(*m), &m);
    *m = (struct rtmsg){.rtm_family = (uint8_t)family,
                        .rtm_dst_len = (uint8_t)prefix,
                        .rtm_protocol = RTPROT_STATIC,
                        .rtm_type = RTN_UNICAST};
    mnl_attr_put_u32(h, RTA_TABLE, table);
    if (prefix)
        mnl_attr_put(h, RTA_DST, size_of(family), bytes);
    return h;
}

static void route_by(const struct sm_ns *n, const char *dst, const char *via, const char *dev, uint32_t table,
                     uint32_t metric, uint8_t protocol)
{
    char buf[1024];
    uint8_t bytes[16];
    unsigned prefix;
    struct nlmsghdr *h = route(buf, dst, table ? table : RT_TABLE_MAIN, via && strchr(via, ':') ? AF_INET6 : AF_INET);
    struct rtmsg *m = mnl_nlmsg_get_payload(h);
    m->rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
    m->rtm_protocol = protocol;
    if (via)
        mnl_attr_put(h, RTA_GATEWAY, size_of(parse(via, bytes, &prefix)), bytes);
    mnl_attr_put_u32(h, RTA_OIF, (uint32_t)index_of(n, dev));
    if (metric)
        mnl_attr_put_u32(h, RTA_PRIORITY, metric);
    send_it(n, h, dst);
}

void sm_route(const struct sm_ns *n, const char *dst, const char *via, const char *dev, uint32_t table, uint32_t metric)
{
    route_by(n, dst, via, dev, table, metric, RTPROT_STATIC);
}

void sm_route_ra(const struct sm_ns *n, const char *via, const char *dev)
{
    route_by(n, "default", via, dev, 0, 0, RTPROT_RA);
}

void sm_route2(const struct sm_ns *n, const char *dst, const char *via, const char *dev, const char *via2,
               const char *dev2)
{
    char buf[1024];
    const char *const vias[] = {via, via2}, *const devs[] = {dev, dev2};
    struct nlmsghdr *h = route(buf, dst, RT_TABLE_MAIN, AF_INET);
    struct nlattr *nest = mnl_attr_nest_start(h, RTA_MULTIPATH);
    for (int i = 0; i < 2; i++) {
        uint8_t bytes[16];
        unsigned prefix;
        size_t size = size_of(parse(vias[i], bytes, &prefix));
        struct rtnexthop *hop = mnl_nlmsg_get_payload_tail(h);
        *hop = (struct rtnexthop){.rtnh_len = (uint16_t)(sizeof(*hop) + MNL_ATTR_HDRLEN + size),
                                  .rtnh_ifindex = index_of(n, devs[i])};
        h->nlmsg_len += sizeof(*hop);
        mnl_attr_put(h, RTA_GATEWAY, size, bytes);
    }
    mnl_attr_nest_end(h, nest);
    send_it(n, h, dst);
}

void sm_rule(const struct sm_ns *n, const char *from, const char *iif, uint32_t table, uint32_t priority)
{
    char buf[1024];
    uint8_t bytes[16];
    unsigned prefix = 0;
    struct fib_rule_hdr *m;
    struct nlmsghdr *h = sm_request(buf, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m), &m);
    m->family = AF_INET;
    m->action = FR_ACT_TO_TBL;
    if (from) {
        m->family = (uint8_t)parse(from, bytes, &prefix);
        m->src_len = (uint8_t)prefix;
        mnl_attr_put(h, FRA_SRC, size_of(m->family), bytes);
    }
    if (iif)
        mnl_attr_put_strz(h, FRA_IIFNAME, iif);
    mnl_attr_put_u32(h, FRA_TABLE, table);
    mnl_attr_put_u32(h, FRA_PRIORITY, priority);
    send_it(n, h, "a rule");
}

void sm_neigh(const struct sm_ns *n, const char *dev, const char *addr, bool proxy)
{
    static const uint8_t mac[6] = {2, 0, 0, 0, 0, 9};
    char buf[1024];
    uint8_t bytes[16];
    unsigned prefix;
    int family = parse(addr, bytes, &prefix);
    struct ndmsg *m;
    struct nlmsghdr *h = sm_request(buf, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*m), &m);
    *m = (struct ndmsg){.ndm_family = (uint8_t)family,
                        .ndm_ifindex = index_of(n, dev),
                        .ndm_state = NUD_PERMANENT,
                        .ndm_flags = proxy ? NTF_PROXY : 0};
    mnl_attr_put(h, NDA_DST, size_of(family), bytes);
    if (!proxy)
        mnl_attr_put(h, NDA_LLADDR, sizeof(mac), mac);
    send_it(n, h, "a neighbour");
}

static void link_attr(const struct sm_ns *n, const char *dev, uint16_t type, const void *data, size_t len)
{
    char buf[1024];
    struct ifinfomsg *i;
    struct nlmsghdr *h = sm_request(buf, RTM_NEWLINK, 0, sizeof(*i), &i);
    i->ifi_index = index_of(n, dev);
    mnl_attr_put(h, type, len, data);
    send_it(n, h, dev);
}

void sm_set(const struct sm_ns *n, const char *dev, const char *what, uint32_t value)
{
    char buf[1024];
    struct ifinfomsg *i;
    bool up = strcmp(what, "up") == 0;
    if (up || strcmp(what, "promisc") == 0) {
        struct nlmsghdr *h = sm_request(buf, RTM_NEWLINK, 0, sizeof(*i), &i);
        i->ifi_index = index_of(n, dev);
        i->ifi_change = up ? IFF_UP : IFF_PROMISC;
        i->ifi_flags = value ? i->ifi_change : 0;
        send_it(n, h, what);
        return;
    }
    link_attr(n, dev,
              strcmp(what, "mtu") == 0      ? IFLA_MTU
              : strcmp(what, "txqlen") == 0 ? IFLA_TXQLEN
                                            : IFLA_GROUP,
              &value, sizeof(value));
}

void sm_mac(const struct sm_ns *n, const char *dev, const uint8_t mac[6])
{
    link_attr(n, dev, IFLA_ADDRESS, mac, 6);
}

void sm_alias(const struct sm_ns *n, const char *dev, const char *alias)
{
    link_attr(n, dev, IFLA_IFALIAS, alias, strlen(alias));
}

struct sysctl {
    const char *path, *value;
    char *out;
};

static void sysctl_in(void *arg)
{
    struct sysctl *s = arg;
    char path[128];
    snprintf(path, sizeof(path), "/proc/sys/net/%s", s->path);
    if (s->value) {
        if (!write_text(path, s->value))
            sm_must(-errno, path, 0);
        return;
    }
    s->out[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, s->out, 63);
    hw_close(&fd);
    s->out[n < 0 ? 0 : n] = 0;
    s->out[strcspn(s->out, "\n")] = 0;
}

void sm_sysctl(const struct sm_ns *n, const char *path, const char *value)
{
    sm_in(n, sysctl_in, &(struct sysctl){path, value, NULL});
}

const char *sm_sysctl_get(const struct sm_ns *n, const char *path, char buf[64])
{
    sm_in(n, sysctl_in, &(struct sysctl){path, NULL, buf});
    return buf;
}

/* functions under test */

int sm_move(const struct sm_ns *to, const char *names, bool force)
{
    char text[512];
    struct sb_nic nic[SB_NICS_MAX];
    size_t n = 0;
    snprintf(text, sizeof(text), "%s", names);
    for (char *save = NULL, *t = strtok_r(text, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        char *as = strchr(t, '=');
        if (as)
            *as++ = 0;
        nic[n++] = (struct sb_nic){t, as};
    }
    struct sb_move_options o = {
        .id = "box", .netns = to->path, .nic = nic, .n = n, .journal_dir = sm_dir, .force = force, .log = &sm_log};
    return sb_move(&o);
}

int sm_restore(unsigned *lost)
{
    struct sb_restore_options o = {.id = "box", .journal_dir = sm_dir, .log = &sm_log};
    return sb_restore(&o, lost);
}

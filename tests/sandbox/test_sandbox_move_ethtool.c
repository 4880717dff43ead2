/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests hardware attributes that test machines lack, on a veth device for which this file simulates ethtool's netlink
 * and ioctl interfaces, virtual functions and DCB (with the linker's --wrap). A tenant changes each attribute. Restore
 * must reset each of them, and must name each attribute that the driver refuses or only pretends to set.
 */
#include "sandbox_move.h"
#include "sandbox_move_int.h"

#include <libmnl/libmnl.h>
#include <linux/dcbnl.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/if_link.h>
#include <linux/net_tstamp.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define WRAP(ret, name, ...)        \
    ret __real_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__)

static struct sm_ns box;

/* ---- the NIC -------------------------------------------------------------------------------------- */

enum { VALUES = 16 };
/* For each GET message: its header attribute, the reported values, and the values that can be set. */
struct group {
    uint8_t get, set;
    uint16_t header;
    struct value {
        uint16_t type;
        uint8_t len; /* 1, 4, or 0 for a 32-bit bitset in compact form */
        bool fixed;  /* reported, but cannot be set */
        uint32_t is, was, tenants;
    } v[VALUES];
};

static struct group groups[] = {
    {ETHTOOL_MSG_RINGS_GET,
     ETHTOOL_MSG_RINGS_SET,
     ETHTOOL_A_RINGS_HEADER,
     {{ETHTOOL_A_RINGS_RX_MAX, 4, true, 8192, 8192, 8192},
      {ETHTOOL_A_RINGS_RX, 4, false, 512, 512, 64},
      {ETHTOOL_A_RINGS_TX, 4, false, 1024, 1024, 128},
      {ETHTOOL_A_RINGS_TCP_DATA_SPLIT, 1, false, 0, 0, 2},
      {ETHTOOL_A_RINGS_TX_PUSH, 1, false, 1, 1, 0}}},
    {ETHTOOL_MSG_CHANNELS_GET,
     ETHTOOL_MSG_CHANNELS_SET,
     ETHTOOL_A_CHANNELS_HEADER,
     {{ETHTOOL_A_CHANNELS_COMBINED_MAX, 4, true, 63, 63, 63}, {ETHTOOL_A_CHANNELS_COMBINED_COUNT, 4, false, 8, 8, 2}}},
    {ETHTOOL_MSG_COALESCE_GET,
     ETHTOOL_MSG_COALESCE_SET,
     ETHTOOL_A_COALESCE_HEADER,
     {{ETHTOOL_A_COALESCE_RX_USECS, 4, false, 8, 8, 900},
      {ETHTOOL_A_COALESCE_TX_USECS, 4, false, 16, 16, 901},
      {ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, 1, false, 1, 1, 0}}},
    {ETHTOOL_MSG_PAUSE_GET,
     ETHTOOL_MSG_PAUSE_SET,
     ETHTOOL_A_PAUSE_HEADER,
     {{ETHTOOL_A_PAUSE_AUTONEG, 1, false, 0, 0, 0},
      {ETHTOOL_A_PAUSE_RX, 1, false, 1, 1, 0},
      {ETHTOOL_A_PAUSE_TX, 1, false, 1, 1, 0}}},
    {ETHTOOL_MSG_PRIVFLAGS_GET,
     ETHTOOL_MSG_PRIVFLAGS_SET,
     ETHTOOL_A_PRIVFLAGS_HEADER,
     {{ETHTOOL_A_PRIVFLAGS_FLAGS, 0, false, 0x15, 0x15, 0x0a}}},
    {ETHTOOL_MSG_FEC_GET,
     ETHTOOL_MSG_FEC_SET,
     ETHTOOL_A_FEC_HEADER,
     {{ETHTOOL_A_FEC_AUTO, 1, false, 1, 1, 0}, {ETHTOOL_A_FEC_ACTIVE, 4, true, 51, 51, 50}}},
    {ETHTOOL_MSG_EEE_GET, ETHTOOL_MSG_EEE_SET, ETHTOOL_A_EEE_HEADER, {{ETHTOOL_A_EEE_ENABLED, 1, false, 0, 0, 1}}},
    {ETHTOOL_MSG_WOL_GET,
     ETHTOOL_MSG_WOL_SET,
     ETHTOOL_A_WOL_HEADER,
     {{ETHTOOL_A_WOL_MODES, 0, false, 0x20, 0x20, 0x02}}},
    {ETHTOOL_MSG_DEBUG_GET,
     ETHTOOL_MSG_DEBUG_SET,
     ETHTOOL_A_DEBUG_HEADER,
     {{ETHTOOL_A_DEBUG_MSGMASK, 0, false, 7, 7, 0x7fff}}},
    {ETHTOOL_MSG_LINKMODES_GET,
     ETHTOOL_MSG_LINKMODES_SET,
     ETHTOOL_A_LINKMODES_HEADER,
     {{ETHTOOL_A_LINKMODES_AUTONEG, 1, false, 0, 0, 0},
      {ETHTOOL_A_LINKMODES_SPEED, 4, false, 100000, 100000, 10},
      {ETHTOOL_A_LINKMODES_DUPLEX, 1, false, 1, 1, 0}}},
    {ETHTOOL_MSG_MODULE_GET,
     ETHTOOL_MSG_MODULE_SET,
     ETHTOOL_A_MODULE_HEADER,
     {{ETHTOOL_A_MODULE_POWER_MODE_POLICY, 1, false, 1, 1, 2}}},
};

enum { TABLE = 16, KEY = 8, RULES = 4, FLOW = TCP_V4_FLOW };
static struct ioctls {
    uint32_t table[TABLE];
    uint8_t key[KEY];
    uint32_t hfunc;
    uint64_t hash;
    struct ethtool_rx_flow_spec rule[RULES]; /* flow_type is 0 if the location is free */
    uint32_t copybreak;
    uint16_t pfc;
    struct hwtstamp_config stamp;
    bool configured; /* whether the table was set explicitly */
} io, io_was;

static struct vf {
    uint8_t mac[6];
    uint32_t trust;
} vf[2], vf_was[2];
static uint8_t pfc_en, pfc_was;
static uint32_t contexts[4], contexts_was[4]; /* 0: none */

enum { FEATURES_HW = 0xff, FEATURES = 0x3c };
static uint32_t wanted = FEATURES, active = FEATURES;

static int n0;            /* the NIC's index in the host */
static bool frozen, liar; /* frozen: the driver refuses changes; liar: the driver accepts changes but ignores them */
static int strange;       /* requests that no driver would understand */

/* ---- answers ---------------------------------------------------------------------------------------- */

static int genl = -1;
static uint16_t family;
static struct pending {
    int fd;
    size_t len, at;
    char buf[16384];
} pending = {.fd = -1};

static char *room(size_t n)
{
    if (pending.len + n > sizeof(pending.buf))
        abort();
    char *p = pending.buf + pending.len;
    memset(p, 0, n);
    return p;
}

static void put_end(const struct nlmsghdr *to, int error)
{
    bool is_dump = (to->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
    size_t n = MNL_NLMSG_HDRLEN + (is_dump && !error ? 4 : sizeof(struct nlmsgerr));
    struct nlmsghdr *h = (struct nlmsghdr *)(void *)room(MNL_ALIGN(n));
    h->nlmsg_len = (uint32_t)n;
    h->nlmsg_type = is_dump && !error ? NLMSG_DONE : NLMSG_ERROR;
    h->nlmsg_seq = to->nlmsg_seq;
    if (h->nlmsg_type == NLMSG_ERROR)
        ((struct nlmsgerr *)mnl_nlmsg_get_payload(h))->error = error;
    pending.len += MNL_ALIGN(n);
}

static struct nlmsghdr *start(const struct nlmsghdr *to, uint16_t type, size_t head, void **extra)
{
    struct nlmsghdr *h = mnl_nlmsg_put_header(room(4096));
    h->nlmsg_type = type;
    h->nlmsg_seq = to->nlmsg_seq;
    *extra = mnl_nlmsg_put_extra_header(h, head);
    return h;
}

static void put_bitset(struct nlmsghdr *h, uint16_t type, uint32_t value)
{
    struct nlattr *nest = mnl_attr_nest_start(h, type | NLA_F_NESTED);
    uint32_t mask = 0xffff;
    mnl_attr_put_u32(h, ETHTOOL_A_BITSET_SIZE, 32);
    mnl_attr_put(h, ETHTOOL_A_BITSET_VALUE, 4, &value);
    mnl_attr_put(h, ETHTOOL_A_BITSET_MASK, 4, &mask);
    mnl_attr_nest_end(h, nest);
}

static uint32_t number(const struct nlattr *a)
{
    uint32_t v = 0;
    memcpy(&v, mnl_attr_get_payload(a), HW_MIN(mnl_attr_get_payload_len(a), (uint16_t)4));
    return v;
}

static const struct nlattr *find(const struct nlattr *nest, int type)
{
    const struct nlattr *a;
    mnl_attr_for_each_nested(a, nest)
    {
        if (mnl_attr_get_type(a) == type)
            return a;
    }
    return NULL;
}

/* Returns the index of the device in a request's header. */
static int asked_of(const struct nlmsghdr *h, uint16_t header)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == header && find(a, ETHTOOL_A_HEADER_DEV_INDEX))
            return (int)number(find(a, ETHTOOL_A_HEADER_DEV_INDEX));
    }
    return 0;
}

static int set_group(struct group *g, const struct nlmsghdr *h)
{
    const struct nlattr *a;
    if (frozen)
        return -EBUSY;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        struct value *v = g->v;
        if (mnl_attr_get_type(a) == g->header)
            continue;
        while (v < g->v + VALUES && v->type != mnl_attr_get_type(a))
            v++;
        if (v == g->v + VALUES || v->fixed || (v->len && mnl_attr_get_payload_len(a) != v->len)) {
            strange++;
            return -EINVAL;
        }
        const struct nlattr *bits = v->len ? NULL : find(a, ETHTOOL_A_BITSET_VALUE);
        /* a driver does not disable queues that its RSS table uses (net/ethtool/channels.c) */
        for (int i = 0; g->get == ETHTOOL_MSG_CHANNELS_GET && i < TABLE; i++)
            if (io.configured && io.table[i] >= number(a))
                return -EINVAL;
        if (!liar)
            v->is = v->len ? number(a) : bits ? number(bits) : 0;
    }
    return 0;
}

static int serve_contexts(const struct nlmsghdr *h)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(contexts); i++) {
        struct genlmsghdr *g;
        if (!contexts[i])
            continue;
        struct nlmsghdr *out = start(h, family, sizeof(*g), (void **)&g);
        out->nlmsg_flags = NLM_F_MULTI;
        mnl_attr_put_u32(out, ETHTOOL_A_RSS_CONTEXT, contexts[i]);
        pending.len += MNL_ALIGN(out->nlmsg_len);
    }
    return 0;
}

/* Recomputes the active features only if the wanted features change, as the kernel does. */
static int set_features(const struct nlmsghdr *h)
{
    const struct nlattr *a;
    if (frozen)
        return -EBUSY;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        const struct nlattr *value = find(a, ETHTOOL_A_BITSET_VALUE), *mask = find(a, ETHTOOL_A_BITSET_MASK);
        if (mnl_attr_get_type(a) != ETHTOOL_A_FEATURES_WANTED || !value || !mask)
            continue;
        uint32_t now = (wanted & ~number(mask)) | (number(value) & number(mask) & FEATURES_HW);
        if (now != wanted && !liar)
            wanted = active = now;
    }
    return 0;
}

static bool serve_features(const struct nlmsghdr *h, uint8_t cmd)
{
    struct genlmsghdr *e;
    if ((cmd != ETHTOOL_MSG_FEATURES_GET && cmd != ETHTOOL_MSG_FEATURES_SET) ||
        asked_of(h, ETHTOOL_A_FEATURES_HEADER) != n0)
        return false;
    if (cmd == ETHTOOL_MSG_FEATURES_SET) {
        put_end(h, set_features(h));
        return true;
    }
    struct nlmsghdr *out = start(h, family, sizeof(*e), (void **)&e);
    put_bitset(out, ETHTOOL_A_FEATURES_HW, FEATURES_HW);
    put_bitset(out, ETHTOOL_A_FEATURES_WANTED, wanted);
    put_bitset(out, ETHTOOL_A_FEATURES_ACTIVE, active);
    pending.len += MNL_ALIGN(out->nlmsg_len);
    put_end(h, 0);
    return true;
}

/* Answers a request for the NIC. Returns false if the request was not for the NIC. */
static bool serve_ethtool(const struct nlmsghdr *h)
{
    const struct genlmsghdr *g = mnl_nlmsg_get_payload(h);
    if (g->cmd == ETHTOOL_MSG_RSS_GET && asked_of(h, ETHTOOL_A_RSS_HEADER) == n0) {
        put_end(h, serve_contexts(h));
        return true;
    }
    if (serve_features(h, g->cmd))
        return true;
    for (size_t i = 0; i < HW_ARRAY_LEN(groups); i++) {
        struct genlmsghdr *e;
        struct group *x = &groups[i];
        if ((g->cmd != x->get && g->cmd != x->set) || asked_of(h, x->header) != n0)
            continue;
        if (g->cmd == x->set) {
            put_end(h, set_group(x, h));
            return true;
        }
        struct nlmsghdr *out = start(h, family, sizeof(*e), (void **)&e);
        for (const struct value *v = x->v; v < x->v + VALUES && v->type; v++) {
            if (v->len == 0)
                put_bitset(out, v->type, v->is);
            else if (v->is || v->type != ETHTOOL_A_RINGS_TCP_DATA_SPLIT) /* omitted if it is 0 */
                mnl_attr_put(out, v->type, v->len, &v->is);
        }
        pending.len += MNL_ALIGN(out->nlmsg_len);
        put_end(h, 0);
        return true;
    }
    return false;
}

static int set_vf(const struct nlmsghdr *h)
{
    const struct nlattr *a, *info, *x;
    mnl_attr_for_each(a, h, sizeof(struct ifinfomsg))
    {
        if (mnl_attr_get_type(a) != IFLA_VFINFO_LIST)
            continue;
        mnl_attr_for_each_nested(info, a) mnl_attr_for_each_nested(x, info)
        {
            struct ifla_vf_mac mac;
            struct ifla_vf_trust trust;
            if (frozen)
                return -EBUSY;
            if (liar)
                continue;
            if (mnl_attr_get_type(x) == IFLA_VF_MAC) {
                memcpy(&mac, mnl_attr_get_payload(x), sizeof(mac));
                memcpy(vf[mac.vf % 2].mac, mac.mac, 6);
            } else if (mnl_attr_get_type(x) == IFLA_VF_TRUST) {
                memcpy(&trust, mnl_attr_get_payload(x), sizeof(trust));
                vf[trust.vf % 2].trust = trust.setting;
            } else {
                strange++;
            }
        }
    }
    return 0;
}

static bool serve_dcb(const struct nlmsghdr *h)
{
    const struct nlattr *a, *name = NULL, *ieee = NULL;
    mnl_attr_for_each(a, h, sizeof(struct dcbmsg))
    {
        if (mnl_attr_get_type(a) == DCB_ATTR_IFNAME)
            name = a;
        if (mnl_attr_get_type(a) == DCB_ATTR_IEEE)
            ieee = a;
    }
    if (!name || strcmp(mnl_attr_get_str(name), "n0") != 0)
        return false;
    struct dcbmsg *e;
    struct ieee_pfc pfc = {.pfc_cap = 8, .pfc_en = pfc_en};
    struct nlmsghdr *out = start(h, h->nlmsg_type, sizeof(*e), (void **)&e);
    if (h->nlmsg_type == RTM_GETDCB) {
        struct nlattr *nest = mnl_attr_nest_start(out, DCB_ATTR_IEEE | NLA_F_NESTED);
        mnl_attr_put(out, DCB_ATTR_IEEE_PFC, sizeof(pfc), &pfc);
        mnl_attr_put(out, DCB_ATTR_IEEE_PEER_PFC, sizeof(pfc), &pfc);
        mnl_attr_nest_end(out, nest);
    } else {
        const struct nlattr *x = ieee ? find(ieee, DCB_ATTR_IEEE_PFC) : NULL;
        if (!x || find(ieee, DCB_ATTR_IEEE_PEER_PFC))
            strange++;
        else if (!frozen && !liar)
            memcpy(&pfc, mnl_attr_get_payload(x), sizeof(pfc)), pfc_en = pfc.pfc_en;
        mnl_attr_put_u8(out, DCB_ATTR_IEEE, frozen ? (uint8_t)-EBUSY : 0);
    }
    pending.len += MNL_ALIGN(out->nlmsg_len);
    put_end(h, 0);
    return true;
}

WRAP(int, socket, int domain, int type, int protocol)
{
    int fd = __real_socket(domain, type, protocol);
    if (domain == AF_NETLINK && protocol == NETLINK_GENERIC)
        genl = fd;
    else if (fd == genl)
        genl = -1;
    return fd;
}

static bool vfs_asked;

WRAP(ssize_t, sendto, int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
    const struct nlmsghdr *h = buf;
    const struct nlattr *a;
    int domain = 0;
    socklen_t size = sizeof(domain);
    bool served = false;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_NETLINK)
        return __real_sendto(fd, buf, n, flags, to, len);
    pending.fd = fd;
    pending.len = pending.at = 0;
    vfs_asked = false;
    if (fd == genl && h->nlmsg_type != GENL_ID_CTRL) {
        family = h->nlmsg_type;
        served = serve_ethtool(h);
    } else if (h->nlmsg_type == RTM_GETDCB || h->nlmsg_type == RTM_SETDCB) {
        served = serve_dcb(h);
    } else if (h->nlmsg_type == RTM_GETLINK && ((const struct ifinfomsg *)mnl_nlmsg_get_payload(h))->ifi_index == n0) {
        mnl_attr_for_each(a, h, sizeof(struct ifinfomsg)) vfs_asked |=
            mnl_attr_get_type(a) == IFLA_EXT_MASK && mnl_attr_get_u32(a) & RTEXT_FILTER_VF;
    } else if (h->nlmsg_type == RTM_NEWLINK) {
        mnl_attr_for_each(a, h, sizeof(struct ifinfomsg)) served |= mnl_attr_get_type(a) == IFLA_VFINFO_LIST;
        if (served)
            put_end(h, set_vf(h));
    }
    return served ? (ssize_t)n : __real_sendto(fd, buf, n, flags, to, len);
}

/* Adds the virtual functions to the description of the NIC. */
static ssize_t add_vfs(void *buf, ssize_t n, size_t cap)
{
    struct nlmsghdr *h = buf;
    if (n <= 0 || h->nlmsg_type != RTM_NEWLINK || (size_t)n + 512 > cap)
        return n;
    struct nlattr *list = mnl_attr_nest_start(h, IFLA_VFINFO_LIST | NLA_F_NESTED);
    for (uint32_t i = 0; i < 2; i++) {
        struct ifla_vf_mac mac = {.vf = i};
        struct ifla_vf_trust trust = {i, vf[i].trust};
        char stats[16] = {0};
        memcpy(mac.mac, vf[i].mac, 6);
        struct nlattr *info = mnl_attr_nest_start(h, IFLA_VF_INFO | NLA_F_NESTED);
        mnl_attr_put(h, IFLA_VF_MAC, sizeof(mac), &mac);
        mnl_attr_put(h, IFLA_VF_TRUST, sizeof(trust), &trust);
        stats[0] = (char)rand();
        mnl_attr_put(h, IFLA_VF_STATS | NLA_F_NESTED, sizeof(stats), stats);
        mnl_attr_nest_end(h, info);
    }
    mnl_attr_nest_end(h, list);
    return (ssize_t)h->nlmsg_len;
}

WRAP(ssize_t, recv, int fd, void *buf, size_t n, int flags)
{
    if (fd != pending.fd || pending.at == pending.len) {
        ssize_t k = __real_recv(fd, buf, n, flags);
        return fd == pending.fd && vfs_asked ? add_vfs(buf, k, n) : k;
    }
    size_t k = pending.len - pending.at;
    memcpy(buf, pending.buf + pending.at, k);
    pending.at = pending.len;
    return (ssize_t)k;
}

/* ---- ioctl ------------------------------------------------------------------------------------------- */

static int rules_ioctl(struct ethtool_rxnfc *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RULES; i++) {
        if (io.rule[i].flow_type && r->cmd == ETHTOOL_GRXCLSRLALL && n < r->rule_cnt)
            r->rule_locs[n] = i;
        n += io.rule[i].flow_type != 0;
    }
    switch (r->cmd) {
    case ETHTOOL_GRXRINGS:
        r->data = groups[1].v[1].is;
        return 0;
    case ETHTOOL_GRXFH:
        r->data = io.hash;
        return r->flow_type == FLOW ? 0 : -EINVAL;
    case ETHTOOL_SRXFH:
        if (!frozen && !liar)
            io.hash = r->data;
        return frozen ? -EBUSY : 0;
    case ETHTOOL_GRXCLSRLCNT:
    case ETHTOOL_GRXCLSRLALL:
        r->rule_cnt = n;
        return 0;
    case ETHTOOL_GRXCLSRULE:
        if (r->fs.location >= RULES || !io.rule[r->fs.location].flow_type)
            return -ENOENT;
        r->fs = io.rule[r->fs.location];
        return 0;
    default: /* insert or delete */
        if (r->fs.location >= RULES)
            return -EINVAL;
        if (!frozen && !liar)
            io.rule[r->fs.location] =
                r->cmd == ETHTOOL_SRXCLSRLINS ? r->fs : (struct ethtool_rx_flow_spec){.flow_type = 0};
        return frozen ? -EBUSY : 0;
    }
}

static int rss_ioctl(struct ethtool_rxfh *r)
{
    uint8_t *key = (uint8_t *)(r->rss_config + r->indir_size);
    if (r->cmd == ETHTOOL_SRSSH && r->rss_context) {
        for (size_t i = 0; i < HW_ARRAY_LEN(contexts); i++)
            if (contexts[i] == r->rss_context && !frozen && !liar && r->indir_size == 0)
                contexts[i] = 0;
        return frozen ? -EBUSY : 0;
    }
    if (r->cmd == ETHTOOL_GRSSH) {
        if (r->indir_size == TABLE)
            memcpy(r->rss_config, io.table, sizeof(io.table));
        if (r->key_size == KEY)
            memcpy(key, io.key, KEY);
        r->indir_size = TABLE;
        r->key_size = KEY;
        r->hfunc = (uint8_t)io.hfunc;
        return 0;
    }
    if (frozen || liar)
        return frozen ? -EBUSY : 0;
    for (uint32_t i = 0; i < TABLE; i++)
        io.table[i] = r->indir_size ? r->rss_config[i] : i % groups[1].v[1].is;
    io.configured = r->indir_size;
    memcpy(io.key, key, KEY);
    io.hfunc = r->hfunc;
    return 0;
}

static int ethtool_ioctl(void *data)
{
    struct ethtool_tunable *t = data;
    switch (*(uint32_t *)data) {
    case ETHTOOL_GRSSH:
    case ETHTOOL_SRSSH:
        return rss_ioctl(data);
    case ETHTOOL_GTUNABLE:
    case ETHTOOL_STUNABLE:
        if (t->id != ETHTOOL_RX_COPYBREAK && t->id != ETHTOOL_PFC_PREVENTION_TOUT)
            return -EOPNOTSUPP;
        if (t->len != (t->id == ETHTOOL_RX_COPYBREAK ? 4 : 2))
            return -EINVAL;
        void *at = t->id == ETHTOOL_RX_COPYBREAK ? (void *)&io.copybreak : (void *)&io.pfc;
        if (t->cmd == ETHTOOL_GTUNABLE)
            memcpy(t->data, at, t->len);
        else if (!frozen && !liar)
            memcpy(at, t->data, t->len);
        return t->cmd == ETHTOOL_STUNABLE && frozen ? -EBUSY : 0;
    case ETHTOOL_GRXRINGS:
    case ETHTOOL_GRXFH:
    case ETHTOOL_SRXFH:
    case ETHTOOL_GRXCLSRLCNT:
    case ETHTOOL_GRXCLSRLALL:
    case ETHTOOL_GRXCLSRULE:
    case ETHTOOL_SRXCLSRLINS:
    case ETHTOOL_SRXCLSRLDEL:
        return rules_ioctl(data);
    default:
        return -EOPNOTSUPP;
    }
}

int __real_ioctl(int fd, unsigned long cmd, void *arg);
int __wrap_ioctl(int fd, unsigned long cmd, void *arg);
int __wrap_ioctl(int fd, unsigned long cmd, void *arg)
{
    struct ifreq *r = arg;
    if (cmd != SIOCETHTOOL && cmd != SIOCGHWTSTAMP && cmd != SIOCSHWTSTAMP)
        return __real_ioctl(fd, cmd, arg);
    if (strcmp(r->ifr_name, "n0") != 0)
        return __real_ioctl(fd, cmd, arg);
    int rc = 0;
    if (cmd == SIOCETHTOOL)
        rc = ethtool_ioctl(r->ifr_data);
    else if (cmd == SIOCGHWTSTAMP)
        memcpy(r->ifr_data, &io.stamp, sizeof(io.stamp));
    else if (frozen)
        rc = -EBUSY;
    else if (!liar)
        memcpy(&io.stamp, r->ifr_data, sizeof(io.stamp));
    if (rc < 0)
        errno = -rc;
    return rc < 0 ? -1 : 0;
}

/* ---- the tests ----------------------------------------------------------------------------------------- */

static void build(void)
{
    for (uint32_t i = 0; i < TABLE; i++)
        io.table[i] = i % 8;
    memset(io.key, 0x5a, KEY);
    io.hfunc = 1;
    io.hash = 0x30;
    io.copybreak = 256;
    io.pfc = 100;
    io.rule[1] = (struct ethtool_rx_flow_spec){.flow_type = TCP_V4_FLOW, .location = 1, .ring_cookie = 3};
    io.rule[2] = (struct ethtool_rx_flow_spec){.flow_type = UDP_V4_FLOW, .location = 2, .ring_cookie = 4};
    memcpy(vf[0].mac, "\2\0\0\0\0\1", 6);
    memcpy(vf[1].mac, "\2\0\0\0\0\2", 6);
    pfc_en = 0x08;
    contexts[0] = 1;
    io_was = io;
    memcpy(vf_was, vf, sizeof(vf));
    memcpy(contexts_was, contexts, sizeof(contexts));
    pfc_was = pfc_en;
}

static void change_all(void)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(groups); i++)
        for (struct value *v = groups[i].v; v < groups[i].v + VALUES; v++)
            v->is = v->tenants;
    for (uint32_t i = 0; i < TABLE; i++)
        io.table[i] = i % 2;
    io.configured = true;
    memset(io.key, 0, KEY);
    io.hfunc = 2;
    io.hash = 0;
    io.copybreak = 0;
    io.pfc = 1;
    io.stamp.rx_filter = HWTSTAMP_FILTER_ALL;
    io.rule[1].ring_cookie = 1;
    io.rule[2].flow_type = 0;
    io.rule[3] = (struct ethtool_rx_flow_spec){.flow_type = TCP_V4_FLOW, .location = 3, .ring_cookie = 9};
    memset(vf[1].mac, 0x66, 6);
    vf[0].trust = 1;
    pfc_en = 0;
    contexts[2] = 3;
    wanted = active = FEATURES ^ 0x11;
}

static void reset_all(void)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(groups); i++)
        for (struct value *v = groups[i].v; v < groups[i].v + VALUES; v++)
            v->is = v->was;
    io = io_was;
    memcpy(vf, vf_was, sizeof(vf));
    memcpy(contexts, contexts_was, sizeof(contexts));
    pfc_en = pfc_was;
}

/* Returns the number of attributes that have not been restored; prints them if `told`. */
static int differences(bool told)
{
    int n = 0;
#define SEE(cond, ...)         \
    do {                       \
        n += (cond);           \
        if ((cond) && told)    \
            diag(__VA_ARGS__); \
    } while (0)
    for (size_t i = 0; i < HW_ARRAY_LEN(groups); i++)
        for (const struct value *v = groups[i].v; v < groups[i].v + VALUES; v++)
            SEE(v->is != v->was && !v->fixed, "message %u, attribute %u: %u, was %u", groups[i].get, v->type, v->is,
                v->was);
    SEE(memcmp(io.table, io_was.table, sizeof(io.table)) != 0, "the RSS table");
    SEE(memcmp(io.key, io_was.key, KEY) != 0 || io.hfunc != io_was.hfunc, "the RSS key");
    SEE(io.configured, "the RSS table counts as set by hand");
    SEE(io.hash != io_was.hash, "hash fields");
    SEE(memcmp(io.rule, io_was.rule, sizeof(io.rule)) != 0, "rules");
    SEE(io.copybreak != io_was.copybreak || io.pfc != io_was.pfc, "tunables");
    SEE(memcmp(&io.stamp, &io_was.stamp, sizeof(io.stamp)) != 0, "time stamps");
    SEE(memcmp(vf, vf_was, sizeof(vf)) != 0, "virtual functions");
    SEE(memcmp(contexts, contexts_was, sizeof(contexts)) != 0, "RSS contexts");
    SEE(pfc_en != pfc_was, "priority flow control");
    SEE(wanted != FEATURES || active != FEATURES, "features: wanted %x, active %x", wanted, active);
    return n;
}

static const char *const names[] = {
    "rings",       "channels",     "coalescing",     "pause",          "private flags", "error correction",
    "energy",      "wake-on",      "message level",  "speed",          "module power",  "RSS table",
    "hash fields", "flow rules",   "rx-copybreak",   "pfc-prevention", "time stamps",   "virtual functions",
    "data center", "RSS contexts", "set of features"};

static void test_refused(bool lies)
{
    unsigned lost = 9;
    MUST(sm_move(&box, "n0", false));
    change_all();
    frozen = !lies;
    liar = lies;
    sm_logged[0] = 0;
    int rc = sm_restore(&lost), named = 0;
    ok(rc == -EIO && lost == 0, "a driver that %s: restore fails: %s",
       lies ? "takes everything and does nothing" : "refuses", hw_error());
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        named += strstr(sm_logged, names[i]) != NULL;
        if (!strstr(sm_logged, names[i]))
            diag("not named: %s", names[i]);
    }
    is_int(named, (int)HW_ARRAY_LEN(names), "each attribute is named in the answer");
    ok(sm_index(&sm_host, "n0") > 0, "the NIC is back all the same");
    frozen = liar = false;
    rc = sm_restore(&lost);
    ok(rc == 0 && differences(true) == 0 && sm_clean(), "the next call, with a driver that works, ends it: %s",
       rc < 0 ? hw_error() : "all is as it was");
}

int main(void)
{
    unsigned lost = 9;
    sm_start();
    sm_ns_make(&box);
    n0 = sm_nic("n0");
    sm_addr(&sm_host, "n0", "10.9.0.1/24");
    build();
    MUST(sm_move(&box, "n0", false));
    ok(sm_restore(&lost) == 0 && differences(true) == 0,
       "a NIC that nobody has changed comes back, and nothing is set");
    is_int(strange, 0, "no driver was asked what it does not know");
    MUST(sm_move(&box, "n0", false));
    change_all();
    ok(differences(false) > 25, "a tenant changes %d values", differences(false));
    sm_logged[0] = 0;
    int rc = sm_restore(&lost);
    ok(rc == 0 && differences(true) == 0, "all of them are put back: %s", rc < 0 ? hw_error() : "yes");
    if (rc < 0)
        diag("%s", sm_logged);
    is_int(strange, 0, "no driver was told what it does not know");
    ok(sm_clean(), "nothing is left");

    test_refused(false);
    test_refused(true);

    MUST(sm_move(&box, "n0", false));
    contexts[0] = 0;
    sm_logged[0] = 0;
    ok(sm_restore(&lost) == -EIO && strstr(sm_logged, "RSS context 1 was deleted"),
       "an RSS context of the host's that a tenant deleted is named");
    reset_all();
    ok(sm_restore(&lost) == 0 && sm_clean(), "made by hand, all is well");

    MUST(sm_move(&box, "n0", false));
    active = FEATURES & ~0x0cu;
    sm_logged[0] = 0;
    rc = sm_restore(&lost);
    ok(rc == 0 && differences(true) == 0 && sm_clean(), "features that are wanted but not active become active: %s",
       rc < 0 ? sm_logged : "yes");

    /* Values that may change without a request are not compared: for example, a link that is down has no speed. */
    MUST(sm_move(&box, "n0", false));
    for (size_t i = 0; i < HW_ARRAY_LEN(groups); i++)
        for (struct value *v = groups[i].v; groups[i].get == ETHTOOL_MSG_LINKMODES_GET && v < groups[i].v + VALUES; v++)
            v->is = v->type == ETHTOOL_A_LINKMODES_SPEED    ? UINT32_MAX
                    : v->type == ETHTOOL_A_LINKMODES_DUPLEX ? 255
                                                            : v->is;
    ok(sm_restore(&lost) == 0 && sm_clean(), "a NIC whose link is down for the moment is no failure");
    sm_ns_drop(&box);
    sm_end();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes accessed through rtnetlink: attributes of the link itself, of a PCI device's virtual functions, and of
 * data center bridging. */
#include "sandbox/attr/attr.h"

#include <libmnl/libmnl.h>
#include <linux/dcbnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>

#define REQUEST_MAX (72 << 10) /* size of a request's buffer, in bytes; a single attribute has at most 64 KiB */

static struct nlmsghdr *put_link(char buf[REQUEST_MAX], const struct sb_dev *d, uint16_t type, uint16_t flags)
{
    struct nlmsghdr *h = hw_netlink_request(buf, REQUEST_MAX, type, flags);
    struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));
    i->ifi_index = d->index;
    return h;
}

static int talk_link(const struct sb_attr *a, struct sb_dev *d, struct nlmsghdr *h)
{
    char what[128];
    snprintf(what, sizeof(what), "%s: setting its %s", d->name, a->what);
    return hw_netlink_talk(d->k->rt, h, NULL, NULL, what);
}

struct wanted {
    int type;
    bool got;
    int (*fn)(const struct nlattr *a, struct sb_blob *out);
    struct sb_blob *out;
};

static int take_wanted(const struct nlmsghdr *h, void *arg)
{
    struct wanted *w = arg;
    const struct nlattr *a;
    if (h->nlmsg_type != RTM_NEWLINK)
        return 0;
    mnl_attr_for_each(a, h, sizeof(struct ifinfomsg))
    {
        if (mnl_attr_get_type(a) != w->type)
            continue;
        w->got = true;
        int rc = w->fn(a, w->out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads a device's link and passes its attribute of this type to fn. Fails with -EOPNOTSUPP if the link lacks the
 * attribute. */
static int read_link_attr(struct sb_dev *d, int type, uint32_t mask,
                          int (*fn)(const struct nlattr *a, struct sb_blob *out), struct sb_blob *out)
{
    struct wanted w = {.type = type, .fn = fn, .out = out};
    int rc = sb_netdev_message(d->k->rt, d->index, mask, take_wanted, &w);
    return rc < 0 ? rc : w.got ? 0 : -EOPNOTSUPP;
}

static int take_payload(const struct nlattr *a, struct sb_blob *out)
{
    return sb_blob_put(out, mnl_attr_get_payload(a), mnl_attr_get_payload_len(a));
}

/* ---- attributes with a plain value -------------------------------------------------------------------- */

int sb_read_link(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    return read_link_attr(d, a->type, 0, take_payload, out);
}

int sb_write_link(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    struct nlmsghdr *h = put_link(buf, d, RTM_NEWLINK, 0);
    (void)now;
    if (was->n > 64 || (a->keep && was->n != a->keep))
        return hw_fail(-EBADMSG, "%s: its recorded %s has an invalid length of %zu bytes", d->name, a->what, was->n);
    mnl_attr_put(h, a->type, was->n, was->p);
    return talk_link(a, d, h);
}

/* ---- alternative names --------------------------------------------------------------------------------- */

/* The value is the list of names in the kernel's format. It is empty for a device without alternative names. */
int sb_read_altnames(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    (void)a;
    int rc = read_link_attr(d, IFLA_PROP_LIST, 0, take_payload, out);
    return rc == -EOPNOTSUPP ? 0 : rc;
}

int sb_write_altnames(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    int rc = now->n ? sb_netdev_drop_altnames(d->k->rt, d->index) : 0;
    if (rc < 0 || was->n == 0)
        return rc;
    struct nlmsghdr *h = put_link(buf, d, RTM_NEWLINKPROP, NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND);
    if (!mnl_attr_put_check(h, sizeof(buf), IFLA_PROP_LIST | NLA_F_NESTED, was->n, was->p))
        return hw_fail(-EMSGSIZE, "%s: too many alternative names", d->name);
    return talk_link(a, d, h);
}

/* ---- proto_down ----------------------------------------------------------------------------------------- */

static int take_reason(const struct nlattr *nest, struct sb_blob *out)
{
    const struct nlattr *a;
    mnl_attr_for_each_nested(a, nest)
    {
        if (mnl_attr_get_type(a) == IFLA_PROTO_DOWN_REASON_VALUE && mnl_attr_get_payload_len(a) == 4)
            return sb_blob_attr(out, IFLA_PROTO_DOWN_REASON, mnl_attr_get_payload(a), 4);
    }
    return 0;
}

static int take_down(const struct nlattr *a, struct sb_blob *out)
{
    return sb_blob_attr(out, IFLA_PROTO_DOWN, mnl_attr_get_payload(a), mnl_attr_get_payload_len(a));
}

int sb_read_down(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    (void)a;
    int rc = read_link_attr(d, IFLA_PROTO_DOWN, 0, take_down, out);
    if (rc < 0)
        return rc;
    /* The kernel has reported this attribute since Linux 5.9, and only if there are reasons. */
    rc = read_link_attr(d, IFLA_PROTO_DOWN_REASON, 0, take_reason, out);
    return rc == -EOPNOTSUPP ? 0 : rc;
}

int sb_write_down(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    const struct nlattr *down = sb_blob_find(was, IFLA_PROTO_DOWN), *reason = sb_blob_find(was, IFLA_PROTO_DOWN_REASON),
                        *other = sb_blob_find(now, IFLA_PROTO_DOWN_REASON);
    struct nlmsghdr *h = put_link(buf, d, RTM_NEWLINK, 0);
    if (!down)
        return hw_fail(-EBADMSG, "%s: its recorded protocol state is empty", d->name);
    if (reason || other) { /* proto_down cannot be cleared while there is a reason for it */
        struct nlattr *nest = mnl_attr_nest_start(h, IFLA_PROTO_DOWN_REASON | NLA_F_NESTED);
        mnl_attr_put_u32(h, IFLA_PROTO_DOWN_REASON_MASK, UINT32_MAX);
        mnl_attr_put_u32(h, IFLA_PROTO_DOWN_REASON_VALUE, reason ? mnl_attr_get_u32(reason) : 0);
        mnl_attr_nest_end(h, nest);
    }
    mnl_attr_put_u8(h, IFLA_PROTO_DOWN, mnl_attr_get_u8(down));
    return talk_link(a, d, h);
}

/* ---- kind-specific settings ------------------------------------------------------------------------------ */

/* The settable attributes of the kinds of devices that containers can get. Other attributes may only report the
 * kernel's state. */
static const struct {
    const char *kind;
    uint64_t keep;
} kinds[] = {
    {"macvlan", 1u << IFLA_MACVLAN_MODE | 1u << IFLA_MACVLAN_FLAGS | 1u << IFLA_MACVLAN_BC_QUEUE_LEN},
    {"macvtap", 1u << IFLA_MACVLAN_MODE | 1u << IFLA_MACVLAN_FLAGS | 1u << IFLA_MACVLAN_BC_QUEUE_LEN},
    {"ipvlan", 1u << IFLA_IPVLAN_MODE | 1u << IFLA_IPVLAN_FLAGS},
    {"ipvtap", 1u << IFLA_IPVLAN_MODE | 1u << IFLA_IPVLAN_FLAGS},
    {"vlan", 1u << IFLA_VLAN_FLAGS | 1u << IFLA_VLAN_EGRESS_QOS | 1u << IFLA_VLAN_INGRESS_QOS},
};

/* The value contains the kind, and the attributes in kinds[].keep. */
static int take_kind(const struct nlattr *info, struct sb_blob *out)
{
    const struct nlattr *a, *b, *kind = NULL, *data = NULL;
    uint64_t keep = 0;
    mnl_attr_for_each_nested(a, info)
    {
        if (mnl_attr_get_type(a) == IFLA_INFO_KIND && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
            kind = a;
        if (mnl_attr_get_type(a) == IFLA_INFO_DATA)
            data = a;
    }
    for (size_t i = 0; kind && i < HW_ARRAY_LEN(kinds); i++)
        if (strcmp(mnl_attr_get_str(kind), kinds[i].kind) == 0)
            keep = kinds[i].keep;
    if (!keep || !data)
        return -EOPNOTSUPP;
    struct sb_blob kept __attribute__((cleanup(sb_blob_free))) = {0};
    int rc;
    mnl_attr_for_each_nested(b, data)
    {
        unsigned type = mnl_attr_get_type(b);
        if (type < 64 && keep >> type & 1 &&
            (rc = sb_blob_attr(&kept, b->nla_type, mnl_attr_get_payload(b), mnl_attr_get_payload_len(b))) < 0)
            return rc;
    }
    rc = sb_blob_attr(out, IFLA_INFO_KIND, mnl_attr_get_payload(kind), mnl_attr_get_payload_len(kind));
    return rc < 0 ? rc : sb_blob_attr(out, IFLA_INFO_DATA | NLA_F_NESTED, kept.p, kept.n);
}

int sb_read_kind(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    (void)a;
    return read_link_attr(d, IFLA_LINKINFO, 0, take_kind, out);
}

/* Adds a VLAN device's priorities to a request. Priorities that did not exist before are set to 0, which means none. */
static void put_priorities(struct nlmsghdr *h, const struct nlattr *was, const struct nlattr *now, uint16_t type)
{
    struct nlattr *nest = mnl_attr_nest_start(h, type | NLA_F_NESTED);
    const struct nlattr *x, *lists[] = {now, was};
    for (size_t i = 0; i < HW_ARRAY_LEN(lists); i++) {
        if (!lists[i])
            continue;
        mnl_attr_for_each_nested(x, lists[i])
        {
            struct ifla_vlan_qos_mapping m;
            if (mnl_attr_get_payload_len(x) != sizeof(m))
                continue;
            memcpy(&m, mnl_attr_get_payload(x), sizeof(m));
            m.to = lists[i] == now ? 0 : m.to;
            mnl_attr_put(h, IFLA_VLAN_QOS_MAPPING, sizeof(m), &m);
        }
    }
    mnl_attr_nest_end(h, nest);
}

static const struct nlattr *find_nested(const struct nlattr *nest, int type)
{
    const struct nlattr *a;
    if (!nest)
        return NULL;
    mnl_attr_for_each_nested(a, nest)
    {
        if (mnl_attr_get_type(a) == type)
            return a;
    }
    return NULL;
}

/* Adds to a request the changes that turn a VLAN device's settings `now` into `was`. The kernel reports the mask of the
 * flags as all ones, but does not accept this mask in a request. */
static void put_vlan(struct nlmsghdr *h, const struct nlattr *was, const struct nlattr *now)
{
    const struct nlattr *x = find_nested(was, IFLA_VLAN_FLAGS), *y = find_nested(now, IFLA_VLAN_FLAGS);
    struct ifla_vlan_flags old, is;
    if (x && y && mnl_attr_get_payload_len(x) == sizeof(old) && mnl_attr_get_payload_len(y) == sizeof(is)) {
        memcpy(&old, mnl_attr_get_payload(x), sizeof(old));
        memcpy(&is, mnl_attr_get_payload(y), sizeof(is));
        old.mask = old.flags ^ is.flags;
        mnl_attr_put(h, IFLA_VLAN_FLAGS, sizeof(old), &old);
    }
    put_priorities(h, find_nested(was, IFLA_VLAN_EGRESS_QOS), find_nested(now, IFLA_VLAN_EGRESS_QOS),
                   IFLA_VLAN_EGRESS_QOS);
    put_priorities(h, find_nested(was, IFLA_VLAN_INGRESS_QOS), find_nested(now, IFLA_VLAN_INGRESS_QOS),
                   IFLA_VLAN_INGRESS_QOS);
}

int sb_write_kind(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    const struct nlattr *kind = sb_blob_find(was, IFLA_INFO_KIND), *data = sb_blob_find(was, IFLA_INFO_DATA);
    struct nlmsghdr *h = put_link(buf, d, RTM_NEWLINK, 0);
    if (!kind || mnl_attr_validate(kind, MNL_TYPE_NUL_STRING) < 0 || !data ||
        was->n + now->n > sizeof(buf) / 2) /* leave space for the priorities of both */
        return hw_fail(-EMSGSIZE, "%s: its kind-specific settings are invalid or too large", d->name);
    struct nlattr *info = mnl_attr_nest_start(h, IFLA_LINKINFO | NLA_F_NESTED);
    mnl_attr_put(h, IFLA_INFO_KIND, mnl_attr_get_payload_len(kind), mnl_attr_get_payload(kind));
    if (strcmp(mnl_attr_get_str(kind), "vlan") == 0) {
        struct nlattr *nest = mnl_attr_nest_start(h, IFLA_INFO_DATA | NLA_F_NESTED);
        put_vlan(h, data, sb_blob_find(now, IFLA_INFO_DATA));
        mnl_attr_nest_end(h, nest);
    } else {
        mnl_attr_put(h, IFLA_INFO_DATA | NLA_F_NESTED, mnl_attr_get_payload_len(data), mnl_attr_get_payload(data));
    }
    mnl_attr_nest_end(h, info);
    return talk_link(a, d, h);
}

/* ---- the IPv6 token --------------------------------------------------------------------------------------- */

static int take_token(const struct nlattr *spec, struct sb_blob *out)
{
    const struct nlattr *a, *b;
    mnl_attr_for_each_nested(a, spec)
    {
        if (mnl_attr_get_type(a) != AF_INET6)
            continue;
        mnl_attr_for_each_nested(b, a)
        {
            if (mnl_attr_get_type(b) == IFLA_INET6_TOKEN && mnl_attr_get_payload_len(b) == 16)
                return sb_blob_put(out, mnl_attr_get_payload(b), 16);
        }
    }
    return -EOPNOTSUPP;
}

int sb_read_token(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    (void)a;
    return read_link_attr(d, IFLA_AF_SPEC, 0, take_token, out);
}

int sb_write_token(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8)));
    struct nlmsghdr *h = put_link(buf, d, RTM_NEWLINK, 0);
    (void)now;
    if (was->n != 16)
        return hw_fail(-EBADMSG, "%s: its IPv6 token has %zu bytes instead of 16", d->name, was->n);
    struct nlattr *spec = mnl_attr_nest_start(h, IFLA_AF_SPEC | NLA_F_NESTED);
    struct nlattr *inet6 = mnl_attr_nest_start(h, AF_INET6 | NLA_F_NESTED);
    mnl_attr_put(h, IFLA_INET6_TOKEN, 16, was->p);
    mnl_attr_nest_end(h, inet6);
    mnl_attr_nest_end(h, spec);
    return talk_link(a, d, h);
}

/* ---- virtual functions ------------------------------------------------------------------------------------ */

/* The attributes that can be set. IFLA_VF_VLAN_LIST contains the value of IFLA_VF_VLAN, and IFLA_VF_RATE contains the
 * value of IFLA_VF_TX_RATE. */
#define VF_KEEP                                                                                                   \
    (1u << IFLA_VF_MAC | 1u << IFLA_VF_SPOOFCHK | 1u << IFLA_VF_LINK_STATE | 1u << IFLA_VF_RATE |                 \
     1u << IFLA_VF_RSS_QUERY_EN | 1u << IFLA_VF_TRUST | 1u << IFLA_VF_IB_NODE_GUID | 1u << IFLA_VF_IB_PORT_GUID | \
     1u << IFLA_VF_VLAN_LIST)

/* The value consists of one nest IFLA_VF_INFO for each function. */
static int take_vfs(const struct nlattr *list, struct sb_blob *out)
{
    const struct nlattr *vf, *a;
    int rc;
    mnl_attr_for_each_nested(vf, list)
    {
        struct sb_blob one __attribute__((cleanup(sb_blob_free))) = {0};
        mnl_attr_for_each_nested(a, vf)
        {
            unsigned type = mnl_attr_get_type(a);
            if (type < 32 && VF_KEEP >> type & 1 &&
                (rc = sb_blob_attr(&one, a->nla_type, mnl_attr_get_payload(a), mnl_attr_get_payload_len(a))) < 0)
                return rc;
        }
        rc = sb_blob_attr(out, IFLA_VF_INFO | NLA_F_NESTED, one.p, one.n);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int sb_read_vfs(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    (void)a;
    return read_link_attr(d, IFLA_VFINFO_LIST, RTEXT_FILTER_VF, take_vfs, out);
}

/* Returns the attribute of this type in the n-th nest of a value, or NULL if there is none. */
static const struct nlattr *find_in(const struct sb_blob *b, size_t n, int type)
{
    const struct nlattr *vf, *a;
    sb_blob_each(vf, b)
    {
        if (n-- > 0)
            continue;
        mnl_attr_for_each_nested(a, vf)
        {
            if (mnl_attr_get_type(a) == type)
                return a;
        }
        break;
    }
    return NULL;
}

int sb_write_vfs(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    const struct nlattr *vf, *x;
    size_t n = 0;
    int rc = 0;
    sb_blob_each(vf, was)
    {
        /* one attribute per message, because a driver that refuses one attribute may accept the others */
        mnl_attr_for_each_nested(x, vf)
        {
            char buf[REQUEST_MAX] __attribute__((aligned(8)));
            const struct nlattr *y = find_in(now, n, mnl_attr_get_type(x));
            if (y && y->nla_len == x->nla_len && memcmp(x, y, x->nla_len) == 0)
                continue;
            struct nlmsghdr *h = put_link(buf, d, RTM_NEWLINK, 0);
            struct nlattr *list = mnl_attr_nest_start(h, IFLA_VFINFO_LIST | NLA_F_NESTED);
            struct nlattr *info = mnl_attr_nest_start(h, IFLA_VF_INFO | NLA_F_NESTED);
            mnl_attr_put(h, x->nla_type, mnl_attr_get_payload_len(x), mnl_attr_get_payload(x));
            mnl_attr_nest_end(h, info);
            mnl_attr_nest_end(h, list);
            int err = talk_link(a, d, h);
            rc = rc < 0 ? rc : err;
        }
        n++;
    }
    return rc;
}

/* ---- data center bridging --------------------------------------------------------------------------------- */

#define DCB_KEEP                                                                                                       \
    (1u << DCB_ATTR_IEEE_ETS | 1u << DCB_ATTR_IEEE_PFC | 1u << DCB_ATTR_IEEE_APP_TABLE | 1u << DCB_ATTR_IEEE_MAXRATE | \
     1u << DCB_ATTR_IEEE_QCN | 1u << DCB_ATTR_DCB_BUFFER |                                                             \
     1u << 11 /* DCB_ATTR_DCB_APP_TRUST_TABLE, since Linux 6.2 */ |                                                    \
     1u << 12 /* DCB_ATTR_DCB_REWR_TABLE, since Linux 6.3 */)

static struct nlmsghdr *put_dcb(char buf[REQUEST_MAX], const struct sb_dev *d, uint16_t type, uint8_t cmd)
{
    struct nlmsghdr *h = hw_netlink_request(buf, REQUEST_MAX, type, 0);
    struct dcbmsg *m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
    m->cmd = cmd;
    mnl_attr_put_strz(h, DCB_ATTR_IFNAME, d->name);
    return h;
}

static int take_dcb(const struct nlmsghdr *h, void *arg)
{
    const struct nlattr *a, *b;
    int rc;
    mnl_attr_for_each(a, h, sizeof(struct dcbmsg))
    {
        if (mnl_attr_get_type(a) != DCB_ATTR_IEEE)
            continue;
        mnl_attr_for_each_nested(b, a)
        {
            unsigned type = mnl_attr_get_type(b);
            if (type < 32 && DCB_KEEP >> type & 1 &&
                (rc = sb_blob_attr(arg, b->nla_type, mnl_attr_get_payload(b), mnl_attr_get_payload_len(b))) < 0)
                return rc;
        }
    }
    return 0;
}

int sb_read_dcb(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8))), what[128];
    snprintf(what, sizeof(what), "%s: reading its %s", d->name, a->what);
    int rc = hw_netlink_talk(d->k->rt, put_dcb(buf, d, RTM_GETDCB, DCB_CMD_IEEE_GET), take_dcb, out, what);
    return rc == 0 && out->n == 0 ? -EOPNOTSUPP : rc;
}

static int read_dcb_result(const struct nlmsghdr *h, void *arg)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct dcbmsg))
    {
        if (mnl_attr_get_type(a) == DCB_ATTR_IEEE && mnl_attr_get_payload_len(a) == 1)
            *(int *)arg = -(int)(uint8_t)-mnl_attr_get_u8(a);
    }
    return 0;
}

/* Sends the attributes of `of` that are missing or different in `but`. If only is not 0, sends only attributes of this
 * type. */
static int send_dcb(const struct sb_attr *a, struct sb_dev *d, uint8_t cmd, const struct sb_blob *of,
                    const struct sb_blob *but, int only)
{
    char buf[REQUEST_MAX] __attribute__((aligned(8))), what[128];
    const struct nlattr *x;
    bool some = false, fits = true;
    int verdict = 0;
    struct nlmsghdr *h = put_dcb(buf, d, RTM_SETDCB, cmd);
    struct nlattr *nest = mnl_attr_nest_start(h, DCB_ATTR_IEEE | NLA_F_NESTED);
    sb_blob_each(x, of)
    {
        const struct nlattr *y = sb_blob_find(but, mnl_attr_get_type(x));
        if ((only && mnl_attr_get_type(x) != only) || (y && x->nla_len == y->nla_len && memcmp(x, y, x->nla_len) == 0))
            continue;
        fits &= mnl_attr_put_check(h, sizeof(buf), x->nla_type, mnl_attr_get_payload_len(x), mnl_attr_get_payload(x));
        some = true;
    }
    mnl_attr_nest_end(h, nest);
    if (!some || !fits)
        return fits ? 0 : hw_fail(-EMSGSIZE, "%s: its %s is too large", d->name, a->what);
    snprintf(what, sizeof(what), "%s: setting its %s", d->name, a->what);
    int rc = hw_netlink_talk(d->k->rt, h, read_dcb_result, &verdict, what);
    return rc == 0 && verdict < 0 ? hw_fail(verdict, "%s: %s", what, strerror(-verdict)) : rc;
}

/* Setting the application table only adds entries, so if the table differs, all its entries are removed first. */
int sb_write_dcb(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    int rc = send_dcb(a, d, DCB_CMD_IEEE_DEL, now, was, DCB_ATTR_IEEE_APP_TABLE);
    int err = send_dcb(a, d, DCB_CMD_IEEE_SET, was, now, 0);
    return rc < 0 ? rc : err;
}

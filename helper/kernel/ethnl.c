/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/kernel/ethnl.h"

#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <stdio.h>
#include <string.h>

static struct nlmsghdr *make_ethnl_request(struct hw_genl *g, void *buf, uint8_t cmd, uint16_t header, uint16_t flags,
                                           int ifindex)
{
    struct nlmsghdr *h = hw_genl_request(buf, HW_NETLINK_REQUEST, g->ethtool, cmd, flags);
    struct nlattr *nest = mnl_attr_nest_start(h, header);
    mnl_attr_put_u32(h, ETHTOOL_A_HEADER_DEV_INDEX, (uint32_t)ifindex);
    mnl_attr_nest_end(h, nest);
    return h;
}

static int fail_without_ethtool(void)
{
    return hw_fail(-EOPNOTSUPP, "this kernel has no netlink family 'ethtool' (CONFIG_ETHTOOL_NETLINK)");
}

struct found {
    int ifindex;
    char name[HAWSER_NIC_NAME];
};

static int on_device(const struct nlmsghdr *h, void *arg)
{
    struct found *f = arg;
    const struct nlattr *a, *in;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) != ETHTOOL_A_LINKSTATE_HEADER)
            continue;
        mnl_attr_for_each_nested(in, a)
        {
            if (mnl_attr_get_type(in) == ETHTOOL_A_HEADER_DEV_INDEX && mnl_attr_validate(in, MNL_TYPE_U32) == 0)
                f->ifindex = (int)mnl_attr_get_u32(in);
            if (mnl_attr_get_type(in) == ETHTOOL_A_HEADER_DEV_NAME && mnl_attr_validate(in, MNL_TYPE_NUL_STRING) == 0)
                snprintf(f->name, sizeof(f->name), "%s", mnl_attr_get_str(in));
        }
    }
    return 0;
}

int hd_ethnl_find(struct hw_genl *g, const char *name, int *ifindex)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    struct found f = {0};
    char what[64];
    *ifindex = 0;
    if (!g->ethtool)
        return fail_without_ethtool();
    struct nlmsghdr *h = hw_genl_request(buf, HW_NETLINK_REQUEST, g->ethtool, ETHTOOL_MSG_LINKSTATE_GET, 0);
    struct nlattr *nest = mnl_attr_nest_start(h, ETHTOOL_A_LINKSTATE_HEADER);
    mnl_attr_put_strz(h, ETHTOOL_A_HEADER_DEV_NAME, name);
    mnl_attr_nest_end(h, nest);
    snprintf(what, sizeof(what), "looking for NIC %.16s", name);
    int rc = hw_netlink_talk(&g->nl, h, on_device, &f, what);
    if (rc && rc != -ENODEV)
        return rc;
    if (rc || f.ifindex <= 0)
        return hw_fail(-ENODEV, "there is no NIC %.16s in this network namespace", name);
    if (strcmp(f.name, name) != 0)
        return hw_fail(-ENODEV, "%.16s is an alternative name of NIC %s: use the NIC's own name", name, f.name);
    *ifindex = f.ifindex;
    return 0;
}

static int on_rings(const struct nlmsghdr *h, void *arg)
{
    struct hd_split *s = arg;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == ETHTOOL_A_RINGS_TCP_DATA_SPLIT && mnl_attr_validate(a, MNL_TYPE_U8) == 0)
            s->split = mnl_attr_get_u8(a);
        if (mnl_attr_get_type(a) == ETHTOOL_A_RINGS_HDS_THRESH && mnl_attr_validate(a, MNL_TYPE_U32) == 0) {
            s->has_thresh = true;
            s->thresh = mnl_attr_get_u32(a);
        }
        if (mnl_attr_get_type(a) == ETHTOOL_A_RINGS_RX_BUF_LEN && mnl_attr_validate(a, MNL_TYPE_U32) == 0)
            s->buf_len = mnl_attr_get_u32(a);
    }
    return 0;
}

int hd_ethnl_split_get(struct hw_genl *g, int ifindex, struct hd_split *out)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    *out = (struct hd_split){0};
    if (!g->ethtool)
        return fail_without_ethtool();
    return hw_netlink_talk(&g->nl,
                           make_ethnl_request(g, buf, ETHTOOL_MSG_RINGS_GET, ETHTOOL_A_RINGS_HEADER, 0, ifindex),
                           on_rings, out, "reading header split (ethtool -g)");
}

static int on_rings_change(const struct nlmsghdr *h, void *arg)
{
    const struct genlmsghdr *g = mnl_nlmsg_get_payload(h);
    *(bool *)arg |= g->cmd == ETHTOOL_MSG_RINGS_NTF;
    return 0;
}

/* Uses the kernel's notification to ethtool's group "monitor" to determine whether the settings have changed. The
 * kernel sends this notification before it replies, but not if the requested settings are already configured
 * (ethnl_set_rings() in net/ethtool/rings.c; ethnl_default_set_doit() in netlink.c). The state that a driver reports
 * cannot be used instead. A separate socket keeps notifications apart from other replies. */
int hd_ethnl_split_set(const struct hw_genl *like, int ifindex, const struct hd_split *s, bool *changed)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    static const char *const words[] = {"automatic", "off", "on"};
    struct hw_genl g;
    bool heard = false;
    char what[80], why[HW_ERR_TEXT];
    if (changed)
        *changed = true;
    if (!like->ethtool)
        return fail_without_ethtool();
    int rc = hw_genl_open(&g, like);
    if (rc)
        return rc;
    bool listens = changed && g.monitor && hw_netlink_join(&g.nl, g.monitor) == 0;
    if (listens)
        g.nl.heard = on_rings_change;
    struct nlmsghdr *h = make_ethnl_request(&g, buf, ETHTOOL_MSG_RINGS_SET, ETHTOOL_A_RINGS_HEADER, 0, ifindex);
    mnl_attr_put_u8(h, ETHTOOL_A_RINGS_TCP_DATA_SPLIT, s->split);
    if (s->has_thresh)
        mnl_attr_put_u32(h, ETHTOOL_A_RINGS_HDS_THRESH, s->thresh);
    if (s->buf_len)
        mnl_attr_put_u32(h, ETHTOOL_A_RINGS_RX_BUF_LEN, s->buf_len);
    snprintf(what, sizeof(what), "setting header split to %s%s (ethtool -G)",
             s->split < HW_ARRAY_LEN(words) ? words[s->split] : "?", s->buf_len ? ", and setting rx-buf-len" : "");
    rc = hw_netlink_talk(&g.nl, h, NULL, &heard, what);
    if (rc == 0 && listens)
        *changed = heard;
    snprintf(why, sizeof(why), "%s", rc ? hw_error() : "");
    hw_genl_close(&g);
    if (rc == -EOPNOTSUPP)
        return hw_fail(rc, "the driver does not support header split, at least not with the requested settings: %s",
                       why);
    return rc ? hw_fail_copy(rc, why) : 0;
}

/* ---- rx-gro-hw ---------------------------------------------------------------------------------- */

#define GRO_HW "rx-gro-hw" /* name in netdev_features_strings[] of net/ethtool/common.c */

/* Returns true if the bit of rx-gro-hw is set. A bitset without a mask lists only bits that are set. */
static bool bit_in(const struct nlattr *set)
{
    const struct nlattr *a, *bit, *k, *bits = NULL;
    bool nomask = false;
    mnl_attr_for_each_nested(a, set)
    {
        nomask |= mnl_attr_get_type(a) == ETHTOOL_A_BITSET_NOMASK;
        if (mnl_attr_get_type(a) == ETHTOOL_A_BITSET_BITS)
            bits = a;
    }
    if (!bits)
        return false;
    mnl_attr_for_each_nested(bit, bits)
    {
        bool ours = false, value = nomask;
        mnl_attr_for_each_nested(k, bit)
        {
            if (mnl_attr_get_type(k) == ETHTOOL_A_BITSET_BIT_NAME && mnl_attr_validate(k, MNL_TYPE_NUL_STRING) == 0)
                ours = strcmp(mnl_attr_get_str(k), GRO_HW) == 0;
            value |= mnl_attr_get_type(k) == ETHTOOL_A_BITSET_BIT_VALUE;
        }
        if (ours)
            return value;
    }
    return false;
}

struct feature {
    bool hw, active, fixed;
};

static int on_features(const struct nlmsghdr *h, void *arg)
{
    struct feature *f = arg;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == ETHTOOL_A_FEATURES_HW)
            f->hw = bit_in(a);
        if (mnl_attr_get_type(a) == ETHTOOL_A_FEATURES_ACTIVE)
            f->active = bit_in(a);
        if (mnl_attr_get_type(a) == ETHTOOL_A_FEATURES_NOCHANGE)
            f->fixed = bit_in(a);
    }
    return 0;
}

int hd_ethnl_gro_hw_get(struct hw_genl *g, int ifindex, enum hd_gro_hw *out)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    struct feature f = {0};
    *out = HD_GRO_NONE;
    if (!g->ethtool)
        return fail_without_ethtool();
    int rc = hw_netlink_talk(
        &g->nl, make_ethnl_request(g, buf, ETHTOOL_MSG_FEATURES_GET, ETHTOOL_A_FEATURES_HEADER, 0, ifindex),
        on_features, &f, "reading " GRO_HW " (ethtool -k)");
    if (rc == 0 && f.hw && !f.fixed)
        *out = f.active ? HD_GRO_ON : HD_GRO_OFF;
    return rc;
}

int hd_ethnl_gro_hw_set(struct hw_genl *g, int ifindex, bool on)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    if (!g->ethtool)
        return fail_without_ethtool();
    struct nlmsghdr *h = hw_genl_request(buf, HW_NETLINK_REQUEST, g->ethtool, ETHTOOL_MSG_FEATURES_SET, 0);
    struct nlattr *nest = mnl_attr_nest_start(h, ETHTOOL_A_FEATURES_HEADER);
    mnl_attr_put_u32(h, ETHTOOL_A_HEADER_DEV_INDEX, (uint32_t)ifindex);
    mnl_attr_put_u32(h, ETHTOOL_A_HEADER_FLAGS, ETHTOOL_FLAG_OMIT_REPLY);
    mnl_attr_nest_end(h, nest);
    nest = mnl_attr_nest_start(h, ETHTOOL_A_FEATURES_WANTED);
    struct nlattr *bits = mnl_attr_nest_start(h, ETHTOOL_A_BITSET_BITS);
    struct nlattr *bit = mnl_attr_nest_start(h, ETHTOOL_A_BITSET_BITS_BIT);
    mnl_attr_put_strz(h, ETHTOOL_A_BITSET_BIT_NAME, GRO_HW);
    if (on)
        mnl_attr_put(h, ETHTOOL_A_BITSET_BIT_VALUE, 0, NULL);
    mnl_attr_nest_end(h, bit);
    mnl_attr_nest_end(h, bits);
    mnl_attr_nest_end(h, nest);
    return hw_netlink_talk(&g->nl, h, NULL, NULL,
                           on ? "turning " GRO_HW " on (ethtool -K)" : "turning " GRO_HW " off (ethtool -K)");
}

/* ---- RSS contexts ------------------------------------------------------------------------------- */

static int on_context(const struct nlmsghdr *h, void *arg)
{
    struct hd_set *out = arg;
    uint32_t context = 0;
    const struct nlattr *a, *table = NULL;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == ETHTOOL_A_RSS_CONTEXT && mnl_attr_validate(a, MNL_TYPE_U32) == 0)
            context = mnl_attr_get_u32(a);
        if (mnl_attr_get_type(a) == ETHTOOL_A_RSS_INDIR)
            table = a;
    }
    for (size_t i = 0; context && table && i + 4 <= mnl_attr_get_payload_len(table); i += 4) {
        uint32_t q;
        memcpy(&q, (const char *)mnl_attr_get_payload(table) + i, sizeof(q));
        hd_put(out, q);
    }
    return 0;
}

int hd_ethnl_contexts(struct hw_genl *g, int ifindex, struct hd_set *out)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    *out = (struct hd_set){0};
    if (!g->ethtool)
        return 0;
    int rc = hw_netlink_talk(&g->nl,
                             make_ethnl_request(g, buf, ETHTOOL_MSG_RSS_GET, ETHTOOL_A_RSS_HEADER, NLM_F_DUMP, ifindex),
                             on_context, out, "listing RSS contexts");
    /* The kernel has been able to list contexts since Linux 6.12, which is also the first version with devmem TCP. A
     * driver without contexts fails with one of these errors. */
    return rc == -EOPNOTSUPP || rc == -EINVAL ? 0 : rc;
}

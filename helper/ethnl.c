/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/ethnl.h"

#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <stdio.h>
#include <string.h>

static struct nlmsghdr *about(struct hd_genl *g, void *buf, uint8_t cmd, uint16_t header, uint16_t flags, int ifindex)
{
    struct nlmsghdr *h = hd_genl_request(buf, g->ethtool, cmd, flags);
    struct nlattr *nest = mnl_attr_nest_start(h, header);
    mnl_attr_put_u32(h, ETHTOOL_A_HEADER_DEV_INDEX, (uint32_t)ifindex);
    mnl_attr_nest_end(h, nest);
    return h;
}

static int no_family(void)
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

int hd_ethnl_find(struct hd_genl *g, const char *name, int *ifindex)
{
    _Alignas(struct nlmsghdr) char buf[HD_GENL_REQUEST];
    struct found f = {0};
    char what[64];
    *ifindex = 0;
    if (!g->ethtool)
        return no_family();
    struct nlmsghdr *h = hd_genl_request(buf, g->ethtool, ETHTOOL_MSG_LINKSTATE_GET, 0);
    struct nlattr *nest = mnl_attr_nest_start(h, ETHTOOL_A_LINKSTATE_HEADER);
    mnl_attr_put_strz(h, ETHTOOL_A_HEADER_DEV_NAME, name);
    mnl_attr_nest_end(h, nest);
    snprintf(what, sizeof(what), "looking for NIC %.16s", name);
    int rc = hd_genl_talk(g, h, on_device, &f, what);
    if (rc && rc != -ENODEV)
        return rc;
    if (rc || f.ifindex <= 0)
        return hw_fail(-ENODEV, "there is no NIC %.16s in hawserd's network namespace", name);
    if (strcmp(f.name, name) != 0)
        return hw_fail(-ENODEV, "NIC %.16s is named %s: only that name counts", name, f.name);
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
    }
    return 0;
}

int hd_ethnl_split_get(struct hd_genl *g, int ifindex, struct hd_split *out)
{
    _Alignas(struct nlmsghdr) char buf[HD_GENL_REQUEST];
    *out = (struct hd_split){0};
    if (!g->ethtool)
        return no_family();
    return hd_genl_talk(g, about(g, buf, ETHTOOL_MSG_RINGS_GET, ETHTOOL_A_RINGS_HEADER, 0, ifindex), on_rings, out,
                        "asking for header split (ethtool -g)");
}

int hd_ethnl_split_set(struct hd_genl *g, int ifindex, const struct hd_split *s)
{
    _Alignas(struct nlmsghdr) char buf[HD_GENL_REQUEST];
    if (!g->ethtool)
        return no_family();
    struct nlmsghdr *h = about(g, buf, ETHTOOL_MSG_RINGS_SET, ETHTOOL_A_RINGS_HEADER, 0, ifindex);
    mnl_attr_put_u8(h, ETHTOOL_A_RINGS_TCP_DATA_SPLIT, s->split);
    if (s->has_thresh)
        mnl_attr_put_u32(h, ETHTOOL_A_RINGS_HDS_THRESH, s->thresh);
    static const char *const words[] = {"automatic", "off", "on"};
    char what[64];
    snprintf(what, sizeof(what), "setting header split %s (ethtool -G)",
             s->split < HW_ARRAY_LEN(words) ? words[s->split] : "?");
    int rc = hd_genl_talk(g, h, NULL, NULL, what);
    return rc == -EOPNOTSUPP ? hw_wrap(rc, "the driver has no header split to set") : rc;
}

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

int hd_ethnl_contexts(struct hd_genl *g, int ifindex, struct hd_set *out)
{
    _Alignas(struct nlmsghdr) char buf[HD_GENL_REQUEST];
    *out = (struct hd_set){0};
    if (!g->ethtool)
        return 0;
    int rc = hd_genl_talk(g, about(g, buf, ETHTOOL_MSG_RSS_GET, ETHTOOL_A_RSS_HEADER, NLM_F_DUMP, ifindex), on_context,
                          out, "listing RSS contexts");
    /* dumps came with Linux 6.12; a kernel or a driver that has none has no contexts that could be in the way */
    return rc == -EOPNOTSUPP || rc == -EINVAL ? 0 : rc;
}

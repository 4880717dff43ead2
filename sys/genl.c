/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/genl.h"

#include <linux/genetlink.h>
#include <string.h>

struct nlmsghdr *hw_genl_request(void *buf, size_t size, uint16_t family, uint8_t cmd, uint16_t flags)
{
    struct nlmsghdr *h = hw_netlink_request(buf, size, family, flags);
    struct genlmsghdr *g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
    g->cmd = cmd;
    /* the version of the families netdev (NETDEV_FAMILY_VERSION) and ethtool (ETHTOOL_GENL_VERSION); the kernel does
     * not compare it */
    g->version = 1;
    return h;
}

struct family {
    uint16_t id;
    uint64_t ops;
    uint32_t monitor; /* number of the multicast group "monitor" */
};

static void find_monitor(const struct nlattr *groups, struct family *f)
{
    const struct nlattr *group, *k;
    mnl_attr_for_each_nested(group, groups)
    {
        uint32_t id = 0;
        bool monitor = false;
        mnl_attr_for_each_nested(k, group)
        {
            if (mnl_attr_get_type(k) == CTRL_ATTR_MCAST_GRP_ID && mnl_attr_validate(k, MNL_TYPE_U32) == 0)
                id = mnl_attr_get_u32(k);
            if (mnl_attr_get_type(k) == CTRL_ATTR_MCAST_GRP_NAME && mnl_attr_validate(k, MNL_TYPE_NUL_STRING) == 0)
                monitor = strcmp(mnl_attr_get_str(k), "monitor") == 0;
        }
        if (monitor)
            f->monitor = id;
    }
}

static int take_family(const struct nlmsghdr *h, void *arg)
{
    struct family *f = arg;
    const struct nlattr *a, *op, *k;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == CTRL_ATTR_FAMILY_ID && mnl_attr_validate(a, MNL_TYPE_U16) == 0)
            f->id = mnl_attr_get_u16(a);
        if (mnl_attr_get_type(a) == CTRL_ATTR_MCAST_GROUPS)
            find_monitor(a, f);
        if (mnl_attr_get_type(a) != CTRL_ATTR_OPS)
            continue;
        mnl_attr_for_each_nested(op, a) mnl_attr_for_each_nested(k, op)
        {
            if (mnl_attr_get_type(k) == CTRL_ATTR_OP_ID && mnl_attr_validate(k, MNL_TYPE_U32) == 0 &&
                mnl_attr_get_u32(k) < 64)
                f->ops |= 1ull << mnl_attr_get_u32(k);
        }
    }
    return 0;
}

static int ask_family(struct hw_genl *g, const char *name, struct family *f)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    char what[64];
    struct nlmsghdr *h = hw_genl_request(buf, sizeof(buf), GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
    mnl_attr_put_strz(h, CTRL_ATTR_FAMILY_NAME, name);
    snprintf(what, sizeof(what), "the netlink family %s", name);
    *f = (struct family){0};
    return hw_netlink_talk(&g->nl, h, take_family, f, what);
}

int hw_genl_ops(struct hw_genl *g, const char *name, uint64_t *ops)
{
    struct family f;
    int rc = ask_family(g, name, &f);
    *ops = f.ops;
    return rc;
}

int hw_genl_open(struct hw_genl *g, const struct hw_genl *like)
{
    struct family f;
    *g = (struct hw_genl){.nl.fd = -1};
    int rc = hw_netlink_open(&g->nl, NETLINK_GENERIC);
    if (rc)
        return rc;
    if (like) {
        g->netdev = like->netdev;
        g->ethtool = like->ethtool;
        g->monitor = like->monitor;
        return 0;
    }
    /* A kernel may lack either of these families. */
    rc = ask_family(g, "netdev", &f);
    if (rc == 0)
        g->netdev = f.id;
    if (rc == 0 || rc == -ENOENT)
        rc = ask_family(g, "ethtool", &f);
    if (rc == 0) {
        g->ethtool = f.id;
        g->monitor = f.monitor;
    }
    if (rc && rc != -ENOENT) {
        hw_genl_close(g);
        return rc;
    }
    return 0;
}

void hw_genl_close(struct hw_genl *g)
{
    hw_netlink_close(&g->nl);
}

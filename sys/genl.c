/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/genl.h"

#include <linux/genetlink.h>
#include <string.h>
#include <sys/socket.h>

#define REPLY_MAX 32768 /* the most that the kernel puts in one datagram of a dump (net/netlink/af_netlink.c) */

struct nlmsghdr *hd_genl_request(void *buf, uint16_t family, uint8_t cmd, uint16_t flags)
{
    memset(buf, 0, HD_GENL_REQUEST);
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = family;
    h->nlmsg_flags = NLM_F_REQUEST | flags;
    struct genlmsghdr *g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
    g->cmd = cmd;
    g->version = 1; /* CTRL's, netdev's (NETDEV_FAMILY_VERSION) and ethtool's (ETHTOOL_GENL_VERSION) */
    return h;
}

/* The kernel's own words, or NULL. */
static const char *words(const struct nlmsghdr *h)
{
    const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);
    size_t skip = sizeof(*e);
    if (!(h->nlmsg_flags & NLM_F_ACK_TLVS))
        return NULL;
    if (!(h->nlmsg_flags & NLM_F_CAPPED))
        skip += mnl_nlmsg_get_payload_len(&e->msg);
    const struct nlattr *a;
    mnl_attr_for_each(a, h, skip)
    {
        if (mnl_attr_get_type(a) == NLMSGERR_ATTR_MSG && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
            return mnl_attr_get_str(a);
    }
    return NULL;
}

/* Takes one datagram. 1: that was the last one. */
static int take(const struct hd_genl *g, const void *buf, int left, hd_genl_fn fn, void *arg, const char *what)
{
    const struct nlmsghdr *m = buf;
    for (; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left)) {
        /* a group's messages have numbers of the kernel's own, and nobody's port */
        if (g->heard && m->nlmsg_pid == 0 && m->nlmsg_type >= GENL_MIN_ID) {
            (void)g->heard(m, arg);
            continue;
        }
        if (m->nlmsg_seq != g->seq)
            continue;
        int err = 0;
        if (m->nlmsg_type == NLMSG_DONE) { /* of a dump: its payload is the verdict */
            if (mnl_nlmsg_get_payload_len(m) >= sizeof(int))
                memcpy(&err, mnl_nlmsg_get_payload(m), sizeof(err));
            return err < 0 ? hw_fail(err, "%s: %s", what, hw_errno_name(err)) : 1;
        }
        if (m->nlmsg_type == NLMSG_ERROR) {
            err = ((const struct nlmsgerr *)mnl_nlmsg_get_payload(m))->error;
            const char *why = words(m);
            if (err == 0)
                return 1;
            return hw_fail(err, "%s: %s%s%s", what, hw_errno_name(err), why ? ", the kernel: " : "", why ? why : "");
        }
        int rc = fn && m->nlmsg_type >= GENL_MIN_ID ? fn(m, arg) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

int hd_genl_talk(struct hd_genl *g, struct nlmsghdr *h, hd_genl_fn fn, void *arg, const char *what)
{
    _Alignas(struct nlmsghdr) char buf[REPLY_MAX];
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t n;
    if ((h->nlmsg_flags & NLM_F_DUMP) != NLM_F_DUMP)
        h->nlmsg_flags |= NLM_F_ACK;
    h->nlmsg_seq = ++g->seq;
    do {
        n = sendto(g->fd, h, h->nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel));
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return hw_fail(-errno, "%s: asking the kernel: %s", what, hw_errno_name(errno));
    for (;;) {
        n = recv(g->fd, buf, sizeof(buf), MSG_TRUNC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return hw_fail(-errno, "%s: the kernel's answer: %s", what, hw_errno_name(errno));
        if ((size_t)n > sizeof(buf))
            return hw_fail(-EMSGSIZE, "%s: the kernel's answer of %zd bytes does not fit %zu", what, n, sizeof(buf));
        int rc = take(g, buf, (int)n, fn, arg, what);
        if (rc)
            return rc < 0 ? rc : 0;
    }
}

struct family {
    uint16_t id;
    uint64_t ops;
    uint32_t monitor; /* the group "monitor" */
};

static void on_groups(const struct nlattr *groups, struct family *f)
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

static int on_family(const struct nlmsghdr *h, void *arg)
{
    struct family *f = arg;
    const struct nlattr *a, *op, *k;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == CTRL_ATTR_FAMILY_ID && mnl_attr_validate(a, MNL_TYPE_U16) == 0)
            f->id = mnl_attr_get_u16(a);
        if (mnl_attr_get_type(a) == CTRL_ATTR_MCAST_GROUPS)
            on_groups(a, f);
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

static int family(struct hd_genl *g, const char *name, struct family *f)
{
    _Alignas(struct nlmsghdr) char buf[HD_GENL_REQUEST];
    char what[64];
    struct nlmsghdr *h = hd_genl_request(buf, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
    mnl_attr_put_strz(h, CTRL_ATTR_FAMILY_NAME, name);
    snprintf(what, sizeof(what), "the netlink family %s", name);
    *f = (struct family){0};
    return hd_genl_talk(g, h, on_family, f, what);
}

int hd_genl_ops(struct hd_genl *g, const char *name, uint64_t *ops)
{
    struct family f;
    int rc = family(g, name, &f);
    *ops = f.ops;
    return rc;
}

int hd_genl_open(struct hd_genl *g, const struct hd_genl *like)
{
    struct family f;
    *g = (struct hd_genl){.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC)};
    if (g->fd < 0)
        return hw_fail(-errno, "a generic-netlink socket: %s", hw_errno_name(errno));
    /* reasons in words, and no echo of the request */
    int one = 1;
    (void)setsockopt(g->fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
    (void)setsockopt(g->fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
    /* The kernel answers within its own call, but for a lost answer (ENOBUFS): nobody is to hang on that. */
    struct timeval wait = {.tv_sec = 10};
    (void)setsockopt(g->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (like) {
        g->netdev = like->netdev;
        g->ethtool = like->ethtool;
        g->monitor = like->monitor;
        return 0;
    }
    if (family(g, "netdev", &f) == 0)
        g->netdev = f.id;
    if (family(g, "ethtool", &f) == 0) {
        g->ethtool = f.id;
        g->monitor = f.monitor;
    }
    return 0;
}

int hd_genl_join(struct hd_genl *g, uint32_t group)
{
    if (setsockopt(g->fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
        return hw_fail(-errno, "joining a netlink group: %s", hw_errno_name(errno));
    return 0;
}

void hd_genl_close(struct hd_genl *g)
{
    hw_close(&g->fd);
}

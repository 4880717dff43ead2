/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles the RDMA devices of the NICs that move. In exclusive mode (`rdma system set netns exclusive`) a device is in
 * one network namespace and can be moved. In shared mode every namespace sees the device, and nothing is moved.
 */
#include "sandbox/move/move_int.h"

#include <libmnl/libmnl.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REQUEST_MAX 256
#define DEVICES_MAX 128

static int open_rdma(struct hw_netlink *r)
{
    int rc = hw_netlink_open(r, NETLINK_RDMA);
    return rc < 0 ? rc : 0;
}

static struct nlmsghdr *build_nldev_request(char buf[REQUEST_MAX], int command, uint16_t flags)
{
    struct nlmsghdr *h = hw_netlink_request(buf, REQUEST_MAX, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), flags);
    return h;
}

static uint32_t u32_of(const struct nlattr *a)
{
    return mnl_attr_get_payload_len(a) >= 4 ? mnl_attr_get_u32(a) : 0;
}

static int mode_of(const struct nlmsghdr *h, void *arg)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, 0)
    {
        if (mnl_attr_get_type(a) == RDMA_NLDEV_SYS_ATTR_NETNS_MODE && mnl_attr_get_payload_len(a) >= 1)
            *(int *)arg = mnl_attr_get_u8(a);
    }
    return 0;
}

struct devices {
    size_t n;
    struct {
        int index;
        char name[64];
    } dev[DEVICES_MAX];
};

static int device_each(const struct nlmsghdr *h, void *arg)
{
    struct devices *d = arg;
    const struct nlattr *a;
    if (d->n == DEVICES_MAX)
        return hw_fail(-E2BIG, "too many RDMA devices: at most %d", DEVICES_MAX);
    d->dev[d->n].index = -1;
    d->dev[d->n].name[0] = 0;
    mnl_attr_for_each(a, h, 0)
    {
        if (mnl_attr_get_type(a) == RDMA_NLDEV_ATTR_DEV_INDEX)
            d->dev[d->n].index = (int)u32_of(a);
        if (mnl_attr_get_type(a) == RDMA_NLDEV_ATTR_DEV_NAME && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
            snprintf(d->dev[d->n].name, sizeof(d->dev[d->n].name), "%s", mnl_attr_get_str(a));
    }
    d->n += d->dev[d->n].index >= 0 && d->dev[d->n].name[0];
    return 0;
}

static int dump_rdma_devices(struct hw_netlink *r, struct devices *d)
{
    char buf[REQUEST_MAX];
    d->n = 0;
    return hw_netlink_talk(r, build_nldev_request(buf, RDMA_NLDEV_CMD_GET, NLM_F_DUMP), device_each, d,
                           "listing RDMA devices");
}

struct ports {
    const struct sb_journal *j;
    bool *has;      /* for each NIC: true if it has an RDMA device */
    int stays;      /* index of a network device that belongs to the RDMA device but does not move; 0 if none */
    const char *by; /* name of a NIC that belongs to the RDMA device and moves; NULL if none */
};

static int port_each(const struct nlmsghdr *h, void *arg)
{
    struct ports *p = arg;
    const struct nlattr *a;
    int netdev = 0;
    mnl_attr_for_each(a, h, 0)
    {
        if (mnl_attr_get_type(a) == RDMA_NLDEV_ATTR_NDEV_INDEX)
            netdev = (int)u32_of(a);
    }
    bool moves = netdev == 0;
    for (unsigned i = 0; netdev && i < p->j->nics; i++) {
        if (p->j->nic[i].link.index == netdev) {
            p->has[i] = moves = true;
            p->by = p->j->nic[i].link.name;
        }
    }
    if (!moves)
        p->stays = netdev;
    return 0;
}

static int plan_device(struct hw_netlink *r, struct sb_journal *j, int index, const char *name, bool *has)
{
    char buf[REQUEST_MAX], what[96];
    struct ports p = {.j = j, .has = has};
    struct nlmsghdr *h = build_nldev_request(buf, RDMA_NLDEV_CMD_PORT_GET, NLM_F_DUMP);
    mnl_attr_put_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, (uint32_t)index);
    snprintf(what, sizeof(what), "listing the ports of the RDMA device %s", name);
    int rc = hw_netlink_talk(r, h, port_each, &p, what);
    if (rc < 0 || !p.by)
        return rc;
    if (p.stays)
        return hw_fail(-EBUSY, "the RDMA device %s belongs to %s, which moves, and to network device %d, which stays",
                       name, p.by, p.stays);
    return sb_journal_addf(j, SB_RDMA, -1, "%d %s", index, name);
}

int sb_rdma_plan(struct sb_journal *j, enum sb_rdma how, const struct hw_logger *log)
{
    struct hw_netlink r;
    struct devices d;
    char buf[REQUEST_MAX];
    bool has[SB_NICS_MAX] = {false};
    int mode = -1;
    if (how == SB_RDMA_LEAVE)
        return 0;
    int rc = open_rdma(&r);
    if (rc == -EPROTONOSUPPORT) {
        /* If the kernel has no RDMA or its modules are not loaded, there are no devices. */
        return how == SB_RDMA_AUTO
                   ? 0
                   : hw_fail(-EOPNOTSUPP, "the kernel does not support RDMA, or its module ib_core is not loaded");
    }
    if (rc < 0)
        return rc;
    rc = hw_netlink_talk(&r, build_nldev_request(buf, RDMA_NLDEV_CMD_SYS_GET, 0), mode_of, &mode,
                         "reading the RDMA system's mode");
    if (rc == 0 && mode != 0) {
        if (how == SB_RDMA_REQUIRE)
            rc = hw_fail(
                -EOPNOTSUPP,
                "the RDMA system is in shared mode: every network namespace sees every device, and none can be moved; "
                "`rdma system set netns exclusive` can change the mode only while there are no other network "
                "namespaces");
        else
            sb_log(log, HAWSER_LOG_DEBUG, "the RDMA system is in shared mode, so RDMA devices stay where they are");
        goto out;
    }
    if (rc == 0)
        rc = dump_rdma_devices(&r, &d);
    for (size_t i = 0; rc == 0 && i < d.n; i++)
        rc = plan_device(&r, j, d.dev[i].index, d.dev[i].name, has);
    for (unsigned i = 0; rc == 0 && how == SB_RDMA_REQUIRE && i < j->nics; i++) {
        if (!has[i])
            rc = hw_fail(-ENODEV, "%s has no RDMA device", j->nic[i].link.name);
    }
out:
    hw_netlink_close(&r);
    return rc;
}

int sb_rdma_move(const struct sb_ns *from, int to, int index, const char *name)
{
    struct hw_netlink r = {.fd = -1};
    struct devices d;
    char buf[REQUEST_MAX], what[128];
    int own = hw_netns_own(), rc;
    if (own < 0)
        return own;
    if (setns(from->fd, CLONE_NEWNET) < 0) {
        rc = hw_fail(-errno, "entering a network namespace: %s", strerror(errno));
    } else {
        rc = open_rdma(&r);
        if (setns(own, CLONE_NEWNET) < 0)
            rc = hw_fail(-errno, "returning to this process's network namespace: %s", strerror(errno));
    }
    hw_close(&own);
    if (rc == 0)
        rc = dump_rdma_devices(&r, &d);
    size_t at = 0;
    while (rc == 0 && at < d.n && d.dev[at].index != index)
        at++;
    if (rc == 0 && at == d.n)
        rc = hw_fail(-ENODEV, "no RDMA device %s", name);
    if (rc == 0 && strcmp(d.dev[at].name, name) != 0) { /* the container may have renamed the device */
        struct nlmsghdr *h = build_nldev_request(buf, RDMA_NLDEV_CMD_SET, 0);
        mnl_attr_put_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, (uint32_t)index);
        mnl_attr_put_strz(h, RDMA_NLDEV_ATTR_DEV_NAME, name);
        snprintf(what, sizeof(what), "renaming an RDMA device to %s", name);
        rc = hw_netlink_talk(&r, h, NULL, NULL, what);
    }
    if (rc == 0) {
        struct nlmsghdr *h = build_nldev_request(buf, RDMA_NLDEV_CMD_SET, 0);
        mnl_attr_put_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, (uint32_t)index);
        mnl_attr_put_u32(h, RDMA_NLDEV_NET_NS_FD, (uint32_t)to);
        snprintf(what, sizeof(what), "moving the RDMA device %s to another network namespace", name);
        rc = hw_netlink_talk(&r, h, NULL, NULL, what);
    }
    hw_netlink_close(&r);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/kernel/netdev.h"

#include <linux/genetlink.h>
#include <linux/netdev.h>
#include <string.h>

static int fail_without_netdev(void)
{
    return hw_fail(-EOPNOTSUPP, "this kernel has no netlink family 'netdev': devmem TCP needs Linux 6.12 or later");
}

/* ---- queues ------------------------------------------------------------------------------------- */

struct sink {
    struct hd_queue *out;
    unsigned cap, n;
};

static int on_queue(const struct nlmsghdr *h, void *arg)
{
    struct sink *s = arg;
    struct hd_queue q = {0};
    uint32_t id = UINT32_MAX, type = UINT32_MAX;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        bool u32 = mnl_attr_validate(a, MNL_TYPE_U32) == 0;
        switch (mnl_attr_get_type(a)) {
        case NETDEV_A_QUEUE_ID:
            id = u32 ? mnl_attr_get_u32(a) : id;
            break;
        case NETDEV_A_QUEUE_TYPE:
            type = u32 ? mnl_attr_get_u32(a) : type;
            break;
        case NETDEV_A_QUEUE_DMABUF:
            q = (struct hd_queue){.user = HD_DMABUF, .dmabuf_id = u32 ? mnl_attr_get_u32(a) : 0};
            break;
        case NETDEV_A_QUEUE_IO_URING:
            q.user = HD_IO_URING;
            break;
        case NETDEV_A_QUEUE_XSK:
            q.user = HD_XSK;
            break;
        case NETDEV_A_QUEUE_LEASE:
            q.user = HD_LEASED;
            break;
        default:
            break;
        }
    }
    if (type != NETDEV_QUEUE_TYPE_RX || id >= s->cap)
        return 0;
    s->out[id] = q;
    s->n = HW_MAX(s->n, id + 1);
    return 0;
}

int hd_netdev_queues(struct hw_genl *g, int ifindex, struct hd_queue *out, unsigned cap, unsigned *n)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    struct sink s = {.out = out, .cap = cap};
    *n = 0;
    if (!g->netdev)
        return fail_without_netdev();
    memset(out, 0, cap * sizeof(*out));
    struct nlmsghdr *h = hw_genl_request(buf, HW_NETLINK_REQUEST, g->netdev, NETDEV_CMD_QUEUE_GET, NLM_F_DUMP);
    mnl_attr_put_u32(h, NETDEV_A_QUEUE_IFINDEX, (uint32_t)ifindex);
    int rc = hw_netlink_talk(&g->nl, h, on_queue, &s, "listing the NIC's queues");
    *n = s.n;
    return rc;
}

/* ---- page pools --------------------------------------------------------------------------------- */

struct pools {
    int ifindex;
    unsigned n;
    uint64_t inflight;
};

static int on_pool(const struct nlmsghdr *h, void *arg)
{
    struct pools *p = arg;
    bool dmabuf = false;
    int ifindex = 0;
    uint64_t mem = 0;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        uint16_t type = mnl_attr_get_type(a), len = mnl_attr_get_payload_len(a);
        if (type == NETDEV_A_PAGE_POOL_IFINDEX && len == 4)
            ifindex = (int)mnl_attr_get_u32(a);
        if (type == NETDEV_A_PAGE_POOL_DMABUF)
            dmabuf = true;
        if (type == NETDEV_A_PAGE_POOL_INFLIGHT_MEM) /* 4 bytes if the value fits, otherwise 8 */
            mem = len == 8 ? mnl_attr_get_u64(a) : len == 4 ? mnl_attr_get_u32(a) : 0;
    }
    if (dmabuf && ifindex == p->ifindex) {
        p->n++;
        p->inflight += mem;
    }
    return 0;
}

int hd_netdev_pools(struct hw_genl *g, int ifindex, unsigned *pools, uint64_t *inflight)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    struct pools p = {.ifindex = ifindex};
    *pools = 0;
    *inflight = 0;
    if (!g->netdev)
        return fail_without_netdev();
    struct nlmsghdr *h = hw_genl_request(buf, HW_NETLINK_REQUEST, g->netdev, NETDEV_CMD_PAGE_POOL_GET, NLM_F_DUMP);
    int rc = hw_netlink_talk(&g->nl, h, on_pool, &p, "listing page pools");
    *pools = p.n;
    *inflight = p.inflight;
    return rc;
}

/* ---- bindings ----------------------------------------------------------------------------------- */

static int on_bound(const struct nlmsghdr *h, void *arg)
{
    uint32_t *id = arg;
    const struct nlattr *a;
    mnl_attr_for_each(a, h, sizeof(struct genlmsghdr))
    {
        if (mnl_attr_get_type(a) == NETDEV_A_DMABUF_ID && mnl_attr_validate(a, MNL_TYPE_U32) == 0)
            *id = mnl_attr_get_u32(a);
    }
    return 0;
}

/* Returns an explanation to add to the kernel's text for an error of BIND_RX or BIND_TX, or NULL. Based on
 * net/core/netdev-genl.c, net/core/devmem.c and net/core/netdev_rx_queue.c of Linux 6.12 and 7.3. */
static const char *explain_bind_error(int rc, bool rx)
{
    switch (-rc) {
    case EOPNOTSUPP:
        return rx ? "this driver cannot receive into device memory, or the kernel lacks CONFIG_NET_DEVMEM"
                  : "this driver cannot send from device memory (netmem_tx), or the kernel is older than 6.16";
    case ENODATA: /* returned by Linux 6.12 */
        return "header split is off";
    case EINVAL:
        return rx ? "the queue does not exist, header split is off, hds-thresh is not 0, or the NIC cannot map "
                    "the dma-buf"
                  : "the descriptor is not a dma-buf, or the NIC cannot map it";
    case ERANGE:
        return "a queue number is too high for this NIC";
    case EEXIST: /* __netif_mp_open_rxq() in net/core/netdev_rx_queue.c:207 and 217 of Linux 7.3 */
        return "the queue has another binding, or the NIC has an XDP program: `ip link show` shows the program, and "
               "`ip link set NIC xdp off` removes it";
    case EBUSY:
        return "the queue is used by AF_XDP or leased";
    case EPERM:
        return "hawserd lacks CAP_NET_ADMIN";
    case ENODEV:
        return "the NIC no longer exists";
    case ENOMEM:
        return "the kernel is out of memory, or the buffer is too large to be mapped as a whole";
    default:
        return NULL;
    }
}

int hd_netdev_bind(const struct hw_genl *like, const char *nic, const struct hd_bind_what *b, int *sock, uint32_t *id)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    char what[80], why[HW_ERR_TEXT];
    struct hw_genl own;
    *sock = -1;
    *id = 0;
    if (!like->netdev)
        return fail_without_netdev();
    int rc = hw_genl_open(&own, like);
    if (rc)
        return rc;
    struct nlmsghdr *h =
        hw_genl_request(buf, HW_NETLINK_REQUEST, own.netdev, b->n ? NETDEV_CMD_BIND_RX : NETDEV_CMD_BIND_TX, 0);
    mnl_attr_put_u32(h, NETDEV_A_DMABUF_IFINDEX, (uint32_t)b->ifindex);
    mnl_attr_put_u32(h, NETDEV_A_DMABUF_FD, (uint32_t)b->dmabuf);
    for (unsigned i = 0; i < b->n; i++) {
        struct nlattr *nest = mnl_attr_nest_start(h, NETDEV_A_DMABUF_QUEUES);
        mnl_attr_put_u32(h, NETDEV_A_QUEUE_ID, b->queue[i]);
        mnl_attr_put_u32(h, NETDEV_A_QUEUE_TYPE, NETDEV_QUEUE_TYPE_RX);
        mnl_attr_nest_end(h, nest);
    }
    if (b->page)
        mnl_attr_put_u32(h, NETDEV_A_DMABUF_RX_PAGE_SIZE, b->page);
    if (b->n == 1)
        snprintf(what, sizeof(what), "binding a dma-buf to queue %u of %s", b->queue[0], nic);
    else if (b->n)
        snprintf(what, sizeof(what), "binding a dma-buf to %u queues of %s, including queue %u", b->n, nic,
                 b->queue[0]);
    else
        snprintf(what, sizeof(what), "binding a dma-buf for sending through %s", nic);
    rc = hw_netlink_talk(&own.nl, h, on_bound, id, what);
    if (rc < 0) {
        bool size = b->page && (rc == -EOPNOTSUPP || rc == -ERANGE || rc == -EINVAL);
        const char *m = size ? "perhaps the kernel, the driver or the memory does not support the requested buffer size"
                             : explain_bind_error(rc, b->n != 0);
        snprintf(why, sizeof(why), "%s", hw_error());
        hw_genl_close(&own);
        return m ? hw_fail(rc, "%s (%s)", why, m) : hw_fail_copy(rc, why);
    }
    *sock = own.nl.fd;
    return 0;
}

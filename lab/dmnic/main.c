// SPDX-License-Identifier: GPL-2.0
/* Implements the cards: creation, link, queues, and the module's parameters. */
#include "dmnic.h"

#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <net/netdev_rx_queue.h>

#define NAME      "dmnic"
#define QUEUE_MAX 64
#define PAIR_MAX  8

static unsigned int queues = 4, pairs = 1;
static bool netmem_tx = true;
module_param(queues, uint, 0444);
MODULE_PARM_DESC(queues, "number of queues of each card (1 to 64)");
module_param(pairs, uint, 0444);
MODULE_PARM_DESC(pairs, "number of pairs of linked cards (1 to 8): dm0 and dm1, dm2 and dm3 ...");
module_param(netmem_tx, bool, 0444);
MODULE_PARM_DESC(netmem_tx, "let the cards send device memory (Linux 6.16 and later)");

static char *like[PAIR_MAX];
static int likes;
module_param_array(like, charp, &likes, 0444);
MODULE_PARM_DESC(
    like, "drivers to imitate, one per pair: gve, mlx5, bnxt or fbnic; further pairs imitate the last driver given");

struct dmnic_faults dmnic_faults;
module_param_named(loss, dmnic_faults.loss, uint, 0644);
MODULE_PARM_DESC(loss, "lose one in this many packets");
module_param_named(reorder, dmnic_faults.reorder, uint, 0644);
MODULE_PARM_DESC(reorder, "let three packets overtake one in this many packets");
module_param_named(corrupt, dmnic_faults.corrupt, uint, 0644);
MODULE_PARM_DESC(corrupt, "deliver one in this many packets without having copied its payload");
module_param_named(linear, dmnic_faults.linear, uint, 0644);
MODULE_PARM_DESC(linear, "number of payload bytes of each packet that stay in header memory");
module_param_named(refill, dmnic_faults.refill, uint, 0644);
MODULE_PARM_DESC(refill, "maximum number of pages that a queue gets per millisecond; 0: no limit");
module_param_named(recycle_all, dmnic_faults.recycle_all, bool, 0644);
MODULE_PARM_DESC(recycle_all, "mark packets without pages as if they had pages, which wedges receivers");
module_param_named(large, dmnic_faults.large, bool, 0644);
MODULE_PARM_DESC(large, "deliver large sends whole, like a card that merges packets, instead of cutting them");

static struct net_device *cards[2 * PAIR_MAX];
static DEFINE_SPINLOCK(link_lock);

bool dmnic_bound(const struct dmnic *nic)
{
    for (unsigned int i = 0; i < nic->nq; i++) {
        if (__netif_get_rx_queue(nic->ndev, i)->mp_params.mp_priv)
            return true;
    }
    return false;
}

u64 dmnic_drops(const struct dmnic_queue *q)
{
    return READ_ONCE(q->stat[DMNIC_RX_ALLOC_FAIL]) + READ_ONCE(q->stat[DMNIC_RX_MISSED]) +
           READ_ONCE(q->stat[DMNIC_RX_ERRORS]);
}

bool dmnic_splits(const struct dmnic *nic, bool hds, netdev_features_t features)
{
    switch (nic->like) {
    case DMNIC_BNXT: /* broadcom/bnxt/bnxt.h:2304: aggregation rings */
        return hds || features & NETIF_F_GRO_HW;
    case DMNIC_FBNIC:
        return true;
    default:
        return hds;
    }
}

/* Without .napi, pages never go directly into the pool's cache, so a pool can be destroyed while its queue runs. */
static struct page_pool *pool_new(struct dmnic *nic, unsigned int idx, bool split, unsigned int ring, u32 page)
{
    struct page_pool_params p = {
        .order = get_order(page),
        .pool_size = ring,
        .nid = NUMA_NO_NODE,
        .dev = nic->ndev->dev.parent,
        .dma_dir = DMA_FROM_DEVICE,
        .max_len = page,
        .netdev = nic->ndev,
        .queue_idx = idx,
        .flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV | (split ? PP_FLAG_ALLOW_UNREADABLE_NETMEM : 0),
    };

    return page_pool_create(&p);
}

/* Returns the page size of a queue, which a memory binding may have set. */
static u32 page_of(struct dmnic *nic, unsigned int idx)
{
#ifdef DMNIC_QCFG_PAGE
    struct netdev_queue_config qcfg;

    netdev_queue_config(nic->ndev, idx, &qcfg);
    return qcfg.rx_page_size ?: PAGE_SIZE;
#else
    return PAGE_SIZE;
#endif
}

static void queue_stop(struct dmnic_queue *q)
{
    dmnic_napi_disable(&q->napi);
}

/* Starts a queue, and polls it at once, because packets that arrived while the queue was stopped may be on the ring. */
static void queue_start(struct dmnic_queue *q)
{
    dmnic_napi_enable(&q->napi);
    local_bh_disable();
    napi_schedule(&q->napi);
    local_bh_enable();
}

int dmnic_reset(struct dmnic *nic, bool split, unsigned int ring)
{
    struct page_pool *pool[QUEUE_MAX];
    unsigned int i;

    if (netif_running(nic->ndev)) {
        for (i = 0; i < nic->nq; i++) {
            pool[i] = pool_new(nic, i, split, ring, page_of(nic, i));
            if (IS_ERR(pool[i]))
                goto fail;
        }
        for (i = 0; i < nic->nq; i++) {
            queue_stop(&nic->q[i]);
            swap(nic->q[i].pool, pool[i]);
            queue_start(&nic->q[i]);
            page_pool_destroy(pool[i]);
        }
    }
    nic->split = split;
    WRITE_ONCE(nic->ring, ring);
    return 0;
fail:
    while (i-- > 0)
        page_pool_destroy(pool[i]);
    return -ENOMEM;
}

/* Sets a card up or down. A card has a carrier while both ends of the wire are up. */
static void link_set(struct dmnic *nic, bool up)
{
    struct dmnic *peer = nic->peer;

    spin_lock_bh(&link_lock);
    WRITE_ONCE(nic->up, up);
    if (up && peer->up) {
        netif_carrier_on(nic->ndev);
        netif_carrier_on(peer->ndev);
    } else {
        netif_carrier_off(nic->ndev);
        netif_carrier_off(peer->ndev);
    }
    spin_unlock_bh(&link_lock);
}

static int card_open(struct net_device *ndev)
{
    struct dmnic *nic = netdev_priv(ndev);
    unsigned int i;
    int rc;

    for (i = 0; i < nic->nq; i++) {
        u32 page = page_of(nic, i);
        struct page_pool *pool = pool_new(nic, i, nic->split, nic->ring, page);

        if (IS_ERR(pool)) {
            rc = PTR_ERR(pool);
            goto fail;
        }
        nic->q[i].pool = pool;
        nic->q[i].page = page;
    }
    for (i = 0; i < nic->nq; i++) {
        netif_queue_set_napi(ndev, i, NETDEV_QUEUE_TYPE_RX, &nic->q[i].napi);
        queue_start(&nic->q[i]);
    }
    link_set(nic, true);
    netif_tx_start_all_queues(ndev);
    return 0;
fail:
    while (i-- > 0)
        page_pool_destroy(nic->q[i].pool);
    return rc;
}

static int card_stop(struct net_device *ndev)
{
    struct dmnic *nic = netdev_priv(ndev);

    link_set(nic, false);
    netif_tx_disable(ndev);
    synchronize_net(); /* the peer has left dmnic_xmit(), so nothing more is added to the rings */
    for (unsigned int i = 0; i < nic->nq; i++) {
        struct dmnic_queue *q = &nic->q[i];

        queue_stop(q);
        netif_queue_set_napi(ndev, i, NETDEV_QUEUE_TYPE_RX, NULL);
        dmnic_queue_purge(q);
        page_pool_destroy(q->pool);
        q->pool = NULL;
    }
    return 0;
}

static void card_stats(struct net_device *ndev, struct rtnl_link_stats64 *stats)
{
    struct dmnic *nic = netdev_priv(ndev);

    for (unsigned int i = 0; i < nic->nq; i++) {
        const struct dmnic_queue *q = &nic->q[i];

        stats->rx_packets += READ_ONCE(q->stat[DMNIC_RX_PACKETS]);
        stats->rx_bytes += READ_ONCE(q->stat[DMNIC_RX_BYTES]);
        stats->rx_dropped += dmnic_drops(q);
        stats->rx_missed_errors += READ_ONCE(q->stat[DMNIC_RX_MISSED]);
        stats->tx_packets += READ_ONCE(q->stat[DMNIC_TX_PACKETS]);
        stats->tx_bytes += READ_ONCE(q->stat[DMNIC_TX_BYTES]);
        stats->tx_dropped += READ_ONCE(q->stat[DMNIC_TX_DROPS]);
    }
}

static int card_set_features(struct net_device *ndev, netdev_features_t features)
{
    struct dmnic *nic = netdev_priv(ndev);
    bool split = dmnic_splits(nic, nic->hds, features);

    if (!(features & NETIF_F_NTUPLE))
        dmnic_rules_clear(nic);
    return split == nic->split ? 0 : dmnic_reset(nic, split, nic->ring);
}

/* mellanox/mlx5/core/en_main.c:4624: rx-gro-hw stays on while header split needs it. */
static netdev_features_t card_fix_features(struct net_device *ndev, netdev_features_t features)
{
    struct dmnic *nic = netdev_priv(ndev);

    if (nic->like == DMNIC_MLX5 && nic->hds)
        features |= NETIF_F_GRO_HW;
    return features;
}

static const struct net_device_ops card_ops = {
    .ndo_open = card_open,
    .ndo_stop = card_stop,
    .ndo_start_xmit = dmnic_xmit,
    .ndo_get_stats64 = card_stats,
    .ndo_set_features = card_set_features,
    .ndo_fix_features = card_fix_features,
    .ndo_set_mac_address = eth_mac_addr,
    .ndo_validate_addr = eth_validate_addr,
};

/* The only parts of a queue that change when the queue restarts, for example because memory was bound or unbound. */
struct queue_mem {
    struct page_pool *pool;
    u32 page;
};

static int mem_alloc(struct net_device *ndev, DMNIC_QCFG void *mem, int idx)
{
    struct dmnic *nic = netdev_priv(ndev);
    struct page_pool *pool;
    u32 page = PAGE_SIZE;

#ifdef DMNIC_QCFG_PAGE
    page = qcfg->rx_page_size ?: PAGE_SIZE;
#endif
    if (LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0) && !netif_running(ndev))
        return -ENETDOWN; /* otherwise the core would stop and start the queue; unbinding ignores this error */
    pool = pool_new(nic, idx, nic->split, nic->ring, page);
    if (IS_ERR(pool))
        return PTR_ERR(pool);
    *(struct queue_mem *)mem = (struct queue_mem){.pool = pool, .page = page};
    return 0;
}

static void mem_free(struct net_device *ndev, void *mem)
{
    page_pool_destroy(((struct queue_mem *)mem)->pool);
}

static int mem_stop(struct net_device *ndev, void *mem, int idx)
{
    struct dmnic_queue *q = &((struct dmnic *)netdev_priv(ndev))->q[idx];

    queue_stop(q);
    *(struct queue_mem *)mem = (struct queue_mem){.pool = q->pool, .page = q->page};
    q->pool = NULL;
    return 0;
}

static int mem_start(struct net_device *ndev, DMNIC_QCFG void *mem, int idx)
{
    struct dmnic_queue *q = &((struct dmnic *)netdev_priv(ndev))->q[idx];
    const struct queue_mem *m = mem;

    q->pool = m->pool;
    q->page = m->page;
    queue_start(q);
    return 0;
}

#define QUEUE_OPS                                                                                                     \
    .ndo_queue_mem_size = sizeof(struct queue_mem), .ndo_queue_mem_alloc = mem_alloc, .ndo_queue_mem_free = mem_free, \
    .ndo_queue_start = mem_start, .ndo_queue_stop = mem_stop

static const struct netdev_queue_mgmt_ops queue_ops = {QUEUE_OPS};

#ifdef DMNIC_QCFG_PAGE
static void default_qcfg(struct net_device *ndev, struct netdev_queue_config *qcfg)
{
    qcfg->rx_page_size = PAGE_SIZE;
}

/* broadcom/bnxt/bnxt.c:16343; mellanox/mlx5/core/en_main.c:5684, where the card sets the limit */
static int validate_qcfg(struct net_device *ndev, struct netdev_queue_config *qcfg, struct netlink_ext_ack *extack)
{
    if (!is_power_of_2(qcfg->rx_page_size) || qcfg->rx_page_size < PAGE_SIZE || qcfg->rx_page_size > SZ_32K)
        return -ERANGE;
    return 0;
}

/* broadcom/bnxt/bnxt.c:16671; mellanox/mlx5/core/en_main.c:5826 */
static const struct netdev_queue_mgmt_ops queue_ops_pages = {
    QUEUE_OPS,
    .ndo_default_qcfg = default_qcfg,
    .ndo_validate_qcfg = validate_qcfg,
    .supported_params = QCFG_RX_PAGE_SIZE,
};
#endif

static void queue_stats_rx(struct net_device *ndev, int idx, struct netdev_queue_stats_rx *stats)
{
    const struct dmnic_queue *q = &((struct dmnic *)netdev_priv(ndev))->q[idx];

    stats->packets = READ_ONCE(q->stat[DMNIC_RX_PACKETS]);
    stats->bytes = READ_ONCE(q->stat[DMNIC_RX_BYTES]);
    stats->alloc_fail = READ_ONCE(q->stat[DMNIC_RX_ALLOC_FAIL]);
    stats->hw_drop_overruns = READ_ONCE(q->stat[DMNIC_RX_MISSED]);
    stats->hw_drops = dmnic_drops(q);
}

static void queue_stats_tx(struct net_device *ndev, int idx, struct netdev_queue_stats_tx *stats)
{
    const struct dmnic_queue *q = &((struct dmnic *)netdev_priv(ndev))->q[idx];

    stats->packets = READ_ONCE(q->stat[DMNIC_TX_PACKETS]);
    stats->bytes = READ_ONCE(q->stat[DMNIC_TX_BYTES]);
}

/* All packets were counted on the queues, so the base values are 0. */
static void base_stats(struct net_device *ndev, struct netdev_queue_stats_rx *rx, struct netdev_queue_stats_tx *tx)
{
    rx->packets = rx->bytes = rx->alloc_fail = rx->hw_drop_overruns = rx->hw_drops = 0;
    tx->packets = tx->bytes = 0;
}

static const struct netdev_stat_ops stat_ops = {
    .get_queue_stats_rx = queue_stats_rx,
    .get_queue_stats_tx = queue_stats_tx,
    .get_base_stats = base_stats,
};

static const char like_name[DMNIC_LIKES][8] = {"", "gve", "mlx5", "bnxt", "fbnic"};

/* Returns the driver that a pair of cards imitates, or DMNIC_LIKES if there is no such driver. */
static enum dmnic_like like_of(unsigned int pair)
{
    enum dmnic_like l;

    if (likes == 0)
        return DMNIC_PLAIN;
    for (l = DMNIC_PLAIN; l < DMNIC_LIKES; l++) {
        if (strcmp(like_name[l], like[min_t(unsigned int, pair, likes - 1)]) == 0)
            break;
    }
    return l;
}

/* Sets the initial state of the imitated driver, such as header split and rx-gro-hw. */
static void like_init(struct dmnic *nic)
{
    struct net_device *ndev = nic->ndev;

    if (nic->like == DMNIC_GVE || nic->like == DMNIC_MLX5 || nic->like == DMNIC_BNXT)
        ndev->hw_features |= NETIF_F_GRO_HW;
    if (nic->like == DMNIC_BNXT)
        ndev->features |= NETIF_F_GRO_HW;
    if (nic->like == DMNIC_GVE)
        nic->buf_len = 2048; /* google/gve/gve.h, GVE_DEFAULT_RX_BUFFER_SIZE */
#ifdef DMNIC_HDS_THRESH
    if (nic->like == DMNIC_BNXT)
        nic->hds_thresh = 640; /* broadcom/bnxt/bnxt.c:4889 */
    if (nic->like == DMNIC_FBNIC)
        nic->hds_thresh = 1506; /* meta/fbnic/fbnic_netdev.c:781 */
    ndev->cfg->hds_thresh = nic->hds_thresh;
#endif
#ifdef DMNIC_QCFG_PAGE
    if (nic->like == DMNIC_MLX5 || nic->like == DMNIC_BNXT)
        ndev->queue_mgmt_ops = &queue_ops_pages;
#endif
    nic->split = dmnic_splits(nic, nic->hds, ndev->features);
}

static struct net_device *card_new(unsigned int idx)
{
    struct net_device *ndev = alloc_etherdev_mqs(sizeof(struct dmnic), queues, queues);
    const u8 mac[ETH_ALEN] = {0x02, 'd', 'm', 'n', 0, idx};
    struct dmnic *nic;

    if (!ndev)
        return NULL;
    nic = netdev_priv(ndev);
    nic->ndev = ndev;
    nic->nq = queues;
    nic->ring = DMNIC_RING;
    nic->like = like_of(idx / 2);
    nic->q = kvcalloc(queues, sizeof(*nic->q), GFP_KERNEL);
    if (!nic->q) {
        free_netdev(ndev);
        return NULL;
    }
    strscpy(ndev->name, "dm%d", sizeof(ndev->name));
    eth_hw_addr_set(ndev, mac);
    ndev->netdev_ops = &card_ops;
    ndev->ethtool_ops = &dmnic_ethtool_ops[nic->like];
    ndev->queue_mgmt_ops = &queue_ops;
    ndev->stat_ops = &stat_ops;
    ndev->max_mtu = DMNIC_MTU_MAX;
    ndev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 | NETIF_F_TSO_ECN | NETIF_F_RXCSUM |
                        NETIF_F_RXHASH | NETIF_F_NTUPLE;
    ndev->features = (ndev->hw_features & ~NETIF_F_NTUPLE) | NETIF_F_HIGHDMA;
    like_init(nic);
#ifdef DMNIC_NETMEM_TX
    if (netmem_tx)
        ndev->netmem_tx = DMNIC_NETMEM_TX;
#endif
    for (unsigned int i = 0; i < DMNIC_INDIR; i++)
        nic->indir[i] = ethtool_rxfh_indir_default(i, queues);
    netdev_rss_key_fill(nic->key, sizeof(nic->key));
    for (unsigned int i = 0; i < queues; i++) {
        struct dmnic_queue *q = &nic->q[i];

        q->nic = nic;
        q->idx = i;
        skb_queue_head_init(&q->ring);
        netif_napi_add(ndev, &q->napi, dmnic_poll);
    }
    netif_carrier_off(ndev);
    return ndev;
}

static void card_free(struct net_device *ndev)
{
    struct dmnic *nic = netdev_priv(ndev);

    dmnic_rules_clear(nic);
    for (unsigned int i = 0; i < nic->nq; i++)
        netif_napi_del(&nic->q[i].napi);
    kvfree(nic->q);
    free_netdev(ndev);
}

/* The platform devices are the machine's slots. After the driver is unloaded, bound memory remains attached to the
 * slots until the last reader has released the memory, and dma_buf_attach() takes no reference to the device. The slots
 * therefore persist, like PCI devices, and the next load of the module finds them. */
static int slot_make(unsigned int idx)
{
    char name[16];
    struct platform_device *slot;
    struct device *dev;

    snprintf(name, sizeof(name), NAME ".%u", idx);
    dev = bus_find_device_by_name(&platform_bus_type, NULL, name);
    if (dev) {
        put_device(dev);
        return 0;
    }
    slot = platform_device_register_simple(NAME, idx, NULL, 0);
    return PTR_ERR_OR_ZERO(slot);
}

static int card_probe(struct platform_device *slot)
{
    unsigned int idx = slot->id;
    int rc;

    if (idx >= 2 * pairs) /* an earlier load of the module created more slots */
        return -ENODEV;
    rc = dma_coerce_mask_and_coherent(&slot->dev, DMA_BIT_MASK(64));
    if (rc)
        return rc;
    SET_NETDEV_DEV(cards[idx], &slot->dev);
    return register_netdev(cards[idx]);
}

static void card_remove(struct platform_device *slot)
{
    unregister_netdev(cards[slot->id]);
}

static struct platform_driver driver = {
    .driver = {.name = NAME, .suppress_bind_attrs = true},
    .probe = card_probe,
    .remove = card_remove,
};

static void cards_free(void)
{
    for (unsigned int i = 0; i < 2 * pairs; i++) {
        if (cards[i])
            card_free(cards[i]);
    }
}

static int __init dmnic_init(void)
{
    unsigned int i;
    int rc = -ENOMEM;

    if (queues < 1 || queues > QUEUE_MAX || pairs < 1 || pairs > PAIR_MAX) {
        pr_err(NAME ": queues must be 1 to %d and pairs 1 to %d\n", QUEUE_MAX, PAIR_MAX);
        return -EINVAL;
    }
    for (i = 0; i < pairs; i++) {
        if (like_of(i) == DMNIC_LIKES) {
            pr_err(NAME ": like must be gve, mlx5, bnxt or fbnic\n");
            return -EINVAL;
        }
    }
    for (i = 0; i < 2 * pairs; i++) {
        cards[i] = card_new(i);
        if (!cards[i])
            goto fail;
    }
    for (i = 0; i < 2 * pairs; i++) {
        struct dmnic *nic = netdev_priv(cards[i]);

        nic->peer = netdev_priv(cards[i ^ 1]);
        rc = slot_make(i);
        if (rc)
            goto fail;
    }
    rc = platform_driver_register(&driver);
    if (rc)
        goto fail;
    for (i = 0; i < 2 * pairs; i++) {
        if (cards[i]->reg_state != NETREG_REGISTERED) {
            pr_err(NAME ": card %u could not be registered\n", i);
            platform_driver_unregister(&driver);
            rc = -ENODEV;
            goto fail;
        }
    }
    return 0;
fail:
    cards_free();
    return rc;
}

static void __exit dmnic_exit(void)
{
    platform_driver_unregister(&driver);
    cards_free();
}

module_init(dmnic_init);
module_exit(dmnic_exit);
MODULE_DESCRIPTION("Pairs of simulated network cards that devmem TCP runs on");
MODULE_AUTHOR("The hawser authors");
MODULE_LICENSE("GPL");

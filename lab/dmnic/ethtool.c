// SPDX-License-Identifier: GPL-2.0
/* What `ethtool` shows and sets. */
#include "dmnic.h"

#include <linux/ethtool_netlink.h>

static void get_drvinfo(struct net_device *ndev, struct ethtool_drvinfo *info)
{
    strscpy(info->driver, "dmnic", sizeof(info->driver));
    strscpy(info->bus_info, dev_name(ndev->dev.parent), sizeof(info->bus_info));
}

/* ethtool_op_get_link() wants rtnl, which 7.x does not hold here. */
static u32 get_link(struct net_device *ndev)
{
    return netif_carrier_ok(ndev);
}

static void get_ringparam(struct net_device *ndev, struct ethtool_ringparam *ring,
                          struct kernel_ethtool_ringparam *kring, struct netlink_ext_ack *extack)
{
    struct dmnic *nic = netdev_priv(ndev);

    ring->rx_max_pending = DMNIC_RING_MAX;
    ring->rx_pending = nic->ring;
    kring->tcp_data_split = nic->split ? ETHTOOL_TCP_DATA_SPLIT_ENABLED : ETHTOOL_TCP_DATA_SPLIT_DISABLED;
#ifdef DMNIC_HDS_THRESH
    kring->hds_thresh = nic->hds_thresh;
    kring->hds_thresh_max = DMNIC_MTU_MAX;
#endif
}

static int set_ringparam(struct net_device *ndev, struct ethtool_ringparam *ring,
                         struct kernel_ethtool_ringparam *kring, struct netlink_ext_ack *extack)
{
    struct dmnic *nic = netdev_priv(ndev);
    bool split = kring->tcp_data_split == ETHTOOL_TCP_DATA_SPLIT_ENABLED;
    int rc;

    if (ring->rx_pending < DMNIC_RING_MIN) {
        NL_SET_ERR_MSG(extack, "the ring is too small");
        return -EINVAL;
    }
    if (!split && dmnic_bound(nic)) { /* 7.x has refused this already; 6.12 leaves it to us */
        NL_SET_ERR_MSG(extack, "tcp-data-split cannot be turned off while memory is bound to a queue");
        return -EINVAL;
    }
    rc = dmnic_reset(nic, split, ring->rx_pending);
#ifdef DMNIC_HDS_THRESH
    if (rc == 0)
        WRITE_ONCE(nic->hds_thresh, kring->hds_thresh);
#endif
    return rc;
}

static void get_channels(struct net_device *ndev, struct ethtool_channels *ch)
{
    struct dmnic *nic = netdev_priv(ndev);

    ch->max_combined = ch->combined_count = nic->nq;
}

static int get_rxnfc(struct net_device *ndev, struct ethtool_rxnfc *info, u32 *locations)
{
    struct dmnic *nic = netdev_priv(ndev);
    int rc;

    switch (info->cmd) {
#ifndef DMNIC_RX_RING_COUNT
    case ETHTOOL_GRXRINGS:
        info->data = nic->nq;
        return 0;
#endif
    case ETHTOOL_GRXCLSRLCNT:
        rc = dmnic_rules_list(nic, info, NULL);
        info->data |= RX_CLS_LOC_SPECIAL; /* the card picks a location for RX_CLS_LOC_ANY */
        return rc;
    case ETHTOOL_GRXCLSRULE:
        return dmnic_rule_get(nic, info);
    case ETHTOOL_GRXCLSRLALL:
        return dmnic_rules_list(nic, info, locations);
    default:
        return -EOPNOTSUPP;
    }
}

static int set_rxnfc(struct net_device *ndev, struct ethtool_rxnfc *info)
{
    struct dmnic *nic = netdev_priv(ndev);

    switch (info->cmd) {
    case ETHTOOL_SRXCLSRLINS:
        return dmnic_rule_add(nic, &info->fs);
    case ETHTOOL_SRXCLSRLDEL:
        return dmnic_rule_del(nic, info->fs.location);
    default:
        return -EOPNOTSUPP;
    }
}

#ifdef DMNIC_RX_RING_COUNT
static u32 get_rx_ring_count(struct net_device *ndev)
{
    return ((struct dmnic *)netdev_priv(ndev))->nq;
}
#endif

static u32 get_rxfh_indir_size(struct net_device *ndev)
{
    return DMNIC_INDIR;
}

static u32 get_rxfh_key_size(struct net_device *ndev)
{
    return DMNIC_KEY;
}

static int get_rxfh(struct net_device *ndev, struct ethtool_rxfh_param *rxfh)
{
    struct dmnic *nic = netdev_priv(ndev);

    rxfh->hfunc = ETH_RSS_HASH_TOP;
    if (rxfh->indir)
        memcpy(rxfh->indir, nic->indir, sizeof(nic->indir));
    if (rxfh->key)
        memcpy(rxfh->key, nic->key, sizeof(nic->key));
    return 0;
}

/* The core has checked the table's entries against the number of queues. */
static int set_rxfh(struct net_device *ndev, struct ethtool_rxfh_param *rxfh, struct netlink_ext_ack *extack)
{
    struct dmnic *nic = netdev_priv(ndev);

    if (rxfh->hfunc != ETH_RSS_HASH_NO_CHANGE && rxfh->hfunc != ETH_RSS_HASH_TOP)
        return -EOPNOTSUPP;
    for (int i = 0; rxfh->indir && i < DMNIC_INDIR; i++)
        WRITE_ONCE(nic->indir[i], rxfh->indir[i]);
    if (rxfh->key)
        memcpy(nic->key, rxfh->key, sizeof(nic->key));
    return 0;
}

/* A row each; the totals first, then "NAME[queue]". rx_drops is what arrived and was not delivered, the fault knob's
 * losses (rx_lost) aside. */
static const char stat_name[DMNIC_STATS][16] = {
    [DMNIC_RX_PACKETS] = "rx_pkts",
    [DMNIC_RX_BYTES] = "rx_bytes",
    [DMNIC_RX_DEVMEM_PKTS] = "rx_devmem_pkts",
    [DMNIC_RX_DEVMEM_BYTES] = "rx_devmem_bytes",
    [DMNIC_RX_LINEAR_PKTS] = "rx_linear_pkts",
    [DMNIC_RX_LINEAR_BYTES] = "rx_linear_bytes",
    [DMNIC_RX_ALLOC_FAIL] = "rx_alloc_fail",
    [DMNIC_RX_MISSED] = "rx_missed",
    [DMNIC_RX_ERRORS] = "rx_errors",
    [DMNIC_RX_LOST] = "rx_lost",
    [DMNIC_RX_REORDERED] = "rx_reordered",
    [DMNIC_RX_CORRUPTED] = "rx_corrupted",
    [DMNIC_TX_PACKETS] = "tx_pkts",
    [DMNIC_TX_BYTES] = "tx_bytes",
    [DMNIC_TX_DEVMEM_PKTS] = "tx_devmem_pkts",
    [DMNIC_TX_DEVMEM_BYTES] = "tx_devmem_bytes",
    [DMNIC_TX_DROPS] = "tx_drops",
};
#define ROWS (DMNIC_STATS + 1)

static int get_sset_count(struct net_device *ndev, int sset)
{
    struct dmnic *nic = netdev_priv(ndev);

    return sset == ETH_SS_STATS ? (int)(ROWS * (1 + nic->nq)) : -EOPNOTSUPP;
}

static void get_strings(struct net_device *ndev, u32 sset, u8 *data)
{
    struct dmnic *nic = netdev_priv(ndev);

    if (sset != ETH_SS_STATS)
        return;
    for (int q = -1; q < (int)nic->nq; q++) {
        for (int i = 0; i < ROWS; i++) {
            const char *name = i < DMNIC_STATS ? stat_name[i] : "rx_drops";

            if (q < 0)
                ethtool_puts(&data, name);
            else
                ethtool_sprintf(&data, "%s[%d]", name, q);
        }
    }
}

static void get_ethtool_stats(struct net_device *ndev, struct ethtool_stats *stats, u64 *data)
{
    struct dmnic *nic = netdev_priv(ndev);

    memset(data, 0, ROWS * sizeof(*data));
    for (unsigned int q = 0; q < nic->nq; q++) {
        u64 *row = data + ROWS * (1 + q);

        for (int i = 0; i < DMNIC_STATS; i++)
            row[i] = READ_ONCE(nic->q[q].stat[i]);
        row[DMNIC_STATS] = dmnic_drops(&nic->q[q]);
        for (int i = 0; i < ROWS; i++)
            data[i] += row[i];
    }
}

const struct ethtool_ops dmnic_ethtool_ops = {
    .supported_ring_params = ETHTOOL_RING_USE_TCP_DATA_SPLIT
#ifdef DMNIC_HDS_THRESH
                             | ETHTOOL_RING_USE_HDS_THRS
#endif
    ,
    .get_drvinfo = get_drvinfo,
    .get_link = get_link,
    .get_ringparam = get_ringparam,
    .set_ringparam = set_ringparam,
    .get_channels = get_channels,
    .get_rxnfc = get_rxnfc,
    .set_rxnfc = set_rxnfc,
#ifdef DMNIC_RX_RING_COUNT
    .get_rx_ring_count = get_rx_ring_count,
#endif
    .get_rxfh_indir_size = get_rxfh_indir_size,
    .get_rxfh_key_size = get_rxfh_key_size,
    .get_rxfh = get_rxfh,
    .set_rxfh = set_rxfh,
    .get_sset_count = get_sset_count,
    .get_strings = get_strings,
    .get_ethtool_stats = get_ethtool_stats,
};

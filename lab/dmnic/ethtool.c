// SPDX-License-Identifier: GPL-2.0
/* The ethtool operations. */
#include "dmnic.h"

#include <linux/ethtool_netlink.h>

static const char driver_name[DMNIC_LIKES][16] = {"dmnic", "gve", "mlx5_core", "bnxt_en", "fbnic"};

static void get_drvinfo(struct net_device *ndev, struct ethtool_drvinfo *info)
{
    struct dmnic *nic = netdev_priv(ndev);

    strscpy(info->driver, driver_name[nic->like], sizeof(info->driver));
    strscpy(info->version, "dmnic", sizeof(info->version));
    strscpy(info->bus_info, dev_name(ndev->dev.parent), sizeof(info->bus_info));
}

/* ethtool_op_get_link() needs rtnl, which 7.x does not hold here. */
static u32 get_link(struct net_device *ndev)
{
    return netif_carrier_ok(ndev);
}

/* Returns what the driver reports about header split. UNKNOWN means that the driver reports nothing; 7.x then reports
 * the configuration. */
static u8 reported(struct dmnic *nic)
{
    switch (nic->like) {
#ifdef DMNIC_HDS_THRESH
    case DMNIC_MLX5: /* mellanox/mlx5/core/en_ethtool.c:362 */
        return ETHTOOL_TCP_DATA_SPLIT_UNKNOWN;
#endif
    case DMNIC_GVE: /* google/gve/gve_ethtool.c:557 */
        return nic->hds ? ETHTOOL_TCP_DATA_SPLIT_ENABLED : ETHTOOL_TCP_DATA_SPLIT_DISABLED;
    default: /* broadcom/bnxt/bnxt_ethtool.c:830; meta/fbnic/fbnic_ethtool.c:311 */
        return nic->split ? ETHTOOL_TCP_DATA_SPLIT_ENABLED : ETHTOOL_TCP_DATA_SPLIT_DISABLED;
    }
}

static void get_ringparam(struct net_device *ndev, struct ethtool_ringparam *ring,
                          struct kernel_ethtool_ringparam *kring, struct netlink_ext_ack *extack)
{
    struct dmnic *nic = netdev_priv(ndev);
    u8 split = reported(nic);

    ring->rx_max_pending = DMNIC_RING_MAX;
    ring->rx_pending = nic->ring;
    kring->rx_buf_len = nic->buf_len;
    if (split != ETHTOOL_TCP_DATA_SPLIT_UNKNOWN)
        kring->tcp_data_split = split;
#ifdef DMNIC_HDS_THRESH
    switch (nic->like) {
    case DMNIC_GVE: /* this driver has no threshold */
        break;
    case DMNIC_MLX5: /* mellanox/mlx5/core/en_ethtool.c:379 */
        kring->hds_thresh = kring->hds_thresh_max = 0;
        break;
    case DMNIC_BNXT: /* broadcom/bnxt/bnxt_ethtool.c:845 */
        kring->hds_thresh_max = 1023;
        break;
    default:
        kring->hds_thresh = nic->hds_thresh;
        kring->hds_thresh_max = DMNIC_MTU_MAX;
        break;
    }
#endif
}

/* Returns the previous configuration. Kernels before 6.14 do not store the configuration, so the state that the driver
 * reports is returned instead. */
static u8 configured(struct dmnic *nic)
{
#ifdef DMNIC_HDS_THRESH
    return nic->ndev->cfg->hds_config;
#else
    return reported(nic);
#endif
}

/* Checks tcp-data-split as the imitated driver would, and sets *hds if the driver would change header split. Returns 0
 * or -errno. */
static int split_wanted(struct dmnic *nic, u8 want, bool *hds, struct netlink_ext_ack *extack)
{
    bool on = want == ETHTOOL_TCP_DATA_SPLIT_ENABLED, off = want == ETHTOOL_TCP_DATA_SPLIT_DISABLED;
    u8 was = configured(nic);

    switch (nic->like) {
    case DMNIC_GVE: /* google/gve/gve_main.c:2150 */
        if (on || off)
            *hds = on;
        return 0;
    case DMNIC_MLX5: /* mellanox/mlx5/core/en_ethtool.c:399 */
        if (on && !(nic->ndev->features & NETIF_F_GRO_HW)) {
            NL_SET_ERR_MSG(extack, "TCP-data-split is not supported when GRO HW is disabled");
            return -EINVAL;
        }
        *hds = on;
        return 0;
    case DMNIC_BNXT: /* broadcom/bnxt/bnxt_ethtool.c:870 */
        if (off && was != ETHTOOL_TCP_DATA_SPLIT_DISABLED)
            return -EINVAL;
        if (want != was)
            *hds = on;
        return 0;
    case DMNIC_FBNIC: /* meta/fbnic/fbnic_ethtool.c:359 */
        if (off) {
            NL_SET_ERR_MSG(extack, "Cannot disable TCP data split");
            return -EINVAL;
        }
        return 0;
    default:
        *hds = on;
        return 0;
    }
}

static int set_ringparam(struct net_device *ndev, struct ethtool_ringparam *ring,
                         struct kernel_ethtool_ringparam *kring, struct netlink_ext_ack *extack)
{
    struct dmnic *nic = netdev_priv(ndev);
    bool hds = nic->hds, was = nic->hds, split;
    int rc;

    if (ring->rx_pending < DMNIC_RING_MIN) {
        NL_SET_ERR_MSG(extack, "the RX ring is too small");
        return -EINVAL;
    }
    if (kring->rx_buf_len != nic->buf_len && kring->rx_buf_len != 2048 && kring->rx_buf_len != 4096) {
        NL_SET_ERR_MSG(extack, "Rx buf len can only be 2048 or 4096"); /* google/gve/gve_main.c:2133 */
        return -EINVAL;
    }
    rc = split_wanted(nic, kring->tcp_data_split, &hds, extack);
    if (rc)
        return rc;
    split = dmnic_splits(nic, hds, ndev->features);
    if (!split && dmnic_bound(nic)) { /* 7.x has already refused the request; 6.12 leaves the check to the driver */
        NL_SET_ERR_MSG(extack, "tcp-data-split cannot be turned off while memory is bound to a queue");
        return -EINVAL;
    }
    nic->hds = hds;
    rc = dmnic_reset(nic, split, ring->rx_pending);
    if (rc) {
        nic->hds = was;
        return rc;
    }
    WRITE_ONCE(nic->buf_len, kring->rx_buf_len);
#ifdef DMNIC_HDS_THRESH
    WRITE_ONCE(nic->hds_thresh, kring->hds_thresh);
#endif
    /* mellanox/mlx5/core/en_ethtool.c:407: rx-gro-hw may have stayed on only for header split */
    if (nic->like == DMNIC_MLX5 && was && kring->tcp_data_split == ETHTOOL_TCP_DATA_SPLIT_DISABLED)
        netdev_update_features(ndev);
    return 0;
}

static void get_channels(struct net_device *ndev, struct ethtool_channels *ch)
{
    struct dmnic *nic = netdev_priv(ndev);

    ch->max_combined = ch->combined_count = nic->nq;
}

static int get_rxnfc(struct net_device *ndev, struct ethtool_rxnfc *info, u32 *locations)
{
    struct dmnic *nic = netdev_priv(ndev);
    u64 data;
    int rc;

    switch (info->cmd) {
#ifndef DMNIC_RX_RING_COUNT
    case ETHTOOL_GRXRINGS:
        info->data = nic->nq;
        return 0;
#endif
    case ETHTOOL_GRXCLSRLCNT:
        data = info->data;
        rc = dmnic_rules_list(nic, info, NULL);
        if (nic->like == DMNIC_MLX5) /* mellanox/mlx5/core/en_fs_ethtool.c:1003 */
            info->data = data;
        else if (nic->like != DMNIC_GVE)      /* google/gve/gve_ethtool.c:863 */
            info->data |= RX_CLS_LOC_SPECIAL; /* the card chooses a location for RX_CLS_LOC_ANY */
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

/* The core has already checked the table's entries against the number of queues. */
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

/* The totals come first, followed by "NAME[queue]". rx_drops counts packets that arrived and were not delivered;
 * packets that the fault "loss" dropped (rx_lost) are not included. */
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

#define OPS_BUT_RINGS                                                                                             \
    DMNIC_OP_NEEDS_RTNL.get_drvinfo = get_drvinfo, .get_link = get_link, .get_ringparam = get_ringparam,          \
    .set_ringparam = set_ringparam, .get_channels = get_channels, .get_rxnfc = get_rxnfc, .set_rxnfc = set_rxnfc, \
    RING_COUNT.get_rxfh_indir_size = get_rxfh_indir_size, .get_rxfh_key_size = get_rxfh_key_size,                 \
    .get_rxfh = get_rxfh, .set_rxfh = set_rxfh, .get_sset_count = get_sset_count, .get_strings = get_strings,     \
    .get_ethtool_stats = get_ethtool_stats
#ifdef DMNIC_RX_RING_COUNT
#define RING_COUNT .get_rx_ring_count = get_rx_ring_count,
#else
#define RING_COUNT
#endif
#ifdef DMNIC_HDS_THRESH
#define SPLIT_AND_THRESH (ETHTOOL_RING_USE_TCP_DATA_SPLIT | ETHTOOL_RING_USE_HDS_THRS)
#else
#define SPLIT_AND_THRESH ETHTOOL_RING_USE_TCP_DATA_SPLIT
#endif

const struct ethtool_ops dmnic_ethtool_ops[DMNIC_LIKES] = {
    [DMNIC_PLAIN] = {.supported_ring_params = SPLIT_AND_THRESH, OPS_BUT_RINGS},
    /* google/gve/gve_ethtool.c:984 */
    [DMNIC_GVE] = {.supported_ring_params = ETHTOOL_RING_USE_TCP_DATA_SPLIT | ETHTOOL_RING_USE_RX_BUF_LEN,
                   OPS_BUT_RINGS},
    [DMNIC_MLX5] = {.supported_ring_params = SPLIT_AND_THRESH, OPS_BUT_RINGS},
    [DMNIC_BNXT] = {.supported_ring_params = SPLIT_AND_THRESH, OPS_BUT_RINGS},
    [DMNIC_FBNIC] = {.supported_ring_params = SPLIT_AND_THRESH, OPS_BUT_RINGS},
};

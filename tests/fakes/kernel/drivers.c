/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers.h"

#include <linux/ethtool_netlink.h>

#define AUTO ETHTOOL_TCP_DATA_SPLIT_UNKNOWN
#define OFF  ETHTOOL_TCP_DATA_SPLIT_DISABLED
#define ON   ETHTOOL_TCP_DATA_SPLIT_ENABLED

const char *const like_names[LIKES] = {"plain", "gve", "mlx5", "bnxt", "fbnic"};

void driver_init(struct fake_driver *d, enum fake_like like)
{
    *d = (struct fake_driver){.like = like, .config = like == LIKE_PLAIN ? OFF : AUTO};
    if (like == LIKE_GVE)
        d->buf_len = 2048; /* GVE_DEFAULT_RX_BUFFER_SIZE */
    if (like == LIKE_BNXT)
        d->thresh = 640; /* bnxt_init_ring_params(), bnxt.c:4884 */
    if (like == LIKE_FBNIC)
        d->thresh = 1506; /* FBNIC_HDS_THRESH_DEFAULT, fbnic_txrx.h:67 */
}

static bool has_thresh(const struct fake_driver *d)
{
    return d->like == LIKE_MLX5 || d->like == LIKE_BNXT || d->like == LIKE_FBNIC;
}

/* Works like the kernel's rings_prepare_data(), net/ethtool/rings.c:32: reports the configuration, except where the
 * driver reports a different state. */
void driver_report(const struct fake_driver *d, struct hd_split *out)
{
    *out =
        (struct hd_split){.split = d->config, .has_thresh = has_thresh(d), .thresh = d->thresh, .buf_len = d->buf_len};
    switch (d->like) {
    case LIKE_GVE: /* gve_ethtool.c:557 */
        out->split = d->hds ? ON : OFF;
        break;
    case LIKE_BNXT: /* bnxt_ethtool.c:830: on if there are aggregation rings, which rx-gro-hw uses too */
        out->split = d->hds || d->gro ? ON : OFF;
        break;
    case LIKE_FBNIC: /* fbnic_ethtool.c:311 */
        out->split = ON;
        break;
    default: /* mlx5 does not change the report: mlx5e_ethtool_get_ringparam() */
        break;
    }
}

/* Performs the driver's part of RINGS_SET; `was` is the previous configuration. */
static int driver_apply(struct fake_driver *d, uint8_t was, uint8_t to, uint32_t buf_len)
{
    switch (d->like) {
    case LIKE_GVE: /* gve_set_rx_buf_len_config(), gve_set_hsplit_config(): gve_main.c:2111, 2146 */
        if (buf_len && buf_len != 2048 && buf_len != 4096)
            return hw_fail(-EINVAL, "Rx buf len can only be 2048 or 4096");
        if (to != AUTO && d->xdp)
            return hw_fail(-EOPNOTSUPP, "Header-split not supported");
        d->buf_len = buf_len ? buf_len : d->buf_len;
        d->hds = to == AUTO ? d->hds : to == ON;
        return 0;
    case LIKE_MLX5: /* mlx5e_ethtool_set_tcp_data_split(), en_ethtool.c:393 */
        if (to == ON && !d->gro)
            return hw_fail(-EINVAL, "TCP-data-split is not supported when GRO HW is disabled");
        if (to == OFF && was == ON)
            d->gro = d->gro_wanted;
        return 0;
    case LIKE_BNXT: /* bnxt_set_ringparam(), bnxt_ethtool.c:869 */
        if (to == OFF && was != OFF)
            return hw_fail(-EINVAL, "no explicit off");
        if (to != was)
            d->hds = to == ON;
        return 0;
    case LIKE_FBNIC: /* fbnic_set_ringparam(), fbnic_ethtool.c:359 */
        return to == OFF ? hw_fail(-EINVAL, "Cannot disable TCP data split") : 0;
    default: /* drivers without an automatic setting */
        return 0;
    }
}

/* Works like the kernel's ethnl_set_rings(), net/ethtool/rings.c:207. */
int driver_split(struct fake_driver *d, const struct hd_split *s, bool bound, bool *changed)
{
    uint32_t thresh = s->has_thresh ? s->thresh : d->thresh;
    if (changed)
        *changed = false;
    if (s->buf_len && (d->like != LIKE_GVE || d->fixed_buf))
        return hw_fail(-EOPNOTSUPP, "setting rx buf len not supported");
    if (s->has_thresh && !has_thresh(d) && d->like != LIKE_PLAIN)
        return hw_fail(-EOPNOTSUPP, "setting hds-thresh is not supported");
    if (s->split == d->config && thresh == d->thresh && (!s->buf_len || s->buf_len == d->buf_len))
        return 0;
    if (s->split == ON && d->xdp)
        return hw_fail(-EINVAL, "tcp-data-split can not be enabled with single buffer XDP");
    if (bound && s->split != ON)
        return hw_fail(-EINVAL, "can't disable tcp-data-split while device has memory provider enabled");
    if (bound && thresh)
        return hw_fail(-EINVAL, "can't set non-zero hds_thresh while device is memory provider enabled");
    int rc = driver_apply(d, d->config, s->split, s->buf_len);
    if (rc)
        return rc;
    d->config = d->like == LIKE_PLAIN && s->split == AUTO ? OFF : s->split;
    d->thresh = thresh;
    if (changed)
        *changed = true;
    return 0;
}

enum hd_gro_hw driver_gro(const struct fake_driver *d)
{
    if (d->like == LIKE_PLAIN || d->like == LIKE_FBNIC)
        return HD_GRO_NONE;
    return d->gro ? HD_GRO_ON : HD_GRO_OFF;
}

void driver_gro_set(struct fake_driver *d, bool on)
{
    d->gro_wanted = on;
    /* mlx5: rx-gro-hw stays on, because header split depends on it */
    d->gro = on || (d->like == LIKE_MLX5 && d->config == ON);
}

/* Works like the kernel's __netif_mp_open_rxq(), net/core/netdev_rx_queue.c:186. */
int driver_bind(const struct fake_driver *d, uint32_t page)
{
    if (d->config != ON)
        return hw_fail(-EINVAL, "tcp-data-split is disabled");
    if (d->thresh)
        return hw_fail(-EINVAL, "hds-thresh is not zero");
    if (d->xdp)
        return hw_fail(-EEXIST, "unable to custom memory provider to device with XDP program attached");
    if (page && d->like != LIKE_MLX5 && d->like != LIKE_BNXT) /* QCFG_RX_PAGE_SIZE: bnxt.c:16671, en_main.c:5826 */
        return hw_fail(-EOPNOTSUPP, "device does not support: rx_page_size");
    if (page > 32768) /* bnxt_validate_qcfg(), bnxt.c:16346; mlx5e_queue_validate_qcfg(), en_main.c:5684 */
        return hw_fail(-ERANGE, "rx_page_size %u", page);
    return 0;
}

bool driver_takes_xdp(const struct fake_driver *d)
{
    /* dev_xdp_install(), net/core/dev.c:10473; bnxt_xdp_set(), bnxt_xdp.c:418 */
    return d->config != ON && !(d->like == LIKE_BNXT && d->hds);
}

/* ---- flow rules --------------------------------------------------------------------------------- */

void driver_count(enum fake_like like, uint32_t n, struct ethtool_rxnfc *r)
{
    r->rule_cnt = n;
    switch (like) {
    case LIKE_MLX5: /* en_fs_ethtool.c:1003: data is unchanged */
        break;
    case LIKE_GVE: /* gve_ethtool.c:854 */
        r->data = 1024;
        break;
    default: /* bnxt_ethtool.c:1822, fbnic_ethtool.c:871 */
        r->data = 1024 | RX_CLS_LOC_SPECIAL;
        break;
    }
}

int driver_list(enum fake_like like, const uint32_t *loc, uint32_t n, struct ethtool_rxnfc *r)
{
    uint32_t room = r->rule_cnt, got = 0;
    r->data = like == LIKE_BNXT ? n : 1024;
    switch (like) {
    case LIKE_MLX5: /* en_fs_ethtool.c:818: fails if there are fewer rules than the buffer can hold */
        while (got < room && got < n) {
            r->rule_locs[got] = loc[got];
            got++;
        }
        return got < room ? -EINVAL : 0;
    case LIKE_BNXT: /* bnxt_ethtool.c:1114 */
        while (got < room && got < n) {
            r->rule_locs[got] = loc[got];
            got++;
        }
        r->rule_cnt = got;
        return 0;
    default: /* gve_flow_rule.c:251, fbnic_ethtool.c:649 */
        for (; got < n; got++) {
            if (got == room)
                return -EMSGSIZE;
            r->rule_locs[got] = loc[got];
        }
        if (like != LIKE_GVE)
            r->rule_cnt = got;
        return 0;
    }
}

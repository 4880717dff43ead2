/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns on the header split of a NIC, and the settings that drivers need for it, and undoes the changes. Line numbers
 * refer to Linux 7.3.4.
 *
 * The kernel binds a queue only if header split is configured to be on and hds-thresh is 0 (__netif_mp_open_rxq() in
 * net/core/netdev_rx_queue.c:199). The state that a driver reports may differ from the configuration: bnxt also reports
 * that header split is on if large packets or rx-gro-hw require it (bnxt_ethtool.c:830), and fbnic always reports that
 * header split is on (fbnic_ethtool.c:311). The setting is therefore always sent, unless a queue is already bound. If
 * header split is already configured, the kernel does nothing.
 */
#include "helper/state/state.h"

#include <linux/ethtool_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Size of the IPv4 and TCP headers without options, in bytes. */
#define HEADERS 40u

uint32_t hd_buf_len(const struct hd_split *now, unsigned mtu)
{
    /* gve's buffers are rx-buf-len bytes long: 2048 by default, or 4096 (gve_set_rx_buf_len_config() in
     * gve_main.c:2133). Packets that fit into 2048 bytes need no change, because two buffers then share a page. */
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
    return now->buf_len && now->buf_len < page && mtu > now->buf_len + HEADERS ? page : 0;
}

static bool is_split_refused(int rc)
{
    return rc == -EINVAL || rc == -EOPNOTSUPP;
}

/* Turns rx-gro-hw on. mlx5 supports header split only while rx-gro-hw is on, and rx-gro-hw is off by default
 * (mlx5e_ethtool_set_tcp_data_split() in en_ethtool.c:399). Returns 0 if rx-gro-hw was off and was turned on, -EALREADY
 * if it is already on or the driver cannot change it, or another -errno. */
static int gro_on(struct hd_state *s, struct hd_nic *nic)
{
    enum hd_gro_hw now;
    int rc = s->k->gro_hw_get(s->k->arg, nic->ifindex, &now);
    if (rc || now != HD_GRO_OFF)
        return rc ? rc : -EALREADY;
    if (!nic->gro_set) {
        nic->gro_set = true;
        rc = hd_journal_write(s);
        if (rc)
            return rc;
    }
    rc = s->k->gro_hw_set(s->k->arg, nic->ifindex, true);
    if (rc == 0)
        hw_log(s->log, HAWSER_LOG_INFO, "%s: rx-gro-hw turned on, because the driver may need it for header split",
               nic->name);
    return rc;
}

/* Sets header split. If the driver refuses the setting, tries again without rx-buf-len, and then with rx-gro-hw on. */
static int send_split(struct hd_state *s, struct hd_nic *nic, struct hd_split *on, bool *changed)
{
    char why[HW_ERR_TEXT];
    int rc = s->k->split_set(s->k->arg, nic->ifindex, on, changed);
    if (is_split_refused(rc) && on->buf_len) {
        on->buf_len = nic->split_was.buf_len = 0;
        rc = s->k->split_set(s->k->arg, nic->ifindex, on, changed);
    }
    if (rc != -EINVAL)
        return rc;
    snprintf(why, sizeof(why), "%s", hw_error());
    int gro = gro_on(s, nic);
    if (gro == -ENODEV)
        return gro;
    return gro ? hw_fail_copy(rc, why) : s->k->split_set(s->k->arg, nic->ifindex, on, changed);
}

/* Checks whether any queue of the NIC is bound. If so, header split is configured, and the kernel does not allow the
 * setting to be changed. */
static int look_bound(struct hd_state *s, const struct hd_nic *nic, bool *bound)
{
    struct hd_queue *q = calloc(HD_QUEUES_MAX, sizeof(*q));
    unsigned n = 0;
    if (!q)
        return hw_no_memory("the queues of %s", nic->name);
    int rc = s->k->queues(s->k->arg, nic->ifindex, q, HD_QUEUES_MAX, &n);
    *bound = rc == 0 && hd_any_bound(q, n);
    free(q);
    return rc;
}

/* Logs a change to the settings. If the driver had already reported that header split is on, the change may only affect
 * hds-thresh, or only make the setting explicit. */
static void log_split_change(const struct hd_state *s, const struct hd_nic *nic, const struct hd_split *was,
                             const struct hd_split *on)
{
    if (was->split == ETHTOOL_TCP_DATA_SPLIT_ENABLED)
        hw_log(s->log, HAWSER_LOG_INFO, "%s: header split configured to stay on%s", nic->name,
               on->has_thresh ? ", for packets of any length (hds-thresh 0)" : "");
    else
        hw_log(s->log, HAWSER_LOG_INFO, "%s: header split turned on%s", nic->name,
               on->buf_len ? ", with receive buffers of a page each (rx-buf-len)" : "");
}

int hd_split_on(struct hd_state *s, struct hd_nic *nic, const struct hd_link *link)
{
    struct hd_split now;
    bool bound, changed = false, first = !nic->split_set || nic->split_auto;
    int rc = look_bound(s, nic, &bound);
    if (rc || bound)
        return rc;
    rc = s->k->split_get(s->k->arg, nic->ifindex, &now);
    if (rc)
        return rc;
    /* hds-thresh is set only if it must change, because not every driver can set it. rx-buf-len is changed only when
     * header split is turned on. */
    struct hd_split on = {.split = ETHTOOL_TCP_DATA_SPLIT_ENABLED, .has_thresh = now.thresh != 0};
    if (first && now.split != ETHTOOL_TCP_DATA_SPLIT_ENABLED)
        on.buf_len = hd_buf_len(&now, link->mtu);
    if (!nic->split_set) {
        nic->split_was = now;
        nic->split_was.has_thresh = on.has_thresh;
        nic->split_was.buf_len = on.buf_len ? now.buf_len : 0;
        nic->split_set = true;
    }
    if (on.buf_len && !nic->split_was.buf_len)
        nic->split_was.buf_len = now.buf_len;
    nic->split_auto = false;
    if (first && (rc = hd_journal_write(s)))
        return rc;
    rc = send_split(s, nic, &on, &changed);
    if (rc == 0 && changed)
        log_split_change(s, nic, &now, &on);
    if (rc || changed || !first)
        return rc;
    /* Another program had already configured header split, and must also undo this. If hawserd set header split to
     * automatic, the driver might report the same state, but bindings of the other program would fail. */
    nic->split_set = false;
    return hd_journal_write(s);
}

/* Restores header split. If the driver refuses the settings, tries again without rx-buf-len, because the journal may
 * contain an rx-buf-len that the driver has never accepted. */
static int set_back(struct hd_state *s, const struct hd_nic *nic, struct hd_split to)
{
    int rc = s->k->split_set(s->k->arg, nic->ifindex, &to, NULL);
    if (!is_split_refused(rc) || !to.buf_len)
        return rc;
    to.buf_len = 0;
    return s->k->split_set(s->k->arg, nic->ifindex, &to, NULL);
}

/* Sets header split to automatic and stores the resulting state in *now. Automatic is the kernel's initial setting.
 * bnxt and fbnic accept it but refuse "off" (bnxt_ethtool.c:870, fbnic_ethtool.c:359). "On" must not remain if it was
 * not configured before, even if the driver reported "on", because "on" prevents XDP programs on the NIC
 * (dev_xdp_install() in net/core/dev.c:10473). */
static int set_auto(struct hd_state *s, struct hd_nic *nic, struct hd_split *now)
{
    struct hd_split to = nic->split_was;
    to.split = ETHTOOL_TCP_DATA_SPLIT_UNKNOWN;
    int rc;
    if (!nic->split_auto) {
        nic->split_auto = true;
        rc = hd_journal_write(s);
        if (rc < 0)
            return rc;
    }
    rc = set_back(s, nic, to);
    if (rc < 0 && !is_split_refused(rc))
        return rc;
    return s->k->split_get(s->k->arg, nic->ifindex, now); /* drivers without automatic header split refuse set_back() */
}

/* Restores the previous setting explicitly. This is needed if the driver reports a different state in automatic mode,
 * as mlx5 and gve do if header split had been set explicitly. Returns 1 if header split stays automatic. */
static int set_explicit(struct hd_state *s, struct hd_nic *nic)
{
    int rc = set_back(s, nic, nic->split_was);
    if (!is_split_refused(rc))
        return rc;
    /* For example, bnxt reported "on" because of large packets or rx-gro-hw, and these settings have changed since
     * then. */
    hw_log(s->log, HAWSER_LOG_INFO,
           "%s: header split stays automatic, because the driver cannot restore the previous setting: %s", nic->name,
           hw_error());
    return 1;
}

int hd_split_back(struct hd_state *s, struct hd_nic *nic, bool bound)
{
    struct hd_split now;
    if (!nic->split_set || nic->bindings)
        return 0;
    int rc = s->k->split_get(s->k->arg, nic->ifindex, &now);
    if (rc)
        return rc;
    bool ours = now.split == ETHTOOL_TCP_DATA_SPLIT_ENABLED && now.thresh == 0;
    if (ours && bound)
        return hw_fail(-EBUSY, "%s: header split stays on, because a binding of another program needs it", nic->name);
    if (ours)
        rc = set_auto(s, nic, &now);
    if (rc == 0 && (ours || nic->split_auto) && now.split != nic->split_was.split)
        rc = set_explicit(s, nic);
    if (rc < 0)
        return hw_wrap(rc, "%s: cannot restore header split", nic->name);
    if (rc == 0)
        hw_log(s->log, HAWSER_LOG_INFO,
               ours || nic->split_auto ? "%s: header split restored"
                                       : "%s: header split is not restored, because another program has changed it",
               nic->name);
    nic->split_set = nic->split_auto = false;
    return 0;
}

int hd_gro_back(struct hd_state *s, struct hd_nic *nic)
{
    enum hd_gro_hw now;
    if (!nic->gro_set || nic->bindings || nic->split_set)
        return 0;
    int rc = s->k->gro_hw_get(s->k->arg, nic->ifindex, &now);
    if (rc == 0 && now == HD_GRO_ON)
        rc = s->k->gro_hw_set(s->k->arg, nic->ifindex, false);
    if (rc)
        return hw_wrap(rc, "%s: cannot turn rx-gro-hw off again", nic->name);
    nic->gro_set = false;
    return 0;
}

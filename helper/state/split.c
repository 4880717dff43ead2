/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings a NIC's header split, and the settings that drivers need for it, to the state that bindings need, and back.
 * Line numbers are those of Linux 7.3.4.
 *
 * The kernel binds a queue if header split is configured to be on and hds-thresh is 0 (__netif_mp_open_rxq(),
 * net/core/netdev_rx_queue.c:199). Drivers may report something else: bnxt reports that it splits for large packets or
 * rx-gro-hw too (bnxt_ethtool.c:830), fbnic always does (fbnic_ethtool.c:311). So the setting is always sent, unless a
 * queue is already bound; if it is already configured, the kernel does nothing.
 */
#include "helper/state/state.h"

#include <linux/ethtool_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* IP and TCP headers without options. */
#define HEADERS 40u

uint32_t hd_buf_len(const struct hd_split *now, unsigned mtu)
{
    /* gve puts at most this many bytes of a packet into one buffer, 2048 by default, and supports 2048 or 4096
     * (gve_set_rx_buf_len_config(), gve_main.c:2133); smaller packets share a page in pairs. */
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
    return now->buf_len && now->buf_len < page && mtu > now->buf_len + HEADERS ? page : 0;
}

static bool is_split_refused(int rc)
{
    return rc == -EINVAL || rc == -EOPNOTSUPP;
}

/* mlx5 has header split only while rx-gro-hw is on, and that is off by default (mlx5e_ethtool_set_tcp_data_split(),
 * en_ethtool.c:399). 0: it was turned on now. */
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
        hw_log(s->log, HAWSER_LOG_INFO, "%s: rx-gro-hw turned on: the driver needs it for header split", nic->name);
    return rc;
}

/* Sends the setting. If the driver refuses it, retries without rx-buf-len, and then with rx-gro-hw on. */
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

/* Checks whether a queue is bound: then header split is configured, and the kernel lets no one change it. */
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
    /* Sets hds-thresh only if it must change, because not every driver can set it. rx-buf-len may be changed only by
     * the process that turned header split on. */
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
        hw_log(s->log, HAWSER_LOG_INFO, "%s: header split turned on%s", nic->name,
               on.buf_len ? ", with receive buffers of a page each (rx-buf-len)" : "");
    if (rc || changed || !first)
        return rc;
    /* It was already configured, so whoever configured it must undo it. Setting automatic instead could look the same,
     * but would block that user's bindings. */
    nic->split_set = false;
    return hd_journal_write(s);
}

/* Like send_split(), on the way back: the journal has rx-buf-len from before the driver refused it. */
static int set_back(struct hd_state *s, const struct hd_nic *nic, struct hd_split to)
{
    int rc = s->k->split_set(s->k->arg, nic->ifindex, &to, NULL);
    if (!is_split_refused(rc) || !to.buf_len)
        return rc;
    to.buf_len = 0;
    return s->k->split_set(s->k->arg, nic->ifindex, &to, NULL);
}

/* Automatic is the kernel's initial setting, and bnxt and fbnic accept it but refuse "off" (bnxt_ethtool.c:870,
 * fbnic_ethtool.c:359). "On" must not stay if it was not configured before, whatever was reported: it blocks XDP
 * programs on the NIC (dev_xdp_install(), net/core/dev.c:10473). */
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
    return s->k->split_get(s->k->arg, nic->ifindex, now); /* a driver without automatic refuses it */
}

/* Restores the explicit setting. Needed where the driver, once set to automatic, reports a different state than
 * before: mlx5 and gve, if it had been set explicitly. */
static int set_explicit(struct hd_state *s, struct hd_nic *nic)
{
    int rc = set_back(s, nic, nic->split_was);
    if (!is_split_refused(rc))
        return rc;
    /* bnxt reports "on" because of large packets or rx-gro-hw, which was changed meanwhile */
    hw_log(s->log, HAWSER_LOG_INFO, "%s: header split stays automatic: the driver cannot restore it: %s", nic->name,
           hw_error());
    return 0;
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
        return hw_fail(-EBUSY, "%s: header split stays on while a binding of another program needs it", nic->name);
    if (ours)
        rc = set_auto(s, nic, &now);
    if (rc == 0 && (ours || nic->split_auto) && now.split != nic->split_was.split)
        rc = set_explicit(s, nic);
    if (rc)
        return hw_wrap(rc, "%s: header split restored", nic->name);
    hw_log(s->log, HAWSER_LOG_INFO,
           ours || nic->split_auto ? "%s: header split unchanged" : "%s: header split was set by another program",
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
        return hw_wrap(rc, "%s: rx-gro-hw turned off again", nic->name);
    nic->gro_set = false;
    return 0;
}

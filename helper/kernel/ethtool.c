/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/kernel/ethtool.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static int look_up_device_name(int fd, int ifindex, struct ifreq *r)
{
    memset(r, 0, sizeof(*r));
    r->ifr_ifindex = ifindex;
    if (ioctl(fd, SIOCGIFNAME, r) < 0)
        return hw_fail(errno == ENXIO ? -ENODEV : -errno, "network device %d no longer exists", ifindex);
    return 0;
}

/* Runs an ethtool command. `what` describes the command in error texts. */
static int run_ethtool_ioctl(int fd, int ifindex, void *data, const char *what)
{
    struct ifreq r;
    int rc = look_up_device_name(fd, ifindex, &r);
    if (rc)
        return rc;
    r.ifr_data = data;
    if (ioctl(fd, SIOCETHTOOL, &r) == 0)
        return 0;
    int err = errno;
    return hw_fail(-err, "%.16s: %s: %s%s", r.ifr_name, what, hw_errno_text(err),
                   err == EOPNOTSUPP ? ": not supported by this driver" : "");
}

/* ---- the NIC ------------------------------------------------------------------------------------ */

int hd_eth_link_at(int fd, int ifindex, struct hd_link *out)
{
    struct ifreq r;
    struct ethtool_channels c = {.cmd = ETHTOOL_GCHANNELS};
    struct ethtool_rxnfc rings = {.cmd = ETHTOOL_GRXRINGS};
    *out = (struct hd_link){.ifindex = ifindex};
    int rc = look_up_device_name(fd, ifindex, &r);
    if (rc)
        return rc;
    memcpy(out->name, r.ifr_name, sizeof(out->name));
    if (ioctl(fd, SIOCGIFFLAGS, &r) < 0)
        return hw_fail(-errno, "cannot read the flags of %s: %s", out->name, hw_errno_text(errno));
    out->up = r.ifr_flags & IFF_UP;
    if (ioctl(fd, SIOCGIFMTU, &r) == 0 && r.ifr_mtu > 0)
        out->mtu = (unsigned)r.ifr_mtu;
    uint64_t n = 1;
    if (run_ethtool_ioctl(fd, ifindex, &c, "reading the number of queues (ethtool -l)") == 0)
        n = (uint64_t)c.rx_count + c.combined_count;
    else if (run_ethtool_ioctl(fd, ifindex, &rings, "reading the number of receive rings") == 0)
        n = rings.data;
    out->rx_queues = (unsigned)HW_MIN(n, (uint64_t)HD_QUEUES_MAX);
    return 0;
}

int hd_eth_driver(int fd, int ifindex, char *out, size_t cap)
{
    struct ethtool_drvinfo i = {.cmd = ETHTOOL_GDRVINFO};
    int rc = run_ethtool_ioctl(fd, ifindex, &i, "reading the driver's name");
    i.driver[sizeof(i.driver) - 1] = 0;
    out[0] = 0;
    if (rc == 0)
        memcpy(out, i.driver, HW_MIN(strlen(i.driver) + 1, cap));
    out[cap - 1] = 0;
    return rc;
}

/* Reads some flags, including ntuple, with an old command that every kernel supports (net/ethtool/ioctl.c). */
static int get_ethtool_flags(int fd, int ifindex, struct ethtool_value *v)
{
    *v = (struct ethtool_value){.cmd = ETHTOOL_GFLAGS};
    return run_ethtool_ioctl(fd, ifindex, v, "reading the feature flags (ethtool -k)");
}

int hd_eth_ntuple_get(int fd, int ifindex, bool *on)
{
    struct ethtool_value v;
    int rc = get_ethtool_flags(fd, ifindex, &v);
    *on = v.data & ETH_FLAG_NTUPLE;
    return rc;
}

int hd_eth_ntuple_set(int fd, int ifindex, bool on)
{
    struct ethtool_value v;
    int rc = get_ethtool_flags(fd, ifindex, &v);
    if (rc)
        return rc;
    v.cmd = ETHTOOL_SFLAGS;
    v.data = on ? v.data | ETH_FLAG_NTUPLE : v.data & ~(uint32_t)ETH_FLAG_NTUPLE;
    return run_ethtool_ioctl(fd, ifindex, &v,
                             on ? "turning flow rules on (ethtool -K ntuple on)"
                                : "turning flow rules off (ethtool -K ntuple off)");
}

/* ---- RSS ---------------------------------------------------------------------------------------- */

static struct ethtool_rxfh_indir *alloc_rss_table(uint32_t cmd, uint32_t n)
{
    struct ethtool_rxfh_indir *t = calloc(1, sizeof(*t) + n * sizeof(t->ring_index[0]));
    if (t) {
        t->cmd = cmd;
        t->size = n;
    }
    return t;
}

int hd_eth_rss_get(int fd, int ifindex, struct hd_rss *out)
{
    static const char what[] = "reading the RSS table (ethtool -x)";
    struct ethtool_rxfh_indir size = {.cmd = ETHTOOL_GRXFHINDIR};
    *out = (struct hd_rss){0};
    int rc = run_ethtool_ioctl(fd, ifindex, &size, what);
    if (rc)
        return rc;
    if (size.size == 0 || size.size > HD_TABLE_MAX)
        return hw_fail(-EOPNOTSUPP, "%s: the table has an unsupported size of %u entries", what, size.size);
    HW_AUTO_FREE struct ethtool_rxfh_indir *t = alloc_rss_table(ETHTOOL_GRXFHINDIR, size.size);
    HW_AUTO_FREE uint32_t *copy = calloc(size.size, sizeof(*copy));
    if (!t || !copy)
        return hw_no_memory("an RSS table");
    rc = run_ethtool_ioctl(fd, ifindex, t, what);
    if (rc)
        return rc;
    memcpy(copy, t->ring_index, size.size * sizeof(*copy));
    *out = (struct hd_rss){.n = size.size, .queue = copy};
    copy = NULL;
    return 0;
}

/* Returns true if the table is the driver's default (ethtool_rxfh_indir_default() in include/linux/ethtool.h). */
static bool by_default(const uint32_t *queue, uint32_t n, unsigned queues)
{
    for (uint32_t i = 0; i < n; i++)
        if (queues == 0 || queue[i] != i % queues)
            return false;
    return true;
}

int hd_eth_rss_set(int fd, int ifindex, const uint32_t *queue, uint32_t n)
{
    static const char what[] = "setting the RSS table (ethtool -X)";
    struct hd_link link;
    int rc = hd_eth_link_at(fd, ifindex, &link);
    if (rc)
        return rc;
    /* The kernel remembers that a user has set the table (netif_is_rxfh_configured()), and then does not change the
     * table when the number of queues changes. The driver's default table is therefore restored by a reset, which also
     * clears this flag. */
    if (by_default(queue, n, link.rx_queues)) {
        struct ethtool_rxfh_indir reset = {.cmd = ETHTOOL_SRXFHINDIR};
        struct hd_rss now;
        if (run_ethtool_ioctl(fd, ifindex, &reset, what) == 0 && hd_eth_rss_get(fd, ifindex, &now) == 0) {
            bool same = now.n == n && memcmp(now.queue, queue, n * sizeof(*queue)) == 0;
            free(now.queue);
            if (same)
                return 0;
        }
    }
    HW_AUTO_FREE struct ethtool_rxfh_indir *t = alloc_rss_table(ETHTOOL_SRXFHINDIR, n);
    if (!t)
        return hw_no_memory("an RSS table");
    memcpy(t->ring_index, queue, n * sizeof(*queue));
    return run_ethtool_ioctl(fd, ifindex, t, what);
}

/* ---- flow rules --------------------------------------------------------------------------------- */

#define LISTING    "listing the flow rules (ethtool -n)"
#define LIST_TRIES 8

static void from_spec(const struct ethtool_rx_flow_spec *f, uint32_t loc, struct hd_rule *out)
{
    const struct ethtool_tcpip4_spec *h4 = &f->h_u.tcp_ip4_spec, *m4 = &f->m_u.tcp_ip4_spec;
    const struct ethtool_tcpip6_spec *h6 = &f->h_u.tcp_ip6_spec, *m6 = &f->m_u.tcp_ip6_spec;
    *out = (struct hd_rule){.loc = loc, .queue = UINT32_MAX};
    /* The upper half of ring_cookie selects a VF (ETHTOOL_RX_FLOW_SPEC_RING_VF). */
    if (f->ring_cookie < HD_QUEUES_MAX && !(f->flow_type & FLOW_RSS))
        out->queue = (uint32_t)f->ring_cookie;
    static const uint8_t ones[16] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    if (f->flow_type == TCP_V4_FLOW && m4->ip4src == UINT32_MAX && m4->ip4dst == UINT32_MAX && m4->psrc == UINT16_MAX &&
        m4->pdst == UINT16_MAX && m4->tos == 0) {
        out->remote.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = h4->psrc};
        out->local.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = h4->pdst};
        out->remote.in.sin_addr.s_addr = h4->ip4src;
        out->local.in.sin_addr.s_addr = h4->ip4dst;
        out->exact = true;
    }
    if (f->flow_type == TCP_V6_FLOW && memcmp(m6->ip6src, ones, 16) == 0 && memcmp(m6->ip6dst, ones, 16) == 0 &&
        m6->psrc == UINT16_MAX && m6->pdst == UINT16_MAX && m6->tclass == 0) {
        out->remote.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = h6->psrc};
        out->local.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = h6->pdst};
        memcpy(&out->remote.in6.sin6_addr, h6->ip6src, 16);
        memcpy(&out->local.in6.sin6_addr, h6->ip6dst, 16);
        out->exact = true;
    }
}

static void to_spec(const struct hd_rule *r, struct ethtool_rx_flow_spec *f)
{
    struct ethtool_tcpip4_spec *h4 = &f->h_u.tcp_ip4_spec, *m4 = &f->m_u.tcp_ip4_spec;
    struct ethtool_tcpip6_spec *h6 = &f->h_u.tcp_ip6_spec, *m6 = &f->m_u.tcp_ip6_spec;
    f->ring_cookie = r->queue;
    if (r->local.sa.sa_family == AF_INET) {
        f->flow_type = TCP_V4_FLOW;
        h4->ip4src = r->remote.in.sin_addr.s_addr;
        h4->ip4dst = r->local.in.sin_addr.s_addr;
        h4->psrc = r->remote.in.sin_port;
        h4->pdst = r->local.in.sin_port;
        m4->ip4src = m4->ip4dst = UINT32_MAX;
        m4->psrc = m4->pdst = UINT16_MAX;
        return;
    }
    f->flow_type = TCP_V6_FLOW;
    memcpy(h6->ip6src, &r->remote.in6.sin6_addr, 16);
    memcpy(h6->ip6dst, &r->local.in6.sin6_addr, 16);
    h6->psrc = r->remote.in6.sin6_port;
    h6->pdst = r->local.in6.sin6_port;
    memset(m6->ip6src, 255, 16);
    memset(m6->ip6dst, 255, 16);
    m6->psrc = m6->pdst = UINT16_MAX;
}

static int count_ethtool_rules(int fd, int ifindex, struct ethtool_rxnfc *count)
{
    *count = (struct ethtool_rxnfc){.cmd = ETHTOOL_GRXCLSRLCNT};
    int rc = run_ethtool_ioctl(fd, ifindex, count, LISTING);
    if (rc == 0 && count->rule_cnt > HD_RULES_MAX)
        rc = hw_fail(-E2BIG, LISTING ": there are too many rules: %u", count->rule_cnt);
    return rc;
}

/* Requests the list of locations, with space for exactly n entries. A larger buffer does not work with all drivers of
 * Linux 7.3. mlx5 fails if there are fewer rules than entries (mlx5e_ethtool_get_all_flows() in en_fs_ethtool.c:818),
 * and gve does not report the number of entries (gve_get_flow_rule_ids() in gve_flow_rule.c:234). */
static int list_places(int fd, int ifindex, uint32_t n, struct ethtool_rxnfc **out)
{
    struct ethtool_rxnfc *all = calloc(1, sizeof(*all) + n * sizeof(all->rule_locs[0]));
    *out = NULL;
    if (!all)
        return hw_no_memory("flow rules");
    all->cmd = ETHTOOL_GRXCLSRLALL;
    all->rule_cnt = n;
    int rc = run_ethtool_ioctl(fd, ifindex, all, LISTING);
    if (rc) {
        free(all);
        return rc;
    }
    all->rule_cnt = HW_MIN(all->rule_cnt, n);
    *out = all;
    return 0;
}

/* Stores the locations of all rules in (*out)->rule_locs, which the caller must free. (*out)->data is the size of the
 * table, with the flag RX_CLS_LOC_SPECIAL if the driver chooses locations.
 *
 * Other processes may add or remove rules between the count and the list. If rules were added, most drivers fail with
 * EMSGSIZE, and mlx5 leaves rules out. If rules were removed, mlx5 fails with EINVAL. A list of the counted length is
 * therefore accepted only if a second count is not higher. */
static int list_consistent_places(int fd, int ifindex, struct ethtool_rxnfc **out)
{
    struct ethtool_rxnfc count;
    *out = NULL;
    int rc = count_ethtool_rules(fd, ifindex, &count);
    if (rc)
        return rc;
    for (int tries = 0; tries < LIST_TRIES; tries++) {
        HW_AUTO_FREE struct ethtool_rxnfc *all = NULL;
        uint32_t n = count.rule_cnt;
        char why[HW_ERR_TEXT];
        int verdict = list_places(fd, ifindex, n, &all);
        snprintf(why, sizeof(why), "%s", verdict ? hw_error() : "");
        /* The count of bnxt includes filters of the driver, which are not listed. */
        bool fewer = verdict == 0 && all->rule_cnt < n;
        if (!fewer && (rc = count_ethtool_rules(fd, ifindex, &count)))
            return rc;
        if (fewer || (verdict == 0 && count.rule_cnt <= n)) {
            all->data = (all->data & ~(uint64_t)RX_CLS_LOC_SPECIAL) | (count.data & RX_CLS_LOC_SPECIAL);
            *out = all;
            all = NULL;
            return 0;
        }
        if (verdict && verdict != -EMSGSIZE && count.rule_cnt == n)
            return hw_fail_copy(verdict, why);
    }
    return hw_fail(-EAGAIN, LISTING ": the rules change faster than they can be listed");
}

int hd_eth_rule_at(int fd, int ifindex, uint32_t loc, struct hd_rule *out)
{
    struct ethtool_rxnfc one = {.cmd = ETHTOOL_GRXCLSRULE, .fs.location = loc};
    int rc = run_ethtool_ioctl(fd, ifindex, &one, "reading a flow rule");
    /* For a location without a rule, some drivers return EINVAL and others ENOENT. */
    if (rc == -EINVAL || rc == -ENOENT)
        return hw_fail(-ENOENT, "there is no flow rule at location %u", loc);
    if (rc == 0)
        from_spec(&one.fs, loc, out);
    return rc;
}

int hd_eth_rules(int fd, int ifindex, struct hd_rule **out, unsigned *n)
{
    HW_AUTO_FREE struct ethtool_rxnfc *all = NULL;
    unsigned got = 0;
    *out = NULL;
    *n = 0;
    int rc = list_consistent_places(fd, ifindex, &all);
    if (rc)
        return rc;
    HW_AUTO_FREE struct hd_rule *r = calloc(all->rule_cnt + 1, sizeof(*r));
    if (!r)
        return hw_no_memory("flow rules");
    for (uint32_t i = 0; i < all->rule_cnt; i++) {
        rc = hd_eth_rule_at(fd, ifindex, all->rule_locs[i], &r[got]);
        if (rc && rc != -ENOENT) /* -ENOENT means that the rule was removed in the meantime */
            return rc;
        got += rc == 0;
    }
    *n = got;
    *out = r;
    r = NULL;
    return 0;
}

/* Chooses the highest free location, as ethtool does. */
static int free_place(const struct ethtool_rxnfc *all, uint32_t *loc)
{
    uint32_t size = (uint32_t)HW_MIN(all->data, (uint64_t)HD_RULES_MAX);
    bool *used = calloc(size + 1, sizeof(*used));
    if (!used)
        return hw_no_memory("flow rules");
    for (uint32_t i = 0; i < all->rule_cnt; i++)
        used[HW_MIN(all->rule_locs[i], size)] = true;
    uint32_t at = size;
    while (at > 0 && used[at - 1])
        at--;
    free(used);
    if (at == 0)
        return size ? hw_fail(-ENOSPC, "the NIC's table of %u flow rules is full", size)
                    : hw_fail(-ENOSPC, "the driver does not report the size of the table of flow rules");
    *loc = at - 1;
    return 0;
}

int hd_eth_rule_add(int fd, int ifindex, struct hd_rule *r)
{
    struct ethtool_rxnfc *all, add = {.cmd = ETHTOOL_SRXCLSRLINS};
    int rc = list_consistent_places(fd, ifindex, &all);
    if (rc)
        return rc;
    add.fs.location = RX_CLS_LOC_ANY;
    if (!(all->data & RX_CLS_LOC_SPECIAL))
        rc = free_place(all, &add.fs.location);
    free(all);
    to_spec(r, &add.fs);
    if (rc == 0)
        rc = run_ethtool_ioctl(fd, ifindex, &add, "adding a flow rule (ethtool -N)");
    r->loc = add.fs.location;
    return rc;
}

int hd_eth_rule_del(int fd, int ifindex, uint32_t loc)
{
    struct ethtool_rxnfc del = {.cmd = ETHTOOL_SRXCLSRLDEL, .fs.location = loc};
    return run_ethtool_ioctl(fd, ifindex, &del, "removing a flow rule (ethtool -N delete)");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills struct dr_machine from this machine, except nccl and nixl. linux/ethtool.h, linux/ethtool_netlink.h and
 * Documentation/networking/ethtool-netlink.rst describe the ioctl and netlink interfaces. Nothing in this file needs
 * privilege or changes anything.
 */
#include "helper/kernel/ethnl.h"
#include "net/sysfs.h"
#include "sys/ethstat.h"
#include "tool/doctor/doctor.h"
#include "transport/devmem/helper.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MOMENT_MS  300
#define HAWSERD_MS 5000 /* timeout for hawserd's answer */
#define MAX_TABLE  65536

static void probe_driver(int fd, struct dr_nic *n)
{
    struct ethtool_drvinfo i = {.cmd = ETHTOOL_GDRVINFO};
    if (ethstat_ask(fd, n->name, &i) == 0) {
        snprintf(n->driver, sizeof n->driver, "%.31s", i.driver);
        snprintf(n->version, sizeof n->version, "%.31s", i.version);
    }
}

static void probe_steering(int fd, struct dr_nic *n)
{
    struct ethtool_value v = {.cmd = ETHTOOL_GFLAGS};
    struct ethtool_rxnfc r = {.cmd = ETHTOOL_GRXCLSRLCNT};
    int rc = ethstat_ask(fd, n->name, &v);
    n->ntuple = rc < 0 ? rc : (v.data & ETH_FLAG_NTUPLE) != 0;
    rc = ethstat_ask(fd, n->name, &r);
    n->rules = rc < 0 ? rc : (int)HW_MIN(r.rule_cnt, 1u << 20);
}

static void probe_queues(int fd, struct dr_nic *n)
{
    struct ethtool_channels c = {.cmd = ETHTOOL_GCHANNELS};
    int rc = ethstat_ask(fd, n->name, &c);
    n->queues = rc < 0 ? rc : (int)HW_MIN(c.rx_count + c.combined_count, 1u << 20);
    /* a driver may count separate and combined queues, and each kind has its own maximum */
    n->queues_max = rc < 0 ? rc : HW_MAX((int)HW_MIN(HW_MAX(c.max_rx, c.max_combined), 1u << 20), n->queues);
    n->combined_max = rc < 0 ? rc : (int)HW_MIN(c.max_combined, 1u << 20);
}

static void probe_rss(int fd, struct dr_nic *n)
{
    struct ethtool_rxfh_indir ask = {.cmd = ETHTOOL_GRXFHINDIR};
    int rc = ethstat_ask(fd, n->name, &ask);
    n->rss_queues = n->rss_last = rc < 0 ? rc : -ENODATA;
    if (rc < 0 || ask.size == 0 || ask.size > MAX_TABLE)
        return;
    size_t len = sizeof ask + ask.size * sizeof(uint32_t);
    HW_AUTO_FREE struct ethtool_rxfh_indir *t = calloc(1, len);
    HW_AUTO_FREE bool *seen = calloc(MAX_TABLE, 1);
    if (!t || !seen)
        return;
    t->cmd = ETHTOOL_GRXFHINDIR;
    t->size = ask.size;
    rc = ethstat_ask(fd, n->name, t);
    n->rss_queues = rc < 0 ? rc : 0;
    n->rss_last = rc;
    for (uint32_t i = 0; rc == 0 && i < HW_MIN(t->size, ask.size); i++) {
        uint32_t q = HW_MIN(t->ring_index[i], MAX_TABLE - 1u);
        n->rss_queues += !seen[q];
        seen[q] = true;
        n->rss_last = HW_MAX(n->rss_last, (int)q);
    }
}

/* ---- header split ---------------------------------------------------------------------------- */

static void probe_split(struct hw_genl *g, struct dr_nic *n)
{
    struct hd_split split;
    enum hd_gro_hw gro;
    int ifindex = (int)if_nametoindex(n->name), rc = hd_ethnl_split_get(g, ifindex, &split);
    n->split = rc < 0 ? rc : split.split;
    n->thresh = rc < 0 ? rc : split.has_thresh ? (int)HW_MIN(split.thresh, 1u << 20) : -ENODATA;
    n->buf_len = rc < 0 ? rc : split.buf_len ? (int)HW_MIN(split.buf_len, 1u << 20) : -ENODATA;
    rc = hd_ethnl_gro_hw_get(g, ifindex, &gro);
    n->gro_hw = rc < 0 ? rc : gro == HD_GRO_NONE ? -EOPNOTSUPP : gro == HD_GRO_ON;
}

static uint64_t read_rx_packets(const struct dr_machine *m, const struct dr_nic *n)
{
    uint64_t v = 0;
    return hw_root_u64(m->root, &v, "sys/class/net/%s/statistics/rx_packets", n->name) < 0 ? 0 : v;
}

/* ---- the whole machine ------------------------------------------------------------------------ */

static void list_nics(struct dr_machine *m, int fd)
{
    struct hw_names l = {0};
    struct hw_nic addr[HW_NIC_MAX];
    int rc = hw_root_list(m->root, &l, "sys/class/net");
    int n_addr = hw_nics_list(addr, HW_NIC_MAX, true);
    m->n_nics = rc < 0 ? rc : 0;
    for (size_t i = 0; i < l.n && m->n_nics < DR_MAX_NICS; i++) {
        struct ifreq r;
        memset(&r, 0, sizeof r);
        if (strlen(l.name[i]) >= sizeof r.ifr_name)
            continue;
        snprintf(r.ifr_name, sizeof r.ifr_name, "%s", l.name[i]);
        if (ioctl(fd, SIOCGIFFLAGS, &r) < 0 || (r.ifr_flags & IFF_LOOPBACK))
            continue; /* not a NIC (bonding_masters), or loopback */
        struct dr_nic *n = &m->nic[m->n_nics++];
        *n = (struct dr_nic){.up = r.ifr_flags & IFF_UP};
        memcpy(n->name, r.ifr_name, sizeof n->name);
        n->physical = hw_root_has(m->root, "sys/class/net/%s/device", n->name);
        for (int k = 0; k < n_addr && n->n_addrs < DR_MAX_ADDRS; k++)
            if (strcmp(addr[k].name, n->name) == 0)
                n->addr[n->n_addrs++] = addr[k];
    }
    hw_names_free(&l);
}

static void list_gpus(struct dr_machine *m)
{
    m->n_gpus = hw_cuda_count();
    for (int i = 0; i < m->n_gpus; i++) {
        int rc = i < DR_MAX_GPUS ? hw_cuda_info(i, &m->gpu[i]) : -E2BIG;
        if (rc < 0)
            m->n_gpus = i ? i : rc;
    }
    if (m->n_gpus < 0)
        snprintf(m->cuda_why, sizeof m->cuda_why, "%s", hw_error());
}

void dr_probe(struct dr_machine *m, int root, bool gpus)
{
    struct utsname u = {0};
    struct hw_genl g;
    *m = (struct dr_machine){.root = root, .env = (const char *const *)environ, .moment_ms = MOMENT_MS};
    uname(&u);
    snprintf(m->release, sizeof m->release, "%s", u.release);
    snprintf(m->arch, sizeof m->arch, "%s", u.machine);
    getrlimit(RLIMIT_MEMLOCK, &m->memlock);
    getrlimit(RLIMIT_NOFILE, &m->nofile);
    m->netdev_rc = hw_genl_open(&g, NULL);
    if (m->netdev_rc == 0)
        m->netdev_rc = hw_genl_ops(&g, "netdev", &m->netdev_ops);

    struct dm_helper *helper;
    m->hawserd = dm_helper_open(dr_env(m, "HAWSER_DEVMEM_SOCKET"), HAWSERD_MS, &helper);
    if (m->hawserd < 0)
        snprintf(m->hawserd_why, sizeof m->hawserd_why, "%s", hw_error());
    dm_helper_close(helper);

    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    list_nics(m, fd);
    bool counts = false;
    for (int i = 0; i < m->n_nics; i++) {
        struct dr_nic *n = &m->nic[i];
        probe_driver(fd, n);
        probe_steering(fd, n);
        probe_queues(fd, n);
        probe_rss(fd, n);
        probe_split(&g, n);
        n->devmem_rc = ethstat_devmem_pkts(fd, n->name, &n->devmem_pkts[0]);
        n->rx_pkts[0] = read_rx_packets(m, n);
        counts |= n->devmem_rc == 0;
    }
    if (counts) /* wait only if there are counters to compare */
        usleep(MOMENT_MS * 1000);
    hw_genl_close(&g);
    for (int i = 0; i < m->n_nics; i++)
        m->nic[i].rx_pkts[1] = read_rx_packets(m, &m->nic[i]);
    for (int i = 0; i < m->n_nics; i++)
        if (m->nic[i].devmem_rc == 0)
            m->nic[i].devmem_rc = ethstat_devmem_pkts(fd, m->nic[i].name, &m->nic[i].devmem_pkts[1]);
    hw_close(&fd);

    m->n_gpus = -ECANCELED;
    snprintf(m->cuda_why, sizeof m->cuda_why, "not determined");
    if (gpus)
        list_gpus(m);
}

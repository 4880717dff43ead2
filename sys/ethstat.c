/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/ethstat.h"
#include "base/base.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define MAX_STATS 65536 /* limit for the number of statistics; gve has about 30 per queue */

int ethstat_ask(int fd, const char *nic, void *data)
{
    struct ifreq r;
    memset(&r, 0, sizeof r);
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", nic);
    r.ifr_data = data;
    return fd < 0 ? -EBADF : ioctl(fd, SIOCETHTOOL, &r) < 0 ? -errno : 0;
}

int ethstat_devmem_pkts(int fd, const char *nic, uint64_t *sum)
{
    union { /* the kernel writes the number of statistics into the struct's flexible array */
        struct ethtool_sset_info info;
        uint8_t room[sizeof(struct ethtool_sset_info) + sizeof(uint32_t)];
    } ask = {.info = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ull << ETH_SS_STATS}};
    int rc = ethstat_ask(fd, nic, &ask);
    if (rc < 0)
        return rc;
    uint32_t n = 0;
    if (ask.info.sset_mask)
        memcpy(&n, ask.room + sizeof(struct ethtool_sset_info), sizeof n);
    if (n == 0 || n > MAX_STATS)
        return -ENODATA;
    struct ethtool_gstrings *names = calloc(1, sizeof *names + (size_t)n * ETH_GSTRING_LEN);
    struct ethtool_stats *values = calloc(1, sizeof *values + (size_t)n * sizeof(uint64_t));
    rc = names && values ? 0 : -ENOMEM;
    if (rc == 0) {
        *names = (struct ethtool_gstrings){.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = n};
        *values = (struct ethtool_stats){.cmd = ETHTOOL_GSTATS, .n_stats = n};
        rc = ethstat_ask(fd, nic, names);
    }
    if (rc == 0)
        rc = ethstat_ask(fd, nic, values);
    bool found = false, whole = false;
    *sum = 0;
    for (uint32_t i = 0; rc == 0 && i < n && !whole; i++) {
        const char *name = (const char *)names->data + (size_t)i * ETH_GSTRING_LEN;
        if (strncmp(name, "rx_devmem_pkts", 14) != 0)
            continue;
        whole = name[14] == 0; /* a total for all queues; the other names are for single queues */
        *sum = whole ? values->data[i] : *sum + values->data[i];
        found = true;
    }
    free(names);
    free(values);
    return rc < 0 ? rc : found ? 0 : -ENODATA;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/load/stats.h"
#include "sys/ethstat.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t stats_cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

size_t stats_parse_netdev(const char *text, size_t len, struct tp_nic *nics, size_t n)
{
    size_t found = 0;
    const char *end = text + len;
    for (const char *line = text; line < end;) {
        const char *eol = memchr(line, '\n', (size_t)(end - line));
        if (!eol)
            eol = end;
        char buf[512], name[HAWSER_NIC_NAME];
        size_t l = HW_MIN((size_t)(eol - line), sizeof buf - 1);
        memcpy(buf, line, l);
        buf[l] = 0;
        line = eol + 1;
        /* rx bytes is the first number after the name and its colon, tx bytes the ninth (net/core/net-procfs.c) */
        uint64_t number[9];
        char *at = strchr(buf, ':');
        const char *from = buf + strspn(buf, " ");
        if (!at || (size_t)(at - from) >= sizeof name)
            continue;
        memcpy(name, from, (size_t)(at - from));
        name[at - from] = 0;
        at++;
        size_t k = 0;
        for (char *stop; k < HW_ARRAY_LEN(number); k++, at = stop) {
            number[k] = strtoull(at, &stop, 10);
            if (stop == at)
                break;
        }
        if (k < HW_ARRAY_LEN(number))
            continue;
        for (size_t i = 0; i < n; i++) {
            if (strcmp(nics[i].nic, name) == 0) {
                nics[i].kernel_rx_bytes = number[0];
                nics[i].kernel_tx_bytes = number[8];
                found++;
            }
        }
    }
    return found;
}

static void kernel_counters(struct tp_nic *nics, size_t n)
{
    /* Use thread-self, because the calling thread's network namespace is the one that the connections use. */
    int fd = open("/proc/thread-self/net/dev", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char text[16384];
    size_t len = 0;
    ssize_t k;
    while (len < sizeof text && (k = read(fd, text + len, sizeof text - len)) != 0) {
        if (k > 0)
            len += (size_t)k;
        else if (errno != EINTR)
            break;
    }
    hw_close(&fd);
    stats_parse_netdev(text, len, nics, n);
}

static void devmem_counters(struct tp_nic *nics, size_t n)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < n; i++)
        nics[i].has_devmem_pkts = ethstat_devmem_pkts(fd, nics[i].nic, &nics[i].devmem_pkts) == 0;
    hw_close(&fd);
}

bool stats_has_devmem(const char *transport)
{
    return strcmp(transport, "tcp") != 0;
}

uint64_t stats_lost(hawser_peer *p)
{
    struct hawser_nic_stats st[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    uint64_t lost = 0;
    if (hawser_nic_stats(p, st, &n) == 0)
        for (size_t i = 0; i < HW_MIN(n, (size_t)TP_MAX_NICS); i++)
            lost += st[i].lost;
    return lost;
}

int stats_nics(hawser_peer *p, bool devmem, struct tp_nic *nics, size_t *n)
{
    struct hawser_nic_stats own[TP_MAX_NICS];
    size_t there = TP_MAX_NICS;
    int rc = hawser_nic_stats(p, own, &there);
    if (rc < 0)
        return rc;
    there = HW_MIN(HW_MIN(there, (size_t)TP_MAX_NICS), *n);
    for (size_t i = 0; i < there; i++) {
        nics[i] = (struct tp_nic){.tx_bytes = own[i].tx_bytes,
                                  .rx_bytes = own[i].rx_bytes,
                                  .rx_device_bytes = own[i].rx_device_bytes,
                                  .rx_copied_bytes = own[i].rx_copied_bytes,
                                  .tx_device_bytes = own[i].tx_device_bytes};
        memcpy(nics[i].nic, own[i].nic, HAWSER_NIC_NAME);
        nics[i].nic[HAWSER_NIC_NAME - 1] = 0;
    }
    kernel_counters(nics, there);
    if (devmem)
        devmem_counters(nics, there);
    *n = there;
    return 0;
}

static const struct tp_nic *find_nic_counters(const struct tp_nic *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].nic, name) == 0)
            return &v[i];
    return NULL;
}

void stats_add(struct tp_nic *into, size_t *n, size_t cap, const struct tp_nic *before, size_t n_before,
               const struct tp_nic *after, size_t n_after)
{
    for (size_t i = 0; i < n_after; i++) {
        const struct tp_nic *a = &after[i], *b = find_nic_counters(before, n_before, a->nic);
        struct tp_nic *t = (struct tp_nic *)find_nic_counters(into, *n, a->nic);
        if (!b)
            continue;
        if (!t) {
            if (*n == cap)
                continue;
            t = &into[(*n)++];
            *t = (struct tp_nic){0};
            memcpy(t->nic, a->nic, sizeof t->nic);
            t->has_devmem_pkts = 1;
            t->devmem_before = b->devmem_pkts;
        }
        t->tx_bytes += a->tx_bytes - b->tx_bytes;
        t->rx_bytes += a->rx_bytes - b->rx_bytes;
        t->rx_device_bytes += a->rx_device_bytes - b->rx_device_bytes;
        t->rx_copied_bytes += a->rx_copied_bytes - b->rx_copied_bytes;
        t->tx_device_bytes += a->tx_device_bytes - b->tx_device_bytes;
        t->kernel_tx_bytes += a->kernel_tx_bytes - b->kernel_tx_bytes;
        t->kernel_rx_bytes += a->kernel_rx_bytes - b->kernel_rx_bytes;
        t->has_devmem_pkts &= a->has_devmem_pkts & b->has_devmem_pkts;
        if (t->has_devmem_pkts)
            t->devmem_pkts += a->devmem_pkts - b->devmem_pkts;
        t->devmem_after = a->devmem_pkts;
    }
}

static int compare_stat_values(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_median(double *v, size_t n)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, compare_stat_values);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

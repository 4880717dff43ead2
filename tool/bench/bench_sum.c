/* SPDX-License-Identifier: Apache-2.0 */
/* Combines the results of the workers of bench --gpus and --bidir. */
#include "tool/bench/bench.h"
#include "tool/load/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_start(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the number of seconds in which at least one worker measured, or NAN if out of memory. */
static double compute_clocked_seconds(const struct crew *c, size_t size)
{
    size_t n = 0;
    uint64_t ns = 0, upto = 0;
    for (size_t i = 0; i < c->n; i++)
        n += c->m[i].result[size] ? c->m[i].result[size]->n_spans : 0;
    HW_AUTO_FREE uint64_t(*v)[2] = calloc(HW_MAX(n, (size_t)1), sizeof *v);
    if (!v)
        return NAN;
    n = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; c->m[i].result[size] && k < c->m[i].result[size]->n_spans; k++)
            memcpy(v[n++], c->m[i].result[size]->span[k], sizeof *v);
    qsort(v, n, sizeof *v, by_start);
    for (size_t i = 0; i < n; i++) {
        uint64_t from = HW_MAX(v[i][0], upto);
        ns += v[i][1] > from ? v[i][1] - from : 0;
        upto = HW_MAX(upto, v[i][1]);
    }
    return (double)ns / 1e9;
}

/* Adds the NIC counters of one worker. Payload is summed. The kernel's counters of a NIC include all users of the
 * NIC, so the largest value of any worker is the best estimate. */
static void add_nics(struct tp_nic *into, size_t *n, const struct tp_nic *from, size_t n_from)
{
    for (size_t i = 0; i < n_from; i++) {
        size_t k = 0;
        while (k < *n && strcmp(into[k].nic, from[i].nic) != 0)
            k++;
        if (k == TP_MAX_NICS)
            continue;
        if (k == *n) {
            into[(*n)++] = from[i];
            continue;
        }
        into[k].tx_bytes += from[i].tx_bytes;
        into[k].rx_bytes += from[i].rx_bytes;
        into[k].tx_device_bytes += from[i].tx_device_bytes;
        into[k].rx_device_bytes += from[i].rx_device_bytes;
        into[k].rx_copied_bytes += from[i].rx_copied_bytes;
        into[k].kernel_tx_bytes = HW_MAX(into[k].kernel_tx_bytes, from[i].kernel_tx_bytes);
        into[k].kernel_rx_bytes = HW_MAX(into[k].kernel_rx_bytes, from[i].kernel_rx_bytes);
        into[k].devmem_pkts = HW_MAX(into[k].devmem_pkts, from[i].devmem_pkts);
        into[k].has_devmem_pkts &= from[i].has_devmem_pkts;
        into[k].devmem_before = HW_MIN(into[k].devmem_before, from[i].devmem_before);
        into[k].devmem_after = HW_MAX(into[k].devmem_after, from[i].devmem_after);
    }
}

/* With several rounds, replaces the rate with the median, over the rounds, of the workers' summed rates. With one
 * round, the rate remains the total bytes divided by the measured time. Also sets the medians of the plain sockets'
 * rates and of the ratios. */
static void sum_rounds(struct row *all)
{
    double own[BENCH_ROUNDS], raw[BENCH_ROUNDS], ratio[BENCH_ROUNDS];
    size_t n = 0;
    for (uint32_t k = 0; k < all->rounds; k++) {
        own[k] = all->round_GBps[k];
        if (all->round_raw[k] <= 0)
            continue;
        ratio[n] = own[k] / all->round_raw[k];
        raw[n++] = all->round_raw[k];
    }
    if (all->rounds > 1)
        all->GBps = stats_median(own, all->rounds);
    if (n) {
        all->raw_GBps = stats_median(raw, n);
        all->ratio_raw = stats_median(ratio, n);
    }
}

bool bench_sum_up(const struct bench *b, const struct crew *c, size_t size, struct row *all, struct measure *m)
{
    *all = bench_make_row(b, m, b->both ? "bidir" : output_op_name(b->op), b->sizes[size], b->blocks[size]);
    all->of = b->gpus_text ? ROW_GPUS : ROW_BOTH;
    uint64_t longest = 0, added = 0, peer = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct crew_result *r = c->m[i].result[size];
        if (!r) {
            all->failed++;
            continue;
        }
        if (all->gpus++ == 0)
            all->here.passed = all->there.passed = true;
        verdict_add(&all->here, &r->row.here);
        verdict_add(&all->there, &r->row.there);
        if (*r->row.early)
            memcpy(all->early, r->row.early, sizeof all->early);
        all->window = r->row.window;
        for (uint32_t k = 0; k < r->row.rounds; k++) {
            all->round_GBps[k] += r->row.round_GBps[k];
            all->round_raw[k] += r->row.round_raw[k];
        }
        all->rounds = HW_MAX(all->rounds, r->row.rounds);
        all->raw_streams += r->row.raw_streams;
        memcpy(all->raw_congestion, r->row.raw_congestion, sizeof all->raw_congestion);
        all->depth += r->row.depth;
        all->channels = HW_MAX(all->channels, r->row.channels);
        all->iters += r->row.iters;
        all->lost_channels += r->row.lost_channels;
        all->sum.bytes += r->row.sum.bytes;
        all->sum.iters += r->row.sum.iters;
        all->sum.verified += r->row.sum.verified;
        all->sum.bad += r->row.sum.bad;
        longest = HW_MAX(longest, r->row.sum.cpu_us);
        added += r->row.sum.cpu_us;
        peer = HW_MAX(peer, r->row.sum.peer_cpu_us); /* all workers share one process on the peer */
        size_t had = all->sum.n_own;
        add_nics(all->sum.own, &all->sum.n_own, r->row.sum.own, r->row.sum.n_own);
        add_nics(all->sum.peer, &all->sum.n_peer, r->row.sum.peer, r->row.sum.n_peer);
        for (; had < all->sum.n_own; had++) {
            size_t at = strlen(all->nics);
            snprintf(all->nics + at, sizeof all->nics - at, "%s%s", at ? "," : "", all->sum.own[had].nic);
        }
        hw_hist_merge(m->hist, &r->hist);
    }
    all->sum.seconds = compute_clocked_seconds(c, size);
    all->GBps = all->sum.seconds > 0 ? (double)all->sum.bytes / 1e9 / all->sum.seconds : 0;
    sum_rounds(all);
    if (m->hist->n)
        all->mean_us = m->hist->sum / (double)m->hist->n / 1e3;
    all->p50_us = (double)hw_hist_quantile(m->hist, 0.5) / 1e3;
    all->p99_us = (double)hw_hist_quantile(m->hist, 0.99) / 1e3;
    all->p999_us = (double)hw_hist_quantile(m->hist, 0.999) / 1e3;
    const bool ping = b->op == TP_PINGPONG;
    all->cpu_s_per_GB = ping ? NAN : bench_per_GB(b->per_process ? added : longest, all->sum.bytes);
    all->peer_cpu_s_per_GB = ping ? NAN : bench_per_GB(peer, all->sum.bytes);
    return all->gpus > 0;
}

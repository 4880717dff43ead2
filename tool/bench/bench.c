/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/bench/bench.h"

#include "base/size.h"
#include "tool/load/stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RAW_BYTES (256ull << 20) /* with --compare-raw, operations are added to a round up to this many bytes */
#define RAW_ITERS 20000          /* maximum number of operations to which RAW_BYTES extends a round */

FILE *bench_table(const struct bench *b)
{
    return b->files.shown;
}

uint64_t bench_iters(const struct bench *b, uint64_t size)
{
    if (b->iters)
        return b->iters;
    uint64_t iters = b->op == TP_PINGPONG ? 2000 : size >= 1u << 20 ? 20 : 200;
    if (b->compare_raw && b->op != TP_PINGPONG && size > 0)
        /* so that the start-up of plain sockets is a small part of the round */
        iters = HW_MAX(iters, HW_MIN(RAW_BYTES / size, (uint64_t)RAW_ITERS));
    return iters;
}

uint64_t bench_warmup(const struct bench *b, uint64_t iters)
{
    return b->has_warmup ? b->warmup : HW_MAX(iters / 10, 2u);
}

uint32_t bench_depth(const struct bench *b, uint64_t size)
{
    uint64_t depth = size ? (16ull << 20) / size : 32;
    return b->depth ? (uint32_t)b->depth : (uint32_t)HW_MIN(HW_MAX(depth, 2u), 32u);
}

int bench_plan(const struct bench *b, size_t i, struct measure_plan *out)
{
    const uint64_t size = b->sizes[i];
    *out = (struct measure_plan){.op = b->op,
                                 .size = size,
                                 .blocks = b->blocks[i],
                                 .gpu = BUFFER_HOST,
                                 .peer_gpu = TP_HOST,
                                 .depth = bench_depth(b, size),
                                 .depth_given = b->depth > 0,
                                 .verify = !b->no_verify,
                                 .hot = b->hot,
                                 .devmem = stats_has_devmem(b->knobs.transport)};
    if (getrandom(&out->seed, sizeof out->seed, 0) != (ssize_t)sizeof out->seed)
        return hw_fail(-EIO, "the kernel returned no random bytes for the pattern's seed");
    return 0;
}

struct row bench_make_row(const struct bench *b, struct measure *m, const char *op, uint64_t size, uint32_t blocks)
{
    return (struct row){.op = op,
                        .devmem = strcmp(b->knobs.transport, "devmem") == 0,
                        .size = size,
                        .blocks = blocks,
                        .mean_us = NAN,
                        .raw_GBps = NAN,
                        .ratio_raw = NAN,
                        .raw_cpu_s_per_GB = NAN,
                        .raw_peer_cpu_s_per_GB = NAN,
                        .raw_spin_us = NAN,
                        .raw_block_us = NAN,
                        .m = m};
}

int bench_start(const struct bench *b, struct session *s, const struct measure_plan *plan, uint64_t warmup,
                struct measure *m, struct row *r)
{
    const struct measure hooks = *m;
    int rc = measure_open(m, s, plan);
    if (rc < 0)
        return rc;
    m->progress = hooks.progress;
    m->beat = hooks.beat;
    m->interval = hooks.interval;
    m->interval_s = (double)b->interval_ms / 1e3;
    m->progress_arg = hooks.progress_arg;
    *r = bench_make_row(b, m, output_op_name(plan->op), plan->size, plan->blocks);
    r->window = b->knobs.window;
    r->depth = m->depth;
    HW_AUTO_FREE struct measure_sum *ignored = calloc(1, sizeof *ignored);
    rc = ignored ? measure_run(m, warmup, 0, ignored) : hw_no_memory("the results");
    if (rc == 0)
        r->sum.bad = ignored->bad; /* bad bytes in the warm-up count too */
    m->gate = hooks.gate;
    m->record = true;
    if (rc < 0) {
        HW_KEEP_ERROR();
        measure_close(m);
    }
    return rc;
}

double bench_per_GB(uint64_t us, uint64_t bytes)
{
    return bytes ? (double)us / 1e6 / ((double)bytes / 1e9) : NAN;
}

static void fill_nics(const struct session *s, const struct session_path *path, size_t n_paths, struct row *r)
{
    struct hawser_nic_stats st[TP_MAX_NICS];
    size_t n = TP_MAX_NICS, at = 0;
    if (hawser_nic_stats(s->peer, st, &n) < 0)
        n = 0;
    for (size_t i = 0; i < HW_MIN(n, (size_t)TP_MAX_NICS); i++) {
        r->channels = HW_MAX(r->channels, st[i].channels);
        int k = snprintf(r->nics + at, sizeof r->nics - at, "%s%s", i ? "," : "", st[i].nic);
        at = HW_MIN(at + (size_t)HW_MAX(k, 0), sizeof r->nics - 1);
        for (size_t j = 0; j < r->sum.n_own; j++)
            if (strcmp(r->sum.own[j].nic, st[i].nic) == 0) {
                r->lost[j] = st[i].lost;
                r->nic_channels[j] = st[i].channels;
            }
    }
    for (size_t j = 0; j < r->sum.n_own; j++)
        for (size_t i = 0; i < n_paths; i++)
            if (strcmp(r->sum.own[j].nic, path[i].nic) == 0)
                memcpy(r->peer_nic[j], path[i].peer_nic, HAWSER_NIC_NAME);
}

void bench_finish(const struct bench *b, struct measure *m, const struct session_path *path, size_t n_paths,
                  struct row *r)
{
    if (b->faults && measure_read_faults(m, b->faults) < 0)
        tool_fail("bench", "%s", hw_error()); /* the measurement is valid without the fault events */
    r->iters = r->sum.iters;
    if (m->hist->n)
        r->mean_us = m->hist->sum / (double)m->hist->n / 1e3;
    r->p50_us = (double)hw_hist_quantile(m->hist, 0.5) / 1e3;
    r->p99_us = (double)hw_hist_quantile(m->hist, 0.99) / 1e3;
    r->p999_us = (double)hw_hist_quantile(m->hist, 0.999) / 1e3;
    const bool ping = m->plan.op == TP_PINGPONG; /* pingpong mostly waits, so CPU time per byte is meaningless */
    r->cpu_s_per_GB = ping ? NAN : bench_per_GB(r->sum.cpu_us, r->sum.bytes);
    r->peer_cpu_s_per_GB = ping ? NAN : bench_per_GB(r->sum.peer_cpu_us, r->sum.bytes);
    r->lost_channels = measure_lost(m);
    const uint64_t moved = r->sum.bytes / (ping ? 2 : 1);
    if (r->of == ROW_GPU || r->of == ROW_GPUS) {
        r->here = verdict_of(r->sum.own, r->sum.n_own, ping || m->plan.op == TP_READ ? moved : 0, m->plan.size);
        r->there = verdict_of(r->sum.peer, r->sum.n_peer, m->plan.op == TP_READ ? 0 : moved, m->plan.size);
    }
    fill_nics(m->s, path, n_paths, r);
}

void bench_print_channels(FILE *out, uint64_t asked, uint64_t used)
{
    if (used && used < asked)
        fprintf(out,
                "# channels %" PRIu64 ": each pair of NICs has %" PRIu64 " channel%s, with %" PRIu64
                " connections each,\n#   because a peer has at most %d channels\n",
                asked, used, hw_plural(used), (asked + used - 1) / used, TP_MAX_CHANNELS);
}

void bench_print_knobs(const struct bench *b, FILE *out)
{
    char window[32];
    fprintf(out, "# %s, window %s, depth %s", b->both ? "write and read at once" : output_op_name(b->op),
            hw_format_size(b->knobs.window, window, sizeof window), b->depth ? "" : "by size");
    if (b->depth)
        fprintf(out, "%" PRIu64, b->depth);
    fprintf(out, ", verify %s%s, %" PRIu64 " round%s%s\n", b->no_verify ? "off" : "on", b->hot ? ", hot buffer" : "",
            b->rounds, hw_plural(b->rounds), b->compare_raw ? ",\n#   alternating with plain sockets" : "");
}

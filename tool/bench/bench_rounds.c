/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of one measurement: hawser and, with --compare-raw, plain sockets take turns, and the medians are
 * reported. */
#include "tool/bench/bench.h"
#include "tool/load/stats.h"

#include <string.h>

struct rounds {
    double own[BENCH_ROUNDS], raw[BENCH_ROUNDS], ratio[BENCH_ROUNDS], raw_cpu[BENCH_ROUNDS], raw_peer[BENCH_ROUNDS];
    double spin[BENCH_ROUNDS], block[BENCH_ROUNDS];
    size_t n_own, n_raw;
};

/* Runs one turn of plain sockets and stores the results. */
static int run_rival_turn(const struct bench *b, const struct bench_turns *t, uint64_t iters, uint32_t streams,
                          struct rounds *all, struct row *r)
{
    const size_t n = all->n_raw;
    int rc;
    if (b->op == TP_PINGPONG) {
        rc = rival_pingpong(t->rival, t->raw, iters, true, &all->spin[n]);
        if (rc == 0)
            rc = rival_pingpong(t->rival, t->raw, iters, false, &all->block[n]);
    } else {
        struct rival_result got = {0};
        rc = rival_run(t->rival, t->raw, streams, iters, b->duration_ms, &got);
        memcpy(r->raw_congestion, got.congestion, sizeof r->raw_congestion);
        all->raw[n] = r->round_raw[n] = got.GBps;
        all->raw_cpu[n] = got.cpu_s_per_GB;
        all->raw_peer[n] = got.peer_cpu_s_per_GB;
        all->ratio[n] = got.GBps > 0 ? all->own[n] / got.GBps : 0;
    }
    all->n_raw += rc == 0;
    return rc < 0 ? hw_wrap(rc, "plain sockets") : 0;
}

static int run_own_turn(const struct bench *b, struct measure *m, uint64_t iters, struct rounds *all, struct row *r)
{
    const uint64_t bytes = r->sum.bytes;
    const double before = r->sum.seconds;
    int rc = measure_run(m, iters, b->duration_ms, &r->sum);
    const double seconds = r->sum.seconds - before;
    if (seconds > 0 && (rc == 0 || r->sum.bytes > bytes)) {
        all->own[all->n_own] = (double)(r->sum.bytes - bytes) / 1e9 / seconds;
        r->round_GBps[all->n_own] = all->own[all->n_own];
        all->n_own++;
    }
    return rc;
}

int bench_rounds(const struct bench *b, const struct bench_turns *t, uint64_t iters, struct row *r)
{
    struct rounds all = {0};
    const bool ping = b->op == TP_PINGPONG;
    uint32_t streams = (uint32_t)b->raw_streams;
    int rc = 0;
    if (t->rival && !streams)
        streams = HW_MIN(HW_MAX(t->rival->path[0].channels, 1u), (uint32_t)TP_MAX_STREAM);
    if (t->rival && !ping && b->raw_best && (rc = rival_best(t->rival, t->raw, iters, &streams)) < 0)
        return hw_wrap(rc, "plain sockets");
    for (size_t n = 0; n < b->rounds && rc == 0; n++) {
        rc = t->before(t->arg, 2 * n);
        if (rc == 0)
            rc = run_own_turn(b, t->m, iters, &all, r);
        if (rc == 0 && t->rival && (rc = t->before(t->arg, 2 * n + 1)) == 0)
            rc = run_rival_turn(b, t, iters, streams, &all, r);
    }
    r->rounds = (uint32_t)all.n_own;
    r->GBps = stats_median(all.own, all.n_own);
    if (all.n_raw && ping) {
        r->raw_spin_us = stats_median(all.spin, all.n_raw);
        r->raw_block_us = stats_median(all.block, all.n_raw);
    } else if (all.n_raw) {
        r->raw_GBps = stats_median(all.raw, all.n_raw);
        r->ratio_raw = stats_median(all.ratio, all.n_raw);
        r->raw_cpu_s_per_GB = stats_median(all.raw_cpu, all.n_raw);
        r->raw_peer_cpu_s_per_GB = stats_median(all.raw_peer, all.n_raw);
        r->raw_streams = streams;
    }
    return rc;
}

void bench_print_congestion(FILE *out, const struct row *r)
{
    if (*r->raw_congestion)
        fprintf(out, "# congestion control of plain sockets: %s, as for hawser (knob congestion)\n", r->raw_congestion);
}

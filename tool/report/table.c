/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/table.h"

#include "base/size.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define WHO 12 /* width of the first column */

struct table_times {
    char who[16], size[40];
    uint32_t depth;
    double v[6]; /* mean, p50, p99 and p99.9 in us, then CPU seconds per GB of this node and of the peer */
};

/* Prints a number in a column with a suitable number of digits, or "-" for NAN. */
static void print_cell(FILE *out, int width, double v)
{
    static const char *const unit[] = {"", "k", "M", "G"};
    size_t u = 0;
    if (isnan(v)) {
        fprintf(out, " %*s", width, "-");
        return;
    }
    while (v >= 99999.5 && u + 1 < HW_ARRAY_LEN(unit)) {
        v /= 1000;
        u++;
    }
    int digits = v >= 1000 ? 0 : v >= 100 ? 1 : v >= 10 ? 2 : v >= 0.01 || v == 0 ? 3 : 6;
    digits = HW_MIN(digits, width - 2 - (u > 0));
    fprintf(out, " %*.*f%s", width - (u > 0), digits, v, unit[u]);
}

static void print_count(FILE *out, int width, uint64_t v)
{
    uint64_t limit = 1;
    for (int i = 0; i < width; i++)
        limit *= 10;
    if (v < limit)
        fprintf(out, " %*" PRIu64, width, v);
    else
        print_cell(out, width, (double)v);
}

static void format_row_size(const struct row *r, char *buf, size_t cap)
{
    char size[32];
    if (r->blocks > 1)
        snprintf(buf, cap, "%ux%s", r->blocks, hw_format_size(r->size / r->blocks, size, sizeof size));
    else
        snprintf(buf, cap, "%s", hw_format_size(r->size, size, sizeof size));
}

void table_begin(struct table *t, FILE *out, bool ping, bool raw, bool who)
{
    *t = (struct table){.out = out, .ping = ping, .raw = raw && !ping, .who = who};
    if (ping)
        fprintf(out, "Half of the round-trip time of a message:\n");
    if (who)
        fprintf(out, "%-*s", WHO, "");
    fprintf(out, "%10s %6s", "size", ping ? "echoes" : "ops");
    if (ping)
        fprintf(out, " %6s %7s %7s %7s %7s", "echo/s", "mean us", "p50 us", "p99 us", "p99.9");
    else
        fprintf(out, " %6s %6s %6s", "GB/s", "Gbit/s", "ops/s");
    if (t->raw)
        fprintf(out, " %8s %5s", "raw GB/s", "ratio");
    fprintf(out, " %5s %4s\n", "bad B", "lost");
    fflush(out);
}

static void keep_times(struct table *t, const char *who, const char *size, const struct row *r)
{
    struct table_times *v = realloc(t->times, (t->n_times + 1) * sizeof *v);
    if (!v)
        return; /* out of memory: the table then has only the rates */
    t->times = v;
    v += t->n_times++;
    *v = (struct table_times){
        .depth = r->depth, .v = {r->mean_us, r->p50_us, r->p99_us, r->p999_us, r->cpu_s_per_GB, r->peer_cpu_s_per_GB}};
    snprintf(v->who, sizeof v->who, "%s", who);
    snprintf(v->size, sizeof v->size, "%s", size);
}

void table_row(struct table *t, const char *who, const struct row *r)
{
    char size[40];
    const double seconds = r->sum.seconds, rate = seconds > 0 ? (double)r->iters / seconds : NAN;
    format_row_size(r, size, sizeof size);
    if (t->who)
        fprintf(t->out, "%-*s", WHO, who);
    fprintf(t->out, "%10s", size);
    print_count(t->out, 6, r->iters);
    if (t->ping) {
        const double v[] = {r->mean_us, r->p50_us, r->p99_us, r->p999_us};
        print_cell(t->out, 6, rate);
        for (size_t i = 0; i < HW_ARRAY_LEN(v); i++)
            print_cell(t->out, 7, v[i]);
    } else {
        print_cell(t->out, 6, r->GBps);
        print_cell(t->out, 6, 8 * r->GBps);
        print_cell(t->out, 6, rate);
        keep_times(t, t->who ? who : "", size, r);
    }
    if (t->raw) {
        print_cell(t->out, 8, r->raw_GBps);
        print_cell(t->out, 5, r->ratio_raw);
    }
    print_count(t->out, 5, r->sum.bad);
    print_count(t->out, 4, r->lost_channels);
    fputc('\n', t->out);
    fflush(t->out);
}

void table_end(struct table *t)
{
    bool queued = false;
    for (size_t i = 0; i < t->n_times; i++)
        queued |= t->times[i].depth > 1;
    if (t->n_times) {
        fprintf(t->out, "\nDuration of operations, and CPU time\n");
        if (queued)
            fprintf(t->out, "(with several in flight, an operation mostly waits for the others; --depth 1\nmeasures "
                            "single operations)\n");
        fprintf(t->out, "%*s%10s %6s %7s %7s %7s %8s %8s %7s\n", t->who ? WHO : 0, "", "size", "flying", "mean us",
                "p50 us", "p99 us", "p99.9 us", "CPU s/GB", "there");
    }
    for (size_t i = 0; i < t->n_times; i++) {
        const struct table_times *v = &t->times[i];
        if (t->who)
            fprintf(t->out, "%-*s", WHO, v->who);
        fprintf(t->out, "%10s %6u", v->size, v->depth);
        for (size_t k = 0; k < HW_ARRAY_LEN(v->v); k++)
            print_cell(t->out, k == 3 || k == 4 ? 8 : 7, v->v[k]);
        fputc('\n', t->out);
    }
    fflush(t->out);
    free(t->times);
    *t = (struct table){0};
}

void table_interval(FILE *out, const char *who, const struct measure_mark *from, const struct measure_mark *to)
{
    const double seconds = to->t_s - from->t_s, GBps = seconds > 0 ? (to->bytes - from->bytes) / 1e9 / seconds : NAN;
    fprintf(out, "# %s%s%7.2f to %7.2f s", who, *who ? " " : "", from->t_s, to->t_s);
    print_cell(out, 7, GBps);
    fprintf(out, " GB/s");
    print_cell(out, 7, 8 * GBps);
    fprintf(out, " Gbit/s");
    print_cell(out, 7, seconds > 0 ? (double)(to->ops - from->ops) / seconds : NAN);
    fprintf(out, " ops/s\n");
    fflush(out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `hawser nccl bench`: a table like that of nccl-tests, the comparison with NCCL's sockets, JSON lines,
 * and an HTML report. */
#include "base/size.h"
#include "sys/json.h"
#include "tool/nccl/bench/nccl_bench.h"
#include "tool/page/page.h"
#include "tool/report/report_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *nb_op_name(enum nb_op op)
{
    static const char *const name[NB_OPS] = {"all_reduce", "sendrecv",       "alltoall",
                                             "all_gather", "reduce_scatter", "broadcast"};
    return op < NB_OPS ? name[op] : "?";
}

unsigned nb_parts(enum nb_op op, unsigned n)
{
    return op == NB_ALLTOALL || op == NB_ALL_GATHER || op == NB_REDUCE_SCATTER ? n : 1;
}

double nb_bus_factor(enum nb_op op, unsigned n)
{
    return op == NB_ALL_REDUCE ? 2.0 * (n - 1) / n : nb_parts(op, n) > 1 ? (double)(n - 1) / n : 1.0;
}

uint64_t nb_fit(enum nb_op op, unsigned n, uint64_t size)
{
    uint64_t whole = 4ull * nb_parts(op, n);
    return size / whole * whole;
}

static int compare_nccl_samples(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double compute_median(double *v, unsigned n)
{
    if (n == 0)
        return NAN;
    qsort(v, n, sizeof *v, compare_nccl_samples);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double nb_us(const struct nb_cell *c)
{
    double v[NB_ROUNDS];
    for (unsigned i = 0; i < c->n; i++)
        v[i] = c->sample[i].us;
    return compute_median(v, c->n);
}

double nb_cpu_per_GB(const struct nb_cell *c, uint64_t size)
{
    double v[NB_ROUNDS];
    for (unsigned i = 0; i < c->n; i++)
        v[i] = c->sample[i].cpu * 1e9 / (double)size;
    return compute_median(v, c->n);
}

double nb_first_ms(const struct nb_cell *c)
{
    double v[NB_ROUNDS];
    unsigned n = 0;
    for (unsigned i = 0; i < c->n; i++)
        if (c->sample[i].first > 0)
            v[n++] = c->sample[i].first / 1e3;
    return compute_median(v, n);
}

static double raw_GBps(const struct nb_raw *r)
{
    double v[NB_ROUNDS];
    memcpy(v, r->GBps, sizeof v);
    return compute_median(v, r->n);
}

static double compute_algbw(const struct nb_row *r, double us)
{
    return (double)r->size / us / 1e3;
}

/* Returns the sum of all ranks' bus bandwidths in GB/s, if an operation takes `us`. */
static double compute_wire_speed(const struct nb_table *t, const struct nb_row *r, double us)
{
    return compute_algbw(r, us) * nb_bus_factor(r->op, t->ranks) * t->ranks;
}

/* The values with which hawser's result in a row is compared. */
struct compared {
    double ours, standard, tuned, raw; /* us, us, us, GB/s; NAN if not measured */
    size_t best;                       /* index of the configuration to which tuned belongs */
};

static struct compared compare_configs(const struct nb_table *t, const struct nb_row *r)
{
    struct compared c = {.ours = NAN, .standard = NAN, .tuned = NAN, .raw = NAN};
    for (size_t i = 0; i < t->n_configs; i++) {
        double us = nb_us(&r->cell[i]);
        if (t->config[i].theirs)
            continue;
        if (!t->config[i].socket)
            c.ours = us;
        else if (!t->config[i].tuned)
            c.standard = us;
        else if (!(c.tuned <= us) && !isnan(us)) {
            c.tuned = us;
            c.best = i;
        }
    }
    for (size_t i = 0; i < t->n_raw; i++)
        c.raw = fmax(c.raw, raw_GBps(&t->raw[i])); /* fmax() prefers numbers to NAN */
    return c;
}

/* Prints a number with about four significant digits in a column, or "-" for NAN. */
static void print_column_number(FILE *out, int width, double v)
{
    if (isnan(v))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.*f", width, v >= 1000 ? 0 : v >= 100 ? 1 : v >= 10 ? 2 : 3, v);
}

static double own_GBps(const struct nb_own *r)
{
    double v[NB_ROUNDS];
    memcpy(v, r->GBps, sizeof v);
    return compute_median(v, r->n);
}

static void print_own_rows(FILE *out, const struct nb_table *t)
{
    for (size_t i = 0; i < t->n_own; i++) {
        const struct nb_own *r = &t->own[i];
        double GBps = own_GBps(r);
        if (isnan(GBps))
            continue;
        fprintf(out, "%10" PRIu64 " %10s %-14s %-16s", r->size, "-", "write", "hawser bench");
        print_column_number(out, 10, NAN);
        print_column_number(out, 10, GBps);
        print_column_number(out, 8, NAN);
        fprintf(out, " %9" PRIu64, r->bad);
        print_column_number(out, 8, NAN);
        fputc('\n', out);
    }
}

static void print_measured_rows(FILE *out, const struct nb_table *t)
{
    fprintf(
        out,
        "\n#     size      count op             network               time      algbw    busbw    errors   cpu"
        "\n#      (B) (elements)                                      (us)      (GB/s)  (GB/s)            (s/GB)\n");
    for (size_t i = 0; i < t->n_rows; i++)
        for (size_t k = 0; k < t->n_configs; k++) {
            const struct nb_row *r = &t->row[i];
            double us = nb_us(&r->cell[k]);
            if (isnan(us))
                continue;
            fprintf(out, "%10" PRIu64 " %10" PRIu64 " %-14s %-16s", r->size, r->size / 4, nb_op_name(r->op),
                    t->config[k].name);
            print_column_number(out, 10, us);
            print_column_number(out, 10, compute_algbw(r, us));
            print_column_number(out, 8, compute_algbw(r, us) * nb_bus_factor(r->op, t->ranks));
            fprintf(out, " %9" PRIu64, r->cell[k].bad);
            print_column_number(out, 8, nb_cpu_per_GB(&r->cell[k], r->size));
            fputc('\n', out);
        }
    print_own_rows(out, t);
}

/* Prints how long the first operation of each kind took. NCCL connects in these operations. */
static void print_first_operations(FILE *out, const struct nb_table *t)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct nb_row *r = &t->row[i];
        bool any = false;
        for (size_t k = 0; k < t->n_configs; k++) {
            double ms = nb_first_ms(&r->cell[k]);
            if (isnan(ms))
                continue;
            if (!any)
                fprintf(out, "# the first %s of a communicator:", nb_op_name(r->op));
            fprintf(out, "%s %s %.1f ms", any ? "," : "", t->config[k].name, ms);
            any = true;
        }
        if (any)
            fputc('\n', out);
    }
}

static void print_nccl_comparison(FILE *out, const struct nb_table *t)
{
    fprintf(out,
            "\n# %s against NET/Socket: how many times as fast (NET/Socket's time / ours)"
            "\n#   op                 size   ours us   GB/s   default us   GB/s  ours/default"
            "   best tuned us   GB/s  ours/tuned   of plain sockets\n",
            t->config[0].name);
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct nb_row *r = &t->row[i];
        struct compared c = compare_configs(t, r);
        char size[32];
        fprintf(out, "  %-14s %10s", nb_op_name(r->op), hw_format_size(r->size, size, sizeof size));
        print_column_number(out, 9, c.ours);
        print_column_number(out, 6, compute_algbw(r, c.ours));
        print_column_number(out, 12, c.standard);
        print_column_number(out, 6, compute_algbw(r, c.standard));
        print_column_number(out, 13, c.standard / c.ours);
        print_column_number(out, 15, c.tuned);
        print_column_number(out, 6, compute_algbw(r, c.tuned));
        print_column_number(out, 11, c.tuned / c.ours);
        if (isnan(c.raw) || isnan(c.ours))
            fprintf(out, " %18s", "-");
        else
            fprintf(out, " %16.0f %%", 100 * compute_wire_speed(t, r, c.ours) / c.raw);
        fprintf(out, "  %s\n", isnan(c.tuned) ? "" : t->config[c.best].name);
    }
}

void nb_print(FILE *out, const struct nb_table *t)
{
    bool rivals = false;
    for (size_t i = 0; i < t->n_configs; i++)
        rivals = rivals || t->config[i].socket;
    print_measured_rows(out, t);
    print_first_operations(out, t);
    nb_print_nics(out, t);
    for (size_t i = 0; i < t->n_raw; i++) {
        fprintf(out, "%s# plain sockets, %u stream%s over loopback:", i ? "" : "\n", t->raw[i].streams,
                hw_plural(t->raw[i].streams));
        print_column_number(out, 0, raw_GBps(&t->raw[i]));
        fprintf(out, " GB/s in all\n");
    }
    if (rivals)
        print_nccl_comparison(out, t);
}

static void format_ratio(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.2f\u00d7", v);
}

static void write_best_card(struct page *p, const struct nb_table *t)
{
    char value[32], note[120], size[32];
    double best = 0;
    const struct nb_row *of = NULL;
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct compared c = compare_configs(t, &t->row[i]);
        const double bus = compute_algbw(&t->row[i], c.ours) * nb_bus_factor(t->row[i].op, t->ranks);
        if (bus > best) {
            best = bus;
            of = &t->row[i];
        }
    }
    if (!of)
        return;
    rep_text_num(best, value, sizeof value);
    snprintf(note, sizeof note, "%s of %s, %u ranks", nb_op_name(of->op), hw_format_size(of->size, size, sizeof size),
             t->ranks);
    page_card(p, "Bus bandwidth", value, "GB/s", "", note);
    const struct compared c = compare_configs(t, of);
    if (isnan(c.standard))
        return;
    format_ratio(c.standard / c.ours, value, sizeof value);
    page_card(p, "Against NET/Socket", value, "", c.standard >= c.ours ? "good" : "bad",
              "with its default settings, for the same operation");
}

void nb_write_page(struct page *p, const void *arg)
{
    static const struct page_column heads[] = {
        {"Operation", "as in nccl-tests: float32, sum", true},
        {"Network", "hawser, or a network that hawser is compared with", true},
        {"Size", "bytes of a rank&#39;s buffer", false},
        {"Time", "duration of an operation on the slowest rank; median of the rounds", false},
        {"algbw<br>GB/s", "size divided by time", false},
        {"busbw<br>GB/s", "bus bandwidth: algbw times the factor that nccl-tests uses", false},
        {"Against<br>default", "time of NET/Socket with default settings, divided by this time", false},
        {"Against<br>best tuned", "time of the fastest tuned NET/Socket, divided by this time", false},
        {"CPU<br>s/GB", "CPU seconds of all ranks&#39; processes, per GB of the operations&#39; size", false},
        {"Wrong", "elements with a wrong value", false}};
    const struct nb_table *t = arg;
    page_cards(p);
    write_best_card(p, t);
    page_cards_end(p);
    page_table(p, "Results", "");
    page_heads(p, heads, HW_ARRAY_LEN(heads));
    for (size_t i = 0; i < t->n_rows; i++)
        for (size_t k = 0; k < t->n_configs; k++) {
            const struct nb_row *r = &t->row[i];
            const struct compared c = compare_configs(t, r);
            const double us = nb_us(&r->cell[k]), bad = (double)r->cell[k].bad;
            if (isnan(us))
                continue;
            page_row(p);
            page_text(p, nb_op_name(r->op), "");
            page_text(p, t->config[k].name, "");
            page_number(p, (double)r->size, rep_text_size, "");
            page_number(p, us, rep_text_us, "");
            page_number(p, compute_algbw(r, us), rep_text_num, "");
            page_number(p, compute_algbw(r, us) * nb_bus_factor(r->op, t->ranks), rep_text_num, "");
            page_number(p, c.standard / us, format_ratio, "");
            page_number(p, c.tuned / us, format_ratio, "");
            page_number(p, nb_cpu_per_GB(&r->cell[k], r->size), rep_text_num, "");
            page_number(p, bad, rep_text_count, bad > 0 ? "bad" : "");
            page_row_end(p);
        }
    page_table_end(p, NULL);
}

static int json_cell(struct hw_json *j, const struct nb_table *t, const struct nb_row *r, size_t k)
{
    const struct nb_config *g = &t->config[k];
    const struct nb_cell *c = &r->cell[k];
    const struct compared of = compare_configs(t, r);
    double us = nb_us(c);
    hw_json_object(j, NULL);
    hw_json_str(j, "schema", "hawser-nccl-bench-1");
    hw_json_str(j, "op", nb_op_name(r->op));
    hw_json_u64(j, "size", r->size);
    hw_json_str(j, "config", g->name);
    hw_json_str(j, "network", t->network[k][0] ? t->network[k] : NULL);
    hw_json_u64(j, "ranks", t->ranks);
    hw_json_str(j, "hosts", t->hosts);
    hw_json_u64(j, "iters", r->iters);
    hw_json_u64(j, "warmup", r->warmup);
    hw_json_double(j, "time_us", us);
    hw_json_double(j, "algbw_GBps", compute_algbw(r, us));
    hw_json_double(j, "busbw_GBps", compute_algbw(r, us) * nb_bus_factor(r->op, t->ranks));
    hw_json_double(j, "wire_GBps", compute_wire_speed(t, r, us));
    hw_json_double(j, "cpu_s_per_GB", nb_cpu_per_GB(c, r->size));
    hw_json_double(j, "first_ms", nb_first_ms(c));
    hw_json_u64(j, "checked", c->checked);
    hw_json_u64(j, "errors", c->bad);
    hw_json_double(j, "ratio_default", g->socket ? NAN : of.standard / us);
    hw_json_double(j, "ratio_tuned", g->socket ? NAN : of.tuned / us);
    hw_json_str(j, "tuned_best", isnan(of.tuned) ? NULL : t->config[of.best].name);
    hw_json_double(j, "of_raw", compute_wire_speed(t, r, us) / of.raw);
    nb_json_nics(j, c);
    hw_json_array(j, "rounds_us");
    for (unsigned i = 0; i < c->n; i++)
        hw_json_double(j, NULL, c->sample[i].us);
    hw_json_end(j);
    hw_json_end(j);
    return hw_json_finish(j);
}

int nb_print_json(FILE *out, const struct nb_table *t)
{
    struct hw_json j;
    int rc = 0;
    hw_json_init(&j, out);
    for (size_t i = 0; i < t->n_rows; i++)
        for (size_t k = 0; k < t->n_configs && rc == 0; k++)
            if (t->row[i].cell[k].n)
                rc = json_cell(&j, t, &t->row[i], k);
    for (size_t i = 0; i < t->n_raw && rc == 0; i++) {
        hw_json_object(&j, NULL);
        hw_json_str(&j, "schema", "hawser-nccl-bench-1");
        hw_json_str(&j, "op", "raw");
        hw_json_u64(&j, "streams", t->raw[i].streams);
        hw_json_double(&j, "wire_GBps", raw_GBps(&t->raw[i]));
        hw_json_end(&j);
        rc = hw_json_finish(&j);
    }
    for (size_t i = 0; i < t->n_own && rc == 0; i++) {
        const struct nb_own *r = &t->own[i];
        if (r->n == 0)
            continue;
        hw_json_object(&j, NULL);
        hw_json_str(&j, "schema", "hawser-nccl-bench-1");
        hw_json_str(&j, "op", "write");
        hw_json_u64(&j, "size", r->size);
        hw_json_str(&j, "config", "hawser bench");
        hw_json_str(&j, "hosts", t->hosts);
        hw_json_double(&j, "algbw_GBps", own_GBps(r));
        hw_json_u64(&j, "checked", r->checked);
        hw_json_u64(&j, "errors", r->bad);
        hw_json_end(&j);
        rc = hw_json_finish(&j);
    }
    return rc < 0 ? hw_wrap(rc, "writing the JSON lines") : 0;
}

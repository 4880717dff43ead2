/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/report.h"
#include "tool/page/svg.h"
#include "tool/report/report_data.h"
#include "tool/report/report_plot.h"
#include "tool/report/report_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char no_value[] = "\u2013"; /* a dash */

/* ---- key figures ---------------------------------------------------------------------------- */

struct sums {
    const struct rep_row *best; /* row with the highest throughput, except ping-pongs, or NULL */
    const struct rep_row
        *against; /* row with the highest throughput among those with a plain-socket comparison, or NULL */
    const struct rep_row *fast; /* row with the lowest p50, or NULL */
    double verified, bad, lost, recovered;
    bool some_verified, some_bad, some_lost, some_recovered;
};

static void add_up(double v, double *sum, bool *some)
{
    if (isnan(v))
        return;
    *sum += v;
    *some = true;
}

static struct sums sums_of(const struct rep *r)
{
    struct sums s = {0};
    for (size_t i = 0; i < r->n_row; i++) {
        const struct rep_row *row = &r->row[i];
        if (!isnan(row->num[REP_GBPS]) && strcmp(row->op, "pingpong") != 0 &&
            (!s.best || row->num[REP_GBPS] > s.best->num[REP_GBPS]))
            s.best = row;
        if (!isnan(row->num[REP_RATIO]) && (!s.against || row->num[REP_GBPS] > s.against->num[REP_GBPS]))
            s.against = row;
        if (!isnan(row->num[REP_P50]) && (!s.fast || row->num[REP_P50] < s.fast->num[REP_P50]))
            s.fast = row;
        if (row->sum)
            continue;
        add_up(row->num[REP_VERIFIED], &s.verified, &s.some_verified);
        add_up(row->num[REP_BAD], &s.bad, &s.some_bad);
        add_up(row->num[REP_LOST], &s.lost, &s.some_lost);
        add_up(row->num[REP_RECOVERED], &s.recovered, &s.some_recovered);
    }
    s.some_verified &= s.verified > 0;
    return s;
}

static void write_key_figures(struct page *p, const struct rep *r, const struct report_frame *frame)
{
    const size_t own = frame ? frame->n_figures : 0;
    struct sums s = sums_of(r);
    char v[64], note[256], name[128], size[64];
    page_cards(p);
    for (size_t i = 0; i < own; i++) {
        const struct page_figure *g = &frame->figures[i];
        page_card(p, g->what, g->value, g->unit, g->class, g->note);
    }
    const struct rep_row *row = s.best ? s.best : s.fast;
    if (row) {
        rep_series_name(r, row, name, sizeof(name));
        rep_text_size(row->num[REP_SIZE], size, sizeof(size));
        snprintf(note, sizeof(note), r->n_row > 1 ? "%s, %s; best of %zu measurements" : "%s, %s", name, size,
                 r->n_row);
    }
    if (s.best) {
        rep_text_num(s.best->num[REP_GBPS], v, sizeof(v));
        page_card(p, "Throughput", v, "GB/s", "", note);
        rep_text_num(8 * s.best->num[REP_GBPS], v, sizeof(v));
        page_card(p, "Throughput in bits", v, "Gbit/s", "", "8 bits per byte, payload only");
        if (own && !s.against) {
            /* the caller's figures do not concern throughput */
        } else if (!s.against) {
            page_card(p, "Ratio to plain sockets", no_value, "", "", "not measured (bench --compare-raw)");
        } else {
            snprintf(v, sizeof(v), "%.2f", s.against->num[REP_RATIO]);
            char raw[64];
            rep_text_num(s.against->num[REP_RAW_GBPS], raw, sizeof(raw));
            snprintf(note, sizeof(note),
                     isnan(s.against->num[REP_RAW_GBPS]) ? "same path, same run"
                                                         : "plain sockets: %s GB/s; same path, same run",
                     raw);
            page_card(p, "Ratio to plain sockets", v, "times", s.against->num[REP_RATIO] >= 1 ? "good" : "bad", note);
        }
    } else if (s.fast) {
        rep_text_us(s.fast->num[REP_P50], v, sizeof(v));
        page_card(p, "Latency, median", v, "", "", note);
    }
    if (s.best && !isnan(s.best->num[REP_CPU]) && !isnan(s.best->num[REP_PEER_CPU])) {
        double cpu = s.best->num[REP_CPU] + s.best->num[REP_PEER_CPU];
        double raw = s.best->num[REP_RAW_CPU] + s.best->num[REP_RAW_PEER_CPU];
        rep_text_num(cpu, v, sizeof(v));
        rep_text_num(raw, size, sizeof(size));
        snprintf(note, sizeof(note), isnan(raw) ? "both sides together" : "both sides together; plain sockets: %s",
                 size);
        page_card(p, "CPU seconds per GB", v, "", "", note);
    }
    if (s.some_verified) {
        char *unit;
        rep_text_bytes(s.verified, v, sizeof(v));
        rep_text_count(s.verified, size, sizeof(size));
        snprintf(note, sizeof(note), "%s bytes compared with the data that was sent", size);
        if ((unit = strchr(v, ' ')))
            *unit++ = '\0';
        page_card(p, "Verified", v, unit ? unit : "", "", note);
    } else {
        page_card(p, "Verified", "no", "", "bad", "no byte was verified");
    }
    if (s.some_bad) {
        rep_text_count(s.bad, v, sizeof(v));
        page_card(p, "Bad bytes", v, "",
                  s.bad > 0         ? "bad"
                  : s.some_verified ? "good"
                                    : "",
                  s.bad > 0         ? "bytes that differ from the data that was sent"
                  : s.some_verified ? "every verified byte arrived as sent"
                                    : "");
    }
    if (s.some_lost) {
        rep_text_count(s.lost, v, sizeof(v));
        if (s.some_recovered && s.lost > 0) {
            rep_text_count(s.recovered, size, sizeof(size));
            snprintf(note, sizeof(note), "%s recovered", size);
        } else {
            snprintf(note, sizeof(note),
                     s.lost > 0 ? "other connections took over their chunks" : "no connection was lost");
        }
        page_card(p, "Losses of channels", v, "", "", note);
    }
    page_cards_end(p);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Writes a list of names with a space after each comma, so that the line may break there. */
static void write_nics(struct page *p, const char *nics)
{
    char text[600];
    size_t n = 0;
    for (; nics && *nics && n < sizeof text - 2; nics++) {
        text[n++] = *nics;
        if (*nics == ',')
            text[n++] = ' ';
    }
    text[n] = 0;
    page_text(p, text, "list");
}

enum column_group { RATES, TIMES, CPU, GROUPS };

struct column {
    enum column_group group;
    enum rep_num key;
    void (*fmt)(double v, char *buf, size_t cap);
    struct page_column page;
};

static void fmt_ratio(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.2f\u00d7", v);
}

static const struct column columns[] = {
    {RATES, REP_SIZE, rep_text_size, {"Size", "size of one operation", false}},
    {RATES, REP_BLOCKS, rep_text_count, {"Blocks", "number of scattered blocks in one operation", false}},
    {RATES, REP_ITERS, rep_text_count, {"Ops", "measured operations of all rounds", false}},
    {RATES, REP_CHANNELS, rep_text_count, {"Channels<br>per NIC", "TCP connections over each NIC", false}},
    {RATES, REP_DEPTH, rep_text_count, {"In<br>flight", "operations in flight at the same time", false}},
    {RATES, REP_WINDOW, rep_text_size, {"Window", "maximum bytes in flight on a connection", false}},
    {RATES, REP_SECONDS, rep_text_num, {"Seconds", "measured time, without filling and checking memory", false}},
    {RATES,
     REP_GBPS,
     rep_text_num,
     {"GB/s", "payload that the receiver has confirmed, in 10<sup>9</sup> bytes per second", false}},
    {RATES, REP_GBITS, rep_text_num, {"Gbit/s", "the same rate in 10<sup>9</sup> bits per second", false}},
    {RATES, REP_OPS, rep_text_num, {"Ops/s", "completed operations per second", false}},
    {RATES,
     REP_RAW_GBPS,
     rep_text_num,
     {"Plain<br>GB/s", "plain TCP sockets over the same paths, alternating with hawser", false}},
    {RATES, REP_RATIO, fmt_ratio, {"Ratio", "hawser&#39;s throughput divided by that of plain sockets", false}},
    {TIMES,
     REP_MEAN,
     rep_text_us,
     {"Mean",
      "duration of an operation; with several in flight, mostly the time for which it waits for the others. For a "
      "ping-pong, half of the round-trip time",
      false}},
    {TIMES, REP_P50, rep_text_us, {"p50", "median duration of an operation", false}},
    {TIMES, REP_P99, rep_text_us, {"p99", "99 of 100 operations took no longer", false}},
    {TIMES, REP_P999, rep_text_us, {"p99.9", "999 of 1,000 operations took no longer", false}},
    {CPU, REP_CPU, rep_text_num, {"CPU<br>s/GB", "CPU seconds of hawser&#39;s processes on this node, per GB", false}},
    {CPU, REP_PEER_CPU, rep_text_num, {"Peer<br>s/GB", "CPU seconds of the serving process, per GB", false}},
    {CPU, REP_RAW_CPU, rep_text_num, {"Plain<br>s/GB", "CPU seconds per GB of plain sockets on this node", false}},
    {CPU,
     REP_RAW_PEER_CPU,
     rep_text_num,
     {"Plain peer<br>s/GB", "CPU seconds per GB of plain sockets on the serving node", false}},
    {RATES, REP_VERIFIED, rep_text_bytes, {"Verified", "bytes that were compared with the data that was sent", false}},
    {RATES, REP_BAD, rep_text_count, {"Bad<br>bytes", "verified bytes that differed", false}},
    {RATES,
     REP_LOST,
     rep_text_count,
     {"Lost<br>channels", "connections that were lost; others took over their chunks", false}},
    {RATES, REP_RECOVERED, rep_text_count, {"Re-<br>covered", "lost connections that were re-established", false}},
};

/* Returns true if all measurements have the same value, which common_line() may then print once above the table. */
static bool all_same_num(const struct rep *r, enum rep_num key)
{
    for (size_t i = 1; i < r->n_row; i++)
        if (!(r->row[i].num[key] == r->row[0].num[key]))
            return false;
    return !isnan(r->row[0].num[key]);
}

static bool all_same_text(const struct rep *r, bool nics)
{
    for (size_t i = 0; i < r->n_row; i++) {
        const char *a = nics ? r->row[0].nics : r->row[0].mem, *b = nics ? r->row[i].nics : r->row[i].mem;
        if (!a || !b || strcmp(a, b) != 0)
            return false;
    }
    return true;
}

static void common_line(FILE *f, const struct rep *r, bool *show, bool *mem, bool *nics)
{
    const char *between = "<p class=\"note\">All measurements: ";
    static const char *const word[] = {[REP_BLOCKS] = "block per operation",
                                       [REP_CHANNELS] = "channels per NIC",
                                       [REP_DEPTH] = "in flight",
                                       [REP_WINDOW] = "window"};
    if (*mem && all_same_text(r, false)) {
        fprintf(f, "%s", between);
        svg_escape(f, r->row[0].mem, 40);
        fputs(" memory", f);
        between = " \u00b7 ";
        *mem = false;
    }
    if (*nics && all_same_text(r, true)) {
        fprintf(f, "%sNICs ", between);
        svg_escape(f, r->row[0].nics, 200);
        between = " \u00b7 ";
        *nics = false;
    }
    for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++) {
        enum rep_num key = columns[k].key;
        char v[64];
        if (key >= HW_ARRAY_LEN(word) || !word[key] || !show[k] || !all_same_num(r, key) ||
            (key == REP_BLOCKS && r->row[0].num[key] != 1))
            continue;
        columns[k].fmt(r->row[0].num[key], v, sizeof(v));
        const bool one = key == REP_CHANNELS && r->row[0].num[key] == 1;
        fprintf(f, "%s%s %s", between, v, one ? "channel per NIC" : word[key]);
        between = " \u00b7 ";
        show[k] = false;
    }
    if (*between == ' ')
        fputs("</p>\n", f);
}

/* The columns to show: those with a value, except those that common_line() has printed. */
struct shown {
    bool column[HW_ARRAY_LEN(columns)], mem, nics;
};

static void write_group(struct page *p, const struct rep *r, const struct shown *s, enum column_group group)
{
    static const struct page_column texts[] = {
        {"Operation",
         "write: to the peer&#39;s memory; read: from the peer&#39;s memory; send: as messages; pingpong: round trips",
         true},
        {"Memory", "host memory, or the local and the remote GPU", true},
        {"NICs", NULL, true},
        {"Size", NULL, false}};
    struct page_column heads[HW_ARRAY_LEN(columns) + HW_ARRAY_LEN(texts)];
    size_t n = 0;
    heads[n++] = texts[0];
    if (s->mem)
        heads[n++] = texts[1];
    if (s->nics)
        heads[n++] = texts[2];
    if (group != RATES) {
        heads[0].help = NULL;
        heads[n++] = texts[3];
    }
    for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++)
        if (s->column[k] && columns[k].group == group)
            heads[n++] = columns[k].page;
    page_heads(p, heads, n);
    for (size_t i = 0; i < r->n_row; i++) {
        const struct rep_row *row = &r->row[i];
        page_row(p);
        page_text(p, row->op, "");
        if (s->mem)
            page_text(p, row->mem, "");
        if (s->nics)
            write_nics(p, row->nics);
        if (group != RATES)
            page_number(p, row->num[REP_SIZE], rep_text_size, "");
        for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++)
            if (s->column[k] && columns[k].group == group) {
                double v = row->num[columns[k].key];
                page_number(p, v, columns[k].fmt, columns[k].key == REP_BAD && v > 0 ? "bad" : "");
            }
        page_row_end(p);
    }
    page_table_end(p, NULL);
}

static void write_results_table(struct page *p, const struct rep *r)
{
    static const char *const headings[GROUPS] = {"Results", "Duration of an operation", "CPU time"};
    struct shown s = {0};
    bool some[GROUPS] = {true};
    for (size_t i = 0; i < r->n_row; i++) {
        for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++)
            s.column[k] |= !isnan(r->row[i].num[columns[k].key]);
        s.mem |= r->row[i].mem != NULL;
        s.nics |= r->row[i].nics != NULL;
    }
    for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++)
        some[columns[k].group] |= s.column[k];
    for (enum column_group g = RATES; g < GROUPS; g++) {
        if (!some[g])
            continue;
        page_table(p, headings[g], "");
        if (g == RATES)
            common_line(p->f, r, s.column, &s.mem, &s.nics);
        write_group(p, r, &s, g);
    }
}

static void fmt_percent(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.1f %%", v);
}

static void fmt_overhead(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.3f", v);
}

static void nic_table(struct page *p, const struct rep *r)
{
    static const struct page_column heads[] = {
        {"Measurement", NULL, true},
        {"NIC", "of this node", true},
        {"Peer&#39;s NIC", "the NIC of the peer at the other end of the connections", true},
        {"Channels", "connections over this NIC", false},
        {"Payload", "bytes that hawser moved over the NIC, in both directions", false},
        {"Share", "share of the payload of all NICs", false},
        {"Kernel counted", "bytes of all frames of all programs, with headers and retransmissions", false},
        {"Kernel / payload",
         "bytes that the kernel counted, per byte of payload; 1.000 would mean no headers, retransmissions or other "
         "traffic",
         false},
        {"GB/s", "payload over the NIC per second", false},
        {"Lost", "lost connections over this NIC", false}};
    bool some = false;
    for (size_t i = 0; i < r->n_row; i++)
        some |= r->row[i].n_nic > 0;
    if (!some)
        return;
    page_table(p, "Per NIC", "");
    page_heads(p, heads, HW_ARRAY_LEN(heads));
    for (size_t i = 0; i < r->n_row; i++) {
        const struct rep_row *row = &r->row[i];
        char name[128], size[64], what[200];
        double all = 0;
        for (size_t k = 0; k < row->n_nic; k++)
            all += isnan(row->nic[k].bytes) ? 0 : row->nic[k].bytes;
        rep_series_name(r, row, name, sizeof(name));
        rep_text_size(row->num[REP_SIZE], size, sizeof(size));
        snprintf(what, sizeof(what), "%s, %s", name, size);
        for (size_t k = 0; k < row->n_nic; k++) {
            const struct rep_nic *n = &row->nic[k];
            page_row(p);
            page_text(p, k ? " " : what, "");
            page_text(p, n->nic, "");
            page_text(p, n->peer_nic, "");
            page_number(p, n->channels, rep_text_count, "");
            page_number(p, n->bytes, rep_text_bytes, "");
            page_number(p, all > 0 ? n->bytes / all * 100 : NAN, fmt_percent, "");
            page_number(p, n->kernel_bytes, rep_text_bytes, "");
            page_number(p, n->bytes > 0 ? n->kernel_bytes / n->bytes : NAN, fmt_overhead, "");
            page_number(p, n->gbps, rep_text_num, "");
            page_number(p, n->lost, rep_text_count, "");
            page_row_end(p);
        }
    }
    page_table_end(p, NULL);
}

/* ---- whole page ----------------------------------------------------------------------------- */

static int write_page(struct page *p, const struct rep *r, const struct report_frame *frame)
{
    fputs("<p class=\"sub\">", p->f);
    if (r->node || r->peer) {
        svg_escape(p->f, r->node ? r->node : "this node", 80);
        fputs(" \u2192 ", p->f);
        svg_escape(p->f, r->peer ? r->peer : "peer", 80);
        fputs(" \u00b7 ", p->f);
    }
    if (r->date) {
        svg_escape(p->f, r->date, 60);
        fputs(" \u00b7 ", p->f);
    }
    fprintf(p->f, "%zu measurement%s \u00b7 GB is 10<sup>9</sup> bytes, MiB is 2<sup>20</sup></p>\n", r->n_row,
            hw_plural(r->n_row));
    if (frame && frame->proved)
        page_proved(p, frame->proved);
    write_key_figures(p, r, frame);
    int rc = rep_plot_timeline(p->f, r);
    if (!rc)
        rc = rep_plot_throughput(p->f, r);
    if (!rc)
        rc = rep_plot_latency(p->f, r);
    write_results_table(p, r);
    nic_table(p, r);
    if (frame)
        page_said(p, frame->said);
    if (frame && frame->run)
        page_run(p, frame->run);
    return rc;
}

int report_html(const char *jsonl_path, const char *html_path, const struct report_frame *frame)
{
    struct rep r;
    struct page p;
    FILE *in = fopen(jsonl_path, "re");
    if (!in)
        return hw_fail(-errno, "report: opening %s: %s", jsonl_path, strerror(errno));
    int rc = rep_read(in, jsonl_path, &r);
    fclose(in);
    if (rc)
        return rc;
    rc = page_begin(&p, html_path, r.title ? r.title : frame && frame->title ? frame->title : "hawser bench");
    if (rc == 0)
        rc = page_end(&p, write_page(&p, &r, frame));
    rep_free(&r);
    return rc;
}

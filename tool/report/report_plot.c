/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/report_plot.h"
#include "tool/page/svg.h"
#include "tool/report/report_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH        920
#define HEIGHT       340
#define MAX_TIMELINE 6   /* maximum number of plots over time */
#define MAX_QUIET    2   /* maximum number of plots over time that have no faults */
#define MAX_GRID     600 /* maximum number of points of a plot over time */
#define LABEL_MAX    30  /* maximum characters of a fault's label */
#define MAX_LANES    3   /* maximum rows of labels; if more are needed, numbers are drawn instead */
#define BADGE_LANES  5

static void fmt_percent(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.0f %%", v);
}

static void fmt_seconds(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%g", v);
}

static void fmt_plain(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%g", fabs(v) < 1e-12 ? 0 : v);
}

/* ---- headings and legends ------------------------------------------------------------------- */

static void figure_open(FILE *f, const char *title, const char *note)
{
    fputs("<figure>\n<figcaption><h2>", f);
    svg_escape(f, title, 0);
    fputs("</h2>", f);
    if (note) {
        fputs("<p>", f);
        svg_escape(f, note, 0);
        fputs("</p>", f);
    }
    fputs("</figcaption>\n", f);
}

static void legend_item(FILE *f, const char *class, bool area, const char *text)
{
    fprintf(f, "<li><svg class=\"key\" viewBox=\"0 0 26 12\" aria-hidden=\"true\">");
    if (area)
        fprintf(f, "<rect class=\"area %s\" x=\"6\" y=\"0\" width=\"14\" height=\"12\" rx=\"2\"/>", class);
    else
        fprintf(f, "<path class=\"line %s\" d=\"M1 6H25\"/>", class);
    fputs("</svg>", f);
    svg_escape(f, text, 60);
    fputs("</li>\n", f);
}

/* Stores ticks from 0 to at least max, and ends the scale at the last tick. Returns the number of ticks. */
static size_t y_from_zero(struct svg *s, double max, double *ticks, size_t cap)
{
    if (!(max > 0))
        max = 1;
    size_t n = svg_ticks(0, max, 5, ticks, cap);
    if (n >= 2 && n < cap && ticks[n - 1] < max * (1 - 1e-9)) {
        ticks[n] = ticks[n - 1] + (ticks[1] - ticks[0]);
        n++;
    }
    s->y = (struct svg_scale){.lo = 0, .hi = n ? ticks[n - 1] : max};
    return n;
}

/* ---- throughput by size --------------------------------------------------------------------- */

struct point {
    double x, y, raw;
};

static int by_x(const void *a, const void *b)
{
    double x = ((const struct point *)a)->x, y = ((const struct point *)b)->x;
    return (x > y) - (x < y);
}

static bool has_throughput(const struct rep_row *r)
{
    return !isnan(r->num[REP_GBPS]) && r->num[REP_SIZE] > 0 && strcmp(r->op, "pingpong") != 0;
}

/* Stores the points of one series in out, sorted by size, and returns how many. Several measurements of one size are
 * averaged. */
static size_t series_points(const struct rep *r, const size_t *series, size_t id, struct point *out)
{
    size_t n = 0, k = 0;
    for (size_t i = 0; i < r->n_row; i++)
        if (series[i] == id && has_throughput(&r->row[i]))
            out[n++] = (struct point){r->row[i].num[REP_SIZE], r->row[i].num[REP_GBPS], r->row[i].num[REP_RAW_GBPS]};
    qsort(out, n, sizeof(*out), by_x);
    for (size_t i = 0; i < n;) {
        struct point p = {.x = out[i].x};
        size_t m = 0, raws = 0;
        double raw = 0;
        for (; i < n && out[i].x == p.x; i++, m++) {
            p.y += out[i].y;
            if (!isnan(out[i].raw)) {
                raw += out[i].raw;
                raws++;
            }
        }
        p.y /= (double)m;
        p.raw = raws ? raw / (double)raws : NAN;
        out[k++] = p;
    }
    return k;
}

static bool has_raw(const struct point *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isnan(p[i].raw))
            return true;
    return false;
}

static void draw_series(struct svg *s, const struct point *p, size_t n, size_t colour, double *xs, double *ys)
{
    char class[32], hover[128], size[40], v[40];
    for (int raw = 1; raw >= 0; raw--) { /* draw hawser's line last, so that it is on top */
        size_t k = 0;
        for (size_t i = 0; i < n; i++) {
            double y = raw ? p[i].raw : p[i].y;
            if (isnan(y))
                continue;
            xs[k] = p[i].x;
            ys[k++] = y;
        }
        snprintf(class, sizeof(class), "c%zu%s", colour, raw ? " raw" : "");
        svg_line(s, xs, ys, k, class);
        for (size_t i = 0; i < k; i++) {
            rep_text_size(xs[i], size, sizeof(size));
            rep_text_num(ys[i], v, sizeof(v));
            snprintf(hover, sizeof(hover), "%s: %s GB/s%s", size, v, raw ? ", plain sockets" : "");
            svg_dot(s, xs[i], ys[i], class, hover);
        }
    }
}

/* Stores ticks at powers of two, at most twelve. Returns their number. */
static size_t size_ticks(double lo, double hi, double *out, size_t cap)
{
    double a = floor(log2(lo) + 1e-9), b = ceil(log2(hi) - 1e-9);
    double step = fmax(1, ceil((b - a) / 11));
    size_t n = 0;
    for (double e = a; e <= b && n < cap; e += step)
        if (exp2(e) >= lo * (1 - 1e-9) && exp2(e) <= hi * (1 + 1e-9))
            out[n++] = exp2(e);
    return n;
}

/* Draws a bar for each series and for plain sockets, because a single size gives no curve. */
static void draw_bars(FILE *f, const struct rep *r, const size_t *series, size_t shown, bool raws, double top,
                      struct point *p)
{
    const double row = 26, wide = WIDTH - SVG_LEFT - 120;
    struct svg s;
    double y = 8;
    svg_open(&s, f, WIDTH, row * (double)shown * (raws ? 2 : 1) + 12, 0,
             "Throughput in GB/s, hawser and plain sockets");
    for (size_t k = 0; k < shown; k++) {
        size_t n = series_points(r, series, k, p);
        for (int raw = 0; n && raw < 1 + raws; raw++) {
            double v = raw ? p[0].raw : p[0].y, w = top > 0 ? v / top * wide : 0;
            char text[40];
            if (isnan(v))
                continue;
            rep_text_num(v, text, sizeof(text));
            fprintf(f,
                    "<rect class=\"bar c%zu%s\" x=\"4\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" rx=\"3\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\">%s GB/s</text>\n",
                    k, raw ? " raw" : "", y, HW_MAX(w, 1.0), row - 8, HW_MAX(w, 1.0) + 12, y + 13, text);
            y += row;
        }
    }
    svg_close(&s);
}

int rep_plot_throughput(FILE *f, const struct rep *r)
{
    HW_AUTO_FREE size_t *series = calloc(r->n_row, sizeof(*series));
    HW_AUTO_FREE struct point *p = calloc(r->n_row, sizeof(*p));
    HW_AUTO_FREE double *xs = calloc(2 * r->n_row, sizeof(*xs));
    HW_AUTO_FREE char(*names)[128] = calloc(r->n_row, sizeof(*names));
    double lo = INFINITY, hi = 0, top = 0, ticks[64];
    size_t n_series = 0, n_raw = 0;
    if (!series || !p || !xs || !names)
        return hw_no_memory("the throughput plot");
    for (size_t i = 0; i < r->n_row; i++) {
        const struct rep_row *row = &r->row[i];
        if (!has_throughput(row))
            continue;
        char name[128];
        rep_series_name(r, row, name, sizeof(name));
        size_t k = 0;
        while (k < n_series && strcmp(names[k], name) != 0)
            k++;
        if (k == n_series)
            memcpy(names[n_series++], name, sizeof(name));
        series[i] = k;
        lo = fmin(lo, row->num[REP_SIZE]);
        hi = fmax(hi, row->num[REP_SIZE]);
        top = fmax(top, row->num[REP_GBPS]);
        if (!isnan(row->num[REP_RAW_GBPS])) {
            top = fmax(top, row->num[REP_RAW_GBPS]);
            n_raw++;
        }
    }
    if (n_series) {
        struct svg s;
        size_t shown = HW_MIN(n_series, (size_t)SVG_COLOURS);
        char title[64] = "Throughput by transfer size", size[40];
        if (!(lo < hi)) {
            rep_text_size(lo, size, sizeof(size));
            snprintf(title, sizeof(title), "Throughput of %s transfers", size);
        }
        figure_open(f, title, n_raw ? "Plain sockets (dashed) used the same paths, in the same run." : NULL);
        fputs("<ul class=\"legend\">\n", f);
        for (size_t k = 0; k < shown; k++) {
            char class[32], text[160];
            snprintf(class, sizeof(class), "c%zu", k);
            snprintf(text, sizeof(text), "hawser %s", names[k]);
            legend_item(f, class, false, text);
            if (has_raw(p, series_points(r, series, k, p))) {
                snprintf(class, sizeof(class), "c%zu raw", k);
                snprintf(text, sizeof(text), shown > 1 ? "plain sockets, %s" : "plain sockets", names[k]);
                legend_item(f, class, false, text);
            }
        }
        fputs("</ul>\n", f);
        if (lo < hi) {
            svg_open(&s, f, WIDTH, HEIGHT, 34, "Throughput in GB/s by transfer size, hawser and plain sockets");
            s.x = (struct svg_scale){.lo = lo, .hi = hi, .log = true};
            size_t n = y_from_zero(&s, top, ticks, HW_ARRAY_LEN(ticks));
            svg_axis_y(&s, ticks, n, fmt_plain, "GB/s");
            n = size_ticks(lo, hi, ticks, HW_ARRAY_LEN(ticks));
            svg_axis_x(&s, ticks, n, rep_text_size, "bytes per transfer");
            for (size_t k = 0; k < shown; k++)
                draw_series(&s, p, series_points(r, series, k, p), k, xs, xs + r->n_row);
            svg_close(&s);
        } else {
            draw_bars(f, r, series, shown, n_raw > 0, top, p);
        }
        if (shown < n_series)
            fprintf(f, "<p class=\"note\">%zu more series %s only in the table.</p>\n", n_series - shown,
                    n_series - shown == 1 ? "is" : "are");
        fputs("</figure>\n", f);
    }
    return 0;
}

/* ---- latency -------------------------------------------------------------------------------- */

static void latency_curve(struct svg *s, const struct rep_row *r, size_t colour, double *xs, double *ys)
{
    double sum = 0, at = 0;
    size_t k = 0;
    char class[32];
    for (size_t i = 0; i < r->n_bin; i++)
        sum += r->bin[i].count;
    for (size_t i = 0; i < r->n_bin; i++) {
        if (r->bin[i].count <= 0)
            continue;
        xs[k] = r->bin[i].us; /* a step function that rises at each value */
        ys[k++] = at / sum * 100;
        at += r->bin[i].count;
        xs[k] = r->bin[i].us;
        ys[k++] = at / sum * 100;
    }
    snprintf(class, sizeof(class), "c%zu", colour);
    svg_line(s, xs, ys, k, class);
}

int rep_plot_latency(FILE *f, const struct rep *r)
{
    static const double percent[] = {0, 25, 50, 75, 90, 100};
    const struct rep_row *pick[SVG_COLOURS];
    size_t n_pick = 0, more = 0, most = 0;
    double lo = INFINITY, hi = 0, ticks[64];
    for (size_t i = 0; i < r->n_row; i++) {
        const struct rep_row *row = &r->row[i];
        bool some = false;
        for (size_t k = 0; k < row->n_bin; k++)
            if (row->bin[k].count > 0) {
                some = true;
                lo = fmin(lo, row->bin[k].us);
                hi = fmax(hi, row->bin[k].us);
            }
        if (some && n_pick == SVG_COLOURS) {
            more++;
        } else if (some) {
            pick[n_pick++] = row;
            most = HW_MAX(most, row->n_bin);
        }
    }
    if (!n_pick)
        return 0;
    HW_AUTO_FREE double *xs = calloc(4 * most, sizeof(*xs));
    if (!xs)
        return hw_no_memory("the latency plot");
    struct svg s;
    figure_open(f, "Latency distribution", "Share of the transfers that took no longer than the given time.");
    fputs("<ul class=\"legend\">\n", f);
    for (size_t i = 0; i < n_pick; i++) {
        char class[32], text[256], name[128], size[40], p50[40], p99[40];
        snprintf(class, sizeof(class), "c%zu", i);
        rep_series_name(r, pick[i], name, sizeof(name));
        rep_text_size(pick[i]->num[REP_SIZE], size, sizeof(size));
        int len = snprintf(text, sizeof(text), "%s, %s", name, size);
        if (!isnan(pick[i]->num[REP_P50]) && !isnan(pick[i]->num[REP_P99])) {
            rep_text_us(pick[i]->num[REP_P50], p50, sizeof(p50));
            rep_text_us(pick[i]->num[REP_P99], p99, sizeof(p99));
            snprintf(text + len, sizeof(text) - (size_t)len, " (p50 %s, p99 %s)", p50, p99);
        }
        legend_item(f, class, false, text);
    }
    fputs("</ul>\n", f);
    svg_open(&s, f, WIDTH, HEIGHT, 34, "Cumulative distribution of latency");
    s.y = (struct svg_scale){.lo = 0, .hi = 100};
    svg_axis_y(&s, percent, HW_ARRAY_LEN(percent), fmt_percent, "of transfers");
    lo = fmax(lo, 0.001); /* at least a nanosecond, because a log scale has no zero */
    hi = fmax(hi, lo);
    size_t n;
    if (hi / lo > 8) {
        s.x = (struct svg_scale){.lo = lo / 1.1, .hi = hi * 1.1, .log = true};
        n = svg_log_ticks(s.x.lo, s.x.hi, ticks, HW_ARRAY_LEN(ticks));
    } else {
        double pad = fmax((hi - lo) * 0.05, lo * 0.05);
        s.x = (struct svg_scale){.lo = lo - pad, .hi = hi + pad};
        n = svg_ticks(s.x.lo, s.x.hi, 8, ticks, HW_ARRAY_LEN(ticks));
    }
    svg_axis_x(&s, ticks, n, rep_text_us, s.x.log ? "latency, logarithmic" : "latency");
    for (size_t i = 0; i < n_pick; i++)
        latency_curve(&s, pick[i], i, xs, xs + 2 * most);
    svg_close(&s);
    if (more)
        fprintf(f, "<p class=\"note\">%zu more measurement%s only in the table.</p>\n", more,
                more == 1 ? " is" : "s are");
    fputs("</figure>\n", f);
    return 0;
}

/* ---- throughput over time ------------------------------------------------------------------- */

struct grid {
    size_t n;
    double *t, *v; /* t[0..n) are points in time; v[nic * n + i] is the rate of NIC nic at t[i] */
};

/* Resamples the NICs' samples, whose times may differ, to one even grid. A cell is the mean of its samples. Cells
 * between a NIC's samples are interpolated linearly, and cells before and after them are 0. */
static int make_grid(const struct rep_row *r, struct grid *g)
{
    size_t most = 0;
    for (size_t k = 0; k < r->n_name; k++) {
        size_t n = 0;
        for (size_t i = 0; i < r->n_sample; i++)
            n += r->sample[i].nic == k;
        most = HW_MAX(most, n);
    }
    double t0 = r->sample[0].t, span = r->sample[r->n_sample - 1].t - t0;
    g->n = span > 1e-9 ? HW_MIN(HW_MAX(most, (size_t)2), (size_t)MAX_GRID) : 1;
    g->t = calloc(g->n * (2 * r->n_name + 1), sizeof(double));
    if (!g->t)
        return hw_no_memory("the plot over time");
    g->v = g->t + g->n;
    double *hits = g->v + g->n * r->n_name, cell = g->n > 1 ? span / (double)(g->n - 1) : 1;
    for (size_t i = 0; i < g->n; i++)
        g->t[i] = t0 + (double)i * cell;
    for (size_t i = 0; i < r->n_sample; i++) {
        size_t c = HW_MIN((size_t)lround((r->sample[i].t - t0) / cell), g->n - 1), k = r->sample[i].nic * g->n + c;
        g->v[k] += r->sample[i].gbps;
        hits[k]++;
    }
    for (size_t nic = 0; nic < r->n_name; nic++) {
        double *v = g->v + nic * g->n, *h = hits + nic * g->n;
        size_t last = g->n; /* no cell with samples yet */
        for (size_t i = 0; i < g->n; i++) {
            if (h[i] <= 0)
                continue;
            v[i] /= h[i];
            for (size_t k = last < g->n ? last + 1 : i; k < i; k++)
                v[k] = v[last] + (v[i] - v[last]) * (double)(k - last) / (double)(i - last);
            last = i;
        }
    }
    return 0;
}

struct flag {
    double x, width;
    size_t lane;
    bool left;
    char text[4 * LABEL_MAX + 8];
};

/* Assigns rows to the labels so that no label overlaps another label or the line of another label. Proceeds from right
 * to left, and places each label above the labels that it would overlap. Returns false if the labels need too many rows
 * or do not fit; the caller then draws numbers. */
static bool place_labels(struct flag *p, size_t n, double right_edge)
{
    for (size_t i = n; i-- > 0;) {
        double end = p[i].x + 5 + p[i].width;
        p[i].lane = 0;
        p[i].left = end > right_edge;
        if (p[i].left) {
            double begin = p[i].x - 5 - p[i].width;
            for (size_t k = 0; k < n; k++) {
                double reach = k < i ? p[k].x + 5 + p[k].width : p[k].x;
                if (k != i && reach > begin && p[k].x < p[i].x + 8)
                    return false;
            }
            continue;
        }
        for (size_t k = i + 1; k < n; k++) {
            double begin = p[k].left ? p[k].x - 5 - p[k].width : p[k].x;
            if (begin < end + 4)
                p[i].lane = HW_MAX(p[i].lane, p[k].lane + 1);
        }
        if (p[i].lane >= MAX_LANES)
            return false;
    }
    return true;
}

static void place_badges(struct flag *p, size_t n)
{
    double taken[BADGE_LANES] = {-1e9, -1e9, -1e9, -1e9, -1e9};
    for (size_t i = 0; i < n; i++) {
        size_t best = 0;
        for (size_t l = 0; l < BADGE_LANES; l++) {
            if (taken[l] + SVG_BADGE + 2 <= p[i].x) {
                best = l;
                break;
            }
            if (taken[l] < taken[best])
                best = l;
        }
        p[i].lane = best;
        taken[best] = p[i].x;
    }
}

static void draw_faults(struct svg *s, const struct rep_row *r, struct flag *p, bool labels)
{
    for (size_t i = 0; i < r->n_fault; i++)
        if (labels)
            svg_mark(s, r->fault[i].t, (double)p[i].lane, p[i].left, r->fault[i].text ? r->fault[i].text : "fault",
                     LABEL_MAX);
        else
            svg_badge(s, r->fault[i].t, (double)p[i].lane, i + 1);
}

static void fault_list(FILE *f, const struct rep_row *r, bool numbered)
{
    if (!r->n_fault)
        return;
    fprintf(f, "<ol class=\"faults%s\">\n", numbered ? "" : " plain");
    for (size_t i = 0; i < r->n_fault; i++) {
        fprintf(f, r->fault[i].t < 1e6 ? "<li><b>%.2f s</b> " : "<li><b>%.4g s</b> ", r->fault[i].t);
        svg_escape(f, r->fault[i].text ? r->fault[i].text : "fault", 0);
        fputs("</li>\n", f);
    }
    fputs("</ol>\n", f);
}

static int plot_one_timeline(FILE *f, const struct rep *r, const struct rep_row *row)
{
    struct grid g = {0};
    struct svg s;
    double ticks[64], top = 0;
    int rc = make_grid(row, &g);
    if (rc)
        return rc;
    HW_AUTO_FREE struct flag *flags = calloc(row->n_fault + 1, sizeof(*flags));
    HW_AUTO_FREE double *sum = calloc(2 * g.n, sizeof(*sum));
    if (!flags || !sum) {
        free(g.t);
        return hw_no_memory("the plot over time");
    }
    double *below = sum + g.n;
    for (size_t i = 0; i < g.n; i++) {
        double v = 0;
        for (size_t k = 0; k < row->n_name; k++)
            v += g.v[k * g.n + i];
        top = fmax(top, v);
    }
    char title[256], name[128], size[40];
    rep_series_name(r, row, name, sizeof(name));
    rep_text_size(row->num[REP_SIZE], size, sizeof(size));
    snprintf(title, sizeof(title), "Throughput over time: %s, %s", name, size);
    figure_open(f, title, "The NICs' rates are stacked, so the upper edge is the sum.");
    fputs("<ul class=\"legend\">\n", f);
    for (size_t k = 0; k < row->n_name; k++) {
        char class[32];
        snprintf(class, sizeof(class), "c%zu", k % SVG_COLOURS);
        legend_item(f, class, true, row->name[k]);
    }
    fputs("</ul>\n", f);

    /* The positions of the marks depend only on the x scale. The top edge of the plot depends on the number of rows. */
    struct svg probe = {.left = SVG_LEFT, .right = WIDTH - SVG_RIGHT};
    probe.x.lo = HW_MIN(0.0, g.t[0]);
    probe.x.hi = g.n > 1 ? g.t[g.n - 1] : g.t[0] + 1;
    size_t lanes = 0;
    for (size_t i = 0; i < row->n_fault; i++) {
        const char *text = row->fault[i].text ? row->fault[i].text : "fault";
        flags[i].x = svg_x(&probe, row->fault[i].t);
        flags[i].width = HW_MIN(svg_text_width(text), (LABEL_MAX + 1) * svg_text_width("x"));
    }
    bool labels = place_labels(flags, row->n_fault, WIDTH - 4);
    if (!labels)
        place_badges(flags, row->n_fault);
    for (size_t i = 0; i < row->n_fault; i++)
        lanes = HW_MAX(lanes, flags[i].lane + 1);

    double head = lanes ? 46 + (double)lanes * SVG_LANE - SVG_LANE : 0;
    svg_open(&s, f, WIDTH, HEIGHT + head, 34 + head - (lanes ? 16 : 0), title);
    s.x = probe.x;
    size_t n = y_from_zero(&s, top, ticks, HW_ARRAY_LEN(ticks));
    svg_axis_y(&s, ticks, n, fmt_plain, "GB/s");
    n = svg_ticks(s.x.lo, s.x.hi, 10, ticks, HW_ARRAY_LEN(ticks));
    svg_axis_x(&s, ticks, n, fmt_seconds, "seconds since the start");
    for (size_t k = 0; k < row->n_name; k++) {
        char class[32];
        memcpy(below, sum, g.n * sizeof(*sum));
        for (size_t i = 0; i < g.n; i++)
            sum[i] += g.v[k * g.n + i];
        snprintf(class, sizeof(class), "c%zu", k % SVG_COLOURS);
        svg_area(&s, g.t, below, sum, g.n, class);
        snprintf(class, sizeof(class), "edge c%zu", k % SVG_COLOURS);
        svg_line(&s, g.t, sum, g.n, class);
        if (g.n == 1)
            svg_dot(&s, g.t[0], sum[0], class, row->name[k]);
    }
    draw_faults(&s, row, flags, labels);
    svg_close(&s);
    fault_list(f, row, !labels);
    fputs("</figure>\n", f);
    free(g.t);
    return 0;
}

int rep_plot_timeline(FILE *f, const struct rep *r)
{
    size_t with = 0, without = 0, done = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < r->n_row; i++)
        if (r->row[i].n_sample && r->row[i].n_fault && with++ < MAX_TIMELINE) {
            rc = plot_one_timeline(f, r, &r->row[i]);
            done++;
        }
    for (size_t i = r->n_row; !rc && i-- > 0;) /* the last measurements have the largest sizes of a sweep */
        if (r->row[i].n_sample && !r->row[i].n_fault && without++ < MAX_QUIET && done < MAX_TIMELINE) {
            rc = plot_one_timeline(f, r, &r->row[i]);
            done++;
        }
    if (!rc && done < with + without)
        fprintf(f, "<p class=\"note after\">%zu more measurement%s over time %s not shown.</p>\n",
                with + without - done, hw_plural(with + without - done), with + without - done == 1 ? "is" : "are");
    return rc;
}

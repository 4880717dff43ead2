/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/report.h"
#include "tool/report/report_data.h"
#include "tool/report/report_plot.h"
#include "tool/report/report_text.h"
#include "tool/report/svg.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char report_style[] =
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5b6675;--rule:#dfe3e8;--grid:#e8ebef;"
    "--good:#12743f;--bad:#b3261e;--mark:#b3261e;--k0:#2563c9;--k1:#d9730d;--k2:#0f8a76;--k3:#8b3fc4;--k4:#b8336a;"
    "--k5:#6b7d10;--k6:#0e7fa8;--k7:#8a5a2b}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1a2029;--ink:#e6eaf0;--soft:#9aa6b5;--rule:#2c3542;"
    "--grid:#262e39;--good:#5fd08f;--bad:#ff8a80;--mark:#ff8a80;--k0:#6ea8fe;--k1:#f2a154;--k2:#43c7ae;--k3:#c08bf0;"
    "--k4:#f08bb4;--k5:#b9cc54;--k6:#5cc4e8;--k7:#d2a679}}\n"
    "@media print{:root{--bg:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#bbb;--grid:#ddd;--good:#12743f;"
    "--bad:#b3261e;--mark:#b3261e;--k0:#2563c9;--k1:#d9730d;--k2:#0f8a76;--k3:#8b3fc4;--k4:#b8336a;--k5:#6b7d10;"
    "--k6:#0e7fa8;--k7:#8a5a2b}figure,.cards,.sheet{break-inside:avoid}body{font-size:11px}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",\"Noto Sans\",\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1120px;margin:0 auto;padding:28px 20px 40px}h1{font-size:24px;margin:0;letter-spacing:-.01em}"
    "h2{font-size:16px;margin:0}.sub{margin:2px 0 20px;color:var(--soft);overflow-wrap:anywhere}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(144px,1fr));gap:12px;margin:0 0 16px}"
    ".card,figure,.sheet{background:var(--card);border:1px solid "
    "var(--rule);border-radius:10px}.card{margin:0;padding:12px "
    "14px}"
    ".card dt{font-size:12px;color:var(--soft)}.card dd{margin:0;font-size:26px;font-weight:650;line-height:1.25;"
    "font-variant-numeric:tabular-nums}.card dd small{font-size:15px;font-weight:500}.card p{margin:2px 0 0;"
    "font-size:12px;color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}\n"
    "figure{margin:0 0 16px;padding:16px 18px 12px}figcaption p,.note{margin:2px 0 0;font-size:13px;color:var(--soft)}"
    "figure>svg{display:block;width:100%;height:auto;margin-top:6px}\n"
    ".legend{list-style:none;margin:8px 0 0;padding:0;display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px}"
    ".legend li{display:flex;align-items:center;gap:7px}.key{width:26px;height:12px;flex:none}\n"
    ".faults{margin:6px 0 0;padding-left:26px;font-size:13px;columns:2 260px}.faults "
    "b{font-variant-numeric:tabular-nums}"
    "\n"
    ".note.after{margin:-8px 4px 14px}.faults.plain{list-style:none;padding-left:4px}\n"
    "svg text{font-size:12px;fill:var(--soft)}svg .mid{text-anchor:middle}svg .end{text-anchor:end}"
    "svg .unit{font-size:12px}svg .marktext{fill:var(--mark);font-weight:600}.grid{stroke:var(--grid)}"
    ".axis{stroke:var(--soft)}.mark{stroke:var(--mark);stroke-dasharray:4 3}.badge{fill:var(--card);stroke:var(--mark)}"
    "svg .badgetext{fill:var(--mark);font-size:11px;font-weight:600}\n"
    ".line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}.area{fill:var(--c);opacity:.45}"
    ".edge{stroke-width:1.2}.bar{fill:var(--c)}.bar.raw{fill:var(--card);stroke:var(--c);stroke-width:1.5;"
    "stroke-dasharray:6 4}.dot{fill:var(--c);stroke:var(--card);stroke-width:1}.raw{stroke-dasharray:6 "
    "4}.dot.raw{stroke-dasharray:none;"
    "fill:var(--card);stroke:var(--c);stroke-width:1.6}\n"
    ".sheet{margin:0 0 16px;padding:16px 18px;overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px;"
    "margin-top:8px;font-variant-numeric:tabular-nums}th,td{padding:5px 6px;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--rule)}th{color:var(--soft);font-weight:600;vertical-align:bottom}"
    "tr:last-child td{border-bottom:0}.t{text-align:left}th:first-child,td:first-child{padding-left:0}"
    "footer{color:var(--soft);font-size:12px}\n";

static const char no_value[] = "\u2013"; /* a dash */

/* ---- headline ------------------------------------------------------------------------------- */

struct sums {
    const struct rep_row *best; /* the highest throughput; NULL: none */
    const struct rep_row *fast; /* the lowest p50; NULL: none */
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

/* unit may be "", class too; both and the value are ours, the note may hold a stranger's text. */
static void write_figure_card(FILE *f, const char *what, const char *value, const char *unit, const char *class,
                              const char *note)
{
    fprintf(f, "<dl class=\"card\"><dt>%s</dt><dd class=\"%s\">%s", what, class, value);
    if (*unit)
        fprintf(f, " <small>%s</small>", unit);
    fputs("</dd><dd class=\"n\"><p>", f);
    svg_escape(f, note, 90);
    fputs("</p></dd></dl>\n", f);
}

static void write_key_figures(FILE *f, const struct rep *r)
{
    struct sums s = sums_of(r);
    char v[64], note[256], name[128], size[64];
    fputs("<section class=\"cards\" aria-label=\"Key figures\">\n", f);
    const struct rep_row *row = s.best ? s.best : s.fast;
    if (row) {
        rep_series_name(r, row, name, sizeof(name));
        rep_text_size(row->num[REP_SIZE], size, sizeof(size));
        snprintf(note, sizeof(note), r->n_row > 1 ? "%s, %s; best of %zu measurements" : "%s, %s", name, size,
                 r->n_row);
    }
    if (s.best) {
        rep_text_num(s.best->num[REP_GBPS], v, sizeof(v));
        write_figure_card(f, "Throughput", v, "GB/s", "", note);
        if (isnan(s.best->num[REP_RATIO])) {
            write_figure_card(f, "Against plain sockets", no_value, "", "", "not measured (bench --compare-raw)");
        } else {
            snprintf(v, sizeof(v), "%.2f", s.best->num[REP_RATIO]);
            char raw[64];
            rep_text_num(s.best->num[REP_RAW_GBPS], raw, sizeof(raw));
            snprintf(note, sizeof(note),
                     isnan(s.best->num[REP_RAW_GBPS]) ? "same path, same run"
                                                      : "they reach %s GB/s; same path, same run",
                     raw);
            write_figure_card(f, "Against plain sockets", v, "times", s.best->num[REP_RATIO] >= 1 ? "good" : "bad",
                              note);
        }
    } else if (s.fast) {
        rep_text_us(s.fast->num[REP_P50], v, sizeof(v));
        write_figure_card(f, "Latency, median", v, "", "", note);
    }
    if (s.best && !isnan(s.best->num[REP_CPU]) && !isnan(s.best->num[REP_PEER_CPU])) {
        double cpu = s.best->num[REP_CPU] + s.best->num[REP_PEER_CPU];
        double raw = s.best->num[REP_RAW_CPU] + s.best->num[REP_RAW_PEER_CPU];
        rep_text_num(cpu, v, sizeof(v));
        rep_text_num(raw, size, sizeof(size));
        snprintf(note, sizeof(note), isnan(raw) ? "both sides together" : "both sides together; plain sockets %s",
                 size);
        write_figure_card(f, "CPU seconds per GB", v, "", "", note);
    }
    if (s.some_verified) {
        char *unit;
        rep_text_bytes(s.verified, v, sizeof(v));
        rep_text_count(s.verified, size, sizeof(size));
        snprintf(note, sizeof(note), "%s bytes compared with what was sent", size);
        if ((unit = strchr(v, ' ')))
            *unit++ = '\0';
        write_figure_card(f, "Verified", v, unit ? unit : "", "", note);
    } else {
        write_figure_card(f, "Verified", "no", "", "bad", "no byte was checked");
    }
    if (s.some_bad) {
        rep_text_count(s.bad, v, sizeof(v));
        write_figure_card(f, "Bad bytes", v, "",
                          s.bad > 0         ? "bad"
                          : s.some_verified ? "good"
                                            : "",
                          s.bad > 0         ? "what arrived is not what was sent"
                          : s.some_verified ? "every byte arrived as sent"
                                            : "");
    }
    if (s.some_lost) {
        rep_text_count(s.lost, v, sizeof(v));
        if (s.some_recovered && s.lost > 0) {
            rep_text_count(s.recovered, size, sizeof(size));
            snprintf(note, sizeof(note), "%s recovered", size);
        } else {
            snprintf(note, sizeof(note),
                     s.lost > 0 ? "their chunks were taken up by the others" : "no connection died");
        }
        write_figure_card(f, "Channels lost", v, "", "", note);
    }
    fputs("</section>\n", f);
}

/* ---- tables --------------------------------------------------------------------------------- */

struct column {
    enum rep_num key;
    const char *head;
    void (*fmt)(double v, char *buf, size_t cap);
};

static void fmt_ratio(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.2f\u00d7", v);
}

static const struct column columns[] = {
    {REP_SIZE, "Size", rep_text_size},
    {REP_ITERS, "Iters", rep_text_count},
    {REP_CHANNELS, "Channels<br>per NIC", rep_text_count},
    {REP_DEPTH, "Depth", rep_text_count},
    {REP_WINDOW, "Window", rep_text_size},
    {REP_SECONDS, "Seconds", rep_text_num},
    {REP_GBPS, "GB/s", rep_text_num},
    {REP_RAW_GBPS, "Plain<br>GB/s", rep_text_num},
    {REP_RATIO, "Ratio", fmt_ratio},
    {REP_P50, "p50", rep_text_us},
    {REP_P99, "p99", rep_text_us},
    {REP_P999, "p99.9", rep_text_us},
    {REP_CPU, "CPU<br>s/GB", rep_text_num},
    {REP_PEER_CPU, "Peer<br>s/GB", rep_text_num},
    {REP_RAW_CPU, "Plain<br>s/GB", rep_text_num},
    {REP_RAW_PEER_CPU, "its peer<br>s/GB", rep_text_num},
    {REP_VERIFIED, "Verified", rep_text_bytes},
    {REP_BAD, "Bad<br>bytes", rep_text_count},
    {REP_LOST, "Lost<br>channels", rep_text_count},
    {REP_RECOVERED, "Re-<br>covered", rep_text_count},
};

static void text_cell(FILE *f, const char *text)
{
    fputs("<td class=\"t\">", f);
    if (text && *text)
        svg_escape(f, text, 60);
    else
        fputs(no_value, f);
    fputs("</td>", f);
}

static void number_cell(FILE *f, double v, void (*fmt)(double v, char *buf, size_t cap), const char *class)
{
    char buf[64];
    if (!isnan(v))
        fmt(v, buf, sizeof(buf));
    fprintf(f, "<td%s>%s</td>", class, isnan(v) ? no_value : buf);
}

/* What is the same for every measurement is said once, above the table, instead of in a column. */
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
    const char *between = "<p class=\"note\">Everywhere: ";
    static const char *const word[] = {
        [REP_CHANNELS] = "channels per NIC", [REP_DEPTH] = "in flight", [REP_WINDOW] = "window"};
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
        if (key >= HW_ARRAY_LEN(word) || !word[key] || !show[k] || !all_same_num(r, key))
            continue;
        columns[k].fmt(r->row[0].num[key], v, sizeof(v));
        fprintf(f, "%s%s %s", between, v, word[key]);
        between = " \u00b7 ";
        show[k] = false;
    }
    if (*between == ' ')
        fputs("</p>\n", f);
}

static void write_results_table(FILE *f, const struct rep *r)
{
    bool show[HW_ARRAY_LEN(columns)] = {false}, mem = false, nics = false;
    for (size_t i = 0; i < r->n_row; i++) {
        for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++)
            show[k] |= !isnan(r->row[i].num[columns[k].key]);
        mem |= r->row[i].mem != NULL;
        nics |= r->row[i].nics != NULL;
    }
    fputs("<section class=\"sheet\"><h2>Results</h2>\n", f);
    common_line(f, r, show, &mem, &nics);
    fprintf(f, "<table><thead><tr><th class=\"t\">Operation</th>%s%s", mem ? "<th class=\"t\">Memory</th>" : "",
            nics ? "<th class=\"t\">NICs</th>" : "");
    for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++)
        if (show[k]) /* a column that no measurement has is left out */
            fprintf(f, "<th>%s</th>", columns[k].head);
    fputs("</tr></thead><tbody>\n", f);
    for (size_t i = 0; i < r->n_row; i++) {
        const struct rep_row *row = &r->row[i];
        fputs("<tr>", f);
        text_cell(f, row->op);
        if (mem)
            text_cell(f, row->mem);
        if (nics)
            text_cell(f, row->nics);
        for (size_t k = 0; k < HW_ARRAY_LEN(columns); k++)
            if (show[k]) {
                double v = row->num[columns[k].key];
                number_cell(f, v, columns[k].fmt, columns[k].key == REP_BAD && v > 0 ? " class=\"bad\"" : "");
            }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></section>\n", f);
}

static void nic_table(FILE *f, const struct rep *r)
{
    bool some = false, lost = false, rate = false, channels = false;
    for (size_t i = 0; i < r->n_row; i++)
        for (size_t k = 0; k < r->row[i].n_nic; k++) {
            some = true;
            lost |= !isnan(r->row[i].nic[k].lost);
            rate |= !isnan(r->row[i].nic[k].gbps);
            channels |= !isnan(r->row[i].nic[k].channels);
        }
    if (!some)
        return;
    fprintf(f,
            "<section class=\"sheet\"><h2>Per NIC</h2>\n<table><thead><tr><th class=\"t\">Measurement</th>"
            "<th class=\"t\">NIC</th><th class=\"t\">Peer&#39;s NIC</th>%s<th>Payload</th><th>Share</th>"
            "<th>Kernel counted</th><th>Kernel / payload</th>%s%s</tr></thead><tbody>\n",
            channels ? "<th>Channels</th>" : "", rate ? "<th>GB/s</th>" : "", lost ? "<th>Lost</th>" : "");
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
            fputs("<tr>", f);
            text_cell(f, k ? " " : what);
            text_cell(f, n->nic);
            text_cell(f, n->peer_nic);
            if (channels)
                number_cell(f, n->channels, rep_text_count, "");
            number_cell(f, n->bytes, rep_text_bytes, "");
            if (all > 0 && !isnan(n->bytes))
                fprintf(f, "<td>%.1f %%</td>", n->bytes / all * 100);
            else
                fprintf(f, "<td>%s</td>", no_value);
            number_cell(f, n->kernel_bytes, rep_text_bytes, "");
            if (n->bytes > 0 && !isnan(n->kernel_bytes))
                fprintf(f, "<td>%.3f</td>", n->kernel_bytes / n->bytes);
            else
                fprintf(f, "<td>%s</td>", no_value);
            if (rate)
                number_cell(f, n->gbps, rep_text_num, "");
            if (lost)
                number_cell(f, n->lost, rep_text_count, "");
            fputs("</tr>\n", f);
        }
    }
    fputs("</tbody></table><p class=\"note\">The kernel counts whole frames, with headers and what was sent again."
          "</p></section>\n",
          f);
}

/* ---- the page ------------------------------------------------------------------------------- */

static int write_page(FILE *f, const struct rep *r)
{
    const char *title = r->title ? r->title : "hawser bench";
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          f);
    svg_escape(f, title, 120);
    fprintf(f, "</title>\n<style>\n%s", report_style);
    for (int i = 0; i < SVG_COLOURS; i++)
        fprintf(f, ".c%d{--c:var(--k%d)}", i, i);
    fputs("\n.card dd.n{font-size:inherit;font-weight:inherit}</style></head>\n<body><main>\n<h1>", f);
    svg_escape(f, title, 120);
    fputs("</h1>\n<p class=\"sub\">", f);
    if (r->node || r->peer) {
        svg_escape(f, r->node ? r->node : "this node", 80);
        fputs(" \u2192 ", f);
        svg_escape(f, r->peer ? r->peer : "peer", 80);
        fputs(" \u00b7 ", f);
    }
    if (r->date) {
        svg_escape(f, r->date, 60);
        fputs(" \u00b7 ", f);
    }
    fprintf(f, "%zu measurement%s \u00b7 GB is 10<sup>9</sup> bytes, MiB is 2<sup>20</sup></p>\n", r->n_row,
            r->n_row == 1 ? "" : "s");
    write_key_figures(f, r);
    int rc = rep_plot_timeline(f, r);
    if (!rc)
        rc = rep_plot_throughput(f, r);
    if (!rc)
        rc = rep_plot_latency(f, r);
    write_results_table(f, r);
    nic_table(f, r);
    fprintf(
        f,
        "<footer>Made by hawser %d.%d from JSON lines; this file needs nothing else.</footer>\n</main></body></html>\n",
        HAWSER_VERSION_MAJOR, HAWSER_VERSION_MINOR);
    return rc;
}

int report_html(const char *jsonl_path, const char *html_path)
{
    struct rep r;
    FILE *in = fopen(jsonl_path, "re");
    if (!in)
        return hw_fail(-errno, "report: opening %s: %s", jsonl_path, strerror(errno));
    int rc = rep_read(in, jsonl_path, &r);
    fclose(in);
    if (rc)
        return rc;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* decimal points, whatever the user's language */
    if (c == (locale_t)0) {
        rep_free(&r);
        return hw_no_memory("a locale");
    }
    locale_t old = uselocale(c);
    FILE *out = fopen(html_path, "we");
    if (!out) {
        rc = hw_fail(-errno, "report: creating %s: %s", html_path, strerror(errno));
    } else {
        rc = write_page(out, &r);
        bool bad = ferror(out) != 0;
        if (fclose(out) != 0 || bad)
            rc = rc ? rc : hw_fail(-EIO, "report: writing %s failed: %s", html_path, strerror(errno));
    }
    uselocale(old);
    freelocale(c);
    rep_free(&r);
    return rc;
}

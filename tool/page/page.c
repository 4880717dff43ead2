/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/page/page.h"

#include "tool/page/svg.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5b6675;--rule:#dfe3e8;--grid:#e8ebef;"
    "--good:#12743f;--warn:#9a5b00;--bad:#b3261e;--mark:#b3261e;--k0:#2563c9;--k1:#d9730d;--k2:#0f8a76;--k3:#8b3fc4;--"
    "k4:#b8336a;"
    "--k5:#6b7d10;--k6:#0e7fa8;--k7:#8a5a2b}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1a2029;--ink:#e6eaf0;--soft:#9aa6b5;--rule:#2c3542;"
    "--grid:#262e39;--good:#5fd08f;--warn:#f2b457;--bad:#ff8a80;--mark:#ff8a80;--k0:#6ea8fe;--k1:#f2a154;--k2:#43c7ae;-"
    "-k3:#c08bf0;"
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
    ".card dd.n{font-size:inherit;font-weight:inherit}.sub p{margin:0}"
    "details{margin:10px 0 0;font-size:13px}summary{color:var(--soft);cursor:pointer}"
    ".cols{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:6px 0 0;font-size:13px}"
    ".cols dt{font-weight:600}.cols dd{margin:0;color:var(--soft)}"
    ".said{margin:8px 0 0;padding:10px 12px;overflow-x:auto;background:var(--bg);border:1px solid var(--rule);"
    "border-radius:8px;font:12px/1.4 ui-monospace,\"DejaVu Sans Mono\",Menlo,Consolas,monospace;white-space:pre}"
    "h1+.cards,h1+.sheet{margin-top:14px}.run td:first-child{white-space:nowrap}"
    ".run td+td,.run "
    "th{white-space:normal;vertical-align:top;overflow-wrap:anywhere}.w{white-space:normal;min-width:16em}"
    ".list{white-space:normal;min-width:7em}"
    ".proof{margin:0;padding-left:20px}.warn{color:var(--warn)}\n"
    "@media(max-width:640px){main{padding:16px 10px 28px}h1{font-size:20px}.cards{gap:8px;"
    "grid-template-columns:1fr 1fr}.card{padding:8px 10px}.card dd{font-size:20px}figure{overflow-x:auto;padding:12px}"
    "figure>svg{width:auto;min-width:720px;max-width:none}.sheet{padding:12px}.cols{grid-template-columns:1fr}"
    ".cols dd{margin:0 0 4px}.faults{columns:1}table{font-size:12px}th,td{padding:4px 3px}.run td,.run th{padding:4px "
    "3px;font-size:12px}}\n"
    "@media print{.said{white-space:pre-wrap;overflow-wrap:anywhere}.sheet,figure{overflow:visible}th,td{padding:3px}"
    "table{font-size:9.5px}}\n"
    "footer{color:var(--soft);font-size:12px}\n";

static const char no_value[] = "\u2013"; /* a dash */

/* ---- start and end of the page -------------------------------------------------------------- */

int page_begin(struct page *p, const char *path, const char *title)
{
    *p = (struct page){.path = path};
    p->c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* decimal points in any locale of the user */
    if (p->c == (locale_t)0)
        return hw_no_memory("a locale");
    p->f = fopen(path, "we");
    if (!p->f) {
        const int rc = hw_fail(-errno, "report: creating %s: %s", path, strerror(errno));
        freelocale(p->c);
        return rc;
    }
    p->old = uselocale(p->c);
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          p->f);
    svg_escape(p->f, title, 120);
    fprintf(p->f, "</title>\n<style>\n%s", style);
    for (int i = 0; i < SVG_COLOURS; i++)
        fprintf(p->f, ".c%d{--c:var(--k%d)}", i, i);
    fputs("</style></head>\n<body><main>\n<h1>", p->f);
    svg_escape(p->f, title, 120);
    fputs("</h1>\n", p->f);
    return 0;
}

int page_end(struct page *p, int rc)
{
    fprintf(p->f, "<footer>Made by hawser %s. This file is self-contained.</footer>\n</main></body></html>\n",
            hawser_version());
    const bool bad = ferror(p->f) != 0;
    errno = 0;
    if ((fclose(p->f) != 0 || bad) && rc == 0)
        rc = hw_fail(-EIO, "report: writing %s failed: %s", p->path, strerror(errno ? errno : EIO));
    uselocale(p->old);
    freelocale(p->c);
    return rc;
}

/* ---- key figures ---------------------------------------------------------------------------- */

void page_cards(struct page *p)
{
    fputs("<section class=\"cards\" aria-label=\"Key figures\">\n", p->f);
}

void page_card(struct page *p, const char *what, const char *value, const char *unit, const char *class,
               const char *note)
{
    fprintf(p->f, "<dl class=\"card\"><dt>%s</dt><dd class=\"%s\">%s", what, class, value);
    if (*unit)
        fprintf(p->f, " <small>%s</small>", unit);
    fputs("</dd><dd class=\"n\"><p>", p->f);
    svg_escape(p->f, note, 120);
    fputs("</p></dd></dl>\n", p->f);
}

void page_cards_end(struct page *p)
{
    fputs("</section>\n", p->f);
}

void page_proved(struct page *p, const char *const *sentence)
{
    fputs("<section class=\"sheet\"><h2>What was shown</h2><ul class=\"proof\">", p->f);
    for (; *sentence; sentence++) {
        fputs("<li>", p->f);
        svg_escape(p->f, *sentence, 0);
        fputs("</li>", p->f);
    }
    fputs("</ul></section>\n", p->f);
}

/* ---- tables --------------------------------------------------------------------------------- */

void page_table(struct page *p, const char *heading, const char *class)
{
    fprintf(p->f, "<section class=\"sheet\"><h2>%s</h2>\n", heading);
    p->class = class;
}

void page_heads(struct page *p, const struct page_column *col, size_t n)
{
    p->col = col;
    p->n_col = n;
    fprintf(p->f, "<table class=\"%s\"><thead><tr>", p->class);
    for (size_t i = 0; i < n; i++)
        fprintf(p->f, "<th%s>%s</th>", col[i].text ? " class=\"t\"" : "", col[i].head);
    fputs("</tr></thead><tbody>\n", p->f);
}

void page_row(struct page *p)
{
    fputs("<tr>", p->f);
}

void page_row_end(struct page *p)
{
    fputs("</tr>\n", p->f);
}

void page_text(struct page *p, const char *text, const char *class)
{
    fprintf(p->f, "<td class=\"t %s\">", class);
    if (text && *text)
        svg_escape(p->f, text, 600);
    else
        fputs(no_value, p->f);
    fputs("</td>", p->f);
}

void page_number(struct page *p, double v, void (*fmt)(double v, char *buf, size_t cap), const char *class)
{
    char buf[64];
    if (!isnan(v))
        fmt(v, buf, sizeof buf);
    fprintf(p->f, *class ? "<td class=\"%s\">%s</td>" : "<td%s>%s</td>", class, isnan(v) ? no_value : buf);
}

void page_table_end(struct page *p, const char *note)
{
    fputs("</tbody></table>", p->f);
    if (note)
        fprintf(p->f, "<p class=\"note\">%s</p>", note);
    bool any = false;
    for (size_t i = 0; i < p->n_col; i++) {
        const struct page_column *c = &p->col[i];
        if (!c->help)
            continue;
        if (!any)
            fputs("<details open><summary>Explanation of the columns</summary><dl class=\"cols\">", p->f);
        any = true;
        fputs("<dt>", p->f);
        for (const char *at = c->head; *at; at++)
            if (strncmp(at, "-<br>", 5) == 0 || strncmp(at, "<br>", 4) == 0) {
                fputs(*at == '-' ? "" : " ", p->f);
                at += *at == '-' ? 4 : 3;
            } else {
                fputc(*at, p->f);
            }
        fprintf(p->f, "</dt><dd>%s</dd>", c->help);
    }
    fputs(any ? "</dl></details></section>\n" : "</section>\n", p->f);
}

/* ---- facts about the run -------------------------------------------------------------------- */

static void write_node_nics(struct page *p, const struct tp_facts *f)
{
    fputs("<td class=\"t\">", p->f);
    if (!f || f->n_nics == 0)
        fputs(no_value, p->f);
    for (uint32_t i = 0; f && i < f->n_nics; i++) {
        const struct tp_fact_nic *n = &f->nic[i];
        char addr[INET6_ADDRSTRLEN] = "";
        (void)inet_ntop(n->addr.family == 6 ? AF_INET6 : AF_INET, n->addr.byte, addr, sizeof addr);
        fputs(i ? "<br>" : "", p->f);
        svg_escape(p->f, n->nic, 0);
        fprintf(p->f, " %s/%u, MTU %u, ", addr, n->prefix, n->mtu);
        if (n->speed)
            fprintf(p->f, "%g Gbit/s", n->speed / 1e3);
        else
            fputs("rate unknown", p->f);
    }
    fputs("</td>", p->f);
}

static void write_pair(struct page *p, const char *what, const char *here, const char *there)
{
    page_row(p);
    page_text(p, what, "");
    page_text(p, here, "");
    if (there)
        page_text(p, there, "");
    page_row_end(p);
}

void page_run(struct page *p, const struct run *r)
{
    static const struct page_column heads[] = {
        {.head = "", .text = true}, {.head = "Here", .text = true}, {.head = "There", .text = true}};
    const bool two = *r->peer;
    char gpus[2][16];
    page_table(p, "The run", "run");
    fputs("<p class=\"note\">", p->f);
    svg_escape(p->f, r->date, 0);
    fputs("<br>", p->f);
    for (int i = 0; i < r->argc; i++) {
        fputs(i ? " " : "", p->f);
        svg_escape(p->f, i ? r->argv[i] : "hawser", 300);
    }
    fputs("</p>", p->f);
    page_heads(p, heads, two ? 3 : 2);
    const struct tp_facts *there = r->asked ? &r->there : NULL;
    write_pair(p, "Host", r->host, two ? r->peer : NULL);
    write_pair(p, "hawser", r->build, two ? (there ? there->hawser : "") : NULL);
    write_pair(p, "Kernel", r->own.kernel, two ? (there ? there->kernel : "") : NULL);
    snprintf(gpus[0], sizeof gpus[0], "%u", r->own.gpus);
    snprintf(gpus[1], sizeof gpus[1], "%u", there ? there->gpus : 0);
    write_pair(p, "GPUs", gpus[0], two ? (there ? gpus[1] : "") : NULL);
    page_row(p);
    page_text(p, "NICs", "");
    write_node_nics(p, &r->own);
    if (two)
        write_node_nics(p, there);
    page_row_end(p);
    page_table_end(p, NULL);
}

void page_said(struct page *p, const char *text)
{
    if (!text || !*text)
        return;
    fputs("<section class=\"sheet\"><h2>Terminal output</h2><pre class=\"said\">", p->f);
    for (const char *at = text;
         *at;) { /* write each line separately, because svg_escape() replaces control characters such as newlines */
        const size_t len = strcspn(at, "\n");
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)HW_MIN(len, sizeof line - 1), at);
        svg_escape(p->f, line, 0);
        fputc('\n', p->f);
        at += len + (at[len] != 0);
    }
    fputs("</pre></section>\n", p->f);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the HTML report: figures, findings, heat maps of all pairs, and a table of nodes. */
#include "tool/mesh/show/mesh_out.h"

#include "tool/mesh/show/mesh_heat.h"
#include "tool/page/page.h"
#include "tool/page/svg.h"
#include "tool/report/report_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NODES_SHOWN 1024 /* maximum rows of the table */

/* Radio buttons switch between the heat maps without a script. Without CSS, all maps are shown, one below the other. */
static const char own_style[] =
    ".pick{position:absolute;opacity:0}.picks label{display:inline-block;padding:3px 10px;margin:0 6px 6px "
    "0;border:1px solid "
    "var(--rule);border-radius:8px;font-size:13px;cursor:pointer;color:var(--soft)}.heat{display:none}\n"
    ".h0{fill:var(--k0);opacity:.22}.h1{fill:#e8c35a}.h2{fill:#e58a2f}.h3{fill:#c4302b}.h4{fill:var(--soft);opacity:."
    "55}"
    ".h5{fill:var(--card)}.key.h0,.key.h1,.key.h2,.key.h3,.key.h4{border-radius:3px}svg.key{width:26px;height:12px}\n"
    ".findings{margin:8px 0 0;padding-left:20px}.findings "
    "li{margin:3px 0;overflow-wrap:anywhere}"
    "svg text.bad{fill:var(--bad);font-weight:600}.scroll{overflow-x:auto}\n";

static int write_kind_card(struct page *p, const struct mesh *m, enum mesh_kind kind, bool nics, const char *what)
{
    struct mesh_figures s;
    char value[64], note[160], least[32], most[32];
    int rc = mesh_figures(m, kind, nics, &s);
    if (rc < 0 || !s.n)
        return rc;
    rep_text_num(s.median, value, sizeof value);
    rep_text_num(s.least, least, sizeof least);
    rep_text_num(s.most, most, sizeof most);
    snprintf(note, sizeof note, "median; from %s to %s", least, most);
    page_card(p, what, value, kind == MESH_K_LATENCY ? "us" : "GB/s", "", note);
    return 0;
}

static int write_cards(struct page *p, const struct mesh *m, const struct mesh_findings *found)
{
    static const struct {
        enum mesh_kind kind;
        bool nics;
        const char *what;
    } cards[] = {{MESH_K_WAY, false, "One way"},
                 {MESH_K_BOTH, false, "Each way, both busy"},
                 {MESH_K_RAIL, true, "One rail alone"},
                 {MESH_K_LATENCY, false, "8 bytes, one way"}};
    char value[64], note[160];
    uint32_t well = 0;
    int rc = 0;
    for (uint32_t i = 0; i < m->n; i++)
        well += m->node[i].state == MESH_WELL;
    page_cards(p);
    snprintf(value, sizeof value, "%zu", found->n);
    page_card(p, "Findings", value, "", found->n ? "bad" : "good",
              found->n ? "listed below" : "no node, NIC, rail or path stands out");
    snprintf(value, sizeof value, "%u of %u", well, m->n);
    snprintf(note, sizeof note, "%u of %u rounds", m->rounds, m->of_rounds);
    page_card(p, "Nodes measured", value, "", well == m->n ? "" : "bad", note);
    for (size_t i = 0; i < HW_ARRAY_LEN(cards) && rc == 0; i++)
        rc = write_kind_card(p, m, cards[i].kind, cards[i].nics, cards[i].what);
    if (m->bisection_GBps > 0) {
        rep_text_num(m->bisection_GBps, value, sizeof value);
        page_card(p, "Bisection", value, "GB/s", "", "between the two halves of the nodes, both ways");
    }
    if (m->all_GBps > 0) {
        rep_text_num(m->all_GBps, value, sizeof value);
        page_card(p, "All to all", value, "GB/s", "", "each node with up to 16 others at once, all nodes together");
    }
    rep_text_bytes((double)m->checked, value, sizeof value);
    page_card(p, "Checked", value, "", "", "compared with the data that was sent");
    page_cards_end(p);
    return rc;
}

static void write_findings(FILE *f, const struct mesh *m, const struct mesh_findings *found)
{
    char text[512];
    if (!found->n)
        return;
    fputs("<section class=\"sheet\"><h2>Findings</h2><ul class=\"findings\">\n", f);
    for (size_t i = 0; i < found->n; i++) {
        mesh_say(m, &found->f[i], text, sizeof text);
        fputs("<li>", f);
        svg_escape(f, text, 0);
        fputs(found->f[i].confirmed ? " (measured again, with the same result)</li>\n" : "</li>\n", f);
    }
    fputs("</ul></section>\n", f);
}

static const struct {
    enum mesh_kind kind;
    const char *what;
} kinds[] = {{MESH_K_WAY, "one way"}, {MESH_K_BOTH, "both ways"}, {MESH_K_LATENCY, "latency"}};
static const char *const orders[] = {
    [HEAT_BY_NAME] = "by name", [HEAT_BY_RACK] = "by rack", [HEAT_BY_RESULT] = "by result"};

static bool has_racks(const struct mesh *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->node[i].rack[0])
            return true;
    return false;
}

/* The heat maps of the report. */
struct offer {
    bool map[HW_ARRAY_LEN(kinds)][HEAT_ORDERS];
};

static int find_offer(const struct mesh *m, struct offer *out)
{
    const bool racks = has_racks(m);
    for (size_t k = 0; k < HW_ARRAY_LEN(kinds); k++) {
        struct mesh_figures s;
        int rc = mesh_figures(m, kinds[k].kind, false, &s);
        if (rc < 0)
            return rc;
        for (unsigned o = 0; o < HEAT_ORDERS; o++)
            out->map[k][o] = s.n && (o != HEAT_BY_RACK || racks);
    }
    return 0;
}

static void write_picks(FILE *f, const struct offer *offer)
{
    bool first = true;
    for (unsigned pass = 0; pass < 2; pass++) {
        if (pass)
            fputs("<p class=\"picks\">", f);
        for (size_t k = 0; k < HW_ARRAY_LEN(kinds); k++)
            for (unsigned o = 0; o < HEAT_ORDERS; o++) {
                if (!offer->map[k][o])
                    continue;
                if (pass)
                    fprintf(f, "<label for=\"p%zu%u\">%s, %s</label>", k, o, kinds[k].what, orders[o]);
                else
                    fprintf(f, "<input class=\"pick\" type=\"radio\" name=\"pick\" id=\"p%zu%u\"%s>\n", k, o,
                            first ? " checked" : "");
                first = false;
            }
    }
    fputs("</p>\n<style>", f);
    for (size_t k = 0; k < HW_ARRAY_LEN(kinds); k++)
        for (unsigned o = 0; o < HEAT_ORDERS; o++)
            fprintf(
                f,
                "#p%zu%u:checked~.scroll .m%zu%u{display:block}#p%zu%u:checked~.picks "
                "label[for=p%zu%u]{color:var(--ink);"
                "border-color:var(--ink)}#p%zu%u:focus-visible~.picks label[for=p%zu%u]{outline:2px solid var(--k0)}",
                k, o, k, o, k, o, k, o, k, o, k, o);
    fputs("</style>\n", f);
}

static int write_heat_maps(FILE *f, const struct mesh *m, const struct mesh_findings *found)
{
    static const char *const legend[] = {"at most 10 % worse than the median", "10 to 25 % worse", "25 to 50 % worse",
                                         "worse by more than half", "failed"};
    struct offer offer;
    int rc = find_offer(m, &offer);
    if (rc < 0)
        return rc;
    fputs(
        "<figure><h2>All pairs</h2><p class=\"note\">Rows are senders, and columns are receivers. The colour shows how "
        "a pair compares with the median of all pairs. A slow row means that the node sends slowly, a slow column "
        "that it receives slowly, and a single slow cell that one path is slow. For latencies, the three classes of "
        "worse pairs begin at 1.11, 1.33 and 2 times the median.</p>\n",
        f);
    write_picks(f, &offer);
    fputs("<div class=\"scroll\">\n", f);
    for (size_t k = 0; k < HW_ARRAY_LEN(kinds); k++)
        for (unsigned o = 0; o < HEAT_ORDERS && rc == 0; o++) {
            if (!offer.map[k][o])
                continue;
            fprintf(f, "<div class=\"heat m%zu%u\">", k, o);
            rc = mesh_heat(f, m, found, kinds[k].kind, o);
            fputs("</div>\n", f);
        }
    fputs("</div><ul class=\"legend\">", f);
    for (size_t i = 0; i < HW_ARRAY_LEN(legend); i++)
        fprintf(f,
                "<li><svg class=\"key\" viewBox=\"0 0 26 12\"><rect width=\"26\" height=\"12\" rx=\"2\" "
                "class=\"h%zu\"/></svg>%s</li>",
                i, legend[i]);
    fputs("</ul></figure>\n", f);
    return rc;
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

static void write_number(FILE *f, double v)
{
    char text[64];
    if (isnan(v))
        snprintf(text, sizeof text, "\u2013");
    else
        rep_text_num(v, text, sizeof text);
    fprintf(f, "<td>%s</td>", text);
}

static void write_node(FILE *f, const struct mesh *m, const struct heat_nodes *h, uint32_t i, bool racks)
{
    static const char *const states[] = {[MESH_WELL] = "well",
                                         [MESH_ABSENT] = "never arrived",
                                         [MESH_DIED] = "died",
                                         [MESH_SILENT] = "stopped answering"};
    const struct mesh_node *n = &m->node[i];
    uint64_t errors = 0;
    fputs("<tr><td class=\"t\">", f);
    svg_escape(f, n->name, 40);
    fputs("</td>", f);
    if (racks) {
        fputs("<td class=\"t\">", f);
        svg_escape(f, n->rack, 30);
        fputs("</td>", f);
    }
    fprintf(f, "<td class=\"t%s\">%s</td>", n->state == MESH_WELL ? "" : " bad", states[n->state]);
    write_number(f, h->sends[i]);
    write_number(f, h->receives[i]);
    write_number(f, h->latency[i]);
    fputs("<td class=\"t\">", f);
    for (uint32_t k = 0; k < n->n_nics; k++) {
        fputs(k ? ", " : "", f);
        svg_escape(f, n->nic[k].name, 0);
        if (n->nic[k].speed)
            fprintf(f, " %u", n->nic[k].speed);
        errors += n->nic[k].rx_errors + n->nic[k].tx_errors;
    }
    fprintf(f, "</td><td%s>%" PRIu64 "</td></tr>\n", errors ? " class=\"bad\"" : "", errors);
}

static void write_nodes(FILE *f, const struct mesh *m, const struct heat_nodes *h)
{
    const bool racks = has_racks(m);
    fprintf(f,
            "<section class=\"sheet\"><h2>Nodes</h2><p class=\"note\">Medians over all peers, slowest nodes first. "
            "Errors are those that drivers "
            "counted during the test.</p><table><thead><tr><th class=\"t\">Node</th>%s<th "
            "class=\"t\">State</th><th>Sends<br>GB/s</th>"
            "<th>Receives<br>GB/s</th><th>8 bytes<br>us</th><th class=\"t\">NICs "
            "(Mbit/s)</th><th>Errors</th></tr></thead><tbody>\n",
            racks ? "<th class=\"t\">Rack</th>" : "");
    for (uint32_t i = 0; i < m->n && i < NODES_SHOWN; i++)
        write_node(f, m, h, h->order[HEAT_BY_RESULT][i], racks);
    fputs("</tbody></table></section>\n", f);
}

static int write_page(struct page *p, const struct mesh *m, const struct mesh_findings *found)
{
    struct heat_nodes h;
    int rc = heat_nodes(m, &h);
    if (rc < 0)
        return rc;
    fprintf(p->f, "<style>%s</style>\n<p class=\"sub\">", own_style);
    svg_escape(p->f, m->date, 60);
    fputs(" \u00b7 ", p->f);
    svg_escape(p->f, m->what, 160);
    fprintf(p->f, " \u00b7 %.0f s \u00b7 GB is 10<sup>9</sup> bytes</p>\n", m->seconds);
    rc = write_cards(p, m, found);
    write_findings(p->f, m, found);
    if (rc == 0)
        rc = write_heat_maps(p->f, m, found);
    write_nodes(p->f, m, &h);
    heat_nodes_free(&h);
    return rc;
}

int mesh_html(const struct mesh *m, const struct mesh_findings *found, const char *path)
{
    struct page p;
    char title[40];
    snprintf(title, sizeof title, "hawser mesh: %u nodes", m->n);
    int rc = page_begin(&p, path, title);
    return rc < 0 ? rc : page_end(&p, write_page(&p, m, found));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the node: a box for each NUMA node with GPUs above and NICs below, and a line from each GPU to each of its
 * NICs. */
#include "tool/page/svg.h"
#include "tool/topo/topo.h"

#include <stdlib.h>
#include <string.h>

#define CELL_W 108.0
#define CELL_H 46.0
#define GAP    14.0
#define MARGIN 20.0
#define HEAD   58.0  /* height above the boxes */
#define LINES  110.0 /* distance between GPUs and NICs */

static const char style[] =
    "svg{font-family:system-ui,sans-serif;background:#fff;color:#1b1f24}text{fill:currentColor;text-anchor:middle}"
    ".t{font-size:16px;font-weight:600;text-anchor:start}.s{font-size:12px;text-anchor:start}.n{font-size:13px;"
    "font-weight:600}.d{font-size:10px;opacity:.75}.box{fill:#8882;stroke:#8886}.gpu{fill:#2a7d3c22;stroke:#2a7d3c}"
    ".nic{fill:#1f5fae22;stroke:#1f5fae}.off{opacity:.45;stroke-dasharray:4 3}.use{stroke:#1f5fae;stroke-width:2;"
    "fill:none}@media(prefers-color-scheme:dark){svg{background:#14181d;color:#e6e9ec}.use,.nic{stroke:#7ab0f0}"
    ".gpu{stroke:#73c888}}";

struct cell {
    double x; /* centre */
    int numa;
    bool placed; /* true if the cell is drawn */
};

struct drawing {
    const struct topo *t;
    FILE *f;
    struct cell *gpu, *nic;
    double bottom; /* y coordinate of the lower edge of the GPUs */
};

static void draw_topo_text(FILE *f, double x, double y, const char *class, const char *what, size_t max)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_escape(f, what, max);
    fputs("</text>\n", f);
}

static void draw_topo_cell(FILE *f, double x, double y, const char *class, const char *name, const char *detail,
                           const char *hover)
{
    fprintf(f, "<g class=\"%s\"><title>", strstr(class, "off") ? "off" : "on");
    svg_escape(f, hover, 0);
    fprintf(f, "</title><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" rx=\"6\"/>\n", class,
            x - CELL_W / 2, y, CELL_W, CELL_H);
    draw_topo_text(f, x, y + 20, "n", name, 13);
    draw_topo_text(f, x, y + 36, "d", detail, 20);
    fputs("</g>\n", f);
}

/* Places the GPUs and NICs of a NUMA node side by side, starting at x. Returns the width of the box, or 0 if the
 * node has neither. */
static double place_numa_cells(const struct drawing *d, int numa, double x)
{
    const struct hw_node *n = &d->t->node;
    size_t gpus = 0, nics = 0;
    for (size_t i = 0; i < n->n_gpu; i++)
        gpus += d->gpu[i].numa == numa;
    for (size_t i = 0; i < n->n_netdev; i++)
        nics += d->nic[i].placed && d->nic[i].numa == numa;
    size_t most = HW_MAX(gpus, nics);
    if (most == 0)
        return 0;
    double w = (double)most * (CELL_W + GAP) + GAP;
    double g = x + (w - (double)gpus * (CELL_W + GAP) + CELL_W + GAP) / 2;
    for (size_t i = 0; i < n->n_gpu; i++)
        if (d->gpu[i].numa == numa) {
            d->gpu[i].x = g;
            g += CELL_W + GAP;
        }
    g = x + (w - (double)nics * (CELL_W + GAP) + CELL_W + GAP) / 2;
    for (size_t i = 0; i < n->n_netdev; i++)
        if (d->nic[i].placed && d->nic[i].numa == numa) {
            d->nic[i].x = g;
            g += CELL_W + GAP;
        }
    return w;
}

static void draw_topo_gpus(const struct drawing *d)
{
    const struct hw_node *n = &d->t->node;
    for (size_t i = 0; i < n->n_gpu; i++) {
        const struct hw_gpu *g = &n->gpu[i];
        char name[32], at[HW_BDF_TEXT];
        const char *model = d->t->info && g->ordinal >= 0 ? d->t->info[g->ordinal].name
                            : g->pci >= 0                 ? hw_pci_vendor(n->pci[g->pci].vendor)
                                                          : "";
        draw_topo_cell(d->f, d->gpu[i].x, d->bottom - CELL_H, g->ordinal < 0 ? "gpu off" : "gpu",
                       topo_gpu_name(g, name, sizeof(name)), hw_bdf_text(g->at, at), model);
    }
}

static void draw_topo_nics(const struct drawing *d)
{
    const struct hw_node *n = &d->t->node;
    for (size_t i = 0; i < n->n_netdev; i++) {
        if (!d->nic[i].placed)
            continue;
        const struct hw_netdev *x = &n->netdev[i];
        const char *why = d->t->planned ? d->t->plan.why[i] : "no plan";
        char speed[32], hover[128];
        snprintf(hover, sizeof(hover), "%.60s%s%s", x->driver, why ? ": not used: " : "", why ? why : "");
        draw_topo_cell(d->f, d->nic[i].x, d->bottom + LINES, why ? "nic off" : "nic", x->name,
                       topo_speed(x->speed, speed, sizeof(speed)), hover);
    }
}

static void draw_plan_lines(const struct drawing *d)
{
    const struct hw_node *n = &d->t->node;
    for (size_t k = 0; k < d->t->plan.n_gpus; k++) {
        const struct hw_plan_gpu *g = &d->t->plan.gpu[k];
        for (size_t i = 0; i < g->n_nics; i++) {
            double x = d->gpu[g->gpu].x, to = d->nic[g->nic[i]].x, y = d->bottom + LINES;
            int a = n->gpu[g->gpu].pci, b = n->netdev[g->nic[i]].pci;
            fprintf(d->f, "<path class=\"use\" d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\"/>\n", x, d->bottom, x,
                    d->bottom + LINES / 2, to, y - LINES / 2, to, y);
            /* place the text beside the line at a quarter of its length, where lines to the same NIC are still apart */
            draw_topo_text(d->f, x + HW_MAX(to - x, 0.0) * 0.16 + 16, d->bottom + LINES * 0.25 + 12.0 * (double)i, "d",
                           a < 0 || b < 0 ? "" : hw_dist_name(hw_node_distance(n, a, b)), 0);
        }
    }
}

static int draw_topo_node(struct drawing *d)
{
    const struct hw_node *n = &d->t->node;
    double x = MARGIN, bottom = HEAD + 30 + CELL_H, h = 30 + CELL_H + LINES + CELL_H + GAP;
    d->bottom = bottom;
    char *boxes = NULL;
    size_t len;
    FILE *out = d->f,
         *f = open_memstream(
             &boxes,
             &len); /* the boxes are buffered, because the drawing's width precedes them but is known only afterwards */
    if (!f)
        return hw_no_memory("the drawing");
    for (size_t i = 0; i <= n->n_numa; i++) {
        int id = i < n->n_numa ? n->numa[i].id : -1;
        double w = place_numa_cells(d, id, x);
        if (w == 0)
            continue;
        char label[160];
        if (id < 0)
            snprintf(label, sizeof(label), "NUMA node unknown");
        else
            snprintf(label, sizeof(label), "NUMA node %d, CPUs %.100s", id, n->numa[i].cpus);
        fprintf(f, "<rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"8\"/>\n", x, HEAD, w,
                h);
        draw_topo_text(f, x + GAP, HEAD + 19, "s", label, (size_t)(w / 7));
        x += w + GAP;
    }
    if (fclose(f) != 0) {
        free(boxes);
        return hw_no_memory("the drawing");
    }
    double width = HW_MAX(x - GAP + MARGIN, 400.0), height = HEAD + h + MARGIN;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "role=\"img\" aria-label=\"GPUs, NICs, and which NICs serve which GPU\">\n<style>%s</style>\n",
            width, height, width, height, style);
    draw_topo_text(out, MARGIN, 28, "t",
                   n->machine[0] ? n->machine
                   : d->t->from  ? d->t->from
                                 : "this machine",
                   (size_t)(width / 9));
    draw_topo_text(out, MARGIN, 46, "s",
                   d->t->planned
                       ? "A line joins a GPU and a NIC that serves it. NICs with a dashed outline are not used."
                       : d->t->why,
                   (size_t)(width / 6));
    fwrite(boxes, 1, len, out);
    free(boxes);
    draw_plan_lines(d);
    draw_topo_gpus(d);
    draw_topo_nics(d);
    fputs("</svg>\n", out);
    return 0;
}

/* Returns the device's NUMA node if that node has a box, or -1 for the box of unknown nodes. */
static int find_numa_box(const struct hw_node *n, int pci)
{
    int id = hw_node_numa_of(n, pci);
    for (size_t i = 0; i < n->n_numa; i++)
        if (n->numa[i].id == id)
            return id;
    return -1;
}

int topo_svg(const struct topo *t, FILE *out)
{
    const struct hw_node *n = &t->node;
    HW_AUTO_FREE struct cell *gpu = calloc(n->n_gpu + 1, sizeof(*gpu));
    HW_AUTO_FREE struct cell *nic = calloc(n->n_netdev + 1, sizeof(*nic));
    struct drawing d = {.t = t, .f = out, .gpu = gpu, .nic = nic};
    if (!gpu || !nic)
        return hw_no_memory("the drawing");
    for (size_t i = 0; i < n->n_gpu; i++)
        gpu[i] = (struct cell){.numa = find_numa_box(n, n->gpu[i].pci), .placed = true};
    for (size_t i = 0; i < n->n_netdev; i++)
        nic[i] = (struct cell){.numa = find_numa_box(n, n->netdev[i].pci),
                               .placed = topo_on_pci(&n->netdev[i]) || (t->planned && !t->plan.why[i])};
    return draw_topo_node(&d);
}

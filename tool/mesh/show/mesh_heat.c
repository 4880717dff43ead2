/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/show/mesh_heat.h"

#include "tool/load/stats.h"
#include "tool/mesh/show/mesh_out.h"
#include "tool/page/svg.h"

#include <math.h>
#include <string.h>

#define CELLS 128 /* maximum cells per row */
#define NAMED 40  /* up to this number of nodes, all have labels; otherwise only nodes with findings */
#define HOVER 40  /* up to this number of nodes, all cells have tooltips; otherwise all cells but the good ones */
#define CHARS 14  /* maximum characters of a name */
#define WIDTH 640 /* maximum width of all cells together */
#define SIDE  48  /* maximum width of a cell */

/* ---- nodes ---------------------------------------------------------------------------------------- */

static double get_median(const struct mesh *m, enum mesh_kind kind, uint32_t node, bool sends, bool receives,
                         double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct mesh_sample *s = &m->sample[i];
        if (s->kind == kind && s->nic == MESH_ALL && s->value > 0 &&
            ((sends && s->from == node) || (receives && s->to == node)))
            room[n++] = s->value;
    }
    return n ? stats_median(room, n) : NAN;
}

struct keyed {
    const struct mesh_node *node;
    double result;
    uint32_t at;
    enum heat_order order;
};

static int by_key(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->order == HEAT_BY_RESULT && x->result != y->result)
        return x->result < y->result ? -1 : 1;
    int c = x->order == HEAT_BY_RACK ? strverscmp(x->node->rack, y->node->rack) : 0;
    if (c == 0)
        c = strverscmp(x->node->name, y->node->name);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}

static int sort_nodes(const struct mesh *m, struct heat_nodes *h)
{
    HW_AUTO_FREE struct keyed *k = calloc(m->n + 1, sizeof *k);
    if (!k)
        return hw_no_memory("%u nodes", m->n);
    for (enum heat_order o = 0; o < HEAT_ORDERS; o++) {
        for (uint32_t i = 0; i < m->n; i++) {
            double worst = fmin(h->sends[i], h->receives[i]); /* fmin() of a number and NAN returns the number */
            k[i] = (struct keyed){&m->node[i], isnan(worst) ? 0 : worst, i, o};
        }
        qsort(k, m->n, sizeof *k, by_key);
        for (uint32_t i = 0; i < m->n; i++)
            h->order[o][i] = k[i].at;
    }
    return 0;
}

int heat_nodes(const struct mesh *m, struct heat_nodes *h)
{
    HW_AUTO_FREE double *room = calloc(m->n_samples + 1, sizeof *room);
    *h = (struct heat_nodes){
        calloc(m->n + 1, sizeof(double)), calloc(m->n + 1, sizeof(double)), calloc(m->n + 1, sizeof(double)), {NULL}};
    bool full = room && h->sends && h->receives && h->latency;
    for (unsigned o = 0; o < HEAT_ORDERS; o++) {
        h->order[o] = calloc(m->n + 1, sizeof *h->order[o]);
        full = full && h->order[o];
    }
    if (!full) {
        heat_nodes_free(h);
        return hw_no_memory("%u nodes", m->n);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        h->sends[i] = get_median(m, MESH_K_WAY, i, true, false, room);
        h->receives[i] = get_median(m, MESH_K_WAY, i, false, true, room);
        h->latency[i] = get_median(m, MESH_K_LATENCY, i, true, false, room);
    }
    int rc = sort_nodes(m, h);
    if (rc < 0)
        heat_nodes_free(h);
    return rc;
}

void heat_nodes_free(struct heat_nodes *h)
{
    free(h->sends);
    free(h->receives);
    free(h->latency);
    for (unsigned o = 0; o < HEAT_ORDERS; o++)
        free(h->order[o]);
    *h = (struct heat_nodes){0};
}

/* ---- cells ---------------------------------------------------------------------------------------- */

enum { GOOD, POOR, BAD, WORST, FAILED, NOTHING };

struct cell {
    uint8_t class;
    uint16_t from, to;
    float value;
};

struct heat {
    FILE *f;
    const struct mesh *m;
    enum mesh_kind kind;
    double median;
    uint32_t n, per; /* cells in a row; nodes per cell */
    int label;       /* width and height of the area for names */
    uint32_t *place; /* position of each node */
    const uint32_t *order;
    struct cell *cell;
    bool *named;
};

static uint8_t get_class(const struct heat *h, double value)
{
    double ratio = h->kind == MESH_K_LATENCY ? h->median / value : value / h->median;
    return ratio >= 0.9 ? GOOD : ratio >= 0.75 ? POOR : ratio >= 0.5 ? BAD : WORST;
}

static void put_cell(struct heat *h, uint32_t from, uint32_t to, uint8_t class, double value)
{
    struct cell *c = &h->cell[(size_t)(h->place[from] / h->per) * h->n + h->place[to] / h->per];
    if (c->class == NOTHING || class > c->class)
        *c = (struct cell){class, (uint16_t)from, (uint16_t)to, (float)value};
}

static void fill_cells(struct heat *h)
{
    const struct mesh *m = h->m;
    for (size_t i = 0; i < (size_t)h->n * h->n; i++)
        h->cell[i].class = NOTHING;
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct mesh_sample *s = &m->sample[i];
        if (s->kind == h->kind && s->nic == MESH_ALL && s->value > 0)
            put_cell(h, s->from, s->to, get_class(h, s->value), s->value);
    }
    for (size_t i = 0; i < m->n_faults; i++)
        if (!m->fault[i].bad) {
            put_cell(h, m->fault[i].from, m->fault[i].to, FAILED, 0);
            put_cell(h, m->fault[i].to, m->fault[i].from, FAILED, 0);
        }
}

static void write_cell(const struct heat *h, uint32_t row, uint32_t column, double side)
{
    const struct cell *c = &h->cell[(size_t)row * h->n + column];
    const double gap = side > 6 ? 1 : 0;
    if (c->class == NOTHING)
        return;
    fprintf(h->f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"h%u\"", h->label + column * side,
            h->label + row * side, side - gap, side - gap, c->class);
    if (h->m->n > HOVER && c->class == GOOD) {
        fputs("/>", h->f);
        return;
    }
    fputs("><title>", h->f);
    svg_escape(h->f, h->m->node[c->from].name, 0);
    fputs(" to ", h->f);
    svg_escape(h->f, h->m->node[c->to].name, 0);
    if (c->class == FAILED)
        fputs(": failed", h->f);
    else
        fprintf(h->f, ": %.4g %s, %.0f %% of the median", (double)c->value, h->kind == MESH_K_LATENCY ? "us" : "GB/s",
                100 * (double)c->value / h->median);
    fputs("</title></rect>", h->f);
}

/* Writes the label of a row, and of the column of the same nodes. With more than NAMED nodes, only rows with a node
 * that a finding names have a label: the name of this node. */
static void write_label(const struct heat *h, uint32_t row, double side)
{
    const uint32_t first = row * h->per;
    uint32_t node = h->order[first];
    bool named = false;
    for (uint32_t i = first; i < HW_MIN(first + h->per, h->m->n) && !named; i++)
        if (h->named[h->order[i]]) {
            node = h->order[i];
            named = true;
        }
    if (h->m->n > NAMED && !named)
        return;
    const double at = h->label + (row + 0.5) * side;
    const char *class = named ? " bad" : "";
    fprintf(h->f, "<text class=\"end%s\" x=\"%d\" y=\"%.1f\">", class, h->label - 6, at + 4);
    svg_escape(h->f, h->m->node[node].name, CHARS);
    fprintf(h->f, "</text><text class=\"%s\" transform=\"translate(%.1f %d) rotate(-60)\">", class, at + 3,
            h->label - 6);
    svg_escape(h->f, h->m->node[node].name, CHARS);
    fputs("</text>\n", h->f);
}

/* Returns the space for the longest label, in pixels. */
static int measure_label(const struct mesh *m)
{
    size_t longest = 1;
    for (uint32_t i = 0; i < m->n; i++)
        longest = HW_MAX(longest, strlen(m->node[i].name));
    return 12 + 7 * (int)HW_MIN(longest, (size_t)CHARS);
}

static void draw(const struct heat *h)
{
    const double side = HW_MIN((double)WIDTH / h->n, (double)SIDE);
    const int cells = (int)(side * h->n + 0.5), width = cells + h->label + h->label / 2 + 5;
    fprintf(h->f,
            "<svg viewBox=\"0 0 %d %d\" style=\"min-width:%dpx;max-width:%dpx\" role=\"img\" aria-label=\"%s of each "
            "pair\">\n",
            width, cells + h->label + 4, width * 3 / 4, width, mesh_kind_name(h->kind));
    for (uint32_t row = 0; row < h->n; row++) {
        write_label(h, row, side);
        for (uint32_t column = 0; column < h->n; column++)
            write_cell(h, row, column, side);
        fputc('\n', h->f);
    }
    fputs("</svg>", h->f);
}

int mesh_heat(FILE *f, const struct mesh *m, const struct mesh_findings *found, enum mesh_kind kind,
              enum heat_order order)
{
    struct heat_nodes nodes;
    struct mesh_figures figures = {0};
    int rc = heat_nodes(m, &nodes);
    if (rc == 0)
        rc = mesh_figures(m, kind, false, &figures);
    if (rc < 0 || !figures.n) {
        heat_nodes_free(&nodes);
        return rc;
    }
    struct heat h = {.f = f,
                     .m = m,
                     .kind = kind,
                     .median = figures.median,
                     .per = 1 + m->n / (CELLS + 1),
                     .label = measure_label(m),
                     .order = nodes.order[order]};
    h.n = (m->n + h.per - 1) / h.per;
    h.place = calloc(m->n + 1, sizeof *h.place);
    h.named = calloc(m->n + 1, sizeof *h.named);
    h.cell = calloc((size_t)h.n * h.n + 1, sizeof *h.cell);
    if (h.place && h.named && h.cell) {
        for (uint32_t i = 0; i < m->n; i++)
            h.place[h.order[i]] = i;
        for (size_t i = 0; i < found->n; i++)
            if (found->f[i].node >= 0 && found->f[i].what != MESH_F_RAIL)
                h.named[found->f[i].node] = true;
        fill_cells(&h);
        draw(&h);
    } else
        rc = hw_no_memory("a heat map of %u nodes", m->n);
    free(h.place);
    free(h.named);
    free(h.cell);
    heat_nodes_free(&nodes);
    return rc;
}

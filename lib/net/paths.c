/* SPDX-License-Identifier: Apache-2.0 */
#include "net/paths.h"
#include "net/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weights, strongest first: the number of pairs, how the address is reached, the address that the user dialled, equal
 * names, and similar positions in the two lists. */
#define W_PAIR    (1u << 20)
#define W_LINK    4000u
#define W_GATEWAY 1000u
#define W_NATURAL 4000u
#define W_DIALLED 950u
#define W_NAME    900u
#define W_ORDER   100u

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Returns the k-th name of a comma-separated list and its length in *len, or NULL after the last name. */
static const char *nth_name(const char *list, unsigned k, size_t *len)
{
    for (const char *p = list; p && *p;) {
        *len = strcspn(p, ",");
        if (k-- == 0)
            return p;
        p += *len + (p[*len] == ',');
    }
    return NULL;
}

static bool is_named(const struct hw_path_end *e, const char *name, size_t len)
{
    return strlen(e->name) == len && memcmp(e->name, name, len) == 0;
}

static bool in_list(const char *list, const struct hw_path_end *e)
{
    return !list || !*list || hw_nic_listed(list, e->name);
}

int hw_paths_check_names(const char *list, const char *whose, const struct hw_path_end *e, unsigned n)
{
    size_t len;
    const char *name;
    for (unsigned k = 0; (name = nth_name(list, k, &len)); k++) {
        bool found = false;
        char have[200] = "";
        for (unsigned i = 0; i < n; i++) {
            size_t at = strlen(have);
            found |= is_named(&e[i], name, len);
            if (i == 0 || strcmp(e[i].name, e[i - 1].name) != 0)
                snprintf(have + at, sizeof(have) - at, "%s%s", at ? ", " : "", e[i].name);
        }
        if (!found)
            return hw_fail(-ENODEV, "%s has no usable NIC \"%.*s\"; its usable NICs: %s", whose, (int)len, name,
                           *have ? have : "none");
    }
    return 0;
}

/* ---- routes ------------------------------------------------------------------------------------------------------ */

static unsigned get_path_way(const struct hw_paths_in *in, unsigned i, unsigned j)
{
    if (in->mine[i].addr.sa.sa_family != in->theirs[j].addr.sa.sa_family)
        return HW_WAY_NEVER;
    return in->way[(size_t)i * in->n_theirs + j];
}

static bool leads_there(const struct hw_paths_in *in, unsigned i, unsigned j)
{
    unsigned way = get_path_way(in, i, j);
    return way != HW_WAY_NONE && way != HW_WAY_NEVER;
}

/* ---- units that can be used only once ---------------------------------------------------------------------------- */

static bool same_unit(const struct hw_path_end *a, const struct hw_path_end *b)
{
    return strcmp(a->name, b->name) == 0 || (a->device && a->device == b->device);
}

/*
 * Numbers the units that have a usable route. Interfaces without a route to the peer (lo, a machine's internal bridge)
 * are not numbered, because they would shift the numbers of all others relative to the peer's list.
 */
static struct hw_path_unit *list_units(const struct hw_paths_in *in, bool ours)
{
    const struct hw_path_end *e = ours ? in->mine : in->theirs;
    unsigned n = ours ? in->n_mine : in->n_theirs, others = ours ? in->n_theirs : in->n_mine;
    struct hw_path_unit *u = calloc((size_t)n + 1, sizeof(*u));
    uint16_t units = 0;
    for (uint16_t i = 0; u && i < n; i++) {
        uint16_t k = 0;
        while (!same_unit(&e[k], &e[i]))
            k++;
        u[i].first = k < i ? u[k].first : i;
        for (unsigned o = 0; o < others; o++)
            u[u[i].first].leads |= leads_there(in, ours ? i : o, ours ? o : i);
    }
    for (uint16_t i = 0; u && i < n; i++)
        u[i].place = u[i].first < i ? u[u[i].first].place : u[i].leads ? units++ : 0;
    return u;
}

/* ---- candidates ------------------------------------------------------------------------------------------------- */

static bool is_allowed(const struct hw_paths_in *in, unsigned i, unsigned j)
{
    return in_list(in->nics, &in->mine[i]) && in_list(in->peer_nics, &in->theirs[j]) &&
           (!in->only_dialled || (int)j == in->dialled) &&
           (!in->rails || !*in->rails || hw_rails_join(in->rails, &in->mine[i], &in->theirs[j]));
}

static uint32_t weigh_path(const struct hw_paths_in *in, const struct hw_paths *p, unsigned i, unsigned j)
{
    unsigned way = get_path_way(in, i, j), a = p->mine[i].place, b = p->theirs[j].place;
    uint32_t w = (way & ~HW_WAY_NATURAL) == HW_WAY_LINK ? W_LINK : W_GATEWAY;
    w += way & HW_WAY_NATURAL ? W_NATURAL : 0;
    w += (int)j == in->dialled ? W_DIALLED : 0;
    w += strcmp(in->mine[i].name, in->theirs[j].name) == 0 ? W_NAME : 0;
    return w + W_ORDER - HW_MIN(a > b ? a - b : b - a, W_ORDER);
}

/* Sorts by descending weight, then by the order of the two lists. */
static int by_weight(const void *a, const void *b)
{
    const struct hw_path *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->mine != y->mine ? (int)x->mine - (int)y->mine : (int)x->theirs - (int)y->theirs;
}

/* Adds the best pair of addresses of the two NICs, except pairs that must not be dialled. Returns -1 if no such pair
 * exists.
 */
static int add_named_path(const struct hw_paths_in *in, struct hw_paths *out, const char *mine, size_t n_mine,
                          const char *theirs, size_t n_theirs)
{
    struct hw_path best = {0};
    bool found = false;
    for (unsigned i = 0; i < in->n_mine; i++)
        for (unsigned j = 0; j < in->n_theirs; j++) {
            if (!is_named(&in->mine[i], mine, n_mine) || !is_named(&in->theirs[j], theirs, n_theirs) ||
                get_path_way(in, i, j) == HW_WAY_NEVER)
                continue;
            /* a pair that the user named is tried even if the kernel has no route */
            uint32_t w = leads_there(in, i, j) ? weigh_path(in, out, i, j) : 1;
            if (w > best.weight)
                best = (struct hw_path){.mine = (uint16_t)i, .theirs = (uint16_t)j, .weight = w};
            found = true;
        }
    if (found)
        out->list[out->n++] = best;
    return found ? 0 : -1;
}

static int add_pairs(const struct hw_paths_in *in, struct hw_paths *out)
{
    size_t na = 0, nb = 0;
    for (unsigned k = 0;; k++) {
        const char *a = nth_name(in->nics, k, &na), *b = nth_name(in->peer_nics, k, &nb);
        if (!a && !b)
            return 0;
        if (!a || !b)
            return hw_fail(-ENODEV,
                           "NICs are paired in order, but one list is longer: there is no NIC to pair with %.*s of %s",
                           (int)(a ? na : nb), a ? a : b, a ? "this machine" : "the peer");
        if (add_named_path(in, out, a, na, b, nb))
            return hw_fail(
                -ENODEV,
                "%.*s of this machine cannot be paired with %.*s of the peer: the peer's NIC has only addresses "
                "that are of another family, belong to this machine, need a job key, or cannot be reached from this "
                "NIC",
                (int)na, a, (int)nb, b);
    }
}

int hw_paths_find(const struct hw_paths_in *in, struct hw_paths *out)
{
    *out = (struct hw_paths){0};
    int rc = hw_paths_check_names(in->nics, "this machine", in->mine, in->n_mine);
    if (rc == 0)
        rc = hw_paths_check_names(in->peer_nics, "the peer", in->theirs, in->n_theirs);
    if (rc == 0 && in->rails)
        rc = hw_rails_check(in->rails);
    if (rc)
        return rc;
    /* the user may name more pairs than there are candidates, because a pair may be named twice */
    size_t most = (size_t)in->n_mine * in->n_theirs, named = in->nics ? strlen(in->nics) / 2 + 1 : 0;
    out->list = calloc(HW_MAX(most, named) + 1, sizeof(*out->list));
    out->mine = list_units(in, true);
    out->theirs = list_units(in, false);
    if (!out->list || !out->mine || !out->theirs) {
        hw_paths_free(out);
        return hw_no_memory("the paths to a peer");
    }
    out->exact = in->nics && *in->nics && in->peer_nics && *in->peer_nics;
    if (out->exact) {
        rc = add_pairs(in, out);
        if (rc)
            hw_paths_free(out);
        return rc;
    }
    for (unsigned i = 0; i < in->n_mine; i++)
        for (unsigned j = 0; j < in->n_theirs; j++)
            if (leads_there(in, i, j) && is_allowed(in, i, j))
                out->list[out->n++] =
                    (struct hw_path){.mine = (uint16_t)i, .theirs = (uint16_t)j, .weight = weigh_path(in, out, i, j)};
    qsort(out->list, out->n, sizeof(*out->list), by_weight);
    return 0;
}

void hw_paths_free(struct hw_paths *p)
{
    free(p->list);
    free(p->mine);
    free(p->theirs);
    *p = (struct hw_paths){0};
}

/* ---- the best assignment ---------------------------------------------------------------------------------------- */

/*
 * Assigns rows to columns by the Hungarian method with potentials (Kuhn 1955, Munkres 1957). There is an additional
 * column with weight 0 for each row. A row that is assigned to a column with weight 0 is unused. Indices start at 1;
 * column 0 holds the row that is being assigned.
 */
struct match {
    unsigned rows, columns; /* columns includes the additional columns */
    int32_t *cost;          /* rows x columns: the negated weights */
    int64_t *u, *v, *least;
    unsigned *row, *from; /* indexed by column */
    bool *done;
};

static int32_t cost_at(const struct match *m, unsigned i, unsigned j)
{
    return m->cost[(size_t)(i - 1) * m->columns + (j - 1)];
}

static void place_row(struct match *m, unsigned i)
{
    unsigned j0 = 0;
    m->row[0] = i;
    for (unsigned j = 0; j <= m->columns; j++) {
        m->least[j] = INT64_MAX;
        m->done[j] = false;
    }
    do {
        unsigned i0 = m->row[j0], next = 0;
        int64_t delta = INT64_MAX;
        m->done[j0] = true;
        for (unsigned j = 1; j <= m->columns; j++) {
            if (m->done[j])
                continue;
            int64_t c = cost_at(m, i0, j) - m->u[i0] - m->v[j];
            if (c < m->least[j]) {
                m->least[j] = c;
                m->from[j] = j0;
            }
            if (m->least[j] < delta) {
                delta = m->least[j];
                next = j;
            }
        }
        for (unsigned j = 0; j <= m->columns; j++) {
            if (m->done[j]) {
                m->u[m->row[j]] += delta;
                m->v[j] -= delta;
            } else {
                m->least[j] -= delta;
            }
        }
        j0 = next;
    } while (m->row[j0] != 0);
    while (j0) {
        m->row[j0] = m->row[m->from[j0]];
        j0 = m->from[j0];
    }
}

static void free_match(struct match *m)
{
    free(m->cost);
    free(m->u);
    free(m->v);
    free(m->least);
    free(m->row);
    free(m->from);
    free(m->done);
}

static int new_match(struct match *m, unsigned rows, unsigned columns)
{
    *m = (struct match){.rows = rows, .columns = columns + rows};
    m->cost = calloc((size_t)rows * m->columns + 1, sizeof(*m->cost));
    m->u = calloc(rows + 1, sizeof(*m->u));
    m->v = calloc(m->columns + 1, sizeof(*m->v));
    m->least = calloc(m->columns + 1, sizeof(*m->least));
    m->row = calloc(m->columns + 1, sizeof(*m->row));
    m->from = calloc(m->columns + 1, sizeof(*m->from));
    m->done = calloc(m->columns + 1, sizeof(*m->done));
    if (m->cost && m->u && m->v && m->least && m->row && m->from && m->done)
        return 0;
    free_match(m);
    return hw_no_memory("the pairs of NICs");
}

/* Returns true if the user has chosen the local NICs, the rails, or the only address to dial. */
static bool has_chosen(const struct hw_paths_in *in)
{
    return (in->nics && *in->nics) || (in->rails && *in->rails) || in->only_dialled;
}

/* Computes the best assignment. If `overlays` is true, also considers NICs without underlying hardware, with equal
 * weight. */
static int assign_nics(const struct hw_paths_in *in, const struct hw_paths *p, const bool *out, bool overlays,
                       bool *pick)
{
    struct match m;
    int n = 0;
    if (new_match(&m, in->n_mine, in->n_theirs))
        return -ENOMEM;
    memset(pick, 0, p->n * sizeof(*pick));
    for (unsigned k = 0; k < p->n; k++) {
        const struct hw_path *c = &p->list[k];
        size_t at = (size_t)p->mine[c->mine].first * m.columns + p->theirs[c->theirs].first;
        int32_t cost = -(int32_t)(W_PAIR + c->weight);
        if ((!out || !out[k]) && (overlays || in->mine[c->mine].device) && cost < m.cost[at])
            m.cost[at] = cost;
    }
    for (unsigned i = 1; i <= m.rows; i++)
        place_row(&m, i);
    for (unsigned j = 1; j <= in->n_theirs; j++) {
        unsigned i = m.row[j];
        if (!i || cost_at(&m, i, j) == 0)
            continue;
        for (unsigned k = 0; k < p->n; k++) { /* the first candidate of this weight */
            const struct hw_path *c = &p->list[k];
            if ((out && out[k]) || p->mine[c->mine].first != i - 1 || p->theirs[c->theirs].first != j - 1 ||
                -(int32_t)(W_PAIR + c->weight) != cost_at(&m, i, j))
                continue;
            pick[k] = true;
            n++;
            break;
        }
    }
    free_match(&m);
    return n;
}

int hw_paths_assign(const struct hw_paths_in *in, const struct hw_paths *p, const bool *out, bool *pick)
{
    int n = 0;
    if (p->exact) {
        for (unsigned k = 0; k < p->n; k++)
            n += pick[k] = !out || !out[k];
        return n;
    }
    /* An overlay runs over other NICs and adds no bandwidth, so it is used only if nothing else leads to the peer or
     * has_chosen() is true. */
    n = assign_nics(in, p, out, has_chosen(in), pick);
    return n ? n : assign_nics(in, p, out, true, pick);
}

int hw_paths_possible(const struct hw_paths_in *in, const struct hw_paths *p)
{
    bool *pick = calloc(p->n + 1, sizeof(*pick));
    int n = pick ? hw_paths_assign(in, p, NULL, pick) : hw_no_memory("the pairs of NICs");
    free(pick);
    return n;
}

const char *hw_paths_why(const struct hw_paths_in *in, const struct hw_paths *p, bool ours, unsigned i)
{
    bool any_way = false, any_allowed = false;
    const struct hw_path_end *e = ours ? &in->mine[i] : &in->theirs[i];
    for (unsigned k = 0; k < p->n; k++)
        if (strcmp(ours ? in->mine[p->list[k].mine].name : in->theirs[p->list[k].theirs].name, e->name) == 0)
            return NULL;
    if (!in_list(ours ? in->nics : in->peer_nics, e))
        return "not in the given list of NICs";
    for (unsigned k = 0; k < (ours ? in->n_theirs : in->n_mine); k++) {
        any_way |= leads_there(in, ours ? i : k, ours ? k : i);
        any_allowed |= is_allowed(in, ours ? i : k, ours ? k : i);
    }
    if (!any_allowed)
        return in->only_dialled && !ours ? "connections are limited to the given address"
                                         : "on no rail with an allowed NIC of the other side";
    if (in->only_dialled && ours)
        return "no route from it to the given address";
    return any_way ? "the NICs that reach it are not in the given list of NICs, or are on other rails"
           : ours  ? "no route from it to a NIC of the peer"
                   : "no NIC of this machine has a route to it";
}

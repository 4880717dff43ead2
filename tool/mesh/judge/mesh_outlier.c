/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the outliers of a series into findings, unless a repeated measurement refutes them. */
#include "tool/mesh/judge/mesh_series.h"

#include <math.h>
#include <string.h>

#define RAIL_LEAST 0.2
#define SOME       3   /* minimum number of slow paths for which a NIC is reported */
#define CONFIRMS   0.7 /* fraction of the limit that a repeated measurement must still exceed */
#define PARTNERS   7   /* maximum number of nodes with which an outlier is measured again */
#define SETTLES    8  /* minimum number of repeated results that settle a finding; at most one in SETTLES may be fast */
#define SUSPECTS   16 /* maximum suspects that one function lists, divided by the number of nodes */

static double get_ratio(const struct series *s, double effect)
{
    return exp(s->kind == MESH_K_LATENCY ? -effect : effect);
}

/* ---- repeated measurements ----------------------------------------------------------------------- */

static bool is_about(const struct mesh_finding *f, const struct mesh_sample *s)
{
    bool out = (int)s->from == f->node && (f->nic < 0 || (int)s->nic == f->nic);
    bool in = (int)s->to == f->node && (f->nic < 0 || (int)s->to_nic == f->nic);
    return f->what == MESH_F_SENDS ? out : f->what == MESH_F_RECEIVES ? in : out || in;
}

/* If the sample is of kind s->proof and concerns f, stores the logarithm of its ratio to the usual value in room.
 * Returns the number of values stored. */
static size_t collect(struct series *s, const struct mesh_sample *sample, const struct mesh_finding *f, double *room)
{
    int g = series_is_proof(s, sample) && is_about(f, sample) ? series_group(s, sample) : -1;
    if (g < 0)
        return 0;
    *room = series_log(s->kind, sample->value) - s->group[g].usual;
    return 1;
}

/* Stores the median of the best repeated measurements that concern f in *middle. Returns their number. */
static size_t find_retried(struct series *s, const struct mesh_finding *f, double *middle)
{
    size_t n = 0;
    for (size_t i = 0; i <= s->mask; i++)
        if (s->retry[i].key)
            n += collect(s, &s->retry[i].best, f, s->room + n);
    *middle = n ? series_median(s->room, n) : NAN;
    return n;
}

/* Returns true if the repeated measurements of a node or NIC confirm f, or if there are none. A confirmed f gets its
 * ratio from all samples together. Sets *settled if no further measurement is needed. */
static bool is_confirmed(struct series *s, struct mesh_finding *f, bool *settled)
{
    const struct mesh *m = s->m;
    double middle;
    size_t n = find_retried(s, f, &middle);
    *settled = n >= SETTLES && !s->noisy && s->kind != MESH_K_LATENCY &&
               series_select(s->room, n, n - 1 - n / SETTLES) < f->limit;
    if (n == 0)
        return true;
    f->confirmed = middle < CONFIRMS * f->limit;
    if (!f->confirmed)
        return false;
    n = 0; /* use all samples, because the best ones alone would overestimate the ratio */
    for (size_t i = 0; i < m->n_again; i++)
        n += collect(s, &m->again[i], f, s->room + n);
    for (size_t i = 0; i < m->n_samples; i++)
        n += collect(s, &m->sample[i], f, s->room + n);
    f->ratio = get_ratio(s, series_median(s->room, n));
    return true;
}

/* Returns true if the repeated measurement of a path confirms that the path is slow, or if the path was not measured
 * again. *again receives whether the path was measured again. */
static bool is_path_confirmed(const struct series *s, const struct point *p, bool *again)
{
    const struct mesh_sample of = {
        .from = (uint16_t)(p->port[SENDS] / SERIES_PORTS),
        .to = (uint16_t)(p->port[RECEIVES] / SERIES_PORTS),
        .nic = s->nics ? (uint8_t)(p->port[SENDS] % SERIES_PORTS) : MESH_ALL,
        .to_nic = s->nics ? (uint8_t)(p->port[RECEIVES] % SERIES_PORTS) : MESH_ALL,
    };
    const struct retry *r = series_retry(s, series_key(&of));
    *again = r->key != 0;
    /* if the proof is of the same kind, subtract the contributions of the path's two NICs */
    const double apart = s->proof == s->kind ? p->rest - series_rest(s, p) : 0;
    return !*again || r->y - s->group[p->group].usual - apart < CONFIRMS * s->path_limit;
}

/* Requests repeated measurements of a node's or NIC's pairs with several other nodes. */
static int suspect_node(const struct series *s, const struct mesh_finding *f, struct mesh_findings *out)
{
    int rc = 0;
    const uint32_t n = s->m->n, node = (uint32_t)f->node;
    for (uint32_t k = 1, with = 0; k < n && with < PARTNERS && rc == 0; k++) {
        uint32_t other = (node + k) % n;
        if (!mesh_is_in(s->m, other))
            continue;
        rc = k % 2 ? mesh_suspect(out, s->proof, node, other) : mesh_suspect(out, s->proof, other, node);
        with++;
    }
    return rc;
}

/* Requests repeated measurements of the pairs of a series, at most SUSPECTS times the number of nodes. */
static int suspect_all(const struct series *s, struct mesh_findings *out)
{
    const size_t most = out->n_suspects + (size_t)SUSPECTS * s->m->n;
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0 && out->n_suspects < most; i++)
        rc = mesh_suspect(out, s->kind, s->p[i].port[SENDS] / SERIES_PORTS, s->p[i].port[RECEIVES] / SERIES_PORTS);
    return rc;
}

static int add_suspicion(struct series *s, struct mesh_finding *f, struct mesh_findings *out)
{
    bool settled;
    f->kind = s->kind;
    if (!is_confirmed(s, f, &settled))
        return 0;
    int rc = mesh_find(out, f);
    if (rc == 0 && !settled)
        rc = suspect_node(s, f, out);
    /* repeated measurements of the other pairs give the usual latency under the current load */
    return rc < 0 || s->kind != MESH_K_LATENCY ? rc : suspect_all(s, out);
}

/* ---- findings -------------------------------------------------------------------------------------- */

/* Returns true if all NICs of a node with several NICs are slow: at least one is in `named`, and the others deviate by
 * at least half of the limit for a NIC. Stores the effect of the best NIC in *effect. */
static bool is_whole_node(const struct series *s, uint32_t node, double *effect)
{
    unsigned there = 0, named = 0;
    *effect = -INFINITY;
    for (uint8_t nic = 0; nic < TP_MAX_NICS; nic++) {
        uint32_t port = series_port(node, nic);
        if (isnan(s->effect[SENDS][port]) && isnan(s->effect[RECEIVES][port]))
            continue;
        there++;
        named += s->named[SENDS][port] || s->named[RECEIVES][port];
        *effect = fmax(*effect, fmin(s->effect[SENDS][port], s->effect[RECEIVES][port]));
    }
    return there > 1 && named > 0 && *effect < s->port_limit / 2;
}

/* Adds the other direction of a NIC to `named` if one direction is in `named`, and if at least two repeated
 * measurements of the other direction have a slow median. */
static void name_other_way(struct series *s, uint32_t node, uint8_t nic)
{
    const uint32_t port = series_port(node, nic);
    const unsigned other = s->named[SENDS][port] ? RECEIVES : SENDS;
    const struct mesh_finding f = {
        .what = other == SENDS ? MESH_F_SENDS : MESH_F_RECEIVES, .node = (int)node, .nic = s->nics ? nic : -1};
    double middle;
    if (s->named[SENDS][port] != s->named[RECEIVES][port] && find_retried(s, &f, &middle) > 1 &&
        middle < s->port_limit) {
        s->named[other][port] = true;
        s->effect[other][port] = fmin(s->effect[other][port], middle);
    }
}

static int find_port(struct series *s, uint32_t node, uint8_t nic, struct mesh_findings *out)
{
    uint32_t port = series_port(node, nic);
    name_other_way(s, node, nic);
    bool sends = s->named[SENDS][port], receives = s->named[RECEIVES][port];
    if (!sends && !receives)
        return 0;
    double a = s->effect[SENDS][port], b = s->effect[RECEIVES][port];
    struct mesh_finding f = {.what = sends && receives ? MESH_F_PORT
                                     : sends           ? MESH_F_SENDS
                                                       : MESH_F_RECEIVES,
                             .node = (int)node,
                             .nic = s->nics ? nic : -1,
                             .peer = -1,
                             .peer_nic = -1,
                             .limit = s->port_limit,
                             .count = s->count[sends ? SENDS : RECEIVES][port],
                             .ratio = get_ratio(s, sends && receives ? fmax(a, b)
                                                   : sends           ? a
                                                                     : b)};
    return add_suspicion(s, &f, out);
}

static int find_ports(struct series *s, struct mesh_findings *out)
{
    int rc = 0;
    for (uint32_t node = 0; node < s->m->n && rc == 0; node++) {
        double effect;
        if (!mesh_is_in(s->m, node))
            continue;
        if (s->nics && is_whole_node(s, node, &effect)) {
            struct mesh_finding f = {.what = MESH_F_NODE,
                                     .node = (int)node,
                                     .nic = -1,
                                     .peer = -1,
                                     .peer_nic = -1,
                                     .limit = s->port_limit,
                                     .ratio = get_ratio(s, effect)};
            rc = add_suspicion(s, &f, out);
            for (uint8_t nic = 0; nic < SERIES_PORTS; nic++) /* the finding explains all paths of the node */
                s->named[SENDS][series_port(node, nic)] = s->named[RECEIVES][series_port(node, nic)] = true;
            continue;
        }
        for (uint8_t nic = 0; nic < SERIES_PORTS && rc == 0; nic++)
            rc = find_port(s, node, nic, out);
    }
    return rc;
}

/* Returns the point of the same NICs in the reverse direction, or NULL if `slow` does not contain it. */
static const struct point *find_back(struct point *const *slow, size_t n, const struct point *p)
{
    for (size_t i = 0; i < n; i++)
        if (slow[i] && slow[i]->port[SENDS] == p->port[RECEIVES] && slow[i]->port[RECEIVES] == p->port[SENDS])
            return slow[i];
    return NULL;
}

/* Finds NICs that have at least SOME slow paths in one direction. Removes the points of these paths from slow. */
static int find_some(struct series *s, struct point **slow, size_t n, struct mesh_findings *out)
{
    HW_AUTO_FREE uint32_t *count = calloc(s->n_ports * SIDES, sizeof *count);
    if (!count)
        return hw_no_memory("%zu NICs", s->n_ports);
    for (;;) {
        size_t most = 0;
        memset(count, 0, s->n_ports * SIDES * sizeof *count);
        for (size_t i = 0; i < n; i++)
            for (unsigned side = 0; slow[i] && side < SIDES; side++)
                count[side * s->n_ports + slow[i]->port[side]]++;
        for (size_t k = 1; k < s->n_ports * SIDES; k++)
            most = count[k] > count[most] ? k : most;
        if (count[most] < SOME)
            return 0;
        const unsigned side = most >= s->n_ports;
        const uint32_t port = (uint32_t)(side ? most - s->n_ports : most);
        struct mesh_finding f = {.what = MESH_F_SOME,
                                 .kind = s->kind,
                                 .node = (int)(port / SERIES_PORTS),
                                 .nic = s->nics ? (int)(port % SERIES_PORTS) : -1,
                                 .peer = -1,
                                 .peer_nic = -1,
                                 .mutual = side == RECEIVES,
                                 .count = count[most],
                                 .of = s->count[side][port]};
        size_t k = 0;
        for (size_t i = 0; i < n; i++)
            if (slow[i] && slow[i]->port[side] == port) {
                s->room[k++] = series_rest(s, slow[i]);
                slow[i] = NULL;
            }
        f.ratio = get_ratio(s, series_median(s->room, k));
        int rc = mesh_find(out, &f);
        if (rc < 0)
            return rc;
    }
}

static int find_path(const struct series *s, struct point **slow, size_t n, size_t i, struct mesh_findings *out)
{
    const struct point *p = slow[i];
    const struct point *back = find_back(slow, n, p);
    struct mesh_finding f = {.what = MESH_F_PATH,
                             .kind = s->kind,
                             .node = (int)(p->port[SENDS] / SERIES_PORTS),
                             .nic = s->nics ? (int)(p->port[SENDS] % SERIES_PORTS) : -1,
                             .peer = (int)(p->port[RECEIVES] / SERIES_PORTS),
                             .peer_nic = s->nics ? (int)(p->port[RECEIVES] % SERIES_PORTS) : -1,
                             .mutual = back != NULL,
                             .limit = s->path_limit,
                             .ratio = get_ratio(s, series_rest(s, p))};
    (void)is_path_confirmed(s, p, &f.confirmed);
    slow[i] = NULL;
    for (size_t k = 0; back && k < n; k++)
        if (slow[k] == back)
            slow[k] = NULL;
    return mesh_find(out, &f);
}

/* Lists the outliers that no repeated measurement refutes, and makes them suspects, at most SUSPECTS times the number
 * of nodes. For latencies, also makes other pairs suspects. */
static int list_slow(const struct series *s, struct point **slow, size_t *n, struct mesh_findings *out)
{
    const size_t most = out->n_suspects + (size_t)SUSPECTS * s->m->n;
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        struct point *p = &s->p[i];
        bool again;
        if (p->slow || !mesh_is_in(s->m, p->port[SENDS] / SERIES_PORTS) ||
            !mesh_is_in(s->m, p->port[RECEIVES] / SERIES_PORTS) || series_rest(s, p) >= s->path_limit ||
            !is_path_confirmed(s, p, &again))
            continue;
        slow[(*n)++] = p;
        if (out->n_suspects < most)
            rc = mesh_suspect(out, s->proof, p->port[SENDS] / SERIES_PORTS, p->port[RECEIVES] / SERIES_PORTS);
    }
    return rc < 0 || s->kind != MESH_K_LATENCY || *n == 0 ? rc : suspect_all(s, out);
}

static int find_paths(struct series *s, struct mesh_findings *out)
{
    HW_AUTO_FREE struct point **slow = calloc(s->n + 1, sizeof *slow);
    size_t n = 0;
    int rc = slow ? list_slow(s, slow, &n, out) : hw_no_memory("%zu results", s->n);
    if (rc < 0)
        return rc;
    if (n > HW_MAX((size_t)s->m->n, s->n / 50)) {
        struct mesh_finding f = {.what = MESH_F_MANY,
                                 .kind = s->kind,
                                 .node = -1,
                                 .nic = -1,
                                 .peer = -1,
                                 .peer_nic = -1,
                                 .count = (uint32_t)n,
                                 .of = (uint32_t)s->n,
                                 .ratio = get_ratio(s, s->path_limit)};
        return mesh_find(out, &f);
    }
    rc = find_some(s, slow, n, out);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (slow[i])
            rc = find_path(s, slow, n, i, out);
    return rc;
}

int mesh_judge_series(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_findings *out)
{
    struct series s = {.m = m, .kind = kind, .proof = kind == MESH_K_WAY && nics ? MESH_K_RAIL : kind, .nics = nics};
    int rc = series_open(&s);
    if (rc == 0 && s.n > 0)
        rc = series_fit(&s);
    series_prove(&s);
    if (rc == 0 && s.noisy && s.proof == s.kind)
        rc = suspect_all(&s, out);
    if (rc == 0 && s.n > 0)
        rc = find_ports(&s, out);
    series_mark(&s);
    if (rc == 0 && s.n > 0)
        rc = find_paths(&s, out);
    series_close(&s);
    return rc;
}

/* ---- rails ------------------------------------------------------------------------------------------ */

/* Finds a node that has a NIC of this rail, and stores both in f. */
static bool find_owner(const struct series *s, uint32_t hash, struct mesh_finding *f)
{
    for (uint32_t i = 0; i < s->m->n; i++)
        for (uint32_t k = 0; k < s->m->node[i].n_nics; k++)
            if (mesh_is_in(s->m, i) && series_hash_nic(s->m, i, (uint8_t)k) == hash) {
                f->node = (int)i;
                f->nic = (int)k;
                return true;
            }
    return false;
}

int mesh_judge_rails(const struct mesh *m, struct mesh_findings *out)
{
    struct series s = {.m = m, .kind = MESH_K_RAIL, .proof = MESH_K_RAIL, .nics = true};
    const size_t before = out->n;
    int rc = series_open(&s);
    for (size_t i = 0; i < s.n; i++)
        s.p[i].y = s.p[i].best;
    if (rc == 0 && s.n > 0)
        rc = series_fit(&s);
    for (size_t g = 0; rc == 0 && g < s.n_groups; g++) {
        struct mesh_finding own = {.what = MESH_F_RAIL, .kind = MESH_K_RAIL, .peer = -1, .peer_nic = -1};
        size_t n = 0;
        if (!find_owner(&s, s.group[g].from, &own))
            continue;
        const uint32_t speed = m->node[own.node].nic[own.nic].speed;
        for (size_t k = 0; k < s.n_groups; k++) { /* compare only with rails of the same speed */
            struct mesh_finding f = {0};
            if (find_owner(&s, s.group[k].from, &f) && m->node[f.node].nic[f.nic].speed == speed &&
                s.group[k].same_rack == s.group[g].same_rack)
                s.room[n++] = s.group[k].median;
        }
        const double usual = series_median(s.room, n);
        size_t own_n = 0;
        for (size_t i = 0; i < s.n; i++)
            if (s.p[i].group == g)
                s.room[own_n++] = s.p[i].y;
        /* A rail is slow on most nodes if even the upper quartile of its samples is slow. */
        const bool everywhere = series_select(s.room, own_n, own_n - 1 - own_n / 4) < usual + log(1 - RAIL_LEAST);
        own.ratio = exp(s.group[g].median - usual);
        bool twice = false; /* already found, within racks or between racks */
        for (size_t k = 0; k < out->n; k++)
            twice |= out->f[k].what == MESH_F_RAIL && out->f[k].nic == own.nic && out->f[k].node == own.node;
        if (n > 1 && everywhere && own.ratio < 1 - RAIL_LEAST && !twice)
            rc = mesh_find(out, &own);
    }
    if (rc == 0 && out->n > before)
        rc = suspect_all(&s, out);
    series_close(&s);
    return rc;
}

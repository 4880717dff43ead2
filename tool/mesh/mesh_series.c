/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of the judge, in logarithms of rates. A sample is the median of its rail, plus what the sender's NIC,
 * the receiver's NIC and the path between them add, plus noise. Medians estimate all of them, so that what is slow does
 * not shift what it is compared with.
 */
#include "tool/mesh/mesh_judge.h"

#include <math.h>
#include <string.h>

#define PORTS      (TP_MAX_NICS + 1) /* of a node; the last one: all NICs together */
#define GROUPS     512
#define SIGMA      1.4826 /* times the median of deviations: the standard deviation of a normal distribution */
#define MEDIAN_SD  1.2533 /* times it: the median's own, by the root of the number */
#define FEW        5.0
#define LEAST_SD   0.004
#define PORT_LEAST 0.15 /* a NIC is not named for less than that, however quiet the cluster is */
#define PATH_LEAST 0.25
#define RAIL_LEAST 0.2
#define PORT_MORE  0.5 /* a node's latency, likewise: by how much it is longer */
#define PATH_MORE  1.0
#define PORT_OVER  1.5 /* standard deviations beyond what the largest of so many is by chance */
#define PATH_OVER  2.5
#define SOME       3   /* slow paths that a NIC must have to be named for them */
#define CONFIRMS   0.7 /* of a limit: measured again, what stood out must be beyond that still */
#define PARTNERS   7   /* that a node or NIC which stands out is measured with again */
#define SUSPECTS   16  /* pairs that are measured again, times the number of nodes */

enum { SENDS, RECEIVES, SIDES };

struct point {
    uint32_t port[SIDES]; /* the sender's, the receiver's */
    uint16_t group;
    bool slow;      /* named, or explained by one that is */
    double y, rest; /* the logarithm; without the rail's median */
};

struct group {
    uint32_t from, to; /* hashes of NICs' names */
    bool same_rack;
    double median;
};

struct series {
    const struct mesh *m;
    enum mesh_kind kind;
    bool nics;
    struct point *p;
    size_t n;
    struct group *group;
    size_t n_groups;
    size_t n_ports;
    double *effect[SIDES]; /* of each port; NAN: no sample */
    bool *named[SIDES];
    uint32_t *count[SIDES];
    double *room; /* for medians: as many as there are points */
    struct retry {
        uint64_t key; /* 0: free */
        double y;     /* the best */
    } * retry;        /* what was measured again, by nodes and NICs */
    size_t mask;
    double port_limit, path_limit;
    bool few; /* too few samples to tell what is a port's and what a path's */
};

static uint32_t hash_nic(const struct mesh *m, uint32_t node, uint8_t nic)
{
    const char *name = nic < m->node[node].n_nics ? m->node[node].nic[nic].name : "";
    return (uint32_t)hw_hash(HW_HASH_START, name, strlen(name));
}

static bool is_same_rack(const struct mesh *m, const struct mesh_sample *s)
{
    const char *a = m->node[s->from].rack, *b = m->node[s->to].rack;
    return *a && *b && strcmp(a, b) == 0;
}

static int find_group(struct series *s, const struct mesh_sample *sample)
{
    struct group g = {.from = hash_nic(s->m, sample->from, sample->nic),
                      .to = hash_nic(s->m, sample->to, sample->to_nic),
                      .same_rack = is_same_rack(s->m, sample)};
    size_t i = 0;
    while (i < s->n_groups &&
           (s->group[i].from != g.from || s->group[i].to != g.to || s->group[i].same_rack != g.same_rack))
        i++;
    if (i == GROUPS)
        return -1;
    if (i == s->n_groups)
        s->group[s->n_groups++] = g;
    return (int)i;
}

static uint32_t get_port(uint32_t node, uint8_t nic)
{
    return node * PORTS + HW_MIN(nic, (uint8_t)TP_MAX_NICS);
}

/* Those of nodes that were lost later, too: they tell of the others. */
static bool is_of_series(const struct series *s, const struct mesh_sample *sample)
{
    return sample->kind == s->kind && (sample->nic != MESH_ALL) == s->nics && sample->value > 0;
}

static double get_log(enum mesh_kind kind, double value)
{
    return kind == MESH_K_LATENCY ? -log(value) : log(value);
}

/* What stands at place k of v[0..n) in order, of which more than k are there. v is changed. */
static double select_place(double *v, size_t n, size_t k)
{
    size_t lo = 0, hi = n - 1;
    while (lo < hi) { /* Hoare's selection */
        const double pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i >= j)
                break;
            const double swap = v[i];
            v[i++] = v[j];
            v[j--] = swap;
        }
        if (k <= j)
            hi = j;
        else
            lo = j + 1;
    }
    return v[k];
}

/* Of an even number, the larger one of the two in the middle. */
static double take_median(double *v, size_t n)
{
    return select_place(v, n, n / 2);
}

static uint64_t get_key(const struct mesh_sample *s)
{
    return 1 + ((uint64_t)s->from << 48 | (uint64_t)s->to << 32 | (uint64_t)s->nic << 8 | s->to_nic);
}

static struct retry *find_retry(const struct series *s, uint64_t key)
{
    size_t i = hw_hash(HW_HASH_START, &key, sizeof key) & s->mask;
    while (s->retry[i].key && s->retry[i].key != key)
        i = (i + 1) & s->mask;
    return &s->retry[i];
}

static int index_retries(struct series *s)
{
    const struct mesh *m = s->m;
    size_t room = 16;
    while (room < 2 * m->n_again)
        room *= 2;
    s->mask = room - 1;
    s->retry = calloc(room, sizeof *s->retry);
    if (!s->retry)
        return hw_no_memory("%zu results", m->n_again);
    for (size_t i = 0; i < m->n_again; i++) {
        if (!is_of_series(s, &m->again[i]))
            continue;
        struct retry *r = find_retry(s, get_key(&m->again[i]));
        double y = get_log(s->kind, m->again[i].value);
        r->y = r->key ? HW_MAX(r->y, y) : y;
        r->key = get_key(&m->again[i]);
    }
    return 0;
}

static int open_series(struct series *s)
{
    const struct mesh *m = s->m;
    s->n_ports = (size_t)m->n * PORTS;
    s->p = calloc(m->n_samples + 1, sizeof *s->p);
    s->room = calloc(m->n_samples + m->n_again + s->n_ports * SIDES + 1, sizeof *s->room);
    s->group = calloc(GROUPS, sizeof *s->group);
    bool full = s->p && s->room && s->group;
    for (unsigned k = 0; k < SIDES; k++) {
        s->effect[k] = calloc(s->n_ports, sizeof *s->effect[k]);
        s->named[k] = calloc(s->n_ports, sizeof *s->named[k]);
        s->count[k] = calloc(s->n_ports + 1, sizeof *s->count[k]);
        full = full && s->effect[k] && s->named[k] && s->count[k];
    }
    if (!full)
        return hw_no_memory("%zu results", m->n_samples);
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct mesh_sample *sample = &m->sample[i];
        int g = is_of_series(s, sample) ? find_group(s, sample) : -1;
        if (g < 0)
            continue;
        s->p[s->n++] =
            (struct point){.port = {get_port(sample->from, sample->nic), get_port(sample->to, sample->to_nic)},
                           .group = (uint16_t)g,
                           .y = get_log(s->kind, sample->value)};
    }
    return index_retries(s);
}

static void close_series(struct series *s)
{
    free(s->p);
    free(s->room);
    free(s->group);
    free(s->retry);
    for (unsigned k = 0; k < SIDES; k++) {
        free(s->effect[k]);
        free(s->named[k]);
        free(s->count[k]);
    }
}

/* The median of each rail, of what is not named. */
static void compute_groups(struct series *s)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++)
            if (s->p[i].group == g && !s->p[i].slow)
                s->room[n++] = s->p[i].y;
        if (n)
            s->group[g].median = take_median(s->room, n);
    }
    for (size_t i = 0; i < s->n; i++)
        s->p[i].rest = s->p[i].y - s->group[s->p[i].group].median;
}

/* What each port adds, as a sender or a receiver: the median with those of the others that are not named; where all
 * are, with all. */
static int compute_effects(struct series *s, unsigned side)
{
    const unsigned other = side == SENDS ? RECEIVES : SENDS;
    uint32_t *count = s->count[side];
    HW_AUTO_FREE size_t *start = calloc(s->n_ports + 1, sizeof *start);
    HW_AUTO_FREE uint32_t *good = calloc(s->n_ports + 1, sizeof *good);
    if (!start || !good)
        return hw_no_memory("%zu NICs", s->n_ports);
    memset(count, 0, s->n_ports * sizeof *count);
    for (size_t i = 0; i < s->n; i++) {
        count[s->p[i].port[side]]++;
        good[s->p[i].port[side]] += !s->named[other][s->p[i].port[other]];
    }
    for (size_t k = 0; k < s->n_ports; k++) {
        start[k + 1] = start[k] + (good[k] ? good[k] : count[k]);
        good[k] = good[k] ? 0 : UINT32_MAX;
    }
    for (size_t i = 0; i < s->n; i++) {
        const uint32_t port = s->p[i].port[side];
        const bool all = good[port] == UINT32_MAX;
        if (all)
            good[port] = 0;
        if (all || start[port + 1] - start[port] == count[port] || !s->named[other][s->p[i].port[other]])
            s->room[start[port] + good[port]++] = s->p[i].rest;
    }
    for (size_t k = 0; k < s->n_ports; k++)
        s->effect[side][k] = count[k] ? take_median(s->room + start[k], start[k + 1] - start[k]) : NAN;
    return 0;
}

/* The standard deviation of v[0..n), from the median of its deviations, and rather too large where they are few. v is
 * changed. */
static double estimate_sigma(double *v, size_t n)
{
    double middle = take_median(v, n);
    for (size_t i = 0; i < n; i++)
        v[i] = fabs(v[i] - middle);
    return HW_MAX(SIGMA * take_median(v, n) * (1 + FEW / (double)n), LEAST_SD);
}

/* Below which logarithm of so many, which scatter by sigma, one is not there by chance. */
static double get_limit(double sigma, size_t n, double over, double least, double more, enum mesh_kind kind)
{
    double chance = (sqrt(2 * log((double)HW_MAX(n, (size_t)2))) + over) * sigma;
    double relevant = kind == MESH_K_LATENCY ? log(1 + more) : -log(1 - least);
    return -HW_MAX(chance, relevant);
}

static double get_rest(const struct series *s, const struct point *p)
{
    double a = s->effect[SENDS][p->port[SENDS]], b = s->effect[RECEIVES][p->port[RECEIVES]];
    return s->few ? p->rest : p->rest - (isnan(a) ? 0 : a) - (isnan(b) ? 0 : b);
}

static void compute_limits(struct series *s)
{
    size_t n = 0, ports = 0;
    for (unsigned side = 0; side < SIDES; side++)
        for (size_t k = 0; k < s->n_ports; k++)
            ports += !isnan(s->effect[side][k]);
    s->few = s->n < 2 * (ports + s->n_groups);
    for (size_t i = 0; i < s->n; i++)
        if (!s->p[i].slow)
            s->room[n++] = get_rest(s, &s->p[i]);
    double noise = n ? estimate_sigma(s->room, n) : LEAST_SD;
    if (!s->few && n > ports) /* what the effects were fitted to scatters less than what was not */
        noise *= sqrt((double)n / (double)(n - ports));
    ports = 0;
    s->path_limit = get_limit(noise, n, PATH_OVER, PATH_LEAST, PATH_MORE, s->kind);
    for (unsigned side = 0; side < SIDES; side++)
        for (size_t k = 0; k < s->n_ports; k++)
            if (!isnan(s->effect[side][k]))
                s->room[ports++] = s->effect[side][k];
    double scatter = ports ? estimate_sigma(s->room, ports) : LEAST_SD;
    /* of few, the scatter is a poor estimate: it is not less than what the noise makes of it */
    double each = MEDIAN_SD * noise / sqrt(HW_MAX(2.0 * (double)n / (double)HW_MAX(ports, (size_t)1), 1.0));
    s->port_limit = get_limit(HW_MAX(scatter, each), ports, PORT_OVER, PORT_LEAST, PORT_MORE, s->kind);
}

/* Marks what a named port explains. */
static void mark_slow(struct series *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->p[i].slow = s->named[SENDS][s->p[i].port[SENDS]] || s->named[RECEIVES][s->p[i].port[RECEIVES]];
}

static int fit(struct series *s)
{
    int rc = 0;
    for (unsigned pass = 0; pass < 3 && rc == 0; pass++) {
        compute_groups(s);
        rc = compute_effects(s, SENDS);
        if (rc == 0)
            rc = compute_effects(s, RECEIVES);
        if (rc < 0)
            break;
        compute_limits(s);
        for (unsigned side = 0; side < SIDES; side++)
            for (size_t k = 0; k < s->n_ports; k++)
                /* a single sample tells no NIC from a path */
                s->named[side][k] = s->count[side][k] > 1 && s->effect[side][k] < s->port_limit;
        mark_slow(s);
    }
    return rc;
}

static double get_ratio(const struct series *s, double effect)
{
    return exp(s->kind == MESH_K_LATENCY ? -effect : effect);
}

/* ---- measured again ------------------------------------------------------------------------------ */

static bool is_about(const struct mesh_finding *f, const struct mesh_sample *s)
{
    bool out = (int)s->from == f->node && (f->nic < 0 || (int)s->nic == f->nic);
    bool in = (int)s->to == f->node && (f->nic < 0 || (int)s->to_nic == f->nic);
    return f->what == MESH_F_SENDS ? out : f->what == MESH_F_RECEIVES ? in : out || in;
}

/* Collects what samples of that list say about f. best: of those measured several times the best. */
static size_t collect(struct series *s, const struct mesh_sample *list, size_t n, const struct mesh_finding *f,
                      bool best, double *room)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        int g = is_of_series(s, &list[i]) && is_about(f, &list[i]) ? find_group(s, &list[i]) : -1;
        if (g >= 0)
            room[k++] =
                (best ? find_retry(s, get_key(&list[i]))->y : get_log(s->kind, list[i].value)) - s->group[g].median;
    }
    return k;
}

/* Does what was measured again of a node or NIC say the same? Also where nothing was. Then its ratio is of all samples
 * together. */
static bool is_confirmed(struct series *s, struct mesh_finding *f)
{
    const struct mesh *m = s->m;
    size_t n = collect(s, m->again, m->n_again, f, true, s->room);
    if (n == 0)
        return true;
    f->confirmed = take_median(s->room, n) < CONFIRMS * f->limit;
    if (!f->confirmed)
        return false;
    n = collect(s, m->again, m->n_again, f, false, s->room);
    n += collect(s, m->sample, m->n_samples, f, false, s->room + n);
    f->ratio = get_ratio(s, take_median(s->room, n));
    return true;
}

/* The same of a path. *again: it was measured again. */
static bool is_path_confirmed(const struct series *s, const struct point *p, bool *again)
{
    const struct mesh_sample of = {
        .from = (uint16_t)(p->port[SENDS] / PORTS),
        .to = (uint16_t)(p->port[RECEIVES] / PORTS),
        .nic = s->nics ? (uint8_t)(p->port[SENDS] % PORTS) : MESH_ALL,
        .to_nic = s->nics ? (uint8_t)(p->port[RECEIVES] % PORTS) : MESH_ALL,
    };
    const struct retry *r = find_retry(s, get_key(&of));
    *again = r->key != 0;
    return !*again || get_rest(s, p) + r->y - p->y < CONFIRMS * s->path_limit;
}

/* Asks for a node's or NIC's pairs with some others to be measured again. */
static int suspect_node(const struct series *s, const struct mesh_finding *f, struct mesh_findings *out)
{
    int rc = 0;
    const uint32_t n = s->m->n, node = (uint32_t)f->node;
    for (uint32_t k = 1, with = 0; k < n && with < PARTNERS && rc == 0; k++) {
        uint32_t other = (node + k) % n;
        if (!mesh_is_in(s->m, other))
            continue;
        rc = k % 2 ? mesh_suspect(out, s->kind, node, other) : mesh_suspect(out, s->kind, other, node);
        with++;
    }
    return rc;
}

static int add_suspicion(struct series *s, struct mesh_finding *f, struct mesh_findings *out)
{
    f->kind = s->kind;
    if (!is_confirmed(s, f))
        return 0;
    int rc = mesh_find(out, f);
    return rc < 0 ? rc : suspect_node(s, f, out);
}

/* ---- findings -------------------------------------------------------------------------------------- */

/* A node all of whose NICs, more than one, are slow: one is named at least, and the others are half as slow as they
 * must be to be named alone. *effect: of the best of them. */
static bool is_whole_node(const struct series *s, uint32_t node, double *effect)
{
    unsigned there = 0, named = 0;
    *effect = -INFINITY;
    for (uint8_t nic = 0; nic < TP_MAX_NICS; nic++) {
        uint32_t port = get_port(node, nic);
        if (isnan(s->effect[SENDS][port]) && isnan(s->effect[RECEIVES][port]))
            continue;
        there++;
        named += s->named[SENDS][port] || s->named[RECEIVES][port];
        *effect = fmax(*effect, fmin(s->effect[SENDS][port], s->effect[RECEIVES][port]));
    }
    return there > 1 && named > 0 && *effect < s->port_limit / 2;
}

static int find_port(struct series *s, uint32_t node, uint8_t nic, struct mesh_findings *out)
{
    uint32_t port = get_port(node, nic);
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
            for (uint8_t nic = 0; nic < PORTS; nic++) /* explains all its paths */
                s->named[SENDS][get_port(node, nic)] = s->named[RECEIVES][get_port(node, nic)] = true;
            continue;
        }
        for (uint8_t nic = 0; nic < PORTS && rc == 0; nic++)
            rc = find_port(s, node, nic, out);
    }
    return rc;
}

/* The point of the same NICs the other way; NULL: it is not among those that are slow. */
static const struct point *find_back(struct point *const *slow, size_t n, const struct point *p)
{
    for (size_t i = 0; i < n; i++)
        if (slow[i] && slow[i]->port[SENDS] == p->port[RECEIVES] && slow[i]->port[RECEIVES] == p->port[SENDS])
            return slow[i];
    return NULL;
}

/* NICs that are slow with several others, but not with most. Takes their points out of slow. */
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
        const uint32_t port = (uint32_t)(most % s->n_ports);
        struct mesh_finding f = {.what = MESH_F_SOME,
                                 .kind = s->kind,
                                 .node = (int)(port / PORTS),
                                 .nic = s->nics ? (int)(port % PORTS) : -1,
                                 .peer = -1,
                                 .peer_nic = -1,
                                 .mutual = side == RECEIVES,
                                 .count = count[most],
                                 .of = s->count[side][port]};
        size_t k = 0;
        for (size_t i = 0; i < n; i++)
            if (slow[i] && slow[i]->port[side] == port) {
                s->room[k++] = get_rest(s, slow[i]);
                slow[i] = NULL;
            }
        f.ratio = get_ratio(s, take_median(s->room, k));
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
                             .node = (int)(p->port[SENDS] / PORTS),
                             .nic = s->nics ? (int)(p->port[SENDS] % PORTS) : -1,
                             .peer = (int)(p->port[RECEIVES] / PORTS),
                             .peer_nic = s->nics ? (int)(p->port[RECEIVES] % PORTS) : -1,
                             .mutual = back != NULL,
                             .limit = s->path_limit,
                             .ratio = get_ratio(s, get_rest(s, p))};
    (void)is_path_confirmed(s, p, &f.confirmed);
    slow[i] = NULL;
    for (size_t k = 0; back && k < n; k++)
        if (slow[k] == back)
            slow[k] = NULL;
    return mesh_find(out, &f);
}

/* Points that stand out, and are not refuted by what was measured again. All of them are suspects. */
static int list_slow(const struct series *s, struct point **slow, size_t *n, struct mesh_findings *out)
{
    const size_t most = out->n_suspects + (size_t)SUSPECTS * s->m->n;
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        struct point *p = &s->p[i];
        bool again;
        if (p->slow || !mesh_is_in(s->m, p->port[SENDS] / PORTS) || !mesh_is_in(s->m, p->port[RECEIVES] / PORTS) ||
            get_rest(s, p) >= s->path_limit || !is_path_confirmed(s, p, &again))
            continue;
        slow[(*n)++] = p;
        if (out->n_suspects < most)
            rc = mesh_suspect(out, s->kind, p->port[SENDS] / PORTS, p->port[RECEIVES] / PORTS);
    }
    return rc;
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
    struct series s = {.m = m, .kind = kind, .nics = nics};
    int rc = open_series(&s);
    if (rc == 0 && s.n > 0)
        rc = fit(&s);
    if (rc == 0 && s.n > 0)
        rc = find_ports(&s, out);
    mark_slow(&s);
    if (rc == 0 && s.n > 0)
        rc = find_paths(&s, out);
    close_series(&s);
    return rc;
}

/* ---- rails ------------------------------------------------------------------------------------------ */

/* A node that has a NIC of that rail, and the NIC. */
static bool find_owner(const struct series *s, uint32_t hash, struct mesh_finding *f)
{
    for (uint32_t i = 0; i < s->m->n; i++)
        for (uint32_t k = 0; k < s->m->node[i].n_nics; k++)
            if (mesh_is_in(s->m, i) && hash_nic(s->m, i, (uint8_t)k) == hash) {
                f->node = (int)i;
                f->nic = (int)k;
                return true;
            }
    return false;
}

int mesh_judge_rails(const struct mesh *m, struct mesh_findings *out)
{
    struct series s = {.m = m, .kind = MESH_K_RAIL, .nics = true};
    int rc = open_series(&s);
    if (rc == 0 && s.n > 0)
        rc = fit(&s);
    for (size_t g = 0; rc == 0 && g < s.n_groups; g++) {
        struct mesh_finding own = {.what = MESH_F_RAIL, .kind = MESH_K_RAIL, .peer = -1, .peer_nic = -1};
        size_t n = 0;
        if (!find_owner(&s, s.group[g].from, &own))
            continue;
        const uint32_t speed = m->node[own.node].nic[own.nic].speed;
        for (size_t k = 0; k < s.n_groups; k++) { /* NICs of another speed are no measure for this one's */
            struct mesh_finding f = {0};
            if (find_owner(&s, s.group[k].from, &f) && m->node[f.node].nic[f.nic].speed == speed &&
                s.group[k].same_rack == s.group[g].same_rack)
                s.room[n++] = s.group[k].median;
        }
        const double usual = take_median(s.room, n);
        size_t own_n = 0;
        for (size_t i = 0; i < s.n; i++)
            if (s.p[i].group == g)
                s.room[own_n++] = s.p[i].y;
        /* everywhere: the better quarter of its samples, too */
        const bool everywhere = select_place(s.room, own_n, own_n - 1 - own_n / 4) < usual + log(1 - RAIL_LEAST);
        own.ratio = exp(s.group[g].median - usual);
        bool twice = false; /* within a rack, and between racks */
        for (size_t k = 0; k < out->n; k++)
            twice |= out->f[k].what == MESH_F_RAIL && out->f[k].nic == own.nic && out->f[k].node == own.node;
        if (n > 1 && everywhere && own.ratio < 1 - RAIL_LEAST && !twice)
            rc = mesh_find(out, &own);
    }
    close_series(&s);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics of the judge, computed on logarithms of rates. A sample is the sum of its rail's median, the
 * contributions of the sender's NIC, the receiver's NIC and the path between them, and noise. Medians and quartiles
 * estimate these terms, so that a slow component does not shift the values with which the component is compared.
 */
#include "tool/mesh/judge/mesh_series.h"

#include <math.h>
#include <string.h>

#define SIGMA      1.4826 /* standard deviation of a normal distribution / median of its absolute deviations */
#define MEDIAN_SD  1.2533 /* a median's standard deviation, relative to that of a mean of as many values */
#define FEW        5.0
#define TAIL       20
#define TAIL_LEAST ((size_t)4)
#define FEW_NODES  6
#define LEAST_SD   0.004
#define PORT_LEAST 0.15 /* a NIC is not reported for a smaller deviation, however quiet the cluster is */
#define PATH_LEAST 0.25
#define PORT_MORE  0.5 /* a node is not reported for a smaller relative increase of its latency */
#define PATH_MORE  1.0
#define PORT_OVER  1.5 /* standard deviations beyond the largest value that chance alone produces */
#define PATH_OVER  2.5
#define NOISY      0.5 /* fraction of the usual rate; a series is noisy if a NIC this slow would not stand out */

uint32_t series_hash_nic(const struct mesh *m, uint32_t node, uint8_t nic)
{
    const char *name = nic < m->node[node].n_nics ? m->node[node].nic[nic].name : "";
    return (uint32_t)hw_hash(HW_HASH_START, name, strlen(name));
}

static bool is_same_rack(const struct mesh *m, const struct mesh_sample *s)
{
    const char *a = m->node[s->from].rack, *b = m->node[s->to].rack;
    return *a && *b && strcmp(a, b) == 0;
}

int series_group(struct series *s, const struct mesh_sample *sample)
{
    struct group g = {.from = series_hash_nic(s->m, sample->from, sample->nic),
                      .to = series_hash_nic(s->m, sample->to, sample->to_nic),
                      .same_rack = is_same_rack(s->m, sample)};
    size_t i = 0;
    while (i < s->n_groups &&
           (s->group[i].from != g.from || s->group[i].to != g.to || s->group[i].same_rack != g.same_rack))
        i++;
    if (i == SERIES_GROUPS)
        return -1;
    if (i == s->n_groups)
        s->group[s->n_groups++] = g;
    return (int)i;
}

uint32_t series_port(uint32_t node, uint8_t nic)
{
    return node * SERIES_PORTS + HW_MIN(nic, (uint8_t)TP_MAX_NICS);
}

/* Returns true for the samples of the series. These include samples of nodes that were lost later, because they also
 * describe the other nodes. */
static bool is_of_series(const struct series *s, const struct mesh_sample *sample)
{
    return sample->kind == s->kind && (sample->nic != MESH_ALL) == s->nics && sample->value > 0;
}

bool series_is_proof(const struct series *s, const struct mesh_sample *sample)
{
    return sample->kind == s->proof && (sample->nic != MESH_ALL) == s->nics && sample->value > 0;
}

double series_log(enum mesh_kind kind, double value)
{
    return kind == MESH_K_LATENCY ? -log(value) : log(value);
}

/* Returns the element at position k of v[0..n) in sorted order; k < n. Reorders v. */
double series_select(double *v, size_t n, size_t k)
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

/* Returns the median; for an even number of elements, the larger of the two middle elements. */
double series_median(double *v, size_t n)
{
    return series_select(v, n, n / 2);
}

uint64_t series_key(const struct mesh_sample *s)
{
    return 1 + ((uint64_t)s->from << 48 | (uint64_t)s->to << 32 | (uint64_t)s->nic << 8 | s->to_nic);
}

struct retry *series_retry(const struct series *s, uint64_t key)
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
        if (!series_is_proof(s, &m->again[i]))
            continue;
        struct retry *r = series_retry(s, series_key(&m->again[i]));
        double y = series_log(s->kind, m->again[i].value);
        if (r->key && r->y >= y)
            continue;
        *r = (struct retry){series_key(&m->again[i]), m->again[i], y};
    }
    return 0;
}

int series_open(struct series *s)
{
    const struct mesh *m = s->m;
    s->n_ports = (size_t)m->n * SERIES_PORTS;
    s->p = calloc(m->n_samples + 1, sizeof *s->p);
    s->room = calloc(m->n_samples + m->n_again + s->n_ports * SIDES + 1, sizeof *s->room);
    s->group = calloc(SERIES_GROUPS, sizeof *s->group);
    bool full = s->p && s->room && s->group;
    for (unsigned k = 0; k < SIDES; k++) {
        s->effect[k] = calloc(s->n_ports, sizeof *s->effect[k]);
        s->named[k] = calloc(s->n_ports, sizeof *s->named[k]);
        s->count[k] = calloc(s->n_ports + 1, sizeof *s->count[k]);
        full = full && s->effect[k] && s->named[k] && s->count[k];
    }
    int rc = full ? index_retries(s) : hw_no_memory("%zu results", m->n_samples);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct mesh_sample *sample = &m->sample[i];
        int g = is_of_series(s, sample) ? series_group(s, sample) : -1;
        if (g < 0)
            continue;
        s->p[s->n++] =
            (struct point){.port = {series_port(sample->from, sample->nic), series_port(sample->to, sample->to_nic)},
                           .group = (uint16_t)g,
                           .y = series_log(s->kind, sample->value)};
        const struct retry *r = s->proof == s->kind ? series_retry(s, series_key(sample)) : NULL;
        s->p[s->n - 1].best = r && r->key ? fmax(s->p[s->n - 1].y, r->y) : s->p[s->n - 1].y;
    }
    return 0;
}

void series_close(struct series *s)
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

/* Computes the median of each rail over points that no port in `named` explains. With few nodes, a single slow node
 * slows a large part of all samples, so the upper quartile replaces the median. */
static void compute_groups(struct series *s)
{
    const bool few_nodes = s->m->n < FEW_NODES;
    for (size_t g = 0; g < s->n_groups; g++) {
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++)
            if (s->p[i].group == g && !s->p[i].slow)
                s->room[n++] = s->p[i].y;
        if (n)
            s->group[g].median = few_nodes ? series_select(s->room, n, n - 1 - n / 4) : series_median(s->room, n);
    }
    for (size_t i = 0; i < s->n; i++)
        s->p[i].rest = s->p[i].y - s->group[s->p[i].group].median;
    for (size_t g = 0; g < s->n_groups && s->proof == s->kind; g++)
        s->group[g].usual = s->group[g].median;
}

/* Sets the usual latency of each group to the longer of two values: that of the rounds (see compute_groups()) and the
 * median of the repeated measurements, because other load on the CPUs affects latencies. */
static void slow_down_usual(struct series *s)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        size_t n = 0;
        for (size_t i = 0; i <= s->mask; i++)
            if (s->retry[i].key && series_group(s, &s->retry[i].best) == (int)g)
                s->room[n++] = s->retry[i].y;
        if (n)
            s->group[g].usual = fmin(s->group[g].usual, series_median(s->room, n));
    }
}

/* Computes the groups' usual values from samples of kind `proof`, if this is not the kind of the series. For latencies,
 * adjusts the usual values. In a group without samples of kind `proof`, repeated measurements refute nothing. */
void series_prove(struct series *s)
{
    const struct mesh *m = s->m;
    if (s->kind == MESH_K_LATENCY)
        slow_down_usual(s);
    for (size_t g = 0; g < s->n_groups && s->proof != s->kind; g++) {
        size_t n = 0;
        for (size_t i = 0; i < m->n_samples; i++)
            if (series_is_proof(s, &m->sample[i]) && series_group(s, &m->sample[i]) == (int)g)
                s->room[n++] = series_log(s->kind, m->sample[i].value);
        s->group[g].usual = n ? series_select(s->room, n, m->n < FEW_NODES ? n - 1 - n / 4 : n / 2) : INFINITY;
    }
}

/* Computes the effect of each port as a sender or receiver: the median over its pairs with ports that are not in
 * `named` or, if there are none, over all its pairs. */
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
        s->effect[side][k] = count[k] ? series_median(s->room + start[k], start[k + 1] - start[k]) : NAN;
    return 0;
}

/* Estimates the standard deviation of v[0..n) from the median of the deviations. Tends to overestimate for few values.
 * Reorders v. */
static double estimate_sigma(double *v, size_t n)
{
    double middle = series_median(v, n);
    for (size_t i = 0; i < n; i++)
        v[i] = fabs(v[i] - middle);
    return HW_MAX(SIGMA * series_median(v, n) * (1 + FEW / (double)n), LEAST_SD);
}

/* Estimates the standard deviation from a value of the lower tail, because on a machine that is busy with other work
 * the tail is longer than the middle suggests. Returns 0 if there are too few values. Reorders v[0..n). */
static double estimate_tail(double *v, size_t n)
{
    const size_t k = HW_MAX(n / TAIL, TAIL_LEAST);
    if (n < 4 * k)
        return 0;
    const double t = sqrt(-2 * log(((double)k + 0.5) / (double)n));
    /* quantile of the normal distribution: Abramowitz and Stegun, 26.2.22 */
    const double z = t - (2.30753 + 0.27061 * t) / (1 + 0.99229 * t + 0.04481 * t * t);
    return HW_MAX(-series_select(v, n, k), 0.0) / z;
}

/* Returns the logarithm below which a value is significant and is not explained by chance, given n values with standard
 * deviation sigma. */
static double get_limit(double sigma, size_t n, double over, double least, double more, enum mesh_kind kind)
{
    double chance = (sqrt(2 * log((double)HW_MAX(n, (size_t)2))) + over) * sigma;
    double relevant = kind == MESH_K_LATENCY ? log(1 + more) : -log(1 - least);
    return -HW_MAX(chance, relevant);
}

double series_rest(const struct series *s, const struct point *p)
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
            s->room[n++] = series_rest(s, &s->p[i]);
    const double tail = n ? estimate_tail(s->room, n) : 0;
    double noise = n ? estimate_sigma(s->room, n) : LEAST_SD;
    if (!s->few && n > ports) /* residuals of fitted values scatter less than the noise itself */
        noise *= sqrt((double)n / (double)(n - ports));
    ports = 0;
    s->path_limit = get_limit(HW_MAX(noise, tail), n, PATH_OVER, PATH_LEAST, PATH_MORE, s->kind);
    for (unsigned side = 0; side < SIDES; side++)
        for (size_t k = 0; k < s->n_ports; k++)
            if (!isnan(s->effect[side][k]))
                s->room[ports++] = s->effect[side][k];
    double scatter = ports ? estimate_sigma(s->room, ports) : LEAST_SD;
    /* The scatter of few values is a poor estimate, so use at least what the noise implies. */
    double each = MEDIAN_SD * noise / sqrt(HW_MAX(2.0 * (double)n / (double)HW_MAX(ports, (size_t)1), 1.0));
    s->port_limit = get_limit(HW_MAX(scatter, each), ports, PORT_OVER, PORT_LEAST, PORT_MORE, s->kind);
}

/* Marks the points that a port in `named` explains. */
void series_mark(struct series *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->p[i].slow = s->named[SENDS][s->p[i].port[SENDS]] || s->named[RECEIVES][s->p[i].port[RECEIVES]];
}

static int fit_once(struct series *s)
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
                /* a single sample cannot distinguish a slow NIC from a slow path */
                s->named[side][k] = s->count[side][k] > 1 && s->effect[side][k] < s->port_limit;
        series_mark(s);
    }
    return rc;
}

int series_fit(struct series *s)
{
    int rc = fit_once(s);
    /* Latencies are exempt, because a few nodes often have shorter best latencies than the others, depending on which
     * side polls. */
    s->noisy = rc == 0 && s->kind != MESH_K_LATENCY && s->port_limit < log(NOISY);
    if (!s->noisy || s->proof != s->kind)
        return rc;
    /* Assume that the machines were busy with other work, which only makes results worse. The best result of a pair is
     * then the closest to the truth. A path has too few results to tighten its limit. */
    const double path_limit = s->path_limit;
    for (size_t i = 0; i < s->n; i++)
        s->p[i].y = s->p[i].best;
    rc = fit_once(s);
    s->path_limit = fmin(s->path_limit, path_limit);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the schedule and the findings of `hawser mesh` on simulated clusters of 8 to 200 nodes. Nodes, paths and
 * measurements have several percent of noise, single measurements may be slow, and each cluster has at most one planted
 * fault. mesh must name the fault correctly in 99 of 100 clusters, and must not report a fault in healthy clusters.
 * Usage: test_mesh_sim [NODES CLUSTERS], to simulate CLUSTERS clusters of NODES nodes for each fault
 */
#include "tests/tap.h"

#include "tool/mesh/judge/mesh_judge.h"
#include "tool/mesh/judge/mesh_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define NICS       4
#define RATE       12.5  /* GB/s of a NIC */
#define LATENCY    9.0   /* us */
#define NODE_SD    0.02  /* of each port, per direction */
#define PATH_SD    0.03  /* of each path: its jitter */
#define NOISE_SD   0.04  /* of each measurement */
#define MOMENTS    0.002 /* fraction of measurements in a slow moment */
#define STALLS     0.4   /* fraction of measurements that stall if the machines are busy */
#define POLLED_NOT 0.3   /* fraction of latencies with an end that did not poll */
#define AGAIN      3

enum plant { HEALTHY, RECEIVES, SENDS, PORT, NODE, RAIL, PATH, DEAD, LATE_NODE, LATE_PAIR, BUSY, POLLED, PLANTS };
static const char *const plant_name[] = {"healthy",
                                         "a NIC receives at 41 %",
                                         "a NIC sends at 50 %",
                                         "a NIC is at 60 %",
                                         "a node is at 70 %",
                                         "a rail is at half",
                                         "one path is at half",
                                         "a node died",
                                         "a node's latency is double",
                                         "a path's latency is triple",
                                         "a NIC is at 30 % and the machines are busy",
                                         "healthy, and latencies depend on who polls"};

struct cluster {
    uint32_t n;
    uint64_t seed;
    enum plant plant;
    uint32_t bad, other; /* nodes */
    uint8_t nic, nics;
    struct mesh m;
};

/* noise, determined only by the seed and the arguments */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t name_of(const struct cluster *c, uint64_t what, uint64_t a, uint64_t b, uint64_t k)
{
    return mix(mix(mix(mix(c->seed * 64 + what) + a) + b) + k);
}

static double uniform(uint64_t x)
{
    return ((double)(x >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t x)
{
    return sqrt(-2 * log(uniform(x))) * cos(6.283185307179586 * uniform(mix(x)));
}

/* measurements */

static double get_fault(const struct cluster *c, uint32_t from, uint32_t to, uint8_t nic)
{
    switch (c->plant) {
    case RECEIVES:
        return to == c->bad && nic == c->nic ? 0.41 : 1;
    case SENDS:
        return from == c->bad && nic == c->nic ? 0.5 : 1;
    case PORT:
        return (from == c->bad || to == c->bad) && nic == c->nic ? 0.6 : 1;
    case BUSY:
        return (from == c->bad || to == c->bad) && nic == c->nic ? 0.3 : 1;
    case NODE:
        return from == c->bad || to == c->bad ? 0.7 : 1;
    case RAIL:
        return nic == c->nic ? 0.5 : 1;
    case PATH:
        return from == c->bad && to == c->other && nic == c->nic ? 0.5 : 1;
    default:
        return 1;
    }
}

static double measure_rate(const struct cluster *c, uint32_t from, uint32_t to, uint8_t nic, uint64_t try)
{
    uint64_t luck = name_of(c, 4, from * 65536 + to, nic, try);
    double log_rate = NODE_SD * (normal(name_of(c, 1, from, nic, 0)) + normal(name_of(c, 2, to, nic, 0))) +
                      PATH_SD * normal(name_of(c, 3, from, to, nic)) + NOISE_SD * normal(luck);
    double moment = uniform(mix(luck + 1)) < MOMENTS ? 0.3 + 0.5 * uniform(mix(luck + 2)) : 1;
    if (c->plant == BUSY && uniform(mix(luck + 3)) < STALLS)
        moment = 0.1 + 0.8 * uniform(mix(luck + 4));
    return RATE * exp(log_rate) * moment * get_fault(c, from, to, nic);
}

static double measure_latency(const struct cluster *c, uint32_t a, uint32_t b, uint64_t try)
{
    uint32_t lo = HW_MIN(a, b), hi = HW_MAX(a, b);
    uint64_t luck = name_of(c, 8, lo * 65536 + hi, 0, try);
    double late = 1;
    if (c->plant == LATE_NODE && (a == c->bad || b == c->bad))
        late = 2;
    if (c->plant == LATE_PAIR && lo == HW_MIN(c->bad, c->other) && hi == HW_MAX(c->bad, c->other))
        late = 3;
    double moment = uniform(mix(luck + 1)) < MOMENTS ? 1.5 + 2 * uniform(mix(luck + 2)) : 1;
    if (c->plant == POLLED) /* in some first and all repeated measurements, one end has to be woken up */
        moment = try > 0 || uniform(mix(luck + 3)) < POLLED_NOT ? 2 + 2 * uniform(mix(luck + 4)) : 1;
    return LATENCY * late * moment *
           exp(NODE_SD * (normal(name_of(c, 6, a, 0, 0)) + normal(name_of(c, 6, b, 0, 0))) +
               PATH_SD * normal(name_of(c, 7, lo, hi, 0)) + 2 * NOISE_SD * normal(luck));
}

static void keep(struct cluster *c, uint32_t from, uint32_t to, enum mesh_kind kind, uint8_t nic, double value,
                 bool again)
{
    const struct mesh_sample s = {(uint16_t)from, (uint16_t)to, (uint8_t)kind, nic, nic, (float)value};
    if ((again ? mesh_add_again(&c->m, &s) : mesh_add(&c->m, &s)) < 0)
        exit(99);
}

static void measure_pair(struct cluster *c, struct mesh_pair p, uint64_t try, bool rails)
{
    if (c->plant == DEAD && (p.a == c->bad || p.b == c->bad) && c->m.node[c->bad].state != MESH_WELL)
        return;
    const bool again = try > 0;
    for (unsigned way = 0; way < 2; way++) {
        uint32_t from = way ? p.b : p.a, to = way ? p.a : p.b;
        double sum = 0;
        for (uint8_t nic = 0; nic < c->nics; nic++) {
            double v = measure_rate(c, from, to, nic, try);
            sum += v;
            keep(c, from, to, MESH_K_WAY, nic, v, again);
            if (rails)
                keep(c, from, to, MESH_K_RAIL, nic, measure_rate(c, from, to, nic, try + 100), again);
        }
        if (!again)
            keep(c, from, to, MESH_K_WAY, MESH_ALL, sum, false);
    }
    double us = measure_latency(c, p.a, p.b, try);
    keep(c, p.a, p.b, MESH_K_LATENCY, MESH_ALL, us, again);
    keep(c, p.b, p.a, MESH_K_LATENCY, MESH_ALL, us, again);
}

/* Repeats the measurements of the suspects. */
static void measure_again(struct cluster *c, const struct mesh_findings *f, uint64_t try)
{
    for (size_t i = 0; i < f->n_suspects; i++)
        measure_pair(c, (struct mesh_pair){f->suspect[i].from, f->suspect[i].to}, try,
                     f->suspect[i].kind == MESH_K_RAIL);
}

/* Measures in the same order as the lead rank: all rounds first, then the suspects AGAIN times. */
static void measure_cluster(struct cluster *c, struct mesh_findings *f)
{
    struct mesh_pair *pair = calloc(c->n / 2 + 1, sizeof *pair);
    if (!pair || mesh_init(&c->m, c->n) < 0)
        exit(99);
    for (uint32_t i = 0; i < c->n; i++) {
        snprintf(c->m.node[i].name, MESH_NAME, "node%u", i);
        for (unsigned k = 0; k < c->nics; k++) {
            char name[16];
            snprintf(name, sizeof name, "eth%u", k);
            (void)mesh_nic(&c->m.node[i], name);
        }
    }
    for (uint32_t r = 0; r < mesh_rounds(c->n); r++) {
        if (c->plant == DEAD && r == mesh_rounds(c->n) / 2)
            c->m.node[c->bad].state = MESH_DIED;
        size_t n = mesh_round(c->n, r, pair);
        for (size_t i = 0; i < n; i++)
            measure_pair(c, pair[i], 0, r < 2 + c->n % 2); /* as the lead rank does */
    }
    free(pair);
    for (uint64_t try = 1; try <= AGAIN; try++) {
        if (mesh_judge(&c->m, f) < 0)
            exit(99);
        measure_again(c, f, try);
        mesh_findings_free(f);
    }
    if (mesh_judge(&c->m, f) < 0)
        exit(99);
}

/* expected findings */

static bool is_right(const struct cluster *c, const struct mesh_finding *f)
{
    const int bad = (int)c->bad, other = (int)c->other;
    switch (c->plant) {
    case RECEIVES:
        return f->what == MESH_F_RECEIVES && f->node == bad && f->nic == c->nic && fabs(f->ratio - 0.41) < 0.06;
    case SENDS:
        return f->what == MESH_F_SENDS && f->node == bad && f->nic == c->nic && fabs(f->ratio - 0.5) < 0.06;
    case PORT:
    case BUSY:
        return f->what == MESH_F_PORT && f->node == bad && f->nic == c->nic;
    case NODE:
        return f->what == MESH_F_NODE && f->node == bad;
    case RAIL:
        return f->what == MESH_F_RAIL && f->nic == c->nic && fabs(f->ratio - 0.5) < 0.06;
    case PATH:
        return f->what == MESH_F_PATH && f->node == bad && f->peer == other && f->nic == c->nic && !f->mutual;
    case DEAD:
        return f->what == MESH_F_DIED && f->node == bad;
    case LATE_NODE:
        return f->kind == MESH_K_LATENCY && f->node == bad && f->what == MESH_F_PORT;
    case LATE_PAIR:
        return f->what == MESH_F_PATH && f->kind == MESH_K_LATENCY &&
               ((f->node == bad && f->peer == other) || (f->node == other && f->peer == bad));
    default:
        return false;
    }
}

/* Returns whether mesh found the planted fault and nothing else. */
static bool run_cluster(uint32_t n, enum plant plant, uint64_t seed)
{
    struct cluster c = {.n = n, .seed = seed, .plant = plant, .nics = n > 200 ? 2 : NICS};
    struct mesh_findings f = {0};
    c.bad = (uint32_t)(mix(seed * 3) % n);
    c.other = (c.bad + 1 + (uint32_t)(mix(seed * 5) % (n - 1))) % n;
    c.nic = (uint8_t)(mix(seed * 7) % c.nics);
    measure_cluster(&c, &f);
    bool good = plant == HEALTHY || plant == POLLED ? f.n == 0 : f.n == 1 && is_right(&c, &f.f[0]);
    for (size_t i = 0; i < f.n && i < 4 && !good; i++) {
        char text[512];
        mesh_say(&c.m, &f.f[i], text, sizeof text);
        printf("# seed %" PRIu64 ", %s at node%u eth%u to node%u: %s\n", seed, plant_name[plant], c.bad, c.nic, c.other,
               text);
    }
    if (!good && f.n == 0)
        printf("# seed %" PRIu64 ", %s at node%u eth%u to node%u: nothing found\n", seed, plant_name[plant], c.bad,
               c.nic, c.other);
    mesh_findings_free(&f);
    mesh_free(&c.m);
    return good;
}

static void run_size(uint32_t n, unsigned clusters)
{
    for (enum plant p = HEALTHY; p < PLANTS; p++) {
        unsigned good = 0;
        for (unsigned i = 0; i < clusters; i++)
            good += run_cluster(n, p, (uint64_t)n * 100000 + p * 1000 + i);
        /* one miss in a hundred is allowed, but no finding in a healthy cluster */
        bool enough = p == HEALTHY || p == POLLED ? good == clusters : 100 * good >= 99 * clusters;
        ok(enough, "%u nodes, %s: %u of %u rightly named", n, plant_name[p], good, clusters);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        run_size((uint32_t)atoi(argv[1]), (unsigned)atoi(argv[2]));
        return tap_done();
    }
    run_size(8, 100);
    run_size(64, 20);
    run_size(200, 2);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what the ranks measure: rounds of all pairs, loads, and repeated measurements of outliers. */
#include "tool/mesh/run/mesh_lead.h"
#include "tool/report/output.h"
#include "tool/tool.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define RAIL_ROUNDS 2 /* initial rounds, which always measure each rail alone; one more for an odd number of nodes */
#define AGAIN       3 /* maximum number of times that outliers are measured again */
#define LOAD_TIMES  4 /* duration of a load, as a multiple of a pair's measurement */

/* Returns true if a node that takes part has too few results of its rails, for example because pairs failed when other
 * nodes were lost. */
static bool lacks_rails(const struct lead *l, uint32_t node)
{
    return lead_has(l, node) && l->railed[node] < RAIL_ROUNDS;
}

/* Keeps only the pairs in which a node lacks results of its rails. Returns their number. */
static size_t list_lacking(const struct lead *l, struct mesh_pair *pair, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++)
        if (lacks_rails(l, pair[i].a) || lacks_rails(l, pair[i].b))
            pair[left++] = pair[i];
    return left;
}

static int measure_round(struct lead *l, struct mesh_pair *pair, size_t n, bool rails)
{
    memset(l->failed_now, 0, l->size * sizeof *l->failed_now);
    int rc = lead_phase(l, pair, n, MESH_LATENCY, l->o->duration_ms);
    if (rc == 0)
        rc = lead_phase(l, pair, n, MESH_ONE_WAY, l->o->duration_ms);
    if (rc == 0 && !l->o->quick)
        rc = lead_phase(l, pair, n, MESH_BOTH_WAYS, l->o->duration_ms);
    if (!rails)
        n = list_lacking(l, pair, n);
    if (rc == 0 && n > 0)
        rc = lead_phase(l, pair, n, MESH_RAILS, l->o->duration_ms);
    return rc;
}

static void show_progress(const struct lead *l, uint32_t round, uint64_t start)
{
    uint32_t out = 0;
    char left[32] = "";
    for (uint32_t i = 0; i < l->m->n; i++)
        out += !lead_has(l, i);
    double passed = (double)(hw_now() - start) / 1e9;
    if (round > 0)
        snprintf(left, sizeof left, ", %.0f s left", passed / round * (l->m->of_rounds - round));
    output_progress("round %u of %u, %u of %u nodes excluded%s", round + 1, l->m->of_rounds, out, l->m->n, left);
}

static int measure_rounds(struct lead *l, struct mesh_pair *pair)
{
    const uint32_t rounds = mesh_rounds(l->m->n);
    const uint64_t start = hw_now();
    int rc = 0;
    l->m->of_rounds = rounds;
    for (uint32_t r = 0; r < rounds && rc == 0; r++) {
        uint64_t passed = (hw_now() - start) / HW_MS;
        if (l->o->budget_ms && r > 0 && passed + passed / r > l->o->budget_ms)
            break;
        show_progress(l, r, start);
        rc = measure_round(l, pair, mesh_round(l->m->n, r, pair), l->o->rails || r < RAIL_ROUNDS + l->m->n % 2);
        l->m->rounds += rc == 0;
    }
    return rc;
}

/* Pairs each node of one half with a node of the other half, and measures all pairs at once, in both directions. Then
 * measures each node with several others at once. */
static int measure_loads(struct lead *l, struct mesh_pair *pair)
{
    const uint32_t half = l->m->n / 2;
    for (uint32_t i = 0; i < half; i++)
        pair[i] = (struct mesh_pair){i, half + i};
    memset(l->failed_now, 0, l->size * sizeof *l->failed_now);
    l->keep = LEAD_ASIDE; /* loads are not comparable with the rounds */
    output_progress("bisection");
    l->sum_GBps = 0;
    int rc = lead_phase(l, pair, half, MESH_BOTH_WAYS, LOAD_TIMES * l->o->duration_ms);
    l->m->bisection_GBps = l->sum_GBps;
    output_progress("all to all");
    if (rc == 0)
        rc = lead_all_to_all(l, LOAD_TIMES * l->o->duration_ms);
    l->keep = LEAD_KEEP;
    return rc;
}

/* ---- repeated measurements -------------------------------------------------------------------------- */

static enum mesh_what get_order_kind(enum mesh_kind kind)
{
    return kind == MESH_K_LATENCY ? MESH_LATENCY
           : kind == MESH_K_BOTH  ? MESH_BOTH_WAYS
           : kind == MESH_K_RAIL  ? MESH_RAILS
                                  : MESH_ONE_WAY;
}

static int by_pair(const void *a, const void *b)
{
    const struct mesh_pair *x = a, *y = b;
    return x->a != y->a ? (x->a < y->a ? -1 : 1) : x->b != y->b ? (x->b < y->b ? -1 : 1) : 0;
}

/* Lists the pairs of the suspects of one kind whose nodes both take part, each pair once. Returns their number. */
static size_t list_suspects(const struct lead *l, const struct mesh_findings *found, enum mesh_kind kind,
                            struct mesh_pair *todo)
{
    size_t n = 0, left = 0;
    for (size_t i = 0; i < found->n_suspects; i++) {
        const struct mesh_suspect *s = &found->suspect[i];
        if (s->kind == kind && lead_has(l, s->from) && lead_has(l, s->to))
            todo[n++] = (struct mesh_pair){HW_MIN(s->from, s->to), HW_MAX(s->from, s->to)};
    }
    qsort(todo, n, sizeof *todo, by_pair);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || by_pair(&todo[i], &todo[i - 1]) != 0)
            todo[left++] = todo[i];
    return left;
}

static int measure_again(struct lead *l, const struct mesh_findings *found, struct mesh_pair *pair)
{
    static const enum mesh_kind kinds[] = {MESH_K_WAY, MESH_K_RAIL, MESH_K_BOTH, MESH_K_LATENCY};
    HW_AUTO_FREE struct mesh_pair *todo = calloc(found->n_suspects, sizeof *todo);
    int rc = todo ? 0 : hw_no_memory("%zu pairs", found->n_suspects);
    l->keep = LEAD_AGAIN;
    for (size_t k = 0; k < HW_ARRAY_LEN(kinds) && rc == 0; k++) {
        size_t n = list_suspects(l, found, kinds[k], todo);
        while (n > 0 && rc == 0) {
            output_progress("repeating the measurements of %zu pair%s", n, hw_plural(n));
            memset(l->failed_now, 0, l->size * sizeof *l->failed_now);
            int taken = mesh_take_disjoint(todo, &n, l->m->n, pair, l->m->n / 2);
            rc = taken < 0 ? taken : lead_phase(l, pair, (size_t)taken, get_order_kind(kinds[k]), l->o->duration_ms);
        }
    }
    l->keep = LEAD_KEEP;
    return rc;
}

/* Judges the results and measures the suspects again, until no suspects are left, but at most AGAIN times. */
static int judge_twice(struct lead *l, struct mesh_pair *pair)
{
    struct mesh_findings found;
    int rc = mesh_judge(l->m, &found);
    for (unsigned k = 0; k < AGAIN && rc == 0 && found.n_suspects > 0; k++) {
        rc = measure_again(l, &found, pair);
        mesh_findings_free(&found);
        if (rc == 0)
            rc = mesh_judge(l->m, &found);
    }
    if (rc == 0)
        mesh_findings_free(&found);
    return rc;
}

int lead_measure(struct lead *l)
{
    HW_AUTO_FREE struct mesh_pair *pair = calloc(l->m->n / 2 + 1, sizeof *pair);
    if (!pair)
        return hw_no_memory("%u pairs", l->m->n / 2);
    int rc = measure_rounds(l, pair);
    if (rc == 0)
        rc = judge_twice(l, pair);
    if (rc == 0 && l->o->load)
        rc = measure_loads(l, pair);
    return rc;
}

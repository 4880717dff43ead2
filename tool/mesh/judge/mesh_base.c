/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a run with the baseline, an earlier run. */
#include "tool/mesh/show/mesh_out.h"

#include "tool/load/stats.h"

#include <math.h>
#include <string.h>

#define SLOWER 0.8 /* ratio to the baseline below which a rate is a finding */
#define LONGER 1.5 /* ratio to the baseline above which a latency is a finding */

/* Returns the median of a node's samples as sender and receiver or, if node < 0, of all nodes' samples. Uses the
 * samples over one NIC or, if nic is NULL, those over all NICs together. Returns NAN without samples. */
static double get_median(const struct mesh *m, enum mesh_kind kind, int node, const char *nic, double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct mesh_sample *s = &m->sample[i];
        if (s->kind != kind || !(s->value > 0) || (s->nic == MESH_ALL) != !nic)
            continue;
        bool from = (int)s->from == node && (!nic || strcmp(m->node[s->from].nic[s->nic].name, nic) == 0);
        bool to = (int)s->to == node && (!nic || strcmp(m->node[s->to].nic[s->to_nic].name, nic) == 0);
        if (node < 0 || from || to)
            room[n++] = s->value;
    }
    return n ? stats_median(room, n) : NAN;
}

static bool is_worse(enum mesh_kind kind, double ratio)
{
    return kind == MESH_K_LATENCY ? ratio > LONGER : ratio < SLOWER;
}

int mesh_find_node(const struct mesh *m, const char *name)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (strcmp(m->node[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool is_named(const struct mesh_findings *f, int node)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->f[i].node == node && f->f[i].what != MESH_F_PATH && f->f[i].what != MESH_F_RAIL)
            return true;
    return false;
}

static int compare_kind(const struct mesh *m, const struct mesh *was, enum mesh_kind kind, double *room, double *old,
                        struct mesh_findings *out)
{
    struct mesh_finding f = {.what = MESH_F_CHANGED, .kind = kind, .node = -1, .nic = -1, .peer = -1, .peer_nic = -1};
    f.ratio = get_median(m, kind, -1, NULL, room) / get_median(was, kind, -1, NULL, old);
    if (isnan(f.ratio))
        return 0;
    if (is_worse(kind, f.ratio)) /* the median over all nodes is worse, so the finding names none of them */
        return mesh_find(out, &f);
    int rc = 0;
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        int there = mesh_find_node(was, m->node[i].name);
        if (there < 0 || is_named(out, (int)i))
            continue;
        f.node = (int)i;
        f.ratio = get_median(m, kind, (int)i, NULL, room) / get_median(was, kind, there, NULL, old);
        if (is_worse(kind, f.ratio))
            rc = mesh_find(out, &f);
    }
    return rc;
}

static int compare_nics(const struct mesh *m, const struct mesh *was, double *room, double *old,
                        struct mesh_findings *out)
{
    int rc = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        int there = mesh_find_node(was, m->node[i].name);
        if (there < 0 || is_named(out, (int)i))
            continue;
        for (uint32_t k = 0; k < m->node[i].n_nics && rc == 0; k++) {
            const char *nic = m->node[i].nic[k].name;
            struct mesh_finding f = {.what = MESH_F_CHANGED,
                                     .kind = MESH_K_WAY,
                                     .node = (int)i,
                                     .nic = (int)k,
                                     .peer = -1,
                                     .peer_nic = -1,
                                     .ratio = get_median(m, MESH_K_WAY, (int)i, nic, room) /
                                              get_median(was, MESH_K_WAY, there, nic, old)};
            if (is_worse(f.kind, f.ratio))
                rc = mesh_find(out, &f);
        }
    }
    return rc;
}

int mesh_compare(const struct mesh *m, const struct mesh *was, struct mesh_findings *out)
{
    HW_AUTO_FREE double *room = calloc(m->n_samples + 1, sizeof *room);
    HW_AUTO_FREE double *old = calloc(was->n_samples + 1, sizeof *old);
    const size_t before = out->n;
    int rc = room && old ? 0 : hw_no_memory("%zu results", m->n_samples);
    for (enum mesh_kind kind = MESH_K_LATENCY; kind <= MESH_K_BOTH && rc == 0; kind++)
        rc = compare_kind(m, was, kind, room, old, out);
    /* compare single NICs, unless a median over all nodes has become worse */
    bool all = false;
    for (size_t i = before; i < out->n; i++)
        all |= out->f[i].node < 0;
    return rc < 0 || all ? rc : compare_nics(m, was, room, old, out);
}

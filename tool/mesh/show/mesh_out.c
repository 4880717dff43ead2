/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/show/mesh_out.h"

#include "tool/load/stats.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int mesh_figures(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_figures *out)
{
    double *v = calloc(m->n_samples + 1, sizeof *v);
    *out = (struct mesh_figures){.least = INFINITY};
    if (!v)
        return hw_no_memory("%zu samples", m->n_samples);
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct mesh_sample *s = &m->sample[i];
        if (s->kind != kind || (s->nic != MESH_ALL) != nics || !(s->value > 0))
            continue;
        v[out->n++] = s->value;
        if (s->value < out->least) {
            out->least = s->value;
            out->at_least = *s;
        }
        if (s->value > out->most) {
            out->most = s->value;
            out->at_most = *s;
        }
    }
    if (out->n)
        out->median = stats_median(v, out->n);
    free(v);
    return 0;
}

static int print_kind(FILE *out, const struct mesh *m, enum mesh_kind kind, bool nics, const char *what)
{
    struct mesh_figures f;
    char pair[2 * MESH_NAME + 16];
    int rc = mesh_figures(m, kind, nics, &f);
    if (rc < 0 || !f.n)
        return rc;
    const struct mesh_sample *worst = kind == MESH_K_LATENCY ? &f.at_most : &f.at_least;
    snprintf(pair, sizeof pair, "%s to %s%s%s", m->node[worst->from].name, m->node[worst->to].name, nics ? ", " : "",
             nics ? m->node[worst->from].nic[worst->nic].name : "");
    fprintf(out, "%-24s %10.4g %10.4g %10.4g  %s\n", what, f.median, f.least, f.most, pair);
    return 0;
}

int mesh_print(const struct mesh *m, const struct mesh_findings *f, FILE *out)
{
    static const struct {
        enum mesh_kind kind;
        bool nics;
        const char *what;
    } lines[] = {{MESH_K_WAY, false, "GB/s one way"},
                 {MESH_K_BOTH, false, "GB/s each way, both busy"},
                 {MESH_K_RAIL, true, "GB/s of one rail alone"},
                 {MESH_K_LATENCY, false, "us for 8 bytes"}};
    uint32_t well = 0;
    int rc = 0;
    char text[512];
    for (uint32_t i = 0; i < m->n; i++)
        well += m->node[i].state == MESH_WELL;
    fprintf(out, "# hawser %s mesh, %s: %u of %u nodes, %u of %u rounds in %.1f s, %.3f GB checked\n", hawser_version(),
            m->what, well, m->n, m->rounds, m->of_rounds, m->seconds, (double)m->checked / 1e9);
    fprintf(out, "%-24s %10s %10s %10s  %s\n", "", "median", "least", "most", "worst pair");
    for (size_t i = 0; i < HW_ARRAY_LEN(lines) && rc == 0; i++)
        rc = print_kind(out, m, lines[i].kind, lines[i].nics, lines[i].what);
    if (m->bisection_GBps > 0)
        fprintf(out, "%-24s %10.4g\n", "GB/s bisection", m->bisection_GBps);
    if (m->all_GBps > 0)
        fprintf(out, "%-24s %10.4g\n", "GB/s all to all", m->all_GBps);
    for (size_t i = 0; i < f->n; i++) {
        mesh_say(m, &f->f[i], text, sizeof text);
        fprintf(out, "finding: %s\n", text);
    }
    if (f->n)
        fprintf(out, "%zu finding%s\n", f->n, hw_plural(f->n));
    else
        fprintf(out, "no findings: no node, NIC, rail or path stands out\n");
    return rc;
}

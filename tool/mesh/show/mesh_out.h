/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `hawser mesh`: figures and findings on a terminal, and the HTML report. */
#ifndef HW_MESH_OUT_H
#define HW_MESH_OUT_H

#include "tool/mesh/judge/mesh_judge.h"

/* Figures of one kind of samples, of those of all NICs together, or of each NIC's. */
struct mesh_figures {
    size_t n;
    double median, least, most;
    struct mesh_sample at_least, at_most;
};
/* False without samples, and after -ENOMEM. */
bool mesh_figures(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_figures *out);

void mesh_print(const struct mesh *m, const struct mesh_findings *f, FILE *out);

/* Writes a self-contained page: no script, no font, no image. -errno. */
int mesh_html(const struct mesh *m, const struct mesh_findings *f, const char *path);

/* Adds findings for whatever is slower than in `was`, matched by the names of nodes and NICs: medians of all, of nodes
 * and of NICs. Skips what is already named. -ENOMEM. */
int mesh_compare(const struct mesh *m, const struct mesh *was, struct mesh_findings *out);

#endif

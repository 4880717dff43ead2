/* SPDX-License-Identifier: Apache-2.0 */
/* What `hawser mesh` shows: figures and findings on a terminal, and the HTML report. */
#ifndef HW_MESH_OUT_H
#define HW_MESH_OUT_H

#include "tool/mesh/judge/mesh_judge.h"

/* Figures of one kind of samples, of those of all NICs together, or of each NIC's. */
struct mesh_figures {
    size_t n;
    double median, least, most;
    struct mesh_sample at_least, at_most;
};
/* False where there is no sample. -ENOMEM counts as none. */
bool mesh_figures(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_figures *out);

void mesh_print(const struct mesh *m, const struct mesh_findings *f, FILE *out);

/* One page that needs nothing else: no script, no font, no image. was: the baseline; NULL: none. -errno. */
int mesh_html(const struct mesh *m, const struct mesh_findings *f, const char *path);

/* Adds findings of what is slower than in `was`, by nodes' and NICs' names: medians of all, of nodes and of NICs. What
 * is named already is not named again. -ENOMEM. */
int mesh_compare(const struct mesh *m, const struct mesh *was, struct mesh_findings *out);

#endif

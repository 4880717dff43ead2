/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `hawser mesh`: figures and findings on a terminal, and the HTML report. Also the comparison with a
 * baseline. */
#ifndef HW_MESH_OUT_H
#define HW_MESH_OUT_H

#include "tool/mesh/judge/mesh_judge.h"

/* Figures of the samples of one kind, over all NICs together or over single NICs. */
struct mesh_figures {
    size_t n;
    double median, least, most;
    struct mesh_sample at_least, at_most;
};
/* Computes the figures. out->n is 0 if there are no samples. Fails with -ENOMEM. */
int mesh_figures(const struct mesh *m, enum mesh_kind kind, bool nics, struct mesh_figures *out);

/* Prints figures and findings. Fails with -ENOMEM, after it has printed the rest. */
int mesh_print(const struct mesh *m, const struct mesh_findings *f, FILE *out);

/* Writes a self-contained page without scripts. Returns 0 or -errno. */
int mesh_html(const struct mesh *m, const struct mesh_findings *f, const char *path);

/* Returns the number of the node with this name, or -1. */
int mesh_find_node(const struct mesh *m, const char *name);

/* Adds findings for medians that are much worse than in `was`: those of all nodes or, if these are not worse, those of
 * each node and of each NIC, matched by name. Skips nodes that already have findings, other than those about paths and
 * rails. Fails with -ENOMEM. */
int mesh_compare(const struct mesh *m, const struct mesh *was, struct mesh_findings *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a heat map of all pairs of a mesh, as inline SVG. */
#ifndef HW_MESH_HEAT_H
#define HW_MESH_HEAT_H

#include "tool/mesh/judge/mesh_judge.h"

enum heat_order { HEAT_BY_NAME, HEAT_BY_RACK, HEAT_BY_RESULT, HEAT_ORDERS };

/* Medians of each node (NAN without samples), and the nodes in each order. */
struct heat_nodes {
    double *sends, *receives, *latency; /* GB/s, GB/s, us */
    uint32_t *order[HEAT_ORDERS];
};
/* Computes the medians and the orders. Fails with -ENOMEM. The caller frees *out in any case. */
int heat_nodes(const struct mesh *m, struct heat_nodes *out);
void heat_nodes_free(struct heat_nodes *h);

/* Draws a heat map, or nothing if there are no samples. With more than 128 nodes, a cell covers several pairs and shows
 * the worst of them. Fails with -ENOMEM. */
int mesh_heat(FILE *f, const struct mesh *m, const struct mesh_findings *found, enum mesh_kind kind,
              enum heat_order order);

#endif

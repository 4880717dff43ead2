/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of measurements: which pairs measure in which round. No I/O. */
#ifndef HW_MESH_PLAN_H
#define HW_MESH_PLAN_H

#include "base/base.h"

struct mesh_pair {
    uint32_t a, b; /* a asks, b serves */
};

/* A round robin of n nodes: in each of mesh_rounds(n) rounds each node is in at most one pair, and every pair occurs
 * once in all rounds together. n odd: one node pauses in each round. */
uint32_t mesh_rounds(uint32_t n);
/* Writes the pairs of a round to out, which has room for n / 2. Returns their number. A node asks in about half of its
 * pairs. */
size_t mesh_round(uint32_t n, uint32_t round, struct mesh_pair *out);

/* Moves pairs from todo[0..*n) to out, at most cap, so that no two of them share a node; todo keeps its order. nodes:
 * the number of nodes. Returns how many pairs it moved; 0 if todo is empty. -ENOMEM. */
int mesh_take_disjoint(struct mesh_pair *todo, size_t *n, uint32_t nodes, struct mesh_pair *out, size_t cap);

#endif

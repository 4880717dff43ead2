/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of measurements: the pairs that measure in each round. No I/O. */
#ifndef HW_MESH_PLAN_H
#define HW_MESH_PLAN_H

#include "base/base.h"

struct mesh_pair {
    uint32_t a, b; /* a measures, b serves */
};

/* Returns the number of rounds of a round robin of n nodes. A node is in at most one pair of a round, and every pair
 * occurs in exactly one round. If n is odd, one node pauses in each round. */
uint32_t mesh_rounds(uint32_t n);
/* Writes the pairs of a round to out, which has room for n / 2 pairs. Returns their number. Each node is `a` in about
 * half of its pairs. */
size_t mesh_round(uint32_t n, uint32_t round, struct mesh_pair *out);

/* Moves up to cap pairs from todo[0..*n) to out, so that no two of them share a node. todo keeps its order. nodes is
 * the number of nodes. Returns the number of moved pairs, which is 0 if todo is empty, or -ENOMEM. */
int mesh_take_disjoint(struct mesh_pair *todo, size_t *n, uint32_t nodes, struct mesh_pair *out, size_t cap);

#endif

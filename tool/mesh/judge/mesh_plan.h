/* SPDX-License-Identifier: Apache-2.0 */
/* Who measures with whom when. Pure. */
#ifndef HW_MESH_PLAN_H
#define HW_MESH_PLAN_H

#include "base/base.h"

struct mesh_pair {
    uint32_t a, b; /* a asks, b serves */
};

/* A round robin of n nodes: in each of mesh_rounds(n) rounds no node is in two pairs, and after all of them every pair
 * has been there once. n odd: one node rests in each round. */
uint32_t mesh_rounds(uint32_t n);
/* The pairs of a round into out, which has room for n / 2. Returns how many. A node asks in about half of its pairs. */
size_t mesh_round(uint32_t n, uint32_t round, struct mesh_pair *out);

/* Takes pairs out of todo[0..*n), which has its order kept, so that none of those taken shares a node with another:
 * into out, at most cap. nodes: how many there are. Returns how many; 0 where none is left. -ENOMEM. */
int mesh_take_disjoint(struct mesh_pair *todo, size_t *n, uint32_t nodes, struct mesh_pair *out, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The circle method: one node keeps its position, and the others advance by one position in each round. */
#include "tool/mesh/judge/mesh_plan.h"

uint32_t mesh_rounds(uint32_t n)
{
    return n < 2 ? 0 : n % 2 ? n : n - 1;
}

size_t mesh_round(uint32_t n, uint32_t round, struct mesh_pair *out)
{
    const uint32_t places = n + n % 2, moving = places - 1;
    size_t count = 0;
    for (uint32_t k = 0; k < places / 2; k++) {
        uint32_t a = k == 0 ? moving : (round + k) % moving;
        uint32_t b = (round + moving - k) % moving;
        if (a >= n || b >= n) /* paired with the dummy that makes the number of nodes even */
            continue;
        /* Alternate the order of (i, j) and (i, j + 1), so that each node comes first in about half of its pairs. */
        bool swap = ((a + b) % 2 == 1) == (a < b);
        out[count++] = swap ? (struct mesh_pair){b, a} : (struct mesh_pair){a, b};
    }
    return count;
}

int mesh_take_disjoint(struct mesh_pair *todo, size_t *n, uint32_t nodes, struct mesh_pair *out, size_t cap)
{
    HW_AUTO_FREE bool *busy = calloc(nodes ? nodes : 1, sizeof *busy);
    size_t taken = 0, left = 0;
    if (!busy)
        return hw_no_memory("%u nodes", nodes);
    for (size_t i = 0; i < *n; i++) {
        const struct mesh_pair p = todo[i];
        if (taken == cap || busy[p.a] || busy[p.b]) {
            todo[left++] = p;
            continue;
        }
        busy[p.a] = busy[p.b] = true;
        out[taken++] = p;
    }
    *n = left;
    return (int)taken;
}

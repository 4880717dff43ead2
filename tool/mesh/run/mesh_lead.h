/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the two parts of the lead: mesh_lead.c communicates with ranks, and mesh_rounds.c decides what
 * to measure. */
#ifndef HW_MESH_LEAD_H
#define HW_MESH_LEAD_H

#include "tool/mesh/judge/mesh_plan.h"
#include "tool/mesh/run/mesh_run.h"

struct lead_rank {
    hawser_peer *peer; /* NULL if not connected yet, or lost */
    struct mesh_hello hello;
    int node; /* index of the node; -1 if another rank on the same host takes part instead */
    bool busy, left;
    struct mesh_order order; /* current order, if busy */
    uint32_t to;             /* node with which a busy rank measures, or MESH_RANKS for several */
};

struct lead {
    const struct mesh_options *o;
    const struct launch_seat *seat;
    hawser *h;
    struct launch_pmix *pmix;
    struct mesh *m;
    /* how samples are recorded: as results, as repeated measurements, or not at all */
    enum { LEAD_KEEP, LEAD_AGAIN, LEAD_ASIDE } keep;
    uint32_t size, here, busy, leaving, spare, seq;
    struct lead_rank *rank;
    uint32_t *by_node;           /* rank of each node */
    uint32_t *failures;          /* failures of each node since a pair with the node last worked */
    uint32_t *railed;            /* for each node, the number of orders that measured each of its rails alone */
    bool *hopeless, *failed_now; /* failed_now: a pair with the node failed in this round */
    bool closed, full;
    char own[HAWSER_ADDR_TEXT]; /* rank 0's address, as other ranks see it */
    /* sum of the rates in answers to MESH_ONE_WAY and MESH_BOTH_WAYS; measure_loads() resets the sum */
    double sum_GBps;
    void (*answered)(struct lead *l, struct lead_rank *r, const struct mesh_answer *a);
};

/* Returns true if the node takes part in measurements. */
bool lead_has(const struct lead *l, uint32_t node);
/* Orders the pairs to measure at the same time, and waits for their answers. Skips pairs with an excluded node, and
 * pairs whose node `a` has failed in this round. Fails with -EINTR or another -errno. */
int lead_phase(struct lead *l, const struct mesh_pair *pair, size_t n, enum mesh_what what, uint64_t duration_ms);
int lead_all_to_all(struct lead *l, uint64_t duration_ms);
void lead_answer(struct lead *l, struct lead_rank *r, const struct mesh_answer *a);
/* Runs the rounds, measures outliers again and, with --load, measures all nodes at once. Returns 0 or -errno. */
int lead_measure(struct lead *l);

#endif

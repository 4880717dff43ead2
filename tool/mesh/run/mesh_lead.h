/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two halves of the lead: mesh_lead.c communicates with ranks, mesh_rounds.c decides what is measured. */
#ifndef HW_MESH_LEAD_H
#define HW_MESH_LEAD_H

#include "tool/mesh/judge/mesh_plan.h"
#include "tool/mesh/run/mesh_run.h"

struct lead_rank {
    hawser_peer *peer; /* NULL: not connected yet, or lost */
    struct mesh_hello hello;
    int node; /* -1: another rank of its host takes part */
    bool busy, left;
    struct mesh_order order; /* busy: its order */
    uint32_t to;             /* and the node with which it measures */
};

struct lead {
    const struct mesh_options *o;
    const struct launch_seat *seat;
    hawser *h;
    struct launch_pmix *pmix;
    struct mesh *m;
    /* samples: keep them, keep them as repeated measurements, or discard them */
    enum { LEAD_KEEP, LEAD_AGAIN, LEAD_ASIDE } keep;
    uint32_t size, here, busy, leaving, spare, seq;
    struct lead_rank *rank;
    uint32_t *by_node;           /* the rank of each node */
    uint32_t *failures;          /* of each node, since a pair with it worked */
    uint32_t *railed;            /* by node: pairs whose rails were measured alone */
    bool *hopeless, *failed_now; /* failed_now: in this round */
    bool closed, full;
    char own[HAWSER_ADDR_TEXT]; /* rank 0's address, as others see it */
    double sum_GBps;            /* of the answers in a phase */
    void (*answered)(struct lead *l, struct lead_rank *r, const struct mesh_answer *a);
};

/* True if the node takes part in measurements. */
bool lead_has(const struct lead *l, uint32_t node);
/* Has each pair measure, all at once, and waits for all answers. -EINTR, -errno. */
int lead_phase(struct lead *l, const struct mesh_pair *pair, size_t n, enum mesh_what what, uint64_t duration_ms);
int lead_all_to_all(struct lead *l, uint64_t duration_ms);
void lead_answer(struct lead *l, struct lead_rank *r, const struct mesh_answer *a);
/* Runs all rounds, then measures outliers again. 0 or -errno. */
int lead_measure(struct lead *l);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of `hawser mesh`: a rank on each node and, on rank 0's node, also the lead, which orders the ranks'
 * measurements. */
#ifndef HW_MESH_RUN_H
#define HW_MESH_RUN_H

#include "tool/common.h"
#include "tool/launch/launch_meet.h"
#include "tool/launch/launch_pmix.h"
#include "tool/mesh/judge/mesh_judge.h"

struct mesh_options {
    struct common common;
    uint64_t wait_ms;     /* ms to wait for all ranks */
    uint64_t deadline_ms; /* ms after which a silent rank is excluded */
    uint64_t budget_ms;   /* ms for all rounds; 0 means no limit */
    uint64_t duration_ms; /* ms of one measurement, each way */
    uint64_t size, pings; /* bytes of a transfer; round trips of a latency measurement */
    uint64_t depth;
    bool rails, load, has_gpu, quick;
    unsigned gpu;
};

/* Runs a rank until the lead dismisses the rank. Returns the exit code. */
int mesh_rank(const struct mesh_options *o, const struct launch_seat *seat, const struct launch_place *place);

/* Sends a message as a notification. If wait_ms is not 0, waits up to that time until the message has arrived. Returns
 * 0 or -errno. */
int mesh_tell(hawser_peer *p, const struct mesh_message *m, int wait_ms);

/* Runs the lead until all ranks are dismissed, and fills in m and out. pmix provides the names of ranks that never
 * connected, and may be NULL. Returns 0, even if the run ended early after at least one round, or -errno. */
int mesh_lead(const struct mesh_options *o, const struct launch_seat *seat, hawser *h, struct launch_pmix *pmix,
              struct mesh *m, struct mesh_findings *out);

#endif

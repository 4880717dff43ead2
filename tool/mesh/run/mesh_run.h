/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of `hawser mesh`: a rank on each node and, on rank 0's node, also the lead, which tells all ranks what
 * to measure. */
#ifndef HW_MESH_RUN_H
#define HW_MESH_RUN_H

#include "tool/common.h"
#include "tool/launch/launch_meet.h"
#include "tool/launch/launch_pmix.h"
#include "tool/mesh/judge/mesh_judge.h"

struct mesh_options {
    struct common common;
    uint64_t wait_ms;     /* to wait for all ranks */
    uint64_t deadline_ms; /* for a rank that stopped answering */
    uint64_t budget_ms;   /* for all rounds; 0: no limit */
    uint64_t duration_ms; /* of one measurement, each way */
    uint64_t size, pings; /* bytes of a transfer; round trips of a latency measurement */
    uint64_t depth;
    bool rails, load, has_gpu, quick;
    unsigned gpu;
};

/* A rank's whole life. The exit code: TOOL_OK once the lead has let it go. */
int mesh_rank(const struct mesh_options *o, const struct launch_seat *seat, const struct launch_place *place);

/* Sends a message as a notification; wait: until it has arrived. -errno. */
int mesh_tell(hawser_peer *p, const struct mesh_message *m, int wait_ms);

/* All that the lead does until the ranks are let go: fills m in. pmix: to name ranks that never came; may be NULL. 0,
 * also where tool_stop ended it early; -errno where nothing was measured. */
int mesh_lead(const struct mesh_options *o, const struct launch_seat *seat, hawser *h, struct launch_pmix *pmix,
              struct mesh *m, struct mesh_findings *out);

#endif

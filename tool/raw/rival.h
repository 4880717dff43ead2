/* SPDX-License-Identifier: Apache-2.0 */
/* Plain sockets (raw.h) between the two ends of a session, over the same addresses and the same memory. */
#ifndef HW_TOOL_RIVAL_H
#define HW_TOOL_RIVAL_H

#include "tool/load/measure.h"

struct rival {
    struct session *s;
    struct session_path path[TP_MAX_PATHS];
    size_t n_paths;
    const struct hw_knobs *knobs; /* whose congestion control they have, too */
};

struct rival_result {
    double GBps, cpu_s_per_GB, peer_cpu_s_per_GB;
    char congestion[16]; /* of this side's sockets */
};

/* Learns the paths from the session's channels, and again before each run. knobs: the session's, which live on. -ENODEV
 * where there are none. */
int rival_open(struct rival *v, struct session *s, const struct hw_knobs *knobs);
/* One run of `streams` streams a path over m's memory: as many bytes as iters operations move, or for duration_ms. */
int rival_run(struct rival *v, struct measure *m, uint32_t streams, uint64_t iters, uint64_t duration_ms,
              struct rival_result *out);
/* The number of streams of 1, 2, 4 and 8 that is fastest, one run each. */
int rival_best(struct rival *v, struct measure *m, uint64_t iters, uint32_t *streams);
/* One ping-pong on the first path: median of half the round trip, microseconds. */
int rival_pingpong(struct rival *v, struct measure *m, uint64_t iters, bool spin, double *p50_us);

#endif

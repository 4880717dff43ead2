/* SPDX-License-Identifier: Apache-2.0 */
/* Runs plain sockets (raw.h) between the two ends of a session, over the same addresses and with the same memory. */
#ifndef HW_TOOL_RIVAL_H
#define HW_TOOL_RIVAL_H

#include "tool/load/measure.h"

struct rival {
    struct session *s;
    struct session_path path[TP_MAX_PATHS];
    size_t n_paths;
    const struct hw_knobs *knobs; /* source of the congestion control */
};

struct rival_result {
    double GBps, cpu_s_per_GB, peer_cpu_s_per_GB;
    char congestion[16]; /* algorithm of this side's sockets */
};

/* Reads the paths from the session's channels; rival_run() reads them again. knobs are those of the session, and must
 * outlive v. Fails with -ENODEV if there are no paths. */
int rival_open(struct rival *v, struct session *s, const struct hw_knobs *knobs);
/* Runs once, with `streams` streams per path over m's memory. Moves as many bytes as iters operations do, or runs for
 * duration_ms if that is not 0. */
int rival_run(struct rival *v, struct measure *m, uint32_t streams, uint64_t iters, uint64_t duration_ms,
              struct rival_result *out);
/* Finds which number of streams per path (1, 2, 4 or 8) gives the highest rate, with one run for each number. */
int rival_best(struct rival *v, struct measure *m, uint64_t iters, uint32_t *streams);
/* Runs one ping-pong on the first path. Stores the median of half a round trip in *p50_us, in microseconds. */
int rival_pingpong(struct rival *v, struct measure *m, uint64_t iters, bool spin, double *p50_us);

#endif

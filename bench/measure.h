/* SPDX-License-Identifier: Apache-2.0 */
/* What engine_bench and socket_bench have in common: the clock, the CPU time of both processes, sockets of one's own.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "tool/report/hist.h"

#include <time.h>
#include <unistd.h>

struct measure {
    uint64_t began, ops, bytes;
    double cpu;          /* seconds of both processes when it began */
    clockid_t far;       /* the other process's CPU time */
    struct hw_hist took; /* single operations, ns */
};

/* Forgets what came before, which was to warm up. other: the process whose CPU time counts, too. */
void begin_measure(struct measure *m, pid_t other);

/* A JSON object: operations and bytes a second, CPU seconds of both processes for 1e9 bytes, microseconds. */
void print_measure(const struct measure *m);

/* Two ends of a TCP connection over loopback, without Nagle's delay; BENCH_CONGESTION names the congestion control.
 * Ends the program where that fails. */
void connect_pair(int end[2]);

#endif

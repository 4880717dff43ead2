/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements and connected sockets for the benchmarks in this folder. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "tool/report/hist.h"

#include <time.h>
#include <unistd.h>

struct measure {
    uint64_t began, ops, bytes;
    double cpu;          /* CPU seconds of both processes at the beginning */
    clockid_t far;       /* clock of the other process's CPU time */
    struct hw_hist took; /* times of operations or batches, ns */
};

/* Resets the measurement, after the warm-up. The CPU time of the process `other` counts too. */
void begin_measure(struct measure *m, pid_t other);

/* Prints a JSON object: operations and bytes per second, CPU seconds of both processes per 1e9 bytes, CPU microseconds
 * and microseconds per operation, and quantiles of the times in `took`. */
void print_measure(const struct measure *m);

/* Creates both ends of a TCP connection over loopback, with TCP_NODELAY and the congestion control BENCH_CONGESTION, if
 * it is set. Ends the program on failure. */
void connect_pair(int end[2]);

#endif

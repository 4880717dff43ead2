/* SPDX-License-Identifier: Apache-2.0 */
/* What engine_bench and socket_bench have in common: the clock, CPU time of two processes, and the line that they
 * print. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES (1u << 20)

struct measure {
    uint64_t began, ops, bytes;
    double cpu;    /* seconds of both processes when it began */
    clockid_t far; /* the other process's CPU time */
    uint32_t n;    /* samples */
    float *us;     /* of single operations; a ring */
};

static inline double read_clock(clockid_t id)
{
    struct timespec t = {0};
    (void)clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double read_cpu(const struct measure *m)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID) + read_clock(m->far);
}

/* Begins anew: what came before was to warm up. */
static inline void begin_measure(struct measure *m, pid_t other)
{
    if (!m->us)
        m->us = calloc(SAMPLES, sizeof *m->us);
    if (!m->us || clock_getcpuclockid(other, &m->far))
        _exit(1);
    m->n = 0, m->ops = 0, m->bytes = 0;
    m->cpu = read_cpu(m);
    m->began = hw_now();
}

static inline void add_sample(struct measure *m, uint64_t ns)
{
    m->us[m->n++ % SAMPLES] = (float)ns / 1e3f;
}

static inline int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static inline double take_percentile(const struct measure *m, double of)
{
    uint32_t n = HW_MIN(m->n, SAMPLES);
    return n ? (double)m->us[(uint32_t)((n - 1) * of)] : 0;
}

/* A JSON object: operations and bytes a second, CPU seconds of both processes per 1e9 bytes, microseconds. */
static inline void print_measure(struct measure *m)
{
    double took = (double)(hw_now() - m->began) / 1e9, cpu = read_cpu(m) - m->cpu;
    qsort(m->us, HW_MIN(m->n, SAMPLES), sizeof *m->us, compare_floats);
    printf("{\"ops\": %.1f, \"bytes\": %.0f, \"cpu\": %.4f, \"cpu_us\": %.3f, \"us\": %.2f, \"p50\": %.2f, \"p99\": "
           "%.2f}\n",
           (double)m->ops / took, (double)m->bytes / took, m->bytes ? cpu * 1e9 / (double)m->bytes : 0,
           m->ops ? cpu * 1e6 / (double)m->ops : 0, m->ops ? took * 1e6 / (double)m->ops : 0, take_percentile(m, 0.5),
           take_percentile(m, 0.99));
    (void)fflush(stdout);
}

#endif

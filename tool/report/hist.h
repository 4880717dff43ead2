/* SPDX-License-Identifier: Apache-2.0 */
/* A log-linear histogram of 64-bit values (nanoseconds): relative error at most 1/128, fixed memory. */
#ifndef HW_HIST_H
#define HW_HIST_H

#include "base/base.h"

#define HW_HIST_SUB_BITS 7 /* 128 linear steps in each power of two */
#define HW_HIST_BUCKETS  ((64 - HW_HIST_SUB_BITS + 1) << HW_HIST_SUB_BITS)

/* Zeroed memory is an empty histogram: all fields are 0 until something is added. */
struct hw_hist {
    uint64_t n, min, max;
    double sum;
    uint64_t bucket[HW_HIST_BUCKETS];
};

void hw_hist_reset(struct hw_hist *h);
void hw_hist_add(struct hw_hist *h, uint64_t value);
void hw_hist_merge(struct hw_hist *into, const struct hw_hist *from);
/* The smallest recorded magnitude that at least q (0..1) of the values do not exceed; exact at 0 and 1; 0 if empty. */
uint64_t hw_hist_quantile(const struct hw_hist *h, double q);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A log-linear histogram of 64-bit values such as nanoseconds, with a relative error of at most 1/128 and fixed
 * memory. */
#ifndef HW_HIST_H
#define HW_HIST_H

#include "base/base.h"

#define HW_HIST_SUB_BITS 7 /* 128 linear steps in each power of two */
#define HW_HIST_BUCKETS  ((64 - HW_HIST_SUB_BITS + 1) << HW_HIST_SUB_BITS)

/* A zeroed histogram is empty: all fields stay 0 until a value is added. */
struct hw_hist {
    uint64_t n, min, max;
    double sum;
    uint64_t bucket[HW_HIST_BUCKETS];
};

void hw_hist_reset(struct hw_hist *h);
void hw_hist_add(struct hw_hist *h, uint64_t value);
void hw_hist_merge(struct hw_hist *into, const struct hw_hist *from);
/* Returns, with a relative error of at most 1/128, the smallest recorded value that at least a fraction q (0 to 1) of
 * the values do not exceed. Exact for 0 and 1. Returns 0 for an empty histogram. */
uint64_t hw_hist_quantile(const struct hw_hist *h, double q);

#endif

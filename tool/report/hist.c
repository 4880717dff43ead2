/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/hist.h"

#include <float.h>
#include <string.h>

#define SUB (1u << HW_HIST_SUB_BITS)

/* Returns the bucket of a value. Values below SUB have one bucket each. From SUB on, each power of two has SUB
 * buckets of equal width. */
static size_t bucket_of(uint64_t v)
{
    int shift;

    if (v < SUB)
        return v;
    shift = 63 - __builtin_clzll(v) - HW_HIST_SUB_BITS;
    return (((size_t)shift + 1) << HW_HIST_SUB_BITS) + (size_t)((v >> shift) - SUB);
}

/* Returns the largest value of bucket i. */
static uint64_t bucket_top(size_t i)
{
    size_t shift;

    if (i < SUB)
        return i;
    shift = (i >> HW_HIST_SUB_BITS) - 1;
    return (((i & (SUB - 1)) + SUB) << shift) + ((1ull << shift) - 1);
}

void hw_hist_reset(struct hw_hist *h)
{
    memset(h, 0, sizeof(*h));
}

void hw_hist_add(struct hw_hist *h, uint64_t value)
{
    if (h->n == 0 || value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
    h->n++;
    h->sum += (double)value;
    h->bucket[bucket_of(value)]++;
}

void hw_hist_merge(struct hw_hist *into, const struct hw_hist *from)
{
    if (from->n == 0)
        return;
    into->min = into->n == 0 ? from->min : HW_MIN(into->min, from->min);
    into->max = HW_MAX(into->max, from->max);
    into->n += from->n;
    into->sum += from->sum;
    for (size_t i = 0; i < HW_HIST_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}

uint64_t hw_hist_quantile(const struct hw_hist *h, double q)
{
    uint64_t rank, seen = 0;
    double r;

    if (!(q > 0)) /* NaN too; min is 0 if nothing was added */
        return h->min;
    if (q >= 1 || h->n == 0)
        return h->max;
    /* Compute the smallest whole rank >= q * n. The product may be slightly above a whole number (0.07 * 100), so a
     * rounding error is subtracted first. */
    r = q * (double)h->n * (1 - 2 * DBL_EPSILON);
    rank = (uint64_t)r;
    if ((double)rank < r || rank == 0)
        rank++;
    for (size_t i = 0; i < HW_HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank)
            return HW_MAX(HW_MIN(bucket_top(i), h->max), h->min);
    }
    return h->max;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the histogram against an exact sort of the same values. */
#include "tests/tap.h"
#include "tool/report/hist.h"

static struct hw_hist h, a, b;
static uint64_t vals[100000];
static uint64_t state = 1;

static uint64_t rnd(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state ^ state >> 33) * 0xff51afd7ed558ccdull;
}

static int by_value(const void *x, const void *y)
{
    uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;
    return p < q ? -1 : p > q;
}

/* Fills h with vals[0..n), sorts the array, and compares the quantiles. Quantiles are fractions num / den, so the exact
 * rank can be computed in integers. */
static void compare(size_t n, const char *what)
{
    static const struct {
        uint64_t num, den;
    } at[] = {{1, 1000}, {1, 100}, {7, 100},  {1, 10},   {1, 4},      {1, 3},        {1, 2},         {2, 3},
              {3, 4},    {9, 10},  {95, 100}, {99, 100}, {999, 1000}, {9999, 10000}, {99999, 100000}};
    int low = 0, high = 0;

    hw_hist_reset(&h);
    for (size_t i = 0; i < n; i++)
        hw_hist_add(&h, vals[i]);
    qsort(vals, n, sizeof(vals[0]), by_value);
    for (size_t i = 0; i < HW_ARRAY_LEN(at); i++) {
        uint64_t rank = (n * at[i].num + at[i].den - 1) / at[i].den, want = vals[rank - 1];
        uint64_t got = hw_hist_quantile(&h, (double)at[i].num / (double)at[i].den);
        if (got < want)
            low++;
        else if (got - want > want / 128)
            high++;
    }
    ok(low == 0 && high == 0, "%s, %zu values: quantiles within 1/128 of a sort's (%d low, %d high)", what, n, low,
       high);
    ok(hw_hist_quantile(&h, 0) == vals[0] && hw_hist_quantile(&h, 1) == vals[n - 1] && h.min == vals[0] &&
           h.max == vals[n - 1] && h.n == n,
       "%s: both ends exact", what);
}

static void distributions(void)
{
    static const size_t sizes[] = {1, 2, 3, 10, 100, 127, 1000, 100000};

    for (size_t s = 0; s < HW_ARRAY_LEN(sizes); s++) {
        size_t n = sizes[s];
        for (size_t i = 0; i < n; i++)
            vals[i] = rnd();
        compare(n, "uniform over 64 bits");
        for (size_t i = 0; i < n; i++)
            vals[i] = rnd() >> (rnd() % 64);
        compare(n, "every magnitude");
        for (size_t i = 0; i < n; i++)
            vals[i] = rnd() % 200;
        compare(n, "small");
        for (size_t i = 0; i < n; i++)
            vals[i] = 50000 + rnd() % 1000 + (rnd() % 1000 == 0 ? 10000000 : 0);
        compare(n, "latencies with a tail");
        for (size_t i = 0; i < n; i++)
            vals[i] = UINT64_MAX - rnd() % 3;
        compare(n, "the largest");
    }
}

/* Tests values at powers of two and next to them. */
static void edges(void)
{
    int wrong = 0;

    for (int bit = 0; bit < 64; bit++)
        for (int d = -2; d <= 2; d++) {
            uint64_t v = (1ull << bit) + (uint64_t)d;
            hw_hist_reset(&h);
            hw_hist_add(&h, v);
            wrong += hw_hist_quantile(&h, 0.5) != v || hw_hist_quantile(&h, 1e-300) != v;
        }
    is_int(wrong, 0, "one value alone is exact, at each power of two and around");
    /* With 0 and UINT64_MAX recorded as well, clamping to min and max does not make a quantile exact. */
    wrong = 0;
    for (int bit = 0; bit < 64; bit++)
        for (int d = -2; d <= 2; d++) {
            uint64_t v = (1ull << bit) + (uint64_t)d, got;
            hw_hist_reset(&h);
            hw_hist_add(&h, 0);
            hw_hist_add(&h, v);
            hw_hist_add(&h, UINT64_MAX);
            got = hw_hist_quantile(&h, 0.5);
            wrong += got < v || got - v > v / 128;
        }
    is_int(wrong, 0, "and within 1/128 among others; below 128 exact");
}

static void odd_questions(void)
{
    memset(&h, 0, sizeof(h));
    is_int(hw_hist_quantile(&h, 0), 0, "empty: 0");
    is_int(hw_hist_quantile(&h, 0.5), 0, "empty: 0");
    is_int(hw_hist_quantile(&h, 1), 0, "empty: 0");
    hw_hist_add(&h, 10);
    hw_hist_add(&h, 20);
    is_int(hw_hist_quantile(&h, -1), 10, "q below 0 is 0");
    is_int(hw_hist_quantile(&h, 2), 20, "q above 1 is 1");
    is_int(hw_hist_quantile(&h, __builtin_nan("")), 10, "NaN is 0");
    is_int(hw_hist_quantile(&h, 0.5), 10, "half of two values is the first");
    is_int(hw_hist_quantile(&h, 0.51), 20, "a bit more is the second");
    is_int((long long)h.sum, 30, "the sum is kept");
    hw_hist_reset(&h);
    is_int(hw_hist_quantile(&h, 1), 0, "a reset forgets");
}

static void merging(void)
{
    hw_hist_reset(&h);
    hw_hist_reset(&a);
    hw_hist_reset(&b);
    hw_hist_merge(&a, &b);
    ok(a.n == 0 && a.min == 0 && a.max == 0, "nothing and nothing is nothing");
    for (int i = 0; i < 10000; i++) {
        uint64_t v = rnd() >> (rnd() % 60);
        hw_hist_add(&h, v);
        hw_hist_add(i % 3 ? &a : &b, v);
    }
    double sum = a.sum + b.sum;
    hw_hist_merge(&a, &b);
    ok(a.n == h.n && a.min == h.min && a.max == h.max && a.sum == sum &&
           memcmp(a.bucket, h.bucket, sizeof(a.bucket)) == 0,
       "merged is as added to one");
    hw_hist_reset(&b);
    hw_hist_merge(&b, &a);
    ok(b.min == a.min && b.max == a.max && b.n == a.n, "an empty one takes the other's ends");
    hw_hist_reset(&h);
    hw_hist_merge(&b, &h);
    ok(b.min == a.min && b.max == a.max && b.n == a.n, "merging an empty one changes nothing");
}

int main(void)
{
    distributions();
    edges();
    odd_questions();
    merging();
    return tap_done();
}

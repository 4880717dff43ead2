/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the gather on each GPU, and compares it with a copy within the GPU's memory in the same run. Prints TAP with
 * targets.
 */
#include "bench.h"

#define SIZE  (2 * GIB) /* size of source and destination */
#define FRAGS ((size_t)1 << 18)

static struct hw_frag frags[FRAGS];
static uint64_t rnd_state = 88172645463325252ull;

static uint64_t rnd(void)
{
    rnd_state ^= rnd_state << 13;
    rnd_state ^= rnd_state >> 7;
    rnd_state ^= rnd_state << 17;
    return rnd_state;
}

/* Makes n fragments of len bytes that are adjacent in the destination, and in random order in the source. */
static void shuffle(size_t n, size_t len, size_t stride, size_t src_at, size_t dst_at)
{
    for (size_t i = 0; i < n; i++)
        frags[i] = (struct hw_frag){src_at + i * stride, dst_at + i * len, len};
    for (size_t i = n; i-- > 1;) {
        size_t j = rnd() % (i + 1);
        uint64_t t = frags[i].src_off;
        frags[i].src_off = frags[j].src_off;
        frags[j].src_off = t;
    }
}

/* Gathers the first n fragments of `frags`, `batch` fragments at a time, and returns the rate. */
static double gather_rate(struct bench *b, size_t n, size_t batch)
{
    const struct hw_gather_bufs bufs = {b->dst, SIZE, b->src, SIZE};
    struct hw_gather *g;
    uint64_t bytes = 0, started = 0;
    double r[ROUNDS];
    size_t taken;

    for (size_t i = 0; i < n; i++)
        bytes += frags[i].len;
    must(hw_gather_open(b->s, HW_GATHER_KERNEL, 1024, 2 * FRAGS, &g));
    for (int i = 0; i < ROUNDS; i++) {
        hold_gather(b, g);
        for (size_t at = 0; at < n; at += taken, started++)
            must(hw_gather_start(g, &bufs, frags + at, HW_MIN(batch, n - at), &taken));
        r[i] = gather_stream_rate(b, g, bytes);
        drain(g, started);
    }
    hw_gather_close(g);
    return median(r, ROUNDS);
}

/* Does the same without a long copy first, and uses the host's clock, so that the rate includes the launch time. */
static double start_rate(struct bench *b, size_t n, size_t batch)
{
    const struct hw_gather_bufs bufs = {b->dst, SIZE, b->src, SIZE};
    struct hw_gather *g;
    double r[ROUNDS];
    uint64_t started = 0;
    must(hw_gather_open(b->s, HW_GATHER_KERNEL, 1024, 2 * FRAGS, &g));
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t bytes = 0;
        const uint64_t t = hw_now();
        for (size_t at = 0, taken; at < n; at += taken, started++) {
            must(hw_gather_start(g, &bufs, frags + at, HW_MIN(batch, n - at), &taken));
            bytes += taken * frags[0].len;
        }
        drain(g, started);
        r[i] = 2e9 * (double)bytes / (double)(hw_now() - t);
    }
    hw_gather_close(g);
    return median(r, ROUNDS);
}

/* Measures the microseconds from the call that starts a batch of n fragments to the call that reports its completion.
 */
static void latency(struct bench *b, enum hw_gather_way way, size_t n, double *half, double *p99)
{
    enum { TIMES = 2000 };
    static double us[TIMES];
    const struct hw_gather_bufs bufs = {b->dst, SIZE, b->src, SIZE};
    struct hw_gather *g;
    size_t taken;

    must(hw_gather_open(b->s, way, 4, 0, &g));
    for (uint64_t i = 0; i < TIMES + 100; i++) {
        const uint64_t t = hw_now();
        must(hw_gather_start(g, &bufs, frags + i % 1000 * n, n, &taken));
        drain(g, i + 1);
        if (i >= 100)
            us[i - 100] = (double)(hw_now() - t) / 1e3;
    }
    hw_gather_close(g);
    *half = median(us, TIMES);
    *p99 = us[TIMES * 99 / 100];
}

/* Measures the pattern functions with the host's clock, including all overhead. */
static void pattern(struct bench *b)
{
    uint64_t bad, t = hw_now();
    must(hw_fill(b->s, b->src, SIZE, 3, 5));
    diag("pattern made: %.0f GB/s", (double)SIZE / (double)(hw_now() - t));
    t = hw_now();
    must(hw_check(b->s, b->src, SIZE, 3, 5, &bad, NULL));
    diag("pattern checked: %.0f GB/s", (double)SIZE / (double)(hw_now() - t));
    ok(bad == 0, "the pattern that was made is found good");
}

static void gpu(int device)
{
    struct bench b = {0};
    struct hw_gpu_info info;
    struct hw_gather *g;
    double half, p99, r;

    must(hw_cuda_info(device, &info));
    bench_open(&b, device, SIZE, SIZE);
    diag("GPU %d: %s", device, info.name);
    pattern(&b);

    must(hw_gather_open(b.s, HW_GATHER_D2D, 1, 0, &g));
    const double copy = copy_rate(&b, hw_gather_stream(g, 0), GIB);
    hw_gather_close(g);
    diag("copy of 1 GiB within the GPU: %.1f GB/s read and written", copy / 1e9);

    shuffle(FRAGS, 4096, 4096, 0, 0);
    r = gather_rate(&b, FRAGS, FRAGS);
    ok(r >= 0.95 * copy, "4096-byte fragments, shuffled, %zu a batch: %.1f GB/s, %.1f %% of the copy (95 %% wanted)",
       FRAGS, r / 1e9, 100 * r / copy);
    for (size_t batch = 16384; batch >= 64; batch /= 4) {
        const double wanted = batch == 4096 ? 0.85 : batch == 1024 ? 0.6 : 0;
        r = gather_rate(&b, HW_MIN(FRAGS / 4, batch * 512), batch);
        if (wanted > 0)
            ok(r >= wanted * copy,
               "4096-byte fragments, shuffled, %zu a batch: %.1f GB/s, %.1f %% of the copy (%.0f %% wanted)", batch,
               r / 1e9, 100 * r / copy, 100 * wanted);
        else
            diag("4096-byte fragments, shuffled, %zu a batch: %.1f GB/s, %.1f %% of the copy", batch, r / 1e9,
                 100 * r / copy);
        r = start_rate(&b, HW_MIN(FRAGS / 4, batch * 512), batch);
        diag("the same by the host's clock, with the cost of starting: %.1f GB/s, %.1f %%", r / 1e9, 100 * r / copy);
    }
    for (size_t n = 64; n <= 256; n *= 4) {
        latency(&b, HW_GATHER_KERNEL, n, &half, &p99);
        if (n == 64)
            ok(half < 10, "64 fragments of 4096 bytes, from start to over: %.1f us, p99 %.1f (10 us wanted)", half,
               p99);
        else
            diag("%zu fragments of 4096 bytes, from start to over: %.1f us, p99 %.1f", n, half, p99);
    }
    latency(&b, HW_GATHER_D2D, 64, &half, &p99);
    diag("64 fragments by d2d: %.1f us, p99 %.1f", half, p99);
    latency(&b, HW_GATHER_HOST, 64, &half, &p99);
    diag("64 fragments by host: %.1f us, p99 %.1f", half, p99);

    shuffle(FRAGS, 1448, 1463, 3, 1);
    r = gather_rate(&b, FRAGS, FRAGS);
    ok(r >= 0.5 * copy,
       "1448-byte fragments at odd offsets, %zu a batch: %.1f GB/s, %.1f %% of the copy (50 %% wanted)", FRAGS, r / 1e9,
       100 * r / copy);
    shuffle(FRAGS, 1448, 1464, 0, 0);
    r = gather_rate(&b, FRAGS, FRAGS);
    diag("1448-byte fragments, multiples of 8: %.1f GB/s, %.1f %% of the copy", r / 1e9, 100 * r / copy);
    shuffle(1, GIB, GIB, 1, 0);
    r = gather_rate(&b, 1, 1);
    diag("one fragment of 1 GiB from an odd offset: %.1f GB/s, %.1f %% of the copy", r / 1e9, 100 * r / copy);

    bench_close(&b);
}

int main(void)
{
    const int n = hw_cuda_count();
    if (n < 0 || hw_cuda(&cu) < 0)
        tap_skip_all("%s", hw_error());
    for (int i = 0; i < n; i++)
        gpu(i);
    return tap_done();
}

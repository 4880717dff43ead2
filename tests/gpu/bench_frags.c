/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests and measures the gather on each GPU, with fragment lists that transport devmem used in a guest
 * (data/frags-*.txt, made by bench/devmem-frags). Checks every byte. Measures the latency, and compares the rate with
 * that of a copy of the same size on the GPU in the same run. Prints TAP, with these targets: 95 % of the copy's rate
 * if the fragments are pages of 4096 bytes, 50 % otherwise, and 64 fragments within 10 us.
 *   bench_frags FILE...
 *   bench_frags --check FILE...   only checks the bytes
 * The list of one chunk keeps the GPU busy for only a microsecond, and its memory fits into the GPU's cache. To measure
 * rates, the list is therefore repeated with different parts of the source and destination buffers, until there is 1
 * GiB to gather.
 */
#include "bench.h"

#include "base/pattern.h"

#include <errno.h>
#include <glob.h>

#define MAX   4096 /* maximum number of fragments and of batches in a file */
#define PAGE  4096
#define SEED  3
#define QUEUE 1024 /* maximum batches in flight; the driver blocks after about this many launches */
#define SRC   (32 * GIB)

struct list {
    const char *name;
    struct hw_frag frag[MAX]; /* in order of dst_off, without gaps */
    size_t end[MAX];          /* index after each batch's last fragment */
    size_t n, batches;
    uint64_t bytes, pool; /* pool: bytes up to the end of the last page used */
};

struct many { /* a repeated list */
    struct hw_frag *frag;
    size_t n, times;
    uint64_t bytes;
};

static bool check_only;

__attribute__((format(printf, 1, 2), noreturn)) static void bail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("Bail out! ");
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    exit(1);
}

static void end_batch(struct list *l)
{
    if (l->n > (l->batches ? l->end[l->batches - 1] : 0))
        l->end[l->batches++] = l->n;
}

/* Makes source offsets relative to the first page used, because no fragment uses the bytes before this page. */
static void rebase(struct list *l)
{
    uint64_t low = UINT64_MAX;
    for (size_t i = 0; i < l->n; i++)
        low = HW_MIN(low, l->frag[i].src_off / PAGE * PAGE);
    for (size_t i = 0; i < l->n; i++) {
        l->frag[i].src_off -= low;
        l->pool = HW_MAX(l->pool, (l->frag[i].src_off + l->frag[i].len + PAGE - 1) / PAGE * PAGE);
    }
}

static void read_list(const char *path, struct list *l)
{
    char line[256];
    FILE *f = fopen(path, "re");
    if (!f)
        bail("%s: %s", path, strerror(errno));
    memset(l, 0, sizeof(*l));
    l->name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (unsigned at = 1; fgets(line, sizeof(line), f); at++) {
        unsigned long long offset;
        unsigned len;
        char more;
        if (line[0] == '#')
            continue;
        if (line[0] == '\n') {
            end_batch(l);
            continue;
        }
        if (l->n == MAX || sscanf(line, "%llu %u%c", &offset, &len, &more) != 3 || more != '\n' || len == 0 ||
            offset >> 40)
            bail("%s:%u: not \"OFFSET LENGTH\", or more than %d of them", path, at, MAX);
        l->frag[l->n++] = (struct hw_frag){offset, l->bytes, len};
        l->bytes += len;
    }
    if (ferror(f))
        bail("%s: %s", path, strerror(errno));
    (void)fclose(f);
    end_batch(l);
    if (l->n == 0)
        bail("%s: no fragments in it", path);
    rebase(l);
}

static struct many repeat(const struct list *l, size_t times)
{
    struct many m = {.frag = calloc(times * l->n, sizeof(*m.frag)), .times = times, .bytes = times * l->bytes};
    if (!m.frag)
        bail("no memory for %zu fragments", times * l->n);
    for (size_t k = 0; k < times; k++)
        for (size_t i = 0; i < l->n; i++)
            m.frag[m.n++] =
                (struct hw_frag){k * l->pool + l->frag[i].src_off, k * l->bytes + l->frag[i].dst_off, l->frag[i].len};
    return m;
}

/* Starts n fragments in as many batches as needed, and adds the number of batches to *started. */
static void start(struct hw_gather *g, const struct bench *b, const struct hw_frag *frag, size_t n, uint64_t *started)
{
    const struct hw_gather_bufs bufs = {b->dst, b->dst_size, b->src, b->src_size};
    while (n) {
        size_t taken;
        int rc = hw_gather_start(g, &bufs, frag, n, &taken);
        if (rc == -EAGAIN) {
            uint64_t upto;
            must(hw_gather_done(g, &upto));
            continue;
        }
        must(rc);
        *started += 1;
        frag += taken;
        n -= taken;
    }
}

/* Starts the fragments in the same batches as the transport. */
static void start_recorded(struct hw_gather *g, const struct bench *b, const struct list *l, const struct hw_frag *frag,
                           uint64_t *started)
{
    for (size_t i = 0, at = 0; i < l->batches; at = l->end[i++])
        start(g, b, frag + at, l->end[i] - at, started);
}

/* Checks every byte of the destination on the host. The source contains a pattern, so the bytes of a fragment show
 * their source offset. */
static void verify(const struct bench *b, const struct list *l, const struct many *m, const char *how)
{
    uint64_t bad = 0;
    uint8_t *host = malloc(m->bytes);
    if (!host)
        bail("no %llu bytes of host memory", (unsigned long long)m->bytes);
    must(hw_load(b->s, host, b->dst, m->bytes));
    for (size_t i = 0; i < m->n; i++)
        bad += hw_pattern_check(host + m->frag[i].dst_off, m->frag[i].len, SEED, m->frag[i].src_off, NULL);
    free(host);
    ok(bad == 0, "%s, %s: of %llu bytes %llu are wrong", l->name, how, (unsigned long long)m->bytes,
       (unsigned long long)bad);
}

static void spoil(const struct bench *b, uint64_t len)
{
    must(hw_fill(b->s, b->dst, len, SEED + 1, 0));
}

static void right(const struct bench *b, const struct list *l)
{
    struct many m = repeat(l, 2);
    struct hw_gather *g;
    uint64_t started = 0;

    must(hw_gather_open(b->s, HW_GATHER_KERNEL, QUEUE, MAX, &g));
    spoil(b, m.bytes);
    for (size_t k = 0; k < m.times; k++)
        start_recorded(g, b, l, m.frag + k * l->n, &started);
    drain(g, started);
    verify(b, l, &m, "in the batches recorded");
    spoil(b, m.bytes);
    start(g, b, m.frag, m.n, &started);
    drain(g, started);
    verify(b, l, &m, "at once");
    hw_gather_close(g);
    free(m.frag);
}

/* ---- times ------------------------------------------------------------------------------------------------------ */

static double gather_rate(struct bench *b, const struct list *l, const struct many *m, bool recorded)
{
    struct hw_gather *g;
    double r[ROUNDS];
    uint64_t started = 0;
    must(hw_gather_open(b->s, HW_GATHER_KERNEL, QUEUE, (unsigned)m->n, &g));
    for (int i = 0; i < ROUNDS; i++) {
        hold_gather(b, g);
        for (size_t k = 0; recorded && k < m->times; k++)
            start_recorded(g, b, l, m->frag + k * l->n, &started);
        if (!recorded)
            start(g, b, m->frag, m->n, &started);
        r[i] = gather_stream_rate(b, g, m->bytes);
        drain(g, started);
    }
    hw_gather_close(g);
    return median(r, ROUNDS);
}

enum what { FEW, RECORDED, WHOLE, COPY };

/* Returns the median latency in microseconds, and stores the 99th percentile. The latency is the host's time from the
 * call that starts the work to the call that reports its completion. The work is 64 fragments, a chunk in the recorded
 * batches, a chunk at once, or a copy of the same size by the driver. Successive rounds use different memory. */
static double latency(struct bench *b, const struct list *l, const struct many *m, enum what what, double *p99)
{
    enum { TIMES = 1000, WARM = 50, N = 64 };
    static double us[TIMES];
    struct hw_gather *g;
    uint64_t started = 0;

    must(hw_gather_open(b->s, what == COPY ? HW_GATHER_D2D : HW_GATHER_KERNEL, QUEUE, MAX, &g));
    for (size_t i = 0; i < TIMES + WARM; i++) {
        const size_t k = i % m->times;
        const struct hw_frag whole = {k * l->pool, k * l->bytes, l->bytes}, *frag = m->frag + k * l->n;
        const uint64_t t = hw_now();
        if (what == RECORDED)
            start_recorded(g, b, l, frag, &started);
        else if (what == COPY)
            start(g, b, &whole, 1, &started);
        else
            start(g, b, frag, what == FEW ? HW_MIN((size_t)N, l->n) : l->n, &started);
        drain(g, started);
        if (i >= WARM)
            us[i - WARM] = (double)(hw_now() - t) / 1e3;
    }
    hw_gather_close(g);
    const double half = median(us, TIMES);
    *p99 = us[TIMES * 99 / 100];
    return half;
}

static void fast(struct bench *b, const struct list *l)
{
    static const char *const what[] = {"64 fragments", "the chunk in the batches recorded", "the chunk at once",
                                       "a copy of the chunk"};
    const size_t times = HW_MIN(b->dst_size / l->bytes, b->src_size / HW_MAX(l->pool, l->bytes));
    const struct many all = repeat(l, times), some = repeat(l, HW_MIN(times, QUEUE / l->batches));
    const double mean = (double)l->bytes / (double)l->n, want = mean > 4000 ? 95 : 50;
    struct hw_gather *g;
    double p99;

    must(hw_gather_open(b->s, HW_GATHER_D2D, 1, 0, &g));
    const double copy = copy_rate(b, hw_gather_stream(g, 0), all.bytes);
    const double copy_some = copy_rate(b, hw_gather_stream(g, 0), some.bytes);
    hw_gather_close(g);

    double r = gather_rate(b, l, &all, false);
    ok(r >= want / 100 * copy,
       "%s: %zu chunks at once: %.0f GB/s read and written, %.1f %% of the copy's %.0f (%.0f %% wanted)", l->name,
       times, r / 1e9, 100 * r / copy, copy / 1e9, want);
    verify(b, l, &all, "after that");
    r = gather_rate(b, l, &some, true);
    diag("%s: %zu chunks in the batches recorded: %.0f GB/s read and written, %.1f %% of a copy's %.0f", l->name,
         some.times, r / 1e9, 100 * r / copy_some, copy_some / 1e9);
    verify(b, l, &some, "after that");
    for (enum what w = FEW; w <= COPY; w++) {
        double half = latency(b, l, &all, w, &p99);
        if (w == FEW)
            ok(half < 10, "%s: %s from start to over: %.1f us, p99 %.1f (10 us wanted)", l->name, what[w], half, p99);
        else
            diag("%s: %s from start to over: %.1f us, p99 %.1f", l->name, what[w], half, p99);
    }
    free(all.frag);
    free(some.frag);
}

static void gpu(int device, const struct list *l, size_t n)
{
    struct bench b = {0};
    struct hw_gpu_info info;
    uint64_t src = 0, dst = 0;

    must(hw_cuda_info(device, &info));
    diag("GPU %d: %s", device, info.name);
    for (size_t i = 0; i < n; i++) {
        const uint64_t times = check_only ? 2 : HW_MAX(GIB / l[i].bytes, (uint64_t)2);
        src = HW_MAX(src, times * HW_MAX(l[i].pool, l[i].bytes));
        dst = HW_MAX(dst, times * l[i].bytes);
    }
    bench_open(&b, device, HW_MIN(src, SRC), dst);
    b.hold = 60; /* long enough for the host to prepare 750,000 fragments */
    must(hw_fill(b.s, b.src, b.src_size, SEED, 0));
    for (size_t i = 0; i < n; i++) {
        diag("%s: %zu fragments of %.0f bytes on average in %zu batches, from %llu KiB of the pool", l[i].name, l[i].n,
             (double)l[i].bytes / (double)l[i].n, l[i].batches, (unsigned long long)l[i].pool >> 10);
        right(&b, &l[i]);
        if (!check_only)
            fast(&b, &l[i]);
    }
    bench_close(&b);
}

int main(int argc, char **argv)
{
    glob_t found = {.gl_pathc = 0};
    check_only = argc > 1 && strcmp(argv[1], "--check") == 0;
    char **path = argv + 1 + check_only;
    size_t n = (size_t)(argc - 1 - check_only);
    const int gpus = hw_cuda_count();
    if (gpus < 0 || hw_cuda(&cu) < 0)
        tap_skip_all("%s", hw_error());
    if (n == 0 && glob("tests/gpu/data/frags-*.txt", 0, NULL, &found) == 0) {
        path = found.gl_pathv;
        n = found.gl_pathc;
    }
    if (n == 0)
        bail("no lists here: bench_frags [--check] FILE...");
    struct list *l = calloc(n, sizeof(*l));
    if (!l)
        bail("no memory for %zu lists", n);
    for (size_t i = 0; i < n; i++)
        read_list(path[i], &l[i]);
    for (int i = 0; i < gpus; i++)
        gpu(i, l, n);
    free(l);
    globfree(&found);
    return tap_done();
}

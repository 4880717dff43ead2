/* SPDX-License-Identifier: Apache-2.0 */
/* Test cases for gathering fragments, which run on the CPU, on the fake CUDA driver and on real GPUs. Each case checks
 * the destination, including bytes outside the fragments. */
#ifndef GATHER_CASES_H
#define GATHER_CASES_H

#include "base/pattern.h"
#include "mem/fill.h"
#include "mem/gather.h"
#include "tests/tap.h"

struct gather_case {
    const char *name;
    size_t src_size, dst_size;
    unsigned src_shift, dst_shift; /* misalignment of the buffers, in bytes */
    bool sparse;                   /* too large to check completely: only some bytes around each fragment are checked */
    size_t n;
    const struct hw_frag *frags;
};

#define GUARD   64 /* bytes before and after each buffer */
#define PATIENT (60 * 1000)
#define AROUND  4096

static uint64_t rnd_state = 88172645463325252ull;

static uint64_t rnd(void)
{
    rnd_state ^= rnd_state << 13;
    rnd_state ^= rnd_state >> 7;
    rnd_state ^= rnd_state << 17;
    return rnd_state;
}

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "no memory\n");
        abort();
    }
    return p;
}

/* ---- the cases ------------------------------------------------------------------------------- */

static struct gather_case cases[16];
static size_t n_cases;

static struct hw_frag *new_case(const char *name, size_t src_size, size_t dst_size, size_t n)
{
    struct hw_frag *f = must(calloc(n + 1, sizeof(*f)));
    cases[n_cases++] =
        (struct gather_case){.name = name, .src_size = src_size, .dst_size = dst_size, .n = n, .frags = f};
    return f;
}

/* Adds a case with every combination of source and destination alignment (modulo 16), with many lengths. */
static void alignments(void)
{
    static const uint16_t len[] = {0,    1,    2,    3,    4,    7,    8,    15,   16,  17,  31,   32,
                                   33,   47,   48,   49,   63,   64,   65,   79,   80,  81,  95,   96,
                                   97,   111,  127,  128,  129,  255,  500,  511,  512, 513, 1023, 1448,
                                   2048, 2049, 4095, 4096, 4097, 4128, 6000, 8191, 8192};
    const size_t n = 256 * HW_ARRAY_LEN(len);
    size_t at = 0, i = 0;

    for (size_t l = 0; l < HW_ARRAY_LEN(len); l++)
        at += 256 * ((size_t)len[l] + 32);
    struct hw_frag *f = new_case("every alignment", at, at, n);
    at = 0;
    for (unsigned a = 0; a < 256; a++)
        for (size_t l = 0; l < HW_ARRAY_LEN(len); l++) {
            f[i++] = (struct hw_frag){at + a / 16, at + a % 16, len[l]};
            at = (at + len[l] + 16 + 15) / 16 * 16;
        }
}

/* Adds a case that shuffles pieces of `len` bytes: piece i of the destination is piece order[i] of the source. Pieces
 * are adjacent in the destination and start `stride` bytes apart in the source. */
static void shuffled(const char *name, size_t n, size_t len, size_t stride, size_t src_at)
{
    size_t *order = must(malloc(n * sizeof(*order)));
    struct hw_frag *f = new_case(name, src_at + n * stride, n * len + 1, n);

    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i-- > 1;) {
        size_t j = rnd() % (i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (size_t i = 0; i < n; i++)
        f[i] = (struct hw_frag){src_at + order[i] * stride, i * len, len};
    free(order);
}

/* Adds a case with sources at random offsets, which often overlap, and with gaps between the destinations. */
static void overlapping(void)
{
    const size_t src = 100003, n = 5000;
    size_t at = 0;
    struct hw_frag *f = new_case("sources that overlap, lengths of chance", src, 0, n);
    for (size_t i = 0; i < n; i++) {
        size_t len = rnd() % (i % 50 ? 300 : 20000), from = rnd() % (src - len);
        at += rnd() % 40;
        f[i] = (struct hw_frag){from, at, len};
        at += len;
    }
    cases[n_cases - 1].dst_size = at;
    for (size_t i = n; i-- > 1;) {
        size_t j = rnd() % (i + 1);
        struct hw_frag t = f[i];
        f[i] = f[j];
        f[j] = t;
    }
}

static void edges(void)
{
    (void)new_case("no fragments", 100, 100, 0);
    struct hw_frag *f = new_case("empty ones at the ends, and in no bytes at all", 0, 0, 2);
    f[0] = f[1] = (struct hw_frag){0, 0, 0};
    f = new_case("one byte, the last of both", 77, 99, 3);
    f[0] = (struct hw_frag){77, 99, 0};
    f[1] = (struct hw_frag){76, 98, 1};
    f[2] = (struct hw_frag){0, 0, 0};
    f = new_case("all of a small buffer", 61, 61, 1);
    f[0] = (struct hw_frag){0, 0, 61};
}

static void large(void)
{
    const size_t one = (20ul << 20) + 13;
    struct hw_frag *f = new_case("one long fragment, aligned", one, one, 1);
    f[0] = (struct hw_frag){0, 0, one};
    f = new_case("one long fragment at odd places, and small ones", one + 100, one + 200, 4);
    f[0] = (struct hw_frag){1, 0, 5};
    f[1] = (struct hw_frag){7, 10, one};
    f[2] = (struct hw_frag){90, one + 20, 16};
    f[3] = (struct hw_frag){0, one + 100, 100};
}

/* Adds a case with offsets above 4 GiB on both sides, forward and backward, which needs several kernel launches. */
static void far(void)
{
    const uint64_t gib = 1ull << 30, size = 6 * gib + 12345;
    struct hw_frag *f = new_case("offsets above 4 GiB", size, size, 600);
    for (size_t i = 0; i < 600; i++) {
        uint64_t near = i * 9000 + i % 37;
        f[i] = (struct hw_frag){i % 3 == 0 ? near : 4 * gib - 3000000 + near, i % 2 ? 5 * gib + near : near, 1 + i * 7};
    }
    f[0] = (struct hw_frag){size - 4000, size - 4000, 4000};
    f[1] = (struct hw_frag){0, 4 * gib - 5, 10};
    f[2] = (struct hw_frag){4 * gib - 1, 4 * gib + 999, 300};
    cases[n_cases - 1].sparse = true;
}

/* Returns the cases, which the first call creates, and stores the number of cases in *n. */
static const struct gather_case *gather_cases(size_t *n)
{
    if (n_cases == 0) {
        edges();
        alignments();
        shuffled("4096 bytes, shuffled", 4096, 4096, 4096, 0);
        shuffled("1448 bytes at odd offsets, shuffled", 3000, 1448, 1463, 3);
        shuffled("single bytes, shuffled", 2500, 1, 3, 1);
        overlapping();
        large();
        far();
        for (size_t i = 0; i < n_cases; i++) {
            cases[i].src_shift = i % 3 * 5;
            cases[i].dst_shift = i % 5 * 3;
        }
    }
    *n = n_cases;
    return cases;
}

/* ---- a run ----------------------------------------------------------------------------------- */

struct side {
    void *at;   /* start of the allocation */
    size_t len; /* length of the allocation */
    char *buf;  /* start of the buffer, at least GUARD bytes after `at` */
};

static int side_open(const struct hw_space *s, struct side *d, size_t size, unsigned shift)
{
    *d = (struct side){.len = size + shift + 2 * GUARD};
    int rc = s->ops->alloc(s, d->len, &d->at);
    if (rc == 0)
        d->buf = (char *)d->at + GUARD + shift;
    return rc;
}

static void side_close(const struct hw_space *s, struct side *d)
{
    if (d->at)
        s->ops->free(s, d->at, d->len);
}

/* Gathers n fragments in batches of up to `batch` fragments. Returns 0 or -errno. */
static int gather(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *f, size_t n, size_t batch)
{
    const uint64_t deadline = hw_deadline(PATIENT);
    uint64_t started = 0, over = 0;
    size_t taken;
    int rc;

    for (size_t at = 0; at < n || n == 0; at += taken) {
        rc = hw_gather_start(g, b, f + at, HW_MIN(batch, n - at), &taken);
        if (rc == 0)
            started++;
        else if (rc != -EAGAIN || taken != 0)
            return rc;
        if (hw_now() > deadline)
            return hw_fail(-ETIMEDOUT, "%zu of %zu fragments taken", at, n);
        if (n == 0)
            break;
    }
    while (over < started) {
        rc = hw_gather_done(g, &over);
        if (rc < 0)
            return rc;
        if (hw_now() > deadline)
            return hw_fail(-ETIMEDOUT, "%llu of %llu batches over", (unsigned long long)over,
                           (unsigned long long)started);
    }
    return over == started ? 0 : hw_fail(-EPROTO, "more batches are over than were started");
}

static size_t differ(const unsigned char *a, const unsigned char *b, size_t len, size_t *first)
{
    size_t n = 0;
    for (size_t i = len; i-- > 0;)
        if (a[i] != b[i]) {
            n++;
            *first = i;
        }
    return n;
}

enum { SRC_SEED = 7, DST_SEED = 8 };

/* Fills both sides, gathers, checks the destination, and checks that the source is unchanged. */
static int run_whole(const struct hw_space *s, struct hw_gather *g, const struct gather_case *c, const struct side *src,
                     const struct side *dst, size_t batch, size_t *bad, size_t *first)
{
    unsigned char *from = must(malloc(src->len)), *want = must(malloc(dst->len)),
                  *got = must(malloc(HW_MAX(src->len, dst->len)));
    struct hw_gather_bufs b = {dst->buf, c->dst_size, src->buf, c->src_size};

    hw_pattern_fill(from, src->len, SRC_SEED, 0);
    hw_pattern_fill(want, dst->len, DST_SEED, 0);
    int rc = hw_store(s, src->at, from, src->len);
    if (rc == 0)
        rc = hw_store(s, dst->at, want, dst->len);
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->frags[i].len; k++)
            want[GUARD + c->dst_shift + c->frags[i].dst_off + k] = from[GUARD + c->src_shift + c->frags[i].src_off + k];
    if (rc == 0)
        rc = gather(g, &b, c->frags, c->n, batch);
    if (rc == 0)
        rc = hw_load(s, got, dst->at, dst->len);
    if (rc == 0)
        *bad = differ(got, want, dst->len, first);
    if (rc == 0)
        rc = hw_load(s, got, src->at, src->len);
    if (rc == 0)
        *bad += differ(got, from, src->len, first);
    free(from);
    free(want);
    free(got);
    return rc;
}

/* Stores the offset and length of a fragment with up to AROUND bytes on each side, in a buffer of `size` bytes. */
static void window(uint64_t off, uint64_t len, uint64_t size, uint64_t *lo, uint64_t *n)
{
    uint64_t hi = HW_MIN(size, off + len + AROUND);
    *lo = off > AROUND ? off - AROUND : 0;
    *n = hi - *lo;
}

/* Like run_whole(), but fills and checks only the fragments and the bytes around them, and does not check the source.
 * The bytes around a fragment may belong to other fragments. */
static int run_sparse(const struct hw_space *s, struct hw_gather *g, const struct gather_case *c,
                      const struct side *src, const struct side *dst, size_t batch, size_t *bad, size_t *first)
{
    struct hw_gather_bufs b = {dst->buf, c->dst_size, src->buf, c->src_size};
    static unsigned char want[3 * 8192 + 2 * AROUND], got[sizeof(want)];
    uint64_t lo, len;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        window(c->frags[i].src_off, c->frags[i].len, c->src_size, &lo, &len);
        hw_pattern_fill(want, len, SRC_SEED, lo);
        rc = hw_store(s, src->buf + lo, want, len);
        window(c->frags[i].dst_off, c->frags[i].len, c->dst_size, &lo, &len);
        hw_pattern_fill(want, len, DST_SEED, lo);
        if (rc == 0)
            rc = hw_store(s, dst->buf + lo, want, len);
    }
    if (rc == 0)
        rc = gather(g, &b, c->frags, c->n, batch);
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        window(c->frags[i].dst_off, c->frags[i].len, c->dst_size, &lo, &len);
        hw_pattern_fill(want, len, DST_SEED, lo);
        for (size_t k = 0; k < c->n; k++) {
            const struct hw_frag *f = &c->frags[k];
            uint64_t from = HW_MAX(lo, f->dst_off), to = HW_MIN(lo + len, f->dst_off + f->len);
            if (from < to)
                hw_pattern_fill(want + (from - lo), to - from, SRC_SEED, f->src_off + (from - f->dst_off));
        }
        rc = hw_load(s, got, dst->buf + lo, len);
        if (rc == 0)
            *bad += differ(got, want, len, first);
    }
    return rc;
}

/* Runs one case in batches of up to `batch` fragments, and reports the result as TAP. */
static void gather_run(const struct hw_space *s, enum hw_gather_way way, const struct gather_case *c, size_t batch)
{
    struct side src = {0}, dst = {0};
    struct hw_gather *g = NULL;
    size_t bad = 0, first = 0;
    char what[160];

    snprintf(what, sizeof(what), "%s, %s: %s, %zu a batch", s->name, s->direct ? "memcpy" : hw_gather_way_names[way],
             c->name, batch);
    int rc = side_open(s, &src, c->src_size, c->src_shift);
    if (rc == 0)
        rc = side_open(s, &dst, c->dst_size, c->dst_shift);
    if (rc == -ENOMEM && c->sparse) {
        tap_skip(what, hw_error());
        goto close;
    }
    if (rc == 0)
        rc = hw_gather_open(s, way, 8, 0, &g);
    if (rc == 0)
        rc = (c->sparse ? run_sparse : run_whole)(s, g, c, &src, &dst, batch, &bad, &first);
    ok(rc == 0 && bad == 0, "%s", what);
    if (rc < 0)
        diag("%s", hw_error());
    else if (bad)
        diag("%zu bytes differ, the first at %zu", bad, first);
    hw_gather_close(g);
close:
    side_close(s, &src);
    side_close(s, &dst);
}

/* ---- refused requests ------------------------------------------------------------------------- */

/* Tests that invalid requests are refused and copy nothing. Reports the results as TAP. */
static void gather_refused(const struct hw_space *s, enum hw_gather_way way)
{
    enum { N = 1000 };
    static const struct {
        const char *name;
        struct hw_frag f;
    } bad[] = {
        {"source one byte too far", {N - 9, 0, 10}},       {"destination one byte too far", {0, N - 9, 10}},
        {"source begins beyond", {N + 1, 0, 0}},           {"destination begins beyond", {0, N + 1, 0}},
        {"source offset wraps", {UINT64_MAX - 3, 0, 8}},   {"destination offset wraps", {0, UINT64_MAX - 3, 8}},
        {"a length of all addresses", {1, 1, UINT64_MAX}},
    };
    unsigned char want[N], got[N];
    struct side src = {0}, dst = {0};
    struct hw_gather *g = NULL;
    size_t taken = 5, first;
    uint64_t upto = 9;

    int rc = side_open(s, &src, N, 0);
    if (rc == 0)
        rc = side_open(s, &dst, N, 0);
    hw_pattern_fill(want, N, DST_SEED, 0);
    if (rc == 0)
        rc = hw_store(s, dst.buf, want, N);
    if (rc == 0)
        rc = hw_gather_open(s, way, 2, 10, &g);
    if (!ok(rc == 0, "%s: opened", s->name)) {
        diag("%s", hw_error());
        goto close;
    }
    struct hw_gather_bufs b = {dst.buf, N, src.buf, N};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        const struct hw_frag f[3] = {{0, 0, 100}, bad[i].f, {200, 200, 100}};
        rc = hw_gather_start(g, &b, f, 3, &taken);
        ok(rc == -EFAULT && taken == 0 && strstr(hw_error(), "fragment 1"), "%s: refused, and which: %s", bad[i].name,
           hw_error());
    }
    struct hw_gather_bufs same = {dst.buf, N, dst.buf + N - 1, 1};
    rc = hw_gather_start(g, &same, &(struct hw_frag){0, 0, 1}, 1, &taken);
    is_int(rc, -EINVAL, "buffers that overlap by a byte: refused");
    ok(hw_gather_done(g, &upto) == 0 && upto == 0, "no batch was started");
    rc = hw_load(s, got, dst.buf, N);
    ok(rc == 0 && differ(got, want, N, &first) == 0, "and nothing copied");
    hw_gather_close(g);
    g = NULL;
    is_int(hw_gather_open(s, way, 0, 10, &g), -EINVAL, "a depth of 0: refused");
    is_int(hw_gather_open(s, HW_GATHER_WAYS, 1, 10, &g), -EINVAL, "a way that is none: refused");
    is_int(hw_gather_open(s, way, 1, UINT32_MAX, &g), -EINVAL, "a ring of 64 GiB: refused");
close:
    hw_gather_close(g);
    side_close(s, &src);
    side_close(s, &dst);
}

/* ---- the pattern ------------------------------------------------------------------------------ */

/* Fills n bytes from at + off, compares at[0..len) with the CPU's result, and tests hw_check() with and without wrong
 * bytes. */
static int fill_one(const struct hw_space *s, char *at, unsigned char *want, unsigned char *got, size_t len, size_t off,
                    size_t n, uint64_t pos, int *wrong)
{
    uint64_t bad = 77, first = 0;
    size_t where;

    hw_pattern_fill(want, len, DST_SEED, 0);
    int rc = hw_store(s, at, want, len);
    hw_pattern_fill(want + off, n, SRC_SEED, pos);
    if (rc == 0)
        rc = hw_fill(s, at + off, n, SRC_SEED, pos);
    if (rc == 0)
        rc = hw_load(s, got, at, len);
    if (rc < 0)
        return rc;
    *wrong += differ(got, want, len, &where) != 0;
    rc = hw_check(s, at + off, n, SRC_SEED, pos, &bad, &first);
    *wrong += bad != 0;
    if (rc < 0 || n == 0)
        return rc;

    size_t a = rnd() % n, z = a + rnd() % (n - a);
    uint64_t expected = 1 + (z != a);
    want[off + a] ^= 0x40;
    if (z != a)
        want[off + z] ^= 1;
    rc = hw_store(s, at, want, len);
    if (rc == 0)
        rc = hw_check(s, at + off, n, SRC_SEED, pos, &bad, &first);
    *wrong += bad != expected || first != a;
    return rc;
}

/* Compares hw_fill() and hw_check() with base/pattern.h. Reports the results as TAP. */
static void fill_run(const struct hw_space *s)
{
    static const uint32_t lens[] = {0, 1, 7, 15, 16, 17, 31, 33, 100, 4096, 70001, 300000};
    enum { LEN = 300100 };
    static unsigned char want[LEN], got[LEN];
    int rc, wrong = 0;
    void *at;

    rc = s->ops->alloc(s, LEN, &at);
    for (size_t i = 0; rc == 0 && i < HW_ARRAY_LEN(lens); i++)
        for (unsigned off = 0; rc == 0 && off<17; off += lens[i]> 5000 ? 5 : 1)
            rc = fill_one(s, at, want, got, HW_MIN(lens[i] + 64u, (unsigned)LEN), off, lens[i],
                          ((uint64_t)i << 33) + rnd() % 100, &wrong);
    ok(rc == 0 && wrong == 0, "%s: the pattern made and checked there is the CPU's (%d wrong)", s->name, wrong);
    if (rc == 0) { /* all bytes wrong */
        uint64_t bad = 0, first = 1;
        hw_pattern_fill(want, LEN, SRC_SEED, 3);
        for (size_t i = 0; i < LEN; i++)
            want[i] ^= 0xff;
        rc = hw_store(s, at, want, LEN);
        if (rc == 0)
            rc = hw_check(s, (char *)at + 1, LEN - 1, SRC_SEED, 4, &bad, &first);
        ok(rc == 0 && bad == LEN - 1 && first == 0, "%s: every byte bad: all are counted, from the first", s->name);
    }
    if (rc < 0)
        diag("%s", hw_error());
    s->ops->free(s, at, LEN);
}

#endif

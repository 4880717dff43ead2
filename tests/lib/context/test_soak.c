/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that memory and file descriptors do not increase over many transfers, that waiting threads use little CPU time,
 * and that a transfer of 2^32+7 bytes works. */
#include "pairhelp.h"

#include <malloc.h>
#include <sys/resource.h>

static struct pair pr;

static size_t rss_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %zu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static double cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

/* ---- 10^5 transfers ---------------------------------------------------------------------------- */

#define DEPTH 16

static int transfers(unsigned count, struct ph_buf *m, struct ph_buf *t)
{
    static const size_t n[] = {8, 300, 4096, 20000, 1, 9000, 0, 64};
    hawser_op *op[DEPTH] = {0}, *rx[DEPTH] = {0};
    char note[64];
    size_t len;
    int bad = 0;
    for (unsigned i = 0; i < count + DEPTH; i++) {
        hawser_op **o = &op[i % DEPTH], **r = &rx[i % DEPTH];
        if (*o)
            bad += ph_finish(*o) != 0;
        if (*r)
            bad += ph_finish(*r) != 0;
        *o = *r = NULL;
        if (i >= count)
            continue;
        size_t k = n[(i / 5) % HW_ARRAY_LEN(n)], at = (i % 5 * DEPTH + i % DEPTH) * 20000;
        struct hawser_vec v = {m->mem, at, k, &t->region, at, NULL}, w = {t->mem, at, k, NULL, 0, NULL};
        switch (i % 5) {
        case 0:
            must(hawser_write(pr.ab, &v, 1, NULL, o));
            break;
        case 1:
            must(hawser_read(pr.ab, &v, 1, NULL, o));
            break;
        case 2: /* every other send is posted before its receive */
            if (i & 1)
                must(hawser_recv(pr.ba, &w, 1, NULL, r));
            must(hawser_send(pr.ab, &v, 1, NULL, o));
            if (!*r)
                must(hawser_recv(pr.ba, &w, 1, NULL, r));
            break;
        case 3: {
            struct hawser_op_options opts = {.size = sizeof(opts), .notify = "soak", .notify_len = 4};
            must(hawser_write(pr.ab, &v, 1, &opts, o));
            break;
        }
        default:
            must(hawser_notify(pr.ab, "notify", 6, NULL, o));
        }
        while (i % 4 == 0 && hawser_notification(pr.ba, note, sizeof(note), &len) == 0)
            ;
    }
    while (hawser_notification(pr.ba, note, sizeof(note), &len) == 0)
        ;
    return bad;
}

static void flat(void)
{
    const unsigned count = PH_SANITIZED ? 20000 : 100000;
    step("many transfers");
    struct ph_buf m = ph_buf(pr.a, 5 * DEPTH * 20000, 0, 0, NULL);
    struct ph_buf t = ph_buf(pr.b, 5 * DEPTH * 20000, 0, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
    int bad = transfers(2000, &m, &t); /* makes one-time allocations before the measurement */
    struct ph_buf big = ph_buf(pr.a, 64 << 20, 0, 0, NULL), there = ph_buf(pr.b, 64 << 20, 0, 3, NULL);
    for (int i = 0; i < 8; i++) { /* large transfers make each channel create its pipe */
        bad += ph_one(hawser_write, pr.ab, &big, 0, big.len, &there.region, 0) != 0;
        bad += ph_one(hawser_read, pr.ab, &big, 0, big.len, &there.region, 0) != 0;
    }
    ph_drop(&big);
    ph_drop(&there);
    (void)malloc_trim(0);
    size_t rss = rss_kib(), heap = mallinfo2().uordblks;
    int fds = ph_fds();
    bad += transfers(count, &m, &t);
    size_t heap2 = mallinfo2().uordblks;
    (void)malloc_trim(0);
    size_t rss2 = rss_kib();
    is_int(bad, 0, "transfers of all kinds end well");
    ok(ph_fds() == fds, "%u of them leave no descriptor", count);
    if (PH_SANITIZED)
        tap_skip("nor memory", "a sanitizer's own allocator is at work: its leak check looks instead");
    else
        ok(heap2 <= heap + 64 * 1024 && rss2 <= rss + 2048,
           "%u of them leave no memory: heap %zu to %zu bytes, resident %zu to %zu KiB", count, heap, heap2, rss, rss2);
    ph_drop(&m);
    ph_drop(&t);
}

/* ---- waiting costs nothing ------------------------------------------------------------------------ */

static void *waiter(void *arg)
{
    return (void *)(intptr_t)hawser_wait(arg, 6000);
}

/* Returns the CPU time that this process uses in one second, in ms. If the result exceeds `most`, measures again and
 * returns the smallest of up to five results, because a busy kernel sometimes charges this process for other work. */
static double second_ms(double most)
{
    double best = 1e9;
    for (int i = 0; i < 5 && best >= most; i++) {
        double t0 = cpu_ms();
        usleep(1000000);
        best = HW_MIN(best, cpu_ms() - t0);
    }
    return best;
}

static void idle(void)
{
    step("idle");
    usleep(300000); /* time for earlier work to end */
    double used = second_ms(5);
    ok(used < 5, "two idle contexts with connected peers use %.2f ms of CPU in a second", used);
    /* three threads wait for operations of one peer for one second */
    struct ph_buf m = ph_buf(pr.a, 64, 0, 0, NULL);
    hawser_op *op[3];
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        struct hawser_vec v = {.mem = m.mem, .length = 64};
        must(hawser_recv(pr.ab, &v, 1, NULL, &op[i]));
        pthread_create(&t[i], NULL, waiter, op[i]);
    }
    usleep(200000);
    double most = PH_SANITIZED ? 100 : 20; /* ms */
    used = second_ms(most);
    ok(used < most, "three threads that wait for operations use %.2f ms of CPU in a second", used);
    for (int i = 0; i < 3; i++) {
        must(hawser_cancel(op[i]));
        pthread_join(t[i], NULL);
        hawser_op_free(op[i]);
    }
    ph_drop(&m);
}

/* ---- 2^32 + 7 bytes ---------------------------------------------------------------------------------- */

/* Maps `len` bytes of address space in which the same `unit` bytes repeat. */
static uint8_t *repeated(size_t len, size_t unit, int *fd)
{
    *fd = memfd_create("repeated", MFD_CLOEXEC);
    uint8_t *base = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*fd < 0 || ftruncate(*fd, (off_t)unit) || base == MAP_FAILED)
        bail("memory of repeated pages");
    for (size_t at = 0; at < len; at += unit)
        if (mmap(base + at, HW_MIN(unit, len - at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *fd, 0) ==
            MAP_FAILED)
            bail("mapping repeated pages");
    return base;
}

static void beyond_32_bits(void)
{
    if (PH_SANITIZED) {
        tap_skip("2^32+7 bytes in one transfer", "under a sanitizer it takes minutes; the plain build runs it");
        return;
    }
    step("2^32+7 bytes");
    const size_t len = (1ull << 32) + 7, unit = 4 << 20;
    int fa, fb;
    uint8_t *a = repeated(len, unit, &fa), *b = repeated(len, unit, &fb);
    hawser_mem *ma, *mb;
    uint8_t key[HAWSER_KEY_SIZE];
    struct hawser_region r;
    hw_pattern_fill(a, unit, 32, 0);
    must(hawser_mem_register(pr.a, HAWSER_MEM_HOST, a, len, &ma));
    must(hawser_mem_register(pr.b, HAWSER_MEM_HOST, b, len, &mb));
    must(hawser_export(mb, 0, len, HAWSER_REMOTE_WRITE | HAWSER_REMOTE_READ, NULL, key));
    must(hawser_import(key, &r));
    struct hawser_vec v = {ma, 0, len, &r, 0, NULL}, w = {mb, 0, len, NULL, 0, NULL};
    hawser_op *op, *rx;
    must(hawser_write(pr.ab, &v, 1, NULL, &op));
    int rc = hawser_wait(op, 40000);
    ok(rc == 0 && hawser_op_bytes(op) == len && hw_pattern_check(b, unit, 32, 0, NULL) == 0,
       "2^32+7 bytes written in one transfer (%d)", rc);
    hawser_op_free(op);
    memset(b, 0, unit);
    /* tests the last 100 bytes separately, including the seven bytes beyond 2^32 */
    v = (struct hawser_vec){ma, len - 100, 100, &r, len - 100, NULL};
    must(hawser_write(pr.ab, &v, 1, NULL, &op));
    is_rc(ph_finish(op), 0, "its last bytes alone");
    ok(memcmp(b + (len - 100), a + (len - 100), 100) == 0, "land at its end");
    v = (struct hawser_vec){ma, 0, len, NULL, 0, NULL};
    must(hawser_recv(pr.ba, &w, 1, NULL, &rx));
    must(hawser_send(pr.ab, &v, 1, NULL, &op));
    rc = hawser_wait(rx, 40000);
    ok(rc == 0 && ph_finish(op) == 0 && hawser_op_length(rx) == len && hw_pattern_check(b, unit, 32, 0, NULL) == 0,
       "and sent as one message (%d)", rc);
    hawser_op_free(rx);
    must(hawser_mem_deregister(ma));
    must(hawser_mem_deregister(mb));
    munmap(a, len);
    munmap(b, len);
    close(fa);
    close(fb);
}

int main(void)
{
    watchdog(110);
    pr = ph_pair(0, NULL, 0, NULL);
    ph_far = pr.ba;
    idle();
    flat();
    beyond_32_bits();
    is_rc(hawser_peer_state(pr.ab), 0, "alive at the end");
    step("closing");
    ph_close(&pr);
    return tap_done();
}

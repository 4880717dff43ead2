/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of tests/lib/mem/test_gather.c on each GPU with all three gather methods, and cases that need a GPU's
 * memory and speed. HAWSER_TEST_QUICK=1 skips the large cases, because compute-sanitizer makes the tests several
 * hundred times slower. */
#include "mem/cuda.h"
#include "tests/lib/mem/gather_cases.h"

static bool quick;

/* Gathers a fragment of more than 4 GiB at odd offsets. The bytes are generated and checked on the GPU. */
static void beyond_4gib(const struct hw_space *s, enum hw_gather_way way)
{
    const size_t size = (5ull << 30) + 77, len = (9ull << 29) + 3;
    const struct hw_frag f = {5, 1000, len};
    struct hw_gather *g = NULL;
    void *src = NULL, *dst = NULL;
    uint64_t bad[3] = {9, 9, 9}, first = 0;

    int rc = s->ops->alloc(s, size, &src);
    if (rc == 0)
        rc = s->ops->alloc(s, size, &dst);
    if (rc == -ENOMEM) {
        tap_skip("one fragment of 4.5 GiB", hw_error());
        goto free;
    }
    struct hw_gather_bufs b = {dst, size, src, size};
    if (rc == 0)
        rc = hw_fill(s, src, size, SRC_SEED, 0);
    if (rc == 0)
        rc = hw_fill(s, dst, size, DST_SEED, 0);
    if (rc == 0)
        rc = hw_gather_open(s, way, 4, 0, &g);
    if (rc == 0)
        rc = gather(g, &b, &f, 1, 1);
    if (rc == 0)
        rc = hw_check(s, dst, f.dst_off, DST_SEED, 0, &bad[0], &first);
    if (rc == 0)
        rc = hw_check(s, (char *)dst + f.dst_off, len, SRC_SEED, f.src_off, &bad[1], &first);
    if (rc == 0)
        rc = hw_check(s, (char *)dst + f.dst_off + len, size - f.dst_off - len, DST_SEED, f.dst_off + len, &bad[2],
                      &first);
    ok(rc == 0 && bad[0] + bad[1] + bad[2] == 0, "%s, %s: one fragment of 4.5 GiB", s->name, hw_gather_way_names[way]);
    if (rc < 0)
        diag("%s", hw_error());
free:
    hw_gather_close(g);
    if (src)
        s->ops->free(s, src, size);
    if (dst)
        s->ops->free(s, dst, size);
}

static void gpu(const struct hw_space *s)
{
    size_t n;
    const struct gather_case *c = gather_cases(&n);

    for (int way = 0; way < HW_GATHER_WAYS; way++) {
        for (size_t i = 0; i < n; i++) {
            if (quick && c[i].sparse) {
                tap_skip(c[i].name, "HAWSER_TEST_QUICK: 12 GiB of memory to watch");
                continue;
            }
            gather_run(s, way, &c[i], 100000);
            if (way == HW_GATHER_KERNEL && !quick)
                gather_run(s, way, &c[i], 61); /* 61 fragments fit into the kernel's parameters */
        }
        gather_refused(s, way);
        if (quick)
            tap_skip("one fragment of 4.5 GiB", "HAWSER_TEST_QUICK");
        else
            beyond_4gib(s, way);
    }
    fill_run(s);
}

int main(void)
{
    const char *q = getenv("HAWSER_TEST_QUICK");
    const int n = hw_cuda_count();
    quick = q && strcmp(q, "1") == 0;
    if (n < 0)
        tap_skip_all("%s", hw_error());
    for (int i = 0; i < n; i++) {
        const struct hw_space *s;
        if (ok(hw_space_device(HAWSER_MEM_CUDA, i, &s) == 0, "GPU %d", i))
            gpu(s);
        else
            diag("%s", hw_error());
    }
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests gathering fragments, and the test pattern, in host memory and with the fake CUDA driver, whose kernel behaves
 * like the real kernel. tests/gpu/test_gather_gpu.c runs the same cases on a GPU. */
#include "gather_cases.h"
#include "tests/fakes/cuda/fakecuda.h"
#include "tests/tap.h"

static void all_cases(const struct hw_space *s, enum hw_gather_way way, size_t batch)
{
    size_t n;
    const struct gather_case *c = gather_cases(&n);
    for (size_t i = 0; i < n; i++)
        gather_run(s, way, &c[i], batch);
}

/* Tests that the depth limits the number of batches, that the ring limits the number of fragments, and that finished
 * batches free space. */
static void room(const struct hw_space *s)
{
    enum { N = 1500, LEN = 64 };
    static struct hw_frag f[N];
    struct hw_gather *g = NULL;
    void *src, *dst;
    size_t taken = 9;
    uint64_t upto = 0;

    for (size_t i = 0; i < N; i++)
        f[i] = (struct hw_frag){i * LEN, (N - 1 - i) * LEN, LEN};
    int rc = s->ops->alloc(s, N * LEN, &src);
    if (rc == 0)
        rc = s->ops->alloc(s, N * LEN, &dst);
    if (rc == 0)
        rc = hw_gather_open(s, HW_GATHER_KERNEL, 3, 1, &g);
    if (!ok(rc == 0, "a ring of 1024")) {
        diag("%s", hw_error());
        return;
    }
    struct hw_gather_bufs b = {dst, N * LEN, src, N * LEN};
    fakecuda_stall(s->device, true);
    rc = hw_gather_start(g, &b, f, 1000, &taken);
    ok(rc == 0 && taken == 1000, "1000 fragments are taken");
    rc = hw_gather_start(g, &b, f + 1000, 500, &taken);
    ok(rc == 0 && taken == 24, "of the next 500 as many as fit: %zu", taken);
    rc = hw_gather_start(g, &b, f + 1024, 476, &taken);
    ok(rc == -EAGAIN && taken == 0, "then none");
    rc = hw_gather_start(g, &b, f, 0, &taken);
    ok(rc == 0 && taken == 0, "a batch of none wants no room");
    rc = hw_gather_start(g, &b, f, 0, &taken);
    ok(rc == -EAGAIN && taken == 0, "but there are no more than 3 batches");
    ok(hw_gather_done(g, &upto) == 0 && upto == 0, "none is over while the GPU hangs");
    fakecuda_stall(s->device, false);
    while (upto < 3 && rc != -EIO)
        if (hw_gather_done(g, &upto) < 0)
            rc = -EIO;
    rc = hw_gather_start(g, &b, f + 1024, 476, &taken);
    ok(rc == 0 && taken == 476, "then there is room again");
    hw_gather_close(g);
    s->ops->free(s, src, N * LEN);
    s->ops->free(s, dst, N * LEN);
}

/* Makes driver calls fail in hw_gather_open(), hw_gather_start() and hw_gather_done(), and checks for leaks. */
static void failing(const struct hw_space *s)
{
    static const struct {
        const char *symbol;
        enum hw_gather_way way;
    } at[] = {
        {"cuStreamCreate", HW_GATHER_KERNEL},     {"cuEventCreate", HW_GATHER_D2D},
        {"cuMemHostRegister_v2", HW_GATHER_HOST}, {"cuMemHostGetDevicePointer_v2", HW_GATHER_KERNEL},
        {"cuLaunchKernel", HW_GATHER_KERNEL},     {"cuMemcpyDtoDAsync_v2", HW_GATHER_D2D},
        {"cuMemcpyDtoHAsync_v2", HW_GATHER_HOST}, {"cuEventRecord", HW_GATHER_KERNEL},
        {"cuEventQuery", HW_GATHER_D2D},
    };
    struct fakecuda_counts before, after;
    void *src, *dst;
    if (s->ops->alloc(s, 4096, &src) < 0 || s->ops->alloc(s, 4096, &dst) < 0)
        abort();
    struct hw_gather_bufs b = {dst, 4096, src, 4096};
    for (size_t i = 0; i < HW_ARRAY_LEN(at); i++) {
        struct hw_gather *g = NULL;
        uint64_t upto = 0;
        size_t taken;
        fakecuda_count(&before);
        fakecuda_fail(at[i].symbol, 1, 999);
        int rc = hw_gather_open(s, at[i].way, 2, 0, &g);
        if (rc == 0)
            rc = hw_gather_start(g, &b, &(struct hw_frag){0, 1, 2}, 1, &taken);
        while (rc == 0 && upto == 0)
            rc = hw_gather_done(g, &upto);
        if (rc == 0 && upto == 1)
            diag("%s was not called", at[i].symbol);
        ok(rc == -EIO && strstr(hw_error(), "999"), "%s fails, %s: %s", at[i].symbol, hw_gather_way_names[at[i].way],
           hw_error());
        hw_gather_close(rc < 0 && !g ? NULL : g);
        fakecuda_count(&after);
        ok(before.streams == after.streams && before.events == after.events && before.pins == after.pins &&
               after.misuse == before.misuse && after.entered == 0,
           "nothing is left behind");
    }
    s->ops->free(s, src, 4096);
    s->ops->free(s, dst, 4096);
}

int main(void)
{
    const struct hw_space *gpu, *gpu1;
    struct fakecuda_counts c;

    all_cases(&hw_host, HW_GATHER_KERNEL, 100);
    gather_refused(&hw_host, HW_GATHER_KERNEL);
    fill_run(&hw_host);

    if (hw_space_device(HAWSER_MEM_CUDA, 0, &gpu) < 0 || hw_space_device(HAWSER_MEM_CUDA, 1, &gpu1) < 0) {
        ok(false, "%s", hw_error());
        return tap_done();
    }
    fakecuda_fail("cuModuleGetFunction", 3, 500);
    struct hw_gather *none;
    is_int(hw_gather_open(gpu, HW_GATHER_KERNEL, 1, 1, &none), -EIO, "kernels that the driver does not take: an error");
    diag("%s", hw_error());
    for (int way = 0; way < HW_GATHER_WAYS; way++) {
        all_cases(gpu, way, way == HW_GATHER_KERNEL ? 100000 : 700);
        gather_refused(gpu, way);
    }
    all_cases(gpu1, HW_GATHER_KERNEL, 333);
    fill_run(gpu);
    room(gpu);
    failing(gpu);

    fakecuda_count(&c);
    is_int(c.misuse, 0, "no misuse of the driver");
    is_int(c.blocking, 0, "no call that waits for the application's streams");
    is_int(c.pageable, 0, "no asynchronous copy of memory that is not pinned");
    is_int(c.events, 0, "no event is left");
    is_int(c.allocations, 0, "nor memory");
    is_int(c.modules, 2, "the kernels are loaded once for each GPU");
    return tap_done();
}

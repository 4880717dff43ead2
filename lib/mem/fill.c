/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/fill.h"

#include "base/pattern.h"
#include "mem/kernels.h"

/* Returns the number of thread blocks for len bytes at 16 bytes per thread, limited to a number that fills any GPU. */
static unsigned grid_of(size_t len)
{
    return (unsigned)HW_MIN(len / 16 / HW_KERNEL_THREADS + 1, (size_t)2048);
}

/* Runs a kernel on a separate stream, so that it does not wait for the application's streams. */
static int run_pattern_kernel(const struct hw_space *s, CUfunction fn, size_t len, void **args, const char *what)
{
    const struct hw_cuda *cu;
    CUstream stream;
    int rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUresult e = cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (!e) {
        e = cu->LaunchKernel(fn, grid_of(len), 1, 1, HW_KERNEL_THREADS, 1, 1, 0, stream, args, NULL);
        if (!e)
            e = cu->StreamSynchronize(stream);
        (void)cu->StreamDestroy(stream);
    }
    hw_cuda_leave();
    return e ? hw_cuda_fail(e, "%s %zu bytes on %s", what, len, s->name) : 0;
}

int hw_fill(const struct hw_space *s, void *ptr, size_t len, uint64_t seed, uint64_t pos)
{
    const struct hw_kernels *k;
    if (s->direct) {
        hw_pattern_fill(ptr, len, seed, pos);
        return 0;
    }
    int rc = hw_kernels(s, &k);
    if (rc < 0 || len == 0)
        return rc;
    CUdeviceptr to = (uintptr_t)ptr;
    uint64_t n = len;
    return run_pattern_kernel(s, k->fill, len, (void *[]){&to, &n, &seed, &pos}, "filling");
}

int hw_check(const struct hw_space *s, const void *ptr, size_t len, uint64_t seed, uint64_t pos, uint64_t *bad,
             uint64_t *first)
{
    const struct hw_kernels *k;
    if (s->direct) {
        *bad = hw_pattern_check(ptr, len, seed, pos, first);
        return 0;
    }
    *bad = 0;
    int rc = hw_kernels(s, &k);
    if (rc < 0 || len == 0)
        return rc;
    uint64_t found[2] = {0, UINT64_MAX};
    void *there;
    rc = s->ops->alloc(s, sizeof(found), &there);
    if (rc < 0)
        return rc;
    rc = hw_store(s, there, found, sizeof(found));
    if (rc == 0) {
        CUdeviceptr from = (uintptr_t)ptr, to = (uintptr_t)there;
        uint64_t n = len;
        rc = run_pattern_kernel(s, k->check, len, (void *[]){&from, &n, &seed, &pos, &to}, "checking");
    }
    if (rc == 0)
        rc = hw_load(s, found, there, sizeof(found));
    s->ops->free(s, there, sizeof(found));
    if (rc < 0)
        return rc;
    *bad = found[0];
    if (first && found[0])
        *first = found[1];
    return 0;
}

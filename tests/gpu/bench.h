/* SPDX-License-Identifier: Apache-2.0 */
/* Shared code of the gather benchmarks: GPU buffers, reference copies and timing. A rate counts both the bytes read and
 * the bytes written, and is measured with events around the work. A long copy keeps the GPU busy while the host
 * prepares and launches the batches, so that the rate depends only on the GPU. */
#ifndef GPU_BENCH_H
#define GPU_BENCH_H

#include "mem/cuda.h"
#include "mem/fill.h"
#include "mem/gather.h"
#include "tests/tap.h"

#include <dlfcn.h>

#define GIB    ((size_t)1 << 30)
#define ROUNDS 7

static const struct hw_cuda *cu;

struct bench {
    const struct hw_space *s;
    char *src, *dst;
    size_t src_size, dst_size; /* src_size must be at least dst_size */
    CUevent from, to, joined;
    int hold; /* number of long copies before the measured work */
};

static void must(int rc)
{
    if (rc < 0) {
        printf("Bail out! %s\n", hw_error());
        exit(1);
    }
}

static void cuda(CUresult e, const char *what)
{
    must(e ? hw_cuda_fail(e, "%s", what) : 0);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_size);
    return v[n / 2];
}

/* Makes later work on `stream` wait for `event`. Looks up the CUDA call itself, because libhawser does not use it. */
static void wait_for(CUstream stream, CUevent event)
{
    static CUresult (*stream_wait_event)(CUstream, CUevent, unsigned);
    void *dl = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!stream_wait_event && dl)
        *(void **)&stream_wait_event = dlsym(dl, "cuStreamWaitEvent");
    if (!stream_wait_event)
        must(hw_fail(-ENOENT, "libcuda.so.1 has no cuStreamWaitEvent"));
    cuda(stream_wait_event(stream, event, 0), "making a stream wait");
}

/* Starts `hold` long copies. Work queued behind these copies then runs without gaps. */
static void hold(struct bench *b, CUstream stream)
{
    must(hw_cuda_enter(b->s));
    for (int i = 0; i < b->hold; i++)
        cuda(cu->MemcpyDtoDAsync((uintptr_t)b->dst, (uintptr_t)b->src, HW_MIN(b->dst_size, 2 * GIB), stream),
             "copying");
    cuda(cu->EventRecord(b->from, stream), "recording an event");
    hw_cuda_leave();
}

/* Makes all streams of a gather wait for the long copies. */
static void hold_gather(struct bench *b, const struct hw_gather *g)
{
    hold(b, hw_gather_stream(g, 0));
    must(hw_cuda_enter(b->s));
    for (unsigned i = 1; hw_gather_stream(g, i); i++)
        wait_for(hw_gather_stream(g, i), b->from);
    hw_cuda_leave();
}

/* Returns the bytes read and written per second since hold(). */
static double rate(struct bench *b, CUstream stream, uint64_t bytes)
{
    float ms = 0;
    must(hw_cuda_enter(b->s));
    cuda(cu->EventRecord(b->to, stream), "recording an event");
    cuda(cu->StreamSynchronize(stream), "waiting");
    cuda(cu->EventElapsedTime(&ms, b->from, b->to), "reading the time");
    hw_cuda_leave();
    return 2.0 * (double)bytes / (ms * 1e-3);
}

/* Returns the bytes read and written per second, from hold_gather() until the work on all streams has ended. */
static double gather_stream_rate(struct bench *b, const struct hw_gather *g, uint64_t bytes)
{
    must(hw_cuda_enter(b->s));
    for (unsigned i = 1; hw_gather_stream(g, i); i++) {
        cuda(cu->EventRecord(b->joined, hw_gather_stream(g, i)), "recording an event");
        wait_for(hw_gather_stream(g, 0), b->joined);
    }
    hw_cuda_leave();
    return rate(b, hw_gather_stream(g, 0), bytes);
}

static double copy_rate(struct bench *b, CUstream stream, uint64_t bytes)
{
    double r[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        hold(b, stream);
        must(hw_cuda_enter(b->s));
        cuda(cu->MemcpyDtoDAsync((uintptr_t)b->dst, (uintptr_t)b->src, bytes, stream), "copying");
        hw_cuda_leave();
        r[i] = rate(b, stream, bytes);
    }
    return median(r, ROUNDS);
}

static void drain(struct hw_gather *g, uint64_t n)
{
    uint64_t upto = 0;
    while (upto < n)
        must(hw_gather_done(g, &upto));
}

/* Opens the GPU's space, allocates a source of `src` bytes and a destination of `dst` bytes, and creates the events. */
static void bench_open(struct bench *b, int device, size_t src, size_t dst)
{
    void *p;
    must(hw_space_device(HAWSER_MEM_CUDA, device, &b->s));
    must(b->s->ops->alloc(b->s, src, &p));
    b->src = p;
    must(b->s->ops->alloc(b->s, dst, &p));
    b->dst = p;
    b->src_size = src;
    b->dst_size = dst;
    b->hold = 10;
    must(hw_cuda_enter(b->s));
    cuda(cu->EventCreate(&b->from, 0), "making an event");
    cuda(cu->EventCreate(&b->to, 0), "making an event");
    cuda(cu->EventCreate(&b->joined, CU_EVENT_DISABLE_TIMING), "making an event");
    hw_cuda_leave();
}

static void bench_close(struct bench *b)
{
    must(hw_cuda_enter(b->s));
    (void)cu->EventDestroy(b->from);
    (void)cu->EventDestroy(b->to);
    (void)cu->EventDestroy(b->joined);
    hw_cuda_leave();
    b->s->ops->free(b->s, b->src, b->src_size);
    b->s->ops->free(b->s, b->dst, b->dst_size);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs, memory that they reach, and the bounce buffer of scattered receives. */
#include "tcpxlike.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- the GPU ---------------------------------------------------------------------------------- */

void tcpx_gpu_now(struct gpu_side *out)
{
    *out = (struct gpu_side){.device = -1};
    if (hw_cuda(&out->cu) < 0) {
        out->cu = NULL;
        return;
    }
    /* What cuCtxGetCurrent would say, by the calls that lib/mem has anyway. */
    CUcontext ctx = NULL;
    if (out->cu->CtxPopCurrent(&ctx) || !ctx || out->cu->CtxPushCurrent(ctx))
        return;
    /* The driver tells a context's device only through memory of it. */
    CUdeviceptr probe = 0;
    if (out->cu->MemAlloc(&probe, 16) == CUDA_SUCCESS) {
        (void)out->cu->PointerGetAttribute(&out->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, probe);
        (void)out->cu->MemFree(probe);
        out->ctx = ctx;
    }
}

ncclResult_t tcpx_gpu_open(struct gpu_side *g)
{
    if (!g->ctx)
        return ncclSuccess;
    CUcontext ctx;
    CUresult rc = g->cu->CtxPushCurrent(g->ctx);
    if (rc == CUDA_SUCCESS) {
        rc = g->cu->StreamCreate(&g->stream, CU_STREAM_NON_BLOCKING);
        (void)g->cu->CtxPopCurrent(&ctx);
    }
    return rc ? FAIL("GPU %d: no stream: CUDA error %d", g->device, rc) : ncclSuccess;
}

void tcpx_gpu_close(struct gpu_side *g)
{
    CUcontext ctx;
    if (!g->stream || g->cu->CtxPushCurrent(g->ctx))
        return;
    (void)g->cu->StreamDestroy(g->stream);
    (void)g->cu->CtxPopCurrent(&ctx);
    g->stream = NULL;
}

void *tcpx_pages_alloc(const struct gpu_side *g, size_t len)
{
    CUcontext ctx;
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || !g || !g->ctx)
        return p == MAP_FAILED ? NULL : p;
    CUresult rc = g->cu->CtxPushCurrent(g->ctx);
    if (rc == CUDA_SUCCESS) {
        rc = g->cu->MemHostRegister(p, len, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        (void)g->cu->CtxPopCurrent(&ctx);
    }
    if (rc == CUDA_SUCCESS)
        return p;
    munmap(p, len);
    return NULL;
}

void tcpx_pages_free(const struct gpu_side *g, void *p, size_t len)
{
    CUcontext ctx;
    if (!p)
        return;
    if (g && g->ctx && g->cu->CtxPushCurrent(g->ctx) == CUDA_SUCCESS) {
        (void)g->cu->MemHostUnregister(p);
        (void)g->cu->CtxPopCurrent(&ctx);
    }
    munmap(p, len);
}

ncclResult_t tcpx_load(const struct gpu_side *g, void *host, const void *from, size_t len)
{
    CUcontext ctx;
    CUresult rc = g->cu->CtxPushCurrent(g->ctx);
    if (rc == CUDA_SUCCESS) {
        rc = g->cu->MemcpyDtoHAsync(host, (uintptr_t)from, len, g->stream);
        rc = rc ? rc : g->cu->StreamSynchronize(g->stream);
        (void)g->cu->CtxPopCurrent(&ctx);
    }
    return rc ? FAIL("GPU %d: reading %zu bytes: CUDA error %d", g->device, len, rc) : ncclSuccess;
}

/* ---- the bounce buffer ------------------------------------------------------------------------ */

/* On the GPU: the buffer itself, and what the device handle leads to. */
static CUresult on_gpu(struct bounce *b, struct unpackNetDeviceHandle *h)
{
    const struct hw_cuda *cu = b->gpu->cu;
    CUdeviceptr meta, lead = 0;
    CUresult rc = cu->MemHostGetDevicePointer(&meta, b->meta, 0);
    rc = rc ? rc : cu->MemAlloc(&b->base, b->len);
    rc = rc ? rc : cu->MemAlloc(&lead, sizeof(*h));
    b->device_handle = (void *)(uintptr_t)lead;
    if (rc)
        return rc;
    h->meta = (void *)(uintptr_t)meta;
    h->bounce_buf = (void *)(uintptr_t)b->base;
    memcpy(b->host, h, sizeof(*h)); /* pinned, as an asynchronous copy wants it */
    rc = cu->MemcpyHtoDAsync(lead, b->host, sizeof(*h), b->gpu->stream);
    return rc ? rc : cu->StreamSynchronize(b->gpu->stream);
}

struct bounce *tcpx_bounce_open(struct gpu_side *gpu)
{
    struct bounce *b = calloc(1, sizeof(*b));
    struct unpackNetDeviceHandle *h = calloc(1, sizeof(*h));
    b->gpu = gpu->ctx && !tcpx_opt.unpack_host ? gpu : NULL;
    b->random = tcpx_opt.seed;
    b->len = (size_t)tcpx_opt.pool << 20;
    b->n_free = (uint32_t)(b->len / PAGE);
    b->free = malloc(b->n_free * sizeof(*b->free));
    for (uint32_t i = 0; i < b->n_free; i++)
        b->free[i] = b->n_free - 1 - i;
    b->meta = tcpx_pages_alloc(b->gpu, sizeof(*b->meta));
    b->host = tcpx_pages_alloc(b->gpu, b->len);
    CUresult rc = b->meta && b->host ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!rc && b->gpu) {
        CUcontext ctx;
        rc = gpu->cu->CtxPushCurrent(gpu->ctx);
        if (!rc) {
            rc = on_gpu(b, h);
            (void)gpu->cu->CtxPopCurrent(&ctx);
        }
        free(h);
    } else if (!rc) {
        b->base = (uintptr_t)b->host;
        h->meta = b->meta;
        h->bounce_buf = b->host;
        b->device_handle = h;
    } else {
        free(h);
    }
    if (!rc)
        return b;
    WARN("no bounce buffer of %zu bytes: CUDA error %d", b->len, rc);
    tcpx_bounce_close(b);
    return NULL;
}

void tcpx_bounce_close(struct bounce *b)
{
    CUcontext ctx;
    if (!b)
        return;
    if (!b->gpu) {
        free(b->device_handle);
    } else if (b->gpu->cu->CtxPushCurrent(b->gpu->ctx) == CUDA_SUCCESS) {
        if (b->base)
            (void)b->gpu->cu->MemFree(b->base);
        if (b->device_handle)
            (void)b->gpu->cu->MemFree((uintptr_t)b->device_handle);
        (void)b->gpu->cu->CtxPopCurrent(&ctx);
    }
    tcpx_pages_free(b->gpu, b->meta, sizeof(*b->meta));
    tcpx_pages_free(b->gpu, b->host, b->len);
    free(b->free);
    free(b);
}

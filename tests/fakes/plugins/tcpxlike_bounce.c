/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs, memory that GPUs can access, and the bounce buffer for scattered receives. */
#include "tcpxlike.h"

#include <pthread.h>
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
    /* Has the same result as cuCtxGetCurrent, but uses calls that lib/mem loads anyway. */
    CUcontext ctx = NULL;
    if (out->cu->CtxPopCurrent(&ctx) || !ctx || out->cu->CtxPushCurrent(ctx))
        return;
    /* With these calls, a context's device can only be found through memory in the context. */
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

/* ---- a GPU's pages ---------------------------------------------------------------------------- */

static struct pool *pools;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void pool_free(struct pool *p)
{
    CUcontext ctx;
    struct gpu_side *g = p->device >= 0 ? &p->gpu : NULL;
    if (g && p->base && g->cu->CtxPushCurrent(g->ctx) == CUDA_SUCCESS) {
        (void)g->cu->MemFree(p->base);
        (void)g->cu->CtxPopCurrent(&ctx);
    }
    tcpx_pages_free(g, p->host, p->len);
    free(p->free);
    free(p);
}

static struct pool *pool_new(const struct gpu_side *gpu, int device)
{
    struct pool *p = calloc(1, sizeof(*p));
    CUcontext ctx;
    *p = (struct pool){.device = device, .gpu = *gpu, .random = tcpx_opt.seed, .len = (size_t)tcpx_opt.pool << 20};
    p->n_free = (uint32_t)(p->len / PAGE);
    p->free = malloc(p->n_free * sizeof(*p->free));
    for (uint32_t i = 0; i < p->n_free; i++)
        p->free[i] = p->n_free - 1 - i;
    p->host = tcpx_pages_alloc(device >= 0 ? gpu : NULL, p->len);
    CUresult rc = p->host ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!rc && device < 0) {
        p->base = (uintptr_t)p->host;
    } else if (!rc && !(rc = gpu->cu->CtxPushCurrent(gpu->ctx))) {
        rc = gpu->cu->MemAlloc(&p->base, p->len);
        (void)gpu->cu->CtxPopCurrent(&ctx);
    }
    if (!rc)
        return p;
    WARN("no bounce buffer of %zu bytes: CUDA error %d", p->len, rc);
    pool_free(p);
    return NULL;
}

static struct pool *pool_join(const struct gpu_side *gpu, int device)
{
    pthread_mutex_lock(&lock);
    struct pool *p = pools;
    while (p && p->device != device)
        p = p->next;
    if (!p && (p = pool_new(gpu, device))) {
        p->next = pools;
        pools = p;
    }
    if (p && p->users > 0 && (size_t)(p->users + 1) * MAX_FRAGS * PAGE > p->len) {
        WARN("GPU %d: the bounce buffer of %zu bytes does for %u connections", device, p->len, p->users);
        p = NULL;
    }
    if (p)
        p->users++;
    pthread_mutex_unlock(&lock);
    return p;
}

static void pool_leave(struct pool *p)
{
    pthread_mutex_lock(&lock);
    if (--p->users == 0) {
        struct pool **at = &pools;
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        pool_free(p);
    }
    pthread_mutex_unlock(&lock);
}

bool tcpx_page_take(struct pool *p, bool oldest, uint32_t *page)
{
    pthread_mutex_lock(&lock);
    const bool any = p->n_free > (oldest ? 0 : p->users * MAX_FRAGS);
    if (any) { /* takes one of the topmost pages */
        uint32_t i = p->n_free - 1 - (uint32_t)(wire_random(&p->random) % HW_MIN(p->n_free, 64u));
        *page = p->free[i];
        p->free[i] = p->free[--p->n_free];
    }
    pthread_mutex_unlock(&lock);
    return any;
}

void tcpx_page_give(struct pool *p, uint32_t page)
{
    if (p->device < 0)
        memset(p->host + (size_t)page * PAGE, 0xdb, PAGE); /* lets late readers detect the error */
    pthread_mutex_lock(&lock);
    p->free[p->n_free++] = page;
    pthread_mutex_unlock(&lock);
}

/* ---- a comm's share --------------------------------------------------------------------------- */

/* Copies the contents of the device handle to the GPU. */
static CUresult on_gpu(struct bounce *b, struct unpackNetDeviceHandle *h)
{
    const struct hw_cuda *cu = b->gpu->cu;
    CUdeviceptr meta, lead = 0;
    CUresult rc = cu->MemHostGetDevicePointer(&meta, b->meta, 0);
    rc = rc ? rc : cu->MemAlloc(&lead, sizeof(*h));
    b->device_handle = (void *)(uintptr_t)lead;
    if (rc)
        return rc;
    h->meta = (void *)(uintptr_t)meta;
    h->bounce_buf = (void *)(uintptr_t)b->pool->base;
    memcpy(b->meta, h, sizeof(*h)); /* pinned memory, which an asynchronous copy needs */
    rc = cu->MemcpyHtoDAsync(lead, b->meta, sizeof(*h), b->gpu->stream);
    rc = rc ? rc : cu->StreamSynchronize(b->gpu->stream);
    memset(b->meta, 0, sizeof(*h));
    return rc;
}

struct bounce *tcpx_bounce_open(struct gpu_side *gpu)
{
    struct bounce *b = calloc(1, sizeof(*b));
    struct unpackNetDeviceHandle *h = calloc(1, sizeof(*h));
    b->gpu = gpu->ctx && !tcpx_opt.unpack_host ? gpu : NULL;
    b->random = tcpx_opt.seed;
    b->pool = pool_join(gpu, b->gpu ? gpu->device : -1);
    b->meta = tcpx_pages_alloc(b->gpu, sizeof(*b->meta));
    CUresult rc = b->meta && b->pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!rc && b->gpu) {
        CUcontext ctx;
        rc = gpu->cu->CtxPushCurrent(gpu->ctx);
        if (!rc) {
            rc = on_gpu(b, h);
            (void)gpu->cu->CtxPopCurrent(&ctx);
        }
        free(h);
    } else if (!rc) {
        h->meta = b->meta;
        h->bounce_buf = b->pool->host;
        b->device_handle = h;
    } else {
        free(h);
    }
    if (!rc)
        return b;
    WARN("no place to receive into: CUDA error %d", rc);
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
    } else if (b->device_handle && b->gpu->cu->CtxPushCurrent(b->gpu->ctx) == CUDA_SUCCESS) {
        (void)b->gpu->cu->MemFree((uintptr_t)b->device_handle);
        (void)b->gpu->cu->CtxPopCurrent(&ctx);
    }
    tcpx_pages_free(b->gpu, b->meta, sizeof(*b->meta));
    if (b->pool)
        pool_leave(b->pool);
    free(b);
}

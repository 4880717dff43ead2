/* SPDX-License-Identifier: Apache-2.0 */
/* Memory spaces of CUDA contexts: memory, copies, and the space of an address. */
#include "mem/cuda.h"
#include "mem/dmabuf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOUNCE ((size_t)64 << 10)

struct cuda_space {
    struct hw_space s;
    const struct hw_cuda *cu;
    CUcontext ctx;
    bool primary; /* ctx is the device's primary context, which is retained */
    char name[16];
    struct cuda_space *next;

    pthread_mutex_t small; /* allows one load or store at a time; protects stream and bounce */
    CUstream stream;
    void *bounce; /* BOUNCE bytes of pinned memory, or NULL before the first use */
};

struct hw_copyq {
    const struct cuda_space *space;
    CUstream stream;
    unsigned depth;
    uint64_t started, over;
    CUevent events[]; /* the event of copy n is events[n % depth] */
};

static const struct hw_space_ops cuda_ops;

static struct cuda_space *spaces;
static pthread_mutex_t spaces_lock = PTHREAD_MUTEX_INITIALIZER;

static struct cuda_space *cuda_of(const struct hw_space *s)
{
    return hw_container_of(s, struct cuda_space, s);
}

int hw_cuda_enter(const struct hw_space *s)
{
    const struct hw_cuda *cu;
    if (s->ops != &cuda_ops)
        return hw_fail(-EINVAL, "%s memory belongs to no GPU", s->name);
    int rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    CUresult e = cu->CtxPushCurrent(cuda_of(s)->ctx);
    return e ? hw_cuda_fail(e, "entering the CUDA context of %s", s->name) : 0;
}

void hw_cuda_leave(void)
{
    const struct hw_cuda *cu;
    CUcontext ctx;
    if (hw_cuda(&cu) == 0)
        (void)cu->CtxPopCurrent(&ctx);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int cuda_alloc(const struct hw_space *s, size_t len, void **out)
{
    const struct hw_cuda *cu = cuda_of(s)->cu;
    const size_t page = hw_cuda_page();
    if (len == 0 || len > SIZE_MAX / 2)
        return hw_fail(-EINVAL, "allocating %zu bytes on %s: invalid size", len, s->name);
    const size_t whole = (len + page - 1) / page * page;
    int rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUdeviceptr p = 0;
    CUresult e = cu->MemAlloc(&p, whole);
    if (!e && p % page) { /* CUDA guarantees only an alignment of 256 bytes; cuda_free() looks up the true start */
        (void)cu->MemFree(p);
        e = cu->MemAlloc(&p, whole + page);
        p = (p + page - 1) / page * page;
    }
    hw_cuda_leave();
    if (e)
        return hw_cuda_fail(e, "allocating %zu bytes on %s", len, s->name);
    *out = (void *)(uintptr_t)p;
    return 0;
}

static void cuda_free(const struct hw_space *s, void *ptr, size_t len)
{
    (void)len;
    const struct hw_cuda *cu = cuda_of(s)->cu;
    CUdeviceptr p = (uintptr_t)ptr, start = 0;
    if (!ptr || hw_cuda_enter(s) < 0)
        return;
    if (cu->PointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p) == CUDA_SUCCESS)
        (void)cu->MemFree(start);
    hw_cuda_leave();
}

static int cuda_pin(const struct hw_space *s, void *ptr, size_t len)
{
    int rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUresult e = cuda_of(s)->cu->MemHostRegister(ptr, len, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    hw_cuda_leave();
    return e ? hw_cuda_fail(e, "pinning %zu bytes of host memory for %s", len, s->name) : 0;
}

static void cuda_unpin(const struct hw_space *s, void *ptr)
{
    if (!ptr || hw_cuda_enter(s) < 0)
        return;
    (void)cuda_of(s)->cu->MemHostUnregister(ptr);
    hw_cuda_leave();
}

/* Allocates the bounce buffer and its stream. The CUDA context must be current, and c->small must be locked. */
static int open_bounce(struct cuda_space *c)
{
    const struct hw_cuda *cu = c->cu;
    void *bounce = hw_pages_alloc(BOUNCE, c->s.numa);
    if (!bounce)
        return hw_no_memory("%zu bytes of host memory for copies to and from %s", BOUNCE, c->s.name);
    CUresult e = cu->MemHostRegister(bounce, BOUNCE, CU_MEMHOSTREGISTER_PORTABLE);
    if (!e) {
        e = cu->StreamCreate(&c->stream, CU_STREAM_NON_BLOCKING);
        if (e)
            (void)cu->MemHostUnregister(bounce);
    }
    if (e) {
        hw_pages_free(bounce, BOUNCE);
        return hw_cuda_fail(e, "preparing copies to and from %s", c->s.name);
    }
    c->bounce = bounce;
    return 0;
}

/* Copies in pieces on a separate stream. cuMemcpyDtoH and cuMemcpyHtoD would wait for work of the application in this
 * context, which may be waiting for this very message. */
static int small_copy(const struct hw_space *s, bool in, void *dev, void *host, size_t len)
{
    struct cuda_space *c = cuda_of(s);
    const struct hw_cuda *cu = c->cu;
    int rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUresult e = CUDA_SUCCESS;
    pthread_mutex_lock(&c->small);
    if (!c->bounce)
        rc = open_bounce(c);
    for (size_t at = 0; c->bounce && !e && at < len; at += BOUNCE) {
        const size_t n = HW_MIN(BOUNCE, len - at);
        const CUdeviceptr there = (uintptr_t)dev + at;
        if (in)
            memcpy(c->bounce, (char *)host + at, n);
        e = in ? cu->MemcpyHtoDAsync(there, c->bounce, n, c->stream)
               : cu->MemcpyDtoHAsync(c->bounce, there, n, c->stream);
        if (!e)
            e = cu->StreamSynchronize(c->stream);
        if (!e && !in)
            memcpy((char *)host + at, c->bounce, n);
    }
    pthread_mutex_unlock(&c->small);
    hw_cuda_leave();
    return e ? hw_cuda_fail(e, "copying %zu bytes %s %p of %s", len, in ? "to" : "from", dev, s->name) : rc;
}

static int cuda_load(const struct hw_space *s, void *host, const void *from, size_t len)
{
    return small_copy(s, false, (void *)(uintptr_t)from, host, len);
}

static int cuda_store(const struct hw_space *s, void *to, const void *host, size_t len)
{
    return small_copy(s, true, to, (void *)(uintptr_t)host, len);
}

/* ---- copy queues ---------------------------------------------------------------------------- */

/* Frees the queue's events and stream. The CUDA context must be current. */
static void destroy_queue(struct hw_copyq *q)
{
    const struct hw_cuda *cu = q->space->cu;
    for (unsigned i = 0; i < q->depth && q->events[i]; i++)
        (void)cu->EventDestroy(q->events[i]);
    if (q->stream)
        (void)cu->StreamDestroy(q->stream);
}

static int cuda_queue_open(const struct hw_space *s, unsigned depth, struct hw_copyq **out)
{
    const struct hw_cuda *cu = cuda_of(s)->cu;
    if (depth == 0)
        return hw_fail(-EINVAL, "cannot open a copy queue of depth 0 on %s: the depth must be at least 1", s->name);
    struct hw_copyq *q = calloc(1, sizeof(*q) + depth * sizeof(q->events[0]));
    if (!q)
        return hw_no_memory("a copy queue of depth %u", depth);
    q->space = cuda_of(s);
    q->depth = depth;
    int rc = hw_cuda_enter(s);
    if (rc == 0) {
        CUresult e = cu->StreamCreate(&q->stream, CU_STREAM_NON_BLOCKING);
        for (unsigned i = 0; !e && i < depth; i++)
            e = cu->EventCreate(&q->events[i], CU_EVENT_DISABLE_TIMING);
        if (e) {
            destroy_queue(q);
            rc = hw_cuda_fail(e, "opening a copy queue of depth %u on %s", depth, s->name);
        }
        hw_cuda_leave();
    }
    if (rc < 0) {
        free(q);
        return rc;
    }
    *out = q;
    return 0;
}

static void cuda_queue_close(struct hw_copyq *q)
{
    if (!q)
        return;
    if (hw_cuda_enter(&q->space->s) == 0) {
        destroy_queue(q);
        hw_cuda_leave();
    }
    free(q);
}

static int cuda_done(struct hw_copyq *q, uint64_t *upto)
{
    const struct cuda_space *c = q->space;
    if (q->over < q->started) {
        int rc = hw_cuda_enter(&c->s);
        if (rc < 0)
            return rc;
        CUresult e = CUDA_SUCCESS;
        while (q->over < q->started && (e = c->cu->EventQuery(q->events[(q->over + 1) % q->depth])) == CUDA_SUCCESS)
            q->over++;
        hw_cuda_leave();
        if (e && e != CUDA_ERROR_NOT_READY)
            return hw_cuda_fail(e, "copy %llu on %s", (unsigned long long)q->over + 1, c->s.name);
    }
    *upto = q->over;
    return 0;
}

/* Starts a copy with cuMemcpyDtoHAsync and related functions, which reject addresses that are not device memory.
 * cuMemcpyAsync assumes that an address unknown to CUDA, such as freed memory, is pageable host memory and reads it
 * with the CPU, which kills the process (seen with CUDA 13). */
static CUresult start_copy(struct hw_copyq *q, void *to, const void *from, size_t len)
{
    const struct hw_cuda *cu = q->space->cu;
    const CUdeviceptr a = (uintptr_t)to, b = (uintptr_t)from;
    unsigned to_type, from_type;
    CUresult e = cu->PointerGetAttribute(&to_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a);
    if (!e)
        e = cu->PointerGetAttribute(&from_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, b);
    if (e)
        return e;
    if (to_type == CU_MEMORYTYPE_HOST)
        return from_type == CU_MEMORYTYPE_HOST ? CUDA_ERROR_INVALID_VALUE : cu->MemcpyDtoHAsync(to, b, len, q->stream);
    return from_type == CU_MEMORYTYPE_HOST ? cu->MemcpyHtoDAsync(a, from, len, q->stream)
                                           : cu->MemcpyDtoDAsync(a, b, len, q->stream);
}

static int cuda_copy(struct hw_copyq *q, void *to, const void *from, size_t len)
{
    const struct cuda_space *c = q->space;
    if (q->started - q->over == q->depth) {
        uint64_t upto = 0;
        int rc = cuda_done(q, &upto);
        if (rc < 0)
            return rc;
        if (q->started - q->over == q->depth)
            return -EAGAIN;
    }
    int rc = hw_cuda_enter(&c->s);
    if (rc < 0)
        return rc;
    CUresult e = start_copy(q, to, from, len);
    if (!e) {
        e = c->cu->EventRecord(q->events[(q->started + 1) % q->depth], q->stream);
        if (e) /* without an event nothing would report the end of this copy */
            (void)c->cu->StreamSynchronize(q->stream);
        else
            q->started++;
    }
    hw_cuda_leave();
    return e ? hw_cuda_fail(e, "copying %zu bytes from %p to %p on %s", len, from, to, c->s.name) : 0;
}

static const struct hw_space_ops cuda_ops = {
    .alloc = cuda_alloc,
    .free = cuda_free,
    .load = cuda_load,
    .store = cuda_store,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .queue_open = cuda_queue_open,
    .queue_close = cuda_queue_close,
    .copy = cuda_copy,
    .done = cuda_done,
    .dmabuf_alloc = hw_cuda_dmabuf_alloc,
    .dmabuf_free = hw_cuda_dmabuf_free,
    .dmabuf_of = hw_cuda_dmabuf_of,
    .dmabuf_id = hw_cuda_dmabuf_id,
};

/* ---- finding a space ----------------------------------------------------------------------------- */

/* Returns the NUMA node nearest to the GPU, or -1 if unknown. */
static int find_cuda_numa_node(const struct hw_cuda *cu, CUdevice dev)
{
    int node = -1;
    if (cu->DeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, dev) == CUDA_SUCCESS && node >= 0)
        return node; /* CUDA 12.2 and later; works in sandboxes that hide the GPU's sysfs entries */
    struct hw_gpu_info info;
    char path[64];
    if (hw_cuda_info(dev, &info) < 0)
        return -1;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", info.pci);
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    if (fgets(path, sizeof(path), f))
        node = (int)strtol(path, NULL, 10); /* the kernel writes one number */
    fclose(f);
    return node;
}

/* Finds or creates the space of a context or, if ctx is NULL, the space of the device's primary context. spaces_lock
 * must be held. */
static int space_of(const struct hw_cuda *cu, CUcontext ctx, int device, const struct hw_space **out)
{
    for (struct cuda_space *c = spaces; c; c = c->next)
        if (c->s.device == device && (ctx ? c->ctx == ctx : c->primary)) {
            *out = &c->s;
            return 0;
        }

    CUdevice dev;
    CUcontext primary = NULL;
    CUresult e = cu->DeviceGet(&dev, device);
    if (!e && !ctx)
        e = cu->DevicePrimaryCtxRetain(&primary, dev);
    if (e)
        return hw_cuda_fail(e, "opening GPU %d", device);
    /* The context may already be known from one of the application's pointers. */
    for (struct cuda_space *c = spaces; primary && c; c = c->next)
        if (c->s.device == device && c->ctx == primary) {
            c->primary = true;
            *out = &c->s;
            return 0;
        }

    struct cuda_space *c = calloc(1, sizeof(*c));
    if (!c)
        return hw_no_memory("a memory space");
    snprintf(c->name, sizeof(c->name), "GPU %d", device);
    c->s = (struct hw_space){.ops = &cuda_ops, .name = c->name, .device = device, .numa = find_cuda_numa_node(cu, dev)};
    c->cu = cu;
    c->ctx = primary ? primary : ctx;
    c->primary = primary != NULL;
    pthread_mutex_init(&c->small, NULL);
    c->next = spaces;
    spaces = c;
    *out = &c->s;
    return 0;
}

int hw_cuda_device(int device, const struct hw_space **out)
{
    const struct hw_cuda *cu;
    int n = hw_cuda_count();
    if (n < 0)
        return n;
    if (device < 0 || device >= n)
        return hw_fail(-ENODEV, "GPU %d does not exist: there %s %d GPU%s, numbered from 0", device,
                       n == 1 ? "is" : "are", n, hw_plural(n));
    int rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&spaces_lock);
    rc = space_of(cu, NULL, device, out);
    pthread_mutex_unlock(&spaces_lock);
    return rc;
}

struct place {
    unsigned type; /* CU_MEMORYTYPE_* */
    unsigned managed;
    int device;
    CUcontext ctx;   /* NULL if the memory belongs to no context (cuMemMap, cudaMallocAsync) */
    CUdeviceptr end; /* end of the allocation or mapping; above the queried address */
};

static int query_cuda_pointer(const struct hw_cuda *cu, CUdeviceptr at, struct place *p)
{
    *p = (struct place){.device = -1, .end = at + 1};
    CUresult e = cu->PointerGetAttribute(&p->type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    if (e == CUDA_ERROR_INVALID_VALUE)
        return hw_fail(-EINVAL,
                       "0x%llx is not CUDA memory: it was not allocated by CUDA, or was freed; register host memory as "
                       "HAWSER_MEM_HOST",
                       at);
    if (!e)
        e = cu->PointerGetAttribute(&p->managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    if (!e)
        e = cu->PointerGetAttribute(&p->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    if (e)
        return hw_cuda_fail(e, "querying CUDA about the memory at 0x%llx", at);
    if (cu->PointerGetAttribute(&p->ctx, CU_POINTER_ATTRIBUTE_CONTEXT, at) != CUDA_SUCCESS)
        p->ctx = NULL;
    /* For memory of cuMemMap the range is the whole reservation, including holes, and the mapping is the part that is
     * backed by memory. For cuMemAlloc the mapping is the block that the driver allocated from (seen with CUDA 13). Old
     * drivers report no mappings. */
    static const int bounds[][2] = {{CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE},
                                    {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE}};
    CUdeviceptr end = UINT64_MAX;
    for (size_t i = 0; i < HW_ARRAY_LEN(bounds); i++) {
        CUdeviceptr start = 0;
        size_t size = 0;
        if (cu->PointerGetAttribute(&start, bounds[i][0], at) == CUDA_SUCCESS &&
            cu->PointerGetAttribute(&size, bounds[i][1], at) == CUDA_SUCCESS && start + size > at)
            end = HW_MIN(end, start + size);
    }
    if (end != UINT64_MAX)
        p->end = end;
    return 0;
}

int hw_cuda_find(const void *ptr, size_t len, const struct hw_space **out)
{
    const struct hw_cuda *cu;
    int rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    const CUdeviceptr first = (uintptr_t)ptr, last = first + (len ? len - 1 : 0);
    if (!ptr || last < first)
        return hw_fail(-EINVAL, "cannot register %zu bytes at %p: the address is NULL or the range overflows", len,
                       ptr);
    struct place a, b;
    rc = query_cuda_pointer(cu, first, &a);
    if (rc < 0)
        return rc;
    if (a.managed)
        return hw_fail(-EINVAL,
                       "%p is managed memory, whose pages move between GPU and host: use cudaMalloc or "
                       "cudaHostAlloc",
                       ptr);
    if (a.type != CU_MEMORYTYPE_DEVICE && a.type != CU_MEMORYTYPE_HOST)
        return hw_fail(-EINVAL, "%p is neither device memory nor pinned host memory (CUDA memory type %u)", ptr,
                       a.type);
    /* Several adjacent allocations on one device are allowed, because PyTorch's expandable segments consist of many
     * adjacent mappings. */
    for (b = a; b.end <= last;) {
        rc = query_cuda_pointer(cu, b.end, &b);
        if (rc < 0)
            return hw_wrap(rc, "%zu bytes from %p are not all CUDA memory: register each part separately", len, ptr);
        if (b.type != a.type || b.managed || b.ctx != a.ctx || b.device != a.device)
            return hw_fail(-EINVAL,
                           "%zu bytes from %p are in memory of several devices, CUDA contexts or kinds: register each "
                           "part separately",
                           len, ptr);
    }
    if (a.type == CU_MEMORYTYPE_HOST) {
        *out = &hw_host;
        return 0;
    }
    pthread_mutex_lock(&spaces_lock);
    rc = space_of(cu, a.ctx, a.device, out);
    pthread_mutex_unlock(&spaces_lock);
    return rc;
}

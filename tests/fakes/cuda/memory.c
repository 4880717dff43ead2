/* SPDX-License-Identifier: Apache-2.0 */
/* The environment, injected faults, GPUs, contexts and memory. */
#include "internal.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRAIN 512 /* alignment of device_alloc(), and the gap that find_hole() leaves */

struct gpu fake_gpus[MAX_GPUS];
struct fakecuda_counts fake_counts;
unsigned fake_copy_us;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned n_gpus, version, dmabuf, udmabuf;
static int numa;
static size_t memory;
static char pci[MAX_GPUS][32];
static pid_t owner;
static bool initialised;
static const char *report;

static struct CUctx_st *contexts, *destroyed; /* destroyed contexts are kept, so that their addresses are not reused */
static struct range *ranges;
static struct fault {
    struct fault *next;
    const char *symbol;
    unsigned nth;
    CUresult code;
} * faults;

static __thread CUcontext stack[16];
static __thread unsigned depth;

/* ---- environment, faults, counters ---------------------------------------------------------- */

static long env(const char *name, long def)
{
    const char *v = getenv(name);
    return v && *v ? strtol(v, NULL, 10) : def;
}

static void add_fault(const char *symbol, unsigned nth, CUresult code)
{
    struct fault *f = malloc(sizeof(*f));
    *f = (struct fault){.next = faults, .symbol = strdup(symbol), .nth = nth, .code = code};
    faults = f;
}

/* Ends the process at once, because a bad variable is an error in the test, not in the tested program. */
__attribute__((noreturn)) static void bad_env(const char *name, const char *value)
{
    fprintf(stderr, "fakecuda: %s=%s?\n", name, value);
    abort();
}

__attribute__((constructor)) static void read_env(void)
{
    n_gpus = (unsigned)env("FAKECUDA_GPUS", 2);
    if (n_gpus > MAX_GPUS)
        bad_env("FAKECUDA_GPUS", getenv("FAKECUDA_GPUS"));
    memory = (size_t)env("FAKECUDA_MEMORY", 1024) << 20;
    numa = (int)env("FAKECUDA_NUMA", -1);
    version = (unsigned)env("FAKECUDA_VERSION", 12080);
    dmabuf = (unsigned)env("FAKECUDA_DMABUF", 1);
    udmabuf = (unsigned)env("FAKECUDA_UDMABUF", 0);
    fake_copy_us = (unsigned)env("FAKECUDA_COPY_US", 0);
    report = getenv("FAKECUDA_REPORT");
    for (unsigned i = 0; i < MAX_GPUS; i++)
        snprintf(pci[i], sizeof(pci[i]), "0000:%02X:00.0", 0x0a + i);

    const char *v = getenv("FAKECUDA_PCI");
    for (unsigned i = 0; v && *v && i < MAX_GPUS; i++) {
        size_t len = strcspn(v, ",");
        snprintf(pci[i], sizeof(pci[i]), "%.*s", (int)len, v);
        v += len + (v[len] == ',');
    }
    v = getenv("FAKECUDA_FAIL");
    for (char symbol[64]; v && *v;) {
        unsigned nth;
        int code, used = 0;
        if (sscanf(v, "%63[^:]:%u:%d%n", symbol, &nth, &code, &used) != 3)
            bad_env("FAKECUDA_FAIL", v);
        add_fault(symbol, nth, code);
        v += used + (v[used] == ',');
    }
    v = getenv("FAKECUDA_STALL");
    unsigned g;
    unsigned long n;
    if (v && *v) {
        if (sscanf(v, "%u:%lu", &g, &n) != 2 || g >= MAX_GPUS)
            bad_env("FAKECUDA_STALL", v);
        fake_gpus[g].stall_at = n;
    }
}

__attribute__((destructor)) static void write_report(void)
{
    FILE *f = report && *report && owner == getpid() ? fopen(report, "ae") : NULL;
    if (!f)
        return;
    struct fakecuda_counts c;
    fakecuda_count(&c);
#define X(name) fprintf(f, #name "=%llu ", (unsigned long long)c.name);
    FAKECUDA_COUNTS(X)
#undef X
    fprintf(f, "pid=%d\n", (int)owner);
    fclose(f);
}

void fakecuda_count(struct fakecuda_counts *out)
{
    pthread_mutex_lock(&fake_lock);
    *out = fake_counts;
    pthread_mutex_unlock(&fake_lock);
}

void fakecuda_fail(const char *name, unsigned nth, int code)
{
    pthread_mutex_lock(&fake_lock);
    add_fault(name, nth, code);
    pthread_mutex_unlock(&fake_lock);
}

void fakecuda_stall(int device, bool on)
{
    pthread_mutex_lock(&fake_lock);
    fake_gpus[device].stalled = on;
    fake_streams_wake();
    pthread_mutex_unlock(&fake_lock);
}

void fakecuda_break(int device, int code)
{
    pthread_mutex_lock(&fake_lock);
    for (struct CUctx_st *c = contexts; c; c = c->next)
        if (c->device == device)
            c->broken = code;
    fake_streams_wake();
    pthread_mutex_unlock(&fake_lock);
}

static CUresult enter(const char *symbol, bool init)
{
    if (owner && owner != getpid())
        return CUDA_ERROR_NOT_INITIALIZED; /* as CUDA does in a child of a process that has used CUDA */
    pthread_mutex_lock(&fake_lock);
    for (struct fault *f = faults; f; f = f->next)
        if (f->nth > 0 && strcmp(f->symbol, symbol) == 0 && --f->nth == 0)
            return fake_leave(f->code);
    if (!init && !initialised)
        return fake_leave(fake_misuse(CUDA_ERROR_NOT_INITIALIZED));
    return CUDA_SUCCESS;
}

CUresult fake_enter(const char *symbol)
{
    return enter(symbol, false);
}

CUresult fake_misuse(CUresult rc)
{
    fake_counts.misuse++;
    return rc;
}

CUresult fake_leave(CUresult rc)
{
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

/* ---- the driver and its devices ------------------------------------------------------------- */

CUresult fake_Init(unsigned flags)
{
    CUresult rc = enter("cuInit", true);
    if (rc)
        return rc;
    if (flags)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (n_gpus == 0)
        return fake_leave(CUDA_ERROR_NO_DEVICE);
    owner = getpid();
    for (unsigned i = 0; !initialised && i < n_gpus; i++) {
        struct gpu *g = &fake_gpus[i];
        g->fd = memfd_create("fakecuda", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (g->fd < 0 || ftruncate(g->fd, (off_t)memory) < 0 || fcntl(g->fd, F_ADD_SEALS, F_SEAL_SHRINK))
            return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
        g->base = mmap(NULL, memory, PROT_NONE, MAP_SHARED | MAP_NORESERVE, g->fd, 0);
        g->alias = mmap(NULL, memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, g->fd, 0);
        if (g->base == MAP_FAILED || g->alias == MAP_FAILED)
            return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    initialised = true;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_DriverGetVersion(int *out)
{
    ENTER("cuDriverGetVersion");
    *out = (int)version;
    return fake_leave(CUDA_SUCCESS);
}

static const struct {
    CUresult rc;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

CUresult fake_GetErrorName(CUresult rc, const char **text)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(errors); i++)
        if (errors[i].rc == rc) {
            *text = errors[i].name;
            return CUDA_SUCCESS;
        }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_GetErrorString(CUresult rc, const char **text)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(errors); i++)
        if (errors[i].rc == rc) {
            *text = errors[i].text;
            return CUDA_SUCCESS;
        }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_DeviceGetCount(int *n)
{
    ENTER("cuDeviceGetCount");
    *n = (int)n_gpus;
    return fake_leave(CUDA_SUCCESS);
}

static bool is_device(CUdevice dev)
{
    return dev >= 0 && (unsigned)dev < n_gpus;
}

CUresult fake_DeviceGet(CUdevice *dev, int ordinal)
{
    ENTER("cuDeviceGet");
    if (!is_device(ordinal))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    *dev = ordinal;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_DeviceGetName(char *name, int len, CUdevice dev)
{
    ENTER("cuDeviceGetName");
    if (!is_device(dev))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)len, "Fake GPU");
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_DeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
    ENTER("cuDeviceGetPCIBusId");
    if (!is_device(dev))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    if ((size_t)len <= strlen(pci[dev]))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(id, (size_t)len, "%s", pci[dev]);
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_DeviceGetAttribute(int *value, int attribute, CUdevice dev)
{
    ENTER("cuDeviceGetAttribute");
    if (!is_device(dev))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    switch (attribute) {
    case 16: /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
        *value = 4;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        *value = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        *value = (int)dmabuf;
        break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = numa;
        break;
    default:
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_DeviceTotalMem(size_t *bytes, CUdevice dev)
{
    ENTER("cuDeviceTotalMem_v2");
    if (!is_device(dev))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    *bytes = memory;
    return fake_leave(CUDA_SUCCESS);
}

/* ---- contexts ------------------------------------------------------------------------------- */

static CUcontext add_context(int device, bool primary)
{
    CUcontext c = calloc(1, sizeof(*c));
    *c = (struct CUctx_st){.next = contexts, .device = device, .primary = primary};
    contexts = c;
    return c;
}

static bool is_context(CUcontext ctx)
{
    for (CUcontext c = contexts; c; c = c->next)
        if (c == ctx)
            return true;
    return false;
}

CUresult fake_DevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    ENTER("cuDevicePrimaryCtxRetain");
    if (!is_device(dev))
        return fake_leave(CUDA_ERROR_INVALID_DEVICE);
    CUcontext c = contexts;
    while (c && !(c->primary && c->device == dev))
        c = c->next;
    *ctx = c ? c : add_context(dev, true);
    return fake_leave(CUDA_SUCCESS);
}

CUcontext fakecuda_context(int device)
{
    pthread_mutex_lock(&fake_lock);
    CUcontext c = add_context(device, false);
    pthread_mutex_unlock(&fake_lock);
    return c;
}

CUresult fake_CtxPushCurrent(CUcontext ctx)
{
    ENTER("cuCtxPushCurrent_v2");
    if (!is_context(ctx))
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_CONTEXT));
    if (depth == HW_ARRAY_LEN(stack))
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    stack[depth++] = ctx;
    fake_counts.entered++;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_CtxPopCurrent(CUcontext *ctx)
{
    ENTER("cuCtxPopCurrent_v2");
    if (depth == 0)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_CONTEXT));
    *ctx = stack[--depth];
    fake_counts.entered--;
    return fake_leave(CUDA_SUCCESS);
}

CUcontext fake_current(void)
{
    if (depth && is_context(stack[depth - 1]))
        return stack[depth - 1];
    fake_counts.misuse++;
    return NULL;
}

/* ---- memory --------------------------------------------------------------------------------- */

struct range *fake_range_add(struct range r)
{
    static uint64_t ids;
    struct range **at = &ranges, *n = malloc(sizeof(*n));
    while (*at && (*at)->start < r.start)
        at = &(*at)->next;
    *n = r;
    n->id = ++ids;
    n->next = *at;
    *at = n;
    (r.kind == HOST ? &fake_counts.pins : &fake_counts.allocations)[0]++;
    return n;
}

void fake_range_remove(struct range *r)
{
    struct range **at = &ranges;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    (r->kind == HOST ? &fake_counts.pins : &fake_counts.allocations)[0]--;
    if (r->owned)
        munmap((void *)(uintptr_t)r->start, r->len);
    free(r);
}

struct range *fake_range(uint64_t at)
{
    for (struct range *r = ranges; r && r->start <= at; r = r->next)
        if (at - r->start < r->len)
            return r;
    return NULL;
}

static struct gpu *gpu_at(uint64_t at)
{
    for (unsigned i = 0; i < n_gpus; i++)
        if (at - (uintptr_t)fake_gpus[i].base < memory)
            return &fake_gpus[i];
    return NULL;
}

/* Returns the lowest address in the GPU's memory with len free bytes, aligned to `align`, or 0 if there is none. */
static uint64_t find_hole(int device, size_t len, size_t align)
{
    const uint64_t base = (uintptr_t)fake_gpus[device].base;
    uint64_t at = base + GRAIN; /* so that addresses are not page-aligned by accident */
    at = (at + align - 1) / align * align;
    for (struct range *r = ranges; r; r = r->next) {
        if (r->start + r->len + GRAIN <= at || r->start < base)
            continue;
        if (r->start >= at && r->start - at >= len + GRAIN)
            break;
        if (r->start - base >= memory)
            break;
        at = (r->start + r->len + GRAIN + align - 1) / align * align;
    }
    return len <= memory && at - base <= memory - len ? at : 0;
}

static uint64_t device_alloc(int device, CUcontext ctx, size_t len)
{
    uint64_t at = len ? find_hole(device, len, GRAIN) : 0;
    if (at)
        fake_range_add((struct range){.start = at, .len = len, .kind = DEVICE, .device = device, .ctx = ctx});
    return at;
}

static void device_free(struct range *r)
{
    struct gpu *g = &fake_gpus[r->device];
    memset(g->alias + (r->start - (uintptr_t)g->base), 0xdf,
           HW_MIN(r->len, (uint64_t)65536)); /* lets readers of freed memory detect the error */
    fake_range_remove(r);
}

CUresult fake_MemAlloc(CUdeviceptr *ptr, size_t len)
{
    ENTER_CONTEXT("cuMemAlloc_v2", ctx);
    if (!len)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    *ptr = device_alloc(ctx->device, ctx, len);
    return fake_leave(*ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult fake_MemFree(CUdeviceptr ptr)
{
    ENTER_CONTEXT("cuMemFree_v2", ctx);
    struct range *r = fake_range(ptr);
    if (!r || r->kind != DEVICE || r->start != ptr || !r->ctx || r->imported)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    device_free(r);
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_MemHostRegister(void *ptr, size_t len, unsigned flags)
{
    ENTER_CONTEXT("cuMemHostRegister_v2", ctx);
    uint64_t at = (uintptr_t)ptr;
    if (!ptr || !len)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    for (struct range *r = ranges; r; r = r->next)
        if (r->start < at + len && at < r->start + r->len)
            return fake_leave(fake_misuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
    fake_range_add((struct range){.start = at,
                                  .len = len,
                                  .kind = HOST,
                                  .device = ctx->device,
                                  .ctx = ctx,
                                  .mapped = flags & CU_MEMHOSTREGISTER_DEVICEMAP});
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_MemHostUnregister(void *ptr)
{
    ENTER_CONTEXT("cuMemHostUnregister", ctx);
    struct range *r = fake_range((uintptr_t)ptr);
    if (!r || r->kind != HOST || r->owned || r->start != (uintptr_t)ptr)
        return fake_leave(fake_misuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
    fake_range_remove(r);
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_MemHostGetDevicePointer(CUdeviceptr *dev, void *host, unsigned flags)
{
    ENTER_CONTEXT("cuMemHostGetDevicePointer_v2", ctx);
    struct range *r = fake_range((uintptr_t)host);
    if (flags || !r || r->kind != HOST || !r->mapped)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    *dev = (uintptr_t)host;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_PointerGetAttribute(void *value, int attribute, CUdeviceptr ptr)
{
    ENTER("cuPointerGetAttribute");
    const struct range *r = fake_range(ptr);
    if (!r)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = r->ctx;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = r->kind == HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = r->kind == MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = r->device;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = r->id;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = r->area ? r->area : r->start;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = r->area ? r->area_len : r->len;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = r->start;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = r->len;
        break;
    default:
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return fake_leave(CUDA_SUCCESS);
}

#ifndef FAKECUDA_OLD /* CUDA 11.6 and earlier lack cuMemGetHandleForAddressRange() */
/* Returns a file descriptor that represents a dma-buf for part of a memfd: either a real dma-buf, or the reopened memfd
 * positioned at the offset. */
static int fake_dmabuf(int memfd, size_t offset, size_t len)
{
    char path[64];
    struct udmabuf_create c = {.memfd = (unsigned)memfd, .flags = UDMABUF_FLAGS_CLOEXEC, .offset = offset, .size = len};
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd);
    int dev = open(udmabuf ? "/dev/udmabuf" : path, O_RDWR | O_CLOEXEC);
    if (dev < 0 || !udmabuf) {
        if (dev >= 0)
            (void)lseek(dev, (off_t)offset, SEEK_SET);
        return dev;
    }
    int fd = ioctl(dev, UDMABUF_CREATE, &c);
    close(dev);
    return fd;
}

CUresult fake_MemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t len, int type, unsigned long long flags)
{
    ENTER_CONTEXT("cuMemGetHandleForAddressRange", ctx);
    char *cpu;
    if (!dmabuf)
        return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
    const struct range *r = fake_range(ptr);
    if (r && r->imported)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || ptr % 4096 || len == 0 || len % 4096 ||
        (flags && (flags != CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE || version < 12080)) ||
        fake_place(ptr, len, &cpu) != ON_DEVICE)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    int fd = fake_dmabuf(gpu_at(ptr)->fd, (size_t)(ptr - (uintptr_t)gpu_at(ptr)->base), len);
    if (fd < 0)
        return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
    *(int *)handle = fd;
    fake_counts.exported += len;
    return fake_leave(CUDA_SUCCESS);
}
#endif

enum place fake_place(uint64_t ptr, size_t len, char **cpu)
{
    struct gpu *g = gpu_at(ptr);
    *cpu = (char *)(uintptr_t)ptr;
    if (g) {
        for (uint64_t at = ptr; at < ptr + len;) { /* mappings may be adjacent */
            struct range *r = fake_range(at);
            if (!r)
                return NOWHERE;
            at = r->start + r->len;
        }
        *cpu = g->alias + (ptr - (uintptr_t)g->base);
        return ON_DEVICE;
    }
    struct range *r = fake_range(ptr);
    const bool within = r && ptr + len <= r->start + r->len;
    if (r && r->imported) {
        *cpu = r->imported + (ptr - r->start);
        return within ? ON_DEVICE : NOWHERE;
    }
    return within ? PINNED : PAGEABLE;
}

void *fakecuda_alias(CUdeviceptr ptr, size_t len)
{
    char *cpu;
    pthread_mutex_lock(&fake_lock);
    enum place place = fake_place(ptr, len, &cpu);
    pthread_mutex_unlock(&fake_lock);
    return place == ON_DEVICE || place == PINNED ? cpu : NULL;
}

/* ---- allocation as in applications ---------------------------------------------------------- */

void *fakecuda_alloc(CUcontext ctx, size_t len)
{
    pthread_mutex_lock(&fake_lock);
    uint64_t at = device_alloc(ctx->device, ctx, len);
    pthread_mutex_unlock(&fake_lock);
    return (void *)(uintptr_t)at;
}

static void *map_host(size_t len, enum kind kind)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    pthread_mutex_lock(&fake_lock);
    fake_range_add((struct range){
        .start = (uintptr_t)p, .len = len, .kind = kind, .ctx = contexts, .mapped = true, .owned = true});
    pthread_mutex_unlock(&fake_lock);
    return p;
}

void *fakecuda_host_alloc(size_t len)
{
    return map_host(len, HOST);
}

void *fakecuda_managed(size_t len)
{
    return map_host(len, MANAGED);
}

void *fakecuda_mappings(int device, size_t piece, unsigned n)
{
    pthread_mutex_lock(&fake_lock);
    uint64_t at = find_hole(device, piece * n, 4096);
    for (unsigned i = 0; at && i < n; i++)
        fake_range_add((struct range){.start = at + i * piece,
                                      .len = piece,
                                      .area = at,
                                      .area_len = piece * n,
                                      .kind = DEVICE,
                                      .device = device});
    pthread_mutex_unlock(&fake_lock);
    return (void *)(uintptr_t)at;
}

void fakecuda_free(void *ptr)
{
    pthread_mutex_lock(&fake_lock);
    struct range *r = fake_range((uintptr_t)ptr);
    if (!r || r->start != (uintptr_t)ptr)
        (void)fake_misuse(CUDA_ERROR_INVALID_VALUE);
    else if (r->kind == DEVICE)
        device_free(r);
    else
        fake_range_remove(r);
    pthread_mutex_unlock(&fake_lock);
}

void fakecuda_context_destroy(CUcontext ctx)
{
    pthread_mutex_lock(&fake_lock);
    for (struct range *r = ranges, *next; r; r = next) {
        next = r->next;
        if (r->ctx == ctx && r->kind == DEVICE)
            device_free(r);
    }
    fake_streams_forget(ctx);
    for (struct CUctx_st **at = &contexts; *at; at = &(*at)->next)
        if (*at == ctx) {
            *at = ctx->next;
            ctx->next = destroyed;
            destroyed = ctx;
            break;
        }
    pthread_mutex_unlock(&fake_lock);
}

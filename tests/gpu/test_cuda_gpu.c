/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lib/mem on each GPU with the real CUDA driver. tests/lib/mem/test_cuda.c uses the fake driver. */
#include "mem/cuda.h"
#include "tests/tap.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* CUDA functions that applications use but libhawser does not, so this test looks them up. Described in the Driver API
 * reference: "Memory Management", "Virtual Memory Management", "Context Management", "Execution Control". */
static struct {
    CUresult (*managed)(CUdeviceptr *ptr, size_t len, unsigned flags);
    CUresult (*host_alloc)(void **ptr, size_t len, unsigned flags);
    CUresult (*host_free)(void *ptr);
    CUresult (*ctx_create)(CUcontext *ctx, unsigned flags, CUdevice dev);
    CUresult (*ctx_destroy)(CUcontext ctx);
    CUresult (*launch_host)(CUstream stream, void (*fn)(void *), void *arg);
    CUresult (*reserve)(CUdeviceptr *ptr, size_t len, size_t align, CUdeviceptr at, unsigned long long flags);
    CUresult (*release_address)(CUdeviceptr ptr, size_t len);
    CUresult (*create)(unsigned long long *handle, size_t len, const void *prop, unsigned long long flags);
    CUresult (*release)(unsigned long long handle);
    CUresult (*map)(CUdeviceptr ptr, size_t len, size_t offset, unsigned long long handle, unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr ptr, size_t len);
    CUresult (*access)(CUdeviceptr ptr, size_t len, const void *desc, size_t n);
} app;

static const char *const app_symbols[] = {
    "cuMemAllocManaged", "cuMemHostAlloc",      "cuMemFreeHost",    "cuCtxCreate_v2", "cuCtxDestroy_v2",
    "cuLaunchHostFunc",  "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",    "cuMemRelease",
    "cuMemMap",          "cuMemUnmap",          "cuMemSetAccess",
};

static bool open_app(void)
{
    _Static_assert(sizeof(app) == sizeof(app_symbols), "a pointer for each symbol");
    const char *name = getenv("HAWSER_CUDA_LIBRARY");
    void *lib = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; lib && i < HW_ARRAY_LEN(app_symbols); i++) {
        void *entry = dlsym(lib, app_symbols[i]);
        if (!entry) {
            diag("no %s", app_symbols[i]);
            return false;
        }
        memcpy((char *)&app + i * sizeof(entry), &entry, sizeof(entry));
    }
    return lib != NULL;
}

static bool says(const char *what)
{
    return strstr(hw_error(), what) != NULL;
}

static int find(const void *p, size_t len, const struct hw_space **s)
{
    return hw_space_find(HAWSER_MEM_CUDA, p, len, s);
}

static void fill(void *p, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)p)[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
}

static int reach(const struct hw_space *s, struct hw_copyq *q, uint64_t n)
{
    for (uint64_t end = hw_deadline(20000), upto; hw_now() < end;) {
        int rc = s->ops->done(q, &upto);
        if (rc < 0 || upto >= n)
            return rc;
    }
    return -ETIMEDOUT;
}

/* Copies data to and from the GPU, with the queue and with small copies. Returns whether all bytes are unchanged. */
static bool round_trip(const struct hw_space *s, unsigned seed)
{
    const size_t len = 4 * MIB;
    struct hw_copyq *q = NULL;
    void *dev = NULL;
    char *ring = hw_pages_alloc(2 * len, s->numa), *small = malloc(len);
    bool good = ring && s->ops->pin(s, ring, 2 * len) == 0 && s->ops->alloc(s, 2 * len, &dev) == 0 &&
                s->ops->queue_open(s, 8, &q) == 0;
    for (unsigned i = 0; good && i < 5; i++) {
        const size_t odd = 3 + i;
        fill(ring, len, seed + i);
        memset(ring + len, 0, len);
        memset(small, 0, len);
        good = s->ops->copy(q, (char *)dev + odd, ring, len) == 0 &&
               s->ops->copy(q, (char *)dev + len + odd, (char *)dev + odd, len - 64) == 0 &&
               s->ops->copy(q, ring + len, (char *)dev + odd, len) == 0 && reach(s, q, 3 * (uint64_t)(i + 1)) == 0 &&
               memcmp(ring, ring + len, len) == 0 && hw_load(s, small, (char *)dev + len + odd, len - 64) == 0 &&
               memcmp(ring, small, len - 64) == 0 && hw_store(s, (char *)dev + 1, small, 100001) == 0 &&
               hw_load(s, ring + len, (char *)dev + 1, 100001) == 0 && memcmp(ring + len, small, 100001) == 0;
    }
    if (!good)
        diag("%s", hw_error());
    s->ops->queue_close(q);
    if (dev)
        s->ops->free(s, dev, 2 * len);
    s->ops->unpin(s, ring);
    hw_pages_free(ring, 2 * len);
    free(small);
    return good;
}

static void *in_thread(void *arg)
{
    return round_trip(arg, 77) ? arg : NULL;
}

static void test_memory(const struct hw_space *s, const struct hw_gpu_info *info)
{
    const struct hw_space *at = NULL;
    void *p[3] = {NULL}, *none;
    for (unsigned i = 0; i < 3; i++) {
        is_int(s->ops->alloc(s, 5000, &p[i]), 0, "allocate");
        ok((uintptr_t)p[i] % 4096 == 0, "aligned for a dma-buf");
        ok(find(p[i], 5000, &at) == 0 && at == s, "and found in its space");
    }
    is_int(s->ops->alloc(s, info->memory + (1ull << 40), &none), -ENOMEM, "more than the GPU has");
    ok(says("CUDA_ERROR_OUT_OF_MEMORY"), "%s", hw_error());
    for (unsigned i = 0; i < 3; i++)
        s->ops->free(s, p[i], 5000);
    is_int(find(p[0], 5000, &at), -EINVAL, "freed memory");
    ok(says("not CUDA memory"), "%s", hw_error());
    char byte = 0, *ring = hw_pages_alloc(4096, -1);
    struct hw_copyq *q = NULL;
    ok(s->ops->pin(s, ring, 4096) == 0 && s->ops->queue_open(s, 1, &q) == 0, "a queue");
    is_int(s->ops->copy(q, ring, p[0], 1), -EINVAL, "no copy from it");
    is_int(s->ops->copy(q, p[0], ring, 1), -EINVAL, "none to it");
    is_int(hw_store(s, p[0], &byte, 1), -EINVAL, "nor a small one");
    s->ops->queue_close(q);
    s->ops->unpin(s, ring);
    hw_pages_free(ring, 4096);
    ok(hw_load(s, &byte, p[0], 1) == -EINVAL, "no copy from it: %s", hw_error());
    ok(round_trip(s, 1), "bytes in and out");

    pthread_t t;
    void *good = NULL;
    pthread_create(&t, NULL, in_thread, (void *)(uintptr_t)s);
    pthread_join(t, &good);
    ok(good != NULL, "in a thread that never saw CUDA");
}

static void test_depth(const struct hw_space *s)
{
    struct hw_copyq *q = NULL;
    void *dev;
    const size_t len = 64 * MIB; /* a copy takes milliseconds, so the queue is still full at the third */
    char *ring = hw_pages_alloc(len, s->numa);
    ok(s->ops->pin(s, ring, len) == 0, "pin %zu bytes", len);
    is_int(s->ops->pin(s, ring, len), -EALREADY, "not twice");
    is_int(s->ops->alloc(s, len, &dev), 0, "allocate");
    is_int(s->ops->queue_open(s, 2, &q), 0, "a queue of 2");
    is_int(s->ops->copy(q, dev, ring, len), 0, "one");
    is_int(s->ops->copy(q, ring, dev, len), 0, "two");
    is_int(s->ops->copy(q, dev, ring, len), -EAGAIN, "the third must wait");
    is_int(reach(s, q, 2), 0, "both are over");
    is_int(s->ops->copy(q, dev, ring, len), 0, "now it need not");
    is_int(reach(s, q, 3), 0, "over");
    s->ops->queue_close(q);
    s->ops->free(s, dev, len);
    s->ops->unpin(s, ring);
    hw_pages_free(ring, len);
}

static void hold(void *arg)
{
    sem_wait(arg);
}

/* Blocks the application's default stream, as if this stream waited for data from hawser. hawser's copies must not wait
 * for the default stream. */
static void test_busy(const struct hw_space *s)
{
    const struct hw_cuda *cu;
    sem_t sem;
    void *dev;
    char word[8] = "hawser", back[8] = "";
    sem_init(&sem, 0, 0);
    is_int(s->ops->alloc(s, 4096, &dev), 0, "allocate");
    ok(hw_cuda(&cu) == 0 && hw_cuda_enter(s) == 0 && app.launch_host(NULL, hold, &sem) == CUDA_SUCCESS,
       "the default stream is held up");
    hw_cuda_leave();
    alarm(60); /* ends a deadlock, if the copies wait for the stream */
    is_int(hw_store(s, dev, word, sizeof(word)), 0, "store meanwhile");
    is_int(hw_load(s, back, dev, sizeof(back)), 0, "load meanwhile");
    alarm(0);
    is_str(back, word, "the same bytes");
    sem_post(&sem);
    (void)hw_cuda_enter(s);
    is_int(cu->CtxSynchronize(), CUDA_SUCCESS, "and it goes on");
    hw_cuda_leave();
    s->ops->free(s, dev, 4096);
    sem_destroy(&sem);
}

static void test_others(const struct hw_space *s)
{
    const struct hw_cuda *cu;
    const struct hw_space *at = NULL;
    CUdeviceptr p = 0;
    void *host = NULL;
    CUcontext ctx = NULL, popped;
    (void)hw_cuda(&cu);
    (void)hw_cuda_enter(s);
    is_int(app.managed(&p, MIB, 1), CUDA_SUCCESS, "managed memory"); /* 1: CU_MEM_ATTACH_GLOBAL */
    is_int(app.host_alloc(&host, MIB, 0), CUDA_SUCCESS, "pinned host memory");
    hw_cuda_leave();
    is_int(find((void *)(uintptr_t)p, MIB, &at), -EINVAL, "managed memory is refused");
    ok(says("managed"), "%s", hw_error());
    is_int(find(host, MIB, &at), 0, "pinned host memory is found");
    ok(at == &hw_host, "as the host's");
    (void)hw_cuda_enter(s);
    (void)cu->MemFree(p);
    (void)app.host_free(host);
    hw_cuda_leave();

    is_int(app.ctx_create(&ctx, 0, s->device), CUDA_SUCCESS, "another context");
    is_int(cu->MemAlloc(&p, MIB), CUDA_SUCCESS, "memory of it");
    (void)cu->CtxPopCurrent(&popped);
    is_int(find((void *)(uintptr_t)p, MIB, &at), 0, "is found");
    ok(at != s && at->device == s->device && round_trip(at, 3), "in a space of its own, which works");
    (void)cu->CtxPushCurrent(ctx);
    (void)cu->MemFree(p);
    (void)cu->CtxPopCurrent(&popped);
    /* The context is not destroyed, because its space still has a stream and pages for small copies. */
}

/* Tests adjacent mappings, as in PyTorch's expandable segments. Such memory belongs to no context, and consists of many
 * allocations. */
static void test_mappings(const struct hw_space *s)
{
    /* `prop` is a CUmemAllocationProp for pinned memory of this device. `access` is a CUmemAccessDesc that lets this
     * device read and write. */
    struct {
        int type, handle_types;
        struct {
            int type, id;
        } location;
        void *win32;
        uint8_t flags[8];
    } prop = {.type = 1, .location = {1, s->device}};
    struct {
        int type, id, flags;
    } access = {1, s->device, 3};
    const size_t piece = 2 * MIB;
    const struct hw_space *at = NULL;
    unsigned long long handle[3] = {0};
    CUdeviceptr base = 0;
    (void)hw_cuda_enter(s);
    CUresult e = app.reserve(&base, 3 * piece, 0, 0, 0);
    for (unsigned i = 0; !e && i < 3; i++) {
        e = app.create(&handle[i], piece, &prop, 0);
        if (!e)
            e = app.map(base + i * piece, piece, 0, handle[i], 0);
    }
    if (!e)
        e = app.access(base, 3 * piece, &access, 1);
    hw_cuda_leave();
    is_int(e, CUDA_SUCCESS, "three mappings side by side");
    if (e)
        return;
    char *p = (char *)(uintptr_t)base, word[8] = "strands", back[8] = "";
    ok(find(p + 5, 3 * piece - 5, &at) == 0 && at == s, "are memory of the primary context: %s", hw_error());
    is_int(hw_store(s, p + piece - 3, word, sizeof(word)), 0, "store across two");
    is_int(hw_load(s, back, p + piece - 3, sizeof(back)), 0, "load");
    is_str(back, word, "the same bytes");
    is_int(find(p, 3 * piece + 1, &at), -EINVAL, "not beyond the last");
    (void)hw_cuda_enter(s);
    (void)app.unmap(base + piece, piece);
    hw_cuda_leave();
    is_int(find(p, 3 * piece, &at), -EINVAL, "nor across a hole");
    ok(says("not all CUDA memory"), "%s", hw_error());
    (void)hw_cuda_enter(s);
    (void)app.unmap(base, piece);
    (void)app.unmap(base + 2 * piece, piece);
    for (unsigned i = 0; i < 3; i++)
        (void)app.release(handle[i]);
    (void)app.release_address(base, 3 * piece);
    hw_cuda_leave();
}

static void test_export(const struct hw_space *s, const struct hw_gpu_info *info)
{
    void *p;
    is_int(s->ops->alloc(s, 4 * MIB, &p), 0, "memory to export");
    is_int(hw_cuda_export(s, (char *)p + 512, 4096, false), -EINVAL, "not from within a page");
    for (int pcie = 0; pcie < 2; pcie++) {
        int fd = hw_cuda_export(s, p, 4 * MIB, pcie);
        if (!info->dmabuf)
            ok(fd == -EOPNOTSUPP && says("DMA_BUF_SUPPORTED"), "no dma-bufs here: %s", hw_error());
        else if (fd >= 0)
            ok(fcntl(fd, F_GETFD) & FD_CLOEXEC, "a dma-buf%s", pcie ? " by BAR1" : "");
        else /* sandboxes and some machines refuse despite the attribute; the error must then be CUDA's */
            ok(says("CUDA_ERROR_"), "a dma-buf%s is refused: %s", pcie ? " by BAR1" : "", hw_error());
        if (fd >= 0)
            close(fd);
    }
    s->ops->free(s, p, 4 * MIB);
}

int main(void)
{
    const struct hw_space *s;
    int on_stack, n = hw_cuda_count();
    if (n == -ENODEV)
        tap_skip_all("%s", hw_error());
    if (!ok(n > 0, "%d GPUs, driver for CUDA %d", n, hw_cuda_driver_version()) ||
        !ok(open_app(), "the application's calls"))
        return tap_done();
    is_int(find(&on_stack, sizeof(on_stack), &s), -EINVAL, "host memory, while there is no context at all");
    ok(says("not CUDA memory"), "%s", hw_error());
    is_int(hw_space_device(HAWSER_MEM_CUDA, n, &s), -ENODEV, "a GPU that is not there");
    for (int i = 0; i < n; i++) {
        struct hw_gpu_info info;
        if (!ok(hw_cuda_info(i, &info) == 0 && hw_space_device(HAWSER_MEM_CUDA, i, &s) == 0, "GPU %d", i))
            continue;
        diag("GPU %d: %s at %s, %.1f GB, compute capability %d.%d, dma-buf %d, GPUDirect %d, NUMA node %d", i,
             info.name, info.pci, (double)info.memory / 1e9, info.major, info.minor, info.dmabuf, info.gpudirect,
             s->numa);
        is_int(find(&on_stack, sizeof(on_stack), &s), -EINVAL, "host memory");
        test_memory(s, &info);
        test_depth(s);
        test_busy(s);
        test_others(s);
        test_mappings(s);
        test_export(s, &info);
    }
    pid_t pid = fork();
    int status = 0;
    if (pid == 0)
        _exit(hw_cuda_count() == -EOPNOTSUPP && says("after fork") ? 0 : 1);
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "no CUDA after fork");
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lib/mem with the fake driver of tests/fakes/cuda: devices, pointers, copies, contexts, dma-bufs, threads and
 * forks. */
#include "mem/cuda.h"
#include "tests/fakes/cuda/fakecuda.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1024)

static const struct hw_space *gpu0, *gpu1;

static struct fakecuda_counts counts(void)
{
    struct fakecuda_counts c;
    fakecuda_count(&c);
    return c;
}

static bool says(const char *what)
{
    return strstr(hw_error(), what) != NULL;
}

static void fill(void *p, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)p)[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
}

static bool filled(const void *p, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        if (((const uint8_t *)p)[i] != (uint8_t)(i * 7 + (i >> 8) + seed))
            return false;
    return true;
}

/* ---- missing and incomplete drivers: each test runs in a separate process -------------------- */

/* Runs one check in the separate process, and prints "RC TEXT". */
static int answer(const char *what)
{
    const struct hw_cuda *cu;
    const struct hw_space *s;
    void *p;
    int rc = hw_cuda(&cu);
    if (strcmp(what, "twice") == 0) {
        hw_fail(0, "something else");
        rc = hw_cuda(&cu);
    }
    if (strcmp(what, "find") == 0)
        rc = hw_space_find(HAWSER_MEM_CUDA, &rc, sizeof(rc), &s);
    if (rc == 0 && strcmp(what, "numa") == 0) {
        rc = hw_space_device(HAWSER_MEM_CUDA, 0, &s);
        hw_fail(0, "node %d", s->numa);
    }
    if (rc == 0 && strncmp(what, "export", 6) == 0) {
        rc = hw_space_device(HAWSER_MEM_CUDA, 0, &s);
        if (rc == 0)
            rc = s->ops->alloc(s, 8192, &p);
        if (rc == 0)
            rc = hw_cuda_export(s, p, 8192, strcmp(what, "export-pcie") == 0);
        rc = HW_MIN(rc, 0); /* every file descriptor counts as success */
    }
    printf("%d %s\n", rc, hw_error());
    return 0;
}

static int ask(const char *what, const char *name, const char *value)
{
    int fds[2], rc = 1, n = 0;
    char text[2 * HW_ERR_TEXT] = "";
    size_t got = 0;
    if (pipe(fds) < 0)
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        setenv(name, value, 1);
        execl("/proc/self/exe", "test_cuda", what, NULL);
        _exit(127);
    }
    close(fds[1]);
    for (ssize_t r; got < sizeof(text) - 1 && (r = read(fds[0], text + got, sizeof(text) - 1 - got)) > 0;)
        got += (size_t)r;
    close(fds[0]);
    waitpid(pid, NULL, 0);
    if (sscanf(text, "%d %n", &rc, &n) < 1)
        return 1;
    text[strcspn(text, "\n")] = 0;
    return hw_fail(rc, "%s", text + n);
}

static void test_drivers(void)
{
    is_int(ask("load", "HAWSER_CUDA_LIBRARY", "/nowhere/libcuda.so.1"), -ENODEV, "no driver: -ENODEV");
    ok(says("/nowhere/libcuda.so.1") && says("HAWSER_CUDA_LIBRARY"), "and which library: %s", hw_error());
    is_int(ask("twice", "HAWSER_CUDA_LIBRARY", "/nowhere/libcuda.so.1"), -ENODEV, "asked again: the same");
    ok(says("/nowhere/libcuda.so.1"), "and the reason is kept");
    is_int(ask("find", "HAWSER_CUDA_LIBRARY", "/nowhere/libcuda.so.1"), -ENODEV, "no pointer is CUDA's then");
    is_int(ask("load", "HAWSER_CUDA_LIBRARY", LACKING), -ENODEV, "a library without a symbol: -ENODEV");
    ok(says("cuGetErrorName") && says("liblacking"), "and which one, of which library: %s", hw_error());
    is_int(ask("load", "FAKECUDA_GPUS", "0"), -ENODEV, "a driver with no GPU: -ENODEV");
    ok(says("CUDA_ERROR_NO_DEVICE") && says("no CUDA-capable device is detected"), "in CUDA's words: %s", hw_error());
    is_int(ask("load", "FAKECUDA_FAIL", "cuInit:1:999"), -EIO, "a driver that fails to start: -EIO");
    ok(says("999"), "by number where CUDA has no words: %s", hw_error());
    is_int(ask("load", "FAKECUDA_FAIL", "cuInit:1:3"), -EIO, "CUDA in use before this process was forked: -EIO");
    ok(says("fork after it used CUDA"), "with that guess: %s", hw_error());

    is_int(ask("export", "FAKECUDA_DMABUF", "1"), 0, "a driver that can export dma-bufs");
    is_int(ask("export", "FAKECUDA_DMABUF", "0"), -EOPNOTSUPP, "one that cannot");
    ok(says("DMA_BUF_SUPPORTED=0") && says("open kernel"), "says what is missing: %s", hw_error());
    is_int(ask("export", "HAWSER_CUDA_LIBRARY", OLD), -EOPNOTSUPP, "one without the entry point: all else works");
    ok(says("cuMemGetHandleForAddressRange"), "%s", hw_error());
    is_int(ask("export-pcie", "FAKECUDA_VERSION", "12080"), 0, "a dma-buf by BAR1");
    is_int(ask("export-pcie", "FAKECUDA_VERSION", "12040"), 0, "not asked of a driver that does not know it");
    is_int(ask("numa", "FAKECUDA_NUMA", "3"), 0, "the driver knows the NUMA node");
    is_str(hw_error(), "node 3", "and the space takes it");
}

/* ---- host ----------------------------------------------------------------------------------- */

static void test_host(void)
{
    const struct hw_space *s = NULL;
    struct hw_copyq *q;
    char buf[64] = "", *p;
    void *v;
    is_int(hw_space_find(HAWSER_MEM_HOST, buf, sizeof(buf), &s), 0, "host memory");
    ok(s == &hw_host && s->direct && s->device == -1, "is the host's");
    is_int(hw_space_device(HAWSER_MEM_HOST, -1, &s), 0, "the host as a device");
    is_int(hw_space_device(HAWSER_MEM_HOST, 1, &s), -ENODEV, "there is one host");
    is_int(hw_space_find((enum hawser_mem_kind)7, buf, 1, &s), -EOPNOTSUPP, "an unknown kind");
    is_int(hw_space_device((enum hawser_mem_kind)7, 0, &s), -EOPNOTSUPP, "nor has it devices");
    is_int(s->ops->alloc(s, 100 * KIB + 1, &v), 0, "allocate host memory");
    ok((uintptr_t)v % 4096 == 0, "by pages");
    fill(buf, sizeof(buf), 1);
    is_int(hw_store(s, (char *)v + 3, buf, sizeof(buf)), 0, "store");
    memset(buf, 0, sizeof(buf));
    is_int(hw_load(s, buf, (char *)v + 3, sizeof(buf)), 0, "load");
    ok(filled(buf, sizeof(buf), 1), "the same bytes");
    is_int(s->ops->pin(s, v, 4096), 0, "pinning for no device");
    s->ops->unpin(s, v);
    is_int(s->ops->queue_open(s, 4, &q), -EOPNOTSUPP, "no copy queues");
    s->ops->free(s, v, 100 * KIB + 1);
    is_int(s->ops->alloc(s, SIZE_MAX / 2, &v), -ENOMEM, "more than there is");

    static const int nodes[] = {-1, 0, 63, 5000};
    for (size_t i = 0; i < HW_ARRAY_LEN(nodes); i++) {
        p = hw_pages_alloc(64 * KIB, nodes[i]);
        ok(p && (uintptr_t)p % 4096 == 0, "pages near node %d", nodes[i]);
        memset(p, 1, 64 * KIB);
        if (i == 0) {
            pid_t pid = fork();
            int status = 0, fds[2];
            if (pid == 0) /* write() fails because the pages are not mapped; sanitizers do not intercept syscall() */
                _exit(pipe(fds) == 0 && syscall(SYS_write, fds[1], p, 1) < 0 && errno == EFAULT ? 0 : 1);
            waitpid(pid, &status, 0);
            ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child does not inherit them");
        }
        hw_pages_free(p, 64 * KIB);
    }
    hw_pages_free(NULL, 1);
}

/* ---- devices and pointers ------------------------------------------------------------------- */

static void test_devices(void)
{
    struct hw_gpu_info info;
    const struct hw_space *s;
    is_int(hw_cuda_count(), 2, "two GPUs");
    is_int(hw_cuda_driver_version(), 12080, "the driver's version");
    is_int(hw_cuda_info(1, &info), 0, "what GPU 1 is");
    ok(strcmp(info.name, "Fake GPU") == 0 && strcmp(info.pci, "0000:0b:00.0") == 0 && info.memory == (uint64_t)1 << 30,
       "%s at %s", info.name, info.pci);
    ok(info.major == 9 && info.minor == 0 && info.dmabuf && info.gpudirect, "and what it can do");
    is_int(hw_cuda_info(2, &info), -ENODEV, "GPU 2 is not there");
    fakecuda_fail("cuDeviceGetName", 1, 999);
    is_int(hw_cuda_info(0, &info), -EIO, "a GPU that does not answer");

    is_int(hw_space_device(HAWSER_MEM_CUDA, 2, &s), -ENODEV, "nor to allocate on");
    ok(says("GPU 2") && says("there are 2"), "%s", hw_error());
    is_int(hw_space_device(HAWSER_MEM_CUDA, -1, &s), -ENODEV, "nor GPU -1");
    fakecuda_fail("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY);
    is_int(hw_space_device(HAWSER_MEM_CUDA, 0, &gpu0), -ENOMEM, "a GPU too full for a context");
    is_int(hw_space_device(HAWSER_MEM_CUDA, 0, &gpu0), 0, "GPU 0");
    ok(!gpu0->direct && gpu0->device == 0 && strcmp(gpu0->name, "GPU 0") == 0, "is %s", gpu0->name);
    is_int(hw_space_device(HAWSER_MEM_CUDA, 1, &gpu1), 0, "GPU 1");
    ok(gpu0 != gpu1, "is another space");
    is_int(hw_space_device(HAWSER_MEM_CUDA, 0, &s), 0, "GPU 0 again");
    ok(s == gpu0, "is the same");
    is_int(hw_cuda_enter(&hw_host), -EINVAL, "the host has no CUDA context");
}

static void test_alloc(void)
{
    void *p[3] = {NULL}, *q;
    for (unsigned i = 0; i < 3; i++) {
        is_int(gpu0->ops->alloc(gpu0, 5000, &p[i]), 0, "allocate on a GPU");
        ok((uintptr_t)p[i] % 4096 == 0, "aligned for a dma-buf, as the driver's own are not");
    }
    int fds[2];
    ok(pipe(fds) == 0 && syscall(SYS_write, fds[1], p[0], 1) < 0 && errno == EFAULT, "no CPU can touch it");
    close(fds[0]);
    close(fds[1]);
    is_int(gpu0->ops->alloc(gpu0, (size_t)2 << 30, &q), -ENOMEM, "more than the GPU has: -ENOMEM");
    ok(says("CUDA_ERROR_OUT_OF_MEMORY") && says("out of memory") && says("GPU 0"), "in CUDA's words: %s", hw_error());
    is_int(gpu0->ops->alloc(gpu0, 0, &q), -EINVAL, "nothing");
    is_int(gpu0->ops->alloc(gpu0, SIZE_MAX - 5, &q), -EINVAL, "a size that overflows");
    uint64_t before = counts().allocations;
    fakecuda_fail("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
    is_int(gpu0->ops->alloc(gpu0, 5000, &q), -ENOMEM, "memory that runs out at the second try, for alignment");
    is_int(counts().allocations, before, "and nothing of the first is left");
    for (unsigned i = 0; i < 3; i++)
        gpu0->ops->free(gpu0, p[i], 5000);
    gpu0->ops->free(gpu0, NULL, 0);
    is_int(counts().allocations, 0, "all free again");
    is_int(counts().misuse, 0, "nothing that CUDA forbids");
}

static int find(const void *p, size_t len, const struct hw_space **s)
{
    return hw_space_find(HAWSER_MEM_CUDA, p, len, s);
}

static void test_find(void)
{
    const struct hw_space *s = NULL;
    void *p;
    int on_stack;
    is_int(gpu1->ops->alloc(gpu1, 64 * KIB, &p), 0, "memory on GPU 1");
    is_int(find(p, 64 * KIB, &s), 0, "is found");
    ok(s == gpu1, "there");
    is_int(find((char *)p + 64 * KIB - 1, 1, &s), 0, "its last byte too");
    is_int(find((char *)p + 5, 0, &s), 0, "and none of its bytes");
    is_int(find((char *)p + 1, 64 * KIB + 4096, &s), -EINVAL, "beyond its end is not");
    ok(says("not all CUDA memory"), "%s", hw_error());
    gpu1->ops->free(gpu1, p, 64 * KIB);
    is_int(find(p, 64 * KIB, &s), -EINVAL, "freed: no more");
    ok(says("not CUDA memory") && says("freed"), "%s", hw_error());
    is_int(find(&on_stack, sizeof(on_stack), &s), -EINVAL, "host memory given as CUDA's");
    ok(says("HAWSER_MEM_HOST"), "is told what it is: %s", hw_error());
    is_int(find(NULL, 1, &s), -EINVAL, "NULL");
    is_int(find((void *)(uintptr_t)-16, 17, &s), -EINVAL, "a range that overflows");

    p = fakecuda_managed(64 * KIB);
    is_int(find(p, 64 * KIB, &s), -EINVAL, "managed memory is refused");
    ok(says("managed") && says("cudaMalloc"), "with the reason and the way out: %s", hw_error());
    fakecuda_free(p);
    p = fakecuda_host_alloc(64 * KIB);
    is_int(find(p, 64 * KIB, &s), 0, "pinned host memory");
    ok(s == &hw_host, "is host memory");
    is_int(find(p, 4096 * KIB, &s), -EINVAL, "but not beyond its end");
    fakecuda_free(p);

    char *m = fakecuda_mappings(0, 64 * KIB, 3);
    is_int(find(m + 10, 192 * KIB - 10, &s), 0, "mappings side by side");
    ok(s == gpu0, "of no context: the device's primary one");
    fakecuda_free(m + 64 * KIB);
    is_int(find(m + 10, 192 * KIB - 10, &s), -EINVAL, "with a hole in them");
    ok(says("not all CUDA memory"), "%s", hw_error());
    fakecuda_free(m);
    fakecuda_free(m + 128 * KIB);

    fakecuda_fail("cuPointerGetAttribute", 1, 999);
    is_int(find(m, 1, &s), -EIO, "a driver that does not say");
    is_int(counts().misuse, 0, "nothing that CUDA forbids");
}

/* ---- copies --------------------------------------------------------------------------------- */

static void test_small(void)
{
    const size_t len = 200 * KIB + 7;
    char *a = malloc(len), *b = calloc(1, len);
    void *p;
    fill(a, len, 3);
    is_int(gpu0->ops->alloc(gpu0, len + 16, &p), 0, "memory for small copies");
    struct fakecuda_counts before = counts();
    fakecuda_fail("cuMemHostRegister_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    is_int(hw_store(gpu0, (char *)p + 9, a, len), -ENOMEM, "the first copy finds nothing to pin");
    fakecuda_fail("cuStreamCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
    is_int(hw_store(gpu0, (char *)p + 9, a, len), -ENOMEM, "or no stream");
    is_int(counts().pins, before.pins, "and leaves nothing pinned");
    is_int(hw_store(gpu0, (char *)p + 9, a, len), 0, "store");
    is_int(hw_load(gpu0, b, (char *)p + 9, len), 0, "load");
    ok(filled(b, len, 3), "the same bytes");
    is_int(hw_load(gpu0, b, p, 0), 0, "none");
    struct fakecuda_counts now = counts();
    is_int(now.to_device - before.to_device, len, "bytes in");
    is_int(now.from_device - before.from_device, len, "bytes out");
    is_int(now.blocking, 0, "no call that waits for the application's streams");
    is_int(now.pageable, 0, "no copy of unpinned memory");
    gpu0->ops->free(gpu0, p, len + 16);
    is_int(hw_load(gpu0, b, p, 16), -EINVAL, "from freed memory");
    ok(says("CUDA_ERROR_INVALID_VALUE") && says("GPU 0"), "%s", hw_error());
    is_int(counts().misuse, 1, "the one thing that CUDA forbids");
    free(a);
    free(b);
}

/* Waits until copy n has completed. Returns the result of done(), or -ETIMEDOUT after 20 s. */
static int reach(const struct hw_space *s, struct hw_copyq *q, uint64_t n)
{
    for (int i = 0; i < 40000; i++) {
        uint64_t upto = 0;
        int rc = s->ops->done(q, &upto);
        if (rc < 0 || upto >= n)
            return rc;
        usleep(500);
    }
    return -ETIMEDOUT;
}

static void test_queue(void)
{
    struct hw_copyq *q;
    char *ring = hw_pages_alloc(256 * KIB, gpu0->numa), *out = hw_pages_alloc(256 * KIB, -1);
    void *dev;
    uint64_t upto = 99;
    is_int(gpu0->ops->pin(gpu0, ring, 256 * KIB), 0, "pin");
    is_int(gpu0->ops->pin(gpu0, out, 256 * KIB), 0, "and more");
    is_int(gpu1->ops->pin(gpu1, ring + 4096, 4096), -EALREADY, "not twice");
    ok(says("already mapped"), "%s", hw_error());
    is_int(gpu0->ops->alloc(gpu0, 512 * KIB, &dev), 0, "memory");
    is_int(gpu0->ops->queue_open(gpu0, 0, &q), -EINVAL, "a queue of no depth");

    struct fakecuda_counts before = counts();
    fakecuda_fail("cuEventCreate", 3, CUDA_ERROR_OUT_OF_MEMORY);
    is_int(gpu0->ops->queue_open(gpu0, 4, &q), -ENOMEM, "a queue whose third event fails");
    ok(counts().events == before.events && counts().streams == before.streams, "leaves nothing");
    fakecuda_fail("cuStreamCreate", 1, 999);
    is_int(gpu0->ops->queue_open(gpu0, 4, &q), -EIO, "nor one without a stream");

    is_int(gpu0->ops->queue_open(gpu0, 4, &q), 0, "a queue of 4");
    is_int(gpu0->ops->done(q, &upto), 0, "nothing under way");
    is_int(upto, 0, "nothing is over");
    fill(ring, 256 * KIB, 5);
    fakecuda_stall(0, true);
    for (size_t i = 0; i < 4; i++)
        is_int(gpu0->ops->copy(q, (char *)dev + i * 64 * KIB, ring + i * 64 * KIB, 64 * KIB), 0, "a copy begins");
    is_int(gpu0->ops->copy(q, dev, ring, 1), -EAGAIN, "the fifth must wait");
    is_int(gpu0->ops->done(q, &upto), 0, "asked again");
    is_int(upto, 0, "none is over: the GPU is stalled");
    fakecuda_stall(0, false);
    is_int(reach(gpu0, q, 4), 0, "all over once it goes on");
    for (unsigned i = 0; i < 2; i++) {
        is_int(gpu0->ops->copy(q, (char *)dev + 256 * KIB, dev, 256 * KIB), 0, "within the GPU");
        is_int(gpu0->ops->copy(q, out, (char *)dev + 256 * KIB, 256 * KIB), 0, "and out, in this order");
    }
    is_int(reach(gpu0, q, 8), 0, "over");
    ok(filled(out, 256 * KIB, 5), "the same bytes");
    struct fakecuda_counts now = counts();
    is_int(now.to_device - before.to_device, 256 * KIB, "bytes in");
    is_int(now.within - before.within, 512 * KIB, "within");
    is_int(now.from_device - before.from_device, 512 * KIB, "out");
    is_int(now.pageable, 0, "all of pinned memory");

    memset(out, 0, 64 * KIB);
    fakecuda_fail("cuEventRecord", 1, 999);
    is_int(gpu0->ops->copy(q, out, dev, 64 * KIB), -EIO, "a copy whose event fails");
    ok(filled(out, 64 * KIB, 5), "is not under way any more when it is reported");
    is_int(gpu0->ops->copy(q, out, dev, 64 * KIB), 0, "the next one is copy 9");
    is_int(reach(gpu0, q, 9), 0, "and over");

    now = counts();
    char heap[64] = "";
    is_int(gpu0->ops->copy(q, dev, heap, sizeof(heap)), -EINVAL, "no copy of memory that is not pinned");
    is_int(gpu0->ops->copy(q, ring, out, 64), -EINVAL, "nor from host to host");
    is_int(gpu0->ops->copy(q, dev, (char *)dev + 600 * KIB, 64), -EINVAL, "nor of what was never allocated");
    ok(says("CUDA_ERROR_INVALID_VALUE"), "%s", hw_error());
    is_int(reach(gpu0, q, 9), 0, "they have no number");
    is_int(counts().misuse, now.misuse, "and CUDA was not asked to");
    gpu0->ops->queue_close(q);
    gpu0->ops->queue_close(NULL);
    gpu0->ops->free(gpu0, dev, 512 * KIB);
    gpu0->ops->unpin(gpu0, ring);
    gpu0->ops->unpin(gpu0, out);
    gpu0->ops->unpin(gpu0, NULL);
    hw_pages_free(ring, 256 * KIB);
    hw_pages_free(out, 256 * KIB);
    ok(counts().streams == before.streams && counts().events == before.events, "closed: nothing is left");
}

/* Tests memory of a context other than the primary context, before and after the context breaks and is destroyed. */
static void test_contexts(void)
{
    const struct hw_space *s, *again;
    struct hw_copyq *q;
    char buf[64] = "";
    CUcontext ctx = fakecuda_context(1), second = fakecuda_context(1);
    char *p = fakecuda_alloc(ctx, 64 * KIB), *p2 = fakecuda_alloc(second, 64 * KIB);
    uint64_t misuse = counts().misuse;
    is_int(find(p, 64 * KIB, &s), 0, "memory of another context");
    ok(s != gpu1 && s->device == 1, "is another space of the same GPU");
    is_int(find(p + 5, 6, &again), 0, "found again");
    ok(s == again, "is the same space");
    is_int(find(p2, 6, &again), 0, "memory of a third context");
    ok(again != s && again != gpu1, "is a third space");
    fill(buf, sizeof(buf), 9);
    is_int(hw_store(s, p, buf, sizeof(buf)), 0, "store");
    memset(buf, 0, sizeof(buf));
    is_int(hw_load(s, buf, p, sizeof(buf)), 0, "load");
    ok(filled(buf, sizeof(buf), 9), "the same bytes");
    is_int(s->ops->queue_open(s, 2, &q), 0, "a queue");
    is_int(counts().misuse, misuse, "each call was in its context");

    /* the memory is freed during a copy */
    void *ring = hw_pages_alloc(4096, -1);
    is_int(s->ops->pin(s, ring, 4096), 0, "pin");
    fakecuda_stall(1, true);
    is_int(s->ops->copy(q, ring, p, 4096), 0, "a copy");
    fakecuda_free(p);
    fakecuda_stall(1, false);
    is_int(reach(s, q, 1), -EIO, "of memory that is freed under it");
    ok(says("CUDA_ERROR_ILLEGAL_ADDRESS") && says("GPU 1"), "%s", hw_error());
    is_int(reach(s, q, 1), -EIO, "and that stays so");
    is_int(s->ops->copy(q, ring, p2, 4096), -EIO, "for what comes after");
    s->ops->queue_close(q);
    s->ops->unpin(s, ring); /* fails in a broken context, but the CPU can still use the memory */

    is_int(again->ops->queue_open(again, 2, &q), 0, "the other context lives");
    fakecuda_stall(1, true);
    is_int(again->ops->copy(q, p2 + 4096, p2, 4096), 0, "a copy there");
    fakecuda_break(1, 719);
    is_int(reach(again, q, 1), -EIO, "a GPU that is lost");
    ok(says("719"), "%s", hw_error());
    fakecuda_stall(1, false);
    again->ops->queue_close(q);

    fakecuda_context_destroy(ctx);
    misuse = counts().misuse;
    is_int(hw_load(s, buf, p, 1), -EIO, "a context that was destroyed");
    ok(says("CUDA_ERROR_INVALID_CONTEXT"), "%s", hw_error());
    is_int(counts().misuse, misuse + 1, "it was not used");
    is_int(find(p, 1, &s), -EINVAL, "and its memory is no memory");
    fakecuda_context_destroy(second);
    fakecuda_break(1, 0);
}

static void test_export(void)
{
    void *p;
    is_int(gpu0->ops->alloc(gpu0, 64 * KIB, &p), 0, "memory to export");
    int fd = hw_cuda_export(gpu0, p, 64 * KIB, false);
    ok(fd >= 0, "a dma-buf");
    ok(fcntl(fd, F_GETFD) & FD_CLOEXEC, "closed on exec");
    close(fd);
    is_int(hw_cuda_export(gpu0, (char *)p + 512, 4096, false), -EINVAL, "not from within a page");
    ok(says("multiples of the page size"), "%s", hw_error());
    is_int(hw_cuda_export(gpu0, p, 5000, false), -EINVAL, "nor part of one");
    is_int(hw_cuda_export(gpu0, p, 0, false), -EINVAL, "nor nothing");
    is_int(hw_cuda_export(&hw_host, p, 4096, false), -EINVAL, "nor of the host");
    fakecuda_fail("cuMemGetHandleForAddressRange", 1, CUDA_ERROR_NOT_SUPPORTED);
    is_int(hw_cuda_export(gpu0, p, 4096, false), -EOPNOTSUPP, "a driver that says no after all");
    ok(says("CUDA_ERROR_NOT_SUPPORTED"), "%s", hw_error());
    gpu0->ops->free(gpu0, p, 64 * KIB);

    struct hw_dmabuf b, of;
    is_int(gpu0->ops->dmabuf_alloc(gpu0, 100000, &b), 0, "pages with their dma-buf");
    ok(b.size == 25 * 4096 && (uintptr_t)b.base % 4096 == 0, "whole pages");
    is_int(gpu0->ops->dmabuf_of(gpu0, b.base + 70001, 1, 64 << 20, &of), 0, "the dma-buf around an address in them");
    ok(of.base <= b.base && of.base + of.size >= b.base + b.size && of.id == b.id && of.id,
       "has all of them, and says which");
    ok(gpu0->ops->dmabuf_id(gpu0, b.base + 99999) == b.id, "as asking for that alone does");
    close(of.fd);
    is_int(gpu0->ops->dmabuf_of(gpu0, b.base + 50000, 100, 4096, &of), 0, "the dma-buf of a part of them");
    ok((uintptr_t)of.base == ((uintptr_t)b.base + 50000) / 4096 * 4096 && of.size == 4096 && of.id == b.id,
       "has the page that it lies in, and no other");
    close(of.fd);
    is_int(gpu0->ops->dmabuf_of(gpu0, b.base + 8191, 2, 4096, &of), 0, "what lies in two pages");
    ok(of.base == b.base + 4096 && of.size == 8192, "has both");
    close(of.fd);
    uint64_t id = b.id;
    gpu0->ops->dmabuf_free(gpu0, &b);
    is_int(gpu0->ops->dmabuf_alloc(gpu0, 100000, &b), 0, "others after them");
    ok(b.id != id, "are not taken for the same");
    gpu0->ops->dmabuf_free(gpu0, &b);
    ok(gpu0->ops->dmabuf_id(gpu0, &b) == 0, "what is not the GPU's has none");
    is_int(hw_host.ops->dmabuf_of(&hw_host, &b, 1, 4096, &of), -EOPNOTSUPP, "nor the host's");
    int rc = hw_host.ops->dmabuf_alloc(&hw_host, 100000, &b);
    if (rc == -EOPNOTSUPP || rc == -EACCES) {
        tap_skip("host memory as a dma-buf", hw_error());
    } else {
        is_int(rc, 0, "host memory as a dma-buf");
        memset(b.base, 1, b.size);
        hw_host.ops->dmabuf_free(&hw_host, &b);
    }
}

/* ---- threads and processes ------------------------------------------------------------------ */

struct worker {
    unsigned seed;
    bool good;
};

/* Copies data to and from the GPU through this thread's own queue, with small copies in between. */
static void *work(void *arg)
{
    struct worker *w = arg;
    struct hw_copyq *q = NULL;
    void *dev = NULL;
    char *ring = hw_pages_alloc(64 * KIB, -1);
    bool good = gpu0->ops->pin(gpu0, ring, 64 * KIB) == 0 && gpu0->ops->alloc(gpu0, 64 * KIB, &dev) == 0 &&
                gpu0->ops->queue_open(gpu0, 8, &q) == 0;
    for (unsigned i = 0; good && i < 20; i++) {
        char small[500], back[500];
        fill(ring, 32 * KIB, w->seed + i);
        fill(small, sizeof(small), w->seed + i);
        good =
            gpu0->ops->copy(q, dev, ring, 32 * KIB) == 0 && gpu0->ops->copy(q, ring + 32 * KIB, dev, 32 * KIB) == 0 &&
            hw_store(gpu0, (char *)dev + 48 * KIB, small, sizeof(small)) == 0 &&
            hw_load(gpu0, back, (char *)dev + 48 * KIB, sizeof(back)) == 0 && memcmp(small, back, sizeof(back)) == 0 &&
            reach(gpu0, q, 2 * (uint64_t)(i + 1)) == 0 && filled(ring + 32 * KIB, 32 * KIB, w->seed + i);
    }
    gpu0->ops->queue_close(q);
    gpu0->ops->free(gpu0, dev, 64 * KIB);
    gpu0->ops->unpin(gpu0, ring);
    hw_pages_free(ring, 64 * KIB);
    w->good = good;
    return NULL;
}

static void test_threads(void)
{
    struct worker w[2] = {{.seed = 100}, {.seed = 50}};
    pthread_t t[2];
    uint64_t misuse = counts().misuse;
    for (unsigned i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, work, &w[i]);
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
        ok(w[i].good, "a thread that never saw CUDA, beside another on the same GPU");
    }
    is_int(counts().misuse, misuse, "nothing that CUDA forbids");
    is_int(counts().entered, 0, "every context entered was left");
}

static void test_fork(void)
{
    static const char *const what[] = {"the driver", "a pointer", "memory", "a store", "a queue"};
    for (unsigned i = 0; i < HW_ARRAY_LEN(what); i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            const struct hw_cuda *cu;
            const struct hw_space *s;
            struct hw_copyq *q;
            void *p;
            int rc = i == 0   ? hw_cuda(&cu)
                     : i == 1 ? find(&cu, 1, &s)
                     : i == 2 ? gpu0->ops->alloc(gpu0, 1, &p)
                     : i == 3 ? hw_store(gpu0, &p, &p, 1)
                              : gpu0->ops->queue_open(gpu0, 1, &q);
            _exit(rc == -EOPNOTSUPP && says("after fork") ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child asks for %s: -EOPNOTSUPP, after fork", what[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return answer(argv[1]);
    test_drivers(); /* must run before this process loads a driver */
    test_host();
    test_devices();
    test_alloc();
    test_find();
    test_small();
    test_queue();
    test_contexts();
    test_export();
    test_threads();
    test_fork();

    struct fakecuda_counts c = counts();
    is_int(c.allocations, 0, "no GPU memory is left");
    is_int(c.events, 0, "no events");
    is_int(c.entered, 0, "no context");
    is_int(c.streams, 1, "a stream for small copies of GPU 0 (destroyed contexts took theirs along)");
    return tap_done();
}

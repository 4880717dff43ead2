/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/load/buffer.h"

#include "base/pattern.h"
#include "base/size.h"
#include "mem/fill.h"
#include "mem/kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WORTH_A_LAUNCH 262144 /* bytes; a kernel launch and its wait take as long as copying this many bytes */

uint64_t buffer_need(uint64_t size, uint64_t stride, uint32_t slots, bool hot)
{
    uint64_t n = 0;
    if (hot)
        n = size;
    else if (__builtin_mul_overflow(stride, (uint64_t)slots, &n))
        return 0;
    return HW_MAX(n, 1u);
}

/* Returns the kernel's estimate of the bytes that it can allocate without swapping, or UINT64_MAX if unknown.
 * Populating more memory could trigger the OOM killer. */
static uint64_t read_available_memory(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t bytes = UINT64_MAX;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            bytes = strtoull(line + 13, NULL, 10) * 1024;
    if (f)
        fclose(f);
    return bytes;
}

static int make_host(struct buffer *b, hawser *h, uint64_t need)
{
    char text[32];
    uint64_t there = read_available_memory();
    if (need > there)
        return hw_fail(-ENOMEM, "%s of memory is needed, but only %" PRIu64 " MiB is available",
                       hw_format_size(need, text, sizeof text), there >> 20);
    void *p = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return hw_fail(-ENOMEM, "mapping %s of memory: %s", hw_format_size(need, text, sizeof text),
                       hw_errno_text(errno));
    madvise(p, need, MADV_HUGEPAGE); /* a hint; without huge pages, access is only slower */
    /* Trigger the page faults before the clock starts. MADV_POPULATE_WRITE fails with ENOMEM or EFAULT where a write
     * would kill the process. */
    if (madvise(p, need, MADV_POPULATE_WRITE) < 0) {
        int e = errno;
        if (e != EINVAL) {
            munmap(p, need);
            return hw_fail(-ENOMEM, "cannot allocate %s of memory: %s", hw_format_size(need, text, sizeof text),
                           hw_errno_text(e));
        }
        memset(p, 0, need); /* Linux before 5.14 lacks MADV_POPULATE_WRITE */
    }
    b->base = p;
    b->len = need;
    int rc = hawser_mem_register(h, HAWSER_MEM_HOST, p, need, &b->mem);
    if (rc < 0) {
        munmap(p, need);
        *b = (struct buffer){0};
    }
    return rc;
}

static int make_gpu(struct buffer *b, hawser *h, int gpu, uint64_t need)
{
    b->len = need;
    b->block = malloc(BUFFER_BLOCK);
    int rc = b->block ? hawser_mem_alloc(h, HAWSER_MEM_CUDA, gpu, need, &b->mem)
                      : hw_no_memory("a block of %u bytes", BUFFER_BLOCK);
    if (rc < 0) {
        free(b->block);
        *b = (struct buffer){0};
        return rc;
    }
    const struct hw_kernels *k;
    if (b->size >= WORTH_A_LAUNCH && hw_space_device(HAWSER_MEM_CUDA, gpu, &b->space) == 0 &&
        hw_kernels(b->space, &k) < 0)
        b->space = NULL; /* the driver is too old for our kernels, for example */
    return 0;
}

int buffer_make(struct buffer *b, hawser *h, int gpu, uint64_t size, uint64_t stride, uint32_t slots, bool hot,
                uint64_t seed)
{
    *b = (struct buffer){.size = size, .stride = stride, .slots = slots, .hot = hot, .seed = seed};
    char text[32];
    uint64_t need = buffer_need(size, stride, slots, hot);
    if (need == 0 || need > SIZE_MAX / 2)
        return hw_fail(-ENOMEM, "%u slots of %s exceed the address space", slots,
                       hw_format_size(stride, text, sizeof text));
    return gpu == BUFFER_HOST ? make_host(b, h, need) : make_gpu(b, h, gpu, need);
}

int buffer_free(struct buffer *b)
{
    int rc = b->mem ? hawser_mem_deregister(b->mem) : 0;
    if (rc < 0)
        return rc;
    if (b->base)
        munmap(b->base, b->len);
    free(b->block);
    *b = (struct buffer){0};
    return 0;
}

/* Returns the address of the slot at this offset in GPU memory. */
static void *get_gpu_slot_address(const struct buffer *b, uint64_t slot)
{
    return (char *)hawser_mem_ptr(b->mem) + slot;
}

/* Returns how many iterations of [i, end) have adjacent slots and fit in the host block together, or 0 if one slot is
 * too large. */
static uint64_t in_block(const struct buffer *b, uint64_t i, uint64_t end)
{
    uint64_t n = HW_MIN(end - i, BUFFER_BLOCK / b->stride);
    return b->hot ? HW_MIN(n, 1u) : HW_MIN(n, b->slots - i % b->slots);
}

/* Fills the GPU slots of iterations [i, end), as many as one step can handle, and stores their number in *n. */
static int fill_gpu(struct buffer *b, uint64_t i, uint64_t end, uint64_t *n)
{
    uint64_t slot = buffer_offset(b, i), seed = tp_seed(b->seed, i);
    int rc = 0;
    *n = 1;
    if (b->space)
        return hw_fill(b->space, get_gpu_slot_address(b, slot), b->size, seed, 0);
    uint64_t k = in_block(b, i, end);
    for (uint64_t j = 0; j < k; j++)
        hw_pattern_fill(b->block + j * b->stride, b->size, tp_seed(b->seed, i + j), 0);
    if (k) {
        *n = k;
        return hawser_mem_store(b->mem, slot, b->block, (k - 1) * b->stride + b->size);
    }
    for (uint64_t at = 0; at < b->size && rc == 0; at += BUFFER_BLOCK) {
        size_t part = HW_MIN(b->size - at, (uint64_t)BUFFER_BLOCK);
        hw_pattern_fill(b->block, part, seed, at);
        rc = hawser_mem_store(b->mem, slot + at, b->block, part);
    }
    return rc;
}

int buffer_fill(struct buffer *b, uint64_t first, uint32_t count)
{
    int rc = 0;
    uint64_t end = first + count, n = 1;
    for (uint64_t i = b->hot && count ? end - 1 : first; i < end && rc == 0; i += n) {
        if (b->base)
            hw_pattern_fill(b->base + buffer_offset(b, i), b->size, tp_seed(b->seed, i), 0);
        else
            rc = fill_gpu(b, i, end, &n);
    }
    return rc;
}

/* Counts the bad bytes in [at, at+len) of iteration i. p points to these bytes in host memory. */
static void count_bad_bytes(const struct buffer *b, const uint8_t *p, uint64_t i, uint64_t at, size_t len,
                            uint64_t *bad, uint64_t *first_bad)
{
    uint64_t byte = 0, k = hw_pattern_check(p, len, tp_seed(b->seed, i), at, &byte);
    if (k && !*bad)
        *first_bad = buffer_offset(b, i) + at + byte;
    *bad += k;
}

/* Checks GPU slots in the same steps as fill_gpu(). */
static int check_gpu(struct buffer *b, uint64_t i, uint64_t end, uint64_t *n, uint64_t *bad, uint64_t *first_bad)
{
    uint64_t slot = buffer_offset(b, i), found = 0, byte = 0;
    int rc = 0;
    *n = 1;
    if (b->space) {
        rc = hw_check(b->space, get_gpu_slot_address(b, slot), b->size, tp_seed(b->seed, i), 0, &found, &byte);
        if (found && !*bad)
            *first_bad = slot + byte;
        *bad += found;
        return rc;
    }
    uint64_t k = in_block(b, i, end);
    if (k) {
        *n = k;
        rc = hawser_mem_load(b->mem, slot, b->block, (k - 1) * b->stride + b->size);
        for (uint64_t j = 0; j < k && rc == 0; j++)
            count_bad_bytes(b, b->block + j * b->stride, i + j, 0, b->size, bad, first_bad);
        return rc;
    }
    for (uint64_t at = 0; at < b->size && rc == 0; at += BUFFER_BLOCK) {
        size_t part = HW_MIN(b->size - at, (uint64_t)BUFFER_BLOCK);
        rc = hawser_mem_load(b->mem, slot + at, b->block, part);
        if (rc == 0)
            count_bad_bytes(b, b->block, i, at, part, bad, first_bad);
    }
    return rc;
}

int buffer_check(struct buffer *b, uint64_t first, uint32_t count, uint64_t *bad, uint64_t *checked,
                 uint64_t *first_bad)
{
    int rc = 0;
    uint64_t end = first + count, n = 1;
    *bad = *checked = *first_bad = 0;
    for (uint64_t i = b->hot && count ? end - 1 : first; i < end && rc == 0; i += n) {
        if (b->base)
            count_bad_bytes(b, b->base + buffer_offset(b, i), i, 0, b->size, bad, first_bad);
        else
            rc = check_gpu(b, i, end, &n, bad, first_bad);
        *checked += rc == 0 ? n * b->size : 0;
    }
    return rc;
}

int buffer_clear(struct buffer *b)
{
    int rc = 0;
    if (b->base)
        memset(b->base, 0, b->len);
    else
        memset(b->block, 0, BUFFER_BLOCK);
    for (uint64_t at = 0; !b->base && at < b->len && rc == 0; at += BUFFER_BLOCK)
        rc = hawser_mem_store(b->mem, at, b->block, HW_MIN(b->len - at, (uint64_t)BUFFER_BLOCK));
    return rc;
}

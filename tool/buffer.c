/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/buffer.h"

#include "base/pattern.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

uint64_t buffer_need(uint64_t size, uint64_t stride, uint32_t slots, bool hot)
{
    uint64_t n = 0;
    if (hot)
        n = size;
    else if (__builtin_mul_overflow(stride, (uint64_t)slots, &n))
        return 0;
    return HW_MAX(n, 1u);
}

/* What the kernel could give without swapping; populating more would call its OOM killer. */
static uint64_t available(void)
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
    uint64_t there = available();
    if (need > there)
        return hw_fail(-ENOMEM, "%s of memory are needed, %" PRIu64 " MiB are available",
                       hw_format_size(need, text, sizeof text), there >> 20);
    void *p = mmap(NULL, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return hw_fail(-ENOMEM, "mapping %s of memory: %s", hw_format_size(need, text, sizeof text),
                       hw_errno_name(errno));
    madvise(p, need, MADV_HUGEPAGE); /* a wish; without huge pages it is only slower */
    /* Page faults belong outside the clock. Populate says ENOMEM or EFAULT where touching would kill. */
    if (madvise(p, need, MADV_POPULATE_WRITE) < 0) {
        int e = errno;
        if (e != EINVAL) {
            munmap(p, need);
            return hw_fail(-ENOMEM, "%s of memory are not to be had: %s", hw_format_size(need, text, sizeof text),
                           hw_errno_name(e));
        }
        memset(p, 0, need); /* Linux before 5.14 */
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
    int rc = 0;
    b->len = need;
    b->block = malloc(BUFFER_BLOCK);
    if (!b->block)
        rc = hw_fail(-ENOMEM, "no memory for a block of %u bytes", BUFFER_BLOCK);
    if (rc == 0)
        rc = hawser_mem_alloc(h, HAWSER_MEM_CUDA, gpu, need, &b->mem);
    if (rc < 0) {
        free(b->block);
        *b = (struct buffer){0};
    }
    return rc;
}

int buffer_make(struct buffer *b, hawser *h, int gpu, uint64_t size, uint64_t stride, uint32_t slots, bool hot,
                uint64_t seed)
{
    *b = (struct buffer){.size = size, .stride = stride, .slots = slots, .hot = hot, .seed = seed};
    char text[32];
    uint64_t need = buffer_need(size, stride, slots, hot);
    if (need == 0 || need > SIZE_MAX / 2)
        return hw_fail(-ENOMEM, "%u slots of %s are more than an address space holds", slots,
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

int buffer_fill(struct buffer *b, uint64_t first, uint32_t count)
{
    int rc = 0;
    for (uint64_t i = b->hot && count ? first + count - 1 : first; i < first + count && rc == 0; i++) {
        uint64_t slot = buffer_offset(b, i), seed = tp_seed(b->seed, i);
        if (b->base)
            hw_pattern_fill(b->base + slot, b->size, seed, 0);
        for (uint64_t at = 0; !b->base && at < b->size && rc == 0; at += BUFFER_BLOCK) {
            size_t n = HW_MIN(b->size - at, (uint64_t)BUFFER_BLOCK);
            hw_pattern_fill(b->block, n, seed, at);
            rc = hawser_mem_store(b->mem, slot + at, b->block, n);
        }
    }
    return rc;
}

/* A slot of a GPU's: how many bytes of it differ, *first the offset in it of the first one. */
static int check_gpu(struct buffer *b, uint64_t slot, uint64_t seed, uint64_t *bad, uint64_t *first)
{
    int rc = 0;
    *bad = 0;
    for (uint64_t at = 0; at < b->size && rc == 0; at += BUFFER_BLOCK) {
        size_t n = HW_MIN(b->size - at, (uint64_t)BUFFER_BLOCK);
        uint64_t in_block = 0;
        rc = hawser_mem_load(b->mem, slot + at, b->block, n);
        uint64_t k = rc == 0 ? hw_pattern_check(b->block, n, seed, at, &in_block) : 0;
        if (k && !*bad)
            *first = at + in_block;
        *bad += k;
    }
    return rc;
}

int buffer_check(struct buffer *b, uint64_t first, uint32_t count, uint64_t *bad, uint64_t *checked,
                 uint64_t *first_bad)
{
    int rc = 0;
    *bad = *checked = *first_bad = 0;
    for (uint64_t i = b->hot && count ? first + count - 1 : first; i < first + count && rc == 0; i++) {
        uint64_t slot = buffer_offset(b, i), seed = tp_seed(b->seed, i), at = 0, n = 0;
        if (b->base)
            n = hw_pattern_check(b->base + slot, b->size, seed, 0, &at);
        else
            rc = check_gpu(b, slot, seed, &n, &at);
        if (n && !*bad)
            *first_bad = slot + at;
        *bad += n;
        *checked += rc == 0 ? b->size : 0;
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

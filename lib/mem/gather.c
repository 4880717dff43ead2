/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/gather.h"

#include "mem/kernels.h"

#include <stdlib.h>
#include <string.h>

#define GIB      ((uint64_t)1 << 30)
#define RING_MIN 1024
#define RING_MAX (1u << 24) /* maximum entries of the ring, which take 256 MiB of pinned memory */
/* Spare entries after the ring, because a small launch reads HW_FEW entries from any position. */
#define RING_SPARE 4096
#define SLICE_MIN  4096 /* bytes; overhead dominates if a warp copies less */
#define SLICE_MAX  GIB  /* entries have 32-bit lengths, and slices are up to twice as long as this */
#define SLICES     8192 /* slices of a large batch with few fragments: two for each warp of the largest GPUs */
#define STAGE      ((size_t)4 << 20) /* bytes of pinned memory for HW_GATHER_HOST */
#define EACH_MAX   8                 /* maximum entries per warp, which reads them in one access (a cache line) */
#define WARP_BYTES 6144              /* see each_of() */
#define STREAMS    8                 /* for the kernel's batches; see hw_gather_stream() */

const char *const hw_gather_way_names[HW_GATHER_WAYS] = {"kernel", "d2d", "host"};

struct flight {
    CUevent event;
    uint32_t entries; /* number of ring entries that the batch uses */
};

struct hw_gather {
    const struct hw_space *s;
    enum hw_gather_way way;
    unsigned depth;
    uint64_t started, over;

    /* only used on a GPU */
    const struct hw_cuda *cu;
    CUstream stream[STREAMS]; /* batch n runs on stream[n % streams] */
    unsigned streams;
    void *pinned; /* memory of the ring or the stage */
    size_t pinned_len;

    const struct hw_kernels *kernels;
    struct hw_gather_entry *ring;
    CUdeviceptr ring_at; /* address of the ring on the GPU */
    uint32_t size;       /* number of entries, a power of two */
    uint32_t head, used; /* head: the next entry, modulo size; used: number of entries in flight */

    struct flight flight[]; /* batch n uses flight[n % depth] */
};

/* ---- open and close ------------------------------------------------------------------------- */

static int open_pinned(struct hw_gather *g, size_t len)
{
    void *p = hw_pages_alloc(len, g->s->numa);
    if (!p)
        return hw_no_memory("%zu bytes of host memory for the gather of %s", len, g->s->name);
    int rc = g->s->ops->pin(g->s, p, len);
    if (rc < 0) {
        hw_pages_free(p, len);
        return rc;
    }
    g->pinned = p;
    g->pinned_len = len;
    return 0;
}

/* Creates the streams and events and, except for HW_GATHER_D2D, pinned memory. The CUDA context must be current. */
static int open_gpu_gather(struct hw_gather *g)
{
    CUresult e = CUDA_SUCCESS;
    /* the stage of HW_GATHER_HOST is reused in the order of one stream */
    const unsigned streams = g->way == HW_GATHER_KERNEL ? HW_MIN(g->depth, (unsigned)STREAMS) : 1;
    for (; !e && g->streams < streams; g->streams += e == 0)
        e = g->cu->StreamCreate(&g->stream[g->streams], CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; !e && i < g->depth; i++)
        e = g->cu->EventCreate(&g->flight[i].event, CU_EVENT_DISABLE_TIMING);
    if (e)
        return hw_cuda_fail(e, "opening a gather of depth %u on %s", g->depth, g->s->name);
    if (g->way == HW_GATHER_D2D)
        return 0;
    int rc = open_pinned(g, g->way == HW_GATHER_HOST ? STAGE : (g->size + RING_SPARE) * sizeof(struct hw_gather_entry));
    if (rc < 0 || g->way == HW_GATHER_HOST)
        return rc;
    g->ring = g->pinned;
    e = g->cu->MemHostGetDevicePointer(&g->ring_at, g->pinned, 0);
    return e ? hw_cuda_fail(e, "mapping the gather's ring for %s", g->s->name) : 0;
}

int hw_gather_open(const struct hw_space *s, enum hw_gather_way way, unsigned depth, unsigned frags,
                   struct hw_gather **out)
{
    if (depth == 0 || frags > RING_MAX || (unsigned)way >= HW_GATHER_WAYS)
        return hw_fail(-EINVAL,
                       "cannot open a gather with method %d, depth %u and %u fragments: the methods are 0 to %d, the "
                       "depth must be at least 1, and at most %u fragments are allowed",
                       (int)way, depth, frags, HW_GATHER_WAYS - 1, RING_MAX);
    struct hw_gather *g = calloc(1, sizeof(*g) + depth * sizeof(g->flight[0]));
    if (!g)
        return hw_no_memory("a gather of depth %u", depth);
    g->s = s;
    g->way = way;
    g->depth = depth;
    if (!s->direct) {
        for (g->size = RING_MIN; g->size < frags;)
            g->size *= 2;
        int rc = hw_cuda(&g->cu);
        if (rc == 0 && way == HW_GATHER_KERNEL)
            rc = hw_kernels(s, &g->kernels);
        if (rc == 0)
            rc = hw_cuda_enter(s);
        if (rc == 0) {
            rc = open_gpu_gather(g);
            hw_cuda_leave();
        }
        if (rc < 0) {
            hw_gather_close(g);
            return rc;
        }
    }
    *out = g;
    return 0;
}

void hw_gather_close(struct hw_gather *g)
{
    if (!g)
        return;
    if (g->streams && hw_cuda_enter(g->s) == 0) {
        for (unsigned i = 0; i < g->streams; i++)
            (void)g->cu->StreamSynchronize(g->stream[i]); /* the kernels read the ring */
        for (unsigned i = 0; i < g->depth && g->flight[i].event; i++)
            (void)g->cu->EventDestroy(g->flight[i].event);
        for (unsigned i = 0; i < g->streams; i++)
            (void)g->cu->StreamDestroy(g->stream[i]);
        hw_cuda_leave();
    }
    if (g->pinned) {
        g->s->ops->unpin(g->s, g->pinned);
        hw_pages_free(g->pinned, g->pinned_len);
    }
    free(g);
}

void *hw_gather_stream(const struct hw_gather *g, unsigned i)
{
    return i < g->streams ? g->stream[i] : NULL;
}

/* Returns the stream of the batch that is being started. */
static CUstream stream_of_next(const struct hw_gather *g)
{
    return g->stream[(g->started + 1) % g->streams];
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* Consecutive ring entries for one launch. */
struct launch {
    const struct hw_gather_bufs *b;
    uint64_t base; /* offset in the source that the entries' source offsets are relative to */
    uint64_t bytes;
    uint32_t first, n;
};

/* Returns the number of entries that a warp takes, so that it copies about WARP_BYTES. On an H200, 4 KiB entries reach
 * 97 % of a plain copy's rate with one entry per warp and 94 % with eight. Entries of 1448 bytes reach 81 % with four
 * per warp and 69 % with one, because each read of the list is a round trip to the host. */
static uint32_t each_of(const struct launch *l)
{
    return (uint32_t)HW_MAX((uint64_t)1, HW_MIN(l->n * (uint64_t)WARP_BYTES / l->bytes, (uint64_t)EACH_MAX));
}

static CUresult launch_gather(struct hw_gather *g, struct launch *l)
{
    if (l->n == 0)
        return CUDA_SUCCESS;
    CUdeviceptr dst = (uintptr_t)l->b->dst, src = (uintptr_t)l->b->src + l->base;
    CUdeviceptr list = g->ring_at + l->first * sizeof(struct hw_gather_entry);
    CUresult e;
    if (l->n <= HW_FEW) {
        e = g->cu->LaunchKernel(g->kernels->gather_few, (l->n + 1) / 2, 1, 1, 2 * HW_WARP, 1, 1, 0, stream_of_next(g),
                                (void *[]){&dst, &src, &l->n, &g->ring[l->first]}, NULL);
    } else {
        uint32_t each = each_of(l);
        const uint32_t per_block = each * (HW_KERNEL_THREADS / HW_WARP);
        e = g->cu->LaunchKernel(g->kernels->gather, (l->n + per_block - 1) / per_block, 1, 1, HW_KERNEL_THREADS, 1, 1,
                                0, stream_of_next(g), (void *[]){&dst, &src, &list, &l->n, &each}, NULL);
    }
    l->first += l->n;
    l->n = 0;
    l->bytes = 0;
    return e;
}

/* Returns true if the entry's 32-bit source offset can express src_off. If it cannot, the next launch has a base up to
 * 2 GiB before src_off. */
static bool can_reach(const struct launch *l, uint64_t src_off)
{
    return src_off >= l->base && src_off - l->base <= UINT32_MAX;
}

/* Adds an entry. First launches the previous entries if the new entry cannot be in the same launch. */
static CUresult add_gather_entry(struct hw_gather *g, struct launch *l, uint64_t src_off, uint64_t dst_off,
                                 uint64_t len)
{
    CUresult e = CUDA_SUCCESS;
    if (l->first + l->n == g->size || !can_reach(l, src_off)) {
        e = launch_gather(g, l);
        l->first %= g->size;
    }
    if (!can_reach(l, src_off))
        l->base = src_off > 2 * GIB ? src_off - 2 * GIB : 0;
    g->ring[l->first + l->n++] = (struct hw_gather_entry){(uint32_t)(src_off - l->base), (uint32_t)len, dst_off};
    l->bytes += len;
    return e;
}

/* Cuts a fragment into n slices, and adds an entry for each. All slices but the last end at cache lines of the
 * destination. */
static CUresult add_slices(struct hw_gather *g, struct launch *l, const struct hw_frag *f, uint64_t n)
{
    const uint64_t slice = f->len / n;
    uint64_t at = 0;
    CUresult e = CUDA_SUCCESS;

    for (uint64_t i = 1; !e && i <= n; i++) {
        uint64_t end = f->len;
        if (i < n)
            end = i * slice - ((uintptr_t)l->b->dst + f->dst_off + i * slice) % 128;
        e = add_gather_entry(g, l, f->src_off + at, f->dst_off + at, end - at);
        at = end;
    }
    return e;
}

static int start_kernel(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n,
                        uint64_t bytes, size_t *taken)
{
    const uint64_t slice =
        HW_MIN(HW_MAX(bytes / HW_MIN((uint32_t)SLICES, g->size / 2), (uint64_t)SLICE_MIN), SLICE_MAX);
    struct launch l = {.b = b, .first = g->head};
    CUresult e = CUDA_SUCCESS;
    uint32_t entries = 0;
    size_t i;

    for (i = 0; !e && i < n; i++) {
        if (frags[i].len == 0)
            continue;
        const uint64_t slices = HW_MAX(frags[i].len / slice, (uint64_t)1);
        if (slices > g->size - g->used - entries) {
            if (i == 0 && slices > g->size)
                return hw_fail(-EINVAL, "gather: fragment %zu of %llu bytes is too long for a ring of %u slices", i,
                               (unsigned long long)frags[i].len, g->size);
            break;
        }
        e = add_slices(g, &l, &frags[i], slices);
        entries += (uint32_t)slices;
    }
    if (i == 0 && n > 0)
        return -EAGAIN;
    if (!e)
        e = launch_gather(g, &l);
    if (e)
        return hw_cuda_fail(e, "launching the gather on %s", g->s->name);
    g->head = (g->head + entries) % g->size;
    g->used += entries;
    g->flight[(g->started + 1) % g->depth].entries = entries;
    *taken = i;
    return 0;
}

/* ---- the other methods --------------------------------------------------------------------------- */

static int start_d2d(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct hw_frag *f = &frags[i];
        if (f->len == 0)
            continue;
        CUresult e = g->cu->MemcpyDtoDAsync((uintptr_t)b->dst + f->dst_off, (uintptr_t)b->src + f->src_off, f->len,
                                            stream_of_next(g));
        if (e)
            return hw_cuda_fail(e, "gathering fragment %zu on %s", i, g->s->name);
    }
    return 0;
}

/* Copies as many bytes as fit into the stage to the host, copies these bytes back, and repeats. The order of the stream
 * ensures that the next round does not overwrite the stage too early. */
static int start_host(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n)
{
    const CUdeviceptr dst = (uintptr_t)b->dst, src = (uintptr_t)b->src;
    uint8_t *stage = g->pinned;
    size_t i = 0, next;
    uint64_t at = 0, next_at; /* number of bytes of fragment i that were copied */

    while (i < n) {
        for (int up = 0; up < 2; up++) {
            size_t room = STAGE;
            for (next = i, next_at = at; next < n && room > 0;) {
                const struct hw_frag *f = &frags[next];
                const size_t len = (size_t)HW_MIN((uint64_t)room, f->len - next_at);
                uint8_t *here = stage + (STAGE - room);
                CUresult e = CUDA_SUCCESS;
                if (len > 0 && up)
                    e = g->cu->MemcpyHtoDAsync(dst + f->dst_off + next_at, here, len, stream_of_next(g));
                else if (len > 0)
                    e = g->cu->MemcpyDtoHAsync(here, src + f->src_off + next_at, len, stream_of_next(g));
                if (e)
                    return hw_cuda_fail(e, "gathering fragment %zu on %s through the host", next, g->s->name);
                room -= len;
                next_at += len;
                if (next_at == f->len) {
                    next++;
                    next_at = 0;
                }
            }
        }
        i = next;
        at = next_at;
    }
    return 0;
}

/* ---- starting and finishing --------------------------------------------------------------------- */

/* Checks that the buffers do not overlap and that all fragments are within them. Adds the fragments' bytes to *bytes,
 * limited to UINT64_MAX. Fragments may overlap, so the sum may exceed the address space. */
static int check_frags(const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n, uint64_t *bytes)
{
    const uintptr_t d = (uintptr_t)b->dst, s = (uintptr_t)b->src;
    if (b->dst_size && b->src_size && d < s + b->src_size && s < d + b->dst_size)
        return hw_fail(-EINVAL, "gather: source (%p, %zu bytes) and destination (%p, %zu bytes) overlap", b->src,
                       b->src_size, b->dst, b->dst_size);
    for (size_t i = 0; i < n; i++) {
        const struct hw_frag *f = &frags[i];
        if (f->src_off > b->src_size || f->len > b->src_size - f->src_off)
            return hw_fail(-EFAULT, "gather: fragment %zu (%llu bytes at offset %llu) exceeds the source of %zu bytes",
                           i, (unsigned long long)f->len, (unsigned long long)f->src_off, b->src_size);
        if (f->dst_off > b->dst_size || f->len > b->dst_size - f->dst_off)
            return hw_fail(-EFAULT,
                           "gather: fragment %zu (%llu bytes at offset %llu) exceeds the destination of %zu bytes", i,
                           (unsigned long long)f->len, (unsigned long long)f->dst_off, b->dst_size);
        *bytes = *bytes + f->len < *bytes ? UINT64_MAX : *bytes + f->len;
    }
    return 0;
}

static int start_gpu(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n,
                     uint64_t bytes, size_t *taken)
{
    int rc = 0;
    *taken = n;
    switch (g->way) {
    case HW_GATHER_D2D:
        rc = start_d2d(g, b, frags, n);
        break;
    case HW_GATHER_HOST:
        rc = start_host(g, b, frags, n);
        break;
    default:
        rc = start_kernel(g, b, frags, n, bytes, taken);
    }
    if (rc == 0) {
        CUresult e = g->cu->EventRecord(g->flight[(g->started + 1) % g->depth].event, stream_of_next(g));
        if (e)
            rc = hw_cuda_fail(e, "recording the end of a gather on %s", g->s->name);
    }
    if (rc < 0 && rc != -EAGAIN)
        /* wait for copies that were started, because no event will report their end */
        (void)g->cu->StreamSynchronize(stream_of_next(g));
    return rc;
}

int hw_gather_start(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n,
                    size_t *taken)
{
    uint64_t bytes = 0, upto;
    *taken = 0;
    int rc = check_frags(b, frags, n, &bytes);
    if (rc < 0)
        return rc;
    if (g->s->direct) {
        for (size_t i = 0; i < n; i++)
            if (frags[i].len)
                memcpy((char *)b->dst + frags[i].dst_off, (const char *)b->src + frags[i].src_off, frags[i].len);
        g->over = ++g->started;
        *taken = n;
        return 0;
    }
    rc = hw_gather_done(g, &upto);
    if (rc < 0)
        return rc;
    if (g->started - g->over == g->depth)
        return -EAGAIN;
    rc = hw_cuda_enter(g->s);
    if (rc < 0)
        return rc;
    size_t count = 0;
    rc = start_gpu(g, b, frags, n, bytes, &count);
    hw_cuda_leave();
    if (rc < 0)
        return rc;
    g->started++;
    *taken = count;
    return 0;
}

int hw_gather_done(struct hw_gather *g, uint64_t *upto)
{
    if (g->over < g->started) {
        int rc = hw_cuda_enter(g->s);
        if (rc < 0)
            return rc;
        CUresult e = CUDA_SUCCESS;
        while (g->over < g->started) {
            struct flight *f = &g->flight[(g->over + 1) % g->depth];
            e = g->cu->EventQuery(f->event);
            if (e)
                break;
            g->used -= f->entries;
            f->entries = 0;
            g->over++;
        }
        hw_cuda_leave();
        if (e && e != CUDA_ERROR_NOT_READY)
            return hw_cuda_fail(e, "gather %llu on %s", (unsigned long long)g->over + 1, g->s->name);
    }
    *upto = g->over;
    return 0;
}

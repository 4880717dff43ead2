/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/space.h"

#include "mem/cuda.h"
#include "mem/dmabuf.h"

#include <limits.h>
#include <linux/mempolicy.h> /* MPOL_PREFERRED; <numaif.h> would require libnuma */
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int host_alloc(const struct hw_space *s, size_t len, void **out)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return hw_fail(-errno, "allocating %zu bytes of %s memory: %s", len, s->name, strerror(errno));
    *out = p;
    return 0;
}

static void host_free(const struct hw_space *s, void *ptr, size_t len)
{
    (void)s;
    if (ptr)
        munmap(ptr, len);
}

static int host_copy(const struct hw_space *s, void *to, const void *from, size_t len)
{
    (void)s;
    if (len)
        memcpy(to, from, len);
    return 0;
}

static int host_pin(const struct hw_space *s, void *ptr, size_t len)
{
    (void)s, (void)ptr, (void)len; /* no device is involved */
    return 0;
}

static void host_unpin(const struct hw_space *s, void *ptr)
{
    (void)s, (void)ptr;
}

/* Fails, because a direct space needs no queues. */
static int no_queue(const struct hw_space *s, unsigned depth, struct hw_copyq **out)
{
    (void)depth, (void)out;
    return hw_fail(-EOPNOTSUPP, "%s memory needs no copy queue: use its addresses", s->name);
}

static void no_close(struct hw_copyq *q)
{
    (void)q;
}

static int no_copy(struct hw_copyq *q, void *to, const void *from, size_t len)
{
    (void)q, (void)to, (void)from, (void)len;
    return hw_fail(-EOPNOTSUPP, "host memory needs no copy queue");
}

static int no_done(struct hw_copyq *q, uint64_t *upto)
{
    (void)q, (void)upto;
    return hw_fail(-EOPNOTSUPP, "host memory needs no copy queue");
}

static int no_dmabuf_of(const struct hw_space *s, const void *ptr, size_t len, size_t window, struct hw_dmabuf *out)
{
    (void)len;
    (void)window;
    (void)ptr, (void)out;
    return hw_fail(-EOPNOTSUPP, "%s memory of the caller cannot be exported as a dma-buf", s->name);
}

static uint64_t no_dmabuf_id(const struct hw_space *s, const void *ptr)
{
    (void)s, (void)ptr;
    return 0;
}

static const struct hw_space_ops host_ops = {
    .alloc = host_alloc,
    .free = host_free,
    .load = host_copy,
    .store = host_copy,
    .pin = host_pin,
    .unpin = host_unpin,
    .queue_open = no_queue,
    .queue_close = no_close,
    .copy = no_copy,
    .done = no_done,
    .dmabuf_alloc = hw_udmabuf_alloc,
    .dmabuf_free = hw_udmabuf_free,
    .dmabuf_of = no_dmabuf_of,
    .dmabuf_id = no_dmabuf_id,
};

const struct hw_space hw_host = {.ops = &host_ops, .name = "host", .direct = true, .device = -1, .numa = -1};

int hw_space_find(enum hawser_mem_kind kind, const void *ptr, size_t len, const struct hw_space **out)
{
    switch (kind) {
    case HAWSER_MEM_HOST:
        *out = &hw_host;
        return 0;
    case HAWSER_MEM_CUDA:
        return hw_cuda_find(ptr, len, out);
    }
    return hw_fail(-EOPNOTSUPP, "unknown memory kind %d: the kinds are 0 (host) and 1 (cuda)", (int)kind);
}

int hw_space_device(enum hawser_mem_kind kind, int device, const struct hw_space **out)
{
    switch (kind) {
    case HAWSER_MEM_HOST:
        if (device > 0)
            return hw_fail(-ENODEV, "host memory has no device %d: its device is 0", device);
        *out = &hw_host;
        return 0;
    case HAWSER_MEM_CUDA:
        return hw_cuda_device(device, out);
    }
    return hw_fail(-EOPNOTSUPP, "unknown memory kind %d: the kinds are 0 (host) and 1 (cuda)", (int)kind);
}

void *hw_pages_alloc(size_t len, int numa)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* After fork() a write would move the pages away from the device, because copy-on-write may give the copy to the
     * parent. */
    (void)madvise(p, len, MADV_DONTFORK);
    unsigned long nodes[16] = {0};
    const int bits = sizeof(nodes[0]) * CHAR_BIT;
    if (numa >= 0 && numa < (int)HW_ARRAY_LEN(nodes) * bits) {
        nodes[numa / bits] = 1ul << (numa % bits);
        /* This is only a hint. Kernels without NUMA and some sandboxes reject the call, and the pages work without it.
         * maxnode is one more than the number of bits (mm/mempolicy.c, get_nodes). */
        (void)syscall(SYS_mbind, p, len, MPOL_PREFERRED, nodes, sizeof(nodes) * CHAR_BIT + 1, 0);
    }
    return p;
}

void hw_pages_free(void *ptr, size_t len)
{
    if (ptr)
        munmap(ptr, len);
}

int hw_load(const struct hw_space *s, void *host, const void *from, size_t len)
{
    return s->ops->load(s, host, from, len);
}

int hw_store(const struct hw_space *s, void *to, const void *host, size_t len)
{
    return s->ops->store(s, to, host, len);
}

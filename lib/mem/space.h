/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory spaces: where an address is valid, and how bytes get in and out of there. The host's memory is one; each CUDA
 * context's is another. Everything above asks the space and never what kind it is.
 *
 * Spaces live as long as the process: whoever has a pointer to one may keep it. All functions may be called from any
 * thread; one copy queue is used by one thread at a time. 0 or -errno with the text set, as everywhere.
 */
#ifndef HW_SPACE_H
#define HW_SPACE_H

#include "base/base.h"

/* A range of a space that other devices reach by a dma-buf. */
struct hw_dmabuf {
    int fd; /* the caller's */
    uint8_t *base;
    size_t size;
    uint64_t id; /* of the allocation: no other ever has it, in the same space */
};

struct hw_copyq; /* copies of one space, done in the order they were started */

struct hw_space {
    const struct hw_space_ops *ops;
    const char *name; /* "host", "GPU 3": for messages */
    bool direct;      /* the CPU may use its addresses: no copies, and none of the functions below, are needed */
    int device;       /* the GPU's ordinal in the driver, -1 for the host */
    int numa;         /* the node nearest to it, -1 where not known */
};

struct hw_space_ops {
    /* Memory of the space, aligned as GPUs' dma-bufs must be (the host's page size, 4 KiB at least). */
    int (*alloc)(const struct hw_space *s, size_t len, void **out);
    void (*free)(const struct hw_space *s, void *ptr, size_t len);

    /* Small copies, done on return: between the host and addresses of the space. */
    int (*load)(const struct hw_space *s, void *host, const void *from, size_t len);
    int (*store)(const struct hw_space *s, void *to, const void *host, size_t len);

    /* Lets devices reach host memory [ptr, ptr+len) (page-aligned) directly, for copies from and to it; and not. */
    int (*pin)(const struct hw_space *s, void *ptr, size_t len);
    void (*unpin)(const struct hw_space *s, void *ptr);

    /* A queue on which up to depth copies may be under way. */
    int (*queue_open)(const struct hw_space *s, unsigned depth, struct hw_copyq **out);
    /* All copies are over, or the device is lost: see done(). */
    void (*queue_close)(struct hw_copyq *q);
    /* Starts a copy between pinned host memory and the space, or within it: the addresses tell which. -EAGAIN: depth
     * are under way; else the copies started are numbered 1, 2, 3... */
    int (*copy)(struct hw_copyq *q, void *to, const void *from, size_t len);
    /* *upto: all copies up to this number are over. -errno where the device has failed: nothing more comes. */
    int (*done)(struct hw_copyq *q, uint64_t *upto);

    /* Whole pages of the space as a dma-buf, to be freed with it. -EOPNOTSUPP: it has none, and the text says why. */
    int (*dmabuf_alloc)(const struct hw_space *s, size_t len, struct hw_dmabuf *out);
    void (*dmabuf_free)(const struct hw_space *s, struct hw_dmabuf *b);
    /* The dma-buf of [ptr, ptr+len) of the caller's own allocation, and of its whole pages around that up to addresses
     * that are multiples of window, a power of two and at least a page. -EOPNOTSUPP likewise. */
    int (*dmabuf_of)(const struct hw_space *s, const void *ptr, size_t len, size_t window, struct hw_dmabuf *out);
    /* hw_dmabuf.id of the allocation around ptr: cheap. 0: none. */
    uint64_t (*dmabuf_id)(const struct hw_space *s, const void *ptr);
};

extern const struct hw_space hw_host;

/* The space of [ptr, ptr+len) of this kind, once it is proved to be so. -EINVAL not memory of this kind, managed, or
 * not all one allocation's; -ENODEV no driver or no GPU; -EOPNOTSUPP unknown kind. */
int hw_space_find(enum hawser_mem_kind kind, const void *ptr, size_t len, const struct hw_space **out);

/* The space of a kind's device by ordinal, to allocate there. -ENODEV there is none; the text says how many there are.
 */
int hw_space_device(enum hawser_mem_kind kind, int device, const struct hw_space **out);

/* Host memory of whole pages near `numa` (-1: anywhere), not inherited across fork, for hw_space_ops.pin. NULL: none.
 */
void *hw_pages_alloc(size_t len, int numa);
void hw_pages_free(void *ptr, size_t len);

/* load and store for any space, the host's included. */
int hw_load(const struct hw_space *s, void *host, const void *from, size_t len);
int hw_store(const struct hw_space *s, void *to, const void *host, size_t len);

#endif

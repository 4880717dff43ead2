/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory spaces: where an address is valid, and how bytes get in and out. The host's memory is one space; each CUDA
 * context's memory is another. The layers above call the space's operations and do not check its kind.
 *
 * Spaces live as long as the process, so pointers to them stay valid. All functions may be called from any thread; only
 * one thread at a time may use a copy queue. Functions return 0 or -errno with the text set.
 */
#ifndef HW_SPACE_H
#define HW_SPACE_H

#include "base/base.h"

/* A range of a space that other devices reach through a dma-buf. */
struct hw_dmabuf {
    int fd; /* the caller's */
    uint8_t *base;
    size_t size;
    uint64_t id; /* identifies the allocation; never reused in the same space */
};

struct hw_copyq; /* copies of one space, which complete in the order in which they were started */

struct hw_space {
    const struct hw_space_ops *ops;
    const char *name; /* "host", "GPU 3": for messages */
    bool direct;      /* the CPU can use its addresses: copies and the functions below are not needed */
    int device;       /* the GPU's ordinal in the driver, -1 for the host */
    int numa;         /* the nearest NUMA node; -1: unknown */
};

struct hw_space_ops {
    /* Allocate and free memory of the space, aligned as GPUs' dma-bufs require (the host's page size, at least 4
     * KiB). */
    int (*alloc)(const struct hw_space *s, size_t len, void **out);
    void (*free)(const struct hw_space *s, void *ptr, size_t len);

    /* Copy small amounts between the host and addresses of the space; complete on return. */
    int (*load)(const struct hw_space *s, void *host, const void *from, size_t len);
    int (*store)(const struct hw_space *s, void *to, const void *host, size_t len);

    /* Give devices direct access to host memory [ptr, ptr+len) (page-aligned) for copies, and revoke it. */
    int (*pin)(const struct hw_space *s, void *ptr, size_t len);
    void (*unpin)(const struct hw_space *s, void *ptr);

    /* Opens a queue with up to depth copies in flight. */
    int (*queue_open)(const struct hw_space *s, unsigned depth, struct hw_copyq **out);
    /* Returns when all copies are complete, or the device is lost: see done(). */
    void (*queue_close)(struct hw_copyq *q);
    /* Starts a copy between pinned host memory and the space, or within the space: the addresses decide. -EAGAIN: depth
     * copies are in flight; otherwise the copies are numbered 1, 2, 3... */
    int (*copy)(struct hw_copyq *q, void *to, const void *from, size_t len);
    /* Sets *upto to the number of the last copy of those that are all complete. -errno: the device has failed, and no
     * further copy will complete. */
    int (*done)(struct hw_copyq *q, uint64_t *upto);

    /* Allocate whole pages of the space as a dma-buf, and free them. -EOPNOTSUPP: the space has no dma-bufs; the text
     * says why. */
    int (*dmabuf_alloc)(const struct hw_space *s, size_t len, struct hw_dmabuf *out);
    void (*dmabuf_free)(const struct hw_space *s, struct hw_dmabuf *b);
    /* Exports [ptr, ptr+len) of the caller's own allocation as a dma-buf, with the whole pages of that allocation up to
     * addresses that are multiples of window, a power of two of at least a page. -EOPNOTSUPP likewise. */
    int (*dmabuf_of)(const struct hw_space *s, const void *ptr, size_t len, size_t window, struct hw_dmabuf *out);
    /* Returns hw_dmabuf.id of the allocation around ptr; 0: none. Cheap. */
    uint64_t (*dmabuf_id)(const struct hw_space *s, const void *ptr);
};

extern const struct hw_space hw_host;

/* Finds the space of [ptr, ptr+len) and checks that the range is of this kind. -EINVAL: not memory of this kind,
 * managed memory, or more than one allocation; -ENODEV: no driver or no GPU; -EOPNOTSUPP: unknown kind. */
int hw_space_find(enum hawser_mem_kind kind, const void *ptr, size_t len, const struct hw_space **out);

/* Finds the space of a device by its ordinal, to allocate there. -ENODEV: there is none; the text says how many there
 * are. */
int hw_space_device(enum hawser_mem_kind kind, int device, const struct hw_space **out);

/* Allocates whole pages of host memory near NUMA node `numa` (-1: any), not inherited across fork(), for
 * hw_space_ops.pin. NULL: no memory. */
void *hw_pages_alloc(size_t len, int numa);
void hw_pages_free(void *ptr, size_t len);

/* load and store for any space, the host's included. */
int hw_load(const struct hw_space *s, void *host, const void *from, size_t len);
int hw_store(const struct hw_space *s, void *to, const void *host, size_t len);

#endif

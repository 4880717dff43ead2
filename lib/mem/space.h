/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory space defines where an address is valid and how bytes are copied in and out. Host memory is one space, and
 * the memory of each CUDA context is another. The layers above call the space's operations.
 *
 * Spaces exist as long as the process, so pointers to them stay valid. Any thread may call any function, but only one
 * thread at a time may use a copy queue. Functions that return an int return 0 or a negative errno. They set the error
 * text, except for -EAGAIN.
 */
#ifndef HW_SPACE_H
#define HW_SPACE_H

#include "base/base.h"

/* A range of a space that other devices access through a dma-buf. */
struct hw_dmabuf {
    int fd; /* owned by the caller */
    uint8_t *base;
    size_t size;
    uint64_t id; /* identifies the allocation, and is never reused in the same space; 0 if unknown */
};

struct hw_copyq; /* a queue of copies of one space, which complete in the order in which they were started */

struct hw_space {
    const struct hw_space_ops *ops;
    const char *name; /* name for messages, such as "host" or "GPU 3" */
    bool direct;      /* the CPU can access the addresses, so the copy functions below are not needed */
    int device;       /* the driver's ordinal of the GPU, or -1 for the host */
    int numa;         /* the nearest NUMA node, or -1 if unknown */
};

struct hw_space_ops {
    /* Allocate and free memory of the space, with the alignment that GPUs' dma-bufs require (the host's page size, at
     * least 4 KiB). */
    int (*alloc)(const struct hw_space *s, size_t len, void **out);
    void (*free)(const struct hw_space *s, void *ptr, size_t len);

    /* Copy between the host and addresses of the space, for small amounts. The copy is complete on return. */
    int (*load)(const struct hw_space *s, void *host, const void *from, size_t len);
    int (*store)(const struct hw_space *s, void *to, const void *host, size_t len);

    /* Give devices direct access to the page-aligned host memory [ptr, ptr+len) for copies, and revoke this access. */
    int (*pin)(const struct hw_space *s, void *ptr, size_t len);
    void (*unpin)(const struct hw_space *s, void *ptr);

    /* Opens a queue with up to depth copies in flight. */
    int (*queue_open)(const struct hw_space *s, unsigned depth, struct hw_copyq **out);
    /* Closes the queue. All copies must be complete, or the device must have failed (see done()). */
    void (*queue_close)(struct hw_copyq *q);
    /* Starts a copy between pinned host memory and the space, or within the space, depending on the addresses. Copies
     * are numbered 1, 2, 3, and so on. Fails with -EAGAIN if depth copies are in flight. */
    int (*copy)(struct hw_copyq *q, void *to, const void *from, size_t len);
    /* Sets *upto to the number of the last copy that is complete together with all earlier copies. Fails with a
     * negative errno if the device has failed, after which no further copy will complete. */
    int (*done)(struct hw_copyq *q, uint64_t *upto);

    /* Allocate and free whole pages of the space as a dma-buf. The allocation fails with -EOPNOTSUPP if the space has
     * no dma-bufs; the error text contains the reason. */
    int (*dmabuf_alloc)(const struct hw_space *s, size_t len, struct hw_dmabuf *out);
    void (*dmabuf_free)(const struct hw_space *s, struct hw_dmabuf *b);
    /* Exports the whole pages of the caller's allocation around [ptr, ptr+len) as a dma-buf, which begins and ends at
     * multiples of window (a power of two of at least a page) or at the first or last whole page of the allocation.
     * Fails with -EOPNOTSUPP if the space has no dma-bufs, and with -ERANGE if ptr is not in a whole page. */
    int (*dmabuf_of)(const struct hw_space *s, const void *ptr, size_t len, size_t window, struct hw_dmabuf *out);
    /* Returns hw_dmabuf.id of the allocation around ptr, or 0 if unknown. The call is cheap. */
    uint64_t (*dmabuf_id)(const struct hw_space *s, const void *ptr);
};

extern const struct hw_space hw_host;

/* Finds the space of [ptr, ptr+len). A range of HAWSER_MEM_HOST is not checked. With HAWSER_MEM_CUDA, pinned host
 * memory belongs to hw_host, and the call fails with -EINVAL if the range is not CUDA memory, is managed, has holes, or
 * belongs to more than one device or CUDA context, and with -ENODEV if there is no driver or no GPU. Fails with
 * -EOPNOTSUPP for an unknown kind. */
int hw_space_find(enum hawser_mem_kind kind, const void *ptr, size_t len, const struct hw_space **out);

/* Finds the space of a device by its ordinal, for allocations. Fails with -ENODEV if the device does not exist. */
int hw_space_device(enum hawser_mem_kind kind, int device, const struct hw_space **out);

/* Allocates whole pages of host memory near NUMA node `numa` (-1 for any node), for hw_space_ops.pin. The pages are not
 * inherited across fork(). Returns NULL if out of memory. */
void *hw_pages_alloc(size_t len, int numa);
void hw_pages_free(void *ptr, size_t len);

/* Load and store for any space, including the host's. */
int hw_load(const struct hw_space *s, void *host, const void *from, size_t len);
int hw_store(const struct hw_space *s, void *to, const void *host, size_t len);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gather: fragments that lie scattered in one buffer, put where they belong in another one of the same space, without
 * their bytes passing the host. One call starts a batch of them; many may be under way, and they are over in the order
 * they were started. One hw_gather is used by one thread at a time.
 */
#ifndef HW_GATHER_H
#define HW_GATHER_H

#include "mem/space.h"

/* Any alignment and any length; empty ones do nothing. They may overlap in the source; where they do in the
 * destination, it is not said which is seen. */
struct hw_frag {
    uint64_t src_off, dst_off, len;
};

/* The two buffers, which may not overlap. */
struct hw_gather_bufs {
    void *dst;
    size_t dst_size;
    const void *src;
    size_t src_size;
};

/* How, on a GPU. A direct space's gather is the CPU's memcpy, and over on return. */
enum hw_gather_way {
    HW_GATHER_KERNEL, /* ours; several launches for a batch only where the ring ends, or sources lie over 2 GiB apart */
    HW_GATHER_D2D,    /* a copy of the driver's for each fragment; past about a thousand under way, starting waits */
    HW_GATHER_HOST,   /* down to pinned host memory and up again, likewise: to compare with */
    HW_GATHER_WAYS
};
extern const char *const hw_gather_way_names[HW_GATHER_WAYS]; /* "kernel", "d2d", "host" */

struct hw_gather;

/* depth: batches under way; frags: fragments under way in all of them (the kernel's ring; it is made larger, to a power
 * of two of at least 1024). */
int hw_gather_open(const struct hw_space *s, enum hw_gather_way way, unsigned depth, unsigned frags,
                   struct hw_gather **out);
/* What is under way is over on return, or the device is lost. */
void hw_gather_close(struct hw_gather *g);

/*
 * Starts the first *taken of n fragments: all of them, or as many as there is room for now (call again with the rest).
 * Batches are numbered 1, 2, 3... in the order they were started. frags is the caller's again on return.
 * -EAGAIN: none was taken, and one will be once a batch is over. -EFAULT: one of the n (the text says which) lies
 * outside its buffer; none was started. -EINVAL: the buffers overlap. Other errors: the device has failed.
 */
int hw_gather_start(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n,
                    size_t *taken);

/* *upto: all batches up to this number are over. -errno where the device has failed: nothing more comes. */
int hw_gather_done(struct hw_gather *g, uint64_t *upto);

/* The CUstream that it all goes through, in order, to measure it or to put work before it. NULL: a direct space's. */
void *hw_gather_stream(const struct hw_gather *g);

/*
 * What the kernel reads, in place in the host's memory (or, 64 at most, with the launch): 16 bytes a fragment, as in
 * the queue that GPUDirect-TCPX's plugin leaves for a kernel (its loadMeta), so that the same kernel can read that one.
 * The offsets are from the addresses that a launch is given: hw_gather_start() gives one near the fragments where the
 * source is larger than 4 GiB, and cuts long fragments up, since a warp copies an entry.
 */
struct hw_gather_entry {
    uint32_t src_off, len;
    uint64_t dst_off;
};

#endif

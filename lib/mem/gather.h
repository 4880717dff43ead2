/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gather: copies fragments that are scattered in one buffer to their places in another buffer of the same space,
 * without moving the bytes through the host. One call starts a batch. Many batches may be in flight; the GPU may run
 * several at once, and hw_gather_done() reports them in the order in which they were started. Only one thread at a time
 * may use a hw_gather.
 */
#ifndef HW_GATHER_H
#define HW_GATHER_H

#include "mem/space.h"

/* Any alignment and any length; empty fragments do nothing. Fragments may overlap in the source; if they overlap in the
 * destination, the result there is undefined. */
struct hw_frag {
    uint64_t src_off, dst_off, len;
};

/* The two buffers, which must not overlap. */
struct hw_gather_bufs {
    void *dst;
    size_t dst_size;
    const void *src;
    size_t src_size;
};

/* How a GPU gathers. In a direct space the CPU copies with memcpy(), and the gather is complete on return. */
enum hw_gather_way {
    /* our kernel; one batch needs several launches only at the end of the ring, or if sources are over 2 GiB apart */
    HW_GATHER_KERNEL,
    /* one driver copy for each fragment; with more than about a thousand in flight, starting blocks */
    HW_GATHER_D2D,
    HW_GATHER_HOST, /* to pinned host memory and back, for comparison; starting may block too */
    HW_GATHER_WAYS
};
extern const char *const hw_gather_way_names[HW_GATHER_WAYS]; /* "kernel", "d2d", "host" */

struct hw_gather;

/* depth: batches in flight; frags: fragments in flight over all batches (the size of the kernel's ring, which is
 * rounded up to a power of two of at least 1024). */
int hw_gather_open(const struct hw_space *s, enum hw_gather_way way, unsigned depth, unsigned frags,
                   struct hw_gather **out);
/* Waits until all batches in flight are complete, or the device is lost. */
void hw_gather_close(struct hw_gather *g);

/*
 * Starts the first *taken of n fragments: all, or as many as there is room for (call again with the rest). Batches are
 * numbered 1, 2, 3... in the order in which they were started. The caller may reuse frags on return.
 *
 * -EAGAIN: none was taken; room becomes free when a batch ends. -EFAULT: a fragment (the text says which) is outside
 * its buffer; none was started. -EINVAL: the buffers overlap. Other errors: the device has failed.
 */
int hw_gather_start(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n,
                    size_t *taken);

/* Sets *upto to the number of the last batch of those that are all complete. -errno: the device has failed, and no
 * further batch will complete. */
int hw_gather_done(struct hw_gather *g, uint64_t *upto);

/* Returns the i-th CUstream of the gather, for measurements, or NULL past the last stream and in a direct space. The
 * kernel's batches run on the streams in turn, so that the GPU can overlap the start of one batch with the copies of
 * the batches before. */
void *hw_gather_stream(const struct hw_gather *g, unsigned i);

/*
 * The list that the kernel reads, in host memory (or, up to 64 entries, in the launch parameters): 16 bytes per
 * fragment, the layout that the plugin of GPUDirect-TCPX leaves for a kernel (its loadMeta), so that the same kernel
 * can read that list. Offsets count from the addresses of the launch: hw_gather_start() passes one near the fragments
 * if the source is larger than 4 GiB, and splits long fragments, because a warp copies one entry.
 */
struct hw_gather_entry {
    uint32_t src_off, len;
    uint64_t dst_off;
};

#endif

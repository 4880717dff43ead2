/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gather: copies fragments that are scattered in one buffer to their places in another buffer of the same space. One
 * call starts a batch. Many batches may be in flight; the GPU may run several at once, and hw_gather_done() reports
 * them in the order in which they were started. Only one thread at a time may use a hw_gather.
 */
#ifndef HW_GATHER_H
#define HW_GATHER_H

#include "mem/space.h"

/* A fragment of any alignment and any length. Empty fragments have no effect. Fragments may overlap in the source. If
 * they overlap in the destination, the result there is undefined. */
struct hw_frag {
    uint64_t src_off, dst_off, len;
};

/* The two buffers of a gather, which must not overlap. */
struct hw_gather_bufs {
    void *dst;
    size_t dst_size;
    const void *src;
    size_t src_size;
};

/* Method of a gather on a GPU. In a direct space the CPU copies with memcpy(), and each batch is complete on return. */
enum hw_gather_way {
    /* hawser's GPU kernel; a batch needs more than one launch only at the end of the ring, or if the source is larger
     * than 4 GiB */
    HW_GATHER_KERNEL,
    /* one copy by the driver for each fragment; starting a batch blocks with more than about a thousand copies in
     * flight */
    HW_GATHER_D2D,
    HW_GATHER_HOST, /* through pinned host memory, for comparison; starting a batch may block too */
    HW_GATHER_WAYS
};
extern const char *const hw_gather_way_names[HW_GATHER_WAYS]; /* "kernel", "d2d", "host" */

struct hw_gather;

/* Opens a gather. depth is the maximum number of batches in flight. frags is the size of the kernel's ring in entries,
 * which is rounded up to a power of two of at least 1024. A short fragment in flight occupies one entry, and a long
 * fragment several. */
int hw_gather_open(const struct hw_space *s, enum hw_gather_way way, unsigned depth, unsigned frags,
                   struct hw_gather **out);
/* Waits until all batches in flight are complete or the device is lost, and frees the gather. */
void hw_gather_close(struct hw_gather *g);

/*
 * Starts the first *taken of n fragments: all of them, or as many as the ring has space for. In the second case, call
 * again for the others. Batches are numbered 1, 2, 3, and so on, in the order in which they were started. The caller
 * may reuse frags on return.
 *
 * Fails with -EAGAIN if no fragment could be started, because the ring has too little space or depth batches are in
 * flight; call again when a batch has ended. Fails with -EFAULT if a fragment, which the error text names, is outside
 * its buffer; in this case no fragment is started. Fails with -EINVAL if the buffers overlap, or if the first fragment
 * is too long for the ring. Other errors are errors of the CUDA driver.
 */
int hw_gather_start(struct hw_gather *g, const struct hw_gather_bufs *b, const struct hw_frag *frags, size_t n,
                    size_t *taken);

/* Sets *upto to the number of the last batch that is complete together with all earlier batches. Fails with a negative
 * errno if the device has failed, after which no further batch will complete. */
int hw_gather_done(struct hw_gather *g, uint64_t *upto);

/* Returns the i-th CUstream of the gather, for measurements. Returns NULL past the last stream and in a direct space.
 * The kernel's batches run on the streams in round-robin order, so that the GPU can overlap the start of a batch with
 * the copies of earlier batches. */
void *hw_gather_stream(const struct hw_gather *g, unsigned i);

/*
 * An entry of the list that the kernel reads. The list is in host memory or, up to 64 entries, in the launch
 * parameters. The layout, 16 bytes per fragment, is that of the list that the GPUDirect-TCPX plugin writes for a kernel
 * (its loadMeta), so that the same kernel can read that list too. Offsets are relative to the addresses of the launch.
 * If the source is larger than 4 GiB, hw_gather_start() passes an address near the fragments. It also splits long
 * fragments, because a warp copies one entry at a time.
 */
struct hw_gather_entry {
    uint32_t src_off, len;
    uint64_t dst_off;
};

#endif

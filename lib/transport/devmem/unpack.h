/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata queue by which NCCL's own kernels put scattered payload in order (NCCL_NET_DEVICE_UNPACK, version 7), as
 * GPUDirect-TCPX's plugin fills it (facts/tcpx-plugin.md, "Handles and device handles"): host memory that the GPU reads
 * in place. What our gather does in dm_rx_post(), NCCL's kernel does with this after dm_rx_post_unpack().
 */
#ifndef HW_DEVMEM_UNPACK_H
#define HW_DEVMEM_UNPACK_H

#include "mem/gather.h"

#define DM_UNPACK_REQUESTS 16
#define DM_UNPACK_FRAGS    2048 /* of one request */

struct dm_unpack_queue {
    struct hw_gather_entry mem[DM_UNPACK_REQUESTS][DM_UNPACK_FRAGS]; /* loadMeta: the same layout */
    uint64_t cnt[DM_UNPACK_REQUESTS];                                /* entries that a kernel may read */
};

/* The requests of a connection are numbered 0, 1, 2...; request n has slot n % DM_UNPACK_REQUESTS. */
void dm_unpack_begin(struct dm_unpack_queue *q, uint64_t request);
/* One more fragment. -EOVERFLOW: more than DM_UNPACK_FRAGS, or an offset or length past 32 bits. */
int dm_unpack_add(struct dm_unpack_queue *q, uint64_t request, const struct hw_frag *f);

#endif

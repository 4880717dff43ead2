/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of kernels/gather.cu, loaded into a GPU's context. */
#ifndef HW_KERNELS_H
#define HW_KERNELS_H

#include "mem/cuda.h"

/* Maximum threads in a block, threads in a warp, and maximum entries in a launch of gather_few. */
enum { HW_KERNEL_THREADS = 256, HW_WARP = 32, HW_FEW = 64 };

struct hw_kernels {
    CUfunction gather;     /* (dst, src, const struct hw_gather_entry *list, u32 n, u32 each) */
    CUfunction gather_few; /* (dst, src, u32 n, struct hw_gather_entry list[HW_FEW]) */
    CUfunction fill;       /* (dst, u64 len, u64 seed, u64 pos) */
    CUfunction check;      /* (src, u64 len, u64 seed, u64 pos, u64 found[2]) */
};

/* Returns the functions for a GPU's space in *out. The driver compiles the functions on the first call for the space.
 * The functions stay valid as long as the process exists. */
int hw_kernels(const struct hw_space *s, const struct hw_kernels **out);

#endif

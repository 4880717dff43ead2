/* SPDX-License-Identifier: Apache-2.0 */
/* CPU versions of the functions in lib/mem/kernels/gather.cu, with the same parameters. The two gather functions also
 * divide the work among the warps of the grid as on a GPU, so that tests detect a grid that is too small. */
#include "fakecuda.h"

#include "base/pattern.h"
#include "mem/gather.h"

#include <string.h>

#define WARP            32u
#define THREADS         256u
#define FEW             64
#define FAULT           700 /* CUDA_ERROR_ILLEGAL_ADDRESS */
#define BAD_LAUNCH      701 /* CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, if a block exceeds __launch_bounds__ */
#define ARG(T, args, i) (*(const T *)(args)[i])

static CUresult copy(uint64_t dst, uint64_t src, const struct hw_gather_entry *e)
{
    if (e->len == 0)
        return CUDA_SUCCESS;
    void *to = fakecuda_alias(dst + e->dst_off, e->len);
    const void *from = fakecuda_alias(src + e->src_off, e->len);
    if (!to || !from)
        return FAULT;
    memcpy(to, from, e->len);
    return CUDA_SUCCESS;
}

static CUresult gather(const unsigned grid[3], const unsigned block[3], void **args)
{
    const uint64_t dst = ARG(uint64_t, args, 0), src = ARG(uint64_t, args, 1), list = ARG(uint64_t, args, 2);
    const uint32_t n = ARG(uint32_t, args, 3), each = ARG(uint32_t, args, 4);
    const uint32_t warps = grid[0] * (block[0] / WARP);

    if (block[0] > THREADS || block[0] % WARP || each == 0 || each > WARP)
        return BAD_LAUNCH;
    for (uint32_t warp = 0; warp < warps; warp++)
        for (uint64_t first = (uint64_t)warp * each; first < n; first += (uint64_t)warps * each)
            for (uint64_t i = first; i < n && i < first + each; i++) {
                const struct hw_gather_entry *e = fakecuda_alias(list + i * sizeof(*e), sizeof(*e));
                if (!e)
                    return FAULT;
                CUresult rc = copy(dst, src, e);
                if (rc)
                    return rc;
            }
    return CUDA_SUCCESS;
}

static CUresult gather_few(const unsigned grid[3], const unsigned block[3], void **args)
{
    const uint32_t n = ARG(uint32_t, args, 2), warps = grid[0] * (block[0] / WARP);
    const struct hw_gather_entry *list = args[3];
    CUresult rc = CUDA_SUCCESS;

    if (block[0] > THREADS || block[0] % WARP || n > FEW)
        return BAD_LAUNCH;
    for (uint32_t i = 0; rc == CUDA_SUCCESS && i < n && i < warps; i++)
        rc = copy(ARG(uint64_t, args, 0), ARG(uint64_t, args, 1), &list[i]);
    return rc;
}

static CUresult fill(const unsigned grid[3], const unsigned block[3], void **args)
{
    const uint64_t len = ARG(uint64_t, args, 1);
    void *to = fakecuda_alias(ARG(uint64_t, args, 0), len);
    (void)grid;
    if (block[0] > THREADS)
        return BAD_LAUNCH;
    if (!to)
        return FAULT;
    hw_pattern_fill(to, len, ARG(uint64_t, args, 2), ARG(uint64_t, args, 3));
    return CUDA_SUCCESS;
}

static CUresult check(const unsigned grid[3], const unsigned block[3], void **args)
{
    const uint64_t len = ARG(uint64_t, args, 1);
    const void *from = fakecuda_alias(ARG(uint64_t, args, 0), len);
    uint64_t *found = fakecuda_alias(ARG(uint64_t, args, 4), 16), first;
    (void)grid;
    if (block[0] > THREADS)
        return BAD_LAUNCH;
    if (!from || !found)
        return FAULT;
    uint64_t bad = hw_pattern_check(from, len, ARG(uint64_t, args, 2), ARG(uint64_t, args, 3), &first);
    found[0] += bad;
    if (bad && first < found[1])
        found[1] = first;
    return CUDA_SUCCESS;
}

__attribute__((constructor)) static void ours(void)
{
    fakecuda_kernel("hw_gather", gather, (const size_t[]){8, 8, 8, 4, 4}, 5);
    fakecuda_kernel("hw_gather_few", gather_few, (const size_t[]){8, 8, 4, FEW * sizeof(struct hw_gather_entry)}, 4);
    fakecuda_kernel("hw_pattern_fill", fill, (const size_t[]){8, 8, 8, 8}, 4);
    fakecuda_kernel("hw_pattern_check", check, (const size_t[]){8, 8, 8, 8, 8}, 5);
}

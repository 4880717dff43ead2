/* SPDX-License-Identifier: Apache-2.0 */
/* A library that has only two functions of the CUDA driver. */
#include "mem/cuda.h"

__attribute__((visibility("default"))) CUresult cuInit(unsigned flags);
__attribute__((visibility("default"))) CUresult cuDriverGetVersion(int *version);

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = 12080;
    return CUDA_SUCCESS;
}

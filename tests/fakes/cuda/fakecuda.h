/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver with no GPU, for tests: libfakecuda.so has the entry points of lib/mem/cuda.h and the helpers below.
 * A test links it and names the same file by HAWSER_CUDA_LIBRARY; a program under test only needs the environment.
 *
 * Its GPUs' memory lies at addresses that fault when the CPU touches them; asynchronous copies and kernels really
 * happen later, in order, on a thread for each stream. What real CUDA would punish is refused and counted.
 *
 * Environment, read at the first call:
 *   FAKECUDA_GPUS=2          how many; 0: cuInit says CUDA_ERROR_NO_DEVICE
 *   FAKECUDA_MEMORY=1024     of each, MiB
 *   FAKECUDA_PCI=a,b         their addresses; by default 0000:0A:00.0, 0000:0B:00.0...
 *   FAKECUDA_NUMA=-1         CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID of all of them
 *   FAKECUDA_VERSION=12080   cuDriverGetVersion
 *   FAKECUDA_DMABUF=1        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
 *   FAKECUDA_UDMABUF=0       1: what is exported is a true dma-buf, by /dev/udmabuf; 0: the memory's file,
 *                            at its offset
 *   FAKECUDA_COPY_US=0       what each asynchronous copy takes at least
 *   FAKECUDA_FAIL=f:n:c,...  the n-th call of entry point f ("cuMemAlloc_v2") returns c
 *   FAKECUDA_STALL=g:n       GPU g hangs before its n-th asynchronous copy
 *   FAKECUDA_REPORT=file     the counters as one line "name=value ...", appended at exit
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include "mem/cuda.h"

#define FAKECUDA_COUNTS(X)                                                                                           \
    X(to_device)   /* bytes copied from host to device */                                                            \
    X(from_device) /* and back */                                                                                    \
    X(within)      /* and between addresses of devices */                                                            \
    X(copies)      /* asynchronous ones that were done */                                                            \
    X(exported)    /* bytes of dma-bufs that were made */                                                            \
    X(kernels)     /* that were run */                                                                               \
    X(pageable)    /* asynchronous copies of host memory that is not pinned */                                       \
    X(misuse)      /* calls with a wrong context, dead handle, address outside allocations... */                     \
    X(blocking) /* calls that wait, or have us wait, for the application: cuCtxSynchronize, streams not NON_BLOCKING \
                 */                                                                                                  \
    X(allocations) /* from here on: what is alive */                                                                 \
    X(pins)                                                                                                          \
    X(streams)                                                                                                       \
    X(events)                                                                                                        \
    X(modules)                                                                                                       \
    X(entered) /* contexts pushed and not popped, of all threads */

struct fakecuda_counts {
#define X(name) uint64_t name;
    FAKECUDA_COUNTS(X)
#undef X
};

#define FAKECUDA_API __attribute__((visibility("default")))

FAKECUDA_API void fakecuda_count(struct fakecuda_counts *out);

/* The nth call of entry point `name` from now on (1: the next one) returns code and does nothing. */
FAKECUDA_API void fakecuda_fail(const char *name, unsigned nth, int code);
/* All streams of a GPU hang, or go on. */
FAKECUDA_API void fakecuda_stall(int device, bool on);
/* What a kernel that ran into a bad address does: every call in these contexts returns code. */
FAKECUDA_API void fakecuda_break(int device, int code);

/* A context besides the primary one; and its end, with all its memory. */
FAKECUDA_API CUcontext fakecuda_context(int device);
FAKECUDA_API void fakecuda_context_destroy(CUcontext ctx);
/* As an application would have it: cuMemAlloc in that context, cudaHostAlloc, cudaMallocManaged, and n mappings of
 * `piece` bytes side by side (cuMemMap), which belong to no context. NULL: no memory. */
FAKECUDA_API void *fakecuda_alloc(CUcontext ctx, size_t len);
FAKECUDA_API void *fakecuda_host_alloc(size_t len);
FAKECUDA_API void *fakecuda_managed(size_t len);
FAKECUDA_API void *fakecuda_mappings(int device, size_t piece, unsigned n);
FAKECUDA_API void fakecuda_free(void *ptr); /* one allocation or mapping */

/* Where the CPU can see [ptr, ptr+len) of device or pinned memory; NULL: it is not (all) memory of CUDA's. */
FAKECUDA_API void *fakecuda_alias(CUdeviceptr ptr, size_t len);

/* Any module has a function of this name from now on: fn on the stream's thread. args points to copies of the n
 * parameters, of these sizes; addresses in them go through fakecuda_alias(). It returns a CUresult. */
typedef CUresult fakecuda_fn(const unsigned grid[3], const unsigned block[3], void **args);
FAKECUDA_API void fakecuda_kernel(const char *name, fakecuda_fn *fn, const size_t *sizes, unsigned n);

#endif

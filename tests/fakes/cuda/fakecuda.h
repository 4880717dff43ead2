/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake CUDA driver for tests, which needs no GPU: libfakecuda.so has the entry points of lib/mem/cuda.h and the
 * helpers below. A test links the library and sets HAWSER_CUDA_LIBRARY to the same file. A program under test needs
 * only the environment variables.
 *
 * GPU memory has addresses that fault when the CPU accesses them. Asynchronous copies and kernels run later, in order,
 * on a thread for each stream. The fake refuses and counts many calls that real CUDA would not allow.
 *
 * Environment variables, read when the library is loaded, with their defaults:
 *   FAKECUDA_GPUS=2          number of GPUs; 0: cuInit returns CUDA_ERROR_NO_DEVICE
 *   FAKECUDA_MEMORY=1024     memory of each GPU in MiB
 *   FAKECUDA_PCI=a,b         PCI addresses; default 0000:0A:00.0, 0000:0B:00.0...
 *   FAKECUDA_NUMA=-1         CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID of every GPU
 *   FAKECUDA_VERSION=12080   cuDriverGetVersion
 *   FAKECUDA_DMABUF=1        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
 *   FAKECUDA_UDMABUF=0       1: exports real dma-bufs created by /dev/udmabuf; 0: exports the file that
 *                            contains the memory, positioned at the memory's offset
 *   FAKECUDA_COPY_US=0       minimum time of an asynchronous copy
 *   FAKECUDA_FAIL=f:n:c,...  the n-th call of entry point f ("cuMemAlloc_v2") returns c
 *   FAKECUDA_STALL=g:n       GPU g hangs before its n-th asynchronous copy
 *   FAKECUDA_REPORT=file     at exit, appends the counters as one line "name=value ..."
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include "mem/cuda.h"

#define FAKECUDA_COUNTS(X)                                                                              \
    X(to_device)   /* bytes copied from host to device */                                               \
    X(from_device) /* bytes copied from device to host */                                               \
    X(within)      /* bytes copied between device addresses */                                          \
    X(copies)      /* completed asynchronous copies */                                                  \
    X(exported)    /* bytes of exported dma-bufs */                                                     \
    X(kernels)     /* kernels that ran */                                                               \
    X(pageable)    /* asynchronous copies of host memory that is not pinned */                          \
    X(misuse)      /* calls with a wrong context, dead handle, address outside allocations... */        \
    X(blocking)    /* calls that wait for the application's work: cuCtxSynchronize, blocking streams */ \
    X(allocations) /* from here on, the numbers of existing objects */                                  \
    X(pins)                                                                                             \
    X(streams)                                                                                          \
    X(events)                                                                                           \
    X(modules)                                                                                          \
    X(entered) /* contexts that were pushed but not popped, in all threads */

struct fakecuda_counts {
#define X(name) uint64_t name;
    FAKECUDA_COUNTS(X)
#undef X
};

#define FAKECUDA_API __attribute__((visibility("default")))

FAKECUDA_API void fakecuda_count(struct fakecuda_counts *out);

/* Makes the nth call of entry point `name` from now on (1 is the next call) return `code` without any effect. */
FAKECUDA_API void fakecuda_fail(const char *name, unsigned nth, int code);
/* Makes all streams of a GPU hang, or lets them continue. */
FAKECUDA_API void fakecuda_stall(int device, bool on);
/* Simulates a kernel that accesses an invalid address: from now on, all calls in the GPU's existing contexts return
 * `code`. */
FAKECUDA_API void fakecuda_break(int device, int code);

/* Create a non-primary context, and destroy one together with its device memory. */
FAKECUDA_API CUcontext fakecuda_context(int device);
FAKECUDA_API void fakecuda_context_destroy(CUcontext ctx);
/* Allocate memory as an application would: with cuMemAlloc in that context, cudaHostAlloc, cudaMallocManaged, and as n
 * adjacent mappings of `piece` bytes (cuMemMap), which belong to no context. Return NULL if no memory is left. */
FAKECUDA_API void *fakecuda_alloc(CUcontext ctx, size_t len);
FAKECUDA_API void *fakecuda_host_alloc(size_t len);
FAKECUDA_API void *fakecuda_managed(size_t len);
FAKECUDA_API void *fakecuda_mappings(int device, size_t piece, unsigned n);
FAKECUDA_API void fakecuda_free(void *ptr); /* one allocation or mapping */

/* Returns the address at which the CPU can access the range [ptr, ptr+len) of device, pinned or managed memory. Returns
 * NULL if the range is not entirely such memory. */
FAKECUDA_API void *fakecuda_alias(CUdeviceptr ptr, size_t len);

/* Adds a function with this name, which runs fn on the stream's thread, to all modules. args points to copies of the n
 * parameters, which have these sizes. Addresses in the parameters can be converted with fakecuda_alias(). fn returns a
 * CUresult. */
typedef CUresult fakecuda_fn(const unsigned grid[3], const unsigned block[3], void **args);
FAKECUDA_API void fakecuda_kernel(const char *name, fakecuda_fn *fn, const size_t *sizes, unsigned n);

#endif

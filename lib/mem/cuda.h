/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver. libcuda.so.1, or the file that environment variable HAWSER_CUDA_LIBRARY names, is loaded with
 * dlopen() on first use, so a process that never uses GPUs or their memory does not load the library. The library is
 * loaded once and never unloaded. A failure is final, and the reason is kept. The prototypes were written from the
 * documentation of the driver API. The versioned names (cuMemAlloc_v2...) are those of CUDA 11 and later.
 */
#ifndef HW_CUDA_H
#define HW_CUDA_H

#include "base/base.h"
#include "mem/space.h"

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct {
    char reserved[64]; /* CU_IPC_HANDLE_SIZE */
} CUipcMemHandle;

/* Values of the driver API's enums that are used here (section "Data types used by CUDA driver" of its reference
 * manual). */
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_NOT_SUPPORTED = 801,

    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,

    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,

    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,

    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP = 2,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
    CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1, /* CUDA 12.8 and later */
};

/* The entry points in use, as X(name, symbol, parameters). */
#define HW_CUDA_CALLS(X)                                                                                             \
    X(Init, "cuInit", (unsigned flags))                                                                              \
    X(DriverGetVersion, "cuDriverGetVersion", (int *version))                                                        \
    X(GetErrorName, "cuGetErrorName", (CUresult rc, const char **text))                                              \
    X(GetErrorString, "cuGetErrorString", (CUresult rc, const char **text))                                          \
    X(DeviceGetCount, "cuDeviceGetCount", (int *n))                                                                  \
    X(DeviceGet, "cuDeviceGet", (CUdevice * dev, int ordinal))                                                       \
    X(DeviceGetName, "cuDeviceGetName", (char *name, int len, CUdevice dev))                                         \
    X(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *id, int len, CUdevice dev))                                   \
    X(DeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice dev))                         \
    X(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice dev))                                         \
    X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * ctx, CUdevice dev))                           \
    X(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext ctx))                                                        \
    X(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext * ctx))                                                        \
    X(CtxSynchronize, "cuCtxSynchronize", (void))                                                                    \
    X(PointerGetAttribute, "cuPointerGetAttribute", (void *value, int attribute, CUdeviceptr ptr))                   \
    X(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr * ptr, size_t len))                                                    \
    X(MemFree, "cuMemFree_v2", (CUdeviceptr ptr))                                                                    \
    X(MemHostRegister, "cuMemHostRegister_v2", (void *ptr, size_t len, unsigned flags))                              \
    X(MemHostUnregister, "cuMemHostUnregister", (void *ptr))                                                         \
    X(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr * dev, void *host, unsigned flags))      \
    X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *to, CUdeviceptr from, size_t len, CUstream stream))            \
    X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr to, const void *from, size_t len, CUstream stream))      \
    X(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr to, CUdeviceptr from, size_t len, CUstream stream))      \
    X(StreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                                           \
    X(StreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                                        \
    X(StreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                                   \
    X(EventCreate, "cuEventCreate", (CUevent * event, unsigned flags))                                               \
    X(EventDestroy, "cuEventDestroy_v2", (CUevent event))                                                            \
    X(EventRecord, "cuEventRecord", (CUevent event, CUstream stream))                                                \
    X(EventQuery, "cuEventQuery", (CUevent event))                                                                   \
    X(EventElapsedTime, "cuEventElapsedTime", (float *ms, CUevent from, CUevent to))                                 \
    X(ModuleLoadData, "cuModuleLoadData", (CUmodule * module, const void *image))                                    \
    X(ModuleUnload, "cuModuleUnload", (CUmodule module))                                                             \
    X(ModuleGetFunction, "cuModuleGetFunction", (CUfunction * fn, CUmodule module, const char *name))                \
    X(LaunchKernel, "cuLaunchKernel",                                                                                \
      (CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
       CUstream stream, void **args, void **extra))                                                                  \
    X(IpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle * handle, CUdeviceptr ptr))                              \
    X(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr * ptr, CUipcMemHandle handle, unsigned flags))         \
    X(IpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr ptr))                                                   \
    X(MemGetHandleForAddressRange, "cuMemGetHandleForAddressRange",                                                  \
      (void *handle, CUdeviceptr ptr, size_t len, int type, unsigned long long flags))

/* NOLINTBEGIN(bugprone-macro-parentheses): the arguments are a name and a parameter list */
struct hw_cuda {
#define X(name, symbol, params) CUresult(*name) params;
    HW_CUDA_CALLS(X)
#undef X
};
/* NOLINTEND(bugprone-macro-parentheses) */

/* Returns the initialised driver in *out. Fails with -ENODEV if there is no usable driver or the driver finds no GPU,
 * and with -EOPNOTSUPP in a forked child of the process that loaded the driver. Other errors of the driver are also
 * returned. */
int hw_cuda(const struct hw_cuda **out);

/* Sets the error text to "WHAT: CUDA_ERROR_X (the driver's description)" and returns the matching negative errno. */
int hw_cuda_fail(CUresult rc, const char *fmt, ...) HW_PRINTF(2, 3);

/* Properties of a GPU, which is selected by the driver's ordinal. */
struct hw_gpu_info {
    char name[64];
    char pci[16];     /* such as "0000:19:00.0", in lower case as in sysfs */
    uint64_t memory;  /* bytes */
    int major, minor; /* compute capability */
    bool dmabuf;      /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
    bool gpudirect;   /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED */
};
int hw_cuda_count(void); /* returns the number of GPUs or a negative errno */
int hw_cuda_info(int device, struct hw_gpu_info *out);
int hw_cuda_driver_version(void); /* returns a number such as 12040 for 12.4, or a negative errno */

/* Makes the space's context current in the calling thread until hw_cuda_leave(). The other functions in this file need
 * no current context. */
int hw_cuda_enter(const struct hw_space *s);
void hw_cuda_leave(void);

/* Returns the alignment in bytes that a GPU's dma-buf, and its mapping by a NIC, requires. */
size_t hw_cuda_page(void);

/* Exports [ptr, ptr+len) of a GPU's memory as a dma-buf. Returns the descriptor, which the caller closes, or a negative
 * errno. Fails with -EINVAL if ptr or len is not a multiple of the page size or len is 0, and with -EOPNOTSUPP if the
 * GPU or its driver does not support dma-bufs; the error text then states what is missing. pcie requests a mapping
 * through BAR1 (flag CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE) if the driver supports the flag. */
int hw_cuda_export(const struct hw_space *s, const void *ptr, size_t len, bool pcie);

/* Sets *len to the number of bytes from ptr to the end of its allocation. Fails with -EINVAL if ptr is not memory of
 * this GPU. */
int hw_cuda_rest(const struct hw_space *s, const void *ptr, size_t *len);

/* Sets *out to a handle that another process can use to open the cuMemAlloc allocation around ptr, and *offset to the
 * position of ptr in the allocation. The allocation must not be freed before the other process has closed it. If this
 * process ends, the other process's addresses stay valid (seen on an H100 with driver 580). The other process cannot
 * export the opened memory as a dma-buf (CUDA_ERROR_INVALID_VALUE on the same machine). Fails with -EOPNOTSUPP or
 * another negative errno if the memory cannot be shared. */
int hw_cuda_ipc_share(const struct hw_space *s, const void *ptr, CUipcMemHandle *out, uint64_t *offset);
/* Opens len bytes at offset of an allocation that another process shares. Fails with -EPROTO if the allocation is too
 * small. */
int hw_cuda_ipc_open(const struct hw_space *s, const CUipcMemHandle *handle, uint64_t offset, size_t len, void **out);
void hw_cuda_ipc_close(const struct hw_space *s, void *ptr, uint64_t offset);

/* Implement hw_space_find() and hw_space_device() for HAWSER_MEM_CUDA. */
int hw_cuda_find(const void *ptr, size_t len, const struct hw_space **out);
int hw_cuda_device(int device, const struct hw_space **out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, by dlopen of libcuda.so.1 (environment HAWSER_CUDA_LIBRARY: another file) the first time that
 * anything asks for it: a process that never does is never touched by it. Loaded once and never unloaded; what failed
 * stays failed with its reason. Prototypes are ours, written from the driver API's documentation; the versioned names
 * (cuMemAlloc_v2...) are the ones of CUDA 11 and later.
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

/* The numbers of the driver API's enums, "Data types used by CUDA driver" of its reference manual; those in use here.
 */
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

/* The entry points, X(name, symbol, parameters). Only what is used here. */
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

/* NOLINTBEGIN(bugprone-macro-parentheses): a name and a parameter list */
struct hw_cuda {
#define X(name, symbol, params) CUresult(*name) params;
    HW_CUDA_CALLS(X)
#undef X
};
/* NOLINTEND(bugprone-macro-parentheses) */

/* The driver, initialised. -ENODEV where there is none, or it finds no GPU; the text names the library and why. */
int hw_cuda(const struct hw_cuda **out);

/* Sets the text to "WHAT: CUDA_ERROR_X (its own words)" and returns the errno that fits. */
int hw_cuda_fail(CUresult rc, const char *fmt, ...) HW_PRINTF(2, 3);

/* What the machine's GPUs are, by the driver's ordinals. */
struct hw_gpu_info {
    char name[64];
    char pci[16];     /* "0000:19:00.0", lower case as in sysfs */
    uint64_t memory;  /* bytes */
    int major, minor; /* compute capability */
    bool dmabuf;      /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
    bool gpudirect;   /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED */
};
int hw_cuda_count(void); /* of GPUs, or -errno */
int hw_cuda_info(int device, struct hw_gpu_info *out);
int hw_cuda_driver_version(void); /* 12040 for 12.4, or -errno */

/* Makes the space's context the calling thread's until leave(). Every other function here does so itself. */
int hw_cuda_enter(const struct hw_space *s);
void hw_cuda_leave(void);

/* What dma-bufs of a GPU, and their mapping by a NIC, want: multiples of this, in bytes. */
size_t hw_cuda_page(void);

/* A dma-buf of [ptr, ptr+len) of a GPU's memory; the caller closes it. Both must be multiples of the page size
 * (-EINVAL), the GPU and its driver able to (-EOPNOTSUPP; the text names what is missing). pcie: map by BAR1 (flag
 * CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE), where the driver knows it. Returns the descriptor or -errno. */
int hw_cuda_export(const struct hw_space *s, const void *ptr, size_t len, bool pcie);

/* *len: from ptr to the end of its allocation. -EINVAL: ptr is not this GPU's. */
int hw_cuda_rest(const struct hw_space *s, const void *ptr, size_t *len);

/* What another process needs to open the allocation around ptr, of cuMemAlloc's: and where in it ptr lies. It must not
 * be freed before the other has closed it. The end of this process is no harm: the other one's addresses stay good
 * (seen on an H100, driver 580). What was opened cannot be exported as a dma-buf there (CUDA_ERROR_INVALID_VALUE,
 * likewise). -EOPNOTSUPP and others: not to be had. */
int hw_cuda_ipc_share(const struct hw_space *s, const void *ptr, CUipcMemHandle *out, uint64_t *offset);
/* In the other process, never the same: len bytes at offset of it. -EPROTO: it is smaller. */
int hw_cuda_ipc_open(const struct hw_space *s, const CUipcMemHandle *handle, uint64_t offset, size_t len, void **out);
void hw_cuda_ipc_close(const struct hw_space *s, void *ptr, uint64_t offset);

/* hw_space_find() and hw_space_device() for HAWSER_MEM_CUDA. */
int hw_cuda_find(const void *ptr, size_t len, const struct hw_space **out);
int hw_cuda_device(int device, const struct hw_space **out);

#endif

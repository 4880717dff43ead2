/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and initialises the driver, maps its errors and reads the properties of GPUs. */
#include "mem/cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hw_cuda driver;
static int gpus;
static atomic_int
    state; /* 0 before the first attempt, 1 if driver is valid, or a negative errno with the text in reason */
static char reason[HW_ERR_TEXT];
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t owner; /* process that loaded the driver; the state of cuInit() does not survive fork() */

static int errno_of(CUresult rc)
{
    switch (rc) {
    case CUDA_ERROR_INVALID_VALUE:
        return -EINVAL;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
        return -ENODEV;
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
        return -EALREADY;
    case CUDA_ERROR_NOT_SUPPORTED:
        return -EOPNOTSUPP;
    default:
        return -EIO;
    }
}

int hw_cuda_fail(CUresult rc, const char *fmt, ...)
{
    char what[HW_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    const char *name = NULL, *text = NULL;
    if (!driver.GetErrorName || driver.GetErrorName(rc, &name) != CUDA_SUCCESS || !name)
        return hw_fail(errno_of(rc), "%s: CUDA error %d", what, rc);
    if (driver.GetErrorString(rc, &text) != CUDA_SUCCESS || !text)
        text = "no description";
    return hw_fail(errno_of(rc), "%s: %s (%s)", what, name, text);
}

/* Returns true for the entry point that drivers before CUDA 11.7 lack. Only the export of dma-bufs needs it, and
 * reports its absence. */
static bool may_lack(const char *symbol)
{
    return strcmp(symbol, "cuMemGetHandleForAddressRange") == 0;
}

static int load_cuda_driver(void)
{
    static const char *const symbols[] = {
#define X(name, symbol, params) symbol,
        HW_CUDA_CALLS(X)
#undef X
    };
    _Static_assert(sizeof(driver) == sizeof(symbols), "a pointer for each symbol");

    const char *name = secure_getenv("HAWSER_CUDA_LIBRARY");
    if (!name || !*name)
        name = "libcuda.so.1";
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return hw_fail(
            -ENODEV,
            "no CUDA driver: %s; install NVIDIA's driver or set HAWSER_CUDA_LIBRARY to the path of libcuda.so.1",
            dlerror());
    /* The library is never unloaded, because an initialised driver has running threads. */
    struct hw_cuda found;
    for (size_t i = 0; i < HW_ARRAY_LEN(symbols); i++) {
        void *entry = dlsym(lib, symbols[i]);
        if (!entry && !may_lack(symbols[i]))
            return hw_fail(-ENODEV, "CUDA driver %s has no %s; install a driver for CUDA 11 or later", name,
                           symbols[i]);
        memcpy((char *)&found + i * sizeof(entry), &entry,
               sizeof(entry)); /* POSIX: dlsym() may return function pointers */
    }
    driver = found;

    CUresult rc = driver.Init(0);
    if (rc == CUDA_ERROR_NOT_INITIALIZED)
        return hw_cuda_fail(rc, "cuInit of %s (did this process fork after it used CUDA?)", name);
    if (rc != CUDA_SUCCESS)
        return hw_cuda_fail(rc, "cuInit of %s", name);
    rc = driver.DeviceGetCount(&gpus);
    if (rc != CUDA_SUCCESS)
        return hw_cuda_fail(rc, "cuDeviceGetCount of %s", name);
    if (gpus <= 0)
        return hw_fail(-ENODEV, "CUDA driver %s finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES", name);
    return 1;
}

int hw_cuda(const struct hw_cuda **out)
{
    int s = atomic_load(&state);
    /* reads owner first, because even a failed exchange takes the cache line from the other threads */
    pid_t me = getpid(), first = atomic_load(&owner);
    if (s >= 0 && first == 0 && atomic_compare_exchange_strong(&owner, &first, me))
        first = me;
    if (s >= 0 && first != me)
        return hw_fail(-EOPNOTSUPP,
                       "CUDA does not work after fork: process %d loaded CUDA, and process %d was forked from that "
                       "process; fork before the first use of GPU memory, or exec",
                       (int)first, (int)me);
    if (s == 0) {
        pthread_mutex_lock(&loading);
        s = atomic_load(&state);
        if (s == 0) {
            s = load_cuda_driver();
            if (s < 0)
                snprintf(reason, sizeof(reason), "%s", hw_error());
            atomic_store(&state, s);
        }
        pthread_mutex_unlock(&loading);
    }
    if (s < 0)
        return hw_fail_copy(s, reason);
    *out = &driver;
    return 0;
}

int hw_cuda_count(void)
{
    const struct hw_cuda *cu;
    int rc = hw_cuda(&cu);
    return rc < 0 ? rc : gpus;
}

int hw_cuda_driver_version(void)
{
    const struct hw_cuda *cu;
    int rc = hw_cuda(&cu), version = 0;
    if (rc < 0)
        return rc;
    CUresult e = cu->DriverGetVersion(&version);
    return e ? hw_cuda_fail(e, "reading the CUDA driver's version") : version;
}

int hw_cuda_info(int device, struct hw_gpu_info *out)
{
    const struct hw_cuda *cu;
    int rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    if (device < 0 || device >= gpus)
        return hw_fail(-ENODEV, "GPU %d does not exist: the number of GPUs is %d", device, gpus);

    CUdevice dev;
    size_t memory = 0;
    int dmabuf = 0, gpudirect = 0;
    memset(out, 0, sizeof(*out));
    CUresult e = cu->DeviceGet(&dev, device);
    if (!e)
        e = cu->DeviceGetName(out->name, sizeof(out->name), dev);
    if (!e)
        e = cu->DeviceGetPCIBusId(out->pci, sizeof(out->pci), dev);
    if (!e)
        e = cu->DeviceTotalMem(&memory, dev);
    if (!e)
        e = cu->DeviceGetAttribute(&out->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
    if (!e)
        e = cu->DeviceGetAttribute(&out->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
    if (e)
        return hw_cuda_fail(e, "reading the properties of GPU %d", device);
    /* A driver that is older than an attribute reports the attribute as invalid, and also lacks the feature. */
    (void)cu->DeviceGetAttribute(&dmabuf, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, dev);
    (void)cu->DeviceGetAttribute(&gpudirect, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, dev);
    for (char *c = out->pci; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    out->memory = memory;
    out->dmabuf = dmabuf != 0;
    out->gpudirect = gpudirect != 0;
    return 0;
}

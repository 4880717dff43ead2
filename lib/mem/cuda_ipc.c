/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory shared between processes, through cuIpcGetMemHandle() and related calls. */
#include "mem/cuda.h"

#include <stdio.h>

int hw_cuda_rest(const struct hw_space *s, const void *ptr, size_t *len)
{
    const struct hw_cuda *cu;
    CUdeviceptr start = 0, at = (uintptr_t)ptr;
    size_t size = 0;
    int device = -1, rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    CUresult e = cu->PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    if (!e)
        e = cu->PointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
    if (!e)
        e = cu->PointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
    if (e)
        return hw_cuda_fail(e, "querying CUDA about the memory at %p of %s", ptr, s->name);
    if (device != s->device || at < start || at - start >= size)
        return hw_fail(-EINVAL, "%p is not memory of %s", ptr, s->name);
    *len = (size_t)(start + size - at);
    return 0;
}

int hw_cuda_ipc_share(const struct hw_space *s, const void *ptr, CUipcMemHandle *out, uint64_t *offset)
{
    const struct hw_cuda *cu;
    CUdeviceptr start = 0;
    int rc = hw_cuda(&cu);
    if (rc == 0)
        rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUresult e = cu->PointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (uintptr_t)ptr);
    if (!e)
        e = cu->IpcGetMemHandle(out, start);
    hw_cuda_leave();
    if (e)
        return hw_cuda_fail(e, "sharing memory of %s with another process", s->name);
    *offset = (uintptr_t)ptr - start;
    return 0;
}

void hw_cuda_ipc_close(const struct hw_space *s, void *ptr, uint64_t offset)
{
    const struct hw_cuda *cu;
    if (!ptr || hw_cuda(&cu) < 0 || hw_cuda_enter(s) < 0)
        return;
    (void)cu->IpcCloseMemHandle((uintptr_t)ptr - offset);
    hw_cuda_leave();
}

int hw_cuda_ipc_open(const struct hw_space *s, const CUipcMemHandle *handle, uint64_t offset, size_t len, void **out)
{
    const struct hw_cuda *cu;
    CUdeviceptr base = 0;
    size_t there = 0;
    int rc = hw_cuda(&cu);
    if (rc == 0)
        rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUresult e = cu->IpcOpenMemHandle(&base, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    hw_cuda_leave();
    if (e)
        return hw_cuda_fail(e, "opening memory of %s that another process shares", s->name);
    rc = hw_cuda_rest(s, (void *)(uintptr_t)base, &there);
    if (rc == 0 && (offset > there || len > there - offset))
        rc = hw_fail(-EPROTO, "another process shares %zu bytes of %s, but %zu bytes at offset %llu are needed", there,
                     s->name, len, (unsigned long long)offset);
    if (rc < 0) {
        HW_KEEP_ERROR();
        hw_cuda_ipc_close(s, (void *)(uintptr_t)base, 0);
        return rc;
    }
    *out = (void *)(uintptr_t)(base + offset);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory as dma-bufs, which NICs can read and write. */
#include "mem/cuda.h"
#include "mem/dmabuf.h"

#include <fcntl.h>
#include <unistd.h>

size_t hw_cuda_page(void)
{
    return HW_MAX((size_t)sysconf(_SC_PAGESIZE), (size_t)4096);
}

int hw_cuda_export(const struct hw_space *s, const void *ptr, size_t len, bool pcie)
{
    const size_t page = hw_cuda_page();
    int version = hw_cuda_driver_version(), fd = -1;
    struct hw_gpu_info info;
    if (version < 0)
        return version;
    if (s->device < 0)
        return hw_fail(-EINVAL, "cannot export %s memory as a dma-buf: only GPU memory can be exported", s->name);
    if (len == 0 || (uintptr_t)ptr % page || len % page)
        return hw_fail(
            -EINVAL,
            "cannot export %zu bytes at %p as a dma-buf: the address and the length, which must not be 0, must be "
            "multiples of the page size, %zu",
            len, ptr, page);
    int rc = hw_cuda_info(s->device, &info);
    if (rc < 0)
        return rc;
    const struct hw_cuda *cu;
    if ((rc = hw_cuda(&cu)) < 0)
        return rc;
    if (!cu->MemGetHandleForAddressRange)
        return hw_fail(-EOPNOTSUPP,
                       "cannot export memory of %s as a dma-buf: the driver (CUDA %d.%d) has no "
                       "cuMemGetHandleForAddressRange: install a "
                       "driver for CUDA 11.7 or later",
                       s->name, version / 1000, version % 1000 / 10);
    if (!info.dmabuf)
        return hw_fail(-EOPNOTSUPP,
                       "cannot export memory of %s (%s) as a dma-buf: the driver does not support it "
                       "(DMA_BUF_SUPPORTED=0); this needs NVIDIA's open "
                       "kernel modules, Linux 5.12 or later, and a Turing or newer GPU",
                       s->name, info.name);
    rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUresult e =
        cu->MemGetHandleForAddressRange(&fd, (uintptr_t)ptr, len, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                        pcie && version >= 12080 ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0);
    hw_cuda_leave();
    if (e)
        return hw_cuda_fail(e, "exporting %zu bytes at %p of %s as a dma-buf", len, ptr, s->name);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* Exports the pages through BAR1, which is the NICs' view of the memory, or with the default mapping if the driver does
 * not support this. */
static int export_pages(const struct hw_space *s, uint8_t *base, size_t size, struct hw_dmabuf *out)
{
    int fd = hw_cuda_export(s, base, size, true);
    if (fd == -EOPNOTSUPP || fd == -EINVAL)
        fd = hw_cuda_export(s, base, size, false);
    if (fd < 0)
        return fd;
    *out = (struct hw_dmabuf){.fd = fd, .base = base, .size = size, .id = hw_cuda_dmabuf_id(s, base)};
    return 0;
}

int hw_cuda_dmabuf_alloc(const struct hw_space *s, size_t len, struct hw_dmabuf *out)
{
    void *p;
    const size_t page = hw_cuda_page(), whole = (len + page - 1) / page * page;
    int rc = s->ops->alloc(s, whole, &p);
    if (rc == 0 && (rc = export_pages(s, p, whole, out)) != 0)
        s->ops->free(s, p, whole);
    return rc;
}

void hw_cuda_dmabuf_free(const struct hw_space *s, struct hw_dmabuf *b)
{
    hw_close(&b->fd);
    s->ops->free(s, b->base, b->size);
}

/* Exports no more than the windows that [ptr, ptr+near) touches, because the kernel allocates memory for each page that
 * is bound for sending. */
int hw_cuda_dmabuf_of(const struct hw_space *s, const void *ptr, size_t near, size_t window, struct hw_dmabuf *out)
{
    const struct hw_cuda *cu;
    CUdeviceptr start = 0;
    size_t len = 0;
    const size_t page = hw_cuda_page();
    int rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    CUresult e = cu->PointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (CUdeviceptr)(uintptr_t)ptr);
    if (!e)
        e = cu->PointerGetAttribute(&len, CU_POINTER_ATTRIBUTE_RANGE_SIZE, (CUdeviceptr)(uintptr_t)ptr);
    if (e)
        return hw_cuda_fail(e, "querying CUDA about the allocation around %p of %s", ptr, s->name);
    CUdeviceptr from = (start + page - 1) / page * page, to = (start + len) / page * page;
    CUdeviceptr low = (uintptr_t)ptr & ~(CUdeviceptr)(window - 1);
    CUdeviceptr high = ((uintptr_t)ptr + near + window - 1) & ~(CUdeviceptr)(window - 1);
    from = HW_MAX(from, low);
    to = HW_MIN(to, high);
    if ((uintptr_t)ptr < from || (uintptr_t)ptr >= to)
        return hw_fail(-ERANGE, "%p of %s is on a page that its allocation does not fill", ptr, s->name);
    return export_pages(s, (uint8_t *)(uintptr_t)from, (size_t)(to - from), out);
}

uint64_t hw_cuda_dmabuf_id(const struct hw_space *s, const void *ptr)
{
    const struct hw_cuda *cu;
    unsigned long long id = 0;
    (void)s;
    if (hw_cuda(&cu) < 0 || cu->PointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)ptr))
        return 0;
    return id;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory as a dma-buf, created from a sealed memfd through /dev/udmabuf (linux/udmabuf.h). Such memory replaces
 * GPU memory on machines without a GPU.
 */
#include "mem/dmabuf.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define UDMABUF "/dev/udmabuf"

int hw_udmabuf_alloc(const struct hw_space *s, size_t len, struct hw_dmabuf *out)
{
    static _Atomic uint64_t ids;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (len + page - 1) / page * page;
    int rc = 0, fd = -1, dev = open(UDMABUF, O_RDWR | O_CLOEXEC);
    if (dev < 0)
        return hw_fail(errno == ENOENT ? -EOPNOTSUPP : -errno,
                       "cannot make a dma-buf of %s memory: %s: %s; load the kernel module udmabuf, and check the "
                       "permissions of the device",
                       s->name, UDMABUF, strerror(errno));
    int mem = memfd_create("hawser-dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* drivers/dma-buf/udmabuf.c: F_SEAL_SHRINK must be set and F_SEAL_WRITE must not */
    if (mem < 0 || ftruncate(mem, (off_t)whole) || fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK)) {
        rc = hw_fail(-errno, "creating a memfd of %zu bytes for a dma-buf: %s", whole, strerror(errno));
        goto close_fds;
    }
    struct udmabuf_create create = {.memfd = (unsigned)mem, .flags = UDMABUF_FLAGS_CLOEXEC, .size = whole};
    fd = ioctl(dev, UDMABUF_CREATE, &create);
    if (fd < 0) {
        rc = hw_fail(-errno, "creating a dma-buf of %zu bytes with %s: %s%s", whole, UDMABUF, strerror(errno),
                     errno == EINVAL ? "; the module parameter size_limit_mb of udmabuf may be too small" : "");
        goto close_fds;
    }
    void *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
    if (base == MAP_FAILED) {
        rc = hw_fail(-errno, "mapping %zu bytes: %s", whole, strerror(errno));
        hw_close(&fd);
        goto close_fds;
    }
    (void)madvise(base, whole, MADV_DONTFORK);
    *out = (struct hw_dmabuf){.fd = fd, .base = base, .size = whole, .id = atomic_fetch_add(&ids, 1) + 1};
close_fds:
    hw_close(&mem);
    hw_close(&dev);
    return rc;
}

void hw_udmabuf_free(const struct hw_space *s, struct hw_dmabuf *b)
{
    (void)s;
    (void)munmap(b->base, b->size);
    hw_close(&b->fd);
}

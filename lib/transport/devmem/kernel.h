/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's devmem TCP on one connected socket: recvmsg(MSG_SOCK_DEVMEM) as a list of pieces, the return of pages,
 * and sending from a dma-buf. See Documentation/networking/devmem.rst; net/ipv4/tcp.c, tcp_recvmsg_dmabuf();
 * net/core/sock.c, sock_devmem_dontneed().
 */
#ifndef HW_DEVMEM_KERNEL_H
#define HW_DEVMEM_KERNEL_H

#include "base/base.h"

#include <sys/socket.h>

/* Constants that Debian 12's headers lack: include/linux/socket.h, include/uapi/asm-generic/socket.h,
 * include/uapi/linux/uio.h. */
#define DM_MSG_SOCK_DEVMEM    0x2000000
#define DM_SCM_DEVMEM_LINEAR  78
#define DM_SCM_DEVMEM_DMABUF  79
#define DM_SO_DEVMEM_DONTNEED 80
#define DM_TOKENS_MAX         128  /* maximum number of token ranges in one call */
#define DM_FRAGS_MAX          1024 /* maximum number of fragments that one call may return */

struct dm_dmabuf_cmsg {
    uint64_t frag_offset;
    uint32_t frag_size, frag_token, dmabuf_id, flags;
};

struct dm_token_range {
    uint32_t start, count;
};

/* The location of the next bytes of the stream. */
struct dm_piece {
    bool device;     /* true: in the dma-buf; false: in the caller's buffer, after the earlier pieces in this buffer */
    uint64_t offset; /* device: offset in the dma-buf */
    uint32_t len;
    uint32_t token; /* device: token that must be returned once the piece is no longer read */
    uint32_t dmabuf_id;
};

#define DM_PIECES 128 /* maximum number of pieces that dm_recv() returns */

struct dm_received {
    struct dm_piece piece[DM_PIECES];
    unsigned n;
    bool plain; /* ordinary data: the connection is not steered to a bound queue, or its headers are not split */
};

/*
 * Receives at most len bytes from fd. host must have len bytes, because any of the data may be ordinary data. Returns
 * the number of bytes and describes them in *out. Returns 0 if the peer has closed the connection. Fails with -EAGAIN
 * if nothing has arrived, with -EBUSY if the kernel lacks memory, with -EPROTO if the kernel's description is
 * inconsistent, or with another error of recvmsg(). ENODEV is final: a small unsplit segment after a segment in device
 * memory blocks the socket permanently.
 */
ssize_t dm_recv(int fd, void *host, size_t len, struct dm_received *out);

/* Gives pages back to the kernel. Returns the number of pages that the kernel accepted, or a negative errno. */
int dm_give_back(int fd, const uint32_t *tokens, size_t n);

/* Starts to send [offset, offset+len) of a bound dma-buf. Returns the number of bytes accepted, or a negative errno.
 * The kernel uses the memory until the peer's TCP has acknowledged the bytes. SO_ZEROCOPY must be set. Fails with
 * -EBUSY if the kernel lacks memory, or if the kernel's memory for completions is full until dm_reap() reads the
 * completions. */
ssize_t dm_send(int fd, uint32_t dmabuf_id, uint64_t offset, size_t len, bool more);

/* Reads completions from the error queue and calls over() for each range of sends [first, last]. The successful calls
 * of dm_send() on the connection are numbered from 0, modulo 2^32. Fails with a negative errno. */
int dm_reap(int fd, void (*over)(void *arg, uint32_t first, uint32_t last), void *arg);

/* Functions that tests replace. */
struct dm_sys {
    ssize_t (*recvmsg)(int fd, struct msghdr *m, int flags);
    ssize_t (*sendmsg)(int fd, const struct msghdr *m, int flags);
    int (*setsockopt)(int fd, int level, int name, const void *value, socklen_t len);
    bool (*to_self)(int fd); /* returns true if both ends of the connection have the same address */
};
extern struct dm_sys dm_sys;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's devmem TCP on one connected socket: what recvmsg(MSG_SOCK_DEVMEM) gives as a list of pieces, giving
 * pages back, sending from a dma-buf. Documentation/networking/devmem.rst; net/ipv4/tcp.c, tcp_recvmsg_dmabuf();
 * net/core/sock.c, sock_devmem_dontneed(). What was measured: facts/devmem-tcp.md.
 */
#ifndef HW_DEVMEM_KERNEL_H
#define HW_DEVMEM_KERNEL_H

#include "base/base.h"

#include <sys/socket.h>

/* Debian 12's headers lack these. include/linux/socket.h, include/uapi/asm-generic/socket.h, uapi/linux/uio.h. */
#define DM_MSG_SOCK_DEVMEM    0x2000000
#define DM_SCM_DEVMEM_LINEAR  78
#define DM_SCM_DEVMEM_DMABUF  79
#define DM_SO_DEVMEM_DONTNEED 80
#define DM_TOKENS_MAX         128  /* of one call */
#define DM_FRAGS_MAX          1024 /* given back by one call */

struct dm_dmabuf_cmsg {
    uint64_t frag_offset;
    uint32_t frag_size, frag_token, dmabuf_id, flags;
};

struct dm_token_range {
    uint32_t start, count;
};

/* Where the next bytes of the stream are. */
struct dm_piece {
    bool device;     /* in the dma-buf: else in the caller's buffer, after the pieces before it that were there */
    uint64_t offset; /* device: from the dma-buf's beginning */
    uint32_t len;
    uint32_t token; /* device: to be given back once it is no longer read */
    uint32_t dmabuf_id;
};

#define DM_PIECES 128 /* of one recvmsg */

struct dm_received {
    struct dm_piece piece[DM_PIECES];
    unsigned n;
    bool plain; /* ordinary data: the connection is not steered to a bound queue, or its headers are not split */
};

/*
 * Takes in at most len bytes of fd, host being as large, since any of them may be ordinary data. Returns how many, and
 * describes them. 0: the peer has closed. -EAGAIN; -EPROTO: what the kernel says does not add up; other errors of
 * recvmsg. ENODEV is for good: a small segment left whole behind one that is not readable wedges the socket.
 */
ssize_t dm_recv(int fd, void *host, size_t len, struct dm_received *out);

/* Gives pages back. Returns how many the kernel took, or -errno. */
int dm_give_back(int fd, const uint32_t *tokens, size_t n);

/* Starts sending [offset, offset+len) of a bound dma-buf. Returns the bytes taken, or -errno; the memory is the
 * kernel's until the peer has it. SO_ZEROCOPY must be set. -EAGAIN also where dm_reap() must be called first. */
ssize_t dm_send(int fd, uint32_t dmabuf_id, uint64_t offset, size_t len, bool more);

/* Takes completions off the error queue: over() is told of sends [first, last], whose numbers are those of the
 * connection's successful calls of dm_send(), from 0, by 32 bits. -errno. */
int dm_reap(int fd, void (*over)(void *arg, uint32_t first, uint32_t last), void *arg);

/* What tests put in the kernel's place. */
struct dm_sys {
    ssize_t (*recvmsg)(int fd, struct msghdr *m, int flags);
    ssize_t (*sendmsg)(int fd, const struct msghdr *m, int flags);
    int (*setsockopt)(int fd, int level, int name, const void *value, socklen_t len);
    bool (*to_self)(int fd); /* are both ends of the connection this node's? */
};
extern struct dm_sys dm_sys;

#endif

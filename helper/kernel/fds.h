/* SPDX-License-Identifier: Apache-2.0 */
/* Inspects descriptors of clients. A client can make the first two functions block indefinitely; see
 * helper/child/child.h. */
#ifndef HW_HELPER_FDS_H
#define HW_HELPER_FDS_H

#include "helper/kernel/kernel.h"

/* Stores the size of a dma-buf, in bytes, in *size. Fails with -EBADF if fd is not a dma-buf, or with another
 * -errno. */
int hd_fd_dmabuf_size(int fd, uint64_t *size);
/* Stores the two endpoints and the cookie of a connected TCP socket in *c. IPv4 over an IPv6 socket is stored as IPv4.
 * Fails with -EINVAL if fd is not a TCP socket, with -ENOTCONN if it is not connected, with an error of
 * hd_fd_same_netns(), or with another -errno. */
int hd_fd_connection(int fd, uint64_t netns, struct hd_conn *c);
/* Returns the kernel's cookie of a socket's network namespace, which is unique until the next boot, or 0 if unknown. */
uint64_t hd_fd_netns(int sock);
/* Checks that a socket is in network namespace netns. Fails with -EXDEV if it is not, and with -EOPNOTSUPP on kernels
 * before 5.14. Does not block. */
int hd_fd_same_netns(int sock, uint64_t netns);

#endif

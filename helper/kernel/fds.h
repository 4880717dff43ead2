/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies a client's descriptor. The first two may block for as long as the client likes: see
 * helper/child/child.h. */
#ifndef HW_HELPER_FDS_H
#define HW_HELPER_FDS_H

#include "helper/kernel/kernel.h"

/* Returns the size of a dma-buf in bytes. -EBADF: fd is no dma-buf. */
int hd_fd_dmabuf_size(int fd, uint64_t *size);
/* Returns the ends of a connected TCP socket in the network namespace netns. IPv4 over an IPv6 socket counts as IPv4.
 * -EINVAL, -ENOTCONN, -EXDEV. */
int hd_fd_connection(int fd, uint64_t netns, struct hd_conn *c);
/* Returns the kernel's cookie of a socket's network namespace, unique until the next boot; 0: unknown. */
uint64_t hd_fd_netns(int sock);
/* Checks that the socket is in that namespace. -EXDEV: it is not. Does not block. */
int hd_fd_same_netns(int sock, uint64_t netns);

#endif

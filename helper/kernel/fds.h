/* SPDX-License-Identifier: Apache-2.0 */
/* What a client's descriptor is. The first two may block for as long as the client likes: see helper/child/child.h. */
#ifndef HW_HELPER_FDS_H
#define HW_HELPER_FDS_H

#include "helper/kernel/kernel.h"

/* Of a dma-buf, in bytes. -EBADF: it is none. */
int hd_fd_dmabuf_size(int fd, uint64_t *size);
/* Of a connected TCP socket of the network namespace netns. IPv4 through an IPv6 socket counts as IPv4. -EINVAL,
 * -ENOTCONN, -EXDEV. */
int hd_fd_connection(int fd, uint64_t netns, struct hd_conn *c);
/* The kernel's number for a socket's network namespace, which no other gets before the next boot; 0: not known. */
uint64_t hd_fd_netns(int sock);
/* Is it that? -EXDEV. Does not block. */
int hd_fd_same_netns(int sock, uint64_t netns);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that strangers send: what they are, and how to be rid of them. */
#ifndef HW_HELPER_FDS_H
#define HW_HELPER_FDS_H

#include "node/nic.h"

int hd_fd_dmabuf_size(int fd, uint64_t *size);                                        /* -EBADF: no dma-buf */
int hd_fd_ends(int fd, union hw_addr *local, union hw_addr *remote, uint64_t *inode); /* -ENOTCONN, -EINVAL */
int hd_fd_same_netns(int fd);                                                         /* -EXDEV */
/* Closes it without ever waiting for it. */
void hd_fd_shed(int *fd);

#endif

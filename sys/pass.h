/* SPDX-License-Identifier: Apache-2.0 */
/* Passes descriptors in a message over a Unix socket (SCM_RIGHTS, unix(7)). */
#ifndef HW_SYS_PASS_H
#define HW_SYS_PASS_H

#include "base/base.h"

#include <sys/types.h>

#define HW_PASS_MAX 192 /* descriptors in one message; the kernel takes 253 (SCM_MAX_FD) */

struct sockaddr_un;

/* Sends size bytes with n descriptors (0 to HW_PASS_MAX), which the caller keeps, as one message. to: NULL for a
 * connected socket. flags: of send(2); MSG_NOSIGNAL is added. 0, or -errno without a text. */
int hw_pass_send(int sock, const struct sockaddr_un *to, const void *text, size_t size, const int *fd, unsigned n,
                 int flags);

/* Receives at most size bytes, and at most cap descriptors (1 to HW_PASS_MAX) in fd, close-on-exec, which the caller
 * owns; sets the rest of fd to -1. Closes further descriptors of the message and reports that in *cut (may be NULL).
 * flags: of recv(2). Returns the bytes, 0 at the end of a stream, or -errno without a text. */
ssize_t hw_pass_receive(int sock, void *buf, size_t size, int *fd, unsigned cap, int flags, bool *cut);

#endif

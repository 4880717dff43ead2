/* SPDX-License-Identifier: Apache-2.0 */
/* Passes file descriptors in a message over a Unix socket (SCM_RIGHTS, unix(7)). */
#ifndef HW_SYS_PASS_H
#define HW_SYS_PASS_H

#include "base/base.h"

#include <sys/types.h>

#define HW_PASS_MAX 192 /* limit for the file descriptors in one message; the kernel's is 253 (SCM_MAX_FD) */

struct sockaddr_un;

/* Sends size bytes and n file descriptors (0 to HW_PASS_MAX) as one message. The caller keeps the descriptors. `to` is
 * NULL for a connected socket. flags are those of send(2); MSG_NOSIGNAL is added. Returns 0, -EMSGSIZE if only some of
 * the bytes were sent, or another -errno. Does not set hw_error(). */
int hw_pass_send(int sock, const struct sockaddr_un *to, const void *text, size_t size, const int *fd, unsigned n,
                 int flags);

/* Receives at most size bytes, and in fd at most cap file descriptors (1 to HW_PASS_MAX), which are close-on-exec and
 * owned by the caller. Sets the other elements of fd to -1. *cut (unless cut is NULL) becomes true if the kernel closed
 * descriptors of the message that do not fit or cannot be received, and otherwise false. flags are those of recv(2).
 * Returns the number of bytes, 0 at the end of a stream, or -errno. Does not set hw_error(). */
ssize_t hw_pass_receive(int sock, void *buf, size_t size, int *fd, unsigned cap, int flags, bool *cut);

#endif

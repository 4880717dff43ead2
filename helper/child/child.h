/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts short-lived processes that handle descriptors of clients. A client can make almost every system call on its
 * descriptors block indefinitely. Examples are close() of a TCP socket with SO_LINGER, getpeername() of a socket that
 * is sending from memory whose page faults the client delays, reading /proc/self/fdinfo of an epoll descriptor whose
 * events are being copied to such memory, and close() of a file on a file system that the client serves. Some of these
 * calls cannot be interrupted even by SIGKILL. Such a call may block a child, but never hawserd.
 */
#ifndef HW_HELPER_CHILD_H
#define HW_HELPER_CHILD_H

#include "base/base.h"

#define HD_CHILD_SECONDS 10  /* seconds after which SIGALRM kills a child */
#define HD_CHILD_FDS     256 /* maximum number of descriptors that a child may keep */

/*
 * Forks a child that runs fn with one end of a socket pair. The child then waits until the other end is shut down or
 * closed, and exits. The child has no capabilities, and no descriptors except 0 to 2, its end of the pair, and the n
 * descriptors in keep. This function returns after the child has closed all other descriptors. Closing them cannot
 * block the child, because hawserd still has them open.
 *
 * Returns 0 and stores the parent's end in *pair, or returns -errno. *pair reports POLLHUP when the child has exited.
 */
int hd_child_start(const int *keep, unsigned n, void (*fn)(int pair, void *arg), void *arg, int *pair);

#endif

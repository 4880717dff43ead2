/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short-lived processes that work on objects of clients. A descriptor from a client can make almost every system call
 * on it wait for as long as the client likes: close() of a TCP socket with SO_LINGER, getpeername() of a socket that is
 * sending from memory that the client delays, /proc/self/fdinfo of an epoll descriptor in that state, close() of a file
 * on the client's own file system. SIGKILL does not end all of these waits. Such a wait may stop one of these
 * processes, but never hawserd.
 */
#ifndef HW_HELPER_CHILD_H
#define HW_HELPER_CHILD_H

#include "base/base.h"

#define HD_CHILD_SECONDS 10  /* SIGALRM ends a child after this */
#define HD_CHILD_FDS     256 /* most descriptors that a child may keep */

/*
 * Forks a child that runs fn with one end of a socket pair, then waits until the other end is shut down or closed, and
 * exits. The child has no capabilities, and no descriptors other than 0 to 2, its end of the pair, and the n of keep.
 * Returns when the child has closed all others: from then on every close() in hawserd is immediate.
 *
 * Returns 0, and in *pair the parent's end: it hangs up (POLLHUP) when the child and everything it held are gone.
 */
int hd_child_start(const int *keep, unsigned n, void (*fn)(int pair, void *arg), void *arg, int *pair);

#endif

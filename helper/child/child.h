/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short-lived processes for work on what clients own. A descriptor from a client can make almost every system call on
 * it wait for as long as the client likes: a TCP socket with SO_LINGER in close(), a socket in the middle of a send
 * from memory that the client delays in getpeername(), an epoll descriptor in the same state in /proc/self/fdinfo, a
 * file of the client's own file system in close(). Some of these waits not even SIGKILL ends. Such a wait may stop one
 * of these processes, and never hawserd.
 */
#ifndef HW_HELPER_CHILD_H
#define HW_HELPER_CHILD_H

#include "base/base.h"

#define HD_CHILD_SECONDS 10  /* after which SIGALRM ends a child */
#define HD_CHILD_FDS     256 /* that a child may keep */

/*
 * Forks a child that runs fn with one end of a pair of sockets, then waits for the other end to be shut down or closed,
 * and exits. The child has no capability, and no descriptor but 0 to 2, its end of the pair, and the n of keep. Returns
 * when the child has closed all others: what hawserd itself closes from then on is closed at once.
 *
 * 0, and in *pair the end that stays here: it hangs up (POLLHUP) when the child is gone with all that it held.
 */
int hd_child_start(const int *keep, unsigned n, void (*fn)(int pair, void *arg), void *arg, int *pair);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors on which some system calls hang for a very long time: close(), getpeername(), or reading their
 * fdinfo. */
#ifndef TESTS_HELPER_ODD_H
#define TESTS_HELPER_ODD_H

/* Reasons why the odd_*() functions may be unable to create their file descriptor. */
#define ODD_PAGES "pages that the kernel waits for need userfaultfd, and root"
#define ODD_FUSE  "a file system in user space needs /dev/fuse, and root"

/* Returns a TCP socket whose last close() waits for an hour: SO_LINGER is set, and the peer does not read the data. */
int odd_lingering(void);
/* Closes any file descriptor without waiting for SO_LINGER: a child process inherits the descriptor and closes it last.
 * The kernel does not wait if the last close is part of a process exit. */
void odd_close(int fd);
/* Returns a connected TCP socket on which a thread of this process is blocked in send(). Operations that need the
 * socket lock, such as getpeername(), wait for a page that never arrives. Returns -1 if this is impossible here. */
int odd_locked_socket(void);
/* Returns an epoll file descriptor with a thread in epoll_wait(). Reading the descriptor's fdinfo hangs. Returns -1 if
 * this is impossible here. */
int odd_locked_epoll(void);
/* Creates a file in a FUSE file system that does not answer close() (FLUSH). Returns a socket from which one process
 * can receive the file. This process then cannot exit before odd_fuse_end(). Returns -1 if this is impossible here. */
int odd_fuse_start(void);
int odd_fuse_take(int from);
void odd_fuse_end(void);

#endif

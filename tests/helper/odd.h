/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors on which some system calls wait very long: close(), getpeername(), a read of their fdinfo. */
#ifndef TESTS_HELPER_ODD_H
#define TESTS_HELPER_ODD_H

/* Reasons why odd_*() functions may fail. */
#define ODD_PAGES "pages that the kernel waits for need userfaultfd, and root"
#define ODD_FUSE  "a file system in user space needs /dev/fuse, and root"

/* Returns a TCP socket whose last close() waits for an hour: SO_LINGER, and data that the other end does not read. */
int odd_lingering(void);
/* Closes any file descriptor without waiting for SO_LINGER: a child that exits has it too and closes it last. */
void odd_close(int fd);
/* Returns a connected TCP socket on which a thread of this process is in a send: anything that needs the socket's lock,
 * such as getpeername(), waits for a page that never arrives. Returns -1 if this is impossible here. */
int odd_locked_socket(void);
/* Returns an epoll file descriptor with a thread in epoll_wait(), so that reading its fdinfo waits. Returns -1 if this
 * is impossible here. */
int odd_locked_epoll(void);
/* Creates a file of a FUSE file system that does not answer close() (FLUSH). Returns a socket from which one process
 * may take the file, and then cannot end before odd_fuse_end(). Returns -1 if this is impossible here. */
int odd_fuse_start(void);
int odd_fuse_take(int from);
void odd_fuse_end(void);

#endif

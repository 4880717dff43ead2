/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors on which system calls wait for as long as their owner likes. */
#ifndef TESTS_HELPER_ODD_H
#define TESTS_HELPER_ODD_H

#define ODD_PAGES "pages that the kernel waits for need userfaultfd, and root" /* why the next two may fail */
#define ODD_FUSE  "a file system in user space needs /dev/fuse, and root"

/* A TCP socket whose last close() waits an hour: SO_LINGER, and data that its other end does not take. */
int odd_lingering(void);
/* Closes any descriptor without lingering: a child has it too, and exits. */
void odd_close(int fd);
/* A connected TCP socket, a thread of this process in the middle of a send on it: whoever wants the socket's lock, as
 * getpeername() does, waits for a page that never comes. -1: not here. */
int odd_locked_socket(void);
/* An epoll descriptor, a thread in the middle of epoll_wait(): as does whoever reads its fdinfo. -1: not here. */
int odd_locked_epoll(void);
/* A file of a file system in user space which does not answer close(): FLUSH. Returns a socket from which one process
 * may take it, which then cannot end before odd_fuse_end(); -1: not here. */
int odd_fuse_start(void);
int odd_fuse_take(int from);
void odd_fuse_end(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A child process that communicates over a socket at a fixed descriptor and has its output captured. */
#ifndef HW_TOOL_CHILD_H
#define HW_TOOL_CHILD_H

#include "base/base.h"

#include <sys/types.h>

/* Creates a pair of UNIX sockets of the given type and a pipe. The second descriptor of each is for the child; err[1]
 * never equals `at`. who describes the child in error texts, for example "a rank". The caller closes all descriptors,
 * even after a failure; those that were not opened are -1. */
int child_ends(int type, int at, const char *who, int talk[2], int err[2]);
/* Runs in the child between fork and exec: moves talk to `at`, err to standard output and error, and /dev/null to
 * standard input. */
void child_take_ends(int talk, int at, int err);
/* Read or write all len bytes and block until done. Return false at end of file or after an error. */
bool child_read(int fd, void *data, size_t len);
bool child_write(int fd, const void *data, size_t len);
/* Waits up to ms for the child to exit, kills the child if it has not, and reaps it. Sets *pid to 0 and returns the
 * wait status, or 0 if *pid was 0. */
int child_reap(pid_t *pid, int ms);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A child process that communicates over a socket at a fixed descriptor, and whose output is captured. */
#ifndef HW_TOOL_CHILD_H
#define HW_TOOL_CHILD_H

#include "base/base.h"

#include <sys/types.h>

/* Makes a pair of UNIX sockets of that type, and a pipe; no end for the child (the second ones) has the number `at`.
 * who: "a rank", for the error. The caller closes whatever was opened in any case; the rest is -1. */
int child_ends(int type, int at, const char *who, int talk[2], int err[2]);
/* Between fork and exec: moves talk to `at`, err to standard output and error, and /dev/null to standard input. */
void child_take_ends(int talk, int at, int err);
/* Read and write all len bytes, however long that takes. False: the end, or an error, came first. */
bool child_read(int fd, void *data, size_t len);
bool child_write(int fd, const void *data, size_t len);
/* Reaps the child within ms; kills it after that. Returns its status; *pid becomes 0. */
int child_reap(pid_t *pid, int ms);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A child process that talks over a socket, which it finds at a descriptor of its own, and whose output is overheard.
 */
#ifndef HW_TOOL_CHILD_H
#define HW_TOOL_CHILD_H

#include "base/base.h"

#include <sys/types.h>

/* A pair of UNIX sockets of that type, and a pipe, none of whose ends for the child (the second ones) is in the way at
 * `at`. who, "a rank", is named in the error. What could be opened is the caller's to close either way; else -1. */
int child_ends(int type, int at, const char *who, int talk[2], int err[2]);
/* Between fork and exec: talk becomes `at`, err standard output and error, nothing standard input. */
void child_take_ends(int talk, int at, int err);
/* Reaps it within ms, by force after that. Its status; *pid becomes 0. */
int child_reap(pid_t *pid, int ms);

#endif

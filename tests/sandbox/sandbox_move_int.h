/* SPDX-License-Identifier: Apache-2.0 */
/* Internal functions of sandbox_move.c, sandbox_move_state.c and sandbox_move_extra.c. */
#ifndef SANDBOX_MOVE_INT_H
#define SANDBOX_MOVE_INT_H

#include "sandbox_move.h"

struct nlmsghdr;

/* For steps that a test relies on: exits the program if rc is an error. */
int sm_must(int rc, const char *what, int line);
#define MUST(x) sm_must((x), #x, __LINE__)

/* Returns a request of this type with an empty header of `head` bytes. extra points to a pointer, which is set to that
 * header. */
struct nlmsghdr *sm_request(char buf[1024], uint16_t type, uint16_t flags, size_t head, void *extra);

/* Passes the results of sandbox_move_extra.c for the devices in the calling thread's namespace to a callback, one line
 * at a time. */
typedef void (*sm_line)(const char *line, void *arg);
void sm_extra(sm_line add, void *arg);
/* Returns a file descriptor of the namespace's sysfs, which is not mounted anywhere, or -1. */
int sm_sysfs(void);

#endif

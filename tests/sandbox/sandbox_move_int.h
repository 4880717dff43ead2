/* SPDX-License-Identifier: Apache-2.0 */
/* Internal functions of sandbox_move.c, sandbox_move_state.c and sandbox_move_extra.c. */
#ifndef SANDBOX_MOVE_INT_H
#define SANDBOX_MOVE_INT_H

#include "sandbox_move.h"

struct nlmsghdr;

/* For steps that a test relies on: ends the program if rc is an error. */
int sm_must(int rc, const char *what, int line);
#define MUST(x) sm_must((x), #x, __LINE__)

/* Returns a request with an empty header of `head` bytes for its type. extra points to a pointer, which is set to that
 * header. */
struct nlmsghdr *sm_request(char buf[1024], uint16_t type, uint16_t flags, size_t head, void *extra);

/* Reports what sandbox_move_extra.c finds for the devices of the calling thread's namespace, a line each. */
typedef void (*sm_line)(const char *line, void *arg);
void sm_extra(sm_line add, void *arg);
/* Returns a file descriptor of the namespace's sysfs, which is mounted nowhere, or -1. */
int sm_sysfs(void);

#endif

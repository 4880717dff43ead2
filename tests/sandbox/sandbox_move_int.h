/* SPDX-License-Identifier: Apache-2.0 */
/* Inside sandbox_move.c and sandbox_move_state.c. */
#ifndef SANDBOX_MOVE_INT_H
#define SANDBOX_MOVE_INT_H

#include "sandbox_move.h"

struct nlmsghdr;

/* What a test builds on: ends the program where rc says that it failed. */
int sm_must(int rc, const char *what, int line);
#define MUST(x) sm_must((x), #x, __LINE__)

/* An empty request with a header of its kind, which *extra (a pointer to a pointer) gets. */
struct nlmsghdr *sm_request(char buf[1024], uint16_t type, uint16_t flags, size_t head, void *extra);

/* What sandbox_move_extra.c finds of the devices of the calling thread's namespace, a line each. */
typedef void (*sm_line)(const char *line, void *arg);
void sm_extra(sm_line add, void *arg);
/* The namespace's sysfs, mounted nowhere; -1. */
int sm_sysfs(void);

#endif

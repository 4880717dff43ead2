/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that a child of fork() must not keep: the connection of a dead process ends only when no other process
 * holds a copy. O_CLOEXEC covers children that call exec(), this file covers children that do not. */
#ifndef HW_FORK_H
#define HW_FORK_H

#include "base/base.h"

/* Makes future children close their copy of fd. Returns fd; does nothing if fd is negative. */
int hw_fork_guard(int fd);
/* Stops guarding fd; call it before fd is closed. */
void hw_fork_release(int fd);
/* close() of a guarded descriptor; keeps errno, ignores -1 and sets *fd to -1. */
void hw_fork_close(int *fd);

#endif

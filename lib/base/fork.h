/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that a child of fork() must not keep: a connection whose process has died ends only once no other process
 * has a copy. O_CLOEXEC does that for programs that the child runs, this for children that run none. */
#ifndef HW_FORK_H
#define HW_FORK_H

#include "base/base.h"

/* From here on a child closes its copy of fd. Returns fd; below 0: does nothing. */
int hw_fork_guard(int fd);
/* The end of that, before fd is closed. */
void hw_fork_release(int fd);
/* close() of a guarded descriptor; keeps errno, ignores -1 and leaves -1 behind. */
void hw_fork_close(int *fd);

#endif

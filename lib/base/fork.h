/* SPDX-License-Identifier: Apache-2.0 */
/* Handles descriptors that a child of fork() must not keep, because the connection of a dead process ends only when no
 * other process holds a copy of the descriptor. O_CLOEXEC covers children that call exec(). This file covers all other
 * children. Also lets code recognize that it runs in a child, which has no threads of its parent. */
#ifndef HW_FORK_H
#define HW_FORK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Makes future children of fork() close their copy of fd. Returns fd. Has no effect if fd is negative or at least
 * 2^20. */
int hw_fork_guard(int fd);
/* Stops guarding fd. Must be called before fd is closed. */
void hw_fork_release(int fd);
/* Closes a guarded descriptor, unless it is negative, and sets *fd to -1. Preserves errno. */
void hw_fork_close(int *fd);
/* Returns a number that differs between a process and its future children. Costs no system call. */
unsigned hw_fork_count(void);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A seccomp listener: notifications in, answers out (seccomp_unotify(2), seccomp(2)). */
#ifndef HW_VERBS_NOTIFY_H
#define HW_VERBS_NOTIFY_H

#include "base/base.h"

#include <linux/seccomp.h>

/* Linux 6.6, include/uapi/linux/seccomp.h; Debian 12's headers are of 6.1. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS      SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

/* Receives the next notification. -EAGAIN: none (the thread died, or a signal interrupted it); covers -ENOENT too. */
int vb_notify_next(int listener, struct seccomp_notif *n);
/* Returns true if the thread still waits, so that data read from its process was its own. */
bool vb_notify_valid(int listener, uint64_t id);
/* Makes the call return value (rc 0) or fail with rc, of either sign. -ENOENT: it has gone. */
int vb_notify_answer(int listener, uint64_t id, int64_t value, int rc);
/* Lets the kernel execute the call. Only where a change of its arguments meanwhile can do no harm. */
int vb_notify_continue(int listener, uint64_t id);
/* Adds fd to its table at `at` (-1: the lowest free number); with `answer` makes the call return that number. Returns
 * the number. */
int vb_notify_give(int listener, uint64_t id, int fd, int at, bool cloexec, bool answer);
/* Enables synchronous wake-up (Linux 6.6); -EINVAL if missing. */
int vb_notify_sync(int listener);

/* Reads the application's memory, all of it or -EFAULT; -ESRCH: it has died. The data is the application's only if its
 * notification is still valid afterwards. A page that takes long to arrive (from the application's own file system)
 * delays the caller. Nothing here writes the application's memory: the stub does (inject.h). */
int vb_mem_read(pid_t tid, uint64_t address, void *dst, size_t n);
/* Returns the process of thread tid; 0: it has gone. */
pid_t vb_process_of(pid_t tid);
/* Reads a string of at most cap - 1 bytes: -ENAMETOOLONG, -EFAULT. */
int vb_mem_string(pid_t tid, uint64_t address, char *dst, size_t cap);

#endif

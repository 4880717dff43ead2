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

/* The next one. -EAGAIN: there was none after all (it died, or a signal took it); -ENOENT is taken as that too. */
int vb_notify_next(int listener, struct seccomp_notif *n);
/* Is it still waiting, so that what was read of its process was its? */
bool vb_notify_valid(int listener, uint64_t id);
/* The call returns value (rc 0) or fails with rc, of whichever sign. -ENOENT: it has gone meanwhile. */
int vb_notify_answer(int listener, uint64_t id, int64_t value, int rc);
/* The call is made by the kernel as it is. Only where no harm can come of its arguments changing under way. */
int vb_notify_continue(int listener, uint64_t id);
/* Puts fd into its table at `at` (-1: the lowest free); answers with that number where `answer`. Returns the number. */
int vb_notify_give(int listener, uint64_t id, int fd, int at, bool cloexec, bool answer);
/* Synchronous wake-up (Linux 6.6); -EINVAL where there is none. */
int vb_notify_sync(int listener);

/* Reads the application's memory, all or -EFAULT; -ESRCH: it has died. What was read is the application's only if its
 * notification is valid afterwards. A page that takes long to come (of a file system of the application's own) holds up
 * the caller. Nothing here writes the application's memory: the stub does (inject.h). */
int vb_mem_read(pid_t tid, uint64_t address, void *dst, size_t n);
/* The process that thread tid is of; 0: it has gone. */
pid_t vb_process_of(pid_t tid);
/* A string of at most cap - 1 bytes: -ENAMETOOLONG, -EFAULT. */
int vb_mem_string(pid_t tid, uint64_t address, char *dst, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Receives the notifications of a seccomp listener and answers them (seccomp_unotify(2), seccomp(2)). Reads the memory
 * of the threads that wait. */
#ifndef HW_VERBS_NOTIFY_H
#define HW_VERBS_NOTIFY_H

#include "base/base.h"

#include <linux/seccomp.h>

/* From include/uapi/linux/seccomp.h of Linux 6.6. Debian 12 has the headers of Linux 6.1. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS      SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

/* Receives the next notification, and blocks if there is none. Returns -EAGAIN if the notification has been withdrawn,
 * because the thread has died or a signal has interrupted its call, or if a signal has interrupted the wait. */
int vb_notify_next(int listener, struct seccomp_notif *n);
/* Returns true if the thread is still waiting. If so, data that was read before this call came from the thread's
 * process. */
bool vb_notify_valid(int listener, uint64_t id);
/* Makes the call return `value` if rc is 0, or fail with the errno |rc| otherwise. Fails with -ENOENT if the call is no
 * longer waiting, or with another -errno. */
int vb_notify_answer(int listener, uint64_t id, int64_t value, int rc);
/* Lets the kernel execute the call. Use this function only if it is harmless for the application to change the
 * arguments in memory. */
int vb_notify_continue(int listener, uint64_t id);
/* Installs fd in the thread's descriptor table at number `at`, or at the lowest free number if at is -1. If answer is
 * true, also makes the call return the number. Returns the number or -errno. */
int vb_notify_give(int listener, uint64_t id, int fd, int at, bool cloexec, bool answer);
/* Enables synchronous wake-up, which needs Linux 6.6. Fails with -EINVAL on older kernels. */
int vb_notify_sync(int listener);

/* Reads n bytes of the application's memory. Fails with -EFAULT if fewer bytes can be read, with -ESRCH if the
 * thread has died, or with another -errno. The data may be from another process unless the notification is still valid
 * afterwards. A slow page, for example on a file system that the application serves, delays the caller. The broker
 * never writes to the application's memory; the stub does (inject.h). */
int vb_mem_read(pid_t tid, uint64_t address, void *dst, size_t n);
/* Returns the process of thread tid, or 0 if the thread has exited. */
pid_t vb_process_of(pid_t tid);
/* Reads a string of at most cap - 1 bytes. Fails with -ENAMETOOLONG if the string is longer, and otherwise like
 * vb_mem_read(). */
int vb_mem_string(pid_t tid, uint64_t address, char *dst, size_t cap);

#endif

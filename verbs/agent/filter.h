/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp filter of a program that uses the broker. It can be installed in the calling process or added to the
 * config.json of an OCI container (linux.seccomp).
 *
 * - The broker is notified of open() and openat() with O_RDWR, of ioctl() with RDMA_VERBS_IOCTL, and, except with runc,
 *   of write() on the descriptors VB_FD_FIRST to VB_FD_LAST (doorbells).
 * - These calls fail with EPERM: ptrace, process_vm_readv, process_vm_writev, process_madvise, pidfd_getfd, kcmp,
 *   io_uring_*, userfaultfd, mknod of character devices, and seccomp with a new listener. filter.c lists a few more.
 * - socket() with NETLINK_RDMA fails with EPROTONOSUPPORT, so that libibverbs reads sysfs instead.
 * - A system call of another architecture (i386, x32) kills the process. In a container it kills the thread, because
 *   the runtime uses libseccomp's default action.
 *
 * The broker is not notified of an open() with O_RDONLY or O_WRONLY, or of openat2(). The installer of the filter must
 * therefore make sure, by mounting with nodev, that the program cannot open a device node directly. On a descriptor
 * that the broker did not open, ioctl() with RDMA_VERBS_IOCTL fails with ENOTTY, and the kernel executes write().
 */
#ifndef HW_VERBS_FILTER_H
#define HW_VERBS_FILTER_H

#include "base/base.h"

#include <jansson.h>

/* Installs the filter in the calling thread permanently. Sets no_new_privs first unless the thread has CAP_SYS_ADMIN.
 * Sets *killable to true if the filter has the flag WAIT_KILLABLE_RECV (since Linux 5.19). Returns the listener or
 * -errno. */
int vb_filter_install(bool *killable);
/* Adds the filter to the "linux" object of a config.json, with listenerPath = socket. Merges it into an existing
 * seccomp section, which keeps its default action and its entries, except those for calls of the filter's rules.
 * runtime is "crun" or "runc"; with runc the broker is not notified of write(). Fails with -EINVAL if the filter cannot
 * be merged into the section, for example because there is another listener. */
int vb_filter_spec(json_t *linux_object, const char *socket, const char *runtime);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp filter of a brokered program, and the same for an OCI runtime (linux.seccomp in config.json).
 *
 * Notified: open and openat for O_RDWR; ioctl with RDMA_VERBS_IOCTL; write on the descriptors VB_FD_FIRST..VB_FD_LAST
 * (doorbells). Refused (EPERM): ptrace, process_vm_readv, process_vm_writev, process_madvise, pidfd_getfd, kcmp,
 * io_uring_*, userfaultfd, mknod of character devices, and seccomp with a new listener; socket() of NETLINK_RDMA gives
 * EPROTONOSUPPORT, so that libibverbs reads sysfs. Other architectures (i386, x32): the process is killed (in a
 * container the thread: its runtime leaves that to libseccomp).
 *
 * An open for only writing or only reading is not notified, nor is openat2(): whoever installs the filter must ensure
 * with a nodev mount that no device node can be opened natively. An ioctl on another descriptor then gives ENOTTY
 * (broker.h), and the broker ignores a write() on it.
 */
#ifndef HW_VERBS_FILTER_H
#define HW_VERBS_FILTER_H

#include "base/base.h"

#include <jansson.h>

/* Installs the filter in the calling process, for good (sets no_new_privs first unless the process has CAP_SYS_ADMIN);
 * *killable: the kernel supports WAIT_KILLABLE_RECV (Linux 5.19), and it is set. Returns the listener. */
int vb_filter_install(bool *killable);
/* Adds the filter to the "linux" object of a config.json: merges it into an existing seccomp section (whose default
 * action and calls stay, except those that the broker needs), with listenerPath = socket. crun and runc differ: see
 * facts/verbs-broker.md. runtime: "crun" or "runc". -EINVAL if the section cannot be merged (another listener). */
int vb_filter_spec(json_t *linux_object, const char *socket, const char *runtime);

#endif

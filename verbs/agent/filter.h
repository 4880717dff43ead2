/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp filter of a brokered program, and the same as an OCI runtime has it (linux.seccomp in config.json).
 *
 * Notified: open and openat for O_RDWR; ioctl with RDMA_VERBS_IOCTL; write on the descriptors VB_FD_FIRST..VB_FD_LAST
 * (doorbells). Refused (EPERM): ptrace, process_vm_readv, process_vm_writev, process_madvise, pidfd_getfd, kcmp,
 * io_uring_*, userfaultfd, mknod of character devices, and seccomp with a listener of its own; socket() of NETLINK_RDMA
 * is EPROTONOSUPPORT, so that libibverbs reads sysfs. Other architectures (i386, x32): the process is killed (in
 * a container the thread: its runtime leaves that to libseccomp).
 *
 * An open for writing or reading alone goes by natively, as does openat2(): whoever installs the filter sees to it that
 * no device node can be opened natively, by a mount with nodev. A foreign descriptor's ioctl is ENOTTY then (broker.h),
 * and its write() none of the broker's.
 */
#ifndef HW_VERBS_FILTER_H
#define HW_VERBS_FILTER_H

#include "base/base.h"

#include <jansson.h>

/* In the calling process, for good (no_new_privs is set first unless it has CAP_SYS_ADMIN); *killable: the kernel knows
 * WAIT_KILLABLE_RECV (Linux 5.19), and it is set. Returns the listener. */
int vb_filter_install(bool *killable);
/* Adds it to the "linux" object of a config.json: to its own seccomp section where there is one (whose default action
 * and calls stay, but for those that the broker must have), with listenerPath = socket. crun and runc differ: see
 * facts/verbs-broker.md. runtime: "crun" or "runc". -EINVAL where the section cannot be joined (another listener). */
int vb_filter_spec(json_t *linux_object, const char *socket, const char *runtime);

#endif

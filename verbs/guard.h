/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent, its brokers, their tracers, and a command of `hawser verbs run` give up. */
#ifndef HW_VERBS_GUARD_H
#define HW_VERBS_GUARD_H

#include "base/base.h"

#include <sys/types.h>

/*
 * All capabilities but those that a broker cannot do without, for good, and no_new_privs:
 *   CAP_SYS_PTRACE       pidfd_getfd() and process_vm_readv() on programs of other users and namespaces, the stub
 *   CAP_SYS_ADMIN        the container's network namespace, mounts of the device nodes, PTRACE_O_SUSPEND_SECCOMP
 *   CAP_MKNOD            the device nodes
 *   CAP_DAC_READ_SEARCH  following an application's path where only its user may look
 *   CAP_NET_RAW          with raw: raw packet QPs and flow rules, whose kernel code asks the broker's capabilities, as
 *                        it is the broker that calls; so without raw no application has them, whatever its own
 * It runs as root, whose files it makes and whose sockets it listens at; root without CAP_DAC_OVERRIDE, CAP_SETUID and
 * the like. -EPERM where one misses.
 *
 * The agent has no filter of system calls, since its brokers would have it too, and their tracers: the kernel gives
 * PTRACE_O_SUSPEND_SECCOMP only to who has none (kernel/ptrace.c, check_ptrace_options()), and without that no stub
 * comes into a container whose profile is a list of what is allowed, as Docker's, on which libseccomp 2.5 cannot put
 * mseal().
 */
int vb_guard_broker(bool raw);
/* All capabilities but CAP_SYS_PTRACE and CAP_SYS_ADMIN, where it has these. */
int vb_guard_tracer(void);
/* The system calls that a broker does not need once it is set up and its tracer is there: no process, program, socket,
 * namespace or mount of anybody's is made or joined, nothing is traced, signalled or made executable, and an ioctl is a
 * notification's or verbs'. Whoever makes another ends the process by SIGSYS, which the kernel's audit tells with the
 * call's number: the container's programs get ENOSYS. What it must be able to do (it reads and writes other processes'
 * memory, opens files as root) it still can: this keeps the rest of the kernel from it. */
int vb_guard_calls(void);
/* What could lead a program of this machine's own mount namespace to a device node past the filter, or to the broker:
 * the capabilities for it (capability.c) leave all its sets, and the bounding set; with no_new_privs. */
int vb_guard_command(void);
/* Becomes that user, of the groups of `name`, or of gid alone where that is NULL, without any capability, which is for
 * good as no_new_privs is set. */
int vb_guard_user(const char *name, uid_t uid, gid_t gid);
/* Of the descriptors from `from` on, all but keep's n, which are put in order; those that are -1 are none. */
int vb_guard_fds(unsigned from, int *keep, unsigned n);

#endif

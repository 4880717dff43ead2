/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent, its brokers, their tracers, and a command of `hawser verbs run` give up. */
#ifndef HW_VERBS_GUARD_H
#define HW_VERBS_GUARD_H

#include "base/base.h"

#include <sys/types.h>

/*
 * What a broker's process has until it is set up, and no_new_privs:
 *   CAP_SYS_PTRACE       pidfd_getfd() and process_vm_readv() on programs of other users and namespaces, the stub
 *   CAP_SYS_ADMIN        the container's namespaces, mounts of the device nodes, PTRACE_O_SUSPEND_SECCOMP
 *   CAP_MKNOD            the device nodes
 *   CAP_DAC_READ_SEARCH  following an application's path where only its user may look
 *   CAP_CHOWN, CAP_SETUID, CAP_SETGID  becoming a user of its own, who owns the folder of nodes
 *   CAP_NET_RAW          with raw: raw packet QPs and flow rules, whose kernel code asks the broker's capabilities, as
 *                        it is the broker that calls; so without raw no application has them, whatever its own
 * -EPERM where one misses. From there on it is two processes of a user of their own, who owns nothing:
 *   the tracer   vb_guard_tracer(): the first four, no filter of system calls, all that takes a path
 *   the broker   vb_guard_serving(): CAP_SYS_PTRACE, and CAP_NET_RAW with raw; vb_guard_calls()
 *
 * Neither is in a domain of Landlock: whoever is may read, trace or take descriptors of processes in the same domain
 * only (security/landlock/task.c, hook_ptrace_access_check()), whatever its capabilities, and that is what both are
 * for. The broker has no call that takes a path instead, which is less than any domain leaves.
 *
 * The agent has no filter of system calls, since its brokers would have it too, and their tracers: the kernel gives
 * PTRACE_O_SUSPEND_SECCOMP only to who has none (kernel/ptrace.c, check_ptrace_options()), and without that no stub
 * comes into a container whose profile is a list of what is allowed, as Docker's, on which libseccomp 2.5 cannot put
 * mseal().
 */
int vb_guard_broker(bool raw);
/* The same for the agent, with CAP_NET_RAW for brokers, and CAP_KILL: a broker that does not end, as root of its
 * container has stopped it, is another user's process. */
int vb_guard_agent(void);
/* Calls fn(arg) as that user, and becomes root again: for what the kernel counts by user. 0: as the caller is. */
int vb_guard_as(uid_t uid, int (*fn)(void *), void *arg);
int vb_guard_tracer(uid_t uid); /* 0: the user stays */
int vb_guard_serving(uid_t uid);
/* The system calls that a broker does not need once it is set up and its tracer is there: no file is opened, no
 * process, program, socket, namespace or mount of anybody's is made or joined, nothing is traced, signalled or made
 * executable, no process's memory is written, and an ioctl is a notification's or verbs'. Whoever makes another ends
 * the process by SIGSYS, which the kernel's audit tells with the call's number: the container's programs get ENOSYS.
 * What is left to who takes it over: the memory and descriptors of processes that it can name, which are the
 * container's, where that has a PID namespace of its own; and orders to the tracer. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Drops privileges of the agent, its brokers, their tracers, and of commands of `hawser verbs run`. */
#ifndef HW_VERBS_GUARD_H
#define HW_VERBS_GUARD_H

#include "base/base.h"

#include <sys/types.h>

/*
 * Reduces a broker's process to these capabilities until setup is complete, and sets no_new_privs:
 *   CAP_SYS_PTRACE       pidfd_getfd() and process_vm_readv() on programs of other users and namespaces, the stub
 *   CAP_SYS_ADMIN        the container's namespaces, mounts of the device nodes, PTRACE_O_SUSPEND_SECCOMP
 *   CAP_MKNOD            the device nodes
 *   CAP_DAC_READ_SEARCH  resolving an application's path that only its user may search
 *   CAP_CHOWN, CAP_SETUID, CAP_SETGID  becoming a user of its own, which owns the folder of nodes
 *   CAP_NET_RAW          with raw: raw packet QPs and flow rules, for which the kernel checks the caller's
 * capabilities, and the broker is the caller; so without raw no application has them, whatever its own -EPERM if one is
 * missing. After setup there are two processes of a user of their own, which owns nothing: the tracer
 * vb_guard_tracer(): the first four, no filter of system calls, all work that needs a path the broker
 * vb_guard_serving(): CAP_SYS_PTRACE, and CAP_NET_RAW with raw; vb_guard_calls()
 *
 * Neither is in a Landlock domain: a process in a domain may read, trace or take descriptors only of processes in the
 * same domain (security/landlock/task.c, hook_ptrace_access_check()), whatever its capabilities, and both exist for
 * exactly that. Instead the broker has no system call with a path, which is stricter than any domain.
 *
 * The agent has no filter of system calls, because its brokers and their tracers would inherit it: the kernel grants
 * PTRACE_O_SUSPEND_SECCOMP only to a process without filters (kernel/ptrace.c, check_ptrace_options()). Without that
 * option no stub can be injected into a container whose profile is a list of allowed calls, such as Docker's, to which
 * libseccomp 2.5 cannot add mseal().
 */
int vb_guard_broker(bool raw);
/* The same for the agent, with CAP_NET_RAW for brokers, and CAP_KILL: a broker that does not end, because root of its
 * container has stopped it, runs as another user. */
int vb_guard_agent(void);
/* Calls fn(arg) as that user, then becomes root again: for resources that the kernel counts by user. 0: no change. */
int vb_guard_as(uid_t uid, int (*fn)(void *), void *arg);
int vb_guard_tracer(uid_t uid); /* 0: no change of user */
int vb_guard_serving(uid_t uid);
/* Blocks the system calls that a broker does not need after setup, when its tracer exists: it can open no file, make or
 * join no process, program, socket, namespace or mount, trace, signal or make executable nothing, write no process's
 * memory, and issue only ioctls of notifications and verbs. Any other call ends the process with SIGSYS, which the
 * kernel's audit records with the call's number: the container's programs get ENOSYS. An attacker who takes the broker
 * over still has the memory and descriptors of processes that it can name, which are the container's if that has a PID
 * namespace of its own; and orders to the tracer. */
int vb_guard_calls(void);
/* Drops everything by which a program in this machine's own mount namespace could reach a device node around the
 * filter, or the broker: the capabilities for that (capability.c) leave all its sets, and the bounding set; with
 * no_new_privs. */
int vb_guard_command(void);
/* Becomes that user, with the groups of `name`, or only gid if that is NULL, without any capability; final, because
 * no_new_privs is set. */
int vb_guard_user(const char *name, uid_t uid, gid_t gid);
/* Closes all descriptors from `from` on except the n in keep, which are renumbered in order; entries of -1 are
 * ignored. */
int vb_guard_fds(unsigned from, int *keep, unsigned n);

#endif

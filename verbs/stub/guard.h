/* SPDX-License-Identifier: Apache-2.0 */
/* Drops privileges of the agent, the brokers, the tracers and the commands of `hawser verbs run`. */
#ifndef HW_VERBS_GUARD_H
#define HW_VERBS_GUARD_H

#include "base/base.h"

#include <sys/types.h>

/*
 * Reduces a broker's process to these capabilities until setup is complete, and sets no_new_privs:
 *   CAP_SYS_PTRACE       pidfd_getfd(), process_vm_readv() and ptrace() on programs of other users and namespaces
 *   CAP_SYS_ADMIN        the container's namespaces, mounts for the device nodes, PTRACE_O_SUSPEND_SECCOMP
 *   CAP_MKNOD            creating the device nodes
 *   CAP_DAC_READ_SEARCH  resolving paths of an application that only its user may search
 *   CAP_CHOWN, CAP_SETUID, CAP_SETGID  changing to a separate user, which owns the folder of device nodes
 *   CAP_NET_RAW          only if raw is true: raw packet QPs and flow rules
 *
 * For a request that runs in the broker, the kernel checks CAP_NET_RAW of the broker. Without raw, such a request
 * cannot create a raw packet QP or a flow rule, whatever capabilities the application has. Fails with -EPERM if one of
 * the other capabilities is missing.
 *
 * After setup there are two processes, which run as a separate user:
 * - The tracer (vb_guard_tracer()) has the first four capabilities and no seccomp filter. It does everything that needs
 *   a path.
 * - The broker (vb_guard_serving()) has CAP_SYS_PTRACE and, if raw is true, CAP_NET_RAW. It has the filter of
 *   vb_guard_calls().
 *
 * Neither process is in a Landlock domain. Whatever its capabilities, a process in a domain may trace only processes in
 * this domain or a nested one, and the same limit applies to reading their memory and fetching their descriptors
 * (hook_ptrace_access_check() in security/landlock/task.c). The broker and the tracer must trace container processes,
 * read their memory and fetch their descriptors. Instead of Landlock, the broker's filter prevents access to files: it
 * allows no system call that opens or changes files by path.
 *
 * The agent has no seccomp filter, because its brokers and their tracers would inherit it. The kernel allows
 * PTRACE_O_SUSPEND_SECCOMP only to a process without filters (check_ptrace_options() in kernel/ptrace.c). Without this
 * option no stub can be injected into a container with a seccomp profile that lists the allowed calls, such as
 * Docker's, because libseccomp 2.5 cannot add mseal() to such a list.
 */
int vb_guard_broker(bool raw);
/* Does the same for the agent. The agent also keeps CAP_NET_RAW, which its brokers inherit, and CAP_KILL. It needs
 * CAP_KILL to kill a broker that root in the container has stopped, because brokers run as other users. */
int vb_guard_agent(void);
/* Calls fn(arg) as user uid and then changes back to root. Used for resources that the kernel counts for each user.
 * Does not change the user if uid is 0. */
int vb_guard_as(uid_t uid, int (*fn)(void *), void *arg);
/* Drop the privileges of the tracer and of the broker after setup, and change to user uid. If uid is 0, the user is not
 * changed. */
int vb_guard_tracer(uid_t uid);
int vb_guard_serving(uid_t uid);
/* Installs a filter that allows only the system calls that the broker needs after setup. Call it once the tracer is
 * running. The broker can then no longer open files, start processes or programs, create sockets, enter namespaces,
 * mount, trace or signal processes, make memory executable, or write to the memory of other processes. The only ioctls
 * that it can make are those for notifications and verbs. Any other system call kills the broker with SIGSYS. The
 * kernel's audit log then contains the number of the call. RDMA calls of the container's programs then fail with
 * ENOSYS.
 *
 * An attacker who controls the broker can still read the memory and fetch the descriptors of processes in the broker's
 * PID namespace. If the container has a separate PID namespace, these are only the container's processes. The attacker
 * can also send requests to the tracer. */
int vb_guard_calls(void);
/* Drops from all capability sets of the calling process, including the bounding set, the capabilities by which a
 * program with access to the machine's files could bypass the filter or attack the broker (capability.c). Sets
 * no_new_privs. */
int vb_guard_command(void);
/* Changes to user uid and drops all capabilities. The process gets the groups of user `name`, or only gid if name is
 * NULL. The change is permanent, because no_new_privs is set. */
int vb_guard_user(const char *name, uid_t uid, gid_t gid);
/* Closes all descriptors starting with number `from`, except the n descriptors in keep. Sorts keep in ascending order.
 * Entries of -1 are ignored. */
int vb_guard_fds(unsigned from, int *keep, unsigned n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Creates network namespaces, keeps them with a bind mount as `ip netns` does, enters them, and ends their
 * processes. */
#ifndef HW_SYS_NETNS_H
#define HW_SYS_NETNS_H

#include "sys/rtnl.h"

#include <sys/types.h>

#define HW_NETNS_DIR "/run/netns"

/* Returns true if the caller may create namespaces and mounts (CAP_SYS_ADMIN and CAP_NET_ADMIN) and may write to
 * /run. */
bool hw_netns_privileged(void);

/* Makes HW_NETNS_DIR a shared mount, so that namespaces created and deleted in it also appear and disappear in other
 * mount namespaces. The mount remains, as with `ip netns`. */
int hw_netns_prepare(void);

/* Creates a namespace, keeps it as HW_NETNS_DIR/name, and sets its lo up. Stores a file descriptor of the namespace in
 * *ns, and a socket inside it in rt. The calling thread returns to its own namespace. Fails with -EEXIST if the name is
 * taken. */
int hw_netns_create(const char *name, int *ns, struct hw_netlink *rt);
/* Does the same, but the namespace has no name, and exists only while a process or a file descriptor refers to it. */
int hw_netns_create_anonymous(int *ns, struct hw_netlink *rt);
/* Opens a namespace by name. Fails with -ENOENT if there is no such name, with -ENXIO if the file is not a namespace
 * (because of a crash), or with another -errno. */
int hw_netns_open(const char *name, int *ns);
/* Removes a name, whether or not a namespace is mounted there. Succeeds if there is no such name. */
int hw_netns_remove(const char *name);

/* Opens a route-netlink socket in the namespace ns. The calling thread returns to its own namespace. */
int hw_netns_rtnl(int ns, struct hw_netlink *rt);

/* Returns true if a and b are the same namespace. */
bool hw_netns_same(int a, int b);
/* Returns a file descriptor of the calling thread's namespace, or -errno. */
int hw_netns_own(void);

/* Ends the processes in the n namespaces, except the caller: sends SIGTERM, sends SIGKILL after grace_ms, and waits
 * until they have exited. Returns the number of these processes. Fails with -EBUSY if some processes have not exited 5
 * s after SIGKILL, with -E2BIG for more than 128 namespaces, or with another -errno. */
int hw_netns_kill(const int *ns, size_t n, int grace_ms);

/* Does the same for this user's processes whose mark (see hw_netns_join()) is prefix followed by lowercase letters.
 * This also finds processes in namespaces that no name keeps. */
int hw_netns_kill_marked(const char *prefix, int grace_ms);
/* Returns true if this process has a mark that is prefix followed by lowercase letters. */
bool hw_netns_marked(const char *prefix);

/* Moves this process, which must have a single thread, into the user namespace user (unless user is -1), the network
 * namespace net and a new mount namespace. Mounts a sysfs for net at /sys, with the process's mark as the mount's
 * source. Stores the result of that mount, 0 or -errno, in *sysfs_error. A failure of the mount is not fatal, but the
 * process then has no mark. Safe after fork() in a program with threads. Returns 0, or -errno with *step set to a
 * description of the step that failed. */
int hw_netns_join(int user, int net, const char *mark, int *sysfs_error, const char **step);

#endif

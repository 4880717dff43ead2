/* SPDX-License-Identifier: Apache-2.0 */
/* Network namespaces: made and kept by a bind mount as `ip netns` does, entered, and searched for processes. */
#ifndef HW_SYS_NETNS_H
#define HW_SYS_NETNS_H

#include "sys/rtnl.h"

#include <sys/types.h>

#define HW_NETNS_DIR "/run/netns"

/* Returns true if the caller may make namespaces and mounts (CAP_SYS_ADMIN and CAP_NET_ADMIN) and may write to /run. */
bool hw_netns_privileged(void);

/* Makes HW_NETNS_DIR a shared mount, so that namespaces made and deleted in it show in other mount namespaces too. It
 * stays afterwards, as with `ip netns`. */
int hw_netns_prepare(void);

/* Makes a namespace and keeps it as HW_NETNS_DIR/name. *ns receives a descriptor of it, rt a socket in it; lo is up.
 * The calling thread returns to its namespace. -EEXIST if the name is taken. */
int hw_netns_create(const char *name, int *ns, struct hw_netlink *rt);
/* The same, but only the descriptor keeps the namespace. */
int hw_netns_create_anonymous(int *ns, struct hw_netlink *rt);
/* Opens a namespace by name. -ENOENT; -ENXIO if the file is not a namespace (left by a crash). */
int hw_netns_open(const char *name, int *ns);
/* Removes a name, whatever is there. 0 if there is nothing. */
int hw_netns_remove(const char *name);

/* Opens a route-netlink socket in the namespace ns; the calling thread returns to its namespace. */
int hw_netns_rtnl(int ns, struct hw_netlink *rt);

/* Returns true if a and b are the same namespace. */
bool hw_netns_same(int a, int b);
/* Returns a descriptor of the calling thread's namespace, or -errno. */
int hw_netns_own(void);

/* Ends the processes in the n namespaces: SIGTERM, after grace_ms SIGKILL, then waits until they are gone. Skips the
 * caller. Returns how many there were; -EBUSY if some did not end. */
int hw_netns_kill(const int *ns, size_t n, int grace_ms);

/* The same for this user's processes that hw_netns_join() gave a mark of prefix and one more character, in any
 * namespace: for namespaces that no name keeps any more. */
int hw_netns_kill_marked(const char *prefix, int grace_ms);
/* Returns true if the caller has such a mark. */
bool hw_netns_marked(const char *prefix);

/* Moves this process, which must have one thread, into the user namespace user (-1: stay), the network namespace net
 * and a new mount namespace, and mounts a sysfs for net at /sys with mark as the mount's source; *sysfs_error receives
 * 0 or the -errno of that last step, which is not fatal. Safe after fork() in a program with threads. On failure *step
 * names the failed step. */
int hw_netns_join(int user, int net, const char *mark, int *sysfs_error, const char **step);

#endif

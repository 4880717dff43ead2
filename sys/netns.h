/* SPDX-License-Identifier: Apache-2.0 */
/* Network namespaces: made and kept by a bind mount as `ip netns` does, entered, searched for processes. */
#ifndef HW_SYS_NETNS_H
#define HW_SYS_NETNS_H

#include "sys/rtnl.h"

#include <sys/types.h>

#define HW_NETNS_DIR "/run/netns"

/* May the caller make namespaces and mounts where it stands (CAP_SYS_ADMIN and CAP_NET_ADMIN), and write to /run? */
bool hw_netns_privileged(void);

/* Makes HW_NETNS_DIR ready: there, and a shared mount, so that namespaces made and deleted in it show in other mount
 * namespaces too. Left in place afterwards, as `ip netns` leaves it. */
int hw_netns_prepare(void);

/* Makes a namespace and keeps it as HW_NETNS_DIR/name. *ns gets a descriptor of it, rt a socket in it, with lo up. The
 * calling thread ends where it was. -EEXIST where the name is taken. */
int hw_netns_create(const char *name, int *ns, struct hw_netlink *rt);
/* As above, but kept by nothing but the descriptor. */
int hw_netns_create_anonymous(int *ns, struct hw_netlink *rt);
/* Opens one that is kept by name. -ENOENT; -ENXIO where the file is not a namespace (a crash left it so). */
int hw_netns_open(const char *name, int *ns);
/* Takes a name away, whatever is left behind it. 0 where there is nothing. */
int hw_netns_remove(const char *name);

/* Opens a route-netlink socket in the namespace ns; the calling thread ends where it was. */
int hw_netns_rtnl(int ns, struct hw_netlink *rt);

/* True where a and b are one namespace. */
bool hw_netns_same(int a, int b);
/* The calling thread's own namespace as a descriptor, or -errno. */
int hw_netns_own(void);

/* Ends the processes in the n namespaces: SIGTERM, after grace_ms SIGKILL, and waits until they are gone. The caller
 * itself is left out. Returns how many there were; -EBUSY where some would not go. */
int hw_netns_kill(const int *ns, size_t n, int grace_ms);

/* As above for this user's processes that hw_netns_join() gave a mark of prefix and one more character, wherever their
 * namespaces are: for where nobody keeps those any more. */
int hw_netns_kill_marked(const char *prefix, int grace_ms);
/* Whether the caller itself carries such a mark. */
bool hw_netns_marked(const char *prefix);

/* Moves this process, which must have one thread, into the user namespace user (-1: stay), the network namespace net
 * and a mount namespace of its own, and puts a sysfs for net at /sys, with mark as the mount's source; *sysfs_error
 * gets 0 or the -errno of that last step, which is not fatal. Safe after fork() in a program with threads. *step, on
 * failure, names what failed. */
int hw_netns_join(int user, int net, const char *mark, int *sysfs_error, const char **step);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the cgroup to which the kernel must charge a container's RDMA objects, so that limits (rdma.max) apply. */
#ifndef HW_VERBS_CGROUP_H
#define HW_VERBS_CGROUP_H

#include "base/base.h"

#include <sys/types.h>

/* Opens cgroup.procs of a process's cgroup if the cgroup or one of its ancestors can limit RDMA objects. If the rdma
 * controller has a separate hierarchy (cgroup v1), uses the cgroup in this hierarchy. Returns a descriptor, -ENOENT if
 * none of these cgroups can limit RDMA objects or the process has exited, or another -errno. root and text are for
 * tests and otherwise NULL: root replaces /sys/fs/cgroup, and text replaces the content of /proc/PID/cgroup. */
int vb_cgroup_open(pid_t pid, const char *root, const char *text);

#endif

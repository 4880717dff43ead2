/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup that limits a container's RDMA objects (rdma.max). */
#ifndef HW_VERBS_CGROUP_H
#define HW_VERBS_CGROUP_H

#include "base/base.h"

#include <sys/types.h>

/* Opens cgroup.procs of the process's cgroup if that or one above it limits RDMA objects; in the hierarchy of the rdma
 * controller if that has its own (cgroup v1). -ENOENT: none limits them; -errno. For tests (NULL): root replaces
 * /sys/fs/cgroup, text the content of /proc. */
int vb_cgroup_open(pid_t pid, const char *root, const char *text);

#endif

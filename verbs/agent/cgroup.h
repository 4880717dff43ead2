/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup that limits a container's RDMA objects (rdma.max). */
#ifndef HW_VERBS_CGROUP_H
#define HW_VERBS_CGROUP_H

#include "base/base.h"

#include <sys/types.h>

/* cgroup.procs of the process's cgroup, where that or one above it counts RDMA objects; in the hierarchy of the rdma
 * controller where that has one of its own (cgroup v1). -ENOENT: none counts them; -errno. root: of the mounts, in
 * place of /sys/fs/cgroup, and text: in place of what /proc says (for tests; NULL). */
int vb_cgroup_open(pid_t pid, const char *root, const char *text);

#endif

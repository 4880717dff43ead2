/* SPDX-License-Identifier: Apache-2.0 */
/* How many CPUs a process may keep busy: what its affinity and the quotas of its control groups leave. */
#ifndef HW_CPUS_H
#define HW_CPUS_H

#include "base/base.h"

#include <sys/types.h>

struct hw_cpus {
    unsigned n;      /* at least 1 */
    uint64_t shared; /* the same for processes that have to share them: those that may run on the same ones and, where a
                      * quota counts, are in the same control group */
};

/* Of that thread (0: the calling one; a process's number: its first one). */
struct hw_cpus hw_cpus_read(pid_t thread);

/* The whole CPUs that the quota of this process's control groups is worth, at least 1: the smallest of its groups' and
 * of those above. 0: there is none. Below a root (net/sysfs.h), of control groups of version 2 (cpu.max) and 1
 * (cpu.cfs_quota_us; Documentation/admin-guide/cgroup-v2.rst and cgroup-v1, scheduler/sched-bwc.rst). */
unsigned hw_cpu_quota(int root);

#endif

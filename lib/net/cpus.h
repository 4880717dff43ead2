/* SPDX-License-Identifier: Apache-2.0 */
/* How many CPUs a process can keep busy under its affinity and the quotas of its control groups. */
#ifndef HW_CPUS_H
#define HW_CPUS_H

#include "base/base.h"

#include <sys/types.h>

struct hw_cpus {
    unsigned n;      /* at least 1 */
    uint64_t shared; /* the same for processes that share these CPUs: those with the same affinity and, if a quota
                        applies, in the same control group */
};

/* Reads the CPUs of a thread (0: the calling one; a process id: its main thread). */
struct hw_cpus hw_cpus_read(pid_t thread);

/* Returns the whole CPUs that the quota of this process's control groups allows, at least 1: the smallest quota of its
 * groups and the groups above them. 0: no quota. root: see net/sysfs.h. Reads control groups version 2 (cpu.max) and
 * version 1 (cpu.cfs_quota_us; Documentation/admin-guide/cgroup-v2.rst and cgroup-v1, scheduler/sched-bwc.rst). */
unsigned hw_cpu_quota(int root);

#endif

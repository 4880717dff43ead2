/* SPDX-License-Identifier: Apache-2.0 */
/* Determines how many CPUs a process can use under its affinity and the quotas of its control groups. */
#ifndef HW_CPUS_H
#define HW_CPUS_H

#include "base/base.h"

#include <sys/types.h>

struct hw_cpus {
    unsigned n;      /* CPUs that can be used: the smaller of mask and quota, at least 1 */
    unsigned mask;   /* CPUs of the affinity, at least 1 */
    unsigned quota;  /* CPUs that the quota allows, or 0 if there is none */
    uint64_t shared; /* equal for processes with the same affinity, which share the CPUs of the mask */
    uint64_t group;  /* equal for processes of the same control group, which share the quota; 0 if there is none */
};

/* Reads the CPUs that a thread of this process can use. 0 means the calling thread, and the process ID means the main
 * thread. */
struct hw_cpus hw_cpus_read(pid_t thread);

/* Returns the number of whole CPUs that the quota of this process's control groups allows, at least 1, or 0 if no quota
 * was found. The smallest quota of the groups and their parents applies. net/sysfs.h describes root. Supports control
 * groups version 2 (cpu.max) and version 1 (cpu.cfs_quota_us); see admin-guide/cgroup-v2.rst and
 * scheduler/sched-bwc.rst in the kernel's Documentation. */
unsigned hw_cpu_quota(int root);

#endif

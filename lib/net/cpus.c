/* SPDX-License-Identifier: Apache-2.0 */
#include "net/cpus.h"
#include "net/sysfs.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Paths where distributions and container runtimes mount control groups. */
static const char *const mounts_v2[] = {"sys/fs/cgroup", "sys/fs/cgroup/unified"};
static const char *const mounts_v1[] = {"sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"};

/* Reads a quota and its period, both in microseconds. Returns false if the group has no quota. */
typedef bool (*read_fn)(int root, const char *group, uint64_t *quota, uint64_t *period);

static bool read_v2(int root, const char *group, uint64_t *quota, uint64_t *period)
{
    char text[128];
    if (hw_root_text(root, text, sizeof text, "%s/cpu.max", group) < 0)
        return false;
    char *blank = strchr(text, ' ');
    if (!blank)
        return false;
    *blank = 0;
    return hw_text_u64(text, quota) == 0 && hw_text_u64(blank + 1, period) == 0; /* "max" means no quota */
}

static bool read_v1(int root, const char *group, uint64_t *quota, uint64_t *period)
{
    /* -1 means no quota */
    return hw_root_u64(root, quota, "%s/cpu.cfs_quota_us", group) == 0 &&
           hw_root_u64(root, period, "%s/cpu.cfs_period_us", group) == 0;
}

/* Lowers *least to the smallest quota of a group and its parent groups. In a container, the path is often the path on
 * the host, and the mount shows only the last part of this path. Missing groups are therefore skipped. */
static void look_at_groups(int root, const char *mount, const char *path, read_fn read, uint64_t *least)
{
    char group[4096];
    size_t top = strlen(mount);
    if (snprintf(group, sizeof group, "%s%s", mount, path) >= (int)sizeof group)
        return;
    for (;;) {
        uint64_t quota, period;
        if (read(root, group, &quota, &period) && quota && period)
            *least = HW_MIN(*least, HW_MAX(quota / period, 1ull));
        char *slash = strrchr(group, '/');
        if (!slash || (size_t)(slash - group) < top)
            return;
        *slash = 0;
    }
}

/* Returns true if the comma-separated list contains "cpu". */
static bool has_cpu(const char *controllers)
{
    for (size_t n; *controllers; controllers += n + (controllers[n] == ',')) {
        n = strcspn(controllers, ",");
        if (n == 3 && strncmp(controllers, "cpu", 3) == 0)
            return true;
    }
    return false;
}

unsigned hw_cpu_quota(int root)
{
    char text[HW_ATTR_MAX], *rest = text, *line;
    uint64_t least = UINT64_MAX;
    if (hw_root_text(root, text, sizeof text, "proc/self/cgroup") < 0)
        return 0;
    while ((line = strsep(&rest, "\n"))) { /* ID:CONTROLLERS:PATH, or in version 2 "0::PATH" */
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        controllers++;
        for (size_t i = 0; i < HW_ARRAY_LEN(mounts_v2) && !*controllers; i++)
            look_at_groups(root, mounts_v2[i], path, read_v2, &least);
        for (size_t i = 0; i < HW_ARRAY_LEN(mounts_v1) && has_cpu(controllers); i++)
            look_at_groups(root, mounts_v1[i], path, read_v1, &least);
    }
    return least == UINT64_MAX ? 0 : (unsigned)HW_MIN(least, (uint64_t)UINT32_MAX);
}

/* Hashes the control groups of this process together with the cgroup namespace, because the paths are meaningful only
 * within the namespace. */
static uint64_t hash_groups(uint64_t h, int root)
{
    char text[HW_ATTR_MAX];
    int n = hw_root_link(root, text, sizeof text, "proc/self/ns/cgroup");
    h = n > 0 ? hw_hash(h, text, (size_t)n) : h;
    n = hw_root_text(root, text, sizeof text, "proc/self/cgroup");
    return n > 0 ? hw_hash(h, text, (size_t)n) : h;
}

struct hw_cpus hw_cpus_read(pid_t thread)
{
    cpu_set_t set;
    struct hw_cpus c = {.shared = HW_HASH_START};
    CPU_ZERO(&set);
    if (sched_getaffinity(thread, sizeof set, &set) == 0) {
        c.mask = (unsigned)CPU_COUNT(&set);
        c.shared = hw_hash(c.shared, &set, sizeof set);
    } else { /* for example if the machine has more CPUs than cpu_set_t can hold */
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        c.mask = online > 0 ? (unsigned)online : 1;
    }
    int root = hw_root_open("/");
    c.quota = root < 0 ? 0 : hw_cpu_quota(root);
    c.group = c.quota ? hash_groups(HW_HASH_START, root) : 0;
    hw_close(&root);
    c.mask = HW_MAX(c.mask, 1u);
    c.n = c.quota ? HW_MIN(c.mask, c.quota) : c.mask;
    return c;
}

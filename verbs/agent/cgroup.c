/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/agent/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns true if "rdma" is in a list of controllers, such as "cpuset,rdma". */
static bool has_rdma_controller(const char *controllers, size_t n)
{
    for (const char *s = controllers, *end; s < controllers + n; s = end + 1) {
        end = memchr(s, ',', (size_t)(controllers + n - s));
        end = end ? end : controllers + n;
        if (end - s == 4 && memcmp(s, "rdma", 4) == 0)
            return true;
    }
    return false;
}

/* Returns true if the cgroup at path below mount, or one of its ancestors, can limit RDMA objects. The root cgroup has
 * no limit. */
static bool has_rdma_limit(const char *mount, const char *path)
{
    char at[PATH_MAX], file[PATH_MAX + 16];
    if (snprintf(at, sizeof at, "%s%s", mount, path) >= (int)sizeof at)
        return false;
    for (char *end; strlen(at) > strlen(mount) + 1; *end = 0) {
        snprintf(file, sizeof file, "%s/rdma.max", at);
        if (access(file, F_OK) == 0)
            return true;
        end = strrchr(at, '/');
    }
    return false;
}

static int open_procs(const char *mount, const char *path)
{
    char file[PATH_MAX];
    if (strstr(path, "/..")) /* the cgroup is not in this process's cgroup namespace */
        return hw_fail(-EXDEV, "cgroup %s is not below the root of this process's cgroup namespace", path);
    if (!has_rdma_limit(mount, path))
        return -ENOENT;
    if (snprintf(file, sizeof file, "%s%s/cgroup.procs", mount, path) >= (int)sizeof file)
        return hw_fail(-ENAMETOOLONG, "cgroup %s: the path is too long", path);
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    return fd >= 0 ? fd : hw_fail(-errno, "cannot open %s: %s", file, strerror(errno));
}

/* Opens cgroup.procs of a cgroup. line is from /proc/PID/cgroup and has the form "3:rdma:/path" or "0::/path"
 * (cgroups(7)). Fails with -ENOENT if the line is for other controllers, or if neither the cgroup nor one of its
 * ancestors can limit RDMA objects, or with another -errno. */
static int of_line(char *line, const char *root)
{
    char mount[PATH_MAX];
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return -ENOENT;
    controllers++;
    path++;
    path[strcspn(path, "\n")] = 0;
    size_t n = (size_t)(path - 1 - controllers);
    if (n > 0 && !has_rdma_controller(controllers, n))
        return -ENOENT;
    snprintf(mount, sizeof mount, "%s%s", root, n > 0 ? "/rdma" : "");
    return open_procs(mount, path);
}

int vb_cgroup_open(pid_t pid, const char *root, const char *text)
{
    char path[64], line[PATH_MAX + 64];
    int rc = -ENOENT;
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    FILE *f = text ? fmemopen((void *)(uintptr_t)text, strlen(text), "r") : fopen(path, "re");
    if (!f)
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    while (rc == -ENOENT && fgets(line, sizeof line, f))
        rc = of_line(line, root ? root : "/sys/fs/cgroup");
    fclose(f);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot: the files that a scan reads (lib/node/node.c), at the paths where they really are, and the links to them.
 */
#include "node/sysfs.h"
#include "tool/topo.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct save {
    int root, to;
    const char *dir;
};

/* Where path below the root really is, with links followed: "sys/devices/...". The kernel says so of a descriptor. */
static int real(const struct save *s, const char *path, char *out, size_t cap)
{
    char self[64];
    int fd = hw_root_fd(s->root, O_PATH, "%s", path);
    if (fd < 0)
        return fd;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(self, out, cap);
    hw_close(&fd);
    if (n <= 1 || (size_t)n >= cap)
        return hw_fail(-EIO, "%s: where it really is cannot be found out: is /proc there?", path);
    memmove(out, out + 1, (size_t)n - 1); /* "/" is the root */
    out[n - 1] = 0;
    return 0;
}

/* All folders above path, in the snapshot. */
static int folders(const struct save *s, const char *path)
{
    char part[PATH_MAX];
    for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
        if (mkdirat(s->to, part, 0777) < 0 && errno != EEXIST)
            return hw_fail(-errno, "%s/%s: %s", s->dir, part, strerror(errno));
    }
    return 0;
}

static int put(const struct save *s, const char *path, const char *text)
{
    int rc = folders(s, path);
    if (rc < 0)
        return rc;
    int fd = openat(s->to, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        rc = hw_fail(-errno, "%s/%s: %s", s->dir, path, strerror(errno));
        hw_close(&fd);
        return rc;
    }
    bool bad = fprintf(f, "%s\n", text) < 0;
    if (fclose(f) != 0 || bad)
        return hw_fail(-EIO, "%s/%s could not be written", s->dir, path);
    return 0;
}

/* The text of each of those files of folder dir; what this machine does not have or does not tell is left out. */
static int attributes(const struct save *s, const char *dir, const char *const *file, size_t n)
{
    char at[PATH_MAX], path[PATH_MAX + 64], text[HW_ATTR_MAX];
    if (real(s, dir, at, sizeof(at)) < 0)
        return 0;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (hw_root_text(s->root, text, sizeof(text), "%s/%s", dir, file[i]) < 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", at, file[i]);
        rc = put(s, path, text);
    }
    return rc;
}

/* Link dir/name as it stands, at dir's real place. */
static int link_of(const struct save *s, const char *dir, const char *name)
{
    char at[PATH_MAX], path[PATH_MAX + 256], target[PATH_MAX];
    if (hw_root_link(s->root, target, sizeof(target), "%s/%s", dir, name) < 0 || real(s, dir, at, sizeof(at)) < 0)
        return 0;
    snprintf(path, sizeof(path), "%s/%s", at, name);
    int rc = folders(s, path);
    if (rc == 0 && symlinkat(target, s->to, path) < 0 && errno != EEXIST)
        rc = hw_fail(-errno, "%s/%s: %s", s->dir, path, strerror(errno));
    return rc;
}

static int save_pci(const struct save *s, const struct hw_node *n)
{
    static const char *const file[] = {
        "class",          "vendor",        "device", "numa_node", "current_link_speed", "current_link_width",
        "max_link_speed", "max_link_width"};
    int rc = 0;
    for (size_t i = 0; i < n->n_pci && rc == 0; i++) {
        char at[HW_BDF_TEXT], dir[64];
        hw_bdf_text(n->pci[i].path.at[n->pci[i].path.depth - 1], at);
        snprintf(dir, sizeof(dir), "sys/bus/pci/devices/%s", at);
        if ((rc = link_of(s, "sys/bus/pci/devices", at)) == 0 && (rc = link_of(s, dir, "driver")) == 0)
            rc = attributes(s, dir, file, HW_ARRAY_LEN(file));
    }
    return rc;
}

static int save_net(const struct save *s, const struct hw_node *n)
{
    static const char *const file[] = {"mtu", "type", "operstate", "speed"};
    static const char *const port[] = {"ports/1/state", "ports/1/rate", "ports/1/link_layer"};
    char routes[4096] = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask";
    int rc = 0;
    for (size_t i = 0; i < n->n_netdev && rc == 0; i++) {
        const struct hw_netdev *d = &n->netdev[i];
        char dir[128], device[192], lower[HW_NODE_NAME + 8];
        snprintf(dir, sizeof(dir), "sys/class/net/%s", d->name);
        snprintf(device, sizeof(device), "%s/device", dir);
        snprintf(lower, sizeof(lower), "lower_%s", d->over);
        if ((rc = link_of(s, "sys/class/net", d->name)) < 0 || (rc = link_of(s, dir, "device")) < 0 ||
            (rc = link_of(s, device, "driver")) < 0 || (rc = link_of(s, dir, "master")) < 0 ||
            (d->over[0] && (rc = link_of(s, dir, lower)) < 0))
            break;
        rc = attributes(s, dir, file, HW_ARRAY_LEN(file));
        size_t used = strlen(routes);
        if (d->default_route)
            snprintf(routes + used, sizeof(routes) - used, "\n%s\t00000000\t00000000\t0003\t0\t0\t0\t00000000",
                     d->name);
    }
    for (size_t i = 0; i < n->n_rdma && rc == 0; i++) {
        char dir[128];
        snprintf(dir, sizeof(dir), "sys/class/infiniband/%s", n->rdma[i].name);
        if ((rc = link_of(s, "sys/class/infiniband", n->rdma[i].name)) == 0 && (rc = link_of(s, dir, "device")) == 0)
            rc = attributes(s, dir, port, HW_ARRAY_LEN(port));
    }
    /* which interfaces have a default route, and nobody's addresses */
    return rc < 0 ? rc : put(s, "proc/net/route", routes);
}

static int save_cpus(const struct save *s, const struct hw_node *n)
{
    static const char *const file[] = {"cpulist", "distance"}, *const online[] = {"online"},
                             *const package[] = {"topology/physical_package_id"},
                             *const machine[] = {"sys_vendor", "product_name"};
    int rc = attributes(s, "sys/devices/system/cpu", online, 1);
    if (rc == 0)
        rc = attributes(s, "sys/class/dmi/id", machine, 2);
    if (rc == 0)
        rc = link_of(s, "sys/class/dmi", "id");
    for (size_t i = 0; i < n->n_numa && rc == 0; i++) {
        char dir[64];
        snprintf(dir, sizeof(dir), "sys/devices/system/node/node%d", n->numa[i].id);
        rc = attributes(s, dir, file, HW_ARRAY_LEN(file));
        snprintf(dir, sizeof(dir), "sys/devices/system/cpu/cpu%lu", strtoul(n->numa[i].cpus, NULL, 10));
        if (rc == 0 && n->numa[i].cpus[0])
            rc = attributes(s, dir, package, 1);
    }
    return rc;
}

int topo_save(const struct hw_node *n, int root, const char *dir)
{
    if (mkdir(dir, 0777) < 0)
        return hw_fail(-errno, "%s: cannot be made: %s", dir, strerror(errno));
    struct save s = {.root = root, .to = hw_root_open(dir), .dir = dir};
    if (s.to < 0)
        return s.to;
    int rc = save_pci(&s, n);
    if (rc == 0)
        rc = save_net(&s, n);
    if (rc == 0)
        rc = save_cpus(&s, n);
    hw_close(&s.to);
    return rc;
}

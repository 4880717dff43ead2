/* SPDX-License-Identifier: Apache-2.0 */
/* The RDMA interface of the running kernel. */
#include "verbs/broker/broker.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband_verbs"

/* Reads the first line of a file. Returns false if the file cannot be read, is empty or is too long. */
static bool line_of(int dir, const char *path, char *out, size_t cap)
{
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, cap);
    close(fd);
    if (n <= 0 || (size_t)n >= cap)
        return false;
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return out[0] != 0;
}

/* Parses a device number of the form "231:0". */
static bool parse_device_number(const char *text, dev_t *out)
{
    char *end;
    unsigned long major = strtoul(text, &end, 10), minor;
    if (*end != ':')
        return false;
    minor = strtoul(end + 1, &end, 10);
    *out = makedev((unsigned)major, (unsigned)minor);
    return *end == 0;
}

static int list_kernel_devices(struct vb_device *out, unsigned cap)
{
    DIR *d = opendir(CLASS);
    if (!d)
        return errno == ENOENT ? 0 : hw_fail(-errno, "cannot open " CLASS ": %s", strerror(errno));
    unsigned n = 0;
    for (struct dirent *e; n < cap && (e = readdir(d));) {
        char dev[32], path[64];
        struct vb_device *v = &out[n];
        memset(v, 0, sizeof *v);
        if (strncmp(e->d_name, "uverbs", 6) != 0 || strlen(e->d_name) >= sizeof v->node)
            continue;
        snprintf(path, sizeof path, "%.31s/dev", e->d_name);
        if (!line_of(dirfd(d), path, dev, sizeof dev) || !parse_device_number(dev, &v->rdev))
            continue; /* the device is being removed */
        snprintf(path, sizeof path, "%.31s/ibdev", e->d_name);
        if (!line_of(dirfd(d), path, v->ibdev, sizeof v->ibdev))
            continue;
        memcpy(v->node, e->d_name, strlen(e->d_name) + 1);
        n++;
    }
    closedir(d);
    return (int)n;
}

/* Returns true if the device still exists under the same number. This check is faster than listing all devices, and is
 * usually sufficient, because most programs open the same device as before. */
static bool is_device_present(const struct vb_device *d)
{
    char path[64], line[sizeof d->ibdev];
    snprintf(path, sizeof path, "/sys/dev/char/%u:%u/ibdev", major(d->rdev), minor(d->rdev));
    return line_of(AT_FDCWD, path, line, sizeof line) && strcmp(line, d->ibdev) == 0;
}

static int run_verbs_ioctl(int fd, struct ib_uverbs_ioctl_hdr *request)
{
    int rc = ioctl(fd, RDMA_VERBS_IOCTL, request);
    return rc < 0 ? -errno : rc;
}

static int read_sysfs_pkey(const char *ibdev, unsigned port, unsigned index, uint16_t *value)
{
    char path[160], line[32], *end;
    if (snprintf(path, sizeof path, "%s/ports/%u/pkeys/%u", ibdev, port, index) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int dir = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    bool found = line_of(dir, path, line, sizeof line);
    close(dir);
    if (!found)
        return -ENOENT;
    unsigned long v = strtoul(line, &end, 16);
    if (*end || v > UINT16_MAX)
        return -EINVAL;
    *value = (uint16_t)v;
    return 0;
}

const struct vb_kernel vb_kernel = {
    .devices = list_kernel_devices, .still = is_device_present, .ioctl = run_verbs_ioctl, .pkey = read_sysfs_pkey};

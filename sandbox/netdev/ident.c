/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/netdev/ident.h"
#include "sys/netns.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Creates a detached mount of the sysfs of the calling thread's network namespace. */
static int mount_sysfs(void)
{
    int fs = fsopen("sysfs", FSOPEN_CLOEXEC), mount = -1;
    if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        mount = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    int rc = mount >= 0 ? mount
                        : hw_fail(-errno, "mounting a network namespace's sysfs, which identifies devices: %s%s",
                                  strerror(errno), errno == ENOSYS ? " (it needs Linux 5.2)" : "");
    hw_close(&fs);
    return rc;
}

int sb_sysfs_open(int ns)
{
    int own = hw_netns_own();
    if (own < 0)
        return own;
    int rc = setns(ns, CLONE_NEWNET) < 0 ? hw_fail(-errno, "entering a network namespace: %s", strerror(errno)) : 0;
    if (rc == 0) {
        rc = mount_sysfs();
        if (setns(own, CLONE_NEWNET) < 0) { /* unlikely: the thread has just left that namespace */
            if (rc >= 0)
                hw_close(&rc);
            rc = hw_fail(-errno, "returning to this process's network namespace: %s", strerror(errno));
        }
    }
    hw_close(&own);
    return rc;
}

static int read_index(int folder)
{
    char text[16] = "";
    int fd = openat(folder, "ifindex", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    hw_close(&fd);
    return n > 0 ? (int)strtol(text, NULL, 10) : 0;
}

int sb_ident_open(int sysfs, const char *name, uint64_t *ident, int *index)
{
    char path[IFNAMSIZ + 16];
    struct stat st;
    if (strlen(name) >= IFNAMSIZ)
        return -ENODEV;
    snprintf(path, sizeof(path), "class/net/%s", name);
    int fd = openat(sysfs, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? -ENODEV : hw_fail(-errno, "sysfs: %s: %s", path, strerror(errno));
    int at = read_index(fd);
    if (fstat(fd, &st) < 0 || at == 0) { /* the device is being removed */
        hw_close(&fd);
        return -ENODEV;
    }
    if (ident)
        *ident = st.st_ino;
    if (index)
        *index = at;
    return fd;
}

/* Returns 1 if the device with that name has the identity, 0 if it is another device or does not exist, or -errno. */
static int try_name(int sysfs, uint64_t ident, const char *name, int *index)
{
    uint64_t is = 0;
    int fd = sb_ident_open(sysfs, name, &is, index);
    if (fd < 0)
        return fd == -ENODEV ? 0 : fd;
    hw_close(&fd);
    return is == ident;
}

int sb_ident_find(int sysfs, uint64_t ident, const char *hint, char name[IFNAMSIZ], int *index)
{
    int rc = hint ? try_name(sysfs, ident, hint, index) : 0;
    if (rc == 1)
        memmove(name, hint, strlen(hint) + 1);
    if (rc)
        return HW_MIN(rc, 0);
    int fd = openat(sysfs, "class/net", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        rc = hw_fail(-errno, "sysfs: class/net: %s", strerror(errno));
        hw_close(&fd);
        return rc;
    }
    const struct dirent *e;
    while (rc == 0 && (e = readdir(d)) != NULL) {
        if (e->d_type != DT_LNK)
            continue;
        rc = try_name(sysfs, ident, e->d_name, index);
        if (rc == 1)
            memcpy(name, e->d_name, strlen(e->d_name) + 1); /* sb_ident_open() has checked the length */
    }
    closedir(d);
    return rc == 1 ? 0 : rc < 0 ? rc : -ENODEV;
}

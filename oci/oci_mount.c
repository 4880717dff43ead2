/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts the rebuilt sysfs on a container's /sys before any of the container's programs runs. */
#include "oci/oci.h"
#include "sandbox/sysfs/sysfs.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BARE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

static int fail_sysfs_mount(const char *what)
{
    return hw_fail(-errno, "the container's /sys: %s: %s%s", what, strerror(errno),
                   errno == ENOSYS ? " (it needs Linux 5.12)" : "");
}

/* Opens a folder below root without following symbolic links, because the container controls root. */
static int open_folder_below(int root, const char *path)
{
    return hw_openat2(root, path, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
}

static int read_only(int mount)
{
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY | BARE};
    return mount_setattr(mount, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0 ? fail_sysfs_mount("making the mount read-only")
                                                                      : 0;
}

/* Returns true if fd is the root of a mount. */
static bool is_mount(int fd)
{
    struct statx st;
    return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) == 0 && st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* Mounts `mount` on the folder `at`, and moves the mounts on cgroup from below the folder to the new mount. The mounts
 * are moved and not copied, because crun later makes the mounts that it has created read-only. */
static int mount_sysfs_at(int mount, int at, int cgroup)
{
    if (move_mount(mount, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return fail_sysfs_mount("mounting");
    int rc = read_only(mount);
    if (rc == 0 && is_mount(cgroup) && move_mount(cgroup, "", mount, "fs/cgroup", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        rc = fail_sysfs_mount("moving the mounts on fs/cgroup");
    return rc;
}

/* Opens sys below root, and its fs/cgroup. *cgroup is -1 if there is none. */
static int open_sysfs_folders(int root, int *sys, int *cgroup)
{
    *cgroup = -1;
    *sys = open_folder_below(root, "sys");
    if (*sys < 0)
        return fail_sysfs_mount("opening the folder");
    *cgroup = open_folder_below(*sys, "fs/cgroup");
    return *cgroup < 0 && errno != ENOENT ? fail_sysfs_mount("opening fs/cgroup") : 0;
}

/* Creates a separate tmpfs, which the kernel removes together with the mount namespace. */
static int fresh_tmpfs(void)
{
    HW_AUTO_CLOSE int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    int mount = -1;
    if (fs >= 0 && fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) == 0 &&
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        mount = fsmount(fs, FSMOUNT_CLOEXEC, BARE);
    return mount < 0 ? fail_sysfs_mount("creating a tmpfs") : mount;
}

int sbx_mount_tree(int root, const struct sbx_tree *t)
{
    HW_AUTO_CLOSE int sys = -1, cgroup = -1, mount = -1, tree = -1, cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cwd < 0)
        return fail_sysfs_mount("opening the current folder");
    int rc = open_sysfs_folders(root, &sys, &cgroup);
    if (rc < 0)
        return rc;
    mount = fresh_tmpfs();
    if (mount < 0)
        return mount;
    if (move_mount(mount, "", sys, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return fail_sysfs_mount("mounting");
    /* Writes through the current folder, because a path to the tmpfs would lead through the container's /proc. */
    if (fchdir(mount) < 0)
        return fail_sysfs_mount("entering a tmpfs");
    rc = sbx_tree_write(t, "sys");
    if (fchdir(cwd) < 0 && rc == 0)
        rc = fail_sysfs_mount("returning to the current folder");
    if (rc < 0)
        return rc;
    tree = open_tree(mount, "sys", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return tree < 0 ? fail_sysfs_mount("binding the tree") : mount_sysfs_at(tree, mount, cgroup);
}

int sbx_mount_open(const char *dir)
{
    int fd = open_tree(AT_FDCWD, dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return fd < 0 ? hw_fail(-errno, "%s: %s", dir, strerror(errno)) : fd;
}

int sbx_mount_folder(int root, int folder)
{
    HW_AUTO_CLOSE int sys = -1, cgroup = -1;
    int rc = open_sysfs_folders(root, &sys, &cgroup);
    return rc < 0 ? rc : mount_sysfs_at(folder, sys, cgroup);
}

static int in_namespace(int ns, const char *at, const struct sbx_tree *t, int folder)
{
    if (setns(ns, CLONE_NEWNS) < 0)
        return fail_sysfs_mount("entering the container's mount namespace");
    HW_AUTO_CLOSE int root = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return hw_fail(-errno, "the container's root %s: %s", at, strerror(errno));
    return t ? sbx_mount_tree(root, t) : sbx_mount_folder(root, folder);
}

/* Reads the child's error message, if any, and waits for the child to exit. */
static int await_mounting_child(pid_t child, int say)
{
    char why[HW_ERR_TEXT] = "";
    int status = 0;
    size_t len = 0;
    for (ssize_t n; (n = read(say, why + len, sizeof(why) - 1 - len)) > 0;)
        len += (size_t)n;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return hw_fail(WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO, "%s",
                   *why ? why : "the container's /sys: the process that was mounting it ended");
}

/* Mounts in a child process, because entering a mount namespace also changes the root and the current folder of a
 * process. The child reports its error through a pipe. */
int sbx_mount_in(pid_t pid, uint64_t start, const char *root, const struct sbx_tree *t, int folder)
{
    char path[64];
    int say[2];
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    HW_AUTO_CLOSE int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0)
        return hw_fail(-errno, "the container's mount namespace, %s: %s", path, strerror(errno));
    struct stat own, theirs;
    if (stat("/proc/self/ns/mnt", &own) < 0 || fstat(ns, &theirs) < 0 ||
        (own.st_dev == theirs.st_dev && own.st_ino == theirs.st_ino))
        return hw_fail(-EINVAL, "the container has no mount namespace of its own, so its /sys is the host's");
    if (sb_process_start(pid) != start) /* checked after the open, so the namespace belongs to process pid */
        return hw_fail(-ESRCH, "the container's process %d has ended", (int)pid);
    if (pipe2(say, O_CLOEXEC) < 0)
        return hw_fail(-errno, "creating a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        int rc = in_namespace(ns, root, t, folder);
        if (rc < 0 && write(say[1], hw_error(), strlen(hw_error())) < 0)
            _exit(255);
        _exit(rc < 0 ? HW_MIN(-rc, 254) : 0);
    }
    hw_close(&say[1]);
    int rc = child < 0 ? hw_fail(-errno, "fork: %s", strerror(errno)) : await_mounting_child(child, say[0]);
    hw_close(&say[0]);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/stub/lookup.h"
#include "verbs/stub/notify.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL /* from include/uapi/linux/pidfd.h of Linux 6.9 */
#endif

/* ---- the folder of nodes ------------------------------------------------------------------------------ */

static int clone_mount(const struct vb_lookups *l)
{
    int fd = (int)syscall(SYS_open_tree, l->nodes, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    return fd >= 0 ? fd : hw_fail(-errno, "cannot clone the mount of the device nodes: %s", strerror(errno));
}

int vb_lookups_open(struct vb_lookups *l, const struct vb_kernel *kernel, const char *node_dir, uid_t uid, int inotify,
                    dev_t *dev)
{
    struct stat st;
    *l = (struct vb_lookups){.kernel = kernel, .nodes = -1, .inotify = inotify, .mount = -1, .spent = -1};
    l->nodes = open(node_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->nodes < 0 || fstat(l->nodes, &st) || (uid && fchown(l->nodes, uid, uid)))
        return hw_fail(-errno, "cannot use %s, the folder for device nodes: %s", node_dir, strerror(errno));
    *dev = st.st_dev;
    l->mount = clone_mount(l);
    return HW_MIN(l->mount, 0);
}

void vb_lookups_close(struct vb_lookups *l)
{
    hw_close(&l->nodes);
    hw_close(&l->mount);
    hw_close(&l->spent);
}

bool vb_lookups_wait(const struct vb_lookups *l)
{
    return l->spent >= 0 || l->mount < 0;
}

/* Unmounts the mount of the last open and prepares a mount for the next open. The tracer calls this function when it is
 * idle, because unmounting waits for an RCU grace period (namespace_unlock() in fs/namespace.c). */
void vb_lookups_idle(struct vb_lookups *l)
{
    hw_close(&l->spent);
    if (l->mount < 0)
        l->mount = clone_mount(l); /* after a failure the next open reports the reason */
}

/* ---- devices ------------------------------------------------------------------------------------------ */

static void refresh_device_list(struct vb_lookups *l)
{
    int n = l->kernel->devices(l->device, VB_DEVICES_MAX);
    l->n_devices = n > 0 ? HW_MIN((unsigned)n, VB_DEVICES_MAX) : 0;
    l->listed = hw_now();
}

static const struct vb_device *find_listed_device(const struct vb_lookups *l, dev_t rdev)
{
    for (unsigned i = 0; i < l->n_devices; i++) {
        if (l->device[i].rdev == rdev)
            return &l->device[i];
    }
    return NULL;
}

/* Returns the RDMA device with this number, or NULL. Programs open many other character devices, so devices are listed
 * again for an unknown number at most once a second. A known number may have been reused for another device, so the
 * device is checked. */
static const struct vb_device *device_by_rdev(struct vb_lookups *l, dev_t rdev)
{
    const struct vb_kernel *k = l->kernel;
    const struct vb_device *d = find_listed_device(l, rdev);
    if (d ? k->still && k->still(d) : l->listed && hw_now() - l->listed < 1000 * HW_MS)
        return d;
    refresh_device_list(l);
    return find_listed_device(l, rdev);
}

/* ---- opens -------------------------------------------------------------------------------------------- */

/* Resolves the application's path in the application's root. Stores the device number if the path is a character
 * device, and otherwise fails with -ENOENT. The kernel then opens the path for the application. If the path is a device
 * node that could not be resolved here, the kernel's open fails, because the node's mount has nodev. */
static int resolve_device_path(pid_t tid, int dirfd, const char *name, int flags, dev_t *rdev)
{
    char at[64];
    uint64_t within;
    struct stat st;
    if (name[0] == '/') {
        snprintf(at, sizeof at, "/proc/%d/root", (int)tid);
        within = RESOLVE_IN_ROOT;
    } else {
        if (dirfd == AT_FDCWD)
            snprintf(at, sizeof at, "/proc/%d/cwd", (int)tid);
        else
            snprintf(at, sizeof at, "/proc/%d/fd/%d", (int)tid, dirfd);
        /* The path must not leave the directory, because the directory's parent is unknown here. */
        within = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    }
    int dir = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -ENOENT;
    int fd = hw_openat2(dir, name, O_PATH | (flags & O_NOFOLLOW), within);
    close(dir);
    if (fd < 0)
        return -ENOENT;
    int rc = fstat(fd, &st);
    close(fd);
    if (rc || !S_ISCHR(st.st_mode))
        return -ENOENT;
    *rdev = st.st_rdev;
    return 0;
}

/* Creates and opens a device node on a separate mount. The mount is set to nodev before another process gets the
 * descriptor. Opening the node again through /proc/self/fd, which would bypass the broker, therefore fails. */
static int open_node(struct vb_lookups *l, const struct vb_device *d, int *out)
{
    char name[64];
    struct mount_attr nodev = {.attr_set = MOUNT_ATTR_NODEV};
    int fd = -1;
    snprintf(name, sizeof name, "%d-%llu", (int)getpid(), (unsigned long long)l->serial++);
    int mount = l->mount >= 0 ? l->mount : clone_mount(l), rc = 0;
    l->mount = -1;
    if (mount < 0)
        return mount;
    hw_close(&l->spent);
    l->spent = mount;
    if (mknodat(mount, name, S_IFCHR | 0600, d->rdev))
        return hw_fail(-errno, "cannot create a device node: %s", strerror(errno));
    fd = openat(mount, name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        rc = hw_fail(-errno, "cannot open %s (%s): %s%s", d->node, d->ibdev, strerror(errno),
                     errno == EACCES ? "; check whether the folder for device nodes is mounted with nodev" : "");
    else if (syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &nodev, sizeof nodev))
        rc = hw_fail(-errno, "cannot set nodev on the mount of a device node: %s", strerror(errno));
    unlinkat(mount, name, 0); /* fd keeps the inode, which is watched before another process gets fd */
    if (rc)
        hw_close(&fd);
    *out = fd;
    return rc;
}

/* Returns the lowest descriptor from VB_FD_FIRST to VB_FD_LAST that the thread does not have open. If the thread opens
 * a file at this descriptor in the meantime, the device replaces the file, as with dup2(). Fails with -EMFILE if none
 * is free, or with another -errno. */
static int free_number(pid_t tid)
{
    char path[64];
    struct stat st;
    for (int fd = VB_FD_FIRST; fd <= VB_FD_LAST; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)tid, fd);
        if (lstat(path, &st))
            return errno == ENOENT ? fd : -errno;
    }
    return -EMFILE;
}

/* Watches a node with inotify. When no name, descriptor or mapping of the inode is left, the kernel
 * evicts the inode and always reports IN_IGNORED (fsnotify_destroy_marks() in fs/notify/mark.c). Other events are not
 * needed. */
static int watch_device_node(const struct vb_lookups *l, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int wd = inotify_add_watch(l->inotify, path, IN_MOVE_SELF);
    return wd >= 0 ? wd
                   : hw_fail(-errno, "cannot watch a device node with inotify: %s; check fs.inotify.max_user_watches",
                             strerror(errno));
}

static int open_named_device(struct vb_lookups *l, const struct vb_lookup *q, struct vb_found *f, int *fd)
{
    char name[4096]; /* PATH_MAX */
    dev_t rdev;
    if (vb_mem_string(q->tid, q->name, name, sizeof name) ||
        resolve_device_path(q->tid, q->dirfd, name, q->flags, &rdev))
        return -ENOENT;
    const struct vb_device *d = device_by_rdev(l, rdev);
    if (!d)
        return -ENOENT;
    f->device = *d;
    f->at = free_number(q->tid);
    int rc = open_node(l, d, fd);
    if (rc == 0)
        rc = HW_MIN(f->watch = watch_device_node(l, *fd), 0);
    if (rc == -ENOENT) /* -ENOENT would mean that the path is not an RDMA device */
        return hw_wrap(-EIO, "the folder for device nodes no longer exists");
    return rc == -ENXIO ? hw_wrap(-ENODEV, "the device no longer exists") : rc;
}

/* ---- threads and the window --------------------------------------------------------------------------- */

static int find_process(const struct vb_lookup *q, struct vb_found *f, int *fd)
{
    f->tgid = vb_process_of(q->tid);
    *fd = f->tgid > 0 ? (int)syscall(SYS_pidfd_open, f->tgid, 0) : -1;
    return *fd >= 0 ? 0 : hw_fail(-ESRCH, "thread %d has ended", (int)q->tid);
}

static int find_thread(const struct vb_lookup *q, struct vb_found *f, int *fd)
{
    char path[48];
    *fd = (int)syscall(SYS_pidfd_open, q->tid, PIDFD_THREAD);
    if (*fd < 0 && errno == EINVAL) {
        snprintf(path, sizeof path, "/proc/%d/task/%d", (int)q->tgid, (int)q->tid);
        *fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        f->folder = true;
    }
    return *fd >= 0 ? 0 : hw_fail(-errno, "cannot get a descriptor of thread %d: %s", (int)q->tid, strerror(errno));
}

/* Returns the state of a thread, for example 'R', 'S' or 'Z', or 0 if the thread has exited. */
static char read_thread_state(pid_t tgid, const char *tid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/task/%.16s/stat", (int)tgid, tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[HW_MAX(n, 0)] = 0;
    const char *end = strrchr(line, ')'); /* the end of the name, which the program can choose (proc(5)) */
    if (!end || end[1] != ' ')
        return 0;
    return end[2];
}

static bool is_alone(pid_t tgid, pid_t tid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/task", (int)tgid);
    DIR *d = opendir(path);
    if (!d)
        return false;
    bool alone = true, seen = false;
    for (struct dirent *e; alone && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        if (strtol(e->d_name, NULL, 10) == tid) {
            seen = true;
            continue;
        }
        /* If the first thread of a process has exited, it stays a zombie until the last thread exits. */
        char state = read_thread_state(tgid, e->d_name);
        alone = state == 0 || state == 'Z' || state == 'X';
    }
    closedir(d);
    return alone && seen;
}

static void read_thread_name(pid_t tid, char *out, size_t cap)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, cap - 1);
    hw_close(&fd);
    out[HW_MAX(n, 0)] = 0;
    out[strcspn(out, "\n")] = 0;
}

/* Stores in *out the inode of the user namespace in which thread tid has CAP_IPC_LOCK, or 0 if it does not have the
 * capability. */
static int lock_right(pid_t tid, ino_t *out)
{
    char path[64], line[256];
    struct stat st;
    unsigned long long effective = 0;
    bool seen = false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
    FILE *f = fopen(path, "re");
    while (f && !seen && fgets(line, sizeof line, f))
        if ((seen = strncmp(line, "CapEff:", 7) == 0))
            effective = strtoull(line + 7, NULL, 16);
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)tid);
    if (!seen || stat(path, &st))
        return hw_fail(-ESRCH, "cannot read the capabilities of thread %d", (int)tid);
    *out = effective & 1ull << CAP_IPC_LOCK ? st.st_ino : 0;
    return 0;
}

static int compare_rights(const struct vb_lookup *q, struct vb_found *f)
{
    ino_t stub = 0, thread = 0;
    int rc = lock_right(q->tgid, &stub);
    if (rc == 0 && stub && q->flags)
        rc = lock_right(q->tid, &thread);
    f->value = stub && stub != thread;
    return rc;
}

static int reopen_window(int given, int *fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", given);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? 0 : hw_fail(-errno, "cannot open the stub's window for reading: %s", strerror(errno));
}

void vb_lookup_answer(struct vb_lookups *l, const struct vb_lookup *q, int given, struct vb_found *f, int *fd)
{
    uint16_t value = 0;
    int rc = 0;
    memset(f, 0, sizeof *f);
    *fd = -1;
    switch (q->kind) {
    case VB_LOOKUP_OPEN:
        rc = open_named_device(l, q, f, fd);
        break;
    case VB_LOOKUP_PROCESS:
        rc = find_process(q, f, fd);
        break;
    case VB_LOOKUP_THREAD:
        rc = find_thread(q, f, fd);
        break;
    case VB_LOOKUP_ALONE:
        f->value = is_alone(q->tgid, q->tid);
        break;
    case VB_LOOKUP_NAME:
        read_thread_name(q->tid, f->text, sizeof f->text);
        break;
    case VB_LOOKUP_PKEY:
        rc = l->kernel->pkey ? l->kernel->pkey(q->ibdev, q->port, q->index, &value) : -EOPNOTSUPP;
        f->value = value;
        break;
    case VB_LOOKUP_LOCKS:
        rc = compare_rights(q, f);
        break;
    case VB_LOOKUP_REOPEN:
        rc = reopen_window(given, fd);
        break;
    }
    f->rc = rc;
    if (rc) {
        hw_close(fd);
        snprintf(f->text, sizeof f->text, "%s", hw_error());
    }
}

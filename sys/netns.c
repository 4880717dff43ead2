/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/netns.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN_NS "/proc/thread-self/ns/net"

bool hw_netns_privileged(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    if (syscall(SYS_capget, &head, data) < 0)
        return false;
    /* both capabilities have numbers below 32 */
    uint32_t need = CAP_TO_MASK(CAP_SYS_ADMIN) | CAP_TO_MASK(CAP_NET_ADMIN);
    return (data[0].effective & need) == need && access("/run", W_OK) == 0;
}

int hw_netns_prepare(void)
{
    if (mkdir(HW_NETNS_DIR, 0755) < 0 && errno != EEXIST)
        return hw_fail(-errno, "creating %s: %s", HW_NETNS_DIR, strerror(errno));
    int dir = open(HW_NETNS_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return hw_fail(-errno, "opening %s: %s", HW_NETNS_DIR, strerror(errno));
    /* Two processes could otherwise mount the directory twice. The upper mount would then hide the mounts in the lower
     * one and keep their namespaces alive. */
    while (flock(dir, LOCK_EX) < 0 && errno == EINTR)
        ;
    int rc = 0;
    if (mount("", HW_NETNS_DIR, "none", MS_SHARED | MS_REC, NULL) < 0) {
        /* EINVAL means that the directory is not yet a mount point. Only mount points can be shared. */
        if (errno != EINVAL || mount(HW_NETNS_DIR, HW_NETNS_DIR, "none", MS_BIND | MS_REC, NULL) < 0 ||
            mount("", HW_NETNS_DIR, "none", MS_SHARED | MS_REC, NULL) < 0)
            rc = hw_fail(-errno, "making %s a shared mount: %s", HW_NETNS_DIR, strerror(errno));
    }
    hw_close(&dir);
    return rc;
}

int hw_netns_own(void)
{
    int fd = open(OWN_NS, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? hw_fail(-errno, "opening %s: %s", OWN_NS, strerror(errno)) : fd;
}

/* Sets up a new namespace, which the thread must be in: opens a socket, sets lo up, and makes the bind mount at path
 * (unless NULL) that keeps the namespace. */
static int set_up_netns(const char *path, int *ns, struct hw_netlink *rt)
{
    struct hw_rtnl_link lo;
    int rc = hw_netns_own();
    if (rc < 0)
        return rc;
    *ns = rc;
    rc = hw_netlink_open(rt, NETLINK_ROUTE);
    if (rc == 0)
        rc = hw_rtnl_link_get(rt, "lo", &lo);
    if (rc == 0)
        rc = hw_rtnl_link_up(rt, lo.index, true);
    if (rc == 0 && path && mount(OWN_NS, path, "none", MS_BIND, NULL) < 0)
        rc = hw_fail(-errno, "keeping a network namespace at %s: %s", path, strerror(errno));
    if (rc < 0) {
        hw_netlink_close(rt);
        hw_close(ns);
    }
    return rc;
}

static int create_netns(const char *path, int *ns, struct hw_netlink *rt)
{
    int own = hw_netns_own();
    if (own < 0)
        return own;
    int rc = 0;
    if (unshare(CLONE_NEWNET) < 0)
        rc = hw_fail(-errno, "creating a network namespace: %s%s", strerror(errno),
                     errno == EPERM ? " (needs CAP_SYS_ADMIN)" : "");
    if (rc == 0) {
        rc = set_up_netns(path, ns, rt);
        if (setns(own, CLONE_NEWNET) < 0) /* cannot fail, because the thread has just left this namespace */
            rc = hw_fail(-errno, "returning to this process's network namespace: %s", strerror(errno));
    }
    hw_close(&own);
    return rc;
}

int hw_netns_create_anonymous(int *ns, struct hw_netlink *rt)
{
    return create_netns(NULL, ns, rt);
}

static int make_netns_path(const char *name, char *path, size_t cap)
{
    int n = snprintf(path, cap, "%s/%s", HW_NETNS_DIR, name);
    if (n < 0 || (size_t)n >= cap)
        return hw_fail(-ENAMETOOLONG, "the namespace name %.64s... is too long", name);
    return 0;
}

int hw_netns_create(const char *name, int *ns, struct hw_netlink *rt)
{
    char path[128];
    int rc = make_netns_path(name, path, sizeof(path));
    if (rc < 0)
        return rc;
    int fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0)
        return hw_fail(-errno, "creating %s: %s", path, strerror(errno));
    hw_close(&fd);
    rc = create_netns(path, ns, rt);
    if (rc < 0)
        (void)unlink(path);
    return rc;
}

int hw_netns_open(const char *name, int *ns)
{
    char path[128];
    int rc = make_netns_path(name, path, sizeof(path));
    if (rc < 0)
        return rc;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return hw_fail(-errno, "opening the namespace %s: %s", path, strerror(errno));
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0 || fs.f_type != NSFS_MAGIC) {
        hw_close(&fd);
        return hw_fail(-ENXIO, "%s is not a namespace: the file may have been left by a crash", path);
    }
    *ns = fd;
    return 0;
}

int hw_netns_remove(const char *name)
{
    char path[128];
    int rc = make_netns_path(name, path, sizeof(path));
    if (rc < 0)
        return rc;
    while (umount2(path, MNT_DETACH) == 0)
        ;
    if (errno != EINVAL && errno != ENOENT) /* EINVAL means that path is not, or is no longer, a mount point */
        return hw_fail(-errno, "unmounting %s: %s", path, strerror(errno));
    if (unlink(path) < 0 && errno != ENOENT)
        return hw_fail(-errno, "removing %s: %s", path, strerror(errno));
    return 0;
}

int hw_netns_rtnl(int ns, struct hw_netlink *rt)
{
    int own = hw_netns_own();
    if (own < 0)
        return own;
    int rc = 0;
    if (setns(ns, CLONE_NEWNET) < 0) {
        rc = hw_fail(-errno, "entering a network namespace: %s", strerror(errno));
    } else {
        rc = hw_netlink_open(rt, NETLINK_ROUTE);
        if (setns(own, CLONE_NEWNET) < 0)
            rc = hw_fail(-errno, "returning to this process's network namespace: %s", strerror(errno));
    }
    hw_close(&own);
    return rc;
}

bool hw_netns_same(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* ---- processes ------------------------------------------------------------------------------ */

/* Selects processes: either all processes in one of the namespaces, or this user's processes with a mark. */
struct those {
    struct stat ns[128];
    size_t n;
    const char *mark; /* NULL to select by namespace */
};

/* Returns true if text has the form of a lab's node name: only letters from a to z, as in "aa". */
static bool is_node_name(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    return n > 0 && !text[n];
}

static bool has_mark(const char *pid, const char *prefix)
{
    char path[64], line[1024], source[64];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%s/mountinfo", pid);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, " - sysfs ");
        found = at && sscanf(at, " - sysfs %63s", source) == 1 && strncmp(source, prefix, strlen(prefix)) == 0 &&
                is_node_name(source + strlen(prefix));
    }
    if (f)
        fclose(f);
    return found;
}

static bool is_one(const char *pid, const struct those *t)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), t->mark ? "/proc/%s" : "/proc/%s/ns/net", pid);
    if (stat(path, &st) < 0) /* the process has exited, is a zombie, or is not accessible */
        return false;
    if (t->mark)
        return st.st_uid == geteuid() && has_mark(pid, t->mark);
    for (size_t i = 0; i < t->n; i++) {
        if (st.st_dev == t->ns[i].st_dev && st.st_ino == t->ns[i].st_ino)
            return true;
    }
    return false;
}

/* Sends sig, unless it is 0, to each selected process except the caller. Returns the number of these processes, or
 * -errno. */
static int signal_all(const struct those *t, int sig)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return hw_fail(-errno, "opening /proc: %s", strerror(errno));
    int found = 0;
    const struct dirent *e;
    while ((e = readdir(proc)) != NULL) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid == getpid() || !is_one(e->d_name, t))
            continue;
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        /* Check again now that the pidfd pins the process, because the PID might have been reused. */
        if (fd >= 0 && is_one(e->d_name, t)) {
            found++;
            if (sig)
                (void)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
        }
        hw_close(&fd);
    }
    closedir(proc);
    return found;
}

static int kill_all(const struct those *t, int grace_ms)
{
    int first = signal_all(t, SIGTERM);
    if (first <= 0)
        return first;
    uint64_t kill_at = hw_deadline(grace_ms), give_up = hw_deadline(grace_ms + 5000);
    for (;;) {
        int left = signal_all(t, hw_now() >= kill_at ? SIGKILL : 0);
        if (left < 0)
            return left;
        if (left == 0)
            return first;
        if (hw_now() >= give_up)
            return hw_fail(-EBUSY, "%d process%s of the lab did not exit, even after SIGKILL", left,
                           left == 1 ? "" : "es");
        (void)poll(NULL, 0, 10);
    }
}

int hw_netns_kill(const int *ns, size_t n, int grace_ms)
{
    struct those t = {.n = n};
    if (n > HW_ARRAY_LEN(t.ns))
        return hw_fail(-E2BIG, "too many namespaces: %zu (at most %zu are supported)", n, HW_ARRAY_LEN(t.ns));
    for (size_t i = 0; i < n; i++) {
        if (fstat(ns[i], &t.ns[i]) < 0)
            return hw_fail(-errno, "reading a namespace: %s", strerror(errno));
    }
    return kill_all(&t, grace_ms);
}

int hw_netns_kill_marked(const char *prefix, int grace_ms)
{
    struct those t = {.mark = prefix};
    return kill_all(&t, grace_ms);
}

bool hw_netns_marked(const char *prefix)
{
    return has_mark("self", prefix);
}

int hw_netns_join(int user, int net, const char *mark, int *sysfs_error, const char **step)
{
    *sysfs_error = 0;
    if (user >= 0 && setns(user, CLONE_NEWUSER) < 0) {
        *step = "entering the lab's user namespace";
        return -errno;
    }
    if (setns(net, CLONE_NEWNET) < 0) {
        *step = "entering the node's network namespace";
        return -errno;
    }
    if (unshare(CLONE_NEWNS) < 0) {
        *step = "creating a mount namespace";
        return -errno;
    }
    /* With MS_SLAVE, mounts made here are invisible outside, but mounts and unmounts made outside (such as the unmount
     * of a deleted namespace) propagate to here. */
    if (mount("", "/", "none", MS_SLAVE | MS_REC, NULL) < 0) {
        *step = "turning the mounts into slave mounts";
        return -errno;
    }
    /* The new sysfs hides the old one, which an unprivileged user cannot unmount. A sysfs shows the namespace of the
     * process that mounted it. */
    if (mount(mark, "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        *sysfs_error = -errno;
    return 0;
}

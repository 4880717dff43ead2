/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, identifies, finds and keeps namespaces. */
#include "sandbox/move/move_int.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

void sb_ns_close(struct sb_ns *n)
{
    hw_netlink_close(&n->rt);
    hw_close(&n->sys);
    hw_close(&n->fd);
}

int sb_ns_sysfs(struct sb_ns *n)
{
    if (n->sys < 0)
        n->sys = sb_sysfs_open(n->fd);
    return n->sys;
}

/* Initializes n. Takes ownership of fd in any case. */
static int init_ns_from_fd(struct sb_ns *n, int fd)
{
    struct stat st;
    *n = SB_NS_NONE;
    n->fd = fd;
    int rc = fstat(fd, &st) < 0 ? hw_fail(-errno, "reading a network namespace: %s", strerror(errno))
                                : hw_netns_rtnl(fd, &n->rt);
    if (rc < 0) {
        sb_ns_close(n);
        return rc;
    }
    n->id = (struct sb_ns_id){.dev = st.st_dev, .ino = st.st_ino};
    /* An inode number may be reused after its namespace has ended. A cookie, available since Linux 5.14, is never
     * reused. */
    socklen_t len = sizeof(n->id.cookie);
    if (getsockopt(n->rt.fd, SOL_SOCKET, SO_NETNS_COOKIE, &n->id.cookie, &len) < 0)
        n->id.cookie = 0;
    return 0;
}

int sb_ns_own(struct sb_ns *n)
{
    *n = SB_NS_NONE;
    int fd = hw_netns_own();
    return fd < 0 ? fd : init_ns_from_fd(n, fd);
}

static int open_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nonblocking, in case the file is a FIFO */
    if (fd < 0)
        return hw_fail(-errno, "opening the network namespace %s: %s", path, strerror(errno));
    if (ioctl(fd, NS_GET_NSTYPE) != CLONE_NEWNET) {
        hw_close(&fd);
        return hw_fail(-EINVAL, "%s is not a network namespace", path);
    }
    return fd;
}

/* Returns the PID in a path /proc/PID/ns/net, or 0 if the path has another form. */
static pid_t pid_of_ns_path(const char *path)
{
    char *end;
    if (strncmp(path, "/proc/", 6) != 0 || !isdigit((unsigned char)path[6]))
        return 0;
    long pid = strtol(path + 6, &end, 10);
    return pid > 0 && pid <= INT32_MAX && strcmp(end, "/ns/net") == 0 ? (pid_t)pid : 0;
}

/* Opens the namespace of a process. A PID may be reused as soon as the process has exited, so a pidfd shows whether the
 * process was alive throughout. */
static int open_process(const char *path, pid_t pid, uint64_t *start)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0 && errno != ENOSYS)
        return hw_fail(errno == ENOENT ? -ESRCH : -errno, "no process %d with a network namespace: %s", (int)pid,
                       strerror(errno));
    int fd = open_path(path);
    *start = sb_process_start(pid);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    bool lives = *start && (pidfd < 0 || poll(&p, 1, 0) == 0); /* not checked before Linux 5.3 */
    hw_close(&pidfd);
    if (fd < 0 || lives)
        return fd == -ENOENT ? hw_fail(-ESRCH, "no process %d with a network namespace", (int)pid) : fd;
    hw_close(&fd);
    return hw_fail(-ESRCH, "process %d has just ended", (int)pid);
}

int sb_ns_open(const char *text, struct sb_ns *n, char path[256], pid_t *holder, uint64_t *start)
{
    int len;
    *holder = 0;
    *start = 0;
    *n = SB_NS_NONE;
    if (*text && text[strspn(text, "0123456789")] == 0)
        len = snprintf(path, 256, "/proc/%s/ns/net", text);
    else if (strchr(text, '/'))
        len = snprintf(path, 256, "%s", text);
    else
        len = snprintf(path, 256, HW_NETNS_DIR "/%s", text);
    if (!*text || len >= 256)
        return hw_fail(
            -EINVAL,
            "'%.64s' is not a network namespace: expected a process ID, a path, or a name from `ip netns list`", text);
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return hw_fail(-EINVAL, "the path of the network namespace has a control character");
    *holder = pid_of_ns_path(path);
    int fd = *holder ? open_process(path, *holder, start) : open_path(path);
    if (fd == -ENOENT && strncmp(path, "/proc/", 6) == 0)
        return hw_fail(-ESRCH, "no process %s with a network namespace", text);
    return fd < 0 ? fd : init_ns_from_fd(n, fd);
}

bool sb_ns_same(const struct sb_ns_id *a, const struct sb_ns_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && (a->cookie == b->cookie || !a->cookie || !b->cookie);
}

/* Opens the file at path if it refers to the namespace with this id. Fails with -ENOENT if it does not, or with another
 * -errno. */
static int open_if(const char *path, const struct sb_ns_id *id, struct sb_ns *n)
{
    struct stat st;
    if (stat(path, &st) < 0 || st.st_dev != id->dev || st.st_ino != id->ino)
        return -ENOENT;
    int fd = open_path(path);
    if (fd < 0)
        return fd;
    int rc = init_ns_from_fd(n, fd);
    if (rc < 0 || sb_ns_same(&n->id, id))
        return rc;
    sb_ns_close(n);
    return -ENOENT;
}

bool sb_ns_at(const char *path, const struct sb_ns_id *id)
{
    struct sb_ns n;
    if (open_if(path, id, &n) < 0)
        return false;
    sb_ns_close(&n);
    return true;
}

/* Finds a process in the namespace. Unless n is NULL, also opens the namespace and stores it in n. */
static int by_process(const struct sb_ns_id *id, struct sb_ns *n)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return hw_fail(-errno, "opening /proc: %s", strerror(errno));
    const struct dirent *e;
    struct sb_ns found;
    int rc = -ENOENT;
    while (rc < 0 && (e = readdir(proc)) != NULL) {
        char path[300];
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%s/ns/net", e->d_name);
        rc = open_if(path, id, &found);
    }
    closedir(proc);
    if (rc == 0 && n)
        *n = found;
    else if (rc == 0)
        sb_ns_close(&found);
    return rc < 0 ? -ENOENT : 0;
}

/* ---- all namespaces ------------------------------------------------------------------------------- */

struct search {
    int (*fn)(struct sb_ns *n, void *arg);
    void *arg;
    struct sb_ns_id *seen;
    size_t n, cap;
};

/* Checks the namespace at path unless this was already done. */
static int search_at(struct search *s, const char *path)
{
    struct stat st;
    struct sb_ns ns;
    if (stat(path, &st) < 0)
        return -ENODEV;
    for (size_t i = 0; i < s->n; i++)
        if (s->seen[i].dev == st.st_dev && s->seen[i].ino == st.st_ino)
            return -ENODEV;
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct sb_ns_id *more = reallocarray(s->seen, cap, sizeof(*more));
        if (!more)
            return hw_no_memory("%zu network namespaces", cap);
        s->seen = more;
        s->cap = cap;
    }
    s->seen[s->n++] = (struct sb_ns_id){.dev = st.st_dev, .ino = st.st_ino};
    int fd = open_path(path);
    if (fd < 0 || init_ns_from_fd(&ns, fd) < 0)
        return -ENODEV;
    int rc = s->fn(&ns, s->arg);
    sb_ns_close(&ns);
    return rc;
}

/* Checks the namespaces to which the numbered entries of a folder of /proc/PID refer. */
static int search_dir(struct search *s, const char *pid, const char *dir, const char *tail)
{
    char path[600], what[32];
    int rc = -ENODEV;
    snprintf(path, sizeof(path), "/proc/%s/%s", pid, dir);
    DIR *d = opendir(path);
    const struct dirent *e;
    while (d && rc == -ENODEV && (e = readdir(d)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%s/%s/%s%s", pid, dir, e->d_name, tail);
        ssize_t n = isdigit((unsigned char)e->d_name[0]) ? readlink(path, what, sizeof(what) - 1) : -1;
        if (n > 5 && strncmp(what, "net:[", 5) == 0)
            rc = search_at(s, path);
    }
    if (d)
        closedir(d);
    return rc;
}

int sb_ns_search(int (*fn)(struct sb_ns *n, void *arg), void *arg)
{
    struct search s = {.fn = fn, .arg = arg};
    DIR *proc = opendir("/proc");
    const struct dirent *e;
    int rc = proc ? -ENODEV : hw_fail(-errno, "opening /proc: %s", strerror(errno));
    while (rc == -ENODEV && proc && (e = readdir(proc)) != NULL) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        rc = search_dir(&s, e->d_name, "task", "/ns/net");
        if (rc == -ENODEV)
            rc = search_dir(&s, e->d_name, "fd", "");
    }
    if (proc)
        closedir(proc);
    free(s.seen);
    return rc;
}

bool sb_ns_inhabited(const struct sb_ns_id *id)
{
    return by_process(id, NULL) == 0;
}

static void pin_path(char out[SB_ID_MAX + 64], int dir, const char *id)
{
    snprintf(out, SB_ID_MAX + 64, "/proc/self/fd/%d/%.*s.netns", dir, SB_ID_MAX, id);
}

int sb_ns_find(const struct sb_journal *j, int dir, const char *id, struct sb_ns *n)
{
    char path[SB_ID_MAX + 64];
    *n = SB_NS_NONE;
    pin_path(path, dir, id);
    if (open_if(path, &j->netns, n) == 0 || open_if(j->path, &j->netns, n) == 0)
        return 0;
    return by_process(&j->netns, n);
}

int sb_pin(int dir, const char *id, int ns)
{
    char path[SB_ID_MAX + 64], from[32];
    pin_path(path, dir, id);
    snprintf(from, sizeof(from), "/proc/self/fd/%d", ns);
    int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0400);
    if (fd < 0)
        return hw_fail(-errno, "creating %s.netns in the journal folder: %s", id, strerror(errno));
    hw_close(&fd);
    if (mount(from, path, NULL, MS_BIND, NULL) < 0)
        return hw_fail(-errno, "keeping the container's network namespace in the journal folder: %s", strerror(errno));
    return 0;
}

int sb_unpin(int dir, const char *id)
{
    char path[SB_ID_MAX + 64];
    pin_path(path, dir, id);
    while (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        ;
    if (errno != EINVAL && errno != ENOENT) /* EINVAL means that the path is not a mount point */
        return hw_fail(-errno, "releasing the container's network namespace: %s", strerror(errno));
    if (unlink(path) < 0 && errno != ENOENT)
        return hw_fail(-errno, "removing %s.netns from the journal folder: %s", id, strerror(errno));
    return 0;
}

uint64_t sb_process_start(pid_t pid)
{
    char path[32], line[1024];
    unsigned long long start = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    /* Field 2, the name, is in parentheses and may contain any character. The start time is 20 fields later
     * (proc(5)). */
    const char *at = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
    for (int i = 0; at && i < 20; i++)
        at = strchr(at + 1, ' ');
    const char *state = at ? strrchr(line, ')') + 1 : " X";
    if (at && state[1] != 'Z' && state[1] != 'X')
        start = strtoull(at + 1, NULL, 10);
    fclose(f);
    return start;
}

bool sb_ended(const struct sb_journal *j)
{
    if (j->holder)
        return sb_process_start(j->holder) != j->holder_start;
    return !sb_ns_at(j->path, &j->netns) && !sb_ns_inhabited(&j->netns);
}

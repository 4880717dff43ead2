/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rundir.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKETS_PER_PROCESS 4096
#define YOUNG_SECONDS       10 /* a younger socket that refuses connections may be about to listen */

bool hw_rundir_path(unsigned i, const char *knob, char path[HW_RUNDIR_PATH])
{
    bool chosen = knob && *knob;
    const char *session = secure_getenv("XDG_RUNTIME_DIR");
    int n = 0;
    *path = 0;
    if (chosen && i == 0)
        n = snprintf(path, HW_RUNDIR_PATH, "%s", knob);
    else if (i == 0)
        n = snprintf(path, HW_RUNDIR_PATH, HW_RUNDIR_SYSTEM);
    else if (i == 1 && session && *session == '/')
        n = snprintf(path, HW_RUNDIR_PATH, "%s/hawser-metrics", session);
    else if (i == 2)
        n = snprintf(path, HW_RUNDIR_PATH, "/tmp/hawser-metrics-%u", geteuid());
    if (n >= HW_RUNDIR_PATH) /* hw_rundir_open() rejects an empty path */
        *path = 0;
    return i < (chosen ? 1 : 3);
}

int hw_rundir_open(const char *path, bool make, uid_t also)
{
    struct stat st;
    if (*path != '/')
        return hw_fail(-EINVAL, "'%s' is not an absolute path", path);
    if (make)
        (void)mkdir(path, 0700); /* a failure is ignored, because open() fails if there is no folder */
    HW_AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return hw_fail(-errno, "opening %s: %s", path, strerror(errno));
    if (st.st_uid != 0 && st.st_uid != geteuid() && st.st_uid != also)
        return hw_fail(-EPERM, "%s belongs to user %u, and not to root or this process's user", path, st.st_uid);
    if (st.st_mode & (S_IWGRP | S_IWOTH) && !(st.st_mode & S_ISVTX))
        return hw_fail(-EPERM, "other users can replace files in %s, because its mode is 0%o", path,
                       st.st_mode & 07777);
    return hw_take_fd(&fd);
}

/* Fills *a with the address of an entry in the open folder dir or, if name is empty, of the open file dir. The address
 * is short enough for a socket, even if the folder's path is long. */
static void fill_address(struct sockaddr_un *a, int dir, const char *name)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d%s%s", dir, *name ? "/" : "", name);
}

int hw_rundir_listen(int dir, int backlog, char name[HW_RUNDIR_NAME])
{
    struct sockaddr_un a;
    int rc = -1;
    HW_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* The kernel gives the new file at most the mode of the socket (net/unix/af_unix.c, unix_bind_bsd()). Other users,
     * except root, can therefore never connect, and the umask, which all threads of the process share, need not be
     * changed. */
    if (fd < 0 || fchmod(fd, 0600) < 0)
        return hw_fail(-errno, "creating a local socket: %s", strerror(errno));
    for (unsigned i = 0; i < SOCKETS_PER_PROCESS && rc < 0; i++) {
        snprintf(name, HW_RUNDIR_NAME, "%d.%u", getpid(), i);
        fill_address(&a, dir, name);
        rc = bind(fd, (struct sockaddr *)&a, sizeof a);
        if (rc < 0 && errno != EADDRINUSE)
            break;
    }
    if (rc < 0)
        return hw_fail(-errno, "binding a local socket: %s", strerror(errno));
    if (listen(fd, backlog) < 0) {
        rc = hw_fail(-errno, "listening on a local socket: %s", strerror(errno));
        (void)unlinkat(dir, name, 0);
        return rc;
    }
    return hw_take_fd(&fd);
}

int hw_rundir_connect(int dir, const char *name, uid_t *owner, pid_t *pid)
{
    struct sockaddr_un a;
    struct stat st;
    struct ucred who;
    socklen_t len = sizeof who;
    HW_AUTO_CLOSE int at = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0 || fstat(at, &st) < 0)
        return hw_fail(-errno, "opening %s: %s", name, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return hw_fail(-EPERM, "%s is not a socket", name);
    HW_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    fill_address(&a, at, "");
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return hw_fail(-errno, "connecting to %s: %s", name, strerror(errno));
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return hw_fail(-errno, "reading the credentials of the process behind %s: %s", name, strerror(errno));
    if (who.uid != st.st_uid)
        return hw_fail(-EPERM,
                       "refused to connect to %s: the socket belongs to user %u, but a process of user %u opened it",
                       name, st.st_uid, who.uid);
    if (geteuid() != 0 && who.uid != geteuid())
        return hw_fail(-EPERM, "refused to connect to %s: it belongs to user %u, not to this process's user", name,
                       who.uid);
    *owner = who.uid;
    if (pid)
        *pid = who.pid;
    return hw_take_fd(&fd);
}

/* Parses a name such as "123.4" into pid and number. Returns false for other names. */
static bool read_name(const char *name, pid_t *pid, unsigned *number)
{
    unsigned long part[2] = {0, 0};
    const char *c = name;
    for (int i = 0; i < 2; i++) {
        const char *start = c;
        for (; *c >= '0' && *c <= '9' && c - start < 9; c++)
            part[i] = part[i] * 10 + (unsigned long)(*c - '0');
        if (c == start || *c != (i ? 0 : '.'))
            return false;
        c += !i;
    }
    *pid = (pid_t)part[0];
    *number = (unsigned)part[1];
    return true;
}

void hw_rundir_each(int dir, void (*fn)(void *arg, const char *name, pid_t pid, unsigned number), void *arg)
{
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d) {
        hw_close(&again);
        return;
    }
    const struct dirent *e;
    for (unsigned i = 0; i < HW_RUNDIR_ENTRIES && (e = readdir(d)); i++) {
        pid_t pid;
        unsigned number;
        if (read_name(e->d_name, &pid, &number))
            fn(arg, e->d_name, pid, number);
    }
    closedir(d);
}

void hw_rundir_remove(int dir, const char *name, ino_t ino)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == ino)
        (void)unlinkat(dir, name, 0);
}

void hw_rundir_remove_stale(int dir, const char *name)
{
    struct stat st;
    uid_t owner;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode))
        return;
    if ((geteuid() != 0 && st.st_uid != geteuid()) || time(NULL) - st.st_mtime < YOUNG_SECONDS)
        return;
    HW_AUTO_CLOSE int fd = hw_rundir_connect(dir, name, &owner, NULL);
    if (fd == -ECONNREFUSED)
        hw_rundir_remove(dir, name, st.st_ino);
}

/* Removes the socket of a process that seems to have exited. A process in another PID namespace may still be alive;
 * hw_rundir_remove_stale() checks this. */
static void sweep_one(void *arg, const char *name, pid_t pid, unsigned number)
{
    const int *dir = arg;
    (void)number;
    if (pid > 0 && kill(pid, 0) < 0 && errno == ESRCH)
        hw_rundir_remove_stale(*dir, name);
}

void hw_rundir_sweep(int dir)
{
    HW_KEEP_ERROR();
    hw_rundir_each(dir, sweep_one, &dir);
}

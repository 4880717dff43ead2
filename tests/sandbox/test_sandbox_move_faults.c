/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests move and restore with injected faults: each netlink call and file write fails once; all calls from a given call
 * on fail; the process is killed before each change. After a final restore, every attribute must have its original
 * value. The linker (--wrap, see meson.build) redirects the calls to this file.
 */
#include "sandbox_move.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum how { COUNT, ONE, ALL, KILL };

static struct {
    bool armed, reading; /* reading: the last request changes nothing */
    enum how how;
    long n, at; /* calls so far; number of the call that fails, from 1 */
} inject;

/* Returns true, with errno set, if this call has to fail. */
static bool fails(int err)
{
    if (!inject.armed)
        return false;
    long n = ++inject.n;
    if (inject.how == COUNT || n < inject.at || (inject.how != ALL && n > inject.at))
        return false;
    if (inject.how == KILL)
        raise(SIGKILL);
    errno = err;
    return true;
}

#define WRAP(ret, name, ...)        \
    ret __real_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__)

WRAP(ssize_t, sendto, int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
    /* Of every four consecutive rtnetlink message types, the third is a read. A kill during a read has the same effect
     * as a kill before the next change, so kills skip reads. */
    inject.reading = ((const struct nlmsghdr *)buf)->nlmsg_type % 4 == 2;
    if (inject.how == KILL && inject.reading)
        return __real_sendto(fd, buf, n, flags, to, len);
    return fails(ENOBUFS) ? -1 : __real_sendto(fd, buf, n, flags, to, len);
}

/* The kernel has executed the request; only its reply is lost. */
WRAP(ssize_t, recv, int fd, void *buf, size_t n, int flags)
{
    if ((inject.how == KILL && inject.reading) || !fails(ENOBUFS))
        return __real_recv(fd, buf, n, flags);
    (void)__real_recv(fd, buf, n, flags);
    errno = ENOBUFS;
    return -1;
}

/* With KILL, the process is killed in the middle of a write. */
WRAP(ssize_t, write, int fd, const void *buf, size_t n)
{
    if (inject.armed && inject.how == KILL && inject.n + 1 == inject.at)
        (void)__real_write(fd, buf, n / 2);
    return fails(ENOSPC) ? -1 : __real_write(fd, buf, n);
}

WRAP(int, fdatasync, int fd)
{
    return fails(EIO) ? -1 : __real_fdatasync(fd);
}

WRAP(int, fsync, int fd)
{
    return fails(EIO) ? -1 : __real_fsync(fd);
}

WRAP(int, renameat, int a, const char *from, int b, const char *to)
{
    return fails(EIO) ? -1 : __real_renameat(a, from, b, to);
}

WRAP(int, unlinkat, int dir, const char *name, int flags)
{
    return fails(EIO) ? -1 : __real_unlinkat(dir, name, flags);
}

WRAP(int, unlink, const char *name)
{
    return fails(EIO) ? -1 : __real_unlink(name);
}

WRAP(int, mount, const char *from, const char *to, const char *type, unsigned long flags, const void *data)
{
    return fails(EPERM) ? -1 : __real_mount(from, to, type, flags, data);
}

WRAP(int, umount2, const char *path, int flags)
{
    return fails(EPERM) ? -1 : __real_umount2(path, flags);
}

WRAP(int, fsmount, int fs, unsigned flags, unsigned attr)
{
    return fails(EPERM) ? -1 : __real_fsmount(fs, flags, attr);
}

static bool writes(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;
}

/* If a macro selects 64-bit file offsets, the linker sees open() as open64(). */
#define WRAP_OPEN(name)                                                                \
    WRAP(int, name, const char *path, int flags, mode_t mode)                          \
    {                                                                                  \
        return writes(flags) && fails(EACCES) ? -1 : __real_##name(path, flags, mode); \
    }
#define WRAP_OPENAT(name)                                                                   \
    WRAP(int, name, int dir, const char *path, int flags, mode_t mode)                      \
    {                                                                                       \
        return writes(flags) && fails(EACCES) ? -1 : __real_##name(dir, path, flags, mode); \
    }
WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

/* each call */

static struct sm_ns box;
static char *was;

static void arm(enum how how, long at)
{
    inject.how = how;
    inject.n = 0;
    inject.at = at;
    inject.armed = true;
}

static long disarm(void)
{
    inject.armed = false;
    return inject.n;
}

static void furnish(void)
{
    sm_nic("n0");
    sm_nic("low");
    sm_macvlan("mv0", "low");
    sm_set(&sm_host, "n0", "mtu", 1400);
    sm_set(&sm_host, "n0", "txqlen", 77);
    sm_alias(&sm_host, "n0", "rail");
    sm_addr(&sm_host, "n0", "10.9.0.1/16");
    sm_addr_like(&sm_host, "n0", "192.0.2.7/24", "n0:1", 0);
    sm_addr(&sm_host, "n0", "2001:db8::1/64");
    sm_addr(&sm_host, "mv0", "10.9.0.3/16");
    sm_route(&sm_host, "10.20.0.0/24", "10.9.0.100", "n0", 0, 0);
    sm_route2(&sm_host, "10.23.0.0/24", "10.9.0.100", "n0", "10.9.0.101", "mv0");
    sm_route(&sm_host, "2001:db8:2::/48", "2001:db8::99", "n0", 0, 0);
    sm_rule(&sm_host, NULL, "n0", 78, 1001);
    sm_neigh(&sm_host, "n0", "10.9.9.9", false);
    sm_sysctl(&sm_host, "ipv4/conf/n0/rp_filter", "2");
}

static int move(void)
{
    return sm_move(&box, "n0=x,mv0", false);
}

/* Restores after any failure, with a single call and without further failures. Returns whether the original state is
 * back. */
static bool back(const char *when, long at)
{
    int rc = sm_restore(NULL);
    if (rc < 0) {
        diag("%s, call %ld: restore: %s", when, at, hw_error());
        diag("%s", sm_logged);
        return false;
    }
    bool same = sm_same(&sm_host, was) && sm_clean();
    if (!same)
        diag("%s, call %ld: that is not as it was", when, at);
    return same;
}

/* Moves with a failure at call number `at`, then restores. Returns the number of calls. Adds the number of failed
 * checks to *bad. */
static long one_move(enum how how, long at, int *bad)
{
    sm_logged[0] = 0;
    arm(how, at);
    int rc = move();
    long n = disarm();
    /* Checks the state that the failed move itself has restored, before sm_restore() runs. */
    if (rc < 0 && how == ONE && !(sm_same(&sm_host, was) && sm_clean())) {
        diag("a move that failed at call %ld left something: %s", at, hw_error());
        diag("%s", sm_logged);
        (*bad)++;
    }
    if (rc < 0 && !*hw_error())
        (*bad)++;
    *bad += !back("after a move that failed", at);
    return n;
}

static long one_restore(enum how how, long at, int *bad)
{
    if (move() < 0) {
        diag("move: %s", hw_error());
        (*bad)++;
        return 0;
    }
    sm_logged[0] = 0;
    arm(how, at);
    (void)sm_restore(NULL);
    long n = disarm();
    *bad += !back("after a restore that failed", at);
    return n;
}

/* Runs fn in a child that is killed at call number `at`. Returns whether the child was killed. */
static bool killed(int (*fn)(void), long at)
{
    int st = 0;
    pid_t pid = fork();
    if (pid == 0) {
        arm(KILL, at);
        (void)fn();
        _exit(0);
    }
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(st);
}

static int restore(void)
{
    return sm_restore(NULL);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    sm_start();
    sm_ns_make(&box);
    furnish();
    was = sm_settled();
    int bad = 0;
    /* The first run has no failures and counts the calls. */
    arm(COUNT, 0);
    int rc = move();
    long moves = disarm();
    ok(rc == 0, "a move with nothing failing: %ld calls: %s", moves, rc < 0 ? hw_error() : "done");
    arm(COUNT, 0);
    rc = sm_restore(NULL);
    long restores = disarm();
    ok(rc == 0 && moves > 50 && restores > 50, "a restore too: %ld calls", restores);
    ok(back("after both", 0), "all is back");

    if (strcmp(part, "fail") == 0) {
        for (long at = 1; at <= moves; at++)
            (void)one_move(ONE, at, &bad);
        is_int(bad, 0, "one call of move's fails, each in its turn: the move has put all back");
    } else if (strcmp(part, "fail_back") == 0) {
        for (long at = 1; at <= restores; at++)
            (void)one_restore(ONE, at, &bad);
        is_int(bad, 0, "one call of restore's fails: the next one ends it");
    } else if (strcmp(part, "all") == 0) {
        /* Each iteration takes the kernel tens of milliseconds. */
        int step = getenv("HAWSER_TEST_LONG") ? 1 : 4;
        for (long at = 1; at <= moves; at += step)
            (void)one_move(ALL, at, &bad);
        ok(bad == 0, "all calls of move's from one on (every %d. in turn) fail, its putting back too: restore does it",
           step);
        bad = 0;
        for (long at = 1; at <= restores; at += step)
            (void)one_restore(ALL, at, &bad);
        ok(bad == 0, "all calls of restore's from one on (every %d. in turn) fail: the next one ends it", step);
    } else {
        long at = 1;
        for (; killed(move, at); at++)
            bad += !back("after a move that was killed", at);
        bad += !back("after a move that was not", at);
        ok(bad == 0 && at > 40, "move has been killed before each of %ld changes, and restore has given all back",
           at - 1);
        bad = 0;
        for (at = 1;; at++) {
            bad += move() < 0;
            bool died = killed(restore, at);
            bad += !back("after a restore that was killed", at);
            if (!died)
                break;
        }
        ok(bad == 0 && at > 30, "restore has been killed before each of %ld changes, and the next one has", at - 1);
    }
    free(was);
    sm_ns_drop(&box);
    sm_end();
    return tap_done();
}

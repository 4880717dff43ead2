/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/broker/join.h"

#include "sys/pass.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MS 5000
#define LOCK_MS   10000
#define ENDS_MS   2000
#define WORDS_MAX 32768 /* maximum number of bytes that write_words() writes; one datagram can carry them */

enum { FD_LISTENER, FD_REPLY, FDS };

/* Writes the names and values that determine a container's rules. Programs with equal names and values have equal
 * rules. Returns the length in bytes, or -E2BIG. */
static int write_words(const struct vb_container *c, char out[WORDS_MAX])
{
    size_t n = 0;
    const char *key = "", *value = c->section;
    for (unsigned i = 0; i <= c->n_annotations; i++) {
        const size_t k = strlen(key) + 1, v = strlen(value) + 1;
        if (k + v > WORDS_MAX - n)
            return hw_fail(-E2BIG,
                           "the annotations of the container have more than %d bytes, so its programs cannot use "
                           "RDMA",
                           WORDS_MAX);
        memcpy(out + n, key, k);
        memcpy(out + n + k, value, v);
        n += k + v;
        if (i < c->n_annotations) {
            key = c->annotations[i].key;
            value = c->annotations[i].value;
        }
    }
    return (int)n;
}

/* Sets *a to the address of STATE/ID.suffix. The path contains the folder's descriptor, because a socket's address has
 * at most 107 bytes. */
static int fill_container_address(struct sockaddr_un *a, int dir, const char *id, const char *suffix)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/%s.%s", dir, id, suffix);
    return n < (int)sizeof a->sun_path ? 0 : hw_fail(-ENAMETOOLONG, "the container name %s is too long", id);
}

/* Locks the container until the returned descriptor is closed, or fails with -errno. Checks that the locked file is
 * still the container's lock, because the previous holder may have removed the file. */
static int lock_container(int dir, const char *id, int ms)
{
    char name[160];
    struct stat mine, there;
    uint64_t deadline = hw_deadline(ms);
    snprintf(name, sizeof name, "%s.lock", id);
    for (;;) {
        int fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return hw_fail(-errno, "cannot lock container %s: %s", id, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &mine) == 0 &&
            fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && mine.st_ino == there.st_ino)
            return fd;
        close(fd);
        if (hw_now() >= deadline)
            return hw_fail(-EBUSY, "the lock of container %s was not free within %d ms", id, ms);
        (void)poll(NULL, 0, 10);
    }
}

/* Returns the start time of a process (field 22 of /proc/PID/stat, see proc(5)), or 0 if the process has exited. */
static unsigned long long started(pid_t pid)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    hw_close(&fd);
    text[HW_MAX(n, 0)] = 0;
    const char *s = strrchr(text, ')'); /* the end of the name, which may contain any character */
    if (!s || s[1] != ' ' || s[2] == 'Z' || s[2] == 'X')
        return 0;
    for (int field = 2; s && field < 22; field++)
        s = strchr(s + 1, ' ');
    return s ? strtoull(s, NULL, 10) : 0;
}

/* Returns true if the program for which the container's broker was started is still running. */
static bool has_owner(int held)
{
    char text[64];
    char *next;
    ssize_t n = pread(held, text, sizeof text - 1, 0);
    text[HW_MAX(n, 0)] = 0;
    pid_t pid = (pid_t)strtol(text, &next, 10);
    unsigned long long when = strtoull(next, NULL, 10);
    return pid > 0 && when && started(pid) == when;
}

static void note_owner(int held, pid_t pid)
{
    char text[64];
    int n = snprintf(text, sizeof text, "%d %llu\n", (int)pid, started(pid));
    if (ftruncate(held, 0) == 0)
        (void)!pwrite(held, text, (size_t)n, 0);
}

static int send_to(int sock, const struct sockaddr_un *a, const char *words, int n, const int fds[FDS])
{
    uint64_t deadline = hw_deadline(ANSWER_MS);
    for (;;) { /* retry while the broker's queue is full, for at most ANSWER_MS */
        int rc = hw_pass_send(sock, a, words, (size_t)n, fds, FDS, MSG_DONTWAIT);
        if (rc != -EAGAIN || hw_now() >= deadline)
            return rc == -EAGAIN ? -EBUSY : rc;
        (void)poll(NULL, 0, 10);
    }
}

/* Sends the listener to the broker. Returns 1 if the broker has accepted it, 0 if there is no broker, or an error. */
static int ask_broker(const struct sockaddr_un *a, const struct vb_container *c, const char *words, int n)
{
    int pair[2], answer = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return hw_fail(-errno, "cannot create a socket for the broker's answer: %s", strerror(errno));
    HW_AUTO_CLOSE int reply = pair[0];
    int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int fds[FDS] = {[FD_LISTENER] = c->listener, [FD_REPLY] = pair[1]};
    int rc = sock < 0 ? -errno : send_to(sock, a, words, n, fds);
    hw_close(&sock);
    close(pair[1]);
    if (rc == -ECONNREFUSED || rc == -ENOENT)
        return 0;
    if (rc && rc != -EBUSY)
        return hw_fail(rc, "cannot send to the container's broker: %s", strerror(-rc));
    struct pollfd p = {.fd = reply, .events = POLLIN};
    if (rc == -EBUSY || poll(&p, 1, ANSWER_MS) <= 0)
        return hw_fail(-EBUSY, "the container's broker has not answered for %d s", ANSWER_MS / 1000);
    if (recv(reply, &answer, sizeof answer, MSG_DONTWAIT) <= 0)
        return 0; /* the broker has ended */
    if (answer == -EPERM)
        return hw_fail(answer, "a running container of the same name has another policy section or other annotations");
    return answer ? hw_fail(answer, "the container's broker did not accept the program: %s", strerror(-answer)) : 1;
}

static int open_join_socket(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t was = umask(0177);
    unlink(a->sun_path);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)a, sizeof *a))
        hw_close(&fd);
    umask(was);
    return fd < 0 ? hw_fail(-errno, "cannot create a socket for the container's other programs: %s", strerror(errno))
                  : fd;
}

static int try_join(int dir, const struct sockaddr_un *a, struct vb_container *c, const char *words, int n)
{
    HW_AUTO_CLOSE int held = lock_container(dir, c->id, LOCK_MS);
    if (held < 0)
        return held;
    int rc = ask_broker(a, c, words, n);
    if (rc)
        return rc;
    if (has_owner(held))
        return hw_fail(-EOWNERDEAD,
                       "the container's broker has died, so new programs of the container cannot use RDMA");
    rc = HW_MIN(c->join = open_join_socket(a), 0);
    if (rc == 0)
        note_owner(held, c->pid);
    return rc;
}

static int join_or_listen(int dir, const struct sockaddr_un *a, struct vb_container *c, const char *words, int n)
{
    uint64_t deadline = hw_deadline(ENDS_MS);
    for (;;) {
        int rc = try_join(dir, a, c, words, n);
        if (rc != -EPERM || hw_now() >= deadline)
            return rc;
        (void)poll(NULL, 0, 20); /* a broker of an earlier container of the same name may be about to exit */
    }
}

int vb_join(const char *state_dir, struct vb_container *c)
{
    struct sockaddr_un a;
    HW_AUTO_FREE char *words = malloc(WORDS_MAX);
    HW_AUTO_CLOSE int dir = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return hw_fail(-errno, "cannot open %s: %s", state_dir, strerror(errno));
    if (!words)
        return hw_no_memory("the rules of a container");
    int rc = fill_container_address(&a, dir, c->id, "join");
    if (rc)
        return rc;
    int n = write_words(c, words);
    return n < 0 ? n : join_or_listen(dir, &a, c, words, n);
}

int vb_join_take(const struct vb_container *c, int *reply)
{
    static char theirs[WORDS_MAX], mine[WORDS_MAX];
    int fds[FDS];
    ssize_t n = hw_pass_receive(c->join, theirs, sizeof theirs, fds, FDS, MSG_DONTWAIT, NULL);
    if (fds[FD_LISTENER] < 0 || fds[FD_REPLY] < 0) { /* a descriptor is missing */
        hw_close(&fds[FD_LISTENER]);
        hw_close(&fds[FD_REPLY]);
        return -EAGAIN;
    }
    if (n != write_words(c, mine) || memcmp(mine, theirs, (size_t)n) != 0) {
        close(fds[FD_LISTENER]);
        vb_join_answer(fds[FD_REPLY], -EPERM);
        return -EAGAIN;
    }
    *reply = fds[FD_REPLY];
    return fds[FD_LISTENER];
}

void vb_join_answer(int reply, int rc)
{
    (void)send(reply, &rc, sizeof rc, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(reply);
}

bool vb_join_owned(const char *state_dir, const char *id)
{
    HW_AUTO_CLOSE int dir = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    HW_AUTO_CLOSE int held = dir < 0 ? -1 : lock_container(dir, id, 0);
    return held >= 0 && has_owner(held);
}

void vb_join_clean(const char *state_dir, const char *id, bool over)
{
    static const char *const suffixes[] = {"join", "status", "lock"};
    struct sockaddr_un a;
    HW_AUTO_CLOSE int dir = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    HW_AUTO_CLOSE int held = dir < 0 ? -1 : lock_container(dir, id, 0);
    HW_AUTO_CLOSE int sock = held < 0 ? -1 : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sock >= 0 && (over || !has_owner(held)) && fill_container_address(&a, dir, id, "join") == 0 &&
        connect(sock, (struct sockaddr *)&a, sizeof a)) {
        for (unsigned i = 0; i < HW_ARRAY_LEN(suffixes); i++)
            if (fill_container_address(&a, dir, id, suffixes[i]) == 0)
                unlink(a.sun_path);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/child.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int child_ends(int type, int at, const char *who, int talk[2], int err[2])
{
    talk[0] = talk[1] = err[0] = err[1] = -1;
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, talk) < 0 || pipe2(err, O_CLOEXEC) < 0)
        return hw_fail(-errno, "creating sockets or a pipe for %s: %s", who, strerror(errno));
    if (err[1] == at) {
        int other = fcntl(err[1], F_DUPFD_CLOEXEC, at + 1);
        int rc = other < 0 ? hw_fail(-errno, "creating a pipe for %s: %s", who, strerror(errno)) : 0;
        hw_close(&err[1]);
        err[1] = other;
        return rc;
    }
    return 0;
}

void child_take_ends(int talk, int at, int err)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* dup2() of a descriptor to itself would not clear FD_CLOEXEC */
    if (talk == at ? fcntl(talk, F_SETFD, 0) < 0 : dup2(talk, at) < 0)
        _exit(127);
    if (in < 0 || dup2(in, 0) < 0 || dup2(err, 1) < 0 || dup2(err, 2) < 0)
        _exit(127);
}

bool child_read(int fd, void *data, size_t len)
{
    uint8_t *at = data;
    while (len) {
        ssize_t k = read(fd, at, len);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        len -= (size_t)k;
    }
    return true;
}

bool child_write(int fd, const void *data, size_t len)
{
    const uint8_t *at = data;
    while (len) {
        ssize_t k = write(fd, at, len);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        at += k;
        len -= (size_t)k;
    }
    return true;
}

int child_reap(pid_t *pid, int ms)
{
    int status = 0;
    uint64_t deadline = hw_deadline(ms);
    while (*pid > 0) {
        pid_t k = waitpid(*pid, &status, WNOHANG);
        if (k == *pid || (k < 0 && errno != EINTR))
            *pid = 0;
        else if (hw_now() > deadline) {
            kill(*pid, SIGKILL);
            deadline = HW_NEVER;
        } else
            usleep(2000);
    }
    return status;
}

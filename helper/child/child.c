/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/child/child.h"

#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static int compare_fds(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Closes all descriptors from 3 up, except those in fd. Closing cannot block, because the parent has all of these
 * descriptors open too. */
static void close_others(int *fd, unsigned n)
{
    unsigned from = 3;
    qsort(fd, n, sizeof(*fd), compare_fds);
    for (unsigned i = 0; i < n; i++) {
        if ((unsigned)fd[i] > from)
            (void)close_range(from, (unsigned)fd[i] - 1, 0);
        from = HW_MAX(from, (unsigned)fd[i] + 1);
    }
    (void)close_range(from, ~0u, 0);
}

static void limit_life(void)
{
    const struct itimerval t = {.it_value.tv_sec = HD_CHILD_SECONDS};
    sigset_t s;
    (void)signal(SIGALRM, SIG_DFL);
    sigemptyset(&s);
    sigaddset(&s, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &s, NULL);
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

static void drop_capabilities(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    (void)syscall(SYS_capset, &h, d);
}

__attribute__((noreturn)) static void run_child(const int *keep, unsigned n, void (*fn)(int pair, void *arg), void *arg,
                                                int pair)
{
    int fd[HD_CHILD_FDS + 1] = {pair};
    char c = 0;
    memcpy(fd + 1, keep, n * sizeof(*keep));
    close_others(fd, n + 1);
    limit_life();
    drop_capabilities();
    if (send(pair, &c, 1, MSG_NOSIGNAL) == 1) {
        fn(pair, arg);
        while (recv(pair, &c, 1, 0) > 0)
            ;
    }
    /* exit() would flush buffers of the parent. The kernel closes the descriptors, and an exiting process ignores
     * SO_LINGER (inet_release() in net/ipv4/af_inet.c). */
    _exit(0);
}

int hd_child_start(const int *keep, unsigned n, void (*fn)(int pair, void *arg), void *arg, int *pair)
{
    int p[2];
    char c;
    *pair = -1;
    if (n > HD_CHILD_FDS)
        return hw_fail(-E2BIG, "too many descriptors for a child process: %u", n);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
        return hw_fail(-errno, "cannot create a socket pair for a child process: %s", hw_errno_text(errno));
    pid_t pid = fork();
    if (pid == 0)
        run_child(keep, n, fn, arg, p[1]);
    int rc = pid < 0
                 ? hw_fail(-errno, "cannot start a child process for a client's descriptor: %s", hw_errno_text(errno))
                 : 0;
    hw_close(&p[1]);
    if (rc == 0) {
        struct pollfd ready = {.fd = p[0], .events = POLLIN};
        while (poll(&ready, 1, HD_CHILD_SECONDS * 1000) < 0 && errno == EINTR)
            ;
        if (recv(p[0], &c, 1, MSG_DONTWAIT) != 1)
            rc = hw_fail(-ECHILD, "the child process for a client's descriptor did not start");
    }
    if (rc)
        hw_close(&p[0]);
    *pair = p[0];
    return rc;
}

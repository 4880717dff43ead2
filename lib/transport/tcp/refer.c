/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/refer.h"

#include "base/fork.h"
#include "transport/tcp/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIPE_SIZE (1 << 20) /* default of /proc/sys/fs/pipe-max-size */
/* A copy is cheaper than sending through a smaller pipe, which the kernel gives to users above pipe-user-pages-soft. */
#define PIPE_LEAST (256 << 10)

void hw_refer_init(struct hw_refer *r)
{
    *r = (struct hw_refer){.pipe = {-1, -1}};
}

void hw_refer_free(struct hw_refer *r)
{
    hw_fork_close(&r->pipe[0]);
    hw_fork_close(&r->pipe[1]);
}

static bool make_pipe(struct hw_refer *r)
{
    if (r->pipe[0] >= 0 || r->off)
        return !r->off;
    if (pipe2(r->pipe, O_CLOEXEC | O_NONBLOCK) == 0) {
        (void)hw_fork_guard(r->pipe[0]);
        (void)hw_fork_guard(r->pipe[1]);
        (void)fcntl(r->pipe[0], F_SETPIPE_SZ, PIPE_SIZE);
        if (fcntl(r->pipe[0], F_GETPIPE_SZ) >= PIPE_LEAST)
            return true;
        hw_refer_free(r);
    }
    r->off = true;
    return false;
}

int64_t hw_refer_fill(struct hw_refer *r, const struct iovec *iov, size_t n)
{
    if (!make_pipe(r))
        return 0;
    ssize_t done;
    do
        done = vmsplice(r->pipe[1], iov, n, SPLICE_F_NONBLOCK);
    while (done < 0 && errno == EINTR);
    if (done > 0) {
        r->held += (uint32_t)done;
        return done;
    }
    if (done < 0 && errno == EAGAIN)
        return -EAGAIN;
    r->off = true; /* the memory cannot be referenced, for example because it is a device mapping */
    return 0;
}

static int64_t move_held(struct hw_refer *r, int fd, bool more)
{
    ssize_t done;
    do
        done =
            splice(r->pipe[0], NULL, fd, NULL, r->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0));
    while (done < 0 && errno == EINTR);
    if (done > 0) {
        r->held -= (uint32_t)done;
        return done;
    }
    return done < 0 ? hw_sock_explain_host("sending") : hw_fail(-EIO, "splice() moved nothing");
}

/* Moves bytes from the pipe to the socket. splice(2) to a socket has no MSG_NOSIGNAL, and a connection that the peer
 * has reset must not kill the caller's process, even if the call moved some bytes before the reset. The library's own
 * threads always block SIGPIPE. A caller's thread blocks the signal during the call and discards a signal that the call
 * caused. */
int64_t hw_refer_drain(struct hw_refer *r, int fd, bool more)
{
    if (hw_own_thread)
        return move_held(r, fd, more);
    sigset_t pipe_set, old, pending;
    sigemptyset(&pipe_set);
    sigemptyset(&pending);
    sigaddset(&pipe_set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
    if (sigismember(&old, SIGPIPE))
        sigpending(&pending);
    int64_t rc = move_held(r, fd, more);
    if (r->held && !sigismember(&pending, SIGPIPE)) {
        struct timespec zero = {0};
        while (sigtimedwait(&pipe_set, NULL, &zero) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

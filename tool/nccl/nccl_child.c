/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a function in a child process, because the third-party code that the function loads or starts may crash, exit or
 * hang. */
#include "tool/nccl/nccl_look.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define DONE 0x5d /* exit status of a child that finished; not 0, so that exit(0) in a library is recognized */

void *nccl_shared(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void nccl_unshare(void *p, size_t len)
{
    if (p)
        munmap(p, len);
}

static void be_child(void (*fn)(void *), void *shared, pid_t parent, int out)
{
    const struct rlimit none = {0, 0};
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* use a separate process group, so that nccl_run() can also kill the processes that the child starts */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || setpgid(0, 0) < 0 || in < 0 || dup2(in, 0) < 0 ||
        dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(127);
    (void)setrlimit(RLIMIT_CORE, &none);
    fn(shared);
    fflush(NULL);
    _exit(DONE);
}

/* Reads the child's output until the child has ended. Keeps the last part, from the beginning of a line if possible.
 * Returns false at the deadline. */
static bool read_nccl_child_output(struct nccl_child *c, int fd, pid_t pid, int *status, uint64_t deadline)
{
    size_t len = 0;
    bool ended = false;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char text[512];
        /* wait for the end of the child, not of the pipe, which other processes may hold open */
        ended = ended || waitpid(pid, status, WNOHANG) == pid;
        int ready = poll(&p, 1, ended ? 0 : 20);
        ssize_t k = ready > 0 ? read(fd, text, sizeof text) : -1;
        if (k > 0) {
            size_t n = (size_t)k, room = sizeof c->tail - 1;
            if (len + n > room) {
                size_t drop = len + n - room;
                const char *nl = memchr(c->tail + drop, '\n', len - drop);
                drop = nl ? (size_t)(nl + 1 - c->tail) : len;
                memmove(c->tail, c->tail + drop, len - drop);
                len -= drop;
            }
            memcpy(c->tail + len, text, n);
            len += n;
            c->tail[len] = 0;
        } else if (ended)
            return true;
        else if (k == 0)
            usleep(5000);
        if (hw_now() > deadline)
            return ended;
    }
}

void nccl_run(struct nccl_child *c, void (*fn)(void *shared), void *shared, int ms)
{
    int out[2], status = 0;
    memset(c, 0, sizeof *c);
    if (pipe2(out, O_CLOEXEC) < 0) {
        c->rc = -errno;
        snprintf(c->how, sizeof c->how, "could not be started: %s", strerror(errno));
        return;
    }
    fflush(NULL); /* otherwise the child would inherit output that is not yet written */
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        be_child(fn, shared, parent, out[1]);
    hw_close(&out[1]);
    if (pid < 0) {
        c->rc = -errno;
        snprintf(c->how, sizeof c->how, "could not be started: %s", strerror(errno));
    } else if (!read_nccl_child_output(c, out[0], pid, &status, hw_deadline(ms))) {
        kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
        c->rc = -ETIMEDOUT;
        snprintf(c->how, sizeof c->how, "did not end within %d s", ms / 1000);
    } else if (WIFSIGNALED(status)) {
        c->rc = -EFAULT;
        snprintf(c->how, sizeof c->how, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != DONE) {
        c->rc = -ECANCELED;
        snprintf(c->how, sizeof c->how, "called exit(%d)", WEXITSTATUS(status));
    }
    if (pid > 0)
        (void)kill(-pid, SIGKILL);
    hw_close(&out[0]);
}

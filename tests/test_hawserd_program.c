/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptors that strangers send to hawserd, and the program itself, over this machine's kernel: what it gives up,
 * that there is one only, how it ends. Usage: test_hawserd_program HAWSERD */
#include "helper/diag.h"
#include "helper/fds.h"
#include "tap.h"
#include "transport/devmem/helper.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 20000 /* a call's deadline, on a machine that is busy */

static char dir[40], path[64], state[64];
static int logs = -1; /* what hawserd said, in memory */

static bool said(const char *what)
{
    char text[65536];
    ssize_t n = pread(logs, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return strstr(text, what) != NULL;
}

/* It may take a while until what happened is in the log, or in the kernel. */
#define SOON(cond)                                    \
    ({                                                \
        uint64_t until_ = hw_deadline(MS);            \
        bool yes_;                                    \
        while (!(yes_ = (cond)) && hw_now() < until_) \
            usleep(2000);                             \
        yes_;                                         \
    })

static int memfd(size_t bytes)
{
    int fd = memfd_create("no dma-buf", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        abort();
    return fd;
}

/* ---- descriptors -------------------------------------------------------------------------------- */

static void pair(int domain, int *a, int *b)
{
    union hw_addr at = {0};
    socklen_t len = sizeof(at);
    int l = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sa.sa_family = (sa_family_t)domain;
    if (domain == AF_INET)
        at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &at.in6.sin6_addr);
    *a = *b = -1;
    if (bind(l, &at.sa, hw_addr_len(&at)) < 0 || listen(l, 1) < 0 || getsockname(l, &at.sa, &len) < 0)
        abort();
    *a = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(*a, &at.sa, len) < 0)
        abort();
    *b = accept(l, NULL, NULL);
    close(l);
}

static bool may_ask_netns(void)
{
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = hd_fd_same_netns(s);
    close(s);
    return rc == 0;
}

/* sock_diag knows a connection, and when it is over. */
static void watched(int fd, const union hw_addr *l, const union hw_addr *r, uint64_t mine, uint64_t other)
{
    int diag = hd_diag_open(), now = diag < 0 ? diag : hd_diag_alive(diag, 1, l, r, mine);
    if (diag < 0 || now == 0) {
        tap_skip("the end of a connection is seen", "this kernel has no sock_diag for TCP");
        close(diag);
        return;
    }
    is_int(now, 1, "a connection is shown");
    is_int(hd_diag_alive(diag, 1, l, r, other), 0, "as that of its own socket only");
    is_int(hd_diag_alive(diag, 1, l, l, mine), 0, "and with its own ends only");
    if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) == 0)
        is_int(hd_diag_alive(diag, 1, l, r, mine), 1, "it is shown as well once it is bound to its NIC");
    else
        tap_skip("a connection that is bound to its NIC", "this user may not bind it");
    struct linger hard = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    union hw_addr none = {.sa.sa_family = AF_UNSPEC};
    is_int(connect(fd, &none.sa, sizeof(none.sa)), 0, "it is reset");
    is_int(hd_diag_alive(diag, 1, l, r, mine), 0, "and is shown no more");
    close(diag);
}

static void descriptors(void)
{
    uint64_t size, ino, ino2;
    union hw_addr l, r;
    int a, b, mem = memfd(8192), udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    is_int(hd_fd_dmabuf_size(mem, &size), -EBADF, "a memfd is no dma-buf");
    is_int(hd_fd_dmabuf_size(udp, &size), -EBADF, "nor is a socket");
    is_int(hd_fd_dmabuf_size(12345, &size), -EBADF, "nor what is not open");
    is_int(hd_fd_ends(mem, &l, &r, &ino), -EINVAL, "a memfd is no TCP socket");
    is_int(hd_fd_ends(udp, &l, &r, &ino), -EINVAL, "nor is one of UDP");
    if (may_ask_netns()) {
        int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        is_int(hd_fd_ends(plain, &l, &r, &ino), -ENOTCONN, "a TCP socket that is not connected");
        close(plain);
        for (int i = 0; i < 2; i++) {
            pair(i ? AF_INET6 : AF_INET, &a, &b);
            union hw_addr l2, r2;
            is_int(hd_fd_ends(a, &l, &r, &ino), 0, i ? "IPv4 through an IPv6 socket" : "a connection");
            is_int(hd_fd_ends(b, &l2, &r2, &ino2), 0, "its other end");
            ok(l.sa.sa_family == AF_INET && hw_addr_same_host(&l, &r2) && hw_addr_port(&l) == hw_addr_port(&r2) &&
                   hw_addr_port(&r) == hw_addr_port(&l2),
               "the ends of the one are those of the other");
            watched(a, &l, &r, ino, ino2);
            close(a);
            close(b);
        }
        pid_t pid = fork();
        if (pid == 0) {
            int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (unshare(CLONE_NEWNET) < 0)
                _exit(77);
            int t = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            /* seen from inside: the socket of before is the foreign one */
            _exit(hd_fd_same_netns(s) == -EXDEV && hd_fd_ends(s, &l, &r, &ino) == -EXDEV && hd_fd_same_netns(t) == 0
                      ? 0
                      : 1);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        if (WEXITSTATUS(status) == 77)
            tap_skip("a socket of another network namespace", "making one needs CAP_SYS_ADMIN");
        else
            is_int(status, 0, "a socket of another network namespace");
    } else {
        tap_skip("connections and their network namespace", "SIOCGSKNS needs CAP_NET_ADMIN");
    }
    /* a file whose close() hangs is closed by somebody else: here only that it is closed in the end */
    int p[2];
    if (pipe(p) < 0)
        abort();
    int out = p[1];
    hd_fd_shed(&out);
    is_int(out, -1, "a stranger's descriptor is let go of");
    char c;
    is_int(SOON(poll(&(struct pollfd){.fd = p[0], .events = POLLIN}, 1, 0) == 1) ? read(p[0], &c, 1) : -1, 0,
           "and closed");
    close(p[0]);
    close(mem);
    close(udp);
}

/* ---- the program -------------------------------------------------------------------------------- */

static bool status_has(pid_t pid, const char *line)
{
    char file[40], text[4096];
    snprintf(file, sizeof(file), "/proc/%d/status", (int)pid);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n < 0 ? 0 : n] = 0;
    close(fd);
    return strstr(text, line) != NULL;
}

static pid_t launch(const char *hawserd)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(logs, STDERR_FILENO);
        execl(hawserd, hawserd, "--socket", path, "--state", state, "-v", (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void program(const char *hawserd)
{
    struct dm_helper *h;
    struct dm_binding b;
    uint32_t rule, queue;
    int status = 0, mem = memfd(8192), a, other;
    unlink(path);
    if (!may_ask_netns()) {
        tap_skip("hawserd itself", "it needs CAP_NET_ADMIN");
        return;
    }
    if (ftruncate(logs, 0) < 0)
        abort();
    pid_t pid = launch(hawserd);
    ok(SOON(dm_helper_open(path, MS, &h) == 0), "hawserd is started, and takes a client");
    ok(SOON(said("serving at")), "it says where");
    ok(status_has(pid, "CapEff:\t0000000000001000\n") && status_has(pid, "CapPrm:\t0000000000001000\n") &&
           status_has(pid, "CapInh:\t0000000000000000\n") && status_has(pid, "CapBnd:\t0000000000001000\n"),
       "it has CAP_NET_ADMIN, and no other capability");
    ok(status_has(pid, "NoNewPrivs:\t1\n"), "and gets none any more");
    ok(said("no filter of system calls") || status_has(pid, "Seccomp:\t2\n"), "its system calls are filtered");
    is_int(dm_helper_bind_rx(h, "lo", mem, 1, &b), -EBADF, "a memfd for a dma-buf");
    is_int(dm_helper_bind_tx(h, "no-such-nic", mem, &b), -ENODEV, "a NIC that is not there");
    pair(AF_INET, &a, &other);
    is_int(dm_helper_steer(h, 1, a, &rule, &queue), -ENOENT, "no binding");
    is_int(dm_helper_release(h, 1), -ENOENT, "nothing to release");
    pid_t second = launch(hawserd);
    waitpid(second, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 1 && said("hawserd lives, with process id"), "a second one refuses");
    dm_helper_close(h);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    pid = launch(hawserd);
    ok(SOON(dm_helper_open(path, MS, &h) == 0), "after SIGKILL the next one comes up");
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    is_int(status, 0, "SIGTERM ends it well, with its client connected");
    is_int(access(path, F_OK), -1, "and its socket is gone");
    dm_helper_close(h);
    close(mem);
    close(a);
    close(other);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_hawserd_program HAWSERD\n");
        return 2;
    }
    snprintf(dir, sizeof(dir), "/tmp/hawserd-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(state, sizeof(state), "%s/state", dir);
    logs = memfd_create("log", MFD_CLOEXEC);
    if (fcntl(logs, F_SETFL, O_APPEND) < 0) /* so that emptying it is enough */
        return 1;
    descriptors();
    program(argv[1]);
    char left[96];
    static const char *const names[] = {"", ".new", ".lock"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        snprintf(left, sizeof(left), "%s%s", state, names[i]);
        unlink(left);
    }
    unlink(path);
    rmdir(dir);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests hawserd's checks of file descriptors and NIC names. Also tests the program itself with this machine's kernel:
 * which rights it gives up, that only one instance runs, and how it exits. Usage: test_hawserd_program HAWSERD */
#include "client.h"
#include "helper/kernel/fds.h"
#include "helper/kernel/kernel.h"
#include "tests/tap.h"
#include "transport/devmem/helper.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[40], path[64], state[64];
static int logs = -1; /* hawserd's log, in memory */

static bool said(const char *what)
{
    char text[65536];
    ssize_t n = pread(logs, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return strstr(text, what) != NULL;
}

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

static void descriptors(void)
{
    uint64_t size, netns;
    struct hd_conn c, d;
    int a, b, mem = memfd(8192), udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    is_int(hd_fd_dmabuf_size(mem, &size), -EBADF, "a memfd is no dma-buf");
    is_int(hd_fd_dmabuf_size(udp, &size), -EBADF, "nor is a socket");
    is_int(hd_fd_dmabuf_size(12345, &size), -EBADF, "nor what is not open");
    netns = hd_fd_netns(udp);
    ok(netns, "a socket tells its network namespace");
    is_int(hd_fd_connection(mem, netns, &c), -EINVAL, "a memfd is no TCP socket");
    is_int(hd_fd_connection(udp, netns, &c), -EINVAL, "nor is one of UDP");
    int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    is_int(hd_fd_connection(plain, netns, &c), -ENOTCONN, "a TCP socket that is not connected");
    close(plain);
    for (int i = 0; i < 2; i++) {
        pair(i ? AF_INET6 : AF_INET, &a, &b);
        is_int(hd_fd_connection(a, netns, &c), 0, i ? "IPv4 through an IPv6 socket" : "a connection");
        is_int(hd_fd_connection(b, netns, &d), 0, "its other end");
        ok(c.local.sa.sa_family == AF_INET && hw_addr_same_host(&c.local, &d.remote) &&
               hw_addr_port(&c.local) == hw_addr_port(&d.remote) && hw_addr_port(&c.remote) == hw_addr_port(&d.local),
           "the ends of the one are those of the other");
        ok(c.cookie && d.cookie && c.cookie != d.cookie, "each has a number of its own");
        close(a);
        close(b);
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) < 0)
            _exit(77);
        a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        /* this process is in another network namespace */
        _exit(hd_fd_same_netns(a, netns) == -EXDEV && hd_fd_connection(a, netns, &c) == -EXDEV &&
                      hd_fd_same_netns(udp, netns) == 0
                  ? 0
                  : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WEXITSTATUS(status) == 77)
        tap_skip("a socket of another network namespace", "making one needs CAP_SYS_ADMIN");
    else
        is_int(status, 0, "a socket of another network namespace");
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

static bool status_has_net_admin(void)
{
    return prctl(PR_CAPBSET_READ, CAP_NET_ADMIN, 0, 0, 0) == 1 && geteuid() == 0;
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

/* poll() fails with EINVAL if it gets more descriptors than the process may have. */
static void poll_fails(const char *hawserd)
{
    const struct rlimit few = {.rlim_cur = 1, .rlim_max = 1};
    struct dm_helper *h;
    int status = 0;
    pid_t pid = launch(hawserd);
    ok(SOON(dm_helper_open(path, MS, &h) == 0), "hawserd takes a client");
    if (prlimit(pid, RLIMIT_NOFILE, &few, NULL) < 0)
        abort();
    dm_helper_close(h);
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 1 && said("waiting for clients: "),
       "poll() fails: an error, and exit status 1");
}

/* hawserd cannot give a new folder to the user that it will run as. */
static void folder_owner(const char *hawserd)
{
    char sub[64], file[96];
    int status = 0;
    if (geteuid() != 0) {
        tap_skip("a folder whose owner cannot be changed", "it needs root");
        return;
    }
    snprintf(sub, sizeof(sub), "%s/sub", dir);
    snprintf(file, sizeof(file), "%s/state", sub);
    int program_fd = open(hawserd, O_RDONLY | O_CLOEXEC);
    if (chown(dir, 65534, 65534) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        char arg[5][16] = {"hawserd", "--user", "root", "--state", "--socket"};
        char *const args[] = {arg[0], arg[1], arg[2], arg[3], file, arg[4], path, NULL};
        dup2(logs, STDERR_FILENO);
        if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
            _exit(126);
        (void)fexecve(program_fd, args, environ);
        _exit(127);
    }
    close(program_fd);
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 1 && said("cannot change the owner of the folder") &&
           access(sub, F_OK) < 0,
       "a folder whose owner cannot be changed: an error, and no such folder for the next start (%d)", status);
    if (chown(dir, 0, 0) < 0)
        abort();
}

static void program(const char *hawserd)
{
    struct dm_helper *h;
    struct dm_binding b;
    uint32_t rule, queue;
    int status = 0, mem = memfd(8192), a, other;
    unlink(path);
    if (!status_has_net_admin()) {
        tap_skip("hawserd itself", "it needs CAP_NET_ADMIN");
        return;
    }
    if (ftruncate(logs, 0) < 0)
        abort();
    pid_t pid = launch(hawserd);
    ok(SOON(dm_helper_open(path, MS, &h) == 0), "hawserd is started, and takes a client");
    ok(SOON(said("listening on")), "it says where");
    ok(status_has(pid, "CapEff:\t0000000000001000\n") && status_has(pid, "CapPrm:\t0000000000001000\n") &&
           status_has(pid, "CapInh:\t0000000000000000\n") && status_has(pid, "CapBnd:\t0000000000001000\n"),
       "it has CAP_NET_ADMIN, and no other capability");
    ok(status_has(pid, "NoNewPrivs:\t1\n"), "and gets none any more");
    ok(said("access to files and system calls is not restricted") || status_has(pid, "Seccomp:\t2\n"),
       "its system calls are filtered");
    is_int(dm_helper_bind_rx(h, "lo", mem, 1, 0, &b), -EBADF, "a memfd for a dma-buf");
    is_int(dm_helper_bind_tx(h, "no-such-nic", mem, &b), -ENODEV, "a NIC that is not there");
    pair(AF_INET, &a, &other);
    is_int(dm_helper_steer(h, 1, a, &rule, &queue), -ENOENT, "no binding");
    is_int(dm_helper_release(h, 1), -ENOENT, "nothing to release");
    pid_t second = launch(hawserd);
    waitpid(second, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 1 && said("is already running (process ID in the file"),
       "a second one refuses");
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
    poll_fails(hawserd);
    close(mem);
    close(a);
    close(other);
}

static void remove_journal(void)
{
    static const char *const ends[] = {"", ".new", ".lock"};
    char file[96];
    for (size_t i = 0; i < HW_ARRAY_LEN(ends); i++) {
        snprintf(file, sizeof(file), "%s%s", state, ends[i]);
        unlink(file);
    }
}

static pid_t launch_as_user(int program_fd)
{
    char arg[3][16] = {"hawserd", "--socket", "--state"};
    pid_t pid = fork();
    if (pid == 0) {
        struct __user_cap_header_struct v = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct d[2] = {0};
        d[0] = (struct __user_cap_data_struct){1u << CAP_NET_ADMIN, 1u << CAP_NET_ADMIN, 1u << CAP_NET_ADMIN};
        dup2(logs, STDERR_FILENO);
        for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
            if (c != CAP_NET_ADMIN)
                prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
        prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
        if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0 ||
            syscall(SYS_capset, &v, d) < 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0) < 0 ||
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
            _exit(126);
        char *const args[] = {arg[0], arg[1], path, arg[2], state, NULL};
        (void)fexecve(program_fd, args, environ);
        _exit(127);
    }
    return pid;
}

/* Starts hawserd as its systemd unit does: as a separate user with only CAP_NET_ADMIN, in a directory of this user. */
static void as_user(const char *hawserd)
{
    struct dm_helper *h;
    struct stat st;
    int status = 0;
    if (!status_has_net_admin()) {
        tap_skip("hawserd as another user", "it needs root");
        return;
    }
    remove_journal();
    if (chown(dir, 65534, 65534) < 0)
        abort();
    int program_fd = open(hawserd, O_RDONLY | O_CLOEXEC); /* that user may be unable to open the path */
    pid_t pid = launch_as_user(program_fd);
    ok(SOON(dm_helper_open(path, MS, &h) == 0), "as another user with CAP_NET_ADMIN hawserd takes a client");
    ok(status_has(pid, "Uid:\t65534\t65534") && status_has(pid, "CapEff:\t0000000000001000\n") &&
           status_has(pid, "CapInh:\t0000000000000000\n") && status_has(pid, "CapAmb:\t0000000000000000\n"),
       "with that capability alone");
    ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0666, "its socket is for all");
    ok(stat(state, &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_uid == 65534, "its journal is its own");
    dm_helper_close(h);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    pid = launch_as_user(program_fd);
    close(program_fd);
    ok(SOON(dm_helper_open(path, MS, &h) == 0), "after SIGKILL the next one of that user comes up");
    dm_helper_close(h);
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    is_int(status, 0, "and ends");
    if (chown(dir, 0, 0) < 0)
        abort();
}

/* Tests that hawserd accepts only a device's main name, not its alternative names. */
static void names(void)
{
    struct hd_kernel k;
    struct hd_link link;
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) < 0 || system("ip link property add dev lo altname another 2>/dev/null") != 0)
            _exit(77);
        bool good = hd_kernel_open(&k) == 0 && k.link(k.arg, "lo", &link) == 0 && link.ifindex == 1 &&
                    strcmp(link.name, "lo") == 0 && k.link(k.arg, "another", &link) == -ENODEV &&
                    k.link(k.arg, "no-such-nic", &link) == -ENODEV && k.link(k.arg, "", &link) < 0;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        tap_skip("names of NICs", "another name takes CAP_SYS_ADMIN and iproute2");
    else
        is_int(status, 0, "a NIC goes by its own name only");
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
    if (fcntl(logs, F_SETFL, O_APPEND) < 0) /* so that truncation resets the write position */
        return 1;
    descriptors();
    names();
    program(argv[1]);
    as_user(argv[1]);
    folder_owner(argv[1]);
    remove_journal();
    unlink(path);
    rmdir(dir);
    return tap_done();
}

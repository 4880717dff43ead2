/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the rights that hawserd gives up. Tries actions that an attacker in control of hawserd might attempt, in a
 * process that has given up these rights. */
#include "base/sanitizers.h"
#include "helper/guard.h"
#include "tests/tap.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SANITIZED (HW_ASAN || HW_TSAN) /* the filter would kill a sanitizer that makes system calls */

static char dir[40], state[64], path[64], sock[64];
static int listener = -1, tcp = -1, unix_fd = -1; /* opened before rights are given up */

/* ---- system calls --------------------------------------------------------------------------------- */

static void call_exec(void)
{
    char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    (void)execve("/bin/true", argv, argv);
}
static void call_udp(void)
{
    (void)socket(AF_INET, SOCK_DGRAM, 0);
}
static void call_raw(void)
{
    (void)socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
}
static void call_packet(void)
{
    (void)socket(AF_PACKET, SOCK_RAW, 0);
}
static void call_unix(void)
{
    (void)socket(AF_UNIX, SOCK_STREAM, 0);
}
static void call_route(void)
{
    (void)socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
}
static void call_connect(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    (void)connect(tcp, (struct sockaddr *)&a, sizeof(a));
}
static void call_listen(void)
{
    (void)listen(tcp, 1);
}
static void call_fastopen(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    (void)sendto(tcp, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&a, sizeof(a));
}
static void call_kill(void)
{
    (void)kill(getppid(), 0);
}
static void call_tgkill(void)
{
    (void)syscall(SYS_tgkill, 1, 1, 0);
}
static void call_ptrace(void)
{
    (void)ptrace(PTRACE_ATTACH, 1, NULL, NULL);
}
static void call_unshare(void)
{
    (void)unshare(CLONE_NEWUSER);
}
static void call_clone(void)
{
    (void)syscall(SYS_clone, SIGCHLD | CLONE_NEWUSER, NULL, NULL, NULL, NULL);
}
static void call_thread(void)
{
    (void)syscall(SYS_clone, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, NULL, NULL, NULL, NULL);
}
static void call_clone3(void)
{
    (void)syscall(SYS_clone3, NULL, 0);
}
static void call_exec_memory(void)
{
    (void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void call_mprotect(void)
{
    (void)mprotect((void *)((uintptr_t)&tcp & ~4095ul), 4096, PROT_READ | PROT_EXEC);
}
static void call_setuid(void)
{
    (void)syscall(SYS_setuid, 0);
}
static void call_ioctl(void)
{
    struct ifreq r = {.ifr_name = "lo"};
    (void)ioctl(tcp, SIOCSIFFLAGS, &r);
}
static void call_index(void)
{
    struct ifreq r = {.ifr_name = "no-such-nic"};
    (void)ioctl(tcp, SIOCGIFINDEX, &r);
}
static void call_sockopt(void)
{
    int one = 1;
    (void)setsockopt(tcp, SOL_SOCKET, SO_DEBUG, &one, sizeof(one));
}
static void call_chmod(void)
{
    (void)chmod(dir, 0777);
}
static void call_symlink(void)
{
    (void)symlink("/etc/passwd", state);
}
static void call_mount(void)
{
    (void)syscall(SYS_mount, NULL, NULL, NULL, 0, NULL);
}
static void call_bpf(void)
{
    (void)syscall(SYS_bpf, 0, NULL, 0);
}
static void call_uring(void)
{
    (void)syscall(SYS_io_uring_setup, 1, NULL);
}
static void call_pidfd(void)
{
    (void)syscall(SYS_pidfd_open, getpid(), 0);
}
static void call_memory(void)
{
    (void)syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0);
}
/* system calls that hawserd needs */
static void call_netlink(void)
{
    int one = 1, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    (void)setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
    close(fd);
}
static void call_hold(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    int on = 1, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on));
    (void)bind(fd, (struct sockaddr *)&a, sizeof(a));
    close(fd);
}
static void call_fork(void)
{
    int p[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0 || fork() == 0)
        _exit(0);
    (void)recv(p[0], p, 1, MSG_DONTWAIT);
}
static void call_accept(void)
{
    (void)accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    (void)send(unix_fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static const struct {
    const char *what;
    void (*fn)(void);
    bool allowed;
} calls[] = {
    {"starting a program", call_exec, false},
    {"a UDP socket", call_udp, false},
    {"a raw socket", call_raw, false},
    {"a packet socket", call_packet, false},
    {"a UNIX socket", call_unix, false},
    {"a routing socket", call_route, false},
    {"connecting", call_connect, false},
    {"listening", call_listen, false},
    {"connecting by sending", call_fastopen, false},
    {"a signal", call_kill, false},
    {"a signal to a thread", call_tgkill, false},
    {"ptrace", call_ptrace, false},
    {"a namespace", call_unshare, false},
    {"a process in a namespace of its own", call_clone, false},
    {"a thread", call_thread, false},
    {"clone3()", call_clone3, false},
    {"executable memory", call_exec_memory, false},
    {"memory made executable", call_mprotect, false},
    {"another user", call_setuid, false},
    {"a NIC's flags", call_ioctl, false},
    {"a NIC by a name, for which the kernel loads modules", call_index, false},
    {"another socket option", call_sockopt, false},
    {"chmod()", call_chmod, false},
    {"a symbolic link", call_symlink, false},
    {"mount()", call_mount, false},
    {"bpf()", call_bpf, false},
    {"io_uring", call_uring, false},
    {"a pidfd", call_pidfd, false},
    {"another process's memory", call_memory, false},
    {"a binding's socket", call_netlink, true},
    {"holding a port", call_hold, true},
    {"a child", call_fork, true},
    {"a client", call_accept, true},
};

static void test_calls(void)
{
    if (SANITIZED) {
        tap_skip("the filter of system calls", "a sanitizer makes its own");
        return;
    }
    for (size_t i = 0; i < HW_ARRAY_LEN(calls); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if (hd_guard_calls() < 0)
                _exit(2);
            calls[i].fn();
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        if (calls[i].allowed)
            ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: allowed (%#x)", calls[i].what, (unsigned)status);
        else
            ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "%s: the kernel ends the process (%#x)",
               calls[i].what, (unsigned)status);
    }
}

/* ---- files ---------------------------------------------------------------------------------------- */

static bool refused(int fd)
{
    if (fd >= 0)
        close(fd);
    return fd < 0 && errno == EACCES;
}

static bool opens(const char *file, int flags)
{
    int fd = open(file, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Returns a bit mask of the checks that failed. */
static unsigned look_around(void)
{
    char new_file[80], other[80], moved[80];
    unsigned bad = 0, bit = 1;
    snprintf(new_file, sizeof(new_file), "%s/state.new", state);
    snprintf(moved, sizeof(moved), "%s/state", state);
    snprintf(other, sizeof(other), "%s/other", dir);
#define CHECK(cond)               \
    do {                          \
        bad |= (cond) ? 0u : bit; \
        bit <<= 1;                \
    } while (0)
    CHECK(refused(open("/etc/passwd", O_RDONLY | O_CLOEXEC)));
    CHECK(refused(open("/etc/passwd", O_RDWR | O_CLOEXEC)));
    CHECK(refused(open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)));
    CHECK(refused(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)));
    CHECK(refused(open("/proc/self/mem", O_RDWR | O_CLOEXEC)));
    CHECK(refused(open("/dev/null", O_RDWR | O_CLOEXEC)));
    CHECK(opens("/proc/self/fdinfo/0", O_RDONLY));
    CHECK(opens("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY));
    CHECK(opens(new_file, O_WRONLY | O_CREAT | O_TRUNC));
    CHECK(rename(new_file, moved) == 0);
    CHECK(opens(moved, O_RDONLY));
    CHECK(opens(state, O_RDONLY | O_DIRECTORY));
    CHECK(unlink(path) == 0); /* hawserd's own socket */
    CHECK(symlink("/etc", new_file) < 0);
    CHECK(link(moved, new_file) == 0 || errno == EACCES || errno == EPERM);
    CHECK(execl("/bin/true", "true", (char *)NULL) < 0 && errno == EACCES);
    return bad;
}

static void test_files(void)
{
    int p[2];
    char file[80];
    snprintf(file, sizeof(file), "%s/state", state);
    if (pipe2(p, O_CLOEXEC) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(1)};
        unsigned bad = ~0u;
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        int rc = hd_guard_files(file, path);
        if (rc == -EOPNOTSUPP)
            _exit(77);
        if (rc == 0)
            bad = look_around();
        int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        if (version >= 4 && !(connect(tcp, (struct sockaddr *)&a, sizeof(a)) < 0 && errno == EACCES))
            bad |= 1u << 30;
        if (version >= 6 && !(kill(getppid(), 0) < 0 && errno == EPERM))
            bad |= 1u << 31;
        _exit(write(p[1], &bad, sizeof(bad)) == sizeof(bad) ? 0 : 1);
    }
    int status = 0;
    unsigned bad = ~0u;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        tap_skip("files", "this kernel has no Landlock");
    } else {
        (void)!read(p[0], &bad, sizeof(bad));
        ok(bad == 0, "files: its journal, its socket and /proc to read, and nothing else; no TCP, no signals (%#x)",
           bad);
    }
    close(p[0]);
    close(p[1]);
}

/* ---- capabilities --------------------------------------------------------------------------------- */

static void test_capabilities(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct d[2] = {0};
        if (hd_guard_caps("nobody") < 0)
            _exit(77);
        bool good = getuid() != 0 && syscall(SYS_capget, &h, d) == 0 && d[0].permitted == 1u << CAP_NET_ADMIN &&
                    d[0].effective == 1u << CAP_NET_ADMIN && d[0].inheritable == 0 && d[1].permitted == 0;
        for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
            good &= (c == CAP_NET_ADMIN) == (prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1);
        good &= setuid(0) < 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        tap_skip("as another user", "becoming one needs root, and there must be a user nobody");
    else
        is_int(status, 0, "as another user: CAP_NET_ADMIN, nothing else, and no way back");
}

int main(void)
{
    snprintf(dir, sizeof(dir), "/tmp/hawserd-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(state, sizeof(state), "%s/state", dir);
    snprintf(sock, sizeof(sock), "%s/sock", dir);
    snprintf(path, sizeof(path), "%s/sock/s", dir);
    int pair[2], fd;
    if (mkdir(state, 0700) < 0 || mkdir(sock, 0755) < 0 ||
        (fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return 1;
    close(fd);
    listener = unix_fd = pair[0];
    tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    test_calls();
    test_files();
    test_capabilities();
    char left[80];
    snprintf(left, sizeof(left), "%s/state", state);
    unlink(left);
    snprintf(left, sizeof(left), "%s/state.new", state);
    unlink(left);
    unlink(path);
    rmdir(state);
    rmdir(sock);
    rmdir(dir);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the filter in the kernel, and the profile for runtimes. The profile is loaded as runtimes load it, on top of
 * several kinds of other profiles. Each call in a table runs in a separate process, with a listener that counts the
 * call's notifications. */
#include "tests/tap.h"
#include "verbs/agent/filter.h"
#include "verbs/broker/broker.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAP_ANON_FIXED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)
#define HIGH           (1ull << 32) /* a bit that the kernel ignores in a 32-bit argument */

enum expect {
    NATIVE,   /* the kernel's own result, without a notification or a refusal by the filter */
    NOTIFIED, /* the listener is notified, and answers EXDEV */
    REFUSED,  /* the filter returns .err without a notification */
    KILLED    /* SIGSYS kills the process */
};

static const struct probe {
    const char *what;
    long nr;
    uint64_t arg[6];
    enum expect expect;
    int err; /* REFUSED: the filter's error; NATIVE: the kernel's error, or 0 for success */
} probes[] = {
#ifdef SYS_open
    {"open O_RDWR", SYS_open, {(uintptr_t) "/dev/null", O_RDWR}, NOTIFIED, 0},
    {"open O_RDONLY", SYS_open, {(uintptr_t) "/dev/null", O_RDONLY}, NATIVE, 0},
#endif
    {"openat O_RDWR", SYS_openat, {(uint64_t)AT_FDCWD, (uintptr_t) "/dev/null", O_RDWR}, NOTIFIED, 0},
    {"openat O_RDWR and more",
     SYS_openat,
     {(uint64_t)AT_FDCWD, (uintptr_t) "/dev/null", O_RDWR | O_CLOEXEC},
     NOTIFIED,
     0},
    {"openat O_RDWR, high bits", SYS_openat, {(uint64_t)AT_FDCWD, (uintptr_t) "/dev/null", O_RDWR | HIGH}, NOTIFIED, 0},
    {"openat O_WRONLY", SYS_openat, {(uint64_t)AT_FDCWD, (uintptr_t) "/dev/null", O_WRONLY}, NATIVE, 0},
    {"verbs ioctl", SYS_ioctl, {0, RDMA_VERBS_IOCTL, 0}, NOTIFIED, 0},
    {"verbs ioctl, high bits", SYS_ioctl, {0, RDMA_VERBS_IOCTL | HIGH, 0}, NOTIFIED, 0},
    {"verbs ioctl, one bit less", SYS_ioctl, {0, RDMA_VERBS_IOCTL & ~1u, 0}, NATIVE, ENOTTY},
    {"verbs ioctl, another direction", SYS_ioctl, {0, RDMA_VERBS_IOCTL ^ 0x80000000u, 0}, NATIVE, ENOTTY},
    {"write 960", SYS_write, {960, 0, 0}, NOTIFIED, 0},
    {"write 1023", SYS_write, {1023, 0, 0}, NOTIFIED, 0},
    {"write 960, high bits", SYS_write, {960 | HIGH, 0, 0}, NOTIFIED, 0},
    {"write 959", SYS_write, {959, 0, 0}, NATIVE, EBADF},
    {"write 1024", SYS_write, {1024, 0, 0}, NATIVE, EBADF},
    {"write -1", SYS_write, {UINT64_MAX, 0, 0}, NATIVE, EBADF},
    {"ptrace", SYS_ptrace, {0}, REFUSED, EPERM},
    {"process_vm_readv", SYS_process_vm_readv, {0}, REFUSED, EPERM},
    {"process_vm_writev", SYS_process_vm_writev, {0}, REFUSED, EPERM},
    {"process_madvise", SYS_process_madvise, {0}, REFUSED, EPERM},
    {"pidfd_getfd", SYS_pidfd_getfd, {0}, REFUSED, EPERM},
    {"kcmp", SYS_kcmp, {0}, REFUSED, EPERM},
    {"io_uring_setup", SYS_io_uring_setup, {1, 0}, REFUSED, EPERM},
    {"io_uring_enter", SYS_io_uring_enter, {0}, REFUSED, EPERM},
    {"io_uring_register", SYS_io_uring_register, {0}, REFUSED, EPERM},
    {"userfaultfd", SYS_userfaultfd, {0}, REFUSED, EPERM},
    {"seccomp with a listener",
     SYS_seccomp,
     {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0},
     REFUSED,
     EPERM},
    {"seccomp with a listener and more", SYS_seccomp, {SECCOMP_SET_MODE_FILTER, 8 | 1 | 32 | HIGH, 0}, REFUSED, EPERM},
    {"seccomp without", SYS_seccomp, {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, 0}, NATIVE, EFAULT},
#ifdef SYS_mknod
    {"mknod, a device", SYS_mknod, {(uintptr_t) "/proc/node", S_IFCHR | 0600, 0x103}, REFUSED, EPERM},
#endif
    {"mknodat, a device",
     SYS_mknodat,
     {(uint64_t)AT_FDCWD, (uintptr_t) "/proc/node", S_IFCHR | 0600 | HIGH, 0x103},
     REFUSED,
     EPERM},
    {"mknodat, a fifo", SYS_mknodat, {(uint64_t)AT_FDCWD, (uintptr_t) "/proc/node", S_IFIFO | 0600, 0}, NATIVE, ENOENT},
    {"socket NETLINK_RDMA", SYS_socket, {AF_NETLINK, SOCK_RAW, NETLINK_RDMA}, REFUSED, EPROTONOSUPPORT},
    {"socket NETLINK_RDMA, high bits",
     SYS_socket,
     {AF_NETLINK, SOCK_RAW, NETLINK_RDMA | HIGH},
     REFUSED,
     EPROTONOSUPPORT},
    {"socket NETLINK_ROUTE", SYS_socket, {AF_NETLINK, SOCK_RAW, NETLINK_ROUTE}, NATIVE, 0},
    {"socket TCP", SYS_socket, {AF_INET, SOCK_STREAM, 0}, NATIVE, 0},
    /* The boundary of the stub's window: calls that start in, below or above the window. */
    {"mmap at the wall", SYS_mmap, {0x10000, 4096, 0, MAP_ANON_FIXED, UINT64_MAX, 0}, REFUSED, EPERM},
    {"mmap at its end", SYS_mmap, {0x1f000, 4096, 0, MAP_ANON_FIXED, UINT64_MAX, 0}, REFUSED, EPERM},
    {"mmap from below on", SYS_mmap, {4096, 0x20000, 0, MAP_ANON_FIXED, UINT64_MAX, 0}, REFUSED, EPERM},
    {"mmap there by choice", SYS_mmap, {0x10000, 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0}, NATIVE, 0},
    {"mmap above", SYS_mmap, {0x20000, 4096, 0, MAP_ANON_FIXED, UINT64_MAX, 0}, NATIVE, 0},
    {"mmap above 4 GiB", SYS_mmap, {0x100010000, 4096, 0, MAP_ANON_FIXED, UINT64_MAX, 0}, NATIVE, 0},
    {"mmap anywhere", SYS_mmap, {0, 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0}, NATIVE, 0},
    {"munmap from 0", SYS_munmap, {0, 0x20000}, REFUSED, EPERM},
    {"munmap at the wall", SYS_munmap, {0x17000, 4096}, REFUSED, EPERM},
    {"munmap above", SYS_munmap, {0x20000, 4096}, NATIVE, 0},
    {"munmap above 4 GiB", SYS_munmap, {0x100000000, 4096}, NATIVE, 0},
    {"mprotect at the wall", SYS_mprotect, {0x10000, 0x20000, 0}, REFUSED, EPERM},
    {"mprotect above", SYS_mprotect, {0x20000, 4096, 0}, NATIVE, ENOMEM},
    {"pkey_mprotect at the wall", SYS_pkey_mprotect, {0x10000, 4096, 0, UINT64_MAX}, REFUSED, EPERM},
    {"remap_file_pages at the wall", SYS_remap_file_pages, {0x10000, 4096, 0, 1, 0}, REFUSED, EPERM},
    {"remap_file_pages above", SYS_remap_file_pages, {0x20000, 4096, 0, 1, 0}, NATIVE, EINVAL},
    {"mremap of the wall", SYS_mremap, {0x10000, 4096, 8192, MREMAP_MAYMOVE, 0}, REFUSED, EPERM},
    {"mremap onto 0", SYS_mremap, {0x30000, 4096, 0x20000, MREMAP_MAYMOVE | MREMAP_FIXED, 0}, REFUSED, EPERM},
    {"mremap onto the wall",
     SYS_mremap,
     {0x30000, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP | HIGH, 0x14000},
     REFUSED,
     EPERM},
    {"mremap, no place asked for", SYS_mremap, {0x30000, 4096, 8192, MREMAP_MAYMOVE, 0x10000}, NATIVE, EFAULT},
    {"mremap elsewhere", SYS_mremap, {0x30000, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, 0x50000}, NATIVE, EFAULT},
    {"shmat at the wall", SYS_shmat, {UINT32_MAX, 0x10000, SHM_REMAP}, REFUSED, EPERM},
    {"shmat anywhere", SYS_shmat, {UINT32_MAX, 0, 0}, NATIVE, EINVAL},
    {"shmat from below on", SYS_shmat, {UINT32_MAX, 4096, SHM_REMAP | HIGH}, REFUSED, EPERM},
    {"prctl PR_SET_MM", SYS_prctl, {PR_SET_MM | HIGH, PR_SET_MM_MAP, 0, 0, 0}, REFUSED, EPERM},
    {"prctl PR_GET_KEEPCAPS", SYS_prctl, {PR_GET_KEEPCAPS, 0, 0, 0, 0}, NATIVE, 0},
#ifdef __x86_64__
    {"arch_prctl, tagged addresses", SYS_arch_prctl, {0x4002, 1}, REFUSED, EPERM},
    {"arch_prctl, another", SYS_arch_prctl, {0x1, 0}, NATIVE, EINVAL},
#endif
    {"getppid", SYS_getppid, {0}, NATIVE, 0},
#ifdef __x86_64__
    {"getppid of x32", 0x40000000 | SYS_getppid, {0}, KILLED, 0},
    {"ioctl of x32", 0x40000000 | 514, {0, RDMA_VERBS_IOCTL, 0}, KILLED, 0},
#endif
};
#ifdef __x86_64__
static const struct probe i386 = {"ioctl of i386", -1, {0}, KILLED, 0};
#endif

/* ---- one probe ------------------------------------------------------------------------------------ */

static void send_fd(int sock, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    char byte = 0;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&c.head), &fd, sizeof(fd));
    if (sendmsg(sock, &m, 0) != 1)
        _exit(90);
}

static int receive_fd(int sock)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } c;
    char byte;
    int fd = -1;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
    if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

/* Exits with a direct system call, so that no sanitizer makes other calls first. The filter never affects
 * exit_group(). */
static void say(int status)
{
    (void)syscall(SYS_exit_group, status);
}

/* Executes the probe. Exits with 0 on success, or with errno + 1 on failure. */
static void do_probe(const struct probe *p)
{
    long rc;
#ifdef __x86_64__
    if (p->nr < 0) {
        __asm__ volatile("int $0x80"
                         : "=a"(rc)
                         : "a"(54), "b"(0), "c"(RDMA_VERBS_IOCTL), "d"(0)
                         : "memory", "r8", "r9", "r10", "r11");
        say(80);
    }
#endif
    rc = syscall(p->nr, p->arg[0], p->arg[1], p->arg[2], p->arg[3], p->arg[4], p->arg[5]);
    say(rc < 0 ? errno + 1 : 0);
}

/* Runs the probe under the filter that install() installs, and answers notifications with EXDEV. Stores the number of
 * notifications about the probe's call in *notified. */
static int run_probe(const struct probe *p, int (*install)(void *), void *arg, unsigned *notified)
{
    int pair[2], status = -1;
    *notified = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0); /* without a filter, ioctl() on this file returns ENOTTY */
        int fd = install(arg);
        if (fd < 0)
            _exit(91);
        send_fd(pair[1], fd);
        close(fd);
        do_probe(p);
    }
    close(pair[1]);
    int listener = receive_fd(pair[0]);
    close(pair[0]);
    for (struct pollfd f = {.fd = listener, .events = POLLIN};
         listener >= 0 && poll(&f, 1, 60000) == 1 && f.revents & POLLIN;) {
        struct seccomp_notif n;
        memset(&n, 0, sizeof(n));
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
            continue;
        struct seccomp_notif_resp r = {.id = n.id, .error = -EXDEV};
        *notified += n.data.nr == p->nr;
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
    }
    close(listener);
    waitpid(pid, &status, 0);
    return status;
}

static bool as_wanted(const struct probe *p, int status, unsigned notified, bool runc)
{
    int err = WIFEXITED(status) ? WEXITSTATUS(status) - 1 : -2; /* -1 means success */
    enum expect e = p->expect;
    if (e == NOTIFIED && runc && p->nr == SYS_write)
        return notified == 0 && err == EBADF;
    switch (e) {
    case NOTIFIED:
        return notified == 1 && err == EXDEV;
    case REFUSED:
        return notified == 0 && err == p->err;
    case KILLED:
        return notified == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
    default:
        return notified == 0 && err == (p->err ? p->err : -1);
    }
}

static void all_probes(int (*install)(void *), void *arg, const char *what, bool runc)
{
    unsigned bad = 0, n = 0, notified;
    for (size_t i = 0; i < sizeof(probes) / sizeof(*probes); i++, n++) {
        int status = run_probe(&probes[i], install, arg, &notified);
        if (!as_wanted(&probes[i], status, notified, runc)) {
            bad++;
            diag("%s: %s: status 0x%x, notified %u times", what, probes[i].what, (unsigned)status, notified);
        }
    }
#ifdef __x86_64__
    int status = run_probe(&i386, install, arg, &notified);
    n++;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV)
        diag("this kernel has no i386: %s not tried", i386.what);
    else if (!as_wanted(&i386, status, notified, runc)) {
        bad++;
        diag("%s: %s: status 0x%x", what, i386.what, (unsigned)status);
    }
#endif
    ok(bad == 0 && n >= 30, "%s: each of %u calls as it should be", what, n);
}

/* ---- the program ----------------------------------------------------------------------------------- */

static int install_ours(void *arg)
{
    bool killable = false;
    int fd = vb_filter_install(&killable);
    return fd >= 0 && arg && !*(bool *)arg && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 ? -1 : fd;
}

static void without_privilege(void)
{
    unsigned notified;
    static const struct probe p = {"getppid", SYS_getppid, {0}, NATIVE, 0};
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        bool killable;
        struct {
            uint32_t v;
            int p;
        } h = {0x20080522, 0};
        uint32_t none[6] = {0};
        if (syscall(SYS_capset, &h, none) < 0)
            _exit(2);
        if (vb_filter_install(&killable) < 0)
            _exit(3);
        _exit(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 4);
    }
    waitpid(pid, &status, 0);
    is_int(status, 0, "without CAP_SYS_ADMIN: no_new_privs is set");
    ok(run_probe(&p, install_ours, NULL, &notified) == 0, "and with it is not needed");
}

static void twice(void)
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        bool killable;
        int one = vb_filter_install(&killable), other = vb_filter_install(&killable);
        _exit(one >= 0 && (other == -EPERM || other == -EBUSY) &&
                      strstr(hw_error(), "cannot install the seccomp filter")
                  ? 0
                  : 1);
    }
    waitpid(pid, &status, 0);
    is_int(status, 0, "a second one is refused, with a text");
}

/* ---- the profile ----------------------------------------------------------------------------------- */

static uint32_t action_of(const char *name, const json_t *err)
{
    uint16_t e = (uint16_t)(err ? json_integer_value(err) : EPERM);
    return strcmp(name, "SCMP_ACT_ALLOW") == 0    ? SCMP_ACT_ALLOW
           : strcmp(name, "SCMP_ACT_NOTIFY") == 0 ? SCMP_ACT_NOTIFY
           : strcmp(name, "SCMP_ACT_LOG") == 0    ? SCMP_ACT_LOG
           : strcmp(name, "SCMP_ACT_ERRNO") == 0  ? SCMP_ACT_ERRNO(e)
                                                  : SCMP_ACT_KILL_PROCESS;
}

static bool compare_of(const json_t *a, struct scmp_arg_cmp *out)
{
    const char *op = json_string_value(json_object_get(a, "op"));
    *out = (struct scmp_arg_cmp){.arg = (unsigned)json_integer_value(json_object_get(a, "index")),
                                 .datum_a = (uint64_t)json_integer_value(json_object_get(a, "value")),
                                 .datum_b = (uint64_t)json_integer_value(json_object_get(a, "valueTwo"))};
    out->op = !op                                     ? _SCMP_CMP_MAX
              : strcmp(op, "SCMP_CMP_MASKED_EQ") == 0 ? SCMP_CMP_MASKED_EQ
              : strcmp(op, "SCMP_CMP_NE") == 0        ? SCMP_CMP_NE
              : strcmp(op, "SCMP_CMP_EQ") == 0        ? SCMP_CMP_EQ
              : strcmp(op, "SCMP_CMP_LT") == 0        ? SCMP_CMP_LT
              : strcmp(op, "SCMP_CMP_GE") == 0        ? SCMP_CMP_GE
                                                      : _SCMP_CMP_MAX;
    return out->op != _SCMP_CMP_MAX;
}

/* Installs a profile like crun and runc, one entry and one name at a time. Skips names that libseccomp does not know,
 * and entries whose action is the default action. */
static int install_profile(void *arg)
{
    const json_t *s = arg, *calls = json_object_get(s, "syscalls");
    uint32_t dflt = action_of(json_string_value(json_object_get(s, "defaultAction")), NULL);
    scmp_filter_ctx f = seccomp_init(dflt);
    for (size_t i = 0; f && i < json_array_size(calls); i++) {
        const json_t *e = json_array_get(calls, i), *names = json_object_get(e, "names"),
                     *args = json_object_get(e, "args");
        uint32_t act = action_of(json_string_value(json_object_get(e, "action")), json_object_get(e, "errnoRet"));
        struct scmp_arg_cmp c[6];
        for (size_t k = 0; k < json_array_size(args); k++)
            if (!compare_of(json_array_get(args, k), &c[k]))
                return -1;
        for (size_t k = 0; k < json_array_size(names); k++) {
            int nr = seccomp_syscall_resolve_name(json_string_value(json_array_get(names, k)));
            if (act != dflt && nr != __NR_SCMP_ERROR &&
                seccomp_rule_add_array(f, act, nr, (unsigned)json_array_size(args), c) < 0)
                return -1;
        }
    }
    if (!f || seccomp_load(f) < 0)
        return -1;
    return seccomp_notify_fd(f);
}

static json_t *profile(const char *text)
{
    json_error_t e;
    json_t *o = json_loads(text, 0, &e);
    if (!o) {
        printf("Bail out! %s: %s\n", text, e.text);
        exit(1);
    }
    return o;
}

/* The calls that the test programs make, and the calls in our filter that Docker's default profile allows
 * unconditionally. */
#define CALLS                                                                                                         \
    "\"open\",\"openat\",\"ioctl\",\"write\",\"read\",\"close\",\"exit\",\"exit_group\",\"getppid\",\"sendmsg\","     \
    "\"ptrace\",\"process_vm_readv\",\"process_vm_writev\",\"process_madvise\",\"pidfd_getfd\",\"kcmp\",\"seccomp\"," \
    "\"io_uring_setup\",\"io_uring_enter\",\"io_uring_register\",\"userfaultfd\",\"mknod\",\"mknodat\",\"rt_"         \
    "sigprocmask\",\"mmap\",\"munmap\",\"mprotect\",\"pkey_mprotect\",\"remap_file_pages\",\"mremap\",\"shmat\","     \
    "\"prctl\","                                                                                                      \
    "\"arch_prctl\""

static const struct {
    const char *what, *text;
} profiles[] = {
    {"no profile", "{}"},
    {"a null profile", "{\"seccomp\":null}"},
    {"all allowed",
     "{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"architectures\":[\"SCMP_ARCH_X86_64\",\"SCMP_ARCH_X86\"],"
     "\"syscalls\":[{\"names\":[\"reboot\",\"ptrace\"],\"action\":\"SCMP_ACT_ERRNO\"},"
     "{\"names\":[\"ioctl\",\"openat\",\"kcmp\"],\"action\":\"SCMP_ACT_ALLOW\"}]}}"},
    {"all logged", "{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[" CALLS ",\"socket\"],"
                   "\"action\":\"SCMP_ACT_LOG\",\"args\":[]}]}}"},
    {"a list as Docker's",
     "{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"defaultErrnoRet\":1,\"architectures\":[\"SCMP_ARCH_X86_64\","
     "\"SCMP_ARCH_X86\",\"SCMP_ARCH_X32\"],\"syscalls\":[{\"names\":[" CALLS "],\"action\":\"SCMP_ACT_ALLOW\"},"
     "{\"names\":[\"socket\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":0,\"value\":40,\"op\":\"SCMP_CMP_NE\"}"
     "]},"
     "{\"names\":[\"clone\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":0,\"value\":2114060288,\"valueTwo\":0,"
     "\"op\":\"SCMP_CMP_MASKED_EQ\"}]},{\"names\":[\"ptrace\",\"ioctl\"],\"action\":\"SCMP_ACT_ALLOW\"}]}}"},
    {"a list with conditions on others",
     "{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[" CALLS ",\"socket\"],"
     "\"action\":\"SCMP_ACT_ALLOW\"},{\"names\":[\"ioctl\"],\"action\":\"SCMP_ACT_LOG\",\"args\":"
     "[{\"index\":1,\"value\":21505,\"op\":\"SCMP_CMP_EQ\"}]}]}}"},
};

static void joined(void)
{
    for (size_t i = 0; i < sizeof(profiles) / sizeof(*profiles); i++)
        for (int runc = 0; runc < 2; runc++) {
            char what[96];
            json_t *l = profile(profiles[i].text);
            snprintf(what, sizeof(what), "%s, %s", profiles[i].what, runc ? "runc" : "crun");
            int rc = vb_filter_spec(l, "/run/x.sock", runc ? "runc" : "crun");
            const json_t *s = json_object_get(l, "seccomp");
            if (!ok(rc == 0, "%s is joined", what)) {
                diag("%s", hw_error());
                json_decref(l);
                continue;
            }
            is_str(json_string_value(json_object_get(s, "listenerPath")), "/run/x.sock", "its listener");
            ok(json_array_size(json_object_get(s, "architectures")) == 1, "one architecture");
            ok((json_object_get(s, "flags") != NULL) == !runc, "the flag that only crun knows");
            all_probes(install_profile, json_object_get(l, "seccomp"), what, runc);
            json_decref(l);
        }
}

static void not_joined(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{\"seccomp\":7}", "defaultAction"},
        {"{\"seccomp\":{}}", "defaultAction"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"listenerPath\":\"/run/other\"}}", "/run/other"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":7}}", "not an array"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"flags\":7}}", "flags"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[7]}}", "without names"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[7],\"action\":\"SCMP_ACT_"
         "ALLOW\"}]}}",
         "not a string"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"bind\"],\"action\":\"SCMP_ACT_"
         "NOTIFY\"}]}}",
         "another program"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"ioctl\"],\"action\":\"SCMP_"
         "ACT_ERRNO\"}]}}",
         "ioctl"},
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[\"ioctl\"],\"action\":\"SCMP_"
         "ACT_ALLOW\",\"args\":"
         "[{\"index\":1,\"value\":21522,\"op\":\"SCMP_CMP_NE\"}]}]}}",
         "argument 1"},
        /* This rule and our rule compare different bits, so one call can match both rules. */
        {"{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[\"write\"],\"action\":\"SCMP_"
         "ACT_ALLOW\",\"args\":"
         "[{\"index\":0,\"value\":1,\"valueTwo\":1,\"op\":\"SCMP_CMP_MASKED_EQ\"}]}]}}",
         "argument 0"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        json_t *l = profile(bad[i].text), *was = json_deep_copy(l);
        int rc = vb_filter_spec(l, "/run/x.sock", "crun");
        ok(rc == -EINVAL && strstr(hw_error(), bad[i].why) && json_equal(l, was), "refused, and as it was: %s",
           bad[i].text);
        json_decref(l);
        json_decref(was);
    }
    json_t *l = profile("{}");
    ok(vb_filter_spec(l, "/run/x.sock", "youki") == -EINVAL && strstr(hw_error(), "youki"), "another runtime");
    ok(vb_filter_spec(l, "x.sock", "crun") == -EINVAL, "a socket that is no absolute path");
    json_decref(l);
}

int main(void)
{
    bool killable = false;
    alarm(300);
    pid_t pid = fork();
    int status;
    if (pid == 0)
        _exit(vb_filter_install(&killable) < 0 ? 1 : killable ? 0 : 2);
    waitpid(pid, &status, 0);
    if (WEXITSTATUS(status) == 1)
        tap_skip_all("this kernel, or who runs this, takes no filter with a listener");
    diag("the kernel %s WAIT_KILLABLE_RECV", WEXITSTATUS(status) ? "does not know" : "knows");
    all_probes(install_ours, NULL, "the filter", false);
    without_privilege();
    twice();
    joined();
    not_joined();
    return tap_done();
}

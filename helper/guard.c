/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/guard.h"

#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int become_daemon_user(const char *user)
{
    const struct passwd *u = getpwnam(user);
    if (!u)
        return hw_fail(-EINVAL, "unknown user '%s'", user);
    /* Keep the capabilities when the user changes. hd_guard_caps() then drops all but CAP_NET_ADMIN. */
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(u->pw_gid, u->pw_gid, u->pw_gid) || setresuid(u->pw_uid, u->pw_uid, u->pw_uid))
        return hw_fail(-errno, "cannot change to user %s: %s", user, hw_errno_text(errno));
    return 0;
}

int hd_guard_caps(const char *user)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    /* The bounding set is reduced first, because this needs CAP_SETPCAP. A process without CAP_SETPCAP relies on
     * no_new_privs, which has the same effect. */
    for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (c != CAP_NET_ADMIN && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EPERM)
            return hw_fail(-errno, "cannot drop capability %d: %s", c, hw_errno_text(errno));
    int rc = user ? become_daemon_user(user) : 0;
    if (rc)
        return rc;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &h, d) < 0)
        return hw_fail(-errno, "cannot read capabilities: %s", hw_errno_text(errno));
    if (!(d[0].permitted & 1u << CAP_NET_ADMIN))
        return hw_fail(-EPERM, "hawserd needs CAP_NET_ADMIN: start it as root or with its systemd unit");
    d[0] = (struct __user_cap_data_struct){.effective = 1u << CAP_NET_ADMIN, .permitted = 1u << CAP_NET_ADMIN};
    d[1] = (struct __user_cap_data_struct){0};
    if (syscall(SYS_capset, &h, d) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hw_fail(-errno, "cannot drop capabilities: %s", hw_errno_text(errno));
    return 0;
}

/* ---- files -------------------------------------------------------------------------------------- */

/* From include/uapi/linux/landlock.h; Debian 12's headers do not define these. */
#define LL_FS_TRUNCATE  (1ull << 14) /* since version 3 of Landlock, Linux 6.2 */
#define LL_FS_IOCTL_DEV (1ull << 15) /* since version 5, Linux 6.10 */
#define LL_NET_CONNECT  (1ull << 1)  /* since version 4, Linux 6.7 */
#define LL_SCOPES       3ull         /* abstract UNIX sockets and signals, since version 6, Linux 6.12 */
struct ll_ruleset {
    uint64_t fs, net, scoped;
};

#define LL_ALL_FS                                                                                   \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE |    \
     LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |     \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |  \
     LANDLOCK_ACCESS_FS_MAKE_SYM)

/* Allows access to the folder path or, if file is true, to the folder that contains path. */
static int allow_folder(int ruleset, const char *path, bool file, uint64_t access)
{
    char copy[256];
    snprintf(copy, sizeof(copy), "%s", path);
    const char *dir = file ? dirname(copy) : copy;
    HW_AUTO_CLOSE int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    if (fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return hw_fail(-errno, "cannot allow access to the folder %s: %s", dir, hw_errno_text(errno));
    return 0;
}

int hd_guard_files(const char *state, const char *sock)
{
    int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return hw_fail(-EOPNOTSUPP,
                       "Landlock is not available, so only hawserd's user ID restricts its access to files");
    struct ll_ruleset all = {.fs = LL_ALL_FS};
    uint64_t journal = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE |
                       LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
    size_t size = sizeof(all.fs);
    if (version >= 3) {
        all.fs |= LL_FS_TRUNCATE;
        journal |= LL_FS_TRUNCATE;
    }
    if (version >= 4) {
        all.net = LL_NET_CONNECT;
        size = offsetof(struct ll_ruleset, scoped);
    }
    if (version >= 5)
        all.fs |= LL_FS_IOCTL_DEV;
    if (version >= 6) {
        all.scoped = LL_SCOPES;
        size = sizeof(all);
    }
    HW_AUTO_CLOSE int ruleset = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    if (ruleset < 0)
        return hw_fail(-errno, "cannot create a Landlock ruleset: %s", hw_errno_text(errno));
    int rc = allow_folder(ruleset, "/proc", false, LANDLOCK_ACCESS_FS_READ_FILE);
    if (rc)
        return rc;
    rc = allow_folder(ruleset, state, true, journal);
    if (rc)
        return rc;
    rc = allow_folder(ruleset, sock, true, LANDLOCK_ACCESS_FS_REMOVE_FILE);
    if (rc)
        return rc;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return hw_fail(-errno, "cannot enforce the Landlock ruleset: %s", hw_errno_text(errno));
    return 0;
}

/* ---- system calls ------------------------------------------------------------------------------- */

/* System calls that helper/ and libc make. docs/hawserd.md explains the purpose of each. */
static const int calls[] = {
    /* for clients, children and netlink */
    SCMP_SYS(accept4),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(shutdown),
    /* made by a child at its start */
    SCMP_SYS(capset),
    SCMP_SYS(close_range),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(setitimer),
    /* for holding a port */
    SCMP_SYS(bind),
    /* for the journal, the log, /proc, and the size of a dma-buf */
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(fsync),
    SCMP_SYS(geteuid),
    SCMP_SYS(lseek),
    SCMP_SYS(newfstatat),
    SCMP_SYS(openat),
    SCMP_SYS(read),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(write),
    /* made by libc for memory, time and exit */
    SCMP_SYS(brk),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(exit_group),
    SCMP_SYS(futex),
    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),
    SCMP_SYS(gettid),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(nanosleep),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigreturn),
};

/* A call with conditions on one or two arguments: (argument & mask) == value. */
struct call_args {
    int call;
    unsigned n;
    struct {
        unsigned arg;
        uint64_t mask, value;
    } is[2];
};
#define ALL        UINT32_MAX /* mask of all bits of an int */
#define SOCK_FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)
static const struct call_args with_args[] = {
    {SCMP_SYS(ioctl), 1, {{1, ALL, SIOCETHTOOL}}},
    {SCMP_SYS(ioctl), 1, {{1, ALL, SIOCGIFNAME}}},
    {SCMP_SYS(ioctl), 1, {{1, ALL, SIOCGIFFLAGS}}},
    {SCMP_SYS(ioctl), 1, {{1, ALL, SIOCGIFMTU}}},
    /* each binding has a separate netlink socket */
    {SCMP_SYS(socket), 2, {{0, ALL, AF_NETLINK}, {2, ALL, NETLINK_GENERIC}}},
    /* for holding a port; the filter allows neither listen() nor connect() */
    {SCMP_SYS(socket), 2, {{0, ALL, AF_INET}, {1, ~(uint64_t)SOCK_FLAGS &ALL, SOCK_STREAM}}},
    {SCMP_SYS(socket), 2, {{0, ALL, AF_INET6}, {1, ~(uint64_t)SOCK_FLAGS &ALL, SOCK_STREAM}}},
    {SCMP_SYS(socketpair), 1, {{0, ALL, AF_UNIX}}},
    {SCMP_SYS(sendto), 1, {{3, MSG_FASTOPEN, 0}}},
    {SCMP_SYS(sendmsg), 1, {{2, MSG_FASTOPEN, 0}}},
    {SCMP_SYS(setsockopt), 2, {{1, ALL, SOL_NETLINK}, {2, ALL, NETLINK_EXT_ACK}}},
    {SCMP_SYS(setsockopt), 2, {{1, ALL, SOL_NETLINK}, {2, ALL, NETLINK_CAP_ACK}}},
    {SCMP_SYS(setsockopt), 2, {{1, ALL, SOL_NETLINK}, {2, ALL, NETLINK_ADD_MEMBERSHIP}}},
    {SCMP_SYS(setsockopt), 2, {{1, ALL, SOL_NETLINK}, {2, ALL, NETLINK_DROP_MEMBERSHIP}}},
    {SCMP_SYS(setsockopt), 2, {{1, ALL, SOL_SOCKET}, {2, ALL, SO_RCVTIMEO}}},
    {SCMP_SYS(setsockopt), 2, {{1, ALL, IPPROTO_TCP}, {2, ALL, TCP_REPAIR}}},
    /* clone() can only fork, and cannot create threads or namespaces */
    {SCMP_SYS(clone), 1, {{0, UINT64_MAX, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD}}},
    {SCMP_SYS(mmap), 1, {{2, PROT_EXEC, 0}}},
};

static int allow_with_args(scmp_filter_ctx f, const struct call_args *c)
{
    struct scmp_arg_cmp cmp[HW_ARRAY_LEN(c->is)];
    for (unsigned i = 0; i < c->n; i++)
        cmp[i] = (struct scmp_arg_cmp){
            .arg = c->is[i].arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = c->is[i].mask, .datum_b = c->is[i].value};
    return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, c->call, c->n, cmp);
}

static int load_daemon_filter(scmp_filter_ctx f)
{
    int rc;
    for (size_t i = 0; i < HW_ARRAY_LEN(calls); i++)
        if ((rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, calls[i], 0, NULL)))
            return rc;
    for (size_t i = 0; i < HW_ARRAY_LEN(with_args); i++)
        if ((rc = allow_with_args(f, &with_args[i])))
            return rc;
    return seccomp_load(f);
}

int hd_guard_calls(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int rc = f ? load_daemon_filter(f) : -ENOMEM;
    if (f)
        seccomp_release(f);
    return rc ? hw_fail(rc, "cannot install the seccomp filter: %s", hw_errno_text(rc)) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/guard.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <pwd.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int become(const char *user)
{
    const struct passwd *u = getpwnam(user);
    if (!u)
        return hw_fail(-EINVAL, "this machine knows no user '%s'", user);
    /* capabilities are kept over the change of user, and cut down behind it */
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(u->pw_gid, u->pw_gid, u->pw_gid) || setresuid(u->pw_uid, u->pw_uid, u->pw_uid))
        return hw_fail(-errno, "becoming user %s: %s", user, hw_errno_name(errno));
    return 0;
}

int hd_guard_caps(const char *user)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    int rc = 0;
    /* The bounding set first, as it takes CAP_SETPCAP; without that no_new_privs has the same effect. */
    for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (c != CAP_NET_ADMIN && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EPERM)
            return hw_fail(-errno, "dropping capability %d: %s", c, hw_errno_name(errno));
    if (user)
        rc = become(user);
    if (rc)
        return rc;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &h, d) < 0)
        return hw_fail(-errno, "asking for capabilities: %s", hw_errno_name(errno));
    if (!(d[0].permitted & 1u << CAP_NET_ADMIN))
        return hw_fail(-EPERM, "hawserd needs CAP_NET_ADMIN: start it as root, or by its systemd unit");
    d[0] = (struct __user_cap_data_struct){.effective = 1u << CAP_NET_ADMIN, .permitted = 1u << CAP_NET_ADMIN};
    d[1] = (struct __user_cap_data_struct){0};
    if (syscall(SYS_capset, &h, d) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hw_fail(-errno, "dropping capabilities: %s", hw_errno_name(errno));
    return 0;
}

/* What the libc and the code of helper/ call after this. Opening for the journal and /proc; no exec, no signals to
 * others, no new sockets but netlink's. */
static const int calls[] = {
    SCMP_SYS(accept4),
    SCMP_SYS(brk),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(clone),
    SCMP_SYS(clone3),
    SCMP_SYS(close),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(fsync),
    SCMP_SYS(futex),
    SCMP_SYS(getpeername),
    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(gettid),
    SCMP_SYS(lseek),
    SCMP_SYS(madvise),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(nanosleep),
    SCMP_SYS(newfstatat),
    SCMP_SYS(openat),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(prlimit64),
    SCMP_SYS(read),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(setsockopt),
    SCMP_SYS(statx),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(write),
    SCMP_SYS(writev),
};
static const unsigned long ioctls[] = {SIOCETHTOOL, SIOCGIFNAME, SIOCGIFINDEX, SIOCGIFFLAGS, SIOCGSKNS};

/* Argument arg must be value; all fields said, unlike by libseccomp's SCMP_CMP(). */
static struct scmp_arg_cmp is(unsigned arg, uint64_t value)
{
    return (struct scmp_arg_cmp){.arg = arg, .op = SCMP_CMP_EQ, .datum_a = value, .datum_b = 0};
}

int hd_guard_calls(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int rc = f ? 0 : -ENOMEM;
    for (size_t i = 0; i < HW_ARRAY_LEN(calls) && rc == 0; i++)
        rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, calls[i], 0, NULL);
    for (size_t i = 0; i < HW_ARRAY_LEN(ioctls) && rc == 0; i++) {
        struct scmp_arg_cmp cmd = is(1, ioctls[i]);
        rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, &cmd);
    }
    struct scmp_arg_cmp netlink[] = {is(0, AF_NETLINK), is(2, NETLINK_GENERIC)};
    if (rc == 0)
        rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2, netlink);
    if (rc == 0)
        rc = seccomp_load(f);
    if (f)
        seccomp_release(f);
    return rc ? hw_fail(rc, "the filter of system calls: %s", hw_errno_name(rc)) : 0;
}

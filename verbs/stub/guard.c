/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/stub/guard.h"
#include "verbs/stub/capability.h"
#include "verbs/stub/notify.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(c) (1ull << (c))

static const struct need {
    unsigned cap;
    const char *name;
} needs[] = {
    {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}, {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
    {CAP_MKNOD, "CAP_MKNOD"},           {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
    {CAP_CHOWN, "CAP_CHOWN"},           {CAP_SETUID, "CAP_SETUID"},
    {CAP_SETGID, "CAP_SETGID"},
};

/* Drops all capabilities of the calling process except those in keep, and sets no_new_privs. Stores the remaining
 * capabilities in *had. */
static int reduce_capabilities(uint64_t keep, uint64_t *had)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    if (syscall(SYS_capget, &h, d) < 0)
        return hw_fail(-errno, "cannot read capabilities: %s", hw_errno_text(errno));
    /* The bounding set is reduced first, because this needs CAP_SETPCAP. A process without CAP_SETPCAP relies on
     * no_new_privs, which has the same effect. */
    for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (!(keep & BIT(c)) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EPERM)
            return hw_fail(-errno, "cannot drop capability %d: %s", c, hw_errno_text(errno));
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    *had = keep & ((uint64_t)d[1].permitted << 32 | d[0].permitted);
    d[0] = (struct __user_cap_data_struct){.effective = (uint32_t)*had, .permitted = (uint32_t)*had};
    d[1] = (struct __user_cap_data_struct){.effective = (uint32_t)(*had >> 32), .permitted = (uint32_t)(*had >> 32)};
    if (syscall(SYS_capset, &h, d) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hw_fail(-errno, "cannot drop capabilities: %s", hw_errno_text(errno));
    return 0;
}

int vb_guard_fds(unsigned from, int *keep, unsigned n)
{
    for (unsigned i = 1; i < n; i++)
        for (unsigned k = i; k > 0 && keep[k] < keep[k - 1]; k--) {
            int other = keep[k];
            keep[k] = keep[k - 1];
            keep[k - 1] = other;
        }
    for (unsigned i = 0; i <= n; i++) {
        if (i < n && keep[i] < (int)from)
            continue; /* the entry is -1, or the descriptor is below `from` */
        unsigned to = i < n ? (unsigned)keep[i] : UINT32_MAX;
        if (i == n || to > from)
            if (syscall(SYS_close_range, from, i == n ? to : to - 1, 0) < 0)
                return hw_fail(-errno, "cannot close descriptors: %s", hw_errno_text(errno));
        from = to + 1;
    }
    return 0;
}

/* Keeps the capabilities in the table and in keep. Fails with -EPERM if a capability in the table is missing. */
static int keep_needs(uint64_t keep)
{
    uint64_t had = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(needs); i++)
        keep |= BIT(needs[i].cap);
    int rc = reduce_capabilities(keep, &had);
    for (size_t i = 0; i < HW_ARRAY_LEN(needs) && rc == 0; i++)
        if (!(had & BIT(needs[i].cap)))
            rc = hw_fail(-EPERM, "%s is missing: run the command as root, or start the agent with its systemd unit",
                         needs[i].name);
    return rc;
}

int vb_guard_agent(void)
{
    return keep_needs(BIT(CAP_NET_RAW) | BIT(CAP_KILL));
}

int vb_guard_broker(bool raw)
{
    return keep_needs(raw ? BIT(CAP_NET_RAW) : 0);
}

/* Unless uid is 0, changes to user uid, and to the group of the same number as the only group. Keeps the capabilities
 * in keep. */
static int become_broker_user(uid_t uid, uint64_t keep)
{
    uint64_t had;
    int sig = 0;
    (void)prctl(PR_GET_PDEATHSIG, &sig, 0, 0, 0);
    if (uid && (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(uid, uid, uid) ||
                setresuid(uid, uid, uid)))
        return hw_fail(-errno, "cannot change to user %u: %s", uid, hw_errno_text(errno));
    int rc = reduce_capabilities(keep, &had);
    if (rc == 0 && uid && sig &&
        prctl(PR_SET_PDEATHSIG, sig, 0, 0, 0)) /* the kernel clears the signal when the user changes */
        rc = hw_fail(-errno, "cannot set the signal for the end of the parent process: %s", hw_errno_text(errno));
    return rc;
}

int vb_guard_as(uid_t uid, int (*fn)(void *), void *arg)
{
    int sig = 0;
    (void)prctl(PR_GET_PDEATHSIG, &sig, 0, 0, 0);
    if (uid && setresuid(uid, uid, (uid_t)-1))
        return hw_fail(-errno, "cannot change to user %u temporarily: %s", uid, hw_errno_text(errno));
    int rc = fn(arg);
    if (uid && (setresuid(0, 0, (uid_t)-1) || (sig && prctl(PR_SET_PDEATHSIG, sig, 0, 0, 0))))
        return hw_fail(-errno, "cannot change back to root: %s", hw_errno_text(errno));
    return rc;
}

int vb_guard_tracer(uid_t uid)
{
    return become_broker_user(uid,
                              BIT(CAP_SYS_PTRACE) | BIT(CAP_SYS_ADMIN) | BIT(CAP_MKNOD) | BIT(CAP_DAC_READ_SEARCH));
}

int vb_guard_serving(uid_t uid)
{
    return become_broker_user(uid, BIT(CAP_SYS_PTRACE) | BIT(CAP_NET_RAW));
}

/* System calls that the broker and libc make after setup. Some architectures and newer versions of libc use
 * epoll_pwait, fstat and ppoll where the libc of Debian 12 uses epoll_wait, newfstatat and poll. */
static const int calls[] = {
    SCMP_SYS(accept4), /* connections to the status socket */
    SCMP_SYS(brk),
    SCMP_SYS(clock_gettime), /* used if the vDSO cannot read the clock */
    SCMP_SYS(close),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(exit_group),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(ftruncate),
    SCMP_SYS(futex),
    SCMP_SYS(getpid),
    SCMP_SYS(kcmp),
    SCMP_SYS(lseek), /* made by libc on output files */
    SCMP_SYS(madvise),
    SCMP_SYS(memfd_create),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(newfstatat), /* made by fstat() of libc */
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(read),
    SCMP_SYS(recvmsg), /* from the tracer and from programs that join */
    SCMP_SYS(restart_syscall),
    SCMP_SYS(sendmsg), /* to the tracer */
    SCMP_SYS(sendto),
    SCMP_SYS(shutdown),
    SCMP_SYS(sigaltstack), /* AddressSanitizer calls it before _exit() */
    SCMP_SYS(wait4),
    SCMP_SYS(write),
};
static const uint64_t ioctls[] = {SECCOMP_IOCTL_NOTIF_RECV,      SECCOMP_IOCTL_NOTIF_SEND,
                                  SECCOMP_IOCTL_NOTIF_ID_VALID,  SECCOMP_IOCTL_NOTIF_ADDFD,
                                  SECCOMP_IOCTL_NOTIF_SET_FLAGS, RDMA_VERBS_IOCTL};

/* Allows system call nr if the given bits of argument arg equal value. */
static int allow_where(scmp_filter_ctx f, int nr, unsigned arg, uint64_t bits, uint64_t value)
{
    struct scmp_arg_cmp c = {.arg = arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = bits, .datum_b = value};
    return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, nr, 1, &c);
}

static int load_broker_filter(scmp_filter_ctx f)
{
    int rc;
    for (size_t i = 0; i < HW_ARRAY_LEN(calls); i++)
        if ((rc = seccomp_rule_add_array(f, SCMP_ACT_ALLOW, calls[i], 0, NULL)))
            return rc;
    for (size_t i = 0; i < HW_ARRAY_LEN(ioctls); i++) /* the kernel uses only 32 bits of the number */
        if ((rc = allow_where(f, SCMP_SYS(ioctl), 1, UINT32_MAX, ioctls[i])))
            return rc;
    /* The filter tests ioctl first, because the broker makes several ioctls for each request. */
    if ((rc = seccomp_syscall_priority(f, SCMP_SYS(ioctl), UINT8_MAX)))
        return rc;
    if ((rc = allow_where(f, SCMP_SYS(mmap), 2, PROT_EXEC, 0)) ||
        (rc = allow_where(f, SCMP_SYS(mprotect), 2, PROT_EXEC, 0)))
        return rc;
    return seccomp_load(f);
}

int vb_guard_calls(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int rc = f ? load_broker_filter(f) : -ENOMEM;
    if (f)
        seccomp_release(f);
    return rc ? hw_fail(rc, "cannot install the broker's seccomp filter: %s", hw_errno_text(rc)) : 0;
}

int vb_guard_command(void)
{
    uint64_t had;
    return reduce_capabilities(vb_capabilities_kept(), &had);
}

int vb_guard_user(const char *name, uid_t uid, gid_t gid)
{
    uint64_t had;
    /* The bounding set is reduced first, while the process has CAP_SETPCAP. The other capabilities are dropped
     * explicitly at the end, because with SECBIT_NO_SETUID_FIXUP they remain when the user changes. */
    int rc = reduce_capabilities(BIT(CAP_SETUID) | BIT(CAP_SETGID), &had);
    if (rc < 0)
        return rc;
    if ((name ? initgroups(name, gid) : setgroups(0, NULL)) < 0 || setresgid(gid, gid, gid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        return hw_fail(-errno, "cannot change to user %u: %s", (unsigned)uid, hw_errno_text(errno));
    return reduce_capabilities(0, &had);
}

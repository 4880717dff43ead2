/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/agent/filter.h"
#include "verbs/agent/filter_rules.h"
#include "verbs/broker/broker.h"
#include "verbs/stub/inject.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A masked comparison matches VB_FD_FIRST to VB_FD_LAST, because libseccomp cannot test a range of 32-bit values. */
#define FD_MASK (~(uint32_t)(VB_FD_LAST - VB_FD_FIRST))
_Static_assert((VB_FD_FIRST & FD_MASK) == VB_FD_FIRST && (VB_FD_LAST & FD_MASK) == VB_FD_FIRST &&
                   ((VB_FD_LAST + 1) & FD_MASK) != VB_FD_FIRST,
               "the number of descriptors must be a power of two, and the first a multiple of it");

/* Matches every address below VB_WALL_END, because a mapping that starts there may extend into the window. */
#define BELOW (INT64_MAX & ~(uint64_t)(VB_WALL_END - 1)), 0
_Static_assert(VB_WALL_AT + VB_WINDOW_SIZE <= VB_WALL_END && !(VB_WALL_END & (VB_WALL_END - 1)),
               "VB_WALL_END must be a power of two beyond the window");

/* ARCH_ENABLE_TAGGED_ADDR in arch/x86/include/uapi/asm/prctl.h, since Linux 6.4 */
#define ENABLE_TAGGED_ADDR 0x4002

const struct vb_filter_rule vb_filter_rules[] = {
    {"open", 0, {{1, O_ACCMODE, O_RDWR}}},
    {"openat", 0, {{2, O_ACCMODE, O_RDWR}}},
    {"ioctl", 0, {{1, UINT32_MAX, RDMA_VERBS_IOCTL}}},
    {"write", 0, {{0, FD_MASK, VB_FD_FIRST}}},
    /* Access to memory, descriptors and registers of other processes would bypass the protection of the stub. */
    {"ptrace", EPERM, {{0}}},
    {"process_vm_readv", EPERM, {{0}}},
    {"process_vm_writev", EPERM, {{0}}},
    {"process_madvise", EPERM, {{0}}},
    {"pidfd_getfd", EPERM, {{0}}},
    {"kcmp", EPERM, {{0}}},
    /* io_uring bypasses seccomp filters. */
    {"io_uring_setup", EPERM, {{0}}},
    {"io_uring_enter", EPERM, {{0}}},
    {"io_uring_register", EPERM, {{0}}},
    /* A process could block the broker's reads of its memory indefinitely. */
    {"userfaultfd", EPERM, {{0}}},
    /* A new listener could answer notifications instead of the broker. */
    {"seccomp", EPERM, {{1, SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_NEW_LISTENER}}},
    /* A device node could be created on a file system that is mounted without nodev. */
    {"mknod", EPERM, {{1, S_IFMT, S_IFCHR}}},
    {"mknodat", EPERM, {{2, S_IFMT, S_IFCHR}}},
    /* The rule does not check the address family, because no other protocol with this number is in use. */
    {"socket", EPROTONOSUPPORT, {{2, UINT32_MAX, NETLINK_RDMA}}},
    /* These rules protect the stub's window on kernels that cannot seal it (inject.h). They refuse calls that unmap or
     * replace mappings below VB_WALL_END or change their protection. The destination of mremap() is also checked: even
     * a mremap() that fails may have unmapped it (mm/mremap.c). brk() can unmap addresses above the end of the
     * program's data. trace.c checks this end, so PR_SET_MM, which could change it, is refused. ARCH_ENABLE_TAGGED_ADDR
     * is refused because tagged addresses would not match these comparisons. */
    {"mmap", EPERM, {{0, BELOW}, {3, MAP_FIXED, MAP_FIXED}}},
    {"shmat", EPERM, {{1, BELOW}, {2, SHM_REMAP, SHM_REMAP}}},
    {"munmap", EPERM, {{0, BELOW}}},
    {"mprotect", EPERM, {{0, BELOW}}},
    {"pkey_mprotect", EPERM, {{0, BELOW}}},
    {"remap_file_pages", EPERM, {{0, BELOW}}},
    {"mremap", EPERM, {{0, BELOW}}},
    {"mremap", EPERM, {{3, MREMAP_FIXED, MREMAP_FIXED}, {4, BELOW}}},
    {"prctl", EPERM, {{0, UINT32_MAX, PR_SET_MM}}},
    {"arch_prctl", EPERM, {{0, UINT32_MAX, ENABLE_TAGGED_ADDR}}},
    {0},
};

/* ---- installation in the calling process ----------------------------------------------------------- */

static int fill_seccomp_filter(scmp_filter_ctx f)
{
    int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* use a search tree instead of a linear list */
    if (rc)
        return hw_fail(rc, "cannot set attributes of the seccomp filter: %s", hw_errno_text(rc));
    for (const struct vb_filter_rule *r = vb_filter_rules; r->call; r++) {
        struct scmp_arg_cmp is[HW_ARRAY_LEN(r->is)];
        unsigned n = 0;
        for (; n < HW_ARRAY_LEN(r->is) && r->is[n].mask; n++)
            is[n] = (struct scmp_arg_cmp){
                .arg = r->is[n].arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = r->is[n].mask, .datum_b = r->is[n].value};
        rc = seccomp_rule_add_array(f, r->err ? SCMP_ACT_ERRNO((uint32_t)r->err) : SCMP_ACT_NOTIFY,
                                    seccomp_syscall_resolve_name(r->call), n, is);
        if (rc)
            return hw_fail(rc, "cannot add the seccomp filter's rule for %s: %s", r->call, hw_errno_text(rc));
    }
    return 0;
}

static void release_filter(scmp_filter_ctx *f)
{
    if (*f)
        seccomp_release(*f);
}

/* Compiles the filter to BPF. Uses a file, because libseccomp 2.5 cannot export a program to memory. */
static int compile_seccomp_filter(struct sock_filter *out, size_t cap, unsigned short *n)
{
    __attribute__((cleanup(release_filter))) scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    HW_AUTO_CLOSE int fd = memfd_create("hawser-filter", MFD_CLOEXEC);
    if (!f)
        return hw_no_memory("a filter");
    if (fd < 0)
        return hw_fail(-errno, "cannot create a memfd: %s", hw_errno_text(errno));
    int rc = fill_seccomp_filter(f);
    if (rc)
        return rc;
    rc = seccomp_export_bpf(f, fd);
    if (rc < 0)
        return hw_fail(rc, "cannot compile the seccomp filter: %s", hw_errno_text(rc));
    ssize_t len = pread(fd, out, cap, 0);
    if (len < 0)
        return hw_fail(-errno, "cannot read the compiled seccomp filter: %s", hw_errno_text(errno));
    if ((size_t)len == cap)
        return hw_fail(-E2BIG, "the compiled seccomp filter has %zu bytes or more, which is too large", cap);
    if (len == 0 || (size_t)len % sizeof(*out))
        return hw_fail(-EIO, "the compiled seccomp filter has an invalid size of %zd bytes", len);
    *n = (unsigned short)((size_t)len / sizeof(*out));
    return 0;
}

static bool may_without_nnp(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    return syscall(SYS_capget, &h, d) == 0 && d[0].effective & 1u << CAP_SYS_ADMIN;
}

int vb_filter_install(bool *killable)
{
    struct sock_filter code[1024];
    struct sock_fprog program = {.filter = code};
    int rc = compile_seccomp_filter(code, sizeof(code), &program.len);
    if (rc < 0)
        return rc;
    if (!may_without_nnp() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hw_fail(-errno, "cannot set no_new_privs: %s", hw_errno_text(errno));
    /* Does not use libseccomp, because the version in Debian 12 lacks the flag WAIT_KILLABLE_RECV. */
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    *killable = true;
    long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (fd < 0 && errno == EINVAL) {
        *killable = false;
        flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
        fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    }
    if (fd < 0)
        return hw_fail(-errno, "cannot install the seccomp filter: %s%s", hw_errno_text(errno),
                       errno == EBUSY ? " (this process already runs under a filter with a listener)" : "");
    return (int)fd;
}

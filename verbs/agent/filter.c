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

/* VB_FD_FIRST to VB_FD_LAST are one masked comparison, because seccomp has no ranges of 32 bits. */
#define FD_MASK (~(uint32_t)(VB_FD_LAST - VB_FD_FIRST))
_Static_assert((VB_FD_FIRST & FD_MASK) == VB_FD_FIRST && (VB_FD_LAST & FD_MASK) == VB_FD_FIRST &&
                   ((VB_FD_LAST + 1) & FD_MASK) != VB_FD_FIRST,
               "the descriptors' numbers are a block of a power of two");

/* Every address below the end of the possible window: a mapping that starts there may reach into the window. */
#define BELOW (INT64_MAX & ~(uint64_t)(VB_WALL_END - 1)), 0
_Static_assert(VB_WALL_AT + VB_WINDOW_SIZE <= VB_WALL_END && !(VB_WALL_END & (VB_WALL_END - 1)),
               "the comparison is of a block");

/* Linux 6.4, arch/x86/include/uapi/asm/prctl.h */
#define ENABLE_TAGGED_ADDR 0x4002

const struct vb_filter_rule vb_filter_rules[] = {
    {"open", 0, {{1, O_ACCMODE, O_RDWR}}},
    {"openat", 0, {{2, O_ACCMODE, O_RDWR}}},
    {"ioctl", 0, {{1, UINT32_MAX, RDMA_VERBS_IOCTL}}},
    {"write", 0, {{0, FD_MASK, VB_FD_FIRST}}},
    /* access to another process's memory, descriptors and registers, around the stub's protection */
    {"ptrace", EPERM, {{0}}},
    {"process_vm_readv", EPERM, {{0}}},
    {"process_vm_writev", EPERM, {{0}}},
    {"process_madvise", EPERM, {{0}}},
    {"pidfd_getfd", EPERM, {{0}}},
    {"kcmp", EPERM, {{0}}},
    /* calls that bypass filters */
    {"io_uring_setup", EPERM, {{0}}},
    {"io_uring_enter", EPERM, {{0}}},
    {"io_uring_register", EPERM, {{0}}},
    /* a process can use it to block the broker's reads of its memory for as long as it likes */
    {"userfaultfd", EPERM, {{0}}},
    /* a listener that would answer in the broker's place */
    {"seccomp", EPERM, {{1, SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_NEW_LISTENER}}},
    /* device nodes on a file system without nodev */
    {"mknod", EPERM, {{1, S_IFMT, S_IFCHR}}},
    {"mknodat", EPERM, {{2, S_IFMT, S_IFCHR}}},
    /* All families: no other protocol with this number is in use, and so one comparison is enough. */
    {"socket", EPROTONOSUPPORT, {{2, UINT32_MAX, NETLINK_RDMA}}},
    /* The wall around the stub's window, for kernels that cannot seal it (inject.h): refuses every call that changes
     * mappings at an address below the wall's end, or that places a mapping there; mremap() also by its destination,
     * which it unmaps before it checks (mm/mremap.c). brk() unmaps from the program's load address on; that is checked
     * separately, and PR_SET_MM could change it. Tagged addresses would differ from the ones compared here. */
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
        rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a search tree instead of a linear list */
    if (rc)
        return hw_fail(rc, "the filter's attributes: %s", hw_errno_text(rc));
    for (const struct vb_filter_rule *r = vb_filter_rules; r->call; r++) {
        struct scmp_arg_cmp is[HW_ARRAY_LEN(r->is)];
        unsigned n = 0;
        for (; n < HW_ARRAY_LEN(r->is) && r->is[n].mask; n++)
            is[n] = (struct scmp_arg_cmp){
                .arg = r->is[n].arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = r->is[n].mask, .datum_b = r->is[n].value};
        rc = seccomp_rule_add_array(f, r->err ? SCMP_ACT_ERRNO((uint32_t)r->err) : SCMP_ACT_NOTIFY,
                                    seccomp_syscall_resolve_name(r->call), n, is);
        if (rc)
            return hw_fail(rc, "the filter's rule of %s: %s", r->call, hw_errno_text(rc));
    }
    return 0;
}

static void release_filter(scmp_filter_ctx *f)
{
    if (*f)
        seccomp_release(*f);
}

/* libseccomp 2.5 can export a program to a file only. */
static int compile_seccomp_filter(struct sock_filter *out, size_t cap, unsigned short *n)
{
    __attribute__((cleanup(release_filter))) scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    HW_AUTO_CLOSE int fd = memfd_create("hawser-filter", MFD_CLOEXEC);
    if (!f)
        return hw_no_memory("a filter");
    if (fd < 0)
        return hw_fail(-errno, "creating a memfd: %s", hw_errno_text(errno));
    int rc = fill_seccomp_filter(f);
    if (rc)
        return rc;
    rc = seccomp_export_bpf(f, fd);
    if (rc < 0)
        return hw_fail(rc, "compiling the filter: %s", hw_errno_text(rc));
    ssize_t len = pread(fd, out, cap, 0);
    if (len <= 0 || (size_t)len == cap || (size_t)len % sizeof(*out))
        return hw_fail(-EIO, "compiling the filter: a program of %zd bytes", len);
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
        return hw_fail(-errno, "setting no_new_privs: %s", hw_errno_text(errno));
    /* Without libseccomp, whose version in Debian 12 lacks the flag. */
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    *killable = true;
    long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (fd < 0 && errno == EINVAL) {
        *killable = false;
        flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
        fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    }
    if (fd < 0)
        return hw_fail(-errno, "installing the filter: %s%s", hw_errno_text(errno),
                       errno == EBUSY ? " (this process already runs under a filter with a listener)" : "");
    return (int)fd;
}

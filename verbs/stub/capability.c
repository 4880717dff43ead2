/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command of `hawser verbs run` has access to the machine's files and runs as root unless --user is given. A
 * capability is dropped if the command could use it to bypass the filter or to attack the broker, the agent or anything
 * that they depend on. test_verbs_capability.c tries most of these attacks. The other capabilities are kept.
 */
#include "verbs/stub/capability.h"

#include <linux/capability.h>

/* clang-format off */
#define STAYS(cap)              [cap] = {.name = #cap}
#define LEAVES(cap, why)        [cap] = {.name = #cap, .leaves = (why)}
#define LEAVES_ALL(cap, why)    [cap] = {.name = #cap, .leaves = (why), .container = true}

static const struct vb_capability table[] = {
    LEAVES(CAP_CHOWN, "it can take ownership of device nodes of other users"),
    LEAVES(CAP_DAC_OVERRIDE, "it can open other users' device nodes, and files for which it has no permission"),
    LEAVES_ALL(CAP_DAC_READ_SEARCH, "it can open files by handle (open_by_handle_at) on mounts without nodev"),
    LEAVES(CAP_FOWNER, "it can give itself access to device nodes of other users with chmod()"),
    LEAVES(CAP_FSETID, "it can create set-group-ID programs of groups that it is not in, and another process may run them"),
    LEAVES(CAP_KILL, "it can end or stop brokers and tracers, although they run as other users"),
    LEAVES(CAP_SETGID, "it can join groups that may open device nodes"),
    LEAVES(CAP_SETUID, "it can change to a user that may open device nodes, or to the user of a broker, which it can then end"),
    STAYS(CAP_SETPCAP), /* allows only changes to the securebits, the bounding set and the inheritable set */
    LEAVES(CAP_LINUX_IMMUTABLE, "it can remove the append-only flag from the audit file, or make files of the broker immutable"),
    STAYS(CAP_NET_BIND_SERVICE), /* allows ports below 1024, which the broker and the agent do not use */
    LEAVES(CAP_NET_BROADCAST, "it can receive the netlink messages of other network namespaces"),
    LEAVES(CAP_NET_ADMIN, "it can change the host's NICs, routes and addresses, and thereby the GIDs that are made from the addresses"),
    LEAVES(CAP_NET_RAW, "it can send raw packets to destinations that the policy forbids"),
    STAYS(CAP_IPC_LOCK), /* allows locking memory beyond RLIMIT_MEMLOCK; mr_bytes of the policy still limits MRs */
    LEAVES(CAP_IPC_OWNER, "it can write to the System V shared memory of other users' programs, which no filter prevents"),
    LEAVES_ALL(CAP_SYS_MODULE, "it can load code into the kernel"),
    LEAVES_ALL(CAP_SYS_RAWIO, "it can access the memory of the kernel and the registers of the NIC (/dev/mem, iopl)"),
    LEAVES(CAP_SYS_CHROOT, "it can escape from the chroot in which hawser was started, and reach device nodes outside it, which are not hidden"),
    LEAVES_ALL(CAP_SYS_PTRACE, "it can access the memory, root folders and descriptors of other processes through /proc"),
    LEAVES(CAP_SYS_PACCT, "it can make the kernel record the end of each process in a file of its choice, and delay these writes"),
    LEAVES_ALL(CAP_SYS_ADMIN, "it can mount file systems without nodev, and enter namespaces"),
    LEAVES_ALL(CAP_SYS_BOOT, "it can load another kernel (kexec), or reboot the machine"),
    LEAVES(CAP_SYS_NICE, "it can take CPU time from brokers by changing priorities"),
    LEAVES(CAP_SYS_RESOURCE, "it can lower the brokers' limits of descriptors and memory with prlimit()"),
    LEAVES(CAP_SYS_TIME, "it can change the clock, and thereby the times in the audit file"),
    LEAVES(CAP_SYS_TTY_CONFIG, "it can assign commands to keys of the console, which an operator may then press"),
    LEAVES(CAP_MKNOD, "it can create device nodes"),
    LEAVES(CAP_LEASE, "it can delay opens of other users' files, such as the policy, with leases"),
    LEAVES(CAP_AUDIT_WRITE, "it can write to the kernel's audit log, which shows why a broker ended"),
    LEAVES(CAP_AUDIT_CONTROL, "it can turn off the kernel's audit"),
    LEAVES(CAP_SETFCAP, "it can give capabilities to a program file, which another process may run"),
    LEAVES(CAP_MAC_OVERRIDE, "it can bypass the rules of a security module that restrict it or protect the agent and the brokers"),
    LEAVES_ALL(CAP_MAC_ADMIN, "it can change the rules of a security module that restrict it or protect the agent and the brokers"),
    LEAVES(CAP_SYSLOG, "it can read kernel addresses, and clear the kernel's log"),
    STAYS(CAP_WAKE_ALARM), /* allows timers that wake the machine */
    STAYS(CAP_BLOCK_SUSPEND), /* allows preventing the machine from suspending */
    LEAVES(CAP_AUDIT_READ, "it can read the kernel's audit records of other programs"),
    LEAVES_ALL(CAP_PERFMON, "it can sample registers and memory of other processes and of the kernel"),
    LEAVES(CAP_BPF, "it can run programs in the kernel"),
    LEAVES_ALL(CAP_CHECKPOINT_RESTORE, "it can choose process IDs, so that an ID that the broker inspects may belong to another process"),
};
/* clang-format on */

const struct vb_capability *vb_capability(unsigned number)
{
    return number < HW_ARRAY_LEN(table) && table[number].name ? &table[number] : NULL;
}

uint64_t vb_capabilities_kept(void)
{
    uint64_t kept = 0;
    for (unsigned c = 0; c < HW_ARRAY_LEN(table); c++)
        if (table[c].name && !table[c].leaves)
            kept |= 1ull << c;
    return kept;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a command of `hawser verbs run` cannot use the capabilities that hawser removed. Each capability is tried
 * in two processes. The first has the capability in addition to the remaining ones; if the attack fails there, the test
 * is skipped. The second was prepared by vb_guard_command(), and the attack must fail there. */
#include "tests/proc.h"
#include "tests/tap.h"
#include "verbs/stub/capability.h"
#include "verbs/stub/guard.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OTHER  65534
#define BIT(c) (1ull << (c))
#define CLOSED (-EPERM) /* result of an attack that is blocked; 0 if it succeeds */

static char dir[] = "/tmp/hawser-capability-XXXXXX";
static struct {
    pid_t other; /* a process of another user, which also owns the segment */
    int segment;
    long word;   /* at the same address in each process */
    int by_path; /* the directory's mount, for open_by_handle_at() */
    struct stat root;
} * world;
static struct {
    struct file_handle h;
    unsigned char room[MAX_HANDLE_SZ];
} handle;
static uint64_t own; /* the capabilities of this test */

/* Returns 0 if a call passed the capability check: the call succeeded, or failed with the later error `as`. Otherwise,
 * returns -errno, but CLOSED for EACCES. */
static int beyond(long rc, int as)
{
    return rc >= 0 || errno == as ? 0 : errno == EACCES ? CLOSED : -errno;
}

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* ---- files ------------------------------------------------------------------------------------------- */

static int take_file(void)
{
    return beyond(chown(in_dir("own"), OTHER, OTHER), 0);
}

static int write_file(void)
{
    return beyond(open(in_dir("other"), O_WRONLY | O_CLOEXEC), 0);
}

static int open_handle(void)
{
    return beyond(open_by_handle_at(world->by_path, &handle.h, O_RDONLY | O_CLOEXEC), 0);
}

static int change_mode(void)
{
    return beyond(chmod(in_dir("other-mode"), 0666), 0);
}

static int set_group_bit(void)
{
    struct stat st;
    if (chmod(in_dir("grouped"), 02755) < 0 || stat(in_dir("grouped"), &st) < 0)
        return -errno;
    return st.st_mode & S_ISGID ? 0 : CLOSED;
}

static int give_capability(void)
{
    struct vfs_cap_data d = {.magic_etc = VFS_CAP_REVISION_2};
    return beyond(setxattr(in_dir("program"), "security.capability", &d, sizeof d, 0), 0);
}

static int set_flags(int flags)
{
    int fd = open(in_dir("audit"), O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : beyond(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
    hw_close(&fd);
    return rc;
}

static int overwrite_audit(void)
{
    int rc = set_flags(0);
    return rc ? rc : beyond(open(in_dir("audit"), O_WRONLY | O_TRUNC | O_CLOEXEC), 0);
}

static int delay_open(void)
{
    int fd = open(in_dir("other-lease"), O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : beyond(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
    hw_close(&fd);
    return rc;
}

static int make_node(void)
{
    int rc = beyond(mknod(in_dir("node"), S_IFCHR | 0600, makedev(1, 3)), 0);
    unlink(in_dir("node"));
    return rc;
}

static int mount_devices(void)
{
    int rc = beyond(mount("none", in_dir("mount"), "tmpfs", 0, NULL), 0);
    umount2(in_dir("mount"), MNT_DETACH);
    return rc;
}

/* Enters a directory with chroot(), as if hawser had been started there with all privileges. */
static int enter_jail(void)
{
    return chroot(in_dir("jail")) < 0 || chdir("/") < 0 ? -errno : 0;
}

static int leave_jail(void)
{
    struct stat st;
    if (chroot("within") < 0)
        return beyond(-1, 0);
    for (int i = 0; i < 100; i++)
        if (chdir("..") < 0)
            return -errno;
    if (chroot(".") < 0 || stat("/", &st) < 0)
        return -errno;
    return st.st_dev == world->root.st_dev && st.st_ino == world->root.st_ino ? 0 : CLOSED;
}

/* ---- processes --------------------------------------------------------------------------------------- */

static int send_signal(void)
{
    return beyond(kill(world->other, 0), 0);
}

static int join_group(void)
{
    return beyond(setresgid(OTHER, OTHER, OTHER), 0);
}

static int become_other(void)
{
    return beyond(setresuid(OTHER, OTHER, OTHER), 0);
}

static int attach_segment(void)
{
    return beyond(shmat(world->segment, NULL, 0) == (void *)-1 ? -1 : 0, 0);
}

static int read_memory(void)
{
    long word = 0;
    struct iovec here = {&word, sizeof word}, there = {&world->word, sizeof word};
    return beyond(process_vm_readv(world->other, &here, 1, &there, 1, 0), 0);
}

static int sample(void)
{
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
                                .size = sizeof a,
                                .config = PERF_COUNT_SW_CPU_CLOCK,
                                .sample_type = PERF_SAMPLE_IP,
                                .exclude_kernel = 1,
                                .disabled = 1};
    return beyond(syscall(SYS_perf_event_open, &a, world->other, -1, -1, PERF_FLAG_FD_CLOEXEC), 0);
}

static int set_priority(void)
{
    return beyond(setpriority(PRIO_PROCESS, (id_t)world->other, 0), 0);
}

static int set_limit(void)
{
    struct rlimit few = {3, 3};
    return beyond(prlimit(world->other, RLIMIT_NOFILE, &few, NULL), 0);
}

/* Creates a process with the number of a process that has exited, such as an application that the broker inspects. */
static int choose_pid(void)
{
    for (int i = 0; i < 100; i++) {
        pid_t was = fork();
        if (was == 0)
            _exit(0);
        waitpid(was, NULL, 0);
        struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&was, .set_tid_size = 1};
        long pid = syscall(SYS_clone3, &a, sizeof a);
        if (pid == 0)
            _exit(0);
        if (pid < 0 && errno == EEXIST)
            continue; /* the kernel has already reused it */
        if (pid < 0)
            return beyond(-1, 0);
        waitpid((pid_t)pid, NULL, 0);
        return pid == was ? 0 : -ENOENT;
    }
    return -EEXIST;
}

/* ---- the kernel --------------------------------------------------------------------------------------- */

static int hear_all_namespaces(void)
{
    int on = 1, s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    int rc = beyond(setsockopt(s, SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, &on, sizeof on), 0);
    hw_close(&s);
    return rc;
}

static int set_link_up(void)
{
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = beyond(ioctl(fd, SIOCSIFFLAGS, &r), 0);
    hw_close(&fd);
    return rc;
}

static int open_raw_socket(void)
{
    return beyond(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP), 0);
}

static int load_module(void)
{
    return beyond(syscall(SYS_finit_module, -1, "", 0), EBADF);
}

/* Queries the location of a file on disk (fs/ioctl.c). This requires the same capability as I/O ports, which some
 * kernels do not support. */
static int reach_ports(void)
{
    int block = 0, fd = open(in_dir("program"), O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : beyond(ioctl(fd, FIBMAP, &block), EINVAL);
    hw_close(&fd);
    return rc;
}

static int account(void)
{
    return beyond(syscall(SYS_acct, in_dir("nosuch")), ENOENT);
}

/* Calls reboot() without the magic numbers, so the kernel checks only the capability. */
static int restart(void)
{
    return beyond(syscall(SYS_reboot, 0, 0, 0, NULL), EINVAL);
}

/* Sets an impossible time zone. */
static int set_clock(void)
{
    struct timezone none = {.tz_minuteswest = 24 * 60};
    return beyond(syscall(SYS_settimeofday, NULL, &none), EINVAL);
}

/* Calls vhangup() in a session without a terminal. This requires the same capability as KDSKBSENT
 * (drivers/tty/vt/keyboard.c). */
static int hang_up(void)
{
    if (setsid() < 0)
        return -errno;
    return beyond(vhangup(), 0);
}

static int ask_log(void)
{
    return beyond(klogctl(9, NULL, 0), 0); /* SYSLOG_ACTION_SIZE_UNREAD */
}

static int make_trie(void)
{
    union bpf_attr a = {.map_type = BPF_MAP_TYPE_LPM_TRIE,
                        .key_size = 8,
                        .value_size = 4,
                        .max_entries = 1,
                        .map_flags = BPF_F_NO_PREALLOC};
    return beyond(syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a), 0);
}

/* Sends a message of the given type to the kernel's audit system. Returns the kernel's answer. */
static int tell_audit(uint16_t type, const char *text)
{
    struct {
        struct nlmsghdr h;
        char text[64];
    } out = {.h = {.nlmsg_len = sizeof out, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK}};
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
    } in;
    struct timeval soon = {.tv_sec = 60};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_AUDIT), rc;
    snprintf(out.text, sizeof out.text, "%s", text);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) < 0 ||
        send(fd, &out, sizeof out, 0) != (ssize_t)sizeof out)
        return beyond(-1, 0);
    do
        rc = recv(fd, &in, sizeof in, 0) < 0 ? -errno : 0;
    while (rc == 0 && in.h.nlmsg_type != NLMSG_ERROR);
    hw_close(&fd);
    return rc ? rc : in.e.error;
}

static int write_audit(void)
{
    return tell_audit(AUDIT_USER, "test_verbs_capability");
}

static int ask_audit(void)
{
    return tell_audit(AUDIT_GET, "");
}

static int read_audit(void)
{
    struct sockaddr_nl a = {.nl_family = AF_NETLINK, .nl_groups = 1u << (AUDIT_NLGRP_READLOG - 1)};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_AUDIT);
    int rc = beyond(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    hw_close(&fd);
    return rc;
}

/* ---- all attacks -------------------------------------------------------------------------------------- */

static const struct attack {
    const char *what;
    int (*fn)(void);     /* NULL if no test is possible, for the reason in `what` */
    int (*before)(void); /* runs first, with all capabilities */
} attacks[64] = {
    [CAP_CHOWN] = {.what = "a file becomes another user's", .fn = take_file},
    [CAP_DAC_OVERRIDE] = {.what = "a file of another user's is opened for writing", .fn = write_file},
    [CAP_DAC_READ_SEARCH] = {.what = "a file is opened by its handle", .fn = open_handle},
    [CAP_FOWNER] = {.what = "a file of another user's gets another mode", .fn = change_mode},
    [CAP_FSETID] = {.what = "a file of another group's becomes set-group-ID", .fn = set_group_bit},
    [CAP_KILL] = {.what = "a process of another user's gets a signal", .fn = send_signal},
    [CAP_SETGID] = {.what = "it joins a group", .fn = join_group},
    [CAP_SETUID] = {.what = "it becomes another user", .fn = become_other},
    [CAP_LINUX_IMMUTABLE] = {.what = "a file that can only be appended to is truncated", .fn = overwrite_audit},
    [CAP_NET_BROADCAST] = {.what = "netlink messages of all namespaces are received", .fn = hear_all_namespaces},
    [CAP_NET_ADMIN] = {.what = "a NIC changes", .fn = set_link_up},
    [CAP_NET_RAW] = {.what = "a raw socket", .fn = open_raw_socket},
    [CAP_IPC_OWNER] = {.what = "a shared segment of another user's", .fn = attach_segment},
    [CAP_SYS_MODULE] = {.what = "a module is loaded", .fn = load_module},
    [CAP_SYS_RAWIO] = {.what = "I/O ports, or what asks for the same", .fn = reach_ports},
    [CAP_SYS_CHROOT] = {.what = "the machine's root folder from within another one",
                        .fn = leave_jail,
                        .before = enter_jail},
    [CAP_SYS_PTRACE] = {.what = "memory of another user's process", .fn = read_memory},
    [CAP_SYS_PACCT] = {.what = "the file that processes' ends are written to", .fn = account},
    [CAP_SYS_ADMIN] = {.what = "a mount", .fn = mount_devices},
    [CAP_SYS_BOOT] = {.what = "a restart", .fn = restart},
    [CAP_SYS_NICE] = {.what = "the priority of another user's process", .fn = set_priority},
    [CAP_SYS_RESOURCE] = {.what = "the limits of another user's process", .fn = set_limit},
    [CAP_SYS_TIME] = {.what = "the clock", .fn = set_clock},
    [CAP_SYS_TTY_CONFIG] = {.what = "a terminal is hung up", .fn = hang_up},
    [CAP_MKNOD] = {.what = "a device node", .fn = make_node},
    [CAP_LEASE] = {.what = "a lease on a file of another user's", .fn = delay_open},
    [CAP_AUDIT_WRITE] = {.what = "a line in the kernel's audit", .fn = write_audit},
    [CAP_AUDIT_CONTROL] = {.what = "what the kernel audits", .fn = ask_audit},
    [CAP_SETFCAP] = {.what = "a file gets capabilities", .fn = give_capability},
    [CAP_MAC_OVERRIDE] = {.what = "Smack alone asks for it, which Debian's kernels do not have"},
    [CAP_MAC_ADMIN] = {.what = "AppArmor and Smack ask for it, for rules that they would then have"},
    [CAP_SYSLOG] = {.what = "the kernel's log", .fn = ask_log},
    [CAP_AUDIT_READ] = {.what = "what the kernel's audit says", .fn = read_audit},
    [CAP_PERFMON] = {.what = "samples of another user's process", .fn = sample},
    [CAP_BPF] = {.what = "a map that takes CAP_BPF", .fn = make_trie},
    [CAP_CHECKPOINT_RESTORE] = {.what = "a process has the number of one that has ended", .fn = choose_pid},
};

/* Drops all capabilities except the given ones. The process stays root. */
static int only(uint64_t caps)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {{.effective = (uint32_t)caps, .permitted = (uint32_t)caps},
                                          {.effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32)}};
    return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

static uint64_t permitted(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    if (syscall(SYS_capget, &h, d) < 0)
        return 0;
    return d[0].permitted | (uint64_t)d[1].permitted << 32;
}

/* Runs an attack in a separate process, and returns its result. */
static int run(const struct attack *a, bool guarded, unsigned cap)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int rc = a->before ? a->before() : 0;
        if (rc == 0)
            rc = guarded ? vb_guard_command() : only((vb_capabilities_kept() & own) | BIT(cap));
        _exit(rc ? 255 : -a->fn());
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -ECHILD;
    return WEXITSTATUS(status) == 255 ? -ENOTRECOVERABLE : -WEXITSTATUS(status);
}

static void try_each(void)
{
    char why[128];
    const struct vb_capability *c;
    for (unsigned i = 0; (c = vb_capability(i)) != NULL; i++) {
        const struct attack *a = &attacks[i];
        if (!c->leaves) {
            ok(!a->what, "%s stays", c->name);
            continue;
        }
        if (!ok(a->what != NULL, "%s leaves: %s", c->name, c->leaves))
            continue;
        if (!a->fn || !(own & BIT(i))) {
            tap_skip(c->name, a->fn ? "this root does not have it itself" : a->what);
            continue;
        }
        int closed = run(a, true, i), open = run(a, false, i);
        snprintf(why, sizeof why, "this machine does not do it for root either: %s", hw_errno_name(open));
        if (open == 0)
            ok(closed == CLOSED, "%s: %s: not by a command (%s)", c->name, a->what,
               closed ? hw_errno_name(closed) : "it works");
        else
            tap_skip(c->name, why);
    }
}

/* ---- capability sets ------------------------------------------------------------------------------------ */

static void test_table(void)
{
    for (unsigned i = 0; i <= CAP_LAST_CAP; i++)
        ok(vb_capability(i), "capability %u of linux/capability.h is decided about", i);
    ok(!vb_capability(63) && !(vb_capabilities_kept() & BIT(63)), "one that nobody knows leaves");
}

/* Returns 0 if this process has user id `uid` and exactly the given capabilities, permanently: the ambient set is
 * empty, and the bounding set contains no others (except CAP_SETUID and CAP_SETGID if the user is not root). */
static int has_just(uint64_t caps, uid_t uid)
{
    if (permitted() != caps || geteuid() != uid || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return 1;
    for (int c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (prctl(PR_CAPBSET_READ, c, 0, 0, 0) > (caps & BIT(c) || (uid && (c == CAP_SETUID || c == CAP_SETGID))) ||
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, c, 0, 0) > 0)
            return 2;
    return 0;
}

static int as_command(void)
{
    return vb_guard_command() < 0 ? 3 : has_just(vb_capabilities_kept() & own, 0);
}

static int as_user(void)
{
    return vb_guard_user(NULL, OTHER, OTHER) < 0 ? 3 : has_just(0, OTHER);
}

/* Tests a non-root user to whom a service manager has given securebits(7) and inheritable capabilities. */
static int as_user_kept(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2];
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 || syscall(SYS_capget, &h, d) < 0)
        return 4;
    d[0].inheritable = BIT(CAP_SYS_ADMIN);
    if (syscall(SYS_capset, &h, d) < 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0) < 0)
        return 5;
    return as_user();
}

static int in_child(int (*fn)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(fn());
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- setup ---------------------------------------------------------------------------------------------- */

static void put(const char *name, mode_t mode, uid_t uid, gid_t gid)
{
    const char *path = in_dir(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
        tap_skip_all("%s: %s", path, strerror(errno));
    close(fd);
}

static void start_other(void)
{
    int p[2];
    char byte;
    if (pipe2(p, O_CLOEXEC) < 0)
        tap_skip_all("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(p[0]);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || setresgid(OTHER, OTHER, OTHER) < 0 ||
            setresuid(OTHER, OTHER, OTHER) < 0)
            _exit(1);
        world->segment = shmget(IPC_PRIVATE, 4096, 0600);
        if (world->segment < 0 || write(p[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(p[1]);
    if (pid < 0 || read(p[0], &byte, 1) != 1)
        tap_skip_all("a process of another user's cannot be had");
    close(p[0]);
    world->other = pid; /* the child uses the same *world */
}

static void end_all(void)
{
    kill(world->other, SIGKILL);
    waitpid(world->other, NULL, 0);
    close(world->by_path);
    umount2(dir, MNT_DETACH);
    rmdir(dir);
}

static void start_all(void)
{
    if (geteuid() != 0)
        tap_skip_all("it takes root");
    own = permitted();
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world == MAP_FAILED || !mkdtemp(dir))
        tap_skip_all("a folder: %s", strerror(errno));
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("none", dir, "tmpfs", 0, "mode=755") < 0) {
        int err = errno;
        rmdir(dir);
        tap_skip_all("namespaces of its own: %s", strerror(err));
    }
    put("own", 0600, 0, 0);
    put("other", 0600, OTHER, OTHER);
    put("other-handle", 0600, OTHER, OTHER);
    put("other-mode", 0600, OTHER, OTHER);
    put("other-lease", 0644, OTHER, OTHER);
    put("grouped", 0755, 0, OTHER);
    put("program", 0755, 0, 0);
    put("audit", 0600, 0, 0);
    (void)set_flags(FS_APPEND_FL); /* if the file system supports it */
    int id;
    handle.h.handle_bytes = MAX_HANDLE_SZ;
    world->by_path = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (name_to_handle_at(AT_FDCWD, in_dir("other-handle"), &handle.h, &id, 0) < 0)
        diag("no handle: %s", strerror(errno));
    if (mkdir(in_dir("mount"), 0755) < 0 || mkdir(in_dir("jail"), 0755) < 0 || mkdir(in_dir("jail/within"), 0755) < 0 ||
        stat("/", &world->root) < 0 || world->by_path < 0)
        tap_skip_all("%s: %s", dir, strerror(errno));
    start_other();
}

int main(void)
{
    alarm(60);
    test_table();
    start_all();
    is_int(in_child(as_command), 0, "a command has those that stay, in no set any other, and gets none again");
    is_int(in_child(as_user), 0, "one of another user has none");
    is_int(in_child(as_user_kept), 0, "nor where securebits would keep them");
    try_each();
    end_all();
    return tap_done();
}

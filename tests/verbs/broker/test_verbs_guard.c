/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the broker's system call filter, and the tracer, which has no such filter. Checks the capabilities of both
 * processes, how the exit of each process affects the other, and that the filter is effective. */
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/tap.h"
#include "verbs/stub/inject.h"

#include <dirent.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL        "[default]\ndevices = *\n"
#define TRACER_FDS 4

static char memory[8192] __attribute__((aligned(4096)));

/* Returns the number after `name` in /proc/PID/status, or -1 if the process does not exist or is dead. */
static long long of_process(pid_t pid, const char *name, int base)
{
    char path[64], line[256];
    long long v = -1;
    bool dead = false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        dead |= strncmp(line, "State:\tZ", 8) == 0 || strncmp(line, "State:\tX", 8) == 0;
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            v = strtoll(line + strlen(name) + 1, NULL, base);
    }
    if (f)
        fclose(f);
    return dead ? -1 : v;
}

static bool ends(pid_t pid)
{
    for (int i = 0; i < 30000 && of_process(pid, "Pid", 10) >= 0; i++)
        usleep(1000);
    return of_process(pid, "Pid", 10) < 0;
}

/* Returns the broker's tracer, or 0 unless the broker has exactly one child. */
static pid_t tracer_of(const struct world *w)
{
    char path[64], text[64] = "", comm[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)w->broker, (int)w->broker);
    FILE *f = fopen(path, "re");
    char *rest, *got = f ? fgets(text, sizeof text, f) : NULL;
    if (f)
        fclose(f);
    long pid = got ? strtol(text, &rest, 10) : 0;
    if (pid <= 0 || strspn(rest, " \n") != strlen(rest))
        return 0;
    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    f = fopen(path, "re");
    got = f ? fgets(comm, sizeof comm, f) : NULL;
    if (f)
        fclose(f);
    return got && strcmp(comm, "hawser-tracer\n") == 0 ? (pid_t)pid : 0;
}

static unsigned fds_of(pid_t pid)
{
    return world_fds(&(struct world){.broker = pid});
}

/* Registers memory. Returns -ENOTTY if a stub has run the request, because the device is /dev/null. */
static int reg(int fd)
{
    struct ib_uverbs_reg_mr_resp r;
    return app_reg(fd, memory, sizeof memory, &r);
}

/* Forbids a system call, as a container's seccomp profile might. */
static int forbid(unsigned nr)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {HW_ARRAY_LEN(f), f};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p);
}

/* -------------------------------------------------- rights of each process */

static int steps(void *arg)
{
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && forbid(SYS_close_range) == 0 && forbid(SYS_madvise) == 0);
    app_step(1);
    must(reg(fd) == -ENOTTY);
    app_step(2);
    return 0;
}

static void test_there(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, steps, NULL);
    world_until(&w, 1);
    pid_t tracer = tracer_of(&w);
    is_int(of_process(w.broker, "Seccomp", 10), SECCOMP_MODE_FILTER, "the broker has a filter of system calls");
    ok(tracer > 0, "it has a tracer, and no other child");
    is_int(of_process(tracer, "Seccomp", 10), SECCOMP_MODE_DISABLED, "which has none");
    is_int(of_process(tracer, "CapPrm", 16),
           1LL << CAP_SYS_PTRACE | 1LL << CAP_SYS_ADMIN | 1LL << CAP_MKNOD | 1LL << CAP_DAC_READ_SEARCH,
           "but four capabilities");
    is_int(of_process(tracer, "NoNewPrivs", 10), 1, "and no_new_privs");
    is_int(fds_of(tracer), TRACER_FDS,
           "and no descriptor but its socket, inotify, the folder of nodes and a mount of it");
    is_int(of_process(w.broker, "CapPrm", 16), 1LL << CAP_SYS_PTRACE | 1LL << CAP_NET_RAW,
           "the broker has one, and CAP_NET_RAW where who starts it leaves it that");
    is_int(of_process(w.broker, "CapEff", 16), of_process(w.broker, "CapPrm", 16), "in effect, too");
    is_int(of_process(w.broker, "NoNewPrivs", 10), 1, "and no_new_privs");
    long long uid = of_process(w.broker, "Uid", 10);
    ok(uid >= 0x70000000 && uid < 0x7ffe0000 && of_process(tracer, "Uid", 10) == uid,
       "both are of a user of their own");
    ok(of_process(w.broker, "Gid", 10) == uid && of_process(tracer, "Gid", 10) == uid, "and group");
    is_int(of_process(w.broker, "Groups", 10), 0, "and of no other");
    fake->go = 1;
    ok(world_until(&w, 2), "a stub gets in where the program's own filters forbid what it takes");
    is_int(tracer_of(&w), tracer, "the tracer is alone again");
    is_int(fds_of(tracer), TRACER_FDS, "and has closed what it was sent");
    fake->go = 2;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
    ok(ends(tracer), "and so does the tracer");
}

/* ----------------------------------------------------- the filter's effect */

static int breached(void *arg)
{
    uint32_t pd;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && app_pd(fd, &pd) == 0);
    app_step(1);
    must(app_pd(fd, &pd) == -ENOSYS && app_open(0) == -ENOSYS);
    return 0;
}

static void test_bites(void)
{
    static const char *const what[BREACHES] = {
        [BREACH_EXEC] = "execve()",
        [BREACH_FORK] = "fork()",
        [BREACH_SOCKET] = "socket()",
        [BREACH_PTRACE] = "ptrace()",
        [BREACH_MOUNT] = "mount()",
        [BREACH_IOCTL] = "an ioctl of another kind",
        [BREACH_CODE] = "a mapping that can be executed",
        [BREACH_OPEN] = "openat()",
        [BREACH_NODE] = "mknodat()",
        [BREACH_WRITE] = "process_vm_writev()",
        [BREACH_WATCH] = "inotify_add_watch()",
    };
    for (int i = NO_BREACH + 1; i < BREACHES; i++) {
        struct world w;
        fake_reset();
        world_start(&w, ALL, true, breached, NULL);
        world_until(&w, 1);
        pid_t tracer = tracer_of(&w);
        fake->breach = i;
        fake->go = 1;
        is_int(world_app(&w), 0, what[i]);
        is_int(world_end(&w), 128 + SIGSYS, "ends the broker");
        ok(tracer > 0 && ends(tracer), "and its tracer");
    }
}

/* ---------------------------------- programs that give up privileges */

static bool may_lock(pid_t tid)
{
    return of_process(tid, "CapEff", 16) & 1LL << CAP_IPC_LOCK;
}

/* Gives up all capabilities of the calling thread except CAP_SYS_ADMIN. */
static int give_up(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {
        {.effective = 1u << CAP_SYS_ADMIN, .permitted = 1u << CAP_SYS_ADMIN},
    };
    return (int)syscall(SYS_capset, &h, d);
}

/* Returns the stub, which is the only other thread of the process. */
static pid_t stub_of(void)
{
    pid_t found = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.' && strtol(e->d_name, NULL, 10) != getpid())
            found = (pid_t)strtol(e->d_name, NULL, 10);
    if (d)
        closedir(d);
    return found;
}

static int with_capset(void *arg)
{
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && reg(fd) == -ENOTTY);
    pid_t stub = stub_of();
    must(stub > 0 && may_lock(stub) && reg(fd) == -ENOTTY && may_lock(stub)); /* like the program itself */
    must(give_up() == 0 && may_lock(stub));
    must(reg(fd) == -ENOTTY && !may_lock(stub) && of_process(stub, "CapPrm", 16) == 0);
    must(reg(fd) == -ENOTTY && reg(fd) == -ENOTTY);
    return 0;
}

static int with_user(void *arg)
{
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && reg(fd) == -ENOTTY && may_lock(stub_of()));
    must(syscall(SYS_setresuid, 12345, 12345, 12345) == 0);
    must(reg(fd) == -ENOTTY && !may_lock(stub_of()));
    return 0;
}

/* Runs in a child that shares the program's memory. The child has all capabilities, but only in a new user
 * namespace. */
static int in_namespace(void *fd)
{
    return may_lock((pid_t)syscall(SYS_gettid)) && reg(*(int *)fd) == -ENOTTY ? 0 : 1;
}

static int with_namespace(void *arg)
{
    static char stack[65536] __attribute__((aligned(16)));
    int st;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && reg(fd) == -ENOTTY && may_lock(stub_of()));
    pid_t child = clone(in_namespace, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_NEWUSER | SIGCHLD, &fd);
    must(child > 0 && waitpid(child, &st, 0) == child && st == 0);
    must(!may_lock(stub_of()));
    return 0;
}

/* Tests that a stub does not pin memory for less privileged processes if a filter prevents the stub from giving up its
 * privileges. */
static int with_filter(void *arg)
{
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && forbid(SYS_capset) == 0 && reg(fd) == -ENOTTY);
    must(syscall(SYS_setresuid, 12345, 12345, 12345) == 0);
    uint32_t pd;
    must(reg(fd) == -EPERM && may_lock(stub_of()) && reg(fd) == -EPERM);
    must(app_pd(fd, &pd) == 0); /* requests that pin no memory still succeed */
    return 0;
}

static void test_given_up(void)
{
    static const struct {
        int (*fn)(void *);
        const char *what;
    } way[] = {
        {with_capset, "a program gives up CAP_IPC_LOCK, and its stub has no capability any more"},
        {with_user, "with its user"},
        {with_namespace, "a child in a user namespace that shares the memory"},
        {with_filter, "a filter that forbids capset(): EPERM"},
    };
    for (size_t i = 0; i < HW_ARRAY_LEN(way); i++) {
        struct world w;
        fake_reset();
        world_start(&w, ALL, true, way[i].fn, NULL);
        is_int(world_app(&w), 0, way[i].what);
        is_int(world_end(&w), 0, "the broker ends");
    }
    ok(strstr(world_audit(), "its stub cannot drop it: check for a seccomp filter that forbids capset()"),
       "the audit says why");
}

/* ---------------------------------------- the broker or the tracer is killed */

static int without_tracer(void *arg)
{
    uint32_t pd;
    int st;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && give_up() == 0 &&
         reg(fd) == -ENOTTY); /* otherwise, the broker would check the right to lock memory each time */
    app_step(1);
    must(reg(fd) == -ENOTTY); /* the stub exists */
    must(app_pd(fd, &pd) == 0 && app_open(0) == -EIO);
    pid_t child = fork();
    if (child == 0)
        _exit(reg(fd) == -EIO ? 0 : 1);
    must(waitpid(child, &st, 0) == child && st == 0);
    return 0;
}

/* Returns true if the audit log contains an open that failed because the tracer has exited. */
static bool has_refused_open(const char *audit)
{
    const char *at = strstr(audit, "\"open\""), *why = at ? strstr(at, "has ended: programs of the container") : NULL;
    return why && memchr(at, '\n', (size_t)(why - at)) == NULL;
}

static void test_tracer_killed(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, without_tracer, NULL);
    world_until(&w, 1);
    pid_t tracer = tracer_of(&w);
    ok(tracer > 0 && kill(tracer, SIGKILL) == 0 && ends(tracer), "the tracer is killed");
    fake->go = 1;
    is_int(world_app(&w), 0, "stubs that are there go on, and the broker, but who has none gets EIO, as does an open");
    ok(strstr(world_audit(), "has ended: programs of the container get no stub and no device"), "the audit says why");
    ok(has_refused_open(world_audit()), "and names the open");
    is_int(world_end(&w), 0, "the broker ends");
}

static void test_broker_killed(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, breached, NULL);
    world_until(&w, 1);
    pid_t tracer = tracer_of(&w);
    kill(w.broker, SIGKILL);
    ok(tracer > 0 && ends(tracer), "the tracer of a broker that is killed ends");
    fake->go = 1;
    is_int(world_app(&w), 0, "its programs get ENOSYS");
    is_int(world_end(&w), 128 + SIGKILL, "it was killed");
}

int main(void)
{
    fake_start();
    world_guarded = true;
    if (vb_inject_possible())
        tap_skip_all("%s", hw_error());
    test_there();
    test_bites();
    test_given_up();
    test_tracer_killed();
    test_broker_killed();
    fake_end();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests injections that fail because of limits, another tracer, a timeout, a dead broker, or filters that forge
 * results. Then makes a thousand successful injections, and checks that no resources leak. */
#include "tests/proc.h"
#include "tests/tap.h"
#include "verbs_stub.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct app a;
static struct mini m;

static bool life(void (*fn)(void))
{
    m = (struct mini){.n = 0};
    app_start(&a, fn, true);
    return mini_serve(&m, &a, 60);
}

/* Runs fn, whose injection must fail. The caller has initialized m. */
static void fails(const char *what, int want, void (*fn)(void))
{
    app_start(&a, fn, true);
    ok(mini_serve(&m, &a, 60), "%s: the program ends well", what);
    is_int(common->out[0], want, "its request fails with the reason");
    is_int(m.last_rc, want, "which the broker has, too");
    diag("%s", m.text);
    is_int(common->out[1], 0, "no descriptor is left in the program");
    is_int(common->out[2], 0, "no thread");
    is_int(common->out[3], 0, "no mapping");
    ok(common->out[4], "its signal mask is as before");
    mini_end(&m);
}

/* --- limits --- */
static void app_no_threads(void)
{
    struct rlimit none = {1, 1};
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) || setrlimit(RLIMIT_NPROC, &none))
        _exit(96);
    prctl(PR_SET_DUMPABLE, 1); /* so that the program owns its /proc files */
    app_look();
}

static void app_no_memory(void)
{
    int fd = null_fd();
    char page[4096];
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages = f && fgets(page, sizeof(page), f) ? strtoul(page, NULL, 10) : 0;
    if (f)
        fclose(f);
    struct rlimit old, tight;
    getrlimit(RLIMIT_AS, &old);
    tight = (struct rlimit){pages * 4096, old.rlim_max};
    setrlimit(RLIMIT_AS, &tight);
    int rc = reg(fd);
    setrlimit(RLIMIT_AS, &old);
    app_look();
    common->out[5] = common->out[0];
    common->out[0] = rc;
    common->out[2] -= 1; /* the second request created a stub */
    common->out[3] -= 3;
}

static void app_no_files(void)
{
    int fd = null_fd();
    struct rlimit old, tight;
    getrlimit(RLIMIT_NOFILE, &old);
    tight = (struct rlimit){(rlim_t)fd + 2, old.rlim_max}; /* one free descriptor, but two are needed */
    setrlimit(RLIMIT_NOFILE, &tight);
    int rc = reg(fd);
    bool free_still = fcntl(fd + 1, F_GETFD) < 0;
    setrlimit(RLIMIT_NOFILE, &old);
    app_look();
    common->out[0] = rc;
    common->out[1] += !free_still;
    common->out[2] -= 1;
    common->out[3] -= 3;
}

static void test_limits(void)
{
    common_reset();
    m = (struct mini){.n = 0};
    fails("no thread allowed", -EAGAIN, app_no_threads);
    common_reset();
    m = (struct mini){.n = 0};
    fails("no room for the window", -ENOMEM, app_no_memory);
    common_reset();
    m = (struct mini){.n = 0};
    fails("room for one descriptor of two", -EMFILE, app_no_files);
    common_reset();
    m = (struct mini){.other_arch = true};
    fails("a call of another architecture", -EOPNOTSUPP, app_look);
}

/* --- traced by another process --- */
static void app_traced(void)
{
    pid_t me = getpid(), pid = fork();
    if (pid == 0) {
        int rc = ptrace(PTRACE_SEIZE, me, 0, 0) ? -errno : 0;
        common->out[5] = rc;
        common->at = 9;
        while (!common->stop && getppid() == me)
            usleep(500);
        _exit(0);
    }
    while (common->at != 9)
        usleep(500);
    app_look();
    common->stop = true;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* --- timeout --- */
static void hook_slow(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)tid, (void)window;
    if (step == VB_STEP_MSEAL)
        usleep((VB_INJECT_MS + 300) * 1000);
}

static void test_traced_and_slow(void)
{
    common_reset();
    m = (struct mini){.n = 0};
    fails("traced by another", -EPERM, app_traced);
    is_int(common->out[5], 0, "(which it was)");
    common_reset();
    vb_inject_hook = hook_slow;
    m = (struct mini){.n = 0};
    fails("it takes too long", -ETIMEDOUT, app_look);
    vb_inject_hook = NULL;
}

/* --- the broker dies during the injection --- */
static void hook_orphan(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)tid, (void)window;
    if ((int)step == common->hook_step) {
        common->hook_seen = getppid();
        kill(common->broker, SIGKILL);
        while (getppid() == common->hook_seen) /* until the tracer has exited, too */
            usleep(200);
    }
}

static void app_orphan(void)
{
    int fd = null_fd(), tasks = proc_entries("/proc/self/task");
    common->out[0] = reg(fd);
    common->out[1] = reg(fd);
    common->out[2] = proc_entries("/proc/self/task") - tasks;
    common->out[5] = 1;
}

static void test_orphan(void)
{
    static const int steps[] = {VB_STEP_GIVE, VB_STEP_MMAP, VB_STEP_MSEAL, VB_STEP_VERIFY, VB_STEP_READY};
    unsigned well = 0, no_thread = 0;
    for (unsigned i = 0; i < HW_ARRAY_LEN(steps); i++) {
        common_reset();
        common->hook_step = steps[i];
        vb_inject_hook = hook_orphan;
        app_start(&a, app_orphan, true);
        fflush(NULL);
        pid_t broker = fork();
        if (broker == 0) {
            m = (struct mini){.a = &a};
            mini_until(&m, 1, 20000);
            _exit(0);
        }
        close(a.listener);
        int status;
        waitpid(broker, &status, 0);
        for (int w = 0; w < 4000 && waitpid(a.pid, &a.status, WNOHANG) == 0; w++)
            usleep(5000);
        bool right = WIFEXITED(a.status) && common->out[5] && common->out[1] == -ENOSYS &&
                     (common->out[0] == -ENOSYS || common->out[0] == -ETIMEDOUT);
        if (!right)
            diag("step %d: status 0x%x, %d, %d", steps[i], (unsigned)a.status, (int)common->out[0],
                 (int)common->out[1]);
        well += right;
        no_thread += common->out[2] == 0;
    }
    is_int(well, HW_ARRAY_LEN(steps), "when the broker dies, the program lives, and its requests fail");
    is_int(no_thread, HW_ARRAY_LEN(steps), "and no stub is left in it");
}

/* --- filters that see the thread's injected calls --- */
static void hook_drop_cap(enum vb_step step, pid_t tid, uint64_t window)
{
    (void)tid, (void)window;
    if (step != VB_STEP_SEIZE)
        return;
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    syscall(SYS_capget, &h, d);
    d[CAP_SYS_ADMIN / 32].effective &= ~(1u << (CAP_SYS_ADMIN % 32));
    syscall(SYS_capset, &h, d);
}

static void app_plain(void)
{
    common->out[0] = reg(null_fd());
}

static int lie_nr;
static unsigned lie_errno;

/* Runs a program whose filter answers a system call instead of the kernel. */
static void app_lies(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)lie_nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | lie_errno),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {HW_ARRAY_LEN(f), f};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
        _exit(95);
    app_plain();
}

static void test_filters(void)
{
    common_reset();
    vb_inject_hook = hook_drop_cap;
    ok(life(app_plain), "without CAP_SYS_ADMIN the program ends well");
    is_int(common->out[0], -ENOTTY, "and has its stub");
    mini_end(&m);
    static const struct {
        int nr;
        unsigned err;
        int want;
        const char *what;
    } lies[] = {
        {SYS_mseal, 0, -EPROTO, "mseal() that says 0 and does nothing is seen"},
        {SYS_close_range, 0, -EPROTO, "close_range() that says 0 and does nothing is seen"},
        {SYS_clone, 0, -EPROTO, "clone() that says 0 and does nothing is seen"},
        {SYS_mseal, EPERM, -EPERM, "mseal() that is forbidden is told"},
        {SYS_clone, EPERM, -EPERM, "clone() that is forbidden is told"},
    };
    for (unsigned i = 0; i < HW_ARRAY_LEN(lies); i++) {
        common_reset();
        lie_nr = lies[i].nr;
        lie_errno = lies[i].err;
        vb_inject_hook = hook_drop_cap;
        ok(life(app_lies), "the program of a false filter ends well");
        is_int(common->out[0], lies[i].want, lies[i].what);
        is_int(m.injected, 0, "no stub");
        mini_end(&m);
        common_reset();
        ok(life(app_lies), "the same, its filters suspended");
        is_int(common->out[0], -ENOTTY, "it has its stub");
        mini_end(&m);
    }
}

/* --- a thousand --- */
static void app_thousand(void)
{
    int fd = null_fd(), bad = 0;
    for (int i = 0; i < 1000; i++)
        bad += reg(fd) != -ENOTTY;
    common->out[0] = bad;
    for (int i = 0; i < 2000 && proc_entries("/proc/self/task") > 1; i++)
        usleep(1000);
    common->out[1] = proc_entries("/proc/self/task");
}

static void test_thousand(void)
{
    common_reset();
    ok(life(app_plain), "one, so that everything is there that stays");
    mini_end(&m);
    int fds = proc_entries("/proc/self/fd"), children = proc_children(getpid());
    int maps = proc_maps("hawser-verbs");
    m = (struct mini){.end_each = true};
    app_start(&a, app_thousand, true);
    ok(mini_serve(&m, &a, 100), "a program that gets a new stub for each of 1,000 requests ends well");
    is_int(common->out[0], 0, "each result is right");
    is_int(common->out[1], 1, "all stubs have left");
    is_int(m.injected, 1000, "1,000 stubs");
    mini_end(&m);
    is_int(proc_entries("/proc/self/fd") - fds, 0, "no descriptor is left here");
    is_int(proc_maps("hawser-verbs") - maps, 0, "no mapping");
    is_int(proc_children(getpid()) - children, 0, "no process");
    is_int(proc_entries("/proc/self/task"), 1, "no thread");
}

int main(void)
{
    int rc = vb_inject_possible();
    if (rc)
        tap_skip_all("%s", hw_error());
    test_limits();
    test_traced_and_slow();
    test_orphan();
    test_filters();
    test_thousand();
    return tap_done();
}

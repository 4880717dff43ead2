/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the stub in well-behaved programs with threads, child processes and signals. */
#include "tests/proc.h"
#include "tests/tap.h"
#include "verbs_stub.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct app a;
static struct mini m;

/* Runs fn in a brokered program, and serves the program until it exits. */
static bool life(void (*fn)(void), bool killable)
{
    m = (struct mini){.n = 0};
    app_start(&a, fn, killable);
    return mini_serve(&m, &a, 60);
}

/* --- one request --- */
static void app_one(void)
{
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    int null = null_fd(), loop = open("/dev/loop-control", O_RDWR), tun = open("/dev/net/tun", O_RDWR);
    int fds = proc_entries("/proc/self/fd");
    common->out[0] = reg(null);
    common->out[1] = reg(loop);
    common->out[2] = reg(tun);
    common->out[3] = reg(eventfd(0, 0));
    common->out[4] = reg(999);
    common->out[5] = proc_entries("/proc/self/fd") - fds - 1; /* the eventfd */
    sigprocmask(SIG_SETMASK, NULL, &after);
    common->out[6] = sigismember(&after, SIGUSR1) && !sigismember(&after, SIGUSR2) && !sigismember(&after, SIGSEGV);
    common->out[7] = proc_entries("/proc/self/task");
    common->out[8] = proc_maps("hawser-verbs");
    uint64_t w = common->window;
    common->out[9] = *(volatile int64_t *)(w + VB_WINDOW_CODE); /* readable, and identical to what the broker wrote */
    *(volatile int64_t *)(w + VB_WINDOW_SPLIT) = 4711;
    common->out[10] = loop >= 0;
    common->out[11] = tun >= 0;
    common->out[12] = gettid();
}

static void test_one(void)
{
    common_reset();
    ok(life(app_one, true), "a program that registers memory ends well");
    is_int(common->out[0], -ENOTTY, "the stub's result is the kernel's: ENOTTY of /dev/null");
    if (common->out[10])
        is_int(common->out[1], -ENOSYS, "ENOSYS of a driver is a result, too, and does not end the stub");
    else
        tap_skip("ENOSYS of a driver", "there is no /dev/loop-control");
    if (common->out[11])
        is_int(common->out[2], -EBADFD, "EBADFD of /dev/net/tun");
    else
        tap_skip("EBADFD of a driver", "there is no /dev/net/tun");
    is_int(common->out[3], -ENOTTY, "ENOTTY of an eventfd");
    is_int(common->out[4], -EBADF, "EBADF of a closed one");
    is_int(common->out[5], 0, "no descriptor more is open in the program");
    ok(common->out[6], "its signal mask is as it was");
    is_int(common->out[7], 2, "it has one thread more");
    is_int(common->out[8], 3, "and three mappings");
    ok(common->out[9] != 0, "it can read its requests");
    is_int(m.injected, 1, "one stub served all");
    mini_end(&m);
}

/* --- the stub as seen by other processes --- */
static void app_hold(void)
{
    common->out[0] = reg(null_fd());
    common->at = 1;
    while (!common->stop)
        usleep(500);
    common->out[1] = reg(null_fd());
    *(volatile int64_t *)(common->window + VB_WINDOW_SPLIT) = 4711;
    common->at = 2;
    while (common->stop)
        usleep(500);
}

static void test_outside(void)
{
    common_reset();
    m = (struct mini){.n = 0};
    app_start(&a, app_hold, true);
    m.a = &a;
    ok(mini_until(&m, 1, 30000), "a request was served");
    struct vb_stub *s = &m.s[0].stub;
    char path[64], text[2048] = "";
    snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", a.pid, s->tid);
    FILE *f = fopen(path, "re");
    ok(f && fgets(text, sizeof(text), f) && strcmp(text, "hawser-verbs\n") == 0, "the thread has a name");
    if (f)
        fclose(f);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/fd", a.pid, s->tid);
    is_int(proc_entries(path), 1, "its table has one descriptor");
    snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%d", a.pid, s->tid, VB_STUB_FD);
    ssize_t n = readlink(path, text, sizeof(text) - 1);
    text[HW_MAX(n, 0)] = 0;
    ok(n > 0 && strcmp(text, "/dev/null") != 0, "which is not the device any more");
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", a.pid, s->tid);
    f = fopen(path, "re");
    uint64_t blocked = 0;
    while (f && fgets(text, sizeof(text), f))
        if (strncmp(text, "SigBlk:", 7) == 0)
            blocked = strtoull(text + 7, NULL, 16);
    if (f)
        fclose(f);
    ok(blocked == (UINT64_MAX & ~(1ull << (SIGKILL - 1)) & ~(1ull << (SIGSTOP - 1))), "all its signals are blocked");
    ok(vb_stub_serves(s, a.pid), "it serves the program");
    ok(!vb_stub_serves(s, getpid()), "and not this one");
    ok(!vb_stub_alone(&m.tracer, s), "it is not alone");

    /* Calls by the stub and by other callers. */
    struct seccomp_notif n0 = {.id = 7, .pid = (uint32_t)s->tid};
    n0.data.arch = AUDIT_ARCH_X86_64;
    n0.data.nr = SYS_ioctl;
    n0.data.instruction_pointer = s->window + VB_STUB_AFTER;
    n0.data.args[0] = VB_STUB_FD;
    n0.data.args[1] = RDMA_VERBS_IOCTL;
    n0.data.args[2] = s->window + VB_WINDOW_HEADER;
    n0.data.args[4] = s->seq;
    n0.data.args[5] = 12;
    struct vb_stub copy = *s;
    int64_t result = 99;
    is_int(vb_stub_park(&copy, &n0, &result), 0, "the same call again brings no result");
    is_int(result, 99, "none at all");
    n0.data.args[4]++;
    is_int(vb_stub_park(&copy, &n0, &result), 1, "the next call does");
    is_int(result, 12, "its sixth argument");
    struct seccomp_notif bad[7];
    for (unsigned i = 0; i < 7; i++)
        bad[i] = n0;
    bad[0].pid++;
    bad[1].data.arch = AUDIT_ARCH_I386;
    bad[2].data.nr = SYS_write;
    bad[3].data.instruction_pointer++;
    bad[4].data.args[0]++;
    bad[5].data.args[1]++;
    bad[6].data.args[2]++;
    unsigned refused = 0;
    for (unsigned i = 0; i < 7; i++)
        refused += vb_stub_park(&copy, &bad[i], &result) == -EPROTO;
    is_int(refused, 7, "another's call, or another call, is refused");

    common->stop = true;
    ok(mini_until(&m, 2, 30000), "another request was served");
    is_int(*(int64_t *)(void *)(s->mine + VB_WINDOW_SPLIT), 4711, "what the program writes to the results is seen");
    pid_t tid = s->tid;
    mini_drop(&m);
    for (int i = 0; i < 400; i++) {
        snprintf(path, sizeof(path), "/proc/%d/task/%d", a.pid, tid);
        if (access(path, F_OK))
            break;
        usleep(5000);
    }
    ok(access(path, F_OK) != 0, "a stub that is told to end is gone");
    common->stop = false;
    ok(mini_serve(&m, &a, 60), "and the program ends well without it");
    mini_end(&m);
}

/* --- processes --- */
static int child_status(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        continue;
    return status;
}

static void app_fork(void)
{
    int fd = null_fd();
    common->out[0] = reg(fd);
    pid_t pid = fork();
    if (pid == 0) {
        common->out[1] = proc_maps("hawser-verbs");
        common->out[2] = reg(fd);
        common->out[3] = proc_maps("hawser-verbs");
        _exit(0);
    }
    common->out[4] = child_status(pid);
    common->out[5] = reg(fd);
}

static int in_vm_child(void *arg)
{
    int *out = arg;
    *out = reg(out[1]);
    return 0;
}

/* Tests a child process that shares its parent's memory. The parent continues, or waits (vfork). */
static void app_share(void)
{
    static char stack[2][1 << 16] __attribute__((aligned(16)));
    int fd = null_fd();
    int box[2] = {1, fd};
    pid_t pid = clone(in_vm_child, stack[0] + sizeof(stack[0]), CLONE_VM | CLONE_VFORK | SIGCHLD, box);
    common->out[0] = child_status(pid);
    common->out[1] = box[0];
    common->out[2] = reg(fd); /* the child's stub exited with the child */
    box[0] = 1;
    pid = clone(in_vm_child, stack[1] + sizeof(stack[1]), CLONE_VM | SIGCHLD, box);
    common->out[3] = child_status(pid);
    common->out[4] = box[0];
}

static const char *self;

static void app_exec(void)
{
    int fd = open("/dev/null", O_RDWR);
    common->out[0] = reg(fd);
    char n[16];
    snprintf(n, sizeof(n), "%d", fd);
    execl(self, self, "again", n, NULL);
    _exit(98);
}

static void *raw_exit(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++)
        usleep(1000);
    syscall(SYS_exit, 0);
    return NULL;
}

/* Tests a process whose threads exit one by one. The process exists until its stub exits. */
static void app_leaves(void)
{
    pthread_t t;
    common->out[0] = reg(null_fd());
    pthread_create(&t, NULL, raw_exit, NULL);
    syscall(SYS_exit, 0);
}

static void test_processes(void)
{
    common_reset();
    ok(life(app_fork, true), "a program that forks ends well");
    is_int(common->out[0], -ENOTTY, "the parent's request");
    is_int(common->out[1], 0, "the child has nothing of the window");
    is_int(common->out[2], -ENOTTY, "the child's request");
    is_int(common->out[3], 3, "for which it gets a window of its own");
    is_int(common->out[4], 0, "the child ends well");
    is_int(common->out[5], -ENOTTY, "the parent's next");
    is_int(m.injected, 2, "two stubs");
    mini_end(&m);

    common_reset();
    m = (struct mini){.end_alone = true}; /* such children exit only when their last thread exits */
    app_start(&a, app_share, true);
    ok(mini_serve(&m, &a, 60), "a program whose children share its memory ends well");
    is_int(common->out[0], 0, "a vfork child ends well");
    is_int(common->out[1], -ENOTTY, "its request");
    is_int(common->out[3], 0, "a child that shares the memory ends well");
    if (vb_inject_hold == VB_HOLD_WALL) { /* the child's window cannot be unmapped */
        is_int(common->out[2], -EEXIST, "its parent's request finds its window");
        is_int(m.injected, 1, "and there is no other place");
    } else {
        is_int(common->out[2], -ENOTTY, "its parent's, with a new stub");
        is_int(common->out[4], -ENOTTY, "its request");
        is_int(m.injected, 2, "which the parent's stub has run");
    }
    mini_end(&m);

    common_reset();
    ok(life(app_exec, true), "a program that replaces itself registers memory in the new one, too");
    is_int(common->out[0], -ENOTTY, "before");
    is_int(m.injected, 2, "two stubs");
    mini_end(&m);

    common_reset();
    m = (struct mini){.end_alone = true};
    app_start(&a, app_leaves, true);
    ok(mini_serve(&m, &a, 60), "a program whose threads leave one by one ends");
    is_int(common->out[0], -ENOTTY, "it had a stub");
    mini_end(&m);
    /* Without end_alone, the process would not exit. */
    common_reset();
    m = (struct mini){.n = 0};
    app_start(&a, app_leaves, true);
    ok(!mini_serve(&m, &a, 1), "with its stub there it does not");
    mini_end(&m);
}

/* --- threads --- */
static atomic_int wrong;

static void *many(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 20; i++)
        if (reg(fd) != -ENOTTY)
            wrong++;
    return NULL;
}

static void app_threads(void)
{
    pthread_t t[64];
    int fd = null_fd();
    for (int i = 0; i < 64; i++)
        pthread_create(&t[i], NULL, many, &fd);
    for (int i = 0; i < 64; i++)
        pthread_join(t[i], NULL);
    common->out[0] = wrong;
}

static void test_threads(void)
{
    common_reset();
    ok(life(app_threads, true), "a program of 64 threads ends well");
    is_int(common->out[0], 0, "none of its 1,280 requests has a wrong result");
    is_int(m.results, 1280, "each was run once");
    is_int(m.injected, 1, "by one stub");
    mini_end(&m);
}

/* --- signals --- */
static atomic_int caught;
static void on_signal(int sig)
{
    (void)sig;
    caught++;
}

static void *storm(void *arg)
{
    (void)arg;
    while (!common->stop) {
        kill(getpid(), SIGUSR1);
        usleep(1000);
    }
    return NULL;
}

static bool restarts;
#define REQUESTS 150

/* Makes each request with a new stub (mini.end_each), so that signals also arrive during injection. */
static void app_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = restarts ? SA_RESTART : 0};
    sigaction(SIGUSR1, &sa, NULL);
    pthread_t t;
    pthread_create(&t, NULL, storm, NULL);
    int fd = null_fd(), interrupted = 0, bad = 0;
    for (int i = 0; i < REQUESTS; i++) {
        if (i ==
            REQUESTS - 1) { /* on a busy machine, signals may interrupt all other requests, so leave one undisturbed */
            common->stop = true;
            pthread_join(t, NULL);
        }
        int rc = reg(fd);
        if (rc == -ENOTTY)
            continue;
        if (rc == -EINTR) {
            interrupted++;
            continue;
        }
        bad++;
        common->out[3] = rc;
    }
    common->out[0] = interrupted;
    common->out[1] = bad;
    common->out[2] = caught;
}

static void test_signals(void)
{
    for (int i = 0; i < 4; i++) {
        bool killable = i & 1;
        restarts = i & 2;
        common_reset();
        m = (struct mini){.end_each = true};
        app_start(&a, app_signals, killable);
        ok(mini_serve(&m, &a, 60), "signals every ms, %s, %s: the program ends well",
           killable ? "WAIT_KILLABLE_RECV" : "interruptible", restarts ? "SA_RESTART" : "EINTR");
        diag("%u injected, %u not, %u taken back; %d signals, %d interrupted", m.injected, m.failed, m.again,
             (int)common->out[2], (int)common->out[0]);
        is_int(common->out[1], 0, "no request has another result than its own or EINTR");
        if (common->out[1])
            diag("but %d", (int)common->out[3]);
        if (restarts)
            is_int(common->out[0], 0, "and none is interrupted");
        if (killable)
            is_int(m.results + common->out[0], REQUESTS, "what was run was answered, once");
        ok(common->out[2] > 0 && m.injected > 0, "there were signals, and stubs");
        mini_end(&m);
    }
}

static void app_stopped(void)
{
    pid_t main_pid = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        /* A stop interrupts an interruptible call. The intervals grow, so that even on a busy machine some call
         * completes. */
        for (unsigned us = a.killable ? 1500 : 20000; !common->stop && getppid() == main_pid;) {
            kill(main_pid, SIGSTOP);
            usleep(700);
            kill(main_pid, SIGCONT);
            usleep(us);
            if (!a.killable && us < 900000)
                us += us / 20;
        }
        _exit(0);
    }
    int fd = null_fd(), bad = 0;
    for (int i = 0; i < 60; i++) {
        int rc = reg(fd);
        if (rc == -ENOTTY)
            continue;
        bad++;
        common->out[1] = rc;
    }
    common->stop = true;
    common->out[0] = bad;
    child_status(pid);
}

static void test_stopped(void)
{
    for (int killable = 0; killable < 2; killable++) {
        common_reset();
        m = (struct mini){.end_each = true};
        app_start(&a, app_stopped, killable);
        ok(mini_serve(&m, &a, 60), "a program that is stopped and continued all the time ends well");
        diag("%u injected, %u not, %u taken back", m.injected, m.failed, m.again);
        is_int(common->out[0], 0, "and has the right results");
        if (common->out[0])
            diag("but %d", (int)common->out[1]);
        mini_end(&m);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "again") == 0)
        _exit(reg(atoi(argv[2])) == -ENOTTY ? 0 : 97); /* skips LeakSanitizer, which would wait for the stub to stop */
    self = argv[0];
    bool wall = argc == 2 && strcmp(argv[1], "wall") == 0;
    if (wall)
        vb_inject_hold = VB_HOLD_WALL;
    int rc = vb_inject_possible();
    if (rc)
        tap_skip_all("%s", hw_error());
    test_one();
    test_outside();
    test_processes();
    test_threads();
    if (!wall) { /* these tests need a new stub per request; a wall allows only one */
        test_signals();
        test_stopped();
    }
    return tap_done();
}

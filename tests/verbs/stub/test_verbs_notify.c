/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the seccomp listener, access to other processes' memory, and a truncated answer of the tracer. */
#include "sys/pass.h"
#include "tests/proc.h"
#include "tests/tap.h"
#include "verbs/stub/lookup.h"
#include "verbs_stub.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct app a;

/* While `taken` is set, ioctl() (linked with --wrap) fails with ESRCH, as if a signal had interrupted the program's
 * call while a file descriptor was added. */
static bool taken;
int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
    if (!taken || request != SECCOMP_IOCTL_NOTIF_ADDFD)
        return __real_ioctl(fd, request, arg);
    errno = ESRCH;
    return -1;
}

static bool next(struct seccomp_notif *n)
{
    for (int i = 0; i < 2000; i++) {
        struct pollfd p = {.fd = a.listener, .events = POLLIN};
        if (poll(&p, 1, 10) > 0 && p.revents & POLLIN && vb_notify_next(a.listener, n) == 0)
            return true;
    }
    return false;
}

static void end(const char *what)
{
    int status = -1;
    for (int i = 0; i < 4000 && waitpid(a.pid, &status, WNOHANG) == 0; i++)
        usleep(5000);
    kill(a.pid, SIGKILL);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: the program ends well", what);
    hw_close(&a.listener);
}

static int64_t ask(int fd, uint64_t arg)
{
    long rc = syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, arg);
    return rc < 0 ? -errno : rc;
}

static void app_asks(void)
{
    int fd = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        common->out[i] = ask(fd, 7);
    common->out[3] = ask(fd, 7); /* adds a file descriptor with the requested number */
    common->out[4] = fcntl(200, F_GETFD);
    common->out[5] = ask(fd, 7); /* adds a file descriptor with any number, and returns the number */
    common->out[6] = common->out[5] >= 0 ? fcntl((int)common->out[5], F_GETFD) : -1;
    common->out[7] = ask(fd, 7);
    struct rlimit r = {64, 64};
    setrlimit(RLIMIT_NOFILE, &r);
    common->out[8] = ask(fd, 7);
}

static void test_answers(void)
{
    common_reset();
    app_start(&a, app_asks, true);
    struct seccomp_notif n;
    ok(next(&n), "a notification comes");
    is_int(n.pid, a.pid, "of the program");
    is_int(n.data.nr, SYS_ioctl, "about its call");
    is_int(n.data.args[2], 7, "with its arguments");
    ok(vb_notify_valid(a.listener, n.id), "it waits");
    ok(!vb_notify_valid(a.listener, n.id + 1), "no other does");
    is_int(vb_notify_answer(a.listener, n.id + 1, 0, 0), -ENOENT, "nor can be answered");
    is_int(vb_notify_answer(a.listener, n.id, 4711, 0), 0, "a value");
    ok(next(&n) && vb_notify_answer(a.listener, n.id, 99, -EDOM) == 0, "an error, negative");
    is_int(vb_notify_answer(a.listener, n.id, 0, 0), -ENOENT, "an answer too many is refused");
    ok(!vb_notify_valid(a.listener, n.id), "it waits no more");
    ok(next(&n) && vb_notify_answer(a.listener, n.id, 99, ERANGE) == 0, "an error, positive");

    int mine = memfd_create("given", MFD_CLOEXEC);
    ok(next(&n), "the next");
    is_int(vb_notify_give(a.listener, n.id, mine, 200, true, false), 200, "a descriptor at 200");
    is_int(vb_notify_answer(a.listener, n.id, 0, 0), 0, "answered apart");
    ok(next(&n), "the next");
    int at = vb_notify_give(a.listener, n.id, mine, -1, false, true);
    ok(at >= 0 && at < 200, "a descriptor at the lowest number, and the answer at once");
    is_int(vb_notify_answer(a.listener, n.id, 0, 0), -ENOENT, "which is the answer");
    is_int(vb_notify_give(a.listener, n.id, mine, -1, false, false), -ENOENT, "nothing is given to who has gone");
    ok(next(&n) && vb_notify_continue(a.listener, n.id) == 0, "let go on");
    ok(next(&n), "the next");
    is_int(vb_notify_give(a.listener, n.id, mine, 200, true, false), -EBADF, "no descriptor beyond its limit");
    ok(strstr(hw_error(), "limit") != NULL, "with the reason");
    vb_notify_answer(a.listener, n.id, 0, 0);
    close(mine);
    end("answers");
    is_int(common->out[0], 4711, "it got the value");
    is_int(common->out[1], -EDOM, "the error");
    is_int(common->out[2], -ERANGE, "the other");
    is_int(common->out[4], FD_CLOEXEC, "the descriptor, to be closed by exec");
    is_int(common->out[5], at, "the number of the other");
    is_int(common->out[6], 0, "not to be closed by exec");
    is_int(common->out[7], -ENOTTY, "and the kernel's own answer");
}

static void app_memory(void)
{
    char *p = mmap(NULL, 3 * 4096UL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p + 2 * 4096UL, 4096); /* no memory follows the second page */
    memset(p, 'x', 2 * 4096UL);
    strcpy(p, "short");
    p[2 * 4096UL - 1] = 0;
    common->out[0] = (int64_t)(uintptr_t)p;
    ask(0, 1);
}

static void test_memory(void)
{
    common_reset();
    app_start(&a, app_memory, true);
    struct seccomp_notif n;
    ok(next(&n), "a program with memory");
    pid_t tid = (pid_t)n.pid;
    uint64_t p = (uint64_t)common->out[0];
    char buf[3 * 4096], small[6];
    is_int(vb_mem_read(tid, p, buf, 2 * 4096UL), 0, "its two pages");
    ok(strcmp(buf, "short") == 0 && buf[4096] == 'x', "as they are");
    is_int(vb_mem_read(tid, p, buf, 2 * 4096UL + 1), -EFAULT, "not a byte more: all or nothing");
    is_int(vb_mem_read(tid, 16, buf, 1), -EFAULT, "nothing at 16");
    is_int(vb_mem_read(tid, UINT64_MAX - 7, buf, 16), -EFAULT, "nor at the end of all");
    is_int(vb_mem_read(tid, 16, buf, 0), 0, "no bytes are anywhere");
    is_int(vb_mem_string(tid, p, small, sizeof(small)), 0, "a string that just fits");
    is_str(small, "short", "is whole");
    is_int(vb_mem_string(tid, p, small, 5), -ENAMETOOLONG, "one that does not");
    is_int(vb_mem_string(tid, p + 6, buf, sizeof(buf)), 0, "one that ends with the memory");
    is_int((long)strlen(buf), 2 * 4096L - 7, "is whole, too");
    is_int(proc_write(tid, p + 2 * 4096UL - 1, "x", 1), 1, "(its last byte is changed)");
    is_int(vb_mem_string(tid, p + 6, buf, sizeof(buf)), -EFAULT, "it is none");
    is_int(vb_mem_string(tid, UINT64_MAX - 3, buf, sizeof(buf)), -EFAULT, "nor at the end of all");
    vb_notify_answer(a.listener, n.id, 0, 0);
    end("memory");
    is_int(vb_mem_read(tid, p, buf, 1), -ESRCH, "the dead have no memory");
}

static void on_signal(int sig)
{
    (void)sig;
}

/* Runs a program whose calls are constantly interrupted by signals. RECV may then find no call, although poll()
 * reported one. */
static void app_interrupted(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &sa, NULL);
    pid_t me = getpid(), pid = fork();
    if (pid == 0) {
        while (!common->stop && getppid() == me) {
            kill(me, SIGUSR1);
            usleep(100);
        }
        _exit(0);
    }
    while (!common->stop)
        common->out[ask(0, 1) == 5 ? 0 : 1]++;
    waitpid(pid, NULL, 0);
}

static void test_interrupted(void)
{
    common_reset();
    app_start(&a, app_interrupted, true);
    int answered = 0, late = 0, none = 0, other = 0, status;
    uint64_t deadline = hw_deadline(20000);
    while (waitpid(a.pid, &status, WNOHANG) == 0) {
        common->stop = (answered >= 100 && none >= 5) || hw_now() > deadline;
        struct pollfd p = {.fd = a.listener, .events = POLLIN};
        if (poll(&p, 1, 10) <= 0 || !(p.revents & POLLIN))
            continue;
        struct seccomp_notif n;
        if (answered % 2)
            usleep(300); /* time for a signal to arrive before RECV */
        int rc = vb_notify_next(a.listener, &n);
        none += rc == -EAGAIN;
        other += rc && rc != -EAGAIN;
        if (rc == 0) {
            rc = vb_notify_answer(a.listener, n.id, 5, 0);
            answered += rc == 0;
            late += rc != 0;
        }
    }
    diag("%d answered, %d gone before, %d too late", answered, none, late);
    ok(none > 0, "poll() announces calls that signals take");
    is_int(other, 0, "a call that a signal took is none, and no failure");
    is_int(late, 0, "one that is received cannot be taken any more (WAIT_KILLABLE_RECV)");
    is_int(common->out[0], answered, "each answer came");
    ok(common->out[1] > 0, "and the others failed");
    hw_close(&a.listener);
}

/* Tests an answer of the tracer that is truncated but carries a file descriptor, as after a bug or an attack. */
static void test_short_answer(void)
{
    struct vb_tracer t = {0};
    const struct vb_lookup q = {0};
    struct vb_found f;
    int pair[2], end[2], fd = -1;
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) || pipe2(end, O_CLOEXEC | O_NONBLOCK))
        return (void)ok(false, "descriptors for a tracer");
    t.sock = pair[0];
    is_int(hw_pass_send(pair[1], NULL, &byte, 1, &end[1], 1, 0), 0, "the tracer answers with a byte and a descriptor");
    is_int(vb_tracer_ask(&t, &q, -1, &f, &fd), -EIO, "the query fails");
    close(end[1]);
    ok(fd < 0 && read(end[0], &byte, 1) == 0, "the descriptor is closed");
    close(end[0]);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    test_answers();
    test_short_answer();
    test_memory();
    test_interrupted();
    common_reset();
    app_start(&a, app_asks, true);
    int rc = vb_notify_sync(a.listener);
    ok(rc == 0 || rc == -EINVAL, "synchronous wake-up: %s", rc ? hw_error() : "there");
    kill(a.pid, SIGKILL);
    waitpid(a.pid, NULL, 0);
    hw_close(&a.listener);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ok(vb_notify_sync(fd) < 0 && vb_notify_answer(fd, 1, 0, 0) < 0 && vb_notify_continue(fd, 1) < 0,
       "what is no listener is refused");
    taken = true;
    rc = vb_notify_give(fd, 1, fd, -1, true, false);
    ok(rc == -ENOENT, "a call that is taken back while a descriptor is given has gone: %s", hw_error());
    close(fd);
    return tap_done();
}

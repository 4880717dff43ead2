/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of a brokered call: round trips of a program under the real filter to a minimal broker. The device
 * is /dev/null, so only the round trip is measured. Usage: verbs_stub_bench [CALLS]. Prints the median for each of
 * these methods: "continue": the broker lets the call continue. "stub": the broker copies the request into the window,
 * has the stub run it, answers, and removes the device from the stub. "doorbell": the broker copies 32 bytes of a
 * write(), and writes them to a cached file descriptor, after kcmp() has confirmed that it is the program's file. Not a
 * test: the figures are meaningful only on an idle machine.
 */
#include "tests/verbs/stub/verbs_stub.h"
#include "tool/report/hist.h"
#include "verbs/agent/filter.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE  960 /* VB_FD_FIRST (verbs/broker/broker.h): a write() to it is a doorbell */
#define REQUEST 256 /* bytes of a request */

enum way { CONTINUE, STUB, DOORBELL };

static struct {
    atomic_int listener, taken, rc;
    struct hw_hist hist;
} * box;

static void *idle(void *arg)
{
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

/* Runs the program that makes the calls. */
static void program(enum way way, int threads, int calls)
{
    uint8_t request[REQUEST] = {1};
    int null = open("/dev/null", O_RDWR);
    bool killable;
    if (null < 0 || dup2(null, DEVICE) < 0)
        _exit(1);
    int fd = vb_filter_install(&killable);
    box->rc = fd < 0 ? fd : 0;
    box->listener = fd;
    while (!box->taken)
        usleep(100);
    for (int i = 1; i < threads; i++) {
        pthread_t t;
        pthread_create(&t, NULL, idle, NULL);
    }
    for (int i = -calls / 10; i < calls; i++) { /* negative for the warm-up, in which the stub is injected */
        uint64_t from = hw_now();
        if (way == DOORBELL ? write(DEVICE, request, 32) != 32
                            : ioctl(DEVICE, RDMA_VERBS_IOCTL, request) == 0 || errno != ENOTTY)
            _exit(2);
        if (i >= 0)
            hw_hist_add(&box->hist, hw_now() - from);
    }
    _exit(0);
}

struct broker {
    int listener, pidfd, cached;
    pid_t pid;
    struct vb_stub stub;
    bool has_stub;
    struct vb_tracer tracer;
};

static bool next(struct broker *b, struct seccomp_notif *n)
{
    struct pollfd p[2] = {{.fd = b->listener, .events = POLLIN}, {.fd = b->pidfd, .events = POLLIN}};
    do {
        if (poll(p, 2, 10000) <= 0 || p[1].revents)
            return false;
    } while (vb_notify_next(b->listener, n));
    return true;
}

static bool registers(struct broker *b, const struct seccomp_notif *n)
{
    struct vb_stub *s = &b->stub;
    struct seccomp_notif of;
    int64_t result;
    uint8_t copy[REQUEST];
    struct stat st;
    if (!b->has_stub) {
        b->has_stub = true;
        struct seccomp_notif again = {.id = 0};
        if (vb_tracer_start(&b->tracer, NULL, 0) || vb_inject(&b->tracer, s, b->listener, n))
            return false;
        for (int i = 0; i < 2; i++) { /* the stub's first call, and the program's repeated call */
            if (!next(b, &of) || ((pid_t)of.pid == s->tid && vb_stub_park(s, &of, &result) != 1))
                return false;
            if ((pid_t)of.pid != s->tid)
                again = of;
        }
        return registers(b, &again);
    }
    if (vb_mem_read((pid_t)n->pid, n->data.args[2], copy, sizeof(copy)) || !vb_notify_valid(b->listener, n->id))
        return false;
    int fd = (int)syscall(SYS_pidfd_getfd, b->pidfd, (int)n->data.args[0], 0);
    if (fd < 0 || fstat(fd, &st) || !vb_stub_serves(s, (pid_t)n->pid))
        return false;
    memcpy(s->mine + VB_WINDOW_CODE, copy, sizeof(copy));
    bool good = vb_stub_run(s, b->listener, fd) == 0 && next(b, &of) && vb_stub_park(s, &of, &result) == 1 &&
                vb_notify_answer(b->listener, n->id, 0, (int)result) == 0;
    if (good)
        vb_stub_clear(s, b->listener); /* may fail if this was the program's last call */
    close(fd);
    return good;
}

static bool rings(struct broker *b, const struct seccomp_notif *n)
{
    uint8_t copy[32];
    if (syscall(SYS_kcmp, getpid(), n->pid, KCMP_FILE, b->cached, DEVICE) != 0)
        return false;
    return vb_mem_read((pid_t)n->pid, n->data.args[1], copy, sizeof(copy)) == 0 &&
           write(b->cached, copy, sizeof(copy)) == sizeof(copy) && vb_notify_answer(b->listener, n->id, 32, 0) == 0;
}

/* Returns the median in microseconds, or a negative number on failure. */
static double run(enum way way, int threads, bool sync, int calls)
{
    memset((void *)box, 0, sizeof(*box));
    box->listener = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        program(way, threads, calls);
    while (box->listener == -1 && box->rc == 0)
        usleep(100);
    struct broker b = {.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    b.listener = (int)syscall(SYS_pidfd_getfd, b.pidfd, box->listener, 0);
    b.cached = (int)syscall(SYS_pidfd_getfd, b.pidfd, DEVICE, 0);
    if (sync && vb_notify_sync(b.listener))
        fprintf(stderr, "%s\n", hw_error());
    box->taken = 1;
    struct seccomp_notif n;
    bool good = true;
    while (good && next(&b, &n)) {
        if (way == CONTINUE)
            good = vb_notify_continue(b.listener, n.id) == 0;
        else
            good = way == STUB ? registers(&b, &n) : rings(&b, &n);
    }
    if (!good)
        fprintf(stderr, "broker: %s\n", hw_error());
    if (b.has_stub) {
        vb_stub_end(&b.stub, b.listener);
        vb_tracer_end(&b.tracer);
    }
    close(b.listener);
    close(b.cached);
    close(b.pidfd);
    if (!good)
        kill(pid, SIGKILL);
    int status = -1;
    waitpid(pid, &status, 0);
    return good && status == 0 ? (double)hw_hist_quantile(&box->hist, 0.5) / 1000 : -1;
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 20000, rc = vb_inject_possible();
    static const int threads[] = {1, 8, 64};
    if (rc || calls < 10) {
        fprintf(stderr, "%s\n", rc ? hw_error() : "verbs_stub_bench [CALLS]");
        return 1;
    }
    box = mmap(NULL, sizeof(*box), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    printf("median of %d calls, microseconds\n%-8s %10s %10s %10s %10s %10s\n", calls, "threads", "continue", "stub",
           "stub+sync", "doorbell", "doorb+sync");
    bool good = true;
    for (unsigned i = 0; i < HW_ARRAY_LEN(threads); i++) {
        double v[] = {run(CONTINUE, threads[i], false, calls), run(STUB, threads[i], false, calls),
                      run(STUB, threads[i], true, calls), run(DOORBELL, threads[i], false, calls),
                      run(DOORBELL, threads[i], true, calls)};
        printf("%-8d %10.1f %10.1f %10.1f %10.1f %10.1f\n", threads[i], v[0], v[1], v[2], v[3], v[4]);
        for (unsigned j = 0; j < HW_ARRAY_LEN(v); j++)
            good &= v[j] >= 0;
    }
    return good ? 0 : 1;
}

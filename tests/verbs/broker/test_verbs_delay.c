/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests pages that arrive late, like pages in a program's own file system (verbs_slow.h). If results are written to
 * such a page, only the stub waits. If a request is on such a page, the container's broker waits while it reads the
 * page, but can be killed; no other container waits. If a program is killed meanwhile, nothing is written to the next
 * process with the same process id.
 */
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/tap.h"
#include "verbs/stub/inject.h"
#include "verbs_slow.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL         "[default]\ndevices = *\n"
#define DEADLINE_MS 60000

/* --------------------------------------------------------------- programs */

static uint64_t memory[SLOW_PAGE] __attribute__((aligned(4096)));

/* Makes a few requests that must succeed. */
static int serve(int fd)
{
    for (int i = 0; i < 20; i++) {
        uint32_t pd, mr;
        must(app_pd(fd, &pd) == 0 && app_pd_free(fd, pd) == 0);
        must(app_reg_method(fd, memory, SLOW_PAGE, &mr) == 0 && app_dereg(fd, mr) == 0);
    }
    return 0;
}

static int serves(void *arg)
{
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && app_context(fd) == 0);
    return serve(fd);
}

static bool another_works(void)
{
    struct world w;
    world_start(&w, ALL, true, serves, NULL);
    int app = world_app(&w), end = world_end(&w);
    return app == 0 && end == 0;
}

/* ---------------------------------------------- results on a delayed page */

/* A thread with a request whose results are written to the delayed page. */
struct ask {
    pthread_t thread;
    int fd, rc;
    char *at;
    bool mr; /* the stub executes the request */
};

static void *ask(void *arg)
{
    struct ask *a = arg;
    struct ib_uverbs_alloc_pd in = {0};
    a->rc = a->mr ? app_reg(a->fd, memory, SLOW_PAGE, (struct ib_uverbs_reg_mr_resp *)a->at)
                  : app_write_cmd(a->fd, IB_USER_VERBS_CMD_ALLOC_PD, &in, sizeof in, a->at,
                                  sizeof(struct ib_uverbs_alloc_pd_resp));
    return NULL;
}

static uint32_t number_at(const char *at)
{
    uint32_t n;
    memcpy(&n, at, sizeof n);
    return n;
}

static uint32_t mr_at(const char *at)
{
    struct ib_uverbs_reg_mr_resp r;
    memcpy(&r, at, sizeof r);
    return r.mr_handle;
}

/* Step 1: a request waits for the page. Step 2: another process has been served. */
static int begin(struct ask *a, bool mr)
{
    int fd = app_open(0), st;
    *a = (struct ask){.fd = fd, .at = slow, .mr = mr};
    must(fd >= 0 && app_context(fd) == 0 && serve(fd) == 0);
    must(pthread_create(&a->thread, NULL, ask, a) == 0);
    app_step(1);
    pid_t child = fork();
    if (child == 0)
        _exit(serve(fd));
    must(waitpid(child, &st, 0) == child && st == 0);
    app_step(2);
    return 0;
}

static int results(void *arg)
{
    struct ask a, b;
    must(begin(&a, arg) == 0);
    b = (struct ask){.fd = a.fd, .at = slow + SLOW_PAGE, .mr = a.mr};
    must(pthread_create(&b.thread, NULL, ask, &b) == 0);
    must(pthread_join(a.thread, NULL) == 0 && pthread_join(b.thread, NULL) == 0 && a.rc == 0 && b.rc == 0);
    if (a.mr)
        must(app_dereg(a.fd, mr_at(a.at)) == 0 && app_dereg(a.fd, mr_at(b.at)) == 0);
    else
        must(app_pd_free(a.fd, number_at(a.at)) == 0 && app_pd_free(a.fd, number_at(b.at)) == 0);
    return serve(a.fd);
}

static bool is_waiting(struct world *w)
{
    bool waits = ok(world_until(w, 1) && slow_wanted(slow_fd), "results go to a page that does not come");
    fake->go = 1;
    bool served = ok(world_until(w, 2), "another process of the container is served meanwhile");
    return waits && served && ok(world_status(w, "stubs") >= 1, "and the status is told");
}

static void test_results(bool mr)
{
    struct world w;
    slow_start(&w, ALL, results, mr ? &w : NULL, true);
    diag("%s", mr ? "by the stub" : "by the broker");
    is_waiting(&w);
    is_int(fake->live, 1, "what was made is there");
    is_int(slow_let_go(0), 0, "the page comes");
    fake->go = 2;
    ok(slow_wanted(slow_fd), "the next one is waited for");
    is_int(slow_let_go(1), 0, "it comes");
    is_int(world_app(&w), 0, "the program has the results");
    is_int(fake->live, 0, "and has given up what was made");
    is_int(world_end(&w), 0, "the broker ends");
    hw_close(&slow_fd);
}

static int is_left(void *arg)
{
    struct ask a;
    uint32_t pd;
    must(begin(&a, arg) == 0);
    must(pthread_join(a.thread, NULL) == 0 && (a.rc == -EIO || a.rc == -ENOSYS));
    must(app_pd(a.fd, &pd) == -ENOSYS);
    return 0; /* the program exits, although the stub still waits */
}

static void test_stop(bool mr)
{
    struct world w;
    slow_start(&w, ALL, is_left, mr ? &w : NULL, true);
    is_waiting(&w);
    is_int(world_end(&w), 0, "the broker ends when it is told to");
    fake->go = 2;
    is_int(world_app(&w), 0, "and the program is told, and can end");
    hw_close(&slow_fd);
}

static int waits(void *arg)
{
    struct ask a;
    return begin(&a, arg);
}

static void test_killed(bool mr)
{
    struct world w;
    slow_start(&w, ALL, waits, mr ? &w : NULL, true);
    is_waiting(&w);
    kill(w.app, SIGKILL);
    is_int(world_app(&w), 128 + SIGKILL, "the program can be killed");
    is_int(world_end(&w), 0, "the broker ends with it");
    hw_close(&slow_fd);
}

/* ---------------------------------------------- a request on a delayed page */

enum { HEADER, ATTRS, INPUT, PATH, DOORBELL, PLACES };
static const char *const places[PLACES] = {"a header", "attributes", "an input", "a path", "a doorbell"};

static int stall(int fd, int place)
{
    struct ib_uverbs_reg_mr_resp r;
    long rc = -1;
    switch (place) {
    case HEADER:
        rc = syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, slow);
        break;
    case ATTRS: {
        struct vb_header h = {.length = sizeof h + sizeof(struct ib_uverbs_attr), .num_attrs = 1};
        memcpy(slow - sizeof h, &h, sizeof h);
        rc = syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, slow - sizeof h);
        break;
    }
    case INPUT:
        return app_write_cmd(fd, IB_USER_VERBS_CMD_REG_MR, slow, sizeof(struct ib_uverbs_reg_mr), &r, sizeof r);
    case PATH:
        rc = syscall(SYS_openat, AT_FDCWD, slow, O_RDWR);
        break;
    default:
        rc = dup2(fd, VB_FD_LAST) < 0 ? -1 : write(VB_FD_LAST, slow, 32);
    }
    return rc < 0 ? -errno : (int)rc;
}

static void *tell_wanted(void *arg)
{
    (void)arg;
    if (slow_wanted(slow_fd))
        fake->seen = 1;
    return NULL;
}

/* Tests a page that the program itself delays. After the program is killed, another process of the container is
 * served. */
static int stalls(void *arg)
{
    pthread_t t;
    int fd = app_open(0);
    must(fd >= 0 && app_context(fd) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(slow_fd);
        for (int ms = 0; ms < 2 * DEADLINE_MS && !fake->number[1]; ms++)
            usleep(1000);
        fake->number[2] = serve(fd) == 0 ? 1 : 2;
        _exit(0);
    }
    must(pthread_create(&t, NULL, tell_wanted, NULL) == 0);
    stall(fd, (int)(intptr_t)arg);
    return 1;
}

static void test_stall(int place)
{
    struct world w;
    slow_start(&w, ALL, stalls, (void *)(intptr_t)place, false);
    ok(world_until(&w, 1), "%s on a page that does not come: the broker waits", places[place]);
    ok(another_works(), "another container's does not");
    kill(w.app, SIGKILL);
    is_int(world_app(&w), 128 + SIGKILL, "the program can be killed");
    fake->number[1] = 1;
    for (int ms = 0; ms < DEADLINE_MS && !fake->number[2]; ms++)
        usleep(1000);
    is_int(fake->number[2], 1, "and the container's other process is served then");
    is_int(world_end(&w), 0, "the broker ends");
    while (waitpid(-1, NULL, 0) > 0) /* reaps the other process, an orphan that is now our child */
        ;
}

/* A thread with a request on a page that another process delays. */
struct staller {
    pthread_t thread;
    int fd, place, rc;
};

static void *stall_thread(void *arg)
{
    struct staller *s = arg;
    s->rc = stall(s->fd, s->place);
    return NULL;
}

static int survives(void *arg)
{
    struct staller s = {.fd = app_open(0), .place = (int)(intptr_t)arg};
    uint32_t pd;
    must(s.fd >= 0 && app_context(s.fd) == 0);
    must(pthread_create(&s.thread, NULL, stall_thread, &s) == 0);
    app_step(1);
    must(pthread_join(s.thread, NULL) == 0 && s.rc == -ENOSYS);
    must(app_pd(s.fd, &pd) == -ENOSYS && app_open(0) == -ENOSYS);
    return 0;
}

static void test_broker_killed(int place)
{
    struct world w;
    slow_start(&w, ALL, survives, (void *)(intptr_t)place, true);
    ok(world_until(&w, 1) && slow_wanted(slow_fd), "%s on a page that another process holds up", places[place]);
    ok(another_works(), "another container's broker does not wait");
    kill(w.broker, SIGKILL);
    is_int(world_end(&w), 128 + SIGKILL, "the broker can be killed");
    fake->go = 1;
    is_int(world_app(&w), 0, "the program's requests are ENOSYS from then on");
    hw_close(&slow_fd);
}

/* --------------------------------------------------- a reused process id */

#define MARK 0x5a
/* Target of the second output. In the victim, this is the victim's own data. */
static uint8_t target[SLOW_PAGE] __attribute__((aligned(4096)));

static int asks_and_dies(void *arg)
{
    uint32_t lkey, rkey;
    struct ib_uverbs_reg_mr_resp r;
    struct ib_uverbs_reg_mr in = {.length = SLOW_PAGE, .hca_va = 0x4242424242424242, .access_flags = 1};
    (void)arg;
    int fd = app_open(0);
    in.start = (uintptr_t)memory;
    must(fd >= 0 && app_context(fd) == 0);
    must(app_write_cmd(fd, IB_USER_VERBS_CMD_REG_MR, &in, sizeof in, &r, sizeof r) == 0);
    struct ib_uverbs_attr a[] = {
        {.attr_id = UVERBS_ATTR_QUERY_MR_HANDLE, .data = r.mr_handle},
        {.attr_id = UVERBS_ATTR_QUERY_MR_RESP_LKEY, .len = 4, .data = (uintptr_t)&lkey},
        {.attr_id = UVERBS_ATTR_QUERY_MR_RESP_RKEY, .len = 4, .data = (uintptr_t)&rkey},
        {.attr_id = UVERBS_ATTR_QUERY_MR_RESP_LENGTH, .len = 8, .data = (uintptr_t)slow},
        {.attr_id = UVERBS_ATTR_QUERY_MR_RESP_IOVA, .len = 8, .data = (uintptr_t)target},
    };
    for (unsigned i = 0; i < HW_ARRAY_LEN(a); i++)
        a[i].flags = UVERBS_ATTR_F_MANDATORY;
    fake->seen = 1;
    app_ioctl(fd, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, a, HW_ARRAY_LEN(a));
    return 1;
}

/* Forks a child with the given process id (include/uapi/linux/sched.h, struct clone_args, since Linux 5.5). */
static pid_t fork_as(pid_t pid)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size;
    } a = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
    fflush(NULL);
    return (pid_t)syscall(SYS_clone3, &a, sizeof a);
}

static int victim(void)
{
    unsigned other = 0;
    memset(target, MARK, sizeof target);
    fake->seen = 2;
    while (!fake->go)
        usleep(1000);
    for (unsigned i = 0; i < sizeof target; i++)
        other += target[i] != MARK;
    fake->number[3] = other;
    return other ? 1 : 0;
}

static void test_reuse(void)
{
    struct world w;
    int st = -1;
    slow_start(&w, ALL, asks_and_dies, NULL, true);
    pid_t pid = w.app;
    ok(world_until(&w, 1) && slow_wanted(slow_fd), "the first of two outputs goes to a page that does not come");
    kill(pid, SIGKILL);
    is_int(world_app(&w), 128 + SIGKILL, "the program is killed, and reaped");
    pid_t child = fork_as(pid);
    if (child == 0)
        _exit(prctl(PR_SET_PDEATHSIG, SIGKILL) || victim());
    ok(child == pid, "another process gets its number: %d", (int)child);
    while (child > 0 && fake->seen != 2)
        usleep(1000);
    slow_let_go(0); /* in case a request still waits for the page */
    is_int(world_end(&w), 0, "the broker has nothing more to do, and ends");
    fake->go = 1;
    ok(child > 0 && waitpid(child, &st, 0) == child && st == 0, "the other process's memory is as it was");
    if (st)
        diag("%ld bytes of it are others", (long)fake->number[3]);
    hw_close(&slow_fd);
}

/* Runs in a new PID namespace, so that no other process can get the process id, and a faulty broker cannot affect other
 * processes. The test itself stays outside: LeakSanitizer starts a thread at exit, which is impossible in a namespace
 * whose init has exited. */
static int reuse_main(void)
{
    int st = -1;
    if (unshare(CLONE_NEWPID | CLONE_NEWNS)) {
        tap_skip("a process id that is used again", strerror(errno));
        return tap_done();
    }
    pid_t init = fork();
    if (init == 0) {
        if (mount("proc", "/proc", "proc", 0, NULL))
            tap_skip("a process id that is used again", strerror(errno));
        else
            test_reuse();
        _exit(tap_done() | fflush(NULL));
    }
    return init > 0 && waitpid(init, &st, 0) == init && WIFEXITED(st) ? WEXITSTATUS(st) : 1;
}

int main(void)
{
    fake_start();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (vb_inject_possible())
        tap_skip_all("%s", hw_error());
    if (!slow_possible())
        tap_skip_all("userfaultfd: %s", strerror(errno));
    for (int mr = 0; mr < 2; mr++) {
        test_results(mr);
        test_stop(mr);
        test_killed(mr);
    }
    for (int place = 0; place < PLACES; place++) {
        test_stall(place);
        test_broker_killed(place);
    }
    int st = -1;
    fflush(NULL);
    pid_t last = fork(); /* this child continues the TAP numbering, and prints the plan */
    if (last == 0)
        _exit(reuse_main() | fflush(NULL));
    waitpid(last, &st, 0);
    fake_end();
    return WIFEXITED(st) ? WEXITSTATUS(st) : 1;
}

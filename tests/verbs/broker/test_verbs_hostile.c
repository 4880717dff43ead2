/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the verbs broker with hostile programs, and with programs that die. verbs_fake.c replaces the RDMA kernel. */
#include "base/sanitizers.h"
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Heap growth that is not treated as a leak. AddressSanitizer keeps freed memory for a while. */
#define GROWS_KIB (HW_ASAN ? 65536 : 256)

#define ALL "[default]\ndevices = *\n"

/* requests that change in flight */

/* The request that the flipping threads change: MODIFY_QP to port 1, which is allowed, or port 2, which is not. */
static struct flipped {
    struct vb_header hdr;
    struct ib_uverbs_attr attr[3];
    struct ib_uverbs_modify_qp in;
    uint64_t out;
} good;
static struct {
    struct flipped shared;
    char room[1 << 17]; /* memory for requests with changed lengths */
} common;

static atomic_bool flipping;

/* Repeatedly writes another value to a field of the request, and restores the correct value. */
static void *flip(void *arg)
{
    static const struct {
        size_t at, len;
        uint64_t other;
    } spots[] = {
        {offsetof(struct flipped, in.port_num), 1, 2},
        {offsetof(struct flipped, attr[1].data), 8, IB_USER_VERBS_CMD_ALLOC_PD},
        {offsetof(struct flipped, attr[1].data), 8, IB_USER_VERBS_EX_CMD_CREATE_FLOW | 0x80000000u},
        {offsetof(struct flipped, attr[0].data), 8, 0xffff888000000000ull},
        {offsetof(struct flipped, attr[0].len), 2, 0xffff},
        {offsetof(struct flipped, attr[2].data), 8, 16},
        {offsetof(struct flipped, attr[2].len), 2, 60000},
        {offsetof(struct flipped, attr[0].attr_id), 2, UVERBS_ATTR_CORE_OUT},
        {offsetof(struct flipped, attr[2].attr_id), 2, UVERBS_ATTR_UHW_OUT},
        {offsetof(struct flipped, attr[0].flags), 2, 0xff},
        {offsetof(struct flipped, hdr.num_attrs), 2, 60000},
        {offsetof(struct flipped, hdr.num_attrs), 2, 2},
        {offsetof(struct flipped, hdr.length), 2, 64},
        {offsetof(struct flipped, hdr.object_id), 2, UVERBS_OBJECT_FLOW},
        {offsetof(struct flipped, hdr.method_id), 2, UVERBS_METHOD_GET_CONTEXT},
        {offsetof(struct flipped, hdr.driver_id), 4, RDMA_DRIVER_MLX5},
        {offsetof(struct flipped, hdr.reserved1), 8, 1},
    };
    unsigned seed = (unsigned)(uintptr_t)arg;
    while (flipping) {
        size_t i = (seed = seed * 1103515245u + 12345u) / 65536 % HW_ARRAY_LEN(spots);
        if (i && seed & 1u << 30) /* mostly change the port: the request stays valid, but is forbidden */
            i = 0;
        for (int k = 0; k < 20; k++) {
            memcpy((char *)&common.shared + spots[i].at, &spots[i].other, spots[i].len);
            __asm__ volatile("" ::: "memory");
            memcpy((char *)&common.shared + spots[i].at, (char *)&good + spots[i].at, spots[i].len);
            __asm__ volatile("" ::: "memory");
        }
    }
    return NULL;
}

static int flips(void *arg)
{
    pthread_t t[2];
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0);
    good.in = (struct ib_uverbs_modify_qp){.attr_mask = 1u << 5, .port_num = 1}; /* IB_QP_PORT, ib_verbs.h */
    good.hdr = (struct vb_header){.length = sizeof good.hdr + sizeof good.attr,
                                  .object_id = UVERBS_OBJECT_DEVICE,
                                  .method_id = UVERBS_METHOD_INVOKE_WRITE,
                                  .num_attrs = 3,
                                  .driver_id = RDMA_DRIVER_RXE};
    good.attr[0] = (struct ib_uverbs_attr){
        .attr_id = UVERBS_ATTR_CORE_IN, .len = sizeof good.in, .flags = 1, .data = (uintptr_t)&common.shared.in};
    good.attr[1] = (struct ib_uverbs_attr){
        .attr_id = UVERBS_ATTR_WRITE_CMD, .len = 8, .flags = 1, .data = IB_USER_VERBS_CMD_MODIFY_QP};
    good.attr[2] = (struct ib_uverbs_attr){
        .attr_id = UVERBS_ATTR_CORE_OUT, .len = sizeof good.out, .flags = 1, .data = (uintptr_t)&common.shared.out};
    common.shared = good;
    flipping = true;
    for (uintptr_t i = 0; i < 2; i++)
        must(pthread_create(&t[i], NULL, flip, (void *)(i + 1)) == 0);
    for (int i = 0; i < 20000; i++) {
        long rc = syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, &common.shared);
        fake->number[rc == 0 ? 0 : errno == EPERM ? 1 : 2]++;
    }
    flipping = false;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return 0;
}

static void test_flips(void)
{
    struct world w;
    fake_reset();
    unsigned bad = 0, fine = 0, n;
    unsigned wrong = fake->wrong;
    world_start(&w, "[default]\ndevices = *\nports = 1\n", true, flips, NULL);
    is_int(world_app(&w), 0, "a request of which every field changes while it is looked at");
    n = HW_MIN(fake->ran, FAKE_OPS);
    for (unsigned i = 0; i < n; i++) {
        const struct fake_op *op = &fake->op[i];
        if (!op->taken)
            continue;
        bool port_one = op->object == UVERBS_OBJECT_DEVICE && op->method == UVERBS_METHOD_INVOKE_WRITE &&
                        op->command == IB_USER_VERBS_CMD_MODIFY_QP &&
                        op->in[offsetof(struct ib_uverbs_modify_qp, port_num)] == 1;
        bool harmless = (op->method == UVERBS_METHOD_INVOKE_WRITE && op->command == IB_USER_VERBS_CMD_ALLOC_PD) ||
                        op->method == UVERBS_METHOD_GET_CONTEXT;
        fine += port_one;
        bad += !port_one && !harmless;
        if (!port_one && !harmless && bad < 4)
            diag("object %u method %u command 0x%x port %u", op->object, op->method, op->command,
                 op->in[offsetof(struct ib_uverbs_modify_qp, port_num)]);
    }
    is_int(bad, 0, "what the kernel executed was what had been judged");
    ok(fake->wrong == wrong, "and well-formed");
    ok(fine && fake->number[1] && fake->number[2], "some ran (%ld), some were refused (%ld), some were nonsense (%ld)",
       (long)fake->number[0], (long)fake->number[1], (long)fake->number[2]);
    world_end(&w);
}

/* ---------------------------------------------------------------- signals */

static atomic_long rings;

static void on_alarm(int sig)
{
    (void)sig;
    rings++;
}

/* Creates and destroys PDs while signals arrive. arg: use SA_RESTART. A PD whose number does not reach the program is
 * lost. */
static int storm(void *arg)
{
    struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = arg ? SA_RESTART : 0};
    struct itimerval every = {{0, 1500}, {0, 1500}};
    uint32_t pd;
    int fd = app_open(0), rc;
    must(fd >= 0);
    must(sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    for (int i = 0; i < 150; i++) {
        while ((rc = app_pd(fd, &pd)) == -EINTR)
            fake->number[1]++;
        must(rc == 0);
        while ((rc = app_pd_free(fd, pd)) == -EINTR)
            fake->number[1]++;
        if (rc == -ENOENT)
            fake->number[2]++; /* the interrupted call had already freed the PD */
        else
            must(rc == 0);
    }
    memset(&every, 0, sizeof every);
    must(setitimer(ITIMER_REAL, &every, NULL) == 0);
    must(app_context(fd) == 0);
    fake->number[0] = rings;
    app_step(1);
    return 0;
}

static void test_storm(bool killable, bool restart)
{
    struct world w;
    fake_reset();
    fake->ms = 1;
    world_start(&w, ALL, killable, storm, restart ? &restart : NULL);
    bool done = world_until(&w, 1);
    ok(done, "%ld signals, %s, %s: every answer arrives", (long)fake->number[0],
       restart ? "calls restarted" : "calls interrupted", killable ? "held back while a request runs" : "at any time");
    /* If a signal arrives between the answer and the wakeup of the thread, the answer is lost, although the kernel
     * reports to the broker that the answer was delivered (in kernel/seccomp.c, seccomp_do_user_notification() checks
     * err before the state). The program then repeats the call, and the broker cannot distinguish the repeated call
     * from a new call. */
    const long lost = killable ? 0 : 3;
    ok(fake->number[2] <= lost && fake->live <= (unsigned)lost,
       "nothing was made that the program does not know of: %u; nothing freed twice: %ld", fake->live,
       (long)fake->number[2]);
    is_int(world_status(&w, "fake0.pd"), fake->live, "and what is there is counted");
    if (!killable)
        ok(world_status(&w, "redelivered") > 0, "answers that a signal had taken were given again: %ld",
           world_status(&w, "redelivered"));
    fake->go = 1;
    is_int(world_app(&w), 0, "the program sees nothing of it");
    world_end(&w);
}

/* Tests an interrupted call that the program does not repeat: the broker destroys the created object. */
static int forget(void *arg)
{
    struct sigaction sa = {.sa_handler = on_alarm};
    uint32_t pd;
    int fd = app_open(0), st;
    pid_t me = getpid();
    (void)arg;
    must(fd >= 0 && sigaction(SIGALRM, &sa, NULL) == 0);
    must(app_pd(fd, &pd) == 0 && app_pd_free(fd, pd) == 0); /* starts the stub */
    unsigned ran = fake->ran;
    fake->ms = 200;
    pid_t child = fork();
    if (child == 0) { /* while the kernel runs the next request */
        while (fake->ran == ran)
            usleep(500);
        _exit(kill(me, SIGALRM) != 0);
    }
    must(app_pd(fd, &pd) == -EINTR);
    fake->ms = 0;
    must(waitpid(child, &st, 0) == child && st == 0);
    must(app_context(fd) == 0);
    app_step(1);
    return 0;
}

static void test_forget(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, false, forget, NULL);
    ok(world_until(&w, 1), "a program that a signal took out of its call, and that calls for something else");
    is_int(fake->live, 0, "what had been made is destroyed");
    is_int(world_status(&w, "undone"), 1, "once");
    is_int(world_status(&w, "fake0.pd"), 0, "and not counted any more");
    fake->go = 1;
    is_int(world_app(&w), 0, "it goes on");
    world_end(&w);
}

/* -------------------------------------------------------------------- ends */

static int use(int device)
{
    uint32_t pd = 0, last = 0;
    int fd = app_open(device), ch;
    if (fd < 0)
        return fd;
    for (int i = 0; i < 8; i++) {
        if (app_pd(fd, &pd) || (i && app_pd_free(fd, last)))
            return -EIO;
        last = pd;
    }
    ch = app_channel(fd);
    if (ch < 0)
        return ch;
    return 0; /* leaves all files open */
}

static int lives(void *arg)
{
    int n = (int)(intptr_t)arg, st;
    app_step(1);
    for (int i = 0; i < n; i++) {
        if (i == 50)
            app_step(2); /* one-time growth is complete */
        pid_t child = fork();
        if (child == 0)
            _exit(use(i & 1) ? 1 : 0);
        must(waitpid(child, &st, 0) == child && st == 0);
    }
    app_step(3);
    return 0;
}

static void test_lives(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, lives, (void *)1000);
    world_until(&w, 1);
    world_status(&w, "opens");
    unsigned fds = world_fds(&w);
    fake->go = 1;
    world_until(&w, 2);
    world_becomes(&w, "fake0.opens", 0);
    long kb = world_kb(&w);
    fake->go = 2;
    ok(world_until(&w, 3), "1,000 programs come and go, with all that they have open");
    ok(world_becomes(&w, "fake0.opens", 0) && world_becomes(&w, "fake1.opens", 0), "nothing of them is left");
    is_int(world_status(&w, "opens"), 1000, "each had been there");
    is_int(world_fds(&w), fds, "no descriptor is left");
    long grown = world_kb(&w) - kb;
    ok(grown < GROWS_KIB, "nor memory: %ld KiB", grown);
    fake->go = 3;
    is_int(world_app(&w), 0, "the programs were content");
    is_int(world_end(&w), 0, "the broker too");
}

static int pairs(void *arg)
{
    uint32_t pd;
    int fd = app_open(0), ch;
    (void)arg;
    must(fd >= 0);
    for (int i = 0; i < 10000; i++) {
        if (i == 100)
            app_step(1);
        must(app_pd(fd, &pd) == 0 && app_pd_free(fd, pd) == 0);
        if (i % 16 == 0)
            must((ch = app_channel(fd)) >= 0 && close(ch) == 0);
    }
    app_step(2);
    return 0;
}

static void test_pairs(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, pairs, NULL);
    world_until(&w, 1);
    world_status(&w, "opens");
    unsigned fds = world_fds(&w);
    long kb = world_kb(&w);
    fake->go = 1;
    ok(world_until(&w, 2), "10,000 objects are made and destroyed");
    is_int(world_status(&w, "fake0.pd"), 0, "none is counted any more");
    is_int(fake->live, 0, "nor there");
    is_int(world_fds(&w), fds, "no descriptor is left");
    long grown = world_kb(&w) - kb;
    ok(grown < GROWS_KIB, "nor memory: %ld KiB", grown);
    fake->go = 2;
    is_int(world_app(&w), 0, "the program was content");
    world_end(&w);
}

/* Kills programs after varying times, so that they die in different steps. */
static int kills(void *arg)
{
    int st;
    uint32_t pd;
    (void)arg;
    for (unsigned i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (;;)
                use((int)i & 1);
        }
        usleep(i * 7 % 2500);
        must(kill(child, SIGKILL) == 0 && waitpid(child, &st, 0) == child);
    }
    int fd = app_open(0);
    must(fd >= 0 && app_pd(fd, &pd) == 0 && close(fd) == 0);
    app_step(1);
    return 0;
}

static void test_kills(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, kills, NULL);
    ok(world_until(&w, 1), "300 programs are killed at any moment");
    ok(world_becomes(&w, "fake0.opens", 0) && world_becomes(&w, "fake1.opens", 0), "nothing of them is left");
    is_int(world_status(&w, "fake0.pd"), 0, "no object");
    fake->go = 1;
    is_int(world_app(&w), 0, "another is served as ever");
    is_int(world_end(&w), 0, "and the broker ends in order");
}

static int orphan(void *arg)
{
    uint32_t pd;
    int fd = app_open(0);
    (void)arg;
    must(fd >= 0 && app_pd(fd, &pd) == 0);
    fake->ms = 60000;
    fake->seen = 1;
    must(app_pd(fd, &pd) == -ENOSYS); /* in flight when the broker dies */
    must(app_pd(fd, &pd) == -ENOSYS && app_open(0) == -ENOSYS && app_post(fd, 0) == -ENOSYS);
    return 0;
}

static void test_orphan(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, orphan, NULL);
    world_until(&w, 1);
    usleep(50000);
    kill(w.broker, SIGKILL);
    is_int(world_app(&w), 0, "a broker that is killed: its programs get ENOSYS, at once and from then on");
    world_end(&w);
}

/* --------------------------------------------------------------- doorbells */

static int bells(void *arg)
{
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0);
    must(app_post(fd, 0) == -EACCES); /* the program has not named the driver yet */
    must(app_context(fd) == 0);
    for (int i = 0; i < 1000; i++)
        must(app_post(fd, 0) == 32);
    must(app_post(fd, 1) == -EACCES); /* inline work requests contain memory addresses */
    struct {
        struct ib_uverbs_cmd_hdr hdr;
        struct ib_uverbs_req_notify_cq u;
    } q = {{IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, sizeof q / 4, 0}, {3, 0}};
    must(write(fd, &q, sizeof q) == sizeof q);
    q.hdr.in_words++;
    must(write(fd, &q, sizeof q) < 0 && errno == EACCES);
    q.hdr.in_words--;
    must(write(fd, &q, 4) < 0 && errno == EACCES);
    must(syscall(SYS_write, fd, &q, 4096) < 0 && errno == EACCES);
    q.hdr.command = IB_USER_VERBS_CMD_ALLOC_PD;
    must(write(fd, &q, sizeof q) < 0 && errno == EACCES);
    must(syscall(SYS_write, fd, 16, 32) < 0 && errno == EFAULT);
    fake->fail = -EINVAL;
    must(app_post(fd, 0) == -EINVAL);
    fake->fail = 0;
    /* other files with such descriptor numbers work as usual */
    int p[2];
    must(pipe(p) == 0 && dup2(p[1], VB_FD_LAST) == VB_FD_LAST);
    must(write(VB_FD_LAST, "x", 1) == 1 && close(VB_FD_LAST) == 0);
    must(write(VB_FD_LAST, "x", 1) < 0 && errno == EBADF);
    return 0;
}

static void test_bells(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, bells, NULL);
    is_int(world_app(&w), 0, "doorbells ring; all else that can be written is refused");
    unsigned posts = 0, others = 0;
    for (unsigned i = 0; i < HW_MIN(fake->ran, FAKE_OPS); i++) {
        uint32_t c = fake->op[i].command;
        posts += c == IB_USER_VERBS_CMD_POST_SEND;
        others += c != IB_USER_VERBS_CMD_POST_SEND && c != IB_USER_VERBS_CMD_REQ_NOTIFY_CQ && c != 0;
    }
    ok(posts >= 1000 && others == 0, "the kernel got those and no others: %u", posts);
    world_end(&w);
}

int main(void)
{
    fake_start();
    test_flips();
    test_storm(true, true);
    test_storm(false, true);
    test_storm(false, false);
    test_forget();
    test_bells();
    test_orphan();
    test_kills();
    test_pairs();
    test_lives();
    fake_end();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests a program whose seccomp filter answers the stub's system calls instead of the kernel: RET_ERRNO takes
 * precedence over USER_NOTIF, so the stub's next call reports the filter's return value as the result of the previous
 * call. Regardless of this value, the program never gets more than its quota, and the broker's accounts match the
 * simulated kernel.
 */
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/tap.h"
#include "verbs/stub/inject.h"
#include "verbs_queues.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB    (1u << 20)
#define POLICY "[default]\ndevices = *\nmr_bytes = 1M\nmax_mrs = 4\nallow = raw xrc\n"
#define ONE    "[default]\ndevices = *\nmr_bytes = 1M\nmax_mrs = 1\n"
#define QUEUES "[default]\ndevices = *\nmax_cqs = 3\nmax_qps = 3\nmax_srqs = 3\nmax_wqs = 3\nallow = raw xrc\n"

/* Indices of fake->number[]: the maximum number of the program's MRs and their maximum total size, then the numbers of
 * successful and failed requests. */
enum { MOST, MOST_BYTES, GOOD, BAD };

static uint64_t memory[MIB / 8] __attribute__((aligned(4096)));

/* Stores the address of page n at the start of the page, where the simulated kernel expects the address when it pins
 * the page. Returns the address. */
static uint64_t page(unsigned n)
{
    uint64_t *p = memory + (size_t)n * 512;
    *p = (uintptr_t)p;
    return *p;
}

/* --------------------------------------------------------------- filters */

#define ARG(i) ((uint32_t)offsetof(struct seccomp_data, args[i]))

/* Selects the stub's calls that the filter answers: system calls nr on file descriptor fd. The low 32 bits of argument
 * arg must contain any of the given bits or, if `equal` is set, be equal to `bits`. `not` inverts the test of the
 * argument. */
struct forgery {
    const char *what;
    uint32_t nr, fd, arg, action;
    bool equal;
    uint32_t bits;
    bool not ;
    bool late; /* install the filter with TSYNC after the stub has started, not before */
};

static int add_filter(const struct forgery *f)
{
    const uint8_t hit = f->not ? 1 : 0;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, f->nr, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG(0)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, f->fd, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, f->arg),
        BPF_JUMP(BPF_JMP | (f->equal ? BPF_JEQ : BPF_JSET) | BPF_K, f->bits, hit, !hit),
        BPF_STMT(BPF_RET | BPF_K, f->action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {HW_ARRAY_LEN(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -errno;
    long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, f->late ? SECCOMP_FILTER_FLAG_TSYNC : 0, &p);
    return rc > 0 ? -EBUSY : rc < 0 ? -errno : 0; /* positive: a thread with a different filter */
}

#define STUB    SYS_ioctl, VB_STUB_FD
#define COPY    SYS_pread64, VB_STUB_FILE
#define NUMBER  ARG(4) /* number of the stub's call */
#define RESULT  ARG(5) /* result of the previous call */
#define SAYS(e) (SECCOMP_RET_ERRNO | (e))

/* Most forgeries are tested twice: with a filter installed before the stub starts, and with a TSYNC filter. */
static const struct forgery forgeries[] = {
    {"even calls are answered: EIO", STUB, NUMBER, SAYS(EIO), false, 1, true, false},
    {"even calls, by TSYNC", STUB, NUMBER, SAYS(EIO), false, 1, true, true},
    {"odd calls are answered: EIO", STUB, NUMBER, SAYS(EIO), false, 1, false, false},
    {"odd calls, by TSYNC", STUB, NUMBER, SAYS(EIO), false, 1, false, true},
    {"odd calls are answered: 0", STUB, NUMBER, SAYS(0), false, 1, false, true},
    {"a success becomes EIO", STUB, RESULT, SAYS(EIO), true, 0, false, false},
    {"a success becomes EIO, by TSYNC", STUB, RESULT, SAYS(EIO), true, 0, false, true},
    {"a failure becomes a success", STUB, RESULT, SAYS(0), false, 1u << 31, false, false},
    {"a failure becomes a success, by TSYNC", STUB, RESULT, SAYS(0), false, 1u << 31, false, true},
};

/* ---------------------------------------------------------------- counts */

/* Index of the first file of the simulated kernel that belongs to the world. */
static unsigned first_file;

static unsigned kernel_has(enum vb_type t)
{
    unsigned n = 0;
    for (unsigned i = first_file; i < fake->n_files; i++)
        for (unsigned k = 0; k < FAKE_NUMBERS; k++)
            n += fake->file[i % FAKE_FILES].type[k] == t;
    return n;
}

static void start(struct world *w, enum rdma_driver_id driver, const char *policy, int (*fn)(void *), const void *arg)
{
    fake_reset();
    fake->driver = driver;
    first_file = fake->n_files;
    world_start(w, policy, true, fn, (void *)(uintptr_t)arg);
}

static void note_most(int rc)
{
    fake->number[MOST] = HW_MAX(fake->number[MOST], (long)fake->live);
    fake->number[MOST_BYTES] = HW_MAX(fake->number[MOST_BYTES], (long)fake->mr_bytes);
    fake->number[rc ? BAD : GOOD]++;
}

static void is_exact(const struct world *w, const char *what)
{
    static const struct {
        const char *key;
        enum vb_type type;
    } types[] = {{"fake0.mr", VB_MR},   {"fake0.cq", VB_CQ}, {"fake0.qp", VB_QP},
                 {"fake0.srq", VB_SRQ}, {"fake0.wq", VB_WQ}, {"fake0.pd", VB_PD}};
    bool same = true;
    for (unsigned i = 0; i < HW_ARRAY_LEN(types); i++) {
        long counted = world_status(w, types[i].key);
        if (counted != (long)kernel_has(types[i].type)) {
            diag("%s: %ld, and the kernel has %u", types[i].key, counted, kernel_has(types[i].type));
            same = false;
        }
    }
    long bytes = world_status(w, "fake0.mr_bytes");
    ok(same && bytes == fake->mr_bytes, "%s: the accounts (%ld bytes) are what the kernel has, %u objects, %ld bytes",
       what, bytes, (unsigned)fake->live, (long)fake->mr_bytes);
}

static void is_over(struct world *w, int step)
{
    fake->go = step;
    is_int(world_app(w), 0, "the program was content");
    is_int(world_end(w), 0, "the broker ends");
}

/* ------------------------------------------------------------------- MRs */

static int reg(int fd, unsigned i, uint64_t length)
{
    struct ib_uverbs_reg_mr_resp r;
    uint32_t number;
    int rc = i & 1 ? app_reg_method(fd, memory, length, &number) : app_reg(fd, memory, length, &r);
    note_most(rc);
    return rc;
}

static int forges_mrs(void *arg)
{
    const struct forgery *f = arg;
    static const uint64_t lengths[] = {4096, MIB / 4, 4096, MIB};
    uint32_t number;
    int fd = app_open(0);
    must(fd >= 0);
    if (f->late)
        must(app_reg_method(fd, memory, 4096, &number) == 0 && app_dereg(fd, number) == 0);
    must(add_filter(f) == 0);
    for (unsigned i = 0; i < 48; i++)
        reg(fd, i, lengths[i / 2 % HW_ARRAY_LEN(lengths)]);
    app_step(1);
    /* enlarge existing MRs, then try to shrink them, which the kernel refuses */
    for (uint32_t i = 0; i < 12; i++) {
        note_most(app_rereg(fd, i, REREG_TRANS, page(1), MIB / 2, 0));
        note_most(app_rereg(fd, i, REREG_TRANS, page(1) + 8, 4096, 0));
        reg(fd, i, MIB / 2);
    }
    app_step(2);
    for (uint32_t i = 0; i < 64; i++)
        app_dereg(fd, i);
    must(fake->live == 0);
    app_step(3);
    return 0;
}

static void test_mrs(const struct forgery *f)
{
    struct world w;
    start(&w, RDMA_DRIVER_RXE, POLICY, forges_mrs, f);
    ok(world_until(&w, 1), "48 MRs, and %s", f->what);
    ok(fake->number[MOST] >= 1 && fake->number[MOST] <= 4 && fake->number[MOST_BYTES] <= MIB,
       "there are %ld at most, %ld bytes at most (%ld requests succeeded, %ld did not)", (long)fake->number[MOST],
       (long)fake->number[MOST_BYTES], (long)fake->number[GOOD], (long)fake->number[BAD]);
    is_exact(&w, "after that");
    fake->go = 1;
    ok(world_until(&w, 2), "all of them become larger");
    ok(fake->number[MOST] <= 4 && fake->number[MOST_BYTES] <= MIB, "as far as the quota goes: %ld, %ld bytes",
       (long)fake->number[MOST], (long)fake->number[MOST_BYTES]);
    is_exact(&w, "after that");
    fake->go = 2;
    ok(world_until(&w, 3), "each is destroyed");
    is_exact(&w, "at the end");
    is_over(&w, 3);
}

/* Tests a failed change that the filter reports as a success. The quota must not regain the memory that the change
 * would have released. */
static int shrinks(void *arg)
{
    static const struct forgery lie = {"", STUB, RESULT, SAYS(0), false, 1u << 31, false, true};
    struct ib_uverbs_reg_mr_resp r;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && app_reg(fd, memory, MIB, &r) == 0 && add_filter(&lie) == 0);
    for (unsigned i = 0; i < 8; i++) {
        fake->number[5] = app_rereg(fd, r.mr_handle, REREG_TRANS, page(1) + 8, 4096, 0);
        reg(fd, i, MIB / 2);
    }
    app_step(1);
    must(app_dereg(fd, r.mr_handle) == 0 && reg(fd, 0, MIB) == 0);
    app_step(2);
    return 0;
}

static void test_shrinks(void)
{
    struct world w;
    start(&w, RDMA_DRIVER_RXE, POLICY, shrinks, NULL);
    ok(world_until(&w, 1), "an MR that becomes smaller, which the kernel refuses");
    diag("the program is told %s", hw_errno_name((int)fake->number[5]));
    is_int(fake->number[MOST_BYTES], MIB, "is as large as it was");
    is_exact(&w, "after that");
    fake->go = 1;
    ok(world_until(&w, 2), "once it is destroyed there is room for another");
    is_exact(&w, "after that");
    is_over(&w, 2);
}

/* ---------------------------------------------------------------- queues */

static int forges_queues(void *arg)
{
    const struct forgery *f = arg;
    uint32_t number, token[2];
    int fd = app_open(0);
    union app_uhw good = app_uhw_at(page(1), page(2)), bad = app_uhw_at(page(1), page(2) + 8);
    must(fd >= 0);
    if (f->late)
        must(app_queues[0].make(fd, -1, &good, &number, token) == 0 &&
             app_queue_destroy(fd, UVERBS_OBJECT_CQ, number) == 0);
    must(add_filter(f) == 0);
    for (unsigned i = 0; i < 6; i++)
        for (const struct app_queue *q = app_queues; q < app_queues + APP_QUEUES; q++) {
            note_most(q->make(fd, -1, &good, &number, token));
            note_most(q->make(fd, -1, &bad, &number, token));
        }
    app_step(1);
    for (const struct app_queue *q = app_queues; q < app_queues + APP_QUEUES; q++)
        for (uint32_t i = 0; i < 96; i++)
            app_queue_destroy(fd, q->object, i);
    must(fake->live == 0);
    app_step(2);
    return 0;
}

static void test_queues(const struct forgery *f)
{
    struct world w;
    start(&w, RDMA_DRIVER_MLX5, QUEUES, forges_queues, f);
    ok(world_until(&w, 1), "queues of mlx5, and %s", f->what);
    unsigned cq = kernel_has(VB_CQ), qp = kernel_has(VB_QP), srq = kernel_has(VB_SRQ), wq = kernel_has(VB_WQ);
    ok(fake->number[MOST] >= 1 && cq <= 3 && qp <= 3 && srq <= 3 && wq <= 3,
       "there are %u CQs, %u QPs, %u SRQs, %u WQs (%ld requests succeeded, %ld did not)", cq, qp, srq, wq,
       (long)fake->number[GOOD], (long)fake->number[BAD]);
    is_exact(&w, "after that");
    fake->go = 1;
    ok(world_until(&w, 2), "each is destroyed");
    is_exact(&w, "at the end");
    is_over(&w, 2);
}

/* ---------------------------------------------------------------- copies */

static const struct forgery copies[] = {
    {"no result is copied: EFAULT", COPY, ARG(2), SAYS(EFAULT), true, UINT32_MAX, true, false},
    {"no result is copied: EFAULT, by TSYNC", COPY, ARG(2), SAYS(EFAULT), true, UINT32_MAX, true, true},
    {"no result is copied: a count of 0", COPY, ARG(2), SAYS(0), true, UINT32_MAX, true, true},
    {"the first result alone is copied", COPY, ARG(3), SAYS(EFAULT), true, VB_REPLY_AT, true, true},
    {"the first result is not copied: EINTR", COPY, ARG(3), SAYS(EINTR), true, VB_REPLY_AT, false, true},
};

static int loses_results(void *arg)
{
    const struct forgery *f = arg;
    struct ib_uverbs_reg_mr_resp r;
    uint32_t number, token[2];
    union app_uhw u = app_uhw_at(page(1), page(2));
    int fd = app_open(0);
    must(fd >= 0);
    if (f->late)
        must(app_pd(fd, &number) == 0 && app_pd_free(fd, number) == 0);
    must(add_filter(f) == 0);
    for (unsigned i = 0; i < 8; i++) {
        must(app_pd(fd, &number) == -EFAULT);
        must(app_reg(fd, memory, MIB, &r) == -EFAULT);
        must(app_reg_method(fd, memory, MIB, &number) == -EFAULT);
        for (const struct app_queue *q = app_queues; q < app_queues + APP_QUEUES; q++)
            must(q->make(fd, -1, &u, &number, token) == -EFAULT);
    }
    app_step(1);
    return 0;
}

static void test_copies(const struct forgery *f)
{
    struct world w;
    start(&w, RDMA_DRIVER_MLX5, POLICY "max_pds = 1\nmax_cqs = 1\nmax_qps = 1\nmax_srqs = 1\nmax_wqs = 1\n",
          loses_results, f);
    ok(world_until(&w, 1), "%s: each request is EFAULT", f->what);
    is_int(fake->live, 0, "nothing is left of what they made");
    is_int(world_status(&w, "undone"), 8 * (3 + APP_QUEUES), "which was all destroyed");
    is_exact(&w, "after that");
    is_over(&w, 1);
}

/* ---------------------------------------------------- stubs that are killed */

/* The stub dies after it has run a request and copied the results, or while it copies results. TRAP kills the program.
 * TRACE without a tracer returns ENOSYS, as if the broker had exited. */
static const struct forgery deaths[] = {
    {"RET_KILL_THREAD", STUB, NUMBER, SECCOMP_RET_KILL_THREAD, false, 4, false, false},
    {"RET_KILL_THREAD, by TSYNC", STUB, NUMBER, SECCOMP_RET_KILL_THREAD, false, 4, false, true},
    {"RET_KILL_PROCESS", STUB, NUMBER, SECCOMP_RET_KILL_PROCESS, false, 4, false, false},
    {"RET_TRAP", STUB, NUMBER, SECCOMP_RET_TRAP, false, 4, false, false},
    {"RET_TRACE", STUB, NUMBER, SECCOMP_RET_TRACE, false, 4, false, false},
    {"ENOSYS", STUB, NUMBER, SAYS(ENOSYS), false, 4, false, true},
    {"RET_USER_NOTIF without a listener", STUB, NUMBER, SECCOMP_RET_USER_NOTIF, false, 4, false, true},
    {"RET_KILL_THREAD as a result is copied", COPY, ARG(2), SECCOMP_RET_KILL_THREAD, true, UINT32_MAX, true, false},
    {"RET_TRAP as a result is copied", COPY, ARG(2), SECCOMP_RET_TRAP, true, UINT32_MAX, true, false},
};

static int dies(int fd, const struct forgery *f)
{
    uint32_t number;
    if (f->late && (app_pd(fd, &number) || app_pd_free(fd, number)))
        return 1;
    if (add_filter(f))
        return 2;
    for (unsigned i = 0; i < 12; i++)
        reg(fd, i, MIB / 8);
    return 0;
}

static int kills_stubs(void *arg)
{
    const struct forgery *f = arg;
    uint32_t number;
    int fd = app_open(0), st;
    must(fd >= 0 && app_context(fd) == 0);
    for (unsigned i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(dies(fd, f));
        must(waitpid(child, &st, 0) == child);
        must(WIFEXITED(st) ? WEXITSTATUS(st) == 0 : WTERMSIG(st) == SIGSYS);
        fake->number[WIFEXITED(st) ? 4 : 5]++;
    }
    app_step(1);
    for (uint32_t i = 0; i < 256; i++)
        app_dereg(fd, i);
    must(fake->live == 0);
    for (unsigned i = 0; i < 4; i++)
        must(app_reg_method(fd, memory, MIB / 4, &number) == 0);
    must(app_reg_method(fd, memory, 4096, &number) == -ENOMEM);
    app_step(2);
    return 0;
}

static void test_deaths(const struct forgery *f)
{
    struct world w;
    start(&w, RDMA_DRIVER_RXE, POLICY, kills_stubs, f);
    ok(world_until(&w, 1), "stubs of children end by %s", f->what);
    diag("%ld children were told, %ld were killed; %ld requests succeeded, %ld did not", (long)fake->number[4],
         (long)fake->number[5], (long)fake->number[GOOD], (long)fake->number[BAD]);
    ok(world_becomes(&w, "stubs", 0), "none is left");
    ok(fake->number[BAD] + fake->number[5] > 0 && fake->live <= 4 && fake->mr_bytes <= MIB, "there are %u MRs",
       (unsigned)fake->live);
    is_exact(&w, "after that");
    fake->go = 1;
    ok(world_until(&w, 2), "the parent has all of the quota, and no more");
    is_exact(&w, "at the end");
    is_over(&w, 2);
}

/* The filter answers all calls of the program's stubs, even the first, so only the child waits. */
static const struct forgery never[] = {
    {"RET_KILL_THREAD", STUB, NUMBER, SECCOMP_RET_KILL_THREAD, true, UINT32_MAX, true, false},
    {"EIO", STUB, NUMBER, SAYS(EIO), true, UINT32_MAX, true, false},
    {"EIO, by TSYNC", STUB, NUMBER, SAYS(EIO), true, UINT32_MAX, true, true},
};

static int has_no_stub(void *arg)
{
    uint32_t number;
    int fd = app_open(0), st;
    must(fd >= 0 && app_context(fd) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(dies(fd, arg));
    for (unsigned i = 0; i < 200; i++)
        must(app_reg_method(fd, memory, MIB / 4, &number) == 0 && app_dereg(fd, number) == 0);
    app_step(1);
    must(kill(child, SIGKILL) == 0 && waitpid(child, &st, 0) == child);
    app_step(2);
    return 0;
}

static void test_never(const struct forgery *f)
{
    struct world w;
    start(&w, RDMA_DRIVER_RXE, POLICY, has_no_stub, f);
    ok(world_until(&w, 1), "a process whose stubs never come to call (%s) holds up no other", f->what);
    fake->go = 1;
    ok(world_until(&w, 2) && world_becomes(&w, "stubs", 1), "it can be killed");
    is_exact(&w, "after that");
    is_over(&w, 2);
}

/* Tests a stub that is killed while the kernel runs its request. The kernel then reports that nothing was created. The
 * broker releases the request's reservation immediately. If the broker cannot query the kernel at that time, it
 * releases the reservation as soon as a later request needs the quota. Here, this is a request of another process with
 * the same context. */
static int hangs(void *arg)
{
    uint32_t number;
    struct ib_uverbs_reg_mr_resp r;
    int fd = app_open(0), st;
    bool deaf = arg; /* the kernel does not answer when the stub exits */
    must(fd >= 0 && app_context(fd) == 0 && app_reg_method(fd, memory, 4096, &number) == 0 &&
         app_dereg(fd, number) == 0);
    for (unsigned i = 0; i < 4; i++) {
        fake->fail = -EIO;
        fake->number[FAKE_MODE] = HANGS;
        fake->seen = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(app_reg(fd, memory, MIB, &r) ? 1 : 2);
        while (!fake->seen)
            usleep(1000);
        fake->number[FAKE_MODE] = RUNS;
        if (!deaf)
            fake->fail = 0;
        must(kill(child, SIGKILL) == 0 && waitpid(child, &st, 0) == child);
        app_step(2 * (int)i + 2);
        fake->fail = 0;
        must(app_reg_method(fd, memory, MIB, &number) == 0);
        must(app_dereg(fd, number) == 0);
        fake->go = 0;
    }
    app_step(10);
    return 0;
}

static void test_hangs(bool deaf)
{
    struct world w;
    start(&w, RDMA_DRIVER_RXE, ONE, hangs, deaf ? &w : NULL);
    for (int i = 0; i < 4; i++) {
        int step = 2 * i + 2;
        ok(world_until(&w, step) && world_becomes(&w, "stubs", 1), "a stub is killed while its request runs");
        ok(world_status(&w, "fake0.mr") == deaf && world_status(&w, "fake0.mr_bytes") == (deaf ? MIB : 0),
           deaf ? "its MR may be there" : "its MR is not there, and not counted");
        fake->go = step;
    }
    ok(world_until(&w, 10), "each time there is room for another process's MR");
    is_exact(&w, "at the end");
    is_over(&w, 10);
}

int main(void)
{
    fake_start();
    if (vb_inject_possible())
        tap_skip_all("%s", hw_error());
    for (unsigned i = 0; i < HW_ARRAY_LEN(forgeries); i++)
        test_mrs(&forgeries[i]);
    test_shrinks();
    for (unsigned i = 0; i < HW_ARRAY_LEN(forgeries); i++)
        test_queues(&forgeries[i]);
    for (unsigned i = 0; i < HW_ARRAY_LEN(copies); i++)
        test_copies(&copies[i]);
    for (unsigned i = 0; i < HW_ARRAY_LEN(deaths); i++)
        test_deaths(&deaths[i]);
    for (unsigned i = 0; i < HW_ARRAY_LEN(never); i++)
        test_never(&never[i]);
    test_hangs(false);
    test_hangs(true);
    fake_end();
    return tap_done();
}

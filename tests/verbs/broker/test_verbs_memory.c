/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory registered through the verbs broker, with real programs, and the real stub with its window and system
 * calls. There is no RDMA kernel, so verbs_fake_stub.c simulates the effect of a call on the window's bytes. */
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/tap.h"
#include "verbs/stub/inject.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL "[default]\ndevices = *\nmr_bytes = 1M\n"
#define MIB (1u << 20)

static char memory[4 * MIB] __attribute__((aligned(4096)));

/* --------------------------------------------------------- normal operation */

static int basics(void *arg)
{
    struct ib_uverbs_reg_mr_resp r, r2;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0);
    must(app_reg(fd, memory, 8192, &r) == 0);
    must(r.lkey == r.mr_handle + 1 && r.rkey == r.mr_handle + 2);
    must(app_reg(fd, memory + MIB, 4096, &r2) == 0 && r2.mr_handle != r.mr_handle);
    app_step(1);
    must(app_dereg(fd, r.mr_handle) == 0 && app_dereg(fd, r2.mr_handle) == 0);
    must(app_dereg(fd, r.mr_handle) == -ENOENT);
    app_step(2);
    must(app_reg(fd, memory, 2 * MIB, &r) == -ENOMEM); /* refused by the policy */
    fake->fail = -EPERM;
    must(app_reg(fd, memory, 4096, &r) == -EPERM); /* refused by the kernel */
    fake->fail = 0;
    for (int i = 0; i < 4; i++)
        must(app_reg(fd, memory, MIB / 4, &r) == 0);
    must(app_reg(fd, memory, 4096, &r2) == -ENOMEM);
    must(app_dereg(fd, r.mr_handle) == 0 && app_reg(fd, memory, 4096, &r2) == 0);
    /* the program cannot receive the answer, and the kernel would have undone the registration */
    struct ib_uverbs_reg_mr in = {.start = (uintptr_t)memory, .length = 4096, .hca_va = (uintptr_t)memory};
    must(app_write_cmd(fd, IB_USER_VERBS_CMD_REG_MR, &in, sizeof in, (void *)16, 12) == -EFAULT);
    app_step(3);
    /* destroyed MRs do not count, although the stub's table still holds the device */
    must(close(fd) == 0 && (fd = app_open(0)) >= 0 && app_reg(fd, memory, MIB, &r) == 0);
    must(close(fd) == 0);
    app_step(4);
    fake->number[FAKE_MODE] = REAL; /* /dev/null answers like the real kernel */
    must((fd = app_open(0)) >= 0);
    must(app_reg(fd, memory, 4096, &r) == -ENOTTY);
    return 0;
}

static void test_basics(void)
{
    struct world w;
    fake_reset();
    unsigned wrong = fake->wrong;
    world_start(&w, ALL, true, basics, NULL);
    ok(world_until(&w, 1), "memory is registered");
    is_int(world_status(&w, "fake0.mr"), 2, "and counted");
    is_int(world_status(&w, "fake0.mr_bytes"), 12288, "with its bytes");
    is_int(world_status(&w, "stubs"), 1, "by one stub");
    fake->go = 1;
    ok(world_until(&w, 2), "and given up");
    is_int(world_status(&w, "fake0.mr_bytes"), 0, "none is left");
    fake->go = 2;
    world_until(&w, 3);
    is_int(world_status(&w, "fake0.mr_bytes"), 3 * MIB / 4 + 4096, "limits are kept, failures cost nothing");
    is_int(world_status(&w, "fake0.mr_bytes"), fake->mr_bytes, "as the kernel counts");
    fake->go = 3;
    ok(world_until(&w, 4) && world_becomes(&w, "fake0.mr_bytes", 0), "all of it goes with the open");
    fake->go = 4;
    is_int(world_app(&w), 0, "a stub's error is the program's");
    is_int(fake->wrong, wrong, "no request of the broker's was wrong");
    is_int(world_end(&w), 0, "the broker ends");
}

/* Tests the REG_MR method of newer kernels, and that each DEREG_MR releases the full quota. */
static int by_method(void *arg)
{
    uint32_t number, other;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0);
    must(app_reg_method(fd, memory + 4096, MIB / 2 + 1, &number) == 0); /* partial pages count as whole pages */
    app_step(1);
    must(app_reg_method(fd, memory, MIB / 2, &other) == -ENOMEM);
    must(app_dereg(fd, number) == 0);
    for (int i = 0; i < 1000; i++)
        must(app_reg_method(fd, memory, MIB, &number) == 0 && app_dereg(fd, number) == 0);
    must(app_dereg(fd, number) == -ENOENT);
    app_step(2);
    return 0;
}

static void test_by_method(void)
{
    struct world w;
    fake_reset();
    unsigned wrong = fake->wrong;
    world_start(&w, ALL, true, by_method, NULL);
    ok(world_until(&w, 1), "memory is registered by the method of Linux 6.17");
    is_int(world_status(&w, "fake0.mr_bytes"), MIB / 2 + 4096, "and counted");
    fake->go = 1;
    ok(world_until(&w, 2), "1,000 times all that the policy has, one after the other");
    is_int(world_status(&w, "fake0.mr_bytes"), 0, "all of it is given back");
    is_int(fake->mr_bytes, 0, "as the kernel counts");
    is_int(fake->wrong, wrong, "no request of the broker's was wrong");
    fake->go = 2;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
}

/* Tests that the broker counts each refusal of a request outside the schema, but audits only the first refusal. */
static int refusals(void *arg)
{
    struct ib_uverbs_attr none = {.attr_id = 0, .flags = UVERBS_ATTR_F_MANDATORY};
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0);
    for (int i = 0; i < 10; i++)
        must(app_ioctl(fd, UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_DESTROY, &none, 1) == -EOPNOTSUPP);
    app_step(1);
    return 0;
}

static void test_refusals(void)
{
    struct world w;
    char id[64];
    unsigned lines = 0;
    fake_reset();
    world_start(&w, ALL, true, refusals, NULL);
    ok(world_until(&w, 1), "a command that is refused ten times");
    ok(world_status(&w, "refused") == 10 && world_status(&w, "fake0.refused") == 10, "counts ten times");
    snprintf(id, sizeof id, "\"%s\"", w.id);
    for (const char *p = world_audit(); (p = strstr(p, id)); p++)
        lines++;
    is_int(lines, 1, "and is audited once");
    fake->go = 1;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
}

/* ------------------------------------------------------ threads, processes */

static int shared_fd;

static void *registers(void *arg)
{
    struct ib_uverbs_reg_mr_resp r;
    int n = (int)(intptr_t)arg;
    for (int i = 0; i < n; i++) {
        if (app_reg(shared_fd, memory, 4096, &r) || app_dereg(shared_fd, r.mr_handle))
            return memory;
    }
    return NULL;
}

static int clone_vm(void *arg)
{
    (void)arg;
    return registers((void *)3) ? 1 : 0;
}

static int processes(void *arg)
{
    pthread_t t[8];
    void *no;
    int st;
    struct ib_uverbs_reg_mr_resp r;
    (void)arg;
    must((shared_fd = app_open(0)) >= 0);
    for (int i = 0; i < 8; i++)
        must(pthread_create(&t[i], NULL, registers, (void *)100) == 0);
    for (int i = 0; i < 8; i++)
        must(pthread_join(t[i], &no) == 0 && !no);
    must(!registers((void *)10000));
    app_step(1);
    pid_t child = fork();
    if (child == 0) {
        int rc = registers((void *)10) ? 1 : 0;
        app_step(2);
        _exit(rc);
    }
    must(waitpid(child, &st, 0) == child && st == 0);
    app_step(3);
    /* a process that shares this process's memory */
    static char stack[65536] __attribute__((aligned(16)));
    child = clone(clone_vm, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    must(child > 0 && waitpid(child, &st, 0) == child && st == 0);
    app_step(4);
    /* A process whose first thread exits without exit_group(). The stub must not keep the process alive. */
    child = fork();
    if (child == 0) {
        if (registers((void *)1))
            _exit(1);
        syscall(SYS_exit, 0);
    }
    must(waitpid(child, &st, 0) == child && st == 0);
    /* a process that is killed while its stub runs a request */
    fake->number[FAKE_MODE] = HANGS;
    fake->seen = 0;
    child = fork();
    if (child == 0)
        _exit(app_reg(shared_fd, memory, 4096, &r) ? 1 : 0);
    for (int i = 0; i < 30000 && !fake->seen; i++)
        usleep(1000);
    must(kill(child, SIGKILL) == 0 && waitpid(child, &st, 0) == child);
    fake->number[FAKE_MODE] = RUNS;
    must(!registers((void *)10));
    app_step(5);
    must(close(shared_fd) == 0);
    app_step(6);
    return 0;
}

/* Returns the number of the broker's file descriptors once the broker is idle. An idle broker prepares a spare window
 * and mount, and briefly keeps a device open. */
static unsigned still_fds(const struct world *w)
{
    unsigned n = world_fds(w), same = 0;
    for (int i = 0; i < 500 && same < 10; i++) {
        usleep(20000);
        unsigned is = world_fds(w);
        same = is == n ? same + 1 : 0;
        n = is;
    }
    return n;
}

static void test_processes(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, processes, NULL);
    ok(world_until(&w, 1), "threads register, and 10,000 times one of them");
    is_int(fake->live, 0, "what they gave up is gone");
    is_int(world_status(&w, "fake0.mr_bytes"), 0, "and not counted");
    is_int(world_status(&w, "stubs"), 1, "it took one stub");
    unsigned fds = still_fds(&w);
    fake->go = 1;
    ok(world_until(&w, 2), "a child registers");
    is_int(world_status(&w, "stubs"), 2, "with a stub of its own");
    fake->go = 2;
    ok(world_until(&w, 3) && world_becomes(&w, "stubs", 1), "which goes with it");
    is_int(still_fds(&w), fds, "and leaves no descriptor");
    fake->go = 3;
    ok(world_until(&w, 4), "a process that shares memory registers");
    is_int(world_status(&w, "stubs"), 1, "by the same stub");
    fake->go = 4;
    ok(world_until(&w, 5), "a program that only its stub would keep ends; one dies in the midst of it; others go on");
    ok(world_becomes(&w, "stubs", 1), "stubs end with their programs");
    is_int(world_status(&w, "fake0.mr_bytes"), 4096, "what may have been made stays counted");
    fake->go = 5;
    ok(world_until(&w, 6) && world_becomes(&w, "fake0.mr_bytes", 0), "until its open ends");
    is_int(still_fds(&w), fds, "no descriptor is left");
    fake->go = 6;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
}

/* ---------------------------------------------------------------- attacks */

static atomic_bool harming;

/* While `forging` is set, overwrites the start of the window's writable part with the number of another MR. */
static atomic_bool forging;
static atomic_uint victim;
static void *forge(void *arg)
{
    char line[512];
    uint32_t *at = NULL;
    (void)arg;
    while (harming && !at) {
        FILE *f = fopen("/proc/self/maps", "re");
        while (f && fgets(line, sizeof line, f)) {
            unsigned long from;
            if (strstr(line, "hawser-verbs-results") && strstr(line, "rw-s") && sscanf(line, "%lx-", &from) == 1)
                at = (uint32_t *)from; // NOLINT(performance-no-int-to-ptr)
        }
        if (f)
            fclose(f);
    }
    fake->number[4] = 1;
    while (harming) {
        /* leave the first three words unchanged */
        for (unsigned k = 3; k < 64 && forging; k++)
            __atomic_store_n(&at[k], victim, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Alternates the length between 1 TiB and the correct value. */
static struct ib_uverbs_reg_mr changing;
static void *stretch(void *arg)
{
    (void)arg;
    while (harming) {
        __atomic_store_n(&changing.length, 1ull << 40, __ATOMIC_RELAXED);
        __atomic_store_n(&changing.length, 4096, __ATOMIC_RELAXED);
    }
    return NULL;
}

static int harm(void *arg)
{
    pthread_t t[2];
    struct ib_uverbs_reg_mr_resp r;
    (void)arg;
    int fd = app_open(0), rc;
    must(fd >= 0);
    changing = (struct ib_uverbs_reg_mr){.start = (uintptr_t)memory, .length = 4096, .hca_va = (uintptr_t)memory};
    harming = true;
    must(pthread_create(&t[0], NULL, stretch, NULL) == 0);
    for (int i = 0; i < 3000 || (i < 100000 && (!fake->number[0] || !fake->number[1])); i++) {
        rc = app_write_cmd(fd, IB_USER_VERBS_CMD_REG_MR, &changing, sizeof changing, &r, sizeof r);
        must(rc == 0 || rc == -ENOMEM);
        fake->number[rc ? 1 : 0]++;
        if (!rc)
            must(app_dereg(fd, r.mr_handle) == 0);
    }
    harming = false;
    pthread_join(t[0], NULL);
    app_step(1);
    harming = true;
    must(pthread_create(&t[1], NULL, forge, NULL) == 0);
    while (!fake->number[4])
        usleep(1000);
    for (int i = 0; i < 4000 && fake->number[3] < 20; i++) {
        struct ib_uverbs_reg_mr_resp small;
        if (app_reg(fd, memory, 4096, &small))
            break; /* the quota is used up */
        victim = small.mr_handle;
        forging = true;
        rc = app_reg(fd, memory, MIB / 16, &r);
        forging = false;
        must(rc == 0 || rc == -ENOMEM);
        fake->number[2] += rc == 0;
        fake->number[3] += rc == 0 && r.mr_handle == small.mr_handle;
        app_dereg(fd, small.mr_handle); /* its length is still that of the small MR */
        if (rc == 0 && r.mr_handle != small.mr_handle)
            app_dereg(fd, r.mr_handle);
        if (fake->mr_bytes > MIB)
            return 2;
    }
    harming = false;
    pthread_join(t[1], NULL);
    app_step(2);
    must(close(fd) == 0);
    app_step(3);
    return 0;
}

static void test_harm(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, harm, NULL);
    world_until(&w, 1);
    ok(fake->number[0] && fake->number[1], "a length that grows while it is looked at: %ld ran, %ld were refused",
       (long)fake->number[0], (long)fake->number[1]);
    unsigned long_ones = 0;
    for (unsigned i = 0; i < HW_MIN(fake->ran, FAKE_OPS); i++) {
        struct ib_uverbs_reg_mr in;
        memcpy(&in, fake->op[i].in, sizeof in);
        long_ones += fake->op[i].command == IB_USER_VERBS_CMD_REG_MR && in.length != 4096;
    }
    is_int(long_ones, 0, "none ran with the other length");
    is_int(world_status(&w, "fake0.mr_bytes"), 0, "nor is it counted");
    fake->go = 1;
    bool done = world_until(&w, 2);
    ok(done, "a program that writes another number into its results: %ld of %ld", (long)fake->number[3],
       (long)fake->number[2]);
    ok(fake->number[3] > 0, "some arrive");
    ok(world_status(&w, "fake0.mr_bytes") >= fake->mr_bytes, "it is never counted too low: %ld, and there are %ld",
       world_status(&w, "fake0.mr_bytes"), (long)fake->mr_bytes);
    fake->go = 2;
    ok(world_until(&w, 3) && world_becomes(&w, "fake0.mr_bytes", 0), "and all of it goes with the open");
    fake->go = 3;
    is_int(world_app(&w), 0, "it never had more than its limit");
    is_int(world_end(&w), 0, "the broker ends");
}

int main(void)
{
    fake_start();
    if (vb_inject_possible())
        tap_skip_all("%s", hw_error());
    test_basics();
    test_by_method();
    test_refusals();
    test_processes();
    test_harm();
    fake_end();
    return tap_done();
}

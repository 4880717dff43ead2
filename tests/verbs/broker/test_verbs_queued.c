/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a REREG_MR that waits for the stub while a late page delays the stub. Meanwhile, requests that need no stub, or
 * requests of another process, change the state that the broker checked and reserved. Also tests MRs that are destroyed
 * before their creator receives their number. */
#include "tests/tap.h"
#include "verbs/stub/inject.h"
#include "verbs_queues.h"
#include "verbs_slow.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB    (1u << 20)
#define POLICY "[default]\ndevices = *\nmr_bytes = 1M\n"

static uint64_t memory[MIB / 8] __attribute__((aligned(4096)));

static uint64_t page(unsigned n)
{
    uint64_t *p = memory + (size_t)n * 512;
    *p = (uintptr_t)p;
    return *p;
}

#define ROUNDS 3

struct ask {
    pthread_t thread;
    int fd, rc;
    char *at;
    uint32_t number;
    uint64_t length;
};

static void *holds(void *arg)
{
    struct ask *a = arg;
    struct ib_uverbs_alloc_pd in = {0};
    a->rc =
        app_write_cmd(a->fd, IB_USER_VERBS_CMD_ALLOC_PD, &in, sizeof in, a->at, sizeof(struct ib_uverbs_alloc_pd_resp));
    return NULL;
}

static void *reregs(void *arg)
{
    struct ask *a = arg;
    a->rc = app_rereg(a->fd, a->number, REREG_TRANS, page(1), a->length, 0);
    return NULL;
}

/* Registers small MRs until one has the given number. Returns 0 or -errno. */
static int take_number(int fd, uint32_t number)
{
    uint32_t other;
    for (unsigned i = 0; i < 2 * FAKE_NUMBERS; i++) {
        int rc = app_reg_method(fd, memory, SLOW_PAGE, &other);
        if (rc || other == number)
            return rc;
        must(app_dereg(fd, other) == 0);
    }
    return -ENOENT;
}

/* Destroys n MRs, and gives their numbers to small MRs. Then registers an MR that uses up the remaining quota. */
static int replaces(const struct ask *a, unsigned n)
{
    uint32_t all = 0;
    for (unsigned i = 0; i < n; i++)
        must(app_dereg(a[i].fd, a[i].number) == 0);
    int rc = 0;
    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = take_number(a[i].fd, a[i].number);
    fake->number[1] = rc ? rc : app_reg_method(a->fd, memory, MIB - n * SLOW_PAGE, &all);
    fake->number[2] = all;
    return 0;
}

static int replaced(void *arg)
{
    struct ask a[ROUNDS + 1] = {{.fd = app_open(0), .length = MIB}};
    int st;
    (void)arg;
    must(a->fd >= 0 && app_context(a->fd) == 0 && app_reg_method(a->fd, memory, MIB, &a->number) == 0);
    for (unsigned n = 1; n <= ROUNDS; n++) {
        struct ask hold = {.fd = a->fd, .at = slow + (n - 1) * SLOW_PAGE};
        must(pthread_create(&hold.thread, NULL, holds, &hold) == 0);
        app_step(4 * (int)n - 3);
        for (unsigned i = 0; i < n; i++)
            must(pthread_create(&a[i].thread, NULL, reregs, &a[i]) == 0);
        app_step(4 * (int)n - 2);
        pid_t child = fork();
        if (child == 0)
            _exit(replaces(a, n));
        must(waitpid(child, &st, 0) == child && st == 0);
        app_step(4 * (int)n - 1);
        must(pthread_join(hold.thread, NULL) == 0 && hold.rc == 0);
        for (unsigned i = 0; i < n; i++)
            must(pthread_join(a[i].thread, NULL) == 0);
        a[n] = (struct ask){.fd = a->fd, .number = (uint32_t)fake->number[2], .length = MIB - n * SLOW_PAGE};
        app_step(4 * (int)n);
        if (fake->number[1])
            break;
    }
    return 0;
}

static void test_replaced(void)
{
    struct world w;
    slow_start(&w, POLICY, replaced, NULL, true);
    for (int n = 1; n <= ROUNDS; n++) {
        ok(world_until(&w, 4 * n - 3) && slow_wanted(slow_fd), "a stub is held up");
        long requests = world_status(&w, "requests");
        fake->go = 4 * n - 3;
        ok(world_until(&w, 4 * n - 2) && world_becomes(&w, "requests", requests + n),
           "REREG_MRs of the same size wait for it");
        fake->go = 4 * n - 2;
        ok(world_until(&w, 4 * n - 1), "their MRs are destroyed, and small ones are to get their numbers");
        diag("%s", hw_errno_name((int)fake->number[1]));
        ok(fake->mr_bytes <= MIB, "there are %ld bytes", (long)fake->mr_bytes);
        is_int(slow_let_go((unsigned)n - 1), 0, "the stub goes on");
        fake->go = 4 * n - 1;
        ok(world_until(&w, 4 * n), "the REREG_MRs have run, or have not");
        ok(fake->mr_bytes <= MIB, "there are %ld bytes still, %u at most are allowed", (long)fake->mr_bytes, MIB);
        is_int(world_status(&w, "fake0.mr_bytes"), fake->mr_bytes, "which are counted");
        fake->go = 4 * n;
        if (fake->number[1]) /* the quota was used up */
            break;
    }
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
    hw_close(&slow_fd);
}

/* ------------------- an MR that is destroyed before its creator knows its number */

static atomic_uint next_number;
static atomic_bool guessing;

static void *guesses(void *arg)
{
    const struct ask *a = arg;
    while (guessing)
        fake->number[1] += app_dereg(a->fd, next_number) == 0;
    return NULL;
}

static int guessed(void *arg)
{
    struct ask a = {.fd = app_open(0)};
    uint32_t number = 0;
    (void)arg;
    must(a.fd >= 0 && app_context(a.fd) == 0);
    must(app_reg_method(a.fd, memory, MIB, &number) == 0 && app_dereg(a.fd, number) == 0);
    guessing = true;
    must(pthread_create(&a.thread, NULL, guesses, &a) == 0);
    for (unsigned i = 0; i < 4000; i++) {
        next_number = (number + 1) % FAKE_NUMBERS;
        if (app_reg_method(a.fd, memory, MIB, &number) == 0)
            app_dereg(a.fd, number);
        else
            fake->number[2]++;
    }
    guessing = false;
    must(pthread_join(a.thread, NULL) == 0);
    must(fake->live == 0);
    app_step(1);
    usleep(1100000); /* VB_RECONCILE_SOON_NS */
    fake->number[3] = app_reg_method(a.fd, memory, MIB, &number);
    app_step(2);
    return 0;
}

static void test_guessed(void)
{
    struct world w;
    fake_reset();
    world_start(&w, POLICY, true, guessed, NULL);
    ok(world_until(&w, 1), "MRs are destroyed by numbers that are guessed");
    diag("%ld of them; %ld were not made; %ld are counted, %ld bytes", (long)fake->number[1], (long)fake->number[2],
         world_status(&w, "fake0.mr"), world_status(&w, "fake0.mr_bytes"));
    fake->go = 1;
    ok(world_until(&w, 2), "after a second");
    is_int(fake->number[3], 0, "there is room for all of the quota again");
    fake->go = 2;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
}

int main(void)
{
    fake_start();
    if (vb_inject_possible())
        tap_skip_all("%s", hw_error());
    if (!slow_possible())
        tap_skip_all("userfaultfd: %s", strerror(errno));
    test_replaced();
    test_guessed();
    fake_end();
    return tap_done();
}

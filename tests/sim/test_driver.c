/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the driver with waiting callers, with and without the driver's thread, and with polling callers: posted tasks
 * run, and waiting callers are notified. */
#include "core/driver.h"
#include "tests/tap.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAITERS 4
#define ROUNDS  100
#define LIMIT   (5000 * HW_MS)

static struct hw_driver driver;

struct waiter {
    struct hw_task task; /* sets done */
    atomic_bool done;
    pthread_t thread;
    bool late;
};

static bool is_done(void *arg)
{
    const struct waiter *w = arg;
    return atomic_load(&w->done);
}

static void set_done(struct hw_task *t)
{
    struct waiter *w = hw_container_of(t, struct waiter, task);
    atomic_store(&w->done, true);
    hw_driver_notify(&driver);
}

static void *run_waiter(void *arg)
{
    struct waiter *w = arg;
    w->late = !hw_driver_wait(&driver, is_done, w, hw_now() + LIMIT);
    return NULL;
}

/* Lets all waiters wait. Sets half of them done from this thread, and posts tasks that set the others done. */
static int run_round(unsigned round)
{
    static struct waiter w[WAITERS]; /* a late task may still run */
    int late = 0;
    memset(w, 0, sizeof w);
    for (unsigned i = 0; i < WAITERS; i++) {
        w[i].task.run = set_done;
        if (pthread_create(&w[i].thread, NULL, run_waiter, &w[i]) != 0)
            abort();
    }
    usleep(round % 4 * 100);
    for (unsigned i = 0; i < WAITERS / 2; i++)
        atomic_store(&w[i].done, true);
    hw_driver_notify(&driver);
    usleep(round % 3 * 50);
    for (unsigned i = WAITERS / 2; i < WAITERS; i++) {
        bool begun = i % 2 && hw_driver_begin(&driver, hw_now());
        hw_loop_post(&driver.loop, &w[i].task);
        if (begun)
            hw_driver_end(&driver);
    }
    for (unsigned i = 0; i < WAITERS; i++) {
        pthread_join(w[i].thread, NULL);
        late += w[i].late;
    }
    return late;
}

static void set_done_silently(struct hw_task *t)
{
    atomic_store(&hw_container_of(t, struct waiter, task)->done, true);
}

/* Lets the first waiter lead and leave. The second waiter, which is then told to lead, leaves too. The third waiter has
 * to take over the lead. */
static bool pass_lead_on(void)
{
    static struct waiter w[3] = {[0].task.run = set_done_silently, [2].task.run = set_done};
    for (unsigned i = 0; i < 3; i++) {
        if (pthread_create(&w[i].thread, NULL, run_waiter, &w[i]) != 0)
            abort();
        while (atomic_load(&driver.asleep) == 0 || atomic_load(&driver.followers) < i)
            usleep(100); /* makes the waiters arrive in this order */
    }
    atomic_store(&w[1].done, true);
    hw_loop_post(&driver.loop, &w[0].task);
    pthread_join(w[0].thread, NULL);
    hw_loop_post(&driver.loop, &w[2].task);
    pthread_join(w[2].thread, NULL);
    pthread_join(w[1].thread, NULL);
    return !w[2].late;
}

/* Posts a task while no caller is waiting. */
static bool run_alone(unsigned round)
{
    static struct waiter all[ROUNDS];
    struct waiter *w = &all[round];
    w->task.run = set_done;
    if (round % 2) { /* makes the thread pause for a moment */
        static struct waiter before[ROUNDS];
        before[round].task.run = set_done;
        hw_loop_post(&driver.loop, &before[round].task);
        (void)hw_driver_wait(&driver, is_done, &before[round], hw_now() + LIMIT);
    }
    hw_loop_post(&driver.loop, &w->task);
    for (uint64_t end = hw_now() + LIMIT; !atomic_load(&w->done) && hw_now() < end;)
        usleep(50);
    return !atomic_load(&w->done);
}

/* Lets a caller arrive while the thread is in epoll_wait(), and notifies the caller twice. The second notification
 * wakes the thread, which may get the events before the caller does. */
static bool run_beside_thread(unsigned round)
{
    struct waiter w = {0};
    usleep(2000); /* the thread no longer expects a caller */
    uint64_t began = hw_now();
    if (pthread_create(&w.thread, NULL, run_waiter, &w) != 0)
        abort();
    usleep(200 + round % 10 * 50);
    atomic_store(&w.done, true);
    hw_driver_notify(&driver);
    hw_driver_notify(&driver);
    pthread_join(w.thread, NULL);
    return hw_now() - began > LIMIT / 2;
}

/* callers that poll */

#define POLLS 1000
#define TRIES 20

static struct hw_driver two[2];

/* The tasks of a polling caller. */
static struct poll {
    struct hw_task task, next, more;
    struct hw_driver *driver;
    pthread_t by;
    size_t bytes;
    atomic_bool done, all_done;
} poll;

static void set_poll_done(struct hw_task *t)
{
    struct poll *p = hw_container_of(t, struct poll, task);
    p->by = pthread_self();
    p->driver->loop.moved[0] += p->bytes;
    hw_loop_post(&p->driver->loop, &p->next);
    hw_loop_post_late(&p->driver->loop, &p->more);
    atomic_store(&p->done, true);
}

static void do_nothing(struct hw_task *t)
{
    (void)t;
}

static void set_all_done(struct hw_task *t)
{
    atomic_store(&hw_container_of(t, struct poll, more)->all_done, true);
}

static bool is_poll_done(void *arg)
{
    return atomic_load(&((struct poll *)arg)->done);
}

/* Polls until all tasks of the last poll_once() have run, so that no other thread accesses them any more. */
static void poll_until_all_done(void)
{
    for (uint64_t end = hw_now() + LIMIT; !atomic_load(&poll.all_done) && hw_now() < end;)
        hw_driver_poll(poll.driver, NULL, NULL);
}

/* Posts a task without waking a thread, and polls until the task has run. */
static void poll_once(struct hw_driver *d, size_t bytes)
{
    poll_until_all_done();
    poll.driver = d;
    poll.bytes = bytes;
    atomic_store(&poll.done, false);
    atomic_store(&poll.all_done, false);
    hw_driver_defer(d, HW_SOON);
    hw_loop_post(&d->loop, &poll.task);
    hw_driver_defer(d, HW_NOW);
    for (uint64_t end = hw_now() + LIMIT; !atomic_load(&poll.done) && hw_now() < end;)
        hw_driver_poll(d, is_poll_done, &poll);
    if (!atomic_load(&poll.done))
        abort(); /* the task has not run */
}

/* Returns how many times the thread with this name has slept, or -1 if this process has no such thread. */
static long count_sleeps(const char *name)
{
    char path[300], line[100];
    long n = -1;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        bool is = f && fgets(line, sizeof line, f) && strstr(line, name);
        while (is && fgets(line, sizeof line, f))
            (void)sscanf(line, "voluntary_ctxt_switches: %ld", &n);
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Tests that tasks posted by a task in a caller's turn run in the same turn, and hardly ever wake the thread. */
static bool wakes_no_thread(void)
{
    for (int i = 0; i < 100; i++)
        poll_once(&two[0], 0);
    long before = count_sleeps("poll/0");
    uint64_t began = hw_now();
    for (int i = 0; i < POLLS; i++) {
        poll_once(&two[0], 0);
        for (uint64_t end = hw_now() + HW_MS / 20;
             hw_now() < end;) /* this gives the thread enough time to wake and to sleep again */
            hw_driver_poll(&two[0], NULL, NULL);
    }
    long slept = count_sleeps("poll/0") - before, naps = (long)((hw_now() - began) / (HW_MS / 4));
    if (slept > POLLS / 10 + 2 * naps)
        diag("the thread slept %ld times, and has %ld naps", slept, naps);
    return before >= 0 && slept <= POLLS / 10 + 2 * naps;
}

/* Lets a caller poll another driver once the caller has its result. This poll has to run the caller's remaining work
 * before the thread checks for it (after at least 250 us). Returns how many times this took longer than 200 us. */
static int count_left_behind(void)
{
    int left = 0;
    for (int i = 0; i < POLLS; i++) {
        poll_once(&two[0], 0);
        uint64_t began = hw_now();
        while (!atomic_load(&poll.all_done) && hw_now() < began + LIMIT)
            hw_driver_poll(&two[1], NULL, NULL);
        left += hw_now() - began > HW_MS / 5;
    }
    return left;
}

/* Lets a caller return at once and post an urgent task, which also runs the caller's remaining work. Returns how many
 * times the thread had already run that work. */
static int count_gone_early(void)
{
    int early = 0;
    for (int i = 0; i < POLLS; i++) {
        poll_once(&two[0], 0);
        hw_driver_poll(&two[0], NULL, NULL);
        hw_driver_poll(&two[0], NULL, NULL);
        early += atomic_load(&poll.all_done);
        if (hw_driver_begin(&two[0], hw_now()))
            hw_driver_end(&two[0]);
        poll_until_all_done();
    }
    return early;
}

/* A waiting caller that is delayed while a task that may wait is in the mailbox. */
static struct delay {
    struct hw_task task;
    unsigned asked; /* calls of is_delay_over() in this wait */
    uint64_t used;  /* CPU time in ns that the driver's thread used during the delays */
} delay;

static uint64_t get_thread_time(const struct hw_driver *d)
{
    clockid_t id;
    struct timespec t;
    if (pthread_getcpuclockid(d->thread, &id) != 0 || clock_gettime(id, &t) < 0)
        abort();
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_delay_over(void *arg)
{
    struct hw_driver *d = arg;
    if (delay.asked++ == 0)
        return false; /* the driver does not count the calling thread as a caller yet */
    if (delay.asked == 2) {
        hw_driver_defer(d, HW_LAZY);
        hw_loop_post(&d->loop, &delay.task);
        hw_driver_defer(d, HW_NOW);
        uint64_t before = get_thread_time(d);
        usleep(800);
        delay.used += get_thread_time(d) - before;
    }
    return !atomic_load(&d->loop.mailbox);
}

/* Returns the share of 100 delays, in percent, for which the driver's thread used a CPU. */
static unsigned count_used_by_thread(struct hw_driver *d)
{
    uint64_t began = hw_now();
    delay.task.run = do_nothing;
    delay.used = 0;
    for (int i = 0; i < 100; i++) {
        delay.asked = 0;
        if (!hw_driver_wait(d, is_delay_over, d, hw_now() + LIMIT))
            abort(); /* the task has not run */
    }
    return (unsigned)(delay.used * 100 / (hw_now() - began));
}

/* Returns how many of the polls' tasks this thread has run. */
static int count_own(struct hw_driver *d, size_t bytes)
{
    int own = 0;
    for (int i = 0; i < POLLS; i++) {
        poll_once(d, bytes);
        own += pthread_equal(poll.by, pthread_self()) != 0;
    }
    poll_until_all_done();
    return own;
}

static void work_long(struct hw_task *t)
{
    for (uint64_t end = hw_now() + 20 * HW_MS; hw_now() < end;)
        ;
    set_poll_done(t);
}

/* Returns how often a thread that polls was woken for a task, or its role was taken, while it did POLLS short tasks. */
static int count_disturbed(struct hw_driver *d)
{
    uint64_t wakes;
    int begun = 0;
    poll.task.run = work_long; /* from now on the thread may poll for four times as long */
    poll_once(d, 0);
    poll.task.run = set_poll_done;
    (void)!read(d->wake, &wakes, sizeof wakes);
    for (int i = 0; i < POLLS; i++) {
        poll_once(d, 0);
        if (hw_driver_begin(d, hw_now())) {
            hw_driver_end(d);
            begun++;
        }
    }
    poll_until_all_done();
    return begun + (read(d->wake, &wakes, sizeof wakes) == sizeof wakes ? (int)wakes : 0);
}

/* Returns true if the thread goes to sleep soon after work that lets it poll for 80 ms, while the drivers transfer this
 * number of bytes/s. */
static bool sleeps_soon(struct hw_driver *d, uint64_t rate)
{
    hw_driver_enter(d);
    d->rate.began = HW_NEVER / 2; /* the driver measures no rate itself */
    atomic_store(&d->rate.ended, HW_NEVER / 2);
    atomic_store(&d->rate.bytes_per_s[0], rate / 3);
    atomic_store(&d->rate.bytes_per_s[1], rate);
    hw_driver_end(d);
    poll.task.run = work_long;
    poll_once(d, 0);
    poll.task.run = set_poll_done;
    poll_until_all_done();
    usleep(5000);
    return atomic_load(&d->asleep) > 0;
}

/* Returns the rate that the driver measures while it reads `bytes` bytes in each of about 1000 tasks, divided by the
 * rate that the caller measures. */
static double measure_own_rate(struct hw_driver *d, size_t bytes)
{
    hw_driver_enter(d);
    d->rate.began = 0;
    hw_driver_end(d);
    poll_once(d, 0);
    poll_until_all_done();
    uint64_t began = hw_now(), n = 0;
    while (hw_now() - began < 4 * HW_MS) {
        poll_once(d, bytes);
        n++;
    }
    double rate = (double)(n * bytes) / ((double)(hw_now() - began) / 1e9);
    return (double)atomic_load(&d->rate.bytes_per_s[0]) / rate;
}

/* The drivers carry enough from 1 GB/s to 2 GB/s. */
static void test_rates(void)
{
    struct hw_driver *d = &two[0];
    if (hw_driver_init(d, two, 2) < 0)
        abort();
    d->busy = 10000 * HW_MS;
    d->busy_below = 1000000000;
    if (hw_driver_start(d, "poll/0") < 0)
        abort();
    bool low = true, high = true, sleeps = false, right = false;
    for (int k = 0; k < TRIES && (low || high || !sleeps || !right); k++) { /* a busy machine may delay a thread */
        low = low && sleeps_soon(d, 999000000);
        high = high && sleeps_soon(d, 2001000000);
        sleeps = sleeps || sleeps_soon(d, 1500000000);
        double of = measure_own_rate(d, 1000);
        right = right || (of > 0.5 && of < 2);
    }
    ok(right, "a driver measures its rate");
    ok(!low && !high, "the thread polls while the rate is below or above the limits");
    ok(sleeps, "and sleeps while the NICs have enough to do");
    hw_driver_stop(d);
    hw_driver_free(d);
}

static void test_polling(void)
{
    poll.task.run = set_poll_done;
    poll.next.run = do_nothing;
    poll.more.run = set_all_done;
    atomic_store(&poll.all_done, true);
    for (unsigned i = 0; i < 2; i++)
        if (hw_driver_init(&two[i], two, 2) < 0 || hw_driver_start(&two[i], i ? "poll/1" : "poll/0") < 0)
            abort();
    ok(wakes_no_thread(), "a caller who polls also runs the tasks that follow, and does not wake the thread");
    int left = POLLS;
    for (int k = 0; k < TRIES && left > POLLS / 10; k++) /* a busy machine makes the caller late */
        left = count_left_behind();
    if (left > POLLS / 10)
        diag("%d of %d were left behind", left, POLLS);
    ok(left <= POLLS / 10, "what he leaves behind he does from the next driver that he goes to");
    /* if a busy machine gives the caller no CPU, the thread assumes that the caller has left */
    int early = POLLS, short_own = 0;
    for (int k = 0; k < TRIES && early > POLLS / 4; k++)
        early = count_gone_early();
    if (early > POLLS / 4)
        diag("%d of %d had gone", early, POLLS);
    ok(early <= POLLS / 4, "for a moment it waits for what he does next");
    unsigned used = count_used_by_thread(&two[0]);
    if (used > 20)
        diag("the thread used a CPU for %u %% of the time", used);
    ok(used <= 20, "the thread sleeps while a waiting caller is delayed with work that may wait");
    for (int k = 0; k < TRIES && short_own <= POLLS / 2; k++)
        short_own = count_own(&two[0], 0);
    ok(short_own > POLLS / 2, "he runs what is short himself");
    int own = count_own(&two[0], 1 << 20);
    if (own > POLLS / 2)
        diag("%d of %d were the caller's", own, POLLS);
    ok(own <= POLLS / 2, "and leaves bulk to the thread");
    for (unsigned i = 0; i < 2; i++)
        hw_driver_stop(&two[i]);
    two[0].busy = 10000 * HW_MS;
    if (hw_driver_start(&two[0], "poll/0") < 0)
        abort();
    is_int(count_own(&two[0], 0), 0, "where the thread polls, all is left to it");
    int disturbed = POLLS;
    for (int k = 0; k < TRIES && disturbed > POLLS / 20; k++)
        disturbed = count_disturbed(&two[0]);
    if (disturbed > POLLS / 20)
        diag("disturbed %d times in %d tasks", disturbed, POLLS);
    ok(disturbed <= POLLS / 20, "and no caller wakes it or takes the role");
    bool sleeps = false;
    /* on a busy machine, the work may have taken so long that the thread may poll for `busy` */
    for (unsigned ms = 0; ms < 15000 && !sleeps; ms += 10, usleep(10000))
        sleeps = atomic_load(&two[0].asleep) > 0;
    ok(sleeps, "after a little work it polls for a part of the time that it may");
    hw_driver_stop(&two[0]);
    for (unsigned i = 0; i < 2; i++)
        hw_driver_free(&two[i]);
}

int main(void)
{
    int late = 0;
    if (hw_driver_init(&driver, &driver, 1) < 0)
        abort();
    ok(pass_lead_on(), "a caller who goes instead of leading passes the lead on");
    for (unsigned i = 0; i < ROUNDS && !late; i++)
        late += run_round(i);
    is_int(late, 0, "without a thread of its own callers drive, and none is left behind");
    if (hw_driver_start(&driver, "a loop") < 0)
        abort();
    late = 0;
    for (unsigned i = 0; i < ROUNDS && !late; i++)
        late += run_round(i);
    is_int(late, 0, "beside its thread, too");
    late = 0;
    for (unsigned i = 0; i < ROUNDS && !late; i++)
        late += run_alone(i);
    is_int(late, 0, "and what is posted when no caller waits runs soon");
    bool slept = false;
    for (unsigned i = 0; i < 3 * ROUNDS && !slept; i++)
        slept = run_beside_thread(i);
    ok(!slept, "a caller who sleeps beside the thread hears that he is done");
    hw_driver_stop(&driver);
    hw_driver_free(&driver);
    test_polling();
    test_rates();
    return tap_done();
}

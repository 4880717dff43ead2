/* SPDX-License-Identifier: Apache-2.0 */
/* Who drives: callers who wait, beside the driver's own thread and without one. Whatever order they come and go in, a
 * task that is posted runs, and whoever waits for it hears of that. */
#include "core/driver.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAITERS 4
#define ROUNDS  100
#define LIMIT   (5000 * HW_MS)

static struct hw_driver driver;

struct waiter {
    struct hw_task task; /* on the loop: it is done */
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

/* All wait. Some are done at once, by this thread; the others' tasks are posted then. */
static int run_round(unsigned round)
{
    static struct waiter w[WAITERS]; /* a task that is late may still run */
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
        bool begun = i % 2 && hw_driver_begin(&driver);
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

/* The first one leads, and goes; the second one, who is told to lead then, goes too. The third one has to lead. */
static bool pass_lead_on(void)
{
    static struct waiter w[3] = {[0].task.run = set_done_silently, [2].task.run = set_done};
    for (unsigned i = 0; i < 3; i++) {
        if (pthread_create(&w[i].thread, NULL, run_waiter, &w[i]) != 0)
            abort();
        while (atomic_load(&driver.asleep) == 0 || atomic_load(&driver.followers) < i)
            usleep(100); /* they come in this order */
    }
    atomic_store(&w[1].done, true);
    hw_loop_post(&driver.loop, &w[0].task);
    pthread_join(w[0].thread, NULL);
    hw_loop_post(&driver.loop, &w[2].task);
    pthread_join(w[2].thread, NULL);
    pthread_join(w[1].thread, NULL);
    return !w[2].late;
}

/* Nobody waits when the task is posted. */
static bool run_alone(unsigned round)
{
    static struct waiter all[ROUNDS];
    struct waiter *w = &all[round];
    w->task.run = set_done;
    if (round % 2) { /* the thread stays away for a moment after this */
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

/* The thread sits in epoll_wait() when a caller comes, and he hears twice that he is done: the second word wakes the
 * thread, which may get at the events before he does. */
static bool run_beside_thread(unsigned round)
{
    struct waiter w = {0};
    usleep(2000); /* the thread gives up that a caller comes */
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

int main(void)
{
    int late = 0;
    if (hw_driver_init(&driver) < 0)
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
    return tap_done();
}

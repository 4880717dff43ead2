/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a loop's mailbox: after every post by a real thread, the task runs (loops.c tests the order of runs). Also
 * tests that a post after a non-urgent task wakes a thread. */
#include "core/loop.h"
#include "tests/tap.h"

#include <pthread.h>
#include <semaphore.h>

#define THREADS 4
#define POSTS   20000
#define TASKS   8

struct poster {
    struct hw_loop *loop;
    struct item {
        struct hw_task task;
        atomic_uint wanted; /* number of the latest post */
        unsigned seen;
    } item[TASKS];
};

static void wake_loop(void *arg)
{
    sem_post(arg);
}

static void note_post(struct hw_task *t)
{
    struct item *i = hw_container_of(t, struct item, task);
    i->seen = atomic_load(&i->wanted);
}

static void *post_all(void *arg)
{
    struct poster *p = arg;
    for (unsigned n = 1; n <= POSTS; n++) {
        struct item *i = &p->item[n % TASKS];
        atomic_store(&i->wanted, n);
        hw_loop_post(p->loop, &i->task);
    }
    return NULL;
}

static void run_nothing(struct hw_task *t)
{
    (void)t;
}

struct waking {
    struct hw_loop loop;
    int wakes;
};

static void count_wake(void *arg)
{
    struct waking *w = arg;
    w->wakes++;
    atomic_store(&w->loop.slow, HW_NOW);
}

/* Tests that a post wakes a thread if the previous task, which was not urgent, woke none. */
static void test_lazy(void)
{
    struct waking w = {0};
    struct hw_task first = {.run = run_nothing}, next = {.run = run_nothing}, third = {.run = run_nothing};
    hw_loop_init(&w.loop, count_wake, &w);
    hw_loop_post(&w.loop, &first);
    atomic_store(&w.loop.slow, HW_LAZY); /* as hw_driver_defer() does */
    w.wakes = 0;
    hw_loop_post(&w.loop, &next);
    is_int(w.wakes, 1, "what is posted behind something lazy wakes");
    hw_loop_post(&w.loop, &third);
    is_int(w.wakes, 1, "what is posted behind that does not");
}

int main(void)
{
    test_lazy();
    static struct poster poster[THREADS];
    pthread_t thread[THREADS];
    struct hw_loop loop;
    sem_t sem;
    sem_init(&sem, 0, 0);
    hw_loop_init(&loop, wake_loop, &sem);
    for (int i = 0; i < THREADS; i++) {
        poster[i].loop = &loop;
        for (int k = 0; k < TASKS; k++)
            poster[i].item[k] = (struct item){.task.run = note_post};
        if (pthread_create(&thread[i], NULL, post_all, &poster[i]) != 0)
            return 1;
    }
    bool all = false;
    for (unsigned turns = 0; !all && turns < THREADS * POSTS * 2; turns++) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 20;
        if (sem_timedwait(&sem, &limit) != 0)
            break; /* the loop was not woken: the check below fails */
        while (hw_loop_turn(&loop, 0, 3, NULL, NULL))
            ;
        all = true;
        for (int i = 0; i < THREADS; i++)
            for (unsigned k = 0; k < TASKS; k++)
                all = all && poster[i].item[k].seen + TASKS > POSTS;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    ok(all, "each task has run after the last post of it");
    return tap_done();
}

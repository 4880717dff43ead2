/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three loops that post tasks to each other and set timers, driven in a random order with random budgets. Checks: a
 * posted task runs once for all posts made before it starts. A loop runs tasks in the order in which they were posted.
 * Timers fire once, in order, never early, and not after they were stopped. A loop correctly reports when it has work
 * to do.
 */
#include "core/loop.h"
#include "sim.h"

#include <stdlib.h>

#define LOOPS  3
#define TASKS  12
#define TIMERS 12
#define STEPS  3000

struct world;

struct task {
    struct hw_task task;
    struct world *w;
    int on;
    bool due;       /* posted, but has not run since */
    uint64_t order; /* order of the post that made the task due */
};

struct timer {
    struct hw_timer timer;
    struct world *w;
    int on;
    bool set;
};

struct side {
    struct hw_loop loop;
    struct task task[TASKS];
    struct timer timer[TIMERS];
    bool woken;
    uint64_t last_order;
};

struct world {
    struct sim *s;
    struct side side[LOOPS];
    uint64_t now, order;
};

static void wake_side(void *arg)
{
    ((struct side *)arg)->woken = true;
}

static void post_some(struct world *w)
{
    struct side *side = &w->side[sim_random(w->s, LOOPS)];
    struct task *t = &side->task[sim_random(w->s, TASKS)];
    bool idle = hw_loop_due(&side->loop) > w->now;
    if (idle)
        side->woken = false;
    if (!t->due)
        t->order = ++w->order;
    t->due = true;
    hw_loop_post(&side->loop, &t->task);
    if (idle && !side->woken)
        sim_fail(w->s, "an idle loop is not woken by a task");
}

static void set_some(struct world *w, struct side *side)
{
    struct timer *t = &side->timer[sim_random(w->s, TIMERS)];
    t->set = !sim_chance(w->s, 4);
    if (t->set)
        hw_timer_set(&side->loop, &t->timer, w->now + sim_random(w->s, 50));
    else
        hw_timer_stop(&side->loop, &t->timer);
}

static void run_one(struct hw_task *task)
{
    struct task *t = hw_container_of(task, struct task, task);
    struct world *w = t->w;
    struct side *side = &w->side[t->on];
    if (!t->due)
        sim_fail(w->s, "a task runs that nobody posted");
    if (t->order < side->last_order)
        sim_fail(w->s, "tasks run in another order than they were posted in");
    side->last_order = t->order;
    t->due = false;
    if (sim_chance(w->s, 3))
        post_some(w);
    if (sim_chance(w->s, 3))
        set_some(w, side);
}

static void fire_one(struct hw_timer *timer)
{
    struct timer *t = hw_container_of(timer, struct timer, timer);
    struct world *w = t->w;
    if (!t->set || timer->at > w->now)
        sim_fail(w->s, "a timer fires %s", t->set ? "early" : "that is not set");
    for (int i = 0; i < TIMERS; i++)
        if (w->side[t->on].timer[i].set && w->side[t->on].timer[i].timer.at < timer->at)
            sim_fail(w->s, "a timer fires before one that is due sooner");
    t->set = false;
    if (sim_chance(w->s, 2))
        post_some(w);
    if (sim_chance(w->s, 2))
        set_some(w, &w->side[t->on]);
}

/* Returns the time at which the loop has work to do, according to the test. */
static uint64_t find_due(const struct side *side)
{
    uint64_t at = HW_NEVER;
    for (int i = 0; i < TASKS; i++)
        if (side->task[i].due)
            return 0;
    for (int i = 0; i < TIMERS; i++)
        if (side->timer[i].set)
            at = HW_MIN(at, side->timer[i].timer.at);
    return at;
}

void sim_run_loops(struct sim *s)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    s->state = s->seed;
    w->s = s;
    for (int i = 0; i < LOOPS; i++) {
        hw_loop_init(&w->side[i].loop, wake_side, &w->side[i]);
        for (int k = 0; k < TASKS; k++)
            w->side[i].task[k] = (struct task){.task.run = run_one, .w = w, .on = i};
        for (int k = 0; k < TIMERS; k++)
            w->side[i].timer[k] = (struct timer){.timer.fire = fire_one, .w = w, .on = i};
    }
    for (s->step = 0; s->step < STEPS && !s->failed[0]; s->step++) {
        int on = (int)sim_random(s, LOOPS);
        struct side *side = &w->side[on];
        switch (sim_random(s, 5)) {
        case 0:
            post_some(w);
            break;
        case 1:
            set_some(w, side);
            break;
        case 2:
            w->now += sim_random(s, 20);
            break;
        default:
            if (!hw_loop_turn(&side->loop, w->now, 1 + (unsigned)sim_random(s, 4), NULL, NULL) &&
                find_due(side) <= w->now)
                sim_fail(s, "a turn says that nothing is left, and something is");
        }
        for (int i = 0; i < LOOPS; i++)
            if (hw_loop_due(&w->side[i].loop) != find_due(&w->side[i]))
                sim_fail(s, "loop %d is due at %llu, not at %llu", i, (unsigned long long)find_due(&w->side[i]),
                         (unsigned long long)hw_loop_due(&w->side[i].loop));
    }
    free(w);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "core/loop.h"

void hw_loop_init(struct hw_loop *l, void (*wake)(void *arg), void *wake_arg)
{
    *l = (struct hw_loop){.wake = wake, .wake_arg = wake_arg};
    l->last = &l->first;
    l->last_late = &l->late;
}

/* ---- the thread that runs the loop ------------------------------------------------------------------- */

static __thread char self; /* its address identifies the thread */

void hw_loop_claim(struct hw_loop *l)
{
    atomic_store_explicit(&l->runner, &self, memory_order_relaxed);
}

void hw_loop_release(struct hw_loop *l)
{
    atomic_store_explicit(&l->runner, NULL, memory_order_relaxed);
}

bool hw_loop_is_mine(const struct hw_loop *l)
{
    return atomic_load_explicit(&l->runner, memory_order_relaxed) == &self; /* only this thread stores this address */
}

/* ---- tasks ------------------------------------------------------------------------------------ */

void hw_loop_post(struct hw_loop *l, struct hw_task *t)
{
    if (atomic_exchange(&t->posted, true))
        return;
    struct hw_task *head = atomic_load(&l->mailbox);
    do
        t->next = head;
    while (!atomic_compare_exchange_weak(&l->mailbox, &head, t));
    if (!head || atomic_load(&l->slow))
        l->wake(l->wake_arg);
}

/* Appends the mailbox to the queue, oldest task first. */
static void empty_mailbox(struct hw_loop *l)
{
    if (!atomic_load(&l->mailbox))
        return; /* cheaper than an exchange if nothing was posted */
    struct hw_task *t = atomic_exchange(&l->mailbox, NULL), *oldest = NULL, **end = &t->next;
    while (t) {
        struct hw_task *next = t->next;
        t->next = oldest;
        oldest = t;
        t = next;
    }
    if (oldest) {
        *l->last = oldest;
        l->last = end;
    }
}

void hw_loop_post_late(struct hw_loop *l, struct hw_task *t)
{
    /* only the thread that runs the loop posts and runs the task; other threads may read the flag */
    if (atomic_load_explicit(&t->posted, memory_order_relaxed))
        return;
    atomic_store_explicit(&t->posted, true, memory_order_release);
    t->next = NULL;
    *l->last_late = t;
    l->last_late = &t->next;
}

static bool run_task(struct hw_loop *l)
{
    struct hw_task *t = l->first;
    if (!t)
        return false;
    l->first = t->next;
    if (!l->first)
        l->last = &l->first;
    atomic_store(&t->posted, false); /* from here on, a new post makes the task run once more */
    t->run(t);
    return true;
}

/* ---- timers: a pairing heap --------------------------------------------------------------------------- */

static void link_timer(struct hw_timer **at, struct hw_timer *t)
{
    *at = t;
    if (t)
        t->link = at;
}

/* Merges two heaps that have no siblings. */
static struct hw_timer *merge_heaps(struct hw_timer *a, struct hw_timer *b)
{
    if (!a || !b)
        return a ? a : b;
    struct hw_timer *first = b->at < a->at ? b : a, *later = first == a ? b : a;
    link_timer(&later->next, first->child);
    link_timer(&first->child, later);
    return first;
}

/* Merges t and its siblings, first in pairs, then the pairs from the last to the first. */
static struct hw_timer *merge_siblings(struct hw_timer *t)
{
    struct hw_timer *pairs = NULL, *all = NULL;
    while (t) {
        struct hw_timer *other = t->next, *rest = other ? other->next : NULL;
        t->next = NULL;
        if (other)
            other->next = NULL;
        struct hw_timer *pair = merge_heaps(t, other);
        pair->next = pairs;
        pairs = pair;
        t = rest;
    }
    while (pairs) {
        struct hw_timer *rest = pairs->next;
        pairs->next = NULL;
        all = merge_heaps(all, pairs);
        pairs = rest;
    }
    return all;
}

void hw_timer_stop(struct hw_loop *l, struct hw_timer *t)
{
    if (!t->set)
        return;
    t->set = false;
    struct hw_timer *below = merge_siblings(t->child);
    t->child = NULL;
    link_timer(t->link, t->next);
    t->next = NULL;
    link_timer(&l->timers, merge_heaps(l->timers, below));
}

void hw_timer_set(struct hw_loop *l, struct hw_timer *t, uint64_t at)
{
    hw_timer_stop(l, t);
    t->set = true;
    t->at = at;
    link_timer(&l->timers, merge_heaps(l->timers, t));
}

static bool fire_timer(struct hw_loop *l)
{
    struct hw_timer *t = l->timers;
    if (!t || t->at > l->now)
        return false;
    hw_timer_stop(l, t);
    t->fire(t);
    return true;
}

/* ---- turns -------------------------------------------------------------------------------------- */

/* Runs the tasks that were posted for the end of the turn. */
static void run_late(struct hw_loop *l)
{
    struct hw_task *t = l->late;
    l->late = NULL;
    l->last_late = &l->late;
    while (t) {
        struct hw_task *next = t->next;
        atomic_store_explicit(&t->posted, false, memory_order_release);
        t->run(t);
        t = next;
    }
}

static void run_tasks(struct hw_loop *l, unsigned budget)
{
    while (budget) {
        bool any = fire_timer(l);
        empty_mailbox(l);
        budget -= any;
        if (budget && run_task(l)) {
            budget--;
            any = true;
        }
        if (!any)
            return;
    }
}

bool hw_loop_turn(struct hw_loop *l, uint64_t now, unsigned budget, bool (*hold)(void *arg), void *arg)
{
    bool claimed = hw_loop_is_mine(l);
    l->now = now;
    hw_loop_claim(l);
    run_tasks(l, budget);
    if (l->late && !(hold && hold(arg)))
        run_late(l);
    if (!claimed)
        hw_loop_release(l);
    return hw_loop_due(l) <= now;
}

uint64_t hw_loop_due(const struct hw_loop *l)
{
    if (l->first || l->late || atomic_load(&l->mailbox))
        return 0;
    return l->timers ? l->timers->at : HW_NEVER;
}

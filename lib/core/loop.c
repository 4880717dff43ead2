/* SPDX-License-Identifier: Apache-2.0 */
#include "core/loop.h"

#include <stdlib.h>

void hw_loop_init(struct hw_loop *l, void (*wake)(void *arg), void *wake_arg)
{
    *l = (struct hw_loop){.wake = wake, .wake_arg = wake_arg};
    l->last = &l->first;
}

void hw_loop_free(struct hw_loop *l)
{
    free(l->heap);
    l->heap = NULL;
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
    if (!head)
        l->wake(l->wake_arg);
}

/* Moves the mailbox behind the queue, oldest first. */
static void empty_mailbox(struct hw_loop *l)
{
    struct hw_task *t = atomic_exchange(&l->mailbox, NULL), *oldest = NULL, **end = t ? &t->next : NULL;
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

static bool run_task(struct hw_loop *l)
{
    struct hw_task *t = l->first;
    if (!t)
        return false;
    l->first = t->next;
    if (!l->first)
        l->last = &l->first;
    atomic_store(&t->posted, false); /* from here on whoever posts it makes it run once more */
    t->run(t);
    return true;
}

/* ---- timers: a binary heap ---------------------------------------------------------------------- */

static void put_timer(struct hw_loop *l, size_t place, struct hw_timer *t)
{
    l->heap[place] = t;
    t->place = place;
}

static void move_up(struct hw_loop *l, size_t place)
{
    struct hw_timer *t = l->heap[place];
    for (; place > 1 && l->heap[place / 2]->at > t->at; place /= 2)
        put_timer(l, place, l->heap[place / 2]);
    put_timer(l, place, t);
}

static void move_down(struct hw_loop *l, size_t place)
{
    struct hw_timer *t = l->heap[place];
    for (size_t child; (child = 2 * place) <= l->n_set; place = child) {
        if (child < l->n_set && l->heap[child + 1]->at < l->heap[child]->at)
            child++;
        if (l->heap[child]->at >= t->at)
            break;
        put_timer(l, place, l->heap[child]);
    }
    put_timer(l, place, t);
}

int hw_timer_init(struct hw_loop *l, struct hw_timer *t, void (*fire)(struct hw_timer *t))
{
    if (l->n_timers + 2 > l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        struct hw_timer **heap = realloc(l->heap, room * sizeof *heap);
        if (!heap)
            return hw_no_memory("%zu timers", room);
        l->heap = heap;
        l->room = room;
    }
    l->n_timers++;
    *t = (struct hw_timer){.fire = fire};
    return 0;
}

void hw_timer_free(struct hw_loop *l, struct hw_timer *t)
{
    hw_timer_stop(l, t);
    l->n_timers--;
}

void hw_timer_stop(struct hw_loop *l, struct hw_timer *t)
{
    size_t place = t->place;
    if (!place)
        return;
    t->place = 0;
    struct hw_timer *last = l->heap[l->n_set--];
    if (last == t)
        return;
    put_timer(l, place, last);
    move_up(l, place);
    move_down(l, last->place);
}

void hw_timer_set(struct hw_loop *l, struct hw_timer *t, uint64_t at)
{
    hw_timer_stop(l, t);
    t->at = at;
    put_timer(l, ++l->n_set, t);
    move_up(l, t->place);
}

static bool fire_timer(struct hw_loop *l)
{
    if (!l->n_set || l->heap[1]->at > l->now)
        return false;
    struct hw_timer *t = l->heap[1];
    hw_timer_stop(l, t);
    t->fire(t);
    return true;
}

/* ---- turns -------------------------------------------------------------------------------------- */

bool hw_loop_turn(struct hw_loop *l, uint64_t now, unsigned budget)
{
    l->now = now;
    while (budget) {
        bool any = fire_timer(l);
        empty_mailbox(l);
        budget -= any;
        if (budget && run_task(l)) {
            budget--;
            any = true;
        }
        if (!any)
            return false;
    }
    return hw_loop_due(l) <= now;
}

uint64_t hw_loop_due(const struct hw_loop *l)
{
    if (l->first || atomic_load(&l->mailbox))
        return 0;
    return l->n_set ? l->heap[1]->at : HW_NEVER;
}

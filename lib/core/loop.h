/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop: tasks, timers, and a mailbox through which other threads hand tasks over. All objects of a rail live on one
 * loop and are touched by nobody else, so that they need no lock. The loop does not block and asks no clock: whoever
 * drives it (a thread over epoll, a caller who waits, the simulator) says what time it is and is asked when to come
 * back.
 */
#ifndef HW_LOOP_H
#define HW_LOOP_H

#include "base/base.h"

#include <stdatomic.h>

/* Something to run on a loop, part of the object that it works on. Posting a task that is posted already changes
 * nothing. */
struct hw_task {
    void (*run)(struct hw_task *t);
    struct hw_task *next; /* in a mailbox or the loop's queue */
    atomic_bool posted;
};

/* How urgent a task is that is posted. */
enum hw_urgency {
    HW_NOW,  /* a thread is woken for it */
    HW_SOON, /* the next turn runs it */
    HW_LAZY  /* the next turn that has an event to handle runs it, too */
};

/* Something to run at a time. */
struct hw_timer {
    void (*fire)(struct hw_timer *t);
    uint64_t at; /* ns, of the driver's clock */
    bool set;
    /* in the loop's heap: the first of those that are due later, the next one of the same parent, and what points here
     */
    struct hw_timer *child, *next, **link;
};

/* Who is told that a descriptor can be read or written, or has ended: what epoll says. */
struct hw_source {
    void (*ready)(struct hw_source *s, uint32_t events);
    /* Reads what there is, if anything; NULL: that takes more than a system call. events: what epoll says, or 0: it was
     * not asked. True: there was something. */
    bool (*look)(struct hw_source *s, uint32_t events);
    /* the driver's */
    bool watched;
    uint32_t place;
};

struct hw_loop {
    void (*wake)(void *arg); /* makes the driver call hw_loop_turn() soon; from any thread */
    void *wake_arg;
    uint64_t now;   /* of the turn that is under way */
    uint64_t moved; /* bytes that what is on it has read and written */

    /* the loop's own */
    _Atomic(struct hw_task *) mailbox; /* newest first */
    atomic_uint slow;                  /* enum hw_urgency of what nobody was woken for, if all of it is such */
    struct hw_task *first, **last;     /* taken from there, oldest first */
    struct hw_task *late, **last_late; /* for the end of the turn */
    struct hw_timer *timers;           /* a pairing heap: this one is due first */
};

/* Makes an empty loop. */
void hw_loop_init(struct hw_loop *l, void (*wake)(void *arg), void *wake_arg);

/* Makes t run on l, from any thread: after all that this thread has posted there before. run() may post it again. Where
 * t is posted already and has not begun to run, it runs once. */
void hw_loop_post(struct hw_loop *l, struct hw_task *t);
/* Makes t run at the end of the turn, behind what others post meanwhile. On the loop's own thread. */
void hw_loop_post_late(struct hw_loop *l, struct hw_task *t);
/* Runs up to budget tasks and due timers, then what was posted for the end of the turn, unless hold(arg) is true by
 * then: that is left for another turn. hold may be NULL. True: more are ready. */
bool hw_loop_turn(struct hw_loop *l, uint64_t now, unsigned budget, bool (*hold)(void *arg), void *arg);
/* When hw_loop_turn() has something to do: 0 at once, HW_NEVER not before somebody posts. */
uint64_t hw_loop_due(const struct hw_loop *l);

/* (Re)sets t to fire once at `at`. On the loop's own thread, as all of timers. t->fire is set, and all else of it was
 * zero at first. */
void hw_timer_set(struct hw_loop *l, struct hw_timer *t, uint64_t at);
/* t does not fire, if it was set. */
void hw_timer_stop(struct hw_loop *l, struct hw_timer *t);

#endif

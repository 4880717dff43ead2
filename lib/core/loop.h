/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop: tasks, timers, and a mailbox for tasks from other threads. All objects of a rail belong to one loop, and
 * nothing else accesses them, so that they need no lock. A loop does not block and reads no clock: its driver (a thread
 * with epoll, a waiting caller, the simulator) passes the time, and asks when the next turn is due.
 */
#ifndef HW_LOOP_H
#define HW_LOOP_H

#include "base/base.h"

#include <stdatomic.h>

/* A task to run on a loop, part of the object on which it works. Posting a task again before it runs has no effect. */
struct hw_task {
    void (*run)(struct hw_task *t);
    struct hw_task *next; /* in a mailbox or the loop's queue */
    atomic_bool posted;
};

/* The urgency of a posted task. */
enum hw_urgency {
    HW_NOW,  /* a thread is woken for it */
    HW_SOON, /* the next turn runs it */
    HW_LAZY  /* the next turn with an event runs it, too */
};

/* A callback at a given time. */
struct hw_timer {
    void (*fire)(struct hw_timer *t);
    uint64_t at; /* ns, of the driver's clock */
    bool set;
    /* in the loop's heap: the first child (due later), the next sibling, and the pointer to this timer */
    struct hw_timer *child, *next, **link;
};

/* The callbacks for a descriptor that is readable or writable, or has ended, as epoll reports. */
struct hw_source {
    void (*ready)(struct hw_source *s, uint32_t events);
    /* Reads available data without an event; NULL: that takes more than a system call. events: from epoll, or 0: epoll
     * was not asked. True: there was some. */
    bool (*look)(struct hw_source *s, uint32_t events);
    /* the driver's */
    bool watched;
    uint32_t place;
};

struct hw_loop {
    void (*wake)(void *arg); /* makes the driver call hw_loop_turn() soon; from any thread */
    void *wake_arg;
    uint64_t now;   /* of the current turn */
    uint64_t moved; /* bytes that the objects on it have read and written */

    /* the loop's own */
    _Atomic(struct hw_task *) mailbox; /* newest first */
    atomic_uint slow; /* a lower bound of the urgency of the mailbox's tasks; HW_NOW unless all were deferred */
    struct hw_task *first, **last;     /* taken from there, oldest first */
    struct hw_task *late, **last_late; /* for the end of the turn */
    struct hw_timer *timers;           /* a pairing heap: this one is due first */
};

/* Makes an empty loop. */
void hw_loop_init(struct hw_loop *l, void (*wake)(void *arg), void *wake_arg);

/* Makes t run on l, from any thread, after all tasks that this thread has posted there before. run() may post it again.
 * If t is already posted and has not begun to run, it runs once. */
void hw_loop_post(struct hw_loop *l, struct hw_task *t);
/* Makes t run at the end of the turn, after tasks that others post meanwhile. On the loop's own thread. */
void hw_loop_post_late(struct hw_loop *l, struct hw_task *t);
/* Runs up to budget tasks and due timers, then the tasks for the end of the turn, unless hold(arg) is then true: these
 * wait for another turn. hold may be NULL. True: more are ready. */
bool hw_loop_turn(struct hw_loop *l, uint64_t now, unsigned budget, bool (*hold)(void *arg), void *arg);
/* When hw_loop_turn() has something to do: 0 at once, HW_NEVER not before a task is posted. */
uint64_t hw_loop_due(const struct hw_loop *l);

/* (Re)sets t to fire once at `at`. On the loop's own thread, like all functions of timers. The caller has set t->fire,
 * and all other members were zero at first. */
void hw_timer_set(struct hw_loop *l, struct hw_timer *t, uint64_t at);
/* Stops t if it was set. */
void hw_timer_stop(struct hw_loop *l, struct hw_timer *t);

#endif

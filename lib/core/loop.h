/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop has tasks, timers, and a mailbox for tasks from any thread. All objects of a rail belong to one loop. Apart
 * from atomic variables, only this loop accesses them, so that they need no lock. A loop does not block and reads no
 * clock. Its driver (a thread with epoll, a waiting caller, the simulator) supplies the current time, and asks when the
 * next turn is due.
 */
#ifndef HW_LOOP_H
#define HW_LOOP_H

#include "base/base.h"

#include <stdatomic.h>

/* A task to run on a loop, embedded in the object that the task works on. Posting a task again before it runs has no
 * effect.
 */
struct hw_task {
    void (*run)(struct hw_task *t);
    struct hw_task *next; /* next task in a mailbox or the loop's queue */
    atomic_bool posted;
};

/* Urgency of a posted task, see hw_driver_defer(). */
enum hw_urgency {
    HW_NOW,  /* wakes a thread if necessary */
    HW_SOON, /* runs in the next turn */
    HW_LAZY  /* may wait for an event */
};

/* A callback at a given time. */
struct hw_timer {
    void (*fire)(struct hw_timer *t);
    uint64_t at; /* ns of the driver's clock */
    bool set;
    /* In the loop's heap: the first child (not due earlier), the next sibling, and the address of the pointer to this
     * timer. */
    struct hw_timer *child, *next, **link;
};

/* Callbacks for a descriptor that epoll reports as readable, writable or closed. */
struct hw_source {
    void (*ready)(struct hw_source *s, uint32_t events);
    /* Reads available data without waiting for an event. NULL if this takes more than one system call. events contains
     * the event flags from epoll, or 0 if epoll was not called. Returns true if there was data or an event was
     * handled. */
    bool (*look)(struct hw_source *s, uint32_t events);
    /* for the driver's use */
    bool watched;
    uint32_t place;
};

struct hw_loop {
    void (*wake)(void *arg); /* makes the driver call hw_loop_turn() soon; may be called from any thread */
    void *wake_arg;
    uint64_t now;                 /* time of the current turn */
    uint64_t moved[2];            /* bytes that the objects on the loop have read, and written */
    _Atomic(const void *) runner; /* thread that runs the loop, see hw_loop_claim() */

    /* for the loop's use */
    _Atomic(struct hw_task *) mailbox; /* newest task first */
    atomic_uint slow;                  /* urgency of the mailbox's most urgent task, see wake_driver() in driver.c */
    struct hw_task *first, **last;     /* tasks taken from the mailbox, oldest first */
    struct hw_task *late, **last_late; /* tasks for the end of the turn */
    struct hw_timer *timers;           /* a pairing heap; the root is due first */
};

/* Initializes an empty loop. */
void hw_loop_init(struct hw_loop *l, void (*wake)(void *arg), void *wake_arg);

/* Posts t to run on l, unless t is already posted and has not begun to run. Tasks that the same thread posts run in the
 * order in which they were posted. May be called from any thread, including from run() of the same task. */
void hw_loop_post(struct hw_loop *l, struct hw_task *t);
/* Declares that the calling thread runs the loop until hw_loop_release(). hw_loop_turn() does so for its duration. */
void hw_loop_claim(struct hw_loop *l);
void hw_loop_release(struct hw_loop *l);
/* Returns true if the calling thread runs the loop, so that it may use the objects on the loop directly. */
bool hw_loop_is_mine(const struct hw_loop *l);
/* Posts t to run at the end of a turn, after the turn's other tasks. Called on the thread that runs the loop. */
void hw_loop_post_late(struct hw_loop *l, struct hw_task *t);
/* Runs up to budget tasks and due timers, then the tasks for the end of the turn. If hold is not NULL and hold(arg) is
 * true at this point, the tasks for the end of the turn wait for another turn. Returns true if more tasks or timers are
 * due. */
bool hw_loop_turn(struct hw_loop *l, uint64_t now, unsigned budget, bool (*hold)(void *arg), void *arg);
/* Returns the time at which hw_loop_turn() has work. 0 means now, and HW_NEVER means not before a task is posted. */
uint64_t hw_loop_due(const struct hw_loop *l);

/* Sets t to fire once at the given time, even if t was set before. Called on the thread that runs the loop, like all
 * timer functions. Before the first call, the caller sets t->fire and initializes all other members to zero. */
void hw_timer_set(struct hw_loop *l, struct hw_timer *t, uint64_t at);
/* Stops t if it was set. */
void hw_timer_stop(struct hw_loop *l, struct hw_timer *t);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drives a loop: it waits for descriptors, for the next timer and for tasks that others post, and gives the loop
 * its turns. The only code of the engine that blocks.
 *
 * Any number of threads may wait at once; one at a time works, and holds the role. Three kinds of threads do:
 *   - the driver's own, if it was started. While callers wait it stays away, so that what comes wakes one thread and
 *     not two; for a moment after the last one left, too, as he is likely to come back.
 *   - callers who wait for something (hw_driver_wait). One of them leads and drives, the others follow.
 *   - whoever has work to post does it himself, where nobody else is at it (hw_driver_begin).
 */
#ifndef HW_DRIVER_H
#define HW_DRIVER_H

#include "core/loop.h"

#include <pthread.h>
#include <sched.h>

struct hw_driver {
    struct hw_loop loop;
    struct hw_driver *all; /* those that the same callers go to: n_all in an array, of which this is one */
    unsigned n_all;
    uint64_t spin; /* ns that a caller who waits polls before he sleeps */
    uint64_t busy; /* ns that the thread polls for more work before it sleeps, at most */

    /* the driver's own */
    int epoll, wake, alarm; /* wake and alarm are in epoll */
    pthread_mutex_t role;   /* of who works */
    struct driver_watch {
        struct hw_source *source;
        uint32_t generation, next_free;
    } * watch; /* by number, which events carry */
    uint32_t watches, watch_free;
    struct hw_source *quick;  /* where something came last, if it can be looked at */
    unsigned looks;           /* how often it was looked at */
    unsigned misses, skips;   /* the leader's: polls in vain in a row; waits that are still to go without polling */
    atomic_uint asleep;       /* threads that block in epoll_wait(), or are about to */
    atomic_bool leader_waits; /* one of them leads callers */
    _Atomic uint64_t armed;   /* when the alarm rings */
    atomic_bool left;         /* there was more to do when the role was given up */
    uint64_t held_since;      /* since when something is, that is not urgent; 0: nothing is. With the role */
    atomic_bool polled;       /* somebody has the descriptor */

    pthread_mutex_t lead;    /* over led and napping */
    pthread_cond_t led, nap; /* followers; the thread */
    bool leading, napping;
    atomic_uint callers, followers; /* in hw_driver_wait(); of these, those who do not lead */
    atomic_uint visits;             /* how often somebody came */
    atomic_uint inside;             /* who has not left hw_driver_wait() yet: the driver is not freed before */
    atomic_bool away;               /* the thread is napping */
    atomic_bool wanted;             /* it need not: callers have gone to another driver, or leave the work to it */
    _Atomic uint64_t bulk_until;    /* as they do while much is copied, so long */

    atomic_bool stop;
    atomic_bool has_thread;
    atomic_bool pinned;
    pthread_t thread;
};

/* Makes a driver, with its loop: one of the n_all at `all` that the same callers go to. The others may be made later,
 * and are zeros until then. -errno. */
int hw_driver_init(struct hw_driver *d, struct hw_driver *all, unsigned n_all);
/* Frees it. Nobody drives any more: tasks that were posted do not run. */
void hw_driver_free(struct hw_driver *d);

/* Starts a thread that drives until hw_driver_stop(); it takes no signals. name: up to 15 bytes. -errno. */
int hw_driver_start(struct hw_driver *d, const char *name);
/* Keeps the thread, if there is one, on these CPUs. The first call counts. */
void hw_driver_pin(struct hw_driver *d, const cpu_set_t *cpus);
/* Ends the thread, if there is one, and waits for it. Not on that thread. */
void hw_driver_stop(struct hw_driver *d);

/* Waits until there is something to do, or for the time `until` (ns, as hw_now()), and does it. True: there was
 * something. From any thread that holds no lock of the objects on the loop. */
bool hw_driver_turn(struct hw_driver *d, uint64_t until);
/* Drives until done(arg), or for the time `until`. True: it is done. done() takes no lock; whoever makes it true says
 * hw_driver_notify() after that. */
bool hw_driver_wait(struct hw_driver *d, bool (*done)(void *arg), void *arg, uint64_t until);
void hw_driver_notify(struct hw_driver *d);
/* Does the work that is ready, where nobody else is at it, and now and then that of other drivers whose threads stay
 * away because of callers. Bulk, and all work where the thread polls (busy), is left to the thread. done(arg): as of
 * hw_driver_wait(), what the caller looks for. */
void hw_driver_poll(struct hw_driver *d, bool (*done)(void *arg), void *arg);
/* Takes the role: the calling thread may use what is on the loop, and what it posts wakes no other. hw_driver_end()
 * does that work, and gives the role up. A thread has one role at a time. */
void hw_driver_enter(struct hw_driver *d);
/* The same, if nobody has it. False: nothing was taken, and hw_driver_end() is not called. */
bool hw_driver_begin(struct hw_driver *d);
void hw_driver_end(struct hw_driver *d);
/* Says how urgent the tasks are that this thread posts there from here on. If they are not HW_NOW, they do not wake a
 * thread that stays away from its loop because callers come and go. The next caller runs them (HW_LAZY: once an event
 * arrives, the caller stops polling, or 20 us have passed), or else that thread when it looks next, within 250 us to
 * 2 ms. */
void hw_driver_defer(struct hw_driver *d, enum hw_urgency urgency);
/* A descriptor that can be read while hw_driver_turn() has something to do and nobody drives; the driver's. */
int hw_driver_fd(struct hw_driver *d);

/* From here on s->ready() is called, by whoever drives, each time that fd becomes ready. With the role. -errno. */
int hw_driver_watch(struct hw_driver *d, int fd, struct hw_source *s);
/* The end of that, if it was watched, before fd is closed: s->ready() is not called again, and s may go. With the role.
 */
void hw_driver_forget(struct hw_driver *d, int fd, struct hw_source *s);

#endif

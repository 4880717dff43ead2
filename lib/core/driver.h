/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver runs a loop: it waits for descriptors, for the next timer and for tasks that other threads post, and then
 * calls the loop. It is the only code of the engine that blocks.
 *
 * Any number of threads may wait at once; one at a time works, and holds the role. Three kinds of threads do:
 *   - the driver's own thread, if it was started. While callers wait it stays away, so that an event wakes one thread,
 *     not two; also for a moment after the last one left, as he is likely to return.
 *   - callers who wait for something (hw_driver_wait). One of them leads and drives, the others follow.
 *   - a thread that posts work does it itself, if no other thread has the role (hw_driver_begin).
 */
#ifndef HW_DRIVER_H
#define HW_DRIVER_H

#include "core/loop.h"

#include <pthread.h>
#include <sched.h>

struct hw_driver {
    struct hw_loop loop;
    struct hw_driver *all; /* the drivers that the same callers visit: an array of n_all, which includes this one */
    unsigned n_all;
    uint64_t spin; /* ns that a waiting caller polls before he sleeps */
    uint64_t busy; /* ns that the thread polls for more work before it sleeps, at most */

    /* the driver's own */
    int epoll, wake, alarm; /* wake and alarm are registered in epoll */
    pthread_mutex_t role;   /* of who works */
    struct driver_watch {
        struct hw_source *source;
        uint32_t generation, next_free;
    } * watch; /* by number, which events contain */
    uint32_t watches, watch_free;
    struct hw_source *quick;  /* the source of the last event, if it can be checked directly */
    unsigned looks;           /* how often it was checked */
    unsigned misses, skips;   /* the leader's: unsuccessful polls in a row; waits that will still skip polling */
    atomic_uint asleep;       /* threads that block in epoll_wait(), or are about to */
    atomic_bool leader_waits; /* one of them leads callers */
    _Atomic uint64_t armed;   /* when the alarm rings */
    atomic_bool left;         /* there was more to do when the role was released */
    uint64_t held_since;      /* since when there is delayed work that is not urgent; 0: none. With the role */
    atomic_bool polled;       /* somebody has the descriptor */

    pthread_mutex_t lead;    /* over led and napping */
    pthread_cond_t led, nap; /* followers; the thread */
    bool leading, napping;
    atomic_uint callers, followers; /* in hw_driver_wait(); of these, those that do not lead */
    atomic_uint visits;             /* how often somebody came */
    /* threads that have not left hw_driver_wait(): the driver is not freed before they do */
    atomic_uint inside;
    atomic_bool away;            /* the thread is napping */
    atomic_bool wanted;          /* it need not: callers have moved to another driver, or leave the work to it */
    _Atomic uint64_t bulk_until; /* while much is copied they do, until this time */

    atomic_bool stop;
    atomic_bool has_thread;
    atomic_bool pinned;
    pthread_t thread;
};

/* Makes a driver and its loop: one of the n_all at `all` that the same callers visit. The others may be made later, and
 * must be zero until then. -errno. */
int hw_driver_init(struct hw_driver *d, struct hw_driver *all, unsigned n_all);
/* Frees a driver that no thread drives any more: tasks that were posted do not run. */
void hw_driver_free(struct hw_driver *d);

/* Starts a thread that drives until hw_driver_stop(); it blocks all signals. name: up to 15 bytes. -errno. */
int hw_driver_start(struct hw_driver *d, const char *name);
/* Binds the thread, if there is one, to these CPUs. Only the first call has an effect. */
void hw_driver_pin(struct hw_driver *d, const cpu_set_t *cpus);
/* Stops the thread, if there is one, and waits for it. Not on that thread. */
void hw_driver_stop(struct hw_driver *d);

/* Waits until there is something to do, or until the time `until` (ns, as hw_now()), and does it. True: there was
 * something to do. From any thread that holds no lock of the objects on the loop. */
bool hw_driver_turn(struct hw_driver *d, uint64_t until);
/* Drives until done(arg) is true, or until the time `until`. Returns done(arg). done() takes no lock; the thread that
 * makes it true must call hw_driver_notify() afterwards. */
bool hw_driver_wait(struct hw_driver *d, bool (*done)(void *arg), void *arg, uint64_t until);
void hw_driver_notify(struct hw_driver *d);
/* Does the work that is ready, if no other thread is doing it, and now and then that of other drivers whose threads
 * stay away because of callers. Leaves bulk, and all work if the thread polls (busy), to the thread. done(arg): as in
 * hw_driver_wait(), the condition that the caller waits for. */
void hw_driver_poll(struct hw_driver *d, bool (*done)(void *arg), void *arg);
/* Takes the role: the calling thread may use the objects on the loop, and its posts wake no other thread.
 * hw_driver_end() does that work and releases the role. A thread has at most one role at a time. */
void hw_driver_enter(struct hw_driver *d);
/* The same, if no thread has it. False: nothing was taken, and hw_driver_end() must not be called. */
bool hw_driver_begin(struct hw_driver *d);
void hw_driver_end(struct hw_driver *d);
/* Sets the urgency of the tasks that this thread posts there from here on. If it is not HW_NOW, they do not wake a
 * thread that stays away from its loop because of callers. The next caller runs them (HW_LAZY: once an event arrives,
 * the caller stops polling, or 20 us have passed), or else that thread at its next check, within 250 us to 2 ms. */
void hw_driver_defer(struct hw_driver *d, enum hw_urgency urgency);
/* A descriptor that is readable while hw_driver_turn() has something to do and no thread drives; owned by the
 * driver. */
int hw_driver_fd(struct hw_driver *d);

/* Has the driving thread call s->ready() each time fd becomes ready. With the role. -errno. */
int hw_driver_watch(struct hw_driver *d, int fd, struct hw_source *s);
/* Ends that, if fd was watched; call it before fd is closed: s->ready() is not called again, and s may be freed. With
 * the role. */
void hw_driver_forget(struct hw_driver *d, int fd, struct hw_source *s);

#endif

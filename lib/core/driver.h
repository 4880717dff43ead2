/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver runs a loop: it waits for descriptors, for the next timer and for tasks that other threads post, and then
 * calls the loop.
 *
 * Any number of threads may wait at the same time. One thread at a time works; this thread has the role. Four kinds of
 * threads work:
 *  - The driver's own thread, if it was started. While callers wait, the thread stays out of the loop, so that an event
 *    wakes one thread and not two. It also stays out for a moment after a caller has arrived, because callers usually
 *    return.
 *  - Callers that wait for a condition (hw_driver_wait()). One of them leads and drives the loop, and the others
 *    follow.
 *  - Callers that do the work that is ready (hw_driver_poll()) or replace the driver's own thread (hw_driver_turn()).
 *  - Threads that take the role to use the objects on the loop (hw_driver_enter(), hw_driver_begin()).
 */
#ifndef HW_DRIVER_H
#define HW_DRIVER_H

#include "core/loop.h"

#include <pthread.h>
#include <sched.h>

#define HW_NO_WATCH UINT64_MAX /* event data of the driver's own descriptors */

struct epoll_event;

struct hw_driver {
    struct hw_loop loop;
    struct hw_driver *all; /* array of the n_all drivers that the same callers visit, including this driver */
    unsigned n_all;
    uint64_t spin; /* maximum time in ns that the leading caller polls before it sleeps */
    uint64_t busy; /* maximum time in ns that the thread polls for more work before it sleeps */
    /* The threads do not poll while the n_all drivers transfer at least this number of bytes/s, and at most twice as
     * many, in one direction; 0: no limit */
    uint64_t busy_below;

    /* for the driver's use */
    int epoll, wake, alarm; /* wake and alarm are registered in epoll */
    pthread_mutex_t role;   /* held by the thread that works */
    struct driver_watch {
        struct hw_source *source;
        uint32_t generation, next_free;
    } * watch; /* table of sources by number; events contain the number */
    uint32_t watches, watch_free;
#define HW_POLLS_LEAST 4u
#define HW_POLLS_MOST  16u
    /* Order of the polls (watch.c): the last two sources with look() that had bytes, most recent first, or NULL; the
     * number of successive times that recent[0] had bytes; and the numbers of polls in all, since all sources were
     * checked, and after which all sources are checked (between the two limits). */
    struct hw_source *recent[2];
    unsigned run, polls, since_all, period;
    /* time spent on work, in ns, counted only if busy is not 0; written only by the holder of the role */
    atomic_ullong spent;
    /* The rates of the last period, used only if busy_below is not 0; written only by the holder of the role. */
    struct driver_rate {
        uint64_t began, moved[2];        /* start of the current period, and hw_loop.moved at that time */
        _Atomic uint64_t ended;          /* end of the last period */
        _Atomic uint64_t bytes_per_s[2]; /* read, and written */
    } rate;
    unsigned misses, skips;   /* used by the leader: consecutive unsuccessful polls, and number of waits that will still
                                 skip polling */
    atomic_uint asleep;       /* number of threads that block in epoll_wait() or are about to */
    atomic_bool leader_waits; /* one of these threads leads the callers */
    _Atomic uint64_t armed;   /* time at which the alarm expires */
    atomic_bool left;         /* work remained when the role was released */
    uint64_t held_since;      /* time since which work has been left to do, or 0; protected by the role */
    atomic_bool polled;       /* the application has the descriptor of hw_driver_fd() */

    pthread_mutex_t lead;    /* protects led and nap */
    pthread_cond_t led, nap; /* followers wait for led, and the thread waits for nap */
    atomic_bool napping;     /* the thread waits for nap */
    atomic_uint callers;     /* number of threads in hw_driver_wait(); the highest bit is set if one of them leads */
    atomic_uint followers;   /* threads that wait for led */
    atomic_uint visits;      /* approximate number of times that a caller arrived */
    atomic_bool away;        /* the thread leaves the loop to callers for a limited time */
    atomic_bool wanted; /* the thread need not stay away, because callers have moved to another driver or leave the work
                           to the thread */
    _Atomic uint64_t bulk_until; /* time until which hw_driver_poll() leaves the work to the thread, because many bytes
                                    were transferred */

    atomic_bool stop;
    atomic_bool has_thread;
    atomic_bool pinned;
    pthread_t thread;
};

/* Initializes a driver and its loop. The driver is one of the n_all drivers at `all` that the same callers visit. The
 * others may be initialized later and must be zero until then. Fails with a negative errno. */
int hw_driver_init(struct hw_driver *d, struct hw_driver *all, unsigned n_all);
/* Frees a driver that no thread uses. Posted tasks do not run. */
void hw_driver_free(struct hw_driver *d);

/* Starts a thread that runs the loop until hw_driver_stop(). The thread blocks all signals. name has up to 15 bytes.
 * Fails with a negative errno. */
int hw_driver_start(struct hw_driver *d, const char *name);
/* Binds the thread, if there is one, to these CPUs. Does nothing if the thread was bound before. */
void hw_driver_pin(struct hw_driver *d, const cpu_set_t *cpus);
/* Stops the thread, if there is one, and waits until the thread has exited. Must not be called on this thread. */
void hw_driver_stop(struct hw_driver *d);

/* Waits for work until the time `until` (in ns, as hw_now() returns), and does the work. Returns true if there was an
 * event or work. May be called from any thread that holds no lock of the objects on the loop. */
bool hw_driver_turn(struct hw_driver *d, uint64_t until);
/* Waits until done(arg) is true or the time `until` has passed. Meanwhile one of the waiting callers runs the loop.
 * Returns done(arg). done() must not take a lock. A thread that makes done() true must call hw_driver_notify()
 * afterwards. */
bool hw_driver_wait(struct hw_driver *d, bool (*done)(void *arg), void *arg, uint64_t until);
void hw_driver_notify(struct hw_driver *d);
/* Does the work that is ready, unless another thread is doing it. Occasionally also does the work of other drivers
 * whose threads leave their loops to callers. Leaves the work to the thread for a while after many bytes were
 * transferred, and always if the thread polls (hw_driver.busy). done is NULL, or done(arg) is the condition that the
 * caller waits for, as in hw_driver_wait(). */
void hw_driver_poll(struct hw_driver *d, bool (*done)(void *arg), void *arg);
/* Takes the role. The calling thread may then use the objects on the loop, and its posts to the loop wake no other
 * thread. hw_driver_end() does a turn of the loop and releases the role. A thread has at most one role at a time. */
void hw_driver_enter(struct hw_driver *d);
/* Takes the role if no thread has it and the calling thread has no other role. Leaves the role to a thread that polls
 * (hw_driver.busy) and does any work at once. now is a time that the calling thread has read recently. Returns false if
 * the role was not taken, in which case hw_driver_end() must not be called. */
bool hw_driver_begin(struct hw_driver *d, uint64_t now);
void hw_driver_end(struct hw_driver *d);
/* Sets the urgency of the tasks that this thread posts from now on. Tasks with an urgency other than HW_NOW do not wake
 * a thread that leaves its loop to callers. The next caller runs such tasks, or else the thread does at its next check,
 * within 250 us to 2 ms. With HW_LAZY the caller runs them once an event has arrived, the caller stops polling, or 20
 * us have passed. */
void hw_driver_defer(struct hw_driver *d, enum hw_urgency urgency);
/* Returns a descriptor that is readable while hw_driver_turn() has work and no thread runs the loop. The driver owns
 * the descriptor. */
int hw_driver_fd(struct hw_driver *d);

/* Makes the thread that runs the loop call s->ready() or s->look() when fd becomes ready. The caller must have the
 * role. Fails with a negative errno. */
int hw_driver_watch(struct hw_driver *d, int fd, struct hw_source *s);
/* Stops watching fd, if it was watched. Must be called before fd is closed. Afterwards no member of s is called again,
 * and s may be freed. The caller must have the role. */
void hw_driver_forget(struct hw_driver *d, int fd, struct hw_source *s);
/* Returns the source of the event, which d->epoll reported. Returns NULL for the driver's own descriptors, whose event
 * data are HW_NO_WATCH, and for a source that was removed after the kernel reported the event. The caller must have the
 * role. */
struct hw_source *hw_driver_find(const struct hw_driver *d, const struct epoll_event *e);

/* Choose what a poll checks. The next bytes usually arrive at one of the two sources that had bytes last, such as the
 * connections of a rail for small and for large messages. Called with the role.
 *
 * Returns true if the source is one of these two sources. */
bool hw_driver_is_recent(const struct hw_driver *d, const struct hw_source *s);
/* Records that a source with look() had bytes. The more often this is another source than the two, the more often all
 * sources are checked. */
void hw_driver_note_bytes(struct hw_driver *d, struct hw_source *s);
/* Returns the source that a poll checks, one of the two in turns, or NULL if no source had bytes yet. */
struct hw_source *hw_driver_get_recent(const struct hw_driver *d);
/* Counts a poll. Returns true if the poll must check all sources. */
bool hw_driver_must_check_all(struct hw_driver *d);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "core/driver.h"

#include "base/fork.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TASKS  64 /* budget of hw_loop_turn(): tasks and timers after which descriptors are checked again */
#define EVENTS 64 /* events taken from epoll at a time */

#define STAY_AWAY  (1 * HW_MS) /* time for which the thread leaves the loop to a caller that has arrived */
#define POLL_SHARE 4           /* the thread polls for at most this multiple of the time spent on work */
/* Minimum interval at which a thread that leaves its loop to callers checks for work that the callers left undone. */
#define NAP (HW_MS / 4)
/* Maximum of this interval. A check may take the CPU from a polling caller. */
#define NAP_MOST (2 * HW_MS)
/* The interval is the time for which callers have kept arriving, divided by this number, within the two limits
 * above. */
#define NAP_SHARE 16
#define LAZY      (HW_MS / 50) /* maximum time for which a polling caller delays work that can wait */

/* After a turn that transferred at least this many bytes, the loops' own threads are usually faster than one caller
 * that polls all loops. */
#define BULK      (32u << 10)
#define BULK_TIME (1 * HW_MS) /* time after such a turn during which more bytes are likely */

#define RATE_PERIOD (1 * HW_MS) /* minimum time over which a rate is measured */
#define RATE_AGE    (5 * HW_MS) /* age at which a rate no longer says anything about the present */

#define LOOK_AT_ALL 16 /* after this number of visits to one driver, a polling caller also checks the other drivers */
#define MISSES      4  /* consecutive unsuccessful polls after which some polls are skipped */

#define LEADS (1u << 31) /* bit of hw_driver.callers: one of the callers leads */

static __thread const struct hw_driver
    *begun; /* driver whose role this thread has, or NULL; the thread itself runs the tasks that it posts there */
/* Driver that this thread last visited as a caller. The driver may have been freed. */
static __thread struct hw_driver *visited;
static __thread enum hw_urgency deferring; /* set by hw_driver_defer() */

/* Lets the calling thread, which has the role, use the objects on the loop. */
static void begin_work(struct hw_driver *d)
{
    begun = d;
    hw_loop_claim(&d->loop);
}

static void end_work(struct hw_driver *d)
{
    begun = NULL;
    hw_loop_release(&d->loop);
}

static void write_wake(struct hw_driver *d)
{
    uint64_t one = 1;
    (void)!write(d->wake, &one, sizeof one); /* fails only after 2^64 writes */
}

static void end_nap(struct hw_driver *d)
{
    pthread_mutex_lock(&d->lead);
    if (atomic_exchange(&d->napping, false))
        pthread_cond_signal(&d->nap);
    pthread_mutex_unlock(&d->lead);
}

static void wake_driver(void *arg)
{
    struct hw_driver *d = arg;
    /* The urgency of the most urgent task in the mailbox. hw_driver_defer() may have replaced the HW_NOW of a task for
     * which a thread has already been woken. */
    unsigned slow = atomic_load(&d->loop.slow);
    unsigned least = begun == d ? HW_NOW : slow ? HW_MIN(slow, (unsigned)deferring) : deferring;
    if (slow != least)
        atomic_store(&d->loop.slow, least);
    if (begun == d)
        return;
    if (atomic_load(&d->asleep) || atomic_load(&d->polled))
        write_wake(d);
    else if (atomic_load(&d->away) && !atomic_load(&d->callers) && !deferring)
        /* a caller checks the driver before it leaves */
        end_nap(d);
}

int hw_driver_init(struct hw_driver *d, struct hw_driver *all, unsigned n_all)
{
    *d = (struct hw_driver){.all = all,
                            .n_all = n_all,
                            .period = HW_POLLS_MOST,
                            .epoll = hw_fork_guard(epoll_create1(EPOLL_CLOEXEC)),
                            .wake = hw_fork_guard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                            .alarm = hw_fork_guard(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))};
    /* edge-triggered, so that no thread needs to read the counter */
    struct epoll_event wake = {.events = EPOLLIN | EPOLLET, .data.u64 = HW_NO_WATCH};
    struct epoll_event alarm = {.events = EPOLLIN, .data.u64 = HW_NO_WATCH};
    atomic_store(&d->armed, HW_NEVER);
    hw_loop_init(&d->loop, wake_driver, d);
    pthread_mutex_init(&d->role, NULL);
    pthread_mutex_init(&d->lead, NULL);
    hw_cond_init(&d->led);
    hw_cond_init(&d->nap);
    if (d->epoll >= 0 && d->wake >= 0 && d->alarm >= 0 && epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->wake, &wake) == 0 &&
        epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->alarm, &alarm) == 0)
        return 0;
    int rc = hw_fail(-errno, "creating an event loop: %s", strerror(errno));
    hw_driver_free(d);
    return rc;
}

void hw_driver_free(struct hw_driver *d)
{
    hw_fork_close(&d->epoll);
    hw_fork_close(&d->wake);
    hw_fork_close(&d->alarm);
    pthread_mutex_destroy(&d->role);
    pthread_mutex_destroy(&d->lead);
    pthread_cond_destroy(&d->led);
    pthread_cond_destroy(&d->nap);
    free(d->watch);
    d->watch = NULL;
}

/* ---- turns ------------------------------------------------------------------------------------------ */

/* Returns the timeout for epoll_wait() in ms, rounded up so that a timer is due when the timeout ends. */
static int get_wait_ms(uint64_t until)
{
    if (until == 0)
        return 0;
    uint64_t now = hw_now();
    if (until <= now)
        return 0;
    return until == HW_NEVER ? -1 : (int)HW_MIN((until - now + HW_MS - 1) / HW_MS, (uint64_t)INT32_MAX);
}

/* Sets the time at which the alarm descriptor becomes readable. Called with the role. */
static void set_alarm(struct hw_driver *d, uint64_t at)
{
    /* a zero time disables the alarm */
    struct itimerspec t = {0};
    if (at != HW_NEVER) {
        t.it_value.tv_sec = (time_t)(at / 1000000000u);
        t.it_value.tv_nsec = (long)(at % 1000000000u);
    }
    (void)timerfd_settime(d->alarm, TFD_TIMER_ABSTIME, &t, NULL);
    atomic_store(&d->armed, at);
}

/* Releases the role. Moves the alarm to a later time only if the alarm has expired by `now`, and otherwise only to an
 * earlier time. stays is true if a caller has received the result that it waited for and will probably do the remaining
 * work in its next call. */
static void leave_role(struct hw_driver *d, uint64_t now, bool stays)
{
    uint64_t due = hw_loop_due(&d->loop);
    bool rang = atomic_load(&d->armed) <= now;
    if (rang || (due && due < atomic_load(&d->armed)))
        set_alarm(d, due ? due : HW_NEVER);
    if (atomic_load(&d->left) != (due == 0))
        atomic_store(&d->left, due == 0);
    d->held_since = due ? 0 : d->held_since ? d->held_since : d->loop.now;
    pthread_mutex_unlock(&d->role);
    if (due == 0 && !(stays && atomic_load(&d->away)))
        wake_driver(d);
    else if (rang && atomic_load(&d->asleep))
        write_wake(d); /* other threads relied on the alarm, see take_turn() */
}

/* Notifies the sources of these events. */
static void tell_sources(struct hw_driver *d, const struct epoll_event *e, int n)
{
    for (int i = 0; i < n; i++) {
        struct hw_source *s = hw_driver_find(d, &e[i]);
        if (!s)
            continue;
        if (s->look && e[i].events & EPOLLIN)
            hw_driver_note_bytes(d, s);
        s->ready(s, e[i].events);
    }
}

static uint64_t load_spent(const struct hw_driver *d)
{
    return atomic_load_explicit(&d->spent, memory_order_relaxed);
}

/* Returns the number of bytes that the loop's objects have read and written. */
static uint64_t get_moved(const struct hw_loop *l)
{
    return l->moved[0] + l->moved[1];
}

/* Measures the loop's rates if a period has ended by `now`. Called with the role. */
static void measure_rate(struct hw_driver *d, uint64_t now)
{
    struct driver_rate *r = &d->rate;
    if (now < r->began + RATE_PERIOD)
        return;
    double s = (double)(now - r->began) / 1e9;
    for (int i = 0; i < 2; i++) {
        double rate = (double)(d->loop.moved[i] - r->moved[i]) / s;
        atomic_store_explicit(&r->bytes_per_s[i], (uint64_t)rate, memory_order_relaxed);
        r->moved[i] = d->loop.moved[i];
    }
    r->began = now;
    atomic_store_explicit(&r->ended, now, memory_order_relaxed);
}

/* Returns true if the drivers transfer so much that their threads should not poll. More than twice busy_below is more
 * than the NICs can carry, so such data stays on this machine. */
static bool has_enough_to_do(const struct hw_driver *d, uint64_t now)
{
    uint64_t sum[2] = {0};
    if (!d->busy_below)
        return false;
    for (unsigned k = 0; k < d->n_all; k++) {
        const struct driver_rate *r = &d->all[k].rate;
        bool is_new = now < atomic_load_explicit(&r->ended, memory_order_relaxed) + RATE_AGE;
        for (int i = 0; i < 2 && is_new; i++)
            sum[i] += atomic_load_explicit(&r->bytes_per_s[i], memory_order_relaxed);
    }
    uint64_t most = HW_MAX(sum[0], sum[1]);
    return most >= d->busy_below && most <= 2 * d->busy_below;
}

/* Handles these events, and up to TASKS tasks and timers that are due at `now`, the current time. Called with the role,
 * which this function releases. If the driver has a thread and done(arg) is true, the turn leaves its data unsent: the
 * caller continues at once, and its next call or the thread sends the data. Returns true if there was an event or
 * work. */
static bool work(struct hw_driver *d, uint64_t now, const struct epoll_event *e, int n, bool (*done)(void *arg),
                 void *arg)
{
    uint64_t moved = get_moved(&d->loop);
    bool any = n > 0 || hw_loop_due(&d->loop) <= now;
    begin_work(d);
    tell_sources(d, e, n);
    hw_loop_turn(&d->loop, now, TASKS, atomic_load(&d->has_thread) ? done : NULL, arg);
    end_work(d);
    if (get_moved(&d->loop) - moved >= BULK)
        atomic_store(&d->bulk_until, now + BULK_TIME);
    if (d->busy_below)
        measure_rate(d, now);
    if (d->busy)
        atomic_store_explicit(&d->spent, load_spent(d) + hw_now() - now, memory_order_relaxed);
    leave_role(d, now, done && done(arg));
    return any;
}

/* Returns true if one of these events belongs to the driver's own descriptors. */
static bool has_own_event(const struct epoll_event *e, int n)
{
    for (int i = 0; i < n; i++)
        if (e[i].data.u64 == HW_NO_WATCH)
            return true;
    return false;
}

static int take_events(struct hw_driver *d, struct epoll_event *e, int ms, bool leads)
{
    int n = epoll_wait(d->epoll, e, EVENTS, ms);
    if (!leads && n > 0 && atomic_load(&d->leader_waits) && has_own_event(e, n))
        write_wake(d); /* an event wakes only one thread, and this thread may have consumed the leader's event */
    return n;
}

static bool has_urgent_task(const struct hw_driver *d)
{
    return atomic_load(&d->loop.mailbox) && atomic_load(&d->loop.slow) != HW_LAZY;
}

static bool is_urgent(const struct hw_driver *d)
{
    return atomic_load(&d->stop) || atomic_load(&d->left) || has_urgent_task(d);
}

/* Returns true if the remaining work may wait for a caller's next call or for the next event, so that one system call
 * sends everything. The thread does the work after the callers have left. Called with the role. */
static bool can_wait(struct hw_driver *d, uint64_t now)
{
    const struct hw_loop *l = &d->loop;
    bool urgent = l->first || (l->timers && l->timers->at <= now) || has_urgent_task(d);
    if (urgent || atomic_load(&d->polled) || !atomic_load(&d->has_thread))
        return false;
    d->held_since = d->held_since ? d->held_since : now;
    return now - d->held_since < LAZY;
}

/* Checks for events without waiting, and handles them. The next bytes usually arrive on the same connection as the last
 * bytes. Reading this connection directly takes one system call and none of epoll's locks, which the kernel also takes
 * for every packet. Called with the role, which this function releases. Returns true if there was work. */
static bool look(struct hw_driver *d, uint64_t now, bool (*done)(void *arg), void *arg)
{
    struct epoll_event e[EVENTS];
    struct hw_source *quick = hw_driver_get_recent(d);
    bool all = hw_driver_must_check_all(d) || !quick;
    int n = all ? epoll_wait(d->epoll, e, EVENTS, 0) : 0;
    if (n > 0 && atomic_load(&d->asleep) && has_own_event(e, n))
        write_wake(d); /* the sleeping thread was woken for this event and may no longer find it */
    d->loop.now = now;
    struct hw_source *only = n == 1 ? hw_driver_find(d, e) : NULL;
    bool same = only && hw_driver_is_recent(d, only); /* its bytes have usually been read already */
    quick = same ? only : quick;
    uint32_t place = quick ? quick->place : 0;
    begin_work(d);
    bool found = (same || !all) && quick->look(quick, same ? e->events : 0);
    if (found && d->watch[place].source == quick) /* otherwise look() has closed and freed the source */
        hw_driver_note_bytes(d, quick);
    end_work(d);
    n = same ? 0 : n;
    if (found)
        return work(d, now, e, 0, done, arg);
    if (n > 0 || (is_urgent(d) && !can_wait(d, now)))
        return work(d, now, e, n, done, arg);
    pthread_mutex_unlock(&d->role);
    return false;
}

/* Does the work that other threads have posted. Usually checks no descriptors, because this system call would delay the
 * work. Returns true if it did work. */
static bool do_posted_work(struct hw_driver *d, uint64_t now)
{
    if (pthread_mutex_trylock(&d->role) != 0)
        return false;
    if (!hw_driver_must_check_all(d))
        return work(d, now, NULL, 0, NULL, NULL);
    pthread_mutex_unlock(&d->role);
    return false;
}

/* Polls until the given time, or until there is work that cannot wait. Events that arrive in this time need no wake-up,
 * and tasks that are not urgent run together with them. The driver's own thread (done is NULL) also does the work that
 * cannot wait. Returns true if it did work or done(arg) is true. */
static bool poll_for_events(struct hw_driver *d, uint64_t until, bool (*done)(void *arg), void *arg)
{
    uint64_t now = hw_now(), lazy_until = now + LAZY;
    for (; now < until; now = hw_now()) {
        if (done && done(arg))
            return true;
        if (is_urgent(d) || (now >= lazy_until && atomic_load(&d->loop.mailbox)))
            return !done && do_posted_work(d, now);
        if (pthread_mutex_trylock(&d->role) == 0 && look(d, now, done, arg))
            return true;
    }
    return false;
}

/* Polls as the leading caller. After several unsuccessful polls in a row (the other side is slow, or needs this CPU)
 * the next waits do not poll, and their number grows. */
static bool poll_as_leader(struct hw_driver *d, uint64_t until, bool (*done)(void *arg), void *arg)
{
    if (d->skips) {
        d->skips--;
        return false;
    }
    bool came = poll_for_events(d, HW_MIN(until, hw_now() + d->spin), done, arg);
    d->misses = came ? 0 : HW_MIN(d->misses + 1, 2u * MISSES);
    d->skips = d->misses < MISSES ? 0 : 1u << (d->misses - MISSES);
    return came;
}

/* Sleeps until there are events or work, and takes the events. Returns their number. */
static int sleep_for_events(struct hw_driver *d, struct epoll_event *e, uint64_t until, bool (*done)(void *arg),
                            void *arg)
{
    if (done)
        atomic_store(&d->leader_waits, true);
    /* from here on, threads that post tasks or call hw_driver_notify() write to d->wake */
    atomic_fetch_add(&d->asleep, 1);
    if (is_urgent(d) || atomic_load(&d->loop.mailbox) || (done && done(arg)))
        until = 0;
    else if (atomic_load(&d->armed) <= until)
        until = HW_NEVER; /* the alarm expires first, and a wait without a timeout costs the kernel less */
    int n = take_events(d, e, get_wait_ms(until), done);
    atomic_fetch_sub(&d->asleep, 1);
    if (done)
        atomic_store(&d->leader_waits, false);
    return n;
}

/* Waits for work and does it. done is not NULL if the caller leads the waiting callers. */
static bool take_turn(struct hw_driver *d, uint64_t until, bool (*done)(void *arg), void *arg)
{
    struct epoll_event e[EVENTS];
    if (done && d->spin && poll_as_leader(d, until, done, arg))
        return true;
    /* if there is work, this thread does not sleep, and other threads need not wake it */
    int n = is_urgent(d) ? take_events(d, e, 0, done) : sleep_for_events(d, e, until, done, arg);
    pthread_mutex_lock(&d->role);
    return work(d, hw_now(), e, n, done, arg);
}

bool hw_driver_turn(struct hw_driver *d, uint64_t until)
{
    return take_turn(d, until, NULL, NULL);
}

/* Tells the thread that it need not leave the loop to the calling thread. */
static void call_thread(struct hw_driver *d)
{
    atomic_store(&d->wanted, true);
    if (atomic_load(&d->away))
        end_nap(d);
}

/* Returns true if a polling caller should leave the work to the thread. In this case wakes the thread if necessary. */
static bool is_left_to_thread(struct hw_driver *d, uint64_t now)
{
    if (!atomic_load(&d->has_thread) || (!d->busy && now >= atomic_load(&d->bulk_until)))
        return false;
    call_thread(d);
    if (d->busy && atomic_load(&d->asleep) && !has_enough_to_do(d, now))
        write_wake(d);
    return true;
}

/* Does the work that is ready, unless another thread is doing it or the calling thread has a role. */
static void look_once(struct hw_driver *d, uint64_t now, bool (*done)(void *arg), void *arg)
{
    if (begun || pthread_mutex_trylock(&d->role) != 0)
        return;
    if (hw_loop_due(&d->loop) <= now && !can_wait(d, now))
        (void)work(d, now, NULL, 0, done, arg);
    else
        (void)look(d, now, done, arg);
}

/* Records that a caller has arrived. Returns the driver that the calling thread visited before, or NULL if that driver
 * is d or not in d->all. */
static struct hw_driver *note_visit(struct hw_driver *d)
{
    struct hw_driver *was = visited;
    /* two callers that arrive together may count as one */
    atomic_store_explicit(&d->visits, atomic_load_explicit(&d->visits, memory_order_relaxed) + 1, memory_order_relaxed);
    visited = d;
    for (unsigned i = 0; i < d->n_all && was != d; i++)
        if (was == &d->all[i])
            return was;
    return NULL;
}

/* Does the work that was left at the driver that the calling thread visited before. */
static void finish_visit(struct hw_driver *was, uint64_t now)
{
    if (atomic_load(&was->left))
        look_once(was, now, NULL, NULL);
}

void hw_driver_poll(struct hw_driver *d, bool (*done)(void *arg), void *arg)
{
    uint64_t now = hw_now();
    if (is_left_to_thread(d, now))
        return;
    struct hw_driver *was = note_visit(d);
    if (was)
        finish_visit(was, now);
    look_once(d, now, done, arg);
    if (atomic_load(&d->visits) % LOOK_AT_ALL)
        return;
    for (unsigned i = 0; i < d->n_all; i++)
        if (atomic_load(&d->all[i].away))
            look_once(&d->all[i], now, NULL, NULL);
}

static void begin_role(struct hw_driver *d, uint64_t now)
{
    begin_work(d);
    d->loop.now = HW_MAX(d->loop.now, now); /* another thread may have run the loop since the time was read */
}

void hw_driver_enter(struct hw_driver *d)
{
    assert(!begun);
    pthread_mutex_lock(&d->role);
    begin_role(d, hw_now());
}

/* Returns true if the driver's thread polls, and will therefore do any work at once. */
static bool has_polling_thread(const struct hw_driver *d)
{
    return d->busy && atomic_load(&d->has_thread) && !atomic_load(&d->asleep) && !atomic_load(&d->away);
}

bool hw_driver_begin(struct hw_driver *d, uint64_t now)
{
    if (begun || has_polling_thread(d) || pthread_mutex_trylock(&d->role) != 0)
        return false;
    begin_role(d, now);
    return true;
}

void hw_driver_end(struct hw_driver *d)
{
    hw_loop_turn(&d->loop, d->loop.now, TASKS, NULL, NULL); /* the time was read when the role was taken */
    end_work(d);
    leave_role(d, 0, false);
}

void hw_driver_defer(struct hw_driver *d, enum hw_urgency urgency)
{
    if (urgency && !atomic_load(&d->loop.slow))
        /* before the post, so that the next thread that posts wakes the driver */
        atomic_store_explicit(&d->loop.slow, urgency, memory_order_release);
    deferring = urgency;
}

int hw_driver_fd(struct hw_driver *d)
{
    atomic_store(&d->polled, true);
    if (atomic_load(&d->left) || atomic_load(&d->loop.mailbox))
        write_wake(d);
    return d->epoll;
}

/* ---- callers ------------------------------------------------------------------------------------------ */

static bool try_to_lead(struct hw_driver *d, unsigned callers, unsigned more)
{
    while (!(callers & LEADS))
        if (atomic_compare_exchange_weak(&d->callers, &callers, (callers + more) | LEADS))
            return true;
    return false;
}

/* Counts the calling thread as a caller. Returns true if the thread leads the callers. */
static bool arrive(struct hw_driver *d)
{
    if (try_to_lead(d, atomic_load(&d->callers), 1))
        return true;
    atomic_fetch_add(&d->callers, 1);
    return false;
}

/* Waits until no other caller leads, done(arg) is true, or the time `until` has passed. Returns true if the calling
 * thread leads from now on. */
static bool follow(struct hw_driver *d, bool (*done)(void *arg), void *arg, uint64_t until)
{
    const struct timespec t = hw_timespec(until);
    bool leads = false;
    pthread_mutex_lock(&d->lead);
    atomic_fetch_add(&d->followers, 1); /* from here on, a leader that leaves signals a follower, and a thread that
                                           makes done() true signals all */
    while (!done(arg) && !(leads = try_to_lead(d, atomic_load(&d->callers), 0)) && hw_now() < until)
        pthread_cond_timedwait(&d->led, &d->lead, &t);
    atomic_fetch_sub(&d->followers, 1);
    pthread_mutex_unlock(&d->lead);
    return leads;
}

/* Stops counting the calling thread as a caller, and wakes a follower or the thread if necessary. */
static void depart(struct hw_driver *d, bool leads)
{
    unsigned others = atomic_fetch_sub(&d->callers, leads ? LEADS + 1 : 1) - (leads ? LEADS + 1 : 1);
    /* wake the thread if its nap lasts until all callers have left, or if other threads have left tasks to this
     * caller */
    bool wake = !others && atomic_load(&d->napping) && (!atomic_load(&d->away) || atomic_load(&d->loop.mailbox));
    /* without a leader, a follower must lead next; the follower that was signalled before may be the leaving caller */
    bool pass = !(others & LEADS) && atomic_load(&d->followers);
    if (!wake && !pass)
        return;
    pthread_mutex_lock(&d->lead);
    if (pass)
        pthread_cond_signal(&d->led);
    if (wake)
        pthread_cond_signal(&d->nap);
    pthread_mutex_unlock(&d->lead);
}

bool hw_driver_wait(struct hw_driver *d, bool (*done)(void *arg), void *arg, uint64_t until)
{
    bool is = done(arg);
    if (is)
        return true;
    bool leads = arrive(d);
    struct hw_driver *was = note_visit(d);
    if (was) {
        finish_visit(was, hw_now());
        call_thread(was);
    }
    if (!leads)
        leads = follow(d, done, arg, until);
    while (!(is = done(arg)) && leads && hw_now() < until)
        (void)take_turn(d, until, done, arg);
    depart(d, leads);
    return is;
}

void hw_driver_notify(struct hw_driver *d)
{
    if (!atomic_load(&d->callers))
        return;
    if (atomic_load(&d->asleep))
        write_wake(d);
    if (atomic_load(&d->followers)) {
        pthread_mutex_lock(&d->lead);
        pthread_cond_broadcast(&d->led);
        pthread_mutex_unlock(&d->lead);
    }
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* Leaves the loop to callers until the given time. With HW_NEVER, which is used if the same callers have been waiting
 * all the time, leaves the loop until all callers have left. */
static void nap(struct hw_driver *d, uint64_t until)
{
    struct timespec t = hw_timespec(until);
    bool deep = until == HW_NEVER;
    pthread_mutex_lock(&d->lead);
    atomic_store(&d->napping, true);
    atomic_store(&d->away, !deep);
    /* a waiting caller does the work in the mailbox, and wakes this thread if it leaves without doing it */
    bool left = !atomic_load(&d->callers) && atomic_load(&d->loop.mailbox) && atomic_load(&d->loop.slow) == HW_NOW;
    bool stay = deep ? atomic_load(&d->callers) > 0 : !left && !atomic_load(&d->wanted);
    if (stay && !atomic_load(&d->stop))
        pthread_cond_timedwait(&d->nap, &d->lead, &t);
    atomic_store(&d->napping, false);
    atomic_store(&d->away, false);
    pthread_mutex_unlock(&d->lead);
}

/* Returns true if there is work and no caller that could do it. */
static bool has_work_left(const struct hw_driver *d)
{
    return !atomic_load(&d->callers) && (atomic_load(&d->left) || atomic_load(&d->loop.mailbox));
}

/* Waits for work and does it. If `polls` is true, first polls for more work. *credit is the time in ns, at most
 * hw_driver.busy, for which the thread may still poll. Polling takes at most POLL_SHARE times the time spent on work.
 * Returns true if there was work. */
static bool take_turn_of_thread(struct hw_driver *d, uint64_t *credit, bool polls)
{
    uint64_t spent = load_spent(d), began = polls && *credit > 0 ? hw_now() : 0;
    bool worked = false;
    if (began && !has_enough_to_do(d, began)) {
        worked = poll_for_events(d, began + *credit, NULL, NULL);
        uint64_t passed = hw_now() - began;
        *credit -= HW_MIN(passed - HW_MIN(load_spent(d) - spent, passed), *credit);
    }
    worked = worked || take_turn(d, HW_NEVER, NULL, NULL);
    *credit = HW_MIN(*credit + POLL_SHARE * (load_spent(d) - spent), d->busy);
    return worked;
}

static void *drive(void *arg)
{
    struct hw_driver *d = arg;
    unsigned seen = 0;
    uint64_t last = 0, since = 0; /* time of the last arrival of a caller, and start of the period in which callers have
                                     kept arriving */
    uint64_t credit = 0;          /* polling time, see take_turn_of_thread() */
    bool worked = false;
    hw_own_thread = true;
    while (!atomic_load(&d->stop)) {
        unsigned visits = atomic_load(&d->visits);
        bool here = atomic_load(&d->callers) > 0;
        uint64_t now = hw_now();
        if (visits != seen) {
            last = now;
            since = since ? since : now;
        }
        seen = visits;
        bool wanted = atomic_exchange(&d->wanted, false);
        if (here || (now - last < STAY_AWAY && !wanted)) {
            uint64_t length = HW_MAX(NAP, HW_MIN((last - since) / NAP_SHARE, NAP_MOST));
            nap(d, here && now - last >= STAY_AWAY ? HW_NEVER : now + length);
            /* a caller that has just arrived will probably call again, and would have to wait for the role */
            if (has_work_left(d) && atomic_load(&d->visits) == visits)
                (void)hw_driver_turn(d, 0);
        } else {
            since = 0;
            worked = take_turn_of_thread(d, &credit, worked || wanted);
        }
    }
    return NULL;
}

int hw_driver_start(struct hw_driver *d, const char *name)
{
    int rc = hw_thread_start(&d->thread, drive, d, "an event loop's thread");
    if (rc < 0)
        return rc;
    (void)pthread_setname_np(d->thread, name);
    atomic_store(&d->has_thread, true);
    return 0;
}

void hw_driver_pin(struct hw_driver *d, const cpu_set_t *cpus)
{
    if (atomic_load(&d->has_thread) && !atomic_exchange(&d->pinned, true))
        /* without permission, the thread keeps its CPU affinity */
        (void)pthread_setaffinity_np(d->thread, sizeof *cpus, cpus);
}

void hw_driver_stop(struct hw_driver *d)
{
    if (!atomic_load(&d->has_thread))
        return;
    atomic_store(&d->stop, true);
    write_wake(d);
    pthread_mutex_lock(&d->lead);
    pthread_cond_signal(&d->nap);
    pthread_mutex_unlock(&d->lead);
    pthread_join(d->thread, NULL);
    atomic_store(&d->has_thread, false);
    atomic_store(&d->stop, false);
}

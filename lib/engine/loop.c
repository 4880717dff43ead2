/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops. One driver at a time: the loop's own thread, or a caller who waits. A caller who waits drives, so that a
 * message that arrives wakes the very thread that wants it, with no hand-over; the thread stands by meanwhile. After a
 * caller's turn the thread leaves the loop alone for a nap, because callers who wait in a row (a ping-pong) would
 * else wake it for nothing each time; if none comes back, it takes over.
 */
#include "engine/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NAP_MIN_NS  (100 * 1000ull)
#define NAP_MAX_NS  (400 * 1000ull)
#define EVENTS      64
#define POLL_ROUNDS 4   /* looks at the control connection for one at all else */
#define SPIN_ROUNDS 512 /* polls of one connection between looks at all; counted across waits, so that none starves */

__thread bool hw_will_poll;
static __thread struct hw_loop *driving;

static void wake_ready(struct hw_source *s, uint32_t events)
{
    (void)events;
    struct hw_loop *l = hw_container_of(s, struct hw_loop, wake_src);
    uint64_t n;
    while (read(l->wakefd, &n, sizeof(n)) < 0 && errno == EINTR)
        ;
}

static void timer_ready(struct hw_source *s, uint32_t events)
{
    (void)events;
    struct hw_loop *l = hw_container_of(s, struct hw_loop, timer_src);
    uint64_t n;
    while (read(l->timerfd, &n, sizeof(n)) < 0 && errno == EINTR)
        ;
}

int hw_loop_add(struct hw_loop *l, int fd, struct hw_source *s)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return hw_fail(-errno, "watching a descriptor: %s", strerror(errno));
    return 0;
}

void hw_loop_forget(struct hw_loop *l, int fd)
{
    (void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, fd, NULL);
}

int hw_loop_init(struct hw_loop *l, struct hawser *h, unsigned index)
{
    *l = (struct hw_loop){.h = h, .index = index, .epfd = -1, .wakefd = -1, .timerfd = -1};
    l->wake_src.ready = wake_ready;
    l->timer_src.ready = timer_ready;
    pthread_mutex_init(&l->mu, NULL);
    pthread_mutex_init(&l->qmu, NULL);
    hw_cond_init(&l->cv);
    hw_cond_init(&l->thread_cv);
    hw_cond_init(&l->watch_cv);
    hw_list_init(&l->runq);
    hw_list_init(&l->lanes);
    hw_list_init(&l->owing);
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    l->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->epfd < 0 || l->wakefd < 0)
        return hw_fail(-errno, "making an event loop: %s", strerror(errno));
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &l->wake_src};
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->wakefd, &ev) < 0)
        return hw_fail(-errno, "making an event loop: %s", strerror(errno));
    return 0;
}

void hw_loop_free(struct hw_loop *l)
{
    if (!l->h)
        return;
    hw_close(&l->epfd);
    hw_close(&l->wakefd);
    hw_close(&l->timerfd);
    pthread_cond_destroy(&l->cv);
    pthread_cond_destroy(&l->thread_cv);
    pthread_cond_destroy(&l->watch_cv);
    pthread_mutex_destroy(&l->mu);
    pthread_mutex_destroy(&l->qmu);
}

static void wake_sleeper(struct hw_loop *l)
{
    /* exchange: of many who wake it, one pays for the system call */
    if (atomic_load(&l->sleeping) && atomic_exchange(&l->sleeping, false)) {
        uint64_t one = 1;
        while (write(l->wakefd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
    }
}

/* For what the driver looks at only between its turns. It may be past that, yet awake: then it is not to sleep. */
static void nudge(struct hw_loop *l)
{
    atomic_store(&l->nudged, true);
    wake_sleeper(l);
}

void hw_loop_notify(struct hw_loop *l)
{
    if (driving != l)
        nudge(l);
    if (l->want) {
        pthread_mutex_lock(&l->mu);
        pthread_cond_broadcast(&l->cv);
        pthread_mutex_unlock(&l->mu);
    }
}

void hw_loop_alert(struct hw_loop *l)
{
    hw_loop_notify(l);
    pthread_mutex_lock(&l->mu);
    pthread_cond_broadcast(&l->watch_cv);
    pthread_mutex_unlock(&l->mu);
}

void hw_loop_want_tick(struct hw_loop *l)
{
    if (!atomic_load_explicit(&l->tick_on, memory_order_relaxed) && !atomic_exchange(&l->tick_on, true) && driving != l)
        wake_sleeper(l);
}

void hw_lane_queue(struct hw_lane *lane)
{
    struct hw_loop *l = lane->loop;
    bool quiet = hw_will_poll && !l->h->k.busy_us;
    if (atomic_exchange(&lane->queued, true)) {
        if (quiet || !atomic_exchange(&lane->quiet, false)) /* else nobody has been woken for it yet */
            return;
    } else {
        pthread_mutex_lock(&l->qmu);
        hw_list_append(&l->runq, &lane->run);
        pthread_mutex_unlock(&l->qmu);
        if (quiet)
            atomic_store(&lane->quiet, true);
    }
    if (driving == l || quiet)
        return;
    wake_sleeper(l);
    if (atomic_load(&l->napping) && !atomic_load(&l->want)) { /* who polled last need not come again */
        pthread_mutex_lock(&l->mu);
        pthread_cond_signal(&l->thread_cv);
        pthread_mutex_unlock(&l->mu);
    }
}

static bool runq_empty(struct hw_loop *l)
{
    pthread_mutex_lock(&l->qmu);
    bool empty = hw_list_empty(&l->runq);
    pthread_mutex_unlock(&l->qmu);
    return empty;
}

/* One turn for each lane that is queued now. True if any had work. */
static bool run_lanes(struct hw_loop *l)
{
    struct hw_list batch;
    pthread_mutex_lock(&l->qmu);
    if (hw_list_empty(&l->runq)) {
        pthread_mutex_unlock(&l->qmu);
        return false;
    }
    batch = l->runq;
    batch.next->prev = batch.prev->next = &batch;
    hw_list_init(&l->runq);
    for (;;) {
        struct hw_lane *lane = hw_list_first(&batch, struct hw_lane, run);
        if (!lane)
            break;
        hw_list_remove(&lane->run);
        pthread_mutex_unlock(&l->qmu);
        atomic_store(&lane->quiet, false);
        atomic_store(&lane->queued, false);
        if (hw_lane_run(lane))
            hw_lane_queue(lane);
        pthread_mutex_lock(&l->qmu);
    }
    pthread_mutex_unlock(&l->qmu);
    return true;
}

/* Acknowledgements wait until there is nothing better to do: most ride on what the application sends next. */
static void flush_owing(struct hw_loop *l)
{
    hw_list_each(it, tmp, &l->owing)
    {
        struct hawser_peer *p = hw_container_of(it, struct hawser_peer, ctl.owing);
        hw_list_remove(it);
        pthread_mutex_lock(&p->mu);
        if (p->ctl.ack_owed)
            hw_ctl_flush(p);
        pthread_mutex_unlock(&p->mu);
    }
}

static void tick(struct hw_loop *l, uint64_t now)
{
    l->next_tick = now + HW_TICK_MS * HW_MS;
    atomic_store(&l->tick_on, false);
    bool again = l->index == 0 && hw_listener_tick(l->h, now);
    pthread_mutex_lock(&l->qmu);
    for (struct hw_list *it = l->lanes.next; it != &l->lanes; it = it->next) {
        struct hw_lane *lane = hw_container_of(it, struct hw_lane, all);
        pthread_mutex_unlock(&l->qmu); /* lanes leave the list only while their loop is acquired */
        again |= hw_lane_tick(lane, now);
        pthread_mutex_lock(&l->qmu);
    }
    pthread_mutex_unlock(&l->qmu);
    if (again)
        atomic_store(&l->tick_on, true);
}

bool hw_loop_drive(struct hw_loop *l, uint64_t deadline)
{
    bool did = run_lanes(l);
    int timeout = 0;
    if (l->h->k.busy_us && (did || (atomic_load(&l->polled) && atomic_exchange(&l->polled, false))))
        l->busy_until = hw_now() + l->h->k.busy_us * 1000;
    /* A thread of ours only: a caller has his own idea of polling. */
    bool busy = l->busy_until && hw_own_thread && !l->want && hw_now() < l->busy_until;
    if (busy && !did)
        flush_owing(l);
    if (!busy && runq_empty(l)) {
        l->busy_until = 0;
        flush_owing(l);
        atomic_store(&l->sleeping, true);
        uint64_t until = deadline;
        if (atomic_load(&l->tick_on))
            until = HW_MIN(until, l->next_tick);
        if (!runq_empty(l) || did || atomic_exchange(&l->nudged, false))
            timeout = 0;
        else if (until == HW_NEVER)
            timeout = -1;
        else if (until) {
            uint64_t now = hw_now();
            timeout = until <= now ? 0 : (int)HW_MIN((until - now + HW_MS - 1) / HW_MS, 60000ull);
        }
    }
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(l->epfd, ev, EVENTS, timeout);
    atomic_store(&l->sleeping, false);
    for (int i = 0; i < n; i++) {
        struct hw_source *s = ev[i].data.ptr;
        s->ready(s, ev[i].events);
    }
    if (n > 0) {
        did |= run_lanes(l);
        if (l->h->k.busy_us)
            l->busy_until = hw_now() + l->h->k.busy_us * 1000;
    }
    if (atomic_load_explicit(&l->tick_on, memory_order_relaxed)) {
        uint64_t now = hw_now();
        if (now >= l->next_tick)
            tick(l, now);
    }
    return did || n > 0;
}

int hw_loop_pollable(struct hw_loop *l)
{
    int rc = 0;
    hw_loop_acquire(l);
    if (l->timerfd < 0) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &l->timer_src};
        l->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (l->timerfd < 0 || epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->timerfd, &ev) < 0) {
            rc = hw_fail(-errno, "making a timer to poll for: %s", strerror(errno));
            hw_close(&l->timerfd);
        }
    }
    hw_loop_release(l);
    return rc;
}

/* Before a caller who polls the epoll descriptor leaves the loop: whatever is to be done must show there. */
static void ready_to_poll(struct hw_loop *l)
{
    flush_owing(l);
    atomic_store(&l->sleeping, true); /* from here on whoever queues work makes wakefd readable */
    if (!runq_empty(l))
        wake_sleeper(l);
    uint64_t at = atomic_load(&l->tick_on) ? HW_MAX(l->next_tick, (uint64_t)1) : 0; /* 0 disarms */
    if (at == l->timer_at)
        return;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)}};
    if (timerfd_settime(l->timerfd, TFD_TIMER_ABSTIME, &when, NULL) == 0)
        l->timer_at = at;
}

static void until_ts(uint64_t ns, struct timespec *t)
{
    t->tv_sec = (time_t)(ns / 1000000000u);
    t->tv_nsec = (long)(ns % 1000000000u);
}

static void timed_wait(pthread_cond_t *cv, pthread_mutex_t *mu, uint64_t until)
{
    if (until == HW_NEVER) {
        pthread_cond_wait(cv, mu);
    } else {
        struct timespec t;
        until_ts(until, &t);
        pthread_cond_timedwait(cv, mu, &t);
    }
}

/* With l->mu, when nobody drives: callers first, else the thread where it sleeps for good. */
static void wake_others(struct hw_loop *l)
{
    if (l->want)
        pthread_cond_broadcast(&l->cv);
    else if (l->thread_deep)
        pthread_cond_signal(&l->thread_cv);
}

/* Called with l->mu. Leaves the loop to callers as long as they come back within a nap. */
static void stand_by(struct hw_loop *l)
{
    uint64_t nap = NAP_MIN_NS, seen = l->wait_seq;
    bool napped = false;
    while (!l->stop) {
        bool at_it = l->driven || l->want;
        bool for_poll = !at_it && !l->h->k.busy_us && atomic_exchange(&l->polled, false), busy = at_it || for_poll;
        if (for_poll && napped && !runq_empty(l)) /* who polled is about something else now */
            return;
        if (!busy && (seen == l->wait_seq || !l->has_thread))
            return;
        if (at_it && napped && seen == l->wait_seq) {
            /* one long wait: sleep until that caller is through */
            l->thread_deep = true;
            pthread_cond_wait(&l->thread_cv, &l->mu);
            l->thread_deep = false;
            nap = NAP_MIN_NS;
        }
        seen = l->wait_seq;
        atomic_store(&l->napping, for_poll);
        timed_wait(&l->thread_cv, &l->mu, hw_now() + nap);
        atomic_store(&l->napping, false);
        napped = true;
        nap = HW_MIN(nap * 2, NAP_MAX_NS);
    }
}

static void *loop_thread(void *arg)
{
    struct hw_loop *l = arg;
    hw_own_thread = true;
    driving = NULL;
    pthread_mutex_lock(&l->mu);
    for (;;) {
        stand_by(l);
        if (l->stop)
            break;
        l->driven = true;
        pthread_mutex_unlock(&l->mu);
        driving = l;
        hw_loop_drive(l, HW_NEVER);
        driving = NULL;
        pthread_mutex_lock(&l->mu);
        l->driven = false;
        l->offered = l->want > 0;
        wake_others(l);
    }
    pthread_mutex_unlock(&l->mu);
    return NULL;
}

int hw_loop_start(struct hw_loop *l)
{
    int rc = hw_thread_start(&l->thread, loop_thread, l, "a progress thread");
    if (rc)
        return rc;
    l->has_thread = true;
    char name[16];
    snprintf(name, sizeof(name), "hawser/%u", l->index);
    (void)pthread_setname_np(l->thread, name);
    return 0;
}

void hw_loop_pin(struct hw_loop *l, const char *nic)
{
    cpu_set_t cpus;
    if (l->pinned || !l->has_thread || !l->h->k.pin || hw_nic_cpus(nic, &cpus))
        return;
    l->pinned = true;
    (void)pthread_setaffinity_np(l->thread, sizeof(cpus), &cpus);
}

void hw_loop_stop(struct hw_loop *l)
{
    if (!l->has_thread)
        return;
    pthread_mutex_lock(&l->mu);
    l->stop = true;
    pthread_cond_signal(&l->thread_cv);
    pthread_mutex_unlock(&l->mu);
    nudge(l);
    pthread_join(l->thread, NULL);
    l->has_thread = false;
}

/* With l->mu: waits for the driver's role, at most until the deadline or until done. Who has just given it up with
 * others waiting (offered) queues behind them. urgent: the driver is called back from the kernel. Not for one who has
 * had a turn: two who wait would call each other back without end. */
static bool take(struct hw_loop *l, bool (*done)(void *), void *arg, uint64_t deadline, bool urgent)
{
    bool taken = !l->driven && !l->offered;
    if (!taken) {
        l->want++;
        do {
            if (done && done(arg))
                break;
            if (l->driven && urgent)
                nudge(l);
            timed_wait(&l->cv, &l->mu, deadline);
            taken = !l->driven;
        } while (!taken && (deadline == HW_NEVER || hw_now() < deadline));
        l->want--;
        l->offered = false;
        if (!taken)
            wake_others(l);
    }
    if (taken) {
        l->driven = true;
        l->wait_seq++;
    }
    return taken;
}

static void give(struct hw_loop *l)
{
    if (l->timerfd >= 0)
        ready_to_poll(l);
    pthread_mutex_lock(&l->mu);
    l->driven = false;
    l->offered = l->want > 0;
    wake_others(l);
    pthread_mutex_unlock(&l->mu);
}

void hw_loop_acquire(struct hw_loop *l)
{
    pthread_mutex_lock(&l->mu);
    take(l, NULL, NULL, HW_NEVER, true);
    pthread_mutex_unlock(&l->mu);
    driving = l;
}

void hw_loop_release(struct hw_loop *l)
{
    driving = NULL;
    give(l);
}

/* Polls one control connection as hard as a program with its own socket would. Where that did not pay (the other side
 * is slow, or wants this very CPU) the next waits do without, more of them each time. */
static void spin_on(struct hw_loop *l, struct hawser_peer *p, bool (*done)(void *), void *arg)
{
    if (l->spin_skip) {
        l->spin_skip--;
        return;
    }
    uint64_t end = 0;
    for (bool first = true;; first = false) {
        hw_ctl_recv(p, true);
        if (done(arg)) {
            l->spin_fails = 0;
            return;
        }
        if (first)
            flush_owing(l);
        if (++l->polls % SPIN_ROUNDS)
            continue;
        uint64_t now = hw_now();
        if (!end)
            end = now + l->h->k.spin_us * 1000u;
        hw_loop_drive(l, 0);
        if (done(arg)) {
            l->spin_fails = 0;
            return;
        }
        if (now >= end)
            break;
    }
    /* now and then everyone has to wait; only failure after failure says something */
    l->spin_fails = HW_MIN(l->spin_fails + 1, 9u);
    l->spin_skip = l->spin_fails < 4 ? 0 : 1u << (l->spin_fails - 3);
}

bool hw_loop_watch(struct hw_loop *l, bool (*done)(void *), void *arg, uint64_t deadline)
{
    if (!l->has_thread)
        return hw_loop_wait(l, done, arg, deadline, NULL);
    bool ok;
    pthread_mutex_lock(&l->mu);
    while (!(ok = done(arg)) && (deadline == HW_NEVER || hw_now() < deadline))
        timed_wait(&l->watch_cv, &l->mu, deadline);
    pthread_mutex_unlock(&l->mu);
    return ok;
}

void hw_loop_poll(struct hw_loop *l, struct hawser_op *op)
{
    if (l->h->k.busy_us && l->has_thread) { /* the thread polls, for both */
        atomic_store(&l->polled, true);
        if (atomic_load(&l->sleeping))
            nudge(l);
        return;
    }
    if (pthread_mutex_trylock(&l->mu)) /* whoever has it is at the loop's work, or about to be */
        return;
    bool mine = !l->driven && !l->want;
    atomic_store(&l->polled, true);
    if (mine)
        l->driven = true;
    else if (l->driven && atomic_load(&l->sleeping))
        nudge(l);
    pthread_mutex_unlock(&l->mu);
    if (!mine)
        return;
    driving = l;
    /* A short message comes on the control connection: one system call. Not done, so the peer is there. */
    bool by_channel = op->granted || op->type == HW_OP_SEND;
    if (!by_channel && !atomic_load(&op->done) && hw_ctl_recv(op->peer, true))
        flush_owing(l);
    if (!atomic_load(&op->done) && (by_channel || ++l->polls % POLL_ROUNDS == 0))
        hw_loop_drive(l, 0);
    driving = NULL;
    give(l);
}

bool hw_loop_wait(struct hw_loop *l, bool (*done)(void *), void *arg, uint64_t deadline, struct hawser_peer *spin)
{
    if (done(arg))
        return true;
    bool ok = false;
    pthread_mutex_lock(&l->mu);
    for (bool first = true; !ok; first = false) {
        if (!take(l, done, arg, deadline, first)) {
            ok = done(arg);
            break; /* done, or the deadline passed, while another drove */
        }
        pthread_mutex_unlock(&l->mu);
        driving = l;
        /* not done: the peer is there, and stays at least until this loop is let go */
        if (spin && l->h->k.spin_us && !done(arg) && !atomic_load(&spin->tx_work))
            spin_on(l, spin, done, arg);
        while (!(ok = done(arg))) {
            if (deadline != HW_NEVER && hw_now() >= deadline)
                break;
            hw_loop_drive(l, deadline);
            if (l->want)
                break; /* let someone else in, a revocation perhaps */
        }
        driving = NULL;
        give(l);
        if (ok)
            return true;
        pthread_mutex_lock(&l->mu);
        if (deadline != HW_NEVER && hw_now() >= deadline) {
            ok = ok || done(arg);
            break;
        }
        spin = NULL;
    }
    pthread_mutex_unlock(&l->mu);
    return ok;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "core/driver.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TASKS  64 /* in a turn, before descriptors are looked at again */
#define EVENTS 64 /* likewise */

static void wake_driver(void *arg)
{
    struct hw_driver *d = arg;
    uint64_t one = 1;
    if (atomic_exchange(&d->asleep, false))
        (void)!write(d->wake, &one, sizeof one); /* it fails only where it was written 2^64 times */
}

int hw_driver_init(struct hw_driver *d)
{
    *d = (struct hw_driver){.epoll = epoll_create1(EPOLL_CLOEXEC), .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    /* by edges: nobody has to read it */
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};
    hw_loop_init(&d->loop, wake_driver, d);
    if (d->epoll >= 0 && d->wake >= 0 && epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->wake, &e) == 0)
        return 0;
    int rc = hw_fail(-errno, "making a loop: %s", strerror(errno));
    hw_driver_free(d);
    return rc;
}

void hw_driver_free(struct hw_driver *d)
{
    if (d->epoll >= 0)
        close(d->epoll);
    if (d->wake >= 0)
        close(d->wake);
    d->epoll = d->wake = -1;
    hw_loop_free(&d->loop);
}

/* ---- turns ------------------------------------------------------------------------------------------ */

/* Rounded up, so that a timer is due when the wait is over. */
static int get_wait_ms(uint64_t until)
{
    uint64_t now = hw_now();
    if (until <= now)
        return 0;
    return until == HW_NEVER ? -1 : (int)HW_MIN((until - now + HW_MS - 1) / HW_MS, (uint64_t)INT32_MAX);
}

void hw_driver_turn(struct hw_driver *d, uint64_t until)
{
    struct epoll_event e[EVENTS];
    atomic_store(&d->asleep, true); /* whoever posts from here on writes */
    uint64_t due = hw_loop_due(&d->loop);
    int n = epoll_wait(d->epoll, e, EVENTS, atomic_load(&d->stop) ? 0 : get_wait_ms(HW_MIN(due, until)));
    atomic_store(&d->asleep, false);
    for (int i = 0; i < n; i++) {
        struct hw_source *s = e[i].data.ptr;
        if (s)
            s->ready(s);
    }
    hw_loop_turn(&d->loop, hw_now(), TASKS);
}

static void *drive(void *arg)
{
    struct hw_driver *d = arg;
    while (!atomic_load(&d->stop))
        hw_driver_turn(d, HW_NEVER);
    return NULL;
}

int hw_driver_start(struct hw_driver *d, const char *name)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited: signals are the application's business */
    int rc = pthread_create(&d->thread, NULL, drive, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return hw_fail(-rc, "starting a thread for a loop: %s", strerror(rc));
    (void)pthread_setname_np(d->thread, name);
    d->has_thread = true;
    return 0;
}

void hw_driver_stop(struct hw_driver *d)
{
    if (!d->has_thread)
        return;
    uint64_t one = 1;
    atomic_store(&d->stop, true);
    (void)!write(d->wake, &one, sizeof one);
    pthread_join(d->thread, NULL);
    d->has_thread = false;
}

/* ---- descriptors -------------------------------------------------------------------------------------- */

int hw_driver_watch(struct hw_driver *d, int fd, struct hw_source *s)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};
    if (epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
        return hw_fail(-errno, "watching a connection: %s", strerror(errno));
    return 0;
}

void hw_driver_forget(struct hw_driver *d, int fd)
{
    /* close() alone does not do where another process has a copy of the descriptor */
    (void)epoll_ctl(d->epoll, EPOLL_CTL_DEL, fd, NULL);
}

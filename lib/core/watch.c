/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptors that a driver watches. */
#include "core/driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct hw_source *hw_driver_find(const struct hw_driver *d, const struct epoll_event *e)
{
    uint32_t place = (uint32_t)e->data.u64, generation = (uint32_t)(e->data.u64 >> 32);
    return e->data.u64 == HW_NO_WATCH || d->watch[place].generation != generation ? NULL : d->watch[place].source;
}

/* Takes a slot for a watch. Fails with -ENOMEM. */
static int take_watch(struct hw_driver *d, struct hw_source *s)
{
    if (d->watch_free == d->watches) {
        uint32_t room = d->watches ? 2 * d->watches : 16;
        struct driver_watch *watch = realloc(d->watch, room * sizeof *watch);
        if (!watch)
            return hw_no_memory("watching %u connections", room);
        for (uint32_t i = d->watches; i < room; i++)
            watch[i] = (struct driver_watch){.next_free = i + 1};
        d->watch = watch;
        d->watches = room;
    }
    s->place = d->watch_free;
    d->watch_free = d->watch[s->place].next_free;
    d->watch[s->place].source = s;
    return 0;
}

static void give_watch(struct hw_driver *d, const struct hw_source *s)
{
    struct driver_watch *w = &d->watch[s->place];
    w->source = NULL;
    w->generation++;
    w->next_free = d->watch_free;
    d->watch_free = s->place;
}

int hw_driver_watch(struct hw_driver *d, int fd, struct hw_source *s)
{
    int rc = take_watch(d, s);
    if (rc < 0)
        return rc;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data.u64 = (uint64_t)d->watch[s->place].generation << 32 | s->place};
    if (epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &e) == 0) {
        s->watched = true;
        return 0;
    }
    rc = hw_fail(-errno, "watching a connection: %s", strerror(errno));
    give_watch(d, s);
    return rc;
}

void hw_driver_forget(struct hw_driver *d, int fd, struct hw_source *s)
{
    if (!s->watched)
        return;
    s->watched = false;
    if (d->recent[0] == s) {
        d->recent[0] = d->recent[1];
        d->recent[1] = NULL;
    } else if (d->recent[1] == s) {
        d->recent[1] = NULL;
    }
    /* close() alone is not sufficient if another process has a copy of the descriptor */
    (void)epoll_ctl(d->epoll, EPOLL_CTL_DEL, fd, NULL);
    give_watch(d, s);
}

/* ---- polling ---------------------------------------------------------------------------------------- */

#define RUN 64 /* after a source had bytes this many times in a row, only this source is checked */

bool hw_driver_is_recent(const struct hw_driver *d, const struct hw_source *s)
{
    return s == d->recent[0] || s == d->recent[1];
}

void hw_driver_note_bytes(struct hw_driver *d, struct hw_source *s)
{
    d->period =
        hw_driver_is_recent(d, s) ? HW_MIN(d->period + 1, HW_POLLS_MOST) : HW_MAX(d->period / 2, HW_POLLS_LEAST);
    if (s == d->recent[0]) {
        if (++d->run == RUN)
            d->recent[1] = NULL;
        return;
    }
    d->recent[1] = d->recent[0];
    d->recent[0] = s;
    d->run = 0;
}

struct hw_source *hw_driver_get_recent(const struct hw_driver *d)
{
    return d->recent[d->recent[1] ? d->polls % 2 : 0];
}

bool hw_driver_must_check_all(struct hw_driver *d)
{
    d->polls++;
    if (++d->since_all < d->period)
        return false;
    d->since_all = 0;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of completions. Each event is part of the operation or peer that the event is about, so that queueing an
 * event cannot fail. */
#include "context/context.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define TAKE_MOST 64 /* maximum number of events that are taken from the queue at a time */

void hw_event_signal(struct hawser *h, struct hw_driver *home)
{
    hw_driver_notify(&h->driver[0]);
    if (home != &h->driver[0])
        hw_driver_notify(home);
    if (h->flags & HAWSER_CALLER_PROGRESS)
        return;
    /* the descriptor stays readable until the application reads from it, so one write is enough for what is missed */
    if (!atomic_load(&h->event_wanted) && (atomic_load(&h->event_missed) || atomic_exchange(&h->event_missed, true)))
        return;
    uint64_t one = 1;
    while (write(h->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Moves the ends of operations to the queue. Called with queue_lock held. */
static void gather_ends(struct hawser *h)
{
    if (!atomic_load(&h->ended))
        return;
    struct hw_event *e = atomic_exchange(&h->ended, NULL), *oldest = NULL;
    unsigned n = 0;
    while (e) {
        struct hw_event *next = e->next;
        e->next = oldest;
        oldest = e;
        e = next;
    }
    for (; oldest; oldest = oldest->next, n++)
        hw_list_append(&h->queue, &oldest->in_queue);
    atomic_fetch_add(&h->n_queued, n);
}

void hw_event_push_end(struct hawser *h, struct hw_event *e)
{
    e->next = atomic_load(&h->ended);
    while (!atomic_compare_exchange_weak(&h->ended, &e->next, e))
        ;
    hw_event_signal(h, &h->driver[0]);
}

void hw_event_push(struct hawser *h, struct hw_event *e)
{
    pthread_mutex_lock(&h->queue_lock);
    gather_ends(h);
    if (hw_list_empty(&e->in_queue)) {
        hw_list_append(&h->queue, &e->in_queue);
        atomic_fetch_add(&h->n_queued, 1);
    }
    pthread_mutex_unlock(&h->queue_lock);
    hw_event_signal(h, &h->driver[0]);
}

void hw_event_drop(struct hawser *h, struct hw_event *e)
{
    for (bool told = true; told;) {
        pthread_mutex_lock(&h->queue_lock);
        if (!hw_list_empty(&e->in_queue)) {
            hw_list_remove(&e->in_queue);
            atomic_fetch_sub(&h->n_queued, 1);
        }
        told = e->tellers > 0; /* another thread is reporting the event, and may queue it again */
        pthread_mutex_unlock(&h->queue_lock);
        if (told)
            sched_yield();
    }
}

/* Takes the oldest event, or up to `most` of the oldest events if they are ends of operations. Other events are taken
 * one at a time, because hw_event_drop() must find them in the queue. Returns their number. */
static unsigned take_events(struct hawser *h, struct hw_event **out, unsigned most)
{
    unsigned n = 0;
    struct hw_event *e;
    pthread_mutex_lock(&h->queue_lock);
    gather_ends(h);
    while (n < most && (e = hw_list_first(&h->queue, struct hw_event, in_queue)) &&
           (n == 0 || (out[n - 1]->kind == HAWSER_ENDED && e->kind == HAWSER_ENDED))) {
        hw_list_remove(&e->in_queue);
        e->tellers++;
        out[n++] = e;
    }
    atomic_fetch_sub(&h->n_queued, n);
    pthread_mutex_unlock(&h->queue_lock);
    return n;
}

/* Fills *c with the peer's oldest notification. Returns false if there is none. */
static bool take_note(struct hawser_peer *p, struct hawser_completion *c)
{
    pthread_mutex_lock(&p->note_lock);
    struct hw_note *note = p->note;
    if (note) {
        p->note = note->next;
        if (!p->note)
            p->last_note = &p->note;
    }
    bool more = p->note != NULL;
    pthread_mutex_unlock(&p->note_lock);
    if (!note)
        return false;
    *c = (struct hawser_completion){.event = HAWSER_NOTIFIED, .peer = p, .length = note->len, .data = note->data};
    hw_peer_took(&p->peer, note->len);
    if (more)
        hw_event_push(p->h, &p->notified);
    return true;
}

/* Reports the end of an operation that has no handle, and frees the operation. */
static void tell_op(struct hawser_op *op, struct hawser_completion *c, struct hw_op **idle)
{
    *c = (struct hawser_completion){.event = HAWSER_ENDED,
                                    .result = hawser_test(op),
                                    .user = op->user,
                                    .length = hawser_op_length(op),
                                    .peer = op->peer};
    hw_op_unref(op, idle);
}

static bool tell_event(struct hawser *h, struct hw_event *e, struct hawser_completion *c, struct hw_op **idle)
{
    struct hawser_peer *p;
    switch (e->kind) {
    case HAWSER_ENDED:
        tell_op(hw_container_of(e, struct hawser_op, event), c, idle);
        return true;
    case HAWSER_NOTIFIED:
        return take_note(hw_container_of(e, struct hawser_peer, notified), c);
    case HAWSER_CONNECTED:
        p = hw_container_of(e, struct hawser_peer, connected);
        *c = (struct hawser_completion){
            .event = e->kind, .peer = p, .user = p->connect_user, .result = p->connect_result};
        return true;
    case HAWSER_ARRIVED:
        p = hw_container_of(e, struct hawser_peer, arrived);
        *c = (struct hawser_completion){.event = e->kind, .peer = p};
        return true;
    default: /* HAWSER_DIED */
        p = hw_container_of(e, struct hawser_peer, died);
        if (take_note(p, c)) { /* the application closes a dead peer, and would lose its notifications */
            hw_event_push(h, e);
            return true;
        }
        *c = (struct hawser_completion){.event = e->kind, .peer = p, .result = atomic_load(&p->state)};
        return true;
    }
}

void hw_events_free(struct hawser *h)
{
    struct hw_event *e;
    while (take_events(h, &e, 1))
        if (e->kind == HAWSER_ENDED)
            hawser_op_free(hw_container_of(e, struct hawser_op, event));
}

/* Lets hw_event_drop() return, after which the event's peer may be freed. */
static void finish_telling(struct hawser *h, struct hw_event *e)
{
    pthread_mutex_lock(&h->queue_lock);
    e->tellers--;
    pthread_mutex_unlock(&h->queue_lock);
}

static int tell_events(struct hawser *h, struct hawser_completion *out, int n)
{
    struct hw_event *e[TAKE_MOST];
    struct hw_op *idle = NULL;
    int have = 0;
    unsigned taken;
    while (have < n && (taken = take_events(h, e, HW_MIN((unsigned)(n - have), TAKE_MOST))))
        for (unsigned i = 0; i < taken; i++) {
            bool of_peer = e[i]->kind != HAWSER_ENDED; /* the end of an operation is freed when it is reported */
            have += tell_event(h, e[i], &out[have], &idle);
            if (of_peer)
                finish_telling(h, e[i]);
        }
    if (idle)
        hw_idle_keep(&h->idle, idle);
    return have;
}

static bool has_event(void *arg)
{
    struct hawser *h = arg;
    return atomic_load(&h->ended) || atomic_load(&h->n_queued);
}

int hawser_poll(hawser *h, struct hawser_completion *out, int n)
{
    if (n < 1)
        return hw_fail(-EINVAL, "invalid number of completions: %d", n);
    if (!has_event(h))
        for (unsigned i = 0; i < h->n_drivers; i++)
            hw_driver_poll(&h->driver[i], has_event, h);
    return tell_events(h, out, n);
}

int hawser_poll_wait(hawser *h, struct hawser_completion *out, int n, int timeout_ms)
{
    uint64_t deadline = hw_deadline(timeout_ms);
    int have;
    if (n < 1)
        return hw_fail(-EINVAL, "invalid number of completions: %d", n);
    do
        (void)hw_driver_wait(&h->driver[0], has_event, h, deadline);
    while ((have = tell_events(h, out, n)) == 0 && hw_now() < deadline);
    return have;
}

void hawser_data_free(void *data)
{
    if (data)
        free(hw_container_of(data, struct hw_note, data));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/copies.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STALL_NS (2 * HW_MS)  /* after this time a copy is so slow that spinning is no longer useful */
#define NAP_NS   (20 * 1000l) /* sleep between checks of a slow copy */

/* ---- one queue ---------------------------------------------------------------------------------- */

/* Handles a copy that is not complete. Sleeps only after STALL_NS, because a copy takes about 20 us. Logs each stall
 * once. */
static int not_yet(const struct hw_copies *c, struct hw_copy_queue *q)
{
    uint64_t now = hw_now();
    if (!q->waiting_since)
        q->waiting_since = now;
    uint64_t waited = now - q->waiting_since;
    if (waited > STALL_NS)
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    if (waited > c->knobs->stall_ms * HW_MS && !q->named) {
        q->named = true;
        hw_log(c->log, HAWSER_LOG_WARN, "%s has not completed a copy for %llu ms", q->space->name,
               (unsigned long long)(waited / HW_MS));
    }
    return -EBUSY;
}

int hw_copy_fail(const struct hw_copy_queue *q)
{
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", hw_error());
    return hw_fail(-ENXIO, "copying from or to %s: %s", q->space->name, text);
}

int hw_copy_test(const struct hw_copies *c, struct hw_copy_queue *q, uint64_t number)
{
    if (q->over >= number)
        return 0;
    uint64_t upto = q->over;
    if (q->space->ops->done(q->q, &upto))
        return hw_copy_fail(q);
    if (upto > q->over) {
        q->over = upto;
        q->waiting_since = 0;
        if (q->named) {
            q->named = false;
            hw_log(c->log, HAWSER_LOG_INFO, "%s completes copies again", q->space->name);
        }
    }
    return q->over >= number ? 0 : not_yet(c, q);
}

int hw_copy_start(const struct hw_copies *c, struct hw_copy_queue *q, void *to, const void *from, size_t len)
{
    int rc = q->space->ops->copy(q->q, to, from, len);
    if (rc == -EAGAIN) { /* HW_COPIES_DEPTH copies are in flight */
        rc = hw_copy_test(c, q, q->over + 1);
        if (rc)
            return rc;
        rc = q->space->ops->copy(q->q, to, from, len);
    }
    if (rc)
        return hw_copy_fail(q);
    q->started++;
    return 0;
}

/* Returns true if all copies of a queue are complete or have failed. */
static bool is_queue_idle(struct hw_copy_queue *q)
{
    return q->over >= q->started || q->space->ops->done(q->q, &q->over) || q->over >= q->started;
}

bool hw_copies_wait(const struct hw_copies *c, struct hw_copy_queue *q)
{
    uint64_t until = hw_now() + HW_COPIES_WAIT_MS * HW_MS;
    while (hw_copy_test(c, q, q->started) == -EBUSY)
        if (hw_now() >= until)
            return false;
    return true;
}

/* ---- one direction -------------------------------------------------------------------------------- */

int hw_copies_queue(struct hw_copy_way *w, const struct hw_space *space, bool may_lack, struct hw_copy_queue **out)
{
    for (*out = w->queues; *out; *out = (*out)->next)
        if ((*out)->space == space)
            return 0;
    struct hw_copy_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return hw_no_memory("a queue of copies");
    q->space = space;
    int rc = space->ops->queue_open(space, HW_COPIES_DEPTH, &q->q);
    if (rc && !may_lack) {
        free(q);
        return rc;
    }
    q->q = rc ? NULL : q->q;
    q->next = w->queues;
    w->queues = *out = q;
    return 0;
}

int hw_copies_pin(struct hw_copy_way *w, const struct hw_space *space, size_t size)
{
    if (w->pinned_by)
        return 0;
    if (!w->base)
        w->base = hw_pages_alloc(size, space->numa);
    if (!w->base)
        return hw_no_memory("%zu bytes of staging (knob stage)", size);
    w->size = size;
    int rc = space->ops->pin(space, w->base, size);
    w->pinned_by = rc ? NULL : space;
    return rc;
}

static void free_way(struct hw_copy_way *w)
{
    for (struct hw_copy_queue *q = w->queues, *next; q; q = next) {
        next = q->next;
        if (q->q)
            q->space->ops->queue_close(q->q);
        free(q);
    }
    if (w->pinned_by)
        w->pinned_by->ops->unpin(w->pinned_by, w->base);
    if (w->base)
        hw_pages_free(w->base, w->size);
}

/* ---- both directions ------------------------------------------------------------------------------- */

/* Copies that were left behind because the device was stuck when their connection ended. free_idle() frees them once
 * the device has responded. */
static pthread_mutex_t left_mu = PTHREAD_MUTEX_INITIALIZER;
static struct hw_copies *left;

static void free_copies(struct hw_copies *c)
{
    free_way(&c->out);
    free_way(&c->in);
    free(c);
}

static bool is_way_idle(const struct hw_copy_way *w)
{
    bool all = true;
    for (struct hw_copy_queue *q = w->queues; q; q = q->next)
        all &= is_queue_idle(q);
    return all;
}

static void free_idle(void)
{
    pthread_mutex_lock(&left_mu);
    for (struct hw_copies **at = &left; *at;) {
        struct hw_copies *c = *at;
        if (is_way_idle(&c->out) && is_way_idle(&c->in)) {
            *at = c->next;
            free_copies(c);
        } else {
            at = &c->next;
        }
    }
    pthread_mutex_unlock(&left_mu);
}

struct hw_copies *hw_copies_new(const struct hw_knobs *k, const struct hw_logger *log)
{
    struct hw_copies *c = calloc(1, sizeof(*c));
    free_idle();
    if (!c) {
        (void)hw_no_memory("a connection's staging");
        return NULL;
    }
    c->knobs = k;
    c->log = log;
    return c;
}

/* Waits for all copies of a direction. Returns the first queue that does not finish in time, or NULL. */
static const struct hw_copy_queue *find_stuck(const struct hw_copies *c, const struct hw_copy_way *w)
{
    struct hw_copy_queue *q = w->queues;
    while (q && hw_copies_wait(c, q))
        q = q->next;
    return q;
}

const struct hw_copy_queue *hw_copies_find_stuck(const struct hw_copies *c)
{
    const struct hw_copy_queue *stuck = find_stuck(c, &c->out);
    return stuck ? stuck : find_stuck(c, &c->in);
}

void hw_copies_free(struct hw_copies *c)
{
    if (c) {
        const struct hw_copy_queue *stuck = hw_copies_find_stuck(c);
        if (!stuck) {
            free_copies(c);
        } else {
            hw_log(c->log, HAWSER_LOG_ERROR,
                   "%s hangs in a copy: the staging memory of a connection is kept until the copy ends",
                   stuck->space->name);
            pthread_mutex_lock(&left_mu);
            c->next = left;
            left = c;
            pthread_mutex_unlock(&left_mu);
        }
    }
    free_idle();
}

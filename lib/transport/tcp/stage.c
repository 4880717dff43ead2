/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/stage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAGE      4096u /* pieces start on pages, so that they go by reference whole */
#define DEPTH     64u   /* copies under way per queue */
#define SLICES    16u   /* of the incoming ring */
#define SLICE_MIN (64u << 10)
#define STALL_NS  (2 * HW_MS)  /* a copy that takes longer is not worth spinning for */
#define NAP_NS    (20 * 1000l) /* the sleep between looks from then on */

/* The copies of one space. A connection mostly sees one; a list, since it may see any. */
struct queue {
    struct queue *next;
    const struct hw_space *space;
    struct hw_copyq *q;
    uint64_t started, over;
    uint64_t waiting_since; /* for the oldest; 0: nobody waits */
    bool named;             /* its stall was logged */
};

struct ring {
    uint8_t *base;
    size_t size;
    const struct hw_space *pinned_by;
};

struct slice {
    struct queue *queue;
    uint64_t ticket;
};

struct hw_stage {
    struct hw_stage *next; /* in `left` */
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    struct queue *out_queues, *in_queues; /* apart, as a GPU copies in both directions at once */

    struct ring out;
    uint64_t head, tail; /* of out, in bytes since the beginning; tail <= head <= tail + size */

    struct ring in;
    struct slice slice[SLICES];
    uint32_t slice_size;
    unsigned at;        /* slice being filled */
    uint32_t fill;      /* bytes in it */
    struct queue *in_q; /* of the receive at hand */
    uint8_t *to;        /* NULL: cut off */
    uint32_t left;      /* bytes of it still to come from the socket */
    uint64_t in_ticket; /* its last copy */
};

static size_t round_up(size_t n)
{
    return (n + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* The largest chunk this side sends: a rest of less than 4096 bytes goes along with the last one (hw_op_cut). */
static size_t get_largest_chunk(const struct hw_stage *s)
{
    return round_up(s->knobs->chunk + 4096);
}

/* Sleeping pays only for a device that is stuck: a copy takes some 20 us. One that is, is named, once. */
static int not_yet(struct hw_stage *s, struct queue *q)
{
    uint64_t now = hw_now();
    if (!q->waiting_since)
        q->waiting_since = now;
    uint64_t waited = now - q->waiting_since;
    if (waited > STALL_NS)
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    if (waited > s->knobs->stall_ms * HW_MS && !q->named) {
        q->named = true;
        hw_log(s->log, HAWSER_LOG_WARN, "%s has not copied for %llu ms", q->space->name,
               (unsigned long long)(waited / HW_MS));
    }
    return -EBUSY;
}

static int fail_stage_copy(struct queue *q)
{
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", hw_error());
    return hw_fail(-ENXIO, "copying from or to %s: %s", q->space->name, text);
}

/* Is copy `ticket` over? */
static int test_stage_copy(struct hw_stage *s, struct queue *q, uint64_t ticket)
{
    if (q->over >= ticket)
        return 0;
    uint64_t upto = q->over;
    if (q->space->ops->done(q->q, &upto))
        return fail_stage_copy(q);
    if (upto > q->over) {
        q->over = upto;
        q->waiting_since = 0;
        if (q->named) {
            q->named = false;
            hw_log(s->log, HAWSER_LOG_WARN, "%s copies again", q->space->name);
        }
    }
    return q->over >= ticket ? 0 : not_yet(s, q);
}

static int start_stage_copy(struct hw_stage *s, struct queue *q, void *to, const void *from, size_t len)
{
    int rc = q->space->ops->copy(q->q, to, from, len);
    if (rc == -EAGAIN) { /* DEPTH are under way */
        rc = test_stage_copy(s, q, q->over + 1);
        if (rc)
            return rc;
        rc = q->space->ops->copy(q->q, to, from, len);
    }
    if (rc)
        return fail_stage_copy(q);
    q->started++;
    return 0;
}

static int queue_of(struct queue **list, const struct hw_space *space, struct queue **out)
{
    for (*out = *list; *out; *out = (*out)->next)
        if ((*out)->space == space)
            return 0;
    struct queue *q = calloc(1, sizeof(*q));
    if (!q)
        return hw_no_memory("a queue of copies");
    q->space = space;
    int rc = space->ops->queue_open(space, DEPTH, &q->q);
    if (rc) {
        free(q);
        return rc;
    }
    q->next = *list;
    *list = *out = q;
    return 0;
}

static int ring_make(struct ring *r, const struct hw_space *space, size_t size)
{
    if (r->base)
        return 0;
    uint8_t *base = hw_pages_alloc(size, space->numa);
    if (!base)
        return hw_no_memory("%zu bytes of staging (knob stage)", size);
    int rc = space->ops->pin(space, base, size);
    if (rc) {
        hw_pages_free(base, size);
        return rc;
    }
    *r = (struct ring){.base = base, .size = size, .pinned_by = space};
    return 0;
}

static void ring_free(struct ring *r)
{
    if (!r->base)
        return;
    r->pinned_by->ops->unpin(r->pinned_by, r->base);
    hw_pages_free(r->base, r->size);
}

/* All copies of a queue over? Failed counts: nothing is copied any more. */
static bool is_queue_idle(struct queue *q)
{
    return q->over >= q->started || q->space->ops->done(q->q, &q->over) || q->over >= q->started;
}

/* Waits for that. False where the device is stuck. */
static bool wait_stage_copies(struct hw_stage *s, struct queue *q)
{
    uint64_t until = hw_now() + HW_STAGE_WAIT_MS * HW_MS;
    while (test_stage_copy(s, q, q->started) == -EBUSY)
        if (hw_now() >= until)
            return false;
    return true;
}

static void free_stage(struct hw_stage *s)
{
    for (int way = 0; way < 2; way++) {
        for (struct queue *q = way ? s->in_queues : s->out_queues, *next; q; q = next) {
            next = q->next;
            q->space->ops->queue_close(q->q);
            free(q);
        }
        ring_free(way ? &s->in : &s->out);
    }
    free(s);
}

/* Stages whose device was stuck when their connection ended. They are freed once it no longer is. */
static pthread_mutex_t left_mu = PTHREAD_MUTEX_INITIALIZER;
static struct hw_stage *left;

static void free_idle_stages(void)
{
    pthread_mutex_lock(&left_mu);
    for (struct hw_stage **at = &left; *at;) {
        struct hw_stage *s = *at;
        bool all = true;
        for (int way = 0; way < 2; way++)
            for (struct queue *q = way ? s->in_queues : s->out_queues; q; q = q->next)
                all &= is_queue_idle(q);
        if (all) {
            *at = s->next;
            free_stage(s);
        } else {
            at = &s->next;
        }
    }
    pthread_mutex_unlock(&left_mu);
}

struct hw_stage *hw_stage_new(const struct hw_knobs *k, const struct hw_logger *log)
{
    struct hw_stage *s = calloc(1, sizeof(*s));
    free_idle_stages();
    if (!s) {
        (void)hw_no_memory("a connection's staging");
        return NULL;
    }
    s->knobs = k;
    s->log = log;
    return s;
}

void hw_stage_free(struct hw_stage *s)
{
    if (s) {
        struct queue *stuck = NULL;
        for (int way = 0; way < 2 && !stuck; way++)
            for (struct queue *q = way ? s->in_queues : s->out_queues; q && !stuck; q = q->next)
                stuck = wait_stage_copies(s, q) ? NULL : q;
        if (!stuck) {
            free_stage(s);
        } else {
            hw_log(s->log, HAWSER_LOG_ERROR, "%s is stuck in a copy: the staging memory of a connection is left to it",
                   stuck->space->name);
            pthread_mutex_lock(&left_mu);
            s->next = left;
            left = s;
            pthread_mutex_unlock(&left_mu);
        }
    }
    free_idle_stages();
}

/* ---- out --------------------------------------------------------------------------------------- */

static size_t out_size(const struct hw_stage *s)
{
    return HW_MAX(round_up(s->knobs->stage), 2 * get_largest_chunk(s));
}

/* Free bytes in one piece at the head, after the skip to the ring's beginning where that gives more. */
static size_t find_contiguous_room(const struct hw_stage *s, size_t size, size_t need, uint64_t *at)
{
    size_t space = size - (size_t)(s->head - s->tail), pos = (size_t)(s->head % size), to_end = size - pos;
    *at = s->head;
    if (to_end >= need || to_end >= space)
        return HW_MIN(to_end, space);
    *at = s->head + to_end;
    return space - to_end;
}

uint32_t hw_stage_room(const struct hw_stage *s)
{
    uint64_t at;
    size_t room = find_contiguous_room(s, out_size(s), get_largest_chunk(s), &at);
    return room < get_largest_chunk(s) ? 0 : (uint32_t)HW_MIN(room, (size_t)UINT32_MAX);
}

int hw_stage_out(struct hw_stage *s, const struct hw_space *space, const void *src, uint32_t len, struct hw_staged *out)
{
    struct queue *q;
    size_t need = round_up(len);
    uint64_t at;
    int rc = ring_make(&s->out, space, out_size(s));
    if (rc == 0)
        rc = queue_of(&s->out_queues, space, &q);
    if (rc) /* the text says why */
        return rc == -ENOMEM ? rc : -ENXIO;
    if (s->head == s->tail && s->head % s->out.size) /* empty: from the beginning, all of it in one piece */
        s->head = s->tail = s->head + s->out.size - s->head % s->out.size;
    if (find_contiguous_room(s, s->out.size, need, &at) < need)
        return -EBUSY;
    uint8_t *host = s->out.base + at % s->out.size;
    rc = start_stage_copy(s, q, host, src, len);
    if (rc)
        return rc;
    s->head = at + need;
    *out = (struct hw_staged){.space = space, .host = host, .queue = q, .ticket = q->started, .end = s->head};
    return 0;
}

int hw_stage_ready(struct hw_stage *s, struct hw_staged *st)
{
    return test_stage_copy(s, st->queue, st->ticket);
}

void hw_stage_release(struct hw_stage *s, const struct hw_staged *st)
{
    s->tail = HW_MAX(s->tail, st->end);
}

/* ---- in ---------------------------------------------------------------------------------------- */

int hw_stage_in(struct hw_stage *s, const struct hw_space *space, void *to, uint32_t len)
{
    if (!s->in.base) {
        size_t slice = round_up(HW_MAX(s->knobs->stage / SLICES, (uint64_t)SLICE_MIN));
        int rc = ring_make(&s->in, space, slice * SLICES);
        if (rc)
            return rc;
        s->slice_size = (uint32_t)slice;
    }
    int rc = queue_of(&s->in_queues, space, &s->in_q);
    if (rc)
        return rc;
    s->to = to;
    s->left = len;
    s->fill = 0;
    s->in_ticket = 0;
    return 0;
}

int hw_stage_in_buffer(struct hw_stage *s, uint8_t **host, uint32_t *len)
{
    struct slice *sl = &s->slice[s->at];
    if (sl->queue) {
        int rc = test_stage_copy(s, sl->queue, sl->ticket);
        if (rc)
            return rc;
        sl->queue = NULL;
    }
    *host = s->in.base + (size_t)s->at * s->slice_size + s->fill;
    *len = HW_MIN(s->slice_size - s->fill, s->left);
    return 0;
}

int hw_stage_in_fill(struct hw_stage *s, uint32_t n)
{
    s->fill += n;
    s->left -= n;
    if (s->left && s->fill < s->slice_size)
        return 0;
    int rc = start_stage_copy(s, s->in_q, s->to, s->in.base + (size_t)s->at * s->slice_size, s->fill);
    if (rc == -EBUSY) /* cannot be: a queue is deeper than the ring has slices */
        rc = hw_fail(-ENXIO, "more copies than slices");
    if (rc)
        return rc;
    s->to += s->fill;
    s->in_ticket = s->in_q->started;
    s->slice[s->at] = (struct slice){.queue = s->in_q, .ticket = s->in_ticket};
    s->at = (s->at + 1) % SLICES;
    s->fill = 0;
    return 0;
}

int hw_stage_in_done(struct hw_stage *s)
{
    return s->in_ticket ? test_stage_copy(s, s->in_q, s->in_ticket) : 0;
}

void hw_stage_cut(struct hw_stage *s)
{
    for (struct queue *q = s->in_queues; q; q = q->next)
        if (!wait_stage_copies(s, q))
            hw_log(s->log, HAWSER_LOG_ERROR, "%s is stuck in a copy, and may still write to memory that is given back",
                   q->space->name);
    s->to = NULL;
    s->left = 0;
    s->fill = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/stage.h"

#include "transport/tcp/copies.h"

#include <stdlib.h>

#define PAGE      4096u /* pieces start on pages, so that they go by reference whole */
#define SLICES    16u   /* of the incoming ring */
#define SLICE_MIN (64u << 10)

struct slice {
    struct hw_copy_queue *queue;
    uint64_t ticket;
};

struct hw_stage {
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    struct hw_copies *copies;

    uint64_t head, tail; /* of the outgoing ring, in bytes since the beginning; tail <= head <= tail + size */

    struct slice slice[SLICES];
    uint32_t slice_size;
    unsigned at;                /* slice being filled */
    uint32_t fill;              /* bytes in it */
    struct hw_copy_queue *in_q; /* of the receive at hand */
    uint8_t *to;                /* NULL: cut off */
    uint32_t left;              /* bytes of it still to come from the socket */
    uint64_t in_ticket;         /* its last copy */
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

struct hw_stage *hw_stage_new(const struct hw_knobs *k, const struct hw_logger *log)
{
    struct hw_copies *copies = hw_copies_new(k, log);
    struct hw_stage *s = copies ? calloc(1, sizeof(*s)) : NULL;
    if (!s) {
        hw_copies_free(copies);
        (void)hw_no_memory("a connection's staging");
        return NULL;
    }
    s->knobs = k;
    s->log = log;
    s->copies = copies;
    return s;
}

void hw_stage_free(struct hw_stage *s)
{
    if (!s)
        return;
    hw_copies_free(s->copies);
    free(s);
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

int hw_stage_out(struct hw_stage *s, const struct hw_space *space, const void *src, uint32_t len, struct hw_staged *to)
{
    struct hw_copy_queue *q;
    size_t need = round_up(len);
    uint64_t at;
    struct hw_copy_way *w = &s->copies->out;
    int rc = hw_copies_pin(w, space, out_size(s));
    if (rc == 0)
        rc = hw_copies_queue(w, space, false, &q);
    if (rc) /* the text says why */
        return rc == -ENOMEM ? rc : -ENXIO;
    if (s->head == s->tail && s->head % w->size) /* empty: from the beginning, all of it in one piece */
        s->head = s->tail = s->head + w->size - s->head % w->size;
    if (find_contiguous_room(s, w->size, need, &at) < need)
        return -EBUSY;
    uint8_t *host = w->base + at % w->size;
    rc = hw_copy_start(s->copies, q, host, src, len);
    if (rc)
        return rc;
    s->head = at + need;
    *to = (struct hw_staged){.space = space, .host = host, .queue = q, .ticket = q->started, .end = s->head};
    return 0;
}

int hw_stage_ready(struct hw_stage *s, struct hw_staged *st)
{
    return hw_copy_test(s->copies, st->queue, st->ticket);
}

void hw_stage_release(struct hw_stage *s, const struct hw_staged *st)
{
    s->tail = HW_MAX(s->tail, st->end);
}

/* ---- in ---------------------------------------------------------------------------------------- */

int hw_stage_in(struct hw_stage *s, const struct hw_space *space, void *to, uint32_t len)
{
    size_t slice = round_up(HW_MAX(s->knobs->stage / SLICES, (uint64_t)SLICE_MIN));
    int rc = hw_copies_pin(&s->copies->in, space, slice * SLICES);
    if (rc == 0)
        rc = hw_copies_queue(&s->copies->in, space, false, &s->in_q);
    if (rc)
        return rc;
    s->slice_size = (uint32_t)slice;
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
        int rc = hw_copy_test(s->copies, sl->queue, sl->ticket);
        if (rc)
            return rc;
        sl->queue = NULL;
    }
    *host = s->copies->in.base + (size_t)s->at * s->slice_size + s->fill;
    *len = HW_MIN(s->slice_size - s->fill, s->left);
    return 0;
}

int hw_stage_in_fill(struct hw_stage *s, uint32_t n)
{
    s->fill += n;
    s->left -= n;
    if (s->left && s->fill < s->slice_size)
        return 0;
    int rc = hw_copy_start(s->copies, s->in_q, s->to, s->copies->in.base + (size_t)s->at * s->slice_size, s->fill);
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
    return s->in_ticket ? hw_copy_test(s->copies, s->in_q, s->in_ticket) : 0;
}

void hw_stage_cut(struct hw_stage *s)
{
    for (struct hw_copy_queue *q = s->copies->in.queues; q; q = q->next)
        if (!hw_copies_wait(s->copies, q))
            hw_log(s->log, HAWSER_LOG_ERROR, "%s is stuck in a copy, and may still write to memory that is given back",
                   q->space->name);
    s->to = NULL;
    s->left = 0;
    s->fill = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/staging.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE       4096u
#define ALIGN      64u /* of parts */
#define DEPTH      64u /* copies under way per queue, and parts of a ring */
#define PART_LEAST (64u << 10)
#define PART_SHARE 16u          /* a part is at most so much of the ring */
#define STALL_NS   (2 * HW_MS)  /* a copy that takes longer is not worth spinning for */
#define NAP_NS     (20 * 1000l) /* the sleep between looks from then on */

/* The copies of one space. A connection mostly sees one; a list, since it may see any. */
struct queue {
    struct queue *next;
    const struct hw_space *space;
    struct hw_copyq *q; /* NULL: the space has none, and each copy is done at once */
    uint64_t started, over;
    uint64_t waiting_since; /* for the oldest; 0: nobody waits */
    bool named;             /* its stall was logged */
};

/* Some bytes in the ring that one copy moves. */
struct part {
    struct queue *queue;
    uint64_t ticket;
    const uint8_t *from; /* out: what was copied, at the part's beginning */
    uint64_t at;         /* of the ring's bytes since the beginning */
    uint32_t len;
};

/* One direction: pinned memory, and the parts in it, oldest first. */
struct way {
    struct queue *queues;             /* apart, as a GPU copies in both directions at once */
    uint8_t *base;                    /* NULL: not made yet */
    const struct hw_space *pinned_by; /* NULL: the memory is not pinned, and each copy is done at once */
    uint64_t head, tail;              /* in bytes since the beginning; tail <= head <= tail + size */
    struct part part[DEPTH];
    uint64_t first, next; /* parts, by number; part n is at n % DEPTH */
    uint64_t bytes;       /* of the parts, without `taken` */
    uint32_t taken;       /* of the first part */
};

struct hw_staging {
    struct hw_staging *next; /* in `left` */
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    size_t size; /* of each ring */
    struct way out, in;
    /* in: */
    struct part filling; /* bytes from the socket that are not being copied yet .. */
    uint8_t *to;         /* .. where they belong .. */
    uint32_t room;       /* .. and how many there may be; 0: no part is begun */
    uint64_t placed;     /* bytes whose copy is over, and that the caller was not told of */
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static uint32_t get_part_most(const struct hw_staging *s)
{
    return (uint32_t)(s->size / PART_SHARE);
}

/* Sleeping pays only for a device that is stuck: a copy takes some 20 us. One that is, is named, once. */
static int not_yet(struct hw_staging *s, struct queue *q)
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
static int test_stage_copy(struct hw_staging *s, struct queue *q, uint64_t ticket)
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

static int start_stage_copy(struct hw_staging *s, struct queue *q, void *to, const void *from, size_t len)
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
    if (space->ops->queue_open(space, DEPTH, &q->q) < 0)
        q->q = NULL;
    q->next = *list;
    *list = *out = q;
    return 0;
}

static int make_ring(struct hw_staging *s, struct way *w, const struct hw_space *space)
{
    if (w->base)
        return 0;
    uint8_t *base = hw_pages_alloc(s->size, space->numa);
    if (!base)
        return hw_no_memory("%zu bytes of staging (knob stage)", s->size);
    w->base = base;
    w->pinned_by = space->ops->pin(space, base, s->size) == 0 ? space : NULL;
    if (!w->pinned_by)
        hw_log(s->log, HAWSER_LOG_WARN, "copies of %s block for want of pinned memory: %s", space->name, hw_error());
    return 0;
}

static void free_ring(struct hw_staging *s, struct way *w)
{
    if (!w->base)
        return;
    if (w->pinned_by)
        w->pinned_by->ops->unpin(w->pinned_by, w->base);
    hw_pages_free(w->base, s->size);
}

/* All copies of a queue over? Failed counts: nothing is copied any more. */
static bool is_queue_idle(struct queue *q)
{
    return q->over >= q->started || q->space->ops->done(q->q, &q->over) || q->over >= q->started;
}

/* Waits for that. False where the device is stuck. */
static bool wait_stage_copies(struct hw_staging *s, struct queue *q)
{
    uint64_t until = hw_now() + HW_STAGING_WAIT_MS * HW_MS;
    while (test_stage_copy(s, q, q->started) == -EBUSY)
        if (hw_now() >= until)
            return false;
    return true;
}

/* Waits for all copies of a direction: the queue that is not done in time, if there is one. */
static struct queue *find_stuck(struct hw_staging *s, struct way *w)
{
    struct queue *q = w->queues;
    while (q && wait_stage_copies(s, q))
        q = q->next;
    return q;
}

static void free_stage(struct hw_staging *s)
{
    for (int i = 0; i < 2; i++) {
        struct way *w = i ? &s->in : &s->out;
        for (struct queue *q = w->queues, *next; q; q = next) {
            next = q->next;
            if (q->q)
                q->space->ops->queue_close(q->q);
            free(q);
        }
        free_ring(s, w);
    }
    free(s);
}

/* Stages whose device was stuck when their connection ended. They are freed once it no longer is. */
static pthread_mutex_t left_mu = PTHREAD_MUTEX_INITIALIZER;
static struct hw_staging *left;

static void free_idle_stages(void)
{
    pthread_mutex_lock(&left_mu);
    for (struct hw_staging **at = &left; *at;) {
        struct hw_staging *s = *at;
        bool all = true;
        for (int i = 0; i < 2; i++)
            for (struct queue *q = i ? s->in.queues : s->out.queues; q; q = q->next)
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

struct hw_staging *hw_staging_new(const struct hw_knobs *k, const struct hw_logger *log)
{
    struct hw_staging *s = calloc(1, sizeof(*s));
    free_idle_stages();
    if (!s) {
        (void)hw_no_memory("a connection's staging");
        return NULL;
    }
    s->knobs = k;
    s->log = log;
    s->size = (size_t)HW_MAX(round_up(k->stage, (uint64_t)PART_SHARE * PAGE), (uint64_t)PART_SHARE * PART_LEAST);
    return s;
}

void hw_staging_free(struct hw_staging *s)
{
    if (s) {
        struct queue *stuck = find_stuck(s, &s->out);
        if (!stuck)
            stuck = find_stuck(s, &s->in);
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

/* ---- rings ---------------------------------------------------------------------------------------- */

/* Bytes that the next part may have; *at: where it begins. 0: none now. */
static uint32_t find_room(const struct hw_staging *s, const struct way *w, uint64_t *at)
{
    uint64_t space = s->size - (w->head - w->tail), to_end = s->size - w->head % s->size;
    *at = w->head;
    if (w->next - w->first == DEPTH)
        return 0;
    if (to_end < get_part_most(s) && to_end < space) { /* too little is left behind the head: from the beginning */
        *at += to_end;
        space -= to_end;
    } else {
        space = HW_MIN(space, to_end);
    }
    return (uint32_t)HW_MIN(space, (uint64_t)get_part_most(s));
}

static uint8_t *get_host(const struct hw_staging *s, const struct way *w, const struct part *p)
{
    return w->base + p->at % s->size;
}

/* Later, or at once. */
static bool copies_later(const struct way *w, const struct part *p)
{
    return w->pinned_by && p->queue->q;
}

static int start_part_copy(struct hw_staging *s, const struct way *w, const struct part *p, void *to, const void *from)
{
    if (copies_later(w, p))
        return start_stage_copy(s, p->queue, to, from, p->len);
    return w == &s->in ? hw_store(p->queue->space, to, from, p->len) : hw_load(p->queue->space, to, from, p->len);
}

/* Starts the copy of a part, and appends it. */
static int append_part(struct hw_staging *s, struct way *w, const struct part *p, void *to, const void *from)
{
    int rc = start_part_copy(s, w, p, to, from);
    if (rc < 0)
        return rc;
    struct part *last = &w->part[w->next++ % DEPTH];
    *last = *p;
    last->ticket = copies_later(w, p) ? p->queue->started : 0;
    w->head = p->at + round_up(p->len, ALIGN);
    w->bytes += p->len;
    return 0;
}

static void drop_first_part(struct way *w)
{
    const struct part *p = &w->part[w->first++ % DEPTH];
    w->tail = p->at + round_up(p->len, ALIGN);
    w->bytes -= p->len - w->taken;
    w->taken = 0;
}

static int prepare_copies(struct hw_staging *s, struct way *w, const struct hw_space *space, struct queue **q)
{
    int rc = make_ring(s, w, space);
    return rc < 0 ? rc : queue_of(&w->queues, space, q);
}

/* ---- out -------------------------------------------------------------------------------------------- */

/* Copies len bytes at `from` in as many parts as it takes. -EBUSY: all that there is room for. */
static int stage_bytes(struct hw_staging *s, const struct hw_space *space, const uint8_t *from, uint64_t len)
{
    struct way *w = &s->out;
    struct part p = {0};
    int rc = prepare_copies(s, w, space, &p.queue);
    while (rc == 0 && len) {
        p.from = from;
        p.len = (uint32_t)HW_MIN((uint64_t)find_room(s, w, &p.at), len);
        if (p.len == 0)
            return -EBUSY;
        rc = append_part(s, w, &p, get_host(s, w, &p), from);
        from += p.len;
        len -= p.len;
    }
    return rc;
}

/* True if the ring has the first bytes of these pieces, or nothing. */
static bool is_staged(const struct way *w, const struct hw_piece *piece, uint32_t n)
{
    while (n && piece->space->direct)
        piece++, n--;
    return w->first == w->next || (n && w->part[w->first % DEPTH].from + w->taken == piece->ptr);
}

int hw_staging_ahead(struct hw_staging *s, const struct hw_piece *piece, uint32_t n)
{
    if (!is_staged(&s->out, piece, n)) { /* they went by another way */
        int rc = hw_staging_settle(s);
        if (rc < 0)
            return rc;
    }
    uint64_t done = s->out.bytes; /* of the pieces, those that are in the ring */
    for (; n; piece++, n--) {
        if (piece->space->direct)
            continue;
        uint64_t skip = HW_MIN(done, piece->len);
        done -= skip;
        int rc = skip < piece->len ? stage_bytes(s, piece->space, piece->ptr + skip, piece->len - skip) : 0;
        if (rc < 0)
            return rc == -EBUSY ? 0 : rc;
    }
    return 0;
}

int hw_staging_list(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, struct iovec *iov, size_t cap)
{
    struct way *w = &s->out;
    uint64_t number = w->first;
    uint32_t taken = w->taken;
    size_t k = 0;
    for (; n && k < cap; piece++, n--) {
        uint64_t rest = piece->len;
        if (piece->space->direct) {
            iov[k++] = (struct iovec){piece->ptr, rest};
            continue;
        }
        for (; rest && k < cap; taken = 0) {
            struct part *p = &w->part[number % DEPTH];
            int rc = number == w->next ? -EBUSY : test_stage_copy(s, p->queue, p->ticket);
            if (rc < 0)
                return k ? (int)k : rc;
            uint64_t some = HW_MIN(rest, (uint64_t)(p->len - taken));
            iov[k++] = (struct iovec){get_host(s, w, p) + taken, some};
            rest -= some;
            number++; /* no part has bytes of two pieces */
        }
    }
    return (int)k;
}

void hw_staging_sent(struct hw_staging *s, const struct hw_piece *piece, uint64_t bytes)
{
    struct way *w = &s->out;
    for (; bytes; piece++) {
        uint64_t of_piece = HW_MIN(bytes, piece->len);
        bytes -= of_piece;
        while (!piece->space->direct && of_piece) {
            const struct part *p = &w->part[w->first % DEPTH];
            uint32_t some = (uint32_t)HW_MIN(of_piece, (uint64_t)(p->len - w->taken));
            w->taken += some;
            w->bytes -= some;
            of_piece -= some;
            if (w->taken == p->len)
                drop_first_part(w);
        }
    }
}

/* ---- in --------------------------------------------------------------------------------------------- */

/* Begins to copy what has come from the socket. */
static int copy_filled(struct hw_staging *s)
{
    struct part p = s->filling;
    s->room = s->filling.len = 0;
    return p.len ? append_part(s, &s->in, &p, s->to, get_host(s, &s->in, &p)) : 0;
}

/* Begins a part for the bytes that come next. */
static int begin_part(struct hw_staging *s, const struct hw_piece *piece, uint32_t n)
{
    uint64_t have = s->placed + s->in.bytes;
    for (; n && !piece->space->direct && have >= piece->len; piece++, n--)
        have -= piece->len;
    if (!n || piece->space->direct)
        return -EBUSY;
    int rc = prepare_copies(s, &s->in, piece->space, &s->filling.queue);
    if (rc < 0)
        return rc;
    s->room = (uint32_t)HW_MIN((uint64_t)find_room(s, &s->in, &s->filling.at), piece->len - have);
    s->filling.len = 0;
    s->to = piece->ptr + have;
    return s->room ? 0 : -EBUSY;
}

int hw_staging_in_buffer(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, uint8_t **host, uint32_t *len)
{
    int rc = s->room ? 0 : begin_part(s, piece, n);
    if (rc < 0)
        return rc;
    *host = get_host(s, &s->in, &s->filling) + s->filling.len;
    *len = s->room - s->filling.len;
    return 0;
}

int hw_staging_in_fill(struct hw_staging *s, uint32_t n)
{
    s->filling.len += n;
    return s->filling.len == s->room ? copy_filled(s) : 0;
}

bool hw_staging_in_owes(const struct hw_staging *s)
{
    return s->placed || s->in.bytes;
}

int64_t hw_staging_in_placed(struct hw_staging *s, uint64_t most)
{
    int rc = 0;
    while (s->in.first < s->in.next) {
        const struct part *p = &s->in.part[s->in.first % DEPTH];
        if ((rc = test_stage_copy(s, p->queue, p->ticket)) < 0)
            break;
        s->placed += p->len;
        drop_first_part(&s->in);
    }
    uint64_t n = HW_MIN(s->placed, most);
    s->placed -= n;
    return n ? (int64_t)n : rc;
}

int hw_staging_settle(struct hw_staging *s)
{
    struct queue *stuck;
    int rc = copy_filled(s);
    if (rc < 0)
        return rc;
    if ((stuck = find_stuck(s, &s->out)) || (stuck = find_stuck(s, &s->in)))
        return hw_fail(-ENXIO, "%s is stuck in a copy of memory that is to be given back", stuck->space->name);
    while (s->out.first < s->out.next)
        drop_first_part(&s->out);
    return 0;
}

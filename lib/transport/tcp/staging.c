/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/staging.h"

#include "transport/tcp/copies.h"

#include <stdlib.h>
#include <string.h>

#define PAGE       4096u
#define ALIGN      64u             /* alignment of parts */
#define PARTS      HW_COPIES_DEPTH /* maximum number of parts in a ring */
#define PART_LEAST (64u << 10)
#define PART_SHARE 16u /* a part is at most 1/16 of the ring */

/* The bytes of the ring that one copy moves. */
struct part {
    struct hw_copy_queue *queue;
    uint64_t ticket;
    const uint8_t *from; /* out: source address of the part's first byte */
    uint64_t at;         /* position, counted in bytes since the beginning */
    uint32_t len;
};

/* One direction: the parts in its ring, oldest first. */
struct way {
    struct hw_copy_way *copies;
    uint64_t head, tail; /* positions, counted in bytes since the beginning; tail <= head <= tail + size */
    struct part part[PARTS];
    uint64_t first, next; /* part numbers; part n is part[n % PARTS] */
    uint64_t bytes;       /* bytes of all parts, without `taken` */
    uint32_t taken;       /* bytes of the first part that were taken */
};

struct hw_staging {
    const struct hw_logger *log;
    struct hw_copies *copies;
    size_t size; /* size of each ring */
    struct way out, in;
    /* only for receiving */
    struct part filling; /* bytes from the socket for which no copy has been started */
    uint8_t *to;         /* destination of these bytes */
    uint32_t room;       /* maximum bytes of this part, or 0 if no part has begun */
    uint64_t placed;     /* bytes that are in place and were not reported to the caller */
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static uint32_t get_part_most(const struct hw_staging *s)
{
    return (uint32_t)(s->size / PART_SHARE);
}

struct hw_staging *hw_staging_new(const struct hw_knobs *k, const struct hw_logger *log)
{
    struct hw_copies *copies = hw_copies_new(k, log);
    struct hw_staging *s = copies ? calloc(1, sizeof(*s)) : NULL;
    if (!s) {
        hw_copies_free(copies);
        (void)hw_no_memory("a connection's staging");
        return NULL;
    }
    s->log = log;
    s->copies = copies;
    s->out.copies = &copies->out;
    s->in.copies = &copies->in;
    s->size = (size_t)HW_MAX(round_up(k->stage, (uint64_t)PART_SHARE * PAGE), (uint64_t)PART_SHARE * PART_LEAST);
    return s;
}

void hw_staging_free(struct hw_staging *s)
{
    if (!s)
        return;
    hw_copies_free(s->copies);
    free(s);
}

/* ---- rings ---------------------------------------------------------------------------------------- */

/* Returns the maximum size of the next part and its position in *at, or 0 if there is currently no space. */
static uint32_t find_room(const struct hw_staging *s, const struct way *w, uint64_t *at)
{
    uint64_t space = s->size - (w->head - w->tail), to_end = s->size - w->head % s->size;
    *at = w->head;
    if (w->next - w->first == PARTS)
        return 0;
    /* too little space is left before the end of the ring, so continue at the beginning */
    if (to_end < get_part_most(s) && to_end < space) {
        *at += to_end;
        space -= to_end;
    } else {
        space = HW_MIN(space, to_end);
    }
    return (uint32_t)HW_MIN(space, (uint64_t)get_part_most(s));
}

static uint8_t *get_host(const struct hw_staging *s, const struct way *w, const struct part *p)
{
    return w->copies->base + p->at % s->size;
}

/* Returns true if the device copies the part asynchronously. */
static bool copies_later(const struct way *w, const struct part *p)
{
    return w->copies->pinned_by && p->queue->q;
}

static int start_part_copy(struct hw_staging *s, const struct way *w, const struct part *p, void *to, const void *from)
{
    if (copies_later(w, p))
        return hw_copy_start(s->copies, p->queue, to, from, p->len);
    int rc = w == &s->in ? hw_store(p->queue->space, to, from, p->len) : hw_load(p->queue->space, to, from, p->len);
    return rc < 0 ? hw_copy_fail(p->queue) : 0;
}

/* Starts the copy of a part and appends the part. */
static int append_part(struct hw_staging *s, struct way *w, const struct part *p, void *to, const void *from)
{
    int rc = start_part_copy(s, w, p, to, from);
    if (rc < 0)
        return rc;
    struct part *last = &w->part[w->next++ % PARTS];
    *last = *p;
    last->ticket = copies_later(w, p) ? p->queue->started : 0;
    w->head = p->at + round_up(p->len, ALIGN);
    w->bytes += p->len;
    return 0;
}

static void drop_first_part(struct way *w)
{
    const struct part *p = &w->part[w->first++ % PARTS];
    w->tail = p->at + round_up(p->len, ALIGN);
    w->bytes -= p->len - w->taken;
    w->taken = 0;
}

/* Prepares the memory and the queue for copies. If the memory cannot be pinned or the space has no queue, each copy is
 * synchronous. */
static int prepare_copies(const struct hw_staging *s, const struct way *w, const struct hw_space *space,
                          struct hw_copy_queue **q)
{
    int rc = w->copies->base ? 0 : hw_copies_pin(w->copies, space, s->size);
    if (rc < 0 && !w->copies->base)
        return rc;
    if (rc < 0)
        hw_log(s->log, HAWSER_LOG_WARN, "copies of %s are synchronous, because memory could not be pinned: %s",
               space->name, hw_error());
    return hw_copies_queue(w->copies, space, true, q);
}

/* ---- sending ------------------------------------------------------------------------------------------ */

/* Starts to copy len bytes at `from` in as many parts as needed. Fails with -EBUSY if the ring is full. */
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

/* Returns true if the ring is empty or begins with the first byte of the pieces that the CPU cannot access. */
static bool is_staged(const struct way *w, const struct hw_piece *piece, uint32_t n)
{
    while (n && piece->space->direct)
        piece++, n--;
    return w->first == w->next || (n && w->part[w->first % PARTS].from + w->taken == piece->ptr);
}

int hw_staging_ahead(struct hw_staging *s, const struct hw_piece *piece, uint32_t n)
{
    if (!is_staged(&s->out, piece, n)) { /* the pieces in the ring were sent in another way */
        int rc = hw_staging_settle(s);
        if (rc < 0)
            return rc;
    }
    uint64_t done = s->out.bytes; /* bytes of the pieces that are already in the ring */
    for (bool first = true; n; piece++, n--, first = false) {
        if (piece->space->direct)
            continue;
        uint64_t skip = HW_MIN(done, piece->len);
        done -= skip;
        int rc = skip < piece->len ? stage_bytes(s, piece->space, piece->ptr + skip, piece->len - skip) : 0;
        if (rc < 0) /* a later piece may be on a failing device, which is reported when that piece is the first */
            return rc == -EBUSY || !first || skip ? 0 : rc;
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
            struct part *p = &w->part[number % PARTS];
            int rc = number == w->next ? -EBUSY : hw_copy_test(s->copies, p->queue, p->ticket);
            if (rc < 0)
                return k ? (int)k : rc;
            uint64_t some = HW_MIN(rest, (uint64_t)(p->len - taken));
            iov[k++] = (struct iovec){get_host(s, w, p) + taken, some};
            rest -= some;
            number++; /* no part contains bytes of two pieces */
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
            const struct part *p = &w->part[w->first % PARTS];
            uint32_t some = (uint32_t)HW_MIN(of_piece, (uint64_t)(p->len - w->taken));
            w->taken += some;
            w->bytes -= some;
            of_piece -= some;
            if (w->taken == p->len)
                drop_first_part(w);
        }
    }
}

/* ---- receiving ------------------------------------------------------------------------------------------ */

/* Starts the copy of the bytes that the socket has put into the part. After a failure the bytes stay in the part,
 * because the socket no longer has them. */
static int copy_filled(struct hw_staging *s)
{
    int rc = s->filling.len ? append_part(s, &s->in, &s->filling, s->to, get_host(s, &s->in, &s->filling)) : 0;
    if (rc == 0)
        s->room = s->filling.len = 0;
    return rc;
}

/* Begins a part for the next bytes. */
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
    int rc = s->room && s->filling.len == s->room ? copy_filled(s) : 0;
    if (rc == 0 && !s->room)
        rc = begin_part(s, piece, n);
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
        const struct part *p = &s->in.part[s->in.first % PARTS];
        if ((rc = hw_copy_test(s->copies, p->queue, p->ticket)) < 0)
            break;
        s->placed += p->len;
        drop_first_part(&s->in);
    }
    uint64_t n = HW_MIN(s->placed, most);
    s->placed -= n;
    return n ? (int64_t)n : rc;
}

void hw_staging_in_drop(struct hw_staging *s)
{
    s->placed += s->in.bytes + s->filling.len;
    while (s->in.first < s->in.next)
        drop_first_part(&s->in);
    s->room = s->filling.len = 0;
}

/* Waits for the copy of the oldest part. */
static int wait_for_part(struct hw_staging *s, const struct part *p)
{
    uint64_t until = hw_now() + HW_COPIES_WAIT_MS * HW_MS;
    int rc;
    while ((rc = hw_copy_test(s->copies, p->queue, p->ticket)) == -EBUSY)
        if (hw_now() >= until)
            return hw_fail(-ENXIO, "%s has not completed a copy in time", p->queue->space->name);
    return rc;
}

int hw_staging_load(struct hw_staging *s, const struct hw_piece *piece, uint8_t *to)
{
    struct way *w = &s->out;
    int rc = 0;
    for (uint64_t at = 0; at < piece->len && rc == 0;) {
        uint64_t some = HW_MIN(piece->len - at, (uint64_t)get_part_most(s));
        rc = stage_bytes(s, piece->space, piece->ptr + at, some);
        while (w->first < w->next && (rc == 0 || rc == -EBUSY)) {
            const struct part *p = &w->part[w->first % PARTS];
            rc = wait_for_part(s, p);
            if (rc == 0)
                memcpy(to + at, get_host(s, w, p), p->len);
            at += p->len;
            drop_first_part(w);
        }
    }
    return rc;
}

bool hw_staging_has_unsent(const struct hw_staging *s)
{
    return s->out.first < s->out.next;
}

int hw_staging_settle(struct hw_staging *s)
{
    int rc = copy_filled(s);
    if (rc < 0)
        return rc;
    const struct hw_copy_queue *stuck = hw_copies_find_stuck(s->copies);
    if (stuck)
        return hw_fail(-ENXIO, "%s has not completed a copy in time", stuck->space->name);
    while (s->out.first < s->out.next)
        drop_first_part(&s->out);
    return 0;
}

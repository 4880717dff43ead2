/* SPDX-License-Identifier: Apache-2.0 */
/* Outgoing frames: cuts operations into chunks and requests, fills frames, and handles frames that were confirmed. */
#include "core/stripe.h"
#include "message/op.h"

#include <stdlib.h>

/* After two small messages that are less than OFTEN apart, more small messages are expected for LATELY. */
#define LATELY     (20 * HW_MS)
#define OFTEN      (2 * HW_MS) /* see LATELY */
#define FEW_CHUNKS 2 /* while small messages are frequent, other loops get the work if more chunks than this remain */
/* A thread that posts an operation does not send data itself if this many large operations are in flight and rails on
 * MANY_LOOPS other loops can send the data, because the thread probably has more to post. */
#define MANY_OPS   4
#define MANY_LOOPS 4 /* see MANY_OPS */

/* ---- spans ---------------------------------------------------------------------------------------- */

uint32_t hw_span_at(const struct hw_op *op, uint64_t at)
{
    uint32_t low = 0, high = op->n; /* search for the last span that begins at or before `at` */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (op->span[middle].start <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint32_t hw_op_list_pieces(const struct hw_op *op, uint64_t at, uint64_t end, struct hw_piece *piece)
{
    uint32_t n = 0;
    for (uint32_t i = hw_span_at(op, at); at < end && n < HW_LINK_PIECES; i++) {
        const struct hw_span *s = &op->span[i];
        uint64_t skip = at - s->start, len = HW_MIN(s->len - skip, end - at);
        if (len == 0)
            continue;
        piece[n++] = (struct hw_piece){s->space, s->ptr + skip, len, op};
        at += len;
    }
    return n;
}

/* Returns how many of the n bytes at `from` are in the next `most` spans that are not empty. */
static uint64_t fit_into_spans(const struct hw_op *op, uint64_t from, uint64_t n, uint32_t most)
{
    uint64_t end = from;
    for (uint32_t i = hw_span_at(op, from); i < op->n && most && end < from + n; i++) {
        const struct hw_span *s = &op->span[i];
        most -= s->len > 0;
        end = s->start + s->len;
    }
    return HW_MIN(end - from, n);
}

/* ---- chunks --------------------------------------------------------------------------------------- */

/* Allocates a chunk. Each operation has one embedded chunk, so one chunk can always be in flight even if no memory is
 * available. */
static struct hw_chunk *new_chunk(struct hw_op *op)
{
    if (!atomic_exchange(&op->first_used, true))
        return &op->first;
    return malloc(sizeof(struct hw_chunk));
}

static void free_chunk(struct hw_chunk *c)
{
    if (c != &c->op->first)
        free(c);
    else
        atomic_store_explicit(&c->op->first_used, false, memory_order_release);
}

void hw_serve_was_cut(struct hw_op *op)
{
    if (!atomic_exchange(&op->was_cut, true))
        atomic_fetch_sub(&op->peer->serves, 1);
}

/* Cuts the next chunk. The size depends on the stripe, in which this function sets the number of remaining bytes.
 * Returns NULL if everything is cut, if hw_stripe_take() takes nothing, or, with *wait set, if no memory is available
 * now. */
static struct hw_chunk *cut_chunk(struct hw_op *op, struct hw_stripe *s, uint64_t budget, bool *wait)
{
    struct hw_chunk *c = NULL;
    uint64_t at = atomic_load(&op->cursor), n;
    *wait = false;
    do {
        s->left = op->total - at;
        n = hw_stripe_take(s, budget);
        if (n == 0) {
            if (c)
                free_chunk(c);
            return NULL;
        }
        if (!c)
            c = new_chunk(op);
        if (!c) {
            *wait = true;
            return NULL;
        }
        c->op = op;
        n = fit_into_spans(op, at, n, HW_MSG_VECS_MAX);
    } while (!atomic_compare_exchange_weak(&op->cursor, &at, at + n));
    c->parcel = (struct hw_parcel){.type = op->kind == HW_OP_WRITE ? HW_MSG_WRITE : HW_MSG_DATA};
    c->from = at;
    c->len = n;
    if (op->queued_upto)
        atomic_fetch_sub_explicit(&op->peer->uncut, n, memory_order_relaxed);
    if (op->kind == HW_OP_SERVE && at + n == op->total)
        hw_serve_was_cut(op);
    return c;
}

/* Returns the first operation that has bytes left to cut, with a reference, or NULL. */
static struct hw_op *get_uncut(struct hw_peer *p)
{
    struct hw_op *op;
    pthread_mutex_lock(&p->lock);
    while ((op = hw_list_first(&p->bulk, struct hw_op, queued)) && atomic_load(&op->cursor) == op->total)
        hw_list_remove(&op->queued);
    if (op)
        atomic_fetch_add(&op->refs, 1);
    pthread_mutex_unlock(&p->lock);
    return op;
}

/* Moves the rail to the next operation. The check before the lock handles the usual case, in which there is no next
 * operation. */
static struct hw_op *move_rail_on(struct hw_peer *p, unsigned rail)
{
    struct hw_op *was = p->current[rail], *op = atomic_load(&p->uncut) ? get_uncut(p) : NULL;
    p->current[rail] = op;
    if (was)
        hw_op_put(was);
    return op;
}

/* Returns true if many large operations are in flight and rails on enough loops other than the home loop can carry
 * them. */
static bool is_streaming(const struct hw_peer *p)
{
    return p->relief_loops >= MANY_LOOPS && atomic_load_explicit(&p->large, memory_order_relaxed) >= MANY_OPS &&
           hw_session_is_sound(&p->session, p->relief);
}

/* Returns true if this rail must leave the operation to rails on other loops. Small messages use the first rail and
 * wait while its loop copies data. While small messages are frequent, the rails of the same path on this loop therefore
 * leave large operations to other loops. The same applies while a caller with many operations drives this loop. */
static bool is_left_to_others(struct hw_peer *p, const struct hw_op *op, const struct hw_rail *r)
{
    if (!hw_own_thread && is_streaming(p))
        return true;
    uint64_t left =
        op->total - atomic_load(&op->cursor) + atomic_load_explicit(&p->queued, memory_order_relaxed) - op->queued_upto;
    if (atomic_load_explicit(&p->small_seen, memory_order_relaxed)) {
        atomic_store_explicit(&p->small_seen, false, memory_order_relaxed);
        if (r->loop->now - p->small_last < OFTEN)
            p->small_until = r->loop->now + LATELY;
        p->small_last = r->loop->now;
    }
    return r->loop->now < p->small_until && left > FEW_CHUNKS * HW_MIN(r->limits.window, HW_CHUNK) && p->relief &&
           hw_session_is_sound(&p->session, p->relief);
}

/* Returns the maximum size of a chunk. Memory that the CPU cannot access may be staged through host memory in pieces.
 * Pieces of one chunk are staged and sent in parallel, but the next chunk waits until the last piece is in place.
 * Chunks are therefore larger for such memory. */
static uint64_t choose_most(const struct hw_peer *p, const struct hw_op *op, uint64_t rate)
{
    uint64_t left = op->total - atomic_load(&op->cursor);
    return op->foreign ? hw_stripe_lengthen(HW_CHUNK, HW_STAGED_CHUNK, left, p->session.rails, rate) : HW_CHUNK;
}

static struct hw_parcel *cut_for_rail(void *up, unsigned rail, uint64_t budget)
{
    struct hw_peer *p = up;
    struct hw_op *op = p->current[rail];
    struct hw_rail *r = &p->session.rail[rail].rail;
    struct hw_stripe s = {.min_chunk = HW_MIN(r->limits.window, HW_CHUNK) / 4};
    if (!op && !atomic_load(&p->uncut))
        return NULL; /* the usual case while there are only small operations */
    hw_pace_look(p->pace, p->session.rails, rail, r, &s);
    for (;;) {
        bool wait = false;
        if (op && p->relieved >> rail & 1 && is_left_to_others(p, op, r)) {
            hw_pace_forget(&p->pace[rail]); /* slow rails must not leave operations to this rail */
            hw_session_wake(&p->session, p->relief);
            return NULL;
        }
        s.behind = op ? atomic_load_explicit(&p->queued, memory_order_relaxed) - op->queued_upto : 0;
        s.total = op ? op->total : 0;
        s.max_chunk = op ? choose_most(p, op, s.rate) : 0;
        struct hw_chunk *c = op ? cut_chunk(op, &s, budget, &wait) : NULL;
        if (c) {
            hw_pace_start(&p->pace[rail], r);
            return &c->parcel;
        }
        if (wait)
            return NULL;    /* a chunk of the operation is in flight, and its end wakes the rails */
        if (op && s.left) { /* the budget is too small, or other rails finish sooner: wake one of them */
            unsigned other = hw_stripe_is_fast(s.rate, s.best_rate) ? hw_pace_idle(p->pace, p->session.rails, rail, &s)
                                                                    : hw_pace_best(p->pace, p->session.rails, rail);
            if (other != rail && budget >= HW_MIN(s.min_chunk, s.left))
                hw_session_wake(&p->session, other);
            return NULL;
        }
        op = move_rail_on(p, rail);
        if (!op)
            return NULL;
    }
}

/* Wakes the next rail in round-robin order. If `others` is true, prefers sound rails to which the home loop's rails
 * leave operations. */
static void wake_in_turn(struct hw_peer *p, bool others)
{
    for (unsigned k = 0; k < p->session.rails; k++) {
        p->turn = p->turn + 1 < p->session.rails ? p->turn + 1 : 0;
        if (!others || (!(p->relieved >> p->turn & 1) && hw_session_is_sound(&p->session, p->turn)))
            break;
    }
    hw_session_wake(&p->session, p->turn);
}

/* Wakes as many rails as the operation has work for. While streaming, wakes these rails in round-robin order. Otherwise
 * begins with the first rail, which is on the home loop that posting and waiting callers drive, and wakes one more rail
 * if earlier operations are not completely cut (`more`). */
static void wake_rails(struct hw_peer *p, uint64_t bytes, bool more)
{
    unsigned n = (unsigned)HW_MIN((uint64_t)p->session.rails, bytes / HW_CHUNK + 1);
    bool streaming = is_streaming(p);
    for (unsigned i = 0; i < n; i++)
        if (streaming)
            wake_in_turn(p, true);
        else
            hw_session_wake(&p->session, i);
    if (more && !streaming)
        wake_in_turn(p, false);
}

void hw_op_send(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    if (op->total && (op->total > HW_SMALL_OP || op->n > HW_SMALL_SPANS)) {
        bool more = atomic_fetch_add(&p->uncut, op->total) > 0;
        hw_list_append(&p->bulk, &op->queued);
        op->queued_upto = atomic_fetch_add(&p->queued, op->total) + op->total;
        atomic_fetch_add_explicit(&p->large, 1, memory_order_relaxed);
        wake_rails(p, op->total, more);
        return;
    }
    /* the operation is not visible to any rail yet */
    atomic_store_explicit(&op->first_used, true, memory_order_relaxed);
    atomic_store_explicit(&op->cursor, op->total, memory_order_relaxed);
    uint8_t type = op->kind == HW_OP_WRITE ? HW_MSG_WRITE : HW_MSG_DATA;
    op->first = (struct hw_chunk){.parcel = {.type = type, .small = true}, .op = op, .len = op->total};
    if (op->kind == HW_OP_SERVE)
        hw_serve_was_cut(op);
    hw_session_send(&p->session, 0, &op->first.parcel);
}

/* ---- read requests ------------------------------------------------------------------------------------------ */

/* Cuts the operation's next request. Returns false if out of memory or if all landings are in use. Called with the lock
 * held. */
static bool cut_request(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    uint64_t at = atomic_load(&op->cursor);
    uint64_t n = fit_into_spans(op, at, HW_MIN(op->total - at, HW_REQUEST), HW_MSG_VECS_MAX);
    struct hw_chunk *c = new_chunk(op);
    struct hw_landing *g = c ? hw_landing_take(&p->landings, op, at, n) : NULL;
    if (!g) {
        if (c) {
            c->op = op;
            free_chunk(c);
        }
        return false;
    }
    g->request = c;
    g->next = op->landing;
    op->landing = g;
    *c = (struct hw_chunk){
        .parcel = {.type = HW_MSG_READ, .small = true}, .op = op, .from = at, .len = n, .landing = g->id};
    atomic_store(&op->cursor, at + n);
    atomic_fetch_add(&op->left, 1);
    p->requests++;
    hw_session_send(&p->session, 0, &c->parcel);
    return true;
}

void hw_requests_cut(struct hw_peer *p)
{
    struct hw_op *op;
    hw_stops_send(p);
    while (p->requests < HW_READS && (op = hw_list_first(&p->reads, struct hw_op, queued))) {
        if (atomic_load(&op->cursor) == op->total) {
            hw_list_remove(&op->queued);
        } else if (!cut_request(op)) {
            if (op->landing)
                return; /* the end of a request calls this function again */
            hw_op_cancel_locked(op, hw_no_memory("a read request"));
        }
    }
}

/* Ends the parcel of a read request. sent is true if the peer has received the request. */
static void end_request(struct hw_chunk *c, bool sent)
{
    struct hw_op *op = c->op;
    struct hw_peer *p = op->peer;
    pthread_mutex_lock(&p->lock);
    struct hw_landing *g = op->landing;
    while (g && g->id != c->landing)
        g = g->next;
    if (g)
        g->request = NULL;
    if (c->stop && sent)
        p->stop[p->n_stop++] = c->landing;
    else if (c->stop)
        p->requests--;
    free_chunk(c);
    hw_requests_cut(p);
    hw_op_sub_locked(op, 1);
    hw_ops_unlock(p);
}

/* ---- frames --------------------------------------------------------------------------------------- */

/* Writes the chunk's spans to the frame as descriptors and as pieces. Returns the number of descriptors. */
static uint32_t encode_spans(const struct hw_chunk *c, struct hw_link_out *out)
{
    const struct hw_op *op = c->op;
    uint64_t at = c->from, end = c->from + c->len;
    uint32_t n = 0;
    for (uint32_t i = hw_span_at(op, at); at < end; i++) {
        const struct hw_span *s = &op->span[i];
        uint64_t skip = at - s->start, len = HW_MIN(s->len - skip, end - at);
        if (len == 0)
            continue;
        struct hw_msg_vec v = {s->import->handle, (uint32_t)len, s->remote + skip};
        hw_msg_vec_encode(out->ext, n, &v);
        out->piece[n++] = (struct hw_piece){s->space, s->ptr + skip, len, op};
        at += len;
    }
    out->ext_len = HW_MSG_VECS_HEAD + HW_MSG_VEC_SIZE * n;
    return n;
}

static void fill_write(const struct hw_chunk *c, struct hw_link_out *out)
{
    out->n_pieces = encode_spans(c, out);
    hw_msg_vecs_encode(out->ext, c->op->id, c->op->has_note ? HW_MSG_COUNTED : 0, out->n_pieces);
}

static void fill_request(const struct hw_chunk *c, struct hw_link_out *out)
{
    hw_msg_vecs_encode(out->ext, c->landing, c->op->foreign ? HW_MSG_STAGED : 0, encode_spans(c, out));
}

/* Lists the memory of an answer. The region may have been revoked since the request arrived. */
static int list_served_pieces(const struct hw_chunk *c, struct hw_link_out *out)
{
    const struct hw_op *op = c->op;
    uint64_t at = c->from, end = c->from + c->len;
    for (uint32_t i = hw_span_at(op, at); at < end; i++) {
        const struct hw_span *s = &op->span[i];
        uint64_t skip = at - s->start, len = HW_MIN(s->len - skip, end - at);
        if (len == 0)
            continue;
        int rc = hw_handle_find(&op->peer->handles, s->handle, s->remote + skip, len, HAWSER_REMOTE_READ,
                                &out->piece[out->n_pieces++]);
        if (rc < 0)
            return rc;
        at += len;
    }
    return 0;
}

/* Fills a frame of an answer, or of a message to a landing. */
static int fill_data(const struct hw_chunk *c, struct hw_link_out *out)
{
    const struct hw_op *op = c->op;
    int rc = 0;
    if (op->kind == HW_OP_SERVE)
        rc = list_served_pieces(c, out);
    else
        out->n_pieces = hw_op_list_pieces(op, c->from, c->from + c->len, out->piece);
    hw_data_encode(out->ext, &(struct hw_data_head){op->serves, c->from, op->total, c->from == 0 ? op->rest : 0});
    out->ext_len = HW_MSG_DATA_SIZE;
    return rc;
}

static void end_chunk(struct hw_chunk *c)
{
    struct hw_op *op = c->op;
    struct hw_peer *p = op->peer;
    uint64_t len = c->len;
    bool only = c == &op->first && atomic_load(&op->cursor) < op->total;
    free_chunk(c);
    for (unsigned i = 0; only && i < p->session.rails; i++)
        hw_session_wake(&p->session, i); /* the rails may have waited for memory */
    hw_op_sub(op, op->total ? len : 1);
}

static void end_noted(struct hw_op *op, bool sent)
{
    struct hw_peer *p = op->peer;
    pthread_mutex_lock(&p->lock);
    if (!sent) {
        /* a peer that lies may have counted the notification as taken */
        p->noted -= HW_MIN(hw_note_cost(op->note), p->noted - p->taken);
        op->noted_sent = false;
        hw_notes_resume(p);
    }
    hw_op_sub_locked(op, 1);
    hw_ops_unlock(p);
}

/* Ends a parcel. sent is true if the peer has received it. */
static void end_parcel(struct hw_peer *p, struct hw_parcel *parcel, bool sent)
{
    switch (parcel->type) {
    case HW_MSG_CONTROL:
        hw_control_done(p, hw_container_of(parcel, struct hw_control, parcel));
        break;
    case HW_MSG_TAKEN:
        hw_taken_done(p);
        break;
    case HW_MSG_NOTED:
        end_noted(hw_container_of(parcel, struct hw_op, noted), sent);
        break;
    case HW_MSG_READ:
        end_request(hw_container_of(parcel, struct hw_chunk, parcel), sent);
        break;
    default:
        end_chunk(hw_container_of(parcel, struct hw_chunk, parcel));
    }
}

/* Returns the operation of the parcel, or NULL if it has none. For a control message the lock must be held. */
static struct hw_op *get_op(const struct hw_parcel *parcel)
{
    switch (parcel->type) {
    case HW_MSG_CONTROL:
        return hw_container_of(parcel, struct hw_control, parcel)->op;
    case HW_MSG_TAKEN:
        return NULL;
    case HW_MSG_NOTED:
        return hw_container_of(parcel, struct hw_op, noted);
    default:
        return hw_container_of(parcel, struct hw_chunk, parcel)->op;
    }
}

/* Returns true if the parcel's operation was cancelled, so that the parcel must not be sent. */
static bool is_off(const struct hw_parcel *parcel)
{
    return parcel->type != HW_MSG_CONTROL && parcel->type != HW_MSG_TAKEN && atomic_load(&get_op(parcel)->off);
}

/* Tells the peer that its read fails with this error, and ends the answer. */
static void refuse_serve(struct hw_chunk *chunk, int why)
{
    struct hw_op *op = chunk->op;
    struct hw_peer *p = op->peer;
    struct hw_control c = {.kind = HW_CONTROL_UNREAD, .a = op->serves, .b = (uint64_t)-why};
    pthread_mutex_lock(&p->lock);
    bool told = atomic_load(&op->off) || p->dead || hw_control_send_locked(p, &c) == 0;
    if (told)
        hw_op_cancel_locked(op, why);
    pthread_mutex_unlock(&p->lock);
    if (told)
        end_chunk(chunk);
    else /* out of memory: the parcel is queued again, so that this function is called again */
        hw_session_send(&p->session, 0, &chunk->parcel);
}

/* Handles a failed access to the parcel's memory. hw_error() returns the reason. */
static void fault_chunk(void *up, unsigned rail, struct hw_parcel *parcel)
{
    struct hw_peer *p = up;
    (void)rail;
    if (parcel->type != HW_MSG_WRITE && parcel->type != HW_MSG_DATA)
        return;
    struct hw_op *op = hw_container_of(parcel, struct hw_chunk, parcel)->op;
    struct hw_control c = {.kind = HW_CONTROL_UNREAD, .a = op->serves, .b = EIO};
    HW_KEEP_ERROR();
    pthread_mutex_lock(&p->lock);
    /* if there is no memory for the message, the chunk is sent again and fails again */
    if (op->kind != HW_OP_SERVE || atomic_load(&op->off) || p->dead || hw_control_send_locked(p, &c) == 0)
        hw_op_cancel_locked(op, -EIO);
    hw_ops_unlock(p);
}

/* Returns true if the parcel has all data of an operation that hw_op_send() sends whole. */
static bool is_small_op(const struct hw_parcel *parcel)
{
    return parcel->small && (parcel->type == HW_MSG_WRITE || parcel->type == HW_MSG_DATA);
}

static bool fill_parcel(void *up, struct hw_parcel *parcel, struct hw_link_out *out)
{
    struct hw_peer *p = up;
    struct hw_chunk *c = hw_container_of(parcel, struct hw_chunk, parcel);
    int rc = 0;
    out->type = parcel->type;
    if (is_small_op(parcel))
        hw_peer_note_small(p);
    if (is_off(parcel)) {
        end_parcel(p, parcel, false);
        return false;
    }
    switch (parcel->type) {
    case HW_MSG_CONTROL:
        if (hw_container_of(parcel, struct hw_control, parcel)->kind == HW_CONTROL_EAGER)
            hw_peer_note_small(p);
        hw_control_fill(hw_container_of(parcel, struct hw_control, parcel), out);
        break;
    case HW_MSG_TAKEN:
        hw_taken_fill(p, out);
        break;
    case HW_MSG_NOTED: {
        const struct hw_op *op = hw_container_of(parcel, struct hw_op, noted);
        hw_noted_encode(out->ext, op->id, op->total);
        out->ext_len = HW_MSG_NOTED_SIZE;
        out->piece[0] = (struct hw_piece){&hw_host, op->note->data, op->note->len, op};
        out->n_pieces = 1;
        break;
    }
    case HW_MSG_WRITE:
        fill_write(c, out);
        break;
    case HW_MSG_READ:
        fill_request(c, out);
        break;
    default:
        rc = fill_data(c, out);
    }
    if (rc < 0)
        refuse_serve(c, rc);
    return rc == 0;
}

/* Ends the small operations at the head of the list, which the peer has confirmed together, and takes the lock once for
 * all of them. Returns the rest of the list. */
static struct hw_parcel *end_small_ops(struct hw_peer *p, struct hw_parcel *list)
{
    pthread_mutex_lock(&p->lock);
    for (struct hw_parcel *next; list && is_small_op(list); list = next) {
        struct hw_chunk *c = hw_container_of(list, struct hw_chunk, parcel);
        struct hw_op *op = c->op;
        uint64_t len = op->total ? c->len : 1;
        next = list->next;
        free_chunk(c);
        hw_op_sub_locked(op, len);
    }
    hw_ops_unlock(p);
    return list;
}

static void finish_parcels(void *up, unsigned rail, struct hw_parcel *list)
{
    struct hw_peer *p = up;
    while (list) {
        struct hw_parcel *parcel = list;
        if (is_small_op(parcel)) {
            list = end_small_ops(p, list);
            continue;
        }
        list = parcel->next;
        if (!parcel->small)
            hw_pace_confirm(&p->pace[rail], &p->session.rail[rail].rail,
                            hw_container_of(parcel, struct hw_chunk, parcel)->len);
        end_parcel(p, parcel, true);
    }
}

/* Ends a parcel that is lost because the session is dead. */
static void lose_parcel(void *up, struct hw_parcel *parcel)
{
    struct hw_peer *p = up;
    HW_KEEP_ERROR(); /* keeps the reason for the next lost parcels, because end_parcel() may start an operation, whose
                        error would replace it */
    pthread_mutex_lock(&p->lock);
    struct hw_op *op = get_op(parcel);
    if (op)
        hw_op_set_result(op, p->session.dead);
    pthread_mutex_unlock(&p->lock);
    end_parcel(p, parcel, false);
}

/* Called for a parcel that waits for a rail. Ends the parcel and returns false if the parcel must not be sent. */
static bool keep_unsent_parcel(void *up, struct hw_parcel *parcel)
{
    bool keep = !is_off(parcel);
    if (!keep)
        end_parcel(up, parcel, false);
    return keep;
}

static uint32_t get_refusal_mark(void *up)
{
    return hw_control_mark(up);
}

static void take_refusal_mark(void *up, uint32_t mark)
{
    struct hw_peer *p = up;
    uint32_t told = atomic_load(&p->in.told);
    while ((int32_t)(mark - told) > 0 && !atomic_compare_exchange_weak(&p->in.told, &told, mark))
        ;
}

/* Called when a rail temporarily sends nothing or has ended. Wakes all rails, because they may have left all work to
 * this rail. */
static void note_suspected(void *up, unsigned rail)
{
    struct hw_peer *p = up;
    hw_pace_forget(&p->pace[rail]);
    for (unsigned i = 0; i < p->session.rails; i++)
        hw_session_wake(&p->session, i);
}

static void note_doubted(void *up, unsigned rail)
{
    struct hw_peer *p = up;
    p->ops->doubted(p->up, rail);
}

static void note_end(void *up, unsigned rail, int why)
{
    struct hw_peer *p = up;
    note_suspected(up, rail);
    p->ops->ended(p->up, rail, why);
}

static void note_down(void *up, unsigned rail)
{
    struct hw_peer *p = up;
    p->ops->down(p->up, rail);
}

static void note_death(void *up, int why)
{
    struct hw_peer *p = up;
    hw_peer_die(p, why);
    p->ops->died(p->up, why);
}

const struct hw_session_ops hw_peer_session_ops = {.fill = fill_parcel,
                                                   .cut = cut_for_rail,
                                                   .keep = keep_unsent_parcel,
                                                   .place = hw_flow_place,
                                                   .more = hw_flow_more,
                                                   .arrived = hw_flow_arrived,
                                                   .abandoned = hw_flow_abandoned,
                                                   .refused = hw_flow_refused,
                                                   .faulted = fault_chunk,
                                                   .mark = get_refusal_mark,
                                                   .marked = take_refusal_mark,
                                                   .suspected = note_suspected,
                                                   .doubted = note_doubted,
                                                   .done = finish_parcels,
                                                   .ended = note_end,
                                                   .down = note_down,
                                                   .died = note_death,
                                                   .flushed = hw_ops_flushed,
                                                   .lost = lose_parcel};

/* SPDX-License-Identifier: Apache-2.0 */
/* Handles incoming frames: finds memory for their payload, counts the bytes and answers. Runs on the rail's loop;
 * hw_peer_control() runs on the home loop. */
#include "message/op.h"

#include "message/queue.h"
#include "message/queue_table.h"
#include "wire/wire.h"

#include <stdlib.h>

/* ---- notifications of writes ------------------------------------------------------------------------ */

#define COUNT_BITS 40
#define COUNT_MASK ((1ull << COUNT_BITS) - 1)

static struct hw_count *find_count(struct hw_peer *p, uint64_t id)
{
    uint32_t place = (uint32_t)id;
    if (place >= HW_OPS)
        return NULL;
    _Atomic(struct hw_count *) *at = &p->count[place / HW_COUNT_BLOCK];
    struct hw_count *block = atomic_load(at);
    if (!block) {
        struct hw_count *fresh = calloc(HW_COUNT_BLOCK, sizeof *fresh);
        if (!fresh)
            return NULL;
        if (atomic_compare_exchange_strong(at, &block, fresh))
            block = fresh;
        else
            free(fresh);
    }
    return &block[place % HW_COUNT_BLOCK];
}

/* Drops an unwanted notification and returns its buffer space to the peer. Called with the lock held. */
static void drop_note(struct hw_peer *p, struct hw_note *note)
{
    uint64_t cost = hw_note_cost(note);
    p->took += cost;
    atomic_fetch_sub(&p->notes_held, cost);
    free(note);
}

/* Adds bytes that have arrived, or subtracts the total. Returns true if all bytes and the notification have arrived. */
static bool add_to_count(struct hw_count *c, uint64_t id, int64_t bytes)
{
    uint64_t generation = id >> 32 & (UINT64_MAX >> COUNT_BITS), state = atomic_load(&c->state), next;
    do {
        uint64_t was = state >> COUNT_BITS == generation ? state & COUNT_MASK : 0;
        next = generation << COUNT_BITS | ((was + (uint64_t)bytes) & COUNT_MASK);
    } while (!atomic_compare_exchange_weak(&c->state, &state, next));
    return (next & COUNT_MASK) == 0;
}

/* Passes a write's notification to the application after all bytes of the write have arrived. */
static void deliver_note(struct hw_peer *p, struct hw_count *c, uint64_t id)
{
    pthread_mutex_lock(&p->lock);
    struct hw_note *note = c->note && c->note->op == id ? c->note : NULL;
    if (note)
        c->note = NULL;
    pthread_mutex_unlock(&p->lock);
    if (note)
        p->ops->noted(p->up, note);
}

static void take_noted(struct hw_peer *p, struct hw_note *note, uint64_t total)
{
    struct hw_count *c = find_count(p, note->op); /* place_noted() has allocated the count */
    uint64_t id = note->op;
    pthread_mutex_lock(&p->lock);
    if (c->note) /* the notification of a cancelled operation */
        drop_note(p, c->note);
    c->note = note;
    pthread_mutex_unlock(&p->lock);
    if (add_to_count(c, id, -(int64_t)total))
        deliver_note(p, c, id);
    hw_taken_tell(p);
}

static void cancel_noted(struct hw_peer *p, uint64_t id)
{
    struct hw_count *c = find_count(p, id);
    pthread_mutex_lock(&p->lock);
    if (c && c->note && c->note->op == id) {
        drop_note(p, c->note);
        c->note = NULL;
    }
    pthread_mutex_unlock(&p->lock);
}

/* Allocates memory for an incoming notification, if the limit for the peer allows it. Returns NULL and sets *rc on
 * failure. */
static struct hw_note *take_note_room(struct hw_peer *p, uint32_t len, int *rc)
{
    struct hw_note *note = hw_note_new(len);
    if (!note) {
        *rc = len > HW_NOTE_MAX ? hw_fail(-EPROTO, "invalid notification length: %u bytes", len)
                                : hw_no_memory("a notification of %u bytes", len);
        return NULL;
    }
    uint64_t cost = hw_note_cost(note);
    if (atomic_fetch_add(&p->notes_held, cost) + cost <= HW_NOTES)
        return note;
    atomic_fetch_sub(&p->notes_held, cost);
    free(note);
    *rc = hw_fail(-EPROTO, "the peer sends more notifications than the receive buffer holds");
    return NULL;
}

/* Allocates memory for a message that has no receive yet, if the receive buffer has space for it. Returns NULL and sets
 * *rc on failure. */
static struct hw_note *take_message_room(struct hw_peer *p, uint32_t len, int *rc)
{
    if (!hw_eager_take(p, len)) {
        *rc = hw_fail(-EPROTO, "the peer's message of %u bytes is too long, or does not fit into the receive buffer",
                      len);
        return NULL;
    }
    struct hw_note *note = hw_note_new(len);
    if (!note) {
        hw_eager_give(p, len);
        *rc = hw_no_memory("a message of %u bytes", len);
    }
    return note;
}

static int place_note(struct hw_note *note, struct hw_piece *piece, uint32_t *n)
{
    piece[0] = (struct hw_piece){&hw_host, note->data, note->len, NULL};
    *n = 1;
    return 0;
}

static int place_noted(struct hw_peer *p, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    uint64_t id, total;
    int rc = hw_noted_decode(in->ext, in->ext_len, &id, &total);
    if (rc < 0)
        return rc;
    if ((uint32_t)id >= HW_OPS)
        return hw_fail(-EPROTO, "the peer sent a notification for invalid write 0x%llx", (unsigned long long)id);
    if (!find_count(p, id))
        return hw_no_memory("the byte count of a write");
    struct hw_note *note = take_note_room(p, in->pay, &rc);
    if (!note)
        return rc;
    note->op = id;
    in->number = total;
    in->cookie = note;
    return place_note(note, piece, n);
}

/* ---- the peer's writes ------------------------------------------------------------------------------------ */

/* Finds the memory of each descriptor. A descriptor whose memory the peer may not write is refused, and its bytes are
 * discarded. */
static int place_write(struct hw_peer *p, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    uint64_t id, sum = 0;
    uint32_t flags;
    int rc = hw_msg_vecs_decode(in->ext, in->ext_len, &id, &flags, n), refused = 0;
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < *n; k++) {
        struct hw_msg_vec v = hw_msg_vec_decode(in->ext, k);
        rc = hw_handle_find(&p->handles, v.handle, v.offset, v.len, HAWSER_REMOTE_WRITE, &piece[k]);
        if (rc < 0)
            piece[k] = (struct hw_piece){&hw_host, NULL, v.len, NULL};
        refused = rc < 0 && refused == 0 ? rc : refused;
        sum += v.len;
    }
    if ((uint32_t)id >= HW_OPS)
        return hw_fail(-EPROTO, "the peer sent data for invalid write 0x%llx", (unsigned long long)id);
    if (sum != in->pay)
        return hw_fail(-EPROTO, "a write carries %u bytes, but its descriptors describe %llu bytes", in->pay,
                       (unsigned long long)sum);
    in->number = id;
    if (refused)
        return hw_control_refuse(p, HW_CONTROL_FAIL, id, refused);
    if (!(flags & HW_MSG_COUNTED))
        return 0;
    in->cookie = find_count(p, id);
    return in->cookie ? 0 : hw_no_memory("the byte count of write 0x%llx", (unsigned long long)id);
}

/* ---- data for this side's reads and receives --------------------------------------------------------------- */

/* Ends the landing or returns it to the table, if `end` requires this. */
static void take_data(struct hw_peer *p, struct hw_landing *g, enum hw_landing_end end)
{
    if (end == HW_LANDING_GOES_ON)
        return;
    pthread_mutex_lock(&p->lock);
    struct hw_op *op = g->op;
    uint64_t bytes = g->bytes;
    if (end == HW_LANDING_FREE) {
        hw_landing_give(&p->landings, g);
    } else if (op->kind == HW_OP_RECV) {
        hw_op_end_landing(op, g);
        hw_queue_filled(op);
        hw_op_sub_locked(op, 1);
    } else {
        hw_op_end_landing(op, g);
        hw_request_ended(p);
        hw_op_sub_locked(op, bytes);
    }
    hw_ops_unlock(p);
}

/* Discards the rest of a payload whose landing does not exist or was given up. */
static void place_nowhere(const struct hw_link_in *in, uint64_t at, struct hw_piece *piece, uint32_t *n)
{
    piece[0] = (struct hw_piece){&hw_host, NULL, in->pay - at, NULL};
    *n = 1;
}

int hw_flow_more(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece, uint32_t *n)
{
    const struct hw_landing *g = in->cookie;
    (void)up, (void)rail;
    /* Only data frames have a continuation. The operation lives until this loop has released it, which happens after
     * this function returns. */
    if (!g || !hw_landing_is_live(g))
        place_nowhere(in, at, piece, n);
    else
        *n = hw_op_list_pieces(g->op, g->from + in->number + at, g->from + in->number + in->pay, piece);
    return 0;
}

static int place_data(struct hw_peer *p, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    struct hw_data_head h;
    int rc = hw_data_decode(in->ext, in->ext_len, in->pay, &h);
    if (rc < 0)
        return rc;
    in->share = in->pay + h.rest;
    in->number = h.offset;
    struct hw_landing *g = in->cookie = hw_landing_reserve(&p->landings, h.landing, in->share);
    if (!g) {
        place_nowhere(in, 0, piece, n);
        return 0;
    }
    struct hw_op *op = g->op;
    if (op->kind == HW_OP_RECV ? h.total >= g->bytes : h.total != g->bytes) {
        uint64_t room = op->kind == HW_OP_RECV ? g->bytes - 1 : g->bytes;
        take_data(p, g, hw_landing_abandon(g, in->share));
        return hw_fail(-EPROTO, "the peer sends %llu bytes for a read or receive of %llu bytes",
                       (unsigned long long)h.total, (unsigned long long)room);
    }
    if (op->kind == HW_OP_RECV)
        atomic_store_explicit(&op->got, h.total, memory_order_relaxed); /* read after the operation has ended */
    return hw_flow_more(p, rail, in, 0, piece, n);
}

/* ---- the peer's read requests ------------------------------------------------------------------------------ */

static void end_serve(struct hw_op *op)
{
    atomic_fetch_sub(&op->peer->answers, 1);
}

static void drop_serve(struct hw_op *op)
{
    hw_serve_was_cut(op);
    end_serve(op);
    hw_op_put(op);
}

/* Returns the maximum number of answers that a peer that respects HW_READS can cause: HW_READS, plus the answers that
 * have arrived at the peer while their confirmation is still in flight. */
static unsigned count_most_answers(const struct hw_peer *p)
{
    return HW_READS + p->session.rails * HW_RAIL_LINKS * HW_LINK_FLIGHT;
}

/* Returns true if the CPU cannot access the requested memory. If the region was revoked, the error is found when the
 * answer is sent. */
static bool is_staged(const struct hw_peer *p, const struct hw_msg_vec *v)
{
    struct hw_piece piece;
    return hw_handle_find(&p->handles, v->handle, v->offset, v->len, HAWSER_REMOTE_READ, &piece) == 0 &&
           !piece.space->direct;
}

static int place_request(struct hw_peer *p, struct hw_link_in *in)
{
    uint64_t landing, total = 0;
    uint32_t flags, n;
    int rc = hw_msg_vecs_decode(in->ext, in->ext_len, &landing, &flags, &n);
    if (rc < 0)
        return rc;
    struct hw_op *op = hw_op_new(p, HW_OP_SERVE, n);
    if (!op)
        return hw_no_memory("an answer to a read");
    op->foreign = flags & HW_MSG_STAGED;
    for (uint32_t k = 0; k < n; k++) {
        struct hw_msg_vec v = hw_msg_vec_decode(in->ext, k);
        op->span[k] = (struct hw_span){.len = v.len, .remote = v.offset, .handle = v.handle};
        total += v.len;
        op->foreign = op->foreign || is_staged(p, &v);
    }
    op->serves = landing;
    op->over = end_serve;
    bool many = atomic_fetch_add(&p->serves, 1) >= HW_READS;
    many |= atomic_fetch_add(&p->answers, 1) >= count_most_answers(p);
    if (many || in->pay || total == 0 || total > HW_REQUEST) {
        drop_serve(op);
        return hw_fail(-EPROTO, "invalid request for %llu bytes%s", (unsigned long long)total,
                       many ? ": too many requests in flight" : "");
    }
    in->cookie = op;
    return 0;
}

static int take_request(struct hw_op *op)
{
    int rc = hw_op_post(op);
    if (rc < 0)
        drop_serve(op);
    else
        hw_op_put(op);
    return rc;
}

/* ---- control messages --------------------------------------------------------------------------------- */

static int place_control(struct hw_peer *p, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    struct hw_control_in *c = hw_zalloc(sizeof *c);
    if (!c)
        return hw_no_memory("a control message");
    int rc = hw_control_decode(in->ext, in->ext_len, &c->head);
    uint32_t due = (uint32_t)atomic_load(&p->in.next);
    if (rc == 0 && c->head.sequence - due >= HW_CONTROL_WINDOW)
        rc = hw_control_misplaced(c->head.sequence, due);
    if (rc == 0 && c->head.kind == HW_CONTROL_NOTE)
        c->note = take_note_room(p, in->pay, &rc);
    else if (rc == 0 && c->head.kind == HW_CONTROL_EAGER)
        c->note = take_message_room(p, in->pay, &rc);
    else if (rc == 0 && in->pay)
        rc = hw_fail(-EPROTO, "a control message of kind %u has %u unexpected bytes", c->head.kind, in->pay);
    if (rc < 0) {
        free(c);
        return rc;
    }
    in->cookie = c;
    return c->note ? place_note(c->note, piece, n) : 0;
}

/* Returns the reason why the peer sends no message to a receive. */
static const char *explain_no_message(uint64_t error)
{
    return error == EMSGSIZE    ? "the peer's message is longer than the receive"
           : error == ESHUTDOWN ? "the peer closed the stream"
           : error == ECANCELED ? "the peer cancelled its message"
                                : "the peer refused to send its message";
}

/* Cancels the write, read or receive that the peer refused. */
static void take_refusal(struct hw_peer *p, const struct hw_control_head *h)
{
    pthread_mutex_lock(&p->lock);
    struct hw_landing *g = h->kind == HW_CONTROL_UNREAD ? hw_landing_find(&p->landings, h->a) : NULL;
    struct hw_op *op = h->kind == HW_CONTROL_FAIL ? hw_op_find(p, h->a) : g ? g->op : NULL;
    if (op && g && op->kind == HW_OP_RECV)
        hw_op_cancel_locked(op, hw_fail(-(int)h->b, "%s", explain_no_message(h->b)));
    else if (op && (g || op->kind == HW_OP_WRITE))
        hw_op_cancel_locked(op, hw_fail(-(int)h->b, "%sthe peer refused %s",
                                        h->b == EIO ? "access to the peer's memory failed (see the peer's log): " : "",
                                        g ? "a read of its region" : "a write to its region"));
    hw_ops_unlock(p);
}

/* Stops the answer for a landing that the peer has given up, and sends STOPPED. */
static int take_stop(struct hw_peer *p, uint64_t landing)
{
    pthread_mutex_lock(&p->lock);
    int rc = hw_control_send_locked(p, &(struct hw_control){.kind = HW_CONTROL_STOPPED, .a = landing});
    const struct hw_list *chain = hw_chains_find(&p->queues, &p->queues.answers, landing);
    hw_list_each(it, tmp, chain)
    {
        struct hw_op *op = hw_container_of(it, struct hw_op, serve_at);
        if (rc < 0 || op->serves != landing)
            continue;
        hw_op_cancel_locked(op, -ECANCELED);
        break; /* a landing has one request; a peer that repeats a number must not make each STOP slow */
    }
    hw_ops_unlock(p);
    return rc;
}

static int take_stopped(struct hw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    bool any = p->n_stopping > 0; /* ending another request here would be wrong, because its landing still exists */
    if (any) {
        p->n_stopping--;
        hw_request_ended(p);
    }
    hw_ops_unlock(p);
    return any ? 0 : hw_fail(-EPROTO, "the peer confirms the cancellation of a request that was not cancelled");
}

int hw_peer_control(struct hw_peer *p, struct hw_control_in *c)
{
    const struct hw_control_head *h = &c->head;
    uint8_t proof[HW_IMPORT_PROOF];
    switch (h->kind) {
    case HW_CONTROL_IMPORT:
        hw_put64(proof, h->b);
        hw_put64(proof + 8, h->c);
        hw_put64(proof + 16, h->d);
        return hw_handle_ask(p, h->a, proof);
    case HW_CONTROL_HANDLE:
        return hw_import_answer(p, h);
    case HW_CONTROL_FAIL:
    case HW_CONTROL_UNREAD:
        take_refusal(p, h);
        return 0;
    case HW_CONTROL_STOP:
        return take_stop(p, h->a);
    case HW_CONTROL_STOPPED:
        return take_stopped(p);
    case HW_CONTROL_UNNOTE:
        cancel_noted(p, h->a);
        return 0;
    case HW_CONTROL_REVOKED:
        hw_import_revoked(p, h->a);
        return 0;
    case HW_CONTROL_GRANT:
        return hw_queue_granted(p, h);
    case HW_CONTROL_WITHDRAW:
        return hw_queue_withdrawn(p, h);
    case HW_CONTROL_EAGER:
        return hw_queue_eager(p, h, &c->note);
    case HW_CONTROL_MATCHED:
        return hw_queue_matched(p, h);
    case HW_CONTROL_UNSEND:
        return hw_queue_unsent(p, h);
    case HW_CONTROL_BYE:
        p->ops->bye(p->up);
        return 0;
    case HW_CONTROL_CLOSE:
        return hw_stream_closed(p, h);
    default:
        p->ops->noted(p->up, c->note);
        c->note = NULL;
        return 0;
    }
}

/* ---- frames ------------------------------------------------------------------------------------------- */

int hw_flow_place(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    struct hw_peer *p = up;
    uint32_t sequence;
    uint64_t notes;
    *n = 0;
    switch (in->type) {
    case HW_MSG_CONTROL:
        return place_control(p, in, piece, n);
    case HW_MSG_WRITE:
        return place_write(p, in, piece, n);
    case HW_MSG_READ:
        return place_request(p, in);
    case HW_MSG_DATA:
        return place_data(p, rail, in, piece, n);
    case HW_MSG_NOTED:
        return place_noted(p, in, piece, n);
    case HW_MSG_TAKEN: {
        int rc = in->pay ? hw_fail(-EPROTO, "a confirmation of messages has a payload of %u bytes, but must have none",
                                   in->pay)
                         : hw_taken_decode(in->ext, in->ext_len, &sequence, &notes);
        return rc < 0 ? rc : hw_taken_arrived(p, sequence, notes);
    }
    default:
        return hw_fail(-EPROTO, "unknown frame type %u", in->type);
    }
}

int hw_flow_arrived(void *up, unsigned rail, const struct hw_link_in *in)
{
    struct hw_peer *p = up;
    const struct hw_control_in *c = in->cookie;
    if (in->type == HW_MSG_CONTROL ? c->head.kind == HW_CONTROL_EAGER
                                   : !in->bulk && (in->type == HW_MSG_WRITE || in->type == HW_MSG_DATA))
        hw_peer_note_small(p);
    switch (in->type) {
    case HW_MSG_CONTROL:
        hw_control_arrived(p, rail, in->cookie);
        return 0;
    case HW_MSG_WRITE:
        if (in->dropped)
            return hw_control_refuse(p, HW_CONTROL_FAIL, in->number, -ESTALE);
        if (in->cookie && add_to_count(in->cookie, in->number, in->pay))
            deliver_note(p, in->cookie, in->number);
        return 0;
    case HW_MSG_READ:
        return take_request(in->cookie);
    case HW_MSG_DATA:
        if (in->cookie)
            take_data(p, in->cookie, hw_landing_arrived(in->cookie, in->share));
        return 0;
    case HW_MSG_NOTED:
        take_noted(p, in->cookie, in->number);
        return 0;
    default:
        return 0;
    }
}

void hw_flow_abandoned(void *up, unsigned rail, const struct hw_link_in *in)
{
    struct hw_peer *p = up;
    (void)rail;
    switch (in->type) {
    case HW_MSG_CONTROL: {
        struct hw_control_in *c = in->cookie;
        if (c->note && c->head.kind == HW_CONTROL_EAGER)
            hw_eager_give(p, c->note->len);
        else if (c->note)
            atomic_fetch_sub(&p->notes_held, hw_note_cost(c->note));
        free(c->note);
        free(c);
        break;
    }
    case HW_MSG_READ:
        drop_serve(in->cookie);
        break;
    case HW_MSG_DATA:
        if (in->cookie)
            take_data(p, in->cookie, hw_landing_abandon(in->cookie, in->share));
        break;
    case HW_MSG_NOTED: {
        struct hw_note *note = in->cookie;
        atomic_fetch_sub(&p->notes_held, hw_note_cost(note));
        free(note);
        break;
    }
    default:
        break;
    }
}

int hw_flow_refused(void *up, unsigned rail, struct hw_link_in *in)
{
    struct hw_peer *p = up;
    (void)rail;
    if (in->type == HW_MSG_WRITE) {
        in->cookie = NULL; /* the write's notification will never be delivered */
        return hw_control_refuse(p, HW_CONTROL_FAIL, in->number, -EIO);
    }
    if (in->type != HW_MSG_DATA || !in->cookie)
        return -ENXIO;
    pthread_mutex_lock(&p->lock);
    const struct hw_landing *g = in->cookie;
    if (hw_landing_is_live(g))
        hw_op_cancel_locked(g->op, -EIO); /* hw_error() returns the device's error text */
    hw_ops_unlock(p);
    return 0;
}

void hw_counts_free(struct hw_peer *p)
{
    for (uint32_t i = 0; i < HW_ARRAY_LEN(p->count); i++) {
        struct hw_count *block = atomic_load(&p->count[i]);
        for (uint32_t k = 0; block && k < HW_COUNT_BLOCK; k++)
            free(block[k].note);
        free(block);
    }
}

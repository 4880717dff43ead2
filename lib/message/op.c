/* SPDX-License-Identifier: Apache-2.0 */
#include "message/op.h"

#include "message/queue.h"
#include "message/queue_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NO_SLOT UINT32_MAX
/* Maximum number of operations whose end flush_some() reports at a time. */
#define FLUSH_MOST 32

struct hw_note *hw_note_new(uint32_t len)
{
    struct hw_note *note = len <= HW_NOTE_MAX ? hw_zalloc(sizeof *note + len) : NULL;
    if (note)
        note->len = len;
    return note;
}

struct hw_op *hw_op_alloc(uint32_t n)
{
    struct hw_op *op;
    return malloc(sizeof *op + n * sizeof op->span[0]);
}

void hw_op_init(struct hw_op *op, struct hw_peer *p, enum hw_op_kind kind, uint32_t n)
{
    memset(op, 0, sizeof *op);
    op->peer = p;
    op->kind = kind;
    op->n = n;
    op->deadline = HW_NEVER;
    atomic_init(&op->refs, 1);
    hw_list_init(&op->all);
    hw_list_init(&op->queued);
    hw_list_init(&op->timed);
    hw_list_init(&op->serve_at);
    hw_list_init(&op->of_stream);
}

struct hw_op *hw_op_new(struct hw_peer *p, enum hw_op_kind kind, uint32_t n)
{
    struct hw_op *op = hw_op_alloc(n);
    if (!op)
        return NULL;
    hw_op_init(op, p, kind, n);
    memset(op->span, 0, n * sizeof op->span[0]);
    return op;
}

bool hw_op_drop(struct hw_op *op)
{
    /* if this is the only reference, no other thread can add one */
    if (atomic_load(&op->refs) != 1 && atomic_fetch_sub(&op->refs, 1) != 1)
        return false;
    free(op->note);
    free(op->text);
    return true;
}

void hw_op_put(struct hw_op *op)
{
    if (hw_op_drop(op))
        free(op);
}

/* ---- numbers and results --------------------------------------------------------------------------------- */

static int take_op_slot(struct hw_peer *p, struct hw_op *op)
{
    uint32_t place = p->slot_free;
    if (place != NO_SLOT) {
        p->slot_free = p->slot[place].next_free;
    } else if (p->slots == HW_OPS) {
        return hw_fail(-EAGAIN, "%d operations are in flight, which is the limit per peer: wait until some have ended",
                       HW_OPS);
    } else {
        if (p->slots == p->slot_room) {
            uint32_t room = p->slot_room ? 2 * p->slot_room : 16;
            struct op_slot *slot = realloc(p->slot, room * sizeof *slot);
            if (!slot)
                return hw_no_memory("%u operations", room);
            p->slot = slot;
            p->slot_room = room;
        }
        place = p->slots++;
        p->slot[place].generation = 0;
    }
    p->slot[place].op = op;
    op->id = (uint64_t)++p->slot[place].generation << 32 | place;
    return 0;
}

static void give_op_slot(struct hw_peer *p, const struct hw_op *op)
{
    uint32_t place = (uint32_t)op->id;
    if (op->kind == HW_OP_SERVE)
        return; /* an answer has no slot */
    p->slot[place].op = NULL;
    p->slot[place].next_free = p->slot_free;
    p->slot_free = place;
}

struct hw_op *hw_op_find(struct hw_peer *p, uint64_t id)
{
    uint32_t place = (uint32_t)id;
    return place < p->slots && p->slot[place].generation == id >> 32 ? p->slot[place].op : NULL;
}

void hw_op_set_result(struct hw_op *op, int why)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&op->result, &none, why))
        op->text = strdup(hw_error());
}

/* ---- end of an operation ----------------------------------------------------------------------------------- */

/* Returns true if a refusal of the operation may still be in flight. Reads and receives need not wait for refusals,
 * because their data is checked on arrival. */
static bool is_fenced(const struct hw_op *op)
{
    return (op->kind == HW_OP_WRITE || op->kind == HW_OP_SEND) &&
           (int32_t)((uint32_t)atomic_load(&op->peer->in.next) - op->fence) < 0;
}

/* Removes an operation that has ended from the peer's lists, and queues it for over(). Called with the lock held. */
static void retire_op(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    if (is_fenced(op)) /* the peer is dead, or the operation was cancelled and has its result */
        hw_op_set_result(op, p->dead);
    hw_op_untime(op);
    if (op->noted_sent && atomic_load(&op->result)) /* the peer may hold the notification and wait for the rest */
        hw_control_send_within(op, &(struct hw_control){.kind = HW_CONTROL_UNNOTE, .a = op->id});
    give_op_slot(p, op);
    op->pending = false;
    hw_list_remove(&op->all);
    hw_list_remove(&op->serve_at);
    hw_list_remove(&op->of_stream);
    hw_list_remove(&op->queued);
    hw_list_append(&p->over, &op->queued);
    hw_ops_need_flush(p);
    if (op->deserted && op->kind == HW_OP_WRITE && --p->deserted == 0)
        hw_ops_resume(p, &p->held);
}

/* Ends an operation whose remaining count is 0. Called with the lock held. */
static void end_op(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    op->fence = atomic_load(&p->in.told);
    hw_list_remove(&op->queued);
    if (op->queued_upto)
        atomic_fetch_sub_explicit(&p->large, 1, memory_order_relaxed);
    op->is_fenced = is_fenced(op) && !p->dead && !atomic_load(&op->off); /* off: the result is set already */
    if (op->is_fenced)
        hw_list_append(&p->fenced, &op->queued);
    else
        retire_op(op);
}

void hw_op_sub_locked(struct hw_op *op, uint64_t n)
{
    /* if nothing else is left, only a thread with the lock changes the count */
    bool last = atomic_load(&op->left) == n;
    if (last)
        atomic_store_explicit(&op->left, 0, memory_order_release);
    if (n && (last || atomic_fetch_sub(&op->left, n) == n))
        end_op(op);
}

void hw_op_sub(struct hw_op *op, uint64_t n)
{
    struct hw_peer *p = op->peer;
    bool last = atomic_load(&op->left) == n;
    if (!n || (!last && atomic_fetch_sub(&op->left, n) != n))
        return;
    pthread_mutex_lock(&p->lock);
    if (last)
        hw_op_sub_locked(op, n);
    else
        end_op(op);
    hw_ops_unlock(p);
}

/* Counts an operation that has ended. Called with the lock held. */
static void count_end(struct hw_peer *p, const struct hw_op *op)
{
    if (op->kind >= HW_OP_BYE)
        return;
    struct hw_op_counts *c = &p->counts[op->kind];
    bool failed = atomic_load_explicit(&op->result, memory_order_relaxed) != 0;
    c->ended++;
    c->failed += failed;
    if (!failed)
        c->bytes += op->kind == HW_OP_RECV ? atomic_load_explicit(&op->got, memory_order_relaxed) : op->total;
}

static bool is_in_flight_kind(const struct hw_op *op)
{
    return op->kind < HW_OP_BYE && op->kind != HW_OP_RECV;
}

/* Called with the lock held. */
static void count_in_flight(struct hw_peer *p, int n)
{
    atomic_store_explicit(&p->in_flight, atomic_load_explicit(&p->in_flight, memory_order_relaxed) + (unsigned)n,
                          memory_order_relaxed);
}

void hw_op_drop_imports(struct hw_op *op)
{
    const struct hw_import *last = NULL;
    for (uint32_t i = 0; i < op->n && op->holds_imports; i++) {
        struct hw_import *import = op->span[i].import;
        if (import && import != last)
            hw_import_put(op->peer, import);
        last = import ? import : last;
    }
    op->holds_imports = false;
}

/* Removes the first operation that has ended or is deserted from hw_peer.over, and passes the reference to the caller.
 * *tell is true if over() must be called. Returns NULL if there is none. Called with the lock held. */
static struct hw_op *take_over(struct hw_peer *p, bool *tell)
{
    struct hw_op *op = hw_list_first(&p->over, struct hw_op, queued);
    if (!op)
        return NULL;
    hw_list_remove(&op->queued);
    *tell = !op->told;
    op->told = true;
    if (*tell) {
        count_end(p, op);
        hw_op_drop_imports(op);
    }
    if (*tell && is_in_flight_kind(op))
        count_in_flight(p, -1);
    if (op->pending)
        atomic_fetch_add(&op->refs, 1);
    return op;
}

/* Calls over() of operations that have ended or are deserted, or copies the message of one receive. Called with the
 * lock held; releases the lock. */
static void flush_some(struct hw_peer *p)
{
    struct hw_op *op[FLUSH_MOST];
    bool tell[FLUSH_MOST];
    unsigned n = 0;
    hw_notes_resume(p); /* the first waiting notification may have been cancelled */
    struct hw_op *receive = hw_list_first(&p->filling, struct hw_op, queued);
    if (receive)
        hw_list_remove(&receive->queued);
    while (!receive && n < FLUSH_MOST && (op[n] = take_over(p, &tell[n])))
        n++;
    atomic_store_explicit(&p->unflushed, !hw_list_empty(&p->filling) || !hw_list_empty(&p->over), memory_order_release);
    pthread_mutex_unlock(&p->lock);
    if (receive)
        hw_queue_copy(receive);
    for (unsigned i = 0; i < n; i++) {
        if (tell[i])
            op[i]->over(op[i]);
        hw_op_put(op[i]);
    }
}

void hw_ops_unlock(struct hw_peer *p)
{
    while (atomic_load(&p->unflushed)) {
        flush_some(p);
        if (!atomic_load(&p->unflushed))
            return;
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

void hw_ops_flush(struct hw_peer *p)
{
    if (!atomic_load(&p->unflushed))
        return;
    pthread_mutex_lock(&p->lock);
    hw_ops_unlock(p);
}

void hw_ops_unfence(struct hw_peer *p)
{
    struct hw_op *op;
    while ((op = hw_list_first(&p->fenced, struct hw_op, queued)) && (!is_fenced(op) || p->dead))
        retire_op(op); /* operations further back in the list wait for at least as many messages */
}

static bool is_two_sided(const struct hw_op *op)
{
    return op->kind == HW_OP_SEND || op->kind == HW_OP_RECV;
}

/* ---- start of an operation ----------------------------------------------------------------------------------- */

/* Checks a span against the bounds and rights of its region. */
static int check_span(const struct hw_op *op, const struct hw_span *s)
{
    const struct hw_import *i = s->import;
    uint32_t right = op->kind == HW_OP_READ ? HAWSER_REMOTE_READ : HAWSER_REMOTE_WRITE;
    if (i->state == HW_IMPORT_REFUSED)
        return hw_fail(i->error,
                       i->error == -ESTALE ? "the peer's region %llu was revoked, or is unknown"
                                           : "the peer refused access to its region %llu",
                       (unsigned long long)i->id);
    if (!(i->rights & right))
        return hw_fail(-EACCES, "the peer does not allow its region to be %s",
                       op->kind == HW_OP_READ ? "read" : "written");
    if (s->remote > i->len || s->len > i->len - s->remote)
        return hw_fail(-EFAULT, "%llu bytes at offset %llu exceed the peer's region of %llu bytes",
                       (unsigned long long)s->len, (unsigned long long)s->remote, (unsigned long long)i->len);
    return 0;
}

static bool has_note_room(const struct hw_peer *p, const struct hw_note *note)
{
    return p->noted - p->taken + hw_note_cost(note) <= HW_NOTES;
}

/* Sends the operation's control message. This step of the operation ends once the peer has received the message. */
static int send_control_of(struct hw_op *op, struct hw_control *c)
{
    c->op = op;
    int rc = hw_control_send_locked(op->peer, c);
    if (rc < 0) {
        hw_op_set_result(op, rc);
        hw_op_sub_locked(op, 1);
    }
    return rc;
}

/* Sends the notification after all control messages so far, or, for a write with bytes, in a frame that waits at the
 * peer for these bytes. */
static void send_note(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    uint64_t cost = hw_note_cost(op->note);
    p->noted += cost;
    if (op->total) {
        op->noted_sent = true;
        op->noted = (struct hw_parcel){.type = HW_MSG_NOTED, .small = true};
        hw_session_send(&p->session, 0, &op->noted);
        return;
    }
    if (send_control_of(op, &(struct hw_control){.kind = HW_CONTROL_NOTE, .note = op->note}) == 0)
        op->note = NULL;
    else
        p->noted -= cost;
}

/* Sends BYE, and flushes the session. Each is one step of the operation. */
static void say_bye(struct hw_op *op)
{
    hw_list_append(&op->peer->flushing, &op->queued);
    op->flushes = true;
    (void)send_control_of(op, &(struct hw_control){.kind = HW_CONTROL_BYE});
    hw_session_flush(&op->peer->session);
}

void hw_ops_flushed(void *up)
{
    struct hw_peer *p = up;
    struct hw_op *op;
    pthread_mutex_lock(&p->lock);
    while ((op = hw_list_first(&p->flushing, struct hw_op, queued))) {
        hw_list_remove(&op->queued);
        op->flushes = false;
        hw_op_sub_locked(op, 1);
    }
    hw_ops_unlock(p);
}

/* Starts an operation whose regions are known and whose notification fits the peer's buffer. */
static void launch_op(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    op->started = true;
    if (op->note)
        send_note(op);
    if (op->kind == HW_OP_BYE)
        say_bye(op);
    if (op->total && op->kind == HW_OP_READ) {
        hw_list_append(&p->reads, &op->queued);
        hw_requests_cut(p);
    } else if (op->total) {
        hw_op_send(op);
    }
    hw_op_sub_locked(op, 1); /* the start itself is counted as one step */
}

/* Advances an operation until it must wait or is started. */
static int advance_op(struct hw_op *op)
{
    if (is_two_sided(op)) {
        op->started = true;
        return hw_queue_post(op);
    }
    if (op->kind == HW_OP_WRITE && op->total && op->peer->deserted) {
        hw_list_append(&op->peer->held, &op->queued);
        return 0;
    }
    for (; op->ready < op->n && op->kind != HW_OP_SERVE; op->ready++) {
        struct hw_import *i = op->span[op->ready].import;
        if (!i)
            continue; /* the span has no bytes */
        if (i->state == HW_IMPORT_ASKED) {
            hw_list_append(&i->ops, &op->queued);
            return 0;
        }
        int rc = check_span(op, &op->span[op->ready]);
        if (rc < 0)
            return rc;
        op->foreign |= i->staged;
    }
    if (op->note && (!hw_list_empty(&op->peer->notes) || !has_note_room(op->peer, op->note)))
        hw_list_append(&op->peer->notes, &op->queued);
    else
        launch_op(op);
    return 0;
}

void hw_ops_resume(struct hw_peer *p, struct hw_list *ops)
{
    (void)p;
    hw_list_each(it, tmp, ops)
    {
        struct hw_op *op = hw_container_of(it, struct hw_op, queued);
        hw_list_remove(&op->queued);
        int rc = advance_op(op);
        if (rc < 0)
            hw_op_cancel_locked(op, rc);
    }
}

void hw_notes_resume(struct hw_peer *p)
{
    struct hw_op *op;
    while ((op = hw_list_first(&p->notes, struct hw_op, queued)) && has_note_room(p, op->note)) {
        hw_list_remove(&op->queued);
        launch_op(op);
    }
}

static int count_bytes(struct hw_op *op)
{
    op->total = 0;
    for (uint32_t i = 0; i < op->n; i++) {
        op->foreign |= op->kind != HW_OP_SERVE && op->span[i].len && !op->span[i].space->direct;
        op->span[i].start = op->total;
        if (op->span[i].len >= HW_MSG_LANDING_MAX - 1 - op->total)
            return hw_fail(-E2BIG, "the operation has more than %llu bytes", HW_MSG_LANDING_MAX - 2);
        op->total += op->span[i].len;
    }
    if (op->note && op->total > HW_NOTED_BYTES)
        return hw_fail(-E2BIG, "a write of %llu bytes with a notification: at most %llu are allowed",
                       (unsigned long long)op->total, HW_NOTED_BYTES);
    return 0;
}

/* Returns the number of steps of an operation that is not two-sided, besides its bytes: its start, a notification or
 * BYE, and the flush of BYE. */
static uint64_t count_steps(const struct hw_op *op)
{
    bool is_bye = op->kind == HW_OP_BYE;
    return 1 + (op->has_note || is_bye) + is_bye;
}

/* Returns the count of an operation before its start. A send or receive counts only its message. Other operations count
 * their steps and bytes. */
static uint64_t count_left(const struct hw_op *op)
{
    if (is_two_sided(op))
        return op->kind == HW_OP_RECV ? 1 : HW_MAX(op->total, 1);
    return count_steps(op) + op->total;
}

int hw_op_import(struct hw_op *op, uint32_t i, uint64_t id, uint64_t secret)
{
    const struct hw_import *before = i ? op->span[i - 1].import : NULL;
    int rc = hw_import_get(op->peer, id, secret, &op->span[i].import);
    if (rc < 0)
        return rc;
    if (op->span[i].import == before) /* successive spans of one region hold one reference */
        hw_import_put(op->peer, op->span[i].import);
    op->holds_imports = true;
    return 0;
}

/* Starts an operation. After a failure, the operation still holds its imports. */
static int start_op(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    int rc = count_bytes(op);
    if (rc == 0 && p->dead)
        rc = hw_fail(p->dead, "the connection to the peer has ended");
    if (rc == 0 && op->kind < HW_OP_BYE)
        rc = hw_control_check_own(p);
    if (rc == 0 && op->kind != HW_OP_SERVE)
        rc = take_op_slot(p, op);
    if (rc < 0)
        return rc;
    /* the operation is not visible to other threads yet */
    atomic_store_explicit(&op->refs, atomic_load_explicit(&op->refs, memory_order_relaxed) + 1, memory_order_relaxed);
    op->has_note = op->note != NULL;
    atomic_store_explicit(&op->left, count_left(op), memory_order_relaxed);
    if (op->kind == HW_OP_RECV)
        atomic_store_explicit(&op->cursor, op->total, memory_order_relaxed);
    op->pending = true;
    hw_list_append(&p->all, &op->all);
    if (op->kind == HW_OP_SERVE)
        hw_chains_add(&p->queues, &p->queues.answers, &op->serve_at);
    rc = advance_op(op);
    if (rc < 0) {
        give_op_slot(p, op);
        op->pending = false;
        hw_list_remove(&op->all);
        hw_list_remove(&op->serve_at);
        hw_list_remove(&op->of_stream);
        hw_op_untime(op);
        atomic_fetch_sub(&op->refs, 1);
    } else if (op->pending && !atomic_load(&op->off)) {
        hw_op_time(p, op);
    }
    p->started += rc >= 0 && op->kind < HW_OP_BYE;
    if (rc >= 0 && is_in_flight_kind(op))
        count_in_flight(p, 1);
    return rc;
}

int hw_op_post_locked(struct hw_op *op)
{
    int rc = start_op(op);
    if (rc < 0)
        hw_op_drop_imports(op);
    return rc;
}

int hw_op_post(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    pthread_mutex_lock(&p->lock);
    int rc = hw_op_post_locked(op);
    hw_ops_unlock(p);
    return rc;
}

/* ---- cancelling ------------------------------------------------------------------------------------------------ */

void hw_op_end_landing(struct hw_op *op, struct hw_landing *g)
{
    struct hw_landing **at = &op->landing;
    while (*at && *at != g)
        at = &(*at)->next;
    if (*at)
        *at = g->next;
    hw_landing_give(&op->peer->landings, g);
}

void hw_request_ended(struct hw_peer *p)
{
    p->requests--;
    hw_requests_cut(p);
}

/* Gives up the operation's landings. Returns how much to subtract from the operation's count. */
static uint64_t give_up_landings(struct hw_op *op)
{
    uint64_t bytes = 0;
    for (struct hw_landing *g = op->landing, *next; g; g = next) {
        struct hw_peer *p = op->peer;
        uint64_t id = g->id, len = g->bytes;
        struct hw_chunk *request = g->request;
        next = g->next;
        enum hw_landing_end end = hw_landing_give_up(g);
        if (end == HW_LANDING_FULL)
            continue; /* a rail is about to end the landing */
        bytes += len;
        if (request)
            request->stop = true;
        else
            p->stop[p->n_stop++] = id;
        /* the landing leaves the operation's list, because the last frame that has reserved bytes returns it to the
         * table */
        struct hw_landing **at = &op->landing;
        while (*at != g)
            at = &(*at)->next;
        *at = next;
        if (end == HW_LANDING_FREE)
            hw_landing_give(&p->landings, g);
    }
    hw_stops_send(op->peer);
    return bytes;
}

void hw_stops_send(struct hw_peer *p)
{
    while (p->n_stop && !p->dead) {
        struct hw_control c = {.kind = HW_CONTROL_STOP, .a = p->stop[p->n_stop - 1]};
        if (hw_control_send_locked(p, &c) < 0 && !hw_control_send_spare(p, &c))
            return; /* the end of the spare message calls this function again */
        p->n_stop--;
        p->n_stopping++;
    }
}

static void end_let_go(struct hw_let_go *g)
{
    struct hw_op *op = hw_container_of(g, struct hw_op, let_go);
    op->let_go_over = true;
    hw_op_sub(op, 1);
}

void hw_op_cancel_locked(struct hw_op *op, int why)
{
    uint64_t left = atomic_load(&op->left);
    if (!op->pending || atomic_load(&op->off) || op->message /* the receive is about to end */)
        return;
    hw_op_set_result(op, why);
    if (op->is_fenced) { /* refusals that the peer has announced may never arrive */
        retire_op(op);
        return;
    }
    do
        if (left == 0)
            return; /* the operation is ending */
    while (!atomic_compare_exchange_weak(&op->left, &left, left + 1));
    atomic_store(&op->off, true);
    hw_ops_need_flush(op->peer); /* other notifications may have waited for this operation's notification */
    hw_op_untime(op);
    hw_list_remove(&op->queued);
    uint64_t over = op->total - atomic_exchange(&op->cursor, op->total);
    if (op->queued_upto)
        atomic_fetch_sub(&op->peer->uncut, over);
    if (op->kind == HW_OP_SERVE)
        hw_serve_was_cut(op);
    over += is_two_sided(op) ? hw_queue_drop(op) : give_up_landings(op);
    if (!op->started)
        over += count_steps(op);
    over += op->flushes;
    op->flushes = false;
    if (op->control) { /* the message continues without the operation */
        op->control->op = NULL;
        op->control = NULL;
        over++;
    }
    hw_op_sub_locked(op, over);
    if (!op->peer->dead) {
        op->deadline = 0;
        hw_op_time(op->peer, op);
    }
    op->let_go = (struct hw_let_go){.owner = op, .over = end_let_go};
    hw_session_let_go(&op->peer->session, &op->let_go);
}

void hw_op_cancel(struct hw_op *op, int why)
{
    pthread_mutex_lock(&op->peer->lock);
    hw_op_cancel_locked(op, why);
    hw_ops_unlock(op->peer);
}

/* ---- end of a peer ---------------------------------------------------------------------------------- */

void hw_ops_die(struct hw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    hw_list_each(it, tmp, &p->all) hw_op_cancel_locked(hw_container_of(it, struct hw_op, all), p->dead);
    hw_ops_unfence(p);
    hw_ops_unlock(p);
}

void hw_ops_init(struct hw_peer *p)
{
    hw_list_init(&p->all);
    hw_list_init(&p->bulk);
    hw_list_init(&p->held);
    hw_list_init(&p->reads);
    hw_list_init(&p->notes);
    hw_list_init(&p->fenced);
    hw_list_init(&p->over);
    hw_list_init(&p->filling);
    hw_list_init(&p->flushing);
    p->slot_free = NO_SLOT;
    hw_deadlines_init(p);
}

void hw_ops_free(struct hw_peer *p)
{
    assert(hw_list_empty(&p->all));
    hw_timer_stop(p->session.home, &p->deadlines.timer);
    free(p->slot);
}

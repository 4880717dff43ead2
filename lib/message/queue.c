/* SPDX-License-Identifier: Apache-2.0 */
#include "message/queue.h"

#include "message/op.h"
#include "message/queue_table.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static uint64_t cost_message(uint64_t len)
{
    return len + HW_NOTE_COST;
}

/* Returns how much to subtract from a send's count when its message has arrived: at least 1, even if it is empty. */
static uint64_t count_message(const struct hw_op *op)
{
    return HW_MAX(op->total, 1);
}

/* ---- sending: with the lock held ----------------------------------------------------------------------------- */

/* Returns true if the message may be copied. The copy is made with the lock held, so the message must be short and in
 * host memory. */
static bool is_short(const struct hw_op *op)
{
    bool is = op->total == 0 || (op->total <= HW_MSG_EAGER_MAX && op->n <= HW_SMALL_SPANS);
    for (uint32_t i = 0; op->total && is && i < op->n; i++)
        is = op->span[i].space->direct;
    return is;
}

/* Sends the message to the receive that the grant announced, or cancels the send if the message is too long for the
 * receive. */
static void send_direct(struct hw_op *op, const struct hw_grant *g)
{
    struct hw_queues *t = &op->peer->queues;
    op->match = HW_MATCH_DIRECT;
    op->serves = g->landing;
    op->rest = g->room + 1 - op->total;
    if (op->total > g->room) {
        hw_op_cancel_locked(op, hw_fail(-EMSGSIZE, "the message has %llu bytes, but the receive has room for only %llu",
                                        (unsigned long long)op->total, (unsigned long long)g->room));
        return;
    }
    hw_chains_add(t, &t->directs, &op->serve_at);
    hw_op_send(op);
}

/* Returns a copy of a short message, or NULL if out of memory. */
static struct hw_note *copy_message(const struct hw_op *op)
{
    struct hw_note *note = hw_note_new((uint32_t)op->total);
    for (uint32_t i = 0; note && i < op->n; i++)
        if (op->span[i].len)
            memcpy(note->data + op->span[i].start, op->span[i].ptr, op->span[i].len);
    return note;
}

/* Sends the message without a grant. The queue's grants must not be used until the message is answered. */
static int send_eager(struct hw_queue *q, struct hw_op *op)
{
    struct hw_queues *t = &op->peer->queues;
    const struct hw_grant *g = hw_list_first(&q->grants, struct hw_grant, of_queue);
    struct hw_note *note = copy_message(op);
    if (!note)
        return hw_no_memory("a message of %llu bytes", (unsigned long long)op->total);
    struct hw_control c = {
        .kind = HW_CONTROL_EAGER, .a = op->id, .b = g ? g->number : t->seen, .c = q->name, .note = note};
    int rc = hw_control_send_locked(op->peer, &c);
    if (rc < 0) {
        free(note);
        return rc;
    }
    op->match = HW_MATCH_EAGER;
    q->unanswered++;
    t->sent += cost_message(op->total);
    return 0;
}

/* Sends the messages that can be sent, in order. */
static void advance_sends(struct hw_peer *p, struct hw_queue *q)
{
    struct hw_queues *t = &p->queues;
    struct hw_op *op;
    while ((op = hw_list_first(&q->sends, struct hw_op, queued)) && !p->dead) {
        struct hw_grant *g = hw_list_first(&q->grants, struct hw_grant, of_queue);
        bool direct = g && !q->unanswered;
        if (!direct && (!is_short(op) || t->sent + cost_message(op->total) > HW_EAGER_ROOM))
            return; /* the message waits for a grant or an answer */
        hw_list_remove(&op->queued);
        op->match = HW_MATCH_NONE;
        int rc = direct ? (send_direct(op, g), 0) : send_eager(q, op);
        if (direct)
            hw_grant_drop(t, g);
        if (rc < 0)
            hw_op_cancel_locked(op, rc);
    }
}

/* ---- receiving: with the lock held --------------------------------------------------------------------------- */

/* Assigns the message to the receive. hw_queue_copy() copies it afterwards. */
static void match_message(struct hw_op *op, struct hw_note *note, uint64_t landing)
{
    struct hw_peer *p = op->peer;
    uint64_t error = note->len > op->total ? EMSGSIZE : 0;
    if (error)
        hw_op_set_result(op, hw_fail(-EMSGSIZE, "the message has %u bytes, but the receive has room for only %llu",
                                     note->len, (unsigned long long)op->total));
    op->match = HW_MATCH_EAGER;
    op->message = note;
    hw_eager_give(p, note->len);
    hw_control_send_within(op, &(struct hw_control){.kind = HW_CONTROL_MATCHED,
                                                    .a = note->op,
                                                    .b = (uint64_t)note->len << 32 | error,
                                                    .c = op->queue,
                                                    .d = landing});
    hw_list_remove(&op->queued);
    hw_list_append(&p->filling, &op->queued);
    hw_ops_need_flush(p);
}

/* Removes h from its lists and returns its message. The caller frees h. */
static struct hw_note *unlist_held(struct hw_held *h)
{
    hw_list_remove(&h->of_queue);
    hw_list_remove(&h->in_chain);
    return h->note;
}

static struct hw_note *take_held(struct hw_held *h)
{
    struct hw_note *note = unlist_held(h);
    free(h);
    return note;
}

static void drop_held(struct hw_peer *p, struct hw_held *held)
{
    struct hw_note *note = take_held(held);
    hw_eager_give(p, note->len);
    free(note);
}

static int hold_message(struct hw_queues *t, struct hw_queue *q, struct hw_note *note)
{
    struct hw_held *h = malloc(sizeof *h);
    if (!h)
        return hw_no_memory("a message of the peer");
    h->queue = q->name;
    h->note = note;
    hw_list_append(&q->held, &h->of_queue);
    hw_chains_add(t, &t->messages, &h->in_chain);
    return 0;
}

/* Sends a GRANT for a receive that has no message yet. */
static int grant_receive(struct hw_queue *q, struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    struct hw_landing *g = hw_landing_take(&p->landings, op, 0, op->total + 1);
    if (!g)
        return hw_no_memory("a receive");
    g->request = NULL;
    g->next = NULL;
    struct hw_control c = {.kind = HW_CONTROL_GRANT, .a = g->id, .b = op->total, .c = op->queue};
    int rc = hw_control_send_locked(p, &c);
    if (rc < 0) {
        hw_landing_give_up(g);
        hw_landing_give(&p->landings, g);
        return rc;
    }
    op->match = HW_MATCH_DIRECT;
    op->granted = p->out.next - 1;
    op->landing = g;
    hw_list_append(&q->receives, &op->queued);
    return 0;
}

/* Rejects this copy of the peer's eager message `op`. With error EAGAIN a receive takes the message, and the peer must
 * send it again, to this landing. With any other error, no receive will take the message. */
static int answer_message(struct hw_peer *p, uint64_t queue, uint64_t op, uint32_t len, int error, uint64_t landing)
{
    return hw_control_send_locked(
        p,
        &(struct hw_control){
            .kind = HW_CONTROL_MATCHED, .a = op, .b = (uint64_t)len << 32 | (uint32_t)error, .c = queue, .d = landing});
}

/* Requests a held message again, because the receive's memory is not accessible to the CPU. */
static int ask_for_message(struct hw_queue *q, struct hw_op *op, struct hw_held *h)
{
    struct hw_peer *p = op->peer;
    int rc = grant_receive(q, op);
    if (rc < 0)
        return rc;
    hw_list_remove(&op->queued); /* the receive is taken */
    rc = answer_message(p, q->name, h->note->op, h->note->len, EAGAIN, op->landing->id);
    if (rc < 0) { /* the receive ends and leaves the message to the next receive */
        hw_op_cancel_locked(op, rc);
        return 0;
    }
    drop_held(p, h);
    return 0;
}

/* ---- lifetime of an operation -------------------------------------------------------------------------------- */

int hw_queue_post(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    struct hw_queue *q;
    struct hw_held *h;
    bool there = hw_stream_is_closed(&p->queues, op->queue, false);
    if (hw_stream_is_closed(&p->queues, op->queue, true) || (there && op->kind == HW_OP_SEND))
        return hw_fail(-ESHUTDOWN, "stream %llu is closed", (unsigned long long)(op->queue >> 32));
    int rc = hw_queue_get(&p->queues, op->queue, HW_QUEUES, &q);
    if (rc < 0)
        return rc;
    if (op->queue >> 32)
        hw_chains_add(&p->queues, &p->queues.stream_ops, &op->of_stream);
    if (op->kind == HW_OP_SEND) {
        op->match = HW_MATCH_WAITS;
        hw_list_append(&q->sends, &op->queued);
        advance_sends(p, q);
    } else if ((h = hw_list_first(&q->held, struct hw_held, of_queue))) {
        if (op->foreign)
            rc = ask_for_message(q, op, h);
        else
            match_message(op, take_held(h), HW_MSG_NO_LANDING);
    } else if (there) {
        rc = hw_fail(-ESHUTDOWN, "the peer closed stream %llu", (unsigned long long)(op->queue >> 32));
    } else {
        rc = grant_receive(q, op);
    }
    hw_queue_put(&p->queues, q);
    return rc;
}

/* Withdraws a receive. Sends of the peer with data in flight to the receive must learn of the withdrawal before they
 * end. The control message is therefore a refusal, and it is announced before the landing refuses data. */
static uint64_t withdraw_receive(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    struct hw_landing *g = op->landing;
    uint64_t id = g->id;
    atomic_store(&p->out.refused, (uint32_t)p->out.next + 1);
    enum hw_landing_end end = hw_landing_give_up(g);
    bool late = end == HW_LANDING_FULL; /* a rail is about to end the landing */
    if (!late)
        op->landing = NULL;
    if (end == HW_LANDING_FREE)
        hw_landing_give(&p->landings, g);
    hw_control_send_within(
        op, &(struct hw_control){.kind = HW_CONTROL_WITHDRAW, .a = late ? HW_MSG_NO_LANDING : id, .c = op->queue});
    hw_queue_put(&p->queues, hw_queue_find(&p->queues, op->queue));
    return !late;
}

uint64_t hw_queue_drop(struct hw_op *op)
{
    struct hw_peer *p = op->peer;
    if (op->kind == HW_OP_RECV)
        return op->landing ? withdraw_receive(op) : 0;
    int error = atomic_load(&op->result) == -EMSGSIZE ? EMSGSIZE : ECANCELED;
    /* if the message has bytes, the caller counts them */
    uint64_t over = op->total == 0 && op->match != HW_MATCH_DIRECT;
    struct hw_queue *q = op->match == HW_MATCH_WAITS ? hw_queue_find(&p->queues, op->queue) : NULL;
    if (op->match == HW_MATCH_EAGER)
        hw_control_send_within(op, &(struct hw_control){.kind = HW_CONTROL_UNSEND, .a = op->id, .c = op->queue});
    if (op->match == HW_MATCH_DIRECT)
        hw_control_send_within(op,
                               &(struct hw_control){.kind = HW_CONTROL_UNREAD, .a = op->serves, .b = (uint64_t)error});
    op->match = HW_MATCH_NONE; /* an answer that is still in flight then has no effect on the operation */
    hw_queue_put(&p->queues, q);
    return over;
}

void hw_queue_filled(struct hw_op *op)
{
    struct hw_queues *t = &op->peer->queues;
    hw_list_remove(&op->queued);
    hw_queue_put(t, hw_queue_find(t, op->queue));
}

void hw_queue_copy(struct hw_op *op)
{
    struct hw_note *note = op->message;
    for (uint32_t i = 0; i < op->n; i++) {
        const struct hw_span *s = &op->span[i];
        uint64_t len = s->start < note->len ? HW_MIN(s->len, note->len - s->start) : 0;
        if (len && note->len <= op->total)
            memcpy(s->ptr, note->data + s->start, len);
    }
    atomic_store(&op->got, note->len);
    free(note);
    hw_op_sub(op, 1);
}

/* ---- control messages from the peer ---------------------------------------------------------------------------- */

bool hw_eager_take(struct hw_peer *p, uint32_t len)
{
    if (len <= HW_MSG_EAGER_MAX &&
        atomic_fetch_add(&p->queues.held, cost_message(len)) + cost_message(len) <= HW_EAGER_ROOM)
        return true;
    if (len <= HW_MSG_EAGER_MAX)
        hw_eager_give(p, len);
    return false;
}

void hw_eager_give(struct hw_peer *p, uint32_t len)
{
    atomic_fetch_sub(&p->queues.held, cost_message(len));
}

/* Records that a GRANT, WITHDRAW or MATCHED is being read. */
static void note_seen(struct hw_peer *p)
{
    p->queues.seen = atomic_load(&p->in.next) + 1;
}

/* Refuses the peer's receive because the stream is closed. */
static int refuse_receive(struct hw_peer *p, uint64_t landing)
{
    return hw_control_send_locked(
        p, &(struct hw_control){.kind = HW_CONTROL_UNREAD, .a = landing, .b = (uint64_t)ESHUTDOWN});
}

/* Finds or creates the queue for a receive or message of the peer. Fails with -EPROTO or -ENOMEM. */
static int get_queue_for_peer(struct hw_queues *t, uint64_t name, const char *what, struct hw_queue **out)
{
    int rc = hw_queue_get(t, name, HW_QUEUES_BOTH, out);
    return rc == -EAGAIN
               ? hw_fail(-EPROTO, "no queue is left for a %s of the peer: all %d queues (streams and tags) are in use",
                         what, HW_QUEUES_BOTH)
               : rc;
}

static int add_grant(struct hw_peer *p, const struct hw_control_head *h)
{
    struct hw_queues *t = &p->queues;
    struct hw_queue *q;
    if (hw_stream_is_closed(t, h->c, true)) {
        note_seen(p);
        return refuse_receive(p, h->a);
    }
    if (t->n_grants == HW_OPS)
        return hw_fail(-EPROTO, "the peer posts more than %d receives", HW_OPS);
    int rc = get_queue_for_peer(t, h->c, "receive", &q);
    if (rc < 0)
        return rc;
    struct hw_grant *g = malloc(sizeof *g);
    if (!g) {
        hw_queue_put(t, q);
        return hw_no_memory("a receive of the peer");
    }
    note_seen(p);
    *g = (struct hw_grant){.landing = h->a, .room = h->b, .number = atomic_load(&p->in.next)};
    hw_list_append(&q->grants, &g->of_queue);
    hw_chains_add(t, &t->grants, &g->in_chain);
    t->n_grants++;
    advance_sends(p, q);
    hw_queue_put(t, q);
    return 0;
}

int hw_queue_granted(struct hw_peer *p, const struct hw_control_head *h)
{
    pthread_mutex_lock(&p->lock);
    int rc = add_grant(p, h);
    hw_ops_unlock(p);
    return rc;
}

int hw_queue_withdrawn(struct hw_peer *p, const struct hw_control_head *h)
{
    struct hw_queues *t = &p->queues;
    pthread_mutex_lock(&p->lock);
    const struct hw_list *grants = hw_chains_find(t, &t->grants, h->a), *directs = hw_chains_find(t, &t->directs, h->a);
    note_seen(p);
    hw_list_each(it, tmp, grants)
    {
        struct hw_grant *g = hw_container_of(it, struct hw_grant, in_chain);
        if (g->landing == h->a)
            hw_grant_drop(t, g);
    }
    hw_list_each(it, tmp, directs)
    {
        struct hw_op *op = hw_container_of(it, struct hw_op, serve_at);
        if (op->serves != h->a)
            continue;
        hw_op_cancel_locked(op, hw_fail(-ECANCELED, "the peer cancelled the receive of this message"));
        break; /* a landing has one message; a peer that repeats a number must not make each WITHDRAW slow */
    }
    hw_queue_put(t, hw_queue_find(t, h->c));
    hw_ops_unlock(p);
    return 0;
}

/* Assigns the message to the oldest receive that cannot have data in flight, or requests it again if the CPU cannot
 * access that receive's memory. Without such a receive, keeps the message, or refuses it if the stream is closed. */
static int place_message(struct hw_peer *p, const struct hw_control_head *h, struct hw_note **note)
{
    struct hw_queue *q;
    struct hw_op *op;
    if (hw_stream_is_closed(&p->queues, h->c, true)) {
        int sent = answer_message(p, h->c, h->a, (*note)->len, ESHUTDOWN, HW_MSG_NO_LANDING);
        if (sent == 0)
            hw_eager_give(p, (*note)->len); /* the caller frees the message */
        return sent;
    }
    int rc = get_queue_for_peer(&p->queues, h->c, "message", &q);
    if (rc < 0)
        return rc;
    while ((op = hw_list_first(&q->receives, struct hw_op, queued)) && op->granted < h->b)
        hw_list_remove(&op->queued);
    (*note)->op = h->a;
    if (op && op->foreign) {
        rc = answer_message(p, h->c, h->a, (*note)->len, EAGAIN, op->landing->id);
        if (rc < 0)
            return rc;
        hw_list_remove(&op->queued);    /* the receive is taken */
        hw_eager_give(p, (*note)->len); /* the caller frees the message */
        hw_queue_put(&p->queues, q);
        return 0;
    }
    if (op) {
        struct hw_landing *g = op->landing;
        uint64_t landing = g->id;
        if (!hw_landing_take_back(g))
            return hw_fail(-EPROTO, "the peer sends two messages for one receive");
        op->landing = NULL;
        hw_landing_give(&p->landings, g);
        match_message(op, *note, landing);
    } else {
        rc = hold_message(&p->queues, q, *note);
    }
    if (rc == 0)
        *note = NULL;
    hw_queue_put(&p->queues, q);
    return rc;
}

int hw_queue_eager(struct hw_peer *p, const struct hw_control_head *h, struct hw_note **note)
{
    pthread_mutex_lock(&p->lock);
    int rc = place_message(p, h, note);
    hw_ops_unlock(p);
    return rc;
}

/* Sends the message again, directly to the landing in the peer's answer with EAGAIN. If the send was cancelled (op is
 * NULL), tells the peer that no data will arrive. */
static int send_again(struct hw_peer *p, struct hw_op *op, const struct hw_grant *g)
{
    if (op) {
        op->match = HW_MATCH_NONE;
        send_direct(op, g);
        return 0;
    }
    return hw_control_send_locked(
        p, &(struct hw_control){.kind = HW_CONTROL_UNREAD, .a = g->landing, .b = (uint64_t)ECANCELED});
}

static int take_answer(struct hw_peer *p, const struct hw_control_head *h)
{
    struct hw_queues *t = &p->queues;
    struct hw_queue *q = hw_queue_find(t, h->c);
    struct hw_grant *g = q ? hw_list_first(&q->grants, struct hw_grant, of_queue) : NULL;
    uint64_t cost = cost_message(h->b >> 32);
    bool closed = hw_stream_is_closed(t, h->c, true); /* the peer's receives are no longer known */
    bool fits = h->d == HW_MSG_NO_LANDING || closed || (g && g->landing == h->d);
    if (!q || !q->unanswered || t->sent < cost || !fits)
        return hw_fail(
            -EPROTO,
            "the peer confirms a message that was not sent, or names a receive that does not match the message");
    int error = (int)(uint32_t)h->b;
    struct hw_op *op = hw_op_find(p, h->a);
    if (op && (op->kind != HW_OP_SEND || op->match != HW_MATCH_EAGER || op->queue != h->c))
        op = NULL;
    if (error == EAGAIN && h->d == HW_MSG_NO_LANDING)
        return hw_fail(-EPROTO, "the peer requests a message again, but gives no memory for it");
    int rc = error == EAGAIN && !closed ? send_again(p, op, g) : 0;
    if (rc < 0)
        return rc; /* nothing was changed */
    note_seen(p);
    q->unanswered--;
    t->sent -= cost;
    if (h->d != HW_MSG_NO_LANDING && !closed)
        hw_grant_drop(t, g);
    if (op && error != EAGAIN) {
        if (error)
            hw_op_set_result(op, hw_fail(-error, "the peer could not receive the message of %llu bytes",
                                         (unsigned long long)op->total));
        op->match = HW_MATCH_NONE;
        hw_op_sub_locked(op, count_message(op));
    }
    advance_sends(p, q);
    hw_queue_put(t, q);
    return 0;
}

int hw_queue_matched(struct hw_peer *p, const struct hw_control_head *h)
{
    pthread_mutex_lock(&p->lock);
    int rc = take_answer(p, h);
    hw_ops_unlock(p);
    return rc;
}

static void refuse_queue(struct hw_peer *p, struct hw_queue *q)
{
    hw_list_each(it, tmp, &q->grants)
    {
        struct hw_grant *g = hw_container_of(it, struct hw_grant, of_queue);
        hw_grant_unlist(&p->queues, g);
        g->refusal = (struct hw_control){.kind = HW_CONTROL_UNREAD, .a = g->landing, .b = (uint64_t)ESHUTDOWN};
        hw_control_send_own(p, &g->refusal);
    }
    hw_list_each(it, tmp, &q->held)
    {
        struct hw_held *held = hw_container_of(it, struct hw_held, of_queue);
        struct hw_note *note = unlist_held(held);
        held->refusal = (struct hw_control){.kind = HW_CONTROL_MATCHED,
                                            .a = note->op,
                                            .b = (uint64_t)note->len << 32 | ESHUTDOWN,
                                            .c = q->name,
                                            .d = HW_MSG_NO_LANDING};
        hw_eager_give(p, note->len);
        free(note);
        hw_control_send_own(p, &held->refusal);
    }
    hw_queue_put(&p->queues, q);
}

void hw_queues_refuse(struct hw_peer *p, uint32_t stream)
{
    struct hw_queues *t = &p->queues;
    const struct hw_list *chain = hw_chains_find(t, &t->stream_queues, stream);
    hw_list_each(it, tmp, chain)
    {
        struct hw_queue *q = hw_container_of(it, struct hw_queue, of_stream);
        if (q->name >> 32 == stream)
            refuse_queue(p, q);
    }
}

static struct hw_held *find_held(struct hw_queues *t, uint64_t queue, uint64_t op)
{
    const struct hw_list *chain = hw_chains_find(t, &t->messages, op);
    hw_list_each(it, tmp, chain)
    {
        struct hw_held *held = hw_container_of(it, struct hw_held, in_chain);
        if (held->note->op == op) /* a peer that repeats a number must not make each UNSEND slow */
            return held->queue == queue ? held : NULL;
    }
    return NULL;
}

/* Answers and drops a message that the peer has cancelled and that no receive has taken yet. */
static int forget_message(struct hw_peer *p, const struct hw_control_head *h)
{
    struct hw_held *held = find_held(&p->queues, h->c, h->a);
    if (!held)
        return 0;
    int rc = answer_message(p, h->c, h->a, held->note->len, ECANCELED, HW_MSG_NO_LANDING);
    if (rc == 0)
        drop_held(p, held);
    hw_queue_put(&p->queues, hw_queue_find(&p->queues, h->c));
    return rc;
}

int hw_queue_unsent(struct hw_peer *p, const struct hw_control_head *h)
{
    pthread_mutex_lock(&p->lock);
    int rc = forget_message(p, h);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* ---- starting and stopping --------------------------------------------------------------------------------------- */

static uint64_t get_queue_name(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct hw_queue, in_chain)->name;
}

static uint64_t get_grant_landing(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct hw_grant, in_chain)->landing;
}

static uint64_t get_op_landing(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct hw_op, serve_at)->serves;
}

static uint64_t get_held_op(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct hw_held, in_chain)->note->op;
}

void hw_queues_init(struct hw_queues *t)
{
    hw_chains_init(&t->queues, get_queue_name);
    hw_chains_init(&t->grants, get_grant_landing);
    hw_chains_init(&t->directs, get_op_landing);
    hw_chains_init(&t->answers, get_op_landing);
    hw_chains_init(&t->messages, get_held_op);
    hw_streams_init(t);
    randombytes_buf(t->secret, sizeof t->secret);
}

static void free_queue(struct hw_queues *t, struct hw_queue *q)
{
    hw_list_each(it, tmp, &q->grants) hw_grant_drop(t, hw_container_of(it, struct hw_grant, of_queue));
    hw_list_each(it, tmp, &q->held) free(take_held(hw_container_of(it, struct hw_held, of_queue)));
    q->unanswered = 0;
    hw_queue_put(t, q);
}

void hw_queues_free(struct hw_queues *t)
{
    hw_streams_free(t);
    for (uint32_t i = 0; i < t->queues.size; i++)
        hw_list_each(it, tmp, &t->queues.list[i]) free_queue(t, hw_container_of(it, struct hw_queue, in_chain));
    hw_chains_free(&t->queues, NULL);
    hw_chains_free(&t->grants, NULL);
    hw_chains_free(&t->directs, NULL);
    hw_chains_free(&t->answers, NULL);
    hw_chains_free(&t->messages, NULL);
    free(t->spare);
}

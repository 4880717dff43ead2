/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of messages within a peer. A message has its number in its stream, and meets the receive of the same number.
 *
 * A short one goes as a MESSAGE on the control connection. A long one goes over the channels once its sender knows the
 * receive's own number (GRANT), with which every chunk is addressed. Where the message before was long the receiver
 * grants as soon as a receive is posted, so that the sender need not ask; else the sender asks by ANNOUNCE.
 * Chunks and frames overtake each other: whatever is decided by a frame must not depend on a chunk having come before.
 *
 * All of it under peer->mu.
 */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS          1024
#define INLINE_BACKLOG (256ul * 1024) /* control bytes waiting above which short messages go by the channels too */

/* ---- streams by id ----------------------------------------------------------------------------------- */

static struct hw_stream **slot_of(struct hawser_peer *p, uint32_t id)
{
    struct hw_stream **at = &p->streams[id % SLOTS];
    while (*at && (*at)->id != id)
        at = &(*at)->hash_next;
    return at;
}

struct hw_stream *hw_stream_get(struct hawser_peer *p, uint32_t id)
{
    if (!p->streams && !(p->streams = calloc(SLOTS, sizeof(struct hw_stream *)))) {
        (void)hw_fail(-ENOMEM, "no memory for streams");
        return NULL;
    }
    struct hw_stream **at = slot_of(p, id), *st = *at;
    if (st)
        return st;
    if (p->nstreams >= HW_STREAMS_MAX) {
        (void)hw_fail(-EAGAIN, "%u streams are open with %s", p->nstreams, p->name);
        return NULL;
    }
    if (!(st = calloc(1, sizeof(*st)))) {
        (void)hw_fail(-ENOMEM, "no memory for a stream");
        return NULL;
    }
    st->id = id;
    st->bulk = true; /* until shown otherwise: a needless grant costs less than a question */
    hw_list_init(&st->waiting);
    hw_list_init(&st->grants);
    hw_list_init(&st->receives);
    hw_list_init(&st->early);
    *at = st;
    p->nstreams++;
    return st;
}

static void taken(struct hawser_peer *p, uint64_t cost)
{
    p->early_taken += cost;
    if (p->early_taken - p->early_told >= HW_MAX(p->h->k.unexpected / 4, (uint64_t)1)) {
        p->early_told = p->early_taken;
        if (hw_ctl_add(p, HW_F_TAKEN, 0, p->early_taken, NULL, 0, NULL, 0) == 0)
            hw_ctl_flush(p);
    }
}

static void drop_message(struct hawser_peer *p, struct hw_message *m)
{
    hw_list_remove(&m->link);
    if (m->large && !m->cancelled) {
        p->nannounced--;
    } else {
        uint64_t cost = (m->large ? 0 : m->length) + HW_MESSAGE_COST;
        p->early_held -= cost;
        taken(p, cost);
    }
    free(m);
}

static void drop_kept(struct hawser_peer *p, struct hw_stream *st)
{
    hw_list_each(it, tmp, &st->grants)
    {
        free(hw_container_of(it, struct hw_grant, link));
    }
    hw_list_init(&st->grants);
    st->ngrants = 0;
    hw_list_each(it, tmp, &st->early)
    {
        drop_message(p, hw_container_of(it, struct hw_message, link));
    }
}

static void drop_if_over(struct hawser_peer *p, struct hw_stream *st)
{
    if (!st->closed || !st->peer_closed || st->nops)
        return;
    struct hw_stream **at = slot_of(p, st->id);
    *at = st->hash_next;
    p->nstreams--;
    drop_kept(p, st);
    free(st);
}

void hw_stream_unref(struct hw_stream *st, struct hawser_peer *p)
{
    st->nops--;
    drop_if_over(p, st);
}

void hw_stream_free_all(struct hawser_peer *p)
{
    for (uint32_t i = 0; p->streams && i < SLOTS; i++) {
        for (struct hw_stream *st = p->streams[i], *next; st; st = next) {
            next = st->hash_next;
            drop_kept(p, st);
            free(st);
        }
    }
    free(p->streams);
    p->streams = NULL;
}

static int frame(struct hawser_peer *p, uint8_t type, uint64_t id, const struct hw_stream *st, uint64_t number, int rc,
                 const void *more, size_t n)
{
    uint8_t head[HW_STREAM_HEAD];
    hw_put32(head, st->id);
    hw_put32(head + 4, (uint32_t)-rc);
    hw_put64(head + 8, number);
    int bad = hw_ctl_add(p, type, 0, id, head, sizeof(head), more, n);
    if (bad == 0)
        hw_ctl_flush(p);
    return bad;
}

static struct hawser_op *by_number(const struct hw_list *list, uint64_t number)
{
    for (const struct hw_list *it = list->next; it != list; it = it->next) {
        struct hawser_op *op = hw_container_of(it, struct hawser_op, queue);
        if (op->number >= number)
            return op->number == number ? op : NULL;
    }
    return NULL;
}

/* ---- sending -------------------------------------------------------------------------------------------- */

int hw_stream_room(struct hawser_peer *p)
{
    /* Messages called off count at the other end until their receives come. */
    if (p->early_sent - p->early_known > 2 * (uint64_t)p->peer_unexpected + (1u << 20))
        return hw_fail(-EAGAIN, "%s has not received %llu bytes of messages yet (knob unexpected there)", p->name,
                       (unsigned long long)(p->early_sent - p->early_known));
    return 0;
}

/* The whole message, on the control connection: the operation is over. */
static void send_short(struct hawser_peer *p, struct hawser_op *op)
{
    uint8_t flat[HW_INLINE_MAX];
    uint64_t len = atomic_load(&op->length);
    const uint8_t *data = hw_op_flat(op, flat);
    if (len && !data) {
        char text[HW_ERR_TEXT];
        snprintf(text, sizeof(text), "%s", hw_error());
        p->early_sent += HW_MESSAGE_COST;
        if (frame(p, HW_F_OFF, op->id, op->stream, op->number, -EIO, NULL, 0) == 0)
            hw_op_complete(op, -EIO, text);
        return;
    }
    p->early_sent += len + HW_MESSAGE_COST;
    if (frame(p, HW_F_MESSAGE, op->id, op->stream, op->number, 0, data, len))
        return; /* the peer has failed, and with it op */
    atomic_store(&op->moved, len);
    hw_op_complete(op, 0, NULL);
}

/* The receive is known: there is room for length bytes, at its number id. */
static void go(struct hawser_peer *p, struct hawser_op *op, uint64_t id, uint64_t length)
{
    uint64_t len = atomic_load(&op->length);
    if (len > length) {
        char text[HW_ERR_TEXT];
        snprintf(text, sizeof(text), "a message of %llu bytes met a receive of %llu", (unsigned long long)len,
                 (unsigned long long)length);
        p->early_sent += HW_MESSAGE_COST;
        if (frame(p, HW_F_OFF, op->id, op->stream, op->number, -EMSGSIZE, NULL, 0) == 0)
            hw_op_complete(op, -EMSGSIZE, text);
    } else if (len <= p->h->k.inline_max) {
        send_short(p, op);
    } else {
        op->remote_id = id;
        op->rts = op->bound = true;
        hw_op_queue_tx(op);
    }
}

/* What the peer has said of the receive that message `number` meets, or NULL; older words are forgotten. */
static struct hw_grant *take_grant(struct hw_stream *st, uint64_t number)
{
    struct hw_grant *g;
    while ((g = hw_list_first(&st->grants, struct hw_grant, link)) && g->number <= number) {
        hw_list_remove(&g->link);
        st->ngrants--;
        if (g->number == number)
            return g;
        free(g);
    }
    return NULL;
}

void hw_stream_send(struct hawser_peer *p, struct hawser_op *op)
{
    struct hw_stream *st = op->stream;
    uint64_t len = atomic_load(&op->length), cost = len + HW_MESSAGE_COST;
    if (st->peer_closed) {
        hw_op_complete(op, -ESHUTDOWN, "the peer has closed this stream");
        return;
    }
    op->number = st->tx_next++;
    struct hw_grant *g = take_grant(st, op->number);
    if (g && g->rc)
        hw_op_complete(op, g->rc, "the peer gave its receive up");
    else if (len <= p->h->k.inline_max && hw_ctl_backlog(p) < INLINE_BACKLOG &&
             (g || p->early_sent - p->early_known + cost <= p->peer_unexpected))
        send_short(p, op);
    else if (g)
        go(p, op, g->op, g->length);
    else {
        uint8_t length[8];
        hw_put64(length, len);
        op->rts = true;
        hw_list_append(&st->waiting, &op->queue);
        (void)frame(p, HW_F_ANNOUNCE, op->id, st, op->number, 0, length, sizeof(length));
    }
    free(g);
}

/* ---- receiving ------------------------------------------------------------------------------------------- */

static void grant(struct hawser_peer *p, struct hawser_op *op)
{
    uint8_t length[8];
    hw_put64(length, atomic_load(&op->length));
    op->granted = true;
    (void)frame(p, HW_F_GRANT, op->id, op->stream, op->number, 0, length, sizeof(length));
}

static void meet_short(struct hawser_op *op, const uint8_t *data, uint64_t len)
{
    uint64_t cap = atomic_load(&op->length);
    op->stream->bulk = false;
    if (op->bound) { /* its memory may be being written */
        hw_op_abort(op, -EPROTO, "the peer sent the same message twice");
        return;
    }
    if (len > cap) {
        char text[HW_ERR_TEXT];
        snprintf(text, sizeof(text), "a message of %llu bytes met a receive of %llu", (unsigned long long)len,
                 (unsigned long long)cap);
        hw_op_complete(op, -EMSGSIZE, text);
        return;
    }
    atomic_store(&op->length, len);
    int rc = hw_op_deliver(op, 0, data, len);
    if (rc == 0)
        atomic_store(&op->moved, len);
    hw_op_complete(op, rc, rc ? hw_error() : NULL);
}

void hw_stream_recv(struct hawser_peer *p, struct hawser_op *op)
{
    struct hw_stream *st = op->stream;
    op->number = st->rx_next++;
    struct hw_message *m = hw_list_first(&st->early, struct hw_message, link);
    if (m && m->number == op->number) {
        if (m->cancelled) {
            hw_op_complete(op, m->rc, "the peer called its send off");
        } else if (m->large) {
            hw_list_append(&st->receives, &op->queue);
            grant(p, op);
        } else {
            meet_short(op, m->data, m->length);
        }
        drop_message(p, m);
    } else if (st->peer_closed) {
        hw_op_complete(op, -ESHUTDOWN, "the peer has closed this stream");
    } else {
        hw_list_append(&st->receives, &op->queue);
        if (st->bulk && atomic_load(&op->length) > p->h->k.inline_max)
            grant(p, op);
    }
}

struct hawser_op *hw_stream_chunk(struct hawser_peer *p, const struct hw_chunk_head *h)
{
    struct hawser_op *op = hw_hash_get(&p->by_id, h->op);
    if (!op || op->type != HW_OP_RECV || !op->granted || op->aborting)
        return NULL; /* called off meanwhile: the sender has been told */
    uint64_t length = atomic_load(&op->length);
    if (op->bound ? h->region != length || h->secret != op->remote_id : h->region > length || h->region == 0) {
        hw_op_abort(op, -EPROTO, "the peer sent a message of another length than it said");
        return NULL;
    }
    op->bound = true;
    op->stream->bulk = true;
    op->remote_id = h->secret;
    atomic_store(&op->length, h->region);
    return op;
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

static void violation(struct hawser_peer *p, const char *what)
{
    hw_peer_fail(p, -EPROTO, "the peer broke the protocol: %s", what);
}

/* Keeps what came before its receive. */
static struct hw_message *keep(struct hawser_peer *p, struct hw_stream *st, const struct hw_frame *f, uint64_t number,
                               uint64_t cost, uint64_t len)
{
    /* What is called off comes on top of what the sender's own bound is: see hw_stream_room(). */
    uint64_t most = 3 * (uint64_t)p->h->k.unexpected + (1u << 20) + p->h->k.max_ops * HW_MESSAGE_COST;
    struct hw_message *last =
        hw_list_empty(&st->early) ? NULL : hw_container_of(st->early.prev, struct hw_message, link);
    if (number < st->rx_next || (last && number <= last->number)) {
        violation(p, "a message's number was used twice");
        return NULL;
    }
    if (cost ? p->early_held + cost > most : p->nannounced >= p->h->k.max_ops) {
        violation(p, "more unexpected messages than this side said it would keep");
        return NULL;
    }
    struct hw_message *m = malloc(sizeof(*m) + len);
    if (!m) {
        hw_peer_fail(p, -ENOMEM, "no memory for a message that came before its receive");
        return NULL;
    }
    *m = (struct hw_message){.id = f->id, .length = len, .number = number};
    if (len)
        memcpy(m->data, f->body + HW_STREAM_HEAD, len);
    hw_list_append(&st->early, &m->link);
    p->early_held += cost;
    return m;
}

static void on_message(struct hawser_peer *p, struct hw_stream *st, const struct hw_frame *f, uint64_t number)
{
    uint64_t len = f->body_len - HW_STREAM_HEAD;
    struct hawser_op *op = by_number(&st->receives, number);
    if (!op && number >= st->rx_next && !st->closed) {
        (void)keep(p, st, f, number, len + HW_MESSAGE_COST, len);
        return;
    }
    if (op)
        meet_short(op, f->body + HW_STREAM_HEAD, len);
    taken(p, len + HW_MESSAGE_COST);
}

static void on_announce(struct hawser_peer *p, struct hw_stream *st, const struct hw_frame *f, uint64_t number)
{
    struct hawser_op *op = by_number(&st->receives, number);
    if (op) {
        if (!op->granted)
            grant(p, op);
        return;
    }
    /* A receive of this number that is over was granted before it was: the sender knows what became of it. */
    if (number < st->rx_next || st->closed)
        return;
    struct hw_message *m = keep(p, st, f, number, 0, 0);
    if (m) {
        m->large = true;
        p->nannounced++;
    }
}

static void on_off(struct hawser_peer *p, struct hw_stream *st, const struct hw_frame *f, uint64_t number, int rc)
{
    struct hawser_op *op = by_number(&st->receives, number);
    if (!op && number >= st->rx_next && !st->closed) {
        struct hw_message *m = NULL;
        hw_list_each(it, tmp, &st->early)
        {
            struct hw_message *e = hw_container_of(it, struct hw_message, link);
            if (e->number == number)
                m = e;
        }
        if (m && (!m->large || m->cancelled)) {
            violation(p, "a message that had come whole was called off");
        } else if (m) {
            p->nannounced--;
            p->early_held += HW_MESSAGE_COST;
        } else {
            m = keep(p, st, f, number, HW_MESSAGE_COST, 0);
        }
        if (m) {
            m->large = m->cancelled = true;
            m->rc = rc;
        }
        return;
    }
    if (op)
        hw_op_abort(op, rc,
                    rc == -EMSGSIZE ? "the message is longer than the receive" : "the peer called its send off");
    taken(p, HW_MESSAGE_COST);
}

/* A word about the receive of a message that is not sent yet. */
static void note_grant(struct hawser_peer *p, struct hw_stream *st, const struct hw_grant *word)
{
    struct hw_list *at = st->grants.prev; /* mostly the latest */
    while (at != &st->grants && hw_container_of(at, struct hw_grant, link)->number > word->number)
        at = at->prev;
    struct hw_grant *g = at == &st->grants ? NULL : hw_container_of(at, struct hw_grant, link);
    if (!g || g->number != word->number) {
        if (st->ngrants >= p->h->k.max_ops + p->peer_max_ops) {
            violation(p, "more receives than it may have pending");
            return;
        }
        if (!(g = malloc(sizeof(*g)))) {
            hw_peer_fail(p, -ENOMEM, "no memory to note a receive of the peer's");
            return;
        }
        g->link.prev = at;
        g->link.next = at->next;
        at->next->prev = &g->link;
        at->next = &g->link;
        st->ngrants++;
    }
    g->number = word->number;
    g->op = word->op;
    g->length = word->length;
    g->rc = word->rc;
}

static void on_grant(struct hawser_peer *p, struct hw_stream *st, const struct hw_frame *f, uint64_t number)
{
    uint64_t length = hw_get64(f->body + HW_STREAM_HEAD);
    if (st->closed)
        return;
    if (number >= st->tx_next) {
        note_grant(p, st, &(struct hw_grant){.number = number, .op = f->id, .length = length});
        return;
    }
    struct hawser_op *op = by_number(&st->waiting, number);
    if (op) { /* else it went inline, or is off */
        hw_list_remove(&op->queue);
        go(p, op, f->id, length);
    }
}

static void on_refuse(struct hawser_peer *p, struct hw_stream *st, uint64_t number, int rc)
{
    static const char text[] = "the peer gave its receive up";
    if (st->closed)
        return;
    if (number >= st->tx_next) {
        note_grant(p, st, &(struct hw_grant){.number = number, .rc = rc});
        return;
    }
    struct hawser_op *op = by_number(&st->waiting, number);
    if (op) {
        hw_op_complete(op, rc, text);
        return;
    }
    hw_list_each(it, tmp, &p->ops)
    {
        op = hw_container_of(it, struct hawser_op, pending);
        if (op->stream == st && op->type == HW_OP_SEND && op->number == number) {
            hw_op_soft_fail(op, rc, text);
            return;
        }
    }
}

static void on_end(struct hawser_peer *p, struct hw_stream *st)
{
    static const char text[] = "the peer has closed this stream";
    st->peer_closed = true;
    hw_list_each(it, tmp, &st->waiting)
    {
        hw_op_complete(hw_container_of(it, struct hawser_op, queue), -ESHUTDOWN, text);
    }
    /* What was granted and sent has been confirmed to the sender, and so is over here too; the rest will not come. */
    hw_list_each(it, tmp, &st->receives)
    {
        hw_op_abort(hw_container_of(it, struct hawser_op, queue), -ESHUTDOWN, text);
    }
    drop_if_over(p, st);
}

void hw_stream_frame(struct hawser_peer *p, const struct hw_frame *f)
{
    if (f->type == HW_F_TAKEN) {
        if (f->id > p->early_sent || f->id < p->early_known)
            violation(p, "it has taken more messages than were sent");
        else
            p->early_known = f->id;
        return;
    }
    uint32_t id = hw_get32(f->body), code = hw_get32(f->body + 4);
    uint64_t number = hw_get64(f->body + 8);
    int rc = code > 0 && code < 4096 ? -(int)code : -ECANCELED;
    struct hw_stream *st = id ? hw_stream_get(p, id) : NULL;
    if (!st) {
        violation(p, id ? hw_error() : "a message of stream 0");
        return;
    }
    switch (f->type) {
    case HW_F_MESSAGE:
        on_message(p, st, f, number);
        break;
    case HW_F_ANNOUNCE:
        on_announce(p, st, f, number);
        break;
    case HW_F_GRANT:
        on_grant(p, st, f, number);
        break;
    case HW_F_OFF:
        on_off(p, st, f, number, rc);
        break;
    case HW_F_REFUSE:
        on_refuse(p, st, number, rc);
        break;
    default:
        on_end(p, st);
        break;
    }
}

/* ---- the end of an operation, or of a stream ----------------------------------------------------------------- */

void hw_stream_aborted(struct hawser_op *op, int rc)
{
    struct hawser_peer *p = op->peer;
    struct hw_stream *st = op->stream;
    if (atomic_load(&p->state) != 0 || st->closed || st->peer_closed)
        return;
    if (op->type == HW_OP_RECV) {
        (void)frame(p, HW_F_REFUSE, 0, st, op->number, -ECANCELED, NULL, 0);
    } else {
        p->early_sent += HW_MESSAGE_COST;
        (void)frame(p, HW_F_OFF, op->id, st, op->number, rc, NULL, 0);
    }
}

void hw_stream_close(struct hawser_peer *p, struct hw_stream *st)
{
    st->closed = true; /* END says it all: no word for each operation */
    st->nops++;        /* to be there at the end of this */
    hw_list_each(it, tmp, &p->ops)
    {
        struct hawser_op *op = hw_container_of(it, struct hawser_op, pending);
        if (op->stream == st)
            hw_op_abort(op, -ECANCELED, "its stream was closed");
    }
    drop_kept(p, st);
    (void)frame(p, HW_F_END, 0, st, 0, 0, NULL, 0);
    hw_stream_unref(st, p);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of messages within a peer. A message has its number in its stream, and meets the receive of the same number.
 *
 * A short one goes as a MESSAGE on the control connection, one of up to EAGER_MAX as one chunk that names stream and
 * number: both without a question, as long as what the peer may have to keep is within its bound. A longer one goes
 * over the channels once its sender knows the receive's own number (GRANT), with which every chunk is addressed. Where
 * the message before was long the receiver grants as soon as a receive is posted, so that the sender need not ask; else
 * the sender asks by ANNOUNCE. Chunks and frames overtake each other: whatever is decided by a frame must not depend on
 * a chunk having come before.
 *
 * All of it under peer->mu.
 */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS     1024
#define EAGER_MAX (256ul * 1024)

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
        (void)hw_no_memory("streams");
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
        (void)hw_no_memory("a stream");
        return NULL;
    }
    st->id = id;
    st->bulk = true; /* until shown otherwise: a needless grant costs less than a question */
    hw_list_init(&st->waiting);
    hw_list_init(&st->grants);
    hw_list_init(&st->receives);
    hw_list_init(&st->early);
    hw_list_init(&st->unasked);
    hw_list_init(&st->owing);
    *at = st;
    p->nstreams++;
    return st;
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

/* The sender of these may forget them: their receives are there. He is told when it is worth a frame. */
static void owe(struct hawser_peer *p, struct hw_stream *st, uint64_t cost)
{
    if (st->closed || atomic_load(&p->state) < 0) /* END has told him, or will; or there is nobody to tell */
        return;
    st->owed += cost;
    p->owed += cost;
    if (hw_list_empty(&st->owing))
        hw_list_append(&p->owing, &st->owing);
    if (p->owed < p->h->k.unexpected / 4)
        return;
    hw_list_each(it, tmp, &p->owing)
    {
        struct hw_stream *s = hw_container_of(it, struct hw_stream, owing);
        hw_list_remove(it);
        p->owed -= s->owed;
        s->owed = 0;
        (void)frame(p, HW_F_POSTED, 0, s, s->rx_next, 0, NULL, 0);
    }
}

static void drop_message(struct hawser_peer *p, struct hw_message *m)
{
    hw_list_remove(&m->link);
    if (m->cost)
        p->early_held -= m->cost;
    else
        p->nannounced--;
    if (m->filling)
        m->orphan = true;
    else
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
    p->owed -= st->owed;
    st->owed = 0;
    hw_list_remove(&st->owing);
}

/* The receives of messages below number are there: they take up nothing at the other end any more. */
static void forget(struct hawser_peer *p, struct hw_stream *st, uint64_t number)
{
    struct hw_unasked *u;
    while ((u = hw_list_first(&st->unasked, struct hw_unasked, link)) && u->number < number) {
        hw_list_remove(&u->link);
        p->unasked -= u->cost;
        free(u);
    }
}

/* A message goes out of whose receive nothing is known. Without memory to note that it is not noted. */
static void unasked(struct hawser_peer *p, struct hw_stream *st, uint64_t number, uint64_t cost)
{
    struct hw_unasked *u = malloc(sizeof(*u));
    if (!u)
        return;
    u->number = number;
    u->cost = cost;
    p->unasked += cost;
    struct hw_list *at = st->unasked.prev; /* an OFF may be of an older one */
    while (at != &st->unasked && hw_container_of(at, struct hw_unasked, link)->number > number)
        at = at->prev;
    hw_list_append(at->next, &u->link); /* before what follows */
}

static bool room_for(const struct hawser_peer *p, uint64_t cost)
{
    return p->unasked + cost <= p->peer_unexpected;
}

static void free_stream(struct hawser_peer *p, struct hw_stream *st)
{
    drop_kept(p, st);
    forget(p, st, UINT64_MAX);
    free(st);
}

static void drop_if_over(struct hawser_peer *p, struct hw_stream *st)
{
    if (!st->closed || !st->peer_closed || st->nops)
        return;
    struct hw_stream **at = slot_of(p, st->id);
    *at = st->hash_next;
    p->nstreams--;
    free_stream(p, st);
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
            free_stream(p, st);
        }
    }
    free(p->streams);
    p->streams = NULL;
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
    if (p->unasked > 2 * (uint64_t)p->peer_unexpected + (1u << 20))
        return hw_fail(-EAGAIN, "%s has not received %llu bytes of messages yet (knob unexpected there)", p->name,
                       (unsigned long long)p->unasked);
    return 0;
}

static void send_off(struct hawser_peer *p, struct hawser_op *op, int rc)
{
    unasked(p, op->stream, op->number, HW_MESSAGE_COST);
    (void)frame(p, HW_F_OFF, op->id, op->stream, op->number, rc, NULL, 0);
}

/* The whole message, on the control connection: the operation is over. */
static void send_short(struct hawser_peer *p, struct hawser_op *op, bool asked)
{
    uint8_t flat[HW_INLINE_MAX];
    uint64_t len = atomic_load(&op->length);
    const uint8_t *data = hw_op_flat(op, flat);
    if (len && !data) {
        char text[HW_ERR_TEXT];
        snprintf(text, sizeof(text), "%s", hw_error());
        send_off(p, op, -EIO);
        if (atomic_load(&p->state) == 0)
            hw_op_complete(op, -EIO, text);
        return;
    }
    if (!asked)
        unasked(p, op->stream, op->number, len + HW_MESSAGE_COST);
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
        send_off(p, op, -EMSGSIZE);
        if (atomic_load(&p->state) == 0)
            hw_op_complete(op, -EMSGSIZE, hw_op_misfit(text, len, length));
    } else if (len <= p->h->k.inline_max) {
        send_short(p, op, true);
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

/* Up to here a message goes as one chunk that finds its receive by itself, and is kept for it if need be. */
static uint64_t eager_max(const struct hawser_peer *p)
{
    uint64_t most = HW_MIN(hw_chunk_max(p), p->peer_unexpected / 4ull);
    return p->h->tp->caps.header_in_band ? HW_MIN((uint64_t)EAGER_MAX, most) : 0;
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
    else if (len <= p->h->k.inline_max && hw_ctl_backlog(p) < HW_INLINE_BACKLOG && (g || room_for(p, cost)))
        send_short(p, op, g != NULL);
    else if (g)
        go(p, op, g->op, g->length);
    else if (len && len <= eager_max(p) && op->nvecs == 1 && room_for(p, cost)) {
        unasked(p, st, op->number, cost);
        op->eager = op->rts = op->bound = true;
        hw_op_queue_tx(op);
    } else {
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
        hw_op_complete(op, -EMSGSIZE, hw_op_misfit(text, len, cap));
        return;
    }
    atomic_store(&op->length, len);
    int rc = hw_op_deliver(op, 0, data, len);
    if (rc == 0)
        atomic_store(&op->moved, len);
    hw_op_complete(op, rc, rc ? hw_error() : NULL);
}

static struct hw_message *early_by_number(const struct hw_stream *st, uint64_t number)
{
    for (const struct hw_list *it = st->early.next; it != &st->early; it = it->next) {
        struct hw_message *m = hw_container_of(it, struct hw_message, link);
        if (m->number >= number)
            return m->number == number ? m : NULL;
    }
    return NULL;
}

bool hw_stream_left(struct hawser_peer *p, uint32_t id)
{
    struct hw_stream *st = p->streams ? *slot_of(p, id) : NULL;
    struct hw_message *m = st && !st->closed ? early_by_number(st, st->rx_next) : NULL;
    return m && m->whole && !m->large && !m->cancelled;
}

void hw_stream_recv(struct hawser_peer *p, struct hawser_op *op)
{
    struct hw_stream *st = op->stream;
    op->number = st->rx_next++;
    struct hw_message *m = early_by_number(st, op->number);
    if (m) {
        uint64_t cost = m->cost;
        if (!m->whole && !m->large) {
            hw_list_append(&st->receives, &op->queue); /* until it is */
            return;
        }
        if (m->cancelled) {
            hw_op_complete(op, m->rc, "the peer called its send off");
        } else if (m->large) {
            hw_list_append(&st->receives, &op->queue);
            grant(p, op);
        } else {
            meet_short(op, m->data, m->length);
        }
        drop_message(p, m);
        owe(p, st, cost);
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

/* Keeps what came before its receive: len bytes; cost 0: of an announcement, which takes up nothing to speak of. */
static struct hw_message *keep(struct hawser_peer *p, struct hw_stream *st, uint64_t id, uint64_t number, uint64_t cost,
                               const uint8_t *data, uint64_t len)
{
    /* What is called off comes on top of what the sender's own bound is: see hw_stream_room(). */
    uint64_t most = 3 * (uint64_t)p->h->k.unexpected + (1u << 20) + p->h->k.max_ops * HW_MESSAGE_COST;
    if (number < st->rx_next || early_by_number(st, number)) {
        hw_peer_violation(p, "a message's number was used twice");
        return NULL;
    }
    if (cost ? p->early_held + cost > most : p->nannounced >= p->h->k.max_ops) {
        hw_peer_violation(p, "more unexpected messages than this side said it would keep");
        return NULL;
    }
    struct hw_message *m = malloc(sizeof(*m) + len);
    if (!m) {
        hw_peer_fail(p, -ENOMEM, "no memory for a message that came before its receive");
        return NULL;
    }
    *m = (struct hw_message){
        .id = id, .length = len, .number = number, .cost = cost, .large = cost == 0, .whole = data || !len};
    if (data)
        memcpy(m->data, data, len);
    struct hw_list *at = st->early.prev; /* frames and chunks overtake each other */
    while (at != &st->early && hw_container_of(at, struct hw_message, link)->number > number)
        at = at->prev;
    hw_list_append(at->next, &m->link);
    p->early_held += cost;
    p->nannounced += cost == 0;
    return m;
}

struct hawser_op *hw_stream_eager(struct hw_chan *c, uint8_t **to)
{
    struct hawser_peer *p = c->peer;
    const struct hw_chunk_head *h = &c->rx_head;
    struct hw_stream *st = h->region && h->region <= UINT32_MAX ? hw_stream_get(p, (uint32_t)h->region) : NULL;
    if (!st || h->offset) {
        hw_peer_violation(p, st || !h->region ? "a message in the wrong place" : hw_error());
        return NULL;
    }
    struct hawser_op *op = by_number(&st->receives, h->secret);
    struct hw_message *m = early_by_number(st, h->secret);
    if (m && (m->cancelled || st->closed)) /* its being called off came first */
        return NULL;
    if (m && (m->large || m->whole || m->filling || m->length != h->len)) {
        hw_peer_violation(p, "a message's number was used twice");
        return NULL;
    }
    if (op && !m) {
        if (op->bound ? op->remote_id != h->op || atomic_load(&op->length) != h->len : op->aborting) {
            hw_op_abort(op, -EPROTO, "the peer sent the same message twice");
            return NULL;
        }
        if (!op->bound && h->len > atomic_load(&op->length)) {
            char text[HW_ERR_TEXT];
            hw_ctl_error(p, h->op, -EMSGSIZE, hw_op_misfit(text, h->len, atomic_load(&op->length)));
            hw_op_complete(op, -EMSGSIZE, text);
            return NULL;
        }
        op->bound = true;
        op->remote_id = h->op;
        st->bulk = false;
        atomic_store(&op->length, h->len);
        return op;
    }
    if (!m && (h->secret < st->rx_next || st->closed)) /* the receive was given up */
        return NULL;
    if (!m && !(m = keep(p, st, h->op, h->secret, h->len + HW_MESSAGE_COST, NULL, h->len)))
        return NULL;
    m->filling = true;
    c->rx_msg = m;
    *to = m->data;
    return NULL;
}

void hw_stream_eager_done(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    const struct hw_chunk_head *h = &c->rx_head;
    struct hw_message *m = c->rx_msg;
    c->rx_msg = NULL;
    if (m) {
        m->filling = false;
        m->whole = true;
        if (m->orphan) {
            free(m);
            return;
        }
    }
    struct hw_stream *st = p->streams ? *slot_of(p, (uint32_t)h->region) : NULL;
    if (!st || h->secret >= st->rx_next)
        return;
    if (m) {
        struct hawser_op *op = by_number(&st->receives, h->secret);
        if (op && m->cancelled)
            hw_op_complete(op, m->rc, "the peer called its send off");
        else if (op)
            meet_short(op, m->data, m->length);
        drop_message(p, m);
    }
    owe(p, st, h->len + HW_MESSAGE_COST);
}

void hw_stream_eager_lost(struct hw_chan *c)
{
    struct hw_message *m = c->rx_msg;
    c->rx_msg = NULL;
    if (m) {
        m->filling = false;
        if (m->orphan)
            free(m);
    }
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

static void on_message(struct hawser_peer *p, struct hw_stream *st, const struct hw_frame *f, uint64_t number)
{
    uint64_t len = f->body_len - HW_STREAM_HEAD, cost = len + HW_MESSAGE_COST;
    struct hawser_op *op = by_number(&st->receives, number);
    if (!op && number >= st->rx_next && !st->closed) {
        (void)keep(p, st, f->id, number, cost, f->body + HW_STREAM_HEAD, len);
        return;
    }
    if (op)
        meet_short(op, f->body + HW_STREAM_HEAD, len);
    owe(p, st, cost);
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
    if (number >= st->rx_next && !st->closed)
        (void)keep(p, st, f->id, number, 0, NULL, 0);
}

static void on_off(struct hawser_peer *p, struct hw_stream *st, const struct hw_frame *f, uint64_t number, int rc)
{
    struct hawser_op *op = by_number(&st->receives, number);
    struct hw_message *m = early_by_number(st, number);
    if (!m && !op && number >= st->rx_next && !st->closed)
        m = keep(p, st, f->id, number, HW_MESSAGE_COST, NULL, 0);
    if (m && !m->cost) { /* announced, and to be kept as called off */
        p->nannounced--;
        p->early_held += m->cost = HW_MESSAGE_COST;
    }
    if (m) {
        m->cancelled = true;
        m->whole |= !m->filling;
        m->rc = rc;
    }
    if (op) {
        hw_op_abort(op, rc,
                    rc == -EMSGSIZE ? "the message is longer than the receive" : "the peer called its send off");
        if (m)
            drop_message(p, m);
    }
    if (number < st->rx_next)
        owe(p, st, HW_MESSAGE_COST);
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
            hw_peer_violation(p, "more receives than it may have pending");
            return;
        }
        if (!(g = malloc(sizeof(*g)))) {
            hw_peer_fail(p, -ENOMEM, "no memory to note a receive of the peer's");
            return;
        }
        hw_list_append(at->next, &g->link); /* before what follows */
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
    forget(p, st, number); /* receives are posted in order */
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
    uint32_t id = hw_get32(f->body), code = hw_get32(f->body + 4);
    uint64_t number = hw_get64(f->body + 8);
    int rc = hw_peer_errno(code, -ECANCELED);
    struct hw_stream *st = id ? hw_stream_get(p, id) : NULL;
    if (!st) {
        hw_peer_violation(p, id ? hw_error() : "a message of stream 0");
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
    case HW_F_POSTED:
        forget(p, st, number);
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
        send_off(p, op, rc);
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

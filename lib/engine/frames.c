/* SPDX-License-Identifier: Apache-2.0 */
/* What each control frame does. All of it under peer->mu, by the driver of the peer's home loop. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one-sided ------------------------------------------------------------------------------- */

static void on_write(struct hawser_peer *p, const struct hw_frame *f)
{
    const struct hw_space *space;
    uint8_t *to;
    uint64_t len = f->body_len - HW_WRITE_HEAD;
    int rc = hw_region_find(p, hw_get64(f->body), hw_get64(f->body + 8), hw_get64(f->body + 16), len,
                            HAWSER_REMOTE_WRITE, &space, &to);
    if (rc == 0)
        rc = hw_store(space, to, f->body + HW_WRITE_HEAD, len);
    if (rc)
        hw_ctl_error(p, f->id, rc, hw_error());
}

static struct hawser_op *served_by_id(struct hawser_peer *p, uint64_t id)
{
    hw_list_each(it, tmp, &p->served)
    {
        struct hawser_op *op = hw_container_of(it, struct hawser_op, pending);
        if (op->id == id && !op->aborting)
            return op;
    }
    return NULL;
}

static int serve_append(struct hawser_peer *p, struct hawser_op *op, const struct hw_frame *f)
{
    size_t n = f->body_len / HW_READ_ENTRY;
    if (op->nvecs + n > HAWSER_MAX_VECS)
        return hw_fail(-E2BIG, "a read of more than %d descriptors", HAWSER_MAX_VECS);
    if (p->served_vecs + n > HW_SERVED_VECS)
        return hw_fail(-EAGAIN, "reads of more than %lu descriptors under way", HW_SERVED_VECS);
    struct hw_vec *v = realloc(op->vecs, (op->nvecs + n) * sizeof(*v)); /* never one_vec: see on_read() */
    if (!v)
        return hw_fail(-ENOMEM, "no memory to serve a read of %zu descriptors", op->nvecs + n);
    op->vecs = v;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *e = f->body + i * HW_READ_ENTRY;
        uint64_t len = hw_get64(e + 24), total = atomic_load(&op->length);
        const struct hw_space *space;
        uint8_t *ptr;
        int rc =
            hw_region_find(p, hw_get64(e), hw_get64(e + 8), hw_get64(e + 16), len, HAWSER_REMOTE_READ, &space, &ptr);
        if (rc)
            return rc;
        if (len == 0)
            continue;
        if (total + len < total)
            return hw_fail(-EINVAL, "a read of more than 2^64 bytes");
        p->served_vecs++;
        op->vecs[op->nvecs++] =
            (struct hw_vec){.space = space, .ptr = ptr, .len = len, .start = total, .region = hw_get64(e)};
        atomic_store(&op->length, total + len);
    }
    return 0;
}

static void serve_inline(struct hawser_peer *p, struct hawser_op *op)
{
    for (size_t i = 0; i < op->nvecs; i++) {
        uint8_t at[8], buf[HW_INLINE_MAX];
        hw_put64(at, op->vecs[i].start);
        const uint8_t *data = hw_vec_load(&op->vecs[i], buf);
        if (!data) {
            hw_ctl_error(p, op->id, -EIO, hw_error());
            break;
        }
        if (hw_ctl_add(p, HW_F_READ_DATA, 0, op->id, at, 8, data, op->vecs[i].len))
            return;
    }
    hw_ctl_flush(p);
    hw_op_complete(op, 0, NULL);
}

static void on_read(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hawser_op *op = served_by_id(p, f->id);
    int rc = 0;
    if (op && op->bound) { /* it may be in the queue to be sent: not to be put there twice, nor to grow */
        hw_peer_violation(p, "a read's number was used again while it was under way");
        return;
    }
    if (!op) {
        if (p->nserved >= p->h->k.max_ops)
            rc = hw_fail(-EAGAIN, "too many reads under way (knob max_ops)");
        else if (!(op = calloc(1, sizeof(*op))))
            rc = hw_fail(-ENOMEM, "no memory to serve a read");
        if (rc) {
            hw_ctl_error(p, f->id, rc, hw_error());
            return;
        }
        op->peer = p;
        op->type = HW_OP_SERVE;
        op->id = f->id;
        op->deadline = HW_NEVER;
        hw_list_init(&op->queue);
        hw_list_append(&p->served, &op->pending);
        p->nserved++;
        hw_loop_want_tick(p->home);
    }
    /* a list of which a part was refused already is swallowed to its end */
    if (!op->failing && (rc = serve_append(p, op, f)) != 0) {
        op->failing = rc;
        hw_ctl_error(p, f->id, rc, hw_error());
    }
    if (f->flags & HW_FF_MORE)
        return;
    op->bound = true;
    if (op->failing || op->nvecs == 0)
        hw_op_complete(op, 0, NULL);
    else if (atomic_load(&op->length) <= p->h->k.inline_max && op->nvecs <= 16 && hw_ctl_backlog(p) < 256ul * 1024)
        serve_inline(p, op);
    else
        hw_op_queue_tx(op);
}

static void on_read_data(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hawser_op *op = hw_hash_get(&p->by_id, f->id);
    uint64_t at = hw_get64(f->body), len = f->body_len - 8;
    if (!op || op->aborting)
        return; /* called off meanwhile */
    uint64_t total = atomic_load(&op->length);
    if (op->type != HW_OP_READ || at > total || len > total - at) {
        hw_peer_violation(p, "data for a read that was never asked for");
        return;
    }
    int rc = hw_op_deliver(op, at, f->body + 8, len);
    if (rc)
        hw_op_abort(op, rc, hw_error());
    else
        hw_op_arrived(op, len);
}

/* ---- two-sided ---------------------------------------------------------------------------------- */

static void matched(struct hawser_peer *p)
{
    p->matched++;
    p->ctl.ack_owed = true;
}

/* Message m meets receive op. */
static void meet(struct hawser_peer *p, struct hawser_op *op, uint64_t id, bool large, uint64_t len,
                 const uint8_t *data)
{
    char text[HW_ERR_TEXT];
    uint64_t cap = atomic_load(&op->length);
    matched(p);
    hw_list_remove(&op->queue);
    if (len > cap) {
        hw_ctl_error(p, id, -EMSGSIZE, hw_op_misfit(text, len, cap));
        hw_op_complete(op, -EMSGSIZE, text);
        return;
    }
    atomic_store(&op->length, len);
    if (!large) {
        int lost = hw_op_deliver(op, 0, data, len);
        if (lost)
            hw_ctl_error(p, id, lost, hw_error());
        else
            atomic_store(&op->moved, len);
        hw_op_complete(op, lost, lost ? hw_error() : NULL);
        return;
    }
    op->remote_id = id;
    int rc = hw_hash_get(&p->by_remote, id) ? hw_fail(-EPROTO, "the peer used a message's number twice")
                                            : hw_hash_put(&p->by_remote, op, id);
    if (rc) {
        hw_ctl_error(p, id, rc, hw_error());
        hw_op_complete(op, rc, hw_error());
        return;
    }
    op->bound = true;
    if (hw_ctl_add(p, HW_F_CTS, 0, id, NULL, 0, NULL, 0) == 0)
        hw_ctl_flush(p);
}

static void keep(struct hawser_peer *p, uint64_t id, bool large, uint64_t len, const uint8_t *data)
{
    uint64_t cost = large ? 0 : len;
    /* The peer counts the same way and announces by RTS what would not fit, so only a broken one gets here. */
    if (p->unexpected_bytes + cost > p->h->k.unexpected || p->nunexpected >= p->h->k.max_ops) {
        hw_peer_violation(p, "more unexpected messages than this side said it would keep");
        return;
    }
    struct hw_message *m = malloc(sizeof(*m) + cost);
    if (!m) {
        hw_peer_fail(p, -ENOMEM, "no memory for a message that came before its receive");
        return;
    }
    m->id = id;
    m->large = large;
    m->cancelled = false;
    m->length = len;
    if (cost)
        memcpy(m->data, data, cost);
    hw_list_append(&p->unexpected, &m->link);
    p->unexpected_bytes += cost;
    p->nunexpected++;
}

void hw_op_match(struct hawser_peer *p)
{
    for (;;) {
        struct hw_message *m = hw_list_first(&p->unexpected, struct hw_message, link);
        struct hawser_op *op = hw_list_first(&p->recvq, struct hawser_op, queue);
        if (!m || (!op && !m->cancelled))
            return;
        hw_list_remove(&m->link);
        p->unexpected_bytes -= m->large ? 0 : m->length;
        p->nunexpected--;
        if (m->cancelled)
            matched(p); /* it counts, but uses up no receive */
        else
            meet(p, op, m->id, m->large, m->length, m->data);
        free(m);
    }
}

static void on_message(struct hawser_peer *p, const struct hw_frame *f)
{
    bool large = f->type == HW_F_RTS;
    uint64_t len = large ? hw_get64(f->body) : f->body_len;
    if (large && len == 0) {
        hw_peer_violation(p, "an announcement of an empty message");
        return;
    }
    struct hawser_op *op = hw_list_first(&p->recvq, struct hawser_op, queue);
    if (op && hw_list_empty(&p->unexpected))
        meet(p, op, f->id, large, len, f->body);
    else
        keep(p, f->id, large, len, f->body);
}

static void on_cts(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hawser_op *op = hw_hash_get(&p->by_id, f->id);
    if (!op || op->aborting || op->failing)
        return;
    if (op->type != HW_OP_SEND || op->stream || !op->rts || op->bound) {
        hw_peer_violation(p, "a go-ahead for a message that was never announced");
        return;
    }
    op->bound = true;
    hw_op_queue_tx(op);
}

static void on_ack(struct hawser_peer *p, const struct hw_frame *f)
{
    uint64_t count = hw_get64(f->body);
    if (count > p->send_seq) {
        hw_peer_violation(p, "it has matched more messages than were sent");
        return;
    }
    p->send_matched = HW_MAX(p->send_matched, count);
    for (;;) {
        struct hawser_op *op = hw_list_first(&p->await_match, struct hawser_op, queue);
        if (!op || op->seq > count)
            break;
        uint64_t len = atomic_load(&op->length);
        p->unmatched_inline -= HW_MIN(len, p->unmatched_inline);
        atomic_store(&op->moved, len);
        hw_op_complete(op, op->failing, op->err);
    }
    if (count == p->send_seq)
        p->unmatched_inline = 0;
    if (!p->setup_acked && p->setup_sent && f->id >= p->setup_end) {
        p->setup_acked = true;
        hw_peer_scan(p); /* the peer knows the channels: connect them */
    }
}

/* ---- the rest --------------------------------------------------------------------------------------- */

static void on_notify(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hw_note *n = p->nnotes < p->h->k.notify_queue ? malloc(sizeof(*n) + f->body_len) : NULL;
    if (!n) {
        hw_ctl_error(p, f->id, -ENOBUFS, "the peer's queue of notifications is full (knob notify_queue there)");
        return;
    }
    n->len = f->body_len;
    memcpy(n->data, f->body, f->body_len);
    hw_list_append(&p->notes, &n->link);
    p->nnotes++;
    hw_event(p->h);
}

static void on_error(struct hawser_peer *p, const struct hw_frame *f)
{
    char text[HW_ERR_TEXT];
    uint32_t code = hw_get32(f->body);
    size_t n = HW_MIN((size_t)f->body_len - 4, sizeof(text) - 1);
    struct hawser_op *op = hw_hash_get(&p->by_id, f->id);
    if (!op)
        return;
    memcpy(text, f->body + 4, n);
    text[n] = 0;
    for (char *c = text; *c; c++) /* a stranger's words, shown to people */
        if (*c < ' ' || *c > '~')
            *c = '?';
    int rc = hw_peer_errno(code, -EPROTO);
    if (op->type == HW_OP_READ || op->type == HW_OP_RECV)
        hw_op_abort(op, rc, text);
    else
        hw_op_soft_fail(op, rc, text);
}

static void on_cancel(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hawser_op *op = served_by_id(p, f->id);
    if (op) {
        hw_op_soft_fail(op, -ECANCELED, NULL);
        return;
    }
    op = hw_hash_get(&p->by_remote, f->id);
    if (op) {
        hw_op_abort(op, -ECANCELED, "the peer called its send off");
        return;
    }
    hw_list_each(it, tmp, &p->unexpected)
    {
        struct hw_message *m = hw_container_of(it, struct hw_message, link);
        if (m->large && m->id == f->id)
            m->cancelled = true;
    }
    hw_op_match(p);
}

static struct hw_chan *channel_of(struct hawser_peer *p, const struct hw_frame *f)
{
    uint32_t i = hw_get32(f->body);
    if (i < atomic_load(&p->nchans))
        return &p->chans[i];
    hw_peer_violation(p, "word of a channel that there is not");
    return NULL;
}

void hw_ctl_frame(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hw_chan *c;
    if (atomic_load(&p->state) == 1 && f->type != HW_F_SETUP && f->type != HW_F_ACK && f->type != HW_F_PING &&
        f->type != HW_F_BYE) {
        hw_peer_violation(p, "a request before the set-up");
        return;
    }
    switch ((enum hw_frame_type)f->type) {
    case HW_F_SETUP: {
        int rc = hw_setup_received(p, f);
        if (rc)
            hw_peer_fail(p, rc, "%s", hw_error());
        break;
    }
    case HW_F_ACK:
        on_ack(p, f);
        break;
    case HW_F_CONFIRM:
        c = channel_of(p, f);
        if (c && c->state == HW_CH_UP && c->gen == hw_get32(f->body + 4))
            hw_chan_confirmed(c, f->id);
        break;
    case HW_F_CHAN_DOWN:
        c = channel_of(p, f);
        if (c)
            hw_chan_peer_down(c, hw_get32(f->body + 4), f->id);
        break;
    case HW_F_WRITE:
        on_write(p, f);
        break;
    case HW_F_SEND:
    case HW_F_RTS:
        on_message(p, f);
        break;
    case HW_F_CTS:
        on_cts(p, f);
        break;
    case HW_F_READ:
        on_read(p, f);
        break;
    case HW_F_READ_DATA:
        on_read_data(p, f);
        break;
    case HW_F_NOTIFY:
        on_notify(p, f);
        break;
    case HW_F_ERROR:
        on_error(p, f);
        break;
    case HW_F_CANCEL:
        on_cancel(p, f);
        break;
    case HW_F_PING:
        break;
    case HW_F_BYE:
        p->bye = true;
        hw_peer_fail(p, -ESHUTDOWN, "the peer closed the connection");
        break;
    case HW_F_MESSAGE:
    case HW_F_ANNOUNCE:
    case HW_F_GRANT:
    case HW_F_OFF:
    case HW_F_REFUSE:
    case HW_F_POSTED:
    case HW_F_END:
        hw_stream_frame(p, f);
        break;
    case HW_F_COUNT:
        break;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: their life from posting to the end, the cutting of chunks, and how they are aborted. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations by id ------------------------------------------------------------------------ */

struct hawser_op *hw_hash_get(const struct hw_hash *t, uint64_t id)
{
    struct hawser_op *op = t->cap ? t->slot[id & (t->cap - 1)] : NULL;
    while (op && (t->by_remote ? op->remote_id : op->id) != id)
        op = op->hash_next;
    return op;
}

static int hash_grow(struct hw_hash *t)
{
    size_t cap = t->cap ? t->cap * 2 : HW_HASH_MIN;
    struct hawser_op **slot = calloc(cap, sizeof(*slot));
    if (!slot)
        return t->cap ? 0 : hw_no_memory("a table of operations"); /* longer chains will do */
    for (size_t i = 0; i < t->cap; i++) {
        for (struct hawser_op *op = t->slot[i], *next; op; op = next) {
            uint64_t id = t->by_remote ? op->remote_id : op->id;
            next = op->hash_next;
            op->hash_next = slot[id & (cap - 1)];
            slot[id & (cap - 1)] = op;
        }
    }
    free(t->slot);
    t->slot = slot;
    t->cap = cap;
    return 0;
}

int hw_hash_put(struct hw_hash *t, struct hawser_op *op, uint64_t id)
{
    if (t->n >= t->cap) {
        int rc = hash_grow(t);
        if (rc)
            return rc;
    }
    op->hash_next = t->slot[id & (t->cap - 1)];
    t->slot[id & (t->cap - 1)] = op;
    t->n++;
    return 0;
}

void hw_hash_del(struct hw_hash *t, struct hawser_op *op, uint64_t id)
{
    if (!t->cap)
        return;
    for (struct hawser_op **at = &t->slot[id & (t->cap - 1)]; *at; at = &(*at)->hash_next) {
        if (*at == op) {
            *at = op->hash_next;
            t->n--;
            return;
        }
    }
}

/* ---- memory of an operation -------------------------------------------------------------------- */

/* The library's hold on the caller's memory ends. */
static void unhold(struct hawser_op *op)
{
    for (size_t i = 0; i < op->nvecs; i++)
        if (op->vecs[i].mem)
            atomic_fetch_sub(&op->vecs[i].mem->busy, 1);
}

void hw_op_free_memory(struct hawser_op *op)
{
    free(op->err);
    free(op->notify);
    if (op->vecs != &op->one_vec)
        free(op->vecs);
    free(op);
}

/* Where byte `offset` of the operation lies, and how far it goes on from there. */
uint8_t *hw_op_at(struct hawser_op *op, uint64_t offset, const struct hw_space **space, uint64_t *room)
{
    size_t lo = 0, hi = op->nvecs;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (op->vecs[mid].start <= offset)
            lo = mid;
        else
            hi = mid;
    }
    struct hw_vec *v = &op->vecs[lo];
    *space = v->space;
    *room = v->len - (offset - v->start);
    return v->ptr + (offset - v->start);
}

int hw_op_deliver(struct hawser_op *op, uint64_t at, const uint8_t *data, uint64_t len)
{
    for (uint64_t i = 0; i < len;) {
        const struct hw_space *space;
        uint64_t room;
        uint8_t *to = hw_op_at(op, at + i, &space, &room);
        room = HW_MIN(room, len - i);
        int rc = hw_store(space, to, data + i, room);
        if (rc)
            return rc;
        i += room;
    }
    return 0;
}

const uint8_t *hw_op_flat(struct hawser_op *op, uint8_t buf[HW_INLINE_MAX])
{
    if (op->nvecs == 1)
        return hw_vec_load(&op->vecs[0], buf);
    for (size_t i = 0; i < op->nvecs; i++)
        if (hw_load(op->vecs[i].space, buf + op->vecs[i].start, op->vecs[i].ptr, op->vecs[i].len))
            return NULL;
    return op->nvecs ? buf : NULL;
}

const uint8_t *hw_vec_load(const struct hw_vec *v, void *buf)
{
    if (v->space->direct)
        return v->ptr;
    return hw_load(v->space, buf, v->ptr, v->len) == 0 ? buf : NULL;
}

/* ---- the end -------------------------------------------------------------------------------------- */

static void unqueue_tx(struct hawser_op *op)
{
    if (!hw_list_empty(&op->queue)) {
        hw_list_remove(&op->queue);
        if (op->in_txq) {
            atomic_fetch_sub(&op->peer->tx_work, 1);
            op->peer->tx_left -= atomic_load(&op->length) - op->cut_total;
        }
        op->in_txq = false;
    }
}

void hw_op_complete(struct hawser_op *op, int rc, const char *text)
{
    struct hawser_peer *p = op->peer;
    unqueue_tx(op);
    hw_list_remove(&op->pending);
    if (op->type == HW_OP_SERVE) {
        p->nserved--;
        p->served_vecs -= op->nvecs;
        hw_op_free_memory(op);
        return;
    }
    bool by_remote = op->bound && op->type == HW_OP_RECV && !op->stream;
    hw_hash_del(by_remote ? &p->by_remote : &p->by_id, op, by_remote ? op->remote_id : op->id);
    p->nops--;
    if (op->stream)
        hw_stream_unref(op->stream, p);
    unhold(op);
    if (rc) {
        op->rc = rc;
        if (!op->err && text)
            op->err = strdup(text);
    }
    struct hawser *h = p->h;
    struct hw_loop *home = p->home;
    /* order: once done is seen, the caller may free op */
    atomic_store(&op->done, 1);
    if (atomic_load(&home->callers)) /* read after done is set: who counted himself in later sees it */
        hw_loop_notify(home);
    hw_event(h);
}

const char *hw_op_misfit(char text[HW_ERR_TEXT], uint64_t len, uint64_t cap)
{
    snprintf(text, HW_ERR_TEXT, "a message of %llu bytes met a receive of %llu", (unsigned long long)len,
             (unsigned long long)cap);
    return text;
}

/* An operation that sends ends once nothing of it is in flight and, unless it failed, all of it was confirmed. */
void hw_op_check(struct hawser_op *op)
{
    if (op->inflight || op->aborting)
        return;
    if (op->failing) {
        hw_op_complete(op, op->failing, op->err);
        return;
    }
    if (atomic_load(&op->moved) < atomic_load(&op->length) || (op->type == HW_OP_SEND && !op->bound))
        return;
    if (op->notify)
        hw_op_notify_now(op);
    else
        hw_op_complete(op, 0, NULL);
}

void hw_op_arrived(struct hawser_op *op, uint64_t n)
{
    struct hawser_peer *p = op->peer;
    uint64_t moved = atomic_fetch_add(&op->moved, n) + n, total = atomic_load(&op->length);
    if (moved < total)
        return;
    /* A peer that sends bytes twice gets to the sum before the end. A channel may then be writing to the memory still,
     * which the caller thinks his again once the operation is over: an abort waits for it. */
    bool twice = moved > total;
    uint32_t nchans = atomic_load(&p->nchans);
    for (uint32_t i = 0; i < nchans; i++)
        twice |= p->chans[i].rx_op == op;
    if (twice) {
        hw_op_abort(op, -EPROTO, "the peer sent bytes of it twice");
        return;
    }
    /* Whoever has what he read may next say to the other side that its memory is free: that must not find chunks of
     * the read unconfirmed there, which would cost the channel that carried them. */
    if (op->type == HW_OP_READ)
        hw_peer_confirm(p);
    hw_op_complete(op, 0, NULL);
}

void hw_op_soft_fail(struct hawser_op *op, int rc, const char *text)
{
    if (op->failing || op->aborting)
        return;
    op->failing = rc;
    if (text && !op->err)
        op->err = strdup(text);
    unqueue_tx(op);
    op->cut_total = atomic_load(&op->length);
    hw_op_check(op);
}

void hw_op_abort(struct hawser_op *op, int rc, const char *text)
{
    struct hawser_peer *p = op->peer;
    if (op->aborting)
        return;
    op->aborting = rc;
    if (text && !op->err)
        op->err = strdup(text);
    unqueue_tx(op);
    if (op->stream) {
        hw_stream_aborted(op, rc);
    } else if (op->type == HW_OP_READ || (op->type == HW_OP_SEND && op->rts)) {
        uint8_t body[4];
        hw_put32(body, (uint32_t)-rc);
        if (atomic_load(&p->state) == 0 && hw_ctl_add(p, HW_F_CANCEL, 0, op->id, body, 4, NULL, 0) == 0)
            hw_ctl_flush(p);
    } else if (op->type == HW_OP_WRITE) {
        p->fence_seq = HW_MAX(p->fence_seq, op->seq); /* inline: it is in the control stream already */
    } else if (op->type == HW_OP_RECV && op->bound && atomic_load(&p->state) == 0) {
        /* what still comes of the message is dropped: its sender must not take the confirmations for an arrival */
        char told[HW_ERR_TEXT];
        snprintf(told, sizeof(told), "the peer gave its receive up: %s", text ? text : hw_errno_name(rc));
        hw_ctl_error(p, op->remote_id, rc, told);
    }
    op->lanes_left = p->h->nloops == HW_LOOPS_MAX ? ~0ull : (1ull << p->h->nloops) - 1;
    hw_list_append(&p->aborting, &op->queue);
    hw_peer_scan(p);
}

static void drop_retries(struct hawser_op *op)
{
    struct hawser_peer *p = op->peer;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nretry; i++)
        if (p->retry[i].op != op)
            p->retry[n++] = p->retry[i];
    atomic_fetch_sub(&p->tx_work, p->nretry - n);
    p->nretry = n;
}

/* Lets go of every aborted operation on this lane: a channel that may still send its bytes by reference is closed (its
 * other chunks are retaken), one that receives into it drops the rest. */
void hw_op_lane_scan(struct hw_lane *lane)
{
    struct hawser_peer *p = lane->peer;
    uint64_t bit = 1ull << lane->loop->index;
    uint32_t nchans = atomic_load(&p->nchans);
    hw_list_each(it, tmp, &p->aborting)
    {
        struct hawser_op *op = hw_container_of(it, struct hawser_op, queue);
        for (uint32_t i = 0; i < nchans && op->lanes_left & bit; i++) {
            struct hw_chan *c = &p->chans[i];
            if (c->lane != lane)
                continue;
            if (c->rx_op == op) {
                c->rx_op = NULL;
                if (c->conn)
                    p->h->tp->discard(c->conn);
            }
            bool mine = false;
            for (uint32_t k = 0; k < c->win_n; k++) {
                struct hw_sent *s = &c->win[(c->win_head + k) % c->window];
                if (s->op == op) {
                    mine = true;
                    s->op = NULL;
                    op->inflight--;
                }
            }
            if (mine && op->type == HW_OP_WRITE && !c->fence) {
                c->fence = true;
                p->fences++;
            }
            if (mine && c->state == HW_CH_UP)
                hw_chan_kill(c, -ECANCELED, "an operation in flight on it was called off");
        }
        op->lanes_left &= ~bit;
        if (op->lanes_left)
            continue;
        drop_retries(op);
        op->inflight = 0;
        hw_list_remove(&op->queue);
        hw_op_complete(op, op->aborting, op->err);
    }
}

/* ---- sending ----------------------------------------------------------------------------------------- */

uint64_t hw_chunk_max(const struct hawser_peer *p)
{
    return HW_MIN(p->h->k.chunk, (uint64_t)p->h->tp->caps.max_chunk);
}

/* Calls as many channels as len bytes have chunks, those with least in flight first: each call may wake a thread. One
 * whose window is full comes by itself, when it is confirmed. With several NIC pairs a channel may decline (may_pull()
 * in channel.c): then all are asked. */
static void wake_channels(struct hawser_peer *p, uint64_t len)
{
    uint32_t n = atomic_load(&p->nchans);
    uint64_t chunk = hw_chunk_max(p), want = (len + chunk - 1) / chunk;
    if (p->npairs > 1 || want >= n) {
        hw_peer_queue_all(p);
        return;
    }
    for (uint32_t level = 0, at = p->wake_next++, left = (uint32_t)want; level < 3; level++) {
        for (uint32_t i = 0; i < n && left; i++) {
            struct hw_chan *c = &p->chans[(at + i) % n];
            uint32_t has = c->win_n == 0 ? 0 : c->win_n < c->window / 2 ? 1 : 2;
            if (c->state != HW_CH_UP || c->win_n == c->window || has != level)
                continue;
            hw_lane_queue(c->lane);
            left--;
        }
    }
}

void hw_op_queue_tx(struct hawser_op *op)
{
    struct hawser_peer *p = op->peer;
    hw_list_append(atomic_load(&op->length) <= p->h->k.chunk ? &p->txq_small : &p->txq, &op->queue);
    op->in_txq = true;
    p->tx_left += atomic_load(&op->length);
    atomic_fetch_add(&p->tx_work, 1);
    wake_channels(p, atomic_load(&op->length));
}

/* The tail of a transfer is cut finer, so that all channels end together: guided self-scheduling. One has nobody to end
 * together with. */
static uint64_t chunk_size(const struct hawser_peer *p, uint64_t left)
{
    const struct hw_knobs *k = &p->h->k;
    uint64_t max = hw_chunk_max(p);
    if (atomic_load(&p->nchans) == 1)
        return max;
    uint64_t share = left / (2 * (uint64_t)HW_MAX(atomic_load(&p->nchans), 1u));
    share &= ~4095ull; /* whole pages, so that by-reference fragments stay whole */
    return HW_MIN(max, HW_MAX(share, HW_MIN(k->min_chunk, max)));
}

/* Bytes of an aborted write may be on their way still: in a socket of a channel whose last word is out, or in the
 * control stream. No chunk may overtake them, since what is written next may go to the same place; frames do not, see
 * ask_to_kill(). */
static bool fenced(const struct hawser_peer *p)
{
    return p->fences || p->ctl.tx_acked < p->fence_seq;
}

bool hw_op_cut(struct hawser_peer *p, struct hw_sent *out)
{
    if (fenced(p))
        return false; /* settle() and acked() call the lanes again */
    while (p->nretry) {
        *out = p->retry[--p->nretry];
        atomic_fetch_sub(&p->tx_work, 1);
        /* Nobody wants it any more. An aborting one's may not be posted: the lane may have let go of it already. */
        if (out->op->failing || out->op->aborting) {
            out->op->inflight--;
            hw_op_check(out->op);
            continue;
        }
        return true;
    }
    /* Small operations pass large ones, yet one pull in eight is a large one's. */
    struct hw_list *q = &p->txq_small;
    if (hw_list_empty(q) || (p->small_run >= 7 && !hw_list_empty(&p->txq)))
        q = &p->txq;
    if (hw_list_empty(q))
        return false;
    p->small_run = q == &p->txq ? 0 : p->small_run + 1;
    struct hawser_op *op = hw_list_first(q, struct hawser_op, queue);
    struct hw_vec *v = &op->vecs[op->cut_vec];
    uint64_t total = atomic_load(&op->length);
    uint64_t len = op->eager ? v->len : HW_MIN(v->len - op->cut_off, chunk_size(p, total - op->cut_total));
    /* no crumbs: a rest smaller than the smallest chunk goes along */
    if (v->len - op->cut_off - len < 4096 && v->len - op->cut_off <= p->h->tp->caps.max_chunk)
        len = v->len - op->cut_off;
    *out = (struct hw_sent){.op = op, .vec = op->cut_vec, .off = op->cut_off, .len = (uint32_t)len};
    op->inflight++;
    op->cut_off += len;
    op->cut_total += len;
    p->tx_left -= len;
    while (op->cut_vec < op->nvecs && op->cut_off == op->vecs[op->cut_vec].len) {
        op->cut_vec++;
        op->cut_off = 0;
    }
    if (op->cut_total == total)
        unqueue_tx(op);
    return true;
}

void hw_op_notify_now(struct hawser_op *op)
{
    struct hawser_peer *p = op->peer;
    uint8_t *data = op->notify;
    op->notify = NULL;
    int rc = hw_ctl_add(p, HW_F_NOTIFY, 0, op->id, data, op->notify_len, NULL, 0);
    free(data);
    if (rc) {
        hw_op_complete(op, rc, hw_error());
        return;
    }
    op->seq = p->ctl.tx_base + p->ctl.tx_len;
    hw_list_append(&p->await_ack, &op->queue);
    hw_ctl_flush(p);
}

/* ---- deadlines ------------------------------------------------------------------------------------------ */

void hw_op_deadlines(struct hawser_peer *p, uint64_t now)
{
    if (now < p->next_deadline)
        return;
    uint64_t next = HW_NEVER;
    hw_list_each(it, tmp, &p->ops)
    {
        struct hawser_op *op = hw_container_of(it, struct hawser_op, pending);
        if (op->aborting)
            continue;
        if (op->deadline > now) {
            next = HW_MIN(next, op->deadline);
            continue;
        }
        char text[HW_ERR_TEXT];
        static const char *const what[] = {"write", "read", "send", "receive", "notification", "read for the peer"};
        snprintf(text, sizeof(text), "the %s with %s passed its deadline with %llu of %llu bytes done", what[op->type],
                 p->name, (unsigned long long)atomic_load(&op->moved), (unsigned long long)atomic_load(&op->length));
        hw_op_abort(op, -ETIMEDOUT, text);
    }
    p->next_deadline = next;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the public API. Contexts, memory and peers are in lib/engine/context.c and connect.c. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_BACKLOG (4u << 20) /* and above which new requests are turned away */
#define INLINE_VECS   16         /* a scattered small write is one frame a descriptor */

static int read_options(const struct hawser_op_options *in, struct hawser_op_options *o)
{
    memset(o, 0, sizeof(*o));
    if (!in)
        return 0;
    if (in->size < offsetof(struct hawser_op_options, notify) || in->size > 4096)
        return hw_fail(-EINVAL, "hawser_op_options.size is %zu", in->size);
    memcpy(o, in, HW_MIN(in->size, sizeof(*o)));
    if (in->size < sizeof(*o))
        o->stream = o->flags = 0; /* padding of an older program's structure */
    if (o->flags & ~HAWSER_POLLED)
        return hw_fail(-EINVAL, "unknown flags 0x%x", o->flags);
    if (o->timeout_ms < -1)
        return hw_fail(-EINVAL, "a timeout of %d ms", o->timeout_ms);
    if (!o->notify)
        o->notify_len = 0;
    if (o->notify_len > HAWSER_NOTIFY_MAX)
        return hw_fail(-EINVAL, "a notification of %zu bytes; at most %d are allowed", o->notify_len,
                       HAWSER_NOTIFY_MAX);
    return 0;
}

static int check_vec(struct hawser_peer *p, const struct hawser_vec *v, size_t i, enum hw_op_type type)
{
    if (v->length && !v->mem)
        return hw_fail(-EINVAL, "descriptor %zu has a length and no memory", i);
    if (v->mem && v->mem->h != p->h)
        return hw_fail(-EINVAL, "descriptor %zu names memory of another context", i);
    if (v->mem && (v->offset > v->mem->len || v->length > v->mem->len - v->offset))
        return hw_fail(-EFAULT, "descriptor %zu: bytes %llu to %llu lie outside memory of %zu", i,
                       (unsigned long long)v->offset, (unsigned long long)(v->offset + v->length), v->mem->len);
    if (type != HW_OP_WRITE && type != HW_OP_READ)
        return 0;
    uint32_t right = type == HW_OP_WRITE ? HAWSER_REMOTE_WRITE : HAWSER_REMOTE_READ;
    if (!v->region)
        return hw_fail(-EINVAL, "descriptor %zu names no region", i);
    if (!(v->region->rights & right))
        return hw_fail(-EACCES, "descriptor %zu: the region was not exported for %s", i,
                       type == HW_OP_WRITE ? "writing" : "reading");
    if (v->remote_offset > v->region->length || v->length > v->region->length - v->remote_offset)
        return hw_fail(-EFAULT, "descriptor %zu: bytes %llu to %llu lie outside the region of %llu", i,
                       (unsigned long long)v->remote_offset, (unsigned long long)(v->remote_offset + v->length),
                       (unsigned long long)v->region->length);
    return 0;
}

/* An operation with its descriptors checked, copied and, where empty, left out. */
static int make_op(struct hawser_peer *p, enum hw_op_type type, const struct hawser_vec *vecs, size_t n,
                   const struct hawser_op_options *o, struct hawser_op **out)
{
    if (n > HAWSER_MAX_VECS)
        return hw_fail(-E2BIG, "%zu descriptors; at most %d are allowed", n, HAWSER_MAX_VECS);
    if (n && !vecs)
        return hw_fail(-EINVAL, "no descriptors");
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        int rc = check_vec(p, &vecs[i], i, type);
        if (rc)
            return rc;
        total += vecs[i].length; /* cannot overflow: each lies in one address space, and n is small */
    }
    struct hawser_op *op = malloc(sizeof(*op));
    if (!op)
        return hw_no_memory("an operation");
    memset(op, 0,
           sizeof(*op)); /* not calloc(): glibc's goes past the thread's cache, twice the time of all else here */
    op->vecs = n <= 1 ? &op->one_vec : calloc(n, sizeof(*op->vecs));
    if (o->notify)
        op->notify = malloc(HW_MAX(o->notify_len, (size_t)1));
    if (!op->vecs || (o->notify && !op->notify)) {
        hw_op_free_memory(op);
        return hw_no_memory("an operation");
    }
    if (o->notify) {
        memcpy(op->notify, o->notify, o->notify_len);
        op->notify_len = (uint32_t)o->notify_len;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct hawser_vec *v = &vecs[i];
        if (!v->length)
            continue;
        struct hw_vec *w = &op->vecs[op->nvecs++];
        *w = (struct hw_vec){
            .space = v->mem->space, .ptr = v->mem->ptr + v->offset, .len = v->length, .start = at, .mem = v->mem};
        if (type == HW_OP_WRITE || type == HW_OP_READ) {
            w->region = v->region->id;
            w->secret = v->region->secret;
            w->remote = v->remote_offset;
        }
        atomic_fetch_add(&v->mem->busy, 1);
        at += v->length;
    }
    op->peer = p;
    op->home = p->home;
    op->type = type;
    atomic_store(&op->length, total);
    hw_list_init(&op->queue);
    hw_list_init(&op->pending);
    int64_t ms = o->timeout_ms ? o->timeout_ms : (int64_t)p->h->k.op_timeout_ms;
    op->deadline = ms <= 0 ? HW_NEVER : hw_now_coarse() + (uint64_t)ms * HW_MS;
    *out = op;
    return 0;
}

static void unmake_op(struct hawser_op *op)
{
    for (size_t i = 0; i < op->nvecs; i++)
        atomic_fetch_sub(&op->vecs[i].mem->busy, 1);
    hw_op_free_memory(op);
}

/* Under peer->mu: the peer must be alive and have room; the operation gets its number. */
static int enter(struct hawser_peer *p, struct hawser_op *op, uint32_t stream)
{
    int rc = atomic_load(&p->state);
    if (rc < 0 && !(op->type == HW_OP_RECV && stream && hw_stream_left(p, stream)))
        return hw_fail_copy(rc, p->err);
    uint64_t most = HW_MIN(p->h->k.max_ops, (uint64_t)p->peer_max_ops);
    if (p->nops >= most)
        return hw_fail(-EAGAIN, "%u operations are pending with %s (knob max_ops, here or there)", p->nops, p->name);
    /* A send that was called off is over here, yet what the peer got of it still takes a place there. */
    if (op->type == HW_OP_SEND && stream) {
        if ((rc = hw_stream_room(p)))
            return rc;
    } else if (op->type == HW_OP_SEND && p->send_seq - p->send_matched >= p->peer_max_ops)
        return hw_fail(-EAGAIN, "%s has not received %llu messages yet (knob max_ops there)", p->name,
                       (unsigned long long)(p->send_seq - p->send_matched));
    if (op->type != HW_OP_RECV && hw_ctl_backlog(p) > FRAME_BACKLOG)
        return hw_fail(-EAGAIN, "%zu bytes of requests wait for %s to take them in", hw_ctl_backlog(p), p->name);
    struct hw_stream *st = NULL;
    if (stream && !(st = hw_stream_get(p, stream)))
        return -EAGAIN;
    if (st && st->closed)
        return hw_fail(-ESHUTDOWN, "stream %u of %s was closed by this side", stream, p->name);
    op->id = p->next_id++;
    if ((op->type != HW_OP_RECV || st) && (rc = hw_hash_put(&p->by_id, op, op->id)))
        return rc;
    op->stream = st;
    if (st)
        st->nops++;
    hw_list_append(&p->ops, &op->pending);
    p->nops++;
    p->next_deadline = HW_MIN(p->next_deadline, op->deadline);
    hw_loop_want_tick(p->home);
    return 0;
}

/* Takes the lock, enters, starts; what start() cannot do it reports by failing the operation. */
static int begin(struct hawser_peer *p, struct hawser_op *op, const struct hawser_op_options *o,
                 void (*start)(struct hawser_peer *, struct hawser_op *), hawser_op **out)
{
    pthread_mutex_lock(&p->mu);
    int rc = enter(p, op, o->stream);
    if (rc == 0) {
        *out = op; /* it may be over, and waited for elsewhere, before start() returns */
        hw_will_poll = o->flags & HAWSER_POLLED;
        start(p, op);
        hw_will_poll = false;
    }
    pthread_mutex_unlock(&p->mu);
    if (rc)
        unmake_op(op);
    return rc;
}

static int post(hawser_peer *p, enum hw_op_type type, const struct hawser_vec *vecs, size_t n,
                const struct hawser_op_options *opts, void (*start)(struct hawser_peer *, struct hawser_op *),
                hawser_op **out)
{
    struct hawser_op_options o;
    struct hawser_op *op = NULL;
    *out = NULL;
    int rc = read_options(opts, &o);
    if (rc)
        return rc;
    if (o.notify && type != HW_OP_WRITE)
        return hw_fail(-EINVAL, "only a write can carry a notification");
    if (o.stream && type != HW_OP_SEND && type != HW_OP_RECV)
        return hw_fail(-EINVAL, "only sends and receives belong to streams");
    rc = make_op(p, type, vecs, n, &o, &op);
    return rc ? rc : begin(p, op, &o, start, out);
}

/* The control stream's end once what was just added is in it. */
static uint64_t stream_end(const struct hawser_peer *p)
{
    return p->ctl.tx_base + p->ctl.tx_len;
}

static bool fits_inline(const struct hawser_peer *p, const struct hawser_op *op)
{
    return atomic_load(&op->length) <= p->h->k.inline_max && op->nvecs <= INLINE_VECS &&
           hw_ctl_backlog(p) < HW_INLINE_BACKLOG;
}

/* ---- write ------------------------------------------------------------------------------------- */

static void start_write(struct hawser_peer *p, struct hawser_op *op)
{
    if (!fits_inline(p, op)) {
        hw_op_queue_tx(op);
        return;
    }
    if (op->nvecs == 0) {
        if (op->notify)
            hw_op_notify_now(op);
        else
            hw_op_complete(op, 0, NULL); /* nothing to move is moved at once */
        return;
    }
    for (size_t i = 0; i < op->nvecs; i++) {
        const struct hw_vec *v = &op->vecs[i];
        uint8_t head[HW_WRITE_HEAD], buf[HW_INLINE_MAX];
        const uint8_t *data = hw_vec_load(v, buf);
        if (!data) {
            hw_op_complete(op, -EIO, hw_error());
            return;
        }
        hw_put64(head, v->region);
        hw_put64(head + 8, v->secret);
        hw_put64(head + 16, v->remote);
        if (hw_ctl_add(p, HW_F_WRITE, 0, op->id, head, sizeof(head), data, v->len))
            return; /* the peer has failed, and with it op */
    }
    op->seq = stream_end(p);
    hw_list_append(&p->await_ack, &op->queue);
    hw_ctl_flush(p);
}

int hawser_write(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                 hawser_op **op)
{
    return post(p, HW_OP_WRITE, vecs, n, opts, start_write, op);
}

/* ---- read -------------------------------------------------------------------------------------- */

static void start_read(struct hawser_peer *p, struct hawser_op *op)
{
    if (op->nvecs == 0) {
        hw_op_complete(op, 0, NULL);
        return;
    }
    const size_t most = (HW_FRAME_MAX - HW_FRAME_HEAD) / HW_READ_ENTRY;
    uint8_t body[HW_FRAME_MAX - HW_FRAME_HEAD];
    for (size_t at = 0; at < op->nvecs;) {
        size_t n = HW_MIN(op->nvecs - at, most);
        for (size_t i = 0; i < n; i++) {
            const struct hw_vec *v = &op->vecs[at + i];
            uint8_t *e = body + i * HW_READ_ENTRY;
            hw_put64(e, v->region);
            hw_put64(e + 8, v->secret);
            hw_put64(e + 16, v->remote);
            hw_put64(e + 24, v->len);
        }
        at += n;
        if (hw_ctl_add(p, HW_F_READ, at < op->nvecs ? HW_FF_MORE : 0, op->id, body, n * HW_READ_ENTRY, NULL, 0))
            return;
    }
    hw_ctl_flush(p);
}

int hawser_read(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post(p, HW_OP_READ, vecs, n, opts, start_read, op);
}

/* ---- send and receive ---------------------------------------------------------------------------- */

static void start_send(struct hawser_peer *p, struct hawser_op *op)
{
    uint64_t len = atomic_load(&op->length);
    if (op->stream) {
        hw_stream_send(p, op);
        return;
    }
    /* What the peer must keep until its receive is posted is bounded by what it said it would; the rest is announced,
     * and waits here. */
    if (len <= p->h->k.inline_max && (len == 0 || hw_ctl_backlog(p) < HW_INLINE_BACKLOG) &&
        len + p->unmatched_inline <= p->peer_unexpected) {
        uint8_t flat[HW_INLINE_MAX];
        const uint8_t *data = hw_op_flat(op, flat);
        if (op->nvecs && !data) {
            hw_op_complete(op, -EIO, hw_error());
            return;
        }
        op->seq = ++p->send_seq;
        p->unmatched_inline += len;
        hw_list_append(&p->await_match, &op->queue);
        if (hw_ctl_add(p, HW_F_SEND, 0, op->id, data, len, NULL, 0) == 0)
            hw_ctl_flush(p);
        return;
    }
    uint8_t body[8];
    hw_put64(body, len);
    p->send_seq++;
    op->rts = true;
    if (hw_ctl_add(p, HW_F_RTS, 0, op->id, body, sizeof(body), NULL, 0) == 0)
        hw_ctl_flush(p);
}

int hawser_send(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post(p, HW_OP_SEND, vecs, n, opts, start_send, op);
}

static void start_recv(struct hawser_peer *p, struct hawser_op *op)
{
    if (op->stream) {
        hw_stream_recv(p, op);
        return;
    }
    hw_list_append(&p->recvq, &op->queue);
    if (hw_list_empty(&p->unexpected))
        return;
    hw_op_match(p);
    hw_ctl_flush(p);
}

int hawser_recv(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post(p, HW_OP_RECV, vecs, n, opts, start_recv, op);
}

int hawser_stream_close(hawser_peer *p, uint32_t stream)
{
    if (!stream)
        return hw_fail(-EINVAL, "stream 0 ends with its peer");
    pthread_mutex_lock(&p->mu);
    struct hw_stream *st = atomic_load(&p->state) < 0 ? NULL : hw_stream_get(p, stream);
    int rc = st || atomic_load(&p->state) < 0 ? 0 : -EAGAIN; /* with its peer dead there is nothing left of it */
    if (st && !st->closed)
        hw_stream_close(p, st);
    pthread_mutex_unlock(&p->mu);
    return rc;
}

/* ---- notifications --------------------------------------------------------------------------------- */

int hawser_notify(hawser_peer *p, const void *data, size_t len, const struct hawser_op_options *opts, hawser_op **out)
{
    struct hawser_op_options o;
    struct hawser_op *op = NULL;
    *out = NULL;
    int rc = read_options(opts, &o);
    if (rc)
        return rc;
    if (o.stream)
        return hw_fail(-EINVAL, "only sends and receives belong to streams");
    if (o.notify || (len && !data) || len > HAWSER_NOTIFY_MAX)
        return hw_fail(-EINVAL, "a notification of %zu bytes; at most %d are allowed, in data, not in options", len,
                       HAWSER_NOTIFY_MAX);
    o.notify = data ? data : "";
    o.notify_len = len;
    rc = make_op(p, HW_OP_NOTIFY, NULL, 0, &o, &op);
    return rc ? rc : begin(p, op, &o, start_write, out);
}

int hawser_notification(hawser_peer *p, void *buf, size_t cap, size_t *len)
{
    int rc = 0;
    pthread_mutex_lock(&p->mu);
    struct hw_note *n = hw_list_first(&p->notes, struct hw_note, link);
    if (!n) {
        rc = hw_fail(-EAGAIN, "no notification from %s", p->name);
    } else if (n->len > cap) {
        *len = n->len;
        rc = hw_fail(-EMSGSIZE, "a notification of %u bytes does not fit into %zu", n->len, cap);
    } else {
        hw_list_remove(&n->link);
        p->nnotes--;
        *len = n->len;
        if (n->len)
            memcpy(buf, n->data, n->len);
        free(n);
    }
    pthread_mutex_unlock(&p->mu);
    return rc;
}

/* ---- completion ---------------------------------------------------------------------------------------- */

static bool is_done(void *arg)
{
    return atomic_load(&((struct hawser_op *)arg)->done);
}

int hawser_test(hawser_op *op)
{
    if (!atomic_load(&op->done))
        return -EAGAIN;
    return op->rc ? hw_fail_copy(op->rc, op->err ? op->err : hw_errno_name(op->rc)) : 0;
}

int hawser_poll(hawser_op *op)
{
    if (!atomic_load(&op->done)) {
        struct hw_loop *l = op->home;
        atomic_fetch_add(&l->callers, 1);
        hw_loop_poll(l, op);
        atomic_fetch_sub(&l->callers, 1);
    }
    return hawser_test(op);
}

int hawser_wait(hawser_op *op, int timeout_ms)
{
    if (!atomic_load(&op->done) && timeout_ms) {
        struct hw_loop *l = op->home;
        /* Bulk is not worth polling for: it would take the CPU from those who move it. */
        bool small = atomic_load(&op->length) <= l->h->k.inline_max;
        uint64_t deadline =
            timeout_ms < 1000 ? hw_deadline(timeout_ms) : hw_now_coarse() + (uint64_t)timeout_ms * HW_MS;
        atomic_fetch_add(&l->callers, 1);
        (void)hw_loop_wait(l, is_done, op, deadline, small ? op->peer : NULL);
        atomic_fetch_sub(&l->callers, 1);
    }
    int rc = hawser_test(op);
    return rc == -EAGAIN ? hw_fail(-EAGAIN, "the operation is still under way after %d ms", timeout_ms) : rc;
}

int hawser_cancel(hawser_op *op)
{
    if (atomic_load(&op->done))
        return 0;
    /* Another thread may be closing its peer; that drives home last, and only then is the operation over. */
    struct hw_loop *l = op->home;
    atomic_fetch_add(&l->callers, 1);
    hw_loop_acquire(l);
    if (!atomic_load(&op->done)) {
        struct hawser_peer *p = op->peer;
        pthread_mutex_lock(&p->mu);
        if (!atomic_load(&op->done))
            hw_op_abort(op, -ECANCELED, "cancelled");
        pthread_mutex_unlock(&p->mu);
    }
    hw_loop_release(l);
    atomic_fetch_sub(&l->callers, 1);
    return 0;
}

uint64_t hawser_op_bytes(const hawser_op *op)
{
    return atomic_load(&op->moved);
}

uint64_t hawser_op_length(const hawser_op *op)
{
    return atomic_load(&op->length);
}

void hawser_op_free(hawser_op *op)
{
    if (!op)
        return;
    if (!atomic_load(&op->done)) {
        (void)hawser_cancel(op);
        (void)hawser_wait(op, -1);
    }
    hw_op_free_memory(op);
}

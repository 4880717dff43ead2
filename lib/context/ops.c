/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the public API, over those of the message layer. */
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

/* ---- the end ---------------------------------------------------------------------------------------- */

static void unref_op(struct hawser_op *op)
{
    struct hawser_peer *p = op->peer;
    hw_op_put(op->op);
    free(op);
    hw_peer_unref(p);
}

static void put_imports(const struct hw_op *o)
{
    const struct hw_import *last = NULL;
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->span[i].import && o->span[i].import != last)
            hw_import_put(o->peer, o->span[i].import);
        last = o->span[i].import ? o->span[i].import : last;
    }
}

/* Receives may wait for long. */
static void count_under_way(const struct hawser_op *op, int n)
{
    if (op->op->kind != HW_OP_RECV)
        atomic_fetch_add(&op->peer->under_way, n);
}

/* The message layer has ended it: on any thread. */
static void end_op(struct hw_op *o)
{
    struct hawser_op *op = o->user;
    struct hawser *h = op->peer->h;
    struct hw_driver *home = op->peer->home;
    count_under_way(op, -1);
    put_imports(o);
    for (uint32_t i = 0; i < op->n_mems; i++)
        atomic_fetch_sub(&op->mem[i]->busy, 1);
    bool told = !op->has_handle; /* with a handle the operation may be freed at once */
    atomic_store(&op->over, true);
    if (told)
        hw_event_push(h, &op->event);
    else
        hw_event_signal(h, home);
}

/* ---- the beginning ------------------------------------------------------------------------------------ */

static int read_op_options(const struct hawser_op_options *in, struct hawser_op_options *o)
{
    *o = (struct hawser_op_options){0};
    if (!in)
        return 0;
    if (in->size < offsetof(struct hawser_op_options, notify) || in->size > 4096)
        return hw_fail(-EINVAL, "hawser_op_options.size is %zu", in->size);
    memcpy(o, in, HW_MIN(in->size, sizeof *o));
    if (o->timeout_ms < -1)
        return hw_fail(-EINVAL, "a timeout of %d ms", o->timeout_ms);
    if (!o->notify)
        o->notify_len = 0;
    if (o->notify_len > HAWSER_NOTIFY_MAX)
        return hw_fail(-EINVAL, "a notification of %zu bytes; at most %d are allowed", o->notify_len,
                       HAWSER_NOTIFY_MAX);
    return 0;
}

/* Of an operation that is not two-sided. */
static int refuse_stream(const struct hawser_op_options *o)
{
    return o->stream || o->tag ? hw_fail(-EINVAL, "streams and tags are for sends and receives") : 0;
}

static int check_vec(const struct hawser_peer *p, const struct hawser_vec *v, size_t i, enum hw_op_kind kind)
{
    if (v->length && !v->mem)
        return hw_fail(-EINVAL, "descriptor %zu has a length and no memory", i);
    if (v->mem && v->mem->h != p->h)
        return hw_fail(-EINVAL, "descriptor %zu names memory of another context", i);
    if (v->mem && (v->offset > v->mem->len || v->length > v->mem->len - v->offset))
        return hw_fail(-EFAULT, "descriptor %zu: bytes %llu to %llu lie outside memory of %zu", i,
                       (unsigned long long)v->offset, (unsigned long long)(v->offset + v->length), v->mem->len);
    if (kind != HW_OP_WRITE && kind != HW_OP_READ)
        return 0;
    uint32_t right = kind == HW_OP_WRITE ? HAWSER_REMOTE_WRITE : HAWSER_REMOTE_READ;
    if (!v->region)
        return hw_fail(-EINVAL, "descriptor %zu names no region of the peer's", i);
    if (!(v->region->rights & right))
        return hw_fail(-EACCES, "descriptor %zu: the peer's region may not be %s", i,
                       kind == HW_OP_WRITE ? "written" : "read");
    if (v->remote_offset > v->region->length || v->length > v->region->length - v->remote_offset)
        return hw_fail(-EFAULT, "descriptor %zu: bytes %llu to %llu lie outside a region of %llu", i,
                       (unsigned long long)v->remote_offset, (unsigned long long)(v->remote_offset + v->length),
                       (unsigned long long)v->region->length);
    return 0;
}

static uint32_t count_mems(const struct hawser_vec *vecs, size_t n)
{
    uint32_t mems = 0;
    const struct hawser_mem *last = NULL;
    for (size_t i = 0; i < n; i++) {
        mems += vecs[i].mem && vecs[i].mem != last;
        last = vecs[i].mem ? vecs[i].mem : last;
    }
    return mems;
}

/* Fills in the descriptors. On failure those so far hold their imports. */
static int fill_spans(struct hawser_op *op, const struct hawser_vec *vecs, size_t n)
{
    struct hw_op *o = op->op;
    const struct hawser_mem *last = NULL;
    const struct hawser_region *region = NULL;
    struct hw_import *import = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct hawser_vec *v = &vecs[i];
        struct hw_span *s = &o->span[i];
        if (v->length && (!region || v->region != region) && (o->kind == HW_OP_WRITE || o->kind == HW_OP_READ)) {
            import = hw_import_get(o->peer, v->region->id, v->region->secret);
            if (!import)
                return o->peer->dead ? o->peer->dead : -ENOMEM;
            region = v->region;
        }
        *s = (struct hw_span){.space = v->mem ? v->mem->space : &hw_host,
                              .ptr = v->mem ? v->mem->ptr + v->offset : NULL,
                              .len = v->length,
                              .import = import,
                              .remote = v->remote_offset};
        if (v->mem && v->mem != last) {
            atomic_fetch_add(&v->mem->busy, 1);
            op->mem[op->n_mems++] = v->mem;
        }
        last = v->mem ? v->mem : last;
    }
    return 0;
}

/* An operation of n descriptors, not started. NULL: no memory. */
static struct hawser_op *make_op(struct hawser_peer *p, enum hw_op_kind kind, const struct hawser_vec *vecs, size_t n,
                                 const struct hawser_op_options *o, bool has_handle)
{
    struct hawser_op *op = calloc(1, sizeof *op + count_mems(vecs, n) * sizeof op->mem[0]);
    struct hw_op *inner = op ? hw_op_new(&p->peer, kind, (uint32_t)n) : NULL;
    if (!inner) {
        free(op);
        return NULL;
    }
    op->op = inner;
    op->peer = p;
    op->event.kind = HAWSER_ENDED;
    hw_list_init(&op->event.in_queue);
    op->has_handle = has_handle;
    op->user = o->user;
    inner->over = end_op;
    inner->user = op;
    inner->queue = (uint64_t)o->stream << 32 | o->tag;
    int ms = o->timeout_ms ? o->timeout_ms : kind == HW_OP_RECV ? -1 : (int)p->h->k.op_timeout_ms;
    inner->deadline = ms > 0 ? hw_deadline(ms) : HW_NEVER;
    return op;
}

static int take_note_of(struct hw_op *o, const void *data, size_t len)
{
    o->note = hw_note_new((uint32_t)len);
    if (!o->note)
        return hw_no_memory("a notification of %zu bytes", len);
    if (len)
        memcpy(o->note->data, data, len);
    return 0;
}

/* True if the operation waits for what the calling thread does next, a moment later, so that one message to the kernel
 * carries several: a short one behind others that are under way, and the announcement of a receive that is good for
 * short messages only, which come unasked. */
static bool may_wait(const struct hawser_op *op)
{
    const struct hw_op *o = op->op;
    uint64_t total = 0, most = o->kind == HW_OP_RECV ? HW_SMALL_OP : HW_CHUNK;
    for (uint32_t i = 0; i < o->n && total <= most; i++)
        total += o->span[i].len;
    return total <= most && (o->kind == HW_OP_RECV || atomic_load(&op->peer->under_way) > 0);
}

/* Starts op, or frees it. */
static int start_op(struct hawser_op *op, int rc, hawser_op **out)
{
    struct hawser_peer *p = op->peer;
    bool defer = may_wait(op);
    hw_peer_ref(p);
    count_under_way(op, 1);
    if (rc == 0) {
        /* what is posted is sent by this thread, where nobody else is at it */
        bool begun = !defer && hw_driver_begin(p->home);
        if (out)
            *out = op;
        hw_driver_defer(defer);
        rc = hw_op_post(op->op);
        hw_driver_defer(false);
        if (begun)
            hw_driver_end(p->home);
    }
    if (rc == -ESTALE) { /* whether the peer's refusal is known already makes no difference to the caller */
        hw_op_set_result(op->op, rc);
        end_op(op->op);
        rc = 0;
    }
    if (rc == 0)
        return 0;
    if (out)
        *out = NULL;
    count_under_way(op, -1);
    put_imports(op->op);
    for (uint32_t i = 0; i < op->n_mems; i++)
        atomic_fetch_sub(&op->mem[i]->busy, 1);
    unref_op(op);
    return rc;
}

static int post_op(struct hawser_peer *p, enum hw_op_kind kind, const struct hawser_vec *vecs, size_t n,
                   const struct hawser_op_options *opts, hawser_op **out)
{
    struct hawser_op_options o;
    if (out)
        *out = NULL;
    int rc = read_op_options(opts, &o);
    if (rc == 0 && n && !vecs)
        rc = hw_fail(-EINVAL, "%zu descriptors at NULL", n);
    if (rc == 0 && n > HAWSER_MAX_VECS)
        rc = hw_fail(-E2BIG, "%zu descriptors; at most %d are allowed", n, HAWSER_MAX_VECS);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = check_vec(p, &vecs[i], i, kind);
    if (rc == 0 && o.notify && kind != HW_OP_WRITE)
        rc = hw_fail(-EINVAL, "a notification goes with a write only");
    if (rc == 0 && (kind == HW_OP_WRITE || kind == HW_OP_READ))
        rc = refuse_stream(&o);
    if (rc == 0)
        rc = hawser_peer_state(p);
    if (rc < 0)
        return rc;
    struct hawser_op *op = make_op(p, kind, vecs, n, &o, out != NULL);
    if (!op)
        return hw_no_memory("an operation of %zu descriptors", n);
    rc = fill_spans(op, vecs, n);
    if (rc == 0 && o.notify)
        rc = take_note_of(op->op, o.notify, o.notify_len);
    return start_op(op, rc, out);
}

int hawser_write(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                 hawser_op **op)
{
    return post_op(p, HW_OP_WRITE, vecs, n, opts, op);
}

int hawser_read(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post_op(p, HW_OP_READ, vecs, n, opts, op);
}

int hawser_send(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post_op(p, HW_OP_SEND, vecs, n, opts, op);
}

int hawser_recv(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post_op(p, HW_OP_RECV, vecs, n, opts, op);
}

int hawser_notify(hawser_peer *p, const void *data, size_t len, const struct hawser_op_options *opts, hawser_op **out)
{
    struct hawser_op_options o;
    if (out)
        *out = NULL;
    int rc = read_op_options(opts, &o);
    if (rc == 0 && len && !data)
        rc = hw_fail(-EINVAL, "a notification of %zu bytes at NULL", len);
    if (rc == 0 && len > HAWSER_NOTIFY_MAX)
        rc = hw_fail(-EINVAL, "a notification of %zu bytes; at most %d are allowed", len, HAWSER_NOTIFY_MAX);
    if (rc == 0)
        rc = refuse_stream(&o);
    if (rc == 0)
        rc = hawser_peer_state(p);
    if (rc < 0)
        return rc;
    struct hawser_op *op = make_op(p, HW_OP_NOTIFY, NULL, 0, &o, out != NULL);
    if (!op)
        return hw_no_memory("a notification");
    return start_op(op, take_note_of(op->op, data, len), out);
}

int hawser_stream_close(hawser_peer *p, uint32_t stream)
{
    if (stream == 0)
        return hw_fail(-EINVAL, "stream 0 ends with its peer");
    int rc = hawser_peer_state(p);
    return rc < 0 ? rc : hw_stream_close(&p->peer, stream);
}

/* ---- handles -------------------------------------------------------------------------------------------- */

static bool is_op_over(void *arg)
{
    const struct hawser_op *op = arg;
    return atomic_load(&op->over);
}

/* How it ended. */
static int get_result(const struct hawser_op *op)
{
    int rc = atomic_load(&op->op->result);
    if (rc == 0)
        return 0;
    return op->op->text ? hw_fail_copy(rc, op->op->text) : hw_fail(rc, "%s", strerror(-rc));
}

int hawser_test(hawser_op *op)
{
    if (!atomic_load(&op->over))
        hw_driver_poll(op->peer->home, is_op_over, op);
    return atomic_load(&op->over) ? get_result(op) : -EAGAIN;
}

int hawser_wait(hawser_op *op, int timeout_ms)
{
    if (!hw_driver_wait(op->peer->home, is_op_over, op, hw_deadline(timeout_ms)))
        return hw_fail(-EAGAIN, "the operation did not end within %d ms", timeout_ms);
    return get_result(op);
}

int hawser_cancel(hawser_op *op)
{
    struct hawser_peer *p = op->peer;
    pthread_mutex_lock(&p->door);
    if (!p->closed && !atomic_load(&op->over)) {
        (void)hw_fail(-ECANCELED, "the application has cancelled it");
        hw_op_cancel(op->op, -ECANCELED);
    }
    pthread_mutex_unlock(&p->door);
    return 0;
}

uint64_t hawser_op_bytes(const hawser_op *op)
{
    const struct hw_op *o = op->op;
    uint64_t left = atomic_load(&o->left);
    if (o->kind == HW_OP_RECV)
        return atomic_load(&op->over) && atomic_load(&o->result) == 0 ? atomic_load(&o->got) : 0;
    return o->total - HW_MIN(o->total, left);
}

uint64_t hawser_op_length(const hawser_op *op)
{
    const struct hw_op *o = op->op;
    if (o->kind == HW_OP_RECV && atomic_load(&op->over) && atomic_load(&o->result) == 0)
        return atomic_load(&o->got);
    return o->kind == HW_OP_NOTIFY ? 0 : o->total;
}

void hawser_op_free(hawser_op *op)
{
    if (!op)
        return;
    if (!atomic_load(&op->over)) {
        (void)hawser_cancel(op);
        (void)hw_driver_wait(op->peer->home, is_op_over, op, HW_NEVER);
    }
    unref_op(op);
}

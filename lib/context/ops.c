/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the public API, on top of the message layer's operations. */
#include "context/context.h"

#include <stdlib.h>
#include <string.h>

/* Maximum number of operations that hawser_submit() posts before it sends them, so that the peer need not wait for the
 * rest. */
#define SUBMIT_VISIT 256
/* Number of these operations after which the caller releases the peer's lock, so that other threads need not wait for
 * the rest. */
#define BATCH_MOST 32

/* ---- end of an operation ---------------------------------------------------------------------------------- */

void hw_op_unref(struct hawser_op *op, struct hw_op **idle)
{
    struct hawser_peer *p = op->peer;
    struct hw_op *o = op->op; /* op is in the same allocation */
    bool is_block = op->is_block && idle;
    bool last = hw_op_drop(o);
    if (last && is_block) {
        o->user = *idle;
        *idle = o;
    } else if (last) {
        free(o);
    }
    hw_peer_unref(p);
}

static void release_mems(const struct hawser_op *op)
{
    for (uint32_t i = 0; i < op->n_mems; i++)
        atomic_fetch_sub(&op->mem[i]->busy, 1);
}

/* Called when the operation has ended, by the message layer on any thread, or by start_op(). */
static void end_op(struct hw_op *o)
{
    struct hawser_op *op = o->user;
    struct hawser *h = op->peer->h;
    struct hw_driver *home = op->peer->home;
    release_mems(op);
    bool told = !op->has_handle; /* an operation with a handle may be freed as soon as over is set */
    atomic_store(&op->over, true);
    if (told)
        hw_event_push_end(h, &op->event);
    else
        hw_event_signal(h, home);
}

/* ---- start of an operation -------------------------------------------------------------------------------- */

static int read_op_options(const struct hawser_op_options *in, struct hawser_op_options *o)
{
    *o = (struct hawser_op_options){0};
    if (!in)
        return 0;
    if (in->size < offsetof(struct hawser_op_options, notify) || in->size > 4096)
        return hw_fail(-EINVAL, "invalid hawser_op_options.size: %zu", in->size);
    if (in->size >= sizeof *o)
        *o = *in; /* for a size that varies, gcc copies byte by byte */
    else
        memcpy(o, in, in->size);
    if (o->timeout_ms < -1)
        return hw_fail(-EINVAL, "invalid timeout: %d ms", o->timeout_ms);
    if (!o->notify)
        o->notify_len = 0;
    if (o->notify_len > HAWSER_NOTIFY_MAX)
        return hw_fail(-EINVAL, "the notification is %zu bytes long; at most %d are allowed", o->notify_len,
                       HAWSER_NOTIFY_MAX);
    return 0;
}

/* Rejects a stream or tag for an operation that is not two-sided. */
static int refuse_stream(const struct hawser_op_options *o)
{
    return o->stream || o->tag ? hw_fail(-EINVAL, "only sends and receives take a stream and a tag") : 0;
}

/* Checks a descriptor with inline data and adds its bytes to *inlined, the sum over the previous descriptors. */
static int check_data(const struct hawser_vec *v, size_t i, enum hw_op_kind kind, uint64_t *inlined)
{
    if (v->mem)
        return hw_fail(-EINVAL, "descriptor %zu has both memory and data", i);
    if (v->offset)
        return hw_fail(-EINVAL, "descriptor %zu has an offset but no memory", i);
    if (kind != HW_OP_WRITE && kind != HW_OP_SEND)
        return hw_fail(-EINVAL, "descriptor %zu has inline data, which only writes and sends take", i);
    if (v->length > HAWSER_INLINE_MAX - *inlined)
        return hw_fail(-E2BIG,
                       "with descriptor %zu, there are more than %d bytes of inline data; register the memory instead",
                       i, HAWSER_INLINE_MAX);
    *inlined += v->length;
    return 0;
}

static int check_vec(const struct hawser_peer *p, const struct hawser_vec *v, size_t i, enum hw_op_kind kind,
                     uint64_t *inlined)
{
    int rc = v->data ? check_data(v, i, kind, inlined) : 0;
    if (rc < 0)
        return rc;
    if (v->length && !v->mem && !v->data)
        return hw_fail(-EINVAL, "descriptor %zu has a length but no memory", i);
    if (v->mem && v->mem->h != p->h)
        return hw_fail(-EINVAL, "descriptor %zu has memory that is registered with another context", i);
    if (v->mem && (v->offset > v->mem->len || v->length > v->mem->len - v->offset))
        return hw_fail(-EFAULT, "descriptor %zu: %llu bytes at offset %llu exceed the registered memory of %zu bytes",
                       i, (unsigned long long)v->length, (unsigned long long)v->offset, v->mem->len);
    if (kind != HW_OP_WRITE && kind != HW_OP_READ)
        return 0;
    uint32_t right = kind == HW_OP_WRITE ? HAWSER_REMOTE_WRITE : HAWSER_REMOTE_READ;
    if (!v->region)
        return hw_fail(-EINVAL, "descriptor %zu has no region of the peer", i);
    if (!(v->region->rights & right))
        return hw_fail(-EACCES, "descriptor %zu: the peer does not allow its region to be %s", i,
                       kind == HW_OP_WRITE ? "written" : "read");
    if (v->remote_offset > v->region->length || v->length > v->region->length - v->remote_offset)
        return hw_fail(-EFAULT, "descriptor %zu: %llu bytes at offset %llu exceed the peer's region of %llu bytes", i,
                       (unsigned long long)v->length, (unsigned long long)v->remote_offset,
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

/* Returns the number of spans that occupy at least this many bytes. */
static uint32_t count_spans(uint64_t bytes)
{
    return (uint32_t)((bytes + sizeof(struct hw_span) - 1) / sizeof(struct hw_span));
}

/* Fills in the operation's spans, except for their imports, and copies the inline bytes. */
static void fill_spans(struct hawser_op *op, const struct hawser_vec *vecs, size_t n)
{
    struct hw_op *o = op->op;
    uint8_t *room = op->data;
    const struct hawser_mem *last = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct hawser_vec *v = &vecs[i];
        struct hw_span *s = &o->span[i];
        *s = (struct hw_span){.space = v->mem ? v->mem->space : &hw_host,
                              .ptr = v->mem ? v->mem->ptr + v->offset : NULL,
                              .len = v->length,
                              .remote = v->remote_offset};
        if (v->data && v->length) {
            s->ptr = memcpy(room, v->data, v->length);
            room += v->length;
        }
        if (v->mem && v->mem != last) {
            atomic_fetch_add(&v->mem->busy, 1);
            op->mem[op->n_mems++] = v->mem;
        }
        last = v->mem ? v->mem : last;
    }
}

/* Sets the imports of the operation's spans. Called with the peer's lock held. */
static int take_imports(struct hw_op *o, const struct hawser_vec *vecs)
{
    const struct hawser_region *region = NULL;
    if (o->kind != HW_OP_WRITE && o->kind != HW_OP_READ)
        return 0;
    for (uint32_t i = 0; i < o->n; i++) {
        o->span[i].import = i ? o->span[i - 1].import : NULL;
        if (vecs[i].length == 0 || vecs[i].region == region)
            continue;
        region = vecs[i].region;
        int rc = hw_op_import(o, i, region->id, region->secret);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A caller's visit to the peer's home loop. The caller's own thread sends the posted operations when the visit ends,
 * unless another thread is running the loop. */
struct visit {
    struct hw_driver *home;
    bool begun;
    bool many;              /* more operations may follow, see BATCH_MOST */
    struct hw_peer *locked; /* peer whose lock is held until end_batch(), or NULL */
    struct hw_op *idle;     /* blocks of memory for operations, see idle.c */
    size_t posted;          /* number of operations posted in this visit */
    uint64_t now;           /* time of the visit, or 0 if the clock was not read yet */
};

/* Reads the clock once for all operations of the visit. */
static uint64_t get_visit_time(struct visit *v)
{
    v->now = v->now ? v->now : hw_now();
    return v->now;
}

/* Takes the peer's lock. */
static void begin_batch(struct visit *v, struct hw_peer *p)
{
    if (!v->locked)
        pthread_mutex_lock(&p->lock);
    v->locked = p;
}

/* Releases the peer's lock, and reports the ends of operations. */
static void end_batch(struct visit *v)
{
    struct hw_peer *p = v->locked;
    v->locked = NULL;
    if (p)
        hw_ops_unlock(p);
}

/* Ends the batch before an operation with a long list or much data to copy: other threads must not wait for these. */
static void begin_long_op(struct visit *v, size_t n_vecs, size_t bytes)
{
    if (n_vecs > HW_SMALL_SPANS || bytes > HW_SMALL_OP)
        end_batch(v);
}

static void begin_visit(struct visit *v)
{
    if (!v->begun && !v->locked) /* the role is taken before the lock */
        v->begun = hw_driver_begin(v->home, get_visit_time(v));
}

static void end_visit(struct visit *v)
{
    end_batch(v);
    if (v->begun)
        hw_driver_end(v->home);
    v->begun = false;
    v->posted = 0;
    v->now = 0;
}

/* Returns a block of memory for an operation, or NULL if out of memory. */
static struct hw_op *take_block(struct visit *v, struct hawser *h)
{
    struct hw_op *block = v->idle ? v->idle : hw_idle_take(&h->idle, BATCH_MOST);
    v->idle = block ? block->user : NULL;
    return block ? block : hw_op_alloc(HW_IDLE_SPANS);
}

/* Creates an operation with a span for each of the request's descriptors. The caller fills in the spans. inlined is the
 * number of inline bytes. The handle and a buffer for a copy of these bytes follow the spans in the same allocation,
 * which is not freed while a rail may read the bytes. Returns NULL if out of memory. */
static struct hawser_op *make_op(struct hawser_peer *p, enum hw_op_kind kind, const struct hawser_request *r,
                                 uint64_t inlined, const struct hawser_op_options *o, struct visit *visit)
{
    size_t own = sizeof(struct hawser_op) + count_mems(r->vecs, r->n_vecs) * sizeof(struct hawser_mem *);
    uint32_t spans = (uint32_t)r->n_vecs + count_spans(own + inlined);
    bool is_block = visit->many && !r->op && spans <= HW_IDLE_SPANS;
    struct hw_op *inner = is_block ? take_block(visit, p->h) : hw_op_alloc(spans);
    if (!inner)
        return NULL;
    hw_op_init(inner, &p->peer, kind, (uint32_t)r->n_vecs);
    struct hawser_op *op = (struct hawser_op *)&inner->span[r->n_vecs];
    *op = (struct hawser_op){.op = inner,
                             .data = (uint8_t *)op + own,
                             .peer = p,
                             .event.kind = HAWSER_ENDED,
                             .has_handle = r->op != NULL,
                             .is_block = is_block,
                             .user = o->user};
    hw_list_init(&op->event.in_queue);
    inner->over = end_op;
    inner->user = op;
    inner->queue = (uint64_t)o->stream << 32 | o->tag;
    int ms = o->timeout_ms ? o->timeout_ms : kind == HW_OP_RECV ? -1 : (int)p->h->k.op_timeout_ms;
    inner->deadline = ms > 0 ? get_visit_time(visit) + (uint64_t)ms * HW_MS : HW_NEVER;
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

/* Decides how soon the operation must be sent. Some operations wait for the calling thread's next operations, so that
 * one system call carries several operations. These are operations of at most HW_CHUNK bytes while others are in
 * flight, and receives of at most HW_SMALL_OP bytes, because small messages are sent without waiting for their
 * receive. */
static enum hw_urgency get_urgency(const struct hawser_op *op)
{
    const struct hw_op *o = op->op;
    uint64_t total = 0, most = o->kind == HW_OP_RECV ? HW_SMALL_OP : HW_CHUNK;
    for (uint32_t i = 0; i < o->n && total <= most; i++)
        total += o->span[i].len;
    if (total > most)
        return HW_NOW;
    if (o->kind == HW_OP_RECV)
        return HW_LAZY;
    return atomic_load(&op->peer->peer.in_flight) > 0 ? HW_SOON : HW_NOW;
}

/* Posts the operation. In a batch, keeps the peer's lock for the next operation. */
static int post_in_visit(struct hawser_op *op, const struct hawser_vec *vecs, struct visit *v)
{
    enum hw_urgency urgency = get_urgency(op);
    if (urgency == HW_NOW)
        begin_visit(v);
    hw_driver_defer(v->home, urgency);
    begin_batch(v, op->op->peer);
    int rc = take_imports(op->op, vecs);
    if (rc < 0)
        hw_op_drop_imports(op->op);
    else
        rc = hw_op_post_locked(op->op);
    v->posted++;
    if (rc < 0 || !v->many || v->posted % BATCH_MOST == 0)
        end_batch(v);
    hw_driver_defer(v->home, HW_NOW);
    return rc;
}

/* Starts op, or frees op if rc is an error or the start fails. If the error is -ESTALE, ends op with this result
 * instead. */
static int start_op(struct hawser_op *op, int rc, const struct hawser_request *r, struct visit *v)
{
    struct hawser_peer *p = op->peer;
    hw_peer_ref(p);
    if (rc == 0) {
        if (r->op)
            *r->op = op;
        rc = post_in_visit(op, r->vecs, v);
    }
    if (rc == -ESTALE) { /* the caller sees the same result whether or not this side already knows the peer's refusal */
        hw_op_set_result(op->op, rc);
        end_op(op->op);
        rc = 0;
    }
    if (rc == 0)
        return 0;
    if (r->op)
        *r->op = NULL;
    release_mems(op);
    hw_op_unref(op, NULL);
    return rc;
}

/* Returns the message layer's operation kind for a request that is not a notification. */
static enum hw_op_kind get_op_kind(const struct hawser_request *r)
{
    return r->kind == HAWSER_WRITE  ? HW_OP_WRITE
           : r->kind == HAWSER_READ ? HW_OP_READ
           : r->kind == HAWSER_SEND ? HW_OP_SEND
                                    : HW_OP_RECV;
}

static int post_transfer(struct hawser_peer *p, const struct hawser_request *r, struct visit *visit)
{
    struct hawser_op_options o;
    enum hw_op_kind kind = get_op_kind(r);
    uint64_t inlined = 0;
    int rc = read_op_options(r->opts, &o);
    if (rc == 0 && r->n_vecs && !r->vecs)
        rc = hw_fail(-EINVAL, "the pointer to the descriptors is NULL, but their number is %zu", r->n_vecs);
    if (rc == 0 && r->n_vecs > HAWSER_MAX_VECS)
        rc = hw_fail(-E2BIG, "too many descriptors: %zu; at most %d are allowed", r->n_vecs, HAWSER_MAX_VECS);
    if (rc == 0)
        begin_long_op(visit, r->n_vecs, o.notify_len);
    for (size_t i = 0; i < r->n_vecs && rc == 0; i++)
        rc = check_vec(p, &r->vecs[i], i, kind, &inlined);
    if (rc == 0 && o.notify && kind != HW_OP_WRITE)
        rc = hw_fail(-EINVAL, "only a write takes a notification");
    if (rc == 0 && (kind == HW_OP_WRITE || kind == HW_OP_READ))
        rc = refuse_stream(&o);
    if (rc == 0)
        rc = hawser_peer_state(p);
    if (rc < 0)
        return rc;
    struct hawser_op *op = make_op(p, kind, r, inlined, &o, visit);
    if (!op)
        return hw_no_memory("an operation");
    fill_spans(op, r->vecs, r->n_vecs);
    if (o.notify)
        rc = take_note_of(op->op, o.notify, o.notify_len);
    return start_op(op, rc, r, visit);
}

static int post_notification(struct hawser_peer *p, const struct hawser_request *r, struct visit *visit)
{
    struct hawser_op_options o;
    int rc = read_op_options(r->opts, &o);
    if (rc == 0 && r->len && !r->data)
        rc = hw_fail(-EINVAL, "the pointer to a notification of %zu bytes is NULL", r->len);
    if (rc == 0 && r->len > HAWSER_NOTIFY_MAX)
        rc = hw_fail(-EINVAL, "the notification is %zu bytes long; at most %d are allowed", r->len, HAWSER_NOTIFY_MAX);
    if (rc == 0)
        rc = refuse_stream(&o);
    if (rc == 0)
        rc = hawser_peer_state(p);
    if (rc < 0)
        return rc;
    begin_long_op(visit, 0, r->len);
    struct hawser_op *op = make_op(p, HW_OP_NOTIFY, r, 0, &o, visit);
    if (!op)
        return hw_no_memory("a notification");
    return start_op(op, take_note_of(op->op, r->data, r->len), r, visit);
}

/* Starts a single operation. */
static int post_op(struct hawser_peer *p, const struct hawser_request *r)
{
    struct visit visit = {.home = p->home};
    if (r->op)
        *r->op = NULL;
    int rc = r->kind == HAWSER_NOTIFY ? post_notification(p, r, &visit) : post_transfer(p, r, &visit);
    end_visit(&visit);
    return rc;
}

int hawser_write(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                 hawser_op **op)
{
    return post_op(p,
                   &(struct hawser_request){.kind = HAWSER_WRITE, .vecs = vecs, .n_vecs = n, .opts = opts, .op = op});
}

int hawser_read(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post_op(p, &(struct hawser_request){.kind = HAWSER_READ, .vecs = vecs, .n_vecs = n, .opts = opts, .op = op});
}

int hawser_send(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post_op(p, &(struct hawser_request){.kind = HAWSER_SEND, .vecs = vecs, .n_vecs = n, .opts = opts, .op = op});
}

int hawser_recv(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op)
{
    return post_op(p, &(struct hawser_request){.kind = HAWSER_RECV, .vecs = vecs, .n_vecs = n, .opts = opts, .op = op});
}

int hawser_notify(hawser_peer *p, const void *data, size_t len, const struct hawser_op_options *opts, hawser_op **out)
{
    return post_op(p,
                   &(struct hawser_request){.kind = HAWSER_NOTIFY, .data = data, .len = len, .opts = opts, .op = out});
}

static int check_request(const struct hawser_request *r)
{
    if (r->kind < HAWSER_WRITE || r->kind > HAWSER_NOTIFY)
        return hw_fail(-EINVAL, "unknown kind of operation: %u", r->kind);
    if (r->flags)
        return hw_fail(-EINVAL, "unknown flags 0x%x", r->flags);
    if (r->kind == HAWSER_NOTIFY ? r->vecs || r->n_vecs : r->data || r->len)
        return hw_fail(-EINVAL, r->kind == HAWSER_NOTIFY ? "a notification takes data and len, not descriptors"
                                                         : "only a notification takes data and len");
    return 0;
}

int hawser_submit(hawser_peer *p, const struct hawser_request *reqs, size_t n, size_t *started)
{
    struct visit visit = {.home = p->home, .many = n > 1};
    size_t i;
    int rc = n && !reqs ? hw_fail(-EINVAL, "the pointer to the requests is NULL, but their number is %zu", n) : 0;
    for (i = 0; i < n && rc == 0; i++)
        if (reqs[i].op)
            *reqs[i].op = NULL;
    for (i = 0; i < n && rc == 0; i += rc == 0) {
        const struct hawser_request *r = &reqs[i];
        rc = check_request(r);
        if (rc == 0 && n > 1 && r->kind != HAWSER_RECV)
            begin_visit(&visit); /* get_urgency() would wait for the next operations, but this call already has them */
        if (rc == 0)
            rc = r->kind == HAWSER_NOTIFY ? post_notification(p, r, &visit) : post_transfer(p, r, &visit);
        if (visit.posted == SUBMIT_VISIT)
            end_visit(&visit);
    }
    end_visit(&visit);
    if (visit.idle)
        hw_idle_keep(&p->h->idle, visit.idle);
    if (started)
        *started = i;
    return rc;
}

int hawser_stream_close(hawser_peer *p, uint32_t stream)
{
    if (stream == 0)
        return hw_fail(-EINVAL, "stream 0 cannot be closed: it ends with its peer");
    int rc = hawser_peer_state(p);
    return rc < 0 ? rc : hw_stream_close(&p->peer, stream);
}

/* ---- handles -------------------------------------------------------------------------------------------- */

static bool is_op_over(void *arg)
{
    const struct hawser_op *op = arg;
    return atomic_load(&op->over);
}

/* Returns the operation's result, and sets the error text if the operation has failed. */
static int get_result(const struct hawser_op *op)
{
    int rc = atomic_load(&op->op->result);
    if (rc == 0)
        return 0;
    return op->op->text ? hw_fail_copy(rc, op->op->text) : hw_fail(rc, "%s", strerror(-rc));
}

/* Keeps the loops in memory until end_call(), if the operation has not ended. The operation is tested after the thread
 * is counted. Otherwise another thread could end the operation and free the loops in between. Returns false if the
 * operation has ended. */
static bool begin_call(struct hawser_op *op)
{
    if (is_op_over(op))
        return false;
    atomic_fetch_add(&op->peer->callers, 1);
    if (!is_op_over(op))
        return true;
    atomic_fetch_sub(&op->peer->callers, 1);
    return false;
}

static void end_call(struct hawser_op *op)
{
    atomic_fetch_sub(&op->peer->callers, 1);
}

/* Returns true if the operation has ended by the time `until`. */
static bool wait_for_op(struct hawser_op *op, uint64_t until)
{
    if (!begin_call(op))
        return true;
    bool over = hw_driver_wait(op->peer->home, is_op_over, op, until);
    end_call(op);
    return over;
}

int hawser_test(hawser_op *op)
{
    if (begin_call(op)) {
        hw_driver_poll(op->peer->home, is_op_over, op);
        end_call(op);
    }
    return atomic_load(&op->over) ? get_result(op) : -EAGAIN;
}

int hawser_wait(hawser_op *op, int timeout_ms)
{
    if (!is_op_over(op) && !wait_for_op(op, hw_deadline(timeout_ms)))
        return hw_fail(-EAGAIN, "the operation has not ended within %d ms", timeout_ms);
    return get_result(op);
}

int hawser_cancel(hawser_op *op)
{
    struct hawser_peer *p = op->peer;
    pthread_mutex_lock(&p->door);
    if (!p->closed && !atomic_load(&op->over)) {
        (void)hw_fail(-ECANCELED, "cancelled by the application");
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
        (void)wait_for_op(op, HW_NEVER);
    }
    hw_op_unref(op, NULL);
}

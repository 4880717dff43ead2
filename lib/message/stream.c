/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that one side has closed. A stream consists of the queues whose names have its number in the upper half. */
#include "message/op.h"
#include "message/queue.h"
#include "message/queue_table.h"

#include <stdlib.h>

struct hw_closed {
    struct hw_list in_chain;
    uint32_t stream;
    bool here, there; /* sides that have closed the stream; the record is freed once both have */
    bool first;       /* this side closed the stream before it knew of the peer's close */
};

static struct hw_closed *find_closed(struct hw_queues *t, uint32_t stream)
{
    const struct hw_list *chain = hw_chains_find(t, &t->closed, stream);
    hw_list_each(it, tmp, chain)
    {
        struct hw_closed *c = hw_container_of(it, struct hw_closed, in_chain);
        if (c->stream == stream)
            return c;
    }
    return NULL;
}

bool hw_stream_is_closed(struct hw_queues *t, uint64_t queue, bool here)
{
    const struct hw_closed *c = t->n_closed ? find_closed(t, (uint32_t)(queue >> 32)) : NULL;
    return c && (here ? c->here : c->there);
}

/* Finds or creates the record of a stream. first is true if this side closes the stream. Each side has a separate
 * limit. With a common limit, two correct sides could use the last free record for different streams at the same time,
 * and each would consider the other faulty. */
static struct hw_closed *get_closed(struct hw_queues *t, uint32_t stream, bool first, int *rc)
{
    struct hw_closed *c = find_closed(t, stream);
    if (c)
        return c;
    if ((first ? t->n_closed_first : t->n_closed - t->n_closed_first) == HW_QUEUES) {
        *rc = hw_fail(-EAGAIN, "%d streams are closed by this side only, which is the limit per peer", HW_QUEUES);
        return NULL;
    }
    c = calloc(1, sizeof *c);
    if (!c) {
        *rc = hw_no_memory("the record of a closed stream");
        return NULL;
    }
    c->stream = stream;
    c->first = first;
    hw_chains_add(t, &t->closed, &c->in_chain);
    t->n_closed++;
    t->n_closed_first += first;
    return c;
}

static void put_closed(struct hw_queues *t, struct hw_closed *c)
{
    if (c->here != c->there)
        return;
    hw_list_remove(&c->in_chain);
    t->n_closed--;
    t->n_closed_first -= c->first;
    free(c);
}

/* Cancels the operations of a stream: all of them, or only the waiting sends. */
static void cancel_stream(struct hw_peer *p, uint32_t stream, bool all, int why)
{
    const struct hw_list *chain = hw_chains_find(&p->queues, &p->queues.stream_ops, stream);
    hw_list_each(it, tmp, chain)
    {
        struct hw_op *op = hw_container_of(it, struct hw_op, of_stream);
        bool waits = op->kind == HW_OP_SEND && op->match == HW_MATCH_WAITS;
        if (op->queue >> 32 == stream && (all || waits))
            hw_op_cancel_locked(op, why);
    }
}

static int close_here(struct hw_peer *p, uint32_t stream)
{
    int rc = 0;
    struct hw_closed *c = p->dead ? NULL : get_closed(&p->queues, stream, true, &rc);
    if (!c)
        return p->dead ? hw_fail(p->dead, "the connection to the peer has ended") : rc;
    if (c->here)
        return hw_fail(-EINVAL, "stream %u is already closed", stream);
    struct hw_control *say = malloc(sizeof *say);
    if (!say) {
        if (!c->there)
            put_closed(&p->queues, c);
        return hw_no_memory("the end of stream %u", stream);
    }
    *say = (struct hw_control){.kind = HW_CONTROL_CLOSE, .a = stream};
    (void)hw_fail(-ECANCELED, "the stream is closed");
    c->here = true; /* nothing can fail from here on, so the peer never sees a half-closed stream */
    cancel_stream(p, stream, true, -ECANCELED);
    hw_queues_refuse(p, stream);
    hw_control_send_own(p, say);
    put_closed(&p->queues, c);
    return 0;
}

int hw_stream_close(struct hw_peer *p, uint32_t stream)
{
    pthread_mutex_lock(&p->lock);
    int rc = close_here(p, stream);
    hw_ops_unlock(p);
    return rc;
}

int hw_stream_closed(struct hw_peer *p, const struct hw_control_head *h)
{
    int rc = 0;
    uint32_t stream = (uint32_t)h->a;
    pthread_mutex_lock(&p->lock);
    struct hw_closed *c = stream && h->a == stream ? get_closed(&p->queues, stream, false, &rc) : NULL;
    if (rc == -EAGAIN || (!c && rc == 0) || (c && c->there)) {
        rc = hw_fail(-EPROTO, "invalid close of stream %llu by the peer", (unsigned long long)h->a);
    } else if (c) {
        (void)hw_fail(-ESHUTDOWN, "the peer closed the stream");
        cancel_stream(p, stream, false, -ESHUTDOWN);
        c->there = true;
        put_closed(&p->queues, c);
    }
    hw_ops_unlock(p);
    return rc;
}

static uint64_t get_stream(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct hw_closed, in_chain)->stream;
}

static uint64_t get_stream_of_op(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct hw_op, of_stream)->queue >> 32;
}

static uint64_t get_stream_of_queue(const struct hw_list *entry)
{
    return hw_container_of(entry, const struct hw_queue, of_stream)->name >> 32;
}

void hw_streams_init(struct hw_queues *t)
{
    hw_chains_init(&t->closed, get_stream);
    hw_chains_init(&t->stream_ops, get_stream_of_op);
    hw_chains_init(&t->stream_queues, get_stream_of_queue);
}

static void free_closed(struct hw_list *entry)
{
    free(hw_container_of(entry, struct hw_closed, in_chain));
}

void hw_streams_free(struct hw_queues *t)
{
    hw_chains_free(&t->closed, free_closed);
    hw_chains_free(&t->stream_ops, NULL);
    hw_chains_free(&t->stream_queues, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Advances requests in the child: starts as many requests as the window allows, tests the oldest request, and reorders
 * the data of completed receives. */
#include "transport/netplugin/child/child.h"

#include <limits.h>

#define UNSAID INT_MIN

static int start_child_request(struct kid *k, struct kid_comm *c, struct np_entry *e, void **req)
{
    const struct kid_mr *mr = e->mr < NP_MRS ? &k->mr[e->mr] : NULL;
    ncclResult_t rc;

    if (!mr || mr->comm != c || e->offset > mr->len || e->len > mr->len - e->offset)
        return hw_fail(-EINVAL, "request %llu: the memory is not within a registration of this connection",
                       (unsigned long long)c->started);
    *req = NULL; /* NCCL passes a stale value or 0x1, so no plugin can rely on the value */
    kid_enter(k, c->kind == KID_SEND ? NP_ISEND : NP_IRECV);
    if (c->kind == KID_SEND)
        rc = np_table_isend(&k->t, c->comm, mr->at + e->offset, e->len, e->tag, mr->mh, req);
    else
        rc = np_table_irecv(&k->t, c->comm, mr->at + e->offset, e->len, e->tag, mr->mh, req);
    kid_leave(k);
    return kid_result(c->kind == KID_SEND ? NP_ISEND : NP_IRECV, rc);
}

static int mark_request_consumed(struct kid *k, struct kid_comm *c)
{
    void *req = c->req[c->given++ % NP_RING];
    kid_enter(k, NP_CONSUMED);
    ncclResult_t rc = np_table_consumed(&k->t, c->comm, req);
    kid_leave(k);
    return kid_result(NP_CONSUMED, rc);
}

/* ---- the two queues of a connection --------------------------------------------------------- */

/* Starts a flush of data that was received into GPU memory, if the plugin has iflush. Without a flush the GPU might not
 * yet see the data. */
static int start_child_flush(struct kid *k, struct kid_comm *c, const struct np_entry *e)
{
    const struct kid_mr *mr = &k->mr[e->mr];
    void **req = &c->flush[c->come % NP_RING];
    const uint64_t size = e->known ? e->size : e->len;
    if (c->unpacks || !mr->cuda || size == 0 || !np_table_has_flush(&k->t))
        return 0;
    kid_enter(k, NP_FLUSH);
    ncclResult_t rc = np_table_flush(&k->t, c->comm, mr->at + e->offset, (int)size, mr->mh, req);
    kid_leave(k);
    return kid_result(NP_FLUSH, rc);
}

/* Records the result of a request that test() has reported complete. */
static int record_test_result(struct kid *k, struct kid_comm *c, struct np_entry *e, int size)
{
    e->frags = 0;
    e->known = c->kind == KID_RECV && size != UNSAID;
    e->size = e->known ? (uint64_t)size : 0;
    c->flush[c->come % NP_RING] = NULL;
    if (e->known && (size < 0 || e->size > e->len))
        return hw_fail(-EMSGSIZE, "test: the plugin reports %d bytes for a receive of %llu", size,
                       (unsigned long long)e->len);
    int rc = c->meta ? kid_unpack(k, c, e) : 0;
    return rc == 0 && c->kind == KID_RECV ? start_child_flush(k, c, e) : rc;
}

static int test_oldest(struct kid *k, struct kid_comm *c, struct np_entry *e, bool *over)
{
    int done = 0, size = UNSAID; /* some plugins never write the size */
    kid_enter(k, NP_TEST);
    ncclResult_t result = np_table_test(&k->t, c->req[c->come % NP_RING], &done, &size);
    kid_leave(k);
    *over = done != 0;
    int rc = kid_result(NP_TEST, result);
    return rc == 0 && *over ? record_test_result(k, c, e, size) : rc;
}

/* Returns 1 if the data of the oldest request that test() has reported complete is in place, 0 if not yet, or
 * -errno. */
static int test_child_delivery(struct kid *k, struct kid_comm *c)
{
    void **req = &c->flush[c->done % NP_RING];
    int done = 0, size, rc = kid_unpacked(c, c->done);
    if (rc <= 0 || !*req)
        return rc;
    kid_enter(k, NP_FLUSH);
    ncclResult_t result = np_table_test(&k->t, *req, &done, &size);
    kid_leave(k);
    if (done)
        *req = NULL;
    rc = kid_result(NP_FLUSH, result);
    return rc < 0 ? rc : done != 0;
}

/* Advances all requests as far as possible. Sets KID_MOVED in *found if a request advanced. */
static int advance_requests(struct kid *k, struct kid_comm *c, uint64_t posted, unsigned *found)
{
    struct np_ring *r = c->ring;
    /* A receive that unpacks occupies the window until it is consumed. Any other request occupies it until it is done.
     */
    const uint64_t *free_at = c->unpacks ? &c->given : &c->done;
    int rc;
    while (c->started < posted && c->started - *free_at < c->window) {
        struct np_entry *e = &r->entry[c->started % NP_RING];
        void *req;
        rc = start_child_request(k, c, e, &req);
        if (rc < 0)
            return rc;
        if (!req) {
            e->nulls++;
            break;
        }
        c->req[c->started++ % NP_RING] = req;
        atomic_store_explicit(&r->started, c->started, memory_order_relaxed);
        *found |= KID_MOVED;
    }
    while (c->come < c->started) {
        bool over = false;
        rc = test_oldest(k, c, &r->entry[c->come % NP_RING], &over);
        if (rc < 0)
            return rc;
        if (!over)
            break;
        c->come++;
        *found |= KID_MOVED;
    }
    while (c->done < c->come) {
        rc = test_child_delivery(k, c);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        if (c->unpacks && !c->frags && (rc = mark_request_consumed(k, c)) < 0)
            return rc;
        atomic_store_explicit(&r->done, ++c->done, memory_order_release);
        kid_ring(c);
        *found |= KID_MOVED;
    }
    if (!c->frags)
        return 0;
    const uint64_t consumed_by = atomic_load_explicit(&r->consumed, memory_order_acquire);
    while (c->given < HW_MIN(consumed_by, c->done)) {
        rc = mark_request_consumed(k, c);
        if (rc < 0)
            return rc;
        *found |= KID_MOVED;
    }
    return 0;
}

unsigned kid_progress(struct kid *k, struct kid_comm *c)
{
    const uint64_t posted = atomic_load_explicit(&c->ring->posted, memory_order_acquire);
    unsigned found = 0;
    kid_set_gpu(k, c->gpu);
    int rc = advance_requests(k, c, posted, &found);
    if (rc < 0) {
        kid_fail(c, rc);
        return KID_MOVED;
    }
    return found | (c->done < posted ? KID_PENDING : 0);
}

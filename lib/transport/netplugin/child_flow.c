/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, in the child: started as far as the window goes, the oldest one tested, finished ones unpacked. */
#include "transport/netplugin/child.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define UNSAID INT_MIN

static int start(struct kid *k, struct kid_comm *c, struct np_entry *e, void **req)
{
    const struct kid_mr *mr = e->mr < NP_MRS ? &k->mr[e->mr] : NULL;
    ncclResult_t rc;

    if (!mr || mr->comm != c || e->offset > mr->len || e->len > mr->len - e->offset)
        return hw_fail(-EINVAL, "request %llu lies outside its registration", (unsigned long long)c->started);
    *req = NULL; /* NCCL's is stale, or 0x1: a plugin may not rely on either */
    kid_enter(k, c->kind == KID_SEND ? NP_ISEND : NP_IRECV);
    if (c->kind == KID_SEND)
        rc = np_table_isend(&k->t, c->comm, mr->at + e->offset, e->len, e->tag, mr->mh, req);
    else
        rc = np_table_irecv(&k->t, c->comm, mr->at + e->offset, e->len, e->tag, mr->mh, req);
    kid_leave(k);
    return kid_result(c->kind == KID_SEND ? NP_ISEND : NP_IRECV, rc);
}

/* ---- unpacking ------------------------------------------------------------------------------ */

/* May the CPU read it? A GPU's addresses give EFAULT. */
static bool readable(const void *p, size_t len)
{
    int fd[2];
    bool yes = false;
    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    yes = write(fd[1], p, 1) == 1 && write(fd[1], (const char *)p + len - 1, 1) == 1;
    close(fd[0]);
    close(fd[1]);
    return yes;
}

int kid_unpack_open(struct kid *k, struct kid_comm *c)
{
    const ncclNetDeviceHandle_t *dh = c->dh;
    if (c->kind != KID_RECV || !dh || dh->netDeviceType != NCCL_NET_DEVICE_UNPACK)
        return 0;
    if (dh->netDeviceVersion != NCCL_NET_DEVICE_UNPACK_VERSION)
        return hw_fail(-EPROTO, "the connection unpacks by version %d, and version %d alone is known",
                       dh->netDeviceVersion, NCCL_NET_DEVICE_UNPACK_VERSION);
    if (!np_table_has_consumed(&k->t))
        return hw_fail(-EPROTO, "the connection unpacks, but the table has no irecvConsumed");
    c->unpacks = true;
    /* With a bounce buffer on a GPU, only receives into that GPU's memory come scattered: none of ours. */
    if (!dh->handle || !readable(dh->handle, sizeof(struct unpackNetDeviceHandle)))
        return 0;
    const struct unpackNetDeviceHandle *u = dh->handle;
    if (!u->meta || !u->bounce_buf || !readable(u->meta, sizeof(*u->meta)) || !readable(u->bounce_buf, 1))
        return hw_fail(-EPROTO, "the handle for unpacking leads to no metadata queue and bounce buffer");
    c->meta = u->meta;
    c->bounce = u->bounce_buf;
    return 0;
}

/* A receive of the connection has come: its slot in the metadata queue is its number modulo the queue's depth. The
 * fragments are put in order here, or shown to the parent. */
static int unpack(struct kid *k, struct kid_comm *c, struct np_entry *e)
{
    static struct loadMeta mine[NP_FRAGS];
    const unsigned slot = (unsigned)(c->done % NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH);
    const uint64_t n = *(const volatile uint64_t *)&c->meta->cnt[slot];
    uint8_t *to = k->mr[e->mr].at + e->offset;

    if (n > NP_FRAGS)
        return hw_fail(-EPROTO, "receive %llu came in %llu fragments, and the queue holds %d",
                       (unsigned long long)c->done, (unsigned long long)n, NP_FRAGS);
    int rc = np_check_frags(c->meta->mem[slot], (uint32_t)n, e->len, mine, &e->size);
    if (rc < 0)
        return rc;
    /* A plugin may put what goes to host memory in its place itself. */
    c->scatters |= n > 0;
    if (!c->scatters)
        return 0;
    e->frags = (uint32_t)n;
    e->known = true;
    if (c->frags) {
        memcpy(c->frags->list[c->done % NP_RING], mine, n * sizeof(mine[0]));
        return 0;
    }
    kid_enter(k, NP_UNPACK);
    for (uint32_t i = 0; i < n; i++)
        memcpy(to + mine[i].dst_off, c->bounce + mine[i].src_off, mine[i].len);
    kid_leave(k);
    return 0;
}

static int consumed(struct kid *k, struct kid_comm *c)
{
    void *req = c->req[c->given++ % NP_RING];
    kid_enter(k, NP_CONSUMED);
    ncclResult_t rc = np_table_consumed(&k->t, c->comm, req);
    kid_leave(k);
    return kid_result(NP_CONSUMED, rc);
}

/* ---- the two queues of a connection --------------------------------------------------------- */

static int finish(struct kid *k, struct kid_comm *c, struct np_entry *e, int size)
{
    int rc = 0;
    e->frags = 0;
    e->known = c->kind == KID_RECV && size != UNSAID;
    e->size = e->known ? (uint64_t)size : 0;
    if (e->known && (size < 0 || e->size > e->len))
        return hw_fail(-EMSGSIZE, "test: %d bytes came for a receive of %llu", size, (unsigned long long)e->len);
    if (c->meta)
        rc = unpack(k, c, e);
    return rc == 0 && c->unpacks && !c->frags ? consumed(k, c) : rc;
}

static int test_oldest(struct kid *k, struct kid_comm *c, struct np_entry *e, bool *over)
{
    int done = 0, size = UNSAID; /* some never write it */
    kid_enter(k, NP_TEST);
    ncclResult_t result = np_table_test(&k->t, c->req[c->done % NP_RING], &done, &size);
    kid_leave(k);
    *over = done != 0;
    int rc = kid_result(NP_TEST, result);
    return rc == 0 && *over ? finish(k, c, e, size) : rc;
}

unsigned kid_progress(struct kid *k, struct kid_comm *c)
{
    struct np_ring *r = c->ring;
    const uint64_t posted = atomic_load_explicit(&r->posted, memory_order_acquire);
    /* A receive that unpacks is held until it is consumed; all others until they are done. */
    const uint64_t *free_at = c->unpacks ? &c->given : &c->done;
    unsigned found = 0;
    int rc = 0;

    while (rc == 0 && c->started < posted && c->started - *free_at < c->window) {
        struct np_entry *e = &r->entry[c->started % NP_RING];
        void *req;
        rc = start(k, c, e, &req);
        if (rc < 0)
            break;
        if (!req) {
            e->nulls++;
            break;
        }
        c->req[c->started++ % NP_RING] = req;
        atomic_store_explicit(&r->started, c->started, memory_order_relaxed);
        found |= KID_MOVED;
    }
    while (rc == 0 && c->done < c->started) {
        bool over = false;
        rc = test_oldest(k, c, &r->entry[c->done % NP_RING], &over);
        if (rc < 0 || !over)
            break;
        atomic_store_explicit(&r->done, ++c->done, memory_order_release);
        kid_ring(c);
        found |= KID_MOVED;
    }
    if (c->frags) {
        const uint64_t consumed_by = atomic_load_explicit(&r->consumed, memory_order_acquire);
        while (rc == 0 && c->given < HW_MIN(consumed_by, c->done)) {
            rc = consumed(k, c);
            found |= KID_MOVED;
        }
    }
    if (rc < 0) {
        kid_fail(c, rc);
        return KID_MOVED;
    }
    return found | (c->done < posted ? KID_PENDING : 0);
}

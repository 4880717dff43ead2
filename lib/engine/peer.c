/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: birth, death, and the regions they may touch. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hawser_peer *hw_peer_new(struct hawser *h, bool client)
{
    struct hawser_peer *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->lanes = calloc(h->nloops, sizeof(*p->lanes));
    p->ctl.rx = malloc(2ul * HW_FRAME_MAX);
    if (!p->lanes || !p->ctl.rx) {
        free(p->lanes);
        free(p->ctl.rx);
        free(p);
        return NULL;
    }
    p->h = h;
    p->client = client;
    p->keyed = h->keyed;
    p->born = hw_now();
    p->home = &h->loops[atomic_fetch_add(&h->next_home, 1) % h->nloops];
    pthread_mutex_init(&p->mu, NULL);
    atomic_store(&p->state, 1);
    p->ctl.fd = p->ctl.hs_fd = p->ctl.new_fd = -1;
    p->ctl.src.ready = hw_ctl_ready;
    p->ctl.down_since = hw_now();
    p->by_remote.by_remote = true;
    p->next_deadline = HW_NEVER;
    p->next_id = 1;
    hw_list_init(&p->in_ctx);
    hw_list_init(&p->in_accept);
    hw_list_init(&p->ctl.owing);
    hw_list_init(&p->ops);
    hw_list_init(&p->served);
    hw_list_init(&p->aborting);
    hw_list_init(&p->txq_small);
    hw_list_init(&p->txq);
    hw_list_init(&p->recvq);
    hw_list_init(&p->unexpected);
    hw_list_init(&p->await_match);
    hw_list_init(&p->await_ack);
    hw_list_init(&p->notes);
    hw_list_init(&p->owing);
    for (unsigned i = 0; i < h->nloops; i++) {
        struct hw_lane *l = &p->lanes[i];
        l->peer = p;
        l->loop = &h->loops[i];
        hw_list_init(&l->run);
        pthread_mutex_lock(&l->loop->qmu);
        hw_list_append(&l->loop->lanes, &l->all);
        pthread_mutex_unlock(&l->loop->qmu);
    }
    return p;
}

/* The caller drives lane's loop. */
static void lane_leave(struct hw_lane *l)
{
    pthread_mutex_lock(&l->loop->qmu);
    hw_list_remove(&l->run);
    hw_list_remove(&l->all);
    pthread_mutex_unlock(&l->loop->qmu);
}

/* Must be entered with every operation complete or about to be completed here, and no loop driven by this thread. */
void hw_peer_free(struct hawser_peer *p)
{
    struct hawser *h = p->h;
    for (unsigned k = 1; k <= h->nloops; k++) {
        /* home last: who waits for an operation drives it, and must find the peer there until the operation is over */
        unsigned i = (p->home->index + k) % h->nloops;
        hw_loop_acquire(&h->loops[i]);
        (void)hw_lane_run(&p->lanes[i]); /* the scan: closes connections, ends operations */
        lane_leave(&p->lanes[i]);
        if (&h->loops[i] == p->home) {
            hw_list_remove(&p->ctl.owing);
            hw_loop_forget(p->home, p->ctl.hs_fd);
            hw_sock_abort(&p->ctl.hs_fd); /* a reconnect under way: its loop would go on with it */
        }
        hw_loop_release(&h->loops[i]);
    }
    hw_list_each(it, tmp, &p->unexpected)
    {
        free(hw_container_of(it, struct hw_message, link));
    }
    hw_stream_free_all(p);
    hw_list_each(it, tmp, &p->notes)
    {
        free(hw_container_of(it, struct hw_note, link));
    }
    uint32_t n = atomic_load(&p->nchans);
    for (uint32_t i = 0; i < n; i++)
        hw_chan_free(&p->chans[i]);
    hw_sock_abort(&p->ctl.fd);
    hw_sock_abort(&p->ctl.hs_fd);
    hw_sock_abort(&p->ctl.new_fd);
    free(p->ctl.hs);
    free(p->ctl.tx);
    free(p->ctl.rx);
    free(p->chans);
    free(p->retry);
    free(p->by_id.slot);
    free(p->by_remote.slot);
    free(p->want_nics);
    free(p->want_peer_nics);
    hw_pairing_free(p->pairing);
    free(p->paths);
    free(p->offers);
    free(p->lanes);
    pthread_mutex_destroy(&p->mu);
    free(p);
}

void hw_peer_queue_all(struct hawser_peer *p)
{
    for (unsigned i = 0; i < p->h->nloops; i++)
        hw_lane_queue(&p->lanes[i]);
}

void hw_peer_scan(struct hawser_peer *p)
{
    for (unsigned i = 0; i < p->h->nloops; i++)
        atomic_store(&p->lanes[i].scan, true);
    hw_peer_queue_all(p);
}

void hw_peer_fail(struct hawser_peer *p, int rc, const char *fmt, ...)
{
    int was = atomic_load(&p->state);
    if (was < 0)
        return;
    char text[HW_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(p->err, sizeof(p->err), "%s: %.*s", p->name, (int)(sizeof(p->err) - sizeof(p->name) - 3), text);
    atomic_store(&p->state, rc);
    hw_log(&p->h->log, rc == -ESHUTDOWN ? HAWSER_LOG_INFO : HAWSER_LOG_ERROR, "%s", p->err);
    hw_list_each(it, tmp, &p->ops)
    {
        hw_op_abort(hw_container_of(it, struct hawser_op, pending), rc, p->err);
    }
    hw_list_each(it, tmp, &p->served)
    {
        hw_op_abort(hw_container_of(it, struct hawser_op, pending), rc, NULL);
    }
    if (was == 1 && !p->client) { /* nobody else will ever free it: hawser_accept() does */
        struct hawser *h = p->h;
        pthread_mutex_lock(&h->mu);
        if (!hw_list_empty(&p->in_ctx)) { /* else it is being closed */
            hw_list_append(&h->graves, &p->in_accept);
            atomic_fetch_add(&h->ngraves, 1);
        }
        pthread_mutex_unlock(&h->mu);
        hw_loop_alert(&h->loops[0]);
    }
    hw_peer_scan(p);
    hw_loop_notify(p->home);
    hw_event(p->h);
}

void hw_peer_violation(struct hawser_peer *p, const char *what)
{
    hw_peer_fail(p, -EPROTO, "the peer broke the protocol: %s", what);
}

struct hawser_peer *hw_peer_by_session(struct hawser *h, uint64_t session)
{
    hw_list_each(it, tmp, &h->peers)
    {
        struct hawser_peer *p = hw_container_of(it, struct hawser_peer, in_ctx);
        if (!p->client && p->session == session) /* a client's is the word of its server */
            return p;
    }
    return NULL;
}

int hw_region_find(struct hawser_peer *p, uint64_t id, uint64_t secret, uint64_t offset, uint64_t len, uint32_t right,
                   const struct hw_space **space, uint8_t **ptr)
{
    struct hawser *h = p->h;
    uint32_t i = (uint32_t)id;
    int rc = 0;
    pthread_mutex_lock(&h->mu);
    struct hw_region *r = i < h->nregions ? h->regions[i] : NULL;
    if (!r || r->id != id || r->secret != secret || (r->peer && r->peer != p))
        rc = hw_fail(-ESTALE, "the region was revoked, or was never exported to this peer");
    else if (!(r->rights & right))
        rc =
            hw_fail(-EACCES, "the region may not be %s by this peer", right == HAWSER_REMOTE_READ ? "read" : "written");
    else if (offset > r->length || len > r->length - offset)
        rc = hw_fail(-EFAULT, "bytes %llu to %llu lie outside the region of %llu", (unsigned long long)offset,
                     (unsigned long long)(offset + len), (unsigned long long)r->length);
    else
        *space = r->mem->space, *ptr = r->base + offset;
    pthread_mutex_unlock(&h->mu);
    return rc;
}

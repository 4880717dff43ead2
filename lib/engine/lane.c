/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: a peer's share of one loop, its channels and, on its home loop, the control connection. One turn at a time. */
#include "engine/engine.h"

#define CONFIRM_BACKLOG (256ul * 1024) /* control bytes waiting above which confirmations do too */

bool hw_chan_confirm(struct hw_chan *c)
{
    uint8_t body[8];
    if (c->state != HW_CH_UP || c->rx_told == c->rx_count)
        return true;
    hw_put32(body, c->index);
    hw_put32(body + 4, c->gen);
    if (hw_ctl_add(c->peer, HW_F_CONFIRM, 0, c->rx_count, body, 8, NULL, 0))
        return false;
    c->rx_told = c->rx_count;
    return true;
}

void hw_peer_confirm(struct hawser_peer *p)
{
    uint32_t n = atomic_load(&p->nchans);
    for (uint32_t i = 0; i < n && hw_chan_confirm(&p->chans[i]); i++)
        continue;
}

/* Under peer->mu: tells the peer what arrived on this lane's channels. */
static void confirm(struct hw_lane *lane)
{
    struct hawser_peer *p = lane->peer;
    uint32_t n = atomic_load(&p->nchans);
    bool any = false;
    if (hw_ctl_backlog(p) > CONFIRM_BACKLOG) {
        hw_loop_want_tick(lane->loop); /* counts are cumulative: later will do */
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct hw_chan *c = &p->chans[i];
        if (c->lane != lane || !c->confirm_owed || c->state != HW_CH_UP)
            continue;
        if (!hw_chan_confirm(c))
            return;
        c->confirm_owed = false;
        any = true;
    }
    if (any)
        hw_ctl_flush(p);
}

/* ---- lanes --------------------------------------------------------------------------------------------------- */

static void scan(struct hw_lane *lane)
{
    struct hawser_peer *p = lane->peer;
    uint32_t n = atomic_load(&p->nchans);
    bool dead = atomic_load(&p->state) < 0;
    pthread_mutex_lock(&p->mu);
    for (uint32_t i = 0; i < n; i++) {
        struct hw_chan *c = &p->chans[i];
        if (c->lane != lane)
            continue;
        if (c->conn && (dead || c->kill))
            hw_chan_kill(c, -ECONNRESET, "the peer has closed it");
        if (p->client && !dead && p->setup_acked && c->state == HW_CH_DOWN && c->gen == 0)
            hw_chan_connect(c);
        if (!p->client)
            hw_chan_attach(c);
    }
    hw_op_lane_scan(lane);
    pthread_mutex_unlock(&p->mu);
}

bool hw_lane_run(struct hw_lane *lane)
{
    struct hawser_peer *p = lane->peer;
    bool more = false, owed = false;
    if (atomic_exchange(&lane->scan, false))
        scan(lane);
    if (lane->loop == p->home)
        hw_ctl_service(p);
    uint32_t n = atomic_load(&p->nchans);
    for (uint32_t i = 0; i < n; i++) {
        struct hw_chan *c = &p->chans[i];
        if (c->lane != lane || !c->conn)
            continue;
        if (c->state == HW_CH_CONNECTING)
            hw_chan_establish(c);
        if (c->state == HW_CH_UP)
            more |= hw_chan_recv(c);
        if (c->state == HW_CH_UP)
            more |= hw_chan_send(c);
        if (atomic_load(&c->early)) {
            pthread_mutex_lock(&p->mu);
            hw_chan_confirm_claimed(c);
            pthread_mutex_unlock(&p->mu);
        }
        owed |= c->confirm_owed;
    }
    if (owed) {
        pthread_mutex_lock(&p->mu);
        confirm(lane);
        pthread_mutex_unlock(&p->mu);
    }
    return more;
}

bool hw_lane_tick(struct hw_lane *lane, uint64_t now)
{
    struct hawser_peer *p = lane->peer;
    bool busy = false;
    pthread_mutex_lock(&p->mu);
    if (lane->loop == p->home) {
        hw_ctl_tick(p, now);
        hw_op_deadlines(p, now);
        busy |= p->nops || p->nserved || p->ctl.fd < 0 || p->ctl.hs || atomic_load(&p->state) == 1;
    }
    bool alive = atomic_load(&p->state) == 0;
    uint32_t n = atomic_load(&p->nchans);
    for (uint32_t i = 0; i < n; i++) {
        struct hw_chan *c = &p->chans[i];
        if (c->lane != lane)
            continue;
        if (c->state == HW_CH_UP && (c->win_n || c->sending)) {
            /* A local NIC that is down says so at once; what lies behind it shows only in what is not acknowledged. */
            int rc = hw_nic_is_down(p->h->tp->fd(c->conn), c->nic.name) ? hw_fail(-ENETDOWN, "%s is down", c->nic.name)
                                                                        : p->h->tp->health(c->conn);
            if (rc)
                hw_chan_kill(c, rc, hw_error());
            busy = true;
        } else if (c->state == HW_CH_DOWN && p->client && alive && p->setup_acked && p->ctl.fd >= 0 &&
                   now >= c->retry_at) {
            /* while its NIC is down there is no point in trying, once it is up again none in waiting */
            if (hw_nic_is_down(p->ctl.fd, c->nic.name))
                c->backoff_ms = HW_BACKOFF_MIN_MS;
            else
                hw_chan_connect(c);
        }
        if (c->conn) /* a shortage of kernel memory gives no event when it is over: look again */
            c->wr = c->rd = true;
        busy |= c->state != HW_CH_UP || c->confirm_owed || c->rx_op || c->rx_region || c->rx_msg;
    }
    pthread_mutex_unlock(&p->mu);
    if (busy)
        hw_lane_queue(lane);
    return busy && atomic_load(&p->state) >= 0;
}

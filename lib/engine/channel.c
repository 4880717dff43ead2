/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels: data connections, their windows, and what happens when one dies.
 *
 * A side that sees a channel dead closes it and sends CHAN_DOWN with the number of chunks it has received whole: its
 * last word on this generation, true because no byte of it can land any more. With the other side's last word it knows
 * exactly which of its own chunks are missing, and only these are retaken by the other channels. So no chunk ever
 * arrives twice.
 */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define BACKOFF_MAX_MS 2000
#define TURN_BYTES     (4u << 20) /* moved in one turn before others have theirs */
#define CHUNK_COST     4096       /* what a chunk counts for besides: a peer may send ones of one byte */

static void chan_ready(struct hw_source *s, uint32_t events)
{
    struct hw_chan *c = hw_container_of(s, struct hw_chan, src);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        c->rd = true;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR) || c->peer->h->tp->caps.one_event)
        c->wr = true;
    hw_lane_queue(c->lane);
}

int hw_chan_init(struct hw_chan *c, struct hawser_peer *p, uint32_t index)
{
    c->peer = p;
    c->index = c->st.index = index;
    c->src.ready = chan_ready;
    c->fresh.fd = c->side.fd = -1;
    c->backoff_ms = HW_BACKOFF_MIN_MS;
    c->window = (uint32_t)HW_MIN(p->h->k.window, (uint64_t)p->h->tp->caps.max_window);
    c->win = calloc(c->window, sizeof(*c->win));
    return c->win ? 0 : hw_no_memory("a channel's window");
}

void hw_chan_free(struct hw_chan *c)
{
    if (c->conn)
        c->peer->h->tp->close(c->conn);
    hw_close(&c->fresh.fd);
    hw_close(&c->side.fd);
    free(c->win);
}

static void schedule_retry(struct hw_chan *c)
{
    /* a spread, so that the channels of a NIC that comes back do not all knock at once */
    uint32_t r;
    hw_random(&r, sizeof(r));
    c->retry_at = hw_now() + (c->backoff_ms + r % c->backoff_ms / 2) * HW_MS;
    c->backoff_ms = HW_MIN(c->backoff_ms * 2, BACKOFF_MAX_MS);
    hw_loop_want_tick(c->lane->loop);
}

/* Counts what hawser_connect() waits for. Channels of one NIC pair are neighbours. */
static void count_up(struct hawser_peer *p)
{
    uint32_t n = atomic_load(&p->nchans), up = 0, pairs = 0, per = p->npairs ? HW_MAX(n / p->npairs, 1u) : 1;
    for (uint32_t i = 0; i < n; i++)
        up += p->chans[i].state == HW_CH_UP;
    for (uint32_t i = 0; i < n; i += per) {
        bool any = false;
        for (uint32_t k = i; k < i + per && k < n; k++)
            any |= p->chans[k].state == HW_CH_UP;
        pairs += any;
    }
    atomic_store(&p->chans_up, up);
    atomic_store(&p->pairs_up, pairs);
}

static void now_up(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    union hw_addr local, remote;
    c->state = HW_CH_UP;
    c->was_up = true;
    c->down_seen = c->sending = c->confirm_owed = false;
    c->rd = c->wr = true;
    c->win_head = c->win_n = 0;
    c->tx_seq = c->tx_confirmed = c->tx_claimed = c->tx_released = c->rx_seq = c->rx_count = c->rx_told =
        c->inflight_bytes = 0;
    c->rate = 0;
    atomic_store(&c->early, false);
    c->backoff_ms = HW_BACKOFF_MIN_MS;
    c->st.up = 1;
    p->h->tp->ends(c->conn, &local, &remote);
    hw_addr_text(&local, c->st.local, sizeof(c->st.local));
    hw_addr_text(&remote, c->st.remote, sizeof(c->st.remote));
    hw_log(&p->h->log, c->st.lost ? HAWSER_LOG_WARN : HAWSER_LOG_DEBUG, "%s: channel %u is up%s: %s (%s) to %s (%s)",
           p->name, c->index, c->st.lost ? " again" : "", c->st.local, c->nic.name, c->st.remote, c->peer_nic);
    hw_loop_pin(c->lane->loop, c->nic.name);
    hw_lane_queue(c->lane);
    count_up(p);
    hw_loop_notify(p->home); /* hawser_connect() may wait for it */
}

/* Where the transport as a whole is dead there is nothing to try again. */
static bool transport_dead(struct hawser_peer *p)
{
    int rc = p->h->tp->alive && atomic_load(&p->state) >= 0 ? p->h->tp->alive(&p->h->env) : 0;
    if (rc)
        hw_peer_fail(p, rc, "%s", hw_error());
    return rc != 0;
}

void hw_chan_connect(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    struct hw_conn_ident id = {.session = p->session,
                               .channel = c->index,
                               .gen = ++c->gen,
                               .keyed = p->keyed,
                               .secret = p->secret,
                               .gpu = p->gpu,
                               .peer_gpu = p->peer_gpu};
    c->was_up = false;
    int rc = p->h->tp->connect(&p->h->env, &c->nic, c->handle, c->handle_len, &id, &c->conn);
    if (rc == 0 && (rc = hw_loop_add(c->lane->loop, p->h->tp->fd(c->conn), &c->src)) != 0) {
        p->h->tp->close(c->conn);
        c->conn = NULL;
    }
    if (rc) {
        if (rc != c->connect_rc) /* the same trouble is told once */
            hw_log(&p->h->log, HAWSER_LOG_INFO, "%s: channel %u: %s", p->name, c->index, hw_error());
        const bool final = rc == -ENODEV && p->h->tp->caps.nodev_final;
        p->hopeless += final && c->connect_rc != rc;
        c->connect_rc = rc;
        if (transport_dead(p))
            return;
        if (final && p->hopeless == atomic_load(&p->nchans)) { /* by no NIC: more attempts would not help */
            hw_peer_fail(p, rc, "%s", hw_error());
            return;
        }
        schedule_retry(c);
        return;
    }
    c->state = HW_CH_CONNECTING;
    c->rd = true;
    hw_lane_queue(c->lane);
}

void hw_chan_establish(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    int rc = p->h->tp->establish(c->conn);
    if (rc == -EAGAIN)
        return;
    pthread_mutex_lock(&p->mu);
    if (rc == 0 && c->kill)
        rc = hw_fail(-ECONNRESET, "the peer has given it up");
    if (rc == 0) {
        c->connect_rc = 0;
        now_up(c);
    } else {
        hw_chan_kill(c, rc, hw_error());
    }
    pthread_mutex_unlock(&p->mu);
}

static struct hw_arrival take(struct hawser *h, struct hw_arrival *a)
{
    pthread_mutex_lock(&h->mu);
    struct hw_arrival taken = *a;
    a->fd = -1;
    pthread_mutex_unlock(&h->mu);
    return taken;
}

/* A second connection of a channel that stands. */
static void attach_side(struct hw_chan *c, struct hw_arrival a)
{
    const struct hw_transport *tp = c->peer->h->tp;
    bool good = tp->side && c->state == HW_CH_UP && a.gen == c->gen;
    if (hw_hs_welcome(a.fd, good ? HW_OK : HW_REFUSE_STALE, 0) == 0 && good)
        tp->side(c->conn, a.fd);
    else
        hw_close(&a.fd);
    if (good)
        c->rd = c->wr = true;
}

void hw_chan_attach(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    const struct hw_transport *tp = p->h->tp;
    struct hw_arrival side = take(p->h, &c->side), fresh = take(p->h, &c->fresh);
    int fd = fresh.fd;
    uint32_t gen = fresh.gen;
    if (side.fd >= 0)
        attach_side(c, side);
    if (fd < 0)
        return;
    if (c->state == HW_CH_UP && gen > c->gen) {
        /* The client goes on to a new generation without a last word only if it never saw the old one established. */
        hw_chan_kill(c, -ECONNRESET, "replaced by a newer connection");
        hw_chan_peer_down(c, c->gen, 0);
    }
    if (c->state != HW_CH_DOWN || gen <= c->gen || atomic_load(&p->state) < 0) {
        (void)hw_hs_welcome(fd, HW_REFUSE_STALE, 0);
        hw_close(&fd);
        return;
    }
    c->gen = gen;
    c->was_up = false; /* not in this generation, should what follows fail */
    char nic[HAWSER_NIC_NAME];
    hw_nic_of_socket(fd, nic); /* whatever the client calls it */
    if (*nic) {
        memcpy(c->nic.name, nic, HAWSER_NIC_NAME);
        memcpy(c->st.nic, nic, HAWSER_NIC_NAME);
    }
    int rc = hw_hs_welcome(fd, HW_OK, 0);
    if (rc == 0)
        rc = tp->accept(&p->h->env, fd, &c->conn);
    if (rc == 0 && (rc = hw_loop_add(c->lane->loop, tp->fd(c->conn), &c->src)) != 0) {
        tp->close(c->conn);
        c->conn = NULL;
        fd = -1;
    }
    if (rc) {
        hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: channel %u: %s", p->name, c->index, hw_error());
        hw_close(&fd);
        return;
    }
    now_up(c);
}

/* The peer's last word is known: what it has not received is retaken. */
static void settle(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    hw_chan_confirmed(c, c->down_count);
    uint32_t taken = 0;
    for (uint32_t k = c->win_n; k-- > 0;) { /* last first: the list is a stack */
        struct hw_sent *s = &c->win[(c->win_head + k) % c->window];
        if (s->op && s->op->failing) {
            struct hawser_op *op = s->op;
            op->inflight--;
            hw_op_check(op);
        } else if (s->op) {
            p->retry[p->nretry++] = *s;
            atomic_fetch_add(&p->tx_work, 1);
            taken++;
        }
    }
    c->st.retaken_chunks += taken;
    c->win_n = 0;
    c->inflight_bytes = 0;
    c->state = HW_CH_DOWN;
    p->fences -= c->fence;
    c->fence = false;
    if (taken)
        hw_log(&p->h->log, HAWSER_LOG_INFO, "%s: %u chunks of channel %u are taken up by others", p->name, taken,
               c->index);
    if (p->client)
        schedule_retry(c);
    hw_peer_queue_all(p);
}

static void send_down(struct hw_chan *c, uint32_t gen, uint64_t count)
{
    uint8_t body[8];
    hw_put32(body, c->index);
    hw_put32(body + 4, gen);
    if (hw_ctl_add(c->peer, HW_F_CHAN_DOWN, 0, count, body, 8, NULL, 0) == 0)
        hw_ctl_flush(c->peer);
}

void hw_chan_counts(const struct hw_chan *c, struct hawser_channel_stats *st)
{
    struct hw_tp_counts n = {0};
    if (!c->conn || !c->peer->h->tp->count)
        return;
    c->peer->h->tp->count(c->conn, &n);
    st->rx_device_bytes += n.rx_device;
    st->rx_copied_bytes += n.rx_copied;
    st->tx_device_bytes += n.tx_device;
}

/* It is closed: control frames that came after the request may be heeded. */
static void unkill(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    if (!c->kill)
        return;
    c->kill = false;
    if (atomic_fetch_sub(&p->kills, 1) == 1)
        hw_lane_queue(&p->lanes[p->home->index]);
}

void hw_chan_kill(struct hw_chan *c, int rc, const char *why)
{
    struct hawser_peer *p = c->peer;
    if (!c->conn)
        return;
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", why);
    hw_loop_forget(c->lane->loop, p->h->tp->fd(c->conn));
    hw_chan_counts(c, &c->st);
    p->h->tp->close(c->conn);
    c->conn = NULL;
    unkill(c);
    hw_stream_eager_lost(c);
    c->rx_op = NULL;
    c->rx_region = 0;
    c->confirm_owed = false;
    if (c->state == HW_CH_CONNECTING) {
        if (rc != c->connect_rc)
            hw_log(&p->h->log, HAWSER_LOG_INFO, "%s: channel %u over %s: %s", p->name, c->index, c->nic.name, text);
        c->connect_rc = rc;
        c->state = HW_CH_DOWN;
        if (!transport_dead(p))
            schedule_retry(c);
        return;
    }
    c->st.up = 0;
    c->st.lost++;
    c->state = HW_CH_DRAIN;
    count_up(p);
    if (atomic_load(&p->state) < 0 || transport_dead(p))
        return; /* the whole peer is dead: nothing to tell it */
    hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: channel %u over %s is lost: %s", p->name, c->index, c->nic.name, text);
    send_down(c, c->gen, c->rx_count);
    if ((rc == -ETIMEDOUT || rc == -ENETDOWN) && hw_addr_same_host(&p->ctl.local, &c->nic.addr))
        hw_ctl_break(p, "channel %u on the same path is dead", c->index);
    if (c->down_seen)
        settle(c);
    hw_loop_want_tick(c->lane->loop);
}

/* Its driver is to close it. Until it has, no control frame is heeded: what the peer says after its last word on a
 * channel may rest on nothing of that channel landing any more. */
static void ask_to_kill(struct hw_chan *c)
{
    if (!c->kill)
        atomic_fetch_add(&c->peer->kills, 1);
    c->kill = true;
    atomic_store(&c->lane->scan, true);
    hw_lane_queue(c->lane);
}

void hw_chan_peer_down(struct hw_chan *c, uint32_t gen, uint64_t count)
{
    if (gen != c->gen) {
        /* A client leaves a generation that was up only after the server's last word: so this one never was, here. */
        if (c->peer->client && gen < c->gen)
            send_down(c, gen, 0);
        return;
    }
    if (c->state == HW_CH_UP || (c->state == HW_CH_DRAIN && !c->down_seen)) {
        c->down_seen = true;
        c->down_count = HW_MIN(count, c->tx_seq);
        if (c->state == HW_CH_DRAIN) {
            settle(c);
        } else {
            ask_to_kill(c);
        }
    } else if (!c->was_up) {
        /* it was up for the peer only, and must not come up here any more: this is the last word on it */
        if (c->state == HW_CH_CONNECTING)
            ask_to_kill(c);
        send_down(c, gen, 0);
    }
}

static void confirmed(struct hw_chan *c, uint64_t count)
{
    if (count <= c->tx_confirmed)
        return;
    uint64_t bytes = 0;
    while (c->tx_confirmed < count && c->win_n) {
        struct hw_sent s = c->win[c->win_head];
        c->win_head = (c->win_head + 1) % c->window;
        c->win_n--;
        c->tx_confirmed++;
        c->st.tx_chunks++;
        bytes += s.len;
        if (s.op) {
            atomic_fetch_add(&s.op->moved, s.len);
            s.op->inflight--;
            hw_op_check(s.op);
        }
    }
    c->st.tx_bytes += bytes;
    c->inflight_bytes -= bytes;
    c->rate_bytes += bytes;
    if (c->peer->npairs > 1) { /* only then does anyone ask */
        uint64_t now = hw_now();
        if (now - c->rate_at >= 4 * HW_MS) {
            double r = (double)c->rate_bytes / (double)(now - c->rate_at);
            c->rate = c->rate > 0 ? 0.6 * c->rate + 0.4 * r : r;
            c->rate_at = now;
            c->rate_bytes = 0;
        }
    }
    if (atomic_load(&c->peer->tx_work))
        hw_lane_queue(c->lane);
}

/* A confirmation may come before this side has noted that the chunk is out, and a hostile one before it is out at all:
 * an operation whose memory is still to be read must not end. So what is ahead waits until the sender gets there. */
void hw_chan_confirm_claimed(struct hw_chan *c)
{
    uint64_t sent = c->conn ? c->peer->h->tp->sent(c->conn) : c->tx_seq;
    confirmed(c, HW_MIN(c->tx_claimed, sent));
    atomic_store(&c->early, c->tx_claimed > sent);
}

void hw_chan_confirmed(struct hw_chan *c, uint64_t count)
{
    c->tx_claimed = HW_MAX(c->tx_claimed, HW_MIN(count, c->tx_seq));
    hw_chan_confirm_claimed(c);
    if (atomic_load(&c->early))
        hw_lane_queue(c->lane); /* its driver may have got there meanwhile */
}

/* A chunk that cannot be posted at all. */
static void give_up(struct hw_sent *s, int rc)
{
    struct hawser_op *op = s->op;
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", hw_error());
    op->inflight--;
    if (op->type == HW_OP_SERVE)
        hw_ctl_error(op->peer, op->id, -EIO, text);
    if (!op->aborting)
        hw_op_abort(op, rc == -ENXIO ? -EIO : rc, text);
}

/* Would the next chunk end later here than the whole would elsewhere? Then it is left to the others: a slow NIC carries
 * less and never sets the pace, not even at a transfer's end. */
static bool may_pull(const struct hw_chan *c)
{
    const struct hawser_peer *p = c->peer;
    if (p->npairs <= 1 || c->rate <= 0)
        return c->rate > 0 || p->npairs <= 1 || c->win_n < 2;
    double rate = 0, best = 0, load = (double)p->tx_left;
    uint32_t n = atomic_load(&p->nchans);
    for (uint32_t i = 0; i < n; i++) {
        const struct hw_chan *o = &p->chans[i];
        if (o->state != HW_CH_UP)
            continue;
        rate += o->rate;
        best = HW_MAX(best, o->rate);
        load += (double)o->inflight_bytes;
    }
    for (uint32_t i = 0; i < p->nretry; i++)
        load += p->retry[i].len;
    if (c->win_n == 0 && c->rate >= best * 0.5)
        return true;
    double mine = ((double)c->inflight_bytes + (double)HW_MIN(p->h->k.min_chunk, p->tx_left)) / c->rate;
    return mine <= load / rate * 1.05 + 1e6;
}

/* A device, not the network, has failed what goes over this channel: its operations are lost, and not for another
 * channel to try. */
static void device_failed(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", hw_error());
    for (uint32_t k = 0; k < c->win_n; k++) {
        const struct hw_sent *s = &c->win[(c->win_head + k) % c->window];
        if (!s->op || s->op->aborting || s->op->vecs[s->vec].space->direct)
            continue;
        if (s->op->type == HW_OP_SERVE)
            hw_ctl_error(p, s->op->id, -EIO, text);
        hw_op_abort(s->op, -EIO, text);
    }
    if (c->rx_op && !c->rx_op->aborting)
        hw_op_abort(c->rx_op, -EIO, text);
    if (c->rx_region)
        hw_ctl_error(p, c->rx_head.op, -EIO, text);
    (void)hw_fail_copy(-ENXIO, text);
}

static uint32_t post(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    const struct hw_transport *tp = p->h->tp;
    uint32_t bytes = 0, want = tp->want(c->conn);
    while (bytes < want && c->win_n < c->window && atomic_load(&p->tx_work) && may_pull(c)) {
        struct hw_sent s;
        if (!hw_op_cut(p, &s))
            break;
        struct hw_vec *v = &s.op->vecs[s.vec];
        static const uint8_t type[] = {[HW_OP_WRITE] = HW_C_WRITE, [HW_OP_SEND] = HW_C_SEND, [HW_OP_SERVE] = HW_C_READ};
        struct hw_chunk_head head = {.type = type[s.op->type], .len = s.len, .op = s.op->id, .seq = ++c->tx_seq};
        if (s.op->type == HW_OP_WRITE) {
            head.region = v->region;
            head.secret = v->secret;
            head.offset = v->remote + s.off;
        } else {
            head.offset = v->start + s.off;
        }
        if (s.op->eager) {
            head.type = HW_C_EAGER;
            head.region = s.op->stream->id;
            head.secret = s.op->number;
        } else if (s.op->stream) {
            head.type = HW_C_STREAM;
            head.op = s.op->remote_id;
            head.region = atomic_load(&s.op->length);
            head.secret = s.op->id;
        }
        uint8_t raw[HW_CHUNK_HEAD];
        hw_chunk_encode(raw, &head);
        /* never -EAGAIN: its ring is as long as the window, and what is confirmed was released above */
        int rc = tp->post_send(c->conn, raw, v->space, v->ptr + s.off, s.len);
        if (rc) {
            c->tx_seq--;
            if (rc == -EBUSY) { /* no room for it here and now: it is the next that any channel takes */
                p->retry[p->nretry++] = s;
                atomic_fetch_add(&p->tx_work, 1);
            } else {
                give_up(&s, rc);
            }
            break;
        }
        if (c->win_n == 0) {
            c->rate_at = hw_now();
            c->rate_bytes = 0;
            hw_loop_want_tick(c->lane->loop); /* from now on its path is watched */
        }
        c->win[(c->win_head + c->win_n++) % c->window] = s;
        c->inflight_bytes += s.len;
        bytes += s.len;
    }
    return bytes;
}

bool hw_chan_send(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    const struct hw_transport *tp = p->h->tp;
    uint32_t turn = 0;
    bool busy = false;
    while (c->wr) {
        if (c->sending) {
            int rc = tp->test_send(c->conn);
            busy = rc == -EBUSY;
            if (rc == -EAGAIN) {
                c->wr = false;
            } else if (rc && !busy) {
                pthread_mutex_lock(&p->mu);
                if (rc == -ENXIO)
                    device_failed(c);
                hw_chan_kill(c, rc, hw_error());
                pthread_mutex_unlock(&p->mu);
                return false;
            }
            c->sending = rc != 0;
        }
        if (turn >= TURN_BYTES)
            return true;
        if (!atomic_load(&p->tx_work) || (c->sending && !tp->want(c->conn)))
            break;
        pthread_mutex_lock(&p->mu);
        tp->release_send(c->conn, (uint32_t)(c->tx_confirmed - c->tx_released));
        c->tx_released = c->tx_confirmed;
        uint32_t n = post(c);
        pthread_mutex_unlock(&p->mu);
        if (!n)
            break;
        c->sending = true;
        turn += n;
    }
    return busy;
}

/* ---- receiving ------------------------------------------------------------------------------------------- */

/* Under peer->mu: where the bytes of the current chunk from rx_done on go. NULL: nowhere. */
static uint8_t *destination(struct hw_chan *c, const struct hw_space **space, uint32_t *len)
{
    struct hawser_peer *p = c->peer;
    const struct hw_chunk_head *h = &c->rx_head;
    *len = h->len - c->rx_done;
    c->rx_op = NULL;
    c->rx_region = 0;
    if (h->type == HW_C_WRITE) {
        uint8_t *ptr;
        int rc = hw_region_find(p, h->region, h->secret, h->offset, h->len, HAWSER_REMOTE_WRITE, space, &ptr);
        if (rc) {
            hw_ctl_error(p, h->op, rc, hw_error());
            return NULL;
        }
        c->rx_region = h->region;
        return ptr;
    }
    struct hawser_op *op;
    if (h->type == HW_C_EAGER) {
        uint8_t *keep = NULL;
        op = hw_stream_eager(c, &keep);
        if (keep)
            return keep + c->rx_done;
    } else if (h->type == HW_C_STREAM) {
        op = hw_stream_chunk(p, h);
    } else {
        op = hw_hash_get(h->type == HW_C_SEND ? &p->by_remote : &p->by_id, h->op);
    }
    if (!op || op->aborting || op->type != (h->type == HW_C_READ ? HW_OP_READ : HW_OP_RECV))
        return NULL; /* called off meanwhile */
    uint64_t total = atomic_load(&op->length), room;
    if (h->offset > total || h->len > total - h->offset) {
        hw_op_abort(op, -EPROTO, "the peer sent bytes beyond the end of the operation");
        return NULL;
    }
    c->rx_op = op;
    uint8_t *ptr = hw_op_at(op, h->offset + c->rx_done, space, &room);
    *len = (uint32_t)HW_MIN(room, (uint64_t)*len);
    return ptr;
}

static int next_piece(struct hw_chan *c)
{
    const struct hw_space *space = &hw_host;
    uint32_t len;
    uint8_t *ptr = destination(c, &space, &len);
    if (c->rx_dropped) /* a chunk of which a piece was dropped counts for no operation */
        ptr = NULL;
    if (!ptr)
        c->rx_dropped = true;
    c->rx_piece = len;
    return c->peer->h->tp->post_recv(c->conn, space, ptr, len, c->rx_done + len < c->rx_head.len);
}

static int chunk_begins(struct hw_chan *c, const uint8_t *raw)
{
    int rc = hw_chunk_decode(raw, &c->rx_head);
    if (rc)
        return rc;
    if (c->rx_head.seq != c->rx_seq + 1)
        return hw_fail(-EPROTO, "chunk %llu came after chunk %llu", (unsigned long long)c->rx_head.seq,
                       (unsigned long long)c->rx_seq);
    c->rx_seq++;
    c->rx_done = 0;
    c->rx_dropped = false;
    return next_piece(c);
}

static int piece_done(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    c->rx_done += c->rx_piece;
    if (c->rx_done < c->rx_head.len)
        return next_piece(c);
    p->h->tp->consumed(c->conn);
    c->rx_count++;
    c->st.rx_chunks++;
    c->st.rx_bytes += c->rx_head.len;
    c->confirm_owed = true;
    c->rx_region = 0;
    struct hawser_op *op = c->rx_op;
    c->rx_op = NULL;
    if (op && !op->aborting)
        hw_op_arrived(op, c->rx_head.len);
    if (c->rx_head.type == HW_C_EAGER)
        hw_stream_eager_done(c);
    return 0;
}

bool hw_chan_recv(struct hw_chan *c)
{
    struct hawser_peer *p = c->peer;
    uint64_t moved = 0;
    /* The transport may take note here of what is news for sending, too, and nobody will hear of it again. */
    c->wr |= c->rd && p->h->tp->caps.one_event;
    while (c->rd) {
        const uint8_t *raw = NULL;
        int rc = p->h->tp->test_recv(c->conn, &raw, &moved);
        if (rc == -EAGAIN) {
            c->rd = false;
            break;
        }
        if (rc == -EBUSY)
            return true;
        pthread_mutex_lock(&p->mu);
        bool fin = rc == -EPIPE;
        if (rc == HW_RX_HEADER)
            moved += CHUNK_COST, rc = chunk_begins(c, raw);
        else if (rc == HW_RX_DONE)
            rc = piece_done(c);
        if (rc) {
            if (fin)
                p->remote_gone = true;
            if (rc == -ENXIO)
                device_failed(c);
            hw_chan_kill(c, rc, hw_error());
        }
        pthread_mutex_unlock(&p->mu);
        if (rc)
            return false;
        if (moved >= TURN_BYTES)
            return true;
    }
    return false;
}

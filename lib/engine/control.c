/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control connection: a stream of frames that survives the death of the TCP connection under it. What was sent and
 * not yet acknowledged (by HW_F_ACK, at this level) is kept; after a reconnect over any path each side says how much of
 * the other's stream it has taken in, and the rest is sent again. So a frame is neither lost nor seen twice.
 */
#include "engine/engine.h"
#include "transport/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TX_MIN      4096
#define TX_HARD_MAX (16u << 20)
#define RX_CAP      (2ul * HW_FRAME_MAX)
#define ACK_LAZY    (32ul * 1024) /* taken in and not acknowledged, where nobody waits for it */
/* A killed process can leave nothing but resets. So can a client that gave up every connection while all its NICs were
 * down, but it comes back within this. */
#define RESET_GRACE_MS 2000
#define RX_TURN        16

size_t hw_ctl_backlog(const struct hawser_peer *p)
{
    return p->ctl.tx_len;
}

static int room(struct hw_control *c, size_t n)
{
    if (c->tx_len + n <= c->tx_cap)
        return 0;
    size_t cap = HW_MAX(c->tx_cap, (size_t)TX_MIN);
    while (cap < c->tx_len + n)
        cap *= 2;
    if (cap > TX_HARD_MAX)
        return hw_fail(-ENOBUFS, "the peer takes no control frames in: %zu bytes wait for it", c->tx_len);
    uint8_t *tx = realloc(c->tx, cap);
    if (!tx)
        return hw_no_memory("control frames");
    c->tx = tx;
    c->tx_cap = cap;
    return 0;
}

static int add_raw(struct hawser_peer *p, uint8_t type, uint8_t flags, uint64_t id, const void *a, size_t na,
                   const void *b, size_t nb)
{
    struct hw_control *c = &p->ctl;
    int rc = room(c, HW_FRAME_HEAD + na + nb);
    if (rc)
        return rc;
    uint8_t *at = c->tx + c->tx_len;
    hw_frame_head(at, type, flags, id, (uint32_t)(na + nb));
    if (na)
        memcpy(at + HW_FRAME_HEAD, a, na);
    if (nb)
        memcpy(at + HW_FRAME_HEAD + na, b, nb);
    c->tx_len += HW_FRAME_HEAD + na + nb;
    return 0;
}

int hw_ctl_add(struct hawser_peer *p, uint8_t type, uint8_t flags, uint64_t id, const void *a, size_t na, const void *b,
               size_t nb)
{
    int rc = add_raw(p, type, flags, id, a, na, b, nb);
    if (rc)
        hw_peer_fail(p, rc, "%s", hw_error()); /* the stream cannot go on with a frame missing */
    return rc;
}

void hw_ctl_error(struct hawser_peer *p, uint64_t id, int rc, const char *text)
{
    uint8_t code[4];
    char cut[HW_ERR_TEXT];
    snprintf(cut, sizeof(cut), "%s", text);
    hw_put32(code, (uint32_t)-rc);
    if (hw_ctl_add(p, HW_F_ERROR, 0, id, code, 4, cut, strlen(cut)) == 0)
        hw_ctl_flush(p);
}

static void add_ack(struct hawser_peer *p)
{
    struct hw_control *c = &p->ctl;
    uint8_t body[8];
    hw_put64(body, p->matched);
    if (add_raw(p, HW_F_ACK, 0, c->rx_offset, body, 8, NULL, 0))
        return; /* no memory just now: it stays owed */
    c->ack_owed = false;
    c->rx_acked = c->rx_offset;
}

void hw_ctl_flush(struct hawser_peer *p)
{
    struct hw_control *c = &p->ctl;
    if (c->fd < 0 || c->broken)
        return;
    if (c->ack_owed)
        add_ack(p);
    while (c->tx_sent < c->tx_len && !c->blocked) {
        ssize_t n = send(c->fd, c->tx + c->tx_sent, c->tx_len - c->tx_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            c->tx_sent += (size_t)n;
        } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
            c->blocked = true; /* until epoll, or the next tick, says otherwise */
        } else if (errno != EINTR) {
            if (errno == EPIPE) /* not a bare reset: a FIN came before it (net/ipv4/tcp_input.c, tcp_reset()) */
                p->remote_gone = true;
            c->was_reset = n < 0 && errno == ECONNRESET;
            hw_ctl_break(p, "sending: %s", strerror(errno));
            return;
        }
    }
}

void hw_ctl_break(struct hawser_peer *p, const char *fmt, ...)
{
    struct hw_control *c = &p->ctl;
    if (c->fd < 0 || c->broken)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    c->broken = true;
    hw_lane_queue(&p->lanes[p->home->index]);
}

/* The peer has taken in our stream up to offset. */
static int acked(struct hawser_peer *p, uint64_t offset)
{
    struct hw_control *c = &p->ctl;
    if (offset < c->tx_base || offset - c->tx_base > c->tx_sent)
        return hw_fail(-EPROTO, "the peer acknowledges control bytes that were never sent");
    size_t n = (size_t)(offset - c->tx_base);
    /* Less than half is left where it is: what moves is then no more than what goes, however small the peer's steps. */
    if (n && n >= c->tx_len - n) {
        memmove(c->tx, c->tx + n, c->tx_len - n);
        c->tx_len -= n;
        c->tx_sent -= n;
        c->tx_base = offset;
    }
    if (c->tx_acked < p->fence_seq && offset >= p->fence_seq)
        hw_peer_queue_all(p);
    c->tx_acked = HW_MAX(c->tx_acked, offset);
    for (;;) {
        struct hawser_op *op = hw_list_first(&p->await_ack, struct hawser_op, queue);
        if (!op || op->seq > offset)
            break;
        atomic_store(&op->moved, atomic_load(&op->length));
        if (op->failing || !op->notify)
            hw_op_complete(op, op->failing, op->err);
        else
            hw_list_remove(&op->queue), hw_op_notify_now(op);
    }
    return 0;
}

static int handle(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hw_control *c = &p->ctl;
    if (f->type == HW_F_ACK) {
        int rc = acked(p, f->id);
        if (rc)
            return rc;
    }
    hw_ctl_frame(p, f);
    switch (f->type) {
    case HW_F_ACK:
        break;
    case HW_F_WRITE:
    case HW_F_SEND:
    case HW_F_NOTIFY:
    case HW_F_PING:
    case HW_F_SETUP:
        c->ack_owed = true; /* someone waits for it */
        break;
    default:
        if (c->rx_offset - c->rx_acked > ACK_LAZY)
            c->ack_owed = true;
    }
    return 0;
}

/* Heeds the frames at hand, unless a channel is to be closed first. 0, or why the peer has failed. */
static int heed(struct hawser_peer *p)
{
    struct hw_control *c = &p->ctl;
    size_t at = 0;
    int64_t size = 0;
    while (atomic_load(&p->state) >= 0 && !atomic_load(&p->kills)) {
        struct hw_frame f;
        size = hw_frame_parse(c->rx + at, c->rx_len - at, &f);
        if (size <= 0)
            break;
        at += (size_t)size;
        c->rx_offset += (uint64_t)size;
        size = handle(p, &f);
        if (size < 0)
            break;
    }
    memmove(c->rx, c->rx + at, c->rx_len - at);
    c->rx_len -= at;
    return size < 0 ? (int)size : 0;
}

bool hw_ctl_recv(struct hawser_peer *p, bool polling)
{
    struct hw_control *c = &p->ctl;
    bool any = false;
    for (int turn = 0; turn < RX_TURN; turn++) {
        if (c->fd < 0)
            return any;
        if (atomic_load(&p->kills)) { /* its end queues this lane */
            c->rd = c->paused = true;
            return any;
        }
        size_t space = c->paused ? 0 : RX_CAP - c->rx_len;
        ssize_t n = 0;
        /* Polling, what libc adds to the system call for the sake of thread cancellation is a tenth of it. */
        if (space)
            n = polling ? syscall(SYS_recvfrom, c->fd, c->rx + c->rx_len, space, MSG_DONTWAIT, NULL, NULL)
                        : recv(c->fd, c->rx + c->rx_len, space, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS)) {
            c->rd = false;
            return any;
        }
        pthread_mutex_lock(&p->mu);
        if (n <= 0 && space) {
            if (n == 0 && !c->broken) /* else sending has eaten the error that would stand here */
                p->remote_gone = true;
            c->was_reset = n < 0 && errno == ECONNRESET;
            hw_ctl_break(p, n == 0 ? "the peer closed it" : "receiving: %s", strerror(errno));
            pthread_mutex_unlock(&p->mu);
            c->rd = false;
            return true;
        }
        any = true;
        c->rx_len += (size_t)n;
        int rc = heed(p);
        if (rc)
            hw_peer_fail(p, rc, "%s", hw_error());
        if (c->ack_owed && hw_list_empty(&c->owing))
            hw_list_append(&p->home->owing, &c->owing);
        c->paused = atomic_load(&p->kills);
        pthread_mutex_unlock(&p->mu);
        if ((size_t)n < space && !c->ending && !c->paused) { /* that was all there is: epoll tells of more */
            c->rd = false;
            return true;
        }
    }
    return any;
}

void hw_ctl_ready(struct hw_source *s, uint32_t events)
{
    struct hw_control *c = hw_container_of(s, struct hw_control, src);
    struct hawser_peer *p = hw_container_of(c, struct hawser_peer, ctl);
    /* straight away: this is the path of small messages. More than a turn's worth waits for the lane. */
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        c->rd = true;
        /* Edge-triggered: where the last bytes and the end come in one event, no other follows for the end. */
        if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            c->ending = true;
        hw_ctl_recv(p, false);
    }
    pthread_mutex_lock(&p->mu);
    bool flush = c->blocked && events & EPOLLOUT;
    if (flush) {
        c->blocked = false;
        hw_ctl_flush(p);
    }
    pthread_mutex_unlock(&p->mu);
    if (c->rd)
        hw_lane_queue(&p->lanes[p->home->index]);
}

static void close_control(struct hawser_peer *p)
{
    struct hw_control *c = &p->ctl;
    hw_loop_forget(p->home, c->fd);
    if (p->said_bye) { /* in order: the BYE is still on its way */
        /* closed with bytes unread, the kernel would send a reset after it, which may overtake (tcp_close()) */
        for (int i = 0; i < RX_TURN &&
                        syscall(SYS_recvfrom, c->fd, NULL, (size_t)1 << 20, MSG_DONTWAIT | MSG_TRUNC, NULL, NULL) > 0;
             i++)
            ;
        hw_close(&c->fd);
    } else {
        hw_sock_abort(&c->fd);
    }
    c->broken = c->blocked = false;
    c->rx_len = 0; /* an unfinished frame comes again, whole, as do those not heeded yet */
    c->paused = false;
    c->tx_sent = 0; /* and so does all that was not acknowledged */
    c->down_since = hw_now();
    c->retry_at = 0;
    c->candidate = 0;
    hw_loop_want_tick(p->home);
}

int hw_ctl_install(struct hawser_peer *p, int fd, uint64_t peer_rx_offset)
{
    struct hw_control *c = &p->ctl;
    union hw_addr remote;
    socklen_t len = sizeof(remote);
    memset(&remote, 0, sizeof(remote));
    if (getpeername(fd, &remote.sa, &len) == 0)
        c->remote = remote;
    else if (p->client) /* reset already; and without an address there would be no way to resume it */
        return hw_fail(-ECONNRESET, "the peer closed the control connection as soon as it stood");
    if (peer_rx_offset < c->tx_base || peer_rx_offset - c->tx_base > c->tx_len)
        return hw_fail(-EPROTO, "the peer resumes the control stream at a place that never was");
    c->tx_sent = (size_t)(peer_rx_offset - c->tx_base);
    if (acked(p, peer_rx_offset))
        return -EPROTO;
    c->fd = fd;
    c->was_reset = false;
    c->ending = false;
    c->ack_owed = true;
    len = sizeof(c->local);
    (void)getsockname(fd, &c->local.sa, &len);
    hw_addr_unmap(&c->local);
    hw_addr_unmap(&c->remote);
    int rc = hw_loop_add(p->home, fd, &c->src);
    if (rc) {
        c->fd = -1;
        return rc;
    }
    hw_ctl_flush(p);
    return 0;
}

void hw_ctl_service(struct hawser_peer *p)
{
    struct hw_control *c = &p->ctl;
    pthread_mutex_lock(&p->mu);
    bool broken = c->broken;
    pthread_mutex_unlock(&p->mu);
    /* Sending fails first when the other side has closed: its last words, a BYE among them, are there to be read. */
    for (c->rd |= broken; broken && c->rd && atomic_load(&p->state) >= 0;) {
        hw_ctl_recv(p, false);
        broken = !c->paused; /* what is paused goes on in another turn */
    }
    pthread_mutex_lock(&p->mu);
    bool dead = atomic_load(&p->state) < 0;
    if (broken || (dead && c->fd >= 0)) { /* broken only now: the lane was queued for it again */
        if (!dead)
            hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: the control connection is lost: %s", p->name, c->why);
        close_control(p);
    }
    if (atomic_exchange(&c->has_new, false)) {
        pthread_mutex_lock(&p->h->mu);
        int fd = c->new_fd, rc = -ECONNRESET;
        uint64_t offset = c->new_rx_offset;
        bool first = c->new_first;
        c->new_fd = -1;
        pthread_mutex_unlock(&p->h->mu);
        if (fd >= 0 && c->fd >= 0)
            close_control(p);
        bool welcomed = fd >= 0 && !dead && hw_hs_welcome(fd, HW_OK, c->rx_offset) == 0;
        if (welcomed)
            rc = hw_ctl_install(p, fd, offset);
        if (rc)
            hw_close(&fd); /* not welcomed: the client has given this way up, and tries others */
        else if (!first)
            hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: the control connection is resumed", p->name);
        if (rc && welcomed)
            hw_peer_fail(p, rc, "taking over a control connection: %s", hw_error());
        if (rc == 0 && first)
            hw_setup_send(p);
    }
    pthread_mutex_unlock(&p->mu);
    if (c->rd)
        hw_ctl_recv(p, false);
}

/* ---- reconnecting (client) --------------------------------------------------------------------------------- */

static void reconnect_over(struct hawser_peer *p, int rc, const char *why)
{
    struct hw_control *c = &p->ctl;
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", why);
    hw_loop_forget(p->home, c->hs_fd);
    hw_sock_abort(&c->hs_fd);
    free(c->hs);
    c->hs = NULL;
    c->retry_at = hw_now() + 100 * HW_MS;
    c->candidate++;
    hw_log(&p->h->log, HAWSER_LOG_DEBUG, "%s: resuming the control connection: %s", p->name, text);
    /* Refused by every path: nobody listens there any more. One refusal could be a path that leads elsewhere. */
    if (rc == -ECONNREFUSED || rc == -ECONNRESET)
        c->refused++;
    else
        c->refused = 0;
    if (c->refused > p->npairs)
        hw_peer_fail(p, -ECONNRESET, "the peer is gone: %s", text);
}

static void reconnect_ready(struct hw_source *s, uint32_t events)
{
    (void)events;
    struct hw_control *c = hw_container_of(s, struct hw_control, hs_src);
    struct hawser_peer *p = hw_container_of(c, struct hawser_peer, ctl);
    if (!c->hs)
        return;
    pthread_mutex_lock(&p->mu);
    int rc = atomic_load(&p->state) < 0 ? -ECONNRESET : hw_hs_step(c->hs, c->hs_fd);
    if (rc == 0) {
        int fd = c->hs_fd;
        /* epoll knows it by hs_src; it is about to know it by src */
        hw_loop_forget(p->home, fd);
        rc = hw_ctl_install(p, fd, c->hs->welcome.rx_offset);
        if (rc == 0) {
            c->hs_fd = -1;
            free(c->hs);
            c->hs = NULL;
            c->refused = 0;
            hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: the control connection is resumed", p->name);
        }
    }
    if (rc && rc != -EAGAIN)
        reconnect_over(p, rc, hw_error());
    pthread_mutex_unlock(&p->mu);
}

/* The way that the k-th attempt takes: 0 is the original path, 1 on the NIC pairs. Pairs that have a channel up come
 * first, but for the one on which the connection was just lost: each wrong guess costs a second. */
static unsigned nth_way(const struct hawser_peer *p, unsigned k)
{
    unsigned per = p->npairs ? atomic_load(&p->nchans) / p->npairs : 0, other = 0, live = 0;
    bool good[HW_NIC_MAX + 1] = {false};
    for (unsigned w = 1; w <= p->npairs && w <= HW_NIC_MAX; w++) {
        const struct hw_chan *ch = &p->chans[(size_t)(w - 1) * per];
        for (unsigned i = 0; i < per && !good[w]; i++)
            good[w] = ch[i].state == HW_CH_UP && !hw_addr_same_host(&p->ctl.local, &ch[i].nic.addr);
        live += good[w];
    }
    k %= p->npairs + 1;
    bool want = k < live;
    for (unsigned w = 0; w <= p->npairs && w <= HW_NIC_MAX; w++)
        if (good[w] == want && other++ == (want ? k : k - live))
            return w;
    return 0;
}

static void reconnect(struct hawser_peer *p)
{
    struct hw_control *c = &p->ctl;
    const struct hw_nic *nic = NULL;
    union hw_addr to = c->remote;
    unsigned way = nth_way(p, c->candidate);
    if (way) {
        struct hw_chan *ch = &p->chans[(size_t)(way - 1) * (atomic_load(&p->nchans) / p->npairs)];
        nic = &ch->nic;
        if (hw_tcp_handle_addr(ch->handle, ch->handle_len, &to))
            to = c->remote;
    }
    c->hs = calloc(1, sizeof(*c->hs));
    if (!c->hs) {
        c->retry_at = hw_now() + 100 * HW_MS;
        return;
    }
    c->hs_fd = hw_sock_connect(nic, &to, &p->h->k);
    if (c->hs_fd < 0) {
        int rc = c->hs_fd;
        c->hs_fd = -1;
        reconnect_over(p, rc, hw_error());
        return;
    }
    struct hw_hello hello = {
        .kind = HW_BOOT_RESUME, .keyed = p->keyed, .session = p->session, .rx_offset = c->rx_offset};
    /* each way gets a second at most, so that a dead one does not hold up the others */
    hw_hs_client(c->hs, &hello, p->secret, HW_MIN(p->h->k.handshake_ms, 1000ull));
    c->hs_src.ready = reconnect_ready;
    int rc = hw_loop_add(p->home, c->hs_fd, &c->hs_src);
    if (rc)
        reconnect_over(p, rc, hw_error());
}

void hw_ctl_tick(struct hawser_peer *p, uint64_t now)
{
    struct hw_control *c = &p->ctl;
    const struct hw_knobs *k = &p->h->k;
    if (atomic_load(&p->state) < 0)
        return;
    if (p->client && !c->remote.sa.sa_family)
        return; /* hawser_connect() is still at the first connection */
    if (!p->client && atomic_load(&p->state) == 1 && now >= p->born + k->handshake_ms * HW_MS) {
        hw_peer_fail(p, -ETIMEDOUT, "it proved its key and then did not set up within %llu ms (knob handshake_ms)",
                     (unsigned long long)k->handshake_ms);
        return;
    }
    if (c->fd >= 0) {
        c->blocked = false;
        hw_ctl_flush(p);
        if (c->fd >= 0 && !c->broken && hw_sock_health(c->fd, k->stall_ms, k->peer_timeout_ms))
            hw_ctl_break(p, "%s", hw_error());
        /* Waiting with nothing of ours unacknowledged, TCP alone would not notice a dead path: ask. */
        if ((p->nops || p->nserved) && c->tx_sent == c->tx_len && now - c->last_ping >= k->stall_ms / 2 * HW_MS) {
            c->last_ping = now;
            if (hw_ctl_add(p, HW_F_PING, 0, 0, NULL, 0, NULL, 0) == 0)
                hw_ctl_flush(p);
        }
        return;
    }
    bool any_up = false;
    uint32_t n = atomic_load(&p->nchans);
    for (uint32_t i = 0; i < n; i++)
        any_up |= p->chans[i].state == HW_CH_UP;
    /* now was read before the loop's other peers had their tick: this one may have been made since */
    uint64_t down_ms = now > c->down_since ? (now - c->down_since) / HW_MS : 0;
    if (p->remote_gone && !any_up && down_ms >= HW_TICK_MS)
        hw_peer_fail(p, -ECONNRESET, "the peer's process is gone: it closed its connections without a word");
    else if (c->was_reset && !p->client && !any_up && down_ms >= RESET_GRACE_MS)
        hw_peer_fail(p, -ECONNRESET, "the peer's process is gone: its side of every connection was reset");
    else if (down_ms >= k->peer_timeout_ms)
        hw_peer_fail(p, -ETIMEDOUT, "no path to the peer for %llu ms (knob peer_timeout_ms); the last trouble: %s",
                     (unsigned long long)down_ms, c->why);
    else if (p->client && c->hs)
        (void)0; /* under way; its deadline is looked at below */
    else if (p->client && now >= c->retry_at)
        reconnect(p);
    if (c->hs && now >= c->hs->deadline)
        reconnect_over(p, -ETIMEDOUT, "no answer");
}

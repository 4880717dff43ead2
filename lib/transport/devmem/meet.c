/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/devmem/meet.h"
#include "transport/devmem/kernel.h"
#include "transport/tcp/sock.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORD       16
#define HEAD       8 /* the first bytes of a message, whose layout is the same in all versions */
#define VERSION    2
#define NO_GPU     0xffff
#define MAGIC      0x4d445748u /* "HWDM" */
#define PROBE      4096
#define BUFFER_MIN (64u << 10)

enum { OFFER = 1, READY = 2, VERDICT = 3 };

struct dm_meet {
    struct dm_meet_args a;
    uint64_t deadline;
    uint8_t out[3 * WORD], in[WORD];
    unsigned out_len, out_done, in_have;
    int mine[4], theirs[4]; /* one element for each message: -1 not sent or received yet, 0 no, 1 yes */
    int side;               /* descriptor of the second connection, or -1 */
    struct hw_hs *hs;       /* client: handshake on the second connection */
    bool side_up, side_lost;
    struct dm_claim *claim;
    struct dm_rx *rx;
    const struct dm_pool *pool;
    uint32_t dmabuf_id;
    char why[HW_ERR_TEXT]; /* reason why this side does not receive into device memory */
    uint32_t probe_out, probe_in, probe_device;
    bool probe_plain, probe_wrong;
};

static uint8_t probe_byte(uint32_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) + 7);
}

struct dm_meet *dm_meet_new(const struct dm_meet_args *a)
{
    struct dm_meet *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->a = *a;
    m->side = -1;
    m->deadline = hw_deadline((int)a->env->knobs->handshake_ms);
    for (int i = OFFER; i <= VERDICT; i++)
        m->mine[i] = m->theirs[i] = -1;
    return m;
}

void dm_meet_free(struct dm_meet *m)
{
    if (!m)
        return;
    dm_rx_free(m->rx);
    dm_claim_free(m->claim);
    hw_sock_abort(&m->side);
    free(m->hs);
    free(m);
}

/* ---- messages ---------------------------------------------------------------------------------------- */

static void queue_meet_message(struct dm_meet *m, int word, bool yes)
{
    if (m->mine[word] >= 0)
        return;
    m->mine[word] = yes;
    uint8_t *w = m->out + m->out_len;
    hw_put32(w, MAGIC);
    w[4] = (uint8_t)word;
    w[5] = yes;
    hw_put16(w + 6, VERSION);
    hw_put16(w + 8, m->a.gpu < 0 ? NO_GPU : (uint16_t)m->a.gpu);
    hw_put16(w + 10, m->a.peer_gpu < 0 ? NO_GPU : (uint16_t)m->a.peer_gpu);
    hw_put32(w + 12, 0);
    m->out_len += WORD;
}

/* Records the reason why this end receives through the host. */
static void set_fallback_reason(struct dm_meet *m, const char *why)
{
    if (*m->why)
        return;
    if (m->a.gpu >= 0)
        snprintf(m->why, sizeof(m->why), "for GPU %d: %s", m->a.gpu, why);
    else
        snprintf(m->why, sizeof(m->why), "%s", why);
}

static int send_meet_messages(struct dm_meet *m)
{
    while (m->out_done < m->out_len) {
        ssize_t n = send(m->a.heads, m->out + m->out_done, m->out_len - m->out_done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : hw_fail(-errno, "devmem negotiation: %s", strerror(errno));
        m->out_done += (unsigned)n;
    }
    return 0;
}

static int said_gpu(const uint8_t *at)
{
    const uint16_t gpu = hw_get16(at);
    return gpu == NO_GPU ? -1 : gpu;
}

/* Receives the peer's next message. Returns 1, 0 if it has not arrived yet or all messages were received, or a negative
 * errno. */
static int receive_meet_message(struct dm_meet *m)
{
    int next = OFFER;
    while (next <= VERDICT && m->theirs[next] >= 0)
        next++;
    if (next > VERDICT)
        return 0;
    while (m->in_have < WORD) {
        ssize_t n = recv(m->a.heads, m->in + m->in_have, WORD - m->in_have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : hw_fail(-errno, "devmem negotiation: %s", strerror(errno));
        if (n == 0)
            return hw_fail(-ECONNRESET, "the peer closed the connection during the devmem negotiation");
        m->in_have += (unsigned)n;
        if (m->in_have >= 4 && hw_get32(m->in) != MAGIC)
            return hw_fail(-EPROTO,
                           "the peer uses another transport: set knob transport to the same value on both sides");
        if (m->in_have >= HEAD && hw_get16(m->in + 6) != VERSION)
            return hw_fail(
                -EPROTO,
                "the peer uses version %u of the devmem negotiation, but this side uses %u: upgrade the older hawser",
                hw_get16(m->in + 6), VERSION);
    }
    if (m->in[4] != next || m->in[5] > 1)
        return hw_fail(
            -EPROTO,
            "devmem negotiation: received message %u with value %u where message %d with value 0 or 1 was expected",
            m->in[4], m->in[5], next);
    if (next == OFFER && !m->a.client) { /* the client specifies the GPUs of the connection */
        m->a.gpu = said_gpu(m->in + 10);
        m->a.peer_gpu = said_gpu(m->in + 8);
    }
    m->theirs[next] = m->in[5];
    m->in_have = 0;
    return 1;
}

/* ---- the second connection ---------------------------------------------------------------------------- */

static void side_lost(struct dm_meet *m, const char *why)
{
    m->side_lost = true;
    set_fallback_reason(m, why);
    hw_sock_abort(&m->side);
}

static int side_watch(struct dm_meet *m)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    return epoll_ctl(m->a.set, EPOLL_CTL_ADD, m->side, &ev)
               ? hw_fail(-errno, "watching a connection: %s", strerror(errno))
               : 0;
}

void dm_meet_side(struct dm_meet *m, int fd)
{
    if (m->side >= 0 || m->side_lost) { /* only one second connection is needed */
        hw_close(&fd);
        return;
    }
    m->side = fd;
    hw_sock_accepted(fd, m->a.env->knobs);
    hw_sock_buffers(fd, m->a.env->knobs);
    m->side_up = true;
    if (side_watch(m))
        side_lost(m, hw_error());
}

static int dial_side(struct dm_meet *m)
{
    const struct hw_conn_ident *id = m->a.ident;
    const struct hw_hello hello = {
        .kind = HW_BOOT_SIDE, .keyed = id->keyed, .session = id->session, .channel = id->channel, .gen = id->gen};
    m->hs = calloc(1, sizeof(*m->hs));
    if (!m->hs)
        return hw_no_memory("a connection");
    int fd = hw_sock_connect(m->a.from, m->a.to, m->a.env->knobs);
    if (fd < 0)
        return fd;
    m->side = fd;
    hw_sock_buffers(fd, m->a.env->knobs);
    hw_hs_client(m->hs, &hello, id->secret, m->a.env->knobs->handshake_ms);
    return side_watch(m);
}

/* The client opens the second connection. The server waits for this connection until the client's READY arrives. */
static void side_step(struct dm_meet *m)
{
    if (m->side_up || m->side_lost)
        return;
    if (!m->a.client) {
        if (m->theirs[READY] >= 0) /* the client sends READY once it has opened the connection or given up */
            side_lost(m, "the peer could not open the second connection");
        return;
    }
    int rc = m->side < 0 ? dial_side(m) : 0;
    if (rc == 0)
        rc = hw_hs_step(m->hs, m->side);
    if (rc == 0) {
        hw_sock_settled(m->side, m->a.env->knobs);
        m->side_up = true;
    } else if (rc != -EAGAIN) {
        side_lost(m, hw_error());
    }
}

/* ---- steering and probe ------------------------------------------------------------------------------------ */

/* Returns the limit of the kernel's autotuning of receive buffers, which is the last of the three numbers in
 * net.ipv4.tcp_rmem, or UINT64_MAX if it is unknown. */
static uint64_t autotuned_most(void)
{
    char text[96] = "";
    int fd = open("/proc/sys/net/ipv4/tcp_rmem", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    hw_close(&fd);
    const char *last = n > 0 ? strrchr(text, '\t') : NULL;
    uint64_t most = last ? strtoull(last + 1, NULL, 10) : 0;
    return most ? most : UINT64_MAX;
}

/*
 * Limits the receive buffer. The data that waits in the sockets of all connections that share the pool must leave some
 * pages free: a pool whose pages all hold out-of-order data, with no page for the missing data, never recovers. If
 * autotuning could exceed this connection's share of half the pool, a fixed buffer size replaces it. A limit on the
 * window alone is not sufficient, because autotuning removes this limit.
 */
static void bound_buffer(const struct dm_meet *m)
{
    uint64_t sharers = HW_MAX((uint64_t)dm_claim_sharers(m->claim), hw_knob_channels(m->a.env->knobs));
    uint64_t share = m->pool->buf.size / 2 / sharers;
    /* the kernel doubles the value */
    int half = (int)HW_MIN(HW_MAX(share / 2, (uint64_t)BUFFER_MIN), (uint64_t)INT_MAX / 2);
    if (autotuned_most() > share)
        (void)setsockopt(m->side, SOL_SOCKET, SO_RCVBUF, &half, sizeof(half));
}

static int claim_landing(struct dm_meet *m)
{
    int rc;
    if (!m->claim && (rc = dm_claim_new(m->a.ctx, m->a.nic, m->a.gpu, m->side, m->a.event, &m->claim)))
        return rc;
    if ((rc = dm_claim_test(m->claim, &m->pool, &m->dmabuf_id)))
        return rc;
    if (m->a.env->knobs->require_direct && m->a.gpu >= 0 &&
        (m->pool->space->direct || m->pool->space->device != m->a.gpu))
        return hw_fail(-EOPNOTSUPP, "payload would be placed in %s memory and then copied (knob devmem_memory is %s)",
                       m->pool->space->name, m->a.env->knobs->devmem_memory);
    return dm_rx_new(m->side, m->pool, m->dmabuf_id, &m->rx);
}

/* Requests steering. Returns 1 if the connection is steered, 0 if this is impossible (with the reason in why), or
 * -EAGAIN. */
static int request_steering(struct dm_meet *m)
{
    int rc = claim_landing(m);
    if (rc == -EAGAIN)
        return rc;
    if (rc) {
        set_fallback_reason(m, hw_error());
        return 0;
    }
    bound_buffer(m);
    return 1;
}

static int probe_send(struct dm_meet *m)
{
    uint8_t probe[PROBE];
    for (uint32_t i = 0; i < PROBE; i++)
        probe[i] = probe_byte(i);
    while (m->probe_out < PROBE) {
        ssize_t n = send(m->side, probe + m->probe_out, PROBE - m->probe_out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : hw_fail(-errno, "sending a probe: %s", strerror(errno));
        m->probe_out += (uint32_t)n;
    }
    return 0;
}

static int probe_look(struct dm_meet *m, const struct dm_received *r, const uint8_t *host)
{
    uint8_t bytes[PROBE];
    uint32_t tokens[DM_PIECES], n = 0;
    for (unsigned i = 0; i < r->n; i++) {
        const struct dm_piece *p = &r->piece[i];
        const uint8_t *at = host;
        if (p->len > PROBE - m->probe_in)
            return hw_fail(-EPROTO, "the probe has more than %d bytes", PROBE);
        if (p->device) {
            tokens[n++] = p->token;
            m->probe_device += p->len;
            if (p->dmabuf_id != m->dmabuf_id || p->offset > m->pool->buf.size || p->len > m->pool->buf.size - p->offset)
                return hw_fail(-EPROTO, "devmem receive: a piece is outside the bound memory");
            if (hw_load(m->pool->space, bytes, m->pool->buf.base + p->offset, p->len))
                return -ENXIO;
            at = bytes;
        } else {
            host += p->len;
        }
        for (uint32_t k = 0; k < p->len; k++)
            m->probe_wrong |= at[k] != probe_byte(m->probe_in + k);
        m->probe_in += p->len;
    }
    m->probe_plain |= r->plain;
    return n ? HW_MIN(dm_give_back(m->side, tokens, n), 0) : 0;
}

static int probe_receive(struct dm_meet *m)
{
    struct dm_received r;
    uint8_t host[PROBE];
    while (m->probe_in < PROBE) {
        ssize_t n = dm_recv(m->side, host, PROBE - m->probe_in, &r);
        if (n == -EAGAIN || n == -EBUSY)
            return 0;
        if (n <= 0)
            return n ? (int)n : hw_fail(-ECONNRESET, "the peer closed the connection before its probe had arrived");
        int rc = probe_look(m, &r, host);
        if (rc)
            return rc;
    }
    return 0;
}

/* Evaluates the complete probe. */
static bool probe_good(struct dm_meet *m)
{
    if (m->probe_wrong)
        set_fallback_reason(
            m, "the probe arrived with wrong bytes: the NIC does not write to the memory that hawser reads");
    else if (m->probe_plain)
        set_fallback_reason(m, "payload arrives as ordinary data, not in device memory (rx no cmsg): the flow rule "
                               "does not match, another rule sends it to a queue that is not bound, or the path uses "
                               "another NIC; see hawser devmem status");
    else if (m->probe_device < PROBE / 2)
        set_fallback_reason(m, "payload arrives in host memory: the NIC does not split headers from data (ethtool -G "
                               "NIC tcp-data-split on); see hawser devmem status");
    return !*m->why;
}

/* ---- the whole negotiation ---------------------------------------------------------------------------------- */

/* Runs one round: queues every message that can be decided now. */
static int round_of(struct dm_meet *m)
{
    int rc = 0;
    if (m->mine[OFFER] < 0) {
        if (dm_sys.to_self(m->a.heads))
            set_fallback_reason(
                m,
                "both ends are on this node: traffic within a node bypasses the NICs and never reaches device memory");
        queue_meet_message(m, OFFER, !*m->why);
    }
    while ((rc = receive_meet_message(m)) == 1)
        ;
    if (rc || m->theirs[OFFER] < 0)
        return rc;
    bool wanted = m->mine[OFFER] || m->theirs[OFFER];
    if (wanted)
        side_step(m);
    if (wanted && !m->side_up && !m->side_lost)
        return 0;
    if (m->mine[READY] < 0) {
        int ready = m->mine[OFFER] && m->side_up ? request_steering(m) : 0;
        if (ready != -EAGAIN)
            queue_meet_message(m, READY, ready);
    }
    if (m->theirs[READY] == 1) {
        if (!m->side_up)
            return hw_fail(-ECONNRESET, "the second connection of a devmem channel is lost");
        if ((rc = probe_send(m)))
            return rc;
    }
    if (m->mine[READY] == 1 && m->mine[VERDICT] < 0) {
        if ((rc = probe_receive(m)))
            return rc;
        if (m->probe_in == PROBE)
            queue_meet_message(m, VERDICT, probe_good(m));
    } else if (m->mine[READY] == 0) {
        queue_meet_message(m, VERDICT, false);
    }
    return 0;
}

static bool is_meeting_done(const struct dm_meet *m)
{
    return m->mine[VERDICT] >= 0 && m->theirs[VERDICT] >= 0 && m->out_done == m->out_len &&
           (m->theirs[READY] != 1 || m->probe_out == PROBE);
}

int dm_meet_late(const struct dm_meet *m)
{
    return hw_now() >= m->deadline ? hw_fail(-ETIMEDOUT, "the devmem negotiation did not end before the deadline") : 0;
}

int dm_meet_step(struct dm_meet *m, struct dm_met *out)
{
    int rc = round_of(m);
    if (rc || (rc = send_meet_messages(m)))
        return rc;
    if (!is_meeting_done(m))
        return dm_meet_late(m) ? -ETIMEDOUT : -EAGAIN;
    bool receive = m->mine[VERDICT], send_side = m->theirs[VERDICT];
    if (!receive)
        dm_ctx_warn(m->a.ctx, m->a.nic, true, m->why);
    else if (!send_side)
        dm_ctx_warn(m->a.ctx, m->a.nic, false, "the peer does not receive into device memory; see its log");
    if (m->a.env->knobs->require_direct && (!receive || !send_side)) {
        char why[HW_ERR_TEXT];
        snprintf(why, sizeof(why), "knob require_direct: no devmem over %s: %.150s", m->a.nic,
                 receive ? "the peer does not receive into device memory; see its log" : m->why);
        dm_ctx_kill(m->a.ctx, -EOPNOTSUPP, why);
        return hw_fail_copy(-EOPNOTSUPP, why);
    }
    *out = (struct dm_met){.send_side = send_side, .side = -1};
    if (receive) {
        out->rx = m->rx;
        out->claim = m->claim;
        m->rx = NULL;
        m->claim = NULL;
    }
    if (receive || send_side)
        out->side = hw_take_fd(&m->side);
    return 0;
}

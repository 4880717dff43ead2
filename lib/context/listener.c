/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context's one listening port accepts new sessions, connections of rails and probes of paths. Until a client has
 * proved that it knows the key, the client occupies one slot of a fixed table and one descriptor, both for a limited
 * time.
 *
 * The table does not stay full of unauthenticated clients. For a few seconds, the kernel holds back connections that
 * send nothing (TCP_DEFER_ACCEPT). If no slot is free, a new connection replaces an unauthenticated one (see
 * find_slot()). A connection whose client has named a session, or has proved that it knows the key, is never replaced.
 *
 * Connections are accepted and handled with the role of driver 0.
 */
#include "context/context.h"

#include "base/fork.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SLOTS           256 /* maximum number of connections in their handshake or set-up */
#define LOGS_PER_SECOND 20
#define DEFER_SECONDS   5
#define RETRY           (50 * HW_MS)    /* interval between attempts while descriptors, memory or slots are exhausted */
#define WARN_EVERY      (10000 * HW_MS) /* minimum interval between warnings that no connection can be accepted */

struct slot {
    struct hw_source source;
    struct hw_task task;
    struct hw_timer timer;
    struct hw_listener *l;
    int fd; /* -1 if the slot is free */
    union hw_addr from;
    uint64_t began;
    unsigned same; /* number of slots of the same address, including this one */
    enum { AT_GREETING, AT_ASK, AT_CHOICE } stage;
    struct hw_hs hs;
    uint8_t ask[HW_ASK_SIZE];
    uint32_t have, want;      /* bytes of ask or choice: received, and expected */
    uint8_t *choice;          /* the client's SETUP message, preceded by its length */
    struct hawser_peer *peer; /* counted reference to the peer of a new session */
};

struct hw_listener {
    struct hawser *h;
    struct hw_source source;
    struct hw_task task;
    struct hw_timer timer; /* retries after descriptors, memory or slots were exhausted */
    int fd;
    uint16_t port;
    union hw_addr bound;
    uint64_t log_second;
    unsigned logged, suppressed;
    int suppressed_level;  /* most important level of the suppressed lines */
    uint64_t next_warning; /* the next failure to accept a connection is logged from this time on */
    struct slot slot[SLOTS];
};

uint16_t hw_listener_port(const struct hawser *h)
{
    return h->listener ? h->listener->port : 0;
}

bool hw_listener_takes(const struct hawser *h, const union hw_addr *a)
{
    static const union hw_addr any4 = {.in.sin_family = AF_INET}, any6 = {.in6.sin6_family = AF_INET6};
    const union hw_addr *b = h->listener ? &h->listener->bound : &any6;
    return hw_addr_same_host(b, &any6) || (hw_addr_same_host(b, &any4) && a->sa.sa_family == AF_INET) ||
           hw_addr_same_host(b, a);
}

static struct hw_loop *get_loop(const struct hw_listener *l)
{
    return &l->h->driver[0].loop;
}

/* Logs a refused connection. The number of lines per second is limited, because a flood of connections must not flood
 * the log. */
static void log_refusal(struct hw_listener *l, int level, const union hw_addr *from, const char *why)
{
    char text[HAWSER_ADDR_TEXT + 8];
    uint64_t second = hw_now() / 1000000000u;
    if (second != l->log_second) {
        if (l->suppressed)
            hw_log(&l->h->log, l->suppressed_level, "%u more refused connection%s not logged", l->suppressed,
                   l->suppressed == 1 ? " was" : "s were");
        l->log_second = second;
        l->logged = l->suppressed = 0;
        l->suppressed_level = HAWSER_LOG_DEBUG;
    }
    if (l->logged++ >= LOGS_PER_SECOND) {
        l->suppressed++;
        l->suppressed_level = HW_MIN(l->suppressed_level, level);
    } else {
        hw_log(&l->h->log, level, "refused a connection from %s: %s", hw_addr_text(from, text, sizeof text), why);
    }
}

/* Logs that a connection cannot be accepted. The listener tries again every RETRY, and may fail for a long time. */
static void warn_of_accept(struct hw_listener *l, int error)
{
    uint64_t now = get_loop(l)->now;
    if (now < l->next_warning)
        return;
    l->next_warning = now + WARN_EVERY;
    hw_log(&l->h->log, HAWSER_LOG_WARN, "cannot accept a waiting connection now: %s%s", strerror(error),
           error == EMFILE ? ": raise RLIMIT_NOFILE (ulimit -n)" : "");
}

/* ---- slots ------------------------------------------------------------------------------------------------ */

/* Recounts the slots of this address after a slot was taken or freed. */
static void count_same(struct hw_listener *l, const union hw_addr *from)
{
    struct slot *same[SLOTS];
    unsigned n = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        if (l->slot[i].fd >= 0 && hw_addr_same_host(&l->slot[i].from, from))
            same[n++] = &l->slot[i];
    for (unsigned i = 0; i < n; i++)
        same[i]->same = n;
}

static void free_slot(struct slot *s)
{
    hw_timer_stop(get_loop(s->l), &s->timer);
    if (s->fd >= 0) {
        hw_driver_forget(&s->l->h->driver[0], s->fd, &s->source);
        hw_fork_close(&s->fd);
    }
    count_same(s->l, &s->from);
    free(s->choice);
    s->choice = NULL;
    if (s->peer)
        hw_peer_unref(s->peer);
    s->peer = NULL;
}

/* Logs the failure, closes the connection, and abandons a session that has not begun. */
static void refuse_slot(struct slot *s, int rc)
{
    struct hawser_peer *p = s->peer;
    /* not a refusal: `hawser doctor`, health checks and load balancers disconnect without sending a byte */
    const bool knock = rc == -ECONNRESET && s->stage == AT_GREETING && !s->hs.hello.kind && !s->hs.have;
    log_refusal(s->l, knock ? HAWSER_LOG_DEBUG : HAWSER_LOG_WARN, &s->from, hw_error());
    if (p && !p->known) { /* the session never began */
        atomic_store(&p->abandoned, true);
        hw_loop_post(&p->home->loop, &p->arrive);
    }
    free_slot(s);
}

static unsigned admit(void *arg, const struct hw_hello *hello, struct hw_challenge *c, uint8_t key[HW_SECRET])
{
    struct slot *s = arg;
    struct hawser *h = s->l->h;
    unsigned refusal = HW_OK;
    if (!hw_address_allowed(h->keyed, h->flags & HAWSER_INSECURE, &s->from))
        return HW_REFUSE_ADDRESS;
    pthread_mutex_lock(&h->lock);
    if (hello->kind == HW_BOOT_CONTROL) {
        if (h->n_peers >= h->k.max_peers)
            refusal = HW_REFUSE_FULL;
        memcpy(key, h->key, HW_SECRET);
        do
            hw_random(&c->session, sizeof c->session);
        while (c->session == 0 || hw_peer_by_session(h, c->session));
    } else {
        const struct hawser_peer *p = hw_peer_by_session(h, hello->session);
        if (p && atomic_load(&p->state) >= 0)
            memcpy(key, p->secret, HW_SECRET);
        else
            refusal = HW_REFUSE_SESSION;
        c->session = hello->session;
    }
    pthread_mutex_unlock(&h->lock);
    return refusal;
}

/* Receives into `to` until s->have reaches s->want. */
static int read_slot(struct slot *s, uint8_t *to)
{
    while (s->have < s->want) {
        ssize_t n = recv(s->fd, to + s->have, s->want - s->have, MSG_DONTWAIT);
        if (n == 0)
            return hw_fail(-ECONNRESET, "the client closed the connection after %u of %u bytes of a message", s->have,
                           s->want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -EAGAIN : hw_fail(-errno, "receiving from a client: %s", strerror(errno));
        s->have += (uint32_t)n;
    }
    return 0;
}

/* Sends a message that fits into an empty send buffer. */
static int send_all(int fd, const void *data, size_t len)
{
    ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 || (size_t)n != len)
        return hw_fail(n < 0 && errno != EAGAIN ? -errno : -EIO, "sending %zu bytes to a client: %s", len,
                       n < 0 ? strerror(errno) : "the socket accepted only a part of the message");
    return 0;
}

/* ---- new sessions ------------------------------------------------------------------------------------------- */

/* Creates the session's peer, adds it to the context and sends the offer. No rail can be connected yet. */
static int begin_session(struct slot *s)
{
    struct hawser *h = s->l->h;
    union hw_addr local = {0};
    socklen_t len = sizeof local;
    HW_AUTO_FREE uint8_t *offer = malloc(4 + HW_SETUP_FRAME);
    struct hawser_peer *p = offer ? hw_peer_new(h, false) : NULL;
    s->choice = p ? malloc(4 + HW_SETUP_FRAME) : NULL;
    if (!s->choice) {
        (void)hw_hs_welcome(s->fd, HW_REFUSE_FAILED, 0); /* a client without an answer would try again */
        if (p)
            hw_peer_unref(p);
        return hw_no_memory("a peer");
    }
    p->session = s->hs.challenge.session;
    hw_hs_secret(&s->hs, p->secret);
    hw_addr_text(&s->from, p->name, sizeof p->name);
    (void)getsockname(s->fd, &local.sa, &len);
    hw_addr_unmap(&local);
    int rc = hw_setup_offer(p, &local, &s->from, offer);
    pthread_mutex_lock(&h->lock);
    bool full = h->n_peers >= h->k.max_peers; /* other clients may have connected since admit() */
    if (rc >= 0 && !full) {
        hw_list_append(&h->peers, &p->in_context);
        h->n_peers++;
    }
    pthread_mutex_unlock(&h->lock);
    if (rc < 0 || full) {
        (void)hw_hs_welcome(s->fd, rc < 0 ? HW_REFUSE_FAILED : HW_REFUSE_FULL, 0);
        hw_peer_unref(p);
        return rc < 0 ? rc : hw_fail(-ENOBUFS, "the limit of connected peers has been reached (knob max_peers)");
    }
    s->peer = p;
    hw_peer_ref(p);
    int size = rc;
    rc = hw_hs_welcome(s->fd, HW_OK, 0);
    if (rc == 0)
        rc = send_all(s->fd, offer, (size_t)size);
    s->stage = AT_CHOICE;
    s->have = 0;
    s->want = 4;
    return rc;
}

/* Creates the rails that the client has chosen and reports the peer to the application. */
static int finish_session(struct slot *s)
{
    struct hawser_peer *p = s->peer;
    struct hawser *h = p->h;
    uint8_t ready[4];
    int rc = hw_setup_take_choice(p, s->choice + 4, s->want - 4);
    if (rc < 0)
        return rc;
    hw_put32(ready, HW_READY);
    pthread_mutex_lock(&h->lock);
    p->known = true;
    atomic_store(&p->state, HW_PEER_LIVES);
    if (!(h->flags & HAWSER_EVENTS)) {
        hw_list_append(&h->accepts, &p->in_accept);
        atomic_fetch_add(&h->n_accepts, 1);
        pthread_cond_broadcast(&h->someone);
    }
    pthread_mutex_unlock(&h->lock);
    hw_log(&h->log, HAWSER_LOG_INFO, "%s: peer connected", p->name);
    if (h->flags & HAWSER_EVENTS)
        hw_event_push(h, &p->arrived);
    else
        hw_event_signal(h, &h->driver[0]);
    (void)send_all(s->fd, ready, sizeof ready);
    hw_loop_post(&p->home->loop, &p->arrive); /* detects a client that connects no rail */
    return 0;
}

static int step_choice(struct slot *s)
{
    int rc = read_slot(s, s->choice);
    if (rc == 0 && s->want == 4) {
        uint32_t len = hw_get32(s->choice);
        if (len < HW_SETUP_HEAD || len > HW_SETUP_FRAME)
            return hw_fail(-EPROTO, "invalid length of a client's SETUP: %u bytes", len);
        s->want += len;
        rc = read_slot(s, s->choice);
    }
    return rc < 0 ? rc : finish_session(s);
}

/* ---- links, probes ----------------------------------------------------------------------------------------------- */

/* Passes the descriptor to the peer's home loop. */
static int hand_over(struct slot *s)
{
    struct hawser *h = s->l->h;
    struct hw_arrival *a = calloc(1, sizeof *a);
    if (!a)
        return hw_no_memory("a connection");
    hw_driver_forget(&h->driver[0], s->fd, &s->source);
    *a = (struct hw_arrival){.side = s->hs.hello.kind == HW_BOOT_SIDE,
                             .rail = s->hs.hello.channel >> 8,
                             .link = s->hs.hello.channel & 0xff,
                             .gen = s->hs.hello.gen};
    memcpy(a->ask, s->ask, sizeof a->ask);
    pthread_mutex_lock(&h->lock);
    struct hawser_peer *p = hw_peer_by_session(h, s->hs.hello.session);
    if (p) {
        a->fd = hw_take_fd(&s->fd);
        hw_list_append(&p->arrivals, &a->of_peer);
        hw_loop_post(&p->home->loop, &p->arrive); /* under the lock, so that the peer is not freed in the meantime */
    }
    pthread_mutex_unlock(&h->lock);
    if (!p) {
        free(a);
        (void)hw_hs_welcome(s->fd, HW_REFUSE_SESSION, 0);
        return hw_fail(-ESTALE, "its session has ended");
    }
    return 0;
}

/* Answers a probe: confirms that the path works and reports which of the offered addresses the connection arrived at.
 * Refuses the probe if there is no such session. */
static void answer_probe(struct slot *s)
{
    struct hawser *h = s->l->h;
    union hw_addr local = {0};
    socklen_t len = sizeof local;
    uint64_t by = 0;
    (void)getsockname(s->fd, &local.sa, &len);
    hw_addr_unmap(&local);
    pthread_mutex_lock(&h->lock);
    const struct hawser_peer *p = hw_peer_by_session(h, s->hs.hello.session);
    for (unsigned i = 0; p && i < p->n_offers && !by; i++)
        if (hw_addr_same_host(&p->offer[i], &local))
            by = i + 1u;
    pthread_mutex_unlock(&h->lock);
    (void)hw_hs_welcome(s->fd, p ? HW_OK : HW_REFUSE_SESSION, by);
}

/* Advances the connection. Returns 0 if the slot may be freed, -EAGAIN, or the error of the connection. */
static int step_slot(struct slot *s)
{
    int rc;
    if (s->stage == AT_GREETING) {
        rc = hw_hs_step(&s->hs, s->fd);
        if (rc < 0)
            return rc;
        if (s->hs.hello.kind == HW_BOOT_PROBE) {
            answer_probe(s);
            return 0;
        }
        s->have = 0;
        s->want = HW_ASK_SIZE;
        s->stage = AT_ASK;
        rc = s->hs.hello.kind == HW_BOOT_CONTROL ? begin_session(s) : 0;
        if (rc < 0)
            return rc;
        if (s->hs.hello.kind == HW_BOOT_SIDE)
            return hand_over(s);
        if (s->hs.hello.kind != HW_BOOT_CONTROL && s->hs.hello.kind != HW_BOOT_DATA)
            return hw_fail(-EPROTO, "unknown connection kind %u", s->hs.hello.kind);
        /* a client probes paths before it chooses */
        uint64_t ms = s->stage == AT_CHOICE ? s->l->h->k.path_ms + s->l->h->k.handshake_ms : s->l->h->k.handshake_ms;
        hw_timer_set(get_loop(s->l), &s->timer, get_loop(s->l)->now + ms * HW_MS);
    }
    if (s->stage == AT_CHOICE)
        return step_choice(s);
    rc = read_slot(s, s->ask);
    return rc < 0 ? rc : hand_over(s);
}

static void run_slot(struct hw_task *t)
{
    struct slot *s = hw_container_of(t, struct slot, task);
    if (s->fd < 0)
        return;
    int rc = step_slot(s);
    if (rc == -EAGAIN)
        return;
    if (rc < 0)
        refuse_slot(s, rc);
    else
        free_slot(s);
    hw_loop_post(get_loop(s->l), &s->l->task); /* other connections may wait for a slot */
}

static void note_slot_ready(struct hw_source *source, uint32_t events)
{
    (void)events;
    struct slot *s = hw_container_of(source, struct slot, source);
    hw_loop_post(get_loop(s->l), &s->task);
}

static void fire_slot(struct hw_timer *t)
{
    struct slot *s = hw_container_of(t, struct slot, timer);
    if (s->stage == AT_GREETING)
        (void)hw_fail(-ETIMEDOUT, "no complete handshake before the deadline: %u of %u bytes of a message arrived",
                      s->hs.have, s->hs.want);
    else
        (void)hw_fail(-ETIMEDOUT, "no complete setup before the deadline");
    refuse_slot(s, -ETIMEDOUT);
    hw_loop_post(get_loop(s->l), &s->l->task);
}

/* ---- accepting -------------------------------------------------------------------------------------- */

/* Returns true if the client has neither named a session nor proved that it knows the key. */
static bool is_stranger(const struct slot *s)
{
    return s->stage == AT_GREETING && (s->hs.hello.kind == 0 || s->hs.hello.kind == HW_BOOT_CONTROL);
}

/* Returns a free slot, or else the slot that a new connection may replace: among unauthenticated connections, the
 * oldest of the address with the most slots. The replacement happens at once, because a client that waits in the
 * kernel's queue behind thousands of others has a deadline. Returns NULL if no slot can be taken. */
static struct slot *find_slot(struct hw_listener *l)
{
    struct slot *victim = NULL;
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &l->slot[i];
        if (s->fd < 0)
            return s;
        if (!is_stranger(s))
            continue;
        if (!victim || s->same > victim->same || (s->same == victim->same && s->began < victim->began))
            victim = s;
    }
    return victim;
}

static void take_connection(struct hw_listener *l, struct slot *s, int fd, const union hw_addr *from)
{
    s->fd = hw_fork_guard(fd);
    s->from = *from;
    hw_sock_tune(fd, &l->h->k); /* small messages must not wait for acknowledgements */
    s->stage = AT_GREETING;
    s->began = get_loop(l)->now;
    count_same(l, from);
    hw_hs_server(&s->hs, l->h->keyed, admit, s, l->h->k.handshake_ms);
    int rc = hw_driver_watch(&l->h->driver[0], fd, &s->source);
    if (rc < 0) {
        refuse_slot(s, rc);
        return;
    }
    hw_timer_set(get_loop(l), &s->timer, s->began + l->h->k.handshake_ms * HW_MS);
    hw_loop_post(get_loop(l), &s->task); /* the client's first bytes have usually arrived already */
}

static void accept_connections(struct hw_task *t)
{
    struct hw_listener *l = hw_container_of(t, struct hw_listener, task);
    for (int i = 0; i < SLOTS && l->fd >= 0; i++) {
        union hw_addr from = {0};
        socklen_t len = sizeof from;
        struct slot *s = find_slot(l);
        if (!s) {
            hw_timer_set(get_loop(l), &l->timer, get_loop(l)->now + RETRY);
            return;
        }
        int fd = accept4(l->fd, &from.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno != EAGAIN) { /* usually out of descriptors or memory */
            warn_of_accept(l, errno);
            hw_timer_set(get_loop(l), &l->timer, get_loop(l)->now + RETRY);
        }
        if (fd < 0)
            return;
        hw_addr_unmap(&from);
        if (s->fd >= 0) {
            refuse_slot(s, hw_fail(-ETIMEDOUT,
                                   "it was closed to make room for a newer connection: all %d slots for connections "
                                   "during handshake or setup are taken, %u of them by this address",
                                   SLOTS, s->same));
        }
        take_connection(l, s, fd, &from);
    }
    hw_loop_post(get_loop(l), t);
}

static void note_listener_ready(struct hw_source *s, uint32_t events)
{
    (void)events;
    struct hw_listener *l = hw_container_of(s, struct hw_listener, source);
    hw_loop_post(get_loop(l), &l->task);
}

static void fire_listener(struct hw_timer *t)
{
    struct hw_listener *l = hw_container_of(t, struct hw_listener, timer);
    hw_loop_post(get_loop(l), &l->task);
}

/* ---- starting and stopping ------------------------------------------------------------------------------------- */

static int parse_addr(const char *text, uint16_t port, union hw_addr *out)
{
    memset(out, 0, sizeof *out);
    if (!text || !*text) {
        out->in6.sin6_family = AF_INET6;
        out->in6.sin6_addr = in6addr_any;
    } else if (inet_pton(AF_INET, text, &out->in.sin_addr) == 1) {
        out->in.sin_family = AF_INET;
    } else if (inet_pton(AF_INET6, text, &out->in6.sin6_addr) == 1) {
        out->in6.sin6_family = AF_INET6;
    } else {
        return hw_fail(-EINVAL, "\"%s\" is not a numeric IP address to listen on", text);
    }
    hw_addr_set_port(out, port);
    return 0;
}

static int open_listener(struct hw_listener *l, const char *addr, uint16_t port)
{
    int rc = parse_addr(addr, port, &l->bound), seconds = DEFER_SECONDS;
    socklen_t len = sizeof l->bound;
    if (rc < 0)
        return rc;
    l->fd = hw_fork_guard(hw_sock_listen(&l->bound, &l->h->k));
    if (l->fd == -EAFNOSUPPORT && (!addr || !*addr)) { /* the machine has no IPv6 */
        (void)parse_addr("0.0.0.0", port, &l->bound);
        l->fd = hw_fork_guard(hw_sock_listen(&l->bound, &l->h->k));
    }
    if (l->fd < 0) {
        rc = l->fd;
        l->fd = -1;
        return rc;
    }
    /* the client sends first, so the kernel may hold back the connection until data arrives */
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
    (void)getsockname(l->fd, &l->bound.sa, &len);
    l->port = hw_addr_port(&l->bound);
    return 0;
}

int hw_listener_start(struct hawser *h, const char *addr, uint16_t port, uint16_t *bound)
{
    struct hw_listener *l = calloc(1, sizeof *l);
    if (!l)
        return hw_no_memory("a listener");
    l->h = h;
    l->fd = -1;
    l->source.ready = note_listener_ready;
    l->task.run = accept_connections;
    l->timer.fire = fire_listener;
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &l->slot[i];
        s->l = l;
        s->fd = -1;
        s->source.ready = note_slot_ready;
        s->task.run = run_slot;
        s->timer.fire = fire_slot;
    }
    int rc = open_listener(l, addr, port);
    hw_driver_enter(&h->driver[0]);
    if (rc == 0 && h->listener)
        rc = hw_fail(-EBUSY, "the context is already listening, on port %u", h->listener->port);
    if (rc == 0)
        rc = hw_driver_watch(&h->driver[0], l->fd, &l->source);
    if (rc == 0) {
        h->listener = l;
        hw_loop_post(get_loop(l), &l->task);
    }
    hw_driver_end(&h->driver[0]);
    if (rc < 0) {
        hw_fork_close(&l->fd);
        free(l);
    } else if (bound) {
        *bound = l->port;
    }
    return rc;
}

void hw_listener_stop(struct hawser *h)
{
    struct hw_listener *l = h->listener;
    if (!l)
        return;
    hw_timer_stop(get_loop(l), &l->timer);
    if (l->fd >= 0)
        hw_driver_forget(&h->driver[0], l->fd, &l->source);
    hw_fork_close(&l->fd);
    for (unsigned i = 0; i < SLOTS; i++)
        free_slot(&l->slot[i]);
}

void hw_listener_free(struct hawser *h)
{
    free(h->listener);
    h->listener = NULL;
}

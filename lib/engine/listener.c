/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One listening port for everything: new sessions, data connections, resumed control connections. Until a client has
 * proved the key it costs one slot of a fixed table and a descriptor, both for a bounded time; strays are sent away
 * with a logged reason. Driven by loop 0.
 */
#include "engine/engine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LOGS_PER_SECOND 20

struct slot {
    struct hw_source src;
    struct hw_listener *l;
    int fd; /* -1: free */
    union hw_addr from;
    struct hw_hs hs;
};

struct hw_listener {
    struct hawser *h;
    struct hw_source src;
    int fd;
    uint16_t port;
    union hw_addr bound; /* an address of a family or "any" */
    bool pending;        /* connections wait in the kernel's queue for a slot */
    unsigned busy;
    uint64_t log_second; /* of the count below */
    unsigned logged, suppressed;
    struct slot slots[HW_HANDSHAKES];
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

/* A flood of strays must not become a flood of lines. */
static void log_refusal(struct hw_listener *l, const union hw_addr *from, const char *why)
{
    char text[HAWSER_ADDR_TEXT + 8];
    uint64_t second = hw_now() / 1000000000u;
    if (second != l->log_second) {
        if (l->suppressed)
            hw_log(&l->h->log, HAWSER_LOG_WARN, "%u more refused connections were not logged", l->suppressed);
        l->log_second = second;
        l->logged = l->suppressed = 0;
    }
    if (l->logged++ < LOGS_PER_SECOND)
        hw_log(&l->h->log, HAWSER_LOG_WARN, "refused a connection from %s: %s", hw_addr_text(from, text, sizeof(text)),
               why);
    else
        l->suppressed++;
}

static unsigned admit(void *arg, const struct hw_hello *hello, struct hw_challenge *c, uint8_t key[HW_SECRET])
{
    struct slot *s = arg;
    struct hawser *h = s->l->h;
    unsigned refusal = HW_OK;
    if (!hw_address_allowed(h->keyed, h->flags & HAWSER_INSECURE, &s->from))
        return HW_REFUSE_ADDRESS;
    pthread_mutex_lock(&h->mu);
    if (hello->kind == HW_BOOT_CONTROL) {
        if (h->npeers >= h->k.max_peers)
            refusal = HW_REFUSE_FULL;
        memcpy(key, h->key, HW_SECRET);
        do {
            hw_random(&c->session, sizeof(c->session));
        } while (c->session == 0 || hw_peer_by_session(h, c->session));
    } else {
        struct hawser_peer *p = hw_peer_by_session(h, hello->session);
        if (p && !p->client && atomic_load(&p->state) >= 0)
            memcpy(key, p->secret, HW_SECRET);
        else
            refusal = HW_REFUSE_SESSION;
        c->session = hello->session;
    }
    pthread_mutex_unlock(&h->mu);
    return refusal;
}

static void begin_session(struct slot *s)
{
    struct hawser *h = s->l->h;
    pthread_mutex_lock(&h->mu);
    bool full = h->npeers >= h->k.max_peers; /* others may have come in since admit() */
    pthread_mutex_unlock(&h->mu);
    struct hawser_peer *p = full ? NULL : hw_peer_new(h, false);
    if (!p) {
        (void)hw_hs_welcome(s->fd, HW_REFUSE_FULL, 0);
        hw_close(&s->fd);
        return;
    }
    p->session = s->hs.challenge.session;
    hw_hs_secret(&s->hs, p->secret);
    hw_addr_text(&s->from, p->name, sizeof(p->name));
    hw_sock_accepted(s->fd, &h->k);
    p->ctl.new_fd = s->fd;
    p->ctl.new_first = true;
    atomic_store(&p->ctl.has_new, true);
    p->ctl.remote = s->from;
    socklen_t len = sizeof(p->ctl.local);
    (void)getsockname(s->fd, &p->ctl.local.sa, &len);
    hw_addr_unmap(&p->ctl.local);
    s->fd = -1;
    pthread_mutex_lock(&h->mu);
    hw_list_append(&h->peers, &p->in_ctx);
    h->npeers++;
    pthread_mutex_unlock(&h->mu);
    hw_log(&h->log, HAWSER_LOG_INFO, "%s: a peer has connected", p->name);
    hw_loop_want_tick(p->home);
    hw_lane_queue(&p->lanes[p->home->index]);
}

/* The descriptor goes to the peer; its own loop does the rest. h->mu keeps the peer from being freed meanwhile. */
static unsigned join_session(struct slot *s)
{
    struct hawser *h = s->l->h;
    unsigned refusal = HW_REFUSE_SESSION;
    pthread_mutex_lock(&h->mu);
    struct hawser_peer *p = hw_peer_by_session(h, s->hs.hello.session);
    if (p && s->hs.hello.kind == HW_BOOT_RESUME) {
        hw_sock_abort(&p->ctl.new_fd);
        hw_sock_accepted(s->fd, &h->k);
        p->ctl.new_fd = s->fd;
        p->ctl.new_first = false;
        p->ctl.new_rx_offset = s->hs.hello.rx_offset;
        s->fd = -1;
        atomic_store(&p->ctl.has_new, true);
        hw_lane_queue(&p->lanes[p->home->index]);
        refusal = HW_OK;
    } else if (p && s->hs.hello.channel < atomic_load(&p->nchans)) {
        struct hw_chan *c = &p->chans[s->hs.hello.channel];
        struct hw_arrival *a = s->hs.hello.kind == HW_BOOT_SIDE ? &c->side : &c->fresh;
        hw_sock_abort(&a->fd);
        a->fd = s->fd;
        a->gen = s->hs.hello.gen;
        s->fd = -1;
        atomic_store(&c->lane->scan, true);
        hw_lane_queue(c->lane);
        refusal = HW_OK;
    }
    pthread_mutex_unlock(&h->mu);
    return refusal;
}

/* The path has led here; by which of our NICs, the answer says. */
static void answer_probe(struct slot *s)
{
    struct hawser *h = s->l->h;
    union hw_addr local;
    socklen_t len = sizeof(local);
    uint64_t by = 0;
    memset(&local, 0, sizeof(local));
    (void)getsockname(s->fd, &local.sa, &len);
    hw_addr_unmap(&local);
    pthread_mutex_lock(&h->mu);
    struct hawser_peer *p = hw_peer_by_session(h, s->hs.hello.session);
    for (uint16_t i = 0; p && i < p->n_offers && !by; i++)
        if (hw_addr_same_host(&p->offers[i], &local))
            by = i + 1u;
    pthread_mutex_unlock(&h->mu);
    (void)hw_hs_welcome(s->fd, p ? HW_OK : HW_REFUSE_SESSION, by);
    hw_close(&s->fd);
}

static void accept_some(struct hw_listener *l);

static void slot_done(struct slot *s)
{
    struct hw_listener *l = s->l;
    l->busy--;
    if (l->pending)
        accept_some(l);
}

static void slot_step(struct slot *s)
{
    struct hw_listener *l = s->l;
    int rc = hw_hs_step(&s->hs, s->fd);
    if (rc == -EAGAIN)
        return;
    hw_loop_forget(&l->h->loops[0], s->fd);
    if (rc) {
        log_refusal(l, &s->from, hw_error());
        hw_close(&s->fd);
    } else if (s->hs.hello.kind == HW_BOOT_CONTROL) {
        begin_session(s);
    } else if (s->hs.hello.kind == HW_BOOT_PROBE) {
        answer_probe(s);
    } else {
        unsigned refusal = join_session(s);
        if (refusal) {
            (void)hw_hs_welcome(s->fd, refusal, 0);
            hw_close(&s->fd);
        }
    }
    slot_done(s);
}

static void slot_ready(struct hw_source *src, uint32_t events)
{
    (void)events;
    struct slot *s = hw_container_of(src, struct slot, src);
    if (s->fd >= 0)
        slot_step(s);
}

/* A free slot, or the one that has been silent for longest, where that is a quarter of its time: those who connect and
 * say nothing are not to keep others out until their own deadlines have passed. */
static struct slot *find_slot(struct hw_listener *l)
{
    struct slot *oldest = &l->slots[0];
    for (unsigned i = 0; i < HW_HANDSHAKES; i++) {
        struct slot *s = &l->slots[i];
        if (s->fd < 0)
            return s;
        if (s->hs.deadline < oldest->hs.deadline)
            oldest = s;
    }
    return hw_now() + l->h->k.handshake_ms * HW_MS * 3 / 4 >= oldest->hs.deadline ? oldest : NULL;
}

static void accept_some(struct hw_listener *l)
{
    for (;;) {
        struct slot *s = find_slot(l);
        l->pending = !s;
        if (!s)
            return;
        union hw_addr from;
        socklen_t len = sizeof(from);
        memset(&from, 0, sizeof(from));
        int fd = accept4(l->fd, &from.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN) { /* out of descriptors or memory: try again at the next tick */
                l->pending = true;
                log_refusal(l, &from, strerror(errno));
                hw_loop_want_tick(&l->h->loops[0]);
            }
            return;
        }
        if (s->fd >= 0) {
            (void)hw_fail(-ETIMEDOUT, "others waited for its place, and it had sent %u of %u bytes", s->hs.have,
                          s->hs.want);
            log_refusal(l, &s->from, hw_error());
            hw_close(&s->fd);
            l->busy--;
        }
        hw_addr_unmap(&from);
        s->from = from;
        s->fd = fd;
        l->busy++;
        hw_hs_server(&s->hs, l->h->keyed, admit, s, l->h->k.handshake_ms);
        if (hw_loop_add(&l->h->loops[0], fd, &s->src)) {
            log_refusal(l, &s->from, hw_error());
            hw_close(&s->fd);
            l->busy--;
            continue;
        }
        hw_loop_want_tick(&l->h->loops[0]);
    }
}

static void listener_ready(struct hw_source *src, uint32_t events)
{
    (void)events;
    accept_some(hw_container_of(src, struct hw_listener, src));
}

bool hw_listener_tick(struct hawser *h, uint64_t now)
{
    struct hw_listener *l = h->listener;
    if (!l)
        return false;
    for (unsigned i = 0; i < HW_HANDSHAKES && l->busy; i++)
        if (l->slots[i].fd >= 0 && now >= l->slots[i].hs.deadline)
            slot_step(&l->slots[i]); /* finds its deadline passed */
    if (l->pending)
        accept_some(l);
    return l->busy || l->pending;
}

static int parse_addr(const char *text, uint16_t port, union hw_addr *out)
{
    memset(out, 0, sizeof(*out));
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

int hw_listener_start(struct hawser *h, const char *addr, uint16_t port, uint16_t *bound)
{
    union hw_addr a;
    int rc = parse_addr(addr, port, &a);
    if (rc)
        return rc;
    struct hw_listener *l = calloc(1, sizeof(*l));
    if (!l)
        return hw_no_memory("a listener");
    l->fd = hw_sock_listen(&a, &h->k);
    if (l->fd == -EAFNOSUPPORT && (!addr || !*addr)) { /* a machine without IPv6 */
        (void)parse_addr("0.0.0.0", port, &a);
        l->fd = hw_sock_listen(&a, &h->k);
    }
    if (l->fd < 0) {
        rc = l->fd;
        goto free_listener;
    }
    socklen_t len = sizeof(a);
    (void)getsockname(l->fd, &a.sa, &len);
    l->port = hw_addr_port(&a);
    l->bound = a;
    l->h = h;
    l->src.ready = listener_ready;
    for (unsigned i = 0; i < HW_HANDSHAKES; i++) {
        l->slots[i].l = l;
        l->slots[i].fd = -1;
        l->slots[i].src.ready = slot_ready;
    }
    /* driven by loop 0, which reads h->listener: publish it while nobody drives */
    hw_loop_acquire(&h->loops[0]);
    if (h->listener)
        rc = hw_fail(-EBUSY, "the context listens already, on port %u", h->listener->port);
    else if ((rc = hw_loop_add(&h->loops[0], l->fd, &l->src)) == 0)
        h->listener = l;
    hw_loop_release(&h->loops[0]);
    if (rc)
        goto close_fd;
    if (bound)
        *bound = l->port;
    return 0;
close_fd:
    hw_close(&l->fd);
free_listener:
    free(l);
    return rc;
}

void hw_listener_stop(struct hawser *h)
{
    struct hw_listener *l = h->listener;
    if (!l)
        return;
    h->listener = NULL;
    for (unsigned i = 0; i < HW_HANDSHAKES; i++)
        hw_close(&l->slots[i].fd);
    hw_close(&l->fd);
    free(l);
}

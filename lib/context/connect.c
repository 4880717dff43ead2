/* SPDX-License-Identifier: Apache-2.0 */
/* The public API's functions for connecting, listening, accepting and statistics. */
#include "context/context.h"

#include "base/fork.h"
#include "base/thread.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define STRAGGLERS_MS 200 /* additional time for the remaining rails once each working pair has a rail */
#define SPARES_MAX    (HW_SESSION_RAILS / 2)
#define GREETINGS     16  /* maximum number of attempts if the server closes the connection in the handshake */
#define PAUSE_MS      10  /* average pause after the first attempt; doubles with each attempt */
#define PAUSE_MOST_MS 320 /* maximum average pause */

int hawser_listen(hawser *h, const char *addr, uint16_t port, uint16_t *bound)
{
    char missing[2 * HAWSER_NIC_NAME + 32];
    int rc = hw_listener_start(h, addr, port, bound);
    /* A NIC may appear later, so this is no error. A connecting side reports an unknown NIC when it connects. */
    if (rc == 0 && hw_nics_missing(h->k.nics, missing, sizeof missing) > 0)
        hw_log(&h->log, HAWSER_LOG_WARN, "knob nics: no NIC of this machine is named %s; peers cannot use it yet",
               missing);
    return rc;
}

static bool is_someone_there(void *arg)
{
    const struct hawser *h = arg;
    return atomic_load(&h->n_accepts) + atomic_load(&h->n_graves) > 0;
}

/* Waits until a peer has connected, or has died before it was reported to the application. The caller drives the loop
 * only if no library thread does so: a caller that drives the loop takes the events that other callers wait for and
 * must wake these callers, and a thread may wait in hawser_accept() for hours. */
static bool wait_for_someone(struct hawser *h, uint64_t deadline)
{
    if (h->flags & HAWSER_CALLER_PROGRESS)
        return hw_driver_wait(&h->driver[0], is_someone_there, h, deadline);
    pthread_mutex_lock(&h->lock);
    while (!is_someone_there(h) && hw_now() < deadline) {
        struct timespec t = hw_timespec(deadline);
        pthread_cond_timedwait(&h->someone, &h->lock, &t);
    }
    pthread_mutex_unlock(&h->lock);
    return is_someone_there(h);
}

static struct hawser_peer *take_first(struct hawser *h, struct hw_list *list, atomic_uint *n)
{
    pthread_mutex_lock(&h->lock);
    struct hawser_peer *p = hw_list_first(list, struct hawser_peer, in_accept);
    if (p) {
        hw_list_remove(&p->in_accept);
        atomic_fetch_sub(n, 1);
    }
    pthread_mutex_unlock(&h->lock);
    return p;
}

int hawser_accept(hawser *h, int timeout_ms, hawser_peer **out)
{
    uint64_t deadline = hw_deadline(timeout_ms);
    *out = NULL;
    do {
        struct hawser_peer *p;
        int rc = h->tp->alive ? h->tp->alive(&h->env) : 0;
        if (rc < 0)
            return rc;
        while (atomic_load(&h->n_graves) && (p = take_first(h, &h->graves, &h->n_graves)))
            hawser_peer_close(p);
        if ((p = take_first(h, &h->accepts, &h->n_accepts))) {
            *out = p;
            return 0;
        }
        if (timeout_ms == 0)
            hw_driver_poll(&h->driver[0], NULL, NULL);
    } while (wait_for_someone(h, timeout_ms ? deadline : 0));
    return hw_fail(-EAGAIN, "no peer has connected within the timeout");
}

/* ---- the first connection ---------------------------------------------------------------------------------------- */

struct hw_connect {
    struct hawser_peer *p;
    struct hawser_connect_options o;
    char *nics, *peer_nics, *prefer, *host;
    uint16_t port;
    uint8_t key[HW_SECRET];
    uint64_t deadline;
    int timeout_ms;
    union hw_addr to; /* address that answered */
    int fd;
    pthread_t thread;
};

static void progress(void *arg)
{
    (void)hawser_progress(arg, 0);
}

/* Waits until fd is ready or approximately the given time has passed. May return earlier. */
static void wait_for_fd(struct hawser *h, int fd, short events, uint64_t until)
{
    uint64_t now = hw_now();
    int most = 60000;
    if (h->flags & HAWSER_CALLER_PROGRESS) { /* the server may be the same context */
        progress(h);
        most = 1;
    }
    struct pollfd pfd = {.fd = fd, .events = events};
    (void)poll(&pfd, 1, until <= now ? 1 : (int)HW_MIN((until - now) / HW_MS + 1, (uint64_t)most));
}

/* Connects to one address and runs the handshake. On success, sets c->fd and c->to, and the peer's name, session and
 * secret. */
static int greet(struct hw_connect *c, const union hw_addr *to)
{
    struct hawser_peer *p = c->p;
    struct hawser *h = p->h;
    char text[HAWSER_ADDR_TEXT + 8];
    HW_AUTO_FREE struct hw_hs *hs = calloc(1, sizeof *hs);
    HW_AUTO_CLOSE int fd = -1;
    hw_addr_text(to, text, sizeof text);
    if (!hs)
        return hw_no_memory("a connection");
    if (!hw_address_allowed(p->keyed, h->flags & HAWSER_INSECURE, to))
        return hw_fail(-EPERM,
                       "%s is neither loopback nor a lab address (198.18.0.0/15): give a job key (--key-file), or "
                       "allow an unauthenticated connection (--insecure)",
                       text);
    fd = hw_sock_connect(NULL, to, &h->k);
    if (fd < 0)
        return fd;
    struct hw_hello hello = {.kind = HW_BOOT_CONTROL, .keyed = p->keyed};
    hw_hs_client(hs, &hello, c->key, h->k.handshake_ms);
    int rc;
    while ((rc = hw_hs_step(hs, fd)) == -EAGAIN && hw_now() < c->deadline)
        wait_for_fd(h, fd, hs->want ? POLLIN : POLLOUT, HW_MIN(hs->deadline, c->deadline));
    if (rc == -EAGAIN)
        rc = hw_fail(-ETIMEDOUT, "no answer before the deadline");
    if (rc < 0)
        return hw_wrap(rc, "connecting to %s", text);
    p->session = hs->challenge.session;
    hw_hs_secret(hs, p->secret);
    memcpy(p->name, text, sizeof p->name);
    c->to = *to;
    c->fd = hw_fork_guard(hw_take_fd(&fd));
    return 0;
}

static int read_bytes(struct hw_connect *c, uint8_t *to, size_t len)
{
    for (size_t have = 0; have < len;) {
        ssize_t n = recv(c->fd, to + have, len - have, MSG_DONTWAIT);
        if (n == 0)
            return hw_fail(-ECONNRESET, "%s: the peer closed the connection during setup", c->p->name);
        if (n > 0)
            have += (size_t)n;
        else if (errno != EINTR && errno != EAGAIN)
            return hw_fail(-errno, "%s: connection setup: %s", c->p->name, strerror(errno));
        else if (hw_now() >= c->deadline)
            return hw_fail(-ETIMEDOUT, "%s: no answer before the deadline", c->p->name);
        else
            wait_for_fd(c->p->h, c->fd, POLLIN, c->deadline);
    }
    return 0;
}

static int write_bytes(const struct hw_connect *c, const uint8_t *data, size_t len)
{
    ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL);
    if (n < 0 || (size_t)n != len)
        return hw_fail(n < 0 ? -errno : -EIO, "%s: connection setup: %s", c->p->name,
                       n < 0 ? strerror(errno) : "the socket accepted only a part of the message");
    return 0;
}

/* ---- rails ----------------------------------------------------------------------------------------------------- */

/* Logs the paths, and a warning if fewer pairs of NICs are used than are possible. */
static void log_paths(struct hawser_peer *p, int possible)
{
    char why[400] = "";
    int used = 0;
    for (uint32_t i = 0; i < p->n_paths; i++) {
        const struct hawser_path *x = &p->paths[i];
        size_t at = strlen(why);
        used += x->state == HAWSER_PATH_USED || x->state == HAWSER_PATH_SPARE;
        bool ours = *x->nic;
        if (ours && *x->peer_nic)
            hw_log(&p->h->log, HAWSER_LOG_DEBUG, "%s: path %s %s to %s %s: %s", p->name, x->nic, x->local, x->peer_nic,
                   x->remote, x->state == HAWSER_PATH_USED ? "used" : x->why);
        else
            hw_log(&p->h->log, HAWSER_LOG_DEBUG, "%s: %s %s %s: %s", p->name, ours ? "NIC" : "the peer's NIC",
                   ours ? x->nic : x->peer_nic, ours ? x->local : x->remote, x->why);
        if (x->state != HAWSER_PATH_USED && x->state != HAWSER_PATH_SPARE && *x->nic)
            snprintf(why + at, sizeof why - at, "%s%s: %s", at ? "; " : "", x->nic, x->why);
    }
    if (p->paths && used < possible)
        hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: using only %d of %d pairs of NICs: %s", p->name, used, possible, why);
}

/* Finds the pairs of NICs, creates the rails and writes the client's choice to out. Returns the size of the choice or a
 * negative errno. */
static int agree_on_rails(struct hw_connect *c, const uint8_t *offer, size_t len, uint8_t *out)
{
    struct hawser_peer *p = c->p;
    struct hawser *h = p->h;
    struct hw_setup s;
    struct hw_pairing *g = NULL;
    struct hw_dial dial = {.env = &h->env,
                           .remote = c->to,
                           .session = p->session,
                           .keyed = p->keyed,
                           .insecure = h->flags & HAWSER_INSECURE,
                           .nics = c->nics,
                           .peer_nics = c->peer_nics,
                           .only_dialled = c->o.flags & HAWSER_ONLY_DIALLED,
                           .progress = h->flags & HAWSER_CALLER_PROGRESS ? progress : NULL,
                           .arg = h};
    socklen_t n = sizeof dial.local;
    memcpy(dial.secret, p->secret, HW_SECRET);
    (void)getsockname(c->fd, &dial.local.sa, &n);
    int rc = hw_setup_decode(offer, len, &s);
    if (rc == 0)
        rc = hw_setup_check_transport(h, offer, len);
    if (rc == 0)
        rc = hw_setup_agree_on_version(p, offer, len);
    if (rc == 0)
        rc = hw_pairing_new(&dial, offer, len, &s, &g);
    if (rc == 0)
        rc = hw_pairing_run(g, c->deadline);
    if (rc == 0)
        rc = hw_pairing_prefer(g, c->prefer);
    if (rc >= 0 && g) {
        unsigned spares = (unsigned)HW_MIN(rc, SPARES_MAX);
        g->n_pairs -= (unsigned)rc - spares;
        rc = hw_setup_choose(p, g, spares, c->o.channels ? c->o.channels : h->k.channels, out);
    }
    if (rc > 0 && g)
        log_paths(p, g->possible);
    hw_pairing_free(g);
    return rc < 0 ? hw_wrap(rc, "%s", p->name) : rc;
}

static int set_up(struct hw_connect *c)
{
    HW_AUTO_FREE uint8_t *offer = malloc(4 + HW_SETUP_FRAME), *choice = malloc(4 + HW_SETUP_FRAME);
    uint8_t ready[4];
    if (!offer || !choice)
        return hw_no_memory("a peer");
    int rc = read_bytes(c, offer, 4);
    uint32_t len = rc == 0 ? hw_get32(offer) : 0;
    if (rc == 0 && (len < HW_SETUP_HEAD || len > HW_SETUP_FRAME))
        rc = hw_fail(-EPROTO, "%s: invalid length of the peer's SETUP: %u bytes", c->p->name, len);
    if (rc == 0)
        rc = read_bytes(c, offer, len);
    if (rc == 0)
        rc = agree_on_rails(c, offer, len, choice);
    if (rc == -EPROTONOSUPPORT) { /* also report the reason to the server */
        HW_KEEP_ERROR();
        (void)write_bytes(c, choice, (size_t)hw_setup_refuse(c->p->h, choice));
        return rc;
    }
    if (rc > 0)
        rc = write_bytes(c, choice, (size_t)rc);
    if (rc == 0)
        rc = read_bytes(c, ready, sizeof ready);
    if (rc == 0 && hw_get32(ready) != HW_READY)
        rc = hw_fail(-EPROTO, "%s: the peer's answer to SETUP is %#x instead of %#x", c->p->name, hw_get32(ready),
                     HW_READY);
    return rc;
}

struct waiting {
    struct hawser_peer *p;
    bool all;
};

/* Returns true if the peer is dead, or once as many pairs of NICs have had a rail as were shown to work. If w->all is
 * set, all rails that are not spare must be up as well. */
static bool are_rails_up(void *arg)
{
    const struct waiting *w = arg;
    const struct hawser_peer *p = w->p;
    return atomic_load(&p->state) < 0 || (w->all ? atomic_load(&p->rails_up) == p->n_ways - p->n_spare
                                                 : atomic_load(&p->pairs_up) >= HW_MAX(p->n_sure, 1u));
}

/* Logs a warning that lists the pairs of NICs without a rail. */
static void log_missing(const struct hawser_peer *p)
{
    char pairs[400] = "";
    for (unsigned i = 0; i < p->n_pairs; i++) {
        const struct hw_way *of = NULL;
        bool up = false;
        for (unsigned k = 0; k < p->n_ways; k++)
            if (p->way[k].pair == i) {
                of = &p->way[k];
                up |= atomic_load(&of->up);
            }
        size_t at = strlen(pairs);
        if (of && !up && !of->spare)
            snprintf(pairs + at, sizeof pairs - at, "%s%s to %s", at ? ", " : "", of->nic, of->peer_nic);
    }
    hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: continuing with %u of %u rails; no connection is up from %s", p->name,
           atomic_load(&p->rails_up), p->n_ways - p->n_spare, *pairs ? pairs : "some NICs");
}

static int connect_rails(struct hw_connect *c)
{
    struct hawser_peer *p = c->p;
    struct waiting w = {.p = p};
    hw_driver_enter(p->home);
    atomic_store(&p->state, HW_PEER_LIVES);
    hw_ways_dial(p);
    hw_driver_end(p->home);
    bool all = hw_driver_wait(p->home, are_rails_up, &w, c->deadline);
    w.all = true;
    if (all) /* callers expect all the connections that they requested */
        (void)hw_driver_wait(p->home, are_rails_up, &w, HW_MIN(c->deadline, hw_now() + STRAGGLERS_MS * HW_MS));
    int rc = atomic_load(&p->state);
    if (rc < 0)
        return hw_fail_copy(rc, p->why);
    if (!atomic_load(&p->rails_up) && atomic_load(&p->pairs_up))
        return hw_fail(-ETIMEDOUT, "%s: all connections to the peer's NICs were lost during setup", p->name);
    if (!atomic_load(&p->rails_up))
        return hw_fail(-ETIMEDOUT,
                       "%s: the peer answers, but no connection to its NICs was established before the deadline",
                       p->name);
    if (!all)
        log_missing(p);
    return 0;
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

/* Waits for half to one and a half times the average pause, or until the deadline. The random part prevents clients
 * that were rejected together from retrying together. */
static void pause_greeting(const struct hw_connect *c, unsigned tries)
{
    uint32_t random;
    hw_random(&random, sizeof random);
    uint64_t ms = HW_MIN((uint64_t)PAUSE_MS << tries, PAUSE_MOST_MS), until = hw_now() + (ms / 2 + random % ms) * HW_MS;
    while (hw_now() < HW_MIN(until, c->deadline))
        wait_for_fd(c->p->h, -1, 0, HW_MIN(until, c->deadline));
}

/* Connects to the first of the n addresses at which the handshake succeeds. Tries again if the server closes the
 * connection in the handshake, as an overloaded server does. */
static int greet_any(struct hw_connect *c, const union hw_addr *to, int n)
{
    int rc = -EHOSTUNREACH;
    for (unsigned tries = 0;; tries++) {
        for (int i = 0; i < n && rc < 0; i++)
            rc = greet(c, &to[i]);
        if (rc != -ECONNRESET || tries + 1 == GREETINGS || hw_now() >= c->deadline)
            return rc;
        pause_greeting(c, tries);
    }
}

/* Connects the peer, and makes the peer known to the application. `done` is the event to report after a success, or
 * NULL. The events of the peer follow this event. */
static int run_connect(struct hw_connect *c, struct hw_event *done)
{
    struct hawser_peer *p = c->p;
    union hw_addr to[8];
    int n = hw_lookup(c->host, c->port, c->deadline, to, HW_ARRAY_LEN(to));
    int rc = n < 0 ? n : greet_any(c, to, n);
    if (rc == 0)
        rc = set_up(c);
    hw_fork_close(&c->fd);
    if (rc == 0)
        rc = connect_rails(c);
    if (rc < 0)
        return rc;
    hw_driver_enter(p->home);
    rc = hawser_peer_state(p); /* the peer may have died in the meantime */
    if (rc == 0 && done)
        hw_event_push(p->h, done);
    if (rc == 0)
        hw_peer_make_known(p);
    hw_driver_end(p->home);
    return rc;
}

static int read_connect_options(const struct hawser_connect_options *in, struct hawser_connect_options *o)
{
    memset(o, 0, sizeof *o);
    if (in && (in->size < sizeof(size_t) || in->size > 4096))
        return hw_fail(-EINVAL, "invalid hawser_connect_options.size: %zu", in->size);
    if (in)
        memcpy(o, in, HW_MIN(in->size, sizeof *o));
    if (o->flags & ~HAWSER_ONLY_DIALLED)
        return hw_fail(-EINVAL, "unknown flags 0x%x", o->flags & ~HAWSER_ONLY_DIALLED);
    if (o->key && (o->key_len < HW_KEY_MIN || o->key_len > HW_KEY_MAX))
        return hw_fail(-EINVAL, "invalid job key length: %zu bytes; %d to %d are allowed", o->key_len, HW_KEY_MIN,
                       HW_KEY_MAX);
    if (o->gpu > HW_GPU_MOST || o->peer_gpu > HW_GPU_MOST)
        return hw_fail(-EINVAL,
                       "invalid gpu %u or peer_gpu %u: must be 0 (not specified) or HAWSER_GPU(n) with n from 0 to %d",
                       o->gpu, o->peer_gpu, HW_GPU_MOST - 1);
    return 0;
}

static void free_connect(struct hw_connect *c)
{
    if (!c)
        return;
    free(c->nics);
    free(c->peer_nics);
    free(c->prefer);
    free(c->host);
    free(c);
}

/* Allocates the state of a connection attempt and adds its peer to the context. */
static int make_connect(struct hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                        int timeout_ms, struct hw_connect **out)
{
    struct hw_connect *c = *out = calloc(1, sizeof *c);
    int rc = c ? read_connect_options(opts, &c->o) : hw_no_memory("a peer");
    if (rc == 0) {
        c->deadline = hw_deadline(timeout_ms);
        if (c->deadline != HW_NEVER)
            c->deadline += h->env.caps.setup_ms * HW_MS;
        c->timeout_ms = timeout_ms;
        c->port = port;
        c->fd = -1;
        c->nics = strdup(c->o.nics && *c->o.nics ? c->o.nics : h->k.nics);
        c->peer_nics = strdup(c->o.peer_nics ? c->o.peer_nics : "");
        c->prefer = strdup(c->o.prefer ? c->o.prefer : "");
        c->host = strdup(host);
        c->p = c->nics && c->peer_nics && c->prefer && c->host ? hw_peer_new(h, true) : NULL;
        if (!c->p)
            rc = hw_no_memory("a peer");
    }
    if (rc < 0) {
        free_connect(c);
        *out = NULL;
        return rc;
    }
    if (c->o.key)
        hw_boot_key(c->key, c->o.key, c->o.key_len);
    else
        memcpy(c->key, h->key, sizeof c->key);
    c->p->keyed = c->o.key || h->keyed;
    c->p->gpu = (int)c->o.gpu - 1;
    c->p->peer_gpu = (int)c->o.peer_gpu - 1;
    pthread_mutex_lock(&h->lock);
    hw_list_append(&h->peers, &c->p->in_context);
    h->n_peers++;
    pthread_mutex_unlock(&h->lock);
    return 0;
}

int hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                   int timeout_ms, hawser_peer **out)
{
    struct hw_connect *c;
    *out = NULL;
    int rc = make_connect(h, host, port, opts, timeout_ms, &c);
    if (rc < 0)
        return rc;
    rc = run_connect(c, NULL);
    struct hawser_peer *p = c->p;
    free_connect(c);
    if (rc < 0) {
        HW_KEEP_ERROR();
        hawser_peer_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

static void *run_thread(void *arg)
{
    struct hw_connect *c = arg;
    struct hawser_peer *p = c->p;
    hw_own_thread = true;
    p->connect_result = 0; /* set before the event is reported */
    int rc = run_connect(c, &p->connected);
    if (rc == 0)
        return NULL;
    p->connect_result = rc;
    hw_driver_enter(p->home);
    hw_peer_kill(p, rc); /* not reported, because the peer is not known: HAWSER_CONNECTED reports the failure */
    hw_driver_end(p->home);
    hw_event_push(p->h, &p->connected);
    return NULL;
}

int hawser_connect_start(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                         int timeout_ms, uint64_t user, hawser_peer **out)
{
    struct hw_connect *c;
    *out = NULL;
    int rc = make_connect(h, host, port, opts, timeout_ms, &c);
    if (rc < 0)
        return rc;
    struct hawser_peer *p = c->p;
    p->connect_user = user;
    p->connecting = c;
    rc = hw_thread_start(&c->thread, run_thread, c, "a connecting thread");
    if (rc < 0) {
        p->connecting = NULL;
        free_connect(c);
        HW_KEEP_ERROR();
        hawser_peer_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void hw_connect_join(struct hawser_peer *p)
{
    struct hw_connect *c = p->connecting;
    if (!c)
        return;
    p->connecting = NULL;
    pthread_join(c->thread, NULL);
    free_connect(c);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

int hawser_channel_stats(hawser_peer *p, struct hawser_channel_stats *out, size_t *n)
{
    pthread_mutex_lock(&p->h->lock);
    for (unsigned i = 0; i < p->n_ways && i < *n; i++) {
        const struct hw_way *w = &p->way[i];
        const struct hw_rail_counts *c = &p->peer.session.rail[i].rail.counts;
        out[i] = (struct hawser_channel_stats){.index = i,
                                               .up = atomic_load(&w->up),
                                               .lost = atomic_load(&w->lost),
                                               .suspect = atomic_load(&p->peer.session.rail[i].rail.suspect),
                                               .tx_bytes = atomic_load(&c->tx_bytes),
                                               .rx_bytes = atomic_load(&c->rx_bytes),
                                               .tx_chunks = atomic_load(&c->tx_frames),
                                               .rx_chunks = atomic_load(&c->rx_frames),
                                               .retaken_chunks = atomic_load(&c->lost),
                                               .retaken_bytes = atomic_load(&c->lost_bytes),
                                               .rx_device_bytes = atomic_load(&w->counts.rx_device),
                                               .rx_copied_bytes = atomic_load(&w->counts.rx_copied),
                                               .tx_device_bytes = atomic_load(&w->counts.tx_device)};
        memcpy(out[i].nic, w->nic, sizeof w->nic);
        memcpy(out[i].peer_nic, w->peer_nic, sizeof w->peer_nic);
        memcpy(out[i].local, w->local, sizeof w->local);
        memcpy(out[i].remote, w->remote, sizeof w->remote);
    }
    pthread_mutex_unlock(&p->h->lock);
    *n = p->n_ways;
    return 0;
}

static int compare_nics(const void *a, const void *b)
{
    const struct hawser_nic_stats *x = a, *y = b;
    return strverscmp(x->nic, y->nic);
}

int hawser_nic_stats(hawser_peer *p, struct hawser_nic_stats *out, size_t *n)
{
    struct hawser_channel_stats c[HW_SESSION_RAILS];
    struct hawser_nic_stats all[HW_SESSION_RAILS];
    size_t have = HW_SESSION_RAILS, found = 0;
    (void)hawser_channel_stats(p, c, &have);
    for (size_t i = 0; i < have; i++) {
        size_t k = 0;
        while (k < found && strcmp(all[k].nic, c[i].nic) != 0)
            k++;
        if (k == found) {
            all[found] = (struct hawser_nic_stats){0};
            memcpy(all[found++].nic, c[i].nic, HAWSER_NIC_NAME);
        }
        all[k].channels++;
        all[k].channels_up += c[i].up;
        all[k].lost += c[i].lost;
        all[k].suspect += c[i].suspect;
        all[k].retaken_bytes += c[i].retaken_bytes;
        const struct hw_rail_counts *counts = &p->peer.session.rail[i].rail.counts;
        all[k].tx_bytes += c[i].tx_bytes + atomic_load(&counts->tx_small);
        all[k].rx_bytes += c[i].rx_bytes + atomic_load(&counts->rx_small);
        all[k].rx_device_bytes += c[i].rx_device_bytes;
        all[k].rx_copied_bytes += c[i].rx_copied_bytes;
        all[k].tx_device_bytes += c[i].tx_device_bytes;
    }
    qsort(all, found, sizeof *all, compare_nics); /* the order of the rails differs between peers */
    memcpy(out, all, HW_MIN(found, *n) * sizeof *out);
    *n = found;
    return 0;
}

int hawser_paths(hawser_peer *p, struct hawser_path *out, size_t *n)
{
    size_t room = *n;
    if (!p->paths) { /* the accepting side knows only its rails */
        struct hawser_nic_stats nic[HW_SESSION_RAILS];
        *n = HW_SESSION_RAILS;
        (void)hawser_nic_stats(p, nic, n);
        for (size_t i = 0; i < *n && i < room; i++) {
            out[i] = (struct hawser_path){
                .state = HAWSER_PATH_USED, .channels = nic[i].channels, .channels_up = nic[i].channels_up};
            memcpy(out[i].nic, nic[i].nic, HAWSER_NIC_NAME);
        }
        return 0;
    }
    for (uint32_t i = 0; i < p->n_paths && i < room; i++) {
        out[i] = p->paths[i];
        for (unsigned k = 0; k < p->n_ways && i < p->n_pairs; k++) {
            out[i].channels += p->way[k].pair == i;
            out[i].channels_up += p->way[k].pair == i && atomic_load(&p->way[k].up);
        }
        if (out[i].channels_up &&
            out[i].state == HAWSER_PATH_AWAITED) { /* a rail of the path came up after the pairing */
            out[i].state = HAWSER_PATH_USED;
            out[i].why[0] = 0;
        }
    }
    *n = p->n_paths;
    return 0;
}

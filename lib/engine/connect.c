/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting, listening, accepting: the public face of it. */
#include "engine/engine.h"

#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hawser_listen(hawser *h, const char *addr, uint16_t port, uint16_t *bound)
{
    return hw_listener_start(h, addr, port, bound);
}

static bool someone_there(void *arg)
{
    struct hawser *h = arg;
    return atomic_load(&h->naccepts) + atomic_load(&h->ngraves) > 0;
}

static struct hawser_peer *take_first(struct hawser *h, struct hw_list *list, atomic_uint *n)
{
    pthread_mutex_lock(&h->mu);
    struct hawser_peer *p = hw_list_first(list, struct hawser_peer, in_accept);
    if (p) {
        hw_list_remove(&p->in_accept);
        atomic_fetch_sub(n, 1);
    }
    pthread_mutex_unlock(&h->mu);
    return p;
}

int hawser_accept(hawser *h, int timeout_ms, hawser_peer **out)
{
    uint64_t deadline = timeout_ms ? hw_deadline(timeout_ms) : 0;
    *out = NULL;
    for (;;) {
        struct hawser_peer *p;
        int rc = h->tp->alive ? h->tp->alive(&h->env) : 0;
        if (rc) /* nobody who comes could be served */
            return rc;
        /* A peer cannot be freed by a loop, which would have to take every loop's role in turn. */
        while (atomic_load(&h->ngraves) && (p = take_first(h, &h->graves, &h->ngraves)))
            hawser_peer_close(p);
        if ((p = take_first(h, &h->accepts, &h->naccepts))) {
            *out = p;
            return 0;
        }
        if (!timeout_ms || !hw_loop_watch(&h->loops[0], someone_there, h, deadline))
            return hw_fail(-EAGAIN, "no peer has connected");
    }
}

static int resolve(const char *host, uint16_t port, union hw_addr *out, size_t max)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
    snprintf(service, sizeof(service), "%u", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc)
        return hw_fail(rc == EAI_SYSTEM   ? -errno
                       : rc == EAI_MEMORY ? -ENOMEM
                                          : -EHOSTUNREACH,
                       "looking up \"%s\": %s", host, gai_strerror(rc));
    size_t n = 0;
    for (struct addrinfo *i = list; i && n < max; i = i->ai_next) {
        if (i->ai_family != AF_INET && i->ai_family != AF_INET6)
            continue;
        memset(&out[n], 0, sizeof(out[n]));
        memcpy(&out[n++], i->ai_addr, i->ai_addrlen);
    }
    freeaddrinfo(list);
    return n ? (int)n : hw_fail(-EHOSTUNREACH, "\"%s\" has no IP address", host);
}

/* The session's first connection, in the caller's thread. Returns the descriptor. */
static int first_connection(struct hawser_peer *p, const union hw_addr *to, const uint8_t key[HW_SECRET],
                            uint64_t deadline, struct hw_hs *hs)
{
    struct hawser *h = p->h;
    char text[HAWSER_ADDR_TEXT + 8];
    hw_addr_text(to, text, sizeof(text));
    if (!hw_address_allowed(p->keyed, h->flags & HAWSER_INSECURE, to))
        return hw_fail(
            -EPERM,
            "%s is neither loopback nor a lab address (198.18.0.0/15): give a job key (--key-file), or ask for an "
            "unprotected connection (--insecure)",
            text);
    int fd = hw_sock_connect(NULL, to, &h->k);
    if (fd < 0)
        return fd;
    struct hw_hello hello = {.kind = HW_BOOT_CONTROL, .keyed = p->keyed};
    hw_hs_client(hs, &hello, key, h->k.handshake_ms);
    int rc;
    while ((rc = hw_hs_step(hs, fd)) == -EAGAIN) {
        uint64_t until = HW_MIN(hs->deadline, deadline), now = hw_now();
        if (now >= deadline) {
            rc = hw_fail(-ETIMEDOUT, "no answer in time");
            break;
        }
        int most = 60000;
        if (h->flags & HAWSER_CALLER_PROGRESS) { /* it may be this very context that is to answer */
            (void)hawser_progress(h, 0);
            most = 1;
        }
        /* writable means connected; after that only what the peer says matters */
        struct pollfd pfd = {.fd = fd, .events = hs->want ? POLLIN : POLLOUT};
        (void)poll(&pfd, 1, until <= now ? 1 : (int)HW_MIN((until - now) / HW_MS + 1, (uint64_t)most));
    }
    if (rc == 0)
        return fd;
    hw_sock_abort(&fd);
    return hw_wrap(rc, "connecting to %s", text);
}

struct connecting {
    struct hawser_peer *p;
    bool all;
};

/* Done when each NIC pair that works has a channel (all: every channel is up), or the peer is dead. */
static bool channels_up(void *arg)
{
    struct connecting *w = arg;
    struct hawser_peer *p = w->p;
    if (atomic_load(&p->state) < 0)
        return true;
    uint32_t n = atomic_load(&p->nchans);
    return n && (w->all ? atomic_load(&p->chans_up) == n : atomic_load(&p->pairs_up) >= p->npairs_sure);
}

static bool offer_there(void *arg)
{
    struct hawser_peer *p = arg;
    return atomic_load(&p->state) < 0 || atomic_load(&p->pairing);
}

/* Waits for the server's SETUP, tries the paths, and answers. */
static int set_up(struct hawser_peer *p, uint64_t deadline)
{
    if (!hw_loop_wait(p->home, offer_there, p, deadline, NULL))
        return hw_fail(-ETIMEDOUT, "connecting to %s: no answer in time", p->name);
    int rc = atomic_load(&p->state);
    if (rc < 0)
        return hw_fail_copy(rc, p->err);
    rc = hw_pairing_run(p->pairing, deadline);
    if (rc)
        return hw_wrap(rc, "%s", p->name);
    hw_loop_acquire(p->home);
    pthread_mutex_lock(&p->mu);
    rc = atomic_load(&p->state);
    rc = rc < 0 ? hw_fail_copy(rc, p->err) : hw_setup_answer(p, p->pairing);
    pthread_mutex_unlock(&p->mu);
    hw_loop_release(p->home);
    return rc;
}

/* A line where fewer NICs carry than could. */
static void log_paths(struct hawser_peer *p, int possible)
{
    char why[400] = "";
    for (uint32_t i = 0; i < p->npaths; i++) {
        const struct hawser_path *x = &p->paths[i];
        size_t at = strlen(why);
        hw_log(&p->h->log, HAWSER_LOG_DEBUG, "%s: path %s %s to %s %s: %s", p->name, x->nic, x->local, x->peer_nic,
               x->remote, x->state == HAWSER_PATH_USED ? "used" : x->why);
        if (x->state != HAWSER_PATH_USED && *x->nic)
            snprintf(why + at, sizeof(why) - at, "%s%s: %s", at ? "; " : "", x->nic, x->why);
    }
    if ((int)p->npairs_sure < possible)
        hw_log(&p->h->log, HAWSER_LOG_WARN, "%s: %u of %d NICs carry: %s", p->name, p->npairs_sure, possible, why);
}

static int connect_options(const struct hawser_connect_options *in, struct hawser_connect_options *o)
{
    memset(o, 0, sizeof(*o));
    if (in) {
        if (in->size < sizeof(size_t) || in->size > 4096)
            return hw_fail(-EINVAL, "hawser_connect_options.size is %zu", in->size);
        memcpy(o, in, HW_MIN(in->size, sizeof(*o)));
    }
    if (o->flags & ~HAWSER_ONLY_DIALLED)
        return hw_fail(-EINVAL, "unknown flags 0x%x", o->flags);
    if (o->key && (o->key_len < HW_KEY_MIN || o->key_len > HW_KEY_MAX))
        return hw_fail(-EINVAL, "a job key of %zu bytes; %d to %d are allowed", o->key_len, HW_KEY_MIN, HW_KEY_MAX);
    if (o->gpu > HW_GPU_MOST || o->peer_gpu > HW_GPU_MOST)
        return hw_fail(-EINVAL, "GPUs %u and %u: say HAWSER_GPU(n), n from 0 to %d", o->gpu, o->peer_gpu,
                       HW_GPU_MOST - 1);
    return 0;
}

static void drop(struct hawser_peer *p)
{
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", hw_error());
    hawser_peer_close(p);
    (void)hw_fail_copy(0, text);
}

int hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                   int timeout_ms, hawser_peer **out)
{
    struct hawser_connect_options o;
    union hw_addr to[8];
    uint64_t deadline = hw_deadline(timeout_ms);
    *out = NULL;
    int rc = connect_options(opts, &o);
    if (rc)
        return rc;
    int n = resolve(host, port, to, HW_ARRAY_LEN(to));
    if (n < 0)
        return n;
    struct hawser_peer *p = hw_peer_new(h, true);
    struct hw_hs *hs = calloc(1, sizeof(*hs));
    uint8_t key[HW_SECRET];
    if (o.key)
        hw_boot_key(key, o.key, o.key_len);
    else
        memcpy(key, h->key, sizeof(key));
    if (p) {
        p->keyed = o.key || h->keyed;
        const char *nics = o.nics && *o.nics ? o.nics : h->k.nics;
        p->want_nics = strdup(nics);
        p->want_peer_nics = strdup(o.peer_nics ? o.peer_nics : "");
        p->only_dialled = o.flags & HAWSER_ONLY_DIALLED;
        p->want_channels = o.channels;
        p->gpu = (int)o.gpu - 1;
        p->peer_gpu = (int)o.peer_gpu - 1;
        pthread_mutex_lock(&h->mu);
        hw_list_append(&h->peers, &p->in_ctx);
        h->npeers++;
        pthread_mutex_unlock(&h->mu);
    }
    if (!p || !hs || !p->want_nics || !p->want_peer_nics) {
        free(hs);
        rc = hw_no_memory("a peer");
        if (p)
            drop(p);
        return rc;
    }
    int fd = -1;
    for (int i = 0; i < n && fd < 0; i++) {
        hw_addr_text(&to[i], p->name, sizeof(p->name));
        fd = first_connection(p, &to[i], key, deadline, hs);
    }
    if (fd < 0) {
        free(hs);
        drop(p);
        return fd;
    }
    p->session = hs->challenge.session;
    hw_hs_secret(hs, p->secret);
    free(hs);
    hw_loop_acquire(p->home);
    pthread_mutex_lock(&p->mu);
    rc = hw_ctl_install(p, fd, 0);
    pthread_mutex_unlock(&p->mu);
    hw_loop_release(p->home);
    if (rc) {
        hw_close(&fd);
        drop(p);
        return rc;
    }
    hw_loop_want_tick(p->home);
    rc = set_up(p, deadline);
    int possible = rc ? 0 : p->pairing->possible;
    pthread_mutex_lock(&p->mu);
    hw_pairing_free(atomic_exchange(&p->pairing, NULL));
    p->set_up = true;
    pthread_mutex_unlock(&p->mu);
    if (rc) {
        drop(p);
        return rc;
    }
    log_paths(p, possible);
    deadline += h->tp->caps.setup_ms * HW_MS;
    struct connecting w = {.p = p};
    bool done = hw_loop_wait(p->home, channels_up, &w, deadline, NULL);
    if (done && atomic_load(&p->state) >= 0) {
        /* the stragglers of each NIC get a moment more: callers expect the channels they asked for */
        w.all = true;
        (void)hw_loop_wait(p->home, channels_up, &w, HW_MIN(deadline, hw_now() + 200 * HW_MS), NULL);
    }
    rc = atomic_load(&p->state);
    if (rc < 0) {
        rc = hw_fail_copy(rc, p->err);
    } else if (!atomic_load(&p->chans_up)) {
        rc = hw_fail(-ETIMEDOUT, "%s: the peer answers, but no channel to its NICs came up within %d ms", p->name,
                     timeout_ms);
    } else {
        if (!done)
            hw_log(&h->log, HAWSER_LOG_WARN, "%s: going on with %u of %u channels", p->name, atomic_load(&p->chans_up),
                   atomic_load(&p->nchans));
        *out = p;
        return 0;
    }
    drop(p);
    return rc;
}

int hawser_peer_state(hawser_peer *p)
{
    int rc = atomic_load(&p->state);
    return rc < 0 ? hw_fail_copy(rc, p->err) : 0;
}

const char *hawser_peer_name(hawser_peer *p)
{
    return p->name;
}

void hawser_peer_set_user(hawser_peer *p, void *user)
{
    p->user = user;
}

void *hawser_peer_user(hawser_peer *p)
{
    return p->user;
}

/* ---- statistics ------------------------------------------------------------------------------------ */

int hawser_channel_stats(hawser_peer *p, struct hawser_channel_stats *out, size_t *n)
{
    uint32_t have = atomic_load(&p->nchans);
    pthread_mutex_lock(&p->mu);
    for (uint32_t i = 0; i < have && i < *n; i++) {
        out[i] = p->chans[i].st;
        hw_chan_counts(&p->chans[i], &out[i]);
    }
    pthread_mutex_unlock(&p->mu);
    *n = have;
    return 0;
}

int hawser_paths(hawser_peer *p, struct hawser_path *out, size_t *n)
{
    uint32_t have = atomic_load(&p->nchans), k = 0;
    size_t room = *n;
    if (!have || !p->paths) { /* the accepting side knows of channels only */
        struct hawser_nic_stats nic[HW_NIC_MAX];
        *n = HW_NIC_MAX;
        (void)hawser_nic_stats(p, nic, n);
        *n = HW_MIN(*n, (size_t)HW_NIC_MAX);
        for (size_t i = 0; i < *n && i < room; i++) {
            out[i] = (struct hawser_path){
                .state = HAWSER_PATH_USED, .channels = nic[i].channels, .channels_up = nic[i].channels_up};
            memcpy(out[i].nic, nic[i].nic, HAWSER_NIC_NAME);
        }
        return 0;
    }
    uint32_t per = have / HW_MAX(p->npairs, 1u);
    pthread_mutex_lock(&p->mu);
    for (uint32_t i = 0; i < p->npaths && i < room; i++) {
        out[i] = p->paths[i];
        if (i >= p->npairs)
            continue;
        out[i].channels = per;
        for (; k < (i + 1) * per; k++)
            out[i].channels_up += p->chans[k].state == HW_CH_UP;
        if (out[i].channels_up && out[i].state == HAWSER_PATH_AWAITED) { /* it came up after all */
            out[i].state = HAWSER_PATH_USED;
            out[i].why[0] = 0;
        }
    }
    pthread_mutex_unlock(&p->mu);
    *n = p->npaths;
    return 0;
}

int hawser_nic_stats(hawser_peer *p, struct hawser_nic_stats *out, size_t *n)
{
    size_t found = 0;
    struct hawser_nic_stats all[HW_NIC_MAX];
    uint32_t have = atomic_load(&p->nchans);
    pthread_mutex_lock(&p->mu);
    for (uint32_t i = 0; i < have; i++) {
        struct hawser_channel_stats now = p->chans[i].st, *c = &now;
        hw_chan_counts(&p->chans[i], c);
        size_t k = 0;
        while (k < found && strcmp(all[k].nic, c->nic) != 0)
            k++;
        if (k == HW_NIC_MAX)
            continue;
        if (k == found) {
            memset(&all[k], 0, sizeof(all[k]));
            memcpy(all[k].nic, c->nic, HAWSER_NIC_NAME);
            found++;
        }
        all[k].channels++;
        all[k].channels_up += c->up;
        all[k].lost += c->lost;
        all[k].tx_bytes += c->tx_bytes;
        all[k].rx_bytes += c->rx_bytes;
        all[k].rx_device_bytes += c->rx_device_bytes;
        all[k].rx_copied_bytes += c->rx_copied_bytes;
        all[k].tx_device_bytes += c->tx_device_bytes;
    }
    pthread_mutex_unlock(&p->mu);
    memcpy(out, all, HW_MIN(found, *n) * sizeof(*out));
    *n = found;
    return 0;
}

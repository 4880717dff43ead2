/* SPDX-License-Identifier: Apache-2.0 */
/* The first frame each way: the server names its NICs as handles, the client pairs its own with them and says which
 * channels there are to be. */
#include "engine/engine.h"
#include "net/advertise.h"
#include "net/route.h"
#include "transport/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool wanted(const char *list, const struct hw_nic *n, bool loopback)
{
    if (list && *list)
        return hw_nic_listed(list, n->name);
    return n->loopback == loopback;
}

/* The NICs that this peer may use, as entries of a SETUP from body on: *s counts them. A listener that is bound to one
 * address offers that one's NIC. What no hardware is below runs over the other NICs, and is offered where the
 * connection came in by it, where there is nothing else, or where knob nics names it. */
static size_t list_offers(struct hawser_peer *p, const struct hw_nic *nics, int n, struct hw_setup *s, uint8_t *body)
{
    struct hawser *h = p->h;
    uint64_t device[HW_NIC_MAX];
    uint16_t port = hw_listener_port(h);
    size_t len = HW_SETUP_HEAD;
    /* a peer on this very machine gets the loopback, others everything else, unless the knob names NICs */
    bool loop = hw_addr_is_loopback(&p->ctl.remote);
    int fd = hw_route_open();
    hw_route_devices(fd, nics, (size_t)n, device);
    hw_close(&fd);
    for (int i = 0; i < n; i++) {
        const struct hw_nic *nic = &nics[i];
        bool here = hw_addr_same_host(&nic->addr, &p->ctl.local);
        if (!wanted(h->k.nics, nic, loop) || nic->addr.sa.sa_family != p->ctl.local.sa.sa_family ||
            !hw_listener_takes(h, &nic->addr) || (!device[i] && !*h->k.nics && !here && !loop))
            continue;
        struct hw_setup_entry e = {.handle_index = s->n};
        struct hw_nic shown = *nic;
        uint16_t at = port;
        if (hw_advertise_find(h->k.advertise, nic->name, here, port, &shown.addr))
            at = hw_addr_port(&shown.addr);
        memcpy(e.nic, nic->name, sizeof(e.nic));
        int hl = h->tp->listen(&h->env, &shown, at, e.handle);
        if (hl < 0)
            continue;
        e.handle_len = (uint16_t)hl;
        len += hw_setup_entry_encode(body + len, &e);
        p->offers[s->n++] = nic->addr;
        if (here)
            s->via = s->n;
    }
    return len;
}

int hw_setup_send(struct hawser_peer *p)
{
    struct hawser *h = p->h;
    struct hw_nic nics[HW_NIC_MAX];
    struct hw_setup s = {.unexpected = (uint32_t)HW_MIN(h->k.unexpected, (uint64_t)UINT32_MAX),
                         .max_ops = (uint32_t)HW_MIN(h->k.max_ops, (uint64_t)UINT32_MAX)};
    uint8_t *body = malloc(HW_SETUP_HEAD + HW_NIC_MAX * HW_SETUP_ENTRY_MAX + HW_SETUP_ITEM_MAX);
    if (!p->offers)
        p->offers = calloc(HW_NIC_MAX, sizeof(*p->offers));
    int n = body && p->offers ? hw_nics_list(nics, HW_NIC_MAX, p->ctl.local.sa.sa_family == AF_INET6) : -ENOMEM;
    if (n < 0) {
        free(body);
        hw_peer_fail(p, n, "setting up: %s", n == -ENOMEM ? "no memory" : hw_error());
        return n;
    }
    size_t len = list_offers(p, nics, n, &s, body);
    hw_setup_head(body, &s);
    len += hw_setup_transport_encode(body + len, h->env.ident);
    int rc = hw_ctl_add(p, HW_F_SETUP, 0, 0, body, len, NULL, 0);
    free(body);
    if (rc == 0) {
        pthread_mutex_lock(&h->mu);
        p->n_offers = s.n;
        pthread_mutex_unlock(&h->mu);
        p->setup_sent = true;
        hw_ctl_flush(p);
    }
    return rc;
}

static int make_channels(struct hawser_peer *p, uint32_t n)
{
    p->chans = calloc(n, sizeof(*p->chans));
    uint32_t window = (uint32_t)HW_MIN(p->h->k.window, (uint64_t)p->h->tp->caps.max_window);
    p->retry_cap = n * window;
    p->retry = calloc(p->retry_cap, sizeof(*p->retry));
    if (!p->chans || !p->retry)
        return hw_no_memory("%u channels", n);
    for (uint32_t i = 0; i < n; i++) {
        int rc = hw_chan_init(&p->chans[i], p, i);
        if (rc) {
            while (i-- > 0)
                hw_chan_free(&p->chans[i]);
            return rc;
        }
        p->chans[i].lane = &p->lanes[(p->home->index + i) % p->h->nloops];
    }
    return 0;
}

static void name_channel(struct hw_chan *c, const char *nic, const char *peer_nic)
{
    memcpy(c->st.nic, nic, HAWSER_NIC_NAME);
    memcpy(c->st.peer_nic, peer_nic, HAWSER_NIC_NAME);
    memcpy(c->nic.name, nic, HAWSER_NIC_NAME);
    memcpy(c->peer_nic, peer_nic, HAWSER_NIC_NAME);
}

/* ---- client ------------------------------------------------------------------------------------ */

/* Both sides must have the same transport, and the same plugin: 0, or what either has. */
static int compare_transports(const struct hawser_peer *p, const struct hw_frame *f)
{
    char theirs[HW_TRANSPORT_TEXT];
    const char *mine = p->h->env.ident;
    int rc = hw_setup_transport_decode(f->body, f->body_len, theirs);
    if (rc || !theirs[0] || strcmp(mine, theirs) == 0) /* an older peer does not say */
        return rc;
    return hw_fail(-EPROTONOSUPPORT,
                   "this side's transport is %s, the peer's is %s: both sides must have the same (knob transport)",
                   mine, theirs);
}

/* The same, and where they differ the server is told what this side has, so that it can name both too. */
static int meet_transport(struct hawser_peer *p, const struct hw_frame *f)
{
    uint8_t body[HW_SETUP_HEAD + HW_SETUP_ITEM_MAX];
    char why[HW_ERR_TEXT];
    int rc = compare_transports(p, f);
    if (rc != -EPROTONOSUPPORT)
        return rc;
    snprintf(why, sizeof(why), "%s", hw_error());
    hw_setup_head(body, &(struct hw_setup){0});
    const size_t len = HW_SETUP_HEAD + hw_setup_transport_encode(body + HW_SETUP_HEAD, p->h->env.ident);
    if (hw_ctl_add(p, HW_F_SETUP, 0, 0, body, len, NULL, 0) == 0)
        hw_ctl_flush(p);
    if (p->ctl.fd >= 0 && !p->ctl.broken)
        (void)shutdown(p->ctl.fd, SHUT_WR);
    p->said_bye = true; /* in order: what was just said still arrives */
    return hw_fail_copy(rc, why);
}

static void progress(void *arg)
{
    (void)hawser_progress(arg, 0);
}

/* hawser_connect() does the rest: trying paths takes time. */
static int client_setup(struct hawser_peer *p, const struct hw_frame *f, const struct hw_setup *s)
{
    if (atomic_load(&p->pairing) || p->set_up)
        return hw_fail(-EPROTO, "a second SETUP");
    struct hw_pairing *g = NULL;
    int rc = meet_transport(p, f);
    struct hawser *h = p->h;
    p->dial = (struct hw_dial){.tp = h->tp,
                               .env = &h->env,
                               .local = p->ctl.local,
                               .remote = p->ctl.remote,
                               .session = p->session,
                               .keyed = p->keyed,
                               .insecure = h->flags & HAWSER_INSECURE,
                               .nics = p->want_nics,
                               .peer_nics = p->want_peer_nics,
                               .only_dialled = p->only_dialled,
                               .progress = h->flags & HAWSER_CALLER_PROGRESS ? progress : NULL,
                               .arg = h};
    memcpy(p->dial.secret, p->secret, HW_SECRET);
    if (rc == 0)
        rc = hw_pairing_new(&p->dial, f->body, f->body_len, s, &g);
    if (rc)
        return rc;
    atomic_store(&p->pairing, g);
    hw_loop_notify(p->home);
    return 0;
}

int hw_setup_answer(struct hawser_peer *p, const struct hw_pairing *g)
{
    uint64_t per = p->want_channels ? p->want_channels : p->h->k.channels;
    if (per * g->n_pairs > HW_SETUP_MAX)
        return hw_fail(-E2BIG, "%llu channels on each of %u NIC pairs: a peer can have %d", (unsigned long long)per,
                       g->n_pairs, HW_SETUP_MAX);
    uint8_t *body = malloc(HW_SETUP_HEAD + HW_SETUP_MAX * HW_SETUP_ENTRY_MAX + HW_SETUP_ITEM_MAX);
    struct hw_setup mine = {.unexpected = (uint32_t)HW_MIN(p->h->k.unexpected, (uint64_t)UINT32_MAX),
                            .max_ops = (uint32_t)HW_MIN(p->h->k.max_ops, (uint64_t)UINT32_MAX),
                            .n = (uint16_t)(per * g->n_pairs)};
    int rc = body ? make_channels(p, mine.n) : hw_fail(-ENOMEM, "no memory to set up a peer");
    if (rc)
        goto out;
    size_t len = HW_SETUP_HEAD;
    hw_setup_head(body, &mine);
    for (uint32_t i = 0; i < mine.n; i++) {
        const struct hw_pair *pr = &g->pair[i / per];
        struct hw_chan *c = &p->chans[i];
        c->nic = pr->nic;
        name_channel(c, pr->nic.name, pr->peer_nic);
        memcpy(c->handle, pr->handle, sizeof(c->handle));
        c->handle_len = pr->handle_len;
        struct hw_setup_entry e = {.handle_index = pr->entry, .handle_len = HAWSER_NIC_NAME};
        memcpy(e.nic, pr->nic.name, sizeof(e.nic));
        /* the server names its own NIC by where the channel comes in; until then by this */
        memcpy(e.handle, pr->peer_nic, HAWSER_NIC_NAME);
        len += hw_setup_entry_encode(body + len, &e);
    }
    len += hw_setup_transport_encode(body + len, p->h->env.ident);
    p->npairs = g->n_pairs;
    for (uint32_t i = 0; i < g->n_pairs; i++)
        p->npairs_sure += g->pair[i].sure;
    p->paths = hw_pairing_report(g, &p->npaths);
    atomic_store(&p->nchans, mine.n);
    if ((rc = hw_ctl_add(p, HW_F_SETUP, 0, 0, body, len, NULL, 0)))
        goto out;
    p->setup_end = p->ctl.tx_base + p->ctl.tx_len;
    p->setup_sent = true;
    atomic_store(&p->state, 0);
    hw_ctl_flush(p);
out:
    free(body);
    return rc;
}

/* ---- server -------------------------------------------------------------------------------------- */

static int server_setup(struct hawser_peer *p, const struct hw_frame *f, const struct hw_setup *s)
{
    int rc = compare_transports(p, f);
    if (rc)
        return rc;
    if (s->n == 0)
        return hw_fail(-EPROTO, "the peer wants no channels");
    rc = make_channels(p, s->n);
    if (rc)
        return rc;
    size_t at = HW_SETUP_HEAD;
    for (uint16_t i = 0; i < s->n; i++) {
        struct hw_setup_entry e;
        char local[HAWSER_NIC_NAME];
        if ((rc = hw_setup_entry_decode(f->body, f->body_len, &at, &e)))
            break;
        memcpy(local, e.handle, HAWSER_NIC_NAME);
        local[HAWSER_NIC_NAME - 1] = 0;
        for (char *c = local; *c; c++)
            if (*c <= ' ' || *c > '~')
                *c = '?';
        name_channel(&p->chans[i], local, e.nic);
        bool new_nic = true;
        for (uint16_t k = 0; k < i; k++)
            new_nic &= strcmp(p->chans[k].peer_nic, e.nic) != 0;
        p->npairs += new_nic;
    }
    atomic_store(&p->nchans, s->n); /* they exist, and are freed, either way */
    if (rc)
        return rc;
    atomic_store(&p->state, 0);
    struct hawser *h = p->h;
    pthread_mutex_lock(&h->mu);
    p->known = true;
    hw_list_append(&h->accepts, &p->in_accept);
    atomic_fetch_add(&h->naccepts, 1);
    pthread_mutex_unlock(&h->mu);
    hw_loop_alert(&h->loops[0]);
    hw_event(h);
    return 0;
}

int hw_setup_received(struct hawser_peer *p, const struct hw_frame *f)
{
    struct hw_setup s;
    int rc = hw_setup_decode(f->body, f->body_len, &s);
    if (rc)
        return rc;
    if (atomic_load(&p->nchans) || p->chans)
        return hw_fail(-EPROTO, "a second SETUP");
    p->peer_unexpected = s.unexpected;
    p->peer_max_ops = s.max_ops;
    return p->client ? client_setup(p, f, &s) : server_setup(p, f, &s);
}

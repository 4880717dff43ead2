/* SPDX-License-Identifier: Apache-2.0 */
/* The first frame each way: the server names its NICs as handles, the client pairs its own with them and says which
 * channels there are to be. */
#include "engine/engine.h"
#include "transport/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is name in the comma-separated list? Its place, or -1. */
static int place_in(const char *list, const char *name)
{
    size_t n = strlen(name);
    int i = 0;
    for (const char *p = list; *p; i++) {
        size_t len = strcspn(p, ",");
        if (len == n && memcmp(p, name, n) == 0)
            return i;
        p += len;
        if (*p == ',')
            p++;
    }
    return -1;
}

/* Every name in list must be one of the n. */
static int all_known(const char *list, const char *whose, const char (*names)[HAWSER_NIC_NAME], size_t n)
{
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        bool found = false;
        char have[200] = "";
        for (size_t i = 0; i < n; i++) {
            found |= strlen(names[i]) == len && memcmp(names[i], p, len) == 0;
            if (!strstr(have, names[i]))
                snprintf(have + strlen(have), sizeof(have) - strlen(have), "%s%s", *have ? ", " : "", names[i]);
        }
        if (!found)
            return hw_fail(-ENODEV, "%s has no usable NIC \"%.*s\"; there are: %s", whose, (int)len, p, have);
        p += len;
        if (*p == ',')
            p++;
    }
    return 0;
}

static bool wanted(const char *list, const struct hw_nic *n, bool loopback)
{
    if (list && *list)
        return place_in(list, n->name) >= 0;
    return n->loopback == loopback;
}

int hw_setup_send(struct hawser_peer *p)
{
    struct hawser *h = p->h;
    struct hw_nic nics[HW_NIC_MAX];
    struct hw_setup s = {.unexpected = (uint32_t)HW_MIN(h->k.unexpected, (uint64_t)UINT32_MAX),
                         .max_ops = (uint32_t)HW_MIN(h->k.max_ops, (uint64_t)UINT32_MAX)};
    uint8_t *body = malloc(HW_SETUP_HEAD + HW_NIC_MAX * HW_SETUP_ENTRY_MAX);
    int n = body ? hw_nics_list(nics, HW_NIC_MAX, p->ctl.local.sa.sa_family == AF_INET6) : -ENOMEM;
    if (n < 0) {
        free(body);
        hw_peer_fail(p, n, "setting up: %s", n == -ENOMEM ? "no memory" : hw_error());
        return n;
    }
    size_t len = HW_SETUP_HEAD;
    uint16_t port = hw_listener_port(h);
    /* a peer on this very machine gets the loopback, others everything else, unless the knob names NICs */
    bool loop = hw_addr_is_loopback(&p->ctl.remote);
    for (int i = 0; i < n; i++) {
        if (!wanted(h->k.nics, &nics[i], loop) || nics[i].addr.sa.sa_family != p->ctl.local.sa.sa_family)
            continue;
        struct hw_setup_entry e = {.handle_index = s.n};
        memcpy(e.nic, nics[i].name, sizeof(e.nic));
        int hl = h->tp->listen(&h->env, &nics[i], port, e.handle);
        if (hl < 0)
            continue;
        e.handle_len = (uint16_t)hl;
        len += hw_setup_entry_encode(body + len, &e);
        s.n++;
    }
    hw_setup_head(body, &s);
    int rc = hw_ctl_add(p, HW_F_SETUP, 0, 0, body, len, NULL, 0);
    free(body);
    if (rc == 0) {
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
        return hw_fail(-ENOMEM, "no memory for %u channels", n);
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

struct pair {
    struct hw_nic nic;
    struct hw_setup_entry *to;
};

struct pairing {
    struct hw_nic nics[HW_NIC_MAX];
    int nnics;
    struct hw_setup_entry *entry;
    union hw_addr *addr; /* of each entry */
    bool *used;
    uint16_t nentries;
    struct pair pair[HW_NIC_MAX];
    uint32_t npairs;
};

static bool taken(const struct pairing *g, const char *nic)
{
    for (uint32_t i = 0; i < g->npairs; i++)
        if (strcmp(g->pair[i].nic.name, nic) == 0)
            return true;
    return false;
}

static void add_pair(struct pairing *g, const struct hw_nic *nic, uint16_t entry)
{
    g->pair[g->npairs++] = (struct pair){.nic = *nic, .to = &g->entry[entry]};
    g->used[entry] = true;
}

static bool is_ours(const struct pairing *g, const union hw_addr *a)
{
    for (int i = 0; i < g->nnics; i++)
        if (hw_addr_same_host(&g->nics[i].addr, a))
            return true;
    return false;
}

static int pair_up(struct hawser_peer *p, struct pairing *g)
{
    const char *mine = p->want_nics ? p->want_nics : "", *theirs = p->want_peer_nics ? p->want_peer_nics : "";
    bool loop = hw_addr_is_loopback(&p->ctl.remote);
    char names[HW_NIC_MAX][HAWSER_NIC_NAME];
    int rc;
    for (int i = 0; i < g->nnics; i++)
        memcpy(names[i], g->nics[i].name, HAWSER_NIC_NAME);
    if ((rc = all_known(mine, "this machine", (const char(*)[HAWSER_NIC_NAME])names, (size_t)g->nnics)))
        return rc;
    for (uint16_t i = 0; i < g->nentries && i < HW_NIC_MAX; i++)
        memcpy(names[i], g->entry[i].nic, HAWSER_NIC_NAME);
    if ((rc = all_known(theirs, "the peer", (const char(*)[HAWSER_NIC_NAME])names, HW_MIN(g->nentries, HW_NIC_MAX))))
        return rc;
    /* where this side would not go by itself it does not go because a server says so either */
    for (uint16_t e = 0; e < g->nentries; e++)
        if ((*theirs && place_in(theirs, g->entry[e].nic) < 0) || !hw_address_allowed(p->h, p->keyed, &g->addr[e]))
            g->used[e] = true;
    /* first by subnet */
    for (int i = 0; i < g->nnics; i++) {
        const struct hw_nic *n = &g->nics[i];
        if (!wanted(mine, n, loop) || taken(g, n->name))
            continue;
        for (uint16_t e = 0; e < g->nentries; e++) {
            /* a bridge such as docker0 has the same address on every machine: that is no path */
            if (g->used[e] || !hw_nic_reaches(n, &g->addr[e]) || (!loop && is_ours(g, &g->addr[e])))
                continue;
            add_pair(g, n, e);
            break;
        }
    }
    /* then, where the user named them, in order */
    for (int i = 0; *mine && i < g->nnics; i++) {
        const struct hw_nic *n = &g->nics[i];
        if (!wanted(mine, n, loop) || taken(g, n->name) || n->addr.sa.sa_family != p->ctl.remote.sa.sa_family)
            continue;
        for (uint16_t e = 0; e < g->nentries; e++) {
            if (!g->used[e]) {
                add_pair(g, n, e);
                break;
            }
        }
        if (!taken(g, n->name))
            return hw_fail(-ENODEV, "no NIC of the peer is left to pair %s with (--peer-nics)", n->name);
    }
    return 0;
}

/* Nothing shares a subnet (a routed network, an address translator): the path that the control connection took. */
static void pair_control_path(struct hawser_peer *p, struct pairing *g, struct hw_setup_entry *spare)
{
    struct hw_nic nic = {.addr = p->ctl.local};
    snprintf(nic.name, sizeof(nic.name), "default");
    for (int i = 0; i < g->nnics; i++)
        if (hw_addr_same_host(&g->nics[i].addr, &p->ctl.local))
            nic = g->nics[i];
    memset(spare, 0, sizeof(*spare));
    snprintf(spare->nic, sizeof(spare->nic), "default");
    for (uint16_t e = 0; e < g->nentries; e++)
        if (hw_addr_same_host(&g->addr[e], &p->ctl.remote))
            memcpy(spare->nic, g->entry[e].nic, sizeof(spare->nic));
    struct hw_nic there = {.addr = p->ctl.remote};
    int n = p->h->tp->listen(&p->h->env, &there, hw_addr_port(&p->ctl.remote), spare->handle);
    spare->handle_len = (uint16_t)HW_MAX(n, 0);
    g->pair[g->npairs++] = (struct pair){.nic = nic, .to = spare};
}

static int client_setup(struct hawser_peer *p, const struct hw_frame *f, const struct hw_setup *s)
{
    int rc = 0;
    struct pairing *g = calloc(1, sizeof(*g));
    struct hw_setup_entry spare;
    size_t n = HW_MAX(s->n, 1);
    if (g) {
        g->entry = calloc(n, sizeof(*g->entry));
        g->addr = calloc(n, sizeof(*g->addr));
        g->used = calloc(n, sizeof(*g->used));
    }
    uint8_t *body = malloc(HW_SETUP_HEAD + HW_SETUP_MAX * HW_SETUP_ENTRY_MAX);
    if (!g || !g->entry || !g->addr || !g->used || !body) {
        rc = hw_fail(-ENOMEM, "no memory to set up a peer");
        goto out;
    }
    size_t at = HW_SETUP_HEAD;
    g->nentries = s->n;
    for (uint16_t i = 0; i < s->n; i++)
        if ((rc = hw_setup_entry_decode(f->body, f->body_len, &at, &g->entry[i])) ||
            (rc = hw_tcp_handle_addr(g->entry[i].handle, g->entry[i].handle_len, &g->addr[i])))
            goto out;
    g->nnics = hw_nics_list(g->nics, HW_NIC_MAX, p->ctl.remote.sa.sa_family == AF_INET6);
    if (g->nnics < 0) {
        rc = g->nnics;
        goto out;
    }
    if ((rc = pair_up(p, g)))
        goto out;
    if (!g->npairs)
        pair_control_path(p, g, &spare);
    uint64_t per = p->want_channels ? p->want_channels : p->h->k.channels;
    if (per * g->npairs > HW_SETUP_MAX) {
        rc = hw_fail(-E2BIG, "%llu channels on each of %u NIC pairs: a peer can have %d", (unsigned long long)per,
                     g->npairs, HW_SETUP_MAX);
        goto out;
    }
    struct hw_setup mine = {.unexpected = (uint32_t)HW_MIN(p->h->k.unexpected, (uint64_t)UINT32_MAX),
                            .max_ops = (uint32_t)HW_MIN(p->h->k.max_ops, (uint64_t)UINT32_MAX),
                            .n = (uint16_t)(per * g->npairs)};
    if ((rc = make_channels(p, mine.n)))
        goto out;
    size_t len = HW_SETUP_HEAD;
    hw_setup_head(body, &mine);
    for (uint32_t i = 0; i < mine.n; i++) {
        const struct pair *pr = &g->pair[i / per];
        struct hw_chan *c = &p->chans[i];
        c->nic = pr->nic;
        name_channel(c, pr->nic.name, pr->to->nic);
        memcpy(c->handle, pr->to->handle, sizeof(c->handle));
        c->handle_len = pr->to->handle_len;
        struct hw_setup_entry e = {.handle_index = pr->to == &spare ? 0 : (uint16_t)(pr->to - g->entry)};
        memcpy(e.nic, pr->nic.name, sizeof(e.nic));
        /* the server names its own NIC by the handle; where it cannot, by this */
        memcpy(e.handle, pr->to->nic, HAWSER_NIC_NAME);
        e.handle_len = HAWSER_NIC_NAME;
        len += hw_setup_entry_encode(body + len, &e);
    }
    p->npairs = g->npairs;
    atomic_store(&p->nchans, mine.n);
    if ((rc = hw_ctl_add(p, HW_F_SETUP, 0, 0, body, len, NULL, 0)))
        goto out;
    p->setup_end = p->ctl.tx_base + p->ctl.tx_len;
    p->setup_sent = true;
    atomic_store(&p->state, 0);
    hw_ctl_flush(p);
out:
    free(body);
    if (g) {
        free(g->entry);
        free(g->addr);
        free(g->used);
    }
    free(g);
    return rc;
}

/* ---- server -------------------------------------------------------------------------------------- */

static int server_setup(struct hawser_peer *p, const struct hw_frame *f, const struct hw_setup *s)
{
    if (s->n == 0)
        return hw_fail(-EPROTO, "the peer wants no channels");
    int rc = make_channels(p, s->n);
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

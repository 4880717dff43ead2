/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on the first connection: the server offers its NICs, and the client replies with the rails to use. Each
 * message is a SETUP (wire.h) preceded by its length as a u32. */
#include "context/context.h"

#include "net/advertise.h"
#include "net/route.h"
#include "transport/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define RAILS_MAX HW_SESSION_RAILS

/* ---- server: the offer ----------------------------------------------------------------------------------- */

static bool is_wanted(const char *list, const struct hw_nic *n, bool loopback)
{
    return list && *list ? hw_nic_listed(list, n->name) : n->loopback == loopback;
}

/* Writes a NIC's entry to out and returns the entry's size. */
static size_t add_offer(struct hawser_peer *p, const struct hw_nic *nic, bool here, struct hw_setup *s, uint8_t *out)
{
    struct hawser *h = p->h;
    struct hw_setup_entry e = {.handle_index = s->n};
    struct hw_nic shown = *nic;
    uint16_t port = hw_listener_port(h), at = port;
    if (hw_advertise_find(h->k.advertise, nic->name, here, port, &shown.addr))
        at = hw_addr_port(&shown.addr);
    memcpy(e.nic, nic->name, sizeof e.nic);
    e.handle_len = hw_address_handle_encode(e.handle, &shown.addr, at);
    p->offer[s->n++] = nic->addr;
    if (here)
        s->via = s->n;
    return hw_setup_entry_encode(out, &e);
}

/* A listener that is bound to one address offers only the NIC of this address. Virtual interfaces without hardware run
 * over the other NICs. The server offers virtual interfaces only if the connection arrived over them or over loopback,
 * or if knob nics is set. */
int hw_setup_offer(struct hawser_peer *p, const union hw_addr *local, const union hw_addr *remote, uint8_t *out)
{
    struct hawser *h = p->h;
    struct hw_nic nics[HW_NIC_MAX];
    uint64_t device[HW_NIC_MAX];
    struct hw_setup s = {0};
    /* without knob nics, a loopback connection is offered only the loopback interface, and others only other NICs */
    bool loop = hw_addr_is_loopback(remote);
    int n = hw_nics_list(nics, HW_NIC_MAX, local->sa.sa_family == AF_INET6);
    if (n < 0)
        return n;
    int fd = hw_route_open();
    hw_route_devices(fd, nics, (size_t)n, device);
    hw_close(&fd);
    size_t len = HW_SETUP_HEAD;
    for (int i = 0; i < n; i++) {
        bool here = hw_addr_same_host(&nics[i].addr, local);
        if (is_wanted(h->k.nics, &nics[i], loop) && nics[i].addr.sa.sa_family == local->sa.sa_family &&
            hw_listener_takes(h, &nics[i].addr) && (device[i] || *h->k.nics || here || loop))
            len += add_offer(p, &nics[i], here, &s, out + 4 + len);
    }
    hw_setup_head(out + 4, &s);
    len += hw_setup_transport_encode(out + 4 + len, h->env.ident);
    len += hw_setup_versions_encode(out + 4 + len, HW_SESSION_LEAST, HW_SESSION_MOST);
    hw_put32(out, (uint32_t)len);
    p->n_offers = s.n;
    return (int)len + 4;
}

/* ---- the client's choice ------------------------------------------------------------------------------------ */

/* Fails unless both sides use the same transport. */
int hw_setup_check_transport(const struct hawser *h, const uint8_t *body, size_t len)
{
    char theirs[HW_TRANSPORT_TEXT];
    int rc = hw_setup_transport_decode(body, len, theirs);
    if (rc < 0 || strcmp(h->env.ident, theirs) == 0)
        return rc;
    return hw_fail(
        -EPROTONOSUPPORT,
        "this side uses transport %s, but the peer uses %s: set knob transport to the same value on both sides",
        h->env.ident, *theirs ? theirs : "an unknown one");
}

int hw_setup_agree_on_version(struct hawser_peer *p, const uint8_t *body, size_t len)
{
    uint16_t least, most;
    int rc = hw_setup_versions_decode(body, len, &least, &most);
    if (rc < 0)
        return rc;
    p->version = HW_MIN(most, HW_SESSION_MOST);
    if (p->version < least || p->version < HW_SESSION_LEAST)
        return hw_fail(-EPROTONOSUPPORT,
                       "the peer supports session protocol versions %u to %u, but this side supports %u to %u: upgrade "
                       "the older hawser",
                       least, most, HW_SESSION_LEAST, HW_SESSION_MOST);
    return 0;
}

#define CHANNELS_MAX 16
#define CHANNEL_MBPS 25000 /* approximate rate at which one thread copies */
#define FILES_SHARE  128   /* above the minimum, a peer has at most RLIMIT_NOFILE / 128 channels */

/* Returns the number of channels per pair of NICs if knob channels is 0. A single connection can keep a thread busy
 * with copying, so fast NICs get more than HW_CHANNELS_LEAST if there are enough loops. Transports that carry payload
 * on a separate connection do not copy in this way, and get HW_CHANNELS_LEAST. */
static uint64_t count_channels(const struct hawser *h, const uint64_t *mbps, unsigned pairs)
{
    struct rlimit files = {0};
    uint64_t needed = 0, n = h->n_drivers / pairs;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    n = HW_MIN(n, (uint64_t)files.rlim_cur / FILES_SHARE / pairs);
    if (h->tp->io->apart || n <= HW_CHANNELS_LEAST)
        return HW_CHANNELS_LEAST;
    for (unsigned i = 0; i < pairs; i++)
        needed = HW_MAX(needed, mbps[i] ? mbps[i] / CHANNEL_MBPS : CHANNELS_MAX);
    return HW_MAX(HW_CHANNELS_LEAST, HW_MIN(HW_MIN(n, needed), CHANNELS_MAX));
}

/* Divides the channels of a pair into rails with one or more links each. Each channel becomes a separate rail if the
 * limit on rails allows this. The first rail of a pair, and each rail with several links, has one more link, for small
 * messages. */
static void share_channels(unsigned pairs, unsigned most, uint64_t channels, unsigned *rails, unsigned *links)
{
    *rails = (unsigned)HW_MAX(HW_MIN(channels, (uint64_t)most / pairs), 1ull);
    *links = (unsigned)HW_MIN((channels + *rails - 1) / *rails, (uint64_t)HW_RAIL_LINKS - 1);
}

static void describe_way(struct hw_way *w, const struct hw_pair *pair, unsigned index, unsigned k, unsigned links)
{
    w->pair = index;
    /* link 0 of a rail with several links carries only small messages */
    w->links = k == 0 || links > 1 ? links + 1 : 1;
    w->from = pair->nic;
    memcpy(w->nic, pair->nic.name, sizeof w->nic);
    memcpy(w->peer_nic, pair->peer_nic, sizeof w->peer_nic);
}

/* Chooses the pair of the first rail, which carries the small messages and usually the beginning of a large one. The
 * peers of a context take turns among the fastest pairs, so that messages to many peers use all of these pairs. */
static unsigned choose_first(struct hawser *h, const uint64_t *mbps, unsigned pairs)
{
    unsigned fast[RAILS_MAX] = {0}, n = 1, turn;
    for (unsigned i = 1; i < pairs; i++) {
        if (mbps[i] > mbps[fast[0]])
            n = 0;
        if (mbps[i] >= mbps[fast[0]])
            fast[n++] = i;
    }
    pthread_mutex_lock(&h->lock);
    turn = h->next_first++;
    pthread_mutex_unlock(&h->lock);
    return fast[turn % n];
}

/* Completes the set-up after all ways are filled in. */
static void finish_ways(struct hawser_peer *p)
{
    for (unsigned i = 0; i < p->n_ways; i++)
        hw_peer_pair(&p->peer, i, p->way[i].pair);
    hw_peer_share_path(p);
    for (unsigned i = 0; i < p->n_ways && p->h->tp->expect; i++)
        p->h->tp->expect(&p->h->env, p->way[i].nic);
}

int hw_setup_choose(struct hawser_peer *p, const struct hw_pairing *g, unsigned spares, uint64_t channels, uint8_t *out)
{
    unsigned pairs = HW_MAX(HW_MIN(g->n_pairs, (uint32_t)RAILS_MAX), 1u), rails, links; /* at least one pair exists */
    unsigned kept = HW_MAX(pairs - spares, 1u), n; /* at least one pair is not spare */
    uint64_t mbps[RAILS_MAX];                      /* 0 if unknown */
    for (unsigned i = 0; i < kept; i++)
        mbps[i] = hw_nic_mbps(g->pair[i].nic.name);
    unsigned first = choose_first(p->h, mbps, kept);
    channels = channels ? channels : count_channels(p->h, mbps, kept);
    if (channels > HW_SETUP_MAX / pairs)
        return hw_fail(-E2BIG,
                       "too many connections: %llu for each of %u pair%s of NICs; at most %d per peer (knob channels)",
                       (unsigned long long)channels, pairs, hw_plural(pairs), HW_SETUP_MAX);
    share_channels(kept, RAILS_MAX - spares, channels, &rails, &links);
    n = kept * rails + spares;
    int rc = hw_peer_set_rails(p, n);
    struct hw_setup s = {.n = (uint16_t)n};
    size_t len = HW_SETUP_HEAD;
    p->n_spare = spares;
    for (unsigned i = 0; i < n && rc == 0; i++) {
        struct hw_way *w = &p->way[i];
        /* the k-th rails of all pairs follow one another, so that they are on different loops if possible */
        unsigned which = i < kept * rails ? (first + i) % kept : kept + (i - kept * rails);
        const struct hw_pair *pair = &g->pair[which];
        w->spare = which >= kept;
        if (w->spare)
            describe_way(w, pair, which, 0, (unsigned)HW_MIN(channels, HW_RAIL_LINKS - 1ull));
        else
            describe_way(w, pair, which, i / kept, links);
        rc = hw_address_handle_decode(pair->handle, pair->handle_len, &w->to);
        w->attempt = calloc(w->links, sizeof *w->attempt);
        if (!w->attempt)
            rc = hw_no_memory("a rail's connections");
        for (unsigned k = 0; k < w->links && w->attempt; k++)
            w->attempt[k].fd = -1;
        struct hw_setup_entry e = {.handle_index = pair->entry, .handle_len = HAWSER_NIC_NAME};
        memcpy(e.nic, pair->nic.name, sizeof e.nic);
        memcpy(e.handle, pair->peer_nic, HAWSER_NIC_NAME);
        len += hw_setup_entry_encode(out + 4 + len, &e);
    }
    if (rc < 0)
        return rc;
    hw_setup_head(out + 4, &s);
    len += hw_setup_transport_encode(out + 4 + len, p->h->env.ident);
    len += hw_setup_versions_encode(out + 4 + len, p->version, p->version);
    hw_put32(out, (uint32_t)len);
    p->n_pairs = pairs;
    for (unsigned i = 0; i < kept; i++)
        p->n_sure += g->pair[i].sure;
    p->paths = hw_pairing_report(g, &p->n_paths);
    for (unsigned i = kept; i < pairs && p->paths; i++) {
        p->paths[i].state = HAWSER_PATH_SPARE;
        snprintf(p->paths[i].why, sizeof p->paths[i].why, "spare: used while no preferred NIC works");
    }
    finish_ways(p);
    return (int)len + 4;
}

int hw_setup_refuse(const struct hawser *h, uint8_t *out)
{
    const struct hw_setup s = {0};
    hw_setup_head(out + 4, &s);
    size_t len = HW_SETUP_HEAD + hw_setup_transport_encode(out + 4 + HW_SETUP_HEAD, h->env.ident);
    len += hw_setup_versions_encode(out + 4 + len, HW_SESSION_LEAST, HW_SESSION_MOST);
    hw_put32(out, (uint32_t)len);
    return (int)len + 4;
}

/* Copies a name that a peer sent and replaces spaces and characters that are not printable ASCII. */
static void copy_name(char to[HAWSER_NIC_NAME], const void *from)
{
    memcpy(to, from, HAWSER_NIC_NAME);
    to[HAWSER_NIC_NAME - 1] = 0;
    for (char *c = to; *c; c++)
        if (*c <= ' ' || *c > '~')
            *c = '?';
}

int hw_setup_take_choice(struct hawser_peer *p, const uint8_t *body, size_t len)
{
    struct hw_setup s;
    size_t at = HW_SETUP_HEAD;
    int rc = hw_setup_decode(body, len, &s);
    if (rc == 0)
        rc = hw_setup_check_transport(p->h, body, len);
    if (rc == 0)
        rc = hw_setup_agree_on_version(p, body, len);
    if (rc == 0 && (s.n == 0 || s.n > RAILS_MAX))
        rc = hw_fail(-EPROTO, "the peer requests %u rails; 1 to %d are allowed", s.n, RAILS_MAX);
    if (rc == 0)
        rc = hw_peer_set_rails(p, s.n);
    for (unsigned i = 0; i < s.n && rc == 0; i++) {
        struct hw_setup_entry e;
        struct hw_way *w = &p->way[i];
        rc = hw_setup_entry_decode(body, len, &at, &e);
        if (rc < 0)
            break;
        copy_name(w->peer_nic, e.nic);
        copy_name(w->nic, e.handle);
        w->pair = p->n_pairs;
        for (unsigned k = 0; k < i; k++)
            if (strcmp(p->way[k].peer_nic, w->peer_nic) == 0)
                w->pair = p->way[k].pair;
        p->n_pairs += w->pair == p->n_pairs;
    }
    if (rc == 0)
        finish_ways(p);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/pairing.h"

#include "net/rails.h"
#include "net/route.h"
#include "transport/handle.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The time limit of a candidate: PATIENCE_TIMES times the time that another candidate took to answer, but at least
 * PATIENCE_MS. After this time other candidates are tried in parallel. If there are no other candidates, the channels
 * of the slow candidate come up later or never. */
#define PATIENCE_TIMES 8
#define PATIENCE_MS    50
#define FIRST_MS       250 /* time limit of a candidate while no candidate has answered */
#define TRIES_MAX      4   /* maximum probes per local address, on average; a server may announce many addresses */

/* ---- preparation ------------------------------------------------------------------------------------------------- */

static int read_entries(struct hw_pairing *g, const uint8_t *body, size_t len)
{
    size_t at = HW_SETUP_HEAD;
    for (uint16_t i = 0; i < g->setup.n; i++) {
        int rc = hw_setup_entry_decode(body, len, &at, &g->entry[i]);
        if (rc == 0)
            rc = hw_address_handle_decode(g->entry[i].handle, g->entry[i].handle_len, &g->theirs[i].addr);
        if (rc)
            return rc;
        memcpy(g->theirs[i].name, g->entry[i].nic, HAWSER_NIC_NAME);
    }
    return 0;
}

int hw_pairing_new(const struct hw_dial *d, const uint8_t *body, size_t len, const struct hw_setup *s,
                   struct hw_pairing **out)
{
    size_t n = (size_t)s->n + 1; /* the last entry may be the address that the user dialled */
    struct hw_pairing *g = *out = calloc(1, sizeof(*g));
    if (g) {
        *g = (struct hw_pairing){.dial = d, .setup = *s};
        g->entry = calloc(n, sizeof(*g->entry));
        g->theirs = calloc(n, sizeof(*g->theirs));
        g->mine = calloc(HW_NIC_MAX, sizeof(*g->mine));
        g->way = calloc(n * HW_NIC_MAX, 1);
    }
    int rc = g && g->entry && g->theirs && g->mine && g->way ? read_entries(g, body, len)
                                                             : hw_fail(-ENOMEM, "no memory to set up a peer");
    if (rc) {
        hw_pairing_free(g);
        *out = NULL;
    }
    return rc;
}

static void end_try(struct hw_try *t)
{
    if (t->fd >= 0)
        hw_sock_abort(&t->fd);
    free(t->hs);
    t->hs = NULL;
}

void hw_pairing_free(struct hw_pairing *g)
{
    if (!g)
        return;
    for (unsigned k = 0; g->tries && k < g->paths.n; k++)
        end_try(&g->tries[k]);
    free(g->tries);
    hw_paths_free(&g->paths);
    free(g->entry);
    free(g->mine);
    free(g->theirs);
    free(g->way);
    free(g->rails);
    free(g);
}

/* Adds the address that the user dialled to the entries. If the server's SETUP has an address of the same NIC, the
 * dialled address replaces that address. */
static void place_dialled(struct hw_pairing *g)
{
    const struct hw_dial *d = g->dial;
    int at = (int)g->setup.via - 1;
    if (at < 0) {
        at = g->setup.n;
        snprintf(g->theirs[at].name, sizeof(g->theirs[at].name), "default");
        for (uint16_t i = 0; i < g->setup.n; i++)
            if (hw_addr_same_host(&g->theirs[i].addr, &d->remote))
                at = i;
    }
    g->entry[at].handle_len = hw_address_handle_encode(g->entry[at].handle, &d->remote, hw_addr_port(&d->remote));
    memcpy(g->entry[at].nic, g->theirs[at].name, HAWSER_NIC_NAME);
    g->theirs[at].addr = d->remote;
    g->in.dialled = at;
    g->in.n_theirs = HW_MAX((unsigned)g->setup.n, (unsigned)at + 1);
}

static bool is_ours(const struct hw_pairing *g, const union hw_addr *a)
{
    for (int i = 0; i < g->n_nics; i++)
        if (hw_addr_same_host(&g->nics[i].addr, a))
            return true;
    return false;
}

/* Determines how each address is reached from each NIC. A bridge such as docker0 has the same address on every machine
 * and is not a path. An address is dialled only if hw_address_allowed() permits this, regardless of the server's
 * SETUP. */
static void find_ways(struct hw_pairing *g)
{
    const struct hw_dial *d = g->dial;
    bool loop = hw_addr_is_loopback(&d->remote);
    int fd = hw_route_open();
    uint64_t device[HW_NIC_MAX];
    hw_route_devices(fd, g->nics, (size_t)g->n_nics, device);
    for (unsigned i = 0; i < (unsigned)g->n_nics; i++) {
        memcpy(g->mine[i].name, g->nics[i].name, HAWSER_NIC_NAME);
        g->mine[i].addr = g->nics[i].addr;
        g->mine[i].device = device[i];
    }
    for (unsigned j = 0; j < g->in.n_theirs; j++) {
        const union hw_addr *to = &g->theirs[j].addr;
        bool dial = hw_address_allowed(d->keyed, d->insecure, to) && (loop || !is_ours(g, to));
        for (unsigned i = 0; i < (unsigned)g->n_nics; i++) {
            const struct hw_nic *nic = &g->nics[i];
            uint8_t *way = &g->way[(size_t)i * g->in.n_theirs + j];
            *way = dial && nic->loopback == loop ? hw_route_way(fd, nic, to) : HW_WAY_NEVER;
            if (*way != HW_WAY_NEVER && (int)j == g->in.dialled && hw_addr_same_host(&nic->addr, &d->local))
                *way = (*way ? *way : HW_WAY_GATEWAY) | HW_WAY_NATURAL; /* the first connection uses this NIC */
        }
    }
    hw_close(&fd);
}

/* Fails if the peer is on this machine, unless the transport works within a machine or knob same_machine permits such
 * peers. */
static int refuse_self(const struct hw_pairing *g)
{
    const struct hw_dial *d = g->dial;
    const char *self = d->env->knobs->same_machine;
    const bool refuse =
        strcmp(self, "no") == 0 ? d->env->caps.self != HW_SELF_WORKS : d->env->caps.self == HW_SELF_NEVER;
    if (!refuse || strcmp(self, "yes") == 0 || (!hw_addr_is_loopback(&d->remote) && !is_ours(g, &d->remote)))
        return 0;
    return hw_fail(-EHOSTUNREACH,
                   "the peer is on this same machine: traffic within a machine bypasses the NICs and never reaches GPU "
                   "memory, and %s %s; run the other side on another machine (or set knob same_machine to yes)",
                   d->env->ident,
                   d->env->caps.self == HW_SELF_NEVER ? "would deliver nothing" : "would fall back to tcp");
}

static int list_candidates(struct hw_pairing *g)
{
    const struct hw_dial *d = g->dial;
    g->n_nics = hw_nics_list(g->nics, HW_NIC_MAX, d->remote.sa.sa_family == AF_INET6);
    if (g->n_nics < 0) {
        int rc = g->n_nics;
        g->n_nics = 0;
        return rc;
    }
    int rc = refuse_self(g);
    if (rc == 0)
        rc = hw_rails_read(d->env->knobs->rails, &g->rails);
    if (rc)
        return rc;
    place_dialled(g);
    g->in.mine = g->mine;
    g->in.n_mine = (unsigned)g->n_nics;
    g->in.theirs = g->theirs;
    g->in.way = g->way;
    g->in.nics = d->nics;
    g->in.peer_nics = d->peer_nics;
    g->in.rails = g->rails;
    find_ways(g);
    g->in.only_dialled = d->only_dialled;
    rc = hw_paths_find(&g->in, &g->paths);
    if (rc == 0 && d->only_dialled && g->paths.n == 0) {
        /* no route leads from the selected NICs to the dialled address, which was only needed to find the server */
        hw_paths_free(&g->paths);
        g->in.only_dialled = false;
        rc = hw_paths_find(&g->in, &g->paths);
    }
    if (rc)
        return rc;
    if (g->paths.exact && g->paths.n > HW_NIC_MAX)
        return hw_fail(-E2BIG, "too many pairs of NICs: %u; at most %d per peer are allowed", g->paths.n, HW_NIC_MAX);
    g->tries = calloc((size_t)g->paths.n + 1, sizeof(*g->tries));
    for (unsigned k = 0; g->tries && k < g->paths.n; k++)
        g->tries[k].fd = -1;
    g->possible = g->tries ? hw_paths_possible(&g->in, &g->paths) : -ENOMEM;
    return g->possible < 0 ? hw_fail(-ENOMEM, "no memory to set up a peer") : 0;
}

/* ---- probing ----------------------------------------------------------------------------------------------------- */

static void fail_try(struct hw_try *t, int rc)
{
    end_try(t);
    t->state = HW_TRY_FAILED;
    t->rc = rc;
    snprintf(t->why, sizeof(t->why), "%s", hw_error());
}

static void begin_try(struct hw_pairing *g, unsigned k, uint64_t deadline)
{
    const struct hw_dial *d = g->dial;
    struct hw_try *t = &g->tries[k];
    const struct hw_path *c = &g->paths.list[k];
    uint64_t now = hw_now(), ms = deadline > now ? (deadline - now) / HW_MS + 1 : 1;
    struct hw_hello hello = {.kind = HW_BOOT_PROBE, .keyed = d->keyed, .session = d->session};
    t->began = now;
    if (g->n_tries++ >= TRIES_MAX * (unsigned)g->n_nics) {
        fail_try(t, hw_fail(-E2BIG, "not tried, because %u other candidates came first", g->n_tries - 1));
        return;
    }
    t->hs = calloc(1, sizeof(*t->hs));
    t->fd = t->hs ? hw_sock_connect(&g->nics[c->mine], &g->theirs[c->theirs].addr, d->env->knobs)
                  : hw_no_memory("a connection");
    if (t->fd < 0) {
        fail_try(t, t->fd);
        return;
    }
    hw_hs_client(t->hs, &hello, d->secret, HW_MIN(ms, d->env->knobs->handshake_ms));
    t->state = HW_TRY_WAITS;
}

static void step_try(struct hw_pairing *g, struct hw_try *t)
{
    int rc = hw_hs_step(t->hs, t->fd);
    if (rc == -EAGAIN)
        return;
    if (rc) {
        fail_try(t, rc);
        return;
    }
    t->reached = t->hs->welcome.via <= g->setup.n ? t->hs->welcome.via : 0;
    /* Close the connection without a reset. After a reset the kernel answers the server's FIN with another reset, which
     * is sent by the first route and not through this NIC. If ARP is lax, the peer then learns that the address belongs
     * to the first NIC, and packets to this NIC are lost. */
    hw_close(&t->fd);
    end_try(t);
    t->state = HW_TRY_WORKS;
}

/* Waits for an event of a probe, at most until the given time. */
static int wait_for_tries(struct hw_pairing *g, uint64_t until)
{
    const struct hw_dial *d = g->dial;
    struct pollfd *fds = calloc((size_t)g->paths.n + 1, sizeof(*fds));
    uint64_t now = hw_now();
    nfds_t n = 0;
    int ms = until > now ? (int)HW_MIN((until - now) / HW_MS + 1, 1000ull) : 0;
    if (!fds)
        return hw_fail(-ENOMEM, "no memory to set up a peer");
    for (unsigned k = 0; k < g->paths.n; k++)
        if (g->tries[k].state == HW_TRY_WAITS)
            fds[n++] = (struct pollfd){.fd = g->tries[k].fd, .events = g->tries[k].hs->want ? POLLIN : POLLOUT};
    if (d->progress) {
        d->progress(d->arg);
        ms = HW_MIN(ms, 1);
    }
    (void)poll(fds, n, ms);
    free(fds);
    return 0;
}

struct round {
    bool *out, *pick;
    uint64_t patience; /* in ns */
};

/* Chooses the best assignment without the candidates that failed and, if silent is set, without the candidates that
 * have not answered in time. Starts the necessary probes. Returns 1 if all candidates of the assignment work, 0 if not
 * all work yet, or -ENOMEM. */
static int try_best(struct hw_pairing *g, struct round *r, bool silent, uint64_t deadline)
{
    uint64_t now = hw_now();
    bool all = true;
    for (unsigned k = 0; k < g->paths.n; k++) {
        const struct hw_try *t = &g->tries[k];
        r->out[k] = t->state == HW_TRY_FAILED || (silent && t->state == HW_TRY_WAITS && now - t->began > r->patience);
    }
    int n = hw_paths_assign(&g->in, &g->paths, r->out, r->pick);
    for (unsigned k = 0; k < g->paths.n && n > 0; k++) {
        if (r->pick[k] && g->tries[k].state == HW_TRY_NOT)
            begin_try(g, k, deadline);
        all &= !r->pick[k] || g->tries[k].state == HW_TRY_WORKS;
    }
    return n < 0 ? n : all;
}

static bool any_in(const struct hw_pairing *g, enum hw_try_state s)
{
    for (unsigned k = 0; k < g->paths.n; k++)
        if (g->tries[k].state == s)
            return true;
    return false;
}

static int run_rounds(struct hw_pairing *g, struct round *r, uint64_t deadline)
{
    r->patience = FIRST_MS * HW_MS;
    for (;;) {
        int all = try_best(g, r, false, deadline);
        if (all)
            return all < 0 ? all : 0;
        all = try_best(g, r, true, deadline);
        if (all < 0 || (all > 0 && any_in(g, HW_TRY_WORKS)))
            return all < 0 ? all : 0;
        uint64_t now = hw_now();
        if (now >= deadline || !any_in(g, HW_TRY_WAITS))
            return 0;
        uint64_t until = deadline;
        for (unsigned k = 0; k < g->paths.n; k++) {
            uint64_t over = g->tries[k].began + r->patience;
            if (g->tries[k].state == HW_TRY_WAITS && over >= now)
                until = HW_MIN(until, over + HW_MS);
        }
        int rc = wait_for_tries(g, until);
        if (rc)
            return rc;
        for (unsigned k = 0; k < g->paths.n; k++) {
            struct hw_try *t = &g->tries[k];
            if (t->state != HW_TRY_WAITS)
                continue;
            step_try(g, t);
            if (t->state != HW_TRY_WORKS)
                continue;
            uint64_t took = HW_MAX(PATIENCE_TIMES * (hw_now() - t->began), PATIENCE_MS * HW_MS);
            r->patience = any_in(g, HW_TRY_WAITS) ? HW_MIN(r->patience, took) : took;
        }
    }
}

/* ---- result ------------------------------------------------------------------------------------------------------ */

static void add_pair(struct hw_pairing *g, unsigned k, bool sure)
{
    const struct hw_path *c = &g->paths.list[k];
    const struct hw_setup_entry *e = &g->entry[c->theirs];
    struct hw_pair *pr = &g->pair[g->n_pairs++];
    *pr = (struct hw_pair){.nic = g->nics[c->mine], .entry = c->theirs, .handle_len = e->handle_len, .sure = sure};
    if (c->theirs >= g->setup.n)
        pr->entry = 0;
    memcpy(pr->handle, e->handle, sizeof(pr->handle));
    /* the peer's NIC that receives the bytes */
    memcpy(pr->peer_nic, g->tries[k].reached ? g->entry[g->tries[k].reached - 1].nic : e->nic, HAWSER_NIC_NAME);
}

static bool has_pair(const struct hw_pairing *g, const char *nic)
{
    for (uint32_t i = 0; i < g->n_pairs; i++)
        if (strcmp(g->pair[i].nic.name, nic) == 0)
            return true;
    return false;
}

/* Adds pairs that were not shown to work: all pairs that the user specified exactly, or else unanswered pairs of local
 * NICs that would be idle otherwise. */
static void add_unproved(struct hw_pairing *g, const bool *pick)
{
    for (unsigned k = 0; k < g->paths.n; k++) {
        const struct hw_path *c = &g->paths.list[k];
        const struct hw_try *t = &g->tries[k];
        if (t->state == HW_TRY_WORKS || g->n_pairs == HW_NIC_MAX)
            continue;
        if (g->paths.exact || (pick[k] && t->state == HW_TRY_WAITS && !has_pair(g, g->nics[c->mine].name)))
            add_pair(g, k, false);
    }
}

/* Adds the path of the first connection, which works, unless the user's options exclude the path. Used if no candidate
 * works, for example because both sides are on one machine, or because an address translator separates the sides. */
static void add_control_path(struct hw_pairing *g)
{
    const struct hw_dial *d = g->dial;
    const struct hw_setup_entry *e = &g->entry[g->in.dialled];
    struct hw_pair *pr = &g->pair[g->n_pairs];
    *pr = (struct hw_pair){.nic = {.addr = d->local}, .handle_len = e->handle_len, .sure = true};
    snprintf(pr->nic.name, sizeof(pr->nic.name), "default");
    for (int i = 0; i < g->n_nics; i++)
        if (hw_addr_same_host(&g->nics[i].addr, &d->local))
            memcpy(pr->nic.name, g->nics[i].name, HAWSER_NIC_NAME);
    pr->nic.loopback = true; /* bind only to the NIC's address */
    struct hw_path_end mine = {.addr = d->local};
    memcpy(mine.name, pr->nic.name, sizeof(mine.name));
    bool named = !*d->nics || hw_nic_listed(d->nics, pr->nic.name);
    bool apart = *g->rails && !hw_rails_join(g->rails, &mine, &g->theirs[g->in.dialled]);
    if ((!named && !hw_addr_is_loopback(&d->remote)) || g->paths.exact || d->only_dialled || *d->peer_nics || apart)
        return; /* excluded by the user's options */
    memcpy(pr->peer_nic, e->nic, HAWSER_NIC_NAME);
    memcpy(pr->handle, e->handle, sizeof(pr->handle));
    pr->entry = g->in.dialled < (int)g->setup.n ? (uint16_t)g->in.dialled : 0;
    g->n_pairs++;
}

static int no_path(const struct hw_pairing *g)
{
    for (unsigned k = 0; k < g->paths.n; k++) {
        const struct hw_path *c = &g->paths.list[k];
        char to[HAWSER_ADDR_TEXT + 8];
        if (g->tries[k].state == HW_TRY_FAILED)
            return hw_fail(g->tries[k].rc, "no usable path from the allowed NICs: %s to %s: %s", g->nics[c->mine].name,
                           hw_addr_text(&g->theirs[c->theirs].addr, to, sizeof(to)), g->tries[k].why);
    }
    if (any_in(g, HW_TRY_WAITS))
        return hw_fail(-ETIMEDOUT, "no usable path from the allowed NICs: no probe was answered before the deadline");
    for (unsigned i = 0; i < g->in.n_mine; i++) {
        const char *why = hw_paths_why(&g->in, &g->paths, true, i);
        if (why && (!*g->dial->nics || hw_nic_listed(g->dial->nics, g->nics[i].name)))
            return hw_fail(-EHOSTUNREACH, "no usable path from the allowed NICs: %s: %s", g->nics[i].name, why);
    }
    return hw_fail(-EHOSTUNREACH, "no usable path from the allowed NICs");
}

static int take_result(struct hw_pairing *g, struct round *r)
{
    for (unsigned k = 0; k < g->paths.n; k++)
        r->out[k] = g->tries[k].state != HW_TRY_WORKS;
    int n = hw_paths_assign(&g->in, &g->paths, r->out, r->pick);
    if (n < 0)
        return n;
    for (unsigned k = 0; k < g->paths.n && g->n_pairs < HW_NIC_MAX; k++)
        if (r->pick[k])
            add_pair(g, k, true);
    if (g->n_pairs == 0)
        add_control_path(g);
    if (g->n_pairs == 0)
        return no_path(g);
    uint32_t sure = g->n_pairs;
    for (unsigned k = 0; k < g->paths.n; k++)
        r->out[k] = g->tries[k].state == HW_TRY_FAILED;
    n = hw_paths_assign(&g->in, &g->paths, r->out, r->pick);
    if (n < 0)
        return n;
    add_unproved(g, r->pick);
    uint64_t need = g->dial->env->knobs->require_nics;
    if (sure < need)
        return hw_fail(-ENODEV, "%u pair%s of NICs work%s, but %llu are required (knob require_nics)", sure,
                       hw_plural(sure), sure == 1 ? "s" : "", (unsigned long long)need);
    return 0;
}

int hw_pairing_run(struct hw_pairing *g, uint64_t deadline)
{
    struct round r = {0};
    int rc = list_candidates(g);
    if (rc)
        return rc;
    r.out = calloc((size_t)g->paths.n + 1, sizeof(*r.out));
    r.pick = calloc((size_t)g->paths.n + 1, sizeof(*r.pick));
    rc = r.out && r.pick ? 0 : hw_fail(-ENOMEM, "no memory to set up a peer");
    if (rc == 0)
        rc = run_rounds(g, &r, HW_MIN(deadline, hw_deadline((int)g->dial->env->knobs->path_ms)));
    if (rc == 0)
        rc = take_result(g, &r);
    free(r.out);
    free(r.pick);
    return rc;
}

/* ---- report ------------------------------------------------------------------------------------------------------ */

/* Reports why NIC i has no pair: the reason why it has no candidate or is not needed, or else the result of its best
 * candidate that failed or has not answered. */
static void say_why(const struct hw_pairing *g, bool ours, unsigned i, struct hawser_path *out)
{
    const char *why = hw_paths_why(&g->in, &g->paths, ours, i);
    const char *name = ours ? g->mine[i].name : g->theirs[i].name;
    snprintf(out->why, sizeof(out->why), "%s", why ? why : "the other NICs of both sides make better pairs without it");
    for (unsigned k = 0; k < g->paths.n && !why; k++) {
        const struct hw_path *c = &g->paths.list[k];
        const struct hw_try *t = &g->tries[k];
        if (strcmp(ours ? g->mine[c->mine].name : g->theirs[c->theirs].name, name) != 0)
            continue;
        if (ours && !g->mine[c->mine].device && g->n_pairs) {
            snprintf(out->why, sizeof(out->why), "it has no underlying hardware, and other NICs are used");
            return;
        }
        if (t->state != HW_TRY_FAILED && t->state != HW_TRY_WAITS)
            continue;
        if (ours)
            memcpy(out->peer_nic, g->theirs[c->theirs].name, HAWSER_NIC_NAME);
        hw_addr_text(&g->theirs[c->theirs].addr, out->remote, sizeof(out->remote));
        snprintf(out->why, sizeof(out->why), "%s%s%.90s", ours ? "" : g->mine[c->mine].name, ours ? "" : ": ",
                 t->state == HW_TRY_WAITS ? "no answer" : t->why);
        return;
    }
}

/* Returns true if a pair uses the NIC of this address or, for a local address, another NIC with the same hardware. */
static bool is_used(const struct hw_pairing *g, bool ours, unsigned i)
{
    for (uint32_t k = 0; k < g->n_pairs; k++) {
        const char *name = ours ? g->pair[k].nic.name : g->pair[k].peer_nic;
        if (strcmp(name, ours ? g->mine[i].name : g->theirs[i].name) == 0)
            return true;
        if (ours && g->mine[i].device)
            for (unsigned o = 0; o < g->in.n_mine; o++)
                if (g->mine[o].device == g->mine[i].device && strcmp(g->mine[o].name, name) == 0)
                    return true;
    }
    return false;
}

int hw_pairing_prefer(struct hw_pairing *g, const char *nics)
{
    uint32_t front = 0;
    int rc = hw_paths_check_names(nics, "this machine", g->mine, g->in.n_mine);
    if (rc < 0 || !*nics)
        return rc;
    for (uint32_t k = 0; k < g->n_pairs; k++) {
        if (!hw_nic_listed(nics, g->pair[k].nic.name))
            continue;
        struct hw_pair preferred = g->pair[k];
        memmove(&g->pair[front + 1], &g->pair[front], (k - front) * sizeof(g->pair[0]));
        g->pair[front++] = preferred;
    }
    return front ? (int)(g->n_pairs - front) : 0;
}

struct hawser_path *hw_pairing_report(const struct hw_pairing *g, uint32_t *n)
{
    size_t most = g->n_pairs + (size_t)g->in.n_mine + g->in.n_theirs;
    struct hawser_path *out = calloc(most + 1, sizeof(*out));
    bool loop = hw_addr_is_loopback(&g->dial->remote);
    *n = 0;
    if (!out)
        return NULL;
    for (uint32_t k = 0; k < g->n_pairs; k++) {
        struct hawser_path *x = &out[(*n)++];
        union hw_addr to;
        x->state = g->pair[k].sure ? HAWSER_PATH_USED : HAWSER_PATH_AWAITED;
        memcpy(x->nic, g->pair[k].nic.name, HAWSER_NIC_NAME);
        memcpy(x->peer_nic, g->pair[k].peer_nic, HAWSER_NIC_NAME);
        hw_addr_text(&g->pair[k].nic.addr, x->local, sizeof(x->local));
        if (hw_address_handle_decode(g->pair[k].handle, g->pair[k].handle_len, &to) == 0)
            hw_addr_text(&to, x->remote, sizeof(x->remote));
        if (!g->pair[k].sure)
            snprintf(x->why, sizeof(x->why), "no answer yet; still trying");
    }
    for (int side = 0; side < 2; side++)
        for (unsigned i = 0; i < (side ? g->in.n_theirs : g->in.n_mine); i++) {
            struct hawser_path *x = &out[*n];
            const struct hw_path_end *e = side ? &g->theirs[i] : &g->mine[i];
            bool first = i == 0 || strcmp(e->name, e[-1].name) != 0;
            if (!first || is_used(g, !side, i) || (!side && g->nics[i].loopback != loop) || (side && i >= g->setup.n))
                continue;
            x->state = HAWSER_PATH_UNUSED;
            memcpy(side ? x->peer_nic : x->nic, e->name, HAWSER_NIC_NAME);
            hw_addr_text(&e->addr, side ? x->remote : x->local, sizeof(x->local));
            say_why(g, !side, i, x);
            (*n)++;
        }
    return out;
}

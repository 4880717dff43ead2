/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session between two nodes of two loops each, over up to three rails that die, fall silent and are connected again,
 * while handshakes are lost. Both sides send parcels, small ones by hw_session_send() and larger ones that rails cut.
 *
 * What is checked: each parcel arrives once, whole, while the session lives; it is done only after it arrived; nothing
 * is refused that an honest peer says; everything ends. At the end one side's session dies: each parcel is then done or
 * lost, once, and nothing of the session is left.
 */
#include "core/session.h"
#include "sim.h"

#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

#define RAILS   3
#define LINKS   3
#define LOOPS   2
#define PARCELS 60
#define LENGTH  2500
#define STEPS   60000
#define DRAIN   6000 /* steps in which a dead session lets go of all */

struct parcel {
    struct hw_parcel parcel;
    bool sent, arrived, done, lost;
    bool off, off_over;         /* called off by the sender; and it may use its memory again */
    bool revoked, revoked_over; /* by the receiver, likewise */
    struct hw_let_go cancel, revoke;
    uint32_t serial, len;
    uint8_t src[LENGTH], dst[LENGTH];
};

struct node {
    struct world *w;
    int side;
    struct hw_session session;
    struct hw_loop loop[LOOPS];
    struct parcel parcel[PARCELS];
    uint32_t n, posted, to_cut; /* parcels in all; given to the session; of these, that rails cut */
};

/* One end of a connection of a rail. */
struct hw_conn {
    struct world *w;
    struct pipes *pipes;
    int side;
};

struct pipes {
    struct sim_conn conn;
    struct hw_conn end[2];
};

/* A handshake of a rail's under way. */
struct attempt {
    enum { NONE, HELLO, AT_SERVER, WELCOME } at;
    uint32_t gen;
    struct hw_word client, server;
};

struct world {
    struct sim *s;
    struct node node[2];
    unsigned rails, links;
    struct pipes *pipes[RAILS][LINKS]; /* the newest of each */
    struct pipes *all[4096];
    unsigned n_all;
    struct attempt attempt[RAILS];
    bool broken[RAILS]; /* the newest connection */
    uint32_t faults;
    uint64_t now;
};

static uint8_t expected_byte(int side, uint32_t serial, uint32_t offset)
{
    return (uint8_t)(hw_hash(HW_HASH_START, (uint32_t[]){(uint32_t)side, serial, offset}, 12) >> 17);
}

/* ---- the transport -------------------------------------------------------------------------------- */

static int64_t write_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return sim_conn_move(c->w->s, &c->pipes->conn, c->side, piece, n, true);
}

static int64_t read_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return sim_conn_move(c->w->s, &c->pipes->conn, c->side, piece, n, false);
}

static void close_conn(struct hw_conn *c)
{
    sim_conn_close(c->w->s, &c->pipes->conn, c->side);
}

static const struct hw_rail_io io = {write_conn, read_conn, close_conn};

/* ---- the layer above ------------------------------------------------------------------------------ */

static bool fill_parcel(void *up, struct hw_parcel *p, struct hw_link_out *out)
{
    struct node *n = up;
    struct parcel *q = hw_container_of(p, struct parcel, parcel);
    if (q->off) {
        sim_say(n->w->s, "node %d does not send parcel %u any more", n->side, q->serial);
        q->lost = true;
        return false;
    }
    out->type = 1;
    hw_put32(out->ext, q->serial);
    out->ext_len = 4;
    out->piece[0] = (struct hw_piece){&hw_host, q->src, q->len};
    out->n_pieces = 1;
    return true;
}

static struct hw_parcel *cut_parcel(void *up, unsigned rail, uint64_t budget)
{
    struct node *n = up;
    (void)rail;
    if (n->posted == n->n || n->to_cut == 0 || n->parcel[n->posted].len > budget)
        return NULL;
    n->to_cut--;
    n->parcel[n->posted].sent = true;
    return &n->parcel[n->posted++].parcel;
}

static int place_parcel(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n_pieces)
{
    struct node *n = up, *from = &n->w->node[!n->side];
    (void)rail;
    struct parcel *q = &from->parcel[hw_get32(in->ext)];
    if (in->ext_len != 4 || hw_get32(in->ext) >= from->n || !q->sent || q->len != in->pay) {
        sim_fail(n->w->s, "a frame of %u bytes arrives that nobody sent", in->pay);
        return -EPROTO;
    }
    if (q->done)
        sim_fail(n->w->s, "bytes of parcel %u of node %d arrive after its end", q->serial, from->side);
    in->cookie = q;
    in->owner = &q->revoke;
    piece[0] = (struct hw_piece){&hw_host, q->revoked ? NULL : q->dst, q->len};
    *n_pieces = 1;
    return 0;
}

static int take_parcel(void *up, unsigned rail, const struct hw_link_in *in)
{
    struct node *n = up;
    struct parcel *q = in->cookie;
    (void)rail;
    sim_say(n->w->s, "node %d has parcel %u, by rail %u", n->side, q->serial, rail);
    if (q->arrived)
        sim_fail(n->w->s, "parcel %u arrives twice", q->serial);
    q->arrived = true;
    for (uint32_t i = 0; i < q->len && !q->revoked; i++)
        if (q->dst[i] != expected_byte(!n->side, q->serial, i))
            sim_fail(n->w->s, "byte %u of parcel %u is wrong", i, q->serial);
    return 0;
}

static void end_parcel(void *up, unsigned rail, struct hw_parcel *p)
{
    struct node *n = up;
    struct parcel *q = hw_container_of(p, struct parcel, parcel);
    (void)rail;
    if (!q->arrived)
        sim_fail(n->w->s, "parcel %u is done and has not arrived", q->serial);
    if (q->done || q->lost)
        sim_fail(n->w->s, "parcel %u ends twice", q->serial);
    q->done = true;
}

static void lose_parcel(void *up, struct hw_parcel *p)
{
    struct node *n = up;
    struct parcel *q = hw_container_of(p, struct parcel, parcel);
    if (!n->session.dead)
        sim_fail(n->w->s, "parcel %u is lost in a session that lives", q->serial);
    if (q->done || q->lost)
        sim_fail(n->w->s, "parcel %u ends twice", q->serial);
    q->lost = true;
}

static void note_end(void *up, unsigned rail, int why)
{
    struct node *n = up;
    sim_say(n->w->s, "node %d: rail %u ends: %d (%s)", n->side, rail, why, hw_error());
    if (why == -ETIMEDOUT && !n->w->broken[rail])
        sim_fail(n->w->s, "node %d gives rail %u up, which works", n->side, rail);
}

static void start_rail(struct world *w, int side, unsigned rail, uint32_t gen, const struct hw_word *peer)
{
    struct hw_conn *conn[LINKS];
    for (unsigned k = 0; k < w->links; k++)
        conn[k] = &w->pipes[rail][k]->end[side];
    int rc = hw_session_start(&w->node[side].session, rail, gen, conn, w->links, peer);
    sim_say(w->s, "node %d: rail %u stands, generation %u: %d", side, rail, gen, rc);
    for (unsigned k = 0; k < w->links && rc < 0; k++)
        close_conn(conn[k]);
}

static bool make_pipes(struct world *w, unsigned rail)
{
    sim_fail_memory(NULL); /* until the turn is over */
    for (unsigned k = 0; k < w->links; k++) {
        struct pipes *p = calloc(1, sizeof *p);
        if (!p || w->n_all == HW_ARRAY_LEN(w->all)) {
            free(p);
            return false;
        }
        sim_conn_open(w->s, &p->conn);
        for (int side = 0; side < 2; side++)
            p->end[side] = (struct hw_conn){w, p, side};
        w->pipes[rail][k] = w->all[w->n_all++] = p;
    }
    return true;
}

/* The server answers as soon as it can. */
static void answer(struct world *w, unsigned rail)
{
    struct attempt *a = &w->attempt[rail];
    if (a->at != AT_SERVER)
        return;
    int rc = hw_session_answer(&w->node[1].session, rail, a->gen, &a->server);
    if (rc == -EAGAIN)
        return;
    a->at = NONE;
    if (rc < 0 || !make_pipes(w, rail))
        return;
    w->broken[rail] = false;
    start_rail(w, 1, rail, a->gen, NULL);
    a->at = WELCOME;
}

static void note_down(void *up, unsigned rail)
{
    struct node *n = up;
    if (n->side == 1)
        answer(n->w, rail);
}

static void note_death(void *up, int why)
{
    struct node *n = up;
    sim_fail(n->w->s, "node %d's session dies of %d: %s", n->side, why, hw_error());
}

static const struct hw_session_ops ops = {fill_parcel, cut_parcel, place_parcel, take_parcel, end_parcel,
                                          note_end,    note_down,  note_death,   lose_parcel};

/* ---- what happens --------------------------------------------------------------------------------- */

static void step_handshake(struct world *w, unsigned rail)
{
    struct sim *s = w->s;
    struct attempt *a = &w->attempt[rail];
    bool lost = w->faults && sim_has(s, SIM_RESET) && sim_chance(s, 6);
    if (lost && a->at != NONE) {
        w->faults--;
        w->broken[rail] |= a->at == WELCOME;
        if (a->at == WELCOME)
            for (unsigned k = 0; k < w->links; k++)
                w->pipes[rail][k]->conn.closed[0] = true;
        a->at = NONE;
        return;
    }
    switch (a->at) {
    case NONE:
        if (sim_has(s, SIM_MEMORY) && w->faults && sim_chance(s, 4))
            w->faults--; /* memory does not fail for ever */
        a->gen = hw_session_hello(&w->node[0].session, rail, &a->client);
        if (a->gen)
            a->at = HELLO;
        break;
    case HELLO:
        a->at = AT_SERVER;
        int rc = hw_session_ask(&w->node[1].session, rail, a->gen, &a->client);
        if (rc < 0) {
            sim_fail(s, "a handshake is refused: %s", hw_error());
            return;
        }
        answer(w, rail);
        break;
    case AT_SERVER:
        answer(w, rail);
        break;
    case WELCOME:
        a->at = NONE;
        start_rail(w, 0, rail, a->gen, &a->server);
        break;
    }
}

static void post_parcel(struct world *w, struct node *n)
{
    struct sim *s = w->s;
    if (n->posted + n->to_cut == n->n)
        return;
    unsigned rail = (unsigned)sim_random(s, w->rails);
    if (n->to_cut == 0 && sim_chance(s, 2)) {
        struct parcel *q = &n->parcel[n->posted++];
        q->sent = true;
        q->parcel.small = sim_chance(s, 2);
        hw_session_send(&n->session, rail, &q->parcel);
    } else {
        n->to_cut++;
        for (unsigned i = 0; i < w->rails; i++)
            hw_session_wake(&n->session, i);
    }
}

static void break_rail(struct world *w, unsigned rail)
{
    struct sim *s = w->s;
    struct pipes *p = w->pipes[rail][sim_random(s, w->links)];
    if (!w->faults || !p)
        return;
    w->faults--;
    w->broken[rail] = true;
    if (sim_has(s, SIM_RESET) && sim_chance(s, 2))
        p->conn.told[sim_random(s, 2)] = true;
    else if (sim_has(s, SIM_SILENT))
        p->conn.silent = true;
    sim_say(s, "rail %u is broken", rail);
}

/* A side learns, late, that the other has closed a connection. A silent express link tells it nothing. */
static void notice(struct world *w, int side, unsigned rail)
{
    for (unsigned k = 0; k < w->links; k++) {
        struct pipes *p = w->pipes[rail][k];
        if (!p || !(p->conn.silent || p->conn.closed[!side] || p->conn.told[!side]))
            continue;
        /* of a silent connection TCP tells, in time, a side that has sent something */
        if (!p->conn.silent || (k > 0 && p->conn.pipe[side].n && sim_chance(w->s, 10)))
            p->conn.told[side] = true;
    }
}

static void end_cancel(struct hw_let_go *g)
{
    struct parcel *q = hw_container_of(g, struct parcel, cancel);
    q->off_over = true;
    memset(q->src, 0xdb, sizeof q->src); /* the application's again: bytes that leave now are wrong */
}

static void end_revoke(struct hw_let_go *g)
{
    struct parcel *q = hw_container_of(g, struct parcel, revoke);
    q->revoked_over = true;
    memset(q->dst, 0xdb, sizeof q->dst);
}

/* Calls a parcel off, at its sender or its receiver. */
static void call_off(struct world *w, struct node *n)
{
    if (!n->posted)
        return;
    struct parcel *q = &n->parcel[sim_random(w->s, n->posted)];
    if (sim_has(w->s, SIM_CANCEL) && !q->off && sim_chance(w->s, 2)) {
        q->off = true;
        q->cancel = (struct hw_let_go){.owner = &q->cancel, .over = end_cancel};
        sim_say(w->s, "node %d calls parcel %u off", n->side, q->serial);
        hw_session_let_go(&n->session, &q->cancel);
    } else if (sim_has(w->s, SIM_REVOKE) && !q->revoked) {
        q->revoked = true;
        q->revoke = (struct hw_let_go){.owner = &q->revoke, .over = end_revoke};
        sim_say(w->s, "node %d takes the memory of parcel %u back", !n->side, q->serial);
        hw_session_let_go(&w->node[!n->side].session, &q->revoke);
    }
}

/* What was taken back is as its owner left it. */
static void check_taken_back(struct world *w)
{
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < w->node[side].posted; i++) {
            const struct parcel *q = &w->node[side].parcel[i];
            for (uint32_t k = 0; k < q->len && q->revoked_over; k++)
                if (q->dst[k] != 0xdb)
                    sim_fail(w->s, "byte %u of parcel %u lands in memory that was taken back", k, i);
        }
}

static void run_turn(struct world *w, struct node *n, unsigned budget)
{
    struct hw_loop *loop = &n->loop[sim_random(w->s, LOOPS)];
    sim_fail_memory(w->faults ? w->s : NULL);
    hw_loop_turn(loop, w->now, budget);
    sim_fail_memory(NULL);
}

static void take_step(struct world *w)
{
    struct sim *s = w->s;
    int side = (int)sim_random(s, 2);
    struct node *n = &w->node[side];
    unsigned rail = (unsigned)sim_random(s, w->rails), link = (unsigned)sim_random(s, w->links);
    w->now += sim_random(s, 1000);
    switch (sim_random(s, 32)) {
    case 0:
        if (side == 0 || sim_has(s, SIM_BOTH))
            post_parcel(w, n);
        break;
    case 1:
    case 2:
        step_handshake(w, rail);
        break;
    case 3:
        if (sim_chance(s, 8))
            break_rail(w, rail);
        break;
    case 4:
        notice(w, side, rail);
        if (sim_chance(s, 4))
            call_off(w, n);
        break;
    case 5:
    case 6:
    case 7:
    case 8:
        hw_session_wake(&n->session, rail); /* a connection is ready */
        break;
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
        if (w->pipes[rail][link])
            sim_conn_deliver(s, &w->pipes[rail][link]->conn);
        break;
    default:
        run_turn(w, n, 1 + (unsigned)sim_random(s, 2));
    }
}

static bool all_done(const struct world *w)
{
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < w->node[side].n; i++) {
            const struct parcel *q = &w->node[side].parcel[i];
            if ((!q->done && !q->lost) || (q->off && !q->off_over) || (q->revoked && !q->revoked_over))
                return false;
        }
    return true;
}

/* Kills side's session, and then the other's: nothing may be left. */
static void end_sessions(struct world *w)
{
    struct sim *s = w->s;
    for (int k = 0; k < 2 && !s->failed[0]; k++) {
        struct node *n = &w->node[k];
        hw_session_die(&n->session, -ESHUTDOWN);
        for (int i = 0; i < DRAIN && !hw_session_is_gone(&n->session); i++)
            run_turn(w, n, 1);
        if (!hw_session_is_gone(&n->session))
            sim_fail(s, "node %d's session, which is dead, is not gone", k);
        for (uint32_t i = 0; i < n->posted; i++)
            if (n->parcel[i].sent && !n->parcel[i].done && !n->parcel[i].lost)
                sim_fail(s, "node %d's session is gone, and parcel %u has not ended", k, i);
    }
}

/* Each connection was closed by the side that had it. */
static void check_closed(struct world *w)
{
    for (unsigned i = 0; i < w->rails; i++)
        for (unsigned k = 0; k < w->links && w->attempt[i].at == WELCOME; k++)
            w->pipes[i][k]->conn.closed[0] = true; /* the client never had it */
    for (unsigned i = 0; i < w->n_all; i++)
        for (int side = 0; side < 2; side++)
            if (!w->all[i]->conn.closed[side])
                sim_fail(w->s, "node %d leaves a connection open", side);
}

static void wake_nobody(void *arg)
{
    (void)arg; /* the schedule gives every loop its turns */
}

/* A step takes half a microsecond on average, and a path that works moves something within some hundred steps. */
static const struct hw_rail_limits limits = {.window = 4000, .ping = 100000, .dead = 2000000};

static struct world *make_world(struct sim *s)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->s = s;
    w->rails = sim_has(s, SIM_LINKS) ? 1 + (unsigned)sim_random(s, RAILS) : 1;
    w->links = sim_has(s, SIM_LINKS) ? 1 + (unsigned)sim_random(s, LINKS) : 1;
    w->faults = (uint32_t)sim_random(s, 20);
    for (int side = 0; side < 2; side++) {
        struct node *n = &w->node[side];
        struct hw_loop *loop[RAILS];
        n->w = w;
        n->side = side;
        n->n = side == 0 || sim_has(s, SIM_BOTH) ? 1 + (uint32_t)sim_random(s, PARCELS) : 0;
        for (int k = 0; k < LOOPS; k++)
            hw_loop_init(&n->loop[k], wake_nobody, NULL);
        for (unsigned i = 0; i < w->rails; i++)
            loop[i] = &n->loop[sim_random(s, LOOPS)];
        if (hw_session_init(&n->session, side == 0, &n->loop[0], loop, w->rails, &ops, &io, n, &limits) < 0)
            abort();
        for (uint32_t i = 0; i < n->n; i++) {
            struct parcel *q = &n->parcel[i];
            q->serial = i;
            q->parcel.owner = &q->cancel;
            q->len = sim_chance(s, 2) ? (uint32_t)sim_random(s, 40) : (uint32_t)sim_random(s, LENGTH);
            for (uint32_t k = 0; k < q->len; k++)
                q->src[k] = expected_byte(side, i, k);
        }
    }
    return w;
}

void sim_run_sessions(struct sim *s)
{
    s->state = s->seed ^ 0x5e5510;
    struct world *w = make_world(s);
    bool early = sim_has(s, SIM_CANCEL) && sim_chance(s, 3);
    uint64_t steps = early ? sim_random(s, 4000) : STEPS;
    for (s->step = 0; s->step < steps && !s->failed[0] && !all_done(w); s->step++)
        take_step(w);
    if (!s->failed[0] && !early && !all_done(w))
        sim_fail(s, "parcels have not ended after %d steps", STEPS);
    check_taken_back(w);
    end_sessions(w);
    check_closed(w);
    for (int side = 0; side < 2; side++) {
        for (unsigned i = 0; i < w->rails && !s->failed[0]; i++)
            hw_rail_free(&w->node[side].session.rail[i].rail);
        for (int k = 0; k < LOOPS; k++)
            hw_loop_free(&w->node[side].loop[k]);
    }
    for (unsigned i = 0; i < w->n_all; i++)
        free(w->all[i]);
    free(w);
}

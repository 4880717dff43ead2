/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* One end of a connection of a rail. */
struct hw_conn {
    struct world *w;
    struct pipes *pipes;
    int side;
    uint32_t poison; /* number of consecutive poison bytes that were written */
    uint8_t back[HW_LINK_BUF];
    uint32_t back_at, back_end; /* range of `back` that is to be read again */
};

struct pipes {
    struct sim_conn conn;
    struct hw_conn end[2];
};

/* ---- the transport -------------------------------------------------------------------------------- */

/* Checks that the bytes are not poison, which the application writes to memory that it owns again. */
static void look_for_poison(struct hw_conn *c, const struct hw_piece *piece, uint64_t bytes)
{
    for (; bytes; piece++) {
        uint64_t n = HW_MIN(bytes, piece->len);
        for (uint64_t i = 0; i < n; i++) {
            c->poison = ((const uint8_t *)piece->ptr)[i] == WORLD_POISON ? c->poison + 1 : 0;
            if (c->poison == SIM_POISON_ROW)
                sim_fail(c->w->s, "node %d sends memory that is the application's again", c->side);
        }
        bytes -= n;
    }
}

static int attach_conn(struct hw_conn *c, struct hw_rail *r, unsigned link)
{
    (void)c, (void)r, (void)link; /* rails are notified at random times */
    return 0;
}

static int64_t write_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    int64_t rc = sim_conn_move(c->w->s, &c->pipes->conn, c->side, piece, n, true);
    if (rc > 0)
        look_for_poison(c, piece, (uint64_t)rc);
    return rc;
}

static int unread_conn(struct hw_conn *c, const uint8_t *data, uint32_t n)
{
    uint32_t left = c->back_end - c->back_at;
    memmove(c->back + n, c->back + c->back_at, left);
    memcpy(c->back, data, n);
    c->back_at = 0;
    c->back_end = n + left;
    return 0;
}

static int64_t read_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    while (n && piece->len == 0)
        piece++, n--;
    if (n && c->back_at < c->back_end) {
        uint32_t some = (uint32_t)HW_MIN(piece->len, (uint64_t)(c->back_end - c->back_at));
        some = sim_has(c->w->s, SIM_PARTIAL) ? 1 + (uint32_t)sim_random(c->w->s, some) : some;
        memcpy(piece->ptr, c->back + c->back_at, some);
        c->back_at += some;
        return some;
    }
    return sim_conn_move(c->w->s, &c->pipes->conn, c->side, piece, n, false);
}

static void close_conn(struct hw_conn *c)
{
    sim_conn_close(c->w->s, &c->pipes->conn, c->side);
}

static struct hw_link_apart get_apart(const struct hw_conn *c)
{
    return sim_conn_apart(&c->pipes->conn, c->side);
}

static int64_t write_conn_apart(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    int64_t rc = sim_conn_move_apart(c->w->s, &c->pipes->conn, c->side, piece, n, true);
    if (rc > 0)
        look_for_poison(c, piece, (uint64_t)rc);
    return rc;
}

static int64_t read_conn_apart(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return sim_conn_move_apart(c->w->s, &c->pipes->conn, c->side, piece, n, false);
}

static int discard_conn(struct hw_conn *c)
{
    sim_conn_discard(&c->pipes->conn, c->side);
    return 0;
}

static int stop_reading(struct hw_conn *c)
{
    sim_conn_stop_reading(&c->pipes->conn, c->side);
    return 0;
}

static uint64_t get_released(struct hw_conn *c)
{
    return c->pipes->conn.apart[c->side].released;
}

/* Checks a connection. Sometimes reports an error if the network is dead and has not acknowledged everything. If
 * `alone` is set, sometimes suspects any path. Lowers *window at random. */
static int check_conn(struct hw_conn *c, uint64_t alone, uint64_t *window)
{
    struct sim *s = c->w->s;
    const struct sim_conn *conn = &c->pipes->conn;
    if (sim_conn_is_dead(conn) && sim_conn_is_sending(conn, c->side) && sim_chance(s, 3))
        return hw_fail(-ETIMEDOUT, "nothing is acknowledged any more");
    *window -= sim_random(s, *window / 3); /* parts cut by sessions still fit */
    return alone && sim_chance(s, 4);
}

const struct hw_rail_io world_io = {.attach = attach_conn,
                                    .write = write_conn,
                                    .read = read_conn,
                                    .unread = unread_conn,
                                    .close = close_conn,
                                    .check = check_conn,
                                    .apart = get_apart,
                                    .write_apart = write_conn_apart,
                                    .read_apart = read_conn_apart,
                                    .discard = discard_conn,
                                    .stop_reading = stop_reading,
                                    .released = get_released};

/* A step takes half a microsecond on average, and a working path moves data within a few hundred steps. */
static const struct hw_rail_limits world_limits = {
    .window = 4000, .patience = 30000, .ping = 100000, .dead = WORLD_DEAD};

/* ---- handshakes ----------------------------------------------------------------------------------- */

static void start_rail(struct world *w, int side, unsigned rail, uint32_t gen, const struct hw_word *peer)
{
    struct hw_conn *conn[WORLD_LINKS];
    for (unsigned k = 0; k < w->links; k++)
        conn[k] = &w->pipes[rail][k]->end[side];
    int rc = hw_session_start(w->side[side].session, rail, gen, conn, w->links, peer);
    sim_say(w->s, "node %d: rail %u stands, generation %u: %d", side, rail, gen, rc);
    for (unsigned k = 0; k < w->links && rc < 0; k++)
        close_conn(conn[k]);
}

static bool make_pipes(struct world *w, unsigned rail)
{
    sim_fail_memory(NULL); /* until the end of the turn */
    for (unsigned k = 0; k < w->links; k++) {
        struct pipes *p = calloc(1, sizeof *p);
        if (!p || w->n_all == HW_ARRAY_LEN(w->all)) {
            free(p);
            return false;
        }
        sim_conn_open(w->s, &p->conn);
        for (int side = 0; side < 2; side++)
            p->end[side] = (struct hw_conn){.w = w, .pipes = p, .side = side};
        w->pipes[rail][k] = w->all[w->n_all++] = p;
    }
    return true;
}

/* Answers a handshake as the server, if the session is ready to answer. */
static void answer(struct world *w, unsigned rail)
{
    struct attempt *a = &w->attempt[rail];
    if (a->at != AT_SERVER)
        return;
    int rc = hw_session_answer(w->side[1].session, rail, a->gen, &a->server);
    if (rc == -EAGAIN)
        return;
    a->at = NONE;
    if (rc < 0 || !make_pipes(w, rail))
        return;
    w->broken[rail] = false;
    if (w->faults && sim_has(w->s, SIM_RESET) &&
        sim_chance(w->s, 12)) { /* this side reports that the transports do not match */
        w->faults--;
        w->broken[rail] = true;
        for (unsigned k = 0; k < w->links; k++)
            close_conn(&w->pipes[rail][k]->end[1]);
        hw_session_give_up(w->side[1].session, rail, a->gen);
    } else {
        start_rail(w, 1, rail, a->gen, NULL);
    }
    a->at = WELCOME;
}

void world_note_down(struct world *w, int side, unsigned rail)
{
    if (side == 1)
        answer(w, rail);
}

/* Returns true if a frame on one of the rail's connections may take longer than the timeout for a stopped rail, which
 * delays the acknowledgements after it, too. A payload in small parts on the second stream may also take that long. */
static bool is_narrow(const struct world *w, unsigned rail)
{
    bool narrow = sim_has(w->s, SIM_APART) && sim_has(w->s, SIM_PARTIAL);
    for (unsigned k = 0; k < w->links; k++)
        narrow |= w->pipes[rail][k] && w->pipes[rail][k]->conn.room < SIM_PIPE;
    return narrow && w->limits.check;
}

void world_note_end(struct world *w, int side, unsigned rail, int why)
{
    sim_say(w->s, "node %d: rail %u ends: %d (%s)", side, rail, why, hw_error());
    bool excused = w->broken[rail] || w->now < w->excused || w->nic[rail].is != NIC_WORKS || is_narrow(w, rail);
    if (why == -ETIMEDOUT && !excused)
        sim_fail(w->s, "node %d gives rail %u up, which works", side, rail);
}

static void step_handshake(struct world *w, unsigned rail)
{
    struct sim *s = w->s;
    struct attempt *a = &w->attempt[rail];
    bool dark = w->nic[rail].is == NIC_DARK, lost = w->faults && sim_has(s, SIM_RESET) && sim_chance(s, 6);
    /* true if the server, not the client, takes the next step */
    bool server = a->at == HELLO || a->at == AT_SERVER;
    if (!dark && (world_is_still(w, server) || (w->stuck && server)))
        return;
    if ((dark || lost) && a->at != NONE) {
        w->faults -= lost;
        w->broken[rail] |= a->at == WELCOME;
        if (a->at == WELCOME)
            for (unsigned k = 0; k < w->links; k++)
                w->pipes[rail][k]->conn.closed[0] = true;
        a->at = NONE;
        hw_session_give_up(w->side[0].session, rail, a->gen);
        return;
    }
    switch (a->at) {
    case NONE:
        if (dark)
            break;
        if (sim_has(s, SIM_MEMORY) && w->faults && sim_chance(s, 4))
            w->faults--; /* allocations do not fail forever */
        a->gen = hw_session_hello(w->side[0].session, rail, &a->client);
        if (a->gen)
            a->at = HELLO;
        break;
    case HELLO:
        a->at = AT_SERVER;
        int rc = hw_session_ask(w->side[1].session, rail, a->gen, &a->client);
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

/* events */

static void break_rail(struct world *w, unsigned rail)
{
    struct sim *s = w->s;
    struct pipes *p = w->pipes[rail][sim_random(s, w->links)];
    if (!w->faults || !p)
        return;
    w->faults--;
    w->broken[rail] = true;
    sim_say(s, "a connection of rail %u %s", rail, sim_conn_break(s, &p->conn));
}

/* Makes a NIC slow. */
static void slow_nic(struct world *w, unsigned rail)
{
    struct nic *nic = &w->nic[rail];
    if (!w->faults || nic->is != NIC_WORKS)
        return;
    w->faults--;
    *nic = (struct nic){NIC_SLOW, 2 + (uint32_t)sim_random(w->s, 60), w->steps + sim_random(w->s, 8000)};
    w->broken[rail] = true;
    sim_say(w->s, "the NIC of rail %u is slow", rail);
}

/* Lets a slow NIC recover or die, or a dead NIC recover. When a NIC dies, all its connections become silent, and no
 * connection can be made for a while. */
static void step_nic(struct world *w, unsigned rail)
{
    struct nic *nic = &w->nic[rail];
    if (nic->is == NIC_WORKS || w->steps < nic->until)
        return;
    bool dies = nic->is == NIC_SLOW && sim_chance(w->s, 2);
    nic->is = dies ? NIC_DARK : NIC_WORKS;
    nic->until = w->steps + sim_random(w->s, 8000);
    w->excused = HW_MAX(w->excused, w->now + WORLD_DEAD);
    for (unsigned k = 0; k < w->links && dies; k++)
        if (w->pipes[rail][k])
            w->pipes[rail][k]->conn.silent = true;
    w->broken[rail] |= dies;
    sim_say(w->s, "the NIC of rail %u %s", rail, dies ? "is dead" : "works again");
}

/* Makes the clock jump, as if both machines had been suspended, or suspends a loop or the process of one node while
 * time goes on. */
static void jump(struct world *w)
{
    struct sim *s = w->s;
    if (!w->faults)
        return;
    w->faults--;
    uint64_t side = sim_random(s, 2), ns = 0;
    switch (sim_random(s, 4)) {
    case 0:
        ns = sim_random(s, 3 * WORLD_DEAD);
        break;
    case 1:
        ns = sim_random(s, 1500 * HW_MS);
        break;
    case 2:
        w->late = &w->side[side].loop[1 + sim_random(s, WORLD_LOOPS - 1)];
        w->late_until = w->steps + sim_random(s, 4000);
        sim_say(s, "a loop of node %d gets no CPU", (int)side);
        break;
    default:
        w->still[side] = w->steps + sim_random(s, 9000);
        sim_say(s, "node %d is suspended", (int)side);
    }
    w->now += ns;
    w->excused = w->now + WORLD_DEAD;
    w->resumed = w->now;
    if (ns)
        sim_say(s, "the clock jumps by %llu us", (unsigned long long)(ns / 1000));
}

bool world_is_still(const struct world *w, int side)
{
    return w->steps < w->still[side];
}

void world_calm(struct world *w)
{
    w->still[0] = w->still[1] = w->late_until = 0;
    w->stuck = false;
    for (unsigned i = 0; i < w->rails; i++)
        w->nic[i].is = NIC_WORKS;
}

/* Lets a side detect, late, that the other side has closed a connection. A side cannot detect this on a silent express
 * link. */
static void notice(struct world *w, int side, unsigned rail)
{
    for (unsigned k = 0; k < w->links; k++) {
        struct pipes *p = w->pipes[rail][k];
        if (!p || p->conn.hung)
            continue;
        bool ended = p->conn.closed[!side] || p->conn.told[!side], dead = sim_conn_is_dead(&p->conn);
        /* TCP eventually reports a silent connection to a side that has sent data */
        if ((ended && !p->conn.silent && !p->conn.lost[!side]) ||
            (dead && k > 0 && sim_conn_is_sending(&p->conn, side) && sim_chance(w->s, 10)))
            p->conn.told[side] = true;
    }
}

/* Notifies a rail that its connections may be ready. */
static void tell_rail(struct world *w, int side, unsigned rail)
{
    struct hw_rail *r = &w->side[side].session->rail[rail].rail;
    for (unsigned k = 0; k < r->links; k++)
        hw_rail_ready(r, k);
    hw_session_wake(w->side[side].session, rail);
}

void world_notice(struct world *w, int side)
{
    unsigned rail = (unsigned)sim_random(w->s, w->rails);
    notice(w, side, rail);
    tell_rail(w, side, rail);
}

void world_turn(struct world *w, int side, unsigned budget)
{
    struct hw_loop *loop = &w->side[side].loop[sim_random(w->s, WORLD_LOOPS)];
    bool late = loop == w->late && w->steps < w->late_until;
    if (world_is_still(w, side) || late || (w->stuck && loop == &w->side[1].loop[0]))
        return;
    sim_fail_memory(w->faults ? w->s : NULL);
    hw_loop_turn(loop, w->now, budget, NULL, NULL);
    sim_fail_memory(NULL);
}

void world_step(struct world *w)
{
    struct sim *s = w->s;
    int side = (int)sim_random(s, 2);
    unsigned rail = (unsigned)sim_random(s, w->rails), link = (unsigned)sim_random(s, w->links);
    w->now += sim_random(s, w->steps < w->late_until ? 20000 : 1000);
    w->steps++;
    if (sim_has(s, SIM_JUMP) && sim_chance(s, 4096))
        jump(w);
    if (world_is_still(w, 0) || world_is_still(w, 1))
        w->resumed = w->now;
    if (w->resumed == w->now || w->stuck || w->steps < w->late_until)
        w->excused = w->now + 2 * WORLD_DEAD;
    if (sim_has(s, SIM_SLOW))
        step_nic(w, rail);
    switch (sim_random(s, 31)) {
    case 0:
    case 1:
        step_handshake(w, rail);
        break;
    case 2:
        if (sim_chance(s, 8))
            (sim_has(s, SIM_SLOW) && sim_chance(s, 2) ? slow_nic : break_rail)(w, rail);
        break;
    case 3:
        notice(w, side, rail);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
        tell_rail(w, side, rail);
        break;
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
        if (w->pipes[rail][link] && (w->nic[rail].is != NIC_SLOW || sim_chance(s, w->nic[rail].slow)))
            sim_conn_deliver(s, &w->pipes[rail][link]->conn);
        break;
    default:
        world_turn(w, side, 1 + (unsigned)sim_random(s, 2));
    }
}

/* lifetime */

static void wake_nobody(void *arg)
{
    (void)arg; /* the schedule runs every loop anyway */
}

void world_init(struct world *w, struct sim *s)
{
    w->s = s;
    w->rails = sim_has(s, SIM_LINKS) ? 1 + (unsigned)sim_random(s, WORLD_RAILS) : 1;
    w->links = sim_has(s, SIM_LINKS) ? 1 + (unsigned)sim_random(s, WORLD_LINKS) : 1;
    w->faults = sim_pick_faults(s);
    w->limits = world_limits;
    w->limits.check = sim_has(s, SIM_SLOW) ? 40000 : 0;
    for (int side = 0; side < 2; side++) {
        struct world_side *n = &w->side[side];
        for (int k = 0; k < WORLD_LOOPS; k++)
            hw_loop_init(&n->loop[k], wake_nobody, NULL);
        for (unsigned i = 0; i < w->rails; i++)
            n->rail_loop[i] = &n->loop[sim_random(s, WORLD_LOOPS)];
    }
}

/* Checks that each connection was closed by every side that held it. */
void world_check_closed(struct world *w)
{
    for (unsigned i = 0; i < w->rails; i++)
        for (unsigned k = 0; k < w->links && w->attempt[i].at == WELCOME; k++)
            w->pipes[i][k]->conn.closed[0] = true; /* the client never held this connection */
    for (unsigned i = 0; i < w->n_all; i++)
        for (int side = 0; side < 2; side++)
            if (!w->all[i]->conn.closed[side])
                sim_fail(w->s, "node %d leaves a connection open", side);
}

void world_free(struct world *w)
{
    for (unsigned i = 0; i < w->n_all; i++)
        free(w->all[i]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session between two nodes of two loops each, over up to three rails that fail, become silent and reconnect, while
 * handshakes are lost. One or both sides send parcels: some with hw_session_send(), and some that rails cut.
 *
 * Checks: while the session is alive, each parcel that is not cancelled arrives once and complete. A parcel is done
 * only after it has arrived. Nothing that an honest peer sends is refused. Everything ends. At the end the sessions
 * die, one after the other; each parcel is then either done or lost, exactly once, and nothing of the session is left.
 */
#include "world.h"

#include "wire/wire.h"

#include <stdlib.h>
#include <string.h>

#define PARCELS 60
#define LENGTH  2500
#define STEPS   60000
#define DRAIN   6000 /* steps within which a dead session has to release everything */

struct parcel {
    struct hw_parcel parcel;
    bool sent, arrived, done, lost;
    bool off, off_over;         /* cancelled by the sender; the sender may use the memory again */
    bool revoked, revoked_over; /* revoked by the receiver; the receiver may use the memory again */
    struct hw_let_go cancel, revoke;
    uint32_t serial, len, mark;
    uint8_t src[LENGTH], dst[LENGTH];
};

struct node {
    struct world *w;
    struct node *other;
    int side;
    struct hw_session session;
    struct parcel parcel[PARCELS];
    uint32_t n, posted, to_cut; /* parcels: total; passed to the session; waiting to be cut by a rail */
    uint32_t placed;            /* frames between place() and their end */
    uint32_t mark, marked;      /* this side's mark; the peer's newest mark */
};

static uint8_t expected_byte(int side, uint32_t serial, uint32_t offset)
{
    return (uint8_t)(hw_hash(HW_HASH_START, (uint32_t[]){(uint32_t)side, serial, offset}, 12) >> 17);
}

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
    out->piece[0] = (struct hw_piece){&hw_host, q->src, q->len, &q->cancel};
    out->n_pieces = 1;
    return true;
}

static bool keep_parcel(void *up, struct hw_parcel *p)
{
    struct node *n = up;
    struct parcel *q = hw_container_of(p, struct parcel, parcel);
    if (q->off)
        sim_say(n->w->s, "node %d drops parcel %u, which waited", n->side, q->serial);
    q->lost |= q->off;
    return !q->off;
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

/* Places the payload in two halves. */
static int more_of_parcel(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                          uint32_t *n_pieces)
{
    struct parcel *q = in->cookie;
    (void)up, (void)rail;
    uint32_t len = at == 0 && q->len > 1 ? q->len / 2 : q->len - (uint32_t)at;
    piece[0] = (struct hw_piece){&hw_host, q->revoked ? NULL : q->dst + at, len, &q->revoke};
    *n_pieces = 1;
    return 0;
}

static int place_parcel(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n_pieces)
{
    struct node *n = up, *from = n->other;
    (void)rail;
    struct parcel *q = &from->parcel[hw_get32(in->ext)];
    if (in->ext_len != 4 || hw_get32(in->ext) >= from->n || !q->sent || q->len != in->pay) {
        sim_fail(n->w->s, "a frame of %u bytes arrives that nobody sent", in->pay);
        return -EPROTO;
    }
    if (q->done)
        sim_fail(n->w->s, "bytes of parcel %u of node %d arrive after its end", q->serial, from->side);
    in->cookie = q;
    n->placed++;
    return more_of_parcel(up, rail, in, 0, piece, n_pieces);
}

static void abandon_parcel(void *up, unsigned rail, const struct hw_link_in *in)
{
    struct node *n = up;
    (void)rail, (void)in;
    n->placed--;
}

/* Returns the mark, which is the number of parcels that have arrived. */
static uint32_t get_mark(void *up)
{
    struct node *n = up;
    return n->mark;
}

static void take_mark(void *up, uint32_t mark)
{
    struct node *n = up;
    if (mark > n->other->mark)
        sim_fail(n->w->s, "node %d is told the mark %u, and the newest is %u", n->side, mark, n->other->mark);
    n->marked = HW_MAX(n->marked, mark);
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
    q->mark = ++n->mark;
    n->placed--;
    for (uint32_t i = 0; i < q->len && !q->revoked; i++)
        if (q->dst[i] != expected_byte(!n->side, q->serial, i))
            sim_fail(n->w->s, "byte %u of parcel %u is wrong", i, q->serial);
    return 0;
}

static void end_parcel(struct node *n, struct hw_parcel *p)
{
    struct parcel *q = hw_container_of(p, struct parcel, parcel);
    if (!q->arrived)
        sim_fail(n->w->s, "parcel %u is done and has not arrived", q->serial);
    if (q->done || q->lost)
        sim_fail(n->w->s, "parcel %u ends twice", q->serial);
    if (q->mark > n->marked)
        sim_fail(n->w->s, "parcel %u is done before its mark is here", q->serial);
    q->done = true;
}

static void end_parcels(void *up, unsigned rail, struct hw_parcel *list)
{
    (void)rail;
    for (struct hw_parcel *next; list; list = next) {
        next = list->next;
        end_parcel(up, list);
    }
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
    world_note_end(n->w, n->side, rail, why);
}

static void note_down(void *up, unsigned rail)
{
    struct node *n = up;
    world_note_down(n->w, n->side, rail);
}

static void note_death(void *up, int why)
{
    struct node *n = up;
    sim_fail(n->w->s, "node %d's session dies of %d: %s", n->side, why, hw_error());
}

static void note_suspected(void *up, unsigned rail)
{
    struct node *n = up;
    (void)rail;
    for (unsigned i = 0; i < n->session.rails; i++)
        hw_session_wake(&n->session, i);
}

static const struct hw_session_ops ops = {.fill = fill_parcel,
                                          .cut = cut_parcel,
                                          .keep = keep_parcel,
                                          .place = place_parcel,
                                          .more = more_of_parcel,
                                          .arrived = take_parcel,
                                          .abandoned = abandon_parcel,
                                          .mark = get_mark,
                                          .marked = take_mark,
                                          .suspected = note_suspected,
                                          .done = end_parcels,
                                          .ended = note_end,
                                          .down = note_down,
                                          .died = note_death,
                                          .lost = lose_parcel};

/* events */

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

static void end_cancel(struct hw_let_go *g)
{
    struct parcel *q = hw_container_of(g, struct parcel, cancel);
    q->off_over = true;
    memset(q->src, WORLD_POISON,
           sizeof q->src); /* the application owns this memory again: these bytes must not be sent */
}

static void end_revoke(struct hw_let_go *g)
{
    struct parcel *q = hw_container_of(g, struct parcel, revoke);
    q->revoked_over = true;
    memset(q->dst, WORLD_POISON, sizeof q->dst);
}

/* Cancels a parcel, at its sender or its receiver. */
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
        hw_session_let_go(&n->other->session, &q->revoke);
    }
}

/* Checks that nothing has changed the memory that was returned to receivers. */
static void check_taken_back(struct sim *s, struct node node[2])
{
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < node[side].posted; i++) {
            const struct parcel *q = &node[side].parcel[i];
            for (uint32_t k = 0; k < q->len && q->revoked_over; k++)
                if (q->dst[k] != WORLD_POISON)
                    sim_fail(s, "byte %u of parcel %u lands in memory that was taken back", k, i);
        }
}

static bool all_done(const struct node node[2])
{
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < node[side].n; i++) {
            const struct parcel *q = &node[side].parcel[i];
            if ((!q->done && !q->lost) || (q->off && !q->off_over) || (q->revoked && !q->revoked_over))
                return false;
        }
    return true;
}

/* Kills node 0's session and then node 1's, and checks that nothing is left. */
static void end_sessions(struct world *w, struct node node[2])
{
    struct sim *s = w->s;
    for (int k = 0; k < 2 && !s->failed[0]; k++) {
        struct node *n = &node[k];
        hw_session_die(&n->session, -ESHUTDOWN);
        world_calm(w);
        for (int i = 0; i < DRAIN && !hw_session_is_gone(&n->session); i++)
            world_turn(w, k, 1);
        if (!hw_session_is_gone(&n->session))
            sim_fail(s, "node %d's session, which is dead, is not gone", k);
        if (n->placed)
            sim_fail(s, "node %d's session is gone with %u frames that have not ended", k, n->placed);
        for (uint32_t i = 0; i < n->posted; i++)
            if (n->parcel[i].sent && !n->parcel[i].done && !n->parcel[i].lost)
                sim_fail(s, "node %d's session is gone, and parcel %u has not ended", k, i);
    }
}

static void make_node(struct world *w, struct node node[2], int side)
{
    struct sim *s = w->s;
    struct node *n = &node[side];
    n->w = w;
    n->side = side;
    n->other = &node[!side];
    n->n = side == 0 || sim_has(s, SIM_BOTH) ? sim_pick_ops(s, PARCELS) : 0;
    w->side[side].session = &n->session;
    if (hw_session_init(&n->session, side == 0, &w->side[side].loop[0], w->side[side].rail_loop, w->rails, &ops,
                        &world_io, n, &w->limits) < 0)
        abort();
    for (unsigned i = 0; i < w->rails; i++)
        hw_session_pair(&n->session, i, i / (1 + w->s->seed % 2)); /* each rail alone, or two rails per pair of NICs */
    for (uint32_t i = 0; i < n->n; i++) {
        struct parcel *q = &n->parcel[i];
        q->serial = i;
        q->len = sim_chance(s, 2) ? (uint32_t)sim_random(s, 40) : (uint32_t)sim_random(s, LENGTH);
        for (uint32_t k = 0; k < q->len; k++)
            q->src[k] = expected_byte(side, i, k);
    }
}

void sim_run_sessions(struct sim *s)
{
    s->state = s->seed ^ 0x5e5510;
    struct world *w = calloc(1, sizeof *w);
    struct node *node = calloc(2, sizeof *node);
    if (!w || !node)
        abort();
    world_init(w, s);
    make_node(w, node, 0);
    make_node(w, node, 1);
    bool early = sim_has(s, SIM_CANCEL) && sim_chance(s, 3);
    uint64_t steps = early ? sim_random(s, 4000) : STEPS;
    for (s->step = 0; s->step < steps && !s->failed[0] && !all_done(node); s->step++) {
        struct node *n = &node[sim_random(s, 2)];
        world_step(w);
        if (world_is_still(w, n->side))
            continue;
        if (sim_chance(s, 32) && (n->side == 0 || sim_has(s, SIM_BOTH)))
            post_parcel(w, n);
        if (sim_chance(s, 128))
            call_off(w, n);
    }
    if (!s->failed[0] && !early && !all_done(node))
        sim_fail(s, "parcels have not ended after %d steps", STEPS);
    check_taken_back(s, node);
    end_sessions(w, node);
    world_check_closed(w);
    for (int side = 0; side < 2 && !s->failed[0]; side++)
        hw_session_free(&node[side].session);
    world_free(w);
    free(node);
    free(w);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message layer between two nodes: writes, reads and notifications of various sizes over regions that are created
 * and revoked, cancelled explicitly and by deadline, while rails fail and memory runs out.
 *
 * Checks: each posted operation ends once. A successful operation has moved every byte by the time it ends; a failed
 * operation has a valid reason. After an operation has ended, nothing reads or writes its memory, and no more bytes of
 * a write arrive unless the write was given up. Only bytes that are written change in a region, and nothing accesses a
 * revoked region. Notifications arrive once, complete, and never before the bytes of their write; notifications without
 * a write arrive in order, and the notifications of successful operations always arrive. A side that closes announces
 * the close once, after the notifications that ended earlier. No limit is exceeded, and nothing waits for room that is
 * available. The layer above is called without a lock. No honest frame is refused. At the end nothing is left.
 */
#include "messages.h"

#include "liar.h"

#include <stdlib.h>
#include <string.h>

/* ---- notifications ---------------------------------------------------------------------------------- */

static void take_note(void *up, struct hw_note *note)
{
    struct node *n = up;
    struct sim *s = n->w->s;
    uint32_t serial = OPS;
    msg_check_unlocked(n);
    memcpy(&serial, note->data, HW_MIN(note->len, 4));
    struct action *a = serial < OPS ? &n->other->action[serial] : NULL;
    sim_say(s, "node %d gets notification %u", n->side, serial);
    if (n->w->lies) {
        sim_say(s, "from a peer that lies");
    } else if (!a || !a->noted || a->heard) {
        sim_fail(s, "node %d gets notification %u twice, or nobody sent it", n->side, serial);
    } else {
        a->heard = true;
        msg_check_note(n, a, note);
    }
    if (sim_chance(s, 4)) {
        hw_peer_took(&n->peer, note->len);
        free(note);
    } else {
        note->next = n->notes;
        n->notes = note;
    }
    msg_do_more(n);
}

static void take_all_notes(struct node *n)
{
    sim_fail_memory(n->w->faults ? n->w->s : NULL);
    while (n->notes) {
        struct hw_note *note = n->notes;
        n->notes = note->next;
        hw_peer_took(&n->peer, note->len);
        free(note);
    }
    sim_fail_memory(NULL);
}

/* room in use */

/* Sometimes sets counters as if the node had already sent a lot of data: the peer's application has not taken most of
 * the notifications that fit in the buffer, most read requests are unanswered, and the peer has read control messages
 * but not acknowledged them. */
static void fill_rooms(struct node *n)
{
    struct sim *s = n->w->s;
    struct hw_peer *p = &n->peer, *o = &n->other->peer;
    if (sim_chance(s, 3)) {
        n->held_notes = HW_NOTES - 200 - (uint32_t)sim_random(s, 6000);
        p->noted += n->held_notes;
        atomic_fetch_add(&o->notes_held, n->held_notes);
    }
    if (sim_chance(s, 3)) {
        n->held_requests = HW_READS - 1 - (uint32_t)sim_random(s, 3);
        p->requests += n->held_requests;
        atomic_fetch_add(&o->serves, n->held_requests);
    }
    uint32_t next = sim_chance(s, 2) ? 5000 : (uint32_t)-sim_random(s, 40);
    uint32_t acked = next - (uint32_t)sim_random(s, sim_chance(s, 2) ? 1 : HW_CONTROL_WINDOW);
    p->out.next = next;
    atomic_store(&p->out.acked, acked);
    atomic_store(&p->out.refused, acked);
    atomic_store(&o->in.next, next);
    atomic_store(&o->in.told, acked);
    o->in.acked = acked;
}

/* Releases the room that fill_rooms() took. */
static void make_room(struct node *n)
{
    struct hw_peer *p = &n->peer, *o = &n->other->peer;
    if (n->held_notes)
        hw_peer_took(o, n->held_notes - HW_NOTE_COST);
    n->held_notes = 0;
    atomic_fetch_sub(&o->serves, n->held_requests);
    pthread_mutex_lock(&p->lock);
    for (; n->held_requests; n->held_requests--)
        hw_request_ended(p);
    pthread_mutex_unlock(&p->lock);
    hw_ops_flush(p);
}

/* Checks that nothing waits for room that is available. */
static void check_rooms(const struct node *n)
{
    const struct hw_peer *p = &n->peer;
    struct sim *s = n->w->s;
    if (p->dead)
        return;
    const struct hw_op *note = hw_list_first(&p->notes, struct hw_op, queued);
    const struct hw_op *read = hw_list_first(&p->reads, struct hw_op, queued);
    if (note && p->noted - p->taken + hw_note_cost(note->note) <= HW_NOTES)
        sim_fail(s, "node %d has a notification that waits for room that is there", n->side);
    if (p->out.first && p->out.first->sequence - atomic_load(&p->out.acked) < HW_CONTROL_WINDOW)
        sim_fail(s, "node %d has a control message that waits for room that is there", n->side);
    if (read && p->requests < HW_READS && atomic_load(&read->cursor) < read->total && !sim_has(s, SIM_MEMORY))
        sim_fail(s, "node %d has a read that waits for room that is there", n->side);
}

/* Records whether an operation is overdue. Called before each step for all operations, because the script does not know
 * the operations that answer the peer's requests. */
static void note_overdue(struct node *n)
{
    hw_list_each(it, tmp, &n->peer.all)
    {
        const struct hw_op *op = hw_container_of(it, struct hw_op, all);
        n->overdue |= bounds_is_overdue(op, n->w->now);
    }
}

/* Checks the limits on the node's peer and operations, unless the node is the liar. */
static void check_limits(struct node *n)
{
    if (n->w->lies && n->side == 1)
        return;
    bounds_check(n->w, n->side, &n->peer);
    for (uint32_t i = 0; i < n->posted; i++) {
        struct action *a = &n->action[i];
        if (a->posted && !a->over)
            bounds_watch(n->w, n->side, &a->watch, a->op);
    }
}

/* notifications of the message layer */

static void note_end(void *up, unsigned rail, int why)
{
    struct node *n = up;
    msg_check_unlocked(n);
    world_note_end(n->w, n->side, rail, why);
}

static void note_down(void *up, unsigned rail)
{
    struct node *n = up;
    msg_check_unlocked(n);
    world_note_down(n->w, n->side, rail);
}

static void note_death(void *up, int why)
{
    struct node *n = up;
    /* if the clock has just jumped, note_overdue() may not have run since the jump */
    bool overdue = n->overdue || n->w->now - n->w->resumed < 2 * HW_TICK;
    for (uint32_t i = 0; i < n->posted; i++) {
        const struct action *a = &n->action[i];
        overdue |= a->posted && (!a->over || msg_is_deserted(a)) && a->op &&
                   bounds_is_overdue(a->op, n->peer.session.home->now);
    }
    sim_say(n->w->s, "node %d's peer dies of %d: %s", n->side, why, hw_error());
    bool may = n->w->lies && (n->side == 1 || why == -EPROTO);
    if (!may && (!n->impatient || why != -ETIMEDOUT || !overdue))
        sim_fail(n->w->s, "node %d's peer dies of %d: %s", n->side, why, hw_error());
}

static void note_bye(void *up)
{
    struct node *n = up;
    msg_check_unlocked(n);
    sim_say(n->w->s, "node %d hears that its peer closes", n->side);
    msg_check_bye(n);
    msg_do_more(n);
}

static const struct hw_peer_ops ops = {
    .noted = take_note, .ended = note_end, .down = note_down, .died = note_death, .bye = note_bye};

/* ---- schedules -------------------------------------------------------------------------------------- */

static void take_step(struct world *w, struct node node[2])
{
    struct sim *s = w->s;
    struct node *n = &node[sim_random(s, 2)];
    bool active = n->side == 0 || sim_has(s, SIM_BOTH);
    note_overdue(&node[0]);
    note_overdue(&node[1]);
    world_step(w);
    check_rooms(&node[0]);
    if (!w->lies)
        check_rooms(&node[1]);
    msg_check_order(&node[0]);
    msg_check_order(&node[1]);
    if (w->steps % 32 < 2)
        check_limits(&node[w->steps % 2]);
    if (world_is_still(w, n->side))
        return;
    if (sim_chance(s, 128) && active && n->posted < n->n)
        msg_post_op(n);
    if (sim_chance(s, 512) && sim_has(s, SIM_CANCEL))
        msg_cancel_op(n);
    if (sim_chance(s, 4096) && sim_has(s, SIM_REVOKE))
        msg_revoke_region(n);
    if (sim_chance(s, 512))
        take_all_notes(n);
    if (sim_chance(s, 4096))
        make_room(n);
    if (sim_chance(s, 1024))
        msg_forget_ops(n, false);
}

static void make_node(struct world *w, struct node node[2], int side, bool impatient)
{
    static const uint8_t binding[HW_BINDING] = "one session";
    struct node *n = &node[side];
    n->w = w;
    n->side = side;
    n->other = &node[!side];
    n->impatient = impatient;
    n->n = side == 0 || sim_has(w->s, SIM_BOTH) ? sim_pick_ops(w->s, OPS) : 0;
    hw_domain_init(&n->domain);
    if (hw_peer_init(&n->peer, &n->domain, side == 0, &w->side[side].loop[0], w->side[side].rail_loop, w->rails, &ops,
                     &world_io, n, &w->limits, binding) < 0)
        abort();
    for (unsigned i = 0; i < w->rails; i++)
        hw_peer_pair(&n->peer, i, i / (1 + w->s->seed % 2)); /* each rail alone, or two rails per pair of NICs */
    n->peer.patience = HW_TICK + sim_random(w->s, 4) * HW_MS;
    n->peer.by_reference = w->s->seed % 7 == 3;
    n->peer.relieved = 1;
    n->peer.relief = n->peer.session.rails > 1 && w->s->seed % 3 == 1;
    if (!n->impatient)
        n->peer.answer_in = 100000 * HW_MS; /* more than the slow simulated network needs */
    w->side[side].session = &n->peer.session;
}

/* Kills one side's peer and then the other side's, and checks that nothing is left. The other side keeps running while
 * the first peer dies. */
static void end_peers(struct world *w, struct node node[2])
{
    struct sim *s = w->s;
    for (unsigned i = 0; i < w->rails; i++)
        w->broken[i] = true; /* no more answers arrive */
    world_calm(w);
    for (int k = 0; k < 2 && !s->failed[0]; k++) {
        struct node *n = &node[k];
        sim_say(s, "node %d's peer is to die", k);
        hw_peer_die(&n->peer, -ESHUTDOWN);
        uint64_t more = k == 0 ? sim_random(s, 4000) : 0; /* sometimes the other side learns of the kill */
        for (uint64_t i = 0; i < DRAIN && (!hw_peer_is_gone(&n->peer) || i < more); i++) {
            bool gone = hw_peer_is_gone(&n->peer);
            w->now += sim_random(s, 1000);
            world_turn(w, gone || sim_chance(s, 4) ? !k : k, 1);
            if (k == 0 && sim_chance(s, 32))
                world_notice(w, 1);
            struct node *any = gone ? n->other : &node[k + sim_random(s, 2 - (unsigned)k)];
            if (sim_chance(s, 64))
                msg_do_more(any);
            if (sim_chance(s, 512) && sim_has(s, SIM_REVOKE))
                msg_revoke_region(any);
        }
        if (!hw_peer_is_gone(&n->peer))
            sim_fail(s, "node %d's peer, which is dead, is not gone", k);
        for (uint32_t i = 0; i < n->posted; i++)
            if (n->action[i].posted && !n->action[i].over)
                sim_fail(s, "node %d's peer is gone, and operation %u has not ended", k, i);
        for (uint32_t i = 0; i < n->regions; i++)
            if (n->region[i]->revoking && !n->region[i]->revoked)
                sim_fail(s, "node %d's peer is gone, and region %u, which was taken back, is in use", k, i);
    }
}

static void free_node(struct node *n)
{
    take_all_notes(n);
    msg_forget_ops(n, true);
    hw_peer_free(&n->peer);
    n->freed = true;
    for (uint32_t i = 0; i < n->regions; i++) {
        if (!n->region[i]->revoking)
            hw_export_revoke(&n->region[i]->x);
        if (!n->region[i]->revoked)
            sim_fail(n->w->s, "region %u of node %d is in use, and there is no peer", i, n->side);
        free(n->region[i]);
    }
    hw_domain_free(&n->domain);
}

static bool keeps_own_ops(struct hw_peer *p)
{
    hw_list_each(it, tmp, &p->all) if (hw_container_of(it, struct hw_op, all)->kind != HW_OP_SERVE) return true;
    return false;
}

/* Stops node 1's home loop at a random step, so that node 1 sends nothing more although its rails work, or lets node 1
 * lie. Checks that operations that node 0 then cancels still end. */
static void run_with_bad_peer(struct world *w, struct node node[2], bool stuck)
{
    struct sim *s = w->s;
    uint64_t from = sim_random(s, 20000), end = from + STEPS;
    for (s->step = 0; s->step < end && !s->failed[0] && !(s->step > from && msg_has_ended(&node[0])); s->step++) {
        if (s->step == from && stuck)
            sim_say(s, "the home loop of node 1 stands still");
        w->stuck |= s->step == from && stuck;
        node[1].overdue |= w->stuck; /* the time limit has expired when the home loop continues at the end */
        take_step(w, node);
        if (s->step > from && node[0].posted == node[0].n)
            msg_cancel_all(&node[0]);
    }
    if (!s->failed[0] && !msg_has_ended(&node[0]))
        sim_fail(s, "operations of node 0 were called off, and have not ended");
    /* node 0 does not keep cancelled operations forever: the peer answers in time or is declared dead */
    bool kept = true;
    for (end = s->step + STEPS; stuck && kept && s->step < end && !s->failed[0]; s->step++) {
        take_step(w, node);
        kept = !node[0].peer.dead && keeps_own_ops(&node[0].peer);
    }
    if (!s->failed[0] && stuck && kept)
        sim_fail(s, "node 1 does not answer, and node 0 keeps operations for it");
}

void sim_run_messages(struct sim *s)
{
    s->state = s->seed ^ 0x3e55a6e;
    struct world *w = calloc(1, sizeof *w);
    struct node *node = calloc(2, sizeof *node);
    if (!w || !node)
        abort();
    world_init(w, s);
    bool stuck = sim_has(s, SIM_STUCK) && sim_chance(s, 4), lies = sim_has(s, SIM_LIAR) && !stuck && sim_chance(s, 4);
    make_node(w, node, 0, stuck || lies);
    make_node(w, node, 1, stuck || lies);
    if (lies)
        liar_take_over(w, &node[1].peer);
    fill_rooms(&node[0]);
    fill_rooms(&node[1]);
    if (stuck || lies)
        run_with_bad_peer(w, node, stuck);
    bool early = stuck || lies || (sim_has(s, SIM_CANCEL) && sim_chance(s, 3));
    uint64_t steps = stuck || lies ? 0 : early ? sim_random(s, 20000) : STEPS;
    for (; s->step < steps && !s->failed[0] && !(msg_has_ended(&node[0]) && msg_has_ended(&node[1])); s->step++)
        take_step(w, node);
    if (!s->failed[0] && !early && !(msg_has_ended(&node[0]) && msg_has_ended(&node[1])))
        sim_fail(s, "operations have not ended after %d steps", STEPS);
    const char *left = NULL;
    for (uint64_t end = s->step + STEPS; s->step < end && !s->failed[0] && !early; s->step++) {
        left = msg_find_unsettled(&node[0]);
        left = left ? left : msg_find_unsettled(&node[1]);
        if (!left)
            break;
        world_step(w);
        struct node *n = &node[sim_random(s, 2)];
        if (sim_chance(s, 512) && !world_is_still(w, n->side))
            take_all_notes(n);
        if (sim_chance(s, 512) && !world_is_still(w, n->side))
            make_room(n);
    }
    if (!s->failed[0] && left)
        sim_fail(s, "all operations have ended, and %s is left", left);
    msg_check_node(&node[0]);
    msg_check_node(&node[1]);
    end_peers(w, node);
    msg_check_node(&node[0]);
    msg_check_node(&node[1]);
    if (!s->failed[0])
        world_check_closed(w);
    for (int side = 0; side < 2 && !s->failed[0]; side++)
        free_node(&node[side]);
    world_free(w);
    free(node);
    free(w);
}

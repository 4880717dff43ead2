/* SPDX-License-Identifier: Apache-2.0 */
#include "bounds.h"

/* Checks the bounds of a link's frames, buffers and windows. */
static void check_link_bounds(struct sim *s, int side, unsigned rail, const struct hw_link *l, uint64_t window)
{
    uint64_t n = l->started - l->confirmed, sum = 0, newest = 0;
    for (uint64_t i = l->confirmed; i < l->started && l->tx.flight; i++)
        sum += newest = l->tx.flight[i % l->tx.ring].bytes;
    if (n > HW_LINK_FLIGHT || n > l->tx.ring || l->tx.ring > HW_LINK_FLIGHT)
        sim_fail(s, "node %d has %llu frames in flight by a link of rail %u, in a ring of %u", side,
                 (unsigned long long)n, rail, l->tx.ring);
    if (sum != l->in_flight || sum - newest > window)
        sim_fail(s, "node %d counts %llu bytes in flight by a link of rail %u, there are %llu, and the window is %llu",
                 side, (unsigned long long)l->in_flight, rail, (unsigned long long)sum, (unsigned long long)window);
    if (l->tx.end > HW_LINK_BUF || l->rx.end > HW_LINK_BUF || l->tx.n_pieces > HW_ARRAY_LEN(l->tx.piece) ||
        l->rx.n_pieces > HW_LINK_PIECES)
        sim_fail(s, "node %d passes a buffer of a link of rail %u: %u and %u bytes, %u and %u pieces", side, rail,
                 l->tx.end, l->rx.end, l->tx.n_pieces, l->rx.n_pieces);
}

static void check_control_bounds(struct sim *s, int side, const struct hw_peer *p)
{
    uint32_t unread = (uint32_t)p->out.next - p->out.waiting - atomic_load(&p->out.acked), waiting = 0;
    for (const struct hw_control *c = p->out.first; c; c = c->next)
        waiting++;
    if (!p->dead && (unread > HW_CONTROL_WINDOW || waiting != p->out.waiting))
        sim_fail(s, "node %d has sent %u control messages that were not read, and %u of %u wait", side, unread, waiting,
                 p->out.waiting);
}

static uint32_t count_list(const struct hw_list *list)
{
    uint32_t n = 0;
    hw_list_each(it, tmp, list) n++;
    return n;
}

static void check_queue_bounds(struct sim *s, int side, struct hw_peer *p)
{
    struct hw_queues *t = &p->queues;
    if (t->n > HW_QUEUES_BOTH || t->n_grants > HW_OPS || t->sent > HW_EAGER_ROOM ||
        atomic_load(&t->held) > HW_EAGER_ROOM)
        sim_fail(s, "node %d passes a bound: %u queues, %u grants, room of eager messages %llu and %llu", side, t->n,
                 t->n_grants, (unsigned long long)t->sent, (unsigned long long)atomic_load(&t->held));
    if (t->n_closed_first > HW_QUEUES || t->n_closed - t->n_closed_first > HW_QUEUES)
        sim_fail(s, "node %d passes a bound: %u streams that one side has closed, %u of them this one", side,
                 t->n_closed, t->n_closed_first);
}

static void check_table_bounds(struct sim *s, int side, const struct hw_peer *p)
{
    uint32_t timed = 0;
    for (int i = 0; i < HW_TICKS; i++)
        timed += count_list(&p->deadlines.at[i]);
    if (p->slots > HW_OPS || p->landings.blocks > HW_LANDING_BLOCKS || p->imports.n > HW_HANDLES ||
        p->handles.n > HW_HANDLES || p->handles.n_unused > p->handles.n)
        sim_fail(s, "node %d passes a bound: %u operations, %u blocks of landings, %u imports, %u handles, %u unused",
                 side, p->slots, p->landings.blocks, p->imports.n, p->handles.n, p->handles.n_unused);
    if (p->requests > HW_READS || atomic_load(&p->serves) > HW_READS || p->n_stop + p->n_stopping > p->requests)
        sim_fail(s, "node %d passes a bound: %u requests, %u serves, %u and %u stops", side, p->requests,
                 atomic_load(&p->serves), p->n_stop, p->n_stopping);
    if (atomic_load(&p->notes_held) > HW_NOTES || p->noted - p->taken > HW_NOTES)
        sim_fail(s, "node %d passes a bound: %llu and %llu bytes of notifications", side,
                 (unsigned long long)atomic_load(&p->notes_held), (unsigned long long)(p->noted - p->taken));
    if (timed != p->deadlines.n)
        sim_fail(s, "node %d counts %u operations with a deadline, and has %u", side, p->deadlines.n, timed);
}

void bounds_check(struct world *w, int side, struct hw_peer *p)
{
    for (unsigned i = 0; i < w->rails; i++) {
        const struct hw_rail *r = &p->session.rail[i].rail;
        for (unsigned k = 0; k < r->links && r->state == HW_RAIL_UP; k++)
            check_link_bounds(w->s, side, i, &r->link[k].link, r->limits.window);
    }
    check_control_bounds(w->s, side, p);
    check_queue_bounds(w->s, side, p);
    check_table_bounds(w->s, side, p);
}

void bounds_watch(struct world *w, int side, struct bounds_op *b, const struct hw_op *op)
{
    const struct hw_peer *p = op->peer;
    uint64_t now = p->session.home->now, turns = HW_MS / 2; /* a turn runs only some of the tasks */
    bool off = atomic_load(&op->off);
    if (p->dead || world_is_still(w, side))
        return;
    /* a deadline is checked at the end of its tick; if the clock has jumped meanwhile, it is checked after the jump */
    if (!off && b->deadline != HW_NEVER && now > HW_MAX(b->deadline + HW_TICK, w->resumed) + turns)
        sim_fail(w->s, "the deadline of an operation of node %d passed %llu us ago, and it is not called off", side,
                 (unsigned long long)((now - b->deadline) / 1000));
    if (off && !b->off)
        b->off = now;
    if (off && now > HW_MAX(b->off, w->resumed) + p->answer_in + 3 * HW_TICK + turns)
        sim_fail(w->s, "an operation of node %d was called off %llu us ago, and has not ended", side,
                 (unsigned long long)((now - b->off) / 1000));
}

bool bounds_is_overdue(const struct hw_op *op, uint64_t now)
{
    return atomic_load(&op->off) && op->answer_by && now + HW_MS / 10 >= op->answer_by;
}

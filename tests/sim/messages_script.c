/* SPDX-License-Identifier: Apache-2.0 */
/* The applications of two nodes: they create and revoke regions, and post and cancel operations. */
#include "messages.h"

#include <stdlib.h>
#include <string.h>

/* ---- regions ---------------------------------------------------------------------------------------- */

static void end_export(struct hw_export *x)
{
    struct region *r = hw_container_of(x, struct region, x);
    if (r->revoked)
        sim_fail(r->node->w->s, "a region is taken back twice");
    if (!r->node->freed)
        msg_check_unlocked(r->node);
    sim_say(r->node->w->s, "node %d has region %u back", r->node->side, r->serial);
    msg_note_missing(r);
    r->revoked = true;
    memset(r->mem, POISON, sizeof r->mem);
}

static struct region *make_region(struct node *n)
{
    static const uint32_t rights[] = {HAWSER_REMOTE_READ, HAWSER_REMOTE_WRITE, 3, 3, 3};
    sim_fail_memory(NULL);
    struct region *r = calloc(1, sizeof *r);
    if (!r)
        abort();
    r->node = n;
    r->serial = n->regions;
    r->x = (struct hw_export){.space = &hw_host, .ptr = r->mem, .len = REGION, .secret = 1 + sim_random(n->w->s, 9)};
    r->x.rights = rights[sim_random(n->w->s, 5)];
    if (sim_chance(n->w->s, 4))
        r->x.only = sim_chance(n->w->s, 3) ? &n->other->peer /* not exported to this node */ : &n->peer;
    r->x.revoked = end_export;
    if (hw_export_add(&n->domain, &r->x) < 0)
        abort();
    for (uint32_t i = 0; i < REGION; i++)
        r->mem[i] = r->first[i] = msg_make_byte(2 + n->side, r->serial, i);
    n->region[n->regions++] = r;
    return r;
}

void msg_revoke_region(struct node *n)
{
    struct region *r = n->regions ? n->region[sim_random(n->w->s, n->regions)] : NULL;
    if (!r || r->revoking)
        return;
    r->revoking = true;
    sim_say(n->w->s, "node %d takes region %u back", n->side, r->serial);
    sim_fail_memory(n->w->faults ? n->w->s : NULL);
    hw_export_revoke(&r->x);
    sim_fail_memory(NULL);
}

/* Returns a region of the other node with room for len bytes, or NULL. */
static struct region *pick_region(struct node *n, uint32_t len)
{
    struct node *o = n->other;
    struct region *r = o->regions ? o->region[sim_random(n->w->s, o->regions)] : NULL;
    if (r && r->used + len <= REGION && (!r->revoking || sim_chance(n->w->s, 4)))
        return r;
    return o->regions < REGIONS ? make_region(o) : NULL;
}

/* ---- operations ------------------------------------------------------------------------------------- */

/* Releases the handle of an operation, and its imports. */
static void forget_op(struct action *a)
{
    if (a->op)
        hw_op_put(a->op);
    a->op = NULL;
    pthread_mutex_lock(&a->node->peer.lock);
    for (uint32_t i = 0; i < a->parts; i++)
        if (a->part[i].import)
            hw_import_put(&a->node->peer, a->part[i].import);
    pthread_mutex_unlock(&a->node->peer.lock);
    a->part[0].import = a->part[1].import = NULL;
}

/* Returns true if a connection is about to read or write the operation's memory. */
static bool is_touched(const struct node *n, const struct hw_op *op)
{
    bool touched = false;
    for (unsigned i = 0; i < n->w->rails; i++) {
        const struct hw_rail *r = &n->peer.session.rail[i].rail;
        for (unsigned k = 0; k < r->links && r->state == HW_RAIL_UP; k++) {
            const struct hw_link *l = &r->link[k].link;
            for (uint32_t p = l->tx.piece_at; p < l->tx.n_pieces && !l->ended; p++)
                touched |= l->tx.piece[p].owner == op && l->tx.piece[p].len;
            for (uint32_t p = l->rx.piece_at; p < l->rx.n_pieces && !l->ended; p++)
                touched |= l->rx.piece[p].owner == op && l->rx.piece[p].len && l->rx.piece[p].ptr;
        }
    }
    return touched;
}

static void end_op(struct hw_op *op)
{
    struct action *a = op->user;
    struct node *n = a->node;
    struct sim *s = n->w->s;
    if (a->over || !a->posted)
        sim_fail(s, "operation %u of node %d ends twice, or was not posted", a->serial, n->side);
    msg_check_unlocked(n);
    if (is_touched(n, op))
        sim_fail(s, "operation %u of node %d ends, and a rail goes on with its memory", a->serial, n->side);
    a->over = true;
    a->result = atomic_load(&op->result);
    a->orphaned = n->peer.dead;
    a->deserted = op->deserted;
    n->overdue |= bounds_is_overdue(op, n->peer.session.home->now);
    sim_say(s, "operation %u of node %d ends: %d", a->serial, n->side, a->result);
    msg_check_end(a);
    for (uint32_t i = 0; i < a->len; i++)
        a->left[i] = *msg_find_target(a, i);
    memset(a->local, a->kind == HW_OP_WRITE ? POISON : AFTER,
           sizeof a->local); /* the application owns this memory again */
    if (sim_chance(s, 4) && !a->deserted)
        forget_op(a);
    msg_do_more(n);
}

/* Distributes the bytes among the spans, some of which may be empty. */
static void fill_spans(struct sim *s, struct action *a, struct hw_op *op)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < op->n; i++) {
        uint32_t left = a->len - at, most = 2 * left / (op->n - i) + 1;
        uint32_t len = i + 1 == op->n ? left : HW_MIN(left, (uint32_t)sim_random(s, most + 1));
        const struct part *t = &a->part[i % a->parts];
        op->span[i] = (struct hw_span){
            .space = &hw_host, .ptr = a->local + at, .len = len, .import = t->import, .remote = t->at + at};
        memset(a->of + at, (int)(i % a->parts), len);
        at += len;
    }
}

/* Assigns a range in each of the operation's regions, and imports the regions, some deliberately with wrong keys.
 * Returns false if an import fails. */
static bool import_parts(struct sim *s, struct action *a)
{
    uint32_t right = a->kind == HW_OP_READ ? HAWSER_REMOTE_READ : HAWSER_REMOTE_WRITE;
    bool here = true;
    for (uint32_t i = 0; i < a->parts; i++) {
        struct part *t = &a->part[i];
        const struct hw_export *x = &t->region->x;
        uint64_t id = x->id, secret = x->secret;
        bool may = !x->only || x->only == &a->node->other->peer;
        int wrong = !may ? -ESTALE : x->rights & right ? 0 : -EACCES;
        switch (sim_random(s, 40)) {
        case 0:
            secret += 100;
            wrong = -ESTALE;
            break;
        case 1:
            id += 77;
            wrong = -ESTALE;
            break;
        case 2:
            id -= 1ull << 32; /* the previous region with this index .. */
            secret += 200;    /* .. with a wrong key */
            wrong = -ESTALE;
            break;
        default:
            break;
        }
        a->wrong = a->wrong ? a->wrong : wrong;
        t->at = t->region->used;
        t->region->used += a->len;
        pthread_mutex_lock(&a->node->peer.lock);
        here &= hw_import_get(&a->node->peer, id, secret, &t->import) == 0;
        pthread_mutex_unlock(&a->node->peer.lock);
    }
    return here;
}

static struct hw_note *make_note(struct sim *s, const struct action *a)
{
    struct hw_note *note = hw_note_new(4 + (uint32_t)sim_random(s, sim_chance(s, 3) ? 2000 : 20));
    for (uint32_t i = 0; note && i < note->len; i++)
        note->data[i] = i < 4 ? (uint8_t)(a->serial >> 8 * i) : msg_make_byte(4 + a->node->side, a->serial, i);
    return note;
}

static uint32_t pick_length(struct sim *s)
{
    switch (sim_random(s, 5)) {
    case 0:
        return (uint32_t)sim_random(s, LENGTH);
    case 1:
        return HW_SMALL_OP - 10 + (uint32_t)sim_random(s, 20);
    case 2:
        return (uint32_t)sim_random(s, 3000);
    default:
        return (uint32_t)sim_random(s, 100);
    }
}

/* Returns an operation that is ready to be posted, or NULL if memory ran out. */
static struct hw_op *make_op(struct sim *s, struct action *a)
{
    struct node *n = a->node;
    uint32_t spans = sim_chance(s, 8) ? SPANS : 1 + (uint32_t)sim_random(s, sim_has(s, SIM_SCATTER) ? 80 : 3);
    bool note = a->kind == HW_OP_NOTIFY || (a->kind == HW_OP_WRITE && sim_chance(s, 3));
    struct hw_op *op = a->op = hw_op_new(&n->peer, a->kind, a->parts ? spans : 0);
    if (op && note)
        op->note = make_note(s, a);
    if (!op || (a->kind == HW_OP_NOTIFY && !op->note))
        return NULL;
    if (op->n < 2 && a->parts)
        a->parts = 1;
    if (!import_parts(s, a))
        return NULL;
    if (a->parts)
        fill_spans(s, a, op);
    if (op->n && sim_chance(s, 40)) {
        op->span[op->n - 1].remote = REGION - op->span[op->n - 1].len + 1;
        a->wrong = a->wrong ? a->wrong : -EFAULT;
    }
    for (uint32_t i = 0; i < a->len; i++)
        a->revoked_then |= a->part[a->of[i]].region->revoked; /* the peer checks no region of an empty operation */
    return op;
}

void msg_post_op(struct node *n)
{
    static const enum hw_op_kind kinds[] = {HW_OP_WRITE, HW_OP_WRITE, HW_OP_READ, HW_OP_NOTIFY};
    struct sim *s = n->w->s;
    struct action *a = &n->action[n->posted];
    a->node = n;
    a->serial = n->posted++;
    a->kind = sim_has(s, SIM_CLOSE) && sim_chance(s, 8) ? HW_OP_BYE : kinds[sim_random(s, 4)];
    if (a->kind != HW_OP_NOTIFY && a->kind != HW_OP_BYE) {
        a->len = pick_length(s);
        a->parts = sim_chance(s, 3) ? 2 : 1;
        for (uint32_t i = 0; i < a->parts; i++)
            a->part[i].region = pick_region(n, 2 * a->len); /* both parts may use the same region */
        if (!a->part[0].region || (a->parts == 2 && !a->part[1].region)) {
            a->parts = a->len = 0;
            return;
        }
    }
    for (uint32_t i = 0; i < a->len; i++)
        a->local[i] = msg_make_byte(n->side, a->serial, i);
    sim_fail_memory(n->w->faults ? s : NULL);
    struct hw_op *op = make_op(s, a);
    if (!op) {
        sim_fail_memory(NULL);
        forget_op(a);
        return;
    }
    op->over = end_op;
    op->user = a;
    a->noted = op->note;
    a->late = sim_has(s, SIM_CANCEL) && sim_chance(s, 6);
    if (a->late)
        op->deadline = n->w->now + sim_random(s, 10 * HW_MS);
    a->watch.deadline = op->deadline;
    a->posted = true;
    sim_say(s, "node %d posts operation %u: kind %d, %u bytes in %u spans of regions %d %d%s, expects %d", n->side,
            a->serial, a->kind, a->len, op->n, a->parts ? (int)a->part[0].region->serial : -1,
            a->parts > 1 ? (int)a->part[1].region->serial : -1, a->noted ? ", with a notification" : "", a->wrong);
    for (uint32_t i = 0; i < OPS && i < a->serial && a->kind == HW_OP_BYE; i++) {
        const struct action *b = &n->action[i];
        a->told |= (uint32_t)(b->kind == HW_OP_NOTIFY && b->over && b->result == 0) << i;
    }
    for (uint32_t i = 0; i < n->other->posted && a->kind == HW_OP_BYE; i++)
        a->heard_before |= (uint32_t)n->other->action[i].heard << i;
    a->number = (uint32_t)n->peer.out.next;
    for (uint32_t i = 0; i < a->serial; i++)
        a->behind |= msg_is_deserted(&n->action[i]) ? 1u << i : 0;
    int rc = hw_op_post(op);
    sim_fail_memory(NULL);
    a->said = a->kind == HW_OP_BYE && rc == 0 && !(a->over && a->result == -ENOMEM);
    if (rc == 0)
        return;
    sim_say(s, "and that fails: %d (%s)", rc, hw_error());
    if (a->over)
        sim_fail(s, "operation %u of node %d was not posted, and ends", a->serial, n->side);
    a->result = rc;
    msg_check_failure(a);
    a->posted = a->noted = false;
    forget_op(a);
}

static void cancel_action(struct node *n, struct action *a)
{
    if (!a->posted || !a->op || a->off)
        return;
    a->off = true;
    sim_say(n->w->s, "node %d calls operation %u off", n->side, a->serial);
    sim_fail_memory(n->w->faults ? n->w->s : NULL);
    hw_op_cancel(a->op, -ECANCELED);
    sim_fail_memory(NULL);
}

void msg_cancel_op(struct node *n)
{
    if (n->posted)
        cancel_action(n, &n->action[sim_random(n->w->s, n->posted)]);
}

void msg_cancel_all(struct node *n)
{
    for (uint32_t i = 0; i < n->posted; i++)
        cancel_action(n, &n->action[i]);
}

void msg_forget_ops(struct node *n, bool all)
{
    for (uint32_t i = 0; i < n->posted; i++)
        if (n->action[i].over && (all || sim_chance(n->w->s, 2)))
            forget_op(&n->action[i]);
}

void msg_do_more(struct node *n)
{
    struct sim *s = n->w->s;
    if (sim_chance(s, 8) && n->posted < n->n)
        msg_post_op(n);
    if (sim_chance(s, 16) && sim_has(s, SIM_CANCEL))
        msg_cancel_op(n);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the message layer between two nodes. */
#include "messages.h"

#include <string.h>

uint8_t msg_make_byte(int side, uint32_t serial, uint32_t at)
{
    uint32_t h = (at * 0x9e3779b1u) ^ (serial * 0x85ebca77u) ^ ((uint32_t)side * 0xc2b2ae3du);
    h = (h ^ h >> 15) * 0x2c1b3c6du;        /* many bytes are made and compared, so a simple hash is used */
    return (uint8_t)(64 + (h >> 17) % 128); /* never returns POISON or AFTER */
}

void msg_check_unlocked(struct node *n)
{
    pthread_mutex_t *lock[] = {&n->peer.lock, &n->domain.lock};
    for (int i = 0; i < 2; i++)
        if (pthread_mutex_trylock(lock[i]) == 0)
            pthread_mutex_unlock(lock[i]);
        else
            sim_fail(n->w->s, "node %d's layer above is called with a lock held", n->side);
}

uint8_t *msg_find_target(const struct action *a, uint32_t at)
{
    const struct part *t = &a->part[a->of[at]];
    return t->region->mem + t->at + at;
}

/* Returns the number of bytes of the write that are missing at the target. Ignores regions that were returned to the
 * application. */
static uint32_t count_missing(const struct action *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->len; i++)
        n += !a->part[a->of[i]].region->revoked && *msg_find_target(a, i) != msg_make_byte(a->node->side, a->serial, i);
    return n;
}

/* Notes that incomplete writes to this region can only fail from now on, because the region is about to be returned to
 * the application. */
void msg_note_missing(const struct region *r)
{
    struct node *o = r->node->other;
    for (uint32_t k = 0; k < o->posted; k++) {
        struct action *a = &o->action[k];
        for (uint32_t i = 0; i < a->len && a->kind == HW_OP_WRITE; i++)
            a->missed |= a->part[a->of[i]].region == r && *msg_find_target(a, i) != msg_make_byte(o->side, k, i);
    }
}

/* Returns the number of wrong bytes in a read. Unchanged bytes count as wrong only if `all` is set. */
static uint32_t count_misread(const struct action *a, bool all)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->len; i++) {
        const struct part *t = &a->part[a->of[i]];
        n += a->local[i] != t->region->first[t->at + i] &&
             (all || a->local[i] != msg_make_byte(a->node->side, a->serial, i));
    }
    return n;
}

static bool is_revoking(const struct action *a)
{
    bool any = false;
    for (uint32_t i = 0; i < a->parts; i++)
        any |= a->part[i].region->revoking;
    return any;
}

/* Returns true if the node has received this control message, whether the node has read the message or only
 * queued it. */
static bool has_control(const struct node *n, uint32_t sequence)
{
    const struct hw_peer *p = &n->peer;
    const struct hw_control_in *c = p->in.ring[sequence % HW_CONTROL_WINDOW];
    bool has = (int32_t)((uint32_t)atomic_load(&p->in.next) - sequence) > 0 || (c && c->head.sequence == sequence);
    for (c = atomic_load(&p->in.inbox); c; c = c->next)
        has |= c->head.sequence == sequence;
    return has;
}

/* Checks that the peer has the confirmations that were due when this side posted BYE: the operations whose
 * notifications had arrived have ended, or only have to read control messages. */
static void check_confirmed(const struct action *bye)
{
    const struct node *o = bye->node->other;
    for (uint32_t i = 0; i < o->posted; i++) {
        const struct action *a = &o->action[i];
        /* a confirmed frame has not ended while its memory is still being read, nor a cancelled operation before the
         * peer has answered */
        bool may_go_on = a->off || (a->op && a->op->is_fenced) || sim_has(o->w->s, SIM_APART);
        if (bye->heard_before >> i & 1 && !a->over && a->op && !may_go_on)
            sim_fail(o->w->s, "node %d has closed, and operation %u of node %d, which it has, goes on", !o->side, i,
                     o->side);
    }
}

static void check_success(struct action *a)
{
    struct sim *s = a->node->w->s;
    if (a->kind == HW_OP_BYE && !a->node->other->peer.dead && !has_control(a->node->other, a->number))
        sim_fail(s, "node %d has said that it closes, and its peer does not have that", a->node->side);
    if (a->kind == HW_OP_BYE && !a->node->other->peer.dead)
        check_confirmed(a);
    if (a->wrong)
        sim_fail(s, "operation %u of node %d ends well, and should have failed with %d", a->serial, a->node->side,
                 a->wrong);
    if (a->revoked_then)
        sim_fail(s, "operation %u of node %d ends well in a region that was taken back before", a->serial,
                 a->node->side);
    if (a->missed)
        sim_fail(s, "write %u of node %d ends well, and a region was taken back before all was there", a->serial,
                 a->node->side);
    if (a->kind == HW_OP_WRITE && count_missing(a))
        sim_fail(s, "write %u of node %d ends, and %u of %u bytes are not there", a->serial, a->node->side,
                 count_missing(a), a->len);
}

/* Checks that an operation failed with the expected error or for a valid reason. */
void msg_check_failure(const struct action *a)
{
    const struct node *n = a->node;
    bool why = a->result == a->wrong || (a->off && a->result == -ECANCELED) || (a->late && a->result == -ETIMEDOUT) ||
               (is_revoking(a) && a->result == -ESTALE) || (a->result == -ENOMEM && sim_has(n->w->s, SIM_MEMORY)) ||
               (n->peer.dead && a->result == n->peer.dead);
    if (!why && !n->w->lies)
        sim_fail(n->w->s, "operation %u of node %d fails with %d: %s", a->serial, n->side, a->result, hw_error());
}

void msg_check_end(struct action *a)
{
    struct node *n = a->node;
    struct sim *s = n->w->s;
    for (uint32_t i = 0; i < a->len && a->kind == HW_OP_WRITE; i++)
        if (a->local[i] != msg_make_byte(n->side, a->serial, i)) {
            sim_fail(s, "byte %u of write %u of node %d was changed where it came from", i, a->serial, n->side);
            break;
        }
    if (n->w->lies)
        return;
    if (a->result == 0)
        check_success(a);
    else
        msg_check_failure(a);
    if (a->kind == HW_OP_READ && count_misread(a, a->result == 0))
        sim_fail(s, "%u bytes of read %u of node %d are wrong", count_misread(a, a->result == 0), a->serial, n->side);
}

void msg_check_note(struct node *n, struct action *a, const struct hw_note *note)
{
    struct sim *s = n->w->s;
    for (uint32_t i = 4; i < note->len; i++)
        if (note->data[i] != msg_make_byte(4 + a->node->side, a->serial, i)) {
            sim_fail(s, "byte %u of notification %u is 0x%02x", i, a->serial, note->data[i]);
            break;
        }
    if (a->kind == HW_OP_NOTIFY) {
        if (a->serial < n->last_note)
            sim_fail(s, "notification %u arrives after %u", a->serial, n->last_note);
        n->last_note = a->serial;
    } else if (a->missed || count_missing(a)) {
        sim_fail(s, "notification %u arrives, and %u of %u bytes are not there", a->serial, count_missing(a), a->len);
    }
}

void msg_check_bye(struct node *n)
{
    const struct node *o = n->other;
    const struct action *a = NULL;
    uint32_t before = 0;
    if (n->w->lies)
        return;
    for (uint32_t i = 0; i < o->posted && !a; i++)
        if (o->action[i].said && before++ == n->byes)
            a = &o->action[i];
    n->byes++;
    if (!a)
        sim_fail(n->w->s, "node %d says that it closes once too often", o->side);
    for (uint32_t i = 0; a && i < a->serial; i++)
        if (a->told >> i & 1 && !o->action[i].heard)
            sim_fail(n->w->s, "node %d hears that its peer closes before notification %u", n->side, i);
}

/* Checks that no byte of the region has changed without being written. */
static void check_region(const struct region *r)
{
    bool stranger = r->x.only && r->x.only != &r->node->peer;
    if (r->node->w->lies && r->x.rights & HAWSER_REMOTE_WRITE && !stranger)
        return; /* the peer may write anywhere in this region */
    static uint8_t mem[REGION];
    const struct node *o = r->node->other;
    memcpy(mem, r->mem, sizeof mem);
    for (uint32_t i = 0; i < o->posted; i++) {
        const struct action *a = &o->action[i];
        bool may = a->kind == HW_OP_WRITE && a->posted && !a->wrong;
        for (uint32_t k = 0; k < a->len && may; k++) {
            uint64_t at = (uint64_t)(msg_find_target(a, k) - r->mem);
            if (a->part[a->of[k]].region == r && mem[at] == msg_make_byte(o->side, i, k))
                mem[at] = r->first[at];
        }
    }
    for (uint32_t k = 0; k < REGION && memcmp(mem, r->first, REGION) != 0; k++)
        if (mem[k] != r->first[k]) {
            sim_fail(r->node->w->s, "byte %u of region %u of node %d was never written, and is 0x%02x", k, r->serial,
                     r->node->side, mem[k]);
            break;
        }
}

bool msg_is_deserted(const struct action *a)
{
    return a->op && a->op->deserted && a->op->pending;
}

void msg_check_order(const struct node *n)
{
    for (uint32_t i = 0; i < n->posted && n->peer.deserted; i++) {
        const struct action *a = &n->action[i];
        for (uint32_t k = 0; k < i && a->kind == HW_OP_WRITE && a->len && a->op && a->op->started && !a->over; k++)
            if (a->behind >> k & 1 && n->action[k].kind == HW_OP_WRITE && msg_is_deserted(&n->action[k]))
                sim_fail(n->w->s, "write %u of node %d begins, and frames of write %u, which was given up, may land", i,
                         n->side, k);
    }
}

void msg_check_node(const struct node *n)
{
    struct sim *s = n->w->s;
    if (n->w->lies && n->side == 1)
        return; /* the liar may have told its peer to write anywhere */
    for (uint32_t i = 0; i < n->posted && !s->failed[0]; i++) {
        const struct action *a = &n->action[i];
        if (!a->posted || !a->over)
            continue;
        /* the other node may still receive bytes of this operation */
        bool unknown = (a->result && a->orphaned) || (a->deserted && a->kind == HW_OP_WRITE) || n->w->lies;
        for (uint32_t k = 0; k < a->len; k++) {
            if (a->local[k] != (a->kind == HW_OP_WRITE ? POISON : AFTER))
                sim_fail(s, "byte %u of the memory of operation %u of node %d is written after its end", k, i, n->side);
            if (!unknown && !a->part[a->of[k]].region->revoked && a->left[k] != *msg_find_target(a, k))
                sim_fail(s, "byte %u of operation %u of node %d lands after its end", k, i, n->side);
        }
    }
    for (uint32_t i = 0; i < n->regions && !s->failed[0]; i++) {
        const struct region *r = n->region[i];
        if (!r->revoked)
            check_region(r);
        for (uint32_t k = 0; k < REGION && r->revoked; k++)
            if (r->mem[k] != POISON) {
                sim_fail(s, "byte %u of region %u of node %d is written after that was taken back", k, i, n->side);
                break;
            }
    }
}

bool msg_has_ended(const struct node *n)
{
    for (uint32_t i = 0; i < n->n; i++)
        if (i >= n->posted || (n->action[i].posted && !n->action[i].over))
            return false;
    return true;
}

/* Returns the name of something that is still in flight for the node, or NULL. */
const char *msg_find_unsettled(const struct node *n)
{
    const struct hw_peer *p = &n->peer, *o = &n->other->peer;
    uint64_t untaken = 0;
    uint32_t landings = 0, slots = 0, byes = 0;
    for (uint32_t i = 0; i < n->posted; i++) {
        const struct action *a = &n->action[i];
        if (a->noted && a->over && a->result == 0 && !a->heard)
            return "a notification";
        byes += a->kind == HW_OP_BYE && a->over && a->result == 0;
    }
    if (n->other->byes < byes)
        return "the word that it closes";
    for (uint32_t i = 0; i < n->regions; i++)
        if (n->region[i]->revoking && !n->region[i]->revoked)
            return "a region that is taken back";
    for (const struct hw_note *note = n->other->notes; note; note = note->next)
        untaken += hw_note_cost(note);
    for (const struct hw_landing *g = p->landings.free; g; g = g->next)
        landings++;
    for (uint32_t i = p->slot_free; i != UINT32_MAX; i = p->slot[i].next_free)
        slots++;
    return p->requests                                   ? "a request"
           : atomic_load(&p->serves)                     ? "a serve"
           : !hw_list_empty(&p->all)                     ? "an operation"
           : slots != p->slots                           ? "the number of an operation"
           : p->n_stop                                   ? "a request to be stopped"
           : landings != hw_landings_count(&p->landings) ? "a landing"
           : p->out.next != atomic_load(&o->in.next)     ? "a control message"
           : p->noted != o->took + untaken               ? "a notification's room"
           : atomic_load(&o->notes_held) != untaken      ? "a notification's room at the peer"
                                                         : NULL;
}

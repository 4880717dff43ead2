/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message layer between two nodes: writes, reads and notifications of all sizes over regions that come and go,
 * called off by hand and by deadline, while rails die and memory runs out.
 *
 * What is checked: each operation that was posted ends once; one that ends well has moved every byte by then; one that
 * fails had a reason to; after its end nothing reads its memory or writes it, and nothing more of a write lands; no
 * byte of a region changes but those that are written; nothing touches a region that was taken back; notifications
 * arrive once, whole, in their order, and never before the bytes of their write; one whose operation ended well
 * arrives; no bound is passed, and nothing waits for room that is there; the layer above is called without a lock; no
 * honest frame is refused; in the end nothing is left.
 */
#include "message/op.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define OPS     24 /* of each side */
#define REGIONS 12
#define REGION  (48u << 10)
#define LENGTH  (20u << 10)
#define SPANS   300
#define POISON  WORLD_POISON /* what the application leaves where it may: no byte that is moved has this value */
#define AFTER   0x3c         /* likewise, of its own memory */
#define STEPS   250000
#define DRAIN   60000

struct node;

struct region {
    struct hw_export x;
    struct node *node;
    uint32_t serial, used; /* each operation has a range of its own */
    bool revoking, revoked;
    uint8_t mem[REGION], first[REGION]; /* now, and at first */
};

/* What an operation touches in one region. */
struct part {
    struct region *region; /* of the other node */
    struct hw_import *import;
    uint32_t at;
};

struct action {
    struct node *node;
    struct hw_op *op;
    struct part part[2]; /* spans are in them in turn */
    uint32_t parts;
    enum hw_op_kind kind;
    uint32_t serial, len;
    bool posted, over, off, late, noted, heard;
    bool orphaned;                       /* the peer was dead when it ended */
    bool missed;                         /* a write: a region was given back before all its bytes were there */
    bool revoked_then;                   /* a region of its bytes was taken back when it was posted */
    int wrong, result;                   /* the error that it must end with, 0: none; how it ended */
    uint8_t of[LENGTH];                  /* the part that each byte is in */
    uint8_t local[LENGTH], left[LENGTH]; /* left: what a write had left at its target */
};

struct node {
    struct world *w;
    struct node *other;
    int side;
    bool freed; /* the peer was */
    struct hw_domain domain;
    struct hw_peer peer;
    struct region *region[REGIONS];
    struct action action[OPS];
    uint32_t n, posted, regions, last_note;
    struct hw_note *notes;              /* not taken yet */
    uint32_t held_notes, held_requests; /* bytes, and requests, that took room before the simulation began */
};

static uint8_t make_byte(int side, uint32_t serial, uint32_t at)
{
    uint64_t h = hw_hash(HW_HASH_START, (uint32_t[]){(uint32_t)side, serial, at}, 12);
    return (uint8_t)(64 + (h >> 17) % 128); /* never POISON or AFTER */
}

/* The layer above may call anything from where it is called. */
static void check_unlocked(struct node *n)
{
    pthread_mutex_t *lock[] = {&n->peer.lock, &n->domain.lock};
    for (int i = 0; i < 2; i++)
        if (pthread_mutex_trylock(lock[i]) == 0)
            pthread_mutex_unlock(lock[i]);
        else
            sim_fail(n->w->s, "node %d's layer above is called with a lock held", n->side);
}

/* ---- regions ---------------------------------------------------------------------------------------- */

static uint8_t *find_target(const struct action *a, uint32_t at)
{
    const struct part *t = &a->part[a->of[at]];
    return t->region->mem + t->at + at;
}

/* How many bytes of the write are not at their target, but for regions that the application has back. */
static uint32_t count_missing(const struct action *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->len; i++)
        n += !a->part[a->of[i]].region->revoked && *find_target(a, i) != make_byte(a->node->side, a->serial, i);
    return n;
}

/* Writes to this region of which something is missing can only fail from now on: it is about to be the application's.
 */
static void note_missing(const struct region *r)
{
    struct node *o = r->node->other;
    for (uint32_t k = 0; k < o->posted; k++) {
        struct action *a = &o->action[k];
        for (uint32_t i = 0; i < a->len && a->kind == HW_OP_WRITE; i++)
            a->missed |= a->part[a->of[i]].region == r && *find_target(a, i) != make_byte(o->side, k, i);
    }
}

static void end_export(struct hw_export *x)
{
    struct region *r = hw_container_of(x, struct region, x);
    if (r->revoked)
        sim_fail(r->node->w->s, "a region is taken back twice");
    if (!r->node->freed)
        check_unlocked(r->node);
    sim_say(r->node->w->s, "node %d has region %u back", r->node->side, r->serial);
    note_missing(r);
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
        r->x.only = sim_chance(n->w->s, 3) ? &n->other->peer /* not of this node: a stranger to it */ : &n->peer;
    r->x.revoked = end_export;
    if (hw_export_add(&n->domain, &r->x) < 0)
        abort();
    for (uint32_t i = 0; i < REGION; i++)
        r->mem[i] = r->first[i] = make_byte(2 + n->side, r->serial, i);
    n->region[n->regions++] = r;
    return r;
}

static void revoke_region(struct node *n)
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

/* A region of the other node with room for len bytes. */
static struct region *pick_region(struct node *n, uint32_t len)
{
    struct node *o = n->other;
    struct region *r = o->regions ? o->region[sim_random(n->w->s, o->regions)] : NULL;
    if (r && r->used + len <= REGION && (!r->revoking || sim_chance(n->w->s, 4)))
        return r;
    return o->regions < REGIONS ? make_region(o) : NULL;
}

/* ---- operations ------------------------------------------------------------------------------------- */

/* How many bytes of a read are neither as they were nor as they ought to be; all: they ought to be here. */
static uint32_t count_misread(const struct action *a, bool all)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->len; i++) {
        const struct part *t = &a->part[a->of[i]];
        n += a->local[i] != t->region->first[t->at + i] &&
             (all || a->local[i] != make_byte(a->node->side, a->serial, i));
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

static void check_success(struct action *a)
{
    struct sim *s = a->node->w->s;
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

/* An operation may fail with the error that was asked for, or because of what happened to it. */
static void check_failure(const struct action *a)
{
    const struct node *n = a->node;
    bool why = a->result == a->wrong || (a->off && a->result == -ECANCELED) || (a->late && a->result == -ETIMEDOUT) ||
               (is_revoking(a) && a->result == -ESTALE) || (a->result == -ENOMEM && sim_has(n->w->s, SIM_MEMORY)) ||
               (n->peer.dead && a->result == n->peer.dead);
    if (!why)
        sim_fail(n->w->s, "operation %u of node %d fails with %d: %s", a->serial, n->side, a->result, hw_error());
}

/* Gives the handle of an operation back. */
static void forget_op(struct action *a)
{
    if (a->op)
        hw_op_put(a->op);
    a->op = NULL;
    for (uint32_t i = 0; i < a->parts; i++)
        if (a->part[i].import)
            hw_import_put(&a->node->peer, a->part[i].import);
    a->part[0].import = a->part[1].import = NULL;
}

static void do_more(struct node *n);

static void end_op(struct hw_op *op)
{
    struct action *a = op->user;
    struct node *n = a->node;
    struct sim *s = n->w->s;
    if (a->over || !a->posted)
        sim_fail(s, "operation %u of node %d ends twice, or was not posted", a->serial, n->side);
    check_unlocked(n);
    a->over = true;
    a->result = atomic_load(&op->result);
    a->orphaned = n->peer.dead;
    sim_say(s, "operation %u of node %d ends: %d", a->serial, n->side, a->result);
    if (a->result == 0)
        check_success(a);
    else
        check_failure(a);
    if (a->kind == HW_OP_READ && count_misread(a, a->result == 0))
        sim_fail(s, "%u bytes of read %u of node %d are wrong", count_misread(a, a->result == 0), a->serial, n->side);
    for (uint32_t i = 0; i < a->len; i++)
        a->left[i] = *find_target(a, i);
    memset(a->local, a->kind == HW_OP_WRITE ? POISON : AFTER, sizeof a->local); /* the application's again */
    if (sim_chance(s, 4))
        forget_op(a);
    do_more(n);
}

/* Deals the bytes out to spans, some of no length. */
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

/* The operation's regions get its bytes' range, and their handles are asked for: some wrong on purpose. */
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
            id -= 1ull << 32; /* the place's last region */
            secret += 200;    /* which is not known here yet, or any more */
            wrong = -ESTALE;
            break;
        default:
            break;
        }
        a->wrong = a->wrong ? a->wrong : wrong;
        t->at = t->region->used;
        t->region->used += a->len;
        t->import = hw_import_get(&a->node->peer, id, secret);
        here &= t->import != NULL;
    }
    return here;
}

static struct hw_note *make_note(struct sim *s, const struct action *a)
{
    struct hw_note *note = hw_note_new(4 + (uint32_t)sim_random(s, sim_chance(s, 3) ? 2000 : 20));
    for (uint32_t i = 0; note && i < note->len; i++)
        note->data[i] = i < 4 ? (uint8_t)(a->serial >> 8 * i) : make_byte(4 + a->node->side, a->serial, i);
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

/* What there is to post. NULL: memory ran out. */
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
        a->revoked_then |= a->part[a->of[i]].region->revoked; /* no bytes: nobody is asked */
    return op;
}

static void post_op(struct node *n)
{
    static const enum hw_op_kind kinds[] = {HW_OP_WRITE, HW_OP_WRITE, HW_OP_READ, HW_OP_NOTIFY};
    struct sim *s = n->w->s;
    struct action *a = &n->action[n->posted];
    a->node = n;
    a->serial = n->posted++;
    a->kind = kinds[sim_random(s, 4)];
    if (a->kind != HW_OP_NOTIFY) {
        a->len = pick_length(s);
        a->parts = sim_chance(s, 3) ? 2 : 1;
        for (uint32_t i = 0; i < a->parts; i++)
            a->part[i].region = pick_region(n, 2 * a->len); /* may be the same for both */
        if (!a->part[0].region || (a->parts == 2 && !a->part[1].region)) {
            a->parts = a->len = 0;
            return;
        }
    }
    for (uint32_t i = 0; i < a->len; i++)
        a->local[i] = make_byte(n->side, a->serial, i);
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
    a->posted = true;
    sim_say(s, "node %d posts operation %u: kind %d, %u bytes in %u spans of regions %d %d%s, expects %d", n->side,
            a->serial, a->kind, a->len, op->n, a->parts ? (int)a->part[0].region->serial : -1,
            a->parts > 1 ? (int)a->part[1].region->serial : -1, a->noted ? ", with a notification" : "", a->wrong);
    int rc = hw_op_post(op);
    sim_fail_memory(NULL);
    if (rc == 0)
        return;
    sim_say(s, "and that fails: %d (%s)", rc, hw_error());
    if (a->over)
        sim_fail(s, "operation %u of node %d was not posted, and ends", a->serial, n->side);
    a->result = rc;
    check_failure(a);
    a->posted = a->noted = false;
    forget_op(a);
}

static void cancel_op(struct node *n)
{
    struct action *a = n->posted ? &n->action[sim_random(n->w->s, n->posted)] : NULL;
    if (!a || !a->posted || !a->op || a->off)
        return;
    a->off = true;
    sim_say(n->w->s, "node %d calls operation %u off", n->side, a->serial);
    sim_fail_memory(n->w->faults ? n->w->s : NULL);
    hw_op_cancel(a->op, -ECANCELED);
    sim_fail_memory(NULL);
}

/* The handles of operations that are over are given back, at some time. */
static void forget_ops(struct node *n, bool all)
{
    for (uint32_t i = 0; i < n->posted; i++)
        if (n->action[i].over && (all || sim_chance(n->w->s, 2)))
            forget_op(&n->action[i]);
}

/* The application posts, or calls off, from where it is called. */
static void do_more(struct node *n)
{
    struct sim *s = n->w->s;
    if (sim_chance(s, 8) && n->posted < n->n)
        post_op(n);
    if (sim_chance(s, 16) && sim_has(s, SIM_CANCEL))
        cancel_op(n);
}

/* ---- notifications ---------------------------------------------------------------------------------- */

static void check_note(struct node *n, struct action *a, const struct hw_note *note)
{
    struct sim *s = n->w->s;
    for (uint32_t i = 4; i < note->len; i++)
        if (note->data[i] != make_byte(4 + a->node->side, a->serial, i)) {
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

static void take_note(void *up, struct hw_note *note)
{
    struct node *n = up;
    struct sim *s = n->w->s;
    uint32_t serial = OPS;
    check_unlocked(n);
    memcpy(&serial, note->data, HW_MIN(note->len, 4));
    struct action *a = serial < OPS ? &n->other->action[serial] : NULL;
    sim_say(s, "node %d gets notification %u", n->side, serial);
    if (!a || !a->noted || a->heard) {
        sim_fail(s, "node %d gets notification %u twice, or nobody sent it", n->side, serial);
    } else {
        a->heard = true;
        check_note(n, a, note);
    }
    if (sim_chance(s, 4)) {
        hw_peer_took(&n->peer, note->len);
        free(note);
    } else {
        note->next = n->notes;
        n->notes = note;
    }
    do_more(n);
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

/* ---- room that is taken ----------------------------------------------------------------------------- */

/* As if node had sent a lot already: its peer's application has not taken most of the notifications there is room for,
 * most requests of reads are not answered, and the peer has read control messages and not said so. */
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

/* Gives back what fill_rooms() took. */
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

/* At any time. */
static void check_bounds(const struct node *n)
{
    const struct hw_peer *p = &n->peer;
    struct sim *s = n->w->s;
    if (p->requests > HW_READS || atomic_load(&p->serves) > HW_READS || p->n_stop > HW_READS ||
        atomic_load(&p->notes_held) > HW_NOTES || p->noted - p->taken > HW_NOTES)
        sim_fail(s, "node %d passes a bound: %u requests, %u serves, %u stops, %llu and %llu bytes of notifications",
                 n->side, p->requests, atomic_load(&p->serves), p->n_stop,
                 (unsigned long long)atomic_load(&p->notes_held), (unsigned long long)(p->noted - p->taken));
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

/* ---- what the message layer tells ------------------------------------------------------------------- */

static void note_end(void *up, unsigned rail, int why)
{
    struct node *n = up;
    check_unlocked(n);
    world_note_end(n->w, n->side, rail, why);
}

static void note_down(void *up, unsigned rail)
{
    struct node *n = up;
    check_unlocked(n);
    world_note_down(n->w, n->side, rail);
}

static void note_death(void *up, int why)
{
    struct node *n = up;
    sim_fail(n->w->s, "node %d's peer dies of %d: %s", n->side, why, hw_error());
}

static void note_bye(void *up)
{
    (void)up;
}

static const struct hw_peer_ops ops = {take_note, note_end, note_down, note_death, note_bye};

/* ---- schedules -------------------------------------------------------------------------------------- */

/* No byte of the region changed but those that were written. */
static void check_region(const struct region *r)
{
    static uint8_t mem[REGION];
    const struct node *o = r->node->other;
    memcpy(mem, r->mem, sizeof mem);
    for (uint32_t i = 0; i < o->posted; i++) {
        const struct action *a = &o->action[i];
        bool may = a->kind == HW_OP_WRITE && a->posted && !a->wrong;
        for (uint32_t k = 0; k < a->len && may; k++) {
            uint64_t at = (uint64_t)(find_target(a, k) - r->mem);
            if (a->part[a->of[k]].region == r && mem[at] == make_byte(o->side, i, k))
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

static void check_node(const struct node *n)
{
    struct sim *s = n->w->s;
    for (uint32_t i = 0; i < n->posted && !s->failed[0]; i++) {
        const struct action *a = &n->action[i];
        if (!a->posted || !a->over)
            continue;
        bool unknown = a->result && a->orphaned; /* the other node may take some of it in yet */
        for (uint32_t k = 0; k < a->len; k++) {
            if (a->local[k] != (a->kind == HW_OP_WRITE ? POISON : AFTER))
                sim_fail(s, "byte %u of the memory of operation %u of node %d is written after its end", k, i, n->side);
            if (!unknown && !a->part[a->of[k]].region->revoked && a->left[k] != *find_target(a, k))
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

static bool has_ended(const struct node *n)
{
    for (uint32_t i = 0; i < n->n; i++)
        if (i >= n->posted || (n->action[i].posted && !n->action[i].over))
            return false;
    return true;
}

/* NULL, or what of node is still under way. */
static const char *find_unsettled(const struct node *n)
{
    const struct hw_peer *p = &n->peer, *o = &n->other->peer;
    uint64_t untaken = 0;
    uint32_t landings = 0, slots = 0;
    for (uint32_t i = 0; i < n->posted; i++) {
        const struct action *a = &n->action[i];
        if (a->noted && a->over && a->result == 0 && !a->heard)
            return "a notification";
    }
    for (uint32_t i = 0; i < n->regions; i++)
        if (n->region[i]->revoking && !n->region[i]->revoked)
            return "a region that is taken back";
    for (const struct hw_note *note = n->other->notes; note; note = note->next)
        untaken += hw_note_cost(note);
    for (const struct hw_landing *g = p->landings.free; g; g = g->next)
        landings++;
    for (uint32_t i = p->slot_free; i != UINT32_MAX; i = p->slot[i].next_free)
        slots++;
    return p->requests                                         ? "a request"
           : atomic_load(&p->serves)                           ? "a serve"
           : !hw_list_empty(&p->all)                           ? "an operation"
           : slots != p->slots                                 ? "the number of an operation"
           : p->n_stop                                         ? "a request to be stopped"
           : landings != p->landings.blocks * HW_LANDING_BLOCK ? "a landing"
           : p->out.next != atomic_load(&o->in.next)           ? "a control message"
           : p->noted != o->took + untaken                     ? "a notification's room"
           : atomic_load(&o->notes_held) != untaken            ? "a notification's room at the peer"
                                                               : NULL;
}

static void take_step(struct world *w, struct node node[2])
{
    struct sim *s = w->s;
    struct node *n = &node[sim_random(s, 2)];
    bool active = n->side == 0 || sim_has(s, SIM_BOTH);
    world_step(w);
    if (sim_chance(s, 128) && active && n->posted < n->n)
        post_op(n);
    if (sim_chance(s, 512) && sim_has(s, SIM_CANCEL))
        cancel_op(n);
    if (sim_chance(s, 4096) && sim_has(s, SIM_REVOKE))
        revoke_region(n);
    if (sim_chance(s, 512))
        take_all_notes(n);
    if (sim_chance(s, 4096))
        make_room(n);
    if (sim_chance(s, 1024))
        forget_ops(n, false);
    check_bounds(&node[0]);
    check_bounds(&node[1]);
}

static void make_node(struct world *w, struct node node[2], int side)
{
    static const uint8_t binding[HW_BINDING] = "one session";
    struct node *n = &node[side];
    n->w = w;
    n->side = side;
    n->other = &node[!side];
    n->n = side == 0 || sim_has(w->s, SIM_BOTH) ? 1 + (uint32_t)sim_random(w->s, OPS) : 0;
    hw_domain_init(&n->domain);
    hw_peer_init(&n->peer, &n->domain, side == 0, &w->side[side].loop[0], w->side[side].rail_loop, w->rails, &ops,
                 &world_io, n, &world_limits, binding);
    n->peer.answer_in = 10000 * HW_MS; /* the network of the simulator is no healthy one */
    w->side[side].session = &n->peer.session;
}

/* Kills one side's peer, and then the other's: nothing may be left. The other goes on meanwhile. */
static void end_peers(struct world *w, struct node node[2])
{
    struct sim *s = w->s;
    for (unsigned i = 0; i < w->rails; i++)
        w->broken[i] = true; /* nobody answers any more */
    for (int k = 0; k < 2 && !s->failed[0]; k++) {
        struct node *n = &node[k];
        sim_say(s, "node %d's peer is to die", k);
        hw_peer_die(&n->peer, -ESHUTDOWN);
        uint64_t more = k == 0 ? sim_random(s, 4000) : 0; /* the other side learns of it, at times */
        for (uint64_t i = 0; i < DRAIN && (!hw_peer_is_gone(&n->peer) || i < more); i++) {
            bool gone = hw_peer_is_gone(&n->peer);
            w->now += sim_random(s, 1000);
            world_turn(w, gone || sim_chance(s, 4) ? !k : k, 1);
            if (k == 0 && sim_chance(s, 32))
                world_notice(w, 1);
            struct node *any = gone ? n->other : &node[k + sim_random(s, 2 - (unsigned)k)];
            if (sim_chance(s, 64))
                do_more(any);
            if (sim_chance(s, 512) && sim_has(s, SIM_REVOKE))
                revoke_region(any);
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
    forget_ops(n, true);
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

void sim_run_messages(struct sim *s)
{
    s->state = s->seed ^ 0x3e55a6e;
    struct world *w = calloc(1, sizeof *w);
    struct node *node = calloc(2, sizeof *node);
    if (!w || !node)
        abort();
    world_init(w, s);
    make_node(w, node, 0);
    make_node(w, node, 1);
    fill_rooms(&node[0]);
    fill_rooms(&node[1]);
    bool early = sim_has(s, SIM_CANCEL) && sim_chance(s, 3);
    uint64_t steps = early ? sim_random(s, 20000) : STEPS;
    for (s->step = 0; s->step < steps && !s->failed[0] && !(has_ended(&node[0]) && has_ended(&node[1])); s->step++)
        take_step(w, node);
    if (!s->failed[0] && !early && !(has_ended(&node[0]) && has_ended(&node[1])))
        sim_fail(s, "operations have not ended after %d steps", STEPS);
    const char *left = NULL;
    for (uint64_t end = s->step + STEPS; s->step < end && !s->failed[0] && !early; s->step++) {
        left = find_unsettled(&node[0]);
        left = left ? left : find_unsettled(&node[1]);
        if (!left)
            break;
        world_step(w);
        if (sim_chance(s, 512))
            take_all_notes(&node[sim_random(s, 2)]);
        if (sim_chance(s, 512))
            make_room(&node[sim_random(s, 2)]);
    }
    if (!s->failed[0] && left)
        sim_fail(s, "all operations have ended, and %s is left", left);
    check_node(&node[0]);
    check_node(&node[1]);
    end_peers(w, node);
    check_node(&node[0]);
    check_node(&node[1]);
    if (!s->failed[0])
        world_check_closed(w);
    for (int side = 0; side < 2 && !s->failed[0]; side++)
        free_node(&node[side]);
    world_free(w);
    free(node);
    free(w);
}

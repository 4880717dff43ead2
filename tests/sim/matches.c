/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages in queues between two nodes: sent and received in any order, short, long or too long, cancelled explicitly
 * or by deadline, while rails fail and memory runs out.
 *
 * Streams are closed by either side or by both. The queue number in this file is the number of the queue's stream.
 * Stream 0 is never closed.
 *
 * Checks: each operation ends once, and there is a valid reason if it fails. A successful receive has one complete
 * message of its queue, and no other receive has the same message. Receives get messages in the order in which sends
 * and receives were posted; if nothing was cancelled, the k-th receive gets the k-th message. The message of a
 * successful send is in a receive. No queue keeps both a send and a receive waiting. All operations of a stream that a
 * side has closed end, and no new ones start; once both sides have closed the stream, neither side keeps state for it.
 * After an operation has ended, nothing reads or writes its memory. The layer above is called without a lock. If a side
 * closes, the sends whose messages this side has received succeed. At the end nothing is left, not even a queue.
 */
#include "bounds.h"
#include "message/queue.h"

#include <stdlib.h>
#include <string.h>

#define OPS    40 /* per side */
#define QUEUES 3
#define LENGTH (20u << 10)
#define SPANS  80
#define AFTER  0x3c /* what the application writes to a receive's memory: no transferred byte has this value */
#define STEPS  250000
#define DRAIN  60000
#define NOBODY UINT32_MAX

struct node;

struct action {
    struct node *node;
    struct hw_op *op;
    enum hw_op_kind kind;
    uint32_t serial, queue, len;
    bool posted, over, off, late;
    struct bounds_op watch;
    int result;
    uint32_t with;       /* receive: serial of the matching send; NOBODY if there is none or the send is empty */
    uint32_t got;        /* receive: length of the message */
    bool received;       /* send: a receive has its message */
    bool owed;           /* send: a receive had its message before the receiver's side closed, see close_side() */
    uint8_t mem[LENGTH]; /* the application's memory */
};

struct node {
    struct world *w;
    struct node *other;
    int side;
    struct hw_domain domain;
    struct hw_peer peer;
    struct action action[OPS];
    uint32_t n, posted;
    bool closes[QUEUES];                  /* this side closes the stream at some point */
    bool closing[QUEUES], closed[QUEUES]; /* this side has tried to close the stream; the close succeeded */
    bool in_close;                        /* hw_stream_close() is running */
    uint32_t filled;                      /* number of streams that one side closed before the simulation began */
    bool heard_bye;                       /* the other side has announced that it closes */
};

/* Memory that the library must not treat as host memory. */
static struct hw_space device;

static uint8_t make_byte(int side, uint32_t serial, uint32_t at)
{
    uint64_t h = hw_hash(HW_HASH_START, (uint32_t[]){(uint32_t)side, serial, at}, 12);
    return (uint8_t)(64 + (h >> 17) % 128); /* never AFTER or WORLD_POISON */
}

static void check_unlocked(struct node *n)
{
    if (pthread_mutex_trylock(&n->peer.lock) == 0)
        pthread_mutex_unlock(&n->peer.lock);
    else
        sim_fail(n->w->s, "node %d's layer above is called with a lock held", n->side);
}

static const char *get_verb(const struct action *a)
{
    return a->kind == HW_OP_SEND ? "send" : "receive";
}

/* ends of operations */

/* Returns true if either side may have closed the operation's stream. */
static bool is_closing(const struct action *a)
{
    return a->node->closing[a->queue] || a->node->other->closing[a->queue];
}

/* Returns true if the error may have been caused by an operation of the opposite kind in the same queue. */
static bool may_fail_with(const struct action *a, int error)
{
    const struct node *o = a->node->other;
    for (uint32_t i = 0; i < o->posted; i++) {
        const struct action *b = &o->action[i];
        bool counterpart = b->posted && b->queue == a->queue && b->kind != a->kind;
        if (counterpart && error == -EMSGSIZE && (a->kind == HW_OP_SEND ? a->len > b->len : b->len > a->len))
            return true;
        if (counterpart && error == -ECANCELED && (b->off || b->late || b->result == -ENOMEM || o->closing[a->queue]))
            return true;
    }
    return false;
}

static void check_failure(const struct action *a)
{
    const struct node *n = a->node;
    /* a fenced send waits for a control message that the peer sent after BYE, because the peer has read BYE */
    if (a->owed && !a->op->is_fenced && !a->off && !a->late && n->peer.dead && a->result == n->peer.dead)
        sim_fail(n->w->s, "send %u of node %d fails because the peer closes, which had received the message", a->serial,
                 n->side);
    bool why = (a->off && a->result == -ECANCELED) || (a->late && a->result == -ETIMEDOUT) ||
               (a->result == -ENOMEM && sim_has(n->w->s, SIM_MEMORY)) || (n->peer.dead && a->result == n->peer.dead) ||
               (a->node->closing[a->queue] && a->result == -ECANCELED) || (is_closing(a) && a->result == -ESHUTDOWN) ||
               may_fail_with(a, a->result);
    if (!why)
        sim_fail(n->w->s, "%s %u of node %d fails with %d: %s", get_verb(a), a->serial, n->side, a->result, hw_error());
}

/* Checks the message of a receive: finds the send by the first bytes, and checks all remaining bytes. */
static void check_message(struct action *a)
{
    struct node *n = a->node, *o = n->other;
    struct sim *s = n->w->s;
    uint32_t serial = NOBODY;
    a->got = (uint32_t)atomic_load(&a->op->got);
    if (a->got == 0)
        return;
    memcpy(&serial, a->mem, sizeof serial);
    struct action *b = serial < o->posted ? &o->action[serial] : NULL;
    if (!b || b->kind != HW_OP_SEND || b->queue != a->queue || b->len != a->got || b->received) {
        sim_fail(s, "receive %u of node %d gets %u bytes of no send, or of one that another has", a->serial, n->side,
                 a->got);
        return;
    }
    b->received = true;
    a->with = serial;
    for (uint32_t i = 4; i < a->len; i++)
        if (a->mem[i] != (i < a->got ? make_byte(o->side, serial, i) : AFTER)) {
            sim_fail(s, "byte %u of receive %u of node %d is 0x%02x", i, a->serial, n->side, a->mem[i]);
            return;
        }
}

static void forget_op(struct action *a)
{
    if (a->op)
        hw_op_put(a->op);
    a->op = NULL;
}

static void do_more(struct node *n);

static void end_op(struct hw_op *op)
{
    struct action *a = op->user;
    struct node *n = a->node;
    struct sim *s = n->w->s;
    if (a->over || !a->posted)
        sim_fail(s, "%s %u of node %d ends twice, or was not posted", get_verb(a), a->serial, n->side);
    check_unlocked(n);
    a->over = true;
    a->result = atomic_load(&op->result);
    if (a->result < 0)
        check_failure(a);
    else if (a->kind == HW_OP_RECV)
        check_message(a);
    sim_say(s, "%s %u of node %d ends: %d, %u bytes of %d", get_verb(a), a->serial, n->side, a->result, a->got,
            (int)a->with);
    memset(a->mem, a->kind == HW_OP_SEND ? WORLD_POISON : AFTER,
           sizeof a->mem); /* the application owns this memory again */
    if (sim_chance(s, 4))
        forget_op(a);
    do_more(n);
}

/* ---- the application ------------------------------------------------------------------------------------ */

static uint32_t pick_length(struct sim *s, enum hw_op_kind kind)
{
    if (kind == HW_OP_RECV && !sim_chance(s, 12))
        return LENGTH;
    switch (sim_random(s, 6)) {
    case 0:
        return 4 + (uint32_t)sim_random(s, LENGTH - 4);
    case 1:
        return HW_SMALL_OP - 10 + (uint32_t)sim_random(s, 20);
    case 2:
        return 0;
    default:
        return 4 + (uint32_t)sim_random(s, 200);
    }
}

/* Distributes the bytes among the spans, some of which may be empty. */
static void fill_spans(struct sim *s, struct action *a, struct hw_op *op)
{
    const struct hw_space *space = sim_chance(s, 4) ? &device : &hw_host;
    uint32_t at = 0;
    for (uint32_t i = 0; i < op->n; i++) {
        uint32_t left = a->len - at, most = 2 * left / (op->n - i) + 1;
        uint32_t len = i + 1 == op->n ? left : HW_MIN(left, (uint32_t)sim_random(s, most + 1));
        op->span[i] = (struct hw_span){.space = space, .ptr = a->mem + at, .len = len};
        at += len;
    }
}

static void fill_memory(struct action *a)
{
    memset(a->mem, AFTER, sizeof a->mem);
    for (uint32_t i = 0; i < a->len && a->kind == HW_OP_SEND; i++)
        a->mem[i] = i < 4 ? (uint8_t)(a->serial >> 8 * i) : make_byte(a->node->side, a->serial, i);
}

static void post_op(struct node *n)
{
    struct sim *s = n->w->s;
    struct action *a = &n->action[n->posted];
    a->node = n;
    a->serial = n->posted++;
    a->kind = n->side == 0 || sim_has(s, SIM_BOTH) ? HW_OP_SEND : HW_OP_RECV;
    if (sim_has(s, SIM_BOTH) && sim_chance(s, 2))
        a->kind = HW_OP_RECV;
    a->queue = (uint32_t)sim_random(s, QUEUES);
    if (n->closing[a->queue] && n->other->closing[a->queue])
        a->queue = 0; /* this number must not be used again */
    a->len = pick_length(s, a->kind);
    a->with = NOBODY;
    fill_memory(a);
    sim_fail_memory(n->w->faults ? s : NULL);
    uint32_t spans = sim_has(s, SIM_SCATTER) ? 1 + (uint32_t)sim_random(s, SPANS) : 1;
    struct hw_op *op = a->op = hw_op_new(&n->peer, a->kind, spans);
    if (!op) {
        sim_fail_memory(NULL);
        return;
    }
    fill_spans(s, a, op);
    op->queue = (uint64_t)a->queue << 32 | 7;
    op->over = end_op;
    op->user = a;
    a->late = sim_has(s, SIM_CANCEL) && sim_chance(s, 6);
    if (a->late)
        op->deadline = n->w->now + sim_random(s, 10 * HW_MS);
    a->watch.deadline = op->deadline;
    a->posted = true;
    sim_say(s, "node %d posts %s %u: %u bytes, queue %u", n->side, get_verb(a), a->serial, a->len, a->queue);
    /* while a stream is being closed, the test does not know yet whether the close succeeds */
    bool refused = n->closed[a->queue] && !n->other->closing[a->queue] && !n->in_close;
    int rc = hw_op_post(op);
    sim_fail_memory(NULL);
    if (rc == 0 && refused)
        sim_fail(s, "%s %u of node %d is posted to a stream that is closed", get_verb(a), a->serial, n->side);
    if (rc == 0)
        return;
    sim_say(s, "and that fails: %d (%s)", rc, hw_error());
    if (a->over)
        sim_fail(s, "%s %u of node %d was not posted, and ends", get_verb(a), a->serial, n->side);
    a->result = rc;
    check_failure(a);
    a->posted = false;
    forget_op(a);
}

static void cancel_op(struct node *n, struct action *a)
{
    if (!a->posted || !a->op || a->off)
        return;
    a->off = true;
    sim_say(n->w->s, "node %d calls %s %u off", n->side, get_verb(a), a->serial);
    sim_fail_memory(n->w->faults ? n->w->s : NULL);
    hw_op_cancel(a->op, -ECANCELED);
    sim_fail_memory(NULL);
}

/* Closes a stream. If that fails, a later call tries again. */
static void close_stream(struct node *n, uint32_t stream)
{
    struct sim *s = n->w->s;
    if (n->closed[stream])
        return;
    n->closing[stream] = n->closed[stream] = true; /* callbacks during the close may call this again */
    n->in_close = true;
    int rc = hw_stream_close(&n->peer, stream);
    n->in_close = false;
    sim_say(s, "node %d closes stream %u: %d", n->side, stream, rc);
    n->closed[stream] = rc == 0;
    bool why = rc == 0 || (rc == -ENOMEM && sim_has(s, SIM_MEMORY)) || (n->peer.dead && rc == n->peer.dead) ||
               (rc == -EAGAIN && n->filled);
    if (!why)
        sim_fail(s, "node %d cannot close stream %u: %d, %s", n->side, stream, rc, hw_error());
    if (rc == 0 && !n->other->closing[stream] && hw_stream_close(&n->peer, stream) != -EINVAL)
        sim_fail(s, "node %d closes stream %u twice", n->side, stream);
}

static void close_any(struct node *n)
{
    uint32_t stream = (uint32_t)sim_random(n->w->s, QUEUES);
    if (n->closes[stream])
        close_stream(n, stream);
}

/* Sometimes posts or cancels an operation, or closes a stream, as applications may do in a callback. */
static void do_more(struct node *n)
{
    struct sim *s = n->w->s;
    sim_fail_memory(NULL);
    if (n->posted < n->n && sim_chance(s, 4))
        post_op(n);
    if (n->posted && sim_has(s, SIM_CANCEL) && sim_chance(s, 8))
        cancel_op(n, &n->action[sim_random(s, n->posted)]);
    if (sim_has(s, SIM_CLOSE) && sim_chance(s, 128))
        close_any(n);
    sim_fail_memory(n->w->faults ? s : NULL);
}

/* notifications of the message layer */

static void refuse_note(void *up, struct hw_note *note)
{
    const struct node *n = up;
    sim_fail(n->w->s, "node %d gets a notification", n->side);
    free(note);
}

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
    struct node *n = up;
    check_unlocked(n);
    sim_say(n->w->s, "node %d hears that its peer closes", n->side);
    n->heard_bye = true;
}

static const struct hw_peer_ops ops = {
    .noted = refuse_note, .ended = note_end, .down = note_down, .died = note_death, .bye = note_bye};

/* ---- schedules ---------------------------------------------------------------------------------------------- */

static bool is_live(const struct action *a)
{
    return a->posted && !a->over;
}

/* Returns an unfinished operation whose queue also has an unfinished operation of the opposite kind, or NULL if there
 * is none. */
static const struct action *find_waiting(const struct node *n)
{
    const struct node *o = n->other;
    for (uint32_t i = 0; i < n->posted; i++)
        for (uint32_t k = 0; k < o->posted && is_live(&n->action[i]); k++)
            if (is_live(&o->action[k]) && o->action[k].queue == n->action[i].queue &&
                o->action[k].kind != n->action[i].kind)
                return &n->action[i];
    return NULL;
}

/* Returns an unfinished operation of a stream that a side has closed, or NULL if there is none. */
static const struct action *find_unclosed(const struct node *n)
{
    for (uint32_t i = 0; i < n->posted; i++) {
        uint32_t queue = n->action[i].queue;
        if (is_live(&n->action[i]) && (n->closed[queue] || n->other->closed[queue]))
            return &n->action[i];
    }
    return NULL;
}

/* Returns true if the k-th receive of the queue must get the message of the k-th send. */
static bool is_exact(const struct node *n, uint32_t queue)
{
    const struct sim *s = n->w->s;
    return !sim_has(s, SIM_CANCEL) && !sim_has(s, SIM_MEMORY) && !n->closing[queue] && !n->other->closing[queue];
}

static uint32_t count_over(const struct node *n, enum hw_op_kind kind, uint32_t queue)
{
    uint32_t over = 0;
    for (uint32_t i = 0; i < n->posted; i++)
        over += n->action[i].kind == kind && n->action[i].queue == queue && n->action[i].over;
    return over;
}

static bool has_settled(const struct node node[2])
{
    bool equal = true;
    for (uint32_t i = 0; i < 2 * QUEUES; i++)
        equal &= !is_exact(&node[0], i / 2) ||
                 count_over(&node[i % 2], HW_OP_SEND, i / 2) == count_over(&node[1 - i % 2], HW_OP_RECV, i / 2);
    return equal && node[0].posted == node[0].n && node[1].posted == node[1].n && !find_waiting(&node[0]) &&
           !find_unclosed(&node[0]) && !find_unclosed(&node[1]);
}

/* Checks that receives got messages in the order of the sends, and that they got all messages if nothing was
 * cancelled. */
static void check_order(const struct node *n)
{
    const struct node *o = n->other;
    struct sim *s = n->w->s;
    for (uint32_t queue = 0; queue < QUEUES; queue++) {
        uint32_t next = 0, last = 0;
        bool exact = is_exact(n, queue);
        for (uint32_t i = 0; i < n->posted; i++) {
            const struct action *a = &n->action[i];
            if (a->kind != HW_OP_RECV || a->queue != queue || !a->posted)
                continue;
            while (next < o->posted && (o->action[next].kind != HW_OP_SEND || o->action[next].queue != queue))
                next++;
            const struct action *b = next < o->posted ? &o->action[next++] : NULL;
            if (exact && a->over != (b && b->over))
                sim_fail(s, "receive %u of node %d and its send do not both end", i, n->side);
            if (exact && b && a->over && a->result != b->result)
                sim_fail(s, "receive %u of node %d ends with %d, its send with %d", i, n->side, a->result, b->result);
            if (exact && b && a->over && a->result == 0 && a->got != b->len)
                sim_fail(s, "receive %u of node %d has %u bytes, its send %u", i, n->side, a->got, b->len);
            if (a->with != NOBODY && a->with < last)
                sim_fail(s, "receive %u of node %d gets send %u, after %u", i, n->side, a->with, last);
            last = a->with != NOBODY ? a->with : last;
        }
    }
}

/* Checks that each message was received if its send succeeded. Empty messages cannot be identified. */
static void check_received(const struct node *n)
{
    for (uint32_t i = 0; i < n->posted; i++) {
        const struct action *a = &n->action[i];
        if (a->kind == HW_OP_SEND && a->over && a->result == 0 && a->len && !a->received)
            sim_fail(n->w->s, "send %u of node %d ends well, and nobody has received it", i, n->side);
    }
}

static void check_memory(const struct node *n)
{
    for (uint32_t i = 0; i < n->posted; i++) {
        const struct action *a = &n->action[i];
        for (uint32_t k = 0; k < LENGTH && a->posted && a->over; k++)
            if (a->mem[k] != (a->kind == HW_OP_SEND ? WORLD_POISON : AFTER)) {
                sim_fail(n->w->s, "the memory of %s %u of node %d is written after its end", get_verb(a), i, n->side);
                return;
            }
    }
}

/* Returns the name of a resource that is still in use after all operations have ended, or NULL. */
static const char *find_left(const struct node *n)
{
    const struct hw_peer *p = &n->peer;
    uint32_t landings = 0, slots = 0;
    for (const struct hw_landing *g = p->landings.free; g; g = g->next)
        landings++;
    for (uint32_t i = p->slot_free; i != UINT32_MAX; i = p->slot[i].next_free)
        slots++;
    return !hw_list_empty(&p->all)                       ? "an operation"
           : slots != p->slots                           ? "the number of an operation"
           : landings != hw_landings_count(&p->landings) ? "a landing"
           : p->queues.n_grants                          ? "a receive of the peer"
           : p->queues.sent                              ? "an eager message's room"
           : atomic_load(&p->queues.held)                ? "an eager message"
           : p->queues.n                                 ? "a queue"
           : p->queues.n_closed != n->filled             ? "a stream that both sides have closed"
                                                         : NULL;
}

/* Checks the limits on the node's peer and operations. */
static void check_limits(struct node *n)
{
    bounds_check(n->w, n->side, &n->peer);
    for (uint32_t i = 0; i < n->posted; i++)
        if (is_live(&n->action[i]))
            bounds_watch(n->w, n->side, &n->action[i].watch, n->action[i].op);
}

static void take_step(struct world *w, struct node node[2])
{
    struct sim *s = w->s;
    struct node *n = &node[sim_random(s, 2)];
    world_step(w);
    if (w->steps % 32 == 0)
        check_limits(n);
    if (world_is_still(w, n->side))
        return;
    if (sim_chance(s, 128) && n->posted < n->n)
        post_op(n);
    if (sim_chance(s, 512) && sim_has(s, SIM_CANCEL) && n->posted)
        cancel_op(n, &n->action[sim_random(s, n->posted)]);
    if (sim_has(s, SIM_CLOSE) && sim_chance(s, 4096)) {
        sim_fail_memory(w->faults ? s : NULL);
        close_any(n);
        sim_fail_memory(NULL);
    }
    for (uint32_t i = 0; i < n->posted && sim_chance(s, 1024); i++)
        if (n->action[i].over)
            forget_op(&n->action[i]);
}

/* Sometimes sets counters as if many eager bytes had been sent but not received, as if sequence numbers were about to
 * wrap around, and as if one side had closed many streams. */
static void fill_rooms(struct node *n, uint64_t *taken)
{
    struct sim *s = n->w->s;
    struct hw_peer *p = &n->peer, *o = &n->other->peer;
    *taken = sim_chance(s, 3) ? HW_EAGER_ROOM - 8400 - sim_random(s, 20000) : 0;
    p->queues.sent += *taken;
    atomic_fetch_add(&o->queues.held, *taken);
    uint64_t next = sim_chance(s, 2) ? 5000 : (1ull << 32) - sim_random(s, 60);
    p->out.next = next;
    atomic_store(&p->out.acked, (uint32_t)next);
    atomic_store(&p->out.refused, (uint32_t)next);
    atomic_store(&o->in.next, next);
    atomic_store(&o->in.told, (uint32_t)next);
    o->in.acked = (uint32_t)next;
    o->queues.seen = next;
    if (!sim_has(s, SIM_CLOSE) || !sim_chance(s, 3))
        return;
    uint32_t closed = HW_QUEUES - (uint32_t)sim_random(s, 3);
    p->queues.n_closed += closed;
    p->queues.n_closed_first += closed;
    o->queues.n_closed += closed;
    n->filled += closed;
    n->other->filled += closed;
}

static void make_room(struct node *n, uint64_t *taken)
{
    n->peer.queues.sent -= *taken;
    atomic_fetch_sub(&n->other->peer.queues.held, *taken);
    *taken = 0;
}

static void make_node(struct world *w, struct node node[2], int side)
{
    static const uint8_t binding[HW_BINDING] = "one session";
    struct node *n = &node[side];
    n->w = w;
    n->side = side;
    n->other = &node[!side];
    n->n = sim_pick_ops(w->s, OPS);
    for (uint32_t i = 1; i < QUEUES && sim_has(w->s, SIM_CLOSE); i++)
        n->closes[i] = sim_chance(w->s, 2);
    hw_domain_init(&n->domain);
    if (hw_peer_init(&n->peer, &n->domain, side == 0, &w->side[side].loop[0], w->side[side].rail_loop, w->rails, &ops,
                     &world_io, n, &w->limits, binding) < 0)
        abort();
    for (unsigned i = 0; i < w->rails; i++)
        hw_peer_pair(&n->peer, i, i / (1 + w->s->seed % 2)); /* each rail alone, or two rails per pair of NICs */
    n->peer.answer_in = 100000 * HW_MS;                      /* more than the slow simulated network needs */
    w->side[side].session = &n->peer.session;
}

static void end_bye(struct hw_op *op)
{
    bool *over = op->user;
    *over = true;
}

/* Notes the sends of the other side whose messages this side has received. */
static void note_owed(const struct node *n)
{
    for (uint32_t i = 0; i < n->posted; i++) {
        const struct action *a = &n->action[i];
        if (a->kind == HW_OP_RECV && a->posted && a->over && a->result == 0 && a->with != NOBODY)
            n->other->action[a->with].owed = true;
    }
}

/* Returns the number of messages that this side has received. */
static uint32_t count_received(const struct node *n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->posted; i++)
        count += n->action[i].kind == HW_OP_RECV && n->action[i].over && n->action[i].result == 0;
    return count;
}

/* Closes one side while operations are in flight, if possible as soon as this side has received a message, like
 * hawser_peer_close(). Then ends the other side's peer as lib/context does: once all rails have ended. */
static void close_side(struct world *w, struct node node[2])
{
    struct sim *s = w->s;
    struct node *n = &node[sim_random(s, 2)], *o = n->other;
    bool over = false;
    uint32_t before = count_received(n);
    for (uint64_t end = s->step + 8000; s->step < end && count_received(n) == before && !s->failed[0]; s->step++)
        take_step(w, node);
    struct hw_op *op = hw_op_new(&n->peer, HW_OP_BYE, 0);
    if (!op)
        abort();
    op->over = end_bye;
    op->user = &over;
    sim_say(s, "node %d closes", n->side);
    note_owed(n);
    if (hw_op_post(op) < 0)
        sim_fail(s, "node %d cannot say that it closes: %s", n->side, hw_error());
    for (uint64_t end = s->step + STEPS; s->step < end && !over && !s->failed[0]; s->step++)
        world_step(w);
    if (!over && !s->failed[0])
        sim_fail(s, "node %d has closed, and that does not end", n->side);
    hw_op_put(op);
    sim_say(s, "node %d has closed", n->side);
    for (unsigned i = 0; i < w->rails; i++)
        w->broken[i] = true; /* no more answers arrive */
    hw_peer_die(&n->peer, -ESHUTDOWN);
    for (uint64_t end = s->step + STEPS; s->step < end && !s->failed[0]; s->step++) {
        world_step(w);
        if (o->heard_bye && !world_is_still(w, o->side) && !hw_session_has_rails(&o->peer.session) &&
            !hw_session_is_settling(&o->peer.session))
            break;
    }
    if (!o->heard_bye && !s->failed[0])
        sim_fail(s, "node %d has closed, and its peer has not heard that", n->side);
}

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
            w->now += sim_random(s, 1000);
            world_turn(w, hw_peer_is_gone(&n->peer) || sim_chance(s, 4) ? !k : k, 1);
            if (k == 0 && sim_chance(s, 32))
                world_notice(w, 1);
        }
        if (!hw_peer_is_gone(&n->peer))
            sim_fail(s, "node %d's peer, which is dead, is not gone", k);
        for (uint32_t i = 0; i < n->posted; i++)
            if (is_live(&n->action[i]))
                sim_fail(s, "node %d's peer is gone, and %s %u has not ended", k, get_verb(&n->action[i]), i);
    }
}

static void free_node(struct node *n)
{
    for (uint32_t i = 0; i < n->posted; i++)
        forget_op(&n->action[i]);
    hw_peer_free(&n->peer);
    hw_domain_free(&n->domain);
}

/* Cancels all unfinished operations, and checks that nothing is left. */
static void call_off_rest(struct world *w, struct node node[2], uint64_t taken[2])
{
    struct sim *s = w->s;
    const char *left = "";
    for (int k = 0; k < 2; k++) {
        make_room(&node[k], &taken[k]);
        for (uint32_t i = 0; i < node[k].posted; i++)
            cancel_op(&node[k], &node[k].action[i]);
    }
    for (int i = 0; i < STEPS && left && !s->failed[0]; i++) {
        world_step(w);
        for (uint32_t k = 0; k < 2 * QUEUES; k++) /* each side closes the streams that the other side has closed */
            if (node[!(k % 2)].closing[k / 2])
                close_stream(&node[k % 2], k / 2);
        left = find_left(&node[0]);
        left = left ? left : find_left(&node[1]);
    }
    if (left && !s->failed[0])
        sim_fail(s, "all operations were called off, and %s is left", left);
}

void sim_run_matches(struct sim *s)
{
    s->state = s->seed ^ 0x9a7c4;
    struct world *w = calloc(1, sizeof *w);
    struct node *node = calloc(2, sizeof *node);
    uint64_t taken[2];
    if (!w || !node)
        abort();
    device = hw_host;
    device.direct = false;
    world_init(w, s);
    make_node(w, node, 0);
    make_node(w, node, 1);
    fill_rooms(&node[0], &taken[0]);
    fill_rooms(&node[1], &taken[1]);
    bool early = sim_has(s, SIM_CANCEL) && sim_chance(s, 3);
    uint64_t steps = early ? sim_random(s, 20000) : STEPS;
    for (s->step = 0; s->step < steps && !s->failed[0] && !has_settled(node); s->step++)
        take_step(w, node);
    if (!s->failed[0] && !early && !has_settled(node)) {
        const struct action *a = find_waiting(&node[0]), *b = find_unclosed(&node[0]);
        b = b ? b : find_unclosed(&node[1]);
        sim_fail(s, "%s: %s %u of node %d",
                 b ? "a stream is closed, and an operation of it has not ended"
                   : "a send and a receive wait for each other",
                 b   ? get_verb(b)
                 : a ? get_verb(a)
                     : "",
                 b   ? b->serial
                 : a ? a->serial
                     : 0,
                 b ? b->node->side : 0);
    }
    for (int k = 0; k < 2 && !s->failed[0] && !early; k++)
        check_order(&node[k]);
    if (!s->failed[0] && !early)
        call_off_rest(w, node, taken);
    for (int k = 0; k < 2 && !s->failed[0] && !early; k++)
        check_received(&node[k]);
    if (!s->failed[0] && early && sim_has(s, SIM_CLOSE) && s->seed / 4 % 2)
        close_side(w, node);
    end_peers(w, node);
    check_memory(&node[0]);
    check_memory(&node[1]);
    if (!s->failed[0])
        world_check_closed(w);
    for (int side = 0; side < 2 && !s->failed[0]; side++)
        free_node(&node[side]);
    world_free(w);
    free(node);
    free(w);
}

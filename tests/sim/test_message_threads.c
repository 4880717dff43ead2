/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message layer with real threads and sockets: two nodes of two loops each, and two rails of two links each, which
 * are cut repeatedly. Meanwhile, on both sides, one thread writes, reads and notifies, another thread sends and
 * receives messages, and both cancel some of their operations. Mainly for ThreadSanitizer; the simulator tests the
 * logic.
 */
#include "message/op.h"
#include "real.h"
#include "tests/tap.h"

#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOTS 32
#define SLOT  (128u << 10)
#define OPS   600
#define CUTS  25

#define MESSAGES 400 /* sent by each side .. */
#define AT_ONCE  8   /* .. with this many sends and receives in flight */

struct app;

/* A slot for one operation: local memory, and the same offset in each of the peer's regions. */
struct slot {
    struct app *app;
    struct hw_op *op;
    atomic_int state; /* 0 free, 1 in flight, 2 done */
    uint32_t serial, len;
    enum hw_op_kind kind;
    bool cancelled;
};

/* A message that is sent or received. The first four bytes are the message's number. */
struct message {
    struct hw_op *op;
    atomic_int state; /* as in struct slot */
    uint32_t len;
    bool cancelled;
    uint8_t bytes[SLOT];
};

struct app {
    struct real_node *node;
    struct hw_domain domain;
    struct hw_peer peer;
    struct hw_export readable, writable;
    uint8_t *from, *into, *local; /* read by the peer; written by the peer; used by the node's own operations */
    struct slot slot[SLOTS];
    struct app *other;
    atomic_uint notes, revoked, wrong;
    unsigned good, bad, called_off, noted;
    struct message send[AT_ONCE], receive[AT_ONCE];
    atomic_uint sent, unsent, received; /* messages sent successfully; failed; received */
};

static struct real_node node[2];
static struct hw_space device; /* memory that the CPU may not access directly */
static struct app app[2];

static uint8_t make_byte(int side, uint32_t slot, uint32_t serial, uint32_t at)
{
    return (uint8_t)(hw_hash(HW_HASH_START, (uint32_t[]){(uint32_t)side, slot, serial, at / 64}, 16) >> 9);
}

static void fill_bytes(uint8_t *to, int side, uint32_t slot, uint32_t serial, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        to[i] = make_byte(side, slot, serial, i);
}

static bool check_bytes(const uint8_t *at, int side, uint32_t slot, uint32_t serial, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (at[i] != make_byte(side, slot, serial, i))
            return false;
    return true;
}

/* notifications of the message layer */

static void take_note(void *up, struct hw_note *note)
{
    struct app *a = up;
    if (note->len < 1 || note->data[0] != 0x77)
        atomic_fetch_add(&a->wrong, 1);
    atomic_fetch_add(&a->notes, 1);
    hw_peer_took(&a->peer, note->len);
    free(note);
}

static void note_end(void *up, unsigned rail, int why)
{
    (void)up, (void)rail, (void)why;
}

static void note_down(void *up, unsigned rail)
{
    (void)up, (void)rail;
}

static void note_death(void *up, int why)
{
    struct app *a = up;
    (void)why;
    diag("a session dies: %s", hw_error());
    atomic_fetch_add(&a->wrong, 1);
}

static void note_bye(void *up)
{
    (void)up;
}

static const struct hw_peer_ops ops = {
    .noted = take_note, .ended = note_end, .down = note_down, .died = note_death, .bye = note_bye};

static void end_export(struct hw_export *x)
{
    struct app *a = x == &app[0].readable || x == &app[0].writable ? &app[0] : &app[1];
    atomic_fetch_add(&a->revoked, 1);
}

static void end_op(struct hw_op *op)
{
    struct slot *s = op->user;
    atomic_store(&s->state, 2);
}

/* ---- the application -------------------------------------------------------------------------------- */

static void post_op(struct app *a, uint32_t i, uint32_t serial, struct hw_import *readable, struct hw_import *writable)
{
    static const enum hw_op_kind kinds[] = {HW_OP_WRITE, HW_OP_READ, HW_OP_NOTIFY};
    struct slot *s = &a->slot[i];
    int side = (int)(a - app);
    s->kind = kinds[randombytes_uniform(3)];
    s->serial = serial;
    s->cancelled = randombytes_uniform(8) == 0;
    s->len = s->kind == HW_OP_NOTIFY ? 0 : 1 + randombytes_uniform(randombytes_uniform(2) ? 300 : SLOT);
    uint8_t *local = a->local + (size_t)i * SLOT;
    if (s->kind == HW_OP_WRITE)
        fill_bytes(local, side, i, serial, s->len);
    s->op = hw_op_new(&a->peer, s->kind, s->kind == HW_OP_NOTIFY ? 0 : 2);
    if (!s->op)
        abort();
    uint32_t first = s->len / 3;
    for (uint32_t k = 0; k < s->op->n; k++)
        s->op->span[k] = (struct hw_span){.space = &hw_host,
                                          .ptr = local + (k ? first : 0),
                                          .len = k ? s->len - first : first,
                                          .import = s->kind == HW_OP_READ ? readable : writable,
                                          .remote = (uint64_t)i * SLOT + (k ? first : 0)};
    if (s->kind == HW_OP_NOTIFY || (s->kind == HW_OP_WRITE && !s->cancelled && randombytes_uniform(2))) {
        s->op->note = hw_note_new(1 + randombytes_uniform(2000));
        if (!s->op->note)
            abort();
        memset(s->op->note->data, 0x77, s->op->note->len);
    }
    s->cancelled = s->cancelled && s->kind != HW_OP_NOTIFY;
    a->noted += s->op->note != NULL;
    s->op->over = end_op;
    s->op->user = s;
    atomic_store(&s->state, 1);
    if (hw_op_post(s->op) < 0) {
        diag("posting: %s", hw_error());
        abort();
    }
    if (s->cancelled)
        hw_op_cancel(s->op, -ECANCELED);
}

static void collect_op(struct app *a, uint32_t i)
{
    struct slot *s = &a->slot[i];
    int side = (int)(a - app), rc = atomic_load(&s->op->result);
    const uint8_t *local = a->local + (size_t)i * SLOT, *there = a->other->into + (size_t)i * SLOT;
    bool right = true;
    if (rc == 0 && s->kind == HW_OP_WRITE)
        right = check_bytes(there, side, i, s->serial, s->len);
    if (rc == 0 && s->kind == HW_OP_READ)
        right = check_bytes(local, !side, i, 0, s->len);
    a->good += rc == 0 && right;
    a->called_off += rc == -ECANCELED && s->cancelled;
    a->bad += !right || (rc < 0 && !(rc == -ECANCELED && s->cancelled));
    memset(a->local + (size_t)i * SLOT, 0xdb, s->len); /* the application owns this memory again */
    hw_op_put(s->op);
    s->op = NULL;
    atomic_store(&s->state, 0);
}

static void *run_app(void *arg)
{
    struct app *a = arg;
    struct app *o = a->other;
    struct hw_import *readable, *writable;
    pthread_mutex_lock(&a->peer.lock);
    if (hw_import_get(&a->peer, o->readable.id, o->readable.secret, &readable) < 0 ||
        hw_import_get(&a->peer, o->writable.id, o->writable.secret, &writable) < 0)
        abort();
    pthread_mutex_unlock(&a->peer.lock);
    uint64_t limit = hw_now() + 120000 * HW_MS;
    for (uint32_t posted = 0, over = 0; over < OPS && hw_now() < limit;)
        for (uint32_t i = 0; i < SLOTS; i++) {
            int state = atomic_load(&a->slot[i].state);
            if (state == 0 && posted < OPS)
                post_op(a, i, posted++, readable, writable);
            else if (state == 2 && ++over)
                collect_op(a, i);
            else
                usleep(50);
        }
    pthread_mutex_lock(&a->peer.lock);
    hw_import_put(&a->peer, readable);
    hw_import_put(&a->peer, writable);
    pthread_mutex_unlock(&a->peer.lock);
    return NULL;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static void end_message(struct hw_op *op)
{
    struct message *m = op->user;
    atomic_store(&m->state, 2);
}

static void post_message(struct app *a, struct message *m, enum hw_op_kind kind, uint32_t number)
{
    m->len = kind == HW_OP_RECV ? SLOT : 4 + randombytes_uniform(randombytes_uniform(3) ? 300 : SLOT - 4);
    m->cancelled = randombytes_uniform(10) == 0;
    fill_bytes(m->bytes, (int)(a - app), SLOTS, number, m->len);
    memcpy(m->bytes, &number, sizeof number);
    m->op = hw_op_new(&a->peer, kind, 1);
    if (!m->op)
        abort();
    m->op->span[0] = (struct hw_span){.space = number % 2 ? &hw_host : &device, .ptr = m->bytes, .len = m->len};
    m->op->queue = 3;
    m->op->over = end_message;
    m->op->user = m;
    atomic_store(&m->state, 1);
    if (hw_op_post(m->op) < 0)
        abort();
}

static void collect_message(struct app *a, struct message *m)
{
    int rc = atomic_load(&m->op->result);
    uint32_t number, got = (uint32_t)atomic_load(&m->op->got);
    if (m->op->kind == HW_OP_SEND) {
        atomic_fetch_add(rc == 0 ? &a->sent : &a->unsent, 1);
    } else if (rc == 0) {
        memcpy(&number, m->bytes, sizeof number);
        uint8_t first[4];
        fill_bytes(first, !(int)(a - app), SLOTS, number, 4);
        memcpy(m->bytes, first, 4);
        atomic_fetch_add(&a->wrong, got < 4 || !check_bytes(m->bytes, !(int)(a - app), SLOTS, number, got));
        atomic_fetch_add(&a->received, 1);
    }
    atomic_fetch_add(&a->wrong, rc != 0 && rc != -ECANCELED);
    memset(m->bytes, 0xdb, m->len); /* the application owns this memory again */
    hw_op_put(m->op);
    atomic_store(&m->state, 0);
}

/* Sends all messages and receives the other side's messages, until each message has arrived or failed. */
static void *run_messages(void *arg)
{
    struct app *a = arg;
    const struct app *o = a->other;
    uint64_t limit = hw_now() + 120000 * HW_MS;
    uint32_t posted = 0;
    for (bool more = true; more && hw_now() < limit;) {
        more = atomic_load(&a->sent) + atomic_load(&a->unsent) < MESSAGES ||
               atomic_load(&o->sent) + atomic_load(&o->unsent) < MESSAGES ||
               atomic_load(&a->received) < atomic_load(&o->sent);
        for (uint32_t i = 0; i < 2 * AT_ONCE; i++) {
            struct message *m = i % 2 ? &a->send[i / 2] : &a->receive[i / 2];
            int state = atomic_load(&m->state);
            if (state == 2)
                collect_message(a, m);
            else if (state == 1 && m->cancelled && randombytes_uniform(100) == 0)
                hw_op_cancel(m->op, -ECANCELED);
            else if (state == 0 && i % 2 == 0 && more)
                post_message(a, m, HW_OP_RECV, i / 2);
            else if (state == 0 && i % 2 && posted < MESSAGES)
                post_message(a, m, HW_OP_SEND, posted++);
        }
        usleep(50);
    }
    return NULL;
}

/* Cancels the remaining receives. */
static void end_messages(struct app *a)
{
    for (uint32_t i = 0; i < AT_ONCE; i++)
        for (struct message *m = &a->receive[i]; atomic_load(&m->state);) {
            if (atomic_load(&m->state) == 2)
                collect_message(a, m);
            else
                hw_op_cancel(m->op, -ECANCELED);
            usleep(50);
        }
}

static void die(void *arg)
{
    struct app *a = arg;
    hw_peer_die(&a->peer, -ESHUTDOWN);
}

struct look {
    struct app *app;
    bool gone;
};

static void look(void *arg)
{
    struct look *l = arg;
    l->gone = hw_peer_is_gone(&l->app->peer);
}

static const struct hw_rail_limits limits = {
    .window = 64 << 10, .patience = HW_MS, .ping = 20 * HW_MS, .dead = 60000 * HW_MS};

static void make_app(int side)
{
    struct app *a = &app[side];
    uint8_t binding[HW_BINDING] = "the only session";
    struct hw_loop *loop[REAL_RAILS];
    a->node = &node[side];
    a->other = &app[!side];
    a->from = malloc((size_t)SLOTS * SLOT);
    a->into = malloc((size_t)SLOTS * SLOT);
    a->local = malloc((size_t)SLOTS * SLOT);
    if (!a->from || !a->into || !a->local)
        abort();
    for (uint32_t i = 0; i < SLOTS; i++)
        fill_bytes(a->from + (size_t)i * SLOT, side, i, 0, SLOT);
    hw_domain_init(&a->domain);
    a->readable = (struct hw_export){.space = &hw_host, .ptr = a->from, .rights = HAWSER_REMOTE_READ, .secret = 5};
    a->writable = (struct hw_export){.space = &hw_host, .ptr = a->into, .rights = HAWSER_REMOTE_WRITE, .secret = 6};
    a->readable.len = a->writable.len = (size_t)SLOTS * SLOT;
    a->readable.revoked = a->writable.revoked = end_export;
    for (int i = 0; i < REAL_RAILS; i++)
        loop[i] = &node[side].driver[i % REAL_LOOPS].loop;
    if (hw_export_add(&a->domain, &a->readable) < 0 || hw_export_add(&a->domain, &a->writable) < 0)
        abort();
    if (hw_peer_init(&a->peer, &a->domain, side == 0, loop[0], loop, REAL_RAILS, &ops, &hw_tcp_io, a, &limits,
                     binding) < 0)
        abort();
    node[side].session = &a->peer.session;
    node[side].rails = REAL_RAILS;
    node[side].links = 2;
}

int main(void)
{
    pthread_t thread[2], queues[2];
    if (sodium_init() < 0)
        return 1;
    device = hw_host;
    device.direct = false;
    real_init(node);
    make_app(0);
    make_app(1);
    real_start(node);
    bool connected = real_connect(node, 0) && real_connect(node, 1);
    for (int side = 0; side < 2; side++)
        if (pthread_create(&thread[side], NULL, run_app, &app[side]) != 0 ||
            pthread_create(&queues[side], NULL, run_messages, &app[side]) != 0)
            return 1;
    int cuts = 0;
    for (; cuts < CUTS && connected; cuts++) {
        unsigned rail = (unsigned)cuts % REAL_RAILS;
        usleep(10000);
        real_cut(node, rail, (unsigned)cuts / 2 % 2);
        connected = real_connect(node, rail);
    }
    ok(connected, "%d times a rail was cut and connected again", cuts);
    for (int side = 0; side < 2; side++) {
        pthread_join(thread[side], NULL);
        pthread_join(queues[side], NULL);
    }
    for (int side = 0; side < 2; side++)
        end_messages(&app[side]);
    for (int side = 0; side < 2; side++) {
        const struct app *a = &app[side];
        is_int(a->bad, 0, "no operation fails, or ends with wrong bytes");
        is_int(a->good + a->called_off, OPS, "each ends");
        is_int(atomic_load(&a->sent) + atomic_load(&a->unsent), MESSAGES, "each send of a message ends");
        ok(atomic_load(&a->other->received) >= atomic_load(&a->sent), "those that end well are received: %u of %u",
           atomic_load(&a->sent), atomic_load(&a->other->received));
        for (uint64_t limit = hw_now() + 30000 * HW_MS; atomic_load(&a->other->notes) < a->noted && hw_now() < limit;)
            usleep(1000);
        is_int(atomic_load(&a->other->notes), a->noted, "each notification arrives once");
        is_int(atomic_load(&a->wrong), 0, "and nothing else");
    }
    for (int side = 0; side < 2; side++) {
        hw_export_revoke(&app[side].readable);
        hw_export_revoke(&app[side].writable);
        for (uint64_t limit = hw_now() + 30000 * HW_MS; atomic_load(&app[side].revoked) < 2 && hw_now() < limit;)
            usleep(1000);
        is_int(atomic_load(&app[side].revoked), 2, "both regions are taken back");
    }
    for (int side = 0; side < 2; side++) {
        struct look l = {.app = &app[side]};
        real_call(&node[side], die, &app[side]);
        for (uint64_t limit = hw_now() + 30000 * HW_MS; !l.gone && hw_now() < limit; usleep(1000))
            real_call(&node[side], look, &l);
        ok(l.gone, "a dead peer is gone");
    }
    real_stop(node);
    for (int side = 0; side < 2; side++) {
        hw_peer_free(&app[side].peer);
        hw_domain_free(&app[side].domain);
        for (int k = 0; k < REAL_LOOPS; k++)
            hw_driver_free(&node[side].driver[k]);
        free(app[side].from);
        free(app[side].into);
        free(app[side].local);
    }
    return tap_done();
}

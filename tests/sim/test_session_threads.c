/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session with real threads and sockets: two nodes of two loops each, with one thread per loop, and two rails of two
 * links each, which are cut repeatedly while a separate thread sends on each side. Each parcel that was not cancelled
 * arrives once. Mainly for ThreadSanitizer: the simulator tests the logic, but not concurrency.
 */
#include "real.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <unistd.h>

#include "wire/wire.h"

#define LINKS   2
#define PARCELS 3000
#define CUTS    25

struct parcel {
    struct hw_parcel parcel;
    uint32_t serial;
    atomic_bool off, over;
    struct hw_let_go cancel;
    uint8_t src[2000], dst[2000];
};

struct node {
    struct hw_session session;
    struct parcel *parcel;
    atomic_uint arrived[PARCELS]; /* on the other side */
    atomic_uint done, unsent, wrong;
    struct node *peer;
};

static struct node node[2];
static struct real_node real[2];
/* ---- the layer above -------------------------------------------------------------------------------- */

static bool fill_parcel(void *up, struct hw_parcel *p, struct hw_link_out *out)
{
    struct node *self = up;
    struct parcel *q = hw_container_of(p, struct parcel, parcel);
    if (atomic_load(&q->off)) {
        atomic_fetch_add(&self->done, 1);
        atomic_fetch_add(&self->unsent, 1);
        return false;
    }
    out->type = 1;
    hw_put32(out->ext, q->serial);
    out->ext_len = 4;
    out->piece[0] = (struct hw_piece){&hw_host, q->src, sizeof q->src, &q->cancel};
    out->n_pieces = 1;
    return true;
}

static bool keep_parcel(void *up, struct hw_parcel *p)
{
    struct node *self = up;
    bool keep = !atomic_load(&hw_container_of(p, struct parcel, parcel)->off);
    if (!keep) {
        atomic_fetch_add(&self->done, 1);
        atomic_fetch_add(&self->unsent, 1);
    }
    return keep;
}

static struct hw_parcel *cut_parcel(void *up, unsigned rail, uint64_t budget)
{
    (void)up, (void)rail, (void)budget;
    return NULL;
}

static int place_parcel(void *up, unsigned rail, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n)
{
    struct node *self = up;
    (void)rail;
    uint32_t serial = in->ext_len == 4 ? hw_get32(in->ext) : PARCELS;
    if (serial >= PARCELS)
        return hw_fail(-EPROTO, "parcel %u", serial);
    if (in->pay != sizeof self->parcel->src)
        atomic_fetch_add(&self->wrong, 1);
    in->cookie = &self->peer->parcel[serial];
    piece[0] = (struct hw_piece){&hw_host, self->peer->parcel[serial].dst, in->pay, NULL};
    *n = 1;
    return 0;
}

static int place_nothing(void *up, unsigned rail, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                         uint32_t *n)
{
    (void)up, (void)rail, (void)piece, (void)n;
    return hw_fail(-EPROTO, "%u bytes, of which %llu have a place", in->pay, (unsigned long long)at);
}

static void abandon_parcel(void *up, unsigned rail, const struct hw_link_in *in)
{
    (void)up, (void)rail, (void)in;
}

static uint32_t get_mark(void *up)
{
    (void)up;
    return 0;
}

static void take_mark(void *up, uint32_t mark)
{
    (void)up, (void)mark;
}

static int take_parcel(void *up, unsigned rail, const struct hw_link_in *in)
{
    struct node *self = up;
    const struct parcel *q = in->cookie;
    (void)rail;
    for (size_t i = 0; i < sizeof q->dst; i++)
        if (q->dst[i] != (uint8_t)(q - self->peer->parcel) % 100)
            atomic_fetch_add(&self->wrong, 1);
    atomic_fetch_add(&self->peer->arrived[q - self->peer->parcel], 1);
    return 0;
}

static void end_parcels(void *up, unsigned rail, struct hw_parcel *list)
{
    struct node *self = up;
    (void)rail;
    for (struct hw_parcel *next; list; list = next) {
        next = list->next;
        if (atomic_load(&self->arrived[hw_container_of(list, struct parcel, parcel)->serial]) != 1)
            atomic_fetch_add(&self->wrong, 1);
        atomic_fetch_add(&self->done, 1);
    }
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
    struct node *self = up;
    (void)why;
    atomic_fetch_add(&self->wrong, 1);
}

static void lose_parcel(void *up, struct hw_parcel *p)
{
    struct node *self = up;
    (void)p;
    atomic_fetch_add(&self->wrong, 1);
}

static void note_suspected(void *up, unsigned rail)
{
    struct node *self = up;
    (void)rail;
    for (unsigned i = 0; i < REAL_RAILS; i++)
        hw_session_wake(&self->session, i);
}

static const struct hw_session_ops ops = {.fill = fill_parcel,
                                          .cut = cut_parcel,
                                          .keep = keep_parcel,
                                          .place = place_parcel,
                                          .more = place_nothing,
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

/* ---- threads ---------------------------------------------------------------------------------------- */

static void end_cancel(struct hw_let_go *g)
{
    atomic_store(&hw_container_of(g, struct parcel, cancel)->over, true);
}

static void *send_all(void *arg)
{
    struct node *self = arg;
    for (uint32_t i = 0; i < PARCELS; i++) {
        self->parcel[i].serial = i;
        self->parcel[i].parcel.small = i % 2;
        memset(self->parcel[i].src, (uint8_t)i % 100, sizeof self->parcel[i].src);
        hw_session_send(&self->session, i % REAL_RAILS, &self->parcel[i].parcel);
        if (i % 8 == 5) {
            struct parcel *q = &self->parcel[i];
            atomic_store(&q->off, true);
            q->cancel = (struct hw_let_go){.owner = &q->cancel, .over = end_cancel};
            hw_session_let_go(&self->session, &q->cancel);
        }
        /* this thread may reuse the memory of parcels whose cancellation is complete */
        for (uint32_t k = 0; k < i && k < 64; k++)
            if (atomic_exchange(&self->parcel[i - k].over, false))
                memset(self->parcel[i - k].src, 0xff, sizeof self->parcel[i - k].src);
        if (i % 64 == 0)
            usleep(1000);
    }
    return NULL;
}

static void die(void *arg)
{
    struct node *self = arg;
    hw_session_die(&self->session, -ESHUTDOWN);
}

struct look {
    struct node *node;
    bool gone;
};

static void look(void *arg)
{
    struct look *l = arg;
    l->gone = hw_session_is_gone(&l->node->session);
}

static const struct hw_rail_limits limits = {
    .window = 16384, .patience = HW_MS, .ping = 2 * HW_MS, .dead = 60000 * HW_MS};

int main(void)
{
    pthread_t sender[2];
    real_init(real);
    for (int side = 0; side < 2; side++) {
        struct node *n = &node[side];
        struct hw_loop *loop[REAL_RAILS];
        for (int i = 0; i < REAL_RAILS; i++)
            loop[i] = &real[side].driver[i % REAL_LOOPS].loop;
        n->peer = &node[!side];
        n->parcel = calloc(PARCELS, sizeof *n->parcel);
        if (!n->parcel)
            return 1;
        real[side].session = &n->session;
        real[side].rails = REAL_RAILS;
        real[side].links = LINKS;
        if (hw_session_init(&n->session, side == 0, loop[0], loop, REAL_RAILS, &ops, &hw_tcp_io, n, &limits) < 0)
            abort();
    }
    real_start(real);
    for (int side = 0; side < 2; side++)
        if (pthread_create(&sender[side], NULL, send_all, &node[side]) != 0)
            return 1;
    bool connected = real_connect(real, 0) && real_connect(real, 1);
    int cuts = 0;
    for (; cuts < CUTS && connected; cuts++) {
        unsigned rail = (unsigned)cuts % REAL_RAILS;
        usleep(2000);
        real_cut(real, rail, (unsigned)cuts % LINKS);
        connected = real_connect(real, rail);
    }
    ok(connected, "%d times a rail was cut and connected again", cuts);
    uint64_t limit = hw_now() + 60000 * HW_MS;
    while ((atomic_load(&node[0].done) < PARCELS || atomic_load(&node[1].done) < PARCELS) && hw_now() < limit)
        usleep(1000);
    for (int side = 0; side < 2; side++) {
        unsigned once = 0;
        pthread_join(sender[side], NULL);
        for (int i = 0; i < PARCELS; i++)
            once += atomic_load(&node[side].arrived[i]) == 1;
        is_int(atomic_load(&node[side].done), PARCELS, "every parcel is done");
        is_int(once + atomic_load(&node[side].unsent), PARCELS,
               "each arrived once, or was called off before it was sent");
        is_int(atomic_load(&node[side].wrong), 0, "none ended before it arrived, or was lost");
    }
    for (int side = 0; side < 2; side++) {
        struct look l = {.node = &node[side]};
        real_call(&real[side], die, &node[side]);
        for (limit = hw_now() + 30000 * HW_MS; !l.gone && hw_now() < limit; usleep(1000))
            real_call(&real[side], look, &l);
        ok(l.gone, "a dead session is gone");
    }
    real_stop(real);
    for (int side = 0; side < 2; side++) {
        hw_session_free(&node[side].session);
        for (int k = 0; k < REAL_LOOPS; k++)
            hw_driver_free(&real[side].driver[k]);
        free(node[side].parcel);
    }
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session over real threads and sockets: two nodes of two loops, each loop a thread; two rails of two links, which
 * are cut again and again while both sides send from a thread of their own. Each parcel arrives once. For
 * ThreadSanitizer above all: the simulator has shown the logic, and not what threads may see of each other.
 */
#include "core/session.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "wire/wire.h"

#define RAILS   2
#define LINKS   2
#define LOOPS   2
#define PARCELS 3000
#define CUTS    25

struct parcel {
    struct hw_parcel parcel;
    uint32_t serial;
    atomic_bool off, over;
    struct hw_let_go cancel;
    uint8_t src[2000], dst[2000];
};

struct driver {
    struct hw_loop loop;
    struct node *node;
    sem_t wake;
    pthread_t thread;
};

struct node {
    struct hw_session session;
    struct driver driver[LOOPS];
    struct parcel *parcel;
    atomic_uint arrived[PARCELS]; /* at the other side */
    atomic_uint done, unsent, wrong;
    struct node *peer;
};

struct hw_conn {
    int fd;
};

static struct node node[2];
static atomic_bool stop;

/* ---- sockets ---------------------------------------------------------------------------------------- */

static int64_t move_bytes(struct hw_conn *c, const struct hw_piece *piece, uint32_t n, bool out)
{
    struct iovec iov[64];
    struct msghdr m = {.msg_iov = iov};
    for (; m.msg_iovlen < n && m.msg_iovlen < HW_ARRAY_LEN(iov); m.msg_iovlen++)
        iov[m.msg_iovlen] = (struct iovec){piece[m.msg_iovlen].ptr, piece[m.msg_iovlen].len};
    ssize_t done = out ? sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(c->fd, &m, MSG_DONTWAIT);
    if (done < 0)
        return errno == EAGAIN ? -EAGAIN : -ECONNRESET;
    return done == 0 && !out ? -ECONNRESET : done;
}

static int64_t write_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return move_bytes(c, piece, n, true);
}

static int64_t read_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return move_bytes(c, piece, n, false);
}

static void close_conn(struct hw_conn *c)
{
    close(c->fd);
    free(c);
}

static const struct hw_rail_io io = {write_conn, read_conn, close_conn};

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
    out->piece[0] = (struct hw_piece){&hw_host, q->src, sizeof q->src};
    out->n_pieces = 1;
    return true;
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
    piece[0] = (struct hw_piece){&hw_host, self->peer->parcel[serial].dst, in->pay};
    *n = 1;
    return 0;
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

static void end_parcel(void *up, unsigned rail, struct hw_parcel *p)
{
    struct node *self = up;
    (void)rail;
    if (atomic_load(&self->arrived[hw_container_of(p, struct parcel, parcel)->serial]) != 1)
        atomic_fetch_add(&self->wrong, 1);
    atomic_fetch_add(&self->done, 1);
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

static const struct hw_session_ops ops = {fill_parcel, cut_parcel, place_parcel, take_parcel, end_parcel,
                                          note_end,    note_down,  note_death,   lose_parcel};

/* ---- threads ---------------------------------------------------------------------------------------- */

static void wake_driver(void *arg)
{
    sem_post(arg);
}

/* Sockets are looked at every millisecond: this is a test of who touches what, not of speed. */
static void *drive(void *arg)
{
    struct driver *d = arg;
    while (!atomic_load(&stop)) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_nsec += 1000000;
        limit.tv_sec += limit.tv_nsec / 1000000000;
        limit.tv_nsec %= 1000000000;
        (void)sem_timedwait(&d->wake, &limit);
        for (unsigned i = 0; i < RAILS; i++)
            if (d->node->session.rail[i].rail.loop == &d->loop)
                hw_session_wake(&d->node->session, i);
        while (hw_loop_turn(&d->loop, hw_now(), 16) && !atomic_load(&stop))
            ;
    }
    return NULL;
}

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
        self->parcel[i].parcel.owner = &self->parcel[i].cancel;
        memset(self->parcel[i].src, (uint8_t)i % 100, sizeof self->parcel[i].src);
        hw_session_send(&self->session, i % RAILS, &self->parcel[i].parcel);
        if (i % 8 == 5) {
            struct parcel *q = &self->parcel[i];
            atomic_store(&q->off, true);
            q->cancel = (struct hw_let_go){.owner = &q->cancel, .over = end_cancel};
            hw_session_let_go(&self->session, &q->cancel);
        }
        /* what was called off a while ago is this thread's to write to again */
        for (uint32_t k = 0; k < i && k < 64; k++)
            if (atomic_exchange(&self->parcel[i - k].over, false))
                memset(self->parcel[i - k].src, 0xff, sizeof self->parcel[i - k].src);
        if (i % 64 == 0)
            usleep(1000);
    }
    return NULL;
}

/* Something to do on a home loop, waited for. */
struct call {
    struct hw_task task;
    void (*fn)(struct call *c);
    sem_t over;
    unsigned rail;
    uint32_t gen;
    struct hw_word client, server;
    struct hw_conn *conn[LINKS];
    int rc;
};

static void run_call(struct hw_task *t)
{
    struct call *c = hw_container_of(t, struct call, task);
    c->fn(c);
    sem_post(&c->over);
}

static void call_home(struct call *c, int side, void (*fn)(struct call *c))
{
    c->fn = fn;
    c->task.run = run_call;
    hw_loop_post(&node[side].driver[0].loop, &c->task);
    sem_wait(&c->over);
}

static void say_hello(struct call *c)
{
    c->gen = hw_session_hello(&node[0].session, c->rail, &c->client);
}

static void ask(struct call *c)
{
    c->rc = hw_session_ask(&node[1].session, c->rail, c->gen, &c->client);
}

static void answer(struct call *c)
{
    c->rc = hw_session_answer(&node[1].session, c->rail, c->gen, &c->server);
    if (c->rc == 0)
        c->rc = hw_session_start(&node[1].session, c->rail, c->gen, c->conn, LINKS, NULL);
}

static void start(struct call *c)
{
    c->rc = hw_session_start(&node[0].session, c->rail, c->gen, c->conn, LINKS, &c->server);
}

static struct hw_conn *make_conn(int fd)
{
    struct hw_conn *c = malloc(sizeof *c);
    if (!c)
        abort();
    c->fd = fd;
    return c;
}

/* Connects a rail that is not up. fd: copies of one end's sockets, for cutting; the caller's. */
static bool connect_rail(unsigned rail, int fd[LINKS])
{
    struct call c = {.rail = rail};
    struct hw_conn *other[LINKS];
    sem_init(&c.over, 0, 0);
    for (;;) {
        call_home(&c, 0, say_hello);
        if (c.gen)
            break;
        if (atomic_load(&stop))
            return false;
        usleep(1000); /* it has not noticed yet that it was cut */
    }
    call_home(&c, 1, ask);
    if (c.rc < 0)
        return false;
    for (int k = 0; k < LINKS; k++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            return false;
        fd[k] = fcntl(pair[0], F_DUPFD_CLOEXEC, 3);
        other[k] = make_conn(pair[0]);
        c.conn[k] = make_conn(pair[1]);
    }
    do {
        call_home(&c, 1, answer);
        usleep(100);
    } while (c.rc == -EAGAIN);
    if (c.rc < 0)
        return false;
    memcpy(c.conn, other, sizeof other);
    call_home(&c, 0, start);
    return c.rc == 0;
}

static void die(struct call *c)
{
    hw_session_die(&node[c->rail].session, -ESHUTDOWN);
}

static void look(struct call *c)
{
    c->rc = hw_session_is_gone(&node[c->rail].session);
}

static const struct hw_rail_limits limits = {.window = 16384, .ping = 2 * HW_MS, .dead = 60000 * HW_MS};

int main(void)
{
    pthread_t sender[2];
    int fd[RAILS][LINKS];
    for (int side = 0; side < 2; side++) {
        struct node *n = &node[side];
        struct hw_loop *loop[RAILS] = {&n->driver[0].loop, &n->driver[1].loop};
        n->peer = &node[!side];
        n->parcel = calloc(PARCELS, sizeof *n->parcel);
        if (!n->parcel)
            return 1;
        for (int k = 0; k < LOOPS; k++) {
            sem_init(&n->driver[k].wake, 0, 0);
            n->driver[k].node = n;
            hw_loop_init(&n->driver[k].loop, wake_driver, &n->driver[k].wake);
        }
        if (hw_session_init(&n->session, side == 0, loop[0], loop, RAILS, &ops, &io, n, &limits) < 0)
            return 1;
    }
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < LOOPS; k++)
            if (pthread_create(&node[side].driver[k].thread, NULL, drive, &node[side].driver[k]) != 0)
                return 1;
        if (pthread_create(&sender[side], NULL, send_all, &node[side]) != 0)
            return 1;
    }
    bool connected = connect_rail(0, fd[0]) && connect_rail(1, fd[1]);
    int cuts = 0;
    for (; cuts < CUTS && connected; cuts++) {
        unsigned rail = (unsigned)cuts % RAILS;
        usleep(2000);
        shutdown(fd[rail][cuts % LINKS], SHUT_RDWR);
        for (int k = 0; k < LINKS; k++)
            close(fd[rail][k]);
        connected = connect_rail(rail, fd[rail]);
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
    for (unsigned side = 0; side < 2; side++) {
        struct call c = {.rail = side};
        sem_init(&c.over, 0, 0);
        call_home(&c, (int)side, die);
        for (limit = hw_now() + 30000 * HW_MS; !c.rc && hw_now() < limit; usleep(1000))
            call_home(&c, (int)side, look);
        ok(c.rc, "a dead session is gone");
    }
    atomic_store(&stop, true);
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < LOOPS; k++)
            pthread_join(node[side].driver[k].thread, NULL);
    for (int side = 0; side < 2; side++) {
        for (unsigned i = 0; i < RAILS; i++)
            hw_rail_free(&node[side].session.rail[i].rail);
        for (int k = 0; k < LOOPS; k++)
            hw_loop_free(&node[side].driver[k].loop);
        free(node[side].parcel);
    }
    for (int i = 0; i < RAILS * LINKS && connected; i++)
        close(fd[i / LINKS][i % LINKS]);
    return tap_done();
}

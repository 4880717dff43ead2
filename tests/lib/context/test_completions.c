/* SPDX-License-Identifier: Apache-2.0 */
/* Tests completions of operations without a handle, new peers, notifications, lost peers and nonblocking connects, the
 * order of a peer's events, and the descriptor of hawser_eventfd(). Also tests tags. */
#include "tests/lib/context/pairhelp.h"

#include <malloc.h>
#include <poll.h>

static hawser_peer *arrived;

/* Returns the next completion of this kind, and prints any completions of other kinds that precede it. */
static struct hawser_completion expect(hawser *h, enum hawser_event kind)
{
    struct hawser_completion c = {0};
    uint64_t limit = hw_now() + 10000 * HW_MS;
    while (hw_now() < limit) {
        if (hawser_poll_wait(h, &c, 1, 100) != 1)
            continue;
        if (c.event == (uint32_t)kind)
            return c;
        diag("a completion of kind %u, %d, where %d is awaited", c.event, c.result, kind);
    }
    bail("no completion of kind %d", kind);
}

static void connecting(hawser *a, hawser *b, uint16_t port, hawser_peer **ab)
{
    step("connecting");
    must(hawser_connect_start(a, "127.0.0.1", port, NULL, 10000, 77, ab));
    struct hawser_completion c = expect(b, HAWSER_ARRIVED);
    arrived = c.peer;
    c = expect(a, HAWSER_CONNECTED);
    ok(c.peer == *ab && c.user == 77 && c.result == 0, "a connection that nobody waits for is told when it stands");
    is_rc(hawser_peer_state(*ab), 0, "and can be used");

    hawser_peer *none;
    must(hawser_connect_start(a, "127.0.0.1", 1, NULL, 2000, 78, &none));
    c = expect(a, HAWSER_CONNECTED);
    ok(c.peer == none && c.user == 78 && c.result == -ECONNREFUSED, "one that is refused, too: %d", c.result);
    hawser_peer_close(none);
    must(hawser_connect_start(a, "127.0.0.1", 1, NULL, 2000, 79, &none));
    hawser_peer_close(none);
    ok(true, "one may be closed while it is under way");
}

static void operations(hawser *a, hawser *b, hawser_peer *ab)
{
    enum { N = 200000, MANY = 40 };
    struct ph_buf from = ph_buf(a, N, 0, 0, NULL), to = ph_buf(b, N, 0, HAWSER_REMOTE_WRITE, NULL);
    struct hawser_completion c[64];
    uint64_t seen = 0;
    int n = 0, wrong = 0;
    step("operations");
    hw_pattern_fill(from.p, N, 1, 0);
    for (uint64_t i = 0; i < MANY; i++) {
        struct hawser_vec v = {
            .mem = from.mem, .offset = i * 5000, .length = 5000, .region = &to.region, .remote_offset = i * 5000};
        struct hawser_op_options o = {.size = sizeof o, .user = 1000 + i};
        must(hawser_write(ab, &v, 1, &o, NULL));
    }
    while (n < MANY) {
        int k = hawser_poll_wait(a, c, 64, 10000);
        if (k <= 0)
            bail("no completion of %d", n);
        for (int i = 0; i < k; i++, n++) {
            wrong += c[i].event != HAWSER_ENDED || c[i].result != 0 || c[i].length != 5000 || c[i].peer != ab;
            seen |= 1ull << (c[i].user - 1000);
        }
    }
    ok(wrong == 0 && seen == (1ull << MANY) - 1, "each of %d writes is told once, with the caller's value", MANY);
    ok(hw_pattern_check(to.p, N, 1, 0, NULL) == 0, "and is in place");
    is_int(hawser_poll(a, c, 64), 0, "nothing more is told");

    struct hawser_vec v = {.mem = to.mem, .length = 1000};
    struct hawser_op_options o = {.size = sizeof o, .timeout_ms = 50, .user = 5};
    must(hawser_recv(arrived, &v, 1, &o, NULL));
    c[0] = expect(b, HAWSER_ENDED);
    ok(c[0].result == -ETIMEDOUT && c[0].user == 5, "a failure too: %d", c[0].result);
    ph_drop(&from);
    ph_drop(&to);
}

static void tags(hawser *a, hawser *b, hawser_peer *ab)
{
    struct ph_buf from = ph_buf(a, 4096, 0, 0, NULL), to = ph_buf(b, 4096, 0, 0, NULL);
    hawser_op *s[4], *r[4];
    int wrong = 0;
    step("tags");
    for (uint32_t i = 0; i < 4; i++) {
        struct hawser_vec v = {.mem = from.mem, .offset = i * 1024, .length = 100 + i};
        struct hawser_op_options o = {.size = sizeof o, .stream = 9, .tag = i};
        from.p[i * 1024] = (uint8_t)i;
        must(hawser_send(ab, &v, 1, &o, &s[i]));
    }
    for (uint32_t i = 4; i-- > 0;) { /* in reverse order */
        struct hawser_vec v = {.mem = to.mem, .offset = i * 1024, .length = 1024};
        struct hawser_op_options o = {.size = sizeof o, .stream = 9, .tag = i};
        must(hawser_recv(arrived, &v, 1, &o, &r[i]));
    }
    for (uint32_t i = 0; i < 4; i++) {
        wrong += hawser_wait(r[i], 10000) != 0 || hawser_op_length(r[i]) != 100 + i || to.p[i * 1024] != i;
        wrong += hawser_wait(s[i], 10000) != 0;
        hawser_op_free(r[i]);
        hawser_op_free(s[i]);
    }
    is_int(wrong, 0, "messages of a tag meet receives of that tag");
    ph_drop(&from);
    ph_drop(&to);
}

static void notifications(hawser *b, hawser_peer *ab)
{
    hawser_op *op;
    int wrong = 0;
    step("notifications");
    for (int i = 0; i < 20; i++) {
        must(hawser_notify(ab, &i, sizeof i, NULL, &op));
        must(hawser_wait(op, 10000));
        hawser_op_free(op);
    }
    for (int i = 0; i < 20; i++) {
        struct hawser_completion c = expect(b, HAWSER_NOTIFIED);
        int got = -1;
        if (c.length == sizeof got)
            memcpy(&got, c.data, sizeof got);
        wrong += got != i || c.peer != arrived;
        hawser_data_free(c.data);
    }
    is_int(wrong, 0, "notifications are told in order, with their bytes");
}

/* Closes a context whose application has not retrieved the completions of its operations. mallinfo2() does not count
 * ASan's heap, but ASan reports leaks. */
static void unreported(void)
{
    enum { N = 2000 };
    hawser_peer *ab;
    uint16_t port;
    step("ends that nobody asks for");
    hawser *a = ph_open(0, NULL), *b = ph_open(HAWSER_EVENTS, NULL);
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    must(hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab));
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < N; i++) {
        must(hawser_notify(ab, &i, sizeof i, NULL, NULL));
        hawser_data_free(expect(b, HAWSER_NOTIFIED).data);
    }
    hawser_close(a);
    hawser_close(b);
    size_t after = mallinfo2().uordblks;
    ok(after < before + 100 * (size_t)N,
       "a context that is closed frees operations whose ends nobody asked for: %zu bytes of heap, then %zu", before,
       after);
}

/* ---- order of a peer's events ------------------------------------------------------------------------- */

enum { NOTES = 3 };

struct greeter {
    hawser *h;
    bool closes;
    atomic_bool stop;
};

/* Sends notifications to each peer that arrives, and then closes the peer if `closes` is set. */
static void *greet(void *arg)
{
    struct greeter *g = arg;
    struct hawser_completion c;
    while (!atomic_load(&g->stop)) {
        if (hawser_poll_wait(g->h, &c, 1, 20) != 1)
            continue;
        for (int i = 0; i < NOTES && c.event == HAWSER_ARRIVED && !g->closes; i++)
            (void)hawser_notify(c.peer, &i, sizeof i, NULL, NULL);
        if (c.event == HAWSER_DIED || (c.event == HAWSER_ARRIVED && g->closes))
            hawser_peer_close(c.peer);
    }
    return NULL;
}

static pthread_t start_greeter(struct greeter *g, uint16_t *port)
{
    pthread_t t;
    g->h = ph_open(HAWSER_EVENTS, NULL);
    must(hawser_listen(g->h, "127.0.0.1", 0, port));
    if (pthread_create(&t, NULL, greet, g))
        bail("no thread");
    return t;
}

static void stop_greeter(struct greeter *g, pthread_t t)
{
    atomic_store(&g->stop, true);
    pthread_join(t, NULL);
    hawser_close(g->h);
}

/* A server that notifies a new peer at once: the client learns of its connection before the notifications. */
static void connected_first(hawser *a)
{
    enum { ROUNDS = 60 };
    struct greeter g = {0};
    uint16_t port;
    int early = 0, missing = 0;
    step("notifications of a peer that is being connected");
    pthread_t t = start_greeter(&g, &port);
    for (int i = 0; i < ROUNDS; i++) {
        hawser_peer *p;
        struct hawser_completion c;
        int notes = 0;
        bool stands = false;
        must(hawser_connect_start(a, "127.0.0.1", port, NULL, 10000, 80, &p));
        while ((notes < NOTES || !stands) && hawser_poll_wait(a, &c, 1, 10000) == 1) {
            stands |= c.event == HAWSER_CONNECTED && c.result == 0;
            notes += c.event == HAWSER_NOTIFIED;
            early += c.event == HAWSER_NOTIFIED && !stands;
            hawser_data_free(c.data);
        }
        missing += notes != NOTES || !stands;
        hawser_peer_close(p);
    }
    stop_greeter(&g, t);
    ok(missing == 0 && early == 0,
       "%d connections: the connection is told before the peer's notifications (%d early, %d missing)", ROUNDS, early,
       missing);
}

/* A server that closes each new peer at once: the client does not wait for its deadline. */
static void closed_at_once(hawser *a)
{
    struct greeter g = {.closes = true};
    uint16_t port;
    hawser_peer *p;
    step("a server that closes its peers");
    pthread_t t = start_greeter(&g, &port);
    for (int i = 0; i < 4; i++) {
        uint64_t start = hw_now();
        int rc = hawser_connect(a, "127.0.0.1", port, NULL, 20000, &p);
        if (rc == 0) /* the rails were faster than the server */
            hawser_peer_close(p);
        ok((rc == 0 || rc == -ECONNRESET || rc == -ESHUTDOWN) && hw_now() - start < 8000 * HW_MS,
           "connecting ends soon: %d (%s)", rc, rc ? hawser_error() : "connected");
    }
    stop_greeter(&g, t);
}

/* A peer that notifies and closes before the application polls. */
static void notes_before_death(hawser *a, hawser *b, uint16_t port)
{
    hawser_peer *ab;
    hawser_op *op;
    struct hawser_completion c;
    char order[32] = "";
    step("notifications of a peer that has died");
    must(hawser_connect(a, "127.0.0.1", port, NULL, 10000, &ab));
    hawser_peer *ba = expect(b, HAWSER_ARRIVED).peer;
    for (int i = 0; i < NOTES; i++) {
        must(hawser_notify(ab, &i, sizeof i, NULL, &op));
        must(hawser_wait(op, 10000));
        hawser_op_free(op);
    }
    hawser_peer_close(ab);
    for (int i = 0; i < 500 && hawser_peer_state(ba) == 0; i++)
        usleep(10000);
    usleep(20000); /* the event follows the state */
    while (strlen(order) < NOTES + 1 && hawser_poll_wait(b, &c, 1, 5000) == 1) {
        strcat(order, c.event == HAWSER_NOTIFIED ? "N" : c.event == HAWSER_DIED ? "D" : "?");
        hawser_data_free(c.data);
    }
    ok(strcmp(order, "NNND") == 0, "its notifications are told before its end: %s", order);
    hawser_peer_close(ba);
}

/* ---- a peer that is closed while another thread polls --------------------------------------------------- */

struct closer {
    hawser *h;
    atomic_bool stop;
    _Atomic(hawser_peer *) newest;
};

static void *poll_all(void *arg)
{
    struct closer *c = arg;
    struct hawser_completion e[4];
    while (!atomic_load(&c->stop)) {
        int n = hawser_poll_wait(c->h, e, 4, 5);
        for (int i = 0; i < n; i++) {
            if (e[i].event == HAWSER_ARRIVED)
                atomic_store(&c->newest, e[i].peer);
            hawser_data_free(e[i].data);
        }
    }
    return NULL;
}

static void close_beside_poll(hawser *a)
{
    enum { ROUNDS = 150 };
    struct closer k = {.h = ph_open(HAWSER_EVENTS, NULL)};
    struct hawser_connect_options o = {.size = sizeof o, .channels = 1};
    struct hawser_completion c[64];
    pthread_t t[2];
    uint16_t port;
    step("close while another thread polls");
    must(hawser_listen(k.h, "127.0.0.1", 0, &port));
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, poll_all, &k);
    for (int i = 0; i < ROUNDS; i++) {
        hawser_peer *p, *q;
        must(hawser_connect(a, "127.0.0.1", port, &o, 10000, &p));
        while (!(q = atomic_exchange(&k.newest, NULL)))
            usleep(100);
        for (int n = 0; n < 200; n++)
            (void)hawser_notify(p, &n, sizeof n, NULL, NULL);
        hawser_peer_close(i % 2 ? p : q);
        hawser_peer_close(i % 2 ? q : p);
        while (hawser_poll(a, c, 64) > 0)
            ;
    }
    atomic_store(&k.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    hawser_close(k.h);
    ok(true, "%d peers were closed while other threads took their events", ROUNDS);
}

/* ---- the descriptor of hawser_eventfd() --------------------------------------------------------------------- */

/* An operation that ends before the application first asks for the descriptor. */
static void late_eventfd(void)
{
    hawser_op *op;
    step("the first hawser_eventfd()");
    struct pair pr = ph_pair(0, NULL, 0, NULL);
    must(hawser_notify(pr.ab, "x", 1, NULL, &op));
    for (int i = 0; i < 500 && hawser_test(op) == -EAGAIN; i++)
        usleep(10000);
    struct pollfd f = {.fd = hawser_eventfd(pr.a), .events = POLLIN};
    is_int(poll(&f, 1, 2000), 1, "the descriptor reports an operation that ended before it was asked for");
    f.fd = hawser_eventfd(pr.b);
    is_int(poll(&f, 1, 2000), 1, "and a notification that arrived before");
    hawser_op_free(op);
    ph_close(&pr);
}

int main(void)
{
    hawser_peer *ab;
    uint16_t port;
    watchdog(60);
    hawser *a = ph_open(HAWSER_EVENTS, NULL), *b = ph_open(HAWSER_EVENTS, NULL);
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    connecting(a, b, port, &ab);
    operations(a, b, ab);
    tags(a, b, ab);
    notifications(b, ab);
    step("death");
    hawser_peer_close(ab);
    struct hawser_completion c = expect(b, HAWSER_DIED);
    ok(c.peer == arrived && c.result == -ESHUTDOWN, "the peer's end is told: %d", c.result);
    hawser_peer_close(arrived);
    notes_before_death(a, b, port);
    connected_first(a);
    closed_at_once(a);
    hawser_close(a);
    hawser_close(b);
    a = ph_open(0, NULL);
    close_beside_poll(a);
    hawser_close(a);
    late_eventfd();
    unreported();
    return tap_done();
}

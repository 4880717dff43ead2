/* SPDX-License-Identifier: Apache-2.0 */
/* Tests completions of operations without a handle, new peers, notifications, lost peers and nonblocking connects. Also
 * tests tags. */
#include "tests/lib/context/pairhelp.h"

#include <malloc.h>

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
    hawser_close(a);
    hawser_close(b);
    unreported();
    return tap_done();
}

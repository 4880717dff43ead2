/* SPDX-License-Identifier: Apache-2.0 */
/* Operations as such: cancelling and deadlines of each type in each phase, waiting, the event descriptor, both kinds of
 * progress, many threads. */
#include "engine/engine.h"
#include "pairhelp.h"

#include <poll.h>

static struct pair pr;

enum kind { WRITE, READ, SEND, RECV, NOTIFY, KINDS };
static const char *const kind_name[KINDS] = {"write", "read", "send", "receive", "notify"};

static struct ph_buf mine, theirs;

static hawser_op *start(struct pair *p, enum kind k, struct ph_buf *m, const struct hawser_region *r, size_t n,
                        int timeout_ms)
{
    struct hawser_vec v = {.mem = m->mem, .length = n, .region = r};
    struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = timeout_ms};
    hawser_op *op = NULL;
    switch (k) {
    case WRITE:
        must(hawser_write(p->ab, &v, 1, &o, &op));
        break;
    case READ:
        must(hawser_read(p->ab, &v, 1, &o, &op));
        break;
    case SEND:
        must(hawser_send(p->ab, &v, 1, &o, &op));
        break;
    case RECV:
        must(hawser_recv(p->ab, &v, 1, &o, &op));
        break;
    default:
        must(hawser_notify(p->ab, m->p, n > HAWSER_NOTIFY_MAX ? HAWSER_NOTIFY_MAX : n, &o, &op));
    }
    return op;
}

/* ---- cancelling ---------------------------------------------------------------------------------- */

/* At once, and at growing distances into the operation, small and large. What the peer has to do with it (a receive for
 * the send, a send for the receive) is there for odd rounds only. */
static void cancelling(enum kind k, size_t n)
{
    int ends[3] = {0};
    char note[HAWSER_NOTIFY_MAX];
    size_t len;
    for (int i = 0; i < 24; i++) {
        hawser_op *other = NULL;
        struct hawser_vec v = {.mem = theirs.mem, .length = n};
        if (i % 2 && k == SEND)
            must(hawser_recv(pr.ba, &v, 1, NULL, &other));
        if (i % 2 && k == RECV)
            must(hawser_send(pr.ba, &v, 1, NULL, &other));
        hawser_op *op = start(&pr, k, &mine, &theirs.region, n, 0);
        uint64_t until = hw_now() + (uint64_t)(i / 2) * 50000;
        while (i > 1 && hw_now() < until)
            ;
        must(hawser_cancel(op));
        int rc = hawser_wait(op, 10000);
        ends[rc == 0 ? 0 : rc == -ECANCELED ? 1 : 2]++;
        if (rc && rc != -ECANCELED)
            diag("%s of %zu, round %d: %d: %s", kind_name[k], n, i, rc, hawser_error());
        must(hawser_cancel(op)); /* of one that is over: no effect */
        if (hawser_test(op) != rc)
            ends[2]++;
        hawser_op_free(op);
        if (other) { /* cancelled before or after they met: the other one ends by itself, or is called off too */
            int o = hawser_wait(other, 300);
            if (o == -EAGAIN) {
                must(hawser_cancel(other));
                o = hawser_wait(other, 10000);
            }
            if (o && o != -ECANCELED)
                ends[2]++, diag("the other side of the %s: %d: %s", kind_name[k], o, hawser_error());
            hawser_op_free(other);
        }
        while (hawser_notification(pr.ba, note, sizeof(note), &len) == 0)
            ;
    }
    ok(ends[2] == 0, "%s of %zu bytes cancelled 24 times: %d were through, %d called off, %d anything else",
       kind_name[k], n, ends[0], ends[1], ends[2]);
}

/* The linker sends the library's calls through these, so that a thread can be stopped between having begun to receive
 * and bytes landing. */
static atomic_bool stop_bulk, stopped, go_on;
static atomic_int stop_fd = -1;              /* of the control connection */
static struct hawser_op *_Atomic stop_after; /* once it is done, whoever looks at a channel for more stops */
static atomic_int chan_fd[64];
ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __real_recv(int fd, void *to, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t n, int flags);

static void stop_here(void)
{
    atomic_store(&stopped, true);
    for (int i = 0; i < 10000 && !atomic_load(&go_on); i++)
        usleep(1000);
    atomic_store(&stopped, false);
}

static void stop_if_done(int fd)
{
    struct hawser_op *op = atomic_load(&stop_after);
    if (!op || !atomic_load(&op->done))
        return;
    for (size_t i = 0; i < HW_ARRAY_LEN(chan_fd); i++)
        if (atomic_load(&chan_fd[i]) == fd && atomic_compare_exchange_strong(&stop_after, &op, NULL))
            stop_here();
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
    stop_if_done(fd);
    if (m->msg_iov->iov_len >= 65536 && atomic_exchange(&stop_bulk, false))
        stop_here();
    return __real_recvmsg(fd, m, flags);
}

ssize_t __wrap_recv(int fd, void *to, size_t n, int flags)
{
    stop_if_done(fd);
    ssize_t got = __real_recv(fd, to, n, flags);
    if (got > 64 && atomic_compare_exchange_strong(&stop_fd, &(int){fd}, -1))
        stop_here();
    return got;
}

/* What is written after a write was called off stays, though bytes of the one called off land later than that. */
static void overtaking(size_t first, size_t second)
{
    struct ph_buf old = ph_buf(pr.a, first, 0, 0, NULL), new = ph_buf(pr.a, second, 0, 0, NULL);
    memset(old.p, 0xdd, first);
    int stale = 0, off = 0;
    for (int i = 0; i < 8; i++) {
        memset(new.p, i, second);
        while (atomic_load(&pr.ab->chans_up) < atomic_load(&pr.ab->nchans))
            usleep(1000);
        usleep(5000); /* nothing else is to come over the control connection */
        atomic_store(&stopped, false);
        atomic_store(&go_on, false);
        if (first < 65536)
            atomic_store(&stop_fd, pr.ba->ctl.fd);
        else
            atomic_store(&stop_bulk, true);
        hawser_op *op = start(&pr, WRITE, &old, &theirs.region, first, 0);
        for (int k = 0; k < 10000 && !atomic_load(&stopped); k++)
            usleep(1000);
        must(hawser_cancel(op));
        off += hawser_wait(op, 10000) == -ECANCELED;
        hawser_op_free(op);
        op = start(&pr, WRITE, &new, &theirs.region, second, 0);
        (void)hawser_wait(op, 30); /* the time it takes where nothing holds it back */
        atomic_store(&go_on, true);
        must(ph_finish(op));
        usleep(10000);
        ph_see(pr.ba);
        stale += memcmp(theirs.p, new.p, HW_MIN(first, second)) != 0;
    }
    ok(stale == 0 && off == 8, "%zu bytes written after %zu were called off stay (not so %d of 8 times; %d called off)",
       second, first, stale, off);
    ph_drop(&old);
    ph_drop(&new);
}

static uint64_t lost_channels(hawser_peer *p)
{
    struct hawser_channel_stats st[64];
    size_t n = HW_ARRAY_LEN(st);
    uint64_t lost = 0;
    must(hawser_channel_stats(p, st, &n));
    for (size_t i = 0; i < n; i++)
        lost += st[i].lost;
    return lost;
}

/* Whoever has read may say so at once, and the other side take its region away at that word: no channel is lost for it,
 * though the thread that received has not come to confirm what it received. */
static void revoked_once_read(size_t n)
{
    struct ph_buf to = ph_buf(pr.a, n, 0, 0, NULL);
    uint64_t lost = lost_channels(pr.ba);
    int good = 0, held = 0;
    hawser_op *ops[8]; /* freed when no thread looks at them any more */
    for (int i = 0; i < 8; i++) {
        struct ph_buf from = ph_buf(pr.b, n, 0, HAWSER_REMOTE_READ, NULL);
        char note[HAWSER_NOTIFY_MAX];
        size_t len = sizeof(note);
        while (atomic_load(&pr.ab->chans_up) < atomic_load(&pr.ab->nchans))
            usleep(1000);
        atomic_store(&stopped, false);
        atomic_store(&go_on, false);
        for (uint32_t k = 0; k < HW_ARRAY_LEN(chan_fd); k++)
            atomic_store(&chan_fd[k], k < pr.ab->nchans ? pr.a->tp->fd(pr.ab->chans[k].conn) : -1);
        hawser_op *op = start(&pr, READ, &to, &from.region, n, 0), *word;
        ops[i] = op;
        atomic_store(&stop_after, op);
        /* Or it was done, and nobody came for more, before that was said. */
        for (int k = 0, done = 0; k < 10000 && done < 200 && !atomic_load(&stopped); k++) {
            usleep(1000);
            done += hawser_test(op) == 0;
        }
        atomic_store(&stop_after, NULL);
        held += atomic_load(&stopped);
        good += hawser_test(op) == 0;
        word = start(&pr, NOTIFY, &mine, NULL, 8, 0);
        for (int k = 0; k < 10000 && hawser_notification(pr.ba, note, sizeof(note), &len) != 0; k++)
            usleep(1000);
        must(hawser_revoke(pr.b, from.key));
        atomic_store(&go_on, true);
        for (int k = 0; k < 10000 && atomic_load(&stopped); k++)
            usleep(1000); /* it may not have seen it yet */
        must(ph_finish(word));
        ph_drop(&from);
    }
    for (int i = 0; i < 8; i++)
        hawser_op_free(ops[i]);
    ok(good == 8 && held && lost_channels(pr.ba) == lost,
       "of a region revoked once %zu bytes of it were read, no channel is lost (%d of 8 were read, %d in time, %llu "
       "lost)",
       n, good, held, (unsigned long long)(lost_channels(pr.ba) - lost));
    ph_drop(&to);
}

/* After many calls-off the two sides must agree again on which message is next: empty both queues. */
static void settle(void)
{
    /* what was sent inline and called off is still there for a receive to meet */
    uint8_t mark = 0xa5;
    struct ph_buf m = ph_buf(pr.a, 1, 0, 0, NULL), t = ph_buf(pr.b, 9000, 0, 0, NULL);
    m.p[0] = mark;
    for (int side = 0; side < 2; side++) {
        hawser_peer *from = side ? pr.ba : pr.ab, *to = side ? pr.ab : pr.ba;
        struct ph_buf *fm = side ? &t : &m, *tm = side ? &m : &t;
        fm->p[0] = mark;
        struct hawser_vec v = {.mem = fm->mem, .length = 1};
        hawser_op *s;
        must(hawser_send(from, &v, 1, NULL, &s));
        bool found = false;
        for (int i = 0; i < 200 && !found; i++) {
            struct hawser_vec w = {.mem = tm->mem, .length = tm->len};
            hawser_op *r;
            tm->p[0] = 0;
            must(hawser_recv(to, &w, 1, NULL, &r));
            int rc = hawser_wait(r, 5000);
            if (rc == -EAGAIN)
                bail("the two sides count messages differently");
            found = rc == 0 && hawser_op_length(r) == 1 && tm->p[0] == mark;
            hawser_op_free(r);
        }
        ok(found && ph_finish(s) == 0, "side %d: the queue of messages is in order after all that", side);
    }
    ph_drop(&m);
    ph_drop(&t);
}

/* ---- deadlines ------------------------------------------------------------------------------------- */

static void deadlines(void)
{
    step("deadlines");
    /* the other side does not progress: nothing can end well but what waits for it */
    struct pair q;
    q.a = ph_open(0, NULL);
    static struct ph_log blog = {.mu = PTHREAD_MUTEX_INITIALIZER};
    struct hawser_options bo = {
        .size = sizeof(bo), .flags = HAWSER_CALLER_PROGRESS, .log = ph_logger, .log_arg = &blog};
    must(hawser_open(&bo, &q.b));
    must(hawser_listen(q.b, "127.0.0.1", 0, &q.port));
    ph_connect(q.a, q.b, q.port, &q.ab, &q.ba);
    struct ph_buf m = ph_buf(q.a, 64 << 20, 0, 0, NULL), t = ph_buf(q.b, 64 << 20, 0, 3, NULL);
    static const size_t n[] = {100, 64 << 20};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < KINDS; k++) {
            uint64_t t0 = hw_now();
            hawser_op *op = start(&q, (enum kind)k, &m, &t.region, n[i], 150);
            int rc = hawser_wait(op, -1);
            uint64_t ms = (hw_now() - t0) / HW_MS;
            ok(rc == -ETIMEDOUT && ms >= 145 && ms < 3000, "%s of %zu with a deadline of 150 ms: %d after %llu ms",
               kind_name[k], n[i], rc, (unsigned long long)ms);
            ok(rc == 0 || strstr(hawser_error(), "deadline"), "\"%s\"", hawser_error());
            hawser_op_free(op);
            for (int d = 0; d < 20; d++)
                (void)hawser_progress(q.b, 1);
        }
    }
    is_rc(hawser_peer_state(q.ab), 0, "the peer survives them");
    for (int d = 0; d < 200; d++)
        (void)hawser_progress(q.b, 5);
    is_rc(hawser_peer_state(q.ba), 0, "seen from both sides");
    ph_close(&q);
    /* channels may be lost over it, nothing else, and what they carried must have been in order to the last byte */
    ok(!strstr(blog.text, "control connection is lost") && !strstr(blog.text, "magic") &&
           !strstr(blog.text, "protocol"),
       "with no other harm done");
    free(m.raw);
    free(t.raw);
    static const char *const knobs[] = {"op_timeout_ms=200", NULL};
    q = ph_pair(0, knobs, 0, NULL);
    m = ph_buf(q.a, 10, 0, 0, NULL);
    hawser_op *op = start(&q, RECV, &m, NULL, 10, 0), *never = start(&q, RECV, &m, NULL, 10, -1);
    is_rc(hawser_wait(op, -1), -ETIMEDOUT, "the knob's deadline holds where none is given");
    usleep(100000);
    is_rc(hawser_test(never), -EAGAIN, "and not where -1 was");
    hawser_op_free(op);
    hawser_op_free(never); /* pending: cancelled and waited for */
    ok(true, "a pending operation can be freed");
    ph_close(&q);
    free(m.raw);
}

static void waiting(void)
{
    step("waiting");
    hawser_op *op = start(&pr, RECV, &mine, NULL, 10, 0);
    is_rc(hawser_test(op), -EAGAIN, "test: under way");
    is_rc(hawser_wait(op, 0), -EAGAIN, "wait(0): under way");
    uint64_t t0 = hw_now();
    is_rc(hawser_wait(op, 100), -EAGAIN, "wait(100): under way");
    uint64_t ms = (hw_now() - t0) / HW_MS;
    ok(ms >= 99 && ms < 3000, "after %llu ms", (unsigned long long)ms);
    struct hawser_vec v = {.mem = theirs.mem, .length = 10};
    hawser_op *s;
    must(hawser_send(pr.ba, &v, 1, NULL, &s));
    is_rc(hawser_wait(op, -1), 0, "wait(-1): until it ends");
    is_rc(hawser_wait(op, -1), 0, "and again");
    is_rc(hawser_wait(op, 0), 0, "and wait(0)");
    is_rc(hawser_test(op), 0, "and test");
    is_rc(ph_finish(s), 0, "its sender");
    hawser_op_free(op);
    hawser_op_free(NULL);
}

/* ---- the event descriptor ------------------------------------------------------------------------------ */

static bool clear_event(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t n;
    return poll(&p, 1, timeout_ms) == 1 && read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n);
}

static void eventfd_threads(void)
{
    step("eventfd");
    int fa = hawser_eventfd(pr.a), fb = hawser_eventfd(pr.b);
    char late[HAWSER_NOTIFY_MAX];
    size_t len;
    while (clear_event(fa, 50) || clear_event(fb, 50))
        ;
    while (hawser_notification(pr.ba, late, sizeof(late), &len) == 0) /* called off once it was on its way */
        ;
    hawser_op *op = start(&pr, WRITE, &mine, &theirs.region, 3 << 20, 0);
    while (hawser_test(op) == -EAGAIN)
        if (!clear_event(fa, 5000))
            break;
    is_rc(hawser_test(op), 0, "an end is told by the descriptor");
    hawser_op_free(op);
    op = start(&pr, NOTIFY, &mine, NULL, 5, 0);
    ok(clear_event(fb, 5000), "a notification is");
    char note[8];
    is_rc(hawser_notification(pr.ba, note, sizeof(note), &len), 0, "it is there");
    is_rc(ph_finish(op), 0, "and its sender knows");
    while (clear_event(fa, 50) || clear_event(fb, 50))
        ;
    hawser *c = ph_open(0, NULL);
    hawser_peer *cb, *bc;
    must(hawser_connect(c, "127.0.0.1", pr.port, NULL, 5000, &cb));
    ok(clear_event(fb, 5000), "a peer that arrives is");
    must(hawser_accept(pr.b, 0, &bc));
    while (clear_event(fb, 50))
        ;
    hawser_close(c);
    ok(clear_event(fb, 5000), "and one that goes");
    is_rc(hawser_peer_state(bc), -ESHUTDOWN, "in an orderly way");
    hawser_peer_close(bc);
}

/* Both sides driven by poll() on the descriptor and hawser_progress() alone, in one thread. */
static bool drive(struct pair *q, hawser_op *a, hawser_op *b)
{
    uint64_t end = hw_now() + 10000 * HW_MS;
    struct pollfd p[2] = {{.fd = hawser_eventfd(q->a), .events = POLLIN},
                          {.fd = hawser_eventfd(q->b), .events = POLLIN}};
    while ((a && hawser_test(a) == -EAGAIN) || (b && hawser_test(b) == -EAGAIN)) {
        if (hw_now() > end)
            return false;
        if (poll(p, 2, 3000) == 0)
            return false; /* nothing to do, it says, and yet it is not done */
        for (int i = 0; i < 2; i++)
            if (p[i].revents)
                (void)hawser_progress(i ? q->b : q->a, 0);
    }
    return true;
}

static void eventfd_caller(void)
{
    step("eventfd and caller progress");
    struct pair q;
    q.a = ph_open(HAWSER_CALLER_PROGRESS, NULL);
    q.b = ph_open(HAWSER_CALLER_PROGRESS, NULL);
    must(hawser_listen(q.b, "127.0.0.1", 0, &q.port));
    ph_connect(q.a, q.b, q.port, &q.ab, &q.ba);
    struct ph_buf m = ph_buf(q.a, 5 << 20, 0, 0, NULL), t = ph_buf(q.b, 5 << 20, 0, 3, NULL);
    static const size_t n[] = {1, 5000, 100000, 5 << 20};
    int bad = 0;
    for (unsigned i = 0; i < 40; i++) {
        size_t k = n[i % HW_ARRAY_LEN(n)];
        hawser_op *op = start(&q, i & 4 ? READ : WRITE, &m, &t.region, k, 0);
        if (!drive(&q, op, NULL)) {
            diag("stuck in the %s of %zu", i & 4 ? "read" : "write", k);
            bad++;
        }
        hawser_op_free(op);
        struct hawser_vec v = {.mem = t.mem, .length = k};
        hawser_op *r = NULL, *s;
        if (i % 2)
            must(hawser_recv(q.ba, &v, 1, NULL, &r));
        s = start(&q, SEND, &m, NULL, k, 0);
        if (!r)
            must(hawser_recv(q.ba, &v, 1, NULL, &r));
        if (!drive(&q, s, r)) {
            diag("stuck in the send of %zu: %d %d", k, hawser_test(s), hawser_test(r));
            bad++;
        }
        hawser_op_free(s);
        hawser_op_free(r);
    }
    is_int(bad, 0, "poll() and hawser_progress() alone bring everything to its end");
    hawser_op *op = start(&q, RECV, &m, NULL, 10, 300);
    ok(drive(&q, op, NULL) && hawser_test(op) == -ETIMEDOUT, "deadlines too");
    hawser_op_free(op);
    ph_close(&q);
    free(m.raw);
    free(t.raw);
}

/* ---- threads --------------------------------------------------------------------------------------------- */

#define THREADS 6
#define ROUNDS  60

struct worker {
    int index;
    uint64_t bad;
};

/* Each has a stretch of the region for itself and works on it by writes and reads, waiting in turn and in heaps. */
static void *work(void *arg)
{
    struct worker *w = arg;
    const size_t slice = theirs.len / THREADS;
    const size_t base = slice * (size_t)w->index;
    struct ph_buf m = ph_buf(pr.a, slice, (size_t)w->index, 0, NULL);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        static const size_t n[] = {64, 4096, 20000, 300000, 1, 8192};
        size_t k = n[(i + (uint64_t)w->index) % HW_ARRAY_LEN(n)];
        hawser_op *op[4];
        hw_pattern_fill(m.p, 4 * k, i, base);
        for (size_t j = 0; j < 4; j++) {
            struct hawser_vec v = {m.mem, j * k, k, &theirs.region, base + j * k};
            if (hawser_write(pr.ab, &v, 1, NULL, &op[j]))
                w->bad++, op[j] = NULL;
        }
        for (size_t j = 4; j-- > 0;)
            w->bad += op[j] && ph_finish(op[j]) != 0;
        memset(m.p, 0, 4 * k);
        w->bad += ph_one(hawser_read, pr.ab, &m, 0, 4 * k, &theirs.region, base) != 0;
        w->bad += hw_pattern_check(m.p, 4 * k, i, base, NULL);
        if (i % 8 == 0) {
            op[0] = start(&pr, NOTIFY, &m, NULL, 4, 0);
            int rc = ph_finish(op[0]);
            w->bad += rc && rc != -ENOBUFS;
        }
    }
    ph_drop(&m);
    return NULL;
}

static void *message_pump(void *arg)
{
    bool sender = *(bool *)arg;
    struct ph_buf m = sender ? ph_buf(pr.a, 50000, 0, 0, NULL) : ph_buf(pr.b, 50000, 0, 0, NULL);
    uint64_t bad = 0;
    for (uint64_t i = 0; i < 200; i++) {
        size_t n = i % 3 ? 100 + i : 40000 + i;
        if (sender)
            hw_pattern_fill(m.p, n, i, 0);
        bad += ph_one(sender ? hawser_send : hawser_recv, sender ? pr.ab : pr.ba, &m, 0, n, NULL, 0) != 0;
        if (!sender)
            bad += hw_pattern_check(m.p, n, i, 0, NULL);
    }
    ph_drop(&m);
    return (void *)(uintptr_t)bad;
}

static void threads(void)
{
    step("threads");
    struct worker w[THREADS];
    pthread_t t[THREADS], pump[2];
    bool who[2] = {true, false};
    uint64_t bad = 0;
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.index = i};
        pthread_create(&t[i], NULL, work, &w[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&pump[i], NULL, message_pump, &who[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        bad += w[i].bad;
    }
    ok(bad == 0, "%d threads on one peer, every byte checked (%llu bad)", THREADS, (unsigned long long)bad);
    for (int i = 0; i < 2; i++) {
        void *ret;
        pthread_join(pump[i], &ret);
        ok(ret == NULL, "and messages between them, %s", who[i] ? "sent" : "received");
    }
}

int main(void)
{
    watchdog(110);
    pr = ph_pair(0, NULL, 0, NULL);
    mine = ph_buf(pr.a, 16 << 20, 0, 0, NULL);
    theirs = ph_buf(pr.b, 16 << 20, 0, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
    waiting();
    for (int k = 0; k < KINDS; k++) {
        step(kind_name[k]);
        cancelling((enum kind)k, 64);
        cancelling((enum kind)k, 16 << 20);
    }
    step("overtaking");
    overtaking(1 << 20, 64);
    overtaking(1 << 20, 2 << 20);
    overtaking(4 << 20, 4 << 20);
    overtaking(64, 1 << 20);
    is_rc(hawser_peer_state(pr.ab), 0, "the peer lives through the cancelling");
    settle();
    step("revoking");
    revoked_once_read(64 << 10);
    revoked_once_read(4 << 20);
    deadlines();
    eventfd_threads();
    eventfd_caller();
    threads();
    is_rc(hawser_peer_state(pr.ab), 0, "alive at the end");
    step("closing");
    ph_close(&pr);
    free(mine.raw);
    free(theirs.raw);
    return tap_done();
}

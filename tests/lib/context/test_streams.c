/* SPDX-License-Identifier: Apache-2.0 */
/* Tests streams of messages with the public API. */
#include "pairhelp.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static struct pair pr;

static int try_post(ph_post f, hawser_peer *p, struct ph_buf *m, uint64_t at, uint64_t len, uint32_t stream,
                    int timeout_ms, hawser_op **op)
{
    struct hawser_vec v = {.mem = len ? m->mem : NULL, .offset = at, .length = len};
    struct hawser_op_options o = {.size = sizeof(o), .stream = stream, .timeout_ms = timeout_ms};
    return f(p, &v, 1, &o, op);
}

static hawser_op *post(ph_post f, hawser_peer *p, struct ph_buf *m, uint64_t at, uint64_t len, uint32_t stream)
{
    hawser_op *op;
    must(try_post(f, p, m, at, len, stream, 0, &op));
    return op;
}

/* ---- sizes, in both orders ------------------------------------------------------------------------- */

static void one_size(size_t n, bool recv_first, uint32_t stream)
{
    struct ph_buf a = ph_buf(pr.a, n + 1, 1, 0, NULL), b = ph_buf(pr.b, n + 100, 2, 0, NULL);
    hw_pattern_fill(a.p, n, n, 0);
    hawser_op *r = recv_first ? post(hawser_recv, pr.ba, &b, 0, n + 100, stream) : NULL;
    if (recv_first)
        usleep(500);
    hawser_op *s = post(hawser_send, pr.ab, &a, 0, n, stream);
    if (!recv_first) {
        usleep(1000);
        r = post(hawser_recv, pr.ba, &b, 0, n + 100, stream);
    }
    int rr = hawser_wait(r, 30000), sr = hawser_wait(s, 30000);
    bool tail = true;
    for (size_t i = n; i < b.len; i++)
        tail &= b.p[i] == 0;
    ok(rr == 0 && sr == 0 && hawser_op_length(r) == n && hawser_op_bytes(r) == n && hawser_op_bytes(s) == n && tail &&
           hw_pattern_check(b.p, n, n, 0, NULL) == 0 && ph_guards_ok(&b),
       "%zu bytes into a longer receive posted %s (%d, %d)", n, recv_first ? "before" : "after", sr, rr);
    hawser_op_free(r);
    hawser_op_free(s);
    ph_drop(&a);
    ph_drop(&b);
}

static void sizes(void)
{
    static const size_t n[] = {0, 1, 4095, 8192, 8193, 16384, 16385, (1 << 20) - 1, 1 << 20, 5000001};
    step("sizes");
    for (size_t i = 0; i < HW_ARRAY_LEN(n); i++) {
        one_size(n[i], true, 7);
        one_size(n[i], false, 7);
        one_size(n[i], true, (uint32_t)(1000 + i)); /* each on a new stream */
        one_size(n[i], false, (uint32_t)(2000 + i));
    }
}

/* ---- many streams, mixed lengths, both directions, at the same time ---------------------------------- */

static uint32_t base = 1; /* number of the first stream */

#define LANES    24
#define MESSAGES 60
#define DEEP     6
#define SLOT     (192u << 10)

struct side {
    hawser *h;
    hawser_peer *p;
    bool sends_first;
    unsigned seed;
    uint64_t bad, done;
    bool guarded; /* no memory outside the receive buffers was written */
};

static uint32_t length_of(unsigned lane, unsigned k)
{
    uint32_t r = (lane * 7919 + k * 104729 + 17) * 2654435761u;
    switch (r >> 29) {
    case 0:
        return 0;
    case 1:
    case 2:
    case 3:
        return r % 8192;
    default:
        return r % SLOT;
    }
}

/* Keeps up to DEEP sends and DEEP receives in flight on each stream. Selects the stream for each call at random. */
static void *run_side(void *arg)
{
    struct side *s = arg;
    struct lane {
        hawser_op *tx[DEEP], *rx[DEEP];
        unsigned sent, received, send_done, recv_done;
    } *l = calloc(LANES, sizeof(*l));
    struct ph_buf out = ph_buf(s->h, (size_t)LANES * DEEP * SLOT, 0, 0, NULL),
                  in = ph_buf(s->h, (size_t)LANES * DEEP * SLOT, 0, 0, NULL);
    unsigned left = LANES * MESSAGES * 2;
    while (left) {
        unsigned i = (unsigned)rand_r(&s->seed) % LANES, what = (unsigned)rand_r(&s->seed) % 4;
        struct lane *n = &l[i];
        uint32_t stream = base + i;
        if (what == 0 && n->sent < MESSAGES && n->sent - n->send_done < DEEP) {
            uint64_t at = ((uint64_t)i * DEEP + n->sent % DEEP) * SLOT;
            uint32_t len = length_of(i, n->sent);
            hw_pattern_fill(out.p + at, len, i, n->sent);
            n->tx[n->sent % DEEP] = post(hawser_send, s->p, &out, at, len, stream);
            n->sent++;
        } else if (what == 1 && n->received < MESSAGES && n->received - n->recv_done < DEEP) {
            uint64_t at = ((uint64_t)i * DEEP + n->received % DEEP) * SLOT;
            n->rx[n->received % DEEP] = post(hawser_recv, s->p, &in, at, SLOT, stream);
            n->received++;
        } else if (what == 2 && n->send_done < n->sent) {
            hawser_op *op = n->tx[n->send_done % DEEP];
            int rc = rand_r(&s->seed) % 2 ? hawser_test(op) : hawser_wait(op, 1);
            if (rc != -EAGAIN) {
                s->bad += rc != 0;
                hawser_op_free(op);
                n->send_done++;
                left--;
            }
        } else if (what == 3 && n->recv_done < n->received) {
            hawser_op *op = n->rx[n->recv_done % DEEP];
            int rc = rand_r(&s->seed) % 2 ? hawser_test(op) : hawser_wait(op, 1);
            if (rc != -EAGAIN) {
                uint32_t len = length_of(i, n->recv_done);
                uint64_t at = ((uint64_t)i * DEEP + n->recv_done % DEEP) * SLOT;
                ph_see(s->p);
                s->bad += rc != 0 || hawser_op_length(op) != len ||
                          hw_pattern_check(in.p + at, len, i, n->recv_done, NULL) != 0;
                hawser_op_free(op);
                n->recv_done++;
                left--;
                s->done++;
            }
        }
    }
    s->guarded = ph_guards_ok(&in);
    ph_drop(&out);
    ph_drop(&in);
    free(l);
    return NULL;
}

static void many(void)
{
    struct side a = {.h = pr.a, .p = pr.ab, .seed = 1}, b = {.h = pr.b, .p = pr.ba, .seed = 2};
    pthread_t t;
    step("many streams");
    pthread_create(&t, NULL, run_side, &a);
    run_side(&b);
    pthread_join(t, NULL);
    ok(a.guarded && b.guarded, "nothing beside the receives is touched");
    ok(a.bad == 0 && b.bad == 0 && a.done == LANES * MESSAGES && b.done == LANES * MESSAGES,
       "%d streams of %d messages each way, all in their places and of the right length", LANES, MESSAGES);
}

/* ---- many streams while channels are reset ------------------------------------------------------------- */

static atomic_bool cutting;

/* Simulates failing paths by resetting one channel after another. connect() to an AF_UNSPEC address makes the kernel
 * reset the connection (tcp_disconnect()). */
static void *cutter(void *arg)
{
    unsigned *cuts = arg, seed = 3;
    while (atomic_load(&cutting)) {
        struct hawser_channel_stats st[64] = {0};
        size_t n = HW_ARRAY_LEN(st);
        must(hawser_channel_stats(pr.ab, st, &n));
        const struct hawser_channel_stats *c = &st[(unsigned)rand_r(&seed) % n];
        const char *colon = strrchr(c->local, ':');
        for (int fd = 3; c->up && colon && fd < 200; fd++) {
            struct sockaddr_in a = {0};
            socklen_t len = sizeof(a);
            if (getsockname(fd, (struct sockaddr *)&a, &len) || a.sin_family != AF_INET ||
                ntohs(a.sin_port) != (unsigned)atoi(colon + 1) || ntohs(a.sin_port) == pr.port)
                continue;
            struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
            /* A raw system call, because ThreadSanitizer would report a data race if libc's connect() used another
             * thread's file descriptor. */
            *cuts += syscall(SYS_connect, fd, &nowhere, sizeof(nowhere)) == 0;
            break;
        }
        usleep(15000);
    }
    return NULL;
}

static void under_fire(void)
{
    unsigned cuts = 0;
    pthread_t t;
    step("channels die");
    atomic_store(&cutting, true);
    pthread_create(&t, NULL, cutter, &cuts);
    for (int i = 0; i < 5; i++) {
        base += LANES;
        many();
    }
    atomic_store(&cutting, false);
    pthread_join(t, NULL);
    struct hawser_channel_stats st[64] = {0};
    size_t n = HW_ARRAY_LEN(st);
    uint64_t retaken = 0, bytes = 0;
    must(hawser_channel_stats(pr.ab, st, &n));
    for (size_t i = 0; i < n; i++)
        retaken += st[i].retaken_chunks, bytes += st[i].retaken_bytes;
    ok(cuts > 0 && (bytes == 0 || retaken > 0),
       "while %u channels were reset, %llu chunks of which others took up, %llu bytes", cuts,
       (unsigned long long)retaken, (unsigned long long)bytes);
}

/* ---- streams do not delay each other -------------------------------------------------------------------- */

static void apart(void)
{
    enum { N = 1 << 20, SMALL = 100 };
    struct ph_buf a = ph_buf(pr.a, N, 0, 0, NULL), b = ph_buf(pr.b, 2 * N, 0, 0, NULL);
    step("streams are apart");
    hawser_op *s1 = post(hawser_send, pr.ab, &a, 0, N, 51), *s2 = post(hawser_send, pr.ab, &a, 0, SMALL, 51);
    hawser_op *s3 = post(hawser_send, pr.ab, &a, 0, N, 52), *r3 = post(hawser_recv, pr.ba, &b, 0, N, 52);
    is_rc(ph_finish(r3), 0, "a stream whose receive is there goes on");
    is_rc(ph_finish(s3), 0, "on both sides");
    is_rc(hawser_test(s1), -EAGAIN, "while another waits for its receive");
    hawser_op *r1 = post(hawser_recv, pr.ba, &b, 0, N, 51), *r2 = post(hawser_recv, pr.ba, &b, N, N, 51);
    is_rc(ph_finish(r1), 0, "which then");
    is_rc(hawser_wait(r2, 30000), 0, "is met, and the next one");
    ok(hawser_op_length(r2) == SMALL, "by the second message, in order");
    hawser_op_free(r2);
    is_rc(ph_finish(s1), 0, "the long send ends");
    is_rc(ph_finish(s2), 0, "the short one too");
    /* stream 0 is independent of the other streams */
    hawser_op *r0 = post(hawser_recv, pr.ba, &b, 0, N, 0), *s0 = post(hawser_send, pr.ab, &a, 0, N, 0);
    is_rc(ph_finish(r0), 0, "messages without a stream pass by");
    is_rc(ph_finish(s0), 0, "all of them");
    ph_drop(&a);
    ph_drop(&b);
}

/* ---- failures ---------------------------------------------------------------------------------------------- */

static void too_long(size_t n, bool recv_first, uint32_t stream)
{
    struct ph_buf a = ph_buf(pr.a, n, 0, 0, NULL), b = ph_buf(pr.b, n, 0, 0, NULL);
    hawser_op *r = recv_first ? post(hawser_recv, pr.ba, &b, 0, n - 1, stream) : NULL;
    if (recv_first)
        usleep(2000);
    hawser_op *s = post(hawser_send, pr.ab, &a, 0, n, stream);
    if (!recv_first)
        r = post(hawser_recv, pr.ba, &b, 0, n - 1, stream);
    int rr = ph_finish(r), sr = ph_finish(s);
    ok(rr == -EMSGSIZE && sr == -EMSGSIZE, "%zu bytes into %zu, posted %s: %d, %d", n, n - 1,
       recv_first ? "before" : "after", rr, sr);
    r = post(hawser_recv, pr.ba, &b, 0, n, stream);
    s = post(hawser_send, pr.ab, &a, 0, n, stream);
    rr = ph_finish(r), sr = ph_finish(s);
    ok(rr == 0 && sr == 0, "and the stream goes on");
    ph_drop(&a);
    ph_drop(&b);
}

static void failures(void)
{
    enum { N = 1 << 20 };
    struct ph_buf a = ph_buf(pr.a, N, 0, 0, NULL), b = ph_buf(pr.b, N, 0, 0, NULL);
    step("failures");
    too_long(1000, true, 61);
    too_long(1000, false, 62);
    too_long(100000, true, 63);
    too_long(100000, false, 64);

    /* after a cancelled operation, the other side matches the next operation */
    hawser_op *s = post(hawser_send, pr.ab, &a, 0, N, 65), *r, *r2, *s2;
    usleep(2000);
    must(hawser_cancel(s));
    is_rc(ph_finish(s), -ECANCELED, "a send that waits for its receive is called off");
    r = post(hawser_recv, pr.ba, &b, 0, N, 65);
    s = post(hawser_send, pr.ab, &a, 0, N, 65);
    is_rc(ph_finish(r), 0, "the next one meets the receive");
    is_rc(ph_finish(s), 0, "on both sides");

    r = post(hawser_recv, pr.ba, &b, 0, N, 66);
    must(hawser_cancel(r));
    is_rc(ph_finish(r), -ECANCELED, "a receive is called off");
    usleep(20000);
    s = post(hawser_send, pr.ab, &a, 0, N, 66);
    r = post(hawser_recv, pr.ba, &b, 0, N, 66);
    is_rc(ph_finish(r), 0, "the next one meets the send");
    is_rc(ph_finish(s), 0, "on both sides");

    must(try_post(hawser_recv, pr.ba, &b, 0, N, 67, 100, &r));
    is_rc(ph_finish(r), -ETIMEDOUT, "a receive has its deadline");
    usleep(20000);
    s = post(hawser_send, pr.ab, &a, 0, 10, 67);
    s2 = post(hawser_send, pr.ab, &a, 0, 20, 67);
    r = post(hawser_recv, pr.ba, &b, 0, N, 67);
    r2 = post(hawser_recv, pr.ba, &b, N / 2, N / 2, 67);
    int rc = hawser_wait(r, 30000), rc2 = hawser_wait(r2, 30000);
    ok(rc == 0 && hawser_op_length(r) == 10, "the message that it was for meets the next");
    ok(rc2 == 0 && hawser_op_length(r2) == 20, "and so do those behind");
    hawser_op_free(r);
    hawser_op_free(r2);
    is_rc(ph_finish(s), 0, "its send is well");
    is_rc(ph_finish(s2), 0, "and the next one");

    struct hawser_vec v = {.mem = a.mem, .length = 1};
    struct hawser_op_options o = {.size = sizeof(o), .stream = 1};
    hawser_op *op;
    is_rc(hawser_write(pr.ab, &v, 0, &o, &op), -EINVAL, "a write has no stream");
    is_rc(hawser_notify(pr.ab, "x", 1, &o, &op), -EINVAL, "nor has a notification");
    ph_drop(&a);
    ph_drop(&b);
}

/* Returns the result of an operation on a stream that the other side has closed. The operation fails at once, or when
 * this side is informed that the stream is closed. */
static int finish_late(ph_post f, hawser_peer *p, struct ph_buf *m, size_t len, uint32_t stream)
{
    hawser_op *op;
    int rc = try_post(f, p, m, 0, len, stream, 0, &op);
    return rc ? rc : ph_finish(op);
}

/* ---- closing -------------------------------------------------------------------------------------------------- */

static void closing(void)
{
    enum { N = 1 << 20 };
    struct ph_buf a = ph_buf(pr.a, N, 0, 0, NULL), b = ph_buf(pr.b, N, 0, 0, NULL);
    hawser_op *r, *s, *r2;
    step("closing");
    is_rc(hawser_stream_close(pr.ab, 0), -EINVAL, "stream 0 cannot be closed");

    s = post(hawser_send, pr.ab, &a, 0, 100, 70);
    must(hawser_stream_close(pr.ab, 70));
    is_rc(ph_finish(s), -ECANCELED, "a send that nothing has met ends with its stream");
    usleep(20000);
    is_rc(finish_late(hawser_recv, pr.ba, &b, N, 70), -ESHUTDOWN, "and nobody receives it");
    r = post(hawser_recv, pr.ba, &b, 0, N, 71);
    s = post(hawser_send, pr.ab, &a, 0, 100, 71);
    is_rc(ph_finish(s), 0, "what has ended before the end");
    must(hawser_stream_close(pr.ab, 71));
    is_rc(ph_finish(r), 0, "arrives");
    is_rc(finish_late(hawser_recv, pr.ba, &b, N, 71), -ESHUTDOWN, "and nothing more");
    is_rc(try_post(hawser_send, pr.ab, &a, 0, 1, 71, 0, &s), -ESHUTDOWN, "not by this side either");
    is_rc(finish_late(hawser_send, pr.ba, &b, 1, 71), -ESHUTDOWN, "nor the other way");
    must(hawser_stream_close(pr.ba, 71));

    r = post(hawser_recv, pr.ba, &b, 0, N, 72);
    r2 = post(hawser_recv, pr.ba, &b, 0, N, 72);
    s = post(hawser_send, pr.ab, &a, 0, N, 73);
    usleep(2000);
    must(hawser_stream_close(pr.ba, 72));
    must(hawser_stream_close(pr.ba, 73));
    is_rc(ph_finish(r), -ECANCELED, "closing ends the receives that are pending");
    is_rc(ph_finish(r2), -ECANCELED, "all of them");
    is_rc(ph_finish(s), -ESHUTDOWN, "and the sends at the other end");
    is_rc(finish_late(hawser_send, pr.ab, &a, N, 72), -ESHUTDOWN, "later ones too");
    must(hawser_stream_close(pr.ab, 72));
    must(hawser_stream_close(pr.ab, 73));

    /* close streams with long messages in flight */
    int bad = 0;
    for (uint32_t i = 0; i < 50; i++) {
        hawser_op *x[4], *y[4];
        for (int k = 0; k < 4; k++)
            x[k] = post(hawser_recv, pr.ba, &b, (uint64_t)k * (N / 4), N / 4, 100 + i);
        for (int k = 0; k < 4; k++)
            y[k] = post(hawser_send, pr.ab, &a, 0, N / 4, 100 + i);
        usleep(i * 20);
        must(hawser_stream_close(i % 2 ? pr.ab : pr.ba, 100 + i));
        for (int k = 0; k < 4; k++) {
            int rr = ph_finish(x[k]), sr = ph_finish(y[k]);
            bad += (rr && rr != -ECANCELED && rr != -ESHUTDOWN) || (sr && sr != -ECANCELED && sr != -ESHUTDOWN);
            bad += i % 2 && sr == 0 && rr != 0; /* the send succeeded although its receive failed */
        }
        must(hawser_stream_close(i % 2 ? pr.ba : pr.ab, 100 + i));
    }
    ok(bad == 0, "closed with long messages under way: each ends, and none is told to be there that is not");
    r = post(hawser_recv, pr.ba, &b, 0, N, 7);
    s = post(hawser_send, pr.ab, &a, 0, N, 7);
    is_rc(ph_finish(r), 0, "other streams go on");
    is_rc(ph_finish(s), 0, "both ways");
    ph_drop(&a);
    ph_drop(&b);
}

/* Opens n streams from `first`, sends a message on each, and closes them. Returns the number of failed operations. */
static int open_and_close(struct ph_buf *a, struct ph_buf *b, uint32_t first, uint32_t n)
{
    enum { MOST = 50 };
    hawser_op *s[MOST], *r[MOST];
    int bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        s[i] = post(hawser_send, pr.ab, a, 0, 64, first + i);
        r[i] = post(hawser_recv, pr.ba, b, (uint64_t)64 * i, 64, first + i);
    }
    for (uint32_t i = 0; i < n; i++) {
        bad += ph_finish(r[i]) != 0;
        bad += ph_finish(s[i]) != 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        must(hawser_stream_close(pr.ab, first + i));
        must(hawser_stream_close(pr.ba, first + i));
    }
    return bad;
}

static void churn(void)
{
    /* more streams than can be open at a time; after the first streams 50 at once, because the two sides wait for each
       other */
    const uint32_t alone = 3000, all = PH_SANITIZED ? alone : 70000, at_once = 50;
    struct ph_buf a = ph_buf(pr.a, 64, 0, 0, NULL), b = ph_buf(pr.b, (size_t)64 * at_once, 0, 0, NULL);
    int bad = 0;
    step("churn");
    for (uint32_t i = 0; i < all; i += i < alone ? 1 : at_once)
        bad += open_and_close(&a, &b, 100000 + i, i < alone ? 1 : at_once);
    ok(bad == 0, "streams are opened and closed without end");
    ph_drop(&a);
    ph_drop(&b);
}

/* ---- waiting messages are bounded --------------------------------------------------------------------------- */

static void bounded(void)
{
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct ph_buf a = ph_buf(q.a, 8192, 0, 0, NULL), b = ph_buf(q.b, 8192, 0, 0, NULL);
    enum { N = 200 };
    hawser_op *s[N];
    step("bounded");
    int ended = 0, bad = 0;
    hw_pattern_fill(a.p, 8192, 5, 0);
    for (int i = 0; i < N; i++)
        s[i] = post(hawser_send, q.ab, &a, 0, 8000, 1 + (uint32_t)i % 3);
    usleep(200000);
    for (int i = 0; i < N; i++)
        ended += hawser_test(s[i]) == 0;
    ok(ended == 0, "%d sends of 8000 bytes are over before any receive", ended);
    for (int i = 0; i < N; i++) {
        hawser_op *r = post(hawser_recv, q.ba, &b, 0, 8192, 1 + (uint32_t)i % 3);
        bad += ph_finish(r) != 0 || hw_pattern_check(b.p, 8000, 5, 0, NULL) != 0;
    }
    for (int i = 0; i < N; i++)
        bad += ph_finish(s[i]) != 0;
    is_int(bad, 0, "the others wait, and all arrive");
    ph_drop(&a);
    ph_drop(&b);
    ph_close(&q);
}

#define TOO_LONG ((PH_SANITIZED ? 10 : 2) * 1000 * HW_MS)
#define OTHERS   20000 /* operations that have nothing to do with the closed streams */

/* The cost of closing a stream does not depend on the number of other operations and queues, on neither side. */
static void close_beside_others(void)
{
    step("streams are closed beside many operations");
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct ph_buf a = ph_buf(q.a, 64, 0, 0, NULL);
    struct hawser_vec v = {.mem = a.mem, .length = 8};
    struct hawser_op_options o = {.size = sizeof o};
    hawser_op *last;
    for (o.tag = 0; o.tag < OTHERS; o.tag++)
        must(hawser_recv(q.ab, &v, 1, &o, NULL));
    uint64_t start = hw_now();
    for (uint32_t i = 1; i <= OTHERS; i++)
        must(hawser_stream_close(q.ba, i));
    must(hawser_notify(q.ba, "", 0, NULL, &last)); /* is read after the closes */
    is_rc(ph_finish(last), 0, "the peer has read that the streams are closed");
    uint64_t there = hw_now();
    for (uint32_t i = 1; i <= OTHERS; i++)
        must(hawser_stream_close(q.ab, i));
    uint64_t here = hw_now();
    ok(there - start < TOO_LONG && here - there < TOO_LONG,
       "%d streams are closed beside %d operations: %.3f s by the peer, %.3f s by this side", OTHERS, OTHERS,
       (double)(there - start) / 1e9, (double)(here - there) / 1e9);
    hawser_close(q.a);
    hawser_close(q.b);
    free(a.raw);
}

/* ---- the peer closes ------------------------------------------------------------------------------------- */

static void peer_goes(void)
{
    struct pair q = ph_pair(0, NULL, 0, NULL);
    enum { N = 1 << 20 };
    struct ph_buf a = ph_buf(q.a, N, 0, 0, NULL);
    step("the peer goes");
    hawser_op *s = post(hawser_send, q.ab, &a, 0, N, 1), *r = post(hawser_recv, q.ab, &a, 0, N, 2);
    struct ph_buf b = ph_buf(q.b, N, 0, 0, NULL);
    hw_pattern_fill(b.p, 1000, 9, 0);
    hw_pattern_fill(b.p + 1000, 100000, 10, 0);
    hawser_op *lost = post(hawser_send, q.ba, &b, 0, 1000, 3);
    usleep(20000);
    hawser_peer_close(q.ba);
    is_rc(ph_finish(lost), -ESHUTDOWN, "a message that nobody has received ends with the peer");
    is_rc(ph_finish(s), -ESHUTDOWN, "a send ends when the peer closes");
    is_rc(ph_finish(r), -ESHUTDOWN, "a receive too");
    is_rc(try_post(hawser_recv, q.ab, &a, 0, N, 3, 0, &r), -ESHUTDOWN, "nothing can be received any more");
    is_rc(try_post(hawser_send, q.ab, &a, 0, 1, 1, 0, &s), -ESHUTDOWN, "and nothing more be sent");
    ph_drop(&a);
    ph_drop(&b);
    hawser_close(q.a);
    hawser_close(q.b);
}

int main(void)
{
    watchdog(100);
    pr = ph_pair(0, NULL, 0, NULL);
    sizes();
    many();
    under_fire();
    apart();
    failures();
    closing();
    churn();
    bounded();
    close_beside_others();
    peer_goes();
    ph_close(&pr);
    return tap_done();
}

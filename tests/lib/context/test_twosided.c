/* SPDX-License-Identifier: Apache-2.0 */
/* Tests sends, receives and notifications with the public API. */
#include "pairhelp.h"

static struct pair pr;

static hawser_op *post(ph_post f, hawser_peer *p, struct ph_buf *m, uint64_t at, uint64_t len)
{
    struct hawser_vec v = {.mem = m->mem, .offset = at, .length = len};
    hawser_op *op;
    must(f(p, &v, 1, NULL, &op));
    return op;
}

/* ---- sizes, in both orders ---------------------------------------------------------------------- */

static void one_size(size_t n, bool recv_first)
{
    struct ph_buf a = ph_buf(pr.a, n, 1, 0, NULL), b = ph_buf(pr.b, n + 100, 2, 0, NULL);
    hw_pattern_fill(a.p, n, n, 0);
    hawser_op *r = recv_first ? post(hawser_recv, pr.ba, &b, 0, n + 100) : NULL;
    hawser_op *s = post(hawser_send, pr.ab, &a, 0, n);
    if (!recv_first) {
        usleep(1000);
        is_rc(hawser_test(s), -EAGAIN, "a send does not end before its receive is posted");
        r = post(hawser_recv, pr.ba, &b, 0, n + 100);
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
    static const size_t n[] = {0,    1,     7,     4095,          4096,    4097,          8191,   8192,
                               8193, 16384, 16385, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5000001};
    step("send sizes");
    for (size_t i = 0; i < HW_ARRAY_LEN(n); i++) {
        one_size(n[i], true);
        one_size(n[i], false);
    }
    one_size((64u << 20) + 3, true);
}

/* ---- scattered differently on both sides -------------------------------------------------------------- */

static void scatter(size_t total, size_t piece_a, size_t piece_b)
{
    struct ph_buf a = ph_buf(pr.a, 2 * total, 0, 0, NULL), b = ph_buf(pr.b, 2 * total, 0, 0, NULL);
    size_t na = (total + piece_a - 1) / piece_a, nb = (total + piece_b - 1) / piece_b;
    struct hawser_vec *va = calloc(na, sizeof(*va)), *vb = calloc(2 * nb, sizeof(*vb));
    /* both sides have gaps as long as their pieces, and b has an empty descriptor after each piece */
    for (size_t i = 0; i < na; i++) {
        va[i] = (struct hawser_vec){
            .mem = a.mem, .offset = 2 * i * piece_a, .length = HW_MIN(piece_a, total - i * piece_a)};
        hw_pattern_fill(a.p + 2 * i * piece_a, va[i].length, 3, i * piece_a);
    }
    for (size_t i = 0; i < nb; i++)
        vb[2 * i] = (struct hawser_vec){
            .mem = b.mem, .offset = 2 * i * piece_b, .length = HW_MIN(piece_b, total - i * piece_b)};
    hawser_op *s, *r;
    must(hawser_recv(pr.ba, vb, 2 * nb, NULL, &r));
    must(hawser_send(pr.ab, va, na, NULL, &s));
    int rr = ph_finish(r), sr = ph_finish(s);
    uint64_t bad = 0;
    for (size_t i = 0; i < nb; i++) {
        const uint8_t *at = b.p + 2 * i * piece_b;
        bad += hw_pattern_check(at, vb[2 * i].length, 3, i * piece_b, NULL);
        for (size_t k = piece_b; k < 2 * piece_b && 2 * i * piece_b + k < b.len; k++)
            bad += at[k] != 0;
    }
    ok(rr == 0 && sr == 0 && bad == 0 && ph_guards_ok(&b),
       "%zu bytes gathered from pieces of %zu, scattered to %zu (%d, %d)", total, piece_a, piece_b, sr, rr);
    free(va);
    free(vb);
    ph_drop(&a);
    ph_drop(&b);
}

/* ---- order ---------------------------------------------------------------------------------------------- */

#define MESSAGES 1000

static size_t length_of(unsigned i)
{
    static const size_t n[] = {1, 300, 0, 9000, 64, 70000, 8192, 8193, 5, 40};
    return n[i % HW_ARRAY_LEN(n)] + i % 3;
}

/* Posts all receives before the first send, or all sends before the first receive. There are far more sends than a peer
 * can buffer. */
static void order(bool recv_first)
{
    static hawser_op *s[MESSAGES], *r[MESSAGES];
    size_t total = 0, at = 0;
    for (unsigned i = 0; i < MESSAGES; i++)
        total += length_of(i);
    struct ph_buf a = ph_buf(pr.a, total, 0, 0, NULL), b = ph_buf(pr.b, total, 0, 0, NULL);
    hw_pattern_fill(a.p, total, 4, 0);
    for (int turn = 0; turn < 2; turn++) {
        at = 0;
        for (unsigned i = 0; i < MESSAGES; at += length_of(i), i++) {
            if ((turn == 0) == recv_first)
                r[i] = post(hawser_recv, pr.ba, &b, at, length_of(i));
            else
                s[i] = post(hawser_send, pr.ab, &a, at, length_of(i));
        }
        if (turn == 0 && !recv_first)
            usleep(50000);
    }
    int bad = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        bad += hawser_wait(r[i], 20000) != 0 || hawser_op_length(r[i]) != length_of(i);
        hawser_op_free(r[i]);
        bad += ph_finish(s[i]) != 0;
    }
    ok(bad == 0 && hw_pattern_check(b.p, total, 4, 0, NULL) == 0 && ph_guards_ok(&b),
       "%d messages of mixed sizes keep their order, %s first", MESSAGES, recv_first ? "receives" : "sends");
    ph_drop(&a);
    ph_drop(&b);
}

/* ---- receives that are too short -------------------------------------------------------------------------- */

static void too_long(size_t n, bool recv_first)
{
    struct ph_buf a = ph_buf(pr.a, n, 0, 0, NULL), b = ph_buf(pr.b, n - 1, 0, 0, NULL);
    struct ph_buf c = ph_buf(pr.b, n, 0, 0, NULL);
    hw_pattern_fill(a.p, n, 6, 0);
    hawser_op *r = recv_first ? post(hawser_recv, pr.ba, &b, 0, n - 1) : NULL;
    hawser_op *s = post(hawser_send, pr.ab, &a, 0, n), *s2 = post(hawser_send, pr.ab, &a, 0, n);
    if (!recv_first) {
        usleep(2000);
        r = post(hawser_recv, pr.ba, &b, 0, n - 1);
    }
    hawser_op *r2 = post(hawser_recv, pr.ba, &c, 0, n);
    int rr = hawser_wait(r, 10000), sr = hawser_wait(s, 10000);
    bool zero = true;
    for (size_t i = 0; i < b.len; i++)
        zero &= b.p[i] == 0;
    ok(rr == -EMSGSIZE && sr == -EMSGSIZE && zero,
       "%zu bytes into a receive of one less: both sides hear of it (%d, %d)", n, sr, rr);
    is_rc(hawser_test(s), -EMSGSIZE, "the sender in words");
    ok(strstr(hawser_error(), "receive") != NULL, "\"%s\"", hawser_error());
    is_rc(hawser_wait(r2, 10000), 0, "the message after it arrives");
    is_rc(hawser_wait(s2, 10000), 0, "and its sender knows");
    ok(hw_pattern_check(c.p, n, 6, 0, NULL) == 0, "whole");
    hawser_op_free(r);
    hawser_op_free(s);
    hawser_op_free(r2);
    hawser_op_free(s2);
    ph_drop(&a);
    ph_drop(&b);
    ph_drop(&c);
}

/* ---- cancellation ------------------------------------------------------------------------------------------- */

/* Cancels many sends to a peer that has posted no receives. The connection must survive, and a later message must
 * arrive. */
static void sends_given_up(void)
{
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct ph_buf a = ph_buf(q.a, 200000, 0, 0, NULL), b = ph_buf(q.b, 200000, 0, 0, NULL);
    int cancelled = 0;
    for (int i = 0; i < 60; i++) {
        hawser_op *op = post(hawser_send, q.ab, &a, 0, i % 3 == 0 ? 0 : i % 3 == 1 ? 10 : 200000);
        must(hawser_cancel(op));
        cancelled += ph_finish(op) == -ECANCELED;
    }
    is_int(cancelled, 60, "60 sends that nobody receives are cancelled");
    usleep(50000);
    is_rc(hawser_peer_state(q.ba), 0, "the receiver does not take that for a broken protocol");
    is_rc(hawser_peer_state(q.ab), 0, "nor the sender");
    /* inline messages have already arrived and are received first; the other messages were cancelled */
    hw_pattern_fill(a.p, a.len, 8, 0);
    hawser_op *r[64], *s = NULL;
    int got = 0;
    for (int i = 0; i < 64; i++) {
        struct hawser_vec v = {.mem = b.mem, .length = 200000};
        must(hawser_recv(q.ba, &v, 1, NULL, &r[i]));
        if (!s)
            s = post(hawser_send, q.ab, &a, 0, a.len);
        must(hawser_wait(r[i], 5000));
        got++;
        bool last = hawser_op_length(r[i]) == 200000;
        hawser_op_free(r[i]);
        if (last)
            break;
    }
    ok(s && ph_finish(s) == 0 && hw_pattern_check(b.p, 200000, 8, 0, NULL) == 0,
       "after %d receives a new send arrives whole", got);
    ph_close(&q);
    free(a.raw);
    free(b.raw);
}

/* Posts as many operations as a peer can have in flight, and one more. */
static void too_many(void)
{
    enum { MOST = 65536 };
    static hawser_op *r[MOST + 1];
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct hawser_vec none = {0};
    int n = 0, rc;
    while ((rc = hawser_recv(q.ba, &none, 1, NULL, &r[n])) == 0 && n < MOST)
        n++;
    is_rc(rc, -EAGAIN, "a peer takes no more operations than it has room for");
    ok(strstr(hawser_error(), "in flight") != NULL, "\"%s\"", hawser_error());
    is_int(n, MOST, "which is so many");
    is_rc(hawser_peer_state(q.ab), 0, "its peer bears with as many receives");
    must(hawser_cancel(r[--n]));
    is_rc(ph_finish(r[n]), -ECANCELED, "one is cancelled");
    rc = hawser_recv(q.ba, &none, 1, NULL, &r[n]);
    is_rc(rc, 0, "and makes room for another");
    n += rc == 0;
    hawser_op *s[8];
    for (int i = 0; i < 8; i++)
        must(hawser_send(q.ab, &none, 1, NULL, &s[i]));
    int good = 0;
    for (int i = 0; i < 8; i++)
        good += ph_finish(s[i]) == 0;
    is_int(good, 8, "messages meet the oldest ones");
    hawser_peer_close(q.ba);
    while (n > 0)
        hawser_op_free(r[--n]);
    ph_close(&q);
}

struct tagger {
    hawser_peer *p;
    struct hawser_vec into;
    uint32_t first;
    int n, rc;
    hawser_op *op[40000];
};

/* Posts receives that all have different tags. */
static void *post_tags(void *arg)
{
    struct tagger *t = arg;
    for (t->n = 0, t->rc = 0; t->n < (int)HW_ARRAY_LEN(t->op); t->n++) {
        struct hawser_op_options o = {.size = sizeof o, .tag = t->first + (uint32_t)t->n};
        t->rc = hawser_recv(t->p, &t->into, 1, &o, &t->op[t->n]);
        if (t->rc)
            break;
    }
    return NULL;
}

/* Both sides post more receives with different tags than there are queues. Neither side must report a protocol error,
 * although it does not know yet which queues the other side uses. */
static void tags_of_both(void)
{
    static struct tagger t[2];
    pthread_t thread;
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct ph_buf a = ph_buf(q.a, 1 << 20, 0, 0, NULL), b = ph_buf(q.b, 1 << 20, 0, 0, NULL);
    t[0] = (struct tagger){.p = q.ab, .into = {.mem = a.mem, .length = a.len}};
    t[1] = (struct tagger){.p = q.ba, .into = {.mem = b.mem, .length = b.len}, .first = 1000000};
    must(pthread_create(&thread, NULL, post_tags, &t[0]));
    post_tags(&t[1]);
    pthread_join(thread, NULL);
    ok((t[0].rc == 0 || t[0].rc == -EAGAIN) && (t[1].rc == 0 || t[1].rc == -EAGAIN),
       "both sides post receives with tags at once: %d (%d), %d (%d)", t[0].n, t[0].rc, t[1].n, t[1].rc);
    for (int i = 0; i < 2; i++) { /* send a message for the newest receive, which is announced last */
        hawser_op *s;
        struct hawser_op_options o = {.size = sizeof o, .tag = t[!i].first + (uint32_t)t[!i].n - 1};
        int rc = hawser_send(t[i].p, &t[i].into, 1, &o, &s);
        rc = rc ? rc : ph_finish(s);
        ok(rc == 0 || rc == -EAGAIN, "a message still arrives, or has no queue left: %d", rc);
    }
    is_rc(hawser_peer_state(q.ab), 0, "one side bears with the other's tags");
    is_rc(hawser_peer_state(q.ba), 0, "and the other, too");
    hawser_peer_close(q.ab);
    hawser_peer_close(q.ba);
    for (int i = 0; i < 2; i++)
        while (t[i].n > 0)
            hawser_op_free(t[i].op[--t[i].n]);
    ph_close(&q);
    free(a.raw);
    free(b.raw);
}

/* Cancels receives while their messages are in flight. A send must not succeed if its receive was cancelled. */
static void recv_given_up(void)
{
    int lies = 0, failed = 0, done = 0;
    struct ph_buf a = ph_buf(pr.a, 8 << 20, 0, 0, NULL), b = ph_buf(pr.b, 8 << 20, 0, 0, NULL);
    for (int i = 0; i < 30; i++) {
        hawser_op *r = post(hawser_recv, pr.ba, &b, 0, b.len), *s = post(hawser_send, pr.ab, &a, 0, a.len);
        while (hawser_op_bytes(r) < (uint64_t)i * 150000 + 1 && hawser_test(r) == -EAGAIN)
            ;
        must(hawser_cancel(r));
        int rr = ph_finish(r), sr = ph_finish(s);
        lies += sr == 0 && rr != 0;
        failed += sr == -ECANCELED && rr == -ECANCELED;
        done += sr == 0 && rr == 0;
        if (rr == -ECANCELED && sr != -ECANCELED) {
            diag("round %d: receive %d, send %d", i, rr, sr);
        }
    }
    ok(lies == 0,
       "a send whose receive was called off never says it arrived (%d do; %d failed on both sides, %d went through)",
       lies, failed, done);
    is_rc(hawser_peer_state(pr.ab), 0, "the stream goes on");
    is_rc(hawser_peer_state(pr.ba), 0, "on both sides");
    ph_drop(&a);
    ph_drop(&b);
    one_size(100000, true);
}

/* ---- inline data ----------------------------------------------------------------------------------------- */

/* Starts a send of len pattern bytes from memory that is overwritten and freed before this function returns. */
static hawser_op *send_inline(hawser_peer *p, size_t len, uint64_t seed)
{
    uint8_t *data = malloc(len + 1);
    hw_pattern_fill(data, len, seed, 0);
    struct hawser_vec v = {.data = data, .length = len};
    hawser_op *op;
    must(hawser_send(p, &v, 1, NULL, &op));
    memset(data, 0xdd, len);
    free(data);
    return op;
}

static void inline_sends(bool recv_first)
{
    static const size_t n[] = {0, 1, 8, 100, 4095, HAWSER_INLINE_MAX};
    enum { MANY = 300 };
    struct ph_buf b = ph_buf(pr.b, MANY * HAWSER_INLINE_MAX, 0, 0, NULL);
    hawser_op *s[MANY], *r[MANY];
    int bad = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < MANY; i++)
            if ((turn == 0) == recv_first)
                r[i] = post(hawser_recv, pr.ba, &b, i * HAWSER_INLINE_MAX, HAWSER_INLINE_MAX);
            else
                s[i] = send_inline(pr.ab, n[i % HW_ARRAY_LEN(n)], i + 1);
        if (turn == 0 && !recv_first)
            usleep(20000);
    }
    for (unsigned i = 0; i < MANY; i++) {
        size_t len = n[i % HW_ARRAY_LEN(n)];
        bad += hawser_wait(r[i], 20000) != 0 || hawser_op_length(r[i]) != len;
        bad += ph_finish(s[i]) != 0 || hw_pattern_check(b.p + i * HAWSER_INLINE_MAX, len, i + 1, 0, NULL) != 0;
        hawser_op_free(r[i]);
    }
    ok(bad == 0, "%d sends of data that is changed at once, %s first (%d wrong)", MANY,
       recv_first ? "receives" : "sends", bad);
    ph_drop(&b);
}

/* Cancels a third of the sends, and frees the handles of another third. Messages that arrive must be complete. */
static void inline_sends_cancelled(void)
{
    enum { MANY = 90 };
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct ph_buf b = ph_buf(q.b, HAWSER_INLINE_MAX, 0, 0, NULL);
    hawser_op *s[MANY], *r;
    int bad = 0, whole = 0;
    for (unsigned i = 0; i < MANY; i++)
        s[i] = send_inline(q.ab, HAWSER_INLINE_MAX, i + 1);
    for (unsigned i = 0; i < MANY; i++)
        if (i % 3 == 0) {
            must(hawser_cancel(s[i]));
        } else if (i % 3 == 1) {
            hawser_op_free(s[i]);
            s[i] = NULL;
        }
    /* messages that arrived before the cancellation are still available */
    for (unsigned i = 0; i < MANY; i++) {
        r = post(hawser_recv, q.ba, &b, 0, HAWSER_INLINE_MAX);
        int rc = hawser_wait(r, whole < MANY / 3 ? 5000 : 50);
        for (unsigned k = i; rc == 0 && k < MANY; k++)
            if (hw_pattern_check(b.p, HAWSER_INLINE_MAX, k + 1, 0, NULL) == 0) {
                whole++;
                break;
            }
        if (rc == -EAGAIN)
            i = MANY;
        hawser_op_free(r);
    }
    for (unsigned i = 0; i < MANY; i++)
        if (s[i]) {
            int rc = ph_finish(s[i]);
            bad += rc && (rc != -ECANCELED || i % 3 == 2);
        }
    ok(bad == 0 && whole >= MANY / 3, "%d sends of data, two of three called off: %d arrive, whole (%d wrong)", MANY,
       whole, bad);
    hawser_op *last[4];
    for (unsigned i = 0; i < 4; i++)
        last[i] = send_inline(q.ab, 1000, i);
    hawser_peer_close(q.ba);
    for (unsigned i = 0; i < 4; i++) {
        int rc = ph_finish(last[i]);
        bad += rc != -ESHUTDOWN && rc != -ECONNRESET &&
               !(i == 0 && rc == -ECANCELED); /* the send matched the receive that was freed */
    }
    ok(bad == 0, "and those that are under way when the peer goes fail (%d do not)", bad);
    ph_close(&q);
    free(b.raw);
}

/* ---- notifications ---------------------------------------------------------------------------------------------- */

static int take(hawser_peer *p, void *buf, size_t cap, size_t *len)
{
    int rc = -EAGAIN;
    for (int i = 0; i < 5000 && rc == -EAGAIN; i++) {
        rc = hawser_notification(p, buf, cap, len);
        if (rc == -EAGAIN)
            usleep(1000);
    }
    return rc;
}

static void notifications(void)
{
    char got[HAWSER_NOTIFY_MAX], big[HAWSER_NOTIFY_MAX + 1];
    size_t len = 99;
    hawser_op *op;
    step("notifications");
    is_rc(hawser_notification(pr.ba, got, sizeof(got), &len), -EAGAIN, "none yet");
    static const size_t sizes_of[] = {0, 1, 17, HAWSER_NOTIFY_MAX};
    for (size_t i = 0; i < HW_ARRAY_LEN(sizes_of); i++) {
        hw_pattern_fill(big, sizeof(big), i, 0);
        must(hawser_notify(pr.ab, big, sizes_of[i], NULL, &op));
        is_rc(ph_finish(op), 0, "a notification is delivered");
        int rc = take(pr.ba, got, sizeof(got), &len);
        ok(rc == 0 && len == sizes_of[i] && memcmp(got, big, len) == 0, "at once, of %zu bytes", sizes_of[i]);
    }
    is_rc(hawser_notify(pr.ab, big, sizeof(big), NULL, &op), -EINVAL, "one byte too long");
    is_rc(hawser_notify(pr.ab, NULL, 1, NULL, &op), -EINVAL, "a byte of nothing");

    must(hawser_notify(pr.ab, "twelve bytes", 12, NULL, &op));
    is_rc(ph_finish(op), 0, "another");
    len = 0;
    is_rc(take(pr.ba, got, 11, &len), -EMSGSIZE, "a buffer of one byte less");
    is_int(len, 12, "says what is needed");
    is_rc(take(pr.ba, got, 12, &len), 0, "and has lost nothing");
    ok(memcmp(got, "twelve bytes", 12) == 0, "of it");

    /* when a write's notification arrives, the written data must be in place */
    static const size_t n[] = {0, 100, 9000, 3 << 20};
    struct ph_buf a = ph_buf(pr.a, 3 << 20, 0, 0, NULL), b = ph_buf(pr.b, 3 << 20, 0, HAWSER_REMOTE_WRITE, NULL);
    int late = 0, wrong = 0;
    for (unsigned i = 0; i < 100; i++) {
        size_t k = n[i % HW_ARRAY_LEN(n)];
        hw_pattern_fill(a.p, k, i, 0);
        struct hawser_vec v = {.mem = a.mem, .length = k, .region = &b.region};
        struct hawser_op_options o = {.size = sizeof(o), .notify = &i, .notify_len = sizeof(i)};
        must(hawser_write(pr.ab, &v, 1, &o, &op));
        unsigned word = 0;
        wrong += take(pr.ba, &word, sizeof(word), &len) != 0 || word != i || len != sizeof(i);
        late += hw_pattern_check(b.p, k, i, 0, NULL) != 0;
        wrong += ph_finish(op) != 0;
        ph_see(pr.ba);
    }
    ok(late == 0 && wrong == 0, "100 writes: the data is there when the notification is (%d late, %d wrong)", late,
       wrong);
    /* a failed write sends no notification */
    struct hawser_region bad = b.region;
    bad.secret++;
    for (int i = 0; i < 2; i++) {
        struct hawser_vec v = {.mem = a.mem, .length = i ? a.len : 10, .region = &bad};
        struct hawser_op_options o = {.size = sizeof(o), .notify = "no", .notify_len = 2};
        must(hawser_write(pr.ab, &v, 1, &o, &op));
        is_rc(ph_finish(op), -ESTALE, "a write with a notification is refused");
    }
    must(hawser_notify(pr.ab, "after", 5, NULL, &op));
    is_rc(ph_finish(op), 0, "one more");
    ok(take(pr.ba, got, sizeof(got), &len) == 0 && len == 5, "and it is the next: a refused write notifies nobody");
    ph_drop(&a);
    ph_drop(&b);

    /* up to 1 MiB of notifications can be pending, including a fixed cost for each notification */
    enum { LONG = 200 << 10, MANY = 8 };
    struct pair q = ph_pair(0, NULL, 0, NULL);
    hawser_op *many[MANY];
    char *longer = calloc(1, LONG);
    int over = 0, first = -1, taken = 0;
    for (int i = 0; i < MANY; i++) {
        memcpy(longer, &i, sizeof(i));
        must(hawser_notify(q.ab, longer, LONG, NULL, &many[i]));
    }
    for (int i = 0; i < 5; i++)
        over += hawser_wait(many[i], 5000) == 0;
    ok(over == 5 && hawser_wait(many[5], 200) == -EAGAIN, "those for which there is no room wait");
    for (int i = 0; i < MANY; i++)
        if (take(q.ba, longer, LONG, &len) == 0) {
            memcpy(&first, longer, sizeof(first));
            taken += len == LONG && first == i;
        }
    ok(taken == MANY, "and come in order once there is: %d", taken);
    for (int i = 0; i < MANY; i++)
        over += ph_finish(many[i]) == 0;
    ok(over == 5 + MANY, "all of them end well");
    free(longer);
    ph_close(&q);
}

int main(void)
{
    watchdog(110);
    pr = ph_pair(0, NULL, 0, NULL);
    sizes();
    step("scatter");
    scatter(1000, 10, 7);
    scatter(8192, 4096, 100);
    scatter(100000, 1000, 999);
    scatter(3000000, 3000000, 4097);
    scatter(3000000, 1001, 3000000);
    scatter(3000000, 777, 65537);
    step("order");
    order(true);
    order(false);
    step("too short receives");
    too_long(100, true);
    too_long(100, false);
    too_long(100000, true);
    too_long(100000, false);
    too_long(2 << 20, true);
    step("inline data");
    inline_sends(true);
    inline_sends(false);
    inline_sends_cancelled();
    step("sends given up");
    sends_given_up();
    step("too many operations");
    too_many();
    tags_of_both();
    step("receives given up");
    recv_given_up();
    notifications();
    is_rc(hawser_peer_state(pr.ab), 0, "alive at the end");
    is_rc(hawser_peer_state(pr.ba), 0, "on both sides");
    step("closing");
    ph_close(&pr);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests posting many operations with one call: all kinds, order, handles, completions, and invalid requests. */
#include "pairhelp.h"

#define MANY  600 /* more operations than hawser_submit() posts before it sends them */
#define SMALL 64

static struct pair pr;

/* ---- one of each kind -------------------------------------------------------------------------------- */

static void every_kind(void)
{
    struct ph_buf a = ph_buf(pr.a, 40000, 0, 0, NULL), in = ph_buf(pr.a, 1000, 0, 0, NULL);
    struct ph_buf b = ph_buf(pr.b, 40000, 0, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
    struct ph_buf got = ph_buf(pr.b, 1000, 0, 0, NULL);
    char note[64];
    size_t started = 99, len = 0;
    hawser_op *op[5], *send, *recv;
    step("every kind");
    hw_pattern_fill(a.p, a.len, 1, 0);
    hw_pattern_fill(b.p + 30000, 1000, 2, 0);
    struct hawser_vec w = {.mem = a.mem, .length = 30000, .region = &b.region};
    struct hawser_vec r = {.mem = a.mem, .offset = 30000, .length = 1000, .region = &b.region, .remote_offset = 30000};
    struct hawser_vec s = {.mem = a.mem, .length = 500}, i = {.mem = in.mem, .length = 1000};
    struct hawser_op_options tagged = {.size = sizeof tagged, .stream = 5, .tag = 9};
    struct hawser_request q[] = {{.kind = HAWSER_WRITE, .vecs = &w, .n_vecs = 1, .op = &op[0]},
                                 {.kind = HAWSER_READ, .vecs = &r, .n_vecs = 1, .op = &op[1]},
                                 {.kind = HAWSER_SEND, .vecs = &s, .n_vecs = 1, .opts = &tagged, .op = &op[2]},
                                 {.kind = HAWSER_RECV, .vecs = &i, .n_vecs = 1, .op = &op[3]},
                                 {.kind = HAWSER_NOTIFY, .data = "five of them", .len = 13, .op = &op[4]}};
    is_rc(hawser_submit(pr.ab, q, 5, &started), 0, "one of each kind");
    is_int(started, 5, "all are started");
    struct hawser_vec gv = {.mem = got.mem, .length = 1000}, sv = {.mem = got.mem, .length = 10};
    must(hawser_recv(pr.ba, &gv, 1, &tagged, &recv));
    must(ph_finish(recv));
    ok(hw_pattern_check(got.p, 500, 1, 0, NULL) == 0, "the send has its stream and tag");
    must(hawser_send(pr.ba, &sv, 1, NULL, &send));
    must(ph_finish(send));
    for (int k = 0; k < 5; k++) {
        int rc = hawser_wait(op[k], 10000);
        ok(rc == 0, "number %d has a handle, and ends well (%d)", k, rc);
    }
    is_int(hawser_op_length(op[3]), 10, "the receive has its message");
    for (int k = 0; k < 5; k++)
        hawser_op_free(op[k]);
    ph_see(pr.ba);
    ok(hw_pattern_check(b.p, 30000, 1, 0, NULL) == 0, "the write is in place");
    ok(hw_pattern_check(a.p + 30000, 1000, 2, 0, NULL) == 0, "and so is the read");
    must(hawser_notification(pr.ba, note, sizeof note, &len));
    ok(len == 13 && strcmp(note, "five of them") == 0, "the notification has come");
    ph_drop(&a);
    ph_drop(&in);
    ph_drop(&b);
    ph_drop(&got);
}

/* ---- many ------------------------------------------------------------------------------------------- */

static struct hawser_request req[MANY + 1];
static struct hawser_vec vec[MANY + 1];
static hawser_op *ops[MANY + 1];
static struct hawser_op_options opts[MANY + 1];

/* Posts small writes to separate offsets with one call, from memory that is overwritten as soon as the call returns. */
static void many_writes(unsigned n)
{
    struct ph_buf b = ph_buf(pr.b, MANY * SMALL, 0, HAWSER_REMOTE_WRITE, NULL);
    static uint8_t data[MANY * SMALL];
    size_t started = 0;
    int bad = 0;
    hw_pattern_fill(data, sizeof data, n, 0);
    for (unsigned i = 0; i < n; i++) {
        vec[i] = (struct hawser_vec){
            .data = data + i * SMALL, .length = SMALL, .region = &b.region, .remote_offset = i * SMALL};
        req[i] = (struct hawser_request){.kind = HAWSER_WRITE, .vecs = &vec[i], .n_vecs = 1, .op = &ops[i]};
    }
    int rc = hawser_submit(pr.ab, req, n, &started);
    memset(data, 0xdd, sizeof data);
    memset(vec, 0xdd, sizeof vec);
    for (unsigned i = 0; i < n && rc == 0; i++)
        bad += ph_finish(ops[i]) != 0;
    ok(rc == 0 && started == n && bad == 0 && hw_pattern_check(b.p, n * SMALL, n, 0, NULL) == 0,
       "%u small writes of data by one call (%d, %d wrong)", n, rc, bad);
    ph_drop(&b);
}

/* Tests that messages and notifications keep the order of the list. */
static void keep_order(void)
{
    struct ph_buf a = ph_buf(pr.a, MANY * SMALL, 0, 0, NULL), b = ph_buf(pr.b, MANY * SMALL, 0, 0, NULL);
    static hawser_op *recvs[MANY];
    static unsigned said[MANY];
    size_t started = 0;
    int bad = 0;
    hw_pattern_fill(a.p, a.len, 3, 0);
    for (unsigned i = 0; i < MANY; i++) {
        vec[i] = (struct hawser_vec){.mem = b.mem, .offset = i * SMALL, .length = SMALL};
        req[i] = (struct hawser_request){.kind = HAWSER_RECV, .vecs = &vec[i], .n_vecs = 1, .op = &recvs[i]};
    }
    must(hawser_submit(pr.ba, req, MANY, &started));
    for (unsigned i = 0; i < MANY; i++) {
        vec[i] = (struct hawser_vec){.mem = a.mem, .offset = i * SMALL, .length = i % SMALL};
        req[i] = (struct hawser_request){.kind = HAWSER_SEND, .vecs = &vec[i], .n_vecs = 1, .op = &ops[i]};
        said[i] = i;
        if (i % 10 == 9)
            req[i] =
                (struct hawser_request){.kind = HAWSER_NOTIFY, .data = &said[i], .len = sizeof said[i], .op = &ops[i]};
    }
    int rc = 0;
    for (unsigned at = 0; at < MANY && rc == 0; at += 300)
        rc = hawser_submit(pr.ab, req + at, 300, &started);
    memset(said, 0, sizeof said); /* hawser_submit() has copied the notifications */
    unsigned k = 0;
    for (unsigned i = 0; i < MANY; i++) {
        bad += ph_finish(ops[i]) != 0;
        if (i % 10 == 9)
            continue;
        bad += hawser_wait(recvs[k], 10000) != 0 || hawser_op_length(recvs[k]) != i % SMALL ||
               memcmp(b.p + k * SMALL, a.p + i * SMALL, i % SMALL) != 0;
        k++;
    }
    for (unsigned i = 0; i < MANY; i++)
        hawser_op_free(recvs[i]);
    for (unsigned i = 0; i < MANY / 10; i++) {
        size_t len;
        unsigned word = 0;
        bad += hawser_notification(pr.ba, &word, sizeof word, &len) != 0 || len != sizeof word || word != 10 * i + 9;
    }
    ok(rc == 0 && bad == 0, "%u messages and notifications keep their order (%d, %d wrong)", MANY, rc, bad);
    ph_drop(&a);
    ph_drop(&b);
}

/* Tests that each operation without a handle is reported once, with its user value. */
static void completions(void)
{
    struct ph_buf b = ph_buf(pr.b, SMALL, 0, HAWSER_REMOTE_WRITE, NULL);
    static bool told[MANY];
    struct hawser_completion c[64];
    struct hawser_vec v = {.data = "completion", .length = 10, .region = &b.region};
    int n = 0, wrong = 0;
    memset(told, 0, sizeof told);
    for (unsigned i = 0; i < MANY; i++) {
        opts[i] = (struct hawser_op_options){.size = sizeof opts[i], .user = i};
        req[i] = (struct hawser_request){.kind = HAWSER_WRITE, .vecs = &v, .n_vecs = 1, .opts = &opts[i]};
    }
    must(hawser_submit(pr.ab, req, MANY, NULL));
    while (n < MANY) {
        int k = hawser_poll_wait(pr.a, c, 64, 10000);
        if (k <= 0)
            bail("no completion of %d", n);
        for (int i = 0; i < k; i++, n++) {
            wrong += c[i].event != HAWSER_ENDED || c[i].result || c[i].user >= MANY || told[c[i].user];
            told[c[i].user % MANY] = true;
        }
    }
    is_int(wrong, 0, "without handles each is told once, with its value");
    ph_drop(&b);
}

/* Tests writes without handles in one call of which every seventh is to a region that the peer has revoked. The memory
 * of the operations is used again in each round, with other numbers of descriptors and bytes. */
static void revoked_among_others(void)
{
    struct ph_buf b = ph_buf(pr.b, MANY * SMALL, 0, HAWSER_REMOTE_WRITE, NULL);
    struct ph_buf gone = ph_buf(pr.b, SMALL, 0, HAWSER_REMOTE_WRITE, NULL);
    static struct hawser_vec two[MANY][2];
    static char data[SMALL];
    struct hawser_completion c[64];
    must(hawser_revoke(pr.b, gone.key));
    for (int round = 0, n = 0, wrong = 0; round < 4; round++, n = 0, wrong = 0) {
        memset(data, 'a' + round, sizeof data);
        for (unsigned i = 0; i < MANY; i++) {
            size_t len = 1 + (i + (unsigned)round * 17) % (SMALL / 2);
            for (unsigned k = 0; k < 2; k++)
                two[i][k] = (struct hawser_vec){.data = data,
                                                .length = len,
                                                .region = i % 7 ? &b.region : &gone.region,
                                                .remote_offset = (i % 7 ? i * SMALL : 0) + k * len};
            opts[i] = (struct hawser_op_options){.size = sizeof opts[i], .user = i};
            req[i] =
                (struct hawser_request){.kind = HAWSER_WRITE, .vecs = two[i], .n_vecs = 1 + i % 2, .opts = &opts[i]};
        }
        must(hawser_submit(pr.ab, req, MANY, NULL));
        while (n < MANY) {
            int k = hawser_poll_wait(pr.a, c, 1 + 21 * round, 10000);
            if (k <= 0)
                bail("no completion of %d", n);
            for (int i = 0; i < k; i++, n++)
                wrong += c[i].result != (c[i].user % 7 ? 0 : -ESTALE);
        }
        ph_see(pr.ba);
        for (unsigned i = 0; i < MANY; i++)
            wrong += i % 7 && memcmp(b.p + i * SMALL, data, req[i].n_vecs * two[i][0].length) != 0;
        is_int(wrong, 0, "exactly the writes to the revoked region fail, and the others are in place");
    }
    ph_drop(&b);
    ph_drop(&gone);
}

/* ---- invalid requests ---------------------------------------------------------------------------------- */

static void stops(void)
{
    struct ph_buf b = ph_buf(pr.b, 1000, 0, HAWSER_REMOTE_WRITE, NULL);
    size_t started = 99;
    step("stops");
    is_rc(hawser_submit(pr.ab, NULL, 0, &started), 0, "a list of none");
    is_int(started, 0, "starts none");
    is_rc(hawser_submit(pr.ab, NULL, 1, &started), -EINVAL, "no list where one was promised");
    for (unsigned i = 0; i < 10; i++) {
        vec[i] = (struct hawser_vec){.data = "0123456789", .length = 10, .region = &b.region, .remote_offset = i * 10};
        req[i] = (struct hawser_request){.kind = HAWSER_WRITE, .vecs = &vec[i], .n_vecs = 1, .op = &ops[i]};
        ops[i] = (hawser_op *)1;
    }
    vec[6].remote_offset = 991;
    is_rc(hawser_submit(pr.ab, req, 10, &started), -EFAULT, "the seventh of ten is outside its region");
    ok(strstr(hawser_error(), "exceed the peer's region") != NULL, "in words: %s", hawser_error());
    is_int(started, 6, "six are started");
    int bad = 0;
    for (unsigned i = 0; i < 6; i++)
        bad += ph_finish(ops[i]) != 0;
    for (unsigned i = 6; i < 10; i++)
        bad += ops[i] != NULL;
    ok(bad == 0 && memcmp(b.p + 50, "0123456789\0", 11) == 0,
       "which end well; the others have no handle, and do nothing");

    struct hawser_request q = {.kind = 0};
    is_rc(hawser_submit(pr.ab, &q, 1, &started), -EINVAL, "no kind");
    q.kind = 6;
    is_rc(hawser_submit(pr.ab, &q, 1, &started), -EINVAL, "a kind unheard of");
    q = (struct hawser_request){.kind = HAWSER_NOTIFY, .flags = 1};
    is_rc(hawser_submit(pr.ab, &q, 1, &started), -EINVAL, "flags");
    q = (struct hawser_request){.kind = HAWSER_NOTIFY, .vecs = vec, .n_vecs = 1};
    is_rc(hawser_submit(pr.ab, &q, 1, &started), -EINVAL, "a notification with descriptors");
    q = (struct hawser_request){.kind = HAWSER_SEND, .data = "x", .len = 1};
    is_rc(hawser_submit(pr.ab, &q, 1, &started), -EINVAL, "a send with a notification's bytes");
    q = (struct hawser_request){.kind = HAWSER_NOTIFY, .len = 1};
    is_rc(hawser_submit(pr.ab, &q, 1, NULL), -EINVAL, "a byte of nothing");
    q = (struct hawser_request){.kind = HAWSER_NOTIFY, .data = b.p, .len = HAWSER_NOTIFY_MAX + 1};
    is_rc(hawser_submit(pr.ab, &q, 1, NULL), -EINVAL, "too long a notification");
    is_int(started, 0, "none of them is started");
    ph_drop(&b);
}

/* ---- threads, cancellation, lost peers ------------------------------------------------------------------- */

struct submitter {
    pthread_t thread;
    const struct hawser_region *region;
    uint8_t fill;
    int bad;
};

/* Submits rounds of 16 writes with one call each, and cancels every third round. */
static void *submit_rounds(void *arg)
{
    enum { DEEP = 16, ROUNDS = 60 };
    struct submitter *s = arg;
    struct hawser_request q[DEEP];
    struct hawser_vec v[DEEP];
    hawser_op *op[DEEP];
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t data[DEEP * 200];
        size_t started;
        memset(data, s->fill, sizeof data);
        for (unsigned i = 0; i < DEEP; i++) {
            v[i] = (struct hawser_vec){
                .data = data + i * 200, .length = 200, .region = s->region, .remote_offset = i * 200};
            q[i] = (struct hawser_request){.kind = HAWSER_WRITE, .vecs = &v[i], .n_vecs = 1, .op = &op[i]};
        }
        s->bad += hawser_submit(pr.ab, q, DEEP, &started) != 0;
        memset(data, 0xdd, sizeof data);
        for (unsigned i = 0; i < started; i++) {
            if (round % 3 == 0)
                must(hawser_cancel(op[i]));
            int rc = hawser_wait(op[i], 30000);
            s->bad += rc && (rc != -ECANCELED || round % 3);
            hawser_op_free(op[i]);
        }
    }
    return NULL;
}

static void submit_from_threads(void)
{
    struct submitter s[3] = {{0}};
    struct ph_buf b[3];
    int bad = 0;
    step("threads");
    for (int i = 0; i < 3; i++) {
        b[i] = ph_buf(pr.b, 3200, 0, HAWSER_REMOTE_WRITE, NULL);
        s[i].region = &b[i].region;
        s[i].fill = (uint8_t)(i + 1);
        pthread_create(&s[i].thread, NULL, submit_rounds, &s[i]);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(s[i].thread, NULL);
        ph_see(pr.ba);
        bad += s[i].bad;
        for (unsigned k = 0; k < b[i].len; k++)
            bad += b[i].p[k] != i + 1;
        ph_drop(&b[i]);
    }
    is_int(bad, 0, "three threads submit, and call off, at once");
}

static void death(void)
{
    struct pair q = ph_pair(0, NULL, 0, NULL);
    struct ph_buf b = ph_buf(q.b, HAWSER_INLINE_MAX, 0, HAWSER_REMOTE_WRITE, NULL);
    static uint8_t data[HAWSER_INLINE_MAX];
    struct hawser_vec v = {.data = data, .length = sizeof data, .region = &b.region};
    size_t started = 0;
    int bad = 0, rc;
    step("death");
    for (unsigned i = 0; i < MANY; i++)
        req[i] = (struct hawser_request){.kind = HAWSER_WRITE, .vecs = &v, .n_vecs = 1, .op = &ops[i]};
    must(hawser_submit(q.ab, req, MANY, &started));
    hawser_peer_close(q.ba);
    for (unsigned i = 0; i < MANY; i++) {
        rc = hawser_wait(ops[i], 30000);
        bad += rc && rc != -ESHUTDOWN && rc != -ECONNRESET;
        hawser_op_free(ops[i]);
    }
    is_int(bad, 0, "the peer goes while many are under way: all end");
    for (int i = 0; i < 500 && hawser_peer_state(q.ab) == 0; i++)
        usleep(10000);
    rc = hawser_submit(q.ab, req, MANY, &started);
    ok((rc == -ESHUTDOWN || rc == -ECONNRESET) && started == 0 && ops[0] == NULL, "and then none is started (%d)", rc);
    ph_close(&q);
    free(b.raw);
}

int main(void)
{
    watchdog(110);
    pr = ph_pair(0, NULL, 0, NULL);
    every_kind();
    step("many");
    many_writes(1);
    many_writes(2);
    many_writes(MANY);
    keep_order();
    completions();
    revoked_among_others();
    stops();
    submit_from_threads();
    death();
    is_rc(hawser_peer_state(pr.ab), 0, "alive at the end");
    is_rc(hawser_peer_state(pr.ba), 0, "on both sides");
    step("closing");
    ph_close(&pr);
    return tap_done();
}

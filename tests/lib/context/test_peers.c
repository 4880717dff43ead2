/* SPDX-License-Identifier: Apache-2.0 */
/* Tests many contexts and peers, a context that connects to itself, wrong keys, names and ports, and closing with
 * pending operations. */
#include "net/nic.h"
#include "pairhelp.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* ---- many ------------------------------------------------------------------------------------ */

#define MANY 50

static void many_peers(void)
{
    step("many peers");
    static const char *const few[] = {"channels=1", "threads=1", NULL};
    hawser *b = ph_open(0, few), *a[2];
    uint16_t port;
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    static hawser_peer *out[MANY], *in[MANY];
    for (int i = 0; i < 2; i++)
        a[i] = ph_open(0, few);
    for (int i = 0; i < MANY; i++)
        ph_connect(a[i % 2], b, port, &out[i], &in[i]);
    struct ph_buf t = ph_buf(b, MANY * 100000, 0, HAWSER_REMOTE_WRITE | HAWSER_REMOTE_READ, NULL);
    struct ph_buf m[2] = {ph_buf(a[0], 100000, 0, 0, NULL), ph_buf(a[1], 100000, 0, 0, NULL)};
    for (int i = 0; i < 2; i++)
        hw_pattern_fill(m[i].p, m[i].len, (uint64_t)i, 0);
    hawser_op *op[MANY];
    int bad = 0;
    for (int i = 0; i < MANY; i++) {
        struct hawser_vec v = {m[i % 2].mem, 0, 100000, &t.region, (uint64_t)i * 100000, NULL};
        must(hawser_write(out[i], &v, 1, NULL, &op[i]));
    }
    for (int i = 0; i < MANY; i++) {
        bad += ph_finish(op[i]) != 0;
        ph_see(in[i]);
        bad += hw_pattern_check(t.p + i * 100000, 100000, (uint64_t)i % 2, 0, NULL) != 0;
    }
    is_int(bad, 0, "50 peers of two clients write to one server at once");
    int named = 0;
    for (int i = 0; i < MANY; i++) {
        hawser_peer_set_user(in[i], &in[i]);
        named += strstr(hawser_peer_name(in[i]), "127.0.0.1") != NULL && hawser_peer_user(in[i]) == &in[i] &&
                 hawser_peer_user(out[i]) == NULL;
    }
    is_int(named, MANY, "each has its name and its user's pointer");
    /* close every other peer; the remaining peers must not be affected */
    for (int i = 0; i < MANY; i += 2)
        hawser_peer_close(out[i]);
    int gone = 0, stay = 0;
    for (int k = 0; k < 1000 && gone < MANY / 2; k++) {
        gone = stay = 0;
        for (int i = 0; i < MANY; i++)
            *(hawser_peer_state(in[i]) ? &gone : &stay) += 1;
        usleep(10000);
    }
    ok(gone == MANY / 2 && stay == MANY / 2, "25 peers closed: %d gone, %d there", gone, stay);
    for (int i = 0; i < MANY; i += 2)
        hawser_peer_close(in[i]);
    hawser_op *op2;
    struct hawser_vec v = {m[1].mem, 0, 100000, &t.region, 0, NULL};
    must(hawser_write(out[1], &v, 1, NULL, &op2));
    is_rc(ph_finish(op2), 0, "those that stayed go on");
    hawser_close(a[0]);
    hawser_close(a[1]);
    hawser_close(b);
    free(t.raw);
    free(m[0].raw);
    free(m[1].raw);
}

static void self(uint32_t flags)
{
    step("a context connected to itself");
    hawser *h = ph_open(flags, NULL);
    hawser_peer *out = NULL, *in = NULL;
    uint16_t port;
    must(hawser_listen(h, "127.0.0.1", 0, &port));
    int rc = hawser_connect(h, "127.0.0.1", port, NULL, 5000, &out);
    is_rc(rc, 0, flags ? "a context connects to itself, driven by its caller" : "a context connects to itself");
    if (rc == 0) {
        must(hawser_accept(h, 1000, &in));
        struct ph_buf m = ph_buf(h, 3 << 20, 0, 0, NULL), t = ph_buf(h, 3 << 20, 0, HAWSER_REMOTE_WRITE, in);
        hw_pattern_fill(m.p, m.len, 1, 0);
        is_rc(ph_one(hawser_write, out, &m, 0, m.len, &t.region, 0), 0, "and writes to itself");
        ph_see(in);
        ok(hw_pattern_check(t.p, t.len, 1, 0, NULL) == 0, "the right bytes");
        hawser_op *r;
        struct hawser_vec v = {.mem = t.mem, .length = 100};
        must(hawser_recv(in, &v, 1, NULL, &r));
        is_rc(ph_one(hawser_send, out, &m, 0, 100, NULL, 0), 0, "and sends");
        is_rc(ph_finish(r), 0, "to itself");
        hawser_peer_close(out);
        hawser_close(h);
        free(m.raw);
        free(t.raw);
        return;
    }
    hawser_close(h);
}

/* ---- closing ------------------------------------------------------------------------------------ */

#define PENDING 12

struct waiter {
    hawser_op *op;
    int rc;
};

static void *wait_thread(void *arg)
{
    struct waiter *w = arg;
    w->rc = hawser_wait(w->op, -1);
    return NULL;
}

/* Posts writes, reads, sends without receives, and receives without sends. The first half of m is for outgoing data,
 * and the second half is for incoming data. */
static void post_all(struct pair *p, struct ph_buf *m, struct ph_buf *t, hawser_op **op)
{
    for (int i = 0; i < PENDING; i++) {
        uint64_t half = m->len / 2;
        struct hawser_vec v = {.mem = m->mem, .length = i % 2 ? 100 : half, .region = &t->region};
        if (i % 4 == 3 || i % 8 == 0)
            v.offset = half;
        if (i % 8 == 4)
            v.remote_offset = half;
        if (i % 8 == 0) { /* the two reads use separate memory */
            v.length = half / 2;
            v.offset += i ? half / 2 : 0;
        }
        switch (i % 4) {
        case 0:
            must(i % 8 ? hawser_write(p->ab, &v, 1, NULL, &op[i]) : hawser_read(p->ab, &v, 1, NULL, &op[i]));
            break;
        case 1:
        case 2:
            must(hawser_send(p->ab, &v, 1, NULL, &op[i]));
            break;
        default:
            must(hawser_recv(p->ab, &v, 1, NULL, &op[i]));
        }
    }
}

enum how { OUR_PEER, OUR_CONTEXT, THEIR_PEER, THEIR_CONTEXT, HOWS };

static void closing(enum how how, bool with_waiters, uint32_t flags)
{
    static const char *const name[] = {"hawser_peer_close() here", "hawser_close() here", "hawser_peer_close() there",
                                       "hawser_close() there"};
    step(name[how]);
    struct pair p = ph_pair(flags, NULL, 0, NULL);
    struct ph_buf m = ph_buf(p.a, 48 << 20, 0, 0, NULL), t = ph_buf(p.b, 48 << 20, 0, 3, NULL);
    hawser_op *op[PENDING];
    struct waiter w[3];
    pthread_t th[3];
    int wrong = 0, failed = 0;
    post_all(&p, &m, &t, op);
    for (int i = 0; i < 3 && with_waiters; i++) {
        w[i] = (struct waiter){.op = op[i == 2 ? 3 : i]}; /* a read, a send, a receive */
        pthread_create(&th[i], NULL, wait_thread, &w[i]);
    }
    if (with_waiters)
        usleep(2000);
    if (how == OUR_PEER)
        hawser_peer_close(p.ab);
    else if (how == OUR_CONTEXT)
        hawser_close(p.a);
    else if (how == THEIR_PEER)
        hawser_peer_close(p.ba);
    else
        hawser_close(p.b);
    for (int i = 0; i < 3 && with_waiters; i++) {
        pthread_join(th[i], NULL);
        wrong += w[i].rc != 0 && w[i].rc != -ESHUTDOWN;
    }
    for (int i = 0; i < PENDING; i++) {
        int rc = how == OUR_CONTEXT || how == OUR_PEER ? hawser_test(op[i]) : hawser_wait(op[i], 5000);
        failed += rc == -ESHUTDOWN;
        wrong += rc != 0 && rc != -ESHUTDOWN;
        if (rc != 0 && rc != -ESHUTDOWN)
            diag("operation %d: %d: %s", i, rc, hawser_error());
        if (i % 2)
            hawser_op_free(op[i]);
    }
    ok(wrong == 0 && failed >= 6, "%s%s%s with %d operations pending: %d end in ESHUTDOWN, %d wrongly", name[how],
       with_waiters ? ", waited for," : "", flags ? ", own progress," : "", PENDING, failed, wrong);
    if (how == THEIR_PEER || how == THEIR_CONTEXT) {
        hawser_op *o;
        struct hawser_vec v = {.mem = m.mem, .length = 1, .region = &t.region};
        is_rc(hawser_write(p.ab, &v, 1, NULL, &o), -ESHUTDOWN, "and new ones are refused");
        is_rc(hawser_peer_state(p.ab), -ESHUTDOWN, "as the peer's state says");
    }
    if (how == OUR_PEER) {
        is_rc(hawser_mem_deregister(m.mem), 0, "the memory is free again");
    }
    if (how != OUR_CONTEXT)
        hawser_close(p.a);
    if (how != THEIR_CONTEXT)
        hawser_close(p.b);
    for (int i = 0; i < PENDING; i += 2)
        hawser_op_free(op[i]); /* operations can be freed after the context is closed */
    free(m.raw);
    free(t.raw);
}

static void trifles(void)
{
    step("trifles");
    hawser_close(NULL);
    hawser_peer_close(NULL);
    hawser *h = ph_open(0, NULL);
    hawser_peer *p;
    is_rc(hawser_accept(h, 0, &p), -EAGAIN, "nobody to accept");
    uint64_t t0 = hw_now();
    is_rc(hawser_accept(h, 100, &p), -EAGAIN, "nor within 100 ms");
    ok(hw_now() - t0 > 99 * HW_MS && hw_now() - t0 < 3000 * HW_MS, "which it waits");
    is_rc(hawser_progress(h, 0), -EAGAIN, "hawser_progress() beside threads is harmless");
    ok(strcmp(hawser_version(), "1.0.0") == 0, "a version");
    hawser_close(h);
    /* repeated opening and closing must not leak file descriptors */
    int before = ph_fds();
    for (int i = 0; i < 100; i++)
        hawser_close(ph_open(i % 2 ? HAWSER_CALLER_PROGRESS : 0, NULL));
    is_int(ph_fds(), before, "100 contexts opened and closed leave no descriptor");
}

/* ---- invalid arguments ------------------------------------------------------------------------------ */

static void wrong_options(void)
{
    step("options");
    hawser *h = (hawser *)1;
    struct hawser_options o = {.size = 3};
    is_rc(hawser_open(&o, &h), -EINVAL, "options of no size");
    ok(h == NULL, "give no context");
    o = (struct hawser_options){.size = sizeof(o), .flags = 1u << 30};
    is_rc(hawser_open(&o, &h), -EINVAL, "unknown flags");
    o = (struct hawser_options){.size = sizeof(o), .key = "short", .key_len = 5};
    is_rc(hawser_open(&o, &h), -EINVAL, "too short a key");
    const char *knobs[] = {"chnk=4096", NULL};
    o = (struct hawser_options){.size = sizeof(o), .knobs = knobs};
    is_rc(hawser_open(&o, &h), -EINVAL, "an unknown knob");
    ok(strstr(hawser_error(), "chnk") != NULL, "is named: %s", hawser_error());
    is_rc(hawser_open(NULL, NULL), -EINVAL, "no place for the context");
}

static void wrong_places(void)
{
    step("ports, names and addresses");
    hawser *a = ph_open(0, NULL), *b = ph_open(0, NULL);
    hawser_peer *p;
    uint16_t port, other;
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    is_rc(hawser_listen(a, "127.0.0.1", port, &other), -EADDRINUSE, "a port in use");
    char digits[8];
    snprintf(digits, sizeof(digits), "%u", port);
    ok(strstr(hawser_error(), digits) != NULL, "is named: %s", hawser_error());
    is_rc(hawser_listen(b, "127.0.0.1", 0, &other), -EBUSY, "a second listener");
    is_rc(hawser_listen(a, "nonsense", 0, &other), -EINVAL, "an address that is none");
    is_rc(hawser_listen(a, "203.0.113.7", 0, &other), -EADDRNOTAVAIL, "an address of another machine");
    struct hawser_connect_options o = {.size = sizeof(o), .nics = "lo,nosuch0"};
    is_rc(hawser_connect(a, "127.0.0.1", port, &o, 5000, &p), -ENODEV, "an unknown NIC");
    ok(strstr(hawser_error(), "nosuch0") && strstr(hawser_error(), "lo"), "the error names it and those there are: %s",
       hawser_error());
    o = (struct hawser_connect_options){.size = sizeof(o), .peer_nics = "nosuch1"};
    is_rc(hawser_connect(a, "127.0.0.1", port, &o, 5000, &p), -ENODEV, "an unknown NIC of the peer's");
    ok(strstr(hawser_error(), "nosuch1") && strstr(hawser_error(), "lo"), "likewise: %s", hawser_error());
    o = (struct hawser_connect_options){.size = sizeof(o), .channels = 7};
    must(hawser_connect(a, "127.0.0.1", port, &o, 5000, &p));
    size_t n = 0;
    must(hawser_channel_stats(p, NULL, &n));
    is_int(n, 7, "as many channels as asked for");
    hawser_peer_close(p);
    o.channels = 1000000;
    int rc = hawser_connect(a, "127.0.0.1", port, &o, 5000, &p);
    ok(rc == -E2BIG, "a million channels: %d: %s", rc, hawser_error());
    o.channels = UINT32_MAX;
    rc = hawser_connect(a, "127.0.0.1", port, &o, 5000, &p);
    ok(rc == -E2BIG, "2^32 - 1 channels: %d: %s", rc, hawser_error());
    o = (struct hawser_connect_options){.size = 1};
    is_rc(hawser_connect(a, "127.0.0.1", port, &o, 5000, &p), -EINVAL, "options of no size");
    /* a port that is bound but has no listener */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(in);
    if (bind(fd, (struct sockaddr *)&in, len) || getsockname(fd, (struct sockaddr *)&in, &len))
        bail("bind");
    is_rc(hawser_connect(a, "127.0.0.1", ntohs(in.sin_port), NULL, 5000, &p), -ECONNREFUSED, "nobody listens");
    if (listen(fd, 1))
        bail("listen");
    uint64_t t0 = hw_now();
    is_rc(hawser_connect(a, "127.0.0.1", ntohs(in.sin_port), NULL, 300, &p), -ETIMEDOUT, "somebody who says nothing");
    ok(hw_now() - t0 < 2000 * HW_MS, "in time");
    close(fd);
    is_rc(hawser_connect(a, "203.0.113.7", 9, NULL, 300, &p), -EPERM, "a public address without a key");
    ok(strstr(hawser_error(), "key") != NULL, "says what to do: %s", hawser_error());
    is_rc(hawser_connect(a, "no-such-host.invalid", 9, NULL, 300, &p), -EHOSTUNREACH, "a name that there is not");
    hawser_close(a);
    hawser_close(b);
}

static struct ph_log alog, blog;

static hawser *keyed(const char *key, struct ph_log *log)
{
    struct hawser_options o = {
        .size = sizeof(o), .log = ph_logger, .log_arg = log, .key = key, .key_len = key ? strlen(key) : 0};
    hawser *h;
    pthread_mutex_init(&log->mu, NULL);
    log->len = 0;
    log->text[0] = 0;
    must(hawser_open(&o, &h));
    return h;
}

static void keys(const char *ka, const char *kb, int want, const char *here, const char *there, const char *what)
{
    step(what);
    hawser *a = keyed(ka, &alog), *b = keyed(kb, &blog);
    hawser_peer *p, *q;
    uint16_t port;
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    is_rc(hawser_connect(a, "127.0.0.1", port, NULL, 5000, &p), want, what);
    if (want) {
        ok(strstr(hawser_error(), here) != NULL, "the client's words: %s", hawser_error());
        ok(ph_logged(&blog, there), "the server's words: %s", blog.text);
        is_rc(hawser_accept(b, 50, &q), -EAGAIN, "and nobody was let in");
    } else {
        is_rc(hawser_accept(b, 5000, &q), 0, "and is let in");
    }
    hawser_close(a);
    hawser_close(b);
}

/* Tests a key for a single connection, which overrides the context's key. */
static void own_key(const char *ka, const char *kb, const char *given, int want, const char *what)
{
    step(what);
    hawser *a = keyed(ka, &alog), *b = keyed(kb, &blog);
    hawser_peer *p, *q;
    uint16_t port;
    struct hawser_connect_options o = {.size = sizeof(o), .key = given, .key_len = strlen(given)};
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    is_rc(hawser_connect(a, "127.0.0.1", port, &o, 5000, &p), want, what);
    if (want == 0) {
        must(hawser_accept(b, 5000, &q));
        struct ph_buf m = ph_buf(a, 1 << 20, 0, 0, NULL), t = ph_buf(b, 1 << 20, 0, 3, NULL);
        is_rc(ph_one(hawser_write, p, &m, 0, m.len, &t.region, 0), 0, "its channels have the key too");
        free(m.raw);
        free(t.raw);
    }
    hawser_close(a);
    hawser_close(b);
}

static void statistics(void)
{
    step("statistics");
    struct pair p = ph_pair(0, NULL, 0, NULL);
    struct ph_buf m = ph_buf(p.a, 20 << 20, 0, 0, NULL), t = ph_buf(p.b, 20 << 20, 0, 3, NULL);
    is_rc(ph_one(hawser_write, p.ab, &m, 0, m.len, &t.region, 0), 0, "20 MiB written");
    struct hawser_channel_stats c[64], d[64];
    struct hawser_nic_stats nic[4];
    size_t n = 64, k = 64, nn = 4;
    uint64_t tx = 0, rx = 0;
    must(hawser_channel_stats(p.ab, c, &n));
    must(hawser_channel_stats(p.ba, d, &k));
    must(hawser_nic_stats(p.ab, nic, &nn));
    for (size_t i = 0; i < n; i++)
        tx += c[i].tx_bytes;
    for (size_t i = 0; i < k; i++)
        rx += d[i].rx_bytes;
    ok(n == k && tx == m.len && rx == m.len, "the channels' bytes are the transfer's: %llu sent, %llu received",
       (unsigned long long)tx, (unsigned long long)rx);
    ok(nn == 1 && strcmp(nic[0].nic, "lo") == 0 && nic[0].tx_bytes == m.len && nic[0].channels_up == n,
       "and so are the NIC's");
    ph_close(&p);
    free(m.raw);
    free(t.raw);
}

/* Returns the default number of connections to a peer over loopback, a network of unknown speed. */
/* Connects to an address of this machine that is not a loopback address. No candidate leads there, so only the path of
 * the first connection is left. Returns the result of hawser_connect(). */
static int connect_to_own(const struct hw_nic *nic, const char *rails)
{
    char knob[100], to[HAWSER_ADDR_TEXT + 8];
    const char *const knobs[] = {knob, NULL};
    struct hawser_options o = {.size = sizeof(o), .flags = HAWSER_INSECURE, .knobs = knobs};
    hawser *a, *b;
    hawser_peer *ab = NULL;
    uint16_t port;
    snprintf(knob, sizeof(knob), "rails=%s", rails);
    (void)inet_ntop(AF_INET, &nic->addr.in.sin_addr, to, sizeof(to));
    must(hawser_open(&o, &a));
    o.knobs = NULL;
    must(hawser_open(&o, &b));
    must(hawser_listen(b, NULL, 0, &port));
    int rc = hawser_connect(a, to, port, NULL, 5000, &ab);
    hawser_peer_close(ab);
    hawser_close(a);
    hawser_close(b);
    return rc;
}

static void test_rails_of_first_path(void)
{
    struct hw_nic nic[HW_NIC_MAX];
    int n = hw_nics_list(nic, HW_NIC_MAX, false), k = 0;
    step("rails and the first connection");
    while (k < n && nic[k].loopback)
        k++;
    if (k >= n) {
        tap_skip("a map of rails and the first connection", "there is no NIC besides lo");
        return;
    }
    is_rc(connect_to_own(&nic[k], nic[k].name), 0, "the first connection's path is on a rail, and is used");
    is_rc(connect_to_own(&nic[k], "another"), -EHOSTUNREACH, "it is on no rail, and is refused");
}

static int count_default_channels(const char *threads, rlim_t files)
{
    char text[16];
    const char *const knobs[] = {text, NULL};
    struct rlimit before, limit;
    snprintf(text, sizeof(text), "threads=%s", threads);
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = HW_MIN(files, before.rlim_max);
    struct pair p;
    p.b = ph_open(0, NULL);
    must(hawser_listen(p.b, "127.0.0.1", 0, &p.port));
    p.a = ph_open(0, knobs);
    setrlimit(RLIMIT_NOFILE, &limit);
    ph_connect(p.a, p.b, p.port, &p.ab, &p.ba);
    setrlimit(RLIMIT_NOFILE, &before);
    size_t n = 0;
    must(hawser_channel_stats(p.ab, NULL, &n));
    ph_close(&p);
    return (int)n;
}

static void test_default_channels(void)
{
    if (getenv("HAWSER_TRANSPORT")) /* other transports do not use threads for copies */
        is_int(count_default_channels("16", 1024), 4, "a transport with device paths has four connections");
    else
        is_int(count_default_channels("16", 1024), 8, "1024 descriptors: a peer takes no more than one in 128");
    is_int(count_default_channels("2", 1024), 4, "two threads: four connections all the same");
}

int main(void)
{
    watchdog(110);
    int fds = ph_fds();
    wrong_options();
    wrong_places();
    trifles();
    static const char k1[] = "a key of sixteen bytes or more", k2[] = "another key of sixteen bytes";
    keys(k1, k1, 0, "", "", "the same key");
    keys(k1, k2, -EACCES, "key", "key", "different keys");
    own_key(k1, k2, k2, 0, "a key for one connection, over the context's");
    own_key(NULL, k2, k2, 0, "and where the context has none");
    own_key(k2, k2, k1, -EACCES, "the context's does not help where another is given");
    own_key(k1, k1, "short", -EINVAL, "it has its least length");
    keys(NULL, k1, -EACCES, "key", "key", "a key on the server only");
    keys(k1, NULL, -EACCES, "key", "key", "a key on the client only");
    statistics();
    test_default_channels();
    self(0);
    self(HAWSER_CALLER_PROGRESS);
    for (int how = 0; how < HOWS; how++)
        for (int w = 0; w < 2; w++)
            for (int round = 0; round < 5; round++)
                closing((enum how)how, w, 0);
    closing(OUR_CONTEXT, false, HAWSER_CALLER_PROGRESS);
    closing(OUR_PEER, false, HAWSER_CALLER_PROGRESS);
    many_peers();
    is_int(ph_fds(), fds, "no descriptor is left of all that");
    test_rails_of_first_path();
    return tap_done();
}

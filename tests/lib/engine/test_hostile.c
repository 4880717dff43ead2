/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that hold the key (or need none) and mean harm: what fuzz_peer found or would, step by step and over real
 * connections; and what an application's own moves at bad moments may not do.
 */
#include "engine/engine.h"
#include "tests/proc.h"
#include "tests/tap.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON 5000 /* ms: far more than anything here takes */

/* A peer made by hand: connections of its own, frames as it likes. */
struct evil {
    int ctl;
    uint16_t port;
    uint64_t session;
    uint8_t secret[HW_SECRET];
};

static hawser *open_server(const char *const *knobs, uint16_t *port)
{
    hawser *h = NULL;
    struct hawser_options o = {.size = sizeof(o), .knobs = knobs};
    if (!ok(hawser_open(&o, &h) == 0 && hawser_listen(h, "127.0.0.1", 0, port) == 0, "a server listens"))
        exit(1);
    return h;
}

/* Returns the descriptor once welcomed, or -errno of the handshake. */
static int shake(struct evil *e, uint8_t kind, uint32_t channel, uint32_t gen)
{
    static const uint8_t no_key[HW_SECRET];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(e->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
        return -errno;
    struct hw_hs hs;
    struct hw_hello hello = {
        .kind = kind, .session = kind == HW_BOOT_CONTROL ? 0 : e->session, .channel = channel, .gen = gen};
    hw_hs_client(&hs, &hello, kind == HW_BOOT_CONTROL ? no_key : e->secret, SOON);
    while ((rc = hw_hs_step(&hs, fd)) == -EAGAIN) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        (void)poll(&p, 1, 100);
    }
    if (rc) {
        close(fd);
        return rc;
    }
    if (kind == HW_BOOT_CONTROL) {
        e->session = hs.challenge.session;
        hw_hs_secret(&hs, e->secret);
    }
    return fd;
}

static void frame(struct evil *e, uint8_t type, uint8_t flags, uint64_t id, const void *body, size_t n)
{
    uint8_t out[HW_FRAME_MAX];
    hw_frame_head(out, type, flags, id, (uint32_t)n);
    if (n)
        memcpy(out + HW_FRAME_HEAD, body, n);
    if (send(e->ctl, out, HW_FRAME_HEAD + n, MSG_NOSIGNAL) < 0)
        diag("a frame of type %u: %s", type, strerror(errno));
}

static void setup(struct evil *e, unsigned channels)
{
    uint8_t body[HW_FRAME_MAX];
    size_t n = HW_SETUP_HEAD;
    hw_setup_head(body, &(struct hw_setup){.unexpected = 1 << 20, .max_ops = 1000, .n = (uint16_t)channels});
    for (unsigned i = 0; i < channels; i++)
        n += hw_setup_entry_encode(body + n, &(struct hw_setup_entry){.nic = "evil0"});
    frame(e, HW_F_SETUP, 0, 0, body, n);
}

/* An evil peer with its channels' SETUP sent, and the server's side of it. */
static hawser_peer *meet(hawser *h, struct evil *e, unsigned channels)
{
    hawser_peer *p = NULL;
    e->ctl = shake(e, HW_BOOT_CONTROL, 0, 0);
    if (e->ctl >= 0)
        setup(e, channels);
    if (!ok(e->ctl >= 0 && hawser_accept(h, SOON, &p) == 0, "a peer is accepted"))
        exit(1);
    return p;
}

static void chunk(int fd, uint8_t type, uint64_t op, uint64_t seq, uint64_t offset, uint32_t len, uint32_t now)
{
    uint8_t *out = calloc(1, HW_CHUNK_HEAD + (size_t)len);
    if (!out)
        exit(1);
    struct hw_chunk_head c = {.type = type, .op = op, .seq = seq, .offset = offset, .len = len};
    hw_chunk_encode(out, &c);
    memset(out + HW_CHUNK_HEAD, 'e', len);
    if (send(fd, out, HW_CHUNK_HEAD + (size_t)now, MSG_NOSIGNAL) < 0)
        diag("a chunk: %s", strerror(errno));
    free(out);
}

/* Waits until cond holds; it is what the library's threads bring about. */
#define SOON_SO(cond)                                        \
    ({                                                       \
        bool so_ = false;                                    \
        for (int i_ = 0; i_ < SOON && !(so_ = (cond)); i_++) \
            usleep(1000);                                    \
        so_;                                                 \
    })

/* What its loops change under it. */
#define LOCKED(p, expr)                 \
    ({                                  \
        pthread_mutex_lock(&(p)->mu);   \
        __typeof__(expr) l_ = (expr);   \
        pthread_mutex_unlock(&(p)->mu); \
        l_;                             \
    })

static unsigned peers(hawser *h)
{
    pthread_mutex_lock(&h->mu);
    unsigned n = h->npeers;
    pthread_mutex_unlock(&h->mu);
    return n;
}

/* ---- peers that never get anywhere ------------------------------------------------------------- */

static void test_no_setup(void)
{
    static const char *const knobs[] = {"handshake_ms=300", "max_peers=4", NULL};
    struct evil e = {0};
    hawser *h = open_server(knobs, &e.port);
    hawser_peer *p;
    int before = proc_entries("/proc/self/fd"), fd[4];
    for (int i = 0; i < 4; i++)
        fd[i] = shake(&e, HW_BOOT_CONTROL, 0, 0);
    ok(fd[3] >= 0 && peers(h) == 4, "four peers prove themselves, and stop there");
    int rc = shake(&e, HW_BOOT_CONTROL, 0, 0);
    ok(rc < 0 && rc != -EAGAIN, "a fifth is refused, not put off (%d)", rc);
    ok(hawser_accept(h, 1500, &p) == -EAGAIN, "none of them is given to the application");
    ok(SOON_SO(peers(h) == 0), "all of them are gone");
    for (int i = 0; i < 4; i++)
        close(fd[i]);
    ok(SOON_SO(proc_entries("/proc/self/fd") <= before), "and their descriptors");
    (void)meet(h, &e, 1);
    close(e.ctl);
    hawser_close(h);
}

static void test_full(void)
{
    static const char *const knobs[] = {"max_peers=1", NULL};
    struct evil e = {0};
    hawser *h = open_server(knobs, &e.port), *c = NULL;
    hawser_peer *p;
    struct timespec a, b;
    (void)meet(h, &e, 1);
    if (!ok(hawser_open(NULL, &c) == 0, "a client"))
        exit(1);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    uint64_t t = hw_now();
    is_int(hawser_connect(c, "127.0.0.1", e.port, NULL, 2000, &p), -ECONNREFUSED, "a full server refuses");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    ok(hw_now() - t < 1500 * HW_MS, "at once");
    ok((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < 1000, "without burning time");
    close(e.ctl);
    hawser_close(c);
    hawser_close(h);
}

/* ---- lies about chunks ------------------------------------------------------------------------- */

/* Half of a chunk on one channel, and the whole message on the other: the receive may not end while the first channel
 * can still write to its memory. */
static void test_sent_twice(bool read)
{
    struct evil e = {0};
    hawser *h = open_server(NULL, &e.port);
    hawser_peer *p = meet(h, &e, 2);
    int ch[2] = {shake(&e, HW_BOOT_DATA, 0, 1), shake(&e, HW_BOOT_DATA, 1, 1)};
    const uint32_t n = 200000;
    uint8_t *buf = calloc(1, n), len[8];
    hawser_mem *m = NULL;
    hawser_op *op = NULL;
    struct hawser_region far = {.id = 1, .secret = 1, .length = n, .rights = HAWSER_REMOTE_READ};
    if (!ok(ch[0] >= 0 && ch[1] >= 0 && buf && hawser_mem_register(h, HAWSER_MEM_HOST, buf, n, &m) == 0, "channels"))
        exit(1);
    struct hawser_vec v = {.mem = m, .length = n, .region = &far};
    hw_put64(len, n);
    int rc = read ? hawser_read(p, &v, 1, NULL, &op) : hawser_recv(p, &v, 1, NULL, &op);
    if (!ok(rc == 0, read ? "a read is posted" : "a receive is posted"))
        exit(1);
    if (!read)
        frame(&e, HW_F_RTS, 0, op->id, len, 8);
    ok(read || SOON_SO(LOCKED(p, p->by_remote.n == 1)), "its peer knows of it");
    chunk(ch[0], read ? HW_C_READ : HW_C_SEND, op->id, 1, 0, n, n / 2);
    ok(SOON_SO(LOCKED(p, p->chans[0].rx_op == op)), "one channel is in the middle of it");
    /* What came is written, and its thread has been at the lock since: else the other channel's writes the same bytes
     * at the same time, as this peer wants it, which a thread sanitizer reports. */
    usleep(20000);
    frame(&e, HW_F_PING, 0, 0, NULL, 0);
    usleep(20000);
    chunk(ch[1], read ? HW_C_READ : HW_C_SEND, op->id, 1, 0, n, n);
    is_int(hawser_wait(op, SOON), -EPROTO, "sent whole by another, it fails");
    hawser_op_free(op);
    is_int(hawser_mem_deregister(m), 0, "its memory is the application's again");
    free(buf);
    uint8_t rest[100000];
    memset(rest, 'z', sizeof(rest));
    (void)!send(ch[0], rest, sizeof(rest), MSG_NOSIGNAL); /* lands nowhere: a sanitizer would say so */
    usleep(50000);
    close(ch[0]);
    close(ch[1]);
    close(e.ctl);
    hawser_close(h);
}

/* Every chunk is confirmed before it is even sent. */
static void test_confirmed_early(void)
{
    static const char *const knobs[] = {"splice=0", "sndbuf=4096", "chunk=1MiB", NULL};
    struct evil e = {0};
    hawser *h = open_server(knobs, &e.port);
    hawser_peer *p = meet(h, &e, 1);
    int ch = shake(&e, HW_BOOT_DATA, 0, 1);
    const size_t n = 1 << 20; /* two chunks, posted at once */
    uint8_t *buf = malloc(n), body[8];
    hawser_mem *m = NULL;
    hawser_op *op = NULL;
    struct hawser_region far = {.id = 1, .secret = 1, .length = n, .rights = HAWSER_REMOTE_WRITE};
    if (!ok(ch >= 0 && buf && hawser_mem_register(h, HAWSER_MEM_HOST, buf, n, &m) == 0, "a channel"))
        exit(1);
    memset(buf, 'a', n);
    struct hawser_vec v = {.mem = m, .length = n, .region = &far};
    struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = 1500};
    if (!ok(hawser_write(p, &v, 1, &o, &op) == 0, "a write is posted"))
        exit(1);
    ok(SOON_SO(LOCKED(p, p->chans[0].tx_seq > 0)), "its first chunks are under way"); /* more than goes at once */
    hw_put32(body, 0);
    hw_put32(body + 4, 1);
    for (int i = 0; i < 20; i++) {
        frame(&e, HW_F_CONFIRM, 0, 1000000, body, 8);
        usleep(5000);
    }
    is_int(hawser_test(op), -EAGAIN, "confirmed before it is sent, it is not over");
    is_int(hawser_wait(op, SOON), -ETIMEDOUT, "its deadline ends it");
    hawser_op_free(op);
    is_int(hawser_mem_deregister(m), 0, "and its memory is free");
    free(buf);
    close(ch);
    close(e.ctl);
    hawser_close(h);
}

/* ---- more than its share ----------------------------------------------------------------------- */

static void test_endless_reads(void)
{
    struct evil e = {0};
    hawser *h = open_server(NULL, &e.port);
    hawser_peer *p = meet(h, &e, 1);
    static uint8_t mem[4096], body[HW_FRAME_MAX];
    uint8_t key[HAWSER_KEY_SIZE];
    hawser_mem *m = NULL;
    struct hawser_region r = {0};
    if (!ok(hawser_mem_register(h, HAWSER_MEM_HOST, mem, sizeof(mem), &m) == 0 &&
                hawser_export(m, 0, sizeof(mem), HAWSER_REMOTE_READ, NULL, key) == 0 && hawser_import(key, &r) == 0,
            "a region"))
        exit(1);
    const size_t per = (HW_FRAME_MAX - HW_FRAME_HEAD) / HW_READ_ENTRY;
    for (size_t i = 0; i < per; i++) {
        hw_put64(body + i * HW_READ_ENTRY, r.id);
        hw_put64(body + i * HW_READ_ENTRY + 8, r.secret);
        hw_put64(body + i * HW_READ_ENTRY + 16, 0);
        hw_put64(body + i * HW_READ_ENTRY + 24, 1);
    }
    /* 900 lists that do not end, of 1279 descriptors each: more than 2^20 */
    unsigned char drop[65536];
    for (uint64_t id = 1; id <= 900; id++) {
        frame(&e, HW_F_READ, HW_FF_MORE, id, body, per * HW_READ_ENTRY);
        while (recv(e.ctl, drop, sizeof(drop), MSG_DONTWAIT) > 0)
            ;
    }
    ok(SOON_SO(LOCKED(p, p->served_vecs) > HW_SERVED_VECS - 2 * per), "reads are served up to a bound");
    usleep(200000);
    ok(LOCKED(p, p->served_vecs) <= HW_SERVED_VECS, "and not beyond");
    is_int(hawser_peer_state(p), 0, "which kills nobody");
    close(e.ctl);
    hawser_peer_close(p);
    hawser_close(h);
}

/* The long backlog of one who reads all and acknowledges a byte at a time. */
static void test_tiny_acks(void)
{
    struct evil e = {0};
    hawser *h = open_server(NULL, &e.port);
    hawser_peer *p = meet(h, &e, 1);
    unsigned char drop[65536];
    uint8_t body[HW_WRITE_HEAD + 1] = {0}, matched[8] = {0};
    ssize_t n, got = 0;
    for (int i = 0; i < 40000; i++) { /* each is answered by an error */
        frame(&e, HW_F_WRITE, 0, 1, body, sizeof(body));
        while ((n = recv(e.ctl, drop, sizeof(drop), MSG_DONTWAIT)) > 0)
            got += n;
    }
    for (int idle = 0; idle < 3;) {
        struct pollfd f = {.fd = e.ctl, .events = POLLIN};
        if (poll(&f, 1, 300) == 1 && (n = recv(e.ctl, drop, sizeof(drop), 0)) > 0)
            got += n;
        else
            idle++;
    }
    diag("%zd bytes wait to be acknowledged", got);
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    const uint64_t acks = 20000;
    uint64_t end = LOCKED(p, p->ctl.rx_offset) + acks * (HW_FRAME_HEAD + 8);
    for (uint64_t i = 0; i < acks; i++)
        frame(&e, HW_F_ACK, 0, i, matched, 8);
    ok(SOON_SO(LOCKED(p, p->ctl.rx_offset) >= end), "its acknowledgements are taken in");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    long ms = (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
    ok(got > 1000000 && hawser_peer_state(p) == 0, "a peer with a long backlog");
    ok(ms < 3000, "%llu of them cost %ld ms", (unsigned long long)acks, ms);
    close(e.ctl);
    hawser_close(h);
}

/* ---- a server that sends its client elsewhere -------------------------------------------------- */

static void *evil_server(void *arg)
{
    int *listener = arg, fd = accept4(*listener, NULL, NULL, SOCK_CLOEXEC);
    uint8_t hello[HW_HELLO_SIZE], raw[HW_CHALLENGE_SIZE], proof[HW_PROOF_SIZE], body[HW_FRAME_MAX];
    static const uint8_t no_key[HW_SECRET];
    struct evil e = {.ctl = fd};
    if (recv(fd, hello, sizeof(hello), MSG_WAITALL) != sizeof(hello))
        return NULL;
    hw_challenge_encode(raw, &(struct hw_challenge){.session = 1});
    hw_boot_prove_server(raw + sizeof(raw) - HW_PROOF_SIZE, no_key, hello, raw);
    (void)!send(fd, raw, sizeof(raw), MSG_NOSIGNAL);
    if (recv(fd, proof, sizeof(proof), MSG_WAITALL) != sizeof(proof))
        return NULL;
    (void)hw_hs_welcome(fd, HW_OK, 0);
    size_t n = HW_SETUP_HEAD;
    hw_setup_head(body, &(struct hw_setup){.unexpected = 1 << 20, .max_ops = 1000, .n = HW_SETUP_MAX});
    for (unsigned i = 0; i < HW_SETUP_MAX; i++) {
        /* 192.0.2.0/24 is nobody's (RFC 5737) */
        struct hw_setup_entry s = {.nic = "elsewhere", .handle_len = 20, .handle = {4, 0, 80, 0, 192, 0, 2, 1}};
        n += hw_setup_entry_encode(body + n, &s);
    }
    frame(&e, HW_F_SETUP, 0, 0, body, n);
    char c;
    while (recv(fd, &c, 1, 0) > 0)
        ;
    close(fd);
    return NULL;
}

static void test_sent_elsewhere(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof(a);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_t t = 0;
    hawser *h = NULL;
    hawser_peer *p;
    if (!ok(bind(l, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(l, 4) == 0 &&
                getsockname(l, (struct sockaddr *)&a, &len) == 0 && hawser_open(NULL, &h) == 0 &&
                pthread_create(&t, NULL, evil_server, &l) == 0,
            "a server that names 256 addresses of others"))
        exit(1);
    /* by name, so that it would even pair what is in no subnet of ours */
    struct hawser_connect_options o = {.size = sizeof(o), .nics = "lo", .peer_nics = "elsewhere"};
    is_int(hawser_connect(h, "127.0.0.1", ntohs(a.sin_port), &o, 3000, &p), -ENODEV, "an unkeyed client goes to none");
    hawser_close(h);
    pthread_join(t, NULL);
    close(l);
}

/* ---- our own bad moments ----------------------------------------------------------------------- */

static void test_open_close(void)
{
    static const char *const knobs[] = {"threads=2", NULL};
    struct hawser_options o = {.size = sizeof(o), .knobs = knobs};
    bool fine = true;
    alarm(60); /* a wake-up lost is a pthread_join() that never returns */
    for (int i = 0; i < 3000 && fine; i++) {
        hawser *h;
        fine = hawser_open(&o, &h) == 0;
        for (volatile int k = 0; k < i * 17 % 20000; k++)
            ;
        if (fine)
            hawser_close(h);
    }
    alarm(0);
    ok(fine, "a context closes whatever its threads are at");
}

/* A child holds copies of all descriptors: what happens on them after we have closed ours is no event of ours. */
static void test_fork(void)
{
    struct evil e = {0};
    hawser *h = open_server(NULL, &e.port);
    hawser_peer *p = meet(h, &e, 1);
    int ch = shake(&e, HW_BOOT_DATA, 0, 1), hold[2], status;
    ok(ch >= 0 && SOON_SO(LOCKED(p, p->chans[0].state == HW_CH_UP)), "a channel");
    if (pipe(hold))
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        char c;
        close(hold[1]);
        _exit((int)read(hold[0], &c, 1));
    }
    hawser_peer_close(p);
    for (int i = 0; i < 10; i++) {
        (void)!send(ch, "late", 4, MSG_NOSIGNAL);
        (void)!send(e.ctl, "late", 4, MSG_NOSIGNAL);
        usleep(5000);
    }
    close(ch);
    close(e.ctl);
    usleep(20000);
    (void)meet(h, &e, 1);
    ok(true, "the loops live on beside a child that holds a closed peer's connections");
    close(hold[0]);
    close(hold[1]);
    waitpid(child, &status, 0);
    close(e.ctl);
    hawser_close(h);
}

int main(void)
{
    if (hw_crypto_init())
        return 1;
    test_no_setup();
    test_full();
    test_sent_twice(false);
    test_sent_twice(true);
    test_confirmed_early();
    test_endless_reads();
    test_tiny_acks();
    test_sent_elsewhere();
    test_open_close();
    test_fork();
    return tap_done();
}

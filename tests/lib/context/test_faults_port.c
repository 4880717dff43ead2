/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests a listening port with a thousand peers and with foreign connections: HTTP, port scans, half-open connections,
 * other versions and byte orders, garbage, and replayed handshakes. Foreign connections must be refused with a logged
 * reason and must not leak resources, and a real client must be able to connect at any time.
 */
#include "faults.h"

#include "tests/tap.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCAL     "127.0.0.1"
#define LIMIT_S   110
#define PEERS     1000
#define KERNEL_MS 12000 /* maximum time for which the kernel withholds silent connections from the listener */
#define WORKERS   4
#define PEER_SIZE (64u << 10)
#define PEER_MAX  (160u << 10) /* maximum user memory for each peer, in bytes */
#define HALF_OPEN 300
#define SCANS     1000

struct all {
    struct f_server sv;
    atomic_int connected, written, go, failed;
    atomic_ullong bad;
    char text[200];
};

static struct all *sh;

static pid_t start_server(size_t size, const char *const *knobs)
{
    memset(sh, 0, sizeof(*sh));
    pid_t pid = f_fork(LIMIT_S);
    if (pid == 0)
        _exit(f_serve(&sh->sv, LOCAL, size, knobs));
    f_reaches(&sh->sv.port, 1, 10000);
    return pid;
}

static bool nobody(void *arg)
{
    (void)arg;
    return atomic_load(&sh->sv.sessions) == 0;
}

static bool stop_server(pid_t pid)
{
    f_until(nobody, NULL, 15000);
    atomic_store(&sh->sv.stop, 1);
    return f_reap(pid, 15000) == 0;
}

static uint16_t port(void)
{
    return (uint16_t)atomic_load(&sh->sv.port);
}

static hawser *open_context(void)
{
    struct hawser_options o = {.size = sizeof(o), .key = f_job_key, .key_len = f_job_key ? strlen(f_job_key) : 0};
    hawser *h;
    if (hawser_open(&o, &h)) {
        fprintf(stderr, "# %s\n", hawser_error());
        _exit(99);
    }
    return h;
}

/* ---- a thousand peers ------------------------------------------------------------------------------------------- */

static int worker(unsigned w)
{
    static struct f_client c[PEERS / WORKERS];
    static const struct hawser_connect_options o = {.size = sizeof(o), .channels = 1};
    hawser *h = open_context();
    int rc = 0;
    uint64_t bad = 0;
    unsigned n = PEERS / WORKERS;
    for (unsigned i = 0; i < n && rc == 0; i++) {
        rc = f_connect(&c[i], h, LOCAL, port(), PEER_SIZE, &o, 20000);
        atomic_fetch_add(&sh->connected, rc == 0);
    }
    if (rc == 0 && !f_reaches(&sh->go, 1, 60000))
        rc = -ETIMEDOUT;
    for (unsigned i = 0; i < n && rc == 0; i++) {
        rc = f_transfer(&c[i], F_WRITE, w * 10000 + i, PEER_SIZE, NULL, &bad);
        atomic_fetch_add(&sh->written, rc == 0);
    }
    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = hawser_peer_state(c[i].p);
    if (rc) {
        snprintf(sh->text, sizeof(sh->text), "%d: %s", rc, hawser_error());
        atomic_fetch_add(&sh->failed, 1);
    }
    atomic_fetch_add(&sh->bad, bad);
    if (!f_reaches(&sh->go, 2, 60000))
        rc = -ETIMEDOUT;
    for (unsigned i = 0; i < n; i++)
        if (c[i].p)
            f_close(&c[i]);
    hawser_close(h);
    return rc ? 1 : 0;
}

static void thousand(void)
{
    struct rlimit lim;
    getrlimit(RLIMIT_NOFILE, &lim);
    lim.rlim_cur = lim.rlim_max;
    setrlimit(RLIMIT_NOFILE, &lim);
    if (lim.rlim_cur < 2 * PEERS + 64) {
        tap_skip("a thousand peers", "too few descriptors allowed (ulimit -Hn)");
        return;
    }
    pid_t server = start_server(PEER_SIZE, NULL), pid[WORKERS];
    f_probe(&sh->sv);
    uint64_t rss = atomic_load(&sh->sv.rss), heap = atomic_load(&sh->sv.heap);
    unsigned fds = atomic_load(&sh->sv.fds);
    uint64_t t0 = hw_now();
    for (unsigned w = 0; w < WORKERS; w++)
        if ((pid[w] = f_fork(LIMIT_S)) == 0)
            _exit(worker(w));
    uint64_t end = hw_deadline(60000);
    while (atomic_load(&sh->connected) < PEERS && !atomic_load(&sh->failed) && hw_now() < end)
        f_sleep_ms(5);
    is_int(atomic_load(&sh->connected), PEERS, "a thousand peers connect to one context");
    diag("in %llu ms", (unsigned long long)((hw_now() - t0) / HW_MS));
    f_probe(&sh->sv);
    is_int(atomic_load(&sh->sv.sessions), PEERS, "the server has them all");
    diag("connected: %llu bytes of memory each, %.1f descriptors",
         (unsigned long long)(atomic_load(&sh->sv.rss) - rss) / PEERS,
         (double)(atomic_load(&sh->sv.fds) - fds) / PEERS);
    atomic_store(&sh->go, 1);
    end = hw_deadline(60000);
    while (atomic_load(&sh->written) < PEERS && !atomic_load(&sh->failed) && hw_now() < end)
        f_sleep_ms(5);
    is_int(atomic_load(&sh->written), PEERS, "each writes once");
    if (*sh->text)
        diag("%s", sh->text);
    is_int(atomic_load(&sh->bad) + atomic_load(&sh->sv.bad), 0, "with every byte in place");
    f_probe(&sh->sv);
    /* excludes this test's own memory for each peer: the region and two guard pages */
    long long each = ((long long)atomic_load(&sh->sv.rss) - (long long)rss) / PEERS - PEER_SIZE - 8192;
    if (f_sanitized())
        tap_skip("memory for each is bounded", "a sanitizer's memory is not ours");
    else
        ok(each < PEER_MAX, "%lld bytes of memory for each, %u are allowed", each, PEER_MAX);
    is_int(atomic_load(&sh->sv.died), 0, "all are alive");
    atomic_store(&sh->go, 2);
    for (unsigned w = 0; w < WORKERS; w++)
        is_int(f_reap(pid[w], 30000), 0, "a quarter of them closes");
    ok(f_until(nobody, NULL, 15000), "the server has let go of all");
    f_probe(&sh->sv);
    long long left = (long long)atomic_load(&sh->sv.heap) - (long long)heap;
    ok(left < 256 << 10, "its heap is %lld bytes larger than at first", left);
    long long rss_left = (long long)atomic_load(&sh->sv.rss) - (long long)rss;
    if (f_sanitized())
        tap_skip("memory is given back", "a sanitizer keeps it");
    else
        ok(rss_left < 16 << 20, "and its memory %lld", rss_left);
    is_int(atomic_load(&sh->sv.fds), fds, "no descriptor is left");
    ok(stop_server(server), "the server ends well");
}

/* ---- foreign connections ---------------------------------------------------------------------------- */

static int dial(void)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port()), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval t = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        diag("connecting: %s", strerror(errno));
        hw_close(&fd);
    }
    return fd;
}

static bool put(int fd, const void *p, size_t n)
{
    return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Returns true if the server closes or resets the connection within timeout_ms. Discards received data. */
static bool is_closed(int fd, int timeout_ms)
{
    char buf[256];
    uint64_t end = hw_deadline(timeout_ms);
    for (;;) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        uint64_t now = hw_now();
        if (now >= end || poll(&pfd, 1, (int)((end - now) / HW_MS) + 1) <= 0)
            return false;
        ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return true;
    }
}

static bool in_log(void *what)
{
    return strstr(sh->sv.log, what) != NULL;
}

static void is_logged(const char *text)
{
    char copy[128];
    snprintf(copy, sizeof(copy), "%s", text);
    if (!ok(f_until(in_log, copy, 2000), "the log has \"%s\"", text))
        diag("%.600s", sh->sv.log);
}

static void forget_log(void)
{
    f_sleep_ms(1100); /* wait until the limit of 20 log lines per second about foreign connections is reset */
    memset(sh->sv.log, 0, sizeof(sh->sv.log));
    atomic_store(&sh->sv.log_len, 0);
}

/* Runs a real client that makes one transfer of each kind. */
static void real_client(const char *when, int limit_ms)
{
    uint64_t t0 = hw_now();
    pid_t pid = f_fork(60);
    if (pid == 0) {
        hawser *h = open_context();
        struct f_client c = {.timeout_ms = 5000};
        int rc = f_connect(&c, h, LOCAL, port(), PEER_SIZE, NULL, limit_ms);
        for (unsigned op = F_WRITE; op <= F_SEND && rc == 0; op++)
            rc = f_transfer(&c, op, 5, PEER_SIZE, NULL, NULL);
        if (rc)
            printf("# %d %s\n", rc, hawser_error());
        fflush(stdout);
        f_close(&c);
        hawser_close(h);
        _exit(rc ? 1 : 0);
    }
    int st = f_reap(pid, limit_ms + 10000);
    unsigned long long ms = (hw_now() - t0) / HW_MS;
    ok(st == 0 && ms <= (unsigned)limit_ms, "%s, a real client is served (%llu ms)", when, ms);
}

static void stray(const char *what, const void *bytes, size_t n, const char *reason)
{
    int fd = dial();
    bool sent = fd >= 0 && put(fd, bytes, n);
    ok(sent && is_closed(fd, 2000), "%s: refused", what);
    hw_close(&fd);
    is_logged(reason);
}

static void some_strays(void)
{
    uint8_t hello[HW_HELLO_SIZE], b[HW_HELLO_SIZE];
    struct hw_hello h = {.kind = HW_BOOT_CONTROL};
    static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stray("an HTTP request", get, sizeof(get) - 1, "an HTTP request, not hawser");
    stray("garbage", "\xde\xad\xbe\xef garbage \0\0\0", 16, "the first bytes are de ad be ef");
    stray("a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00", 7, "a TLS handshake");
    hw_random(h.nonce, sizeof(h.nonce));
    hw_hello_encode(hello, &h);
    memcpy(b, hello, sizeof(b));
    hw_put16(b + 4, HW_WIRE_VERSION + 1);
    stray("another version", b, sizeof(b), "the peer uses protocol version 3");
    memcpy(b, hello, sizeof(b));
    for (size_t i = 0; i < 4; i++)
        b[i] = hello[3 - i];
    stray("the other byte order", b, sizeof(b), "the opposite byte order");
    memcpy(b, hello, sizeof(b));
    b[6] = 77;
    stray("an unknown kind", b, sizeof(b), "unknown kind 77");
    h.kind = HW_BOOT_DATA;
    h.session = 0x123456789;
    hw_hello_encode(b, &h);
    stray("a channel of no session", b, sizeof(b), "does not know the session");
    int fd = dial();
    ok(put(fd, hello, 20), "a connection that ends in the middle of its HELLO");
    hw_close(&fd);
    is_logged("closed the connection after 20 of 64 bytes");
    if (system("command -v curl >/dev/null 2>&1") == 0) {
        char cmd[128];
        snprintf(cmd, sizeof(cmd), "curl -s -m 5 http://" LOCAL ":%u/ >/dev/null 2>&1", port());
        forget_log();
        int st = system(cmd);
        ok(WIFEXITED(st) && WEXITSTATUS(st) != 0 && WEXITSTATUS(st) != 28, "curl is sent away (%d)", WEXITSTATUS(st));
        is_logged("an HTTP request, not hawser");
    } else {
        tap_skip("curl is sent away", "there is no curl");
    }
    real_client("after all of them", 5000);
}

static void scan(void)
{
    int failed = 0;
    for (int i = 0; i < SCANS; i++) {
        int fd = dial();
        failed += fd < 0;
        hw_close(&fd);
    }
    is_int(failed, 0, "a port scan: 1000 connections that say nothing");
    real_client("after it", 5000);
    is_logged("closed the connection after 0 of 64 bytes");
    f_sleep_ms(1100); /* the next second's first line reports the lines that were not logged */
    int fd = dial();
    hw_close(&fd);
    is_logged("more refused connections were not logged");
}

static void half_open(int handshake_ms)
{
    static int fd[HALF_OPEN];
    for (int i = 0; i < HALF_OPEN; i++)
        fd[i] = dial();
    uint64_t t0 = hw_now();
    real_client("beside 300 connections that say nothing", handshake_ms);
    int open = 0;
    for (int i = 0; i < HALF_OPEN; i++)
        open += !is_closed(fd[i], HW_MAX(handshake_ms * 2 + KERNEL_MS - (int)((hw_now() - t0) / HW_MS), 1));
    is_int(open, 0, "which are closed in the end");
    for (int i = 0; i < HALF_OPEN; i++)
        hw_close(&fd[i]);
    is_logged("0 of 64 bytes");
}

/* Performs a handshake manually. Stores its messages in hello and proof or, if replay is true, sends the messages that
 * are stored there. Returns the connection's file descriptor, or -1. */
static int by_hand(uint8_t hello[HW_HELLO_SIZE], uint8_t proof[HW_PROOF_SIZE], bool replay, struct hw_welcome *w)
{
    uint8_t key[HW_SECRET], challenge[HW_CHALLENGE_SIZE], welcome[HW_WELCOME_SIZE];
    int fd = dial();
    if (!replay) {
        struct hw_hello h = {.kind = HW_BOOT_CONTROL, .keyed = f_job_key != NULL};
        hw_random(h.nonce, sizeof(h.nonce));
        hw_hello_encode(hello, &h);
    }
    if (!put(fd, hello, HW_HELLO_SIZE) || recv(fd, challenge, sizeof(challenge), MSG_WAITALL) != sizeof(challenge))
        goto fail;
    if (!replay) {
        hw_boot_key(key, f_job_key, f_job_key ? strlen(f_job_key) : 0);
        hw_boot_prove_client(proof, key, hello, challenge);
    }
    if (!put(fd, proof, HW_PROOF_SIZE) || recv(fd, welcome, sizeof(welcome), MSG_WAITALL) != sizeof(welcome) ||
        hw_welcome_decode(welcome, w))
        goto fail;
    return fd;
fail:
    hw_close(&fd);
    return -1;
}

static void replay(void)
{
    uint8_t hello[HW_HELLO_SIZE], proof[HW_PROOF_SIZE];
    struct hw_welcome w = {.refusal = 99};
    int fd = by_hand(hello, proof, false, &w);
    ok(fd >= 0 && w.refusal == HW_OK, "a handshake is recorded%s", f_job_key ? ", with a job key" : "");
    w.refusal = 99;
    int again = by_hand(hello, proof, true, &w);
    ok(again >= 0 && w.refusal == HW_REFUSE_PROOF, "and played again: refused");
    ok(is_closed(again, 2000), "and closed");
    hw_close(&again);
    is_logged("does not have the job key");
    ok(is_closed(fd, 7000), "the recorded one, with no SETUP to follow, is closed too");
    hw_close(&fd);
    is_logged("no complete setup");
    is_int(atomic_load(&sh->sv.accepted), 0, "the application hears of neither");
}

static void with_wrong_key(void)
{
    static const char wrong[] = "another job key, 16+";
    struct hawser_options o = {.size = sizeof(o), .key = wrong, .key_len = sizeof(wrong) - 1};
    pid_t pid = f_fork(30);
    if (pid == 0) {
        hawser *h;
        hawser_peer *p;
        if (hawser_open(&o, &h))
            _exit(1);
        int rc = hawser_connect(h, LOCAL, port(), NULL, 5000, &p);
        hawser_close(h);
        o.key = NULL;
        if (hawser_open(&o, &h))
            _exit(1);
        int rc2 = hawser_connect(h, LOCAL, port(), NULL, 5000, &p);
        hawser_close(h);
        _exit(rc == -EACCES && rc2 == -EACCES ? 0 : 2);
    }
    is_int(f_reap(pid, 20000), 0, "a wrong key, and none, are -EACCES");
    real_client("with the right key", 5000);
}

static void strays(void)
{
    static const char *const patient[] = {"handshake_ms=4000", NULL}, *const quick[] = {"handshake_ms=1000", NULL};
    pid_t server = start_server(PEER_SIZE, quick);
    replay(); /* first, because it expects that no session has been accepted */
    real_client("after that", 5000);
    forget_log();
    some_strays();
    f_until(nobody, NULL, 5000);
    f_sleep_ms(1200);
    f_probe(&sh->sv);
    uint64_t heap = atomic_load(&sh->sv.heap);
    unsigned fds = atomic_load(&sh->sv.fds);
    forget_log();
    some_strays();
    scan();
    forget_log();
    f_until(nobody, NULL, 5000);
    f_probe(&sh->sv);
    long long grown = (long long)atomic_load(&sh->sv.heap) - (long long)heap;
    ok(grown < 32 << 10, "they cost %lld bytes", grown);
    is_int(atomic_load(&sh->sv.fds), fds, "and no descriptor");

    uint16_t taken;
    struct hawser_options o = {.size = sizeof(o)};
    hawser *h;
    is_int(hawser_open(&o, &h), 0, "another context");
    is_int(hawser_listen(h, LOCAL, port(), &taken), -EADDRINUSE, "the port is in use");
    ok(strstr(hawser_error(), "in use") != NULL, "and says so: %s", hawser_error());
    is_int(hawser_listen(h, LOCAL, 0, &taken), 0, "the context can listen elsewhere");
    is_int(hawser_listen(h, LOCAL, 0, NULL), -EBUSY, "but not twice");
    hawser_close(h);
    ok(stop_server(server), "the server ends well");

    server = start_server(PEER_SIZE, patient);
    half_open(4000);
    ok(stop_server(server), "the server ends well");

    f_job_key = "sixteen bytes or more of it";
    server = start_server(PEER_SIZE, quick);
    replay();
    with_wrong_key();
    ok(stop_server(server), "the server ends well");
    f_job_key = NULL;
}

int main(void)
{
    sh = f_shared(sizeof(*sh), NULL);
    alarm(LIMIT_S);
    signal(SIGPIPE, SIG_IGN);
    if (hw_crypto_init())
        return 1;
    strays();
    thousand();
    return tap_done();
}

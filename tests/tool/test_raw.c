/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the plain-socket comparison on loopback, with both ends in this process. */
#include "tests/tap.h"

#include "base/pattern.h"
#include "tests/proc.h"
#include "tool/raw/raw.h"
#include "tool/raw/raw_sock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (1u << 20)

static uint64_t in_ms(uint64_t ms)
{
    return hw_now() + ms * HW_MS;
}

/* Connects to a port on loopback and sends only the bytes of `what`. */
static int stray(uint16_t port, const void *what, size_t len)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || send(fd, what, len, 0) != (ssize_t)len))
        hw_close(&fd);
    return fd;
}

static struct raw_plan plan_of(uint32_t streams, uint64_t total, uint64_t message)
{
    struct raw_plan p = {.streams = streams, .total = total, .message = message};
    memcpy(p.token, "0123456789abcdef", RAW_TOKEN_SIZE);
    return p;
}

/* Runs both ends over n addresses. Returns the client's return code. */
static int both(const struct raw_plan *p, const char *const *addrs, size_t n, uint8_t *src, uint8_t *dst, size_t len,
                struct raw_result *client, struct raw_result *server, int *server_rc)
{
    struct raw_server *s;
    uint16_t ports[4] = {0};
    struct raw_path path[4] = {{0}};
    bool up = p->dir == RAW_CLIENT_SENDS;
    int rc = raw_server_start(p, addrs, n, up ? dst : src, len, in_ms(20000), &s, ports);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        path[i] = (struct raw_path){.addr = addrs[i], .port = ports[i]};
    rc = raw_client_run(p, path, n, up ? src : dst, len, in_ms(20000), client);
    *server_rc = raw_server_finish(s, server);
    return rc;
}

static void test_moves(uint8_t *src, uint8_t *dst)
{
    static const char *const one[] = {"127.0.0.1"}, *const two[] = {"127.0.0.1", "127.0.0.2"}, *const six[] = {"::1"};
    struct raw_result c = {0}, s = {0};
    int src_rc = 0;
    struct raw_plan p = plan_of(1, 5 * MIB + 7, MIB);

    memset(dst, 0, 8 * MIB);
    is_int(both(&p, one, 1, src, dst, 8 * MIB, &c, &s, &src_rc), 0, "one stream: client");
    is_int(src_rc, 0, "one stream: server");
    is_int(c.bytes, p.total, "one stream: bytes sent");
    is_int(s.bytes, p.total, "one stream: bytes received");
    ok(c.seconds > 0 && c.cpu_seconds >= 0 && s.seconds > 0, "one stream: clocks ran (%.6f s)", c.seconds);
    ok(hw_pattern_check(dst, 5 * MIB + 7, 1, 0, NULL) == 0 && dst[5 * MIB + 7] == 0, "one stream: the bytes are right");

    memset(dst, 0, 8 * MIB);
    p.dir = RAW_SERVER_SENDS;
    p.warmup = 3 * MIB + 1;
    is_int(both(&p, one, 1, src, dst, 8 * MIB, &c, &s, &src_rc), 0, "server sends: client");
    is_int(src_rc, 0, "server sends: server");
    ok(c.bytes == p.total && s.bytes == p.total, "server sends: the warm-up is not counted");
    is_int(hw_pattern_check(dst, 5 * MIB + 7, 1, 0, NULL), 0, "server sends: the bytes are right");

    p = plan_of(3, 64ull * MIB + 1, 100000); /* the buffer's size is not a multiple of the message size */
    p.warmup = MIB;
    is_int(both(&p, two, 2, src, dst, 8 * MIB, &c, &s, &src_rc), 0, "two addresses of three streams: client");
    ok(src_rc == 0 && c.bytes == p.total && s.bytes == p.total, "two addresses of three streams: every byte once");

    p = plan_of(4, 16 * MIB, 128 << 10);
    is_int(both(&p, one, 1, src, dst, 128 << 10, &c, &s, &src_rc), 0, "four streams over 128 KiB: client");
    ok(src_rc == 0 && s.bytes == p.total, "four streams over 128 KiB: private buffers");

    p = plan_of(2, 1, 1);
    is_int(both(&p, one, 1, src, dst, 1, &c, &s, &src_rc), 0, "one byte over two streams");
    ok(src_rc == 0 && s.bytes == 1, "one byte arrived once");

    p = plan_of(2, 0, MIB);
    p.duration_ms = 200;
    is_int(both(&p, one, 1, src, dst, 8 * MIB, &c, &s, &src_rc), 0, "by duration: client");
    ok(src_rc == 0 && c.bytes == s.bytes && c.bytes > 0, "by duration: both count the same");
    ok(c.seconds >= 0.2 && c.seconds < 10, "by duration: it lasted %.3f s", c.seconds);

    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (fd < 0 || bind(fd, (struct sockaddr *)&a6, sizeof(a6)) != 0) {
        tap_skip("IPv6", "no ::1 here");
    } else {
        p = plan_of(2, MIB, 4096);
        is_int(both(&p, six, 1, src, dst, 8 * MIB, &c, &s, &src_rc), 0, "IPv6");
    }
    hw_close(&fd);
}

static void test_refusals(uint8_t *src, uint8_t *dst)
{
    static const char *const one[] = {"127.0.0.1"}, *const bad[] = {"localhost"}, *const far[] = {"192.0.2.1"};
    struct raw_plan p = plan_of(2, MIB, MIB), q = p;
    struct raw_server *s;
    struct raw_result r;
    uint16_t port;
    int rc;

    is_int(raw_server_start(&p, bad, 1, dst, MIB, in_ms(1000), &s, &port), -EINVAL, "a name is not an address");
    ok(strstr(hw_error(), "localhost") != NULL, "and the text says which: %s", hw_error());
    is_int(raw_server_start(&p, far, 1, dst, MIB, in_ms(1000), &s, &port), -EADDRNOTAVAIL, "not an address of ours");
    q.message = 0;
    is_int(raw_server_start(&q, one, 1, dst, MIB, in_ms(1000), &s, &port), -EINVAL, "messages of no bytes");
    q = p;
    q.total = 0;
    is_int(raw_server_start(&q, one, 1, dst, MIB, in_ms(1000), &s, &port), -EINVAL, "neither total nor duration");
    q = p;
    q.streams = RAW_MAX_STREAMS + 1;
    is_int(raw_server_start(&q, one, 1, dst, MIB, in_ms(1000), &s, &port), -EINVAL, "too many streams");

    /* no client connects */
    uint64_t t = hw_now();
    is_int(raw_server_start(&p, one, 1, dst, MIB, in_ms(150), &s, &port), 0, "a server that nobody meets");
    is_int(raw_server_finish(s, NULL), -ETIMEDOUT, "ends at its deadline");
    ok(hw_now() - t < 2000 * HW_MS, "and not much later");
    struct raw_path path = {.addr = "127.0.0.1", .port = port};
    is_int(raw_client_run(&p, &path, 1, src, MIB, in_ms(1000), &r), -ECONNREFUSED, "a client that meets nobody");

    /* foreign connections first: silent, a wrong token, half a token, the wrong token from our own client; then the
     * right one */
    is_int(raw_server_start(&p, one, 1, dst, MIB, in_ms(10000), &s, &port), 0, "a server with strays");
    path.port = port;
    int a = stray(port, "", 0), b = stray(port, "GET / HTTP/1.0\r\n\r\n", 18), c = stray(port, "0123456", 7);
    q = p;
    q.token[15] ^= 1;
    rc = raw_client_run(&q, &path, 1, src, MIB, in_ms(3000), &r);
    ok(rc == -ECONNRESET, "the wrong token is dropped (%d)", rc);
    is_int(raw_client_run(&p, &path, 1, src, MIB, in_ms(5000), &r), 0, "the right one is served all the same");
    is_int(raw_server_finish(s, &r), 0, "the server is content");
    is_int(r.bytes, MIB, "and has counted no stray byte");
    char byte;
    ok(b >= 0 && recv(b, &byte, 1, 0) <= 0, "the HTTP stray was closed");
    hw_close(&a);
    hw_close(&b);
    hw_close(&c);

    /* one client opens a stream and then sends nothing; another disconnects */
    is_int(raw_server_start(&p, one, 1, dst, MIB, in_ms(300), &s, &port), 0, "a server with a mute client");
    a = stray(port, p.token, RAW_TOKEN_SIZE);
    b = stray(port, p.token, RAW_TOKEN_SIZE);
    is_int(raw_server_finish(s, &r), -ETIMEDOUT, "ends at its deadline");
    hw_close(&a);
    hw_close(&b);
    is_int(raw_server_start(&p, one, 1, dst, MIB, in_ms(10000), &s, &port), 0, "a server whose client goes away");
    a = stray(port, p.token, RAW_TOKEN_SIZE);
    b = stray(port, p.token, RAW_TOKEN_SIZE);
    ok(raw_wait_go(a, in_ms(2000)) == 0, "both streams are taken");
    t = hw_now();
    hw_close(&a);
    hw_close(&b);
    rc = raw_server_finish(s, &r);
    ok(rc == -ECONNRESET && hw_now() - t < 5000 * HW_MS, "is told so at once: %d, %s", rc, hw_error());

    /* cancelled before the transfer and during the transfer */
    is_int(raw_server_start(&p, one, 1, dst, MIB, in_ms(10000), &s, &port), 0, "a server to cancel");
    raw_server_cancel(s);
    is_int(raw_server_finish(s, &r), -ECANCELED, "cancelled before anybody came");
    is_int(raw_server_start(&p, one, 1, dst, MIB, in_ms(10000), &s, &port), 0, "another one");
    a = stray(port, p.token, RAW_TOKEN_SIZE);
    b = stray(port, p.token, RAW_TOKEN_SIZE);
    ok(raw_wait_go(a, in_ms(2000)) == 0, "that has begun");
    raw_server_cancel(s);
    is_int(raw_server_finish(s, &r), -ECANCELED, "cancelled while it waits for bytes");
    hw_close(&a);
    hw_close(&b);
}

static int pingpong(struct raw_pingpong *pp, struct raw_latency *l, struct hw_hist *h, int *server_rc, double *cpu)
{
    struct raw_pp_server *s;
    struct raw_path path = {.addr = "127.0.0.1"};
    int rc = raw_pp_server_start(pp, path.addr, in_ms(20000), &s, &path.port);
    if (rc)
        return rc;
    rc = raw_pp_client_run(pp, &path, in_ms(20000), l, h);
    *server_rc = raw_pp_server_finish(s, cpu);
    return rc;
}

static void test_pingpong(void)
{
    static struct hw_hist h;
    struct raw_pingpong pp = {.size = 8, .iters = 500, .warmup = 50, .spin = true};
    struct raw_latency l = {0};
    int rc = 0;
    double cpu = -1;
    hw_hist_reset(&h);
    is_int(pingpong(&pp, &l, &h, &rc, &cpu), 0, "spinning ping-pong: client");
    is_int(rc, 0, "spinning ping-pong: server");
    ok(l.p50_ns > 500 && l.p50_ns <= l.p99_ns && l.p99_ns <= l.p999_ns, "quantiles in order: %.2f, %.2f, %.2f us",
       (double)l.p50_ns / 1e3, (double)l.p99_ns / 1e3, (double)l.p999_ns / 1e3);
    is_int(h.n, 500, "the warm-up is not in the histogram");
    ok(cpu >= 0 && l.iters == 500, "the server's CPU seconds: %.4f", cpu);
    pp.spin = false;
    pp.size = 100000;
    is_int(pingpong(&pp, &l, NULL, &rc, NULL), 0, "blocking ping-pong of 100,000 bytes: client");
    is_int(rc, 0, "blocking ping-pong of 100,000 bytes: server");
    pp.size = 0;
    is_int(pingpong(&pp, &l, NULL, &rc, NULL), -EINVAL, "no bytes is no ping");

    for (int spin = 0; spin < 2; spin++) {
        struct raw_pp_server *s;
        uint16_t port;
        pp = (struct raw_pingpong){.size = 8, .iters = 10, .spin = spin};
        is_int(raw_pp_server_start(&pp, "127.0.0.1", in_ms(200), &s, &port), 0, "a ping-pong with a mute client");
        int fd = stray(port, pp.token, RAW_TOKEN_SIZE);
        is_int(raw_pp_server_finish(s, NULL), -ETIMEDOUT, "ends at its deadline");
        hw_close(&fd);
        is_int(raw_pp_server_start(&pp, "127.0.0.1", in_ms(10000), &s, &port), 0, "a ping-pong to cancel");
        fd = stray(port, pp.token, RAW_TOKEN_SIZE);
        ok(raw_wait_go(fd, in_ms(2000)) == 0, "that has begun");
        raw_pp_server_cancel(s);
        is_int(raw_pp_server_finish(s, NULL), -ECANCELED, "is cancelled");
        hw_close(&fd);
        is_int(raw_pp_server_start(&pp, "127.0.0.1", in_ms(10000), &s, &port), 0, "a ping-pong whose client leaves");
        fd = stray(port, pp.token, RAW_TOKEN_SIZE);
        ok(raw_wait_go(fd, in_ms(2000)) == 0, "after it has begun");
        hw_close(&fd);
        is_int(raw_pp_server_finish(s, NULL), -ECONNRESET, "is told so");
    }
}

int main(void)
{
    uint8_t *src = malloc(8 * MIB), *dst = malloc(8 * MIB);
    if (!src || !dst) {
        free(src);
        free(dst);
        return 1;
    }
    hw_pattern_fill(src, 8 * MIB, 1, 0);
    int fds = proc_entries("/proc/self/fd");
    test_moves(src, dst);
    test_refusals(src, dst);
    test_pingpong();
    is_int(proc_entries("/proc/self/fd"), fds, "no descriptor is left open");
    free(src);
    free(dst);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that foreign connections that send nothing or almost nothing do not prevent peers from connecting. Also
 * connects more peers at once than the listener has slots. */
#include "tests/lib/context/pairhelp.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define MOST  3000
#define CROWD 300 /* more connections than the listener has slots */

static int stranger[MOST];
static unsigned strangers;

/* Opens n foreign connections, and sends `bytes` bytes on each connection. */
static void come(uint16_t port, unsigned n, size_t bytes)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (unsigned i = 0; i < n && strangers < MOST; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            bail("stranger %u: %s", strangers, strerror(errno));
        (void)connect(fd, (struct sockaddr *)&to, sizeof to);
        if (bytes)
            (void)send(fd, "HWSR", bytes, MSG_NOSIGNAL);
        stranger[strangers++] = fd;
        if (i % 100 == 99)
            usleep(2000);
    }
}

static void leave(void)
{
    while (strangers)
        close(stranger[--strangers]);
}

/* Connects one more peer. Returns the time until the peer is accepted, in ms, or -1 on failure. */
static int connect_one(hawser *a, hawser *b, uint16_t port)
{
    struct ph_join j = {.h = a, .port = port};
    hawser_peer *ba = NULL;
    pthread_t t;
    uint64_t began = hw_now();
    if (pthread_create(&t, NULL, ph_connector, &j))
        bail("no thread");
    int rc = hawser_accept(b, 10000, &ba);
    pthread_join(t, NULL);
    int ms = (int)((hw_now() - began) / HW_MS);
    if (rc || j.rc)
        diag("accept %d, connect %d", rc, j.rc);
    hawser_peer_close(j.out);
    hawser_peer_close(ba);
    return rc || j.rc ? -1 : ms;
}

/* Returns true if the server has closed the connection. */
static bool is_closed(int fd)
{
    char byte[64];
    ssize_t n;
    while ((n = recv(fd, byte, sizeof byte, MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || errno != EAGAIN;
}

/* Tests that new connections from an address replace only the oldest connections from the same address. */
static void replace_oldest(uint16_t port)
{
    unsigned closed = 0;
    come(port, CROWD, 1);
    for (int i = 0; i < 100 && closed < 20; i++) {
        usleep(10000);
        closed = 0;
        for (unsigned k = 0; k < CROWD; k++)
            closed += is_closed(stranger[k]);
    }
    unsigned old = 0;
    for (unsigned k = 0; k < closed; k++)
        old += is_closed(stranger[k]);
    ok(closed >= 20 && closed < CROWD / 2 && old == closed, "%u of %u connections are replaced: the oldest (%u)",
       closed, CROWD, old);
    leave();
}

static hawser_peer *accepted[CROWD];

static void *accept_crowd(void *arg)
{
    for (unsigned n = 0; n < CROWD && hawser_accept(arg, 30000, &accepted[n]) == 0; n++)
        ;
    return NULL;
}

/* Connects many peers at the same time, so connections displace each other. Returns how many peers connected. */
static unsigned connect_crowd(hawser *a, hawser *b, uint16_t port)
{
    static hawser_peer *p[CROWD];
    unsigned ended = 0, well = 0;
    pthread_t t;
    if (pthread_create(&t, NULL, accept_crowd, b))
        bail("no thread");
    for (unsigned i = 0; i < CROWD; i++)
        must(hawser_connect_start(a, "127.0.0.1", port, NULL, 30000, 0, &p[i]));
    while (ended < CROWD) {
        struct hawser_completion c[16];
        int n = hawser_poll_wait(a, c, 16, 40000);
        if (n <= 0)
            break;
        for (int i = 0; i < n; i++) {
            ended += c[i].event == HAWSER_CONNECTED;
            if (c[i].event == HAWSER_CONNECTED && c[i].result < 0)
                diag("%s", hawser_peer_state(c[i].peer) < 0 ? hawser_error() : strerror(-c[i].result));
            well += c[i].event == HAWSER_CONNECTED && c[i].result == 0;
        }
    }
    pthread_join(t, NULL);
    for (unsigned i = 0; i < CROWD; i++) {
        hawser_peer_close(p[i]);
        hawser_peer_close(accepted[i]);
    }
    return well;
}

/* A process without free descriptors: the listener tries again 20 times per second, but does not log each failure. */
static void exhaust_descriptors(void)
{
    static struct ph_log log = {.mu = PTHREAD_MUTEX_INITIALIZER};
    struct hawser_options o = {.size = sizeof o, .log = ph_logger, .log_arg = &log};
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct rlimit before, none;
    hawser *h;
    uint16_t port;
    must(hawser_open(&o, &h));
    must(hawser_listen(h, "127.0.0.1", 0, &port));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), lowest = dup(fd);
    close(lowest);
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){.rlim_cur = (rlim_t)lowest, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 || send(fd, "H", 1, MSG_NOSIGNAL) != 1)
        bail("a stranger: %s", strerror(errno));
    bool logged = ph_logged(&log, "cannot accept a waiting connection now: Too many open files: raise RLIMIT_NOFILE");
    usleep(600000);
    setrlimit(RLIMIT_NOFILE, &before);
    int lines = 0;
    pthread_mutex_lock(&log.mu);
    for (const char *s = log.text; (s = strstr(s, "cannot accept")); s++)
        lines++;
    pthread_mutex_unlock(&log.mu);
    ok(logged && lines == 1, "without descriptors, the listener says so once: %d times", lines);
    close(fd);
    hawser_close(h);
}

int main(void)
{
    struct rlimit limit;
    unsigned n = MOST;
    watchdog(100);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = HW_MIN(limit.rlim_max, (rlim_t)(MOST + 1000));
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        n = limit.rlim_cur > MOST + 600 ? MOST : (unsigned)limit.rlim_cur / 2;
    }
    struct pair p = ph_pair(0, NULL, 0, NULL);
    struct ph_buf m = ph_buf(p.a, 4096, 0, 0, NULL), t = ph_buf(p.b, 4096, 0, HAWSER_REMOTE_WRITE, NULL);
    step("silent");
    come(p.port, n, 0);
    int ms = connect_one(p.a, p.b, p.port);
    ok(ms >= 0 && ms < 5000, "beside %u strangers who say nothing a peer connects within %d ms", n, ms);
    is_rc(ph_one(hawser_write, p.ab, &m, 0, 4096, &t.region, 0), 0, "and those who are connected go on");
    leave();
    step("a byte");
    come(p.port, n, 1);
    ms = connect_one(p.a, p.b, p.port);
    ok(ms >= 0 && ms < 5000, "beside %u who send a byte, too: %d ms", n, ms);
    is_rc(ph_one(hawser_write, p.ab, &m, 0, 4096, &t.region, 0), 0, "and those who are connected go on");
    leave();
    ms = connect_one(p.a, p.b, p.port);
    ok(ms >= 0 && ms < 5000, "and once they are gone: %d ms", ms);
    step("oldest");
    replace_oldest(p.port);
    step("descriptors");
    exhaust_descriptors();
    step("peers");
    unsigned well = connect_crowd(p.a, p.b, p.port);
    if (well < CROWD)
        diag("%u of %u have connected", well, CROWD);
    ok(well == CROWD, "of %u peers that come at once each is connected", CROWD);
    ph_drop(&m);
    ph_drop(&t);
    ph_close(&p);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/sock.h"

#include "base/sanitizers.h"
#include "net/congestion.h"

#include <linux/tcp.h> /* defines tcpi_bytes_acked in struct tcp_info; glibc's copy is older */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEAR_RTO_US 100000 /* earliest retransmission by the kernel on connections within a site, in us */

#ifndef TCP_RTO_MIN_US /* Linux 6.15, include/uapi/linux/tcp.h */
#define TCP_RTO_MIN_US 45
#endif

/* An acknowledgement usually arrives within this many round trips, or else after the time for which a receiver may
 * delay it (TCP_ATO_MIN in Linux's include/net/tcp.h). */
#define ACK_TRIPS 4u
#define ACK_MS    40u
#define LOOK_MS   100u /* a connection that was not checked for longer than this is treated as just acknowledged */
/* Time without an acknowledgement after which a connection is dead if the peer answers on other connections and a
 * retransmission was not answered either. */
#define ALONE_MS 130u

#if HW_ASAN || HW_TSAN /* the sanitizers intercept only the C library's functions */
ssize_t hw_sock_recv(int fd, void *to, size_t len)
{
    return recv(fd, to, len, MSG_DONTWAIT);
}

ssize_t hw_sock_send(int fd, const void *from, size_t len, int flags)
{
    return send(fd, from, len, flags);
}
#else
ssize_t hw_sock_recv(int fd, void *to, size_t len)
{
    return syscall(SYS_recvfrom, fd, to, len, MSG_DONTWAIT, NULL, NULL);
}

ssize_t hw_sock_send(int fd, const void *from, size_t len, int flags)
{
    return syscall(SYS_sendto, fd, from, len, flags, NULL, 0);
}
#endif

static void set_int(int fd, int level, int name, int value)
{
    /* These options only tune the connection, which also works without them. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

void hw_sock_tune(int fd, const struct hw_knobs *k)
{
    int ka = (int)HW_MAX(k->keepalive_ms / 1000, 1ull);
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, ka);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, ka);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)k->peer_timeout_ms);
}

void hw_sock_settled(int fd, const struct hw_knobs *k)
{
    bool near = hw_path_is_near(fd);
    if (near) /* by default Linux waits at least 200 ms before it retransmits, but no receiver within a site delays an
               * acknowledgement for that long */
        set_int(fd, IPPROTO_TCP, TCP_RTO_MIN_US, NEAR_RTO_US);
    hw_congestion_settle(fd, near, k);
}

void hw_sock_accepted(int fd, const struct hw_knobs *k)
{
    hw_sock_tune(fd, k);
    hw_sock_settled(fd, k);
}

void hw_sock_buffers(int fd, const struct hw_knobs *k)
{
    if (k->sndbuf)
        set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)HW_MIN(k->sndbuf, (uint64_t)INT32_MAX));
    if (k->rcvbuf)
        set_int(fd, SOL_SOCKET, SO_RCVBUF, (int)HW_MIN(k->rcvbuf, (uint64_t)INT32_MAX));
}

int hw_sock_connect(const struct hw_nic *nic, const union hw_addr *addr, const struct hw_knobs *k)
{
    char text[HAWSER_ADDR_TEXT + 8];
    int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return hw_fail(-errno, "creating a socket: %s", strerror(errno));
    hw_sock_tune(fd, k);
    hw_congestion_choose(fd, k);
    int rc;
    if (nic) {
        /* Permitted without privilege since Linux 5.7 on a socket that is not bound yet. A failure is not an error. */
        if (!nic->loopback)
            (void)setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, nic->name, (socklen_t)strlen(nic->name));
        union hw_addr from = nic->addr;
        hw_addr_set_port(&from, 0);
        set_int(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        if (bind(fd, &from.sa, hw_addr_len(&from)) < 0) {
            rc = hw_fail(-errno, "binding to %s of %s: %s", hw_addr_text(&from, text, sizeof(text)), nic->name,
                         strerror(errno));
            goto close;
        }
    }
    if (connect(fd, &addr->sa, hw_addr_len(addr)) < 0 && errno != EINPROGRESS) {
        rc = hw_fail(-errno, "connecting to %s%s%s: %s", hw_addr_text(addr, text, sizeof(text)), nic ? " over " : "",
                     nic ? nic->name : "", strerror(errno));
        goto close;
    }
    return fd;
close:
    hw_close(&fd);
    return rc;
}

int hw_sock_listen(const union hw_addr *addr, const struct hw_knobs *k)
{
    char text[HAWSER_ADDR_TEXT + 8];
    int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return hw_fail(-errno, "creating a socket: %s", strerror(errno));
    set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    hw_congestion_choose(fd, k);
    if (addr->sa.sa_family == AF_INET6)
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(fd, &addr->sa, hw_addr_len(addr)) < 0 || listen(fd, 4096) < 0) {
        int rc = hw_fail(-errno, "listening on %s: %s", hw_addr_text(addr, text, sizeof(text)), strerror(errno));
        hw_close(&fd);
        return rc;
    }
    return fd;
}

/* Sets TCP_USER_TIMEOUT if the current value differs. Reads the value first, because setting the option takes the
 * socket's lock. */
static void want_user_timeout(int fd, uint64_t ms)
{
    int have = -1;
    socklen_t len = sizeof(have);
    if (getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &have, &len) == 0 && have != (int)ms)
        set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)ms);
}

/* Returns the time in ms for which data has been in flight and the peer's TCP has acknowledged nothing new. */
static uint64_t watch_acks(struct hw_sock_watch *w, const struct tcp_info *ti)
{
    uint64_t acked = ti->tcpi_bytes_acked + ti->tcpi_delivered, now = hw_now();
    bool late = now - w->looked > LOOK_MS * HW_MS; /* nothing was in flight, or this thread got no CPU time */
    if (acked != w->acked || ti->tcpi_unacked == 0 || late)
        w->since = now;
    w->acked = acked;
    w->looked = now;
    return (now - w->since) / HW_MS;
}

static bool read_tcp_info(int fd, struct tcp_info *ti, struct hw_sock_watch *w)
{
    socklen_t len = sizeof(*ti);
    memset(ti, 0, sizeof(*ti));
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, ti, &len) < 0)
        return false;
    w->rtt_us = ti->tcpi_rtt;
    w->again = ti->tcpi_total_retrans;
    return true;
}

void hw_sock_look(int fd, struct hw_sock_watch *w)
{
    struct tcp_info ti;
    (void)read_tcp_info(fd, &ti, w);
}

int hw_sock_health(int fd, struct hw_sock_watch *w, uint64_t alone_ms, uint64_t stall_ms, uint64_t peer_timeout_ms)
{
    struct tcp_info ti;
    if (!read_tcp_info(fd, &ti, w))
        return 0;
    w->path = ti.tcpi_delivery_rate / 1000 * ti.tcpi_min_rtt / 1000;
    /* If bytes wait and none are in flight, the receiver's window is closed (the receiver may be stopped), or this
     * side's own queue drops everything. The kernel then sends probes. TCP_USER_TIMEOUT would end such a connection
     * although every probe is answered (net/ipv4/tcp_timer.c, tcp_probe_timer), so this option is suspended. Unanswered
     * probes count instead: tcpi_probes is their number since the last answer. A single probe may just have been sent,
     * and its answer takes a round trip. */
    bool closed = ti.tcpi_unacked == 0 && ti.tcpi_notsent_bytes > 0;
    want_user_timeout(fd, closed ? 0 : peer_timeout_ms);
    uint64_t usual = HW_MAX(ACK_MS, ACK_TRIPS * (uint64_t)ti.tcpi_rtt / 1000);
    uint64_t quiet = watch_acks(w, &ti);
    if (closed)
        quiet = ti.tcpi_probes > 1 ? ti.tcpi_last_ack_recv : 0;
    uint64_t alone = HW_MIN(alone_ms, quiet);
    /* the kernel has retransmitted or probed without an answer */
    bool in_vain = closed || ti.tcpi_retransmits > 0;
    bool dead = quiet > stall_ms || (alone > HW_MAX(ALONE_MS, usual) && ti.tcpi_last_data_sent > usual / 2);
    if (in_vain && dead && closed)
        return hw_fail(-ETIMEDOUT, "%u probes of a closed window were not acknowledged for %llu ms", ti.tcpi_probes,
                       (unsigned long long)quiet);
    if (in_vain && dead)
        return hw_fail(-ETIMEDOUT,
                       "no data was acknowledged for %llu ms (segments outstanding: %u, retransmissions: %u)",
                       (unsigned long long)quiet, ti.tcpi_unacked, ti.tcpi_retransmits);
    return alone > usual;
}

int hw_sock_explain(const char *what)
{
    int error = errno;
    if (error == ENOBUFS || error == ENOMEM)
        return -EBUSY;
    return error == EAGAIN ? -EAGAIN : hw_fail(-error, "%s: %s", what, strerror(error));
}

int hw_sock_explain_host(const char *what)
{
    return errno == EFAULT ? hw_fail(-ENXIO, "%s: the memory of a transfer was unmapped while it was in use", what)
                           : hw_sock_explain(what);
}

void hw_sock_reset_at_close(int fd)
{
    struct linger l = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}

void hw_sock_abort(int *fd)
{
    if (*fd < 0)
        return;
    hw_sock_reset_at_close(*fd);
    hw_close(fd);
}

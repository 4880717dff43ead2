/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/raw/raw_sock.h"

#include "net/congestion.h"

#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Maximum number of connections that have not presented the token yet. Beyond it, a new connection replaces the oldest
 * one. */
#define PENDING_MAX 128
#define PENDING_NS  (3000 * HW_MS)  /* maximum time for presenting the token */
#define POLL_MS_MAX 3600000         /* maximum timeout of one poll() call in ms; the callers repeat the call */
#define GO          ((uint8_t)0x47) /* sent by the server when all streams have connected */

int raw_poll_ms(uint64_t deadline)
{
    if (deadline == HW_NEVER)
        return -1;
    uint64_t now = hw_now();
    if (now >= deadline)
        return 0;
    uint64_t ms = (deadline - now + HW_MS - 1) / HW_MS;
    return ms > POLL_MS_MAX ? POLL_MS_MAX : (int)ms;
}

double raw_thread_cpu(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_THREAD, &u) != 0)
        return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int parse_numeric_address(const char *addr, uint16_t port, struct sockaddr_storage *out, socklen_t *len)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *res = NULL;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    int rc = getaddrinfo(addr, service, &hints, &res);
    if (rc != 0)
        return hw_fail(-EINVAL, "plain sockets: '%s' is not a numeric IPv4 or IPv6 address: %s", addr,
                       gai_strerror(rc));
    memcpy(out, res->ai_addr, res->ai_addrlen);
    *len = res->ai_addrlen;
    freeaddrinfo(res);
    return 0;
}

int raw_listen(const char *addr, const struct hw_knobs *k, int *fd_out, uint16_t *port)
{
    struct sockaddr_storage sa;
    socklen_t len;
    int rc = parse_numeric_address(addr, 0, &sa, &len);
    if (rc)
        return rc;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hw_fail(-errno, "plain sockets: creating a socket for %s: %s", addr, strerror(errno));
    if (k)
        hw_congestion_choose(fd, k);
    if (bind(fd, (struct sockaddr *)&sa, len) != 0 || listen(fd, SOMAXCONN) != 0 ||
        (len = sizeof(sa), getsockname(fd, (struct sockaddr *)&sa, &len)) != 0) {
        rc = -errno;
        hw_close(&fd);
        return hw_fail(rc, "plain sockets: listening on %s: %s", addr, strerror(-rc));
    }
    *port = ntohs(sa.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
                                           : ((struct sockaddr_in *)&sa)->sin_port);
    *fd_out = fd;
    return 0;
}

static int make_data_socket(int fd, const struct hw_knobs *k)
{
    int one = 1, fl = fcntl(fd, F_GETFL);
    if (fl < 0 || fcntl(fd, F_SETFL, fl & ~O_NONBLOCK) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
        return hw_fail(-errno, "plain sockets: preparing a connection: %s", strerror(errno));
    if (k)
        hw_congestion_settle(fd, hw_path_is_near(fd), k);
    return 0;
}

struct pending {
    int fd;
    uint32_t listener, got;
    uint64_t deadline;
    uint8_t token[RAW_TOKEN_SIZE];
};

struct taker {
    const uint8_t *want;
    const struct hw_knobs *knobs;
    size_t need;
    int *fds;
    size_t *taken; /* number of accepted connections of each listener */
    size_t n_pending;
    struct pending pending[PENDING_MAX];
};

static void pending_drop(struct taker *t, size_t i)
{
    hw_close(&t->pending[i].fd);
    t->pending[i] = t->pending[--t->n_pending];
}

static void pending_add(struct taker *t, int fd, uint32_t listener)
{
    if (t->n_pending == PENDING_MAX) {
        size_t oldest = 0;
        for (size_t i = 1; i < t->n_pending; i++)
            if (t->pending[i].deadline < t->pending[oldest].deadline)
                oldest = i;
        pending_drop(t, oldest);
    }
    t->pending[t->n_pending++] = (struct pending){.fd = fd, .listener = listener, .deadline = hw_now() + PENDING_NS};
}

/* Reads the available part of the token. Accepts or drops the connection once the token is complete or the connection
 * has ended. Returns true if the entry was removed. */
static bool pending_read(struct taker *t, size_t i, int *rc)
{
    struct pending *p = &t->pending[i];
    ssize_t n = recv(p->fd, p->token + p->got, RAW_TOKEN_SIZE - p->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        p->got += (uint32_t)n;
    if (n > 0 && p->got < RAW_TOKEN_SIZE)
        return false;
    uint8_t diff = n <= 0;
    for (size_t k = 0; k < RAW_TOKEN_SIZE; k++) /* compare in constant time */
        diff |= p->token[k] ^ t->want[k];
    if (diff || t->taken[p->listener] == t->need) {
        pending_drop(t, i);
        return true;
    }
    *rc = make_data_socket(p->fd, t->knobs);
    if (*rc) {
        pending_drop(t, i);
        return true;
    }
    t->fds[p->listener * t->need + t->taken[p->listener]++] = p->fd;
    p->fd = -1;
    pending_drop(t, i);
    return true;
}

/* Returns true if accept(2) failed because of a single connection, or only needs to be called again. */
static bool accept_again(int err)
{
    return err == EAGAIN || err == EINTR || err == ECONNABORTED || err == EPROTO || err == ENETDOWN ||
           err == ENETUNREACH || err == EHOSTDOWN || err == EHOSTUNREACH || err == ENONET || err == ENOPROTOOPT;
}

static int take_step(struct taker *t, const int *listeners, size_t n, int stop_fd, uint64_t deadline)
{
    struct pollfd pfd[1 + RAW_MAX_PATHS + PENDING_MAX];
    uint64_t until = deadline;
    size_t k = 0;
    pfd[k++] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
    for (size_t i = 0; i < n; i++) /* poll() ignores descriptors that are -1 */
        pfd[k++] = (struct pollfd){.fd = t->taken[i] < t->need ? listeners[i] : -1, .events = POLLIN};
    for (size_t i = 0; i < t->n_pending; i++) {
        pfd[k++] = (struct pollfd){.fd = t->pending[i].fd, .events = POLLIN};
        until = HW_MIN(until, t->pending[i].deadline);
    }
    if (poll(pfd, k, raw_poll_ms(until)) < 0 && errno != EINTR)
        return hw_fail(-errno, "plain sockets: waiting for connections: %s", strerror(errno));
    if (pfd[0].revents)
        return hw_fail(-ECANCELED, "plain sockets: cancelled while waiting for the client's streams");

    int rc = 0;
    uint64_t now = hw_now();
    /* backwards, because a removal moves only entries that were already handled */
    for (size_t i = t->n_pending; i-- > 0;) {
        bool gone = pfd[1 + n + i].revents && pending_read(t, i, &rc);
        if (rc)
            return rc;
        if (!gone && now >= t->pending[i].deadline)
            pending_drop(t, i);
    }
    for (size_t i = 0; i < n; i++) {
        if (!(pfd[1 + i].revents & POLLIN))
            continue;
        int fd = accept4(listeners[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            pending_add(t, fd, (uint32_t)i);
        else if (!accept_again(errno))
            return hw_fail(-errno, "plain sockets: accepting a connection: %s", strerror(errno));
    }
    return 0;
}

int raw_accept(const int *listeners, size_t n, size_t need, const uint8_t token[RAW_TOKEN_SIZE],
               const struct hw_knobs *k, int stop_fd, uint64_t deadline, int *fds)
{
    size_t taken[RAW_MAX_PATHS] = {0}, done = 0;
    struct taker *t = calloc(1, sizeof(*t));
    int rc = 0;
    for (size_t i = 0; i < n * need; i++)
        fds[i] = -1;
    if (!t)
        return hw_no_memory("the connections of plain sockets");
    t->want = token;
    t->knobs = k;
    t->need = need;
    t->fds = fds;
    t->taken = taken;
    while (!rc && done < n * need) {
        if (hw_now() >= deadline)
            rc = hw_fail(-ETIMEDOUT,
                         "plain sockets: only %zu of %zu streams of the client connected before the deadline", done,
                         n * need);
        else
            rc = take_step(t, listeners, n, stop_fd, deadline);
        done = 0;
        for (size_t i = 0; i < n; i++)
            done += taken[i];
    }
    while (t->n_pending)
        pending_drop(t, 0);
    free(t);
    const uint8_t go = GO;
    for (size_t i = 0; !rc && i < n * need; i++)
        if (send(fds[i], &go, 1, MSG_NOSIGNAL) != 1)
            rc = hw_fail(-errno, "plain sockets: starting stream %zu: %s", i, strerror(errno));
    for (size_t i = 0; rc && i < n * need; i++)
        hw_close(&fds[i]);
    return rc;
}

static int connect_fd(int fd, const struct raw_path *path, const struct sockaddr_storage *sa, socklen_t len,
                      uint64_t deadline)
{
    if (path->bind_dev &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, path->bind_dev, (socklen_t)strlen(path->bind_dev)) != 0 &&
        errno != EPERM)
        return hw_fail(-errno, "plain sockets: binding to device %s: %s", path->bind_dev, strerror(errno));
    if (path->bind_addr) {
        struct sockaddr_storage local;
        socklen_t llen;
        int rc = parse_numeric_address(path->bind_addr, 0, &local, &llen);
        if (rc)
            return rc;
        if (bind(fd, (struct sockaddr *)&local, llen) != 0)
            return hw_fail(-errno, "plain sockets: binding to %s: %s", path->bind_addr, strerror(errno));
    }
    if (connect(fd, (const struct sockaddr *)sa, len) == 0)
        return 0;
    int err = errno;
    socklen_t elen = sizeof(err);
    while (err == EINPROGRESS || err == EINTR) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int n = poll(&p, 1, raw_poll_ms(deadline));
        if (n > 0)
            err = getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &elen) == 0 ? err : errno;
        else if (n < 0 && errno != EINTR)
            err = errno;
        else if (hw_now() >= deadline)
            err = ETIMEDOUT;
        if (n > 0 && err == 0)
            return 0;
    }
    return hw_fail(-err, "plain sockets: connecting to %s port %u: %s", path->addr, path->port, strerror(err));
}

int raw_connect(const struct raw_path *path, const uint8_t token[RAW_TOKEN_SIZE], const struct hw_knobs *k,
                uint64_t deadline, int *fd_out)
{
    struct sockaddr_storage sa;
    socklen_t len;
    int rc = parse_numeric_address(path->addr, path->port, &sa, &len);
    if (rc)
        return rc;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hw_fail(-errno, "plain sockets: creating a socket for %s: %s", path->addr, strerror(errno));
    if (k)
        hw_congestion_choose(fd, k);
    rc = connect_fd(fd, path, &sa, len, deadline);
    if (!rc)
        rc = make_data_socket(fd, k);
    /* the socket buffer is empty, so 16 bytes always fit */
    if (!rc && send(fd, token, RAW_TOKEN_SIZE, MSG_NOSIGNAL) != RAW_TOKEN_SIZE)
        rc = hw_fail(-errno, "plain sockets: sending the token to %s port %u: %s", path->addr, path->port,
                     strerror(errno));
    if (rc)
        hw_close(&fd);
    *fd_out = fd;
    return rc;
}

int raw_wait_go(int fd, uint64_t deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, raw_poll_ms(deadline));
        if (n < 0 && errno != EINTR)
            return hw_fail(-errno, "plain sockets: waiting for the server: %s", strerror(errno));
        if (n > 0) {
            uint8_t go = 0;
            ssize_t got = recv(fd, &go, 1, 0);
            if (got == 1 && go == GO)
                return 0;
            if (got == 1)
                return hw_fail(-EPROTO, "plain sockets: unexpected first byte 0x%02x from the server", go);
            if (got < 0 && errno == EINTR)
                continue;
            return got < 0 ? hw_fail(-ECONNRESET, "plain sockets: waiting for the server: %s", strerror(errno))
                           : hw_fail(-ECONNRESET,
                                     "plain sockets: the server closed a stream before it started the transfer");
        }
        if (hw_now() >= deadline)
            return hw_fail(-ETIMEDOUT, "plain sockets: the server did not start the streams before the deadline");
    }
}

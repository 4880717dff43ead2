/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool wire_address(const char *interface, struct sockaddr_in *out)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (struct ifaddrs *a = all; a && !found; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && strcmp(a->ifa_name, interface) == 0) {
            memcpy(out, a->ifa_addr, sizeof(*out));
            out->sin_port = 0;
            found = true;
        }
    freeifaddrs(all);
    return found;
}

static int new_socket(void)
{
    return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int give_up(int fd)
{
    close(fd);
    return -1;
}

int wire_listen(struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int fd = new_socket();
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)at, len) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)at, &len))
        return give_up(fd);
    return fd;
}

static void no_delay(int fd)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

int wire_accept(int fd)
{
    int new = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (new >= 0)
        no_delay(new);
    return new;
}

int wire_connect(const struct sockaddr_in *from, const struct sockaddr_in *to)
{
    int fd = new_socket();
    if (fd < 0)
        return -1;
    no_delay(fd);
    if (bind(fd, (const struct sockaddr *)from, sizeof(*from)))
        return give_up(fd);
    if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) && errno != EINPROGRESS)
        return give_up(fd);
    return fd;
}

int wire_connected(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int err = 0;
    socklen_t len = sizeof(err);
    if (poll(&p, 1, 0) <= 0)
        return 0;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) || err ? -1 : 1;
}

static bool is_ours(const struct sockaddr_in *at)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (struct ifaddrs *a = all; a && !found; a = a->ifa_next)
        found = a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
                ((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr.s_addr == at->sin_addr.s_addr;
    freeifaddrs(all);
    return found;
}

bool wire_is_loopback(int fd)
{
    struct sockaddr_in me = {0}, peer = {0};
    socklen_t a = sizeof(me), b = sizeof(peer);
    if (getsockname(fd, (struct sockaddr *)&me, &a) || getpeername(fd, (struct sockaddr *)&peer, &b))
        return false;
    return ntohl(peer.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET || peer.sin_addr.s_addr == me.sin_addr.s_addr ||
           is_ours(&peer);
}

static bool not_now(void)
{
    return errno == EAGAIN || errno == EINTR;
}

ssize_t wire_put(int fd, const void *from, size_t len)
{
    ssize_t n = send(fd, from, len, MSG_NOSIGNAL);
    return n < 0 && not_now() ? 0 : n;
}

ssize_t wire_get(int fd, void *to, size_t len)
{
    ssize_t n = recv(fd, to, len, 0);
    if (n < 0)
        return not_now() ? 0 : -1;
    return n ? n : -1;
}

ssize_t wire_getv(int fd, struct iovec *iov, int n)
{
    ssize_t got = readv(fd, iov, n);
    if (got < 0)
        return not_now() ? 0 : -1;
    return got ? got : -1;
}

int wire_msg_get(int fd, struct wire_msg *m)
{
    ssize_t n = m->done < m->len ? wire_get(fd, m->bytes + m->done, m->len - m->done) : 0;
    if (n < 0)
        return -1;
    m->done += (size_t)n;
    return m->done == m->len;
}

int wire_msg_put(int fd, struct wire_msg *m)
{
    ssize_t n = m->done < m->len ? wire_put(fd, m->bytes + m->done, m->len - m->done) : 0;
    if (n < 0)
        return -1;
    m->done += (size_t)n;
    return m->done == m->len;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/kernel/fds.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE /* since Linux 5.14; Debian 12's libc headers do not define it */
#define SO_NETNS_COOKIE 71
#endif

/* Returns true if fdinfo has the lines of a dma-buf (dma_buf_show_fdinfo() in drivers/dma-buf/dma-buf.c). */
static bool is_dmabuf(int fd)
{
    char path[40], line[128];
    bool size = false, exporter = false;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        size |= strncmp(line, "size:\t", 6) == 0;
        exporter |= strncmp(line, "exp_name:\t", 10) == 0;
    }
    if (f)
        (void)fclose(f);
    return size && exporter;
}

int hd_fd_dmabuf_size(int fd, uint64_t *size)
{
    *size = 0;
    if (!is_dmabuf(fd))
        return hw_fail(-EBADF, "the descriptor sent with the request is not a dma-buf");
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return hw_fail(-errno, "cannot read the size of the dma-buf: %s", hw_errno_text(errno));
    *size = (uint64_t)end;
    return 0;
}

uint64_t hd_fd_netns(int sock)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);
    return getsockopt(sock, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) == 0 ? cookie : 0;
}

/*
 * To check a client, pass the accepted socket, which the kernel creates in the namespace of the connecting process
 * (unix_stream_connect() in net/unix/af_unix.c). /proc/PID/ns/net cannot be used: reading the link of another user's
 * process requires CAP_SYS_PTRACE, and the process may have exited and its PID may have been reused. The kernel never
 * reuses a cookie.
 */
int hd_fd_same_netns(int sock, uint64_t netns)
{
    uint64_t its = hd_fd_netns(sock);
    if (its == 0 || netns == 0)
        return hw_fail(
            -EOPNOTSUPP,
            "the kernel does not report the network namespace of a socket: hawserd needs Linux 5.14 or later");
    if (its != netns)
        return hw_fail(-EXDEV, "the socket is not in hawserd's network namespace: run a hawserd in each namespace");
    return 0;
}

static int get_option(int fd, int option, int *value)
{
    socklen_t len = sizeof(*value);
    return getsockopt(fd, SOL_SOCKET, option, value, &len);
}

int hd_fd_connection(int fd, uint64_t netns, struct hd_conn *c)
{
    int domain = 0, type = 0, protocol = 0;
    memset(c, 0, sizeof(*c));
    if (get_option(fd, SO_DOMAIN, &domain) < 0 || get_option(fd, SO_TYPE, &type) < 0 ||
        get_option(fd, SO_PROTOCOL, &protocol) < 0 || (domain != AF_INET && domain != AF_INET6) ||
        type != SOCK_STREAM || protocol != IPPROTO_TCP)
        return hw_fail(-EINVAL, "the descriptor sent with the request is not a TCP socket");
    int rc = hd_fd_same_netns(fd, netns);
    if (rc)
        return rc;
    socklen_t l = sizeof(c->local), r = sizeof(c->remote), k = sizeof(c->cookie);
    if (getsockname(fd, &c->local.sa, &l) < 0 || getpeername(fd, &c->remote.sa, &r) < 0)
        return hw_fail(errno == ENOTCONN ? -ENOTCONN : -errno, "only the flow of a connected socket can be steered");
    if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &c->cookie, &k) < 0)
        return hw_fail(-errno, "cannot read the kernel's cookie of a socket: %s", hw_errno_text(errno));
    hw_addr_unmap(&c->local);
    hw_addr_unmap(&c->remote);
    return c->local.sa.sa_family == c->remote.sa.sa_family
               ? 0
               : hw_fail(-EINVAL, "the socket's local and remote addresses have different families");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/devmem/kernel.h"
#include "net/nic.h"
#include "transport/tcp/sock.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/uio.h>

static bool to_self(int fd)
{
    union hw_addr a, b;
    socklen_t len = sizeof(a);
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    if (getsockname(fd, &a.sa, &len))
        return false;
    len = sizeof(b);
    return getpeername(fd, &b.sa, &len) == 0 && hw_addr_same_host(&a, &b);
}

struct dm_sys dm_sys = {.recvmsg = recvmsg, .sendmsg = sendmsg, .setsockopt = setsockopt, .to_self = to_self};

/* Parses one control message of a receive. Returns 0, or 1 if it is not a devmem message. Fails with -EPROTO. */
static int parse_devmem_cmsg(const struct cmsghdr *c, struct dm_received *out)
{
    struct dm_dmabuf_cmsg d;
    if (c->cmsg_level != SOL_SOCKET || (c->cmsg_type != DM_SCM_DEVMEM_DMABUF && c->cmsg_type != DM_SCM_DEVMEM_LINEAR))
        return 1;
    if (c->cmsg_len != CMSG_LEN(sizeof(d)) || out->n == DM_PIECES)
        return hw_fail(-EPROTO, "devmem receive: invalid or surplus control message %u of %zu bytes", out->n,
                       c->cmsg_len);
    memcpy(&d, CMSG_DATA(c), sizeof(d));
    out->piece[out->n++] = (struct dm_piece){.device = c->cmsg_type == DM_SCM_DEVMEM_DMABUF,
                                             .offset = d.frag_offset,
                                             .len = d.frag_size,
                                             .token = d.frag_token,
                                             .dmabuf_id = d.dmabuf_id};
    return 0;
}

ssize_t dm_recv(int fd, void *host, size_t len, struct dm_received *out)
{
    union {
        char buf[DM_PIECES * CMSG_SPACE(sizeof(struct dm_dmabuf_cmsg))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = host, .iov_len = len};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
    ssize_t n;
    out->n = 0;
    out->plain = false;
    do {
        n = dm_sys.recvmsg(fd, &m, MSG_DONTWAIT | DM_MSG_SOCK_DEVMEM);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        if (n == 0)
            return 0;
        if (errno == ENODEV)
            return hw_fail(-ENODEV,
                           "receiving into device memory: %s (data that is not split follows split data, so the "
                           "connection cannot continue)",
                           strerror(ENODEV));
        return hw_sock_explain("receiving into device memory");
    }
    uint64_t sum = 0, seen = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        int rc = parse_devmem_cmsg(c, out);
        if (rc < 0)
            return rc;
        if (rc == 0)
            sum += out->piece[out->n - 1].len;
        seen++;
    }
    if (!seen) {
        out->plain = true;
        out->piece[out->n++] = (struct dm_piece){.len = (uint32_t)n};
        return n;
    }
    if (sum != (uint64_t)n || m.msg_flags & MSG_CTRUNC)
        return hw_fail(-EPROTO, "devmem receive: %zd bytes arrived, but the control messages describe %llu%s", n,
                       (unsigned long long)sum, m.msg_flags & MSG_CTRUNC ? ", and some were cut off" : "");
    return n;
}

int dm_give_back(int fd, const uint32_t *tokens, size_t n)
{
    int taken = 0;
    while (n) {
        struct dm_token_range r[DM_TOKENS_MAX];
        unsigned k = 0;
        size_t i = 0;
        for (; i < n && i < DM_FRAGS_MAX; i++) {
            if (k && r[k - 1].start + r[k - 1].count == tokens[i])
                r[k - 1].count++;
            else if (k == DM_TOKENS_MAX)
                break;
            else
                r[k++] = (struct dm_token_range){.start = tokens[i], .count = 1};
        }
        int rc = dm_sys.setsockopt(fd, SOL_SOCKET, DM_SO_DEVMEM_DONTNEED, r, k * sizeof(r[0]));
        if (rc < 0)
            return hw_fail(-errno, "releasing pages of device memory: %s", strerror(errno));
        taken += rc;
        tokens += i;
        n -= i;
    }
    return taken;
}

ssize_t dm_send(int fd, uint32_t dmabuf_id, uint64_t offset, size_t len, bool more)
{
    union {
        char buf[CMSG_SPACE(sizeof(uint32_t))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)offset, .iov_len = len};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = DM_SCM_DEVMEM_DMABUF;
    c->cmsg_len = CMSG_LEN(sizeof(dmabuf_id));
    memcpy(CMSG_DATA(c), &dmabuf_id, sizeof(dmabuf_id));
    ssize_t n;
    do {
        n = dm_sys.sendmsg(fd, &m, MSG_ZEROCOPY | MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    } while (n < 0 && errno == EINTR);
    return n >= 0 ? n : hw_sock_explain("sending from device memory");
}

int dm_reap(int fd, void (*over)(void *arg, uint32_t first, uint32_t last), void *arg)
{
    for (;;) {
        union {
            char buf[CMSG_SPACE(sizeof(struct sock_extended_err)) + CMSG_SPACE(sizeof(struct sockaddr_in6))];
            struct cmsghdr align;
        } control;
        struct msghdr m = {.msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
        ssize_t n = dm_sys.recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : hw_fail(-errno, "reading the completions of sends: %s", strerror(errno));
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            struct sock_extended_err e;
            if (c->cmsg_len < CMSG_LEN(sizeof(e)) || !((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
                                                       (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR)))
                continue;
            memcpy(&e, CMSG_DATA(c), sizeof(e));
            /* Documentation/networking/msg_zerocopy.rst: [ee_info, ee_data] is a range of sends */
            if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY)
                over(arg, e.ee_info, e.ee_data);
        }
    }
}

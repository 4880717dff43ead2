/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/kernel/diag.h"

#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>

/* size of the queue for reports, in bytes; a report takes about 1 KiB with the kernel's overhead */
#define EVENTS_ROOM (4 << 20)

/* ---- looks -------------------------------------------------------------------------------------- */

static void put_connection(struct inet_diag_req_v2 *q, int ifindex, const struct hd_conn *c)
{
    q->sdiag_family = (uint8_t)c->local.sa.sa_family;
    q->sdiag_protocol = IPPROTO_TCP;
    q->idiag_states = UINT32_MAX;
    q->id.idiag_if = (uint32_t)ifindex;
    q->id.idiag_cookie[0] = q->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    q->id.idiag_sport = htons(hw_addr_port(&c->local));
    q->id.idiag_dport = htons(hw_addr_port(&c->remote));
    if (c->local.sa.sa_family == AF_INET) {
        q->id.idiag_src[0] = c->local.in.sin_addr.s_addr;
        q->id.idiag_dst[0] = c->remote.in.sin_addr.s_addr;
    } else {
        memcpy(q->id.idiag_src, &c->local.in6.sin6_addr, sizeof(q->id.idiag_src));
        memcpy(q->id.idiag_dst, &c->remote.in6.sin6_addr, sizeof(q->id.idiag_dst));
    }
}

static uint64_t cookie_of(const struct inet_diag_msg *d)
{
    return d->id.idiag_cookie[0] | (uint64_t)d->id.idiag_cookie[1] << 32;
}

struct look {
    const struct hd_conn *c;
    bool found;
};

/* Checks the cookie, because the kernel returns a listening socket on the same port if the connection does not exist.
 * Checks the inode, because a connection in TIME_WAIT still has the cookie of its socket; a connection in TIME_WAIT or
 * with a closed socket has no inode. */
static int match_connection(const struct nlmsghdr *h, void *arg)
{
    struct look *l = arg;
    const struct inet_diag_msg *d = mnl_nlmsg_get_payload(h);
    l->found |= mnl_nlmsg_get_payload_len(h) >= sizeof(*d) && cookie_of(d) == l->c->cookie && d->idiag_inode != 0;
    return 0;
}

int hd_diag_alive(struct hw_netlink *nl, int ifindex, const struct hd_conn *c)
{
    _Alignas(struct nlmsghdr) char buf[HW_NETLINK_REQUEST];
    struct look l = {.c = c};
    if (nl->fd < 0)
        return hw_fail(-EOPNOTSUPP,
                       "sock_diag is not available, but hawserd needs it to notice the end of a connection");
    struct nlmsghdr *h = hw_netlink_request(buf, sizeof(buf), SOCK_DIAG_BY_FAMILY, 0);
    put_connection(mnl_nlmsg_put_extra_header(h, sizeof(struct inet_diag_req_v2)), ifindex, c);
    int rc = hw_netlink_talk(nl, h, match_connection, &l, "querying a connection with sock_diag");
    return rc == -ENOENT ? 0 : rc ? rc : l.found;
}

/* ---- reports ------------------------------------------------------------------------------------ */

int hd_diag_events_open(void)
{
    struct sockaddr_nl me = {.nl_family = AF_NETLINK};
    int room = EVENTS_ROOM;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    /* An unbound socket has port 0 and receives no reports (net/netlink/af_netlink.c). */
    if (fd < 0 || bind(fd, (struct sockaddr *)&me, sizeof(me)) < 0) {
        int rc = hw_fail(-errno, "cannot create a netlink socket for reports of sock_diag: %s", hw_errno_text(errno));
        hw_close(&fd);
        return rc;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    return fd;
}

int hd_diag_events_set(int fd, bool on)
{
    /* The group depends on the family of the socket, which is AF_INET6 for IPv4 over an IPv6 socket. */
    static const int groups[] = {SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY};
    for (size_t i = 0; i < HW_ARRAY_LEN(groups); i++)
        if (setsockopt(fd, SOL_NETLINK, on ? NETLINK_ADD_MEMBERSHIP : NETLINK_DROP_MEMBERSHIP, &groups[i],
                       sizeof(groups[i])) < 0)
            return hw_fail(
                -errno,
                on ? "cannot subscribe to sock_diag's reports of destroyed sockets: %s (check that the module "
                     "tcp_diag is loaded)"
                   : "cannot end the subscription to sock_diag's reports of destroyed sockets: %s",
                hw_errno_text(errno));
    return 0;
}

unsigned hd_diag_events(int fd, uint64_t *cookie, unsigned cap, bool *lost)
{
    _Alignas(struct nlmsghdr) char buf[4096];
    unsigned n = 0;
    *lost = false;
    for (unsigned i = 0; i < cap; i++) {
        struct sockaddr_nl from = {0};
        socklen_t len = sizeof(from);
        ssize_t got = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);
        if (got < 0 && errno == ENOBUFS)
            *lost = true;
        else if (got < 0 && errno != EINTR)
            break;
        const struct nlmsghdr *m = (const struct nlmsghdr *)buf;
        /* Any process may send to a netlink socket. Only messages from the kernel have port 0. */
        if (got <= 0 || from.nl_pid != 0 || !mnl_nlmsg_ok(m, (int)got) || m->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
            mnl_nlmsg_get_payload_len(m) < sizeof(struct inet_diag_msg))
            continue;
        cookie[n++] = cookie_of(mnl_nlmsg_get_payload(m));
    }
    return n;
}

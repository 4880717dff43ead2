/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/diag.h"

#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>

int hd_diag_open(void)
{
    struct timeval wait = {.tv_sec = 10};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0)
        return hw_fail(-errno, "a netlink socket of sock_diag: %s", hw_errno_name(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    return fd;
}

static void fill(struct inet_diag_req_v2 *q, const union hw_addr *local, const union hw_addr *remote)
{
    q->sdiag_family = (uint8_t)local->sa.sa_family;
    q->sdiag_protocol = IPPROTO_TCP;
    q->idiag_states = UINT32_MAX;
    q->id.idiag_cookie[0] = q->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (local->sa.sa_family == AF_INET) {
        q->id.idiag_sport = local->in.sin_port;
        q->id.idiag_dport = remote->in.sin_port;
        q->id.idiag_src[0] = local->in.sin_addr.s_addr;
        q->id.idiag_dst[0] = remote->in.sin_addr.s_addr;
        return;
    }
    q->id.idiag_sport = local->in6.sin6_port;
    q->id.idiag_dport = remote->in6.sin6_port;
    q->id.idiag_if = local->in6.sin6_scope_id;
    memcpy(q->id.idiag_src, &local->in6.sin6_addr, sizeof(q->id.idiag_src));
    memcpy(q->id.idiag_dst, &remote->in6.sin6_addr, sizeof(q->id.idiag_dst));
}

static int ask(int fd, int ifindex, const union hw_addr *local, const union hw_addr *remote, uint64_t inode)
{
    _Alignas(struct nlmsghdr) char buf[8192];
    static uint32_t seq;
    memset(buf, 0, MNL_NLMSG_HDRLEN + sizeof(struct inet_diag_req_v2));
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = SOCK_DIAG_BY_FAMILY;
    h->nlmsg_flags = NLM_F_REQUEST;
    h->nlmsg_seq = ++seq;
    struct inet_diag_req_v2 *q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
    fill(q, local, remote);
    if (ifindex)
        q->id.idiag_if = (uint32_t)ifindex;
    if (send(fd, h, h->nlmsg_len, 0) < 0)
        return hw_fail(-errno, "asking sock_diag: %s", hw_errno_name(errno));
    for (;;) {
        ssize_t n = recv(fd, buf, sizeof(buf), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return hw_fail(-errno, "sock_diag's answer: %s", hw_errno_name(errno));
        const struct nlmsghdr *m = (const struct nlmsghdr *)buf;
        if (!mnl_nlmsg_ok(m, (int)n) || m->nlmsg_seq != seq)
            continue;
        if (m->nlmsg_type == NLMSG_ERROR) {
            int err = ((const struct nlmsgerr *)mnl_nlmsg_get_payload(m))->error;
            return err == -ENOENT ? 0 : hw_fail(err ? err : -EPROTO, "sock_diag: %s", hw_errno_name(err));
        }
        /* With no such connection the kernel shows one that listens at its port, which is another socket; one that its
         * process has closed has inode 0. */
        const struct inet_diag_msg *d = mnl_nlmsg_get_payload(m);
        return mnl_nlmsg_get_payload_len(m) >= sizeof(*d) && d->idiag_inode == (uint32_t)inode;
    }
}

int hd_diag_alive(int fd, int ifindex, const union hw_addr *local, const union hw_addr *remote, uint64_t inode)
{
    int rc = ask(fd, 0, local, remote, inode);
    return rc ? rc : ask(fd, ifindex, local, remote, inode);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/netlink.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A dump arrives in datagrams of at most 32 KiB (net/netlink/af_netlink.c), but some datagrams are larger: the
 * alternative names of one device take up to 64 KiB (rtnl_alt_ifname() in net/core/rtnetlink.c), as do a device's
 * virtual functions. */
#define REPLY_MAX (256u << 10)
#define DUMPS     10 /* times that a dump is repeated if the objects change */

static const char *name_protocol(int protocol)
{
    switch (protocol) {
    case NETLINK_ROUTE:
        return "creating a route-netlink socket";
    case NETLINK_GENERIC:
        return "creating a generic-netlink socket";
    case NETLINK_SOCK_DIAG:
        return "creating a netlink socket for sock_diag";
    default:
        return "creating a netlink socket";
    }
}

int hw_netlink_open(struct hw_netlink *nl, int protocol)
{
    hw_netlink_adopt(nl, socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
    if (nl->fd < 0)
        return hw_fail(-errno, "%s: %s", name_protocol(protocol), strerror(errno));
    /* Request error texts, and acknowledgements without a copy of the request. Old kernels lack these options, which is
     * harmless. */
    int one = 1;
    (void)setsockopt(nl->fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
    (void)setsockopt(nl->fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
    /* The kernel answers during the send and receive calls, so this timeout should never expire. */
    struct timeval wait = {.tv_sec = 10};
    (void)setsockopt(nl->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    return 0;
}

void hw_netlink_adopt(struct hw_netlink *nl, int fd)
{
    *nl = (struct hw_netlink){.fd = fd};
}

void hw_netlink_close(struct hw_netlink *nl)
{
    hw_close(&nl->fd);
}

int hw_netlink_join(struct hw_netlink *nl, uint32_t group)
{
    if (setsockopt(nl->fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
        return hw_fail(-errno, "joining a netlink group: %s", strerror(errno));
    return 0;
}

struct nlmsghdr *hw_netlink_request(void *buf, size_t size, uint16_t type, uint16_t flags)
{
    memset(buf, 0, size);
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = type;
    h->nlmsg_flags = NLM_F_REQUEST | flags;
    return h;
}

/* Returns the kernel's explanation of why it refused the request, or NULL. */
static const char *find_reason(const struct nlmsghdr *h)
{
    const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);
    if (!(h->nlmsg_flags & NLM_F_ACK_TLVS))
        return NULL;
    size_t skip = sizeof(*e);
    if (!(h->nlmsg_flags & NLM_F_CAPPED))
        skip += mnl_nlmsg_get_payload_len(&e->msg);
    const struct nlattr *a;
    mnl_attr_for_each(a, h, skip)
    {
        if (mnl_attr_get_type(a) == NLMSGERR_ATTR_MSG && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
            return mnl_attr_get_str(a);
    }
    return NULL;
}

/* Reads the result in the last message of a reply. Returns 0, or -errno and sets hw_error(). */
static int read_netlink_result(const struct nlmsghdr *m, const char *what)
{
    if (m->nlmsg_type == NLMSG_DONE) {
        /* The last message of an aborted dump contains the error (netlink_dump_done() in net/netlink/af_netlink.c). */
        const int *err = mnl_nlmsg_get_payload(m);
        if (mnl_nlmsg_get_payload_len(m) >= sizeof(*err) && *err < 0)
            return hw_fail(*err, "%s: %s", what, strerror(-*err));
        return 0;
    }
    const struct nlmsgerr *e = mnl_nlmsg_get_payload(m);
    if (e->error == 0)
        return 0;
    const char *why = find_reason(m);
    return hw_fail(e->error, "%s: %s%s%s", what, strerror(-e->error), why ? ": " : "", why ? why : "");
}

/* Receives the replies to the latest request into buf (REPLY_MAX bytes), up to the final reply. */
static int take_answers(struct hw_netlink *nl, char *buf, hw_netlink_fn fn, void *arg, const char *what)
{
    int rc = 0;
    for (;;) {
        ssize_t n = recv(nl->fd, buf, REPLY_MAX, MSG_TRUNC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return hw_fail(-errno, "%s: receiving the kernel's answer: %s", what, strerror(errno));
        if ((size_t)n > REPLY_MAX)
            return hw_fail(-EMSGSIZE, "%s: the kernel's answer of %zd bytes exceeds %u bytes", what, n, REPLY_MAX);
        int left = (int)n;
        const struct nlmsghdr *m = (const struct nlmsghdr *)(void *)buf;
        for (; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left)) {
            /* Multicast messages have the kernel's own sequence numbers, and port 0. */
            if (nl->heard && m->nlmsg_pid == 0 && m->nlmsg_type >= NLMSG_MIN_TYPE) {
                (void)nl->heard(m, arg);
                continue;
            }
            if (m->nlmsg_seq != nl->seq)
                continue; /* a late reply to an earlier request, or a multicast message to be dropped */
            nl->torn |= (m->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
            if (m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == NLMSG_ERROR)
                return rc ? rc : read_netlink_result(m, what);
            if (rc == 0 && fn)
                rc = fn(m, arg);
        }
    }
}

int hw_netlink_talk(struct hw_netlink *nl, struct nlmsghdr *h, hw_netlink_fn fn, void *arg, const char *what)
{
    bool dump = (h->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP; /* these two bits are also NLM_F_REPLACE and NLM_F_EXCL */
    if (!dump)
        h->nlmsg_flags |= NLM_F_ACK;
    h->nlmsg_seq = ++nl->seq;
    nl->torn = false;
    char *buf = malloc(REPLY_MAX);
    if (!buf)
        return hw_no_memory("the kernel's answer: %s", what);

    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t n;
    do {
        n = sendto(nl->fd, h, h->nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel));
    } while (n < 0 && errno == EINTR);
    int rc = n < 0 ? hw_fail(-errno, "%s: sending to the kernel: %s", what, strerror(errno))
                   : take_answers(nl, buf, fn, arg, what);
    free(buf);
    return rc;
}

int hw_netlink_dump(struct hw_netlink *nl, struct nlmsghdr *h, hw_netlink_fn fn, void *arg, size_t size,
                    const char *what)
{
    char first[HW_NETLINK_ARG];
    assert(size <= sizeof(first));
    memcpy(first, arg, size);
    for (int i = 0; i < DUMPS; i++) {
        memcpy(arg, first, size);
        int rc = hw_netlink_talk(nl, h, fn, arg, what);
        if (rc < 0 || !nl->torn)
            return rc;
    }
    return hw_fail(-EAGAIN, "%s: the list changed during each of %d reads", what, DUMPS);
}

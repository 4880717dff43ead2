/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The talk with the kernel by netlink, for every protocol: a request, its answers, and the kernel's own words on why it
 * refused. A socket belongs to the network namespace that the calling thread was in when it was opened, and keeps
 * working on it from anywhere. One thread at a time uses a socket.
 */
#ifndef HW_SYS_NETLINK_H
#define HW_SYS_NETLINK_H

#include "base/base.h"

#include <libmnl/libmnl.h>

/* Called for each message that answers a request; returns 0 or -errno, which is the talk's result. */
typedef int (*hw_netlink_fn)(const struct nlmsghdr *h, void *arg);

struct hw_netlink {
    int fd; /* -1: closed */
    uint32_t seq;
    bool torn;           /* what the last dump listed changed under it (NLM_F_DUMP_INTR): dump again */
    hw_netlink_fn heard; /* called for what comes by multicast while an answer is waited for; NULL: it is dropped */
};

/* Opens a socket of this protocol (NETLINK_ROUTE, ...) in the calling thread's network namespace. -errno. */
int hw_netlink_open(struct hw_netlink *nl, int protocol);
/* Takes over a socket made elsewhere (in another namespace, say). */
void hw_netlink_adopt(struct hw_netlink *nl, int fd);
void hw_netlink_close(struct hw_netlink *nl);
/* What the multicast group says comes in from now on. */
int hw_netlink_join(struct hw_netlink *nl, uint32_t group);

#define HW_NETLINK_REQUEST 2048 /* bytes; room for what has no attributes of unbounded length */
/* A request in buf, size bytes, without its family's header. */
struct nlmsghdr *hw_netlink_request(void *buf, size_t size, uint16_t type, uint16_t flags);
/* Sends h, which is complete but for its sequence number, and hands the answers to fn (may be NULL), up to the
 * acknowledgement or the end of a dump; 10 s at most. what: for the error's text. -errno, the kernel's too. */
int hw_netlink_talk(struct hw_netlink *nl, struct nlmsghdr *h, hw_netlink_fn fn, void *arg, const char *what);

#endif

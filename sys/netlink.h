/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Netlink for every protocol: a request, its replies, and the kernel's text on why it refused. A socket belongs to the
 * network namespace that the calling thread was in when the socket was opened, and works on that namespace from
 * anywhere. Only one thread at a time may use a socket.
 */
#ifndef HW_SYS_NETLINK_H
#define HW_SYS_NETLINK_H

#include "base/base.h"

#include <libmnl/libmnl.h>

/* Called for each message of a reply; returns 0 or -errno, which becomes the result. */
typedef int (*hw_netlink_fn)(const struct nlmsghdr *h, void *arg);

struct hw_netlink {
    int fd; /* -1: closed */
    uint32_t seq;
    bool torn;           /* the objects changed during the last dump (NLM_F_DUMP_INTR): repeat the dump */
    hw_netlink_fn heard; /* called for multicast messages that arrive during a request; NULL: they are dropped */
};

/* Opens a socket of this protocol (NETLINK_ROUTE, ...) in the calling thread's network namespace. -errno. */
int hw_netlink_open(struct hw_netlink *nl, int protocol);
/* Takes over a socket made elsewhere (in another namespace, for example). */
void hw_netlink_adopt(struct hw_netlink *nl, int fd);
void hw_netlink_close(struct hw_netlink *nl);
/* Joins a multicast group. */
int hw_netlink_join(struct hw_netlink *nl, uint32_t group);

#define HW_NETLINK_REQUEST 2048 /* bytes; enough for requests without attributes of unbounded length */
/* Starts a request in buf, size bytes, without its family's header. */
struct nlmsghdr *hw_netlink_request(void *buf, size_t size, uint16_t type, uint16_t flags);
/* Sends h, which is complete except for its sequence number, and passes the replies to fn (may be NULL) up to the
 * acknowledgement or the end of a dump, for at most 10 s. what: for the error text. -errno, also the kernel's. */
int hw_netlink_talk(struct hw_netlink *nl, struct nlmsghdr *h, hw_netlink_fn fn, void *arg, const char *what);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Netlink for every protocol. Sends a request, and receives the replies or, if the kernel refuses the request, the
 * kernel's explanation. A socket belongs to the network namespace in which it was opened, and always operates on that
 * namespace, even if the thread moves to another namespace. Only one thread at a time may use a socket.
 */
#ifndef HW_SYS_NETLINK_H
#define HW_SYS_NETLINK_H

#include "base/base.h"

#include <libmnl/libmnl.h>

/* A function that is called for each message of a reply. A result other than 0 becomes the result of the request, and
 * the remaining replies are dropped. */
typedef int (*hw_netlink_fn)(const struct nlmsghdr *h, void *arg);

struct hw_netlink {
    int fd; /* -1 if closed */
    uint32_t seq;
    bool torn;           /* the objects changed during the last dump (NLM_F_DUMP_INTR), which may be inconsistent */
    hw_netlink_fn heard; /* called with the request's arg for each multicast message that arrives during a request; its
                            result is ignored; NULL drops the messages */
};

/* Opens a socket for a protocol such as NETLINK_ROUTE in the calling thread's network namespace. Returns 0 or
 * -errno. */
int hw_netlink_open(struct hw_netlink *nl, int protocol);
/* Takes ownership of a socket that was opened elsewhere, for example in another namespace. Does not set socket
 * options. */
void hw_netlink_adopt(struct hw_netlink *nl, int fd);
void hw_netlink_close(struct hw_netlink *nl);
/* Joins a multicast group. */
int hw_netlink_join(struct hw_netlink *nl, uint32_t group);

#define HW_NETLINK_REQUEST 2048 /* bytes; enough for a request whose attributes have bounded lengths */
/* Starts a request in buf, which has size bytes. The caller adds the header of the family. */
struct nlmsghdr *hw_netlink_request(void *buf, size_t size, uint16_t type, uint16_t flags);
/* Sends h, after setting its sequence number and, except for a dump, NLM_F_ACK. Passes the replies to fn, which may be
 * NULL, up to the acknowledgement or the end of a dump. Waits at most 10 s for each reply if hw_netlink_open() opened
 * the socket. `what` begins the error text. Returns 0, fn's result, or -errno, which may be the kernel's. */
int hw_netlink_talk(struct hw_netlink *nl, struct nlmsghdr *h, hw_netlink_fn fn, void *arg, const char *what);
/* Does the same for a dump, and repeats a dump during which the objects changed. Resets the size bytes at arg, at most
 * HW_NETLINK_ARG, before each repetition. Returns -EAGAIN if the objects changed during each of several dumps. */
#define HW_NETLINK_ARG 128
int hw_netlink_dump(struct hw_netlink *nl, struct nlmsghdr *h, hw_netlink_fn fn, void *arg, size_t size,
                    const char *what);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "net/carrier.h"
#include "net/rtattr.h"

#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Maximum bytes of one read from the kernel; a message is usually a few KiB long (net/core/rtnetlink.c). */
#define MESSAGES_MAX 32768

int hw_carrier_open(void)
{
    struct sockaddr_nl me = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&me, sizeof(me)) < 0) {
        int rc = hw_fail(-errno, "subscribing to the kernel's link events: %s", strerror(errno));
        hw_close(&fd);
        return rc;
    }
    return fd;
}

/* Reads the NIC's name. Returns false if the message contains no name. */
static bool read_name(const struct nlmsghdr *h, char name[HAWSER_NIC_NAME])
{
    const struct ifinfomsg *m = NLMSG_DATA(h);
    size_t len = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
    const struct rtattr *a = hw_rtattr_find(IFLA_RTA(m), len, IFLA_IFNAME);
    size_t n = a ? HW_MIN(RTA_PAYLOAD(a), (size_t)HAWSER_NIC_NAME - 1) : 0;
    if (n)
        memcpy(name, RTA_DATA(a), n);
    name[n] = 0;
    return *name;
}

static void tell_message(const struct nlmsghdr *h, void (*tell)(void *arg, const char *nic, bool up), void *arg)
{
    const struct ifinfomsg *m = NLMSG_DATA(h);
    const unsigned both = IFF_UP | IFF_RUNNING;
    char name[HAWSER_NIC_NAME];
    if ((h->nlmsg_type != RTM_NEWLINK && h->nlmsg_type != RTM_DELLINK) || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)) ||
        /* AF_BRIDGE messages describe a port's state in its bridge */
        m->ifi_family == AF_BRIDGE || !read_name(h, name))
        return;
    tell(arg, name, h->nlmsg_type == RTM_NEWLINK && (m->ifi_flags & both) == both);
}

void hw_carrier_read(int fd, void (*tell)(void *arg, const char *nic, bool up), void *arg)
{
    char *buf = malloc(MESSAGES_MAX);
    while (buf) {
        struct sockaddr_nl from = {0};
        socklen_t from_len = sizeof(from);
        ssize_t n = recvfrom(fd, buf, MESSAGES_MAX, MSG_TRUNC, (struct sockaddr *)&from, &from_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n > 0 && from.nl_pid != 0) /* not from the kernel */
            continue;
        if (n > MESSAGES_MAX || (n < 0 && errno == ENOBUFS)) {
            tell(arg, NULL, false);
            continue;
        }
        if (n <= 0)
            break;
        size_t left = (size_t)n;
        for (const struct nlmsghdr *h = (const void *)buf; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
            tell_message(h, tell, arg);
    }
    if (!buf)
        tell(arg, NULL, false);
    free(buf);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a TCP connection has ended, by sock_diag. The kernel reports a socket that is destroyed, to the network
 * namespace of the socket. It reports no connection that ends while its socket goes on: one that the other end resets,
 * or that the owner dissolves by connect() with AF_UNSPEC. A look finds these.
 */
#ifndef HW_HELPER_DIAG_H
#define HW_HELPER_DIAG_H

#include "helper/kernel/kernel.h"
#include "sys/netlink.h"

/* 1: packets of these ends that arrive at NIC ifindex find this very socket, and a process has it open; 0: they do not;
 * -errno. nl: of NETLINK_SOCK_DIAG, or closed where the kernel has none. */
int hd_diag_alive(struct hw_netlink *nl, int ifindex, const struct hd_conn *c);

int hd_diag_events_open(void); /* a descriptor for reports, none of which come yet */
int hd_diag_events_set(int fd, bool on);
/* Takes up to cap cookies of destroyed TCP sockets. lost: the kernel had no room for some. Returns how many. */
unsigned hd_diag_events(int fd, uint64_t *cookie, unsigned cap, bool *lost);

#endif

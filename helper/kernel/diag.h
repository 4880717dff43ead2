/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Determines through sock_diag whether a TCP connection has ended. The kernel reports destroyed sockets of a network
 * namespace. It does not report the end of a connection whose socket stays open, for example after a reset by the peer
 * or a connect() with AF_UNSPEC. Such an end is found only by a check of the connection.
 */
#ifndef HW_HELPER_DIAG_H
#define HW_HELPER_DIAG_H

#include "helper/kernel/kernel.h"
#include "sys/netlink.h"

/* Returns 1 if packets of this connection that arrive at NIC ifindex reach the socket with the connection's cookie, and
 * a process has this socket open. Otherwise returns 0, or -errno. nl is a socket of NETLINK_SOCK_DIAG, or closed if the
 * kernel lacks sock_diag. */
int hd_diag_alive(struct hw_netlink *nl, int ifindex, const struct hd_conn *c);

/* Returns a descriptor for reports of destroyed sockets, or -errno. Reports are initially off. */
int hd_diag_events_open(void);
int hd_diag_events_set(int fd, bool on);
/* Reads up to cap cookies of destroyed TCP sockets. Returns the number of cookies. Sets *lost to true if the kernel
 * dropped reports. */
unsigned hd_diag_events(int fd, uint64_t *cookie, unsigned cap, bool *lost);

#endif

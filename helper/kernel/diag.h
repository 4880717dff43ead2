/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Determines through sock_diag whether a TCP connection has ended. The kernel reports a destroyed socket to the
 * socket's network namespace. It does not report a connection that ends while its socket stays open: one that the other
 * end resets, or that the owner dissolves with connect() to AF_UNSPEC. Only a check finds these.
 */
#ifndef HW_HELPER_DIAG_H
#define HW_HELPER_DIAG_H

#include "helper/kernel/kernel.h"
#include "sys/netlink.h"

/* Returns 1 if packets with these ends that arrive at NIC ifindex reach this very socket and a process has it open; 0
 * if not; -errno. nl: of NETLINK_SOCK_DIAG, or closed if the kernel lacks that. */
int hd_diag_alive(struct hw_netlink *nl, int ifindex, const struct hd_conn *c);

int hd_diag_events_open(void); /* a descriptor for reports, which are off at first */
int hd_diag_events_set(int fd, bool on);
/* Reads up to cap cookies of destroyed TCP sockets. lost: the kernel dropped some. Returns how many. */
unsigned hd_diag_events(int fd, uint64_t *cookie, unsigned cap, bool *lost);

#endif

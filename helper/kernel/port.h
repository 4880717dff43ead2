/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flow rule names the two ends of a connection. Its owner can dissolve the connection within one system call, and
 * hawserd learns it later: in between, another user's connection may get the same local port, and with the same server
 * the same ends. So hawserd holds the local port for as long as the rule is on the NIC: a socket of its own, bound to
 * it, beside the connection's. Nobody gets a held port by connect() or bind(), and the holder's end, however it comes,
 * lets go of it. Only ports that the kernel gives out by itself (net.ipv4.ip_local_port_range) are held: a server that
 * is started again needs its own port at once.
 */
#ifndef HW_HELPER_PORT_H
#define HW_HELPER_PORT_H

#include "net/nic.h"

/* *sock: to be closed, or -1 where the port is not one of those. */
int hd_port_hold(const union hw_addr *local, int *sock);

#endif

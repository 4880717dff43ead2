/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds ports. A flow rule names the two ends of a connection. The connection's owner can dissolve it in one system
 * call, and hawserd learns of that later: in between, another user's connection may get the same local port, and with
 * the same server the same ends. So hawserd holds the local port while the rule is on the NIC, with a socket of its own
 * that is bound to the same port. No connect() or bind() can get a held port, and the port is released when the holder
 * ends, for whatever reason. Only ephemeral ports (net.ipv4.ip_local_port_range) are held: a restarted server needs its
 * own port at once.
 */
#ifndef HW_HELPER_PORT_H
#define HW_HELPER_PORT_H

#include "net/nic.h"

/* The caller frees *sock; -1 if the port is not an ephemeral one. */
int hd_port_hold(const union hw_addr *local, int *sock);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserves the local ports of connections for which there are flow rules. A flow rule matches the two endpoints of a
 * connection. The owner of the connection can dissolve it with a single system call, and hawserd detects this only
 * later. Until then, another user's connection to the same server may get the same local port, and so have the same
 * endpoints.
 *
 * hawserd therefore keeps a socket bound to the local endpoint as long as the rule is on the NIC. No ordinary connect()
 * or bind() can then get this address and port, and the kernel releases them when hawserd exits for any reason. Only
 * ephemeral ports (net.ipv4.ip_local_port_range) are reserved, because a server that is restarted needs its port
 * immediately.
 */
#ifndef HW_HELPER_PORT_H
#define HW_HELPER_PORT_H

#include "net/nic.h"

/* Reserves the port of local. *sock is set to a socket that the caller must close, or to -1 if the port is not
 * ephemeral. */
int hd_port_hold(const union hw_addr *local, int *sock);

#endif

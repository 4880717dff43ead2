/* SPDX-License-Identifier: Apache-2.0 */
/* Connections from 10.9.0.1 to a server at 10.9.0.2:9999, both on lo of a separate network namespace. */
#ifndef TESTS_HELPER_NET_H
#define TESTS_HELPER_NET_H

#include "net/nic.h"

/* Enters a new network namespace with these addresses. Returns false if this is not possible. */
bool net_make(void);
/* Sets net.ipv4.ip_local_port_range. */
void net_ports(unsigned from, unsigned to);
/* v6: 1 for an IPv4-mapped IPv6 address. */
union hw_addr net_address(const char *text, unsigned port, int v6);
int net_server(void);
/* Resets the connection, and closes the socket. */
void net_reset(int *fd);
/* Ends the connection, but keeps the socket open. */
void net_dissolve(int fd);

#endif

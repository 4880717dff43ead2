/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP connections for a rail. Any stream socket works. A rail with such connections must be on the loop of a driver.
 * Data in memory that the CPU cannot access passes through rings of host memory (staging.h).
 */
#ifndef HW_TCP_H
#define HW_TCP_H

#include "base/knob.h"
#include "core/driver.h"
#include "transport/transport.h"

extern const struct hw_rail_io hw_tcp_io;
extern const struct hw_transport hw_tcp;

/* Drops staged bytes that were not sent, because the caller sends them in another way. Returns 0, or a negative errno
 * that ends the connection. */
int hw_tcp_drop_staged(struct hw_conn *c);
/* Creates a connection from a connected socket, and takes ownership of the socket. If out of memory, closes the socket
 * and returns NULL. k and log must outlive the connection. */
struct hw_conn *hw_tcp_new(int fd, const struct hw_knobs *k, const struct hw_logger *log);
/* Makes the connection add to these counts from now on. */
void hw_tcp_count(struct hw_conn *c, struct hw_tp_counts *counts);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP connections under a rail: any stream socket does. A rail on them has to be on the loop of a driver. Memory that
 * the CPU cannot use passes through rings of pinned memory (staging.h).
 */
#ifndef HW_TCP_H
#define HW_TCP_H

#include "base/knob.h"
#include "core/driver.h"
#include "transport/transport.h"

extern const struct hw_rail_io hw_tcp_io;
extern const struct hw_transport hw_tcp;

/* Drops bytes that were staged and not sent: the caller sends them another way. 0, or -errno, which ends the
 * connection. */
int hw_tcp_drop_staged(struct hw_conn *c);
/* A connection for hw_session_start() over a socket that is connected; the descriptor is the connection's. NULL: no
 * memory, and the descriptor is closed. k and log outlive it. */
struct hw_conn *hw_tcp_new(int fd, const struct hw_knobs *k, const struct hw_logger *log);
/* From here on what the connection does is counted there, too. */
void hw_tcp_count(struct hw_conn *c, struct hw_tp_counts *counts);

#endif

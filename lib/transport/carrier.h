/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rail's connections are made by a transport: from a socket over which both sides have proved the session's
 * secret. One const table each. On it the two transports may have to meet first, before a rail starts with the
 * connection; until then it is driven by one thread at a time, whoever that is.
 */
#ifndef HW_CARRIER_H
#define HW_CARRIER_H

#include "core/rail.h"
#include "transport/transport.h"

/* Payload bytes, as struct hw_tp_counts has them: of all connections of a rail, in all its generations. Any thread
 * reads. */
struct hw_carrier_counts {
    _Atomic uint64_t rx_device, rx_copied, tx_device;
};

/* Which connection it is, and between whom. What is pointed to outlives the connection. */
struct hw_carrier_args {
    const struct hw_tp_env *env;
    bool client;
    bool small_only;           /* it carries small frames, and needs nothing but the socket */
    struct hw_conn_ident id;   /* the GPUs only on the client's side */
    const struct hw_nic *from; /* client */
    const union hw_addr *to;   /* client: the peer's listener */
    struct hw_carrier_counts *counts;
};

struct hw_carrier {
    const struct hw_rail_io *io;
    /* Makes a connection over fd, and takes it in any case. -errno. */
    int (*make)(int fd, const struct hw_carrier_args *a, struct hw_conn **out);

    /* What follows is NULL where a connection is ready at once. */

    /* Drives it on: 0 once a rail may start with it; -EAGAIN: call again when meeting_fd() is readable, by edges, and
     * every 100 ms; else why it is dead. */
    int (*meet)(struct hw_conn *c);
    int (*meeting_fd)(const struct hw_conn *c);
    /* The peer's transport has made a second connection for this one, authenticated too (HW_BOOT_SIDE). Takes fd. NULL:
     * it never does. */
    void (*side)(struct hw_conn *c, int fd);
};

/* Adds to the rail's counts what a connection has counted since the last time: on the rail's loop. */
static inline void hw_carrier_count(struct hw_carrier_counts *to, struct hw_tp_counts *told, struct hw_tp_counts now)
{
    atomic_fetch_add_explicit(&to->rx_device, now.rx_device - told->rx_device, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->rx_copied, now.rx_copied - told->rx_copied, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->tx_device, now.tx_device - told->tx_device, memory_order_relaxed);
    *told = now;
}

#endif

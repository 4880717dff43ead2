/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport defines how a rail's connections are created from sockets on which both sides have proved that they know
 * the session's secret, and how the connections carry bytes. A transport consists of two const tables, struct
 * hw_transport and struct hw_rail_io. The two ends of a connection may first negotiate on its socket (meet) before a
 * rail uses the connection. During the negotiation any thread may drive the connection, but only one at a time.
 *
 * Differences between transports are data in these tables, not branches in the engine.
 */
#ifndef HW_TRANSPORT_H
#define HW_TRANSPORT_H

#include "base/knob.h"
#include "core/rail.h"
#include "mem/space.h"
#include "net/nic.h"
#include "wire/wire.h"

#include <stdatomic.h>

struct hw_caps {
    uint32_t setup_ms; /* time in ms that setting up a connection may sleep; added to the timeout of hawser_connect() */
    bool device_path;  /* received data can be placed directly in GPU memory */
    bool nodev_final;  /* -ENODEV from make() is final, because the transport has no device for this NIC */
    enum {
        HW_SELF_WORKS,      /* also works with a peer on the same machine */
        HW_SELF_FALLS_BACK, /* falls back to another path with a peer on the same machine */
        HW_SELF_NEVER,      /* carries no data with a peer on the same machine */
    } self;
};

/* The environment of a transport in one context. */
struct hw_tp_env {
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    void *state;                          /* private to the transport */
    struct hw_caps caps;                  /* from the transport's table, or set by open() */
    _Atomic(const struct hw_space *) gpu; /* space of the first registered GPU memory, or NULL if there is none yet */
    char ident[HW_TRANSPORT_TEXT];        /* name of the transport and its plugin, which must be equal on both sides */
};

/* A connection's place in its session, the GPUs whose memory it carries, and the session's secret. */
struct hw_conn_ident {
    uint64_t session;
    uint32_t channel, gen;
    bool keyed;
    int gpu, peer_gpu;     /* client: CUDA devices whose memory the connection carries, here and at the peer; -1 if not
                              specified */
    const uint8_t *secret; /* the session's secret, HW_SECRET bytes */
};

/* Counts of all connections of a rail, over all its generations: payload bytes unless noted. Any thread may read them.
 */
struct hw_tp_counts {
    _Atomic uint64_t rx_device; /* placed in device memory by the NIC or the plugin */
    _Atomic uint64_t rx_copied; /* copied to their destination by the CPU or the driver */
    _Atomic uint64_t tx_device; /* read from device memory by the NIC or the plugin */
    /* Only the rail's loop writes the following counters. */
    _Atomic uint64_t rx_staged, tx_staged; /* staged through host memory, because the CPU cannot access the memory;
                                              tx_staged includes all other bytes of the same sends */
    _Atomic uint64_t tx_referenced;        /* sent without a copy */
    _Atomic uint64_t retransmits;          /* TCP segments that the kernel retransmitted */
    _Atomic uint64_t rtt_us; /* round-trip time of the last sampled connection, or 0 if none was sampled */
};

/* Adds to a counter that only the rail's loop writes. */
static inline void hw_tp_add(_Atomic uint64_t *count, uint64_t n)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* The counts of one connection that were already added to the rail's counts. */
struct hw_conn_counts {
    uint64_t rx_device, rx_copied, tx_device;
};

/* Adds the bytes that a connection has counted since the last call to its rail's counts. Called on the rail's loop. */
static inline void hw_tp_count(struct hw_tp_counts *to, struct hw_conn_counts *told, struct hw_conn_counts now)
{
    atomic_fetch_add_explicit(&to->rx_device, now.rx_device - told->rx_device, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->rx_copied, now.rx_copied - told->rx_copied, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->tx_device, now.tx_device - told->tx_device, memory_order_relaxed);
    *told = now;
}

/* Arguments for creating a connection. All pointers must stay valid as long as the connection exists. */
struct hw_conn_args {
    const struct hw_tp_env *env;
    bool client;
    bool small_only; /* the connection carries only small frames and needs only the socket */
    struct hw_conn_ident id;
    const struct hw_nic *from; /* client: the local NIC */
    const union hw_addr *to;   /* client: address of the peer's listener */
    struct hw_tp_counts *counts;
};

struct hw_transport {
    const char *name;
    struct hw_caps caps;
    const struct hw_rail_io *io;

    /* Sets env->state, and may change env->caps and env->ident. arg is the text after the transport's name in knob
     * transport. Returns 0, or the reason why the context cannot be opened. NULL if there is nothing to do. */
    int (*open)(const char *arg, struct hw_tp_env *env);
    /* Frees env->state after all connections are closed. NULL if open is NULL. */
    void (*close)(struct hw_tp_env *env);
    /* Returns 0, or the reason why no connection of this context will ever work again. NULL if this cannot happen. */
    int (*alive)(const struct hw_tp_env *env);
    /* Called when the application deregisters [ptr, ptr+len). NULL if not needed. */
    void (*forget)(const struct hw_tp_env *env, const struct hw_space *space, const void *ptr, size_t len);

    /* Announces connections over nic. Called for the NICs of a session in the order that both sides have agreed on. A
     * transport that has fewer devices than NICs, and that cannot determine which device belongs to which NIC, assigns
     * its devices in this order, because connections may come up in any order. NULL if not needed. */
    void (*expect)(const struct hw_tp_env *env, const char *nic);
    /* Creates a connection over fd. Takes ownership of fd even on failure. Fails with a negative errno. */
    int (*make)(int fd, const struct hw_conn_args *a, struct hw_conn **out);

    /* The following members are NULL if a connection is ready at once. */

    /* Continues the negotiation. Returns 0 once a rail may use the connection, or the error that ended the connection.
     * Returns -EAGAIN if the caller must call meet() again when meeting_fd() becomes readable, and every 100 ms. */
    int (*meet)(struct hw_conn *c);
    int (*meeting_fd)(const struct hw_conn *c);
    /* Receives a second authenticated connection that the peer's transport made for this connection (HW_BOOT_SIDE), and
     * takes ownership of fd. NULL if the transport has no second connections. */
    void (*side)(struct hw_conn *c, int fd);
};

#endif

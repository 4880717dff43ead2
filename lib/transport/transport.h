/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport: how to make a rail's connections from sockets on which both sides have proved the session's secret, and
 * how the connections carry bytes (struct hw_rail_io). One const table each. The two ends of a connection may first
 * negotiate on its socket (meet) before a rail uses it; until then one thread at a time drives it, any thread.
 *
 * Differences between transports are data in struct hw_caps, not branches in the engine.
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
    uint32_t setup_ms; /* how long making a connection is known to sleep; waits add it to their deadline */
    bool device_path;  /* the NIC can place received data in GPU memory */
    bool nodev_final;  /* -ENODEV from make() is final: the transport has no device for that NIC */
    enum {
        HW_SELF_WORKS,      /* works with a peer on the same machine too */
        HW_SELF_FALLS_BACK, /* on the same machine uses another path, which is not the one it is for */
        HW_SELF_NEVER,      /* carries nothing on the same machine */
    } self;
};

/* The environment of a transport: one for each context. */
struct hw_tp_env {
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    void *state;                          /* private to the transport */
    struct hw_caps caps;                  /* from the transport's table, or as open() found them */
    _Atomic(const struct hw_space *) gpu; /* space of the first GPU memory that was registered; NULL: none yet */
    char ident[HW_TRANSPORT_TEXT];        /* must equal the peer's: the name of the transport and its plugin */
};

/* Identifies a connection within a session to the other side. */
struct hw_conn_ident {
    uint64_t session;
    uint32_t channel, gen;
    bool keyed;
    int gpu, peer_gpu;     /* client: CUDA devices whose memory it carries here and at the peer; -1: not specified */
    const uint8_t *secret; /* HW_SECRET bytes: the session's secret */
};

/* Payload bytes of all connections of a rail, over all its generations. Any thread may read them. */
struct hw_tp_counts {
    _Atomic uint64_t rx_device; /* placed in device memory by the NIC */
    _Atomic uint64_t rx_copied; /* copied by a CPU of this side although the NIC could have placed them */
    _Atomic uint64_t tx_device; /* read from device memory by the NIC */
    /* Only the rail's loop writes these. */
    _Atomic uint64_t rx_staged, tx_staged; /* through host memory, for memory that the CPU cannot use */
    _Atomic uint64_t tx_referenced;        /* sent without a copy */
    _Atomic uint64_t retransmits;          /* not payload: TCP segments that the kernel retransmitted */
    _Atomic uint64_t rtt_us;               /* not payload: round trip of the connection sampled last; 0: none sampled */
};

/* Adds to a counter that only the rail's loop writes. */
static inline void hw_tp_add(_Atomic uint64_t *count, uint64_t n)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* The counts of one connection that were added to the rail's. */
struct hw_conn_counts {
    uint64_t rx_device, rx_copied, tx_device;
};

/* Adds to the rail's counts what a connection has counted since the last call. Call it on the rail's loop. */
static inline void hw_tp_count(struct hw_tp_counts *to, struct hw_conn_counts *told, struct hw_conn_counts now)
{
    atomic_fetch_add_explicit(&to->rx_device, now.rx_device - told->rx_device, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->rx_copied, now.rx_copied - told->rx_copied, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->tx_device, now.tx_device - told->tx_device, memory_order_relaxed);
    *told = now;
}

/* Arguments for making a connection. Everything pointed to outlives the connection. */
struct hw_conn_args {
    const struct hw_tp_env *env;
    bool client;
    bool small_only; /* carries only small frames, and needs only the socket */
    struct hw_conn_ident id;
    const struct hw_nic *from; /* client */
    const union hw_addr *to;   /* client: the peer's listener */
    struct hw_tp_counts *counts;
};

struct hw_transport {
    const char *name;
    struct hw_caps caps;
    const struct hw_rail_io *io;

    /* Sets env->state, and changes env->caps and env->ident if they depend on the machine. arg: the text after the name
     * in knob transport. 0, or the reason why such a context is impossible. NULL: nothing to do. */
    int (*open)(const char *arg, struct hw_tp_env *env);
    /* Frees env->state; no connection is left. NULL if open is NULL. */
    void (*close)(struct hw_tp_env *env);
    /* Returns 0, or the reason why no connection of this context will ever work again. NULL: that cannot happen. */
    int (*alive)(const struct hw_tp_env *env);
    /* [ptr, ptr+len) is no longer registered. NULL: not needed. */
    void (*forget)(const struct hw_tp_env *env, const struct hw_space *space, const void *ptr, size_t len);

    /* Announces connections over nic: called for the NICs of a session in the order on which both sides have agreed. A
     * transport with fewer devices than NICs that cannot tell which NIC has which device assigns its devices in this
     * order; connections come up in any order. NULL: not needed. */
    void (*expect)(const struct hw_tp_env *env, const char *nic);
    /* Makes a connection over fd and takes ownership of fd in any case. -errno. */
    int (*make)(int fd, const struct hw_conn_args *a, struct hw_conn **out);

    /* The rest is NULL if a connection is ready at once. */

    /* Continues the negotiation: 0 once a rail may use the connection; -EAGAIN: call again when meeting_fd() is
     * readable (edge-triggered), and every 100 ms; else the error it died of. */
    int (*meet)(struct hw_conn *c);
    int (*meeting_fd)(const struct hw_conn *c);
    /* Receives a second authenticated connection that the peer's transport made for this one (HW_BOOT_SIDE). Takes fd.
     * NULL: no second connections. */
    void (*side)(struct hw_conn *c, int fd);
};

#endif

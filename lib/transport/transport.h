/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport: how a rail's connections are made of sockets over which both sides have proved the session's secret, and
 * how they carry bytes (struct hw_rail_io). One const table each. The two ends of a connection may have to meet on its
 * socket before a rail starts with it; until then one thread at a time drives it, any thread.
 *
 * What differs between transports is data in struct hw_caps, not branches in the engine.
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
    uint32_t setup_ms; /* what making a connection is known to sleep: waits for one allow for it */
    bool device_path;  /* what it receives can land in a GPU's memory by the NIC */
    bool nodev_final;  /* make()'s -ENODEV is for good: the transport has no device for that NIC */
    enum {
        HW_SELF_WORKS,      /* with a peer on this very machine too */
        HW_SELF_FALLS_BACK, /* there by another way, which is not what it is for */
        HW_SELF_NEVER,      /* there nothing arrives */
    } self;
};

/* What a transport may know of its surroundings: one for each context. */
struct hw_tp_env {
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    void *state;                          /* the transport's own */
    struct hw_caps caps;                  /* as the transport's table has them, or as open() found them */
    _Atomic(const struct hw_space *) gpu; /* of the first GPU memory that was registered; NULL: none yet */
    char ident[HW_TRANSPORT_TEXT];        /* what the peer must have too: its name, and its plugin's */
};

/* Which connection of which session this is: what the transport shows to the other side. */
struct hw_conn_ident {
    uint64_t session;
    uint32_t channel, gen;
    bool keyed;
    int gpu, peer_gpu;     /* client: whose memory it carries here and there, by CUDA's numbers; -1: not said */
    const uint8_t *secret; /* HW_SECRET bytes, of the session */
};

/* Payload bytes of all connections of a rail, in all its generations. Any thread reads. */
struct hw_tp_counts {
    _Atomic uint64_t rx_device; /* that the NIC put into device memory */
    _Atomic uint64_t rx_copied; /* that a CPU of ours copied, where they might have been put there */
    _Atomic uint64_t tx_device; /* that the NIC took from device memory */
    /* Written on the rail's loop only. */
    _Atomic uint64_t rx_staged, tx_staged; /* of memory that the CPU cannot use, through host memory */
    _Atomic uint64_t tx_referenced;        /* sent without a copy */
    _Atomic uint64_t retransmits;          /* not payload: TCP segments that the kernel sent again */
    _Atomic uint64_t rtt_us;               /* not payload: of the connection that was looked at last; 0: of none */
};

/* Adds to one of the counts that only the rail's loop writes. */
static inline void hw_tp_add(_Atomic uint64_t *count, uint64_t n)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* One connection's, of which the rail's counts have been told. */
struct hw_conn_counts {
    uint64_t rx_device, rx_copied, tx_device;
};

/* Adds to the rail's counts what a connection has counted since the last time: on the rail's loop. */
static inline void hw_tp_count(struct hw_tp_counts *to, struct hw_conn_counts *told, struct hw_conn_counts now)
{
    atomic_fetch_add_explicit(&to->rx_device, now.rx_device - told->rx_device, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->rx_copied, now.rx_copied - told->rx_copied, memory_order_relaxed);
    atomic_fetch_add_explicit(&to->tx_device, now.tx_device - told->tx_device, memory_order_relaxed);
    *told = now;
}

/* Which connection is to be made, and between whom. What is pointed to outlives the connection. */
struct hw_conn_args {
    const struct hw_tp_env *env;
    bool client;
    bool small_only; /* it carries small frames, and needs nothing but the socket */
    struct hw_conn_ident id;
    const struct hw_nic *from; /* client */
    const union hw_addr *to;   /* client: the peer's listener */
    struct hw_tp_counts *counts;
};

struct hw_transport {
    const char *name;
    struct hw_caps caps;
    const struct hw_rail_io *io;

    /* Fills env->state, and changes env->caps and env->ident where they depend on the machine. arg: what follows the
     * name in knob transport. 0, or why there can be no such context. NULL: there is nothing to do. */
    int (*open)(const char *arg, struct hw_tp_env *env);
    /* Frees env->state: no connection is left. NULL with open. */
    void (*close)(struct hw_tp_env *env);
    /* 0, or why no connection of this context will work again. NULL: such a thing cannot be. */
    int (*alive)(const struct hw_tp_env *env);
    /* [ptr, ptr+len) is registered no more. NULL: never told. */
    void (*forget)(const struct hw_tp_env *env, const struct hw_space *space, const void *ptr, size_t len);

    /* Connections over nic will be made: called for the NICs of a session in the order that both sides have agreed on.
     * A transport with fewer devices than NICs, which cannot tell whose they are, gives them to the first ones;
     * connections come up in any order. NULL: it has no such choice. */
    void (*expect)(const struct hw_tp_env *env, const char *nic);
    /* Makes a connection over fd, and takes it in any case. -errno. */
    int (*make)(int fd, const struct hw_conn_args *a, struct hw_conn **out);

    /* What follows is NULL where a connection is ready at once. */

    /* Drives it on: 0 once a rail may start with it; -EAGAIN: call again when meeting_fd() is readable, by edges, and
     * every 100 ms; else why it is dead. */
    int (*meet)(struct hw_conn *c);
    int (*meeting_fd)(const struct hw_conn *c);
    /* The peer's transport has made a second connection for this one, authenticated too (HW_BOOT_SIDE). Takes fd. NULL:
     * it never does. */
    void (*side)(struct hw_conn *c, int fd);
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the engine and a transport: one const table each.
 *
 * A connection carries chunks (a header and a payload) in both directions, in order. Each direction is a FIFO of
 * posted requests, and only its head is ever tested: the rule of GPUDirect-TCPX (facts/tcpx-plugin.md, "Invariants"),
 * which costs an in-order stream nothing. All functions are non-blocking. One thread at a time calls into a connection.
 *
 * What differs between transports is data in `caps`, not branches in the engine.
 *
 * Where memory is not the CPU's (space.h) a transport may have to wait for its device. -EBUSY says so: no event of the
 * descriptor will come for it, so the engine calls again soon. -ENXIO: the device failed, and not the path.
 */
#ifndef HW_TRANSPORT_H
#define HW_TRANSPORT_H

#include "base/base.h"
#include "base/knob.h"
#include "mem/space.h"
#include "net/nic.h"
#include "wire/wire.h"

#include <stdatomic.h>

struct hw_caps {
    uint32_t max_chunk;  /* bytes */
    uint32_t max_window; /* requests posted and not finished, each direction */
    bool header_in_band; /* the chunk header rides in front of the payload; else on the control connection */
    bool one_event;      /* the descriptor is readable for whatever happens, room to send too */
    bool needs_gather;   /* payload arrives as fragments that lib/mem must put in order before `consumed` */
    uint32_t setup_ms;   /* what making a connection is known to sleep: waits for one allow for it */
    bool device_path;    /* what it receives can land in a GPU's memory by the NIC */
    bool nodev_final;    /* connect()'s -ENODEV is for good: the transport has no device for that NIC */
    enum {
        HW_SELF_WORKS,      /* with a peer on this very machine too */
        HW_SELF_FALLS_BACK, /* there by another way, which is not what it is for */
        HW_SELF_NEVER,      /* there nothing arrives */
    } self;
};

/* What a transport may know of its surroundings. */
struct hw_tp_env {
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    void *state;                          /* the transport's own, for the whole context */
    _Atomic(const struct hw_space *) gpu; /* of the first GPU memory that was registered; NULL: none yet */
    char ident[HW_TRANSPORT_TEXT];        /* what the peer must have too: its name, and its plugin's */
};

struct hw_conn;

/* Which connection of which session this is: what the transport shows to the other side. */
struct hw_conn_ident {
    uint64_t session;
    uint32_t channel, gen;
    bool keyed;
    bool side;             /* the channel's second connection: see side() */
    int gpu, peer_gpu;     /* whose memory it carries here and there, by CUDA's numbers; -1: not said */
    const uint8_t *secret; /* HW_SECRET bytes, of the session */
};

/* Payload bytes. */
struct hw_tp_counts {
    uint64_t rx_device; /* that the NIC put into device memory */
    uint64_t rx_copied; /* that a CPU of ours copied, where they might have been put there */
    uint64_t tx_device; /* that the NIC took from device memory */
};

enum hw_rx_event {
    HW_RX_HEADER = 1, /* a header is there (in-band transports): answer by post_recv */
    HW_RX_DONE = 2,   /* the posted receive is complete: answer by consumed */
};

struct hw_transport {
    const char *name;
    struct hw_caps caps;

    /* 0, or why no connection of this context will work again. NULL: such a thing cannot be. */
    int (*alive)(const struct hw_tp_env *env);

    /* [ptr, ptr+len) is registered no more. NULL: never told. */
    void (*forget)(const struct hw_tp_env *env, const struct hw_space *space, const void *ptr, size_t len);

    /* Fills handle with what a peer needs to reach this side over nic, as opaque bytes for connect() there; port: the
     * context's own listening port, for transports that share it. Returns the handle's size or -errno. */
    int (*listen)(const struct hw_tp_env *env, const struct hw_nic *nic, uint16_t port, uint8_t handle[HW_HANDLE_MAX]);

    /* Starts a connection from nic (its address, its device where that is allowed) to handle. -errno, or 0 and *out,
     * which establish() finishes. */
    int (*connect)(const struct hw_tp_env *env, const struct hw_nic *nic, const uint8_t *handle, size_t handle_len,
                   const struct hw_conn_ident *ident, struct hw_conn **out);

    /* Makes a connection of a descriptor that the context's listener has authenticated. Takes fd on success only. */
    int (*accept)(const struct hw_tp_env *env, int fd, struct hw_conn **out);

    /* A second connection for c, which the peer's transport has asked for (HW_BOOT_SIDE), authenticated too. Takes fd.
     * NULL: it never does. */
    void (*side)(struct hw_conn *c, int fd);

    /* Drives connect(): 0 established, -EAGAIN wait for an event (or call again after the deadline), else why not. */
    int (*establish)(struct hw_conn *c);

    /* Bytes of further chunks that it pays to post now. */
    uint32_t (*want)(struct hw_conn *c);

    /* Queues a chunk. ptr, in the given space, stays in use, and unchanged, until the peer has confirmed the chunk (the
     * kernel may hold it by reference). The header is copied. -EAGAIN: max_window are posted and not released;
     * -EBUSY: no room to stage it before others are released; -ENXIO, -ENOMEM: the device cannot. Then nothing was
     * queued. */
    int (*post_send)(struct hw_conn *c, const uint8_t header[HW_CHUNK_HEAD], const struct hw_space *space,
                     const void *ptr, uint32_t len);

    /* Moves posted chunks out: 0 all gone, -EAGAIN wait for an event, -EBUSY, -ENXIO, else the connection is dead. */
    int (*test_send)(struct hw_conn *c);

    /* The peer has confirmed the oldest n chunks: their slots may be used again. */
    void (*release_send)(struct hw_conn *c, uint32_t n);

    /* How many of the chunks posted so far are read from memory no more (by address). Any thread, the connection being
     * kept open. */
    uint64_t (*sent)(struct hw_conn *c);

    /* Moves bytes in. HW_RX_HEADER with *header, HW_RX_DONE, -EAGAIN, -EBUSY, -ENXIO, or -errno; -EPIPE is the
     * orderly end of the stream: as hawser itself never ends one so without a BYE, the process at the other end is
     * gone. *moved is increased by the payload bytes taken in. */
    int (*test_recv)(struct hw_conn *c, const uint8_t **header, uint64_t *moved);

    /* Where in which space the next len bytes of the payload go; NULL: nowhere. more: the payload goes on after them,
     * and HW_RX_DONE is to be answered by another post_recv. */
    int (*post_recv)(struct hw_conn *c, const struct hw_space *space, void *ptr, uint32_t len, bool more);

    /* The rest of the posted receive goes nowhere: its memory is not touched again. */
    void (*discard)(struct hw_conn *c);

    /* The engine is done with the head receive (a scattering transport gives its pages back). */
    void (*consumed)(struct hw_conn *c);

    /* 0, or -ETIMEDOUT when data has gone unacknowledged for longer than knob stall_ms: the path is dead. */
    int (*health)(struct hw_conn *c);

    /* Descriptor for epoll (edge-triggered, in and out). */
    int (*fd)(struct hw_conn *c);

    /* Adds what the connection has counted. NULL: nothing. Any thread, the connection being kept open. */
    void (*count)(struct hw_conn *c, struct hw_tp_counts *sum);

    /* The two ends, for statistics. */
    void (*ends)(struct hw_conn *c, union hw_addr *local, union hw_addr *remote);

    /* At once and for good: what was queued is dropped, so that no byte leaves after it. */
    void (*close)(struct hw_conn *c);
};

extern const struct hw_transport hw_tcp;

#endif

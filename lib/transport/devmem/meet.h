/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the two ends of a devmem channel negotiate, before its first chunk, whether each direction uses device memory.
 *
 * The channel's first connection ("heads") is an authenticated one of transport tcp. On it each side sends three
 * messages of 16 bytes each, and receives the other's three:
 *
 *   OFFER    this side can receive into device memory. The client's OFFER also names the GPUs of both sides.
 *   READY    the channel's second connection ("payload", HW_BOOT_SIDE, made by the client if either side offers) is up,
 *            and this end has steered it to a queue that is bound to device memory: send a probe
 *   VERDICT  the probe (HW_PROBE bytes, on the payload connection) arrived in device memory, byte for byte
 *
 * A direction whose receiver says yes three times sends heads on the first connection and only payload on the second;
 * every other direction sends both, interleaved, on the first, as transport tcp does. docs/wire.md.
 */
#ifndef HW_DEVMEM_MEET_H
#define HW_DEVMEM_MEET_H

#include "transport/devmem/bind.h"
#include "transport/devmem/rx.h"

struct dm_meet;

struct dm_met {
    bool send_side;         /* payload leaves on the second connection */
    struct dm_rx *rx;       /* payload arrives there; NULL: it does not. The caller owns it now */
    struct dm_claim *claim; /* with rx */
    int side;               /* the second connection; -1 if neither direction needs it. The caller owns it now */
};

struct dm_meet_args {
    const struct hw_tp_env *env;
    struct dm_ctx *ctx;
    const char *nic;
    int heads;      /* the first connection's established descriptor */
    int set, event; /* epoll that watches the second connection; eventfd that is signalled */
    bool client;
    int gpu, peer_gpu; /* client: GPUs of the connection here and at the peer; -1: not specified */
    /* client: ends and identity of the second connection. All three outlive the negotiation. */
    const struct hw_nic *from;
    const union hw_addr *to;
    const struct hw_conn_ident *ident;
};

/* Copies *a, but not the objects it points to. NULL: no memory. */
struct dm_meet *dm_meet_new(const struct dm_meet_args *a);
/* Server: the second connection has arrived. Takes fd. */
void dm_meet_side(struct dm_meet *m, int fd);
/* Returns 0 with the agreement in *out; -EAGAIN; else the channel is dead. */
int dm_meet_step(struct dm_meet *m, struct dm_met *out);
/* Returns 0, or -ETIMEDOUT: the negotiation has taken too long. */
int dm_meet_late(const struct dm_meet *m);
void dm_meet_free(struct dm_meet *m);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ends of a devmem channel negotiate, before its first chunk, whether each direction uses device memory.
 *
 * The channel's first connection ("heads") is an authenticated connection of transport tcp. On this connection each
 * side sends three messages of 16 bytes and receives three from the other side:
 *
 *   OFFER    the two ends are not on one node. The client's OFFER also contains the GPUs of both sides.
 *   READY    the channel's second connection ("payload", HW_BOOT_SIDE, made by the client if either side offers) is up,
 *            and this end has steered it to a queue that is bound to device memory, so the peer may send a probe
 *   VERDICT  the probe (4096 bytes on the payload connection) arrived without errors, at least half of it in device
 *            memory
 *
 * If the receiver of a direction answers yes three times, headers and small payloads of this direction are sent on the
 * first connection, and large payloads on the second. Otherwise everything is sent on the first connection, as with
 * transport tcp. See docs/wire.md.
 */
#ifndef HW_DEVMEM_MEET_H
#define HW_DEVMEM_MEET_H

#include "transport/devmem/bind.h"
#include "transport/devmem/rx.h"

struct dm_meet;

struct dm_met {
    bool send_side;         /* payload is sent on the second connection */
    struct dm_rx *rx;       /* receiver of payload on the second connection, or NULL; owned by the caller */
    struct dm_claim *claim; /* set together with rx */
    int side;               /* the second connection, or -1 if neither direction needs it; owned by the caller */
};

struct dm_meet_args {
    const struct hw_tp_env *env;
    struct dm_ctx *ctx;
    const char *nic;
    int heads;      /* descriptor of the first connection, which is established */
    int set, event; /* epoll set for the second connection; eventfd that is signalled when the claim is decided */
    bool client;
    int gpu, peer_gpu; /* client: GPUs of the connection here and at the peer, or -1 if not specified */
    /* Client: ends and identity of the second connection. All three must outlive the negotiation. */
    const struct hw_nic *from;
    const union hw_addr *to;
    const struct hw_conn_ident *ident;
};

/* Copies *a, but not the objects that it points to. Returns NULL if out of memory. */
struct dm_meet *dm_meet_new(const struct dm_meet_args *a);
/* Server: receives the second connection, and takes ownership of fd. */
void dm_meet_side(struct dm_meet *m, int fd);
/* Returns -EAGAIN until the negotiation has ended, and then 0 with the agreement in *out, or the error that ended the
 * channel. */
int dm_meet_step(struct dm_meet *m, struct dm_met *out);
/* Returns 0, or -ETIMEDOUT if the negotiation has taken too long. */
int dm_meet_late(const struct dm_meet *m);
void dm_meet_free(struct dm_meet *m);

#endif

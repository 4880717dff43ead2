/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the two ends of a devmem channel agree, before its first chunk, in which of the two ways each direction goes.
 *
 * The channel's first connection ("heads") is tcp's, and authenticated as such. On it each side sends three words, of
 * 16 bytes each, and takes the other's three:
 *
 *   OFFER    would I receive into device memory? The client's says for which GPU on either side the connection is
 *   READY    the channel's second connection ("payload", HW_BOOT_SIDE, made by the client if either side would) stands,
 *            and at my end it is steered to a queue that device memory is bound to: send a probe
 *   VERDICT  the probe (HW_PROBE bytes, on the payload connection) came into device memory, byte for byte
 *
 * A direction whose receiver says yes three times sends heads on the one and nothing but payload on the other; all
 * others send both, interleaved, on the first, as transport tcp does. docs/wire.md.
 */
#ifndef HW_DEVMEM_MEET_H
#define HW_DEVMEM_MEET_H

#include "transport/devmem/bind.h"
#include "transport/devmem/rx.h"

struct dm_meet;

struct dm_met {
    bool send_side;         /* payload leaves by the second connection */
    struct dm_rx *rx;       /* payload arrives by it; NULL: it does not. The caller's now */
    struct dm_claim *claim; /* with rx */
    int side;               /* the second connection; -1 where neither direction needs it. The caller's now */
};

struct dm_meet_args {
    const struct hw_tp_env *env;
    struct dm_ctx *ctx;
    const char *nic;
    int heads;      /* the first connection's descriptor, established */
    int set, event; /* epoll to watch the second one with; eventfd to be rung */
    bool client;
    int gpu, peer_gpu; /* client: whose memory the connection is for here and there; -1: not said */
    /* client: the second connection goes from this NIC to this address, as that one's. All three outlive the meeting.
     */
    const struct hw_nic *from;
    const union hw_addr *to;
    const struct hw_conn_ident *ident;
};

/* a is copied, but for what it points to. NULL: no memory. */
struct dm_meet *dm_meet_new(const struct dm_meet_args *a);
/* Server: the second connection has come. Takes fd. */
void dm_meet_side(struct dm_meet *m, int fd);
/* 0: *out says what was agreed; -EAGAIN; else the channel is dead. */
int dm_meet_step(struct dm_meet *m, struct dm_met *out);
/* 0, or -ETIMEDOUT: it has taken too long. */
int dm_meet_late(const struct dm_meet *m);
void dm_meet_free(struct dm_meet *m);

#endif

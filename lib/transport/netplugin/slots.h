/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a connection's messages lie while the plugin has them: a ring of slots for each direction, in host memory that
 * the child shares, and, once GPU memory is seen to be moved and the plugin takes such, another in that GPU's memory.
 * A message is a header, zeros to NP_ROOM bytes, and its payload, in either. What is sent lies in the slot of
 * the kind that its payload is of; a receive is posted in the kind that the last payload was for. So neither side needs
 * to know what the other's memory is.
 *
 * A header gets into a GPU's slot, and out of it, by a copy of its own on the queue that the payload's goes on. The
 * device may take its time: -EBUSY, ask again soon. -ENXIO: it failed.
 */
#ifndef HW_NETPLUGIN_SLOTS_H
#define HW_NETPLUGIN_SLOTS_H

#include "mem/space.h"
#include "transport/netplugin/host/host.h"
#include "wire/wire.h"

#include <stdatomic.h>

enum {
    NP_HEAD = 8,  /* a message's header, in front of its payload, and .. */
    NP_ROOM = 64, /* .. what of a slot is the header's */
    NP_SLOTS = 8, /* each way, at most */
};

/* Copies one way, of one GPU. */
struct np_way {
    struct hw_copyq *q;
    uint64_t started, over;
    uint64_t waiting_since; /* 0: nobody waits */
};

/* A piece of a message's payload. */
struct np_part {
    const struct hw_space *space;
    const void *ptr;
    uint32_t len;
};

struct np_slots {
    /* The connection's, set before anything else. */
    struct np_host *host;
    const struct hw_logger *log;
    struct np_comm *tx, *rx;
    uint32_t n, size; /* each way; bytes of one */
    bool cuda;        /* the plugin takes GPU memory */
    int only;         /* but of this GPU alone; -1: of any */

    struct np_mem *mem;
    uint8_t *base; /* slots to send, then slots to receive */
    struct np_mr *tx_mr, *rx_mr;

    const struct hw_space *gpu; /* NULL: no slots there */
    bool tried;
    struct np_mem *gpu_mem;
    uint8_t *gpu_base, *heads; /* heads: pinned, NP_ROOM bytes for each slot */
    struct np_mr *gpu_tx_mr, *gpu_rx_mr;
    struct np_way out, in;
    bool land; /* receives are posted there */
    bool told; /* `only` is the GPU that the connection is for: receives are posted there from the first one on, always
                */

    /* Payload, as struct hw_tp_counts has it. Any thread reads. */
    _Atomic uint64_t rx_device, rx_copied, tx_device;

    struct {
        bool gpu;
        uint64_t ticket; /* the copy after which it is ready */
    } send[NP_SLOTS], recv[NP_SLOTS];
    uint64_t taking; /* the copy that takes the payload at hand; 0: none */
};

/* The host's, and what the connections must know of them: 0 or -errno. */
int np_slots_open(struct np_slots *s);
/* The plugin is done with the connections, which are closed. */
void np_slots_close(struct np_slots *s);

/* i is the number of a message in its direction. */

/* Begins to put n pieces of one space into a slot, len bytes in all, as a message with this header: np_slots_send()
 * waits for the copies, np_slots_settle() too. -ENXIO. */
int np_slots_gather(struct np_slots *s, uint64_t i, const uint8_t head[NP_HEAD], const struct np_part *part,
                    uint32_t n);
/* What is being put into slots is read from its memory no more. -ENXIO. */
int np_slots_settle(struct np_slots *s);
/* Gives it to the plugin: -EBUSY; -EAGAIN: its window is full. */
int np_slots_send(struct np_slots *s, uint64_t i, uint32_t len, uint64_t deadline);

int np_slots_post(struct np_slots *s, uint64_t i);
/* Message i has come: begins to fetch its header. */
int np_slots_came(struct np_slots *s, uint64_t i);
/* Its header, once it is there. */
int np_slots_head(struct np_slots *s, uint64_t i, const uint8_t **head);
/* Payload bytes [at, at+len) of it go to ptr: 0 they are there; -EBUSY: call again, with the same. */
int np_slots_take(struct np_slots *s, uint64_t i, uint32_t at, const struct hw_space *space, void *ptr, uint32_t len);
/* ptr is not to be touched any more. -ENXIO: the device may, all the same. */
int np_slots_cut(struct np_slots *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the messages of a connection are while the plugin has them: a ring of slots for each direction, in host memory
 * shared with the child, and, once GPU memory is moved and the plugin supports it, another ring in that GPU's memory. A
 * message in either is a header, zeros up to NP_ROOM bytes, and its payload. A message is sent from a slot in the same
 * kind of memory as its payload; a receive is posted in the kind of memory that received the last payload. So neither
 * side needs to know the other's kind of memory.
 *
 * A header gets into and out of a GPU slot by a separate copy on the same queue as the payload's copy. -EBUSY: the
 * device is not done yet, ask again soon. -ENXIO: it failed.
 */
#ifndef HW_NETPLUGIN_SLOTS_H
#define HW_NETPLUGIN_SLOTS_H

#include "mem/space.h"
#include "transport/netplugin/host/host.h"
#include "wire/wire.h"

#include <stdatomic.h>

enum {
    NP_HEAD = 8,  /* a message's header, before its payload */
    NP_ROOM = 64, /* part of a slot that is reserved for the header */
    NP_SLOTS = 8, /* most slots in each direction */
};

/* Copies in one direction, of one GPU. */
struct np_way {
    struct hw_copyq *q;
    uint64_t started, over;
    uint64_t waiting_since; /* 0: not waiting */
};

/* A part of a message's payload. */
struct np_part {
    const struct hw_space *space;
    const void *ptr;
    uint32_t len;
};

struct np_slots {
    /* Set by the connection before anything else. */
    struct np_host *host;
    const struct hw_logger *log;
    struct np_comm *tx, *rx;
    uint32_t n, size; /* slots in each direction; bytes of a slot */
    bool cuda;        /* the plugin accepts GPU memory */
    int only;         /* of this GPU only; -1: of any */

    struct np_mem *mem;
    uint8_t *base; /* send slots, then receive slots */
    struct np_mr *tx_mr, *rx_mr;

    const struct hw_space *gpu; /* NULL: no GPU slots */
    bool tried;
    struct np_mem *gpu_mem;
    uint8_t *gpu_base, *heads; /* heads: pinned, NP_ROOM bytes for each slot */
    struct np_mr *gpu_tx_mr, *gpu_rx_mr;
    struct np_way out, in;
    bool land; /* receives are posted in GPU slots */
    bool told; /* `only` is the GPU that was specified for the connection: receives are always posted there */

    /* Payload bytes, see struct hw_tp_counts. Any thread may read them. */
    _Atomic uint64_t rx_device, rx_copied, tx_device;

    struct {
        bool gpu;
        uint64_t ticket; /* number of the copy after which the slot is ready */
    } send[NP_SLOTS], recv[NP_SLOTS];
    uint64_t taking; /* number of the copy of the current payload; 0: none */
};

/* Makes the host slots, and registers them with the connections: 0 or -errno. */
int np_slots_open(struct np_slots *s);
/* Frees everything; the plugin's connections are closed. */
void np_slots_close(struct np_slots *s);

/* i is the number of a message in its direction. */

/* Starts to put n parts of one space into a slot, len bytes in all, as a message with this header: np_slots_send() and
 * np_slots_settle() wait for the copies. -ENXIO. */
int np_slots_gather(struct np_slots *s, uint64_t i, const uint8_t head[NP_HEAD], const struct np_part *part,
                    uint32_t n);
/* Returns when no copy reads the source memory any more. -ENXIO. */
int np_slots_settle(struct np_slots *s);
/* Passes the message to the plugin: -EBUSY; -EAGAIN: its window is full. */
int np_slots_send(struct np_slots *s, uint64_t i, uint32_t len, uint64_t deadline);

int np_slots_post(struct np_slots *s, uint64_t i);
/* Message i has arrived: starts to copy its header. */
int np_slots_came(struct np_slots *s, uint64_t i);
/* Returns the header once it is there. */
int np_slots_head(struct np_slots *s, uint64_t i, const uint8_t **head);
/* Copies payload bytes [at, at+len) to ptr: 0: done; -EBUSY: call again with the same arguments. */
int np_slots_take(struct np_slots *s, uint64_t i, uint32_t at, const struct hw_space *space, void *ptr, uint32_t len);
/* Stops accesses to ptr. -ENXIO: the device may still write there. */
int np_slots_cut(struct np_slots *s);

#endif

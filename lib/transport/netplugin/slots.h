/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a connection's messages while the plugin processes them. Each direction has a ring of slots in host
 * memory shared with the child. Once memory of a GPU is used, each direction has another ring in that GPU's memory, if
 * the plugin supports this. A message in a slot is a header, zeros up to NP_ROOM bytes, and its payload. A message is
 * sent from a GPU slot if its payload is in that GPU's memory. A receive is posted in a GPU slot if the last payload
 * went to that GPU's memory, or if the connection's GPU was specified. Therefore neither side needs to know the kind of
 * the other side's memory.
 *
 * A header is copied to or from a GPU slot by a separate copy on the queue of the payload's copy. -EBUSY means that the
 * device has not finished, so the caller must try again soon. -ENXIO means that the device failed.
 */
#ifndef HW_NETPLUGIN_SLOTS_H
#define HW_NETPLUGIN_SLOTS_H

#include "mem/space.h"
#include "transport/netplugin/host/host.h"
#include "wire/wire.h"

#include <stdatomic.h>

enum {
    NP_HEAD = 8,  /* size of a message's header */
    NP_ROOM = 64, /* bytes of a slot reserved for the header */
    NP_SLOTS = 8, /* maximum number of slots in each direction */
};

/* Copies in one direction by one GPU. */
struct np_way {
    struct hw_copyq *q;
    uint64_t started, over;
    uint64_t waiting_since; /* hw_now() at the start of the wait, or 0 */
};

/* A part of a message's payload. */
struct np_part {
    const struct hw_space *space;
    const void *ptr;
    uint32_t len;
};

struct np_slots {
    /* Set by the connection before any other use. */
    struct np_host *host;
    const struct hw_logger *log;
    struct np_comm *tx, *rx;
    uint32_t n, size; /* slots in each direction, and bytes per slot */
    bool cuda;        /* the plugin accepts GPU memory */
    int only;         /* only GPU for which slots may be created, or -1 for any */

    struct np_mem *mem;
    uint8_t *base; /* send slots, followed by the receive slots */
    struct np_mr *tx_mr, *rx_mr;

    const struct hw_space *gpu; /* NULL if there are no GPU slots */
    bool tried;
    struct np_mem *gpu_mem;
    uint8_t *gpu_base, *heads; /* heads: pinned memory for headers, NP_ROOM bytes per slot */
    struct np_mr *gpu_tx_mr, *gpu_rx_mr;
    struct np_way out, in;
    bool land; /* receives are posted in GPU slots */
    bool told; /* `only` was specified for the connection, so receives are always posted in its memory */

    /* Counts of payload bytes, see struct hw_tp_counts. Any thread may read them. */
    _Atomic uint64_t rx_device, rx_copied, tx_device;

    struct {
        bool gpu;
        uint64_t ticket; /* number of the copy after which the slot is ready */
    } send[NP_SLOTS], recv[NP_SLOTS];
    uint64_t taking; /* number of the copy of the current payload, or 0 for none */
};

/* Creates the host slots, registers them with the connections, and posts the receives. If `told` is set, also creates
 * the GPU slots, or clears `told` if this fails. Returns 0 or -errno. */
int np_slots_open(struct np_slots *s);
/* Frees all slots, except those of a GPU that hangs. The plugin's connections must already be closed. */
void np_slots_close(struct np_slots *s);

/* i is the number of a message in its direction. */

/* Starts to copy n parts of one space into a slot, as a message with this header. np_slots_send() fails with -EBUSY
 * until the copies are complete. Fails with -ENXIO. */
int np_slots_gather(struct np_slots *s, uint64_t i, const uint8_t head[NP_HEAD], const struct np_part *part,
                    uint32_t n);
/* Waits until no copy reads the source memory. Fails with -ENXIO. */
int np_slots_settle(struct np_slots *s);
/* Passes the message to the plugin. Returns -EBUSY while the device is copying, and -EAGAIN if the plugin's window is
 * full. */
int np_slots_send(struct np_slots *s, uint64_t i, uint32_t len, uint64_t deadline);

int np_slots_post(struct np_slots *s, uint64_t i);
/* Handles the arrival of message i: if the message is in a GPU slot, starts to copy its header. */
int np_slots_came(struct np_slots *s, uint64_t i);
/* Returns the header in *head. Returns -EBUSY until the header is copied. */
int np_slots_head(struct np_slots *s, uint64_t i, const uint8_t **head);
/* Copies payload bytes [at, at+len) to ptr. Returns 0 when done. After -EBUSY, call again with the same arguments. */
int np_slots_take(struct np_slots *s, uint64_t i, uint32_t at, const struct hw_space *space, void *ptr, uint32_t len);
/* Stops accesses to the memory that was passed to np_slots_take(). Fails with -ENXIO if the device may still write
 * there. */
int np_slots_cut(struct np_slots *s);

#endif

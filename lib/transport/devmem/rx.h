/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives on one steered connection: the payload is scattered over the pool; lib/mem's gather copies it in order to
 * its destination. Then the pages return to the NIC, early and steadily, because an empty pool stops the NIC.
 */
#ifndef HW_DEVMEM_RX_H
#define HW_DEVMEM_RX_H

#include "transport/devmem/bind.h"

struct dm_rx;

/* Adds to a counter with one writer thread and any number of readers. */
static inline void dm_count(_Atomic uint64_t *at, uint64_t n)
{
    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n, memory_order_relaxed);
}

struct dm_rx_counts {
    _Atomic uint64_t device, copied, calls; /* payload bytes placed by the NIC, and copied; number of recvmsg() calls */
    _Atomic uint32_t held_most;             /* most pages held at a time */
};

/* The caller keeps fd, which must stay open. */
int dm_rx_new(int fd, const struct dm_pool *pool, uint32_t dmabuf_id, struct dm_rx **out);
void dm_rx_free(struct dm_rx *rx);

/* Posts the next len bytes to ptr in the space; NULL: discard them. */
void dm_rx_post(struct dm_rx *rx, const struct hw_space *space, void *ptr, uint32_t len);

/* Moves bytes. 0: the posted receive is complete; -EAGAIN: wait for an event; -EBUSY: the device is not done yet, or
 * pages must still be returned: ask again soon; -ENXIO: the device failed; -EPIPE: the peer has closed; else the
 * connection is dead. */
int dm_rx_run(struct dm_rx *rx, uint64_t *moved);

/* Discards the rest of the posted receive; after return the memory is not accessed any more. -ENXIO: the device does
 * not finish and may still write there. */
int dm_rx_discard(struct dm_rx *rx);

/* Returns true if ordinary data arrived where none is expected. */
bool dm_rx_strayed(const struct dm_rx *rx);

const struct dm_rx_counts *dm_rx_counts(const struct dm_rx *rx);

#endif

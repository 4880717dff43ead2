/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives on one steered connection. The payload is scattered over the pool. If the destination is in the same space,
 * lib/mem's gather copies the payload there, and otherwise the CPU or the driver does. The pages then return to the
 * NIC, even while the rest of a receive arrives, because an empty pool stops the NIC.
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
    _Atomic uint64_t device, copied, calls; /* payload bytes placed by the NIC, payload bytes copied by the CPU or the
                                               driver, and number of recvmsg() calls */
    _Atomic uint32_t held_most;             /* maximum number of pages that were held at a time */
};

/* Creates a receiver. The caller keeps fd, which must stay open. */
int dm_rx_new(int fd, const struct dm_pool *pool, uint32_t dmabuf_id, struct dm_rx **out);
void dm_rx_free(struct dm_rx *rx);

/* Posts a receive of the next len bytes to ptr in the space, or discards them if ptr is NULL. */
void dm_rx_post(struct dm_rx *rx, const struct hw_space *space, void *ptr, uint32_t len);

/* Moves bytes and adds their number to *moved. Returns 0 if the posted receive is complete, -EAGAIN if the caller
 * must wait for an event, or -EBUSY if the device has not finished or pages must still be returned; the caller then
 * calls again soon. Fails with -ENXIO if the device has failed and with -EPIPE if the peer has closed. After other
 * errors the connection is dead. */
int dm_rx_run(struct dm_rx *rx, uint64_t *moved);

/* Discards the rest of the posted receive. Afterwards its memory is no longer accessed. Fails with -ENXIO if the device
 * does not finish and may still write to the memory. */
int dm_rx_discard(struct dm_rx *rx);

/* Returns true if ordinary data (dm_received.plain) has arrived. */
bool dm_rx_strayed(const struct dm_rx *rx);

const struct dm_rx_counts *dm_rx_counts(const struct dm_rx *rx);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving on one steered connection: its payload lies in pieces all over the pool, from where lib/mem's gather puts
 * it in order; once it has, the pages go back to the NIC, early and steadily, as a pool that runs dry stops it.
 */
#ifndef HW_DEVMEM_RX_H
#define HW_DEVMEM_RX_H

#include "transport/devmem/bind.h"

struct dm_rx;

/* Of counters that one thread adds to, and any reads. */
static inline void dm_count(_Atomic uint64_t *at, uint64_t n)
{
    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n, memory_order_relaxed);
}

struct dm_rx_counts {
    _Atomic uint64_t device, copied, calls; /* payload bytes, likewise; recvmsg */
    _Atomic uint32_t held_most;             /* pages not yet given back, at most */
};

/* fd stays the caller's, and stays open. */
int dm_rx_new(int fd, const struct dm_pool *pool, uint32_t dmabuf_id, struct dm_rx **out);
void dm_rx_free(struct dm_rx *rx);

/* The len bytes that come next go to ptr in the space; NULL: nowhere. */
void dm_rx_post(struct dm_rx *rx, const struct hw_space *space, void *ptr, uint32_t len);

/* Moves bytes in. 0: all that was posted for is in its place; -EAGAIN: wait for an event; -EBUSY: the device has not
 * got there yet, or pages are still to go back: ask again soon; -ENXIO: the device failed; -EPIPE: the peer has closed;
 * else the connection is dead. */
int dm_rx_run(struct dm_rx *rx, uint64_t *moved);

/* The rest of what was posted for goes nowhere; on return the memory is not touched again. -ENXIO: the device does not
 * come to an end, and may still write there. */
int dm_rx_discard(struct dm_rx *rx);

/* Has ordinary data come where there should be none? */
bool dm_rx_strayed(const struct dm_rx *rx);

const struct dm_rx_counts *dm_rx_counts(const struct dm_rx *rx);

#endif

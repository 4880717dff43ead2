/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: data in memory that sockets cannot access (a GPU's) passes through rings of host memory, one for each
 * direction of a connection, which are allocated on first use and pinned if possible. While the device copies one part
 * of a pinned ring, the socket sends or receives another part. In each direction, the data crosses host memory once
 * more than data in memory that sockets can access.
 *
 * Only hw_staging_free(), hw_staging_settle(), hw_staging_load() and, if it drops bytes, hw_staging_ahead() wait for
 * copies in flight, at most HW_COPIES_WAIT_MS for each queue or part (copies.h). A device that does not respond within
 * this time is stuck, and its ring stays allocated until it has responded.
 *
 * Functions return -EBUSY if the device has not finished (the caller must then try again soon), -ENXIO if the device
 * has failed, with the reason in the error text, and -ENOMEM.
 */
#ifndef HW_TCP_STAGING_H
#define HW_TCP_STAGING_H

#include "base/base.h"
#include "base/knob.h"
#include "core/link.h"
#include "mem/space.h"

#include <sys/uio.h>

struct hw_staging;

struct hw_staging *hw_staging_new(const struct hw_knobs *k, const struct hw_logger *log);
void hw_staging_free(struct hw_staging *s); /* s may be NULL */

/* ---- sending: piece[0, n) is the data to send next, none of which was sent yet */

/* Starts to copy the pieces that the CPU cannot access, until the ring is full. */
int hw_staging_ahead(struct hw_staging *s, const struct hw_piece *piece, uint32_t n);
/* Fills iov with the host addresses of the first bytes. Returns the number of entries, which is at least 1, or -EBUSY
 * or -ENXIO. */
int hw_staging_list(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, struct iovec *iov, size_t cap);
/* Reports that this many bytes were sent. */
void hw_staging_sent(struct hw_staging *s, const struct hw_piece *piece, uint64_t bytes);

/* ---- receiving: piece[0, n) is the destination of the bytes that hw_staging_in_placed() has not counted */

/* Returns the address and the maximum size of the next bytes that the socket must receive for the pieces before the
 * first piece that the CPU can access. Fails with -EBUSY if the ring is full or all bytes have arrived. */
int hw_staging_in_buffer(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, uint8_t **host, uint32_t *len);
/* Reports that the socket has received n bytes at the address from hw_staging_in_buffer(). */
int hw_staging_in_fill(struct hw_staging *s, uint32_t n);
/* Sending: returns true if the ring has bytes that were not sent. */
bool hw_staging_has_unsent(const struct hw_staging *s);
/* Returns true if bytes whose copy has started are not counted yet. */
bool hw_staging_in_owes(const struct hw_staging *s);
/* Counts bytes that are in place, up to `most`, and returns their number. If no bytes are in place, returns 0 if no
 * copy is in flight, or -EBUSY or -ENXIO. */
int64_t hw_staging_in_placed(struct hw_staging *s, uint64_t most);
/* Drops the bytes that have arrived, because the device has failed. hw_staging_in_placed() still counts these bytes. */
void hw_staging_in_drop(struct hw_staging *s);

/* ---- both directions */

/* Copies a piece to host memory. Must be called after hw_staging_settle(). Fails with -ENOMEM, or with -ENXIO,
 * including if a copy takes longer than HW_COPIES_WAIT_MS. */
int hw_staging_load(struct hw_staging *s, const struct hw_piece *piece, uint8_t *to);

/* Drops the bytes in the ring for sending; bytes that are offered again are copied again. On success the device no
 * longer accesses the caller's memory. hw_staging_in_placed() still counts received bytes. Fails with -EBUSY or
 * -ENXIO. */
int hw_staging_settle(struct hw_staging *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: memory that sockets cannot use (a GPU's) passes through rings of pinned host memory, one for each direction
 * of a connection, allocated at the first use. While the device copies one part of a ring, the socket sends or receives
 * another. Each direction crosses host memory once more than with memory that sockets can use (docs/engine.md).
 *
 * Only hw_staging_free(), hw_staging_settle() and hw_staging_load() block: they wait for copies in flight, at most
 * HW_COPIES_WAIT_MS (copies.h). A device that does not answer for so long is stuck; its ring stays allocated until it
 * answers.
 *
 * Errors: -EBUSY: the device is not done yet, ask again soon; -ENXIO: the device failed, see the text; -ENOMEM.
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
void hw_staging_free(struct hw_staging *s); /* NULL is allowed */

/* ---- out: piece[0, n) is the data to send next; none of it was sent yet. */

/* Starts to copy the pieces that the CPU cannot use, as far as there is room. */
int hw_staging_ahead(struct hw_staging *s, const struct hw_piece *piece, uint32_t n);
/* Fills iov with the host addresses of the first bytes. Returns the number of entries, at least 1; -EBUSY, -ENXIO. */
int hw_staging_list(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, struct iovec *iov, size_t cap);
/* Reports that this many bytes were sent. */
void hw_staging_sent(struct hw_staging *s, const struct hw_piece *piece, uint64_t bytes);

/* ---- in: piece[0, n) is the destination of the bytes that hw_staging_in_placed() has not counted. */

/* Returns where the socket must put the next bytes for the pieces before the first one that the CPU can use, and how
 * many at most. -EBUSY: the ring is full, or all bytes have arrived. */
int hw_staging_in_buffer(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, uint8_t **host, uint32_t *len);
/* Reports that the socket put n bytes there. */
int hw_staging_in_fill(struct hw_staging *s, uint32_t n);
/* Returns true if the ring holds bytes that were not sent. */
bool hw_staging_has_unsent(const struct hw_staging *s);
/* Returns true if bytes have arrived that are not counted yet. */
bool hw_staging_in_owes(const struct hw_staging *s);
/* Counts bytes that are in place, up to `most`. 0: no copy is in flight; -EBUSY, -ENXIO. */
int64_t hw_staging_in_placed(struct hw_staging *s, uint64_t most);
/* The device has failed: drops the bytes that have arrived; they still must be counted. */
void hw_staging_in_drop(struct hw_staging *s);

/* ---- both */

/* Copies a piece to host memory; call it after hw_staging_settle(). -ENXIO, also if the copy takes too long. */
int hw_staging_load(struct hw_staging *s, const struct hw_piece *piece, uint8_t *to);

/* Drops the bytes in the ring for sending: if they are offered again, they are copied again. On return the received
 * bytes are in place and still must be counted, and the device no longer accesses the caller's memory. -ENXIO. */
int hw_staging_settle(struct hw_staging *s);

#endif

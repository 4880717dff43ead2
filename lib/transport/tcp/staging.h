/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: memory that sockets cannot use (a GPU's) passes through rings of pinned host memory, one each way per
 * connection, made when the first such bytes arrive. While the device copies one part of a ring, the socket sends or
 * receives another. Each direction passes over host memory once more than it does with memory that sockets can use
 * (docs/engine.md).
 *
 * Nothing here blocks, but for hw_staging_free(), hw_staging_settle() and hw_staging_load(), which wait for copies
 * under way and no longer than HW_COPIES_WAIT_MS (copies.h): a device that does not answer for so long is stuck, and
 * its ring is then left to it until it does.
 *
 * Errors: -EBUSY the device has not got there yet, ask again soon; -ENXIO the device failed, as the text says; -ENOMEM.
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

/* ---- out: piece[0, n) is what is to be sent next, of which nothing was sent yet. */

/* Starts copying what of it the CPU cannot use, as far as there is room. */
int hw_staging_ahead(struct hw_staging *s, const struct hw_piece *piece, uint32_t n);
/* Fills iov with where its first bytes are in host memory. Returns how many, at least 1; -EBUSY, -ENXIO. */
int hw_staging_list(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, struct iovec *iov, size_t cap);
/* So many bytes of it are sent. */
void hw_staging_sent(struct hw_staging *s, const struct hw_piece *piece, uint64_t bytes);

/* ---- in: piece[0, n) is where the bytes go that hw_staging_in_placed() has not counted. */

/* Where the socket is to put the next bytes, of those in front of the first piece that the CPU can use, and how many at
 * most. -EBUSY: the ring is full, or all of them have come. */
int hw_staging_in_buffer(struct hw_staging *s, const struct hw_piece *piece, uint32_t n, uint8_t **host, uint32_t *len);
/* n bytes were put there. */
int hw_staging_in_fill(struct hw_staging *s, uint32_t n);
/* Are there bytes in the ring that were not sent? */
bool hw_staging_has_unsent(const struct hw_staging *s);
/* True if something has come that is still to be counted. */
bool hw_staging_in_owes(const struct hw_staging *s);
/* Counts bytes that are in their place, up to `most`. 0: nothing is being copied; -EBUSY, -ENXIO. */
int64_t hw_staging_in_placed(struct hw_staging *s, uint64_t most);
/* The device has failed: what has come goes nowhere, and is still to be counted. */
void hw_staging_in_drop(struct hw_staging *s);

/* ---- both */

/* Copies a piece to host memory, after hw_staging_settle(). -ENXIO, and where it takes too long. */
int hw_staging_load(struct hw_staging *s, const struct hw_piece *piece, uint8_t *to);

/* What was put into the ring for sending is dropped: it is copied again if it is offered again. What has come is in its
 * place on return, and is still to be counted. The device touches no memory of the caller's any more. -ENXIO. */
int hw_staging_settle(struct hw_staging *s);

#endif

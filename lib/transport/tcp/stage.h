/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: memory that sockets cannot use (a GPU's) passes through rings of pinned host memory, one each way per
 * connection, made when the first such chunk comes. The device copies while the socket moves what was copied before:
 * one pass over host memory more each way than host memory takes, and no copy by the CPU (docs/engine.md).
 *
 * Nothing here blocks, but for hw_stage_free() and hw_stage_cut(), which wait for copies under way and no longer than
 * HW_COPIES_WAIT_MS (copies.h): a device that does not answer for so long is stuck, and its ring is then left to it
 * until it does.
 *
 * Errors: -EBUSY the device has not got there yet, ask again soon; -ENXIO the device failed, as the text says.
 */
#ifndef HW_TCP_STAGE_H
#define HW_TCP_STAGE_H

#include "base/base.h"
#include "base/knob.h"
#include "mem/space.h"

struct hw_stage;

/* A piece of the outgoing ring. */
struct hw_staged {
    const struct hw_space *space; /* NULL: not staged */
    const uint8_t *host;          /* where it lies in the ring; NULL: it did not start yet */
    void *queue;
    uint64_t ticket;
    uint64_t end; /* of its place in the ring */
};

struct hw_stage *hw_stage_new(const struct hw_knobs *k, const struct hw_logger *log);
void hw_stage_free(struct hw_stage *s); /* NULL is allowed */

/* ---- out */

/* Bytes that still fit in one piece; one of the knob's largest chunks always does where nothing is staged. */
uint32_t hw_stage_room(const struct hw_stage *s);
/* Starts copying len bytes at src into the ring. 0, -ENOMEM, -ENXIO; -EBUSY: no room now. */
int hw_stage_out(struct hw_stage *s, const struct hw_space *space, const void *src, uint32_t len,
                 struct hw_staged *out);
/* Is it in the ring? 0, -EBUSY, -ENXIO. */
int hw_stage_ready(struct hw_stage *s, struct hw_staged *st);
/* Its bytes, and all that were staged before them, are needed no more. */
void hw_stage_release(struct hw_stage *s, const struct hw_staged *st);

/* ---- in */

/* The len bytes that come next go to `to` in the space. */
int hw_stage_in(struct hw_stage *s, const struct hw_space *space, void *to, uint32_t len);
/* Where the socket is to put the next bytes and how many at most. 0, -EBUSY: the ring is full; -ENXIO. */
int hw_stage_in_buffer(struct hw_stage *s, uint8_t **host, uint32_t *len);
/* n bytes were put there. */
int hw_stage_in_fill(struct hw_stage *s, uint32_t n);
/* Is everything in its place? 0, -EBUSY, -ENXIO. */
int hw_stage_in_done(struct hw_stage *s);
/* What is still to come goes nowhere: on return the device writes to its memory no more. */
void hw_stage_cut(struct hw_stage *s);

#endif

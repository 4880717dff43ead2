/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how many of the remaining bytes a rail may take now. Rails pull their work, so a slow rail carries less and
 * never delays the others. A rail that would finish its share after all others have finished everything takes nothing.
 * Pure functions: no clock, no lock, no sockets, no memory.
 */
#ifndef HW_STRIPE_H
#define HW_STRIPE_H

#include "base/base.h"

/*
 * The rate of one rail: bytes confirmed between two confirmations while data was in flight all the time. The time
 * before the first confirmation is a round trip, and a poor measure of the rate: a thread may have slept. The fastest
 * round trip is used until there is a better value.
 */
struct hw_rate {
    uint64_t value;   /* bytes/s; 0: not known yet */
    bool provisional; /* value is from one round trip */
    uint64_t started; /* when data became in flight, ns */
    uint64_t since;   /* the first confirmation of the interval; 0: none yet */
    uint64_t bytes;   /* confirmed since then */
};

/* Data is in flight from now on, after there was none. */
void hw_rate_start(struct hw_rate *r, uint64_t now);
/* bytes were confirmed at now. */
void hw_rate_confirm(struct hw_rate *r, uint64_t now, uint64_t bytes);

/* What a rail knows of itself and, perhaps some milliseconds old, of the whole session. */
struct hw_stripe {
    uint64_t rate, in_flight; /* of this rail: bytes/s (0: unknown), bytes */
    uint64_t best_rate;       /* of all rails that are alive */
    uint64_t all_rates;       /* sum */
    uint64_t all_in_flight;   /* sum, bytes */
    uint64_t left;            /* bytes of the operation that no rail has taken yet */
    uint64_t behind;          /* of all later ones */
    unsigned rails;           /* that live */
    uint64_t min_chunk, max_chunk;
};

/* True if a rail of this rate finishes this many bytes soon enough, regardless of others. */
bool hw_stripe_is_soon(uint64_t rate, uint64_t bytes);

/* How long chunks may be, from least to most bytes, that a rail of this rate (bytes/s, 0: unknown) is not busy with one
 * for longer than a millisecond, and that each of so many rails has several of the `left` bytes. */
uint64_t hw_stripe_lengthen(uint64_t least, uint64_t most, uint64_t left, unsigned rails, uint64_t rate);

/* Bytes that the rail may take now, as one chunk: up to budget, left and max_chunk; 0: none. Neither they nor what is
 * then left are fewer than half of min_chunk, unless there were fewer to begin with: a payload of a few bytes goes with
 * its head and not by a transport's own way, and costs as much as one of many. */
uint64_t hw_stripe_take(const struct hw_stripe *s, uint64_t budget);

#endif

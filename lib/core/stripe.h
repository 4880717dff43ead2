/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how many of the remaining bytes a rail may take now. Rails pull their work, so a slow rail carries less. A
 * slow rail that would noticeably delay the end of all work takes nothing. No function reads a clock, takes a lock,
 * uses a socket or allocates memory.
 */
#ifndef HW_STRIPE_H
#define HW_STRIPE_H

#include "base/base.h"

/*
 * The rate of one rail: an average of the bytes confirmed per second between two confirmations, measured while data was
 * continuously in flight. The time before the first confirmation is a round trip, which measures the rate poorly,
 * because a thread may have been asleep. The fastest round trip is used until a better value exists.
 */
struct hw_rate {
    uint64_t value;   /* bytes per second; 0 if not known yet */
    bool provisional; /* value is from one round trip */
    uint64_t started; /* time from which data has been in flight, in ns */
    uint64_t since;   /* time of the confirmation that began the interval, or 0 if none has arrived */
    uint64_t bytes;   /* bytes confirmed since then */
};

/* Records that data is in flight from now on, after a time without data in flight. */
void hw_rate_start(struct hw_rate *r, uint64_t now);
/* Counts bytes that were confirmed at the time `now`. */
void hw_rate_confirm(struct hw_rate *r, uint64_t now, uint64_t bytes);

/* State of a rail and of the whole session. The values of other rails may be out of date. */
struct hw_stripe {
    uint64_t rate, in_flight; /* rate of this rail in bytes per second, or 0 if unknown, and its bytes in flight */
    uint64_t path_in_flight;  /* bytes in flight on the rails of its pair of NICs that have a rate */
    uint64_t best_rate;       /* highest rate of all live rails */
    uint64_t all_rates;       /* sum of the rates */
    uint64_t all_in_flight;   /* sum of the bytes in flight on rails with a rate */
    /* bytes in flight on the rails for which hw_stripe_is_like() is true */
    uint64_t like_in_flight;
    unsigned like;   /* number of pairs of NICs with such a rail */
    uint64_t left;   /* bytes of the operation that no rail has taken yet */
    uint64_t behind; /* bytes of all later operations */
    uint64_t total;  /* bytes of the whole operation */
    unsigned rails;  /* number of rails with a rate, plus this rail if it has none; 1 if the others do not matter */
    uint64_t min_chunk, max_chunk;
};

/* Returns true if a rail with this rate is at least half as fast as the best rail. */
bool hw_stripe_is_fast(uint64_t rate, uint64_t best_rate);
/* Returns true if a rail with this rate is not much slower than the best rail, so that fast rails leave it an even
 * share of the work. */
bool hw_stripe_is_like(uint64_t rate, uint64_t best_rate);

/* Returns true if a rail with this rate finishes sending this many bytes so soon that other rails' rates do not
 * matter. */
bool hw_stripe_is_soon(uint64_t rate, uint64_t bytes);
/* Returns true if a rail with this rate finishes sending this many bytes so soon that it need not share the only
 * operation with other pairs of NICs. */
bool hw_stripe_is_brief(uint64_t rate, uint64_t bytes);

/* Returns the maximum length of a chunk, between least and most bytes. Within these limits, a rail with this rate
 * (bytes per second, 0 if unknown) sends a chunk within a millisecond, and each rail gets at least two chunks of the
 * `left` bytes. */
uint64_t hw_stripe_lengthen(uint64_t least, uint64_t most, uint64_t left, unsigned rails, uint64_t rate);

/* Returns the number of bytes that the rail may take now as one chunk, up to budget, left and max_chunk, or 0. Neither
 * the chunk nor the rest is smaller than half of min_chunk, unless fewer bytes were left before. A payload of a few
 * bytes costs as much as a larger payload, and is sent with its header and not by the transport's own method. A rail
 * that is not much slower than the best rail takes the last 2 * min_chunk bytes of an operation together or not at all,
 * so that a NIC that fails delays fewer operations. */
uint64_t hw_stripe_take(const struct hw_stripe *s, uint64_t budget);

#endif

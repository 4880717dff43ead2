/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of a peer's rails, as the other rails see them. A rail fills its struct hw_stripe with these rates. */
#ifndef HW_PACE_H
#define HW_PACE_H

#include "core/rail.h"
#include "core/stripe.h"

#include <stdatomic.h>

struct hw_pace {
    struct hw_rate rate; /* rate measured by the rail's loop */
    uint32_t gen;        /* the rail's generation in which the rate was measured */
    uint32_t path;       /* number of the rail's pair of NICs, or the rail's own number if that is unknown */
    bool has_others;     /* some of the peer's rails belong to another pair of NICs */
    uint64_t seen;       /* time at which the rate was last measured or given up, in ns of the loop's clock */
    /* Values for other rails. shown is 0 if the rail has no rate yet, and after hw_pace_forget(). */
    _Atomic uint64_t shown, in_flight;
    char apart[64]; /* prevents two entries from sharing a cache line */
};

/* Sets the pair of NICs of rail i, which is one of the peer's `rails` rails. Called before the rails start. */
void hw_pace_pair(struct hw_pace *all, unsigned rails, unsigned i, unsigned pair);
/* Fills in the members of *s about this rail and, unless this rail finishes soon, about all rails that have a rate.
 * Called on the rail's loop. */
void hw_pace_look(struct hw_pace *all, unsigned rails, unsigned own, struct hw_rail *r, struct hw_stripe *s);
/* Starts the measurement, before the rail sends bulk data, if nothing is in flight on the rail. Called on the rail's
 * loop. */
void hw_pace_start(struct hw_pace *p, const struct hw_rail *r);
/* Counts bytes of bulk data that the peer has confirmed. Called on the rail's loop. */
void hw_pace_confirm(struct hw_pace *p, const struct hw_rail *r, uint64_t bytes);
/* Removes the rail from the comparison, because it has ended, is suspect, or leaves bulk data to other rails. */
void hw_pace_forget(struct hw_pace *p);
/* Returns the rail with the highest rate, or `own` if no rail has a rate. */
unsigned hw_pace_best(const struct hw_pace *all, unsigned rails, unsigned own);
/* Returns a fast rail of another pair of NICs that has nothing in flight and would therefore take a chunk, or `own` if
 * there is none. s is this rail's stripe. */
unsigned hw_pace_idle(const struct hw_pace *all, unsigned rails, unsigned own, const struct hw_stripe *s);

#endif

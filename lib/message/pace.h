/* SPDX-License-Identifier: Apache-2.0 */
/* What the rails of a peer know of each other's pace; input of the stripe (core/stripe.h). */
#ifndef HW_PACE_H
#define HW_PACE_H

#include "core/rail.h"
#include "core/stripe.h"

#include <stdatomic.h>

struct hw_pace {
    struct hw_rate rate; /* as measured by the rail's loop, .. */
    uint32_t gen;        /* .. the rail's generation that it belongs to, and .. */
    uint64_t seen;       /* .. when it was last measured or given up; ns of the loop's clock */
    /* For other rails; 0: the rail is down, or has no rate yet. */
    _Atomic uint64_t shown, in_flight;
    char apart[64]; /* keeps two entries off a shared cache line */
};

/* Fills the rails of *s: those with a rate, and this one. On this one's loop. */
void hw_pace_look(struct hw_pace *all, unsigned rails, unsigned own, struct hw_rail *r, struct hw_stripe *s);
/* The rail is about to send bulk. On its loop. */
void hw_pace_start(struct hw_pace *p, const struct hw_rail *r);
/* The peer has confirmed this many bytes of bulk. On the rail's loop. */
void hw_pace_confirm(struct hw_pace *p, const struct hw_rail *r, uint64_t bytes);
/* The rail has ended, or leaves bulk to others. */
void hw_pace_forget(struct hw_pace *p);
/* The rail with the highest rate; `own` if none has a rate. */
unsigned hw_pace_best(const struct hw_pace *all, unsigned rails, unsigned own);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer's rails know of each other's pace: what the stripe (core/stripe.h) asks for. */
#ifndef HW_PACE_H
#define HW_PACE_H

#include "core/rail.h"
#include "core/stripe.h"

#include <stdatomic.h>

struct hw_pace {
    struct hw_rate rate; /* the rail's loop's, as .. */
    uint32_t gen;        /* .. the generation that it is of, and .. */
    uint64_t seen;       /* .. when it was measured last, or given up; ns of the loop's clock */
    /* As others see them; 0: the rail is down, or has no rate yet. */
    _Atomic uint64_t shown, in_flight;
    char apart[64]; /* no cache line is the next one's, too */
};

/* Fills in what *s has of the rails: those with a rate, and this one. On this one's loop. */
void hw_pace_look(struct hw_pace *all, unsigned rails, unsigned own, struct hw_rail *r, struct hw_stripe *s);
/* The rail is about to send bulk. On its loop. */
void hw_pace_start(struct hw_pace *p, const struct hw_rail *r);
/* The peer has confirmed so many bytes of bulk. On its loop. */
void hw_pace_confirm(struct hw_pace *p, const struct hw_rail *r, uint64_t bytes);
/* The rail has ended, or leaves bulk to others. */
void hw_pace_forget(struct hw_pace *p);
/* The rail with the highest rate; `own` where none has one. */
unsigned hw_pace_best(const struct hw_pace *all, unsigned rails, unsigned own);

#endif

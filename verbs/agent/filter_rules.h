/* SPDX-License-Identifier: Apache-2.0 */
/* The filter's rules as data, for filter.c and filter_spec.c, which translate them for the kernel and for OCI. */
#ifndef HW_VERBS_FILTER_RULES_H
#define HW_VERBS_FILTER_RULES_H

#include "base/base.h"

/* (argument arg & mask) == value. Masks have 32 bits if the kernel uses only 32 bits of the register: a comparison of
 * all 64 bits could be bypassed by setting the others. Masks of addresses select a block of 2^n bytes, without the
 * topmost bit, which no user address has and JSON cannot represent. */
struct vb_compare {
    uint8_t arg;
    uint64_t mask, value; /* mask 0: no comparison */
};

/* A rule for a call; applies if all comparisons hold, or always if there is none. */
struct vb_filter_rule {
    const char *call;
    int err; /* the call's error; 0: notify */
    struct vb_compare is[2];
};
extern const struct vb_filter_rule vb_filter_rules[]; /* ends with a NULL call */

#endif

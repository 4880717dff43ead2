/* SPDX-License-Identifier: Apache-2.0 */
/* What the filter does, as data: of filter.c and filter_spec.c, which put it into the kernel's words and the OCI's. */
#ifndef HW_VERBS_FILTER_RULES_H
#define HW_VERBS_FILTER_RULES_H

#include "base/base.h"

/* (argument arg & mask) == value. Masks are of 32 bits where the kernel takes no more of a register: a comparison of
 * all 64 could be got round by setting the others. Those of addresses are a block of 2^n bytes, and do without the
 * topmost bit, which no user's address has, and JSON no place for. */
struct vb_compare {
    uint8_t arg;
    uint64_t mask, value; /* mask 0: no comparison */
};

/* Of a call, where all comparisons hold; always, if there is none. */
struct vb_filter_rule {
    const char *call;
    int err; /* what it fails with; 0: it is notified */
    struct vb_compare is[2];
};
extern const struct vb_filter_rule vb_filter_rules[]; /* to a NULL call */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the filter as a table. filter.c translates them for the kernel, and filter_spec.c for OCI runtimes. */
#ifndef HW_VERBS_FILTER_RULES_H
#define HW_VERBS_FILTER_RULES_H

#include "base/base.h"

/* The condition (argument arg & mask) == value. If the kernel uses only 32 bits of the register, the mask is within
 * these bits: a program could bypass a comparison of all 64 bits by setting the unused bits. Masks of addresses select
 * a block of 2^n bytes. They do not contain the topmost bit, which no user address has, and which would make jansson's
 * signed integers negative. */
struct vb_compare {
    uint8_t arg;
    uint64_t mask, value; /* mask is 0 if there is no condition */
};

/* A rule for a system call, which applies if all conditions are true. A rule without conditions always applies. */
struct vb_filter_rule {
    const char *call;
    int err; /* errno with which the call fails, or 0 to notify the broker */
    struct vb_compare is[2];
};
extern const struct vb_filter_rule vb_filter_rules[]; /* the last entry has call == NULL */

#endif

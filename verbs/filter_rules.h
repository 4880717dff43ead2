/* SPDX-License-Identifier: Apache-2.0 */
/* What the filter does, as data: of filter.c and filter_spec.c, which put it into the kernel's words and the OCI's. */
#ifndef HW_VERBS_FILTER_RULES_H
#define HW_VERBS_FILTER_RULES_H

#include "base/base.h"

#define VB_NO_ARG 0xff

/* Of a call, where (argument arg & mask) == value. Masks are of 32 bits where the kernel takes no more of a register:
 * a comparison of all 64 could be got round by setting the others. */
struct vb_filter_rule {
    const char *call;
    int err;     /* what it fails with; 0: it is notified */
    uint8_t arg; /* VB_NO_ARG: always */
    uint32_t mask, value;
};
extern const struct vb_filter_rule vb_filter_rules[]; /* to a NULL call */

#endif

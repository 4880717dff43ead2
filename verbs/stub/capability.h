/* SPDX-License-Identifier: Apache-2.0 */
/* Each capability of linux/capability.h, and what it lets a program do that is meant to reach RDMA devices by its
 * broker alone. */
#ifndef HW_VERBS_CAPABILITY_H
#define HW_VERBS_CAPABILITY_H

#include "base/base.h"

struct vb_capability {
    const char *name;
    const char
        *leaves;    /* why a command of `hawser verbs run` has it no more: what it could do with it; NULL: it stays */
    bool container; /* the same from within a container of the host's user namespace */
};

/* NULL for the number of a capability that is newer than this table. */
const struct vb_capability *vb_capability(unsigned number);
/* A bit for each that stays. Those that are newer than the table do not. */
uint64_t vb_capabilities_kept(void);

#endif

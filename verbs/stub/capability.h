/* SPDX-License-Identifier: Apache-2.0 */
/* Each capability of linux/capability.h, and what it allows to a program that should reach RDMA devices only through
 * its broker. */
#ifndef HW_VERBS_CAPABILITY_H
#define HW_VERBS_CAPABILITY_H

#include "base/base.h"

struct vb_capability {
    const char *name;
    const char *leaves; /* why `hawser verbs run` drops it: what a command could do with it; NULL: it is kept */
    bool container;     /* the same from within a container in the host's user namespace */
};

/* Returns NULL for a capability newer than this table. */
const struct vb_capability *vb_capability(unsigned number);
/* Returns a bit for each kept capability; newer ones than the table are not kept. */
uint64_t vb_capabilities_kept(void);

#endif

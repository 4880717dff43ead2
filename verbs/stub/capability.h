/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the capabilities of linux/capability.h, and the way in which a program could misuse each dropped capability. */
#ifndef HW_VERBS_CAPABILITY_H
#define HW_VERBS_CAPABILITY_H

#include "base/base.h"

struct vb_capability {
    const char *name;
    const char *leaves; /* attack that the capability would enable; NULL if `hawser verbs run` keeps the capability */
    bool container;     /* the attack is also possible from a container in the host's user namespace */
};

/* Returns the entry of a capability, or NULL if the capability is not in this table. */
const struct vb_capability *vb_capability(unsigned number);
/* Returns a mask of the capabilities that are kept. Capabilities that are newer than the table are not kept. */
uint64_t vb_capabilities_kept(void);

#endif

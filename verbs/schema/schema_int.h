/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the tables of schema_write.c, schema_methods.c and schema_driver.c, and macros for them. */
#ifndef HW_VERBS_SCHEMA_INT_H
#define HW_VERBS_SCHEMA_INT_H

#include "verbs/schema/schema.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#define VB_FITS UINT32_MAX
/* Offset of the end of a member, used as the smallest size at which the kernel accepts an extensible struct. */
#define VB_BEHIND(type, member) ((uint32_t)(offsetof(type, member) + sizeof(((type *)0)->member)))

struct vb_commands {
    const struct vb_command *c;
    unsigned n;
};
extern const struct vb_commands vb_write_commands, vb_method_commands;
extern const struct vb_driver vb_drivers[];
extern const unsigned vb_n_drivers;

#endif

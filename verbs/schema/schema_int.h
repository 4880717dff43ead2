/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the schema's three files, and their macros. */
#ifndef HW_VERBS_SCHEMA_INT_H
#define HW_VERBS_SCHEMA_INT_H

#include "verbs/schema/schema.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#define VB_FITS UINT32_MAX
/* The offset after a member: the least size of an extensible struct that the kernel accepts. */
#define VB_BEHIND(type, member) ((uint32_t)(offsetof(type, member) + sizeof(((type *)0)->member)))

struct vb_commands {
    const struct vb_command *c;
    unsigned n;
};
extern const struct vb_commands vb_write_commands, vb_method_commands;
extern const struct vb_driver vb_drivers[];
extern const unsigned vb_n_drivers;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which network device is which, whatever a tenant does to it. Index, name, MAC and the rest of a device are what its
 * namespace's administrator makes them. The number of its folder in sysfs is not: the kernel numbers the folders of all
 * namespaces from one counter (kernfs_node.id in fs/kernfs/dir.c, the inode's number since Linux 5.5), gives no number
 * twice until the machine restarts, and a device keeps its folder when it is renamed or goes to another namespace
 * (device_rename() in __dev_change_net_namespace(), net/core/dev.c). So a device that has the number that was noted
 * before the move is that device, and one that has another is not.
 */
#ifndef HW_SANDBOX_IDENT_H
#define HW_SANDBOX_IDENT_H

#include "base/base.h"

#include <net/if.h>

/* Opens the sysfs of the network namespace ns: a mount that no folder shows. Returns a descriptor or -errno. The
 * calling thread visits the namespace and is back on return. */
int sb_sysfs_open(int ns);
/* Opens the folder of the device that has this name now, and says its identity and index (either may be NULL). What is
 * read by the descriptor is of that device, even if it is renamed meanwhile. Returns a descriptor, -ENODEV, -errno. */
int sb_ident_open(int sysfs, const char *name, uint64_t *ident, int *index);
/* Looks for the device of that identity, first under the name hint (may be NULL). 0 with its name and index of the
 * moment; -ENODEV. */
int sb_ident_find(int sysfs, uint64_t ident, const char *hint, char name[IFNAMSIZ], int *index);

#endif

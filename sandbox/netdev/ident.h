/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifies a network device whatever a tenant does to it. The administrator of a device's namespace controls its
 * index, name, MAC and everything else, but not the number of its folder in sysfs: the kernel numbers the folders of
 * all namespaces from one counter (kernfs_node.id in fs/kernfs/dir.c, the inode number since Linux 5.5), reuses no
 * number until the machine restarts, and a device keeps its folder when it is renamed or moves to another namespace
 * (device_rename() in __dev_change_net_namespace(), net/core/dev.c). So a device with the number recorded before the
 * move is that device, and one with another number is not.
 */
#ifndef HW_SANDBOX_IDENT_H
#define HW_SANDBOX_IDENT_H

#include "base/base.h"

#include <net/if.h>

/* Opens the sysfs of the network namespace ns: a detached mount. Returns a descriptor or -errno. The calling thread
 * enters the namespace and returns. */
int sb_sysfs_open(int ns);
/* Opens the folder of the device that has this name now, and returns its identity and index (either may be NULL). Reads
 * through the descriptor refer to that device, even if it is renamed. Returns a descriptor, -ENODEV, -errno. */
int sb_ident_open(int sysfs, const char *name, uint64_t *ident, int *index);
/* Finds the device with that identity, first under the name hint (may be NULL). 0 with its current name and index;
 * -ENODEV. */
int sb_ident_find(int sysfs, uint64_t ident, const char *hint, char name[IFNAMSIZ], int *index);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifies a network device regardless of any changes that a tenant makes to it. The administrator of a device's
 * namespace can change the device's name, MAC and other attributes, but not the number of its folder in sysfs. The
 * kernel numbers the folders of all namespaces with one counter (kernfs_node.id in fs/kernfs/dir.c, which has been the
 * inode number since Linux 5.5) and does not reuse numbers until the machine restarts. A device keeps its folder when
 * it is renamed or moves to another namespace (device_rename() in __dev_change_net_namespace(), net/core/dev.c). A
 * device that has the number recorded before the move is therefore the same device, and a device with any other number
 * is not.
 */
#ifndef HW_SANDBOX_IDENT_H
#define HW_SANDBOX_IDENT_H

#include "base/base.h"

#include <net/if.h>

/* Opens the sysfs of the network namespace ns as a detached mount. Returns a file descriptor or -errno. The calling
 * thread temporarily enters the namespace. */
int sb_sysfs_open(int ns);
/* Opens the folder of the device that currently has this name, and stores its identity in *ident and its index in
 * *index. Both pointers may be NULL. Reads through the returned file descriptor refer to that device even if it is
 * renamed. Fails with -ENODEV or another -errno. */
int sb_ident_open(int sysfs, const char *name, uint64_t *ident, int *index);
/* Finds the device with that identity, first under the name `hint`, which may be NULL. Returns 0 and stores its current
 * name and index, or fails with -ENODEV or another -errno. */
int sb_ident_find(int sysfs, uint64_t ident, const char *hint, char name[IFNAMSIZ], int *index);

#endif

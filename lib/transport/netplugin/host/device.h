/* SPDX-License-Identifier: Apache-2.0 */
/* Which device of a plugin's is a NIC. */
#ifndef HW_NETPLUGIN_DEVICE_H
#define HW_NETPLUGIN_DEVICE_H

#include "transport/netplugin/host/host.h"

/* The device that carries what goes over nic: as map has it ("eth1=0,eth2=1"), else by its name, else by its PCI
 * address. Where a plugin's names are no NICs' at all its first device may be that of one NIC, which is warned of.
 * Returns its number; -ENODEV: none is that NIC's, or it cannot be told; -EINVAL: the map is none. */
int np_device_of(struct np_host *h, const char *nic, const char *map, const struct hw_logger *log);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the plugin's device of a NIC. */
#ifndef HW_NETPLUGIN_DEVICE_H
#define HW_NETPLUGIN_DEVICE_H

#include "transport/netplugin/host/host.h"

/* Returns the number of the device for traffic over nic: by map ("eth1=0,eth2=1"), else by name, else by PCI address.
 * If none of a plugin's names is a NIC's, its first device is assigned to one NIC, with a warning. -ENODEV: no device
 * is that NIC's, or none can be determined; -EINVAL: the map is invalid. */
int np_device_of(struct np_host *h, const char *nic, const char *map, const struct hw_logger *log);

#endif

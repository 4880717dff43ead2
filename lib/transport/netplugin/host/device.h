/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the plugin's device for a NIC. */
#ifndef HW_NETPLUGIN_DEVICE_H
#define HW_NETPLUGIN_DEVICE_H

#include "transport/netplugin/host/host.h"

/* Returns the number of the device for traffic over nic. The device is found by map ("eth1=0,eth2=1"), or by name, or
 * by PCI address. If no device of the plugin has the name of a NIC, the first device is assigned to one NIC, with a
 * warning if there are several devices. Fails with -ENODEV if no device can be determined, with -EINVAL if the map is
 * invalid, or with an error of np_props(). */
int np_device_of(struct np_host *h, const char *nic, const char *map, const struct hw_logger *log);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reports NICs that lose or regain their link, from the link group of rtnetlink(7). */
#ifndef HW_CARRIER_H
#define HW_CARRIER_H

#include "base/base.h"

/* Opens a nonblocking socket that becomes readable when a NIC of this network namespace changes. Returns a descriptor,
 * or a negative errno, for example in a sandbox without netlink. */
int hw_carrier_open(void);

/* Calls tell for each of the kernel's messages about a NIC since the last call. up is true if the NIC is up and has a
 * link, and false otherwise, including for a removed NIC. If nic is NULL, changes may have been lost, and the state of
 * every NIC is unknown. */
void hw_carrier_read(int fd, void (*tell)(void *arg, const char *nic, bool up), void *arg);

#endif

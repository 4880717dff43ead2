/* SPDX-License-Identifier: Apache-2.0 */
/* NICs that lose their link and get it back, as the kernel tells it: rtnetlink(7), the group of links. */
#ifndef HW_CARRIER_H
#define HW_CARRIER_H

#include "base/base.h"

/* A socket that hears of the NICs of this network namespace, does not block, and can be read when one has changed. A
 * descriptor or -errno (a sandbox that has no netlink). */
int hw_carrier_open(void);

/* Tells of each NIC that has changed since, by name: is it up, with a link? One that was removed, or set down, is not.
 * NULL: the kernel has left some out, and nothing is known of any. */
void hw_carrier_read(int fd, void (*tell)(void *arg, const char *nic, bool up), void *arg);

#endif

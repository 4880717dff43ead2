/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses under which others reach this machine's NICs, where those are not the NICs' own: behind an address
 * translator, in pods. Knob advertise. */
#ifndef HW_ADVERTISE_H
#define HW_ADVERTISE_H

#include "net/nic.h"

/* Text is "NIC=ADDRESS[:PORT]", comma-separated, IPv6 with a port in brackets; without "NIC=" it is for the NIC that a
 * peer's first connection came in by. 0 or -EINVAL with the bad part. */
int hw_advertise_check(const char *text);

/* Reads one part of it, with port 0 where it has none. False: it is none. */
bool hw_advertise_read(const char *part, union hw_addr *out);

/* The address for this NIC into *out, with `port` where the text has none; false: its own. first: the connection came
 * in by this one. */
bool hw_advertise_find(const char *text, const char *nic, bool first, uint16_t port, union hw_addr *out);

#endif

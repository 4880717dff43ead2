/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses under which peers reach this machine's NICs if they differ from the NICs' own: behind an address
 * translator, in pods. Knob advertise. */
#ifndef HW_ADVERTISE_H
#define HW_ADVERTISE_H

#include "net/nic.h"

/* Checks text: "NIC=ADDRESS[:PORT]", comma-separated, IPv6 with a port in brackets. A part without "NIC=" is for the
 * NIC on which a peer's first connection arrived. 0, or -EINVAL with the bad part. */
int hw_advertise_check(const char *text);

/* Reads one part of the text; the port is 0 if the part has none. Returns false if the part is invalid. */
bool hw_advertise_read(const char *part, union hw_addr *out);

/* Finds the address to advertise for this NIC, with `port` if the text has none. Returns false if the NIC's own address
 * applies. first: the first connection arrived on this NIC. */
bool hw_advertise_find(const char *text, const char *nic, bool first, uint16_t port, union hw_addr *out);

#endif

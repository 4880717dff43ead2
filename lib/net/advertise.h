/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that peers use to reach this machine's NICs if the peers cannot use the NICs' own addresses, for example
 * behind an address translator or in pods. The addresses come from knob advertise. */
#ifndef HW_ADVERTISE_H
#define HW_ADVERTISE_H

#include "net/nic.h"

/* Checks a text of parts "[NIC=]ADDRESS[:PORT]", separated by commas. An IPv6 address with a port must be in brackets.
 * A part without "NIC=" applies to the NIC that a peer's first connection arrived on. Returns 0, or -EINVAL with the
 * bad part in the error text. */
int hw_advertise_check(const char *text);

/* Reads one part of the text. The port is 0 if the part has none. Returns false if the part is invalid. */
bool hw_advertise_read(const char *part, union hw_addr *out);

/* Finds the address to advertise for this NIC. The port is `port` if the text contains no port. Returns false if the
 * NIC's own address applies. `first` means that the first connection arrived on this NIC. */
bool hw_advertise_find(const char *text, const char *nic, bool first, uint16_t port, union hw_addr *out);

#endif

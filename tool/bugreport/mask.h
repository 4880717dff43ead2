/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses in a text, replaced so that equal ones stay equal. */
#ifndef HW_TOOL_MASK_H
#define HW_TOOL_MASK_H

/* Writes to a new text what text says, with each IPv4, IPv6 and MAC address and each occurrence of host (NULL or "":
 * none) as <address-1>, <address-2>, ... and <host>. The loopback's addresses and 0.0.0.0 stay. The caller frees it;
 * NULL: no memory. */
char *mask_addresses(const char *text, const char *host);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Detects, with the kernel's counters, data that did not pass through the NIC over which hawser sent or received the
 * data. */
#ifndef HW_TOOL_DETOUR_H
#define HW_TOOL_DETOUR_H

#include "tool/peer/proto.h"

#define DETOUR_TEXT 400

/*
 * Compares our counters with the kernel's over the same period (stats_add()). The kernel also counts headers and other
 * traffic. A count more than a tenth below our payload therefore means that data took another path: for example,
 * routing ignores the source address, a neighbour has a wrong ARP entry, or one device has two names. Writes to text
 * one line, with the remedy for the NIC with the largest difference. Returns false, with an empty text, if no NIC lacks
 * data. Payload below 1 MB is not compared.
 */
bool detour_find(const struct tp_nic *own, size_t n_own, const struct tp_nic *peer, size_t n_peer, char *text,
                 size_t cap);

#endif

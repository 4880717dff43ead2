/* SPDX-License-Identifier: Apache-2.0 */
/* Detects bytes that did not use the NIC on which hawser sent or received them, from the kernel's counters. */
#ifndef HW_TOOL_DETOUR_H
#define HW_TOOL_DETOUR_H

#include "tool/peer/proto.h"

#define DETOUR_TEXT 400

/*
 * Compares our counters with the kernel's for the same time span (stats_add()): a NIC counts all TCP bytes that it
 * carries, headers included, so fewer bytes than our payload mean another path: routing that ignores the source
 * address, a wrong ARP entry at a neighbour, one device with two names. Writes one line with the remedy to text for the
 * NIC with the largest difference; false: there is none, and text is "".
 */
bool detour_find(const struct tp_nic *own, size_t n_own, const struct tp_nic *peer, size_t n_peer, char *text,
                 size_t cap);

#endif

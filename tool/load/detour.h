/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that did not go by the NIC that hawser sent or received them by, as the kernel's counters show. */
#ifndef HW_TOOL_DETOUR_H
#define HW_TOOL_DETOUR_H

#include "tool/peer/proto.h"

#define DETOUR_TEXT 400

/*
 * Looks at counters of the same time span, ours and the kernel's (stats_add()): what a NIC carried of TCP it has
 * counted itself, headers included, so that less than our payload went another way: routing without regard to the
 * source address, a neighbour's ARP table that is wrong, one device behind two names. One line with the remedy into
 * text for the NIC that lacks most; false: none lacks any, and text is "".
 */
bool detour_find(const struct tp_nic *own, size_t n_own, const struct tp_nic *peer, size_t n_peer, char *text,
                 size_t cap);

#endif

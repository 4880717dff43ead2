/* SPDX-License-Identifier: Apache-2.0 */
/* The congestion control of a TCP socket: knob congestion. */
#ifndef HW_CONGESTION_H
#define HW_CONGESTION_H

#include "base/knob.h"

/* Chooses the algorithm of fd. Must be called before connect() or listen(). */
void hw_congestion_choose(int fd, const struct hw_knobs *k);
/* Returns true if both ends of a connection seem to be at the same site: the round-trip time is below 2 ms, the peer is
 * in the subnet of a local NIC, or the peer's address cannot be read. */
bool hw_path_is_near(int fd);
/* Completes the choice for a connected or accepted socket. near is the result of hw_path_is_near(). */
void hw_congestion_settle(int fd, bool near, const struct hw_knobs *k);

#endif

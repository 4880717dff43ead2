/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the data for group pair in a session with `hawser serve`. */
#ifndef HW_TOOL_DOCTOR_PAIR_H
#define HW_TOOL_DOCTOR_PAIR_H

#include "tool/doctor/doctor.h"
#include "tool/peer/reach.h"
#include "tool/peer/session.h"

/* Fills p, except peer and connected, with both nodes' facts, the clock offset, and the result of a connection in
 * each direction over each pair of NICs that share a subnet or are routed rails (reach_is_rail()). port is the peer's
 * listening port. reverse_port is this node's listening port, or 0 for any free port. Takes about 6 s if nothing
 * answers. */
void dr_pair_ask(struct dr_pair *p, int root, struct session *s, uint16_t port, uint16_t reverse_port);

/* Removes each routed link that does not work if one of its NICs has a working link. A network may let a routed NIC
 * reach all NICs of the peer, or only the NIC on the same rail. */
void dr_pair_prune(struct dr_pair *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the data of group pair in a session with `hawser serve`. */
#ifndef HW_TOOL_DOCTOR_PAIR_H
#define HW_TOOL_DOCTOR_PAIR_H

#include "tool/doctor/doctor.h"
#include "tool/peer/reach.h"
#include "tool/peer/session.h"

/* Fills p except peer and connected: both sides' facts, the clocks, and a connection each way over each pair of NICs.
 * port: the peer's listener; reverse_port: this side's listener, 0 for any. Takes about 6 s if nothing answers. */
void dr_pair_ask(struct dr_pair *p, int root, struct session *s, uint16_t port, uint16_t reverse_port);

/* NICs reached by routes may each reach all others, or only their own rail: removes links that do not work if their
 * NICs have other working ones. */
void dr_pair_prune(struct dr_pair *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What group pair goes by is had from a session with `hawser serve`. */
#ifndef HW_TOOL_DOCTOR_PAIR_H
#define HW_TOOL_DOCTOR_PAIR_H

#include "tool/doctor/doctor.h"
#include "tool/peer/reach.h"
#include "tool/peer/session.h"

/* Fills p but peer and connected: both sides' facts, the clocks, and a connection each way over each pair of NICs.
 * port: where the peer listens; reverse_port: where this side is to, 0 for any. Takes some 6 s where nothing answers.
 */
void dr_pair_ask(struct dr_pair *p, int root, struct session *s, uint16_t port, uint16_t reverse_port);

/* Of NICs reached by routes any may reach any, or each only its like: takes out those links that do not work and whose
 * NICs have others that do. */
void dr_pair_prune(struct dr_pair *p);

#endif

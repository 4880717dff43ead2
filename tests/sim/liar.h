/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that sends well-formed frames with false contents. */
#ifndef HW_SIM_LIAR_H
#define HW_SIM_LIAR_H

#include "message/op.h"
#include "world.h"

/* Makes p change the contents of some of its frames from now on. The links and the session of p stay honest: links.c
 * simulates a peer that acknowledges frames that it has not received. */
void liar_take_over(struct world *w, struct hw_peer *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A peer whose frames are well formed and whose words are not true. */
#ifndef HW_SIM_LIAR_H
#define HW_SIM_LIAR_H

#include "message/op.h"
#include "world.h"

/* From here on p changes, now and then, what its frames say to its peer. Its links and its session stay honest:
 * links.c has the peer that confirms what it does not have. */
void liar_take_over(struct world *w, struct hw_peer *p);

#endif

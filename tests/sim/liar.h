/* SPDX-License-Identifier: Apache-2.0 */
/* A peer whose frames are well formed but whose statements are false. */
#ifndef HW_SIM_LIAR_H
#define HW_SIM_LIAR_H

#include "message/op.h"
#include "world.h"

/* From now on p sometimes changes what its frames say to its peer. Its links and its session stay honest: links.c has
 * the peer that acknowledges what it does not have. */
void liar_take_over(struct world *w, struct hw_peer *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Which congestion control a TCP socket has: knob congestion. */
#ifndef HW_CONGESTION_H
#define HW_CONGESTION_H

#include "base/knob.h"

/* Before connect() or listen(). */
void hw_congestion_choose(int fd, const struct hw_knobs *k);
/* Of a connection: do only switches and routers of one site lie between its ends? */
bool hw_path_is_near(int fd);
/* Once it is connected. near: hw_path_is_near() of it. */
void hw_congestion_settle(int fd, bool near, const struct hw_knobs *k);

#endif

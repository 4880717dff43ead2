/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RUDE_WORLD_H
#define RUDE_WORLD_H

#include "rude.h"

/* Reads RUDE. */
void rude_read(void);
/* Applies the selected process-wide faults at the first init. */
void rude_world(ncclDebugLogger_t log);
/* Sleeps for the way's number of milliseconds, if the way is selected. */
void rude_sleep(enum rude_way way);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RUDE_WORLD_H
#define RUDE_WORLD_H

#include "rude.h"

/* Reads RUDE. */
void rude_read(void);
/* What is done to the process, at the first init. */
void rude_world(ncclDebugLogger_t log);
/* So many ms, if it is asked for. */
void rude_sleep(enum rude_way way);

#endif

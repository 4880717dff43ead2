/* SPDX-License-Identifier: Apache-2.0 */
/* How the processes that a launcher has started meet: rank 0 listens, the others find rank 0, and all prove one key. */
#ifndef HW_LAUNCH_MEET_H
#define HW_LAUNCH_MEET_H

#include "tool/common.h"
#include "tool/launch/launch_env.h"
#include "tool/launch/launch_pmix.h"

#define LAUNCH_PLACES 16
/* Where rank 0 may be found: on one of these hosts, at one of the ports from the first one on. */
struct launch_place {
    char host[LAUNCH_PLACES][LAUNCH_HOST];
    size_t n;
    uint16_t port, ports;
};

/* Reads the key of c->key_file, else that of HAWSER_MESH_KEY, which leaves the environment. c->key_len stays 0 where
 * there is neither. -EINVAL, -EACCES, -errno. */
int launch_key(struct common *c);

/* Copies the key and the log level of c for a context of its own. *own is to be freed by common_free(). -errno. */
int launch_copy_common(const struct common *c, uint64_t deadline_ms, struct common *own);
/* Opens a context to talk by: one thread, and events. A peer that is silent for deadline_ms is dead. -errno. */
int launch_open(const struct common *c, uint64_t deadline_ms, struct common *own, hawser **out);

/* What the launcher has said of rank 0's place. place->n is 0 where PMIx must be asked. */
void launch_place_of(const struct launch_seat *seat, struct launch_place *place);
/* Rank 0 listens at the first port of the place's that is free. -errno. */
int launch_listen(hawser *h, const struct launch_place *place, uint16_t *port);
/* Rank 0 tells the others by PMIx where it listens. -errno. */
int launch_publish(struct launch_pmix *pmix, uint16_t port);
/* Another rank asks PMIx where rank 0 listens; sets seat->size too where the launcher did not say it. -EIO, -ENOENT. */
int launch_look_up(struct launch_seat *seat, struct launch_place *place, uint64_t wait_ms);
/* Another rank connects to rank 0, trying for wait_ms. -EACCES: it has another key; -EINTR, -errno. */
int launch_find(hawser *talk, const struct launch_place *place, uint64_t wait_ms, hawser_peer **lead);

#endif

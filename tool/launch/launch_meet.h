/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the processes that a launcher started. Rank 0 listens, and the other ranks connect to rank 0. If there is
 * a job key, both sides prove that they have it. */
#ifndef HW_LAUNCH_MEET_H
#define HW_LAUNCH_MEET_H

#include "tool/common.h"
#include "tool/launch/launch_env.h"
#include "tool/launch/launch_pmix.h"

#define LAUNCH_PLACES 16
/* Possible locations of rank 0: any of these hosts, with any of `ports` ports starting at `port`. */
struct launch_place {
    char host[LAUNCH_PLACES][LAUNCH_HOST];
    size_t n;
    uint16_t port, ports;
};

/* Reads the key from c->key_file or, without a key file, from HAWSER_MESH_KEY. In both cases HAWSER_MESH_KEY is removed
 * from the environment, so that child processes do not get the key. Leaves c->key_len 0 if neither is set. Fails with
 * -EINVAL, -EACCES or another -errno. */
int launch_key(struct common *c);

/* Copies the key and `insecure` of c, and a log level one step lower, to the options of another context, whose peer and
 * handshake timeouts are deadline_ms, but at least 100 ms. The caller frees *own with common_free(). Returns 0 or
 * -errno. */
int launch_copy_common(const struct common *c, uint64_t deadline_ms, struct common *own);
/* Opens a context for control messages, with one thread and with events. A peer that is silent for deadline_ms counts
 * as dead. Returns 0 or -errno. */
int launch_open(const struct common *c, uint64_t deadline_ms, struct common *own, hawser **out);

/* Fills in the location of rank 0 that the launcher specified. place->n is 0 if PMIx must be asked. */
void launch_place_of(const struct launch_seat *seat, struct launch_place *place);
/* Makes rank 0 listen on the first free port of the place. Returns 0 or -errno. */
int launch_listen(hawser *h, const struct launch_place *place, uint16_t *port);
/* Publishes rank 0's addresses and port through PMIx. Returns 0 or -errno. */
int launch_publish(struct launch_pmix *pmix, uint16_t port);
/* Looks up rank 0's addresses and port through PMIx. Also sets seat->size if the launcher did not provide the size.
 * Returns 0 or -errno. */
int launch_look_up(struct launch_seat *seat, struct launch_place *place, uint64_t wait_ms);
/* Connects to rank 0, retrying for wait_ms. Fails with -EACCES if rank 0 has a different key, with -EINTR after a
 * signal, or with another -errno. */
int launch_find(hawser *talk, const struct launch_place *place, uint64_t wait_ms, hawser_peer **lead);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd's clients: who they are, what they ask, and the loop that serves them one request at a time. */
#ifndef HW_HELPER_DAEMON_H
#define HW_HELPER_DAEMON_H

#include "helper/state.h"

#define HD_CLIENTS_MAX      256 /* at once; and of one user: */
#define HD_CLIENTS_PER_USER 64
#define HD_RATE             500  /* requests a second that each may go on with */
#define HD_BURST            1000 /* after a rest */
#define HD_RETRY_MS         10000
#define HD_WATCH_MS         1000 /* between looks for connections that have ended */

struct hd_daemon {
    struct hd_state state;
    const struct hd_policy *policy;
    int listener; /* SOCK_SEQPACKET, listening, non-blocking */
    int stop;     /* readable: it is time to end */
    /* private */
    struct hw_list clients;
    unsigned n_clients;
    uint64_t refused_said; /* when a refusal was logged last */
};

/* A listening socket at path, which anybody may connect to: the policy decides then. A socket that a dead hawserd left
 * there is replaced; -EADDRINUSE where a living one answers. */
int hd_listen(const char *path);
/* Serves until stop is readable; then all of all clients is undone. 0, or how many things could not be. */
int hd_serve(struct hd_daemon *d);

#endif

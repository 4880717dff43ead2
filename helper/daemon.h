/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd's loop: one thread that never waits for a client. */
#ifndef HW_HELPER_DAEMON_H
#define HW_HELPER_DAEMON_H

#include "helper/child/discard.h"
#include "helper/state/state.h"

#define HD_CLIENTS_MAX      1024 /* at once; of one user: */
#define HD_CLIENTS_PER_USER 64
#define HD_CLIENTS_BUSY     512 /* with so many a user gets no more than: */
#define HD_CLIENTS_FEW      4
#define HD_RATE             500  /* requests a second that each may go on with */
#define HD_BURST            1000 /* after a rest */
#define HD_RETRY_MS         10000
#define HD_GREETING_MS      10000                     /* for a client's first request */
#define HD_INSPECT_MS       (HD_CHILD_SECONDS * 1000) /* for a look at a client's descriptor */
#define HD_INSPECT_USER     8                         /* of one user's descriptors that are looked at, at once */
#define HD_INSPECT_MAX      128                       /* of all users' */
#define HD_CHANGES          1024 /* requests about NICs that all clients of a user may make after a rest */
#define HD_CHANGES_RATE     256  /* more a second */
#define HD_BINDS            32   /* of these, binds to receive */
#define HD_BINDS_RATE       4
#define HD_LINES            40 /* of the log, about clients, after a rest */
#define HD_LINES_RATE       20 /* more a second */

/* A count that is used up and fills again with time. */
struct hd_tokens {
    uint32_t left;
    uint64_t filled;
};

struct hd_daemon {
    struct hd_state state;
    const struct hd_policy *policy;
    int listener; /* SOCK_SEQPACKET, listening, non-blocking */
    int stop;     /* readable: it is time to end */
    /* private */
    struct hw_list clients, accounts, inspections;
    unsigned n_clients, n_inspections;
    struct hd_discard discard;
    struct hd_tokens lines;
};

/* A listening socket at path, which anybody may connect to: the policy decides then. A socket that a dead hawserd left
 * there is replaced; -EADDRINUSE where a living one answers. */
int hd_listen(const char *path);
/* Serves until stop is readable; then all of all clients is undone. 0, or how many things could not be. The listener
 * and connections that have ended stay open: the end of the process closes them (helper/child/discard.h). */
int hd_serve(struct hd_daemon *d);

#endif

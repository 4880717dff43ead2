/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd's loop: one thread, which never waits for a client. */
#ifndef HW_HELPER_DAEMON_H
#define HW_HELPER_DAEMON_H

#include "helper/child/discard.h"
#include "helper/state/state.h"

#define HD_CLIENTS_MAX      1024 /* clients at a time; for one user: */
#define HD_CLIENTS_PER_USER 64
#define HD_CLIENTS_BUSY     512 /* beyond this many clients, a user may have only: */
#define HD_CLIENTS_FEW      4
#define HD_RATE             500  /* requests per second of each connection */
#define HD_BURST            1000 /* after a rest */
#define HD_RETRY_MS         10000
#define HD_GREETING_MS      10000                     /* limit for a client's first request */
#define HD_INSPECT_MS       (HD_CHILD_SECONDS * 1000) /* limit for the inspection of a client's descriptor */
#define HD_INSPECT_USER     8                         /* descriptors inspected at a time, for one user */
#define HD_INSPECT_MAX      128                       /* of all users' */
#define HD_CHANGES          1024 /* burst of requests that change NICs, over all clients of a user */
#define HD_CHANGES_RATE     256  /* more a second */
#define HD_BINDS            32   /* of these, binds for receiving */
#define HD_BINDS_RATE       4
#define HD_LINES            40 /* burst of log lines about clients */
#define HD_LINES_RATE       20 /* more a second */

/* A token bucket: a count that is used up and refills with time. */
struct hd_tokens {
    uint32_t left;
    uint64_t filled;
};

struct hd_daemon {
    struct hd_state state;
    const struct hd_policy *policy;
    int listener; /* SOCK_SEQPACKET, listening, non-blocking */
    int stop;     /* readable: time to end */
    /* private */
    struct hw_list clients, accounts, inspections;
    unsigned n_clients, n_inspections;
    struct hd_discard discard;
    struct hd_tokens lines;
};

/* Opens a listening socket at path, to which any user may connect: the policy decides then. Replaces the socket of a
 * dead hawserd; -EADDRINUSE if a live one answers. */
int hd_listen(const char *path);
/* Serves until stop is readable; then undoes everything of all clients. Returns 0, or the number of things that could
 * not be undone. The listener and ended connections stay open until the process ends (helper/child/discard.h). */
int hd_serve(struct hd_daemon *d);

#endif

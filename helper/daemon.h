/* SPDX-License-Identifier: Apache-2.0 */
/* The main loop of hawserd, which has one thread and never waits for a client. */
#ifndef HW_HELPER_DAEMON_H
#define HW_HELPER_DAEMON_H

#include "helper/child/discard.h"
#include "helper/state/state.h"

#define HD_CLIENTS_PER_USER 64  /* maximum number of clients of a user */
#define HD_CLIENTS_BUSY     512 /* with this many clients or more, each user may have only HD_CLIENTS_FEW */
#define HD_CLIENTS_FEW      4
#define HD_RATE             500  /* maximum number of requests per second of each connection */
#define HD_BURST            1000 /* maximum number of requests in a burst after an idle period */
#define HD_RETRY_MS         10000
#define HD_GREETING_MS      10000                     /* time limit for a client's first request */
#define HD_INSPECT_MS       (HD_CHILD_SECONDS * 1000) /* time limit for the inspection of a descriptor */
#define HD_INSPECT_USER     8                         /* maximum number of concurrent inspections for a user */
#define HD_INSPECT_MAX      128                       /* maximum number of concurrent inspections */
#define HD_CHANGES          1024 /* burst of requests that change NICs, for all clients of a user */
#define HD_CHANGES_RATE     256  /* additional requests that change NICs, per second */
#define HD_BINDS            32   /* burst of a user's requests to bind for receiving; HD_BINDS_RATE more per second */
#define HD_BINDS_RATE       4
#define HD_LINES            40 /* burst of log lines about clients */
#define HD_LINES_RATE       20 /* additional log lines per second */

/* A token bucket. Each action takes a token, and tokens are added at a constant rate. */
struct hd_tokens {
    uint32_t left;
    uint64_t filled;
};

struct hd_daemon {
    struct hd_state state;
    const struct hd_policy *policy;
    int listener; /* listening, non-blocking SOCK_SEQPACKET socket */
    int stop;     /* descriptor that becomes readable when hawserd must exit */
    /* Private to helper/. */
    struct hw_list clients, accounts, inspections;
    unsigned n_clients, n_inspections;
    struct hd_discard discard;
    struct hd_tokens lines;
};

/* Opens a listening socket at path. Any user may connect; the policy then determines which users are accepted. Replaces
 * the socket of a hawserd that has died. Fails with -EADDRINUSE if a program is listening on the socket. */
int hd_listen(const char *path);
/* Serves clients until stop is readable, and then undoes the changes of all clients. Returns hd_left(), which is 0 if
 * everything was undone, or -errno. The listener and ended connections stay open until the process exits
 * (helper/child/discard.h). */
int hd_serve(struct hd_daemon *d);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd's clients: who they are, what they ask, what each user may take of hawserd itself. */
#ifndef HW_HELPER_CLIENT_H
#define HW_HELPER_CLIENT_H

#include "helper/daemon.h"

#include <poll.h>
#include <sys/types.h>

struct hd_account {
    struct hw_list node;
    uid_t uid;
    unsigned clients, inspections;
    struct hd_tokens changes, binds;
};

struct hd_inspection;

struct hd_client {
    struct hw_list node;
    int fd;
    pid_t pid;
    struct hd_account *account;
    const struct hd_rights *rights;
    bool greeted, ended;
    struct hd_tokens requests;
    uint64_t deadline;          /* of the greeting, or of the inspection */
    uint64_t later;             /* not asked before */
    struct hd_inspection *look; /* of the descriptor that came with the request q */
    struct hw_helper_request q;
};

/* A child process that looks at a descriptor, until it is gone. */
struct hd_inspection {
    struct hw_list node;
    int pair;
    struct hd_account *account;
    struct hd_client *client; /* NULL: nobody waits for its answer */
};

void hd_clients_init(struct hd_daemon *d);
/* Accepts one connection, and refuses it where it must. */
void hd_client_accept(struct hd_daemon *d);
/* What to wait for on the client's socket: POLLIN or 0. *wake: not later than, if earlier than it says. */
short hd_client_events(struct hd_client *c, uint64_t now, uint64_t *wake);
/* Takes one request, or sees that the connection has ended. */
void hd_client_serve(struct hd_daemon *d, struct hd_client *c, short revents);
/* Ends a client: all that it holds is undone. It is freed by hd_clients_reap(). */
void hd_client_end(struct hd_daemon *d, struct hd_client *c);
/* Takes the answer of an inspection, or sees that its process is gone; it may be freed. */
void hd_inspection_serve(struct hd_daemon *d, struct hd_inspection *i, short revents);
/* Ends clients whose deadlines have passed; frees clients that have ended, and users of whom nothing is left. */
void hd_clients_reap(struct hd_daemon *d);
/* Ends all clients and forgets all users; processes that still look at descriptors are left to their alarms. */
void hd_clients_end(struct hd_daemon *d);

#endif

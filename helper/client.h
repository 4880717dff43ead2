/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd's clients: identity, requests, and limits of each user. */
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
    uint64_t deadline;          /* of the greeting or the inspection */
    uint64_t later;             /* not asked before */
    struct hd_inspection *look; /* inspection of the descriptor of request q */
    struct hw_helper_request q;
};

/* A child process that inspects a descriptor, until the process is gone. */
struct hd_inspection {
    struct hw_list node;
    int pair;
    struct hd_account *account;
    struct hd_client *client; /* NULL: no client waits for the answer */
};

void hd_clients_init(struct hd_daemon *d);
/* Accepts one connection, or refuses it. */
void hd_client_accept(struct hd_daemon *d);
/* Returns the events to poll for on the client's socket: POLLIN or 0. Lowers *wake to the time of the next action. */
short hd_client_events(struct hd_client *c, uint64_t now, uint64_t *wake);
/* Handles one request, or the end of the connection. */
void hd_client_serve(struct hd_daemon *d, struct hd_client *c, short revents);
/* Ends a client and undoes everything it holds. hd_clients_reap() frees it. */
void hd_client_end(struct hd_daemon *d, struct hd_client *c);
/* Handles the answer of an inspection, or the end of its process; may free i. */
void hd_inspection_serve(struct hd_daemon *d, struct hd_inspection *i, short revents);
/* Ends clients whose deadlines have passed; frees ended clients, and users without any state. */
void hd_clients_reap(struct hd_daemon *d);
/* Ends all clients and forgets all users; processes that are still inspecting descriptors end by their alarms. */
void hd_clients_end(struct hd_daemon *d);

#endif

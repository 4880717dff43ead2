/* SPDX-License-Identifier: Apache-2.0 */
/* Handles hawserd's clients: their identity, their requests, and the limits of each user. */
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
    uint64_t deadline;          /* time limit of the greeting or the inspection, in hw_now() time */
    uint64_t later;             /* no request is read before this time */
    struct hd_inspection *look; /* inspection of the descriptor of request q, or NULL */
    struct hw_helper_request q;
};

/* Represents a child process that inspects a descriptor, until the process has exited. */
struct hd_inspection {
    struct hw_list node;
    int pair;
    struct hd_account *account;
    struct hd_client *client; /* client that waits for the answer, or NULL */
};

void hd_clients_init(struct hd_daemon *d);
/* Accepts or refuses the next connection. */
void hd_client_accept(struct hd_daemon *d);
/* Returns the events to poll for on the client's socket: POLLIN or 0. If the client needs service before *wake, lowers
 * *wake to that time. */
short hd_client_events(struct hd_client *c, uint64_t now, uint64_t *wake);
/* Handles the next request, or the end of the connection. */
void hd_client_serve(struct hd_daemon *d, struct hd_client *c, short revents);
/* Ends a client and releases its bindings and rules. hd_clients_reap() frees the client later. */
void hd_client_end(struct hd_daemon *d, struct hd_client *c);
/* Handles the answer of an inspection, or the exit of the child process. May free i. */
void hd_inspection_serve(struct hd_daemon *d, struct hd_inspection *i, short revents);
/* Ends clients that have missed their deadlines. Frees ended clients, and unused accounts whose tokens are all
 * available. */
void hd_clients_reap(struct hd_daemon *d);
/* Ends all clients and frees all accounts. Does not wait for processes that are still inspecting descriptors. */
void hd_clients_end(struct hd_daemon *d);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A client of hawserd that can send arbitrary messages. */
#ifndef TESTS_HELPER_CLIENT_H
#define TESTS_HELPER_CLIENT_H

#include "wire/helper.h"

#define MS 20000 /* timeout of a call in ms, for busy machines */

/* Waits until cond is true, but no longer than MS. The log or the kernel may show a change with a delay. */
#define SOON(cond)                                    \
    ({                                                \
        uint64_t until_ = hw_deadline(MS);            \
        bool yes_;                                    \
        while (!(yes_ = (cond)) && hw_now() < until_) \
            usleep(2000);                             \
        yes_;                                         \
    })

extern const struct hw_helper_request client_hello;

/* Returns a connection, or -1. */
int client_connect(const char *path);
/* Sends a message with n file descriptors. Returns 0 or -errno. */
int client_send(int fd, const void *buf, size_t len, const int *fds, unsigned n);
int client_ask(int fd, const struct hw_helper_request *q, const int *fds, unsigned n);
/* Returns the status of the next answer. Stores the answer in *r if r is not NULL. Returns 1 if the connection has
 * ended, 2 if no answer arrives in time, or 3 if the answer is malformed. */
int client_answer_to(int fd, struct hw_helper_reply *r);
int client_answer(int fd);
/* Connects and exchanges the greeting. Returns the connection, or -1. */
int client_greeted(const char *path);

#endif

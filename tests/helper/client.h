/* SPDX-License-Identifier: Apache-2.0 */
/* A client of hawserd that sends what it likes. */
#ifndef TESTS_HELPER_CLIENT_H
#define TESTS_HELPER_CLIENT_H

#include "wire/helper.h"

#define MS 20000 /* a call's deadline, on a machine that is busy */

/* It may take a while until what happened is in the log, or in the kernel. */
#define SOON(cond)                                    \
    ({                                                \
        uint64_t until_ = hw_deadline(MS);            \
        bool yes_;                                    \
        while (!(yes_ = (cond)) && hw_now() < until_) \
            usleep(2000);                             \
        yes_;                                         \
    })

extern const struct hw_helper_request client_hello;

/* A connection; -1. */
int client_connect(const char *path);
/* Sends a message with n descriptors. 0 or -errno. */
int client_send(int fd, const void *buf, size_t len, const int *fds, unsigned n);
int client_ask(int fd, const struct hw_helper_request *q, const int *fds, unsigned n);
/* The next answer's status, and in r what it says (or NULL); 1: the connection has ended; 2: nothing came. */
int client_answer_to(int fd, struct hw_helper_reply *r);
int client_answer(int fd);
/* A connection that has greeted; -1. */
int client_greeted(const char *path);

#endif

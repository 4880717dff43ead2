/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets for the comparison with plain sockets. Only connections that present the token are accepted, and all waits
 * end at a deadline. */
#ifndef HW_TOOL_RAW_SOCK_H
#define HW_TOOL_RAW_SOCK_H

#include "tool/raw/raw.h"

/* Listens on addr, with a port that the kernel chooses. k is the source of the congestion control (see struct
 * raw_plan); NULL, in all of these functions, means the system's algorithm. Returns 0, or -errno with an error text. */
int raw_listen(const char *addr, const struct hw_knobs *k, int *fd, uint16_t *port);

/* Accepts, on each listener, `need` connections that present the token within 3 seconds. Stores the connections of
 * listener i in fds[i * need] and the following entries, and then sends the go byte on each. Fails with -ECANCELED if
 * stop_fd becomes readable. On failure, closes all descriptors and sets fds to -1. The caller keeps the listeners. */
int raw_accept(const int *listeners, size_t n, size_t need, const uint8_t token[RAW_TOKEN_SIZE],
               const struct hw_knobs *k, int stop_fd, uint64_t deadline, int *fds);

/* Connects to path and presents the token. *fd receives a blocking socket with TCP_NODELAY. */
int raw_connect(const struct raw_path *path, const uint8_t token[RAW_TOKEN_SIZE], const struct hw_knobs *k,
                uint64_t deadline, int *fd);

/* Waits for the server's go byte. */
int raw_wait_go(int fd, uint64_t deadline);

/* Returns the timeout for poll(): the milliseconds to the deadline, rounded up, but at most an hour; -1 for HW_NEVER; 0
 * if the deadline has passed. */
int raw_poll_ms(uint64_t deadline);

/* Returns the user plus system CPU time of the calling thread, in seconds. */
double raw_thread_cpu(void);

#endif

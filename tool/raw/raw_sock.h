/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets for the comparison with plain sockets: listen, accept only connections with the token, connect; all
 * bounded. */
#ifndef HW_TOOL_RAW_SOCK_H
#define HW_TOOL_RAW_SOCK_H

#include "tool/raw/raw.h"

/* Listens on addr with a port that the kernel chooses. k: source of the congestion control, see struct raw_plan; NULL
 * in all of these functions: the system's. 0 or -errno with text. */
int raw_listen(const char *addr, const struct hw_knobs *k, int *fd, uint16_t *port);

/* Accepts `need` connections on each listener that present the token within 3 seconds, into fds[listener * need + k],
 * then sends each the go byte. A readable stop_fd ends it with -ECANCELED. On failure every descriptor is closed and
 * fds is all -1; the caller keeps the listeners. */
int raw_accept(const int *listeners, size_t n, size_t need, const uint8_t token[RAW_TOKEN_SIZE],
               const struct hw_knobs *k, int stop_fd, uint64_t deadline, int *fds);

/* Connects to path and presents the token; *fd is a blocking socket with TCP_NODELAY. */
int raw_connect(const struct raw_path *path, const uint8_t token[RAW_TOKEN_SIZE], const struct hw_knobs *k,
                uint64_t deadline, int *fd);

/* Waits for the go byte. */
int raw_wait_go(int fd, uint64_t deadline);

/* Returns the milliseconds to the deadline for poll(): rounded up, -1 for HW_NEVER, 0 when past. */
int raw_poll_ms(uint64_t deadline);

/* Returns user plus system seconds of the calling thread. */
double raw_thread_cpu(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of the plain-socket comparator: listen, take only connections that show the token, connect; all bounded. */
#ifndef HW_TOOL_RAW_SOCK_H
#define HW_TOOL_RAW_SOCK_H

#include "tool/raw/raw.h"

/* Listens on addr with a port of the kernel's choice. k: whose congestion control, see struct raw_plan; in all of these
 * NULL is the system's. 0 or -errno with text. */
int raw_listen(const char *addr, const struct hw_knobs *k, int *fd, uint16_t *port);

/* Takes `need` connections on each listener that show the token within 3 seconds, into fds[listener * need + k], then
 * sends each the byte that says "all are here". Readable stop_fd ends it with -ECANCELED. On failure every
 * descriptor is closed and fds is all -1; the listeners stay the caller's. */
int raw_accept(const int *listeners, size_t n, size_t need, const uint8_t token[RAW_TOKEN_SIZE],
               const struct hw_knobs *k, int stop_fd, uint64_t deadline, int *fds);

/* Connects to path and shows the token; *fd is a blocking socket with TCP_NODELAY. */
int raw_connect(const struct raw_path *path, const uint8_t token[RAW_TOKEN_SIZE], const struct hw_knobs *k,
                uint64_t deadline, int *fd);

/* Waits for the byte that says "all are here". */
int raw_wait_go(int fd, uint64_t deadline);

/* Milliseconds to the deadline for poll(): rounded up, -1 for HW_NEVER, 0 when past. */
int raw_poll_ms(uint64_t deadline);

/* User plus system seconds of the calling thread. */
double raw_thread_cpu(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The part of HTTP/1.1 that a Prometheus scrape needs: GET and HEAD of one page, one request per connection, on
 * loopback. */
#ifndef HW_TOOL_HTTP_H
#define HW_TOOL_HTTP_H

#include "base/base.h"

#include <stdio.h>
#include <sys/socket.h>

#define HTTP_HEAD    8192 /* maximum bytes of a request's head */
#define HTTP_CLIENTS 16   /* maximum simultaneous clients; further clients wait in the kernel's queue */
#define HTTP_MS      5000 /* ms to receive a request and send its answer */

struct http_request {
    enum { HTTP_GET, HTTP_HEAD_ONLY, HTTP_OTHER } method;
    char path[64]; /* without the query; truncated if longer */
};

/* Parses the head of a request. Returns 0. Fails with -EAGAIN if the head is incomplete, -EPROTO if it is invalid, and
 * -E2BIG if it is longer than HTTP_HEAD bytes. */
int http_parse(const char *data, size_t len, struct http_request *r);

/* Opens a listening socket on a loopback address. Returns the descriptor. Fails with -EPERM for any other address, or
 * with another -errno. */
int http_listen(const struct sockaddr *addr, socklen_t len);

/* Serves until *stop is set; without a listening socket (fd is -1), only calls idle(). GET /metrics returns the output
 * of page(). If idle is not NULL, calls idle() at once, and then again at the time (hw_now()) that the last call
 * returned. Returns 0, or -ENOMEM. */
struct http_server {
    int fd;
    void (*page)(void *arg, FILE *f);
    uint64_t (*idle)(void *arg);
    void *arg;
    const volatile int *stop;
};
int http_serve(const struct http_server *s);

#endif

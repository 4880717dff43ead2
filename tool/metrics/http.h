/* SPDX-License-Identifier: Apache-2.0 */
/* The part of HTTP/1.1 that a scrape needs: GET and HEAD of one page, one request per connection, on loopback. */
#ifndef HW_TOOL_HTTP_H
#define HW_TOOL_HTTP_H

#include "base/base.h"

#include <stdio.h>
#include <sys/socket.h>

#define HTTP_HEAD    8192 /* bytes of a request's head */
#define HTTP_CLIENTS 16   /* at a time; others wait in the kernel */
#define HTTP_MS      5000 /* for receiving a request and sending its answer */

struct http_request {
    enum { HTTP_GET, HTTP_HEAD_ONLY, HTTP_OTHER } method;
    char path[64]; /* up to a '?'; truncated */
};

/* Parses a request's head. 0; -EAGAIN: incomplete; -EPROTO: invalid; -E2BIG: more than HTTP_HEAD bytes. */
int http_parse(const char *data, size_t len, struct http_request *r);

/* Opens a listener on a loopback address. Returns the descriptor; -EPERM for another address, -errno. */
int http_listen(const struct sockaddr *addr, socklen_t len);

/* Serves until stop is set: GET /metrics gets the output of page(). -errno. Also calls idle() when it is due; idle()
 * returns when it is due next (hw_now()); NULL: none. */
struct http_server {
    int fd;
    void (*page)(void *arg, FILE *f);
    uint64_t (*idle)(void *arg);
    void *arg;
    const volatile int *stop;
};
int http_serve(const struct http_server *s);

#endif

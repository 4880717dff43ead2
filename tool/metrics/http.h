/* SPDX-License-Identifier: Apache-2.0 */
/* As much of HTTP/1.1 as a scrape takes: GET and HEAD of one page, a connection for each request, on loopback. */
#ifndef HW_TOOL_HTTP_H
#define HW_TOOL_HTTP_H

#include "base/base.h"

#include <stdio.h>
#include <sys/socket.h>

#define HTTP_HEAD    8192 /* bytes of a request's head */
#define HTTP_CLIENTS 16   /* at once; others wait in the kernel */
#define HTTP_MS      5000 /* for a request to come and its answer to go */

struct http_request {
    enum { HTTP_GET, HTTP_HEAD_ONLY, HTTP_OTHER } method;
    char path[64]; /* up to a '?'; cut */
};

/* Reads a request's head. 0; -EAGAIN: more of it is to come; -EPROTO: it is none; -E2BIG: it has more than HTTP_HEAD
 * bytes. */
int http_parse(const char *data, size_t len, struct http_request *r);

/* A listener on a loopback address. Returns the descriptor; -EPERM for another address, -errno. */
int http_listen(const struct sockaddr *addr, socklen_t len);

/* Serves until stop is set: GET /metrics gets what page() writes. -errno. Takes turns with idle(), which is called when
 * due and says when it is due next (hw_now()); NULL: there is none. */
struct http_server {
    int fd;
    void (*page)(void *arg, FILE *f);
    uint64_t (*idle)(void *arg);
    void *arg;
    const volatile int *stop;
};
int http_serve(const struct http_server *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/metrics/http.h"

#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#define LOOK_MS 250 /* ms; maximum delay in noticing a signal that arrives just before poll() */

struct client {
    int fd; /* -1 if the slot is free */
    char in[HTTP_HEAD];
    size_t have;
    char *out;
    size_t len, at;
    uint64_t deadline;
};

/* ---- requests -------------------------------------------------------------------------------------------- */

/* Returns the end of the request's head, after its empty line, or NULL if the head is incomplete. Lines end with CR LF
 * or LF. */
static const char *find_end(const char *data, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        if (data[i] == '\n' && data[i + 1] == '\n')
            return data + i + 2;
        if (i + 2 < len && data[i] == '\n' && data[i + 1] == '\r' && data[i + 2] == '\n')
            return data + i + 3;
    }
    return NULL;
}

int http_parse(const char *data, size_t len, struct http_request *r)
{
    *r = (struct http_request){.method = HTTP_OTHER};
    if (len > HTTP_HEAD)
        return hw_fail(-E2BIG, "the request exceeds %d bytes", HTTP_HEAD);
    if (!find_end(data, len))
        return len == HTTP_HEAD ? hw_fail(-E2BIG, "the request exceeds %d bytes", HTTP_HEAD) : -EAGAIN;
    const char *line = memchr(data, '\n', len), *space = memchr(data, ' ', (size_t)(line - data));
    const char *path = space ? space + 1 : line, *end = memchr(path, ' ', (size_t)(line - path));
    if (!space || !end || *path != '/' || line - end < 6 || memcmp(end, " HTTP/", 6) != 0)
        return hw_fail(-EPROTO, "not an HTTP request");
    if (space - data == 3 && memcmp(data, "GET", 3) == 0)
        r->method = HTTP_GET;
    else if (space - data == 4 && memcmp(data, "HEAD", 4) == 0)
        r->method = HTTP_HEAD_ONLY;
    const char *query = memchr(path, '?', (size_t)(end - path));
    size_t n = HW_MIN((size_t)((query ? query : end) - path), sizeof r->path - 1);
    memcpy(r->path, path, n);
    r->path[n] = 0;
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void answer(struct client *c, const char *status, const char *type, const char *body, size_t len, bool head_only)
{
    FILE *f = open_memstream(&c->out, &c->len);
    if (!f)
        return;
    fprintf(f, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n", status, type,
            len, strncmp(status, "405", 3) == 0 ? "Allow: GET, HEAD\r\n" : "");
    if (!head_only)
        fwrite(body, 1, len, f);
    if (fclose(f) != 0) {
        free(c->out);
        c->out = NULL;
    }
}

static void answer_text(struct client *c, const char *status, const char *body)
{
    answer(c, status, "text/plain; charset=utf-8", body, strlen(body), false);
}

static void answer_page(struct client *c, const struct http_server *s, bool head_only)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f) {
        s->page(s->arg, f);
        if (fclose(f) == 0)
            answer(c, "200 OK", "text/plain; version=0.0.4; charset=utf-8", text, len, head_only);
    }
    free(text);
}

static void answer_request(struct client *c, const struct http_server *s, int rc, const struct http_request *r)
{
    if (rc == -E2BIG)
        answer_text(c, "431 Request Header Fields Too Large", "The request is too long.\n");
    else if (rc < 0)
        answer_text(c, "400 Bad Request", "This is not an HTTP request.\n");
    else if (r->method == HTTP_OTHER)
        answer_text(c, "405 Method Not Allowed", "Only GET and HEAD are supported.\n");
    else if (strcmp(r->path, "/metrics") == 0)
        answer_page(c, s, r->method == HTTP_HEAD_ONLY);
    else
        answer_text(c, strcmp(r->path, "/") == 0 ? "200 OK" : "404 Not Found", "The metrics are at /metrics.\n");
}

/* ---- clients ----------------------------------------------------------------------------------------------- */

static void drop_client(struct client *c)
{
    hw_close(&c->fd);
    free(c->out);
    c->out = NULL;
    c->have = c->len = c->at = 0;
}

/* Writes as much as the socket accepts. Closes the connection at the end of the answer or after an error. */
static void write_answer(struct client *c)
{
    while (c->out && c->at < c->len) {
        ssize_t n = send(c->fd, c->out + c->at, c->len - c->at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            break;
        c->at += (size_t)n;
    }
    if (c->out && c->at == c->len)
        (void)shutdown(c->fd, SHUT_WR);
    drop_client(c);
}

static void read_request(struct client *c, const struct http_server *s)
{
    struct http_request r;
    ssize_t n = recv(c->fd, c->in + c->have, sizeof c->in - c->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        drop_client(c);
        return;
    }
    c->have += (size_t)n;
    int rc = http_parse(c->in, c->have, &r);
    if (rc == -EAGAIN)
        return;
    answer_request(c, s, rc, &r);
    write_answer(c);
}

static void accept_clients(struct client *all, int fd)
{
    for (int i = 0; i < HTTP_CLIENTS; i++) {
        if (all[i].fd >= 0)
            continue;
        all[i].fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (all[i].fd < 0)
            return;
        all[i].deadline = hw_deadline(HTTP_MS);
    }
}

static void serve_turn(struct client *all, const struct http_server *s, uint64_t due)
{
    struct pollfd p[HTTP_CLIENTS + 1];
    bool room = false;
    uint64_t now = hw_now(), wait = LOOK_MS;
    for (int i = 0; i < HTTP_CLIENTS; i++) {
        if (all[i].fd >= 0 && now >= all[i].deadline)
            drop_client(&all[i]);
        room |= all[i].fd < 0;
        p[i] = (struct pollfd){.fd = all[i].fd, .events = all[i].out ? POLLOUT : POLLIN};
    }
    p[HTTP_CLIENTS] = (struct pollfd){.fd = room ? s->fd : -1, .events = POLLIN};
    if (due != HW_NEVER)
        wait = due <= now ? 0 : HW_MIN(wait, (due - now) / HW_MS + 1);
    if (poll(p, HTTP_CLIENTS + 1, (int)wait) <= 0)
        return;
    for (int i = 0; i < HTTP_CLIENTS; i++) {
        if (!p[i].revents || all[i].fd < 0)
            continue;
        if (all[i].out)
            write_answer(&all[i]);
        else
            read_request(&all[i], s);
    }
    if (p[HTTP_CLIENTS].revents)
        accept_clients(all, s->fd);
}

int http_serve(const struct http_server *s)
{
    struct client *all = calloc(HTTP_CLIENTS, sizeof *all);
    uint64_t due = s->idle ? 0 : HW_NEVER;
    if (!all)
        return hw_no_memory("%d clients", HTTP_CLIENTS);
    for (int i = 0; i < HTTP_CLIENTS; i++)
        all[i].fd = -1;
    while (!*s->stop) {
        if (due <= hw_now())
            due = s->idle(s->arg);
        serve_turn(all, s, due);
    }
    for (int i = 0; i < HTTP_CLIENTS; i++)
        drop_client(&all[i]);
    free(all);
    return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

int http_listen(const struct sockaddr *addr, socklen_t len)
{
    int one = 1;
    if (!is_loopback(addr))
        return hw_fail(-EPERM, "only loopback addresses are allowed; use --textfile with node_exporter, or a proxy");
    HW_AUTO_CLOSE int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return hw_fail(-errno, "creating a socket: %s", strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, addr, len) < 0 || listen(fd, 64) < 0)
        return hw_fail(-errno, "listening on the address: %s%s", strerror(errno),
                       errno == EADDRINUSE ? ": choose another port with --listen" : "");
    return hw_take_fd(&fd);
}

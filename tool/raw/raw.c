/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/raw/raw.h"
#include "tool/raw/raw_sock.h"
#include "tool/tool.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACK_WARM ((uint8_t)0x57) /* the receiver has received the warm-up */
#define LOOK_MS  200             /* ms between two checks for a signal */
#define ACK_DONE ((uint8_t)0x44) /* the receiver has received the last byte */

struct run;

struct stream {
    struct run *run;
    pthread_t thread;
    bool started;
    int fd;
    size_t index;
    uint8_t *mem; /* receiver: the stream's part of the buffer, or a private buffer; sender: the whole buffer */
    size_t mem_len;
    uint8_t *owned; /* mem, if it is private; freed at the end of the run */
    uint64_t bytes, t_first, t_end;
    double cpu;
};

/* The threads of one side. */
struct run {
    struct raw_plan plan;
    bool sender;
    uint8_t *buf;
    size_t len;
    struct stream *streams;
    atomic_uint_fast64_t next; /* index of the next piece to send; streams take pieces from this counter */
    pthread_mutex_t lock;      /* protects writes to all members below */
    pthread_cond_t cond;
    size_t n; /* number of streams; 0 before and after the run */
    size_t ready, running;
    bool open; /* all streams are warm, and the clock runs */
    uint64_t t0;
    int rc; /* first error */
    char text[HW_ERR_TEXT];
};

static void run_init(struct run *r, const struct raw_plan *plan, bool sender, void *buf, size_t len)
{
    pthread_condattr_t ca;
    *r = (struct run){.plan = *plan, .sender = sender, .buf = buf, .len = len};
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&ca);
    pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
    pthread_cond_init(&r->cond, &ca);
    pthread_condattr_destroy(&ca);
}

static void run_destroy(struct run *r)
{
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->cond);
}

/* Records the first error and its text, and ends all blocking calls. */
static void run_fail(struct run *r, int rc)
{
    pthread_mutex_lock(&r->lock);
    if (!r->rc) {
        r->rc = rc;
        snprintf(r->text, sizeof(r->text), "%s", hw_error());
        for (size_t i = 0; i < r->n; i++)
            shutdown(r->streams[i].fd, SHUT_RDWR);
    }
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->lock);
}

static int send_stream_bytes(struct stream *s, const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = send(s->fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) /* EPIPE: the peer reset the connection between two calls */
            return hw_fail(errno == EPIPE ? -ECONNRESET : -errno, "plain sockets: sending on stream %zu: %s", s->index,
                           strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* Receives up to n bytes. Returns the number of bytes, 0 at the end of the stream, or -errno. */
static ssize_t recv_some(struct stream *s, uint8_t *p, size_t n)
{
    for (;;) {
        ssize_t k = recv(s->fd, p, n, 0);
        if (k >= 0)
            return k;
        if (errno != EINTR)
            return hw_fail(-errno, "plain sockets: receiving on stream %zu: %s", s->index, strerror(errno));
    }
}

static int recv_ack(struct stream *s, uint8_t want)
{
    uint8_t got = 0;
    ssize_t n = recv_some(s, &got, 1);
    if (n < 0)
        return (int)n;
    if (n == 0)
        return hw_fail(-ECONNRESET, "plain sockets: the receiver closed stream %zu without an acknowledgement",
                       s->index);
    return got == want
               ? 0
               : hw_fail(-EPROTO, "plain sockets: stream %zu: unexpected acknowledgement 0x%02x", s->index, got);
}

/* Waits until every stream of this side is warm. The last stream starts the clock. */
static int await_warm_streams(struct run *r)
{
    pthread_mutex_lock(&r->lock);
    if (++r->ready == r->n && !r->rc) {
        r->open = true;
        r->t0 = hw_now();
        pthread_cond_broadcast(&r->cond);
    }
    while (!r->open && !r->rc)
        pthread_cond_wait(&r->cond, &r->lock);
    int rc = r->open ? 0 : r->rc;
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static int stream_send(struct stream *s)
{
    struct run *r = s->run;
    const struct raw_plan *p = &r->plan;
    int rc;
    for (uint64_t left = p->warmup; left;) {
        size_t n = (size_t)HW_MIN(HW_MIN(p->message, left), r->len);
        if ((rc = send_stream_bytes(s, r->buf, n)))
            return rc;
        left -= n;
    }
    if (p->warmup && (rc = recv_ack(s, ACK_WARM)))
        return rc;
    if ((rc = await_warm_streams(r)))
        return rc;
    double cpu = raw_thread_cpu();
    uint64_t stop = p->total ? HW_NEVER : r->t0 + p->duration_ms * HW_MS;
    const size_t pieces = (r->len + p->message - 1) / p->message; /* number of pieces in the buffer */
    for (;;) {
        uint64_t i = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        if (p->total ? i * p->message >= p->total : hw_now() >= stop)
            break;
        uint64_t want = p->total ? HW_MIN(p->message, p->total - i * p->message) : p->message;
        size_t off = (size_t)(i % pieces) * p->message;
        while (want) { /* a piece may wrap around the end of the buffer */
            size_t n = (size_t)HW_MIN(want, r->len - off);
            if ((rc = send_stream_bytes(s, r->buf + off, n)))
                return rc;
            s->bytes += n;
            want -= n;
            off = 0;
        }
    }
    if (shutdown(s->fd, SHUT_WR) != 0)
        return hw_fail(-errno, "plain sockets: ending stream %zu: %s", s->index, strerror(errno));
    if ((rc = recv_ack(s, ACK_DONE)))
        return rc;
    s->t_first = r->t0;
    s->t_end = hw_now();
    s->cpu = raw_thread_cpu() - cpu;
    return 0;
}

static int stream_recv(struct stream *s)
{
    const struct raw_plan *p = &s->run->plan;
    const size_t call = (size_t)HW_MIN(p->message, s->mem_len);
    int rc;
    size_t off = 0;
    for (uint64_t left = p->warmup; left;) {
        ssize_t n = recv_some(s, s->mem + off, (size_t)HW_MIN(call - off, left));
        if (n < 0)
            return (int)n;
        if (n == 0)
            return hw_fail(-ECONNRESET, "plain sockets: the sender closed stream %zu during the warm-up", s->index);
        left -= (uint64_t)n;
        off = (off + (size_t)n) % call;
    }
    const uint8_t warm = ACK_WARM, done = ACK_DONE;
    if (p->warmup && (rc = send_stream_bytes(s, &warm, 1)))
        return rc;
    double cpu = raw_thread_cpu();
    /* Fill the buffer in units of one call, cyclically. */
    size_t base = 0;
    off = 0;
    for (;;) {
        size_t room = HW_MIN(call, s->mem_len - base);
        ssize_t n = recv_some(s, s->mem + base + off, room - off);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        if (!s->bytes)
            s->t_first = hw_now();
        s->bytes += (uint64_t)n;
        off += (size_t)n;
        if (off == room) {
            off = 0;
            base += room;
            if (base == s->mem_len)
                base = 0;
        }
    }
    if ((rc = send_stream_bytes(s, &done, 1)))
        return rc;
    s->t_end = hw_now();
    s->cpu = raw_thread_cpu() - cpu;
    return 0;
}

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    struct run *r = s->run;
    int rc = r->sender ? stream_send(s) : stream_recv(s);
    if (rc)
        run_fail(r, rc);
    pthread_mutex_lock(&r->lock);
    r->running--;
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static int streams_make(struct run *r, const int *fds, size_t n)
{
    if (n < 1)
        return hw_fail(-EINVAL, "plain sockets: no streams");
    r->streams = calloc(n, sizeof(*r->streams));
    if (!r->streams)
        return hw_no_memory("%zu streams of plain sockets", n);
    size_t stripe = r->len / n;
    if (n > 1)
        stripe = stripe / 4096 * 4096; /* whole pages for each stream */
    for (size_t i = 0; i < n; i++) {
        struct stream *s = &r->streams[i];
        *s = (struct stream){.run = r, .fd = fds[i], .index = i, .mem = r->buf, .mem_len = r->len};
        if (r->sender)
            continue;
        if (n == 1 || stripe >= r->plan.message) {
            s->mem = r->buf + i * stripe;
            s->mem_len = stripe;
        } else {
            s->mem = s->owned = calloc(1, r->plan.message);
            s->mem_len = r->plan.message;
            if (!s->owned)
                return hw_no_memory("the buffer of plain stream %zu", i);
            memset(s->owned, 1, r->plan.message); /* trigger page faults before the clock starts */
        }
    }
    pthread_mutex_lock(&r->lock); /* from now on, run_fail() in any thread can see the streams */
    r->n = n;
    int rc = r->rc;
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* Waits until all streams have ended, and returns true. Returns false at the deadline or after a signal. */
static bool await_streams(struct run *r, uint64_t deadline)
{
    pthread_mutex_lock(&r->lock);
    while (r->running) {
        const uint64_t now = hw_now(), next = HW_MIN(deadline, now + LOOK_MS * HW_MS);
        const struct timespec until = {.tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u)};
        if (r->rc) { /* a failure shuts down all sockets, so the streams end by themselves */
            pthread_cond_wait(&r->cond, &r->lock);
            continue;
        }
        if (tool_stop || now >= deadline)
            break;
        (void)pthread_cond_timedwait(&r->cond, &r->lock, &until);
    }
    const bool ended = !r->running;
    pthread_mutex_unlock(&r->lock);
    return ended;
}

/* Runs the plan over n connected descriptors. The caller closes the descriptors. */
static int run_streams(struct run *r, const int *fds, size_t n, uint64_t deadline, struct raw_result *out)
{
    int rc = streams_make(r, fds, n);
    for (size_t i = 0; !rc && i < n; i++) {
        pthread_mutex_lock(&r->lock);
        r->running++;
        pthread_mutex_unlock(&r->lock);
        int err = pthread_create(&r->streams[i].thread, NULL, stream_main, &r->streams[i]);
        if (err) {
            rc = hw_fail(-err, "plain sockets: starting thread %zu: %s", i, strerror(err));
            pthread_mutex_lock(&r->lock);
            r->running--;
            pthread_mutex_unlock(&r->lock);
        } else {
            r->streams[i].started = true;
        }
    }
    if (rc)
        run_fail(r, rc);
    const bool ended = await_streams(r, deadline);
    if (!ended && tool_stop)
        run_fail(r, hw_fail(-EINTR, "interrupted"));
    else if (!ended)
        run_fail(r, hw_fail(-ETIMEDOUT, "plain sockets: the %s streams had not finished at the deadline",
                            r->sender ? "sending" : "receiving"));
    for (size_t i = 0; r->streams && i < n; i++)
        if (r->streams[i].started)
            pthread_join(r->streams[i].thread, NULL);
    pthread_mutex_lock(&r->lock);
    r->n = 0;
    rc = r->rc;
    pthread_mutex_unlock(&r->lock);

    struct raw_result res = {0};
    uint64_t first = HW_NEVER, last = 0;
    for (size_t i = 0; r->streams && i < n; i++) {
        struct stream *s = &r->streams[i];
        res.bytes += s->bytes;
        res.cpu_seconds += s->cpu;
        if (s->bytes || r->sender) {
            first = HW_MIN(first, s->t_first);
            last = HW_MAX(last, s->t_end);
        }
        free(s->owned);
    }
    free(r->streams);
    if (rc)
        return hw_fail_copy(rc, r->text);
    if (r->plan.total && res.bytes != r->plan.total) /* if the sender is killed, its streams may end without an error */
        return hw_fail(-ECONNRESET, "plain sockets: %llu of %llu bytes arrived", (unsigned long long)res.bytes,
                       (unsigned long long)r->plan.total);
    res.seconds = last > first ? (double)(last - first) * 1e-9 : 0;
    *out = res;
    return 0;
}

static int plan_check(const struct raw_plan *p, size_t n_paths, const void *buf, size_t len)
{
    if (n_paths < 1 || n_paths > RAW_MAX_PATHS || p->streams < 1 || p->streams > RAW_MAX_STREAMS / n_paths)
        return hw_fail(
            -EINVAL,
            "plain sockets: invalid number of paths (%zu) or of streams per path (%u): use 1 to %d paths, and 1 to %d "
            "streams in total",
            n_paths, p->streams, RAW_MAX_PATHS, RAW_MAX_STREAMS);
    if (p->message < 1 || p->message > RAW_MESSAGE || !buf || !len)
        return hw_fail(-EINVAL,
                       "plain sockets: a message of %llu bytes (must be 1 to %u) in a buffer of %zu bytes is invalid",
                       (unsigned long long)p->message, RAW_MESSAGE, len);
    if (!p->total && !p->duration_ms)
        return hw_fail(-EINVAL, "plain sockets: neither a total nor a duration is given");
    if (p->dir != RAW_CLIENT_SENDS && p->dir != RAW_SERVER_SENDS)
        return hw_fail(-EINVAL, "plain sockets: unknown direction %d", (int)p->dir);
    return 0;
}

/* ---- client --------------------------------------------------------------------------------- */

/* Connects all streams, and waits for the server's go byte on each. *n counts the descriptors in fds, even after a
 * failure. */
static int connect_raw_streams(const struct raw_plan *plan, const struct raw_path *paths, size_t n_paths,
                               uint64_t deadline, int *fds, size_t *n)
{
    int rc;
    for (uint32_t k = 0; k < plan->streams; k++)
        for (size_t i = 0; i < n_paths; i++, ++*n)
            if ((rc = raw_connect(&paths[i], plan->token, plan->knobs, deadline, &fds[*n])))
                return rc;
    for (size_t i = 0; i < *n; i++)
        if ((rc = raw_wait_go(fds[i], deadline)))
            return rc;
    return 0;
}

int raw_client_run(const struct raw_plan *plan, const struct raw_path *paths, size_t n_paths, void *buf, size_t len,
                   uint64_t deadline, struct raw_result *out)
{
    int fds[RAW_MAX_STREAMS];
    size_t n = 0;
    int rc = plan_check(plan, n_paths, buf, len);
    if (rc)
        return rc;
    rc = connect_raw_streams(plan, paths, n_paths, deadline, fds, &n);
    if (!rc) {
        struct run r;
        run_init(&r, plan, plan->dir == RAW_CLIENT_SENDS, buf, len);
        rc = run_streams(&r, fds, n, deadline, out);
        socklen_t size = sizeof out->congestion - 1;
        (void)getsockopt(fds[0], IPPROTO_TCP, TCP_CONGESTION, out->congestion, &size);
        run_destroy(&r);
    }
    for (size_t i = 0; i < n; i++)
        hw_close(&fds[i]);
    return rc;
}

/* ---- server --------------------------------------------------------------------------------- */

struct raw_server {
    struct run run;
    pthread_t thread;
    size_t n_paths;
    int listeners[RAW_MAX_PATHS];
    int stop_fd;
    uint64_t deadline;
    struct raw_result result;
    int rc;
    char text[HW_ERR_TEXT];
};

static void *server_main(void *arg)
{
    struct raw_server *s = arg;
    int fds[RAW_MAX_STREAMS];
    size_t n = s->n_paths * s->run.plan.streams;
    int rc = raw_accept(s->listeners, s->n_paths, s->run.plan.streams, s->run.plan.token, s->run.plan.knobs, s->stop_fd,
                        s->deadline, fds);
    for (size_t i = 0; i < s->n_paths; i++)
        hw_close(&s->listeners[i]);
    if (!rc) {
        rc = run_streams(&s->run, fds, n, s->deadline, &s->result);
        for (size_t i = 0; i < n; i++)
            hw_close(&fds[i]);
    }
    s->rc = rc;
    if (rc)
        snprintf(s->text, sizeof(s->text), "%s", hw_error());
    return NULL;
}

static void server_free(struct raw_server *s)
{
    for (size_t i = 0; i < s->n_paths; i++)
        hw_close(&s->listeners[i]);
    hw_close(&s->stop_fd);
    run_destroy(&s->run);
    free(s);
}

static int start_raw_server(struct raw_server *s, const char *const *addrs, size_t n_addrs, uint16_t *ports)
{
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop_fd < 0)
        return hw_fail(-errno, "plain sockets: creating an eventfd: %s", strerror(errno));
    for (; s->n_paths < n_addrs; s->n_paths++) {
        int rc = raw_listen(addrs[s->n_paths], s->run.plan.knobs, &s->listeners[s->n_paths], &ports[s->n_paths]);
        if (rc)
            return rc;
    }
    int err = pthread_create(&s->thread, NULL, server_main, s);
    return err ? hw_fail(-err, "plain sockets: starting the server's thread: %s", strerror(err)) : 0;
}

int raw_server_start(const struct raw_plan *plan, const char *const *addrs, size_t n_addrs, void *buf, size_t len,
                     uint64_t deadline, struct raw_server **out, uint16_t *ports)
{
    int rc = plan_check(plan, n_addrs, buf, len);
    if (rc)
        return rc;
    struct raw_server *s = calloc(1, sizeof(*s));
    if (!s)
        return hw_no_memory("the server of plain sockets");
    run_init(&s->run, plan, plan->dir == RAW_SERVER_SENDS, buf, len);
    s->deadline = deadline;
    rc = start_raw_server(s, addrs, n_addrs, ports);
    if (rc) {
        server_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void raw_server_cancel(struct raw_server *s)
{
    const uint64_t one = 1;
    if (write(s->stop_fd, &one, sizeof(one)) < 0 && errno != EAGAIN) /* EAGAIN: the stop was already requested */
        return;
    run_fail(&s->run, hw_fail(-ECANCELED, "plain sockets: cancelled"));
}

int raw_server_finish(struct raw_server *s, struct raw_result *out)
{
    if (!s)
        return 0;
    pthread_join(s->thread, NULL);
    int rc = s->rc;
    if (rc)
        hw_fail_copy(rc, s->text);
    else if (out)
        *out = s->result;
    server_free(s);
    return rc;
}

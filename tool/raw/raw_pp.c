/* SPDX-License-Identifier: Apache-2.0 */
/* The ping-pong over plain sockets, both sides. */
#include "tool/raw/raw.h"
#include "tool/raw/raw_sock.h"
#include "tool/tool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define SPINS_PER_CLOCK 64 /* empty polls, or the server's round trips, between two checks of the deadline */

static int pp_check(const struct raw_pingpong *pp)
{
    if (pp->size < 1 || pp->size > RAW_MESSAGE || pp->iters < 1)
        return hw_fail(
            -EINVAL,
            "plain ping-pong: %u bytes or %u round trips are invalid: use 1 to %u bytes, and at least one round trip",
            pp->size, pp->iters, RAW_MESSAGE);
    return 0;
}

/* Makes blocking calls on the connection time out often enough to notice the deadline of the run. */
static int pp_limit(int fd, uint64_t deadline)
{
    if (deadline == HW_NEVER)
        return 0;
    struct timeval tv = {.tv_usec = 100000};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) != 0)
        return hw_fail(-errno, "plain ping-pong: setting the timeout: %s", strerror(errno));
    return 0;
}

/* Sends or receives exactly n bytes. */
static int pp_move(int fd, uint8_t *p, size_t n, bool out, bool spin, uint64_t deadline)
{
    const int flags = MSG_NOSIGNAL | (spin ? MSG_DONTWAIT : 0);
    unsigned empty = 0;
    while (n) {
        ssize_t k = out ? send(fd, p, n, flags) : recv(fd, p, n, flags);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
            continue;
        }
        if (k == 0)
            return hw_fail(-ECONNRESET, "plain ping-pong: the other side closed the connection");
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return hw_fail(errno == EPIPE ? -ECONNRESET : -errno, "plain ping-pong: %s: %s", out ? "send" : "recv",
                           strerror(errno));
        if ((!spin || ++empty % SPINS_PER_CLOCK == 0) && hw_now() >= deadline)
            return hw_fail(-ETIMEDOUT, "plain ping-pong: the other side did not send or receive in time");
    }
    return 0;
}

int raw_pp_client_run(const struct raw_pingpong *pp, const struct raw_path *path, uint64_t deadline,
                      struct raw_latency *out, struct hw_hist *hist)
{
    int rc = pp_check(pp);
    if (rc)
        return rc;
    HW_AUTO_CLOSE int fd = -1;
    HW_AUTO_FREE uint8_t *buf = calloc(1, pp->size);
    HW_AUTO_FREE struct hw_hist *h = malloc(sizeof(*h));
    if (!buf || !h)
        return hw_no_memory("%u bytes of the plain ping-pong", pp->size);
    rc = raw_connect(path, pp->token, pp->knobs, deadline, &fd);
    if (rc || (rc = raw_wait_go(fd, deadline)) || (rc = pp_limit(fd, deadline)))
        return rc;
    hw_hist_reset(h);
    double cpu = raw_thread_cpu();
    const uint64_t trips = (uint64_t)pp->warmup + pp->iters;
    for (uint64_t i = 0; i < trips; i++) {
        uint64_t t = hw_now();
        rc = pp_move(fd, buf, pp->size, true, pp->spin, deadline);
        if (rc || (rc = pp_move(fd, buf, pp->size, false, pp->spin, deadline)))
            return rc;
        uint64_t now = hw_now();
        if (i >= pp->warmup)
            hw_hist_add(h, (now - t) / 2);
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        if (now >= deadline)
            return hw_fail(-ETIMEDOUT, "plain ping-pong: the deadline passed after %llu of %llu round trips",
                           (unsigned long long)i + 1, (unsigned long long)trips);
    }
    *out = (struct raw_latency){.p50_ns = hw_hist_quantile(h, 0.5),
                                .p99_ns = hw_hist_quantile(h, 0.99),
                                .p999_ns = hw_hist_quantile(h, 0.999),
                                .iters = pp->iters,
                                .cpu_seconds = raw_thread_cpu() - cpu};
    if (hist)
        hw_hist_merge(hist, h);
    return 0;
}

struct raw_pp_server {
    struct raw_pingpong pp;
    pthread_t thread;
    pthread_mutex_t lock; /* protects fd and cancelled */
    int fd;
    bool cancelled;
    int listener, stop_fd;
    uint64_t deadline;
    double cpu;
    int rc;
    char text[HW_ERR_TEXT];
};

static int pp_serve(struct raw_pp_server *s, uint8_t *buf)
{
    const struct raw_pingpong *pp = &s->pp;
    int fd;
    int rc = raw_accept(&s->listener, 1, 1, pp->token, pp->knobs, s->stop_fd, s->deadline, &fd);
    if (rc)
        return rc;
    pthread_mutex_lock(&s->lock);
    s->fd = fd;
    if (s->cancelled)
        shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
    rc = pp_limit(fd, s->deadline);
    double cpu = raw_thread_cpu();
    const uint64_t trips = (uint64_t)pp->warmup + pp->iters;
    for (uint64_t i = 0; !rc && i < trips; i++) {
        rc = pp_move(fd, buf, pp->size, false, pp->spin, s->deadline);
        if (!rc)
            rc = pp_move(fd, buf, pp->size, true, pp->spin, s->deadline);
        if (!rc && i % SPINS_PER_CLOCK == 0 && hw_now() >= s->deadline)
            rc = hw_fail(-ETIMEDOUT, "plain ping-pong: the deadline passed after %llu of %llu round trips",
                         (unsigned long long)i + 1, (unsigned long long)trips);
    }
    s->cpu = raw_thread_cpu() - cpu;
    pthread_mutex_lock(&s->lock);
    hw_close(&s->fd);
    if (rc && s->cancelled)
        rc = hw_fail(-ECANCELED, "plain ping-pong: cancelled");
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void *pp_main(void *arg)
{
    struct raw_pp_server *s = arg;
    uint8_t *buf = calloc(1, s->pp.size);
    s->rc = buf ? pp_serve(s, buf) : hw_no_memory("%u bytes of the plain ping-pong", s->pp.size);
    if (s->rc)
        snprintf(s->text, sizeof(s->text), "%s", hw_error());
    free(buf);
    return NULL;
}

static void pp_free(struct raw_pp_server *s)
{
    hw_close(&s->listener);
    hw_close(&s->stop_fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int start_pp_server(struct raw_pp_server *s, const char *addr, uint16_t *port)
{
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop_fd < 0)
        return hw_fail(-errno, "plain ping-pong: creating an eventfd: %s", strerror(errno));
    int rc = raw_listen(addr, s->pp.knobs, &s->listener, port);
    if (rc)
        return rc;
    int err = pthread_create(&s->thread, NULL, pp_main, s);
    return err ? hw_fail(-err, "plain ping-pong: starting the server's thread: %s", strerror(err)) : 0;
}

int raw_pp_server_start(const struct raw_pingpong *pp, const char *addr, uint64_t deadline, struct raw_pp_server **out,
                        uint16_t *port)
{
    int rc = pp_check(pp);
    if (rc)
        return rc;
    struct raw_pp_server *s = calloc(1, sizeof(*s));
    if (!s)
        return hw_no_memory("the server of the plain ping-pong");
    *s = (struct raw_pp_server){.pp = *pp, .fd = -1, .listener = -1, .deadline = deadline};
    pthread_mutex_init(&s->lock, NULL);
    rc = start_pp_server(s, addr, port);
    if (rc) {
        pp_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void raw_pp_server_cancel(struct raw_pp_server *s)
{
    const uint64_t one = 1;
    ssize_t n = write(s->stop_fd, &one, sizeof(one)); /* fails only if the stop was already requested */
    (void)n;
    pthread_mutex_lock(&s->lock);
    s->cancelled = true;
    if (s->fd >= 0)
        shutdown(s->fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
}

int raw_pp_server_finish(struct raw_pp_server *s, double *cpu_seconds)
{
    if (!s)
        return 0;
    pthread_join(s->thread, NULL);
    int rc = s->rc;
    if (rc)
        hw_fail_copy(rc, s->text);
    else if (cpu_seconds)
        *cpu_seconds = s->cpu;
    pp_free(s);
    return rc;
}

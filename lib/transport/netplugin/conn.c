/* SPDX-License-Identifier: Apache-2.0 */
/* A connection over a plugin: setup, the lifecycle of its slots, and teardown. */
#include "transport/netplugin/conn.h"

#include "transport/netplugin/host/device.h"
#include "transport/netplugin/host/pool.h"
#include "transport/netplugin/table/abi.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

uint32_t np_conn_slot(const struct np_props *p)
{
    return HW_MIN(p->max_size, NP_SLOT_MAX) & ~4095u;
}

static int watch_plugin_fd(int set, int fd, uint32_t events)
{
    struct epoll_event ev = {.events = events | EPOLLET, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev);
}

void np_conn_free(struct np_conn *c)
{
    hw_close(&c->set);
    hw_close(&c->event);
    np_pool_give(c->env->state, c->host);
    free(c);
}

int np_conn_new(const struct hw_tp_env *env, int fd, const char *nic, struct np_conn **out)
{
    struct np_conn *c = calloc(1, sizeof(*c));
    if (!c)
        return hw_no_memory("a connection");
    c->env = env;
    c->host = np_pool_take(env->state);
    c->fd = fd;
    c->set = epoll_create1(EPOLL_CLOEXEC);
    c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->deadline = hw_deadline((int)(env->knobs->handshake_ms + np_info(c->host)->wait_ms));
    c->request_ms = env->knobs->peer_timeout_ms;
    c->nslots = HW_MIN((unsigned)NP_SLOTS, np_info(c->host)->window);
    const int dev = np_device_of(np_pool_first(env->state), nic, env->knobs->plugin_devices, env->log);
    if (dev < 0) {
        np_conn_free(c);
        return dev;
    }
    c->dev = (unsigned)dev;
    c->tcp_news = true;
    struct np_props p = {0};
    int rc = c->set < 0 || c->event < 0 || watch_plugin_fd(c->set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP) ||
                     watch_plugin_fd(c->set, c->event, EPOLLIN)
                 ? hw_fail(-errno, "watching a connection for events: %s", strerror(errno))
                 : np_props(c->host, c->dev, &p);
    if (rc) {
        np_conn_free(c);
        return rc;
    }
    c->slot = np_conn_slot(&p);
    c->slots = (struct np_slots){.host = c->host,
                                 .log = env->log,
                                 .n = c->nslots,
                                 .size = c->slot,
                                 .cuda = p.ptr_support & NCCL_PTR_CUDA,
                                 .only = -1};
    c->unpacks = p.unpacks;
    c->gpu = c->peer_gpu = -1;
    *out = c;
    return 0;
}

/* Checks whether the peer has closed the socket. The bytes after the greetings belong to frames, and are not read here.
 */
static int socket_word(struct np_conn *c)
{
    uint8_t byte;
    if (!c->tcp_news)
        return 0;
    ssize_t n = recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n == 0)
        return hw_fail(-EPIPE, "the peer closed the connection");
    if (n > 0)
        return 0;
    if (errno != EAGAIN && errno != EINTR)
        return hw_fail(-errno, "receiving: %s", strerror(errno));
    c->tcp_news = false;
    return 0;
}

void np_conn_listen(struct np_conn *c)
{
    struct epoll_event ev[2];
    uint64_t rung;
    int n = epoll_wait(c->set, ev, 2, 0);
    for (int i = 0; i < n; i++) {
        if (ev[i].data.fd == c->fd)
            c->tcp_news = true;
        else
            (void)!read(c->event, &rung, sizeof(rung));
    }
}

int np_conn_advance(struct np_conn *c)
{
    int rc = 0;
    if (c->state == READY)
        return socket_word(c);
    if (c->state == GREET)
        rc = np_conn_greet(c);
    if (c->state == JOIN)
        rc = np_conn_join(c);
    if (rc != -EAGAIN)
        return rc;
    if (hw_now() >= c->deadline)
        return hw_fail(-ETIMEDOUT, "the plugins of both sides did not connect before the deadline");
    if (c->state == JOIN && ((rc = socket_word(c)) || (rc = np_health(c->host))))
        return rc;
    return -EAGAIN;
}

int np_conn_reclaim(struct np_conn *c)
{
    struct np_result r;
    int rc = 0;
    while (c->over < c->given && (rc = np_test(c->tx, &r)) == 0)
        c->over++;
    return rc == -EAGAIN ? 0 : rc;
}

int np_conn_collect(struct np_conn *c)
{
    int rc = -EAGAIN;
    while (c->state == READY && c->came - c->taken < c->nslots &&
           (rc = np_test(c->rx, &c->result[c->came % c->nslots])) == 0)
        if ((rc = np_slots_came(&c->slots, c->came++)))
            return rc;
    return c->came > c->taken ? 0 : rc;
}

void np_conn_close_plugin(struct np_conn *c)
{
    if (c->tx)
        (void)np_comm_close(c->tx);
    if (c->rx)
        (void)np_comm_close(c->rx);
    if (c->listener)
        (void)np_listener_close(c->listener);
    np_slots_close(&c->slots);
}

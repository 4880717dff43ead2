/* SPDX-License-Identifier: Apache-2.0 */
#include "real.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_NS (10000 * HW_MS)

/* ---- sockets ---------------------------------------------------------------------------------------- */

static const struct hw_logger silent;

static void open_tcp_pair(int pair[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || pair[0] < 0 || bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) < 0 || connect(pair[0], (struct sockaddr *)&at, len) < 0)
        abort();
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (pair[1] < 0)
        abort();
    close(listener);
    for (int k = 0; k < 2; k++)
        if (setsockopt(pair[k], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
            abort();
}

/* ---- threads ---------------------------------------------------------------------------------------- */

void real_init(struct real_node node[2])
{
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < REAL_LOOPS; k++)
            if (hw_driver_init(&node[side].driver[k], node[side].driver, REAL_LOOPS) < 0)
                abort();
}

void real_start(struct real_node node[2])
{
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < REAL_LOOPS; k++)
            if (hw_driver_start(&node[side].driver[k], "a loop") < 0)
                abort();
}

void real_stop(struct real_node node[2])
{
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < REAL_LOOPS; k++)
            hw_driver_stop(&node[side].driver[k]);
    for (unsigned i = 0; i < node[0].rails; i++)
        for (unsigned k = 0; k < node[0].links && node[0].cut[i][k]; k++)
            close(node[0].cut[i][k]);
}

struct call {
    struct hw_task task;
    void (*fn)(void *arg);
    void *arg;
    sem_t over;
};

static void run_call(struct hw_task *t)
{
    struct call *c = hw_container_of(t, struct call, task);
    c->fn(c->arg);
    sem_post(&c->over);
}

void real_call(struct real_node *n, void (*fn)(void *arg), void *arg)
{
    struct call c = {.task.run = run_call, .fn = fn, .arg = arg};
    sem_init(&c.over, 0, 0);
    hw_loop_post(&n->driver[0].loop, &c.task);
    sem_wait(&c.over);
    sem_destroy(&c.over);
}

/* ---- handshakes ------------------------------------------------------------------------------------- */

struct handshake {
    struct real_node *node;
    unsigned rail;
    uint32_t gen;
    struct hw_word client, server;
    struct hw_conn *conn[2][HW_RAIL_LINKS];
    int rc;
};

static void say_hello(void *arg)
{
    struct handshake *h = arg;
    h->gen = hw_session_hello(h->node[0].session, h->rail, &h->client);
}

static void ask(void *arg)
{
    struct handshake *h = arg;
    h->rc = hw_session_ask(h->node[1].session, h->rail, h->gen, &h->client);
}

static void answer(void *arg)
{
    struct handshake *h = arg;
    h->rc = hw_session_answer(h->node[1].session, h->rail, h->gen, &h->server);
    if (h->rc == 0)
        h->rc = hw_session_start(h->node[1].session, h->rail, h->gen, h->conn[1], h->node->links, NULL);
}

static void start(void *arg)
{
    struct handshake *h = arg;
    h->rc = hw_session_start(h->node[0].session, h->rail, h->gen, h->conn[0], h->node->links, &h->server);
}

bool real_connect(struct real_node node[2], unsigned i)
{
    struct handshake h = {.node = node, .rail = i};
    uint64_t limit = hw_now() + CONNECT_NS;
    do {
        real_call(&node[0], say_hello, &h);
        if (h.gen)
            break;
        usleep(1000); /* the rail has not yet noticed that its connections were cut */
    } while (hw_now() < limit);
    if (!h.gen)
        return false;
    real_call(&node[1], ask, &h);
    if (h.rc < 0)
        return false;
    for (unsigned k = 0; k < node[0].links; k++) {
        int pair[2];
        if (node[0].tcp)
            open_tcp_pair(pair);
        else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            abort();
        if (node[0].cut[i][k])
            close(node[0].cut[i][k]);
        node[0].cut[i][k] = fcntl(pair[0], F_DUPFD_CLOEXEC, 3);
        for (int side = 0; side < 2; side++)
            if (!(h.conn[side][k] = hw_tcp_new(pair[side], &node[0].knobs, &silent)))
                abort();
    }
    do {
        real_call(&node[1], answer, &h);
        usleep(100);
    } while (h.rc == -EAGAIN && hw_now() < limit);
    if (h.rc < 0)
        return false;
    real_call(&node[0], start, &h);
    return h.rc == 0;
}

void real_cut(struct real_node node[2], unsigned i, unsigned link)
{
    shutdown(node[0].cut[i][link], SHUT_RDWR);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "real.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONNECT_NS (10000 * HW_MS)

static atomic_bool stop;

/* ---- sockets ---------------------------------------------------------------------------------------- */

static int64_t move_bytes(struct hw_conn *c, const struct hw_piece *piece, uint32_t n, bool out)
{
    struct iovec iov[64];
    struct msghdr m = {.msg_iov = iov};
    for (; m.msg_iovlen < n && m.msg_iovlen < HW_ARRAY_LEN(iov); m.msg_iovlen++)
        iov[m.msg_iovlen] = (struct iovec){piece[m.msg_iovlen].ptr, piece[m.msg_iovlen].len};
    ssize_t done = out ? sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(c->fd, &m, MSG_DONTWAIT);
    if (done < 0)
        return errno == EAGAIN ? -EAGAIN : -ECONNRESET;
    return done == 0 && !out ? -ECONNRESET : done;
}

static int64_t write_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return move_bytes(c, piece, n, true);
}

static int64_t read_conn(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return move_bytes(c, piece, n, false);
}

static void close_conn(struct hw_conn *c)
{
    close(c->fd);
    free(c);
}

const struct hw_rail_io real_io = {write_conn, read_conn, close_conn};

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

static struct hw_conn *make_conn(struct real_node *n, unsigned rail, int fd)
{
    struct hw_conn *c = malloc(sizeof *c);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = rail};
    if (!c)
        abort();
    c->fd = fd;
    if (epoll_ctl(n->loop[rail % REAL_LOOPS].epoll, EPOLL_CTL_ADD, fd, &e) < 0)
        abort();
    return c;
}

/* ---- threads ---------------------------------------------------------------------------------------- */

struct thread {
    struct real_node *node;
    struct real_loop *loop;
};

static void wake_loop(void *arg)
{
    struct real_loop *l = arg;
    uint64_t one = 1;
    if (write(l->wake, &one, sizeof one) < 0)
        abort();
}

static int get_wait_ms(const struct real_loop *l)
{
    uint64_t due = hw_loop_due(&l->loop), now = hw_now();
    return due <= now ? 0 : (int)HW_MIN((due - now + HW_MS - 1) / HW_MS, 100u);
}

static void *drive_loop(void *arg)
{
    struct thread t = *(struct thread *)arg;
    struct epoll_event e[16];
    free(arg);
    while (!atomic_load(&stop)) {
        int n = epoll_wait(t.loop->epoll, e, HW_ARRAY_LEN(e), get_wait_ms(t.loop));
        uint64_t drained;
        for (int k = 0; k < n; k++) {
            if (e[k].data.u32 < REAL_RAILS)
                hw_session_wake(t.node->session, e[k].data.u32);
            else if (read(t.loop->wake, &drained, sizeof drained) < 0)
                abort();
        }
        hw_loop_turn(&t.loop->loop, hw_now(), 64);
    }
    return NULL;
}

void real_init(struct real_node node[2])
{
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < REAL_LOOPS; k++) {
            struct real_loop *l = &node[side].loop[k];
            struct epoll_event e = {.events = EPOLLIN, .data.u32 = REAL_RAILS};
            l->epoll = epoll_create1(EPOLL_CLOEXEC);
            l->wake = eventfd(0, EFD_CLOEXEC);
            hw_loop_init(&l->loop, wake_loop, l);
            if (l->epoll < 0 || l->wake < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &e) < 0)
                abort();
        }
}

void real_start(struct real_node node[2])
{
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < REAL_LOOPS; k++) {
            struct thread *t = malloc(sizeof *t);
            if (!t)
                abort();
            *t = (struct thread){&node[side], &node[side].loop[k]};
            if (pthread_create(&t->loop->thread, NULL, drive_loop, t) != 0)
                abort();
        }
}

void real_stop(struct real_node node[2])
{
    atomic_store(&stop, true);
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < REAL_LOOPS; k++) {
            struct real_loop *l = &node[side].loop[k];
            wake_loop(l);
            pthread_join(l->thread, NULL);
            close(l->epoll);
            close(l->wake);
        }
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
    hw_loop_post(&n->loop[0].loop, &c.task);
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
        usleep(1000); /* it has not noticed yet that it was cut */
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
            h.conn[side][k] = make_conn(&node[side], i, pair[side]);
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

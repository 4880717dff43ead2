/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/conn.h"

#include "base/fork.h"
#include "transport/tcp/refer.h"
#include "transport/tcp/sock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define IOVECS          64
#define LEAST_WINDOW    (2ull << 20)
#define PATHS_IN_FLIGHT 4      /* the receiver confirms later than TCP acknowledges */
#define BOUNCE          65536u /* bytes that are copied at a time, of memory that the CPU cannot use */

struct hw_conn {
    int fd;
    const struct hw_knobs *knobs;
    struct hw_rail *rail; /* NULL: it belongs to none yet */
    struct hw_source source;
    bool drained, full; /* there is nothing to read, no room to write, until an event says so */
    bool ends;          /* the peer has closed its side, or TCP has failed: reading finds out */
    struct hw_refer refer;
    uint8_t *bounce; /* made at its first use */
};

struct hw_conn *hw_tcp_new(int fd, const struct hw_knobs *k)
{
    struct hw_conn *c = calloc(1, sizeof *c);
    if (!c) {
        hw_fork_close(&fd);
        hw_no_memory("a connection");
        return NULL;
    }
    c->fd = hw_fork_guard(fd);
    c->knobs = k;
    hw_refer_init(&c->refer);
    c->refer.off = !k->splice;
    return c;
}

static struct hw_driver *get_driver(const struct hw_rail *r)
{
    return hw_container_of(r->loop, struct hw_driver, loop);
}

static void note_socket_ready(struct hw_source *s, uint32_t events)
{
    struct hw_conn *c = hw_container_of(s, struct hw_conn, source);
    c->drained &= !(events & ~(uint32_t)EPOLLOUT);
    c->full &= !(events & ~(uint32_t)EPOLLIN);
    c->ends |= events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    hw_rail_ready(c->rail);
}

static int attach_socket(struct hw_conn *c, struct hw_rail *r)
{
    c->rail = r;
    c->source.ready = note_socket_ready;
    return hw_driver_watch(get_driver(r), c->fd, &c->source);
}

static void close_socket(struct hw_conn *c)
{
    if (c->rail)
        hw_driver_forget(get_driver(c->rail), c->fd, &c->source);
    hw_fork_close(&c->fd);
    hw_refer_free(&c->refer);
    free(c->bounce);
    free(c);
}

static int64_t explain_error(const char *what)
{
    int error = errno;
    return error == EAGAIN ? -EAGAIN : hw_fail(-error, "%s: %s", what, strerror(error));
}

/* ---- bytes -------------------------------------------------------------------------------------------- */

/* True if the piece is sent by reference. One without an owner is in the link's own buffers, which it uses again once
 * they are written. */
static bool is_referred(const struct hw_conn *c, const struct hw_piece *piece)
{
    return !c->refer.off && piece->owner && piece->len >= HW_REFER_MIN && piece->space->direct;
}

/* The pieces up to the first that the CPU cannot use, or that is, or is not, sent by reference. */
static size_t list_iovecs(const struct hw_conn *c, bool refer, const struct hw_piece *piece, uint32_t n,
                          struct iovec *iov)
{
    size_t k = 0;
    for (; k < n && k < IOVECS && piece[k].space->direct && is_referred(c, &piece[k]) == refer; k++)
        iov[k] = (struct iovec){piece[k].ptr, piece[k].len};
    return k;
}

/* Room to copy the piece through. *len: how much of it. */
static uint8_t *get_bounce(struct hw_conn *c, const struct hw_piece *piece, size_t *len)
{
    if (!c->bounce)
        c->bounce = malloc(BOUNCE);
    *len = HW_MIN(piece->len, BOUNCE);
    return c->bounce;
}

/* Copies the first pieces to the socket. */
static int64_t send_copy(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct iovec iov[IOVECS];
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = list_iovecs(c, false, piece, n, iov)};
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (m.msg_iovlen && m.msg_iovlen < n ? MSG_MORE : 0);
    if (m.msg_iovlen == 0) {
        iov[0].iov_base = get_bounce(c, piece, &iov[0].iov_len);
        m.msg_iovlen = 1;
        if (!iov[0].iov_base)
            return hw_no_memory("a buffer of %u bytes", BOUNCE);
        int rc = hw_load(piece->space, iov[0].iov_base, piece->ptr, iov[0].iov_len);
        if (rc < 0)
            return rc;
    }
    ssize_t done;
    do
        done = m.msg_iovlen == 1 ? send(c->fd, iov[0].iov_base, iov[0].iov_len, flags) : sendmsg(c->fd, &m, flags);
    while (done < 0 && errno == EINTR);
    return done < 0 ? explain_error("sending") : done;
}

/* What the pipe holds is the first bytes of the pieces: they count as written once they have left it. */
static int64_t write_socket(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct iovec iov[IOVECS];
    int64_t done = 0;
    if (c->full)
        return -EAGAIN;
    if (!c->refer.held && is_referred(c, piece))
        done = hw_refer_fill(&c->refer, iov, list_iovecs(c, true, piece, n, iov));
    if (done >= 0)
        done = c->refer.held ? hw_refer_drain(&c->refer, c->fd, false) : send_copy(c, piece, n);
    c->full = done == -EAGAIN;
    return done;
}

static size_t list_readable(const struct hw_piece *piece, uint32_t n, struct iovec *iov)
{
    size_t k = 0;
    for (; k < n && k < IOVECS && piece[k].space->direct; k++)
        iov[k] = (struct iovec){piece[k].ptr, piece[k].len};
    return k;
}

static size_t count_room(const struct msghdr *m)
{
    size_t room = 0;
    for (size_t i = 0; i < m->msg_iovlen; i++)
        room += m->msg_iov[i].iov_len;
    return room;
}

static int64_t read_socket(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    if (c->drained)
        return -EAGAIN;
    struct iovec iov[IOVECS];
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = list_readable(piece, n, iov)};
    bool copy = m.msg_iovlen == 0;
    if (copy) {
        iov[0].iov_base = get_bounce(c, piece, &iov[0].iov_len);
        m.msg_iovlen = 1;
        if (!iov[0].iov_base)
            return hw_no_memory("a buffer of %u bytes", BOUNCE);
    }
    ssize_t done;
    do
        done = m.msg_iovlen == 1 ? recv(c->fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT)
                                 : recvmsg(c->fd, &m, MSG_DONTWAIT);
    while (done < 0 && errno == EINTR);
    /* what comes after a read that found less than it asked for is an event of its own, but for an end seen before */
    c->drained = done < 0 ? errno == EAGAIN : (size_t)done < count_room(&m) && !c->ends;
    if (done < 0)
        return explain_error("receiving");
    if (done == 0)
        return hw_fail(-ECONNRESET, "the peer closed the connection");
    int rc = copy ? hw_store(piece->space, piece->ptr, c->bounce, (size_t)done) : 0;
    return rc < 0 ? rc : done;
}

/* What is in flight beyond what the path holds waits in buffers, and leaves the CPU's caches meanwhile. */
static int check_socket(struct hw_conn *c, uint64_t *window)
{
    uint64_t path = hw_sock_path_bytes(c->fd);
    if (path)
        *window = HW_MIN(*window, HW_MAX(LEAST_WINDOW, PATHS_IN_FLIGHT * path));
    return hw_sock_health(c->fd, c->knobs->stall_ms, c->knobs->peer_timeout_ms);
}

const struct hw_rail_io hw_tcp_io = {
    .attach = attach_socket, .write = write_socket, .read = read_socket, .close = close_socket, .check = check_socket};

static int make_socket(int fd, const struct hw_carrier_args *a, struct hw_conn **out)
{
    *out = hw_tcp_new(fd, a->env->knobs);
    return *out ? 0 : -ENOMEM;
}

const struct hw_carrier hw_tcp_carrier = {.io = &hw_tcp_io, .make = make_socket};

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/conn.h"

#include "base/fork.h"
#include "transport/tcp/sock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define IOVECS 64
#define BOUNCE 65536u /* bytes that are copied at a time, of memory that the CPU cannot use */

struct hw_conn {
    int fd;
    const struct hw_knobs *knobs;
    struct hw_driver *driver; /* NULL: it belongs to no rail yet */
    uint8_t *bounce;          /* made at its first use */
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
    return c;
}

static int attach_socket(struct hw_conn *c, struct hw_rail *r)
{
    struct hw_driver *d = hw_container_of(r->loop, struct hw_driver, loop);
    int rc = hw_driver_watch(d, c->fd, &r->source);
    if (rc == 0)
        c->driver = d;
    return rc;
}

static void close_socket(struct hw_conn *c)
{
    if (c->driver)
        hw_driver_forget(c->driver, c->fd);
    hw_fork_close(&c->fd);
    free(c->bounce);
    free(c);
}

static int64_t explain_error(const char *what)
{
    int error = errno;
    return error == EAGAIN ? -EAGAIN : hw_fail(-error, "%s: %s", what, strerror(error));
}

/* ---- bytes -------------------------------------------------------------------------------------------- */

/* The pieces up to the first that the CPU cannot use. */
static size_t list_iovecs(const struct hw_piece *piece, uint32_t n, struct iovec *iov)
{
    size_t k = 0;
    for (; k < n && k < IOVECS && piece[k].space->direct; k++)
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

static int64_t write_socket(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct iovec iov[IOVECS];
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = list_iovecs(piece, n, iov)};
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
        done = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    return done < 0 ? explain_error("sending") : done;
}

static int64_t read_socket(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct iovec iov[IOVECS];
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = list_iovecs(piece, n, iov)};
    bool copy = m.msg_iovlen == 0;
    if (copy) {
        iov[0].iov_base = get_bounce(c, piece, &iov[0].iov_len);
        m.msg_iovlen = 1;
        if (!iov[0].iov_base)
            return hw_no_memory("a buffer of %u bytes", BOUNCE);
    }
    ssize_t done;
    do
        done = recvmsg(c->fd, &m, MSG_DONTWAIT);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return explain_error("receiving");
    if (done == 0)
        return hw_fail(-ECONNRESET, "the peer closed the connection");
    int rc = copy ? hw_store(piece->space, piece->ptr, c->bounce, (size_t)done) : 0;
    return rc < 0 ? rc : done;
}

static int check_socket(struct hw_conn *c)
{
    return hw_sock_health(c->fd, c->knobs->stall_ms, c->knobs->peer_timeout_ms);
}

const struct hw_rail_io hw_tcp_io = {
    .attach = attach_socket, .write = write_socket, .read = read_socket, .close = close_socket, .check = check_socket};

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp.h"

#include "base/fork.h"
#include "transport/tcp/refer.h"
#include "transport/tcp/sock.h"
#include "transport/tcp/staging.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define IOVECS       64
#define LEAST_WINDOW (2ull << 20)
/* Multiple of the path's capacity that may be in flight, because the receiver confirms later than TCP acknowledges. */
#define PATHS_IN_FLIGHT 4
#define STAGED_READS    8 /* maximum number of consecutive reads of one connection into its staging ring */

struct hw_conn {
    int fd;
    const struct hw_knobs *knobs;
    const struct hw_logger *log;
    struct hw_rail *rail; /* NULL before the connection is on a rail */
    unsigned link;        /* number of the rail's link */
    struct hw_source source;
    bool drained, full; /* nothing to read, and no space to write, until the next event */
    bool ends;          /* the peer has closed its side or TCP has failed; a later read reports which */
    struct hw_refer refer;
    struct hw_sock_watch watch;
    struct hw_tp_counts *counts; /* NULL if the connection is not counted */
    uint64_t again_told;         /* value of watch.again that was added to counts */
    uint64_t sent, referred;     /* bytes sent so far; end of the last bytes that were sent by reference */
    struct hw_staging *stage;    /* for memory that the CPU cannot access; allocated on first use */
    uint8_t *back;               /* bytes [back_at, back_end) will be read again; allocated on first use */
    uint32_t back_at, back_end;
};

struct hw_conn *hw_tcp_new(int fd, const struct hw_knobs *k, const struct hw_logger *log)
{
    struct hw_conn *c = calloc(1, sizeof *c);
    if (!c) {
        hw_fork_close(&fd);
        hw_no_memory("a connection");
        return NULL;
    }
    c->fd = hw_fork_guard(fd);
    c->knobs = k;
    c->log = log;
    hw_refer_init(&c->refer);
    c->refer.off = !k->splice;
    return c;
}

void hw_tcp_count(struct hw_conn *c, struct hw_tp_counts *counts)
{
    c->counts = counts;
}

/* Updates the counts with the values that hw_sock_look() or hw_sock_health() has read. */
static void count_path(struct hw_conn *c)
{
    if (!c->counts)
        return;
    hw_tp_add(&c->counts->retransmits, c->watch.again - c->again_told);
    c->again_told = c->watch.again;
    if (c->watch.rtt_us)
        atomic_store_explicit(&c->counts->rtt_us, c->watch.rtt_us, memory_order_relaxed);
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
    hw_rail_ready(c->rail, c->link);
}

static bool look_at_socket(struct hw_source *s, uint32_t events)
{
    struct hw_conn *c = hw_container_of(s, struct hw_conn, source);
    if ((events & EPOLLOUT && c->full) || events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        note_socket_ready(s, events);
        return true;
    }
    c->drained = false;
    return hw_rail_look(c->rail, c->link);
}

static int attach_socket(struct hw_conn *c, struct hw_rail *r, unsigned link)
{
    c->rail = r;
    c->link = link;
    c->source.ready = note_socket_ready;
    c->source.look = look_at_socket;
    hw_sock_look(c->fd, &c->watch);
    count_path(c);
    return hw_driver_watch(get_driver(r), c->fd, &c->source);
}

/* Returns true if the peer's TCP has not acknowledged all memory that was sent by reference. */
static bool is_memory_in_flight(const struct hw_conn *c)
{
    int left = 0;
    return c->referred && ioctl(c->fd, SIOCOUTQ, &left) == 0 && c->sent - (uint64_t)left < c->referred;
}

static void close_socket(struct hw_conn *c)
{
    if (c->rail) {
        hw_driver_forget(get_driver(c->rail), c->fd, &c->source);
        hw_sock_look(c->fd, &c->watch);
        count_path(c);
    }
    if (is_memory_in_flight(c)) /* the owner may reuse this memory, so the kernel must not send it later */
        hw_sock_reset_at_close(c->fd);
    hw_fork_close(&c->fd);
    hw_refer_free(&c->refer);
    hw_staging_free(c->stage);
    free(c->back);
    free(c);
}

/* ---- bytes -------------------------------------------------------------------------------------------- */

/* Returns true if the piece is sent by reference. A piece without an owner is in the link's buffers, which the link
 * reuses after the write. */
static bool is_referred(const struct hw_conn *c, const struct hw_piece *piece)
{
    return !c->refer.off && piece->owner && piece->len >= HW_REFER_MIN && piece->space->direct;
}

/* Lists the first pieces, up to a piece that the CPU cannot access or that is sent by the other method. The listed
 * pieces are sent by reference if refer is true, and otherwise by copy. */
static size_t list_iovecs(const struct hw_conn *c, bool refer, const struct hw_piece *piece, uint32_t n,
                          struct iovec *iov)
{
    size_t k = 0;
    for (; k < n && k < IOVECS && piece[k].space->direct && is_referred(c, &piece[k]) == refer; k++)
        iov[k] = (struct iovec){piece[k].ptr, piece[k].len};
    return k;
}

static int prepare_stage(struct hw_conn *c)
{
    if (!c->stage)
        c->stage = hw_staging_new(c->knobs, c->log);
    return c->stage ? 0 : -ENOMEM;
}

/* Lists the host addresses of the first pieces, of any kind. Returns the number of entries or a negative errno. */
static int list_staged(struct hw_conn *c, const struct hw_piece *piece, uint32_t n, struct iovec *iov)
{
    int rc = prepare_stage(c);
    if (rc == 0)
        rc = hw_staging_ahead(c->stage, piece, n);
    return rc < 0 ? rc : hw_staging_list(c->stage, piece, n, iov, IOVECS);
}

static bool has_staged_piece(const struct hw_piece *piece, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!piece[i].space->direct)
            return true;
    return false;
}

/* Copies the first pieces to the socket. */
static int64_t send_copy(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct iovec iov[IOVECS];
    bool staged = has_staged_piece(piece, n);
    int k = staged ? list_staged(c, piece, n, iov) : (int)list_iovecs(c, false, piece, n, iov);
    if (k < 0)
        return k;
    if (k == 0) /* the first piece is normally sent by reference: copy it */
        iov[k++] = (struct iovec){piece->ptr, piece->len};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)k};
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (m.msg_iovlen < n ? MSG_MORE : 0);
    ssize_t done;
    do
        done = k == 1 ? hw_sock_send(c->fd, iov[0].iov_base, iov[0].iov_len, flags) : sendmsg(c->fd, &m, flags);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return hw_sock_explain_host("sending");
    if (staged) {
        hw_staging_sent(c->stage, piece, (uint64_t)done);
        if (c->counts)
            hw_tp_add(&c->counts->tx_staged, (uint64_t)done);
    }
    return done;
}

/* Writes the first pieces. Bytes in the pipe, which belong to the first pieces, count as written once they have left
 * the pipe. */
static int64_t write_socket(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct iovec iov[IOVECS];
    int64_t done = 0;
    if (c->full)
        return -EAGAIN;
    if (!c->refer.held && is_referred(c, piece))
        done = hw_refer_fill(&c->refer, iov, list_iovecs(c, true, piece, n, iov));
    bool refers = c->refer.held > 0;
    if (done >= 0)
        done = refers ? hw_refer_drain(&c->refer, c->fd, false) : send_copy(c, piece, n);
    c->sent += done > 0 ? (uint64_t)done : 0;
    if (refers)
        c->referred = c->sent;
    if (refers && done > 0 && c->counts)
        hw_tp_add(&c->counts->tx_referenced, (uint64_t)done);
    c->full = done == -EAGAIN;
    return done;
}

/* Lists the first piece and the following pieces that the CPU may write. */
static size_t list_readable(const struct hw_piece *piece, uint32_t n, struct iovec *iov)
{
    size_t k = 0;
    do
        iov[k] = (struct iovec){piece[k].ptr, piece[k].len};
    while (++k < n && k < IOVECS && piece[k].space->direct);
    return k;
}

static size_t count_room(const struct msghdr *m)
{
    size_t room = 0;
    for (size_t i = 0; i < m->msg_iovlen; i++)
        room += m->msg_iov[i].iov_len;
    return room;
}

static int unread_bytes(struct hw_conn *c, const uint8_t *data, uint32_t n)
{
    if (!c->back)
        c->back = malloc(HW_LINK_BUF);
    if (!c->back)
        return hw_no_memory("bytes of a payload");
    uint32_t left = c->back_end - c->back_at; /* either all or none of the bytes come from this buffer */
    memmove(c->back + n, c->back + c->back_at, left);
    memcpy(c->back, data, n);
    c->back_at = 0;
    c->back_end = n + left;
    return 0;
}

static int64_t read_again(struct hw_conn *c, const struct iovec *iov)
{
    uint32_t n = (uint32_t)HW_MIN((size_t)(c->back_end - c->back_at), iov->iov_len);
    memcpy(iov->iov_base, c->back + c->back_at, n);
    c->back_at += n;
    return n;
}

/* Reads once. A read that returns less than requested has emptied the socket, and epoll reports later data. However,
 * epoll does not report the end of the stream twice. */
static int64_t receive_some(struct hw_conn *c, const struct iovec *iov, size_t k)
{
    struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = k};
    ssize_t done;
    if (c->back_at < c->back_end)
        return read_again(c, iov);
    if (c->drained)
        return -EAGAIN;
    do
        done = k == 1 ? hw_sock_recv(c->fd, iov[0].iov_base, iov[0].iov_len) : recvmsg(c->fd, &m, MSG_DONTWAIT);
    while (done < 0 && errno == EINTR);
    c->drained = done < 0 ? errno == EAGAIN : (size_t)done < count_room(&m) && !c->ends;
    if (done < 0)
        return hw_sock_explain_host("receiving");
    return done ? done : hw_fail(-ECONNRESET, "the peer closed the connection");
}

/* Reads into pieces that the CPU cannot access. Returns the number of bytes that are in place, or a negative errno. */
static int64_t move_staged(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    uint64_t most = piece->space->direct ? piece->len : 0;
    int rc = prepare_stage(c);
    for (uint32_t i = 0; i < n && !piece[i].space->direct; i++)
        most += piece[i].len;
    for (int i = 0; i < STAGED_READS && rc == 0; i++) {
        uint8_t *to;
        uint32_t len;
        int64_t done = hw_staging_in_placed(c->stage, most);
        if (done > 0 || (done < 0 && done != -EBUSY))
            return done;
        rc = hw_staging_in_buffer(c->stage, piece, n, &to, &len);
        if (rc < 0)
            return rc;
        int64_t got = receive_some(c, &(struct iovec){to, len}, 1);
        if (got < 0)
            return got == -EAGAIN && done < 0 ? done : got;
        rc = hw_staging_in_fill(c->stage, (uint32_t)got);
    }
    return rc < 0 ? rc : -EBUSY;
}

static int64_t read_staged(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    int64_t done = move_staged(c, piece, n);
    if (done > 0 && c->counts)
        hw_tp_add(&c->counts->rx_staged, (uint64_t)done);
    if (done != -ENXIO)
        return done;
    hw_log(c->log, HAWSER_LOG_WARN, "bytes of a transfer were dropped: %s", hw_error());
    hw_staging_in_drop(c->stage);
    return done;
}

static int64_t read_socket(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct iovec iov[IOVECS];
    if (!piece->space->direct || (c->stage && hw_staging_in_owes(c->stage)))
        return read_staged(c, piece, n);
    return receive_some(c, iov, list_readable(piece, n, iov));
}

static int settle_socket(struct hw_conn *c)
{
    return c->stage ? hw_staging_settle(c->stage) : 0;
}

int hw_tcp_drop_staged(struct hw_conn *c)
{
    return c->stage && hw_staging_has_unsent(c->stage) ? hw_staging_settle(c->stage) : 0;
}

static int load_staged(struct hw_conn *c, const struct hw_piece *piece, uint8_t *to)
{
    int rc = prepare_stage(c);
    return rc < 0 ? rc : hw_staging_load(c->stage, piece, to);
}

/* Checks the path and limits the window, because data in flight beyond the path's capacity waits in buffers and leaves
 * the CPU's caches. */
static int check_socket(struct hw_conn *c, uint64_t alone, uint64_t *window)
{
    int rc = hw_sock_health(c->fd, &c->watch, alone / HW_MS, c->knobs->stall_ms, c->knobs->peer_timeout_ms);
    count_path(c);
    if (c->watch.path)
        *window = HW_MIN(*window, HW_MAX(LEAST_WINDOW, PATHS_IN_FLIGHT * c->watch.path));
    return rc;
}

const struct hw_rail_io hw_tcp_io = {.attach = attach_socket,
                                     .write = write_socket,
                                     .read = read_socket,
                                     .unread = unread_bytes,
                                     .load = load_staged,
                                     .settle = settle_socket,
                                     .close = close_socket,
                                     .check = check_socket};

static int make_socket(int fd, const struct hw_conn_args *a, struct hw_conn **out)
{
    *out = hw_tcp_new(fd, a->env->knobs, a->env->log);
    if (*out)
        hw_tcp_count(*out, a->counts);
    return *out ? 0 : -ENOMEM;
}

const struct hw_transport hw_tcp = {.name = "tcp", .io = &hw_tcp_io, .make = make_socket};

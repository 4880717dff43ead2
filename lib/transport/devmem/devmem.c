/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/devmem/devmem.h"

#include "base/fork.h"
#include "transport/devmem/kernel.h"
#include "transport/devmem/meet.h"
#include "transport/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SENDS 1024u /* maximum number of sends from device memory that the kernel has not completed */

/* One call of dm_send(). The kernel numbers the calls 0, 1, 2, and so on. */
struct send {
    uint64_t from; /* position of the first byte in the stream of the second socket */
    bool over;
};

struct hw_conn {
    struct hw_conn_args args;
    char nic[HAWSER_NIC_NAME];
    struct hw_conn *heads; /* connection for headers, of transport tcp, which defines its own struct hw_conn */
    struct hw_conn *side;  /* connection of transport tcp for sending payload, or NULL if payload follows its header */
    int fd, side_fd;       /* descriptors of the two connections; side_fd is -1 if there is no second connection */
    struct dm_meet *meet;  /* the negotiation; NULL after its end */
    int set, event;        /* epoll and eventfd for the negotiation */
    struct dm_claim *claim;
    struct dm_rx *rx;        /* NULL if payload follows its header */
    bool posted;             /* rx has a posted receive */
    struct hw_source source; /* events of the second socket, if nothing is sent on it */
    struct hw_rail *rail;
    unsigned link; /* number of the rail's link */

    uint64_t gone;           /* bytes that the second socket has accepted */
    uint64_t begun, over;    /* number of sends that were started, and number of the first that is not complete */
    struct send send[SENDS]; /* ring buffer */
    uint64_t tx_device;
    struct hw_conn_counts told; /* counts already added for the rail */
};

/* ---- the context ----------------------------------------------------------------------------------------- */

static int open_devmem(const char *arg, struct hw_tp_env *env)
{
    (void)arg;
    int rc = dm_memory_device(env->knobs->devmem_memory);
    if (rc == -EINVAL)
        return rc;
    env->state = dm_ctx_new(env);
    return env->state ? 0 : hw_no_memory("transport devmem");
}

static void close_devmem_context(struct hw_tp_env *env)
{
    dm_ctx_free(env->state);
    env->state = NULL;
}

static int is_devmem_alive(const struct hw_tp_env *env)
{
    return dm_ctx_alive(env->state);
}

static void forget_devmem_memory(const struct hw_tp_env *env, const struct hw_space *space, const void *ptr, size_t len)
{
    dm_source_forget(env->state, space, ptr, len);
}

/* ---- making and negotiating -------------------------------------------------------------------------------- */

static struct hw_driver *get_driver(const struct hw_rail *r)
{
    return hw_container_of(r->loop, struct hw_driver, loop);
}

static void close_devmem(struct hw_conn *c)
{
    if (c->rx) {
        const struct dm_rx_counts *n = dm_rx_counts(c->rx);
        hw_log(c->args.env->log, HAWSER_LOG_DEBUG,
               "%s: %llu bytes received into device memory (receive calls: %llu, most pages held: %u)", c->nic,
               (unsigned long long)atomic_load(&n->device), (unsigned long long)atomic_load(&n->calls),
               atomic_load(&n->held_most));
    }
    dm_meet_free(c->meet);
    dm_rx_free(c->rx); /* the gathers must end before the socket returns its pages */
    dm_claim_free(c->claim);
    if (c->rail)
        hw_driver_forget(get_driver(c->rail), c->side_fd, &c->source);
    if (c->side)
        hw_tcp_io.close(c->side); /* closes with a reset, so that the kernel releases the memory */
    else
        hw_fork_close(&c->side_fd);
    hw_tcp_io.close(c->heads);
    hw_fork_close(&c->set);
    hw_fork_close(&c->event);
    free(c);
}

static int begin_meeting(struct hw_conn *c)
{
    struct epoll_event in = {.events = EPOLLIN | EPOLLET}, all = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    c->set = hw_fork_guard(epoll_create1(EPOLL_CLOEXEC));
    c->event = hw_fork_guard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (c->set < 0 || c->event < 0 || epoll_ctl(c->set, EPOLL_CTL_ADD, c->event, &in) < 0 ||
        epoll_ctl(c->set, EPOLL_CTL_ADD, c->fd, &all) < 0)
        return hw_fail(-errno, "watching a connection: %s", strerror(errno));
    const struct dm_meet_args a = {.env = c->args.env,
                                   .ctx = c->args.env->state,
                                   .nic = c->nic,
                                   .heads = c->fd,
                                   .set = c->set,
                                   .event = c->event,
                                   .client = c->args.client,
                                   .gpu = c->args.client ? c->args.id.gpu : -1,
                                   .peer_gpu = c->args.client ? c->args.id.peer_gpu : -1,
                                   .from = c->args.from,
                                   .to = c->args.to,
                                   .ident = &c->args.id};
    c->meet = dm_meet_new(&a);
    return c->meet ? 0 : hw_no_memory("a connection");
}

static int make_devmem(int fd, const struct hw_conn_args *a, struct hw_conn **out)
{
    struct hw_conn *c = calloc(1, sizeof *c), *heads = hw_tcp_new(fd, a->env->knobs, a->env->log);
    if (!c || !heads) {
        if (heads)
            hw_tcp_io.close(heads);
        free(c);
        return hw_no_memory("a connection");
    }
    c->args = *a;
    c->heads = heads;
    hw_tcp_count(heads, a->counts);
    c->fd = fd;
    c->side_fd = c->set = c->event = -1;
    if (a->client)
        memcpy(c->nic, a->from->name, sizeof c->nic);
    else
        hw_nic_of_socket(fd, c->nic);
    int rc = a->small_only ? 0 : begin_meeting(c);
    if (rc < 0) {
        close_devmem(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* Applies the result of the negotiation. */
static int apply_agreement(struct hw_conn *c, const struct dm_met *a)
{
    int one = 1;
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    c->rx = a->rx;
    c->claim = a->claim;
    c->side_fd = a->side;
    if (c->side_fd >= 0) /* after close() the kernel must not read unsent data from the memory */
        (void)setsockopt(c->side_fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (!a->send_side) {
        (void)hw_fork_guard(c->side_fd);
        return 0;
    }
    /* Sending from device memory requires both options. Without them the first such send fails, and the next connection
     * sends this memory through the host. */
    (void)setsockopt(c->side_fd, SOL_SOCKET, SO_BINDTODEVICE, c->nic, (socklen_t)strlen(c->nic));
    (void)setsockopt(c->side_fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
    c->side = hw_tcp_new(c->side_fd, c->args.env->knobs, c->args.env->log);
    if (c->side)
        hw_tcp_count(c->side, c->args.counts);
    else
        c->side_fd = -1;
    return c->side ? 0 : -ENOMEM;
}

static int meet_devmem(struct hw_conn *c)
{
    struct dm_met met;
    if (!c->meet)
        return 0;
    int rc = dm_meet_step(c->meet, &met);
    if (rc == 0)
        rc = apply_agreement(c, &met);
    if (rc < 0)
        return rc;
    dm_meet_free(c->meet);
    c->meet = NULL;
    return 0;
}

static int get_meeting_fd(const struct hw_conn *c)
{
    return c->set;
}

static void take_side(struct hw_conn *c, int fd)
{
    if (c->meet)
        dm_meet_side(c->meet, fd);
    else
        hw_close(&fd);
}

static void note_side_ready(struct hw_source *s, uint32_t events)
{
    const struct hw_conn *c = hw_container_of(s, struct hw_conn, source);
    (void)events;
    hw_rail_ready(c->rail, c->link);
}

static int attach_devmem(struct hw_conn *c, struct hw_rail *r, unsigned link)
{
    int rc = hw_tcp_io.attach(c->heads, r, link);
    if (rc == 0 && c->side)
        return hw_tcp_io.attach(c->side, r, link);
    if (rc < 0 || c->side_fd < 0)
        return rc;
    c->rail = r;
    c->link = link;
    c->source.ready = note_side_ready;
    return hw_driver_watch(get_driver(r), c->side_fd, &c->source);
}

static struct hw_link_apart get_devmem_apart(const struct hw_conn *c)
{
    return (struct hw_link_apart){.tx = c->side, .rx = c->rx, .held = c->side};
}

static void count_payload(struct hw_conn *c)
{
    struct hw_conn_counts now = {.tx_device = c->tx_device};
    if (c->rx) {
        const struct dm_rx_counts *n = dm_rx_counts(c->rx);
        now.rx_device = atomic_load_explicit(&n->device, memory_order_relaxed);
        now.rx_copied = atomic_load_explicit(&n->copied, memory_order_relaxed);
    }
    hw_tp_count(c->args.counts, &c->told, now);
}

/* ---- sending ------------------------------------------------------------------------------------------------ */

static int64_t write_heads(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return hw_tcp_io.write(c->heads, piece, n);
}

/* Marks sends [first, last] as complete. Both are the lower 32 bits of the numbers. */
static void note_over(void *arg, uint32_t first, uint32_t last)
{
    struct hw_conn *c = arg;
    uint64_t from = c->over + (uint32_t)(first - (uint32_t)c->over);
    for (uint64_t i = from; i < c->begun && i <= from + (uint32_t)(last - first); i++)
        c->send[i % SENDS].over = true;
}

static int reap_sends(struct hw_conn *c)
{
    if (c->over == c->begun)
        return 0;
    int rc = dm_reap(c->side_fd, note_over, c);
    while (c->over < c->begun && c->send[c->over % SENDS].over)
        c->over++;
    return rc;
}

static uint64_t get_devmem_released(struct hw_conn *c)
{
    (void)reap_sends(c); /* an error of the connection is reported at its next use */
    return c->over < c->begun ? c->send[c->over % SENDS].from : c->gone;
}

/* Sends the piece, or a part of it, from device memory. */
static int64_t send_from_device(struct hw_conn *c, const struct hw_piece *piece, const struct dm_source *from)
{
    ssize_t n = -EBUSY;
    for (int round = 0; round < 2 && n == -EBUSY; round++) {
        if (c->begun - c->over < SENDS)
            n = dm_send(c->side_fd, from->dmabuf_id, (uint64_t)(piece->ptr - from->base), piece->len, false);
        int rc = n == -EBUSY ? reap_sends(c) : 0; /* unread completions may be the cause */
        if (rc < 0)
            return rc;
    }
    if (n == -EBUSY && c->over < c->begun)
        return -EAGAIN; /* the completion of a send signals an event */
    if (n == -EAGAIN || n == -EBUSY)
        return n;
    if (n < 0) { /* after any error the next connection sends this memory through the host */
        dm_source_bad(c->args.env->state, c->nic, from);
        return n;
    }
    c->send[c->begun++ % SENDS] = (struct send){.from = c->gone};
    c->tx_device += (uint64_t)n;
    return n;
}

/* Returns the number of pieces, beginning with the first, that are sent through the host. The kernel might send the
 * next piece, if any, from device memory. */
static uint32_t count_for_host(const struct hw_piece *piece, uint32_t n)
{
    uint32_t k = 1;
    while (k < n && piece[k].space->direct)
        k++;
    return k;
}

static int64_t write_payload(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct dm_source from;
    while (n > 1 && piece->len == 0)
        piece++, n--;
    bool device = !piece->space->direct &&
                  dm_source_find(c->args.env->state, c->nic, piece->space, piece->ptr, piece->len, &from);
    /* Bytes that were staged before the memory was bound would be out of date when the host path sends this address
     * again. */
    int64_t done = device ? hw_tcp_drop_staged(c->side) : 0;
    if (done == 0)
        done = device ? send_from_device(c, piece, &from) : hw_tcp_io.write(c->side, piece, count_for_host(piece, n));
    c->gone += done > 0 ? (uint64_t)done : 0;
    count_payload(c);
    return done;
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

static int64_t read_heads(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return hw_tcp_io.read(c->heads, piece, n);
}

/* Counts only whole pieces; a piece that is not completely in place counts as 0 bytes. */
static int64_t read_payload(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    int64_t sum = 0;
    for (; n; piece++, n--) {
        uint64_t moved = 0;
        if (piece->len == 0)
            continue;
        if (!c->posted)
            dm_rx_post(c->rx, piece->space, piece->ptr, (uint32_t)piece->len);
        c->posted = true;
        int rc = dm_rx_run(c->rx, &moved);
        count_payload(c);
        if ((rc == -EAGAIN || rc == -EBUSY) && sum)
            return sum;
        if (rc < 0)
            return rc == -EPIPE ? -ECONNRESET : rc;
        c->posted = false;
        sum += (int64_t)piece->len;
    }
    return sum;
}

static int discard_payload(struct hw_conn *c)
{
    return c->posted ? dm_rx_discard(c->rx) : 0;
}

static int unread_heads(struct hw_conn *c, const uint8_t *data, uint32_t n)
{
    return hw_tcp_io.unread(c->heads, data, n);
}

static int load_payload(struct hw_conn *c, const struct hw_piece *piece, uint8_t *to)
{
    return hw_tcp_io.load(c->heads, piece, to);
}

static int settle_devmem(struct hw_conn *c)
{
    int rc = hw_tcp_io.settle(c->heads);
    return rc == 0 && c->side ? hw_tcp_io.settle(c->side) : rc;
}

/* ---- other functions --------------------------------------------------------------------------------------------- */

static int check_devmem(struct hw_conn *c, uint64_t alone, uint64_t *window)
{
    uint64_t heads = UINT64_MAX;
    int rc = c->claim ? dm_claim_health(c->claim) : 0;
    if (rc == 0 && c->rx && dm_rx_strayed(c->rx))
        rc = hw_fail(-ENOLINK, "payload no longer arrives in device memory: the flow rule on %s may have been removed",
                     c->nic);
    if (rc == 0)
        rc = hw_tcp_io.check(c->heads, alone, &heads);
    int side = rc >= 0 && c->side ? hw_tcp_io.check(c->side, alone, window) : 0;
    return side ? side : rc;
}

static const struct hw_rail_io devmem_io = {.attach = attach_devmem,
                                            .write = write_heads,
                                            .read = read_heads,
                                            .unread = unread_heads,
                                            .load = load_payload,
                                            .settle = settle_devmem,
                                            .close = close_devmem,
                                            .check = check_devmem,
                                            .apart = get_devmem_apart,
                                            .write_apart = write_payload,
                                            .read_apart = read_payload,
                                            .discard = discard_payload,
                                            .released = get_devmem_released};

const struct hw_transport hw_devmem = {.name = "devmem",
                                       .caps = {.self = HW_SELF_FALLS_BACK, .device_path = true},
                                       .io = &devmem_io,
                                       .open = open_devmem,
                                       .close = close_devmem_context,
                                       .alive = is_devmem_alive,
                                       .forget = forget_devmem_memory,
                                       .make = make_devmem,
                                       .meet = meet_devmem,
                                       .meeting_fd = get_meeting_fd,
                                       .side = take_side};

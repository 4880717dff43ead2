/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tcp transport: any kernel, any NIC, any memory. The header rides in front of the payload.
 *
 * Sending: large payloads go by reference, vmsplice into a pipe of the connection's own and splice from there to the
 * socket, so that the sender's core does not copy (docs/performance.md has the figures). The pages then belong to the
 * kernel until the receiver has confirmed, which is just what post_send's contract says of ptr. Small ones are copied
 * by one sendmsg for many chunks.
 * Receiving: one recvmsg takes the rest of a payload and the header that follows it.
 * Memory that the CPU cannot use passes through rings of host memory both ways: stage.c.
 */
#include "transport/tcp/tcp.h"
#include "transport/tcp/refer.h"
#include "transport/tcp/sock.h"
#include "transport/tcp/stage.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define TX_IOV     64
#define POST_BYTES (1u << 20) /* posted at a time: a pipe's worth */

struct tx {
    const uint8_t *ptr; /* in host memory, the caller's or the stage's */
    uint32_t len;
    uint32_t taken; /* of head and payload: handed to the pipe or the socket */
    struct hw_staged staged;
};

struct hw_conn {
    int fd;
    struct hw_refer refer;
    uint32_t head_size;           /* of what rides in front of a payload: HW_CHUNK_HEAD, or 0 */
    const struct hw_knobs *knobs; /* the context's */
    const struct hw_logger *log;  /* the context's */
    struct hw_stage *stage;       /* once memory came that needs it */
    struct hw_hs *hs;             /* while establishing */

    /* Send ring: [released, fill) may still be read by the kernel, [fill, posted) waits. */
    uint64_t posted, fill, released;
    uint32_t ring;
    struct tx *tx;
    /* Their headers, which go by reference too. A mapping of its own and not of the heap: the pages may still lie in
     * some queue when the connection is closed, and must not change then. */
    uint8_t (*tx_head)[HW_CHUNK_HEAD];
    _Atomic uint64_t sent; /* fill, for other threads */

    /* Receive. */
    uint8_t head[HW_CHUNK_HEAD];
    uint32_t head_have;
    enum { RX_HEAD, RX_HEAD_SEEN, RX_BODY, RX_BODY_DONE } rx_state;
    uint8_t *rx_ptr; /* NULL: nowhere */
    uint32_t rx_len, rx_have;
    bool rx_more;   /* what follows is payload, not a header */
    bool rx_staged; /* it passes through the stage; rx_ptr is not used but for being NULL or not */
};

/* The handle: family u8, reserved u8, port u16, address 16. */
#define HANDLE_SIZE 20

static int tcp_listen(const struct hw_tp_env *env, const struct hw_nic *nic, uint16_t port,
                      uint8_t handle[HW_HANDLE_MAX])
{
    (void)env;
    memset(handle, 0, HANDLE_SIZE);
    hw_put16(handle + 2, port);
    if (nic->addr.sa.sa_family == AF_INET) {
        handle[0] = 4;
        memcpy(handle + 4, &nic->addr.in.sin_addr, 4);
    } else {
        handle[0] = 6;
        memcpy(handle + 4, &nic->addr.in6.sin6_addr, 16);
    }
    return HANDLE_SIZE;
}

int hw_tcp_handle_addr(const uint8_t *handle, size_t len, union hw_addr *out)
{
    memset(out, 0, sizeof(*out));
    if (len != HANDLE_SIZE || (handle[0] != 4 && handle[0] != 6) || handle[1] != 0 || hw_get16(handle + 2) == 0)
        return hw_fail(-EPROTO, "the peer's address handle is not one of the tcp transport");
    if (handle[0] == 4) {
        out->in.sin_family = AF_INET;
        memcpy(&out->in.sin_addr, handle + 4, 4);
    } else {
        out->in6.sin6_family = AF_INET6;
        memcpy(&out->in6.sin6_addr, handle + 4, 16);
    }
    hw_addr_set_port(out, hw_get16(handle + 2));
    return 0;
}

static struct hw_conn *create_tcp_conn(const struct hw_tp_env *env, int fd)
{
    struct hw_conn *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->ring = (uint32_t)HW_MIN(env->knobs->window, (uint64_t)hw_tcp.caps.max_window);
    c->tx = calloc(c->ring, sizeof(*c->tx));
    void *heads =
        c->tx ? mmap(NULL, (size_t)c->ring * HW_CHUNK_HEAD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
              : MAP_FAILED;
    if (heads == MAP_FAILED) {
        free(c->tx);
        free(c);
        return NULL;
    }
    c->tx_head = heads;
    c->fd = fd;
    hw_refer_init(&c->refer);
    c->refer.off = !env->knobs->splice;
    c->head_size = HW_CHUNK_HEAD;
    c->knobs = env->knobs;
    c->log = env->log;
    return c;
}

void hw_tcp_bare(struct hw_conn *c)
{
    c->head_size = 0;
}

static int tcp_connect(const struct hw_tp_env *env, const struct hw_nic *nic, const uint8_t *handle, size_t handle_len,
                       const struct hw_conn_ident *ident, struct hw_conn **out)
{
    union hw_addr to;
    int rc = hw_tcp_handle_addr(handle, handle_len, &to);
    if (rc)
        return rc;
    int fd = hw_sock_connect(nic, &to, env->knobs);
    if (fd < 0)
        return fd;
    hw_sock_buffers(fd, env->knobs);
    struct hw_conn *c = create_tcp_conn(env, fd);
    struct hw_hs *hs = c ? calloc(1, sizeof(*hs)) : NULL;
    if (!hs) {
        if (c)
            hw_tcp.close(c);
        else
            hw_close(&fd);
        return hw_no_memory("a connection");
    }
    c->hs = hs;
    struct hw_hello hello = {.kind = ident->side ? HW_BOOT_SIDE : HW_BOOT_DATA,
                             .keyed = ident->keyed,
                             .session = ident->session,
                             .channel = ident->channel,
                             .gen = ident->gen};
    hw_hs_client(hs, &hello, ident->secret, env->knobs->handshake_ms);
    *out = c;
    return 0;
}

static int tcp_accept(const struct hw_tp_env *env, int fd, struct hw_conn **out)
{
    struct hw_conn *c = create_tcp_conn(env, fd);
    if (!c)
        return hw_no_memory("a connection");
    hw_sock_accepted(fd, env->knobs);
    hw_sock_buffers(fd, env->knobs);
    *out = c;
    return 0;
}

static int tcp_establish(struct hw_conn *c)
{
    if (!c->hs)
        return 0;
    int rc = hw_hs_step(c->hs, c->fd);
    if (rc == -EAGAIN)
        return rc;
    free(c->hs);
    c->hs = NULL;
    if (rc == 0)
        hw_sock_settled(c->fd, c->knobs);
    return rc;
}

static int stage_for(struct hw_conn *c)
{
    if (!c->stage)
        c->stage = hw_stage_new(c->knobs, c->log);
    return c->stage ? 0 : -ENOMEM;
}

/* Host memory: a pipe's worth once the last is gone. Where there is a stage, as much as its ring holds, so that the
 * device copies ahead of the socket. */
static uint32_t tcp_want(struct hw_conn *c)
{
    if (c->stage)
        return hw_stage_room(c->stage);
    return c->fill == c->posted ? POST_BYTES : 0;
}

static int tcp_post_send(struct hw_conn *c, const uint8_t header[HW_CHUNK_HEAD], const struct hw_space *space,
                         const void *ptr, uint32_t len)
{
    if (c->posted - c->released == c->ring)
        return -EAGAIN;
    struct tx *t = &c->tx[c->posted % c->ring];
    t->staged = (struct hw_staged){0};
    if (!space->direct) {
        int rc = stage_for(c);
        if (rc == 0)
            rc = hw_stage_out(c->stage, space, ptr, len, &t->staged);
        if (rc)
            return rc;
        ptr = t->staged.host;
    }
    memcpy(c->tx_head[c->posted % c->ring], header, HW_CHUNK_HEAD);
    t->ptr = ptr;
    t->len = len;
    t->taken = 0;
    c->posted++;
    return 0;
}

/* The unsent parts of posted chunks as an iovec, as long as they are of one kind (by reference or not) and in host
 * memory. The count, or -EBUSY, -ENXIO where not even the first is. */
static int fill_iov(struct hw_conn *c, struct iovec iov[TX_IOV], bool *by_ref)
{
    int n = 0;
    for (uint64_t i = c->fill; i < c->posted && n + 2 <= TX_IOV; i++) {
        struct tx *t = &c->tx[i % c->ring];
        int rc = t->staged.space ? hw_stage_ready(c->stage, &t->staged) : 0;
        if (rc)
            return n ? n : rc;
        bool ref = !c->refer.off && t->len >= HW_REFER_MIN;
        if (n == 0)
            *by_ref = ref;
        else if (ref != *by_ref)
            break;
        if (t->taken < c->head_size)
            iov[n++] =
                (struct iovec){.iov_base = c->tx_head[i % c->ring] + t->taken, .iov_len = c->head_size - t->taken};
        uint32_t body = t->taken > c->head_size ? t->taken - c->head_size : 0;
        /* iovec is not const: nothing writes through it here */
        iov[n++] = (struct iovec){.iov_base = (void *)(uintptr_t)(t->ptr + body), .iov_len = t->len - body};
    }
    return n;
}

static void advance_tcp_send(struct hw_conn *c, size_t n)
{
    while (n) {
        struct tx *t = &c->tx[c->fill % c->ring];
        size_t left = c->head_size + (size_t)t->len - t->taken, part = HW_MIN(left, n);
        t->taken += (uint32_t)part;
        n -= part;
        if (part == left)
            atomic_store_explicit(&c->sent, ++c->fill, memory_order_release);
    }
}

static uint64_t tcp_sent(struct hw_conn *c)
{
    return atomic_load_explicit(&c->sent, memory_order_acquire);
}

/* Pipe to socket. 0 empty, -EAGAIN, -errno. */
static int drain_pipe(struct hw_conn *c)
{
    int64_t rc = 0;
    while (c->refer.held && rc >= 0)
        rc = hw_refer_drain(&c->refer, c->fd, c->fill < c->posted);
    return rc < 0 ? (int)rc : 0;
}

static int tcp_test_send(struct hw_conn *c)
{
    for (;;) {
        int rc = drain_pipe(c);
        if (rc)
            return rc;
        if (c->fill == c->posted)
            return 0;
        struct iovec iov[TX_IOV];
        bool by_ref = false;
        int k = fill_iov(c, iov, &by_ref);
        if (k < 0)
            return k;
        ssize_t n;
        if (by_ref) {
            n = hw_refer_fill(&c->refer, iov, (size_t)k);
            if (n < 0)
                return -EAGAIN;
            if (n == 0)
                continue;
        } else {
            struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)k};
            n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (n > 0) {
            advance_tcp_send(c, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM))
            return -EAGAIN;
        return n < 0 ? hw_fail(-errno, "sending: %s", strerror(errno)) : hw_fail(-EIO, "nothing was sent");
    }
}

static void tcp_release_send(struct hw_conn *c, uint32_t n)
{
    for (uint64_t end = c->released + n; c->released < end; c->released++)
        if (c->stage && c->tx[c->released % c->ring].staged.space)
            hw_stage_release(c->stage, &c->tx[c->released % c->ring].staged);
}

static int recv_failed(ssize_t n)
{
    if (n == 0)
        return hw_fail(-EPIPE, "the peer closed the connection");
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM)
        return -EAGAIN;
    return hw_fail(-errno, "receiving: %s", strerror(errno));
}

/* The payload at hand: 0 all of it is in its place. */
static int recv_body(struct hw_conn *c, uint64_t *moved)
{
    while (c->rx_have < c->rx_len) {
        uint32_t left = c->rx_len - c->rx_have, part = left;
        uint8_t *to = c->rx_ptr ? c->rx_ptr + c->rx_have : NULL;
        ssize_t n;
        if (to && c->rx_staged) {
            int rc = hw_stage_in_buffer(c->stage, &to, &part);
            if (rc)
                return rc;
        }
        if (to) {
            struct iovec iov[2] = {{.iov_base = to, .iov_len = part}, {.iov_base = c->head, .iov_len = HW_CHUNK_HEAD}};
            struct msghdr m = {.msg_iov = iov, .msg_iovlen = c->rx_more || part < left ? 1 : 2};
            n = recvmsg(c->fd, &m, MSG_DONTWAIT);
        } else {
            /* tcp(7): MSG_TRUNC drops bytes of a stream without copying them. Not by recv(), which ThreadSanitizer
             * takes for a write to the bytes at NULL. */
            n = syscall(SYS_recvfrom, c->fd, NULL, (size_t)left, MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return recv_failed(n);
        uint32_t body = HW_MIN((uint32_t)n, part);
        c->rx_have += body;
        c->head_have = (uint32_t)n - body;
        *moved += body;
        int rc = to && c->rx_staged ? hw_stage_in_fill(c->stage, body) : 0;
        if (rc)
            return rc;
    }
    return c->rx_ptr && c->rx_staged ? hw_stage_in_done(c->stage) : 0;
}

static int tcp_test_recv(struct hw_conn *c, const uint8_t **header, uint64_t *moved)
{
    for (;;) {
        ssize_t n;
        int rc;
        switch (c->rx_state) {
        case RX_HEAD:
            if (c->head_have < HW_CHUNK_HEAD) {
                n = recv(c->fd, c->head + c->head_have, HW_CHUNK_HEAD - c->head_have, MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                    continue;
                if (n <= 0)
                    return recv_failed(n);
                c->head_have += (uint32_t)n;
                continue;
            }
            c->rx_state = RX_HEAD_SEEN;
            *header = c->head;
            return HW_RX_HEADER;
        case RX_BODY:
            rc = recv_body(c, moved);
            if (rc)
                return rc;
            c->rx_state = RX_BODY_DONE;
            return HW_RX_DONE;
        default:
            return hw_fail(-EINVAL, "test_recv while the engine owes an answer");
        }
    }
}

static int tcp_post_recv(struct hw_conn *c, const struct hw_space *space, void *ptr, uint32_t len, bool more)
{
    c->rx_staged = ptr && !space->direct;
    if (c->rx_staged) {
        int rc = stage_for(c);
        if (rc == 0)
            rc = hw_stage_in(c->stage, space, ptr, len);
        if (rc)
            return -ENXIO; /* the text says why */
    }
    c->rx_more = more;
    c->rx_ptr = ptr;
    c->rx_len = len;
    c->rx_have = 0;
    c->head_have = 0;
    c->rx_state = RX_BODY;
    return 0;
}

static void tcp_discard(struct hw_conn *c)
{
    if (c->rx_ptr && c->rx_staged)
        hw_stage_cut(c->stage);
    c->rx_ptr = NULL;
}

static void tcp_consumed(struct hw_conn *c)
{
    c->rx_state = RX_HEAD;
}

static int tcp_health(struct hw_conn *c)
{
    return hw_sock_health(c->fd, c->knobs->stall_ms, c->knobs->peer_timeout_ms);
}

static int tcp_fd(struct hw_conn *c)
{
    return c->fd;
}

static void tcp_ends(struct hw_conn *c, union hw_addr *local, union hw_addr *remote)
{
    memset(local, 0, sizeof(*local));
    memset(remote, 0, sizeof(*remote));
    socklen_t len = sizeof(*local);
    (void)getsockname(c->fd, &local->sa, &len);
    len = sizeof(*remote);
    (void)getpeername(c->fd, &remote->sa, &len);
    hw_addr_unmap(local);
    hw_addr_unmap(remote);
}

static void tcp_close(struct hw_conn *c)
{
    hw_sock_abort(&c->fd);
    hw_refer_free(&c->refer);
    hw_stage_free(c->stage); /* after the socket: nothing of its ring is sent any more */
    free(c->hs);
    (void)munmap(c->tx_head, (size_t)c->ring * HW_CHUNK_HEAD);
    free(c->tx);
    free(c);
}

const struct hw_transport hw_tcp = {
    .name = "tcp",
    .caps = {.max_chunk = HW_CHUNK_MAX, .max_window = 256, .header_in_band = true, .needs_gather = false},
    .listen = tcp_listen,
    .connect = tcp_connect,
    .accept = tcp_accept,
    .establish = tcp_establish,
    .want = tcp_want,
    .post_send = tcp_post_send,
    .test_send = tcp_test_send,
    .release_send = tcp_release_send,
    .sent = tcp_sent,
    .test_recv = tcp_test_recv,
    .post_recv = tcp_post_recv,
    .discard = tcp_discard,
    .consumed = tcp_consumed,
    .health = tcp_health,
    .fd = tcp_fd,
    .ends = tcp_ends,
    .close = tcp_close,
};

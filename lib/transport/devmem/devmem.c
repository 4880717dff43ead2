/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devmem transport: the kernel's devmem TCP (Linux 6.12 and later to receive, 6.16 to send). Payload lands in, and
 * leaves from, device memory; no CPU touches it.
 *
 * A channel has two connections (meet.h): heads, and payload without them. Where a direction cannot be so, it goes as
 * tcp's does, over the first. What is sent goes out in order, each chunk in one of three ways: in band; by the second
 * connection from device memory, or from where tcp can send it.
 */
#include "transport/devmem/devmem.h"
#include "transport/devmem/kernel.h"
#include "transport/devmem/meet.h"
#include "transport/tcp/tcp.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define WANT  (1u << 20)
#define HEADS 16 /* sent by one call */

struct tx {
    uint8_t head[HW_CHUNK_HEAD];
    const struct hw_space *space;
    const uint8_t *ptr;
    uint32_t len, taken; /* taken: by the kernel, from device memory */
    enum { BY_TCP, BY_DEVICE } way;
    struct dm_source from;
};

struct hw_conn {
    const struct hw_tp_env *env;
    struct hw_conn *heads;   /* tcp's: opaque here */
    struct hw_conn *side;    /* likewise, or NULL */
    struct hw_conn *carrier; /* what is sent by tcp goes by this one of them */
    struct dm_meet *meet;    /* until they have met */
    struct dm_claim *claim;
    struct dm_rx *rx;
    atomic_bool met;
    bool client;
    /* The engine watches the set, and everything is tried at every event: so nobody ever asks the set what happened, or
     * reads the eventfd. An event of a member's is one of the set's also where the last is still there
     * (fs/eventpoll.c, ep_poll_callback). */
    int set, event;
    char nic[HAWSER_NIC_NAME];

    /* client: for the second connection */
    struct hw_nic from;
    union hw_addr to;
    uint8_t secret[HW_SECRET];
    struct hw_conn_ident ident;

    /* Sending, all counts ever: released <= out <= fed <= posted; of heads: out_heads, with head_done bytes of the
     * next. */
    struct tx *tx;
    uint32_t ring;
    uint64_t posted, fed, released, heads_out;
    uint64_t carried, carried_out; /* chunks given to the carrier; of those, seen to be out */
    uint32_t head_done;
    _Atomic uint64_t out;
    _Atomic uint64_t tx_device;

    /* Receiving, by rx; else the first connection does it all. */
    uint8_t head[HW_CHUNK_HEAD];
    uint32_t head_have;
    enum { HEAD, HEAD_SEEN, BODY, BODY_DONE } rx_state;
};

/* ---- the context --------------------------------------------------------------------------------------- */

int hw_devmem_open(struct hw_tp_env *env)
{
    int rc = dm_memory_device(env->knobs->devmem_memory);
    if (rc == -EINVAL)
        return rc;
    env->state = dm_ctx_new(env);
    return env->state ? 0 : hw_no_memory("transport devmem");
}

void hw_devmem_close(struct hw_tp_env *env)
{
    dm_ctx_free(env->state);
    env->state = NULL;
}

static int devmem_alive(const struct hw_tp_env *env)
{
    return dm_ctx_alive(env->state);
}

static void devmem_forget(const struct hw_tp_env *env, const struct hw_space *space, const void *ptr, size_t len)
{
    dm_source_forget(env->state, space, ptr, len);
}

/* ---- making a connection --------------------------------------------------------------------------------- */

static int devmem_listen(const struct hw_tp_env *env, const struct hw_nic *nic, uint16_t port,
                         uint8_t handle[HW_HANDLE_MAX])
{
    return hw_tcp.listen(env, nic, port, handle);
}

static void devmem_close(struct hw_conn *c);

static struct hw_conn *create_devmem_conn(const struct hw_tp_env *env, const char *nic, bool client)
{
    struct hw_conn *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->env = env;
    c->client = client;
    snprintf(c->nic, sizeof(c->nic), "%s", nic);
    c->ring = (uint32_t)HW_MIN(env->knobs->window, (uint64_t)hw_devmem.caps.max_window);
    c->tx = calloc(c->ring, sizeof(*c->tx));
    c->set = epoll_create1(EPOLL_CLOEXEC);
    c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
    if (!c->tx || c->set < 0 || c->event < 0 || epoll_ctl(c->set, EPOLL_CTL_ADD, c->event, &ev)) {
        devmem_close(c);
        return NULL;
    }
    return c;
}

static int watch_heads(struct hw_conn *c, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    return epoll_ctl(c->set, EPOLL_CTL_ADD, fd, &ev) ? hw_fail(-errno, "watching a connection: %s", strerror(errno))
                                                     : 0;
}

static int devmem_connect(const struct hw_tp_env *env, const struct hw_nic *nic, const uint8_t *handle,
                          size_t handle_len, const struct hw_conn_ident *ident, struct hw_conn **out)
{
    struct hw_conn *c = create_devmem_conn(env, nic->name, true);
    if (!c)
        return hw_no_memory("a connection, or no descriptors");
    c->from = *nic;
    memcpy(c->secret, ident->secret, sizeof(c->secret));
    c->ident = *ident;
    c->ident.secret = c->secret;
    int rc = hw_tcp_handle_addr(handle, handle_len, &c->to);
    if (rc == 0)
        rc = hw_tcp.connect(env, nic, handle, handle_len, ident, &c->heads);
    if (rc)
        c->heads = NULL;
    else
        rc = watch_heads(c, hw_tcp.fd(c->heads));
    if (rc) {
        devmem_close(c);
        return rc;
    }
    c->carrier = c->heads;
    *out = c;
    return 0;
}

static int begin_meeting(struct hw_conn *c, int heads)
{
    const struct dm_meet_args a = {.env = c->env,
                                   .ctx = c->env->state,
                                   .nic = c->nic,
                                   .heads = heads,
                                   .set = c->set,
                                   .event = c->event,
                                   .client = c->client,
                                   .gpu = c->client ? c->ident.gpu : -1,
                                   .peer_gpu = c->client ? c->ident.peer_gpu : -1,
                                   .from = &c->from,
                                   .to = &c->to,
                                   .ident = &c->ident};
    c->meet = dm_meet_new(&a);
    return c->meet ? 0 : hw_no_memory("a connection");
}

static int devmem_accept(const struct hw_tp_env *env, int fd, struct hw_conn **out)
{
    char nic[HAWSER_NIC_NAME];
    hw_nic_of_socket(fd, nic);
    struct hw_conn *c = create_devmem_conn(env, nic, false);
    if (!c)
        return hw_no_memory("a connection, or no descriptors");
    int rc = watch_heads(c, fd);
    if (rc == 0)
        rc = begin_meeting(c, fd);
    if (rc == 0 && (rc = hw_tcp.accept(env, fd, &c->heads)) != 0)
        c->heads = NULL;
    if (rc) { /* fd is the caller's still */
        devmem_close(c);
        return rc;
    }
    c->carrier = c->heads;
    *out = c;
    return 0;
}

static void devmem_side(struct hw_conn *c, int fd)
{
    if (c->meet)
        dm_meet_side(c->meet, fd);
    else
        hw_close(&fd);
}

/* What was agreed takes effect. 0, -ENOMEM. */
static int apply_agreement(struct hw_conn *c, const struct dm_met *a)
{
    int one = 1, side = a->side;
    c->rx = a->rx;
    c->claim = a->claim;
    if (side >= 0 && hw_tcp.accept(c->env, side, &c->side)) {
        c->side = NULL;
        hw_close(&side);
        return -ENOMEM;
    }
    if (a->send_side) {
        hw_tcp_bare(c->side);
        c->carrier = c->side;
        int fd = hw_tcp.fd(c->side);
        /* Both are needed to send from device memory; where they are refused it is sent by way of the host. */
        (void)setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, c->nic, (socklen_t)strlen(c->nic));
        (void)setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one));
    }
    atomic_store_explicit(&c->met, true, memory_order_release);
    return 0;
}

/* On until the two ends have met: 0, -EAGAIN, else it is dead. */
static int advance_devmem_setup(struct hw_conn *c)
{
    struct dm_met met;
    int rc;
    if (atomic_load_explicit(&c->met, memory_order_relaxed))
        return 0;
    if (!c->meet && ((rc = hw_tcp.establish(c->heads)) || (rc = begin_meeting(c, hw_tcp.fd(c->heads)))))
        return rc;
    if ((rc = dm_meet_step(c->meet, &met)) || (rc = apply_agreement(c, &met)))
        return rc;
    dm_meet_free(c->meet);
    c->meet = NULL;
    return 0;
}

static int devmem_establish(struct hw_conn *c)
{
    return advance_devmem_setup(c);
}

/* ---- sending ------------------------------------------------------------------------------------------------ */

static struct tx *tx_of(struct hw_conn *c, uint64_t i)
{
    return &c->tx[i % c->ring];
}

static bool sends_device(const struct hw_conn *c)
{
    return c->fed < c->posted;
}

static uint32_t devmem_want(struct hw_conn *c)
{
    if (!atomic_load_explicit(&c->met, memory_order_relaxed) || sends_device(c))
        return 0;
    return hw_tcp.want(c->carrier);
}

static void choose_send_path(struct hw_conn *c, struct tx *t)
{
    t->way = c->carrier != c->heads && !t->space->direct &&
                     dm_source_find(c->env->state, c->nic, t->space, t->ptr, t->len, &t->from)
                 ? BY_DEVICE
                 : BY_TCP;
}

/* What tcp is to send is given to it here, and so waits for nothing but its own: where a chunk from device memory is
 * still on its way out, this one goes elsewhere or comes again (-EBUSY). */
static int devmem_post_send(struct hw_conn *c, const uint8_t header[HW_CHUNK_HEAD], const struct hw_space *space,
                            const void *ptr, uint32_t len)
{
    if (!atomic_load_explicit(&c->met, memory_order_relaxed))
        return -EBUSY;
    if (c->posted - c->released == c->ring)
        return -EAGAIN;
    struct tx *t = tx_of(c, c->posted);
    memcpy(t->head, header, HW_CHUNK_HEAD);
    t->space = space;
    t->ptr = ptr;
    t->len = len;
    t->taken = 0;
    choose_send_path(c, t);
    if (t->way == BY_TCP) {
        if (sends_device(c))
            return -EBUSY;
        int rc = hw_tcp.post_send(c->carrier, header, space, ptr, len);
        if (rc)
            return rc;
        c->carried++;
        c->fed++;
    }
    c->posted++;
    return 0;
}

/* Heads of what is fed, and of what is being sent, on a connection of their own: the peer takes in no payload before it
 * has its head. 0, -EAGAIN, dead. */
static int send_heads(struct hw_conn *c)
{
    uint64_t upto = c->fed + sends_device(c);
    while (c->heads_out < upto) {
        struct iovec iov[HEADS];
        int k = 0;
        for (uint64_t i = c->heads_out; i < upto && k < HEADS; i++, k++)
            iov[k] = (struct iovec){.iov_base = tx_of(c, i)->head, .iov_len = HW_CHUNK_HEAD};
        iov[0].iov_base = (uint8_t *)iov[0].iov_base + c->head_done;
        iov[0].iov_len -= c->head_done;
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)k};
        ssize_t n = sendmsg(hw_tcp.fd(c->heads), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM
                       ? -EAGAIN
                       : hw_fail(-errno, "sending: %s", strerror(errno));
        c->head_done += (uint32_t)n;
        c->heads_out += c->head_done / HW_CHUNK_HEAD;
        c->head_done %= HW_CHUNK_HEAD;
    }
    return 0;
}

static void forget_completion(void *arg, uint32_t first, uint32_t last)
{
    (void)arg, (void)first, (void)last; /* the peer's confirmation is the signal here */
}

/* A chunk out of device memory, all that was given to tcp before it being out: 0, -EAGAIN, dead. */
static int send_device(struct hw_conn *c, struct tx *t)
{
    int fd = hw_tcp.fd(c->side), rc;
    bool reaped = false;
    while (t->taken < t->len) {
        uint64_t offset = (uint64_t)(t->ptr - t->from.base) + t->taken;
        ssize_t n = dm_send(fd, t->from.dmabuf_id, offset, t->len - t->taken, false);
        if (n == -EAGAIN && !reaped) { /* perhaps for want of completions taken off */
            if ((rc = dm_reap(fd, forget_completion, NULL)))
                return rc;
            reaped = true;
            continue;
        }
        if (n == -EAGAIN)
            return -EAGAIN;
        if (n < 0) { /* whatever it is, the next connection sends what lies there by way of the host */
            dm_source_bad(c->env->state, c->nic, &t->from);
            return (int)n;
        }
        reaped = false;
        t->taken += (uint32_t)n;
        dm_count(&c->tx_device, (uint64_t)n);
    }
    return dm_reap(fd, forget_completion, NULL);
}

/* Everything posted, in order: 0 all gone, -EAGAIN, -EBUSY, ... */
static int send_posted_chunks(struct hw_conn *c)
{
    int rc = hw_tcp.test_send(c->carrier);
    while (rc == 0 && c->fed < c->posted) {
        struct tx *t = tx_of(c, c->fed);
        rc = send_device(c, t); /* what is tcp's was fed when it was posted */
        c->fed += rc == 0;
    }
    return rc;
}

/* How far everything is out, in order. */
static void note_out(struct hw_conn *c)
{
    uint64_t carried = hw_tcp.sent(c->carrier), out = atomic_load_explicit(&c->out, memory_order_relaxed);
    while (out < c->fed) {
        if (tx_of(c, out)->way == BY_TCP) {
            if (c->carried_out == carried)
                break;
            c->carried_out++;
        }
        out++;
    }
    atomic_store_explicit(&c->out, out, memory_order_release);
}

static int devmem_test_send(struct hw_conn *c)
{
    int rc = advance_devmem_setup(c);
    if (rc)
        return rc;
    rc = send_posted_chunks(c);
    if ((rc == 0 || rc == -EAGAIN || rc == -EBUSY) && c->carrier != c->heads) {
        int heads = send_heads(c);
        rc = heads && (rc == 0 || heads != -EAGAIN) ? heads : rc;
    }
    note_out(c);
    return rc;
}

static void devmem_release_send(struct hw_conn *c, uint32_t n)
{
    uint32_t carried = 0;
    for (uint64_t end = c->released + n; c->released < end; c->released++)
        carried += tx_of(c, c->released)->way == BY_TCP;
    hw_tcp.release_send(c->carrier, carried);
}

static uint64_t devmem_sent(struct hw_conn *c)
{
    return atomic_load_explicit(&c->out, memory_order_acquire);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

/* The next head: 0, -EAGAIN, -EPIPE, dead. */
static int receive_chunk_head(struct hw_conn *c)
{
    while (c->head_have < HW_CHUNK_HEAD) {
        ssize_t n = recv(hw_tcp.fd(c->heads), c->head + c->head_have, HW_CHUNK_HEAD - c->head_have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            return hw_fail(-EPIPE, "the peer closed the connection");
        if (n < 0)
            return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM
                       ? -EAGAIN
                       : hw_fail(-errno, "receiving: %s", strerror(errno));
        c->head_have += (uint32_t)n;
    }
    return 0;
}

static int devmem_test_recv(struct hw_conn *c, const uint8_t **header, uint64_t *moved)
{
    int rc = advance_devmem_setup(c);
    if (rc)
        return rc;
    if (!c->rx)
        return hw_tcp.test_recv(c->heads, header, moved);
    switch (c->rx_state) {
    case HEAD:
        if ((rc = receive_chunk_head(c)))
            return rc;
        c->rx_state = HEAD_SEEN;
        *header = c->head;
        return HW_RX_HEADER;
    case BODY:
        if ((rc = dm_rx_run(c->rx, moved)))
            return rc;
        c->rx_state = BODY_DONE;
        return HW_RX_DONE;
    default:
        return hw_fail(-EINVAL, "test_recv while the engine owes an answer");
    }
}

static int devmem_post_recv(struct hw_conn *c, const struct hw_space *space, void *ptr, uint32_t len, bool more)
{
    if (!c->rx)
        return hw_tcp.post_recv(c->heads, space, ptr, len, more);
    dm_rx_post(c->rx, space, ptr, len);
    c->rx_state = BODY;
    return 0;
}

static void devmem_discard(struct hw_conn *c)
{
    if (c->rx)
        (void)dm_rx_discard(c->rx);
    else
        hw_tcp.discard(c->heads);
}

static void devmem_consumed(struct hw_conn *c)
{
    if (!c->rx) {
        hw_tcp.consumed(c->heads);
        return;
    }
    c->rx_state = HEAD;
    c->head_have = 0;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static int devmem_health(struct hw_conn *c)
{
    int rc = c->claim ? dm_claim_health(c->claim) : 0;
    if (rc)
        return rc;
    if (c->rx && dm_rx_strayed(c->rx))
        return hw_fail(-ENOLINK, "payload has begun to come as ordinary data: the flow rule for it on %s is gone",
                       c->nic);
    if (c->meet && (rc = dm_meet_late(c->meet)))
        return rc;
    rc = hw_tcp.health(c->heads);
    return rc == 0 && c->side ? hw_tcp.health(c->side) : rc;
}

static int devmem_fd(struct hw_conn *c)
{
    return c->set;
}

static void devmem_count(struct hw_conn *c, struct hw_tp_counts *sum)
{
    sum->tx_device += atomic_load_explicit(&c->tx_device, memory_order_relaxed);
    if (atomic_load_explicit(&c->met, memory_order_acquire) && c->rx) {
        const struct dm_rx_counts *n = dm_rx_counts(c->rx);
        sum->rx_device += atomic_load_explicit(&n->device, memory_order_relaxed);
        sum->rx_copied += atomic_load_explicit(&n->copied, memory_order_relaxed);
    }
}

static void devmem_ends(struct hw_conn *c, union hw_addr *local, union hw_addr *remote)
{
    hw_tcp.ends(c->heads, local, remote);
}

static void devmem_close(struct hw_conn *c)
{
    if (c->rx) {
        const struct dm_rx_counts *n = dm_rx_counts(c->rx);
        hw_log(c->env->log, HAWSER_LOG_DEBUG,
               "%s: %llu bytes came into device memory by %llu receives, %u pages at most at a time", c->nic,
               (unsigned long long)atomic_load(&n->device), (unsigned long long)atomic_load(&n->calls),
               atomic_load(&n->held_most));
    }
    dm_meet_free(c->meet);
    dm_rx_free(c->rx); /* gathers are over before the pages go back with the socket */
    dm_claim_free(c->claim);
    if (c->side)
        hw_tcp.close(c->side);
    if (c->heads)
        hw_tcp.close(c->heads);
    hw_close(&c->set);
    hw_close(&c->event);
    free(c->tx);
    free(c);
}

const struct hw_transport hw_devmem = {
    .name = "devmem",
    .caps = {.self = HW_SELF_FALLS_BACK,
             .max_chunk = HW_CHUNK_MAX,
             .max_window = 256,
             .header_in_band = true,
             .one_event = true,
             .device_path = true,
             .needs_gather = true},
    .alive = devmem_alive,
    .forget = devmem_forget,
    .listen = devmem_listen,
    .connect = devmem_connect,
    .accept = devmem_accept,
    .side = devmem_side,
    .establish = devmem_establish,
    .want = devmem_want,
    .post_send = devmem_post_send,
    .test_send = devmem_test_send,
    .release_send = devmem_release_send,
    .sent = devmem_sent,
    .test_recv = devmem_test_recv,
    .post_recv = devmem_post_recv,
    .discard = devmem_discard,
    .consumed = devmem_consumed,
    .health = devmem_health,
    .count = devmem_count,
    .fd = devmem_fd,
    .ends = devmem_ends,
    .close = devmem_close,
};

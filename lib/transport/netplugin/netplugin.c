/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The netplugin transport: chunks over any libnccl-net-*.so, run in a child process (host/host.h).
 *
 * A channel is made as tcp's are, and so is authenticated as they are; its socket then carries one greeting each way,
 * with the handle of a listener of the plugin's, and after that nothing: that it stands shows that the peer does. Two
 * connections of the plugin, one each way, carry the chunks, header and payload as one message, from and into slots of
 * memory that the child shares (slots.h). So each byte is copied once more on each side than the plugin itself does;
 * the receiver's slots are posted ahead, and given back once the engine has what was in them.
 *
 * One descriptor for epoll: an epoll set with the socket and the eventfd of both connections.
 */
#include "transport/netplugin/netplugin.h"
#include "transport/netplugin/conn.h"
#include "transport/netplugin/host/device.h"
#include "transport/netplugin/host/pool.h"
#include "transport/netplugin/table/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM NP_ROOM

#define CALL_LEAST_MS 1000ull
#define CALL_MOST_MS  15000ull

/* ---- the context's ----------------------------------------------------------------------------------- */

/* Can it carry chunks at all? *p: what its first device has. */
static int check_first_device(struct np_host *h, struct np_props *p)
{
    if (np_info(h)->devices == 0)
        return hw_fail(-ENODEV, "the plugin %s has no device", np_info(h)->table);
    int rc = np_props(h, 0, p);
    if (rc)
        return rc;
    if (p->max_size < 2 * 4096)
        return hw_fail(-EOPNOTSUPP, "the plugin %s takes no more than %u bytes at a time", np_info(h)->table,
                       p->max_size);
    return p->ptr_support & NCCL_PTR_HOST
               ? 0
               : hw_fail(-EOPNOTSUPP, "the plugin %s takes no host memory", np_info(h)->table);
}

int hw_netplugin_open(const char *plugin, struct hw_tp_env *env, struct hw_transport *tp)
{
    struct np_pool *pool;
    /* A call that hangs is told before the peer gives up waiting. */
    const uint64_t call_ms = HW_MAX(HW_MIN(env->knobs->peer_timeout_ms / 2, CALL_MOST_MS), CALL_LEAST_MS);
    struct np_options o = {.log = env->log, .call_ms = (int)call_ms, .one_thread = !env->knobs->plugin_threads};
    o.trace = env->knobs->plugin_trace;
    o.trace_polls = env->knobs->plugin_trace_polls;
    o.spin_us = (int)env->knobs->plugin_spin_us;
    while (o.unpack < HW_GATHER_WAYS && strcmp(hw_gather_way_names[o.unpack], env->knobs->plugin_unpack) != 0)
        o.unpack++;
    if (o.unpack == HW_GATHER_WAYS)
        return hw_fail(-EINVAL, "knob plugin_unpack: \"%s\" is neither kernel, d2d nor host",
                       env->knobs->plugin_unpack);
    /* A connect or accept that sleeps holds the loop that calls it. So where no thread is to call it, each connection
     * has a process: those of four NICs or peers, for it is not known how many there will be. They are there before
     * CUDA is used here. */
    const unsigned processes = o.one_thread ? 4 * (unsigned)HW_MIN(env->knobs->channels, (uint64_t)NP_POOL_MOST) : 1;
    int rc = np_pool_open(plugin, &o, processes, &pool);
    if (rc)
        return rc;
    struct np_host *h = np_pool_first(pool);
    struct np_props p = {0};
    rc = check_first_device(h, &p);
    if (rc) {
        np_pool_close(pool);
        return rc;
    }
    *tp = hw_netplugin;
    tp->caps.max_chunk = np_conn_slot(&p) - ROOM;
    tp->caps.max_window = HW_MIN((uint32_t)NP_SLOTS, np_info(h)->window);
    tp->caps.device_path = p.ptr_support & NCCL_PTR_CUDA;
    tp->caps.nodev_final = true;
    tp->caps.setup_ms = np_info(h)->wait_ms;
    tp->caps.self = np_info(h)->quirk->remote_only ? HW_SELF_NEVER : HW_SELF_WORKS;
    env->state = pool;
    snprintf(env->ident, sizeof(env->ident), "%s %s", hw_netplugin.name, np_info(h)->table);
    hw_log(env->log, HAWSER_LOG_INFO, "driving %s (v%u, %u devices, %s) in process %d", np_info(h)->table,
           np_info(h)->version, np_info(h)->devices, p.name, np_info(h)->pid);
    return 0;
}

void hw_netplugin_close(struct hw_tp_env *env)
{
    np_pool_close(env->state);
    env->state = NULL;
}

static int netplugin_alive(const struct hw_tp_env *env)
{
    return np_pool_health(env->state);
}

/* ---- making a connection ------------------------------------------------------------------------------- */

static int netplugin_listen(const struct hw_tp_env *env, const struct hw_nic *nic, uint16_t port,
                            uint8_t handle[HW_HANDLE_MAX])
{
    return hw_tcp.listen(env, nic, port, handle);
}

static int netplugin_connect(const struct hw_tp_env *env, const struct hw_nic *nic, const uint8_t *handle,
                             size_t handle_len, const struct hw_conn_ident *ident, struct hw_conn **out)
{
    struct hw_conn *tcp;
    int rc = hw_tcp.connect(env, nic, handle, handle_len, ident, &tcp);
    if (rc)
        return rc;
    if ((rc = np_conn_new(env, hw_tcp.fd(tcp), nic->name, out)) != 0) {
        hw_tcp.close(tcp);
        return rc;
    }
    (*out)->tcp = tcp;
    (*out)->gpu = ident->gpu;
    (*out)->peer_gpu = ident->peer_gpu;
    return 0;
}

static int netplugin_accept(const struct hw_tp_env *env, int fd, struct hw_conn **out)
{
    char name[HAWSER_NIC_NAME];
    hw_nic_of_socket(fd, name);
    int rc = np_conn_new(env, fd, name, out);
    if (rc)
        return rc;
    if ((rc = hw_tcp.accept(env, fd, &(*out)->tcp)) != 0) {
        np_conn_free(*out);
        return rc;
    }
    (*out)->server = true;
    (*out)->state = GREET;
    return 0;
}

static int netplugin_establish(struct hw_conn *c)
{
    np_conn_listen(c);
    return np_conn_advance(c);
}

/* ---- sending --------------------------------------------------------------------------------------------- */

static uint32_t netplugin_want(struct hw_conn *c)
{
    return c->posted - c->released < c->nslots ? c->slot - ROOM : 0;
}

static int netplugin_post_send(struct hw_conn *c, const uint8_t header[HW_CHUNK_HEAD], const struct hw_space *space,
                               const void *ptr, uint32_t len)
{
    if (c->posted - c->released >= c->nslots)
        return -EAGAIN;
    if (len > c->slot - ROOM) /* devices of one plugin that differ */
        return hw_fail(-EMSGSIZE, "a chunk of %u bytes where the plugin takes %u", len, c->slot - ROOM);
    uint64_t i = c->posted++ % c->nslots;
    memcpy(c->send[i].head, header, HW_CHUNK_HEAD);
    c->send[i].space = space;
    c->send[i].ptr = ptr;
    c->send[i].len = len;
    return 0;
}

/* Into slots as far as there are any; what the CPU has to copy, one at a time, so that the plugin has the first one
 * meanwhile. */
static int fill_send_slots(struct hw_conn *c)
{
    while (c->filled < c->posted && c->filled - c->over < c->nslots) {
        const uint64_t i = c->filled % c->nslots;
        if (c->send[i].space->direct && c->filled > c->given)
            break;
        int rc = np_slots_fill(&c->slots, c->filled, c->send[i].head, c->send[i].space, c->send[i].ptr, c->send[i].len);
        if (rc)
            return rc;
        c->filled++;
    }
    return 0;
}

static int netplugin_test_send(struct hw_conn *c)
{
    int rc = np_conn_advance(c);
    while (rc == 0) {
        if ((rc = np_conn_reclaim(c)) || (rc = fill_send_slots(c)) || c->given == c->posted)
            break;
        rc = c->given == c->filled ? -EAGAIN /* its slot is the plugin's still */
                                   : np_slots_send(&c->slots, c->given, c->send[c->given % c->nslots].len,
                                                   hw_deadline((int)c->request_ms));
        if (rc == -EAGAIN) {
            if ((rc = np_arm(c->tx)) == 0)
                continue;
            break;
        }
        if (rc == 0)
            atomic_store(&c->sent, ++c->given);
    }
    return rc;
}

static void netplugin_release_send(struct hw_conn *c, uint32_t n)
{
    c->released += n;
}

static uint64_t netplugin_sent(struct hw_conn *c)
{
    return atomic_load(&c->sent);
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

/* The same, and where there is none: what else has happened, and from now on an event. No system call is made where
 * there is one. */
static int poll_or_arm_receive(struct hw_conn *c)
{
    int rc;
    while ((rc = np_conn_collect(c)) == -EAGAIN) {
        np_conn_listen(c);
        int word = np_conn_advance(c);
        if (word) /* what the peer had sent before it left comes first */
            return word == -EPIPE && np_conn_collect(c) == 0 ? 0 : word;
        if (np_arm(c->rx))
            return rc;
    }
    return rc;
}

static int header_of(struct hw_conn *c, const uint8_t **header)
{
    const struct np_result *r = &c->result[c->taken % c->nslots];
    int rc = np_slots_head(&c->slots, c->taken, header);
    if (rc)
        return rc;
    uint32_t len = hw_get32(*header + 8); /* of the payload, docs/wire.md; the engine looks at all of it */
    if (len > c->slot - ROOM || (r->known && r->size != (size_t)ROOM + len))
        return hw_fail(-EPROTO, "a message of %zu bytes of the plugin's for a chunk of %u", r->size, len);
    c->rx_at = 0;
    c->rx_state = HEAD_SEEN;
    return HW_RX_HEADER;
}

static int netplugin_test_recv(struct hw_conn *c, const uint8_t **header, uint64_t *moved)
{
    int rc = c->rx_state == HEAD ? poll_or_arm_receive(c) : 0;
    if (rc)
        return rc;
    switch (c->rx_state) {
    case HEAD:
        return header_of(c, header);
    case BODY:
        if (c->rx_ptr && (rc = np_slots_take(&c->slots, c->taken, c->rx_at, c->rx_space, c->rx_ptr, c->rx_len)))
            return rc;
        c->rx_at += c->rx_len;
        *moved += c->rx_len;
        c->rx_state = BODY_DONE;
        return HW_RX_DONE;
    default:
        return hw_fail(-EINVAL, "test_recv while the engine owes an answer");
    }
}

static int netplugin_post_recv(struct hw_conn *c, const struct hw_space *space, void *ptr, uint32_t len, bool more)
{
    (void)more;
    if (len > c->slot - ROOM - c->rx_at)
        return hw_fail(-EPROTO, "a chunk that is longer than its message");
    c->rx_space = space;
    c->rx_ptr = ptr;
    c->rx_len = len;
    c->rx_state = BODY;
    return 0;
}

static void netplugin_discard(struct hw_conn *c)
{
    (void)np_slots_cut(&c->slots);
    c->rx_ptr = NULL;
}

/* The slot goes back, to be filled again. What fails here shows at the next test. */
static void netplugin_consumed(struct hw_conn *c)
{
    if (np_consumed(c->rx) == 0)
        (void)np_slots_post(&c->slots, c->taken);
    c->taken++;
    c->rx_state = HEAD;
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

static int netplugin_health(struct hw_conn *c)
{
    int rc = np_health(c->host);
    /* What failed after all was given to it rings for nobody: a send that is over is no news either. */
    if (rc == 0 && c->state == READY)
        rc = np_conn_reclaim(c);
    if (rc)
        return rc;
    return c->state != READY && hw_now() >= c->deadline ? hw_fail(-ETIMEDOUT, "the two plugins did not connect in time")
                                                        : 0;
}

static int netplugin_fd(struct hw_conn *c)
{
    return c->set;
}

static void netplugin_count(struct hw_conn *c, struct hw_tp_counts *sum)
{
    sum->rx_device += atomic_load_explicit(&c->slots.rx_device, memory_order_relaxed);
    sum->rx_copied += atomic_load_explicit(&c->slots.rx_copied, memory_order_relaxed);
    sum->tx_device += atomic_load_explicit(&c->slots.tx_device, memory_order_relaxed);
}

static void netplugin_ends(struct hw_conn *c, union hw_addr *local, union hw_addr *remote)
{
    hw_tcp.ends(c->tcp, local, remote);
}

static void netplugin_close(struct hw_conn *c)
{
    np_conn_close_plugin(c);
    hw_tcp.close(c->tcp);
    np_conn_free(c);
}

const struct hw_transport hw_netplugin = {
    .name = "netplugin",
    .caps = {.max_chunk = NP_SLOT_MAX - ROOM, .max_window = NP_SLOTS, .header_in_band = true, .one_event = true},
    .alive = netplugin_alive,
    .listen = netplugin_listen,
    .connect = netplugin_connect,
    .accept = netplugin_accept,
    .establish = netplugin_establish,
    .want = netplugin_want,
    .post_send = netplugin_post_send,
    .test_send = netplugin_test_send,
    .release_send = netplugin_release_send,
    .sent = netplugin_sent,
    .test_recv = netplugin_test_recv,
    .post_recv = netplugin_post_recv,
    .discard = netplugin_discard,
    .consumed = netplugin_consumed,
    .health = netplugin_health,
    .fd = netplugin_fd,
    .count = netplugin_count,
    .ends = netplugin_ends,
    .close = netplugin_close,
};

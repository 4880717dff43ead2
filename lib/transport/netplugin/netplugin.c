/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/netplugin.h"

#include "transport/netplugin/conn.h"
#include "transport/netplugin/host/device.h"
#include "transport/netplugin/host/pool.h"
#include "transport/netplugin/table/abi.h"
#include "transport/tcp/tcp.h"

#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x4c50574eu /* "NWPL" */
#define PARTS 64          /* maximum number of parts of a message */

/* A connection of a rail. `np` is the plugin's part, or NULL if the connection carries only small frames. */
struct hw_conn {
    struct hw_conn *heads; /* connection of transport tcp, opaque here */
    struct np_conn *np;
    int fd;                  /* socket for headers */
    struct hw_source source; /* source of the plugin's event */
    struct hw_rail *rail;
    unsigned link;    /* number of the rail's link */
    uint32_t pending; /* payload bytes of a message in a slot, if the plugin has not accepted the message yet */
    uint32_t len, at; /* payload bytes of the oldest received message, and how many of them were read */
    bool has_message;
    struct hw_tp_counts *counts;
    struct hw_conn_counts told;
};

/* ---- the context ---------------------------------------------------------------------------------------- */

#define CALL_LEAST_MS 1000ull
#define CALL_MOST_MS  15000ull

/* Checks that the plugin can carry payloads. Returns the properties of the first device in *p. */
static int check_first_device(struct np_host *h, struct np_props *p)
{
    if (np_info(h)->devices == 0)
        return hw_fail(-ENODEV, "plugin %s has no device", np_info(h)->table);
    int rc = np_props(h, 0, p);
    if (rc)
        return rc;
    if (p->max_size < 2 * 4096)
        return hw_fail(-EOPNOTSUPP, "plugin %s accepts only %u bytes per request; at least 8192 are needed",
                       np_info(h)->table, p->max_size);
    return p->ptr_support & NCCL_PTR_HOST
               ? 0
               : hw_fail(-EOPNOTSUPP, "plugin %s does not support host memory", np_info(h)->table);
}

static int open_netplugin(const char *plugin, struct hw_tp_env *env)
{
    struct np_pool *pool;
    /* Half of the peer's timeout, within limits, so that a hung call is reported before the peer times out. */
    const uint64_t call_ms = HW_MAX(HW_MIN(env->knobs->peer_timeout_ms / 2, CALL_MOST_MS), CALL_LEAST_MS);
    struct np_options o = {.log = env->log, .call_ms = (int)call_ms, .one_thread = !env->knobs->plugin_threads};
    o.trace = env->knobs->plugin_trace;
    o.trace_polls = env->knobs->plugin_trace_polls;
    o.spin_us = (int)env->knobs->plugin_spin_us;
    while (o.unpack < HW_GATHER_WAYS && strcmp(hw_gather_way_names[o.unpack], env->knobs->plugin_unpack) != 0)
        o.unpack++;
    if (o.unpack == HW_GATHER_WAYS)
        return hw_fail(-EINVAL, "knob plugin_unpack: \"%s\" is not one of kernel, d2d, host",
                       env->knobs->plugin_unpack);
    /* A connect or accept that sleeps blocks the loop that calls it. Therefore, without threads, each connection should
     * have a separate process. The number of NICs and peers is unknown here, so there are enough processes for the
     * channels of four pairs of NICs, but at most NP_POOL_MOST. All processes are started here, because a process that
     * is forked after the first use of CUDA cannot use CUDA. */
    const unsigned processes =
        o.one_thread ? 4 * (unsigned)HW_MIN(hw_knob_channels(env->knobs), (uint64_t)NP_POOL_MOST) : 1;
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
    env->caps.device_path = p.ptr_support & NCCL_PTR_CUDA;
    env->caps.setup_ms = np_info(h)->wait_ms;
    env->caps.self = np_info(h)->quirk->remote_only ? HW_SELF_NEVER : HW_SELF_WORKS;
    env->state = pool;
    snprintf(env->ident, sizeof(env->ident), "%s %s", hw_netplugin.name, np_info(h)->table);
    hw_log(env->log, HAWSER_LOG_INFO, "using %s (v%u, %u device%s, first device %s) in process %d", np_info(h)->table,
           np_info(h)->version, np_info(h)->devices, hw_plural(np_info(h)->devices), p.name, np_info(h)->pid);
    return 0;
}

static void close_netplugin(struct hw_tp_env *env)
{
    np_pool_close(env->state);
    env->state = NULL;
}

static int is_netplugin_alive(const struct hw_tp_env *env)
{
    return np_pool_health(env->state);
}

/* The peer may have sent an invalid name. */
static void expect_nic(const struct hw_tp_env *env, const char *nic)
{
    if (if_nametoindex(nic))
        (void)np_device_of(np_pool_first(env->state), nic, env->knobs->plugin_devices, env->log);
}

/* ---- making and meeting ------------------------------------------------------------------------------------ */

static struct hw_driver *get_driver(const struct hw_rail *r)
{
    return hw_container_of(r->loop, struct hw_driver, loop);
}

static void close_carried(struct hw_conn *c)
{
    if (c->np && c->rail)
        hw_driver_forget(get_driver(c->rail), c->np->event, &c->source);
    if (c->np) {
        np_conn_close_plugin(c->np);
        np_conn_free(c->np);
    }
    hw_tcp_io.close(c->heads);
    free(c);
}

static int make_carried(int fd, const struct hw_conn_args *a, struct hw_conn **out)
{
    struct hw_conn *c = calloc(1, sizeof *c);
    struct hw_conn *heads = hw_tcp_new(fd, a->env->knobs, a->env->log);
    char nic[HAWSER_NIC_NAME];
    if (!c || !heads) {
        if (heads)
            hw_tcp_io.close(heads);
        free(c);
        return hw_no_memory("a connection");
    }
    c->heads = heads;
    hw_tcp_count(heads, a->counts);
    c->fd = fd;
    c->counts = a->counts;
    if (a->client)
        memcpy(nic, a->from->name, sizeof nic);
    else
        hw_nic_of_socket(fd, nic);
    int rc = a->small_only ? 0 : np_conn_new(a->env, fd, nic, &c->np);
    if (rc < 0) {
        c->np = NULL;
        close_carried(c);
        return rc;
    }
    if (c->np) {
        c->np->server = !a->client;
        c->np->state = GREET;
        c->np->gpu = a->client ? a->id.gpu : -1;
        c->np->peer_gpu = a->client ? a->id.peer_gpu : -1;
    }
    *out = c;
    return 0;
}

static int meet_carried(struct hw_conn *c)
{
    if (!c->np || c->np->state == READY)
        return 0;
    np_conn_listen(c->np);
    return np_conn_advance(c->np);
}

static int get_meeting_fd(const struct hw_conn *c)
{
    return c->np ? c->np->set : -1;
}

static void note_plugin_ready(struct hw_source *s, uint32_t events)
{
    const struct hw_conn *c = hw_container_of(s, struct hw_conn, source);
    (void)events;
    hw_rail_ready(c->rail, c->link);
}

static int attach_carried(struct hw_conn *c, struct hw_rail *r, unsigned link)
{
    int rc = hw_tcp_io.attach(c->heads, r, link);
    if (rc < 0 || !c->np)
        return rc;
    c->rail = r;
    c->link = link;
    c->source.ready = note_plugin_ready;
    return hw_driver_watch(get_driver(r), c->np->event, &c->source);
}

static struct hw_link_apart get_apart(const struct hw_conn *c)
{
    return (struct hw_link_apart){.tx = c->np, .rx = c->np};
}

static void count_payload(struct hw_conn *c)
{
    const struct np_slots *s = &c->np->slots;
    hw_tp_count(c->counts, &c->told,
                (struct hw_conn_counts){.rx_device = atomic_load_explicit(&s->rx_device, memory_order_relaxed),
                                        .rx_copied = atomic_load_explicit(&s->rx_copied, memory_order_relaxed),
                                        .tx_device = atomic_load_explicit(&s->tx_device, memory_order_relaxed)});
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

static int64_t write_heads(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return hw_tcp_io.write(c->heads, piece, n);
}

/* Starts to put the pieces, from byte `at` of the first piece, into the next slot. Takes up to PARTS pieces of one
 * space, the last piece possibly only in part. Returns 0 with c->pending set, -EAGAIN if no slot is free (the event is
 * signalled once a slot is free), or another negative errno. */
static int fill_slot(struct hw_conn *c, const struct hw_piece *piece, uint32_t n, uint64_t at)
{
    struct np_conn *np = c->np;
    struct np_part part[PARTS];
    uint8_t head[NP_HEAD];
    uint32_t parts = 0, len = 0, room = np->slot - NP_ROOM;
    int rc;
    while ((rc = np_conn_reclaim(np)) == 0 && np->filled - np->over == np->nslots)
        if ((rc = np_arm(np->tx)) < 0)
            return rc;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n && parts < PARTS && len < room; i++, at = 0) {
        uint32_t some = (uint32_t)HW_MIN(piece[i].len - at, (uint64_t)(room - len));
        if (some == 0)
            continue;
        if (parts && piece[i].space != part[0].space)
            break;
        part[parts++] = (struct np_part){piece[i].space, piece[i].ptr + at, some};
        len += some;
    }
    hw_put32(head, MAGIC);
    hw_put32(head + 4, len);
    rc = np_slots_gather(&np->slots, np->filled, head, part, parts);
    if (rc < 0)
        return rc;
    np->filled++;
    c->pending = len;
    return 0;
}

/* Passes the message in its slot to the plugin. Returns -EBUSY while the device is still copying the message, and
 * -EAGAIN if the plugin's window is full (the event is signalled once there is space). */
static int send_slot(struct hw_conn *c)
{
    struct np_conn *np = c->np;
    for (;;) {
        int rc = np_slots_send(&np->slots, np->given, c->pending, hw_deadline((int)np->request_ms));
        if (rc == 0)
            np->given++;
        if (rc != -EAGAIN)
            return rc;
        rc = np_conn_reclaim(np);
        if (rc == 0)
            rc = np_arm(np->tx);
        if (rc < 0)
            return rc;
    }
}

static int64_t write_payload(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    int64_t sum = 0;
    uint64_t at = 0; /* counted bytes of the first piece */
    while (n) {
        if (at == piece->len) {
            piece++, n--;
            at = 0;
            continue;
        }
        int rc = c->pending ? 0 : fill_slot(c, piece, n, at);
        if (rc == 0)
            rc = send_slot(c);
        if (rc < 0) {
            bool later = rc == -EAGAIN || rc == -EBUSY;
            return later && sum ? sum : rc;
        }
        count_payload(c);
        sum += c->pending;
        for (at += c->pending, c->pending = 0; n && at >= piece->len; piece++, n--)
            at -= piece->len;
    }
    return sum;
}

/* Waits until the bytes that write_payload() has not counted yet are in their slot. The next write sends them from the
 * slot, even if the caller passes other memory with the same bytes. */
static int stop_reading(struct hw_conn *c)
{
    return c->pending ? np_slots_settle(&c->np->slots) : 0;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static int64_t read_heads(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    return hw_tcp_io.read(c->heads, piece, n);
}

/* Finds the next message and its length. Returns -EAGAIN if there is no message (the event is signalled once one
 * arrives), or -EBUSY while the message's header is being copied. */
static int get_message(struct hw_conn *c)
{
    struct np_conn *np = c->np;
    const uint8_t *head;
    int rc;
    while ((rc = np_conn_collect(np)) == -EAGAIN) {
        rc = np_arm(np->rx);
        struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
        if (rc == -EAGAIN &&
            poll(&p, 1, 0) > 0) /* only this check detects a closed connection, because headers are not being read */
            return hw_fail(-ECONNRESET, "the peer closed the connection");
        if (rc < 0)
            return rc;
    }
    if (rc < 0 || (rc = np_slots_head(&np->slots, np->taken, &head)) < 0)
        return rc;
    const struct np_result *r = &np->result[np->taken % np->nslots];
    c->len = hw_get32(head + 4);
    c->at = 0;
    if (hw_get32(head) != MAGIC || c->len == 0 || c->len > np->slot - NP_ROOM ||
        (r->known && r->size != (size_t)NP_ROOM + c->len))
        return hw_fail(-EPROTO, "the plugin received a message of %zu bytes with an invalid header (payload length %u)",
                       r->size, c->len);
    c->has_message = true;
    return 0;
}

/* Returns the slot to the plugin for another receive. */
static int end_message(struct hw_conn *c)
{
    struct np_conn *np = c->np;
    int rc = np_consumed(np->rx);
    if (rc == 0)
        rc = np_slots_post(&np->slots, np->taken);
    np->taken++;
    c->has_message = false;
    return rc;
}

static int64_t read_payload(struct hw_conn *c, const struct hw_piece *piece, uint32_t n)
{
    struct np_conn *np = c->np;
    int64_t sum = 0;
    uint64_t at = 0; /* offset in the first piece */
    while (n) {
        if (at == piece->len) {
            piece++, n--;
            at = 0;
            continue;
        }
        int rc = c->has_message ? 0 : get_message(c);
        uint32_t some = (uint32_t)HW_MIN(piece->len - at, (uint64_t)(c->len - c->at));
        if (rc == 0 && piece->ptr)
            rc = np_slots_take(&np->slots, np->taken, c->at, piece->space, piece->ptr + at, some);
        if (rc == 0) {
            c->at += some;
            at += some;
            sum += some;
            count_payload(c);
            rc = c->at == c->len ? end_message(c) : 0;
        }
        if (rc < 0)
            return (rc == -EAGAIN || rc == -EBUSY) && sum ? sum : rc;
    }
    return sum;
}

static int discard_payload(struct hw_conn *c)
{
    return np_slots_cut(&c->np->slots);
}

static int unread_heads(struct hw_conn *c, const uint8_t *data, uint32_t n)
{
    return hw_tcp_io.unread(c->heads, data, n);
}

static int load_payload(struct hw_conn *c, const struct hw_piece *piece, uint8_t *to)
{
    return hw_tcp_io.load(c->heads, piece, to);
}

static int settle_heads(struct hw_conn *c)
{
    return hw_tcp_io.settle(c->heads);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static int check_carried(struct hw_conn *c, uint64_t alone, uint64_t *window)
{
    int rc = c->np ? np_health(c->np->host) : 0;
    /* a failure after all messages were passed to the plugin signals no event */
    if (rc == 0 && c->np)
        rc = np_conn_reclaim(c->np);
    uint64_t heads = UINT64_MAX;
    return rc < 0 ? rc : hw_tcp_io.check(c->heads, alone, c->np ? &heads : window);
}

static const struct hw_rail_io carried_io = {.attach = attach_carried,
                                             .write = write_heads,
                                             .read = read_heads,
                                             .unread = unread_heads,
                                             .load = load_payload,
                                             .settle = settle_heads,
                                             .close = close_carried,
                                             .check = check_carried,
                                             .apart = get_apart,
                                             .write_apart = write_payload,
                                             .read_apart = read_payload,
                                             .discard = discard_payload,
                                             .stop_reading = stop_reading};

const struct hw_transport hw_netplugin = {.name = "netplugin",
                                          .caps = {.nodev_final = true},
                                          .io = &carried_io,
                                          .open = open_netplugin,
                                          .close = close_netplugin,
                                          .alive = is_netplugin_alive,
                                          .expect = expect_nic,
                                          .make = make_carried,
                                          .meet = meet_carried,
                                          .meeting_fd = get_meeting_fd};

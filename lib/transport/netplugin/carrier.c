/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/carrier.h"

#include "transport/netplugin/conn.h"
#include "transport/tcp/conn.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x4c50574eu /* "NWPL" */
#define PARTS 64          /* of one message */

/* A connection under a rail. `np` is the plugin's, NULL where it carries small frames only. */
struct carried {
    struct hw_conn *heads; /* tcp's: opaque here */
    struct hw_conn *np;
    int fd;                  /* the heads' */
    struct hw_source source; /* of the plugin's event */
    struct hw_rail *rail;
    uint32_t pending; /* bytes of a message in a slot that the plugin has not taken yet; not counted */
    uint32_t len, at; /* of the oldest message that came: its payload, and how much of that was taken */
    bool has_message;
    struct hw_carrier_counts *counts;
    struct hw_tp_counts told;
};

static struct carried *get_carried(const struct hw_conn *c)
{
    return (struct carried *)c;
}

/* ---- making and meeting ------------------------------------------------------------------------------------ */

static struct hw_driver *get_driver(const struct hw_rail *r)
{
    return hw_container_of(r->loop, struct hw_driver, loop);
}

static void close_carried(struct hw_conn *conn)
{
    struct carried *c = get_carried(conn);
    if (c->np && c->rail)
        hw_driver_forget(get_driver(c->rail), c->np->event, &c->source);
    if (c->np) {
        np_conn_close_plugin(c->np);
        np_conn_free(c->np);
    }
    hw_tcp_io.close(c->heads);
    free(c);
}

static int make_carried(int fd, const struct hw_carrier_args *a, struct hw_conn **out)
{
    struct carried *c = calloc(1, sizeof *c);
    struct hw_conn *heads = hw_tcp_new(fd, a->env->knobs, a->env->log);
    char nic[HAWSER_NIC_NAME];
    if (!c || !heads) {
        if (heads)
            hw_tcp_io.close(heads);
        free(c);
        return hw_no_memory("a connection");
    }
    c->heads = heads;
    c->fd = fd;
    c->counts = a->counts;
    if (a->client)
        memcpy(nic, a->from->name, sizeof nic);
    else
        hw_nic_of_socket(fd, nic);
    int rc = a->small_only ? 0 : np_conn_new(a->env, fd, nic, &c->np);
    if (rc < 0) {
        c->np = NULL;
        close_carried((struct hw_conn *)c);
        return rc;
    }
    if (c->np) {
        c->np->heads_follow = true;
        c->np->server = !a->client;
        c->np->state = GREET;
        c->np->gpu = a->client ? a->id.gpu : -1;
        c->np->peer_gpu = a->client ? a->id.peer_gpu : -1;
    }
    *out = (struct hw_conn *)c;
    return 0;
}

static int meet_carried(struct hw_conn *conn)
{
    struct carried *c = get_carried(conn);
    if (!c->np || c->np->state == READY)
        return 0;
    np_conn_listen(c->np);
    return np_conn_advance(c->np);
}

static int get_meeting_fd(const struct hw_conn *conn)
{
    const struct carried *c = get_carried(conn);
    return c->np ? c->np->set : -1;
}

static void note_plugin_ready(struct hw_source *s, uint32_t events)
{
    (void)events;
    hw_rail_ready(hw_container_of(s, struct carried, source)->rail);
}

static int attach_carried(struct hw_conn *conn, struct hw_rail *r)
{
    struct carried *c = get_carried(conn);
    int rc = hw_tcp_io.attach(c->heads, r);
    if (rc < 0 || !c->np)
        return rc;
    c->rail = r;
    c->source.ready = note_plugin_ready;
    return hw_driver_watch(get_driver(r), c->np->event, &c->source);
}

static struct hw_link_apart get_apart(const struct hw_conn *conn)
{
    const struct carried *c = get_carried(conn);
    return (struct hw_link_apart){.tx = c->np, .rx = c->np};
}

static void count_payload(struct carried *c)
{
    const struct np_slots *s = &c->np->slots;
    hw_carrier_count(c->counts, &c->told,
                     (struct hw_tp_counts){.rx_device = atomic_load_explicit(&s->rx_device, memory_order_relaxed),
                                           .rx_copied = atomic_load_explicit(&s->rx_copied, memory_order_relaxed),
                                           .tx_device = atomic_load_explicit(&s->tx_device, memory_order_relaxed)});
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

static int64_t write_heads(struct hw_conn *conn, const struct hw_piece *piece, uint32_t n)
{
    return hw_tcp_io.write(get_carried(conn)->heads, piece, n);
}

/* Begins to put the pieces, from byte `at` of the first one on, into the next slot: as many as are of one space and
 * fit. 0 with c->pending; -EAGAIN: no slot is free, and the event is rung once one is. */
static int fill_slot(struct carried *c, const struct hw_piece *piece, uint32_t n, uint64_t at)
{
    struct hw_conn *np = c->np;
    struct np_part part[PARTS];
    uint8_t head[HW_CHUNK_HEAD] = {0};
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

/* Gives the message in its slot to the plugin. -EBUSY: the device has not put all of it there. */
static int send_slot(struct carried *c)
{
    struct hw_conn *np = c->np;
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

static int64_t write_payload(struct hw_conn *conn, const struct hw_piece *piece, uint32_t n)
{
    struct carried *c = get_carried(conn);
    int64_t sum = 0;
    uint64_t at = 0; /* of the first piece, what was counted */
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

/* The slot has the bytes of what was not counted, wherever they are given from next. */
static int stop_reading(struct hw_conn *conn)
{
    struct carried *c = get_carried(conn);
    return c->pending ? np_slots_settle(&c->np->slots) : 0;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static int64_t read_heads(struct hw_conn *conn, const struct hw_piece *piece, uint32_t n)
{
    return hw_tcp_io.read(get_carried(conn)->heads, piece, n);
}

/* The next message, and its length. -EAGAIN: the event is rung once it is there; -EBUSY. */
static int get_message(struct carried *c)
{
    struct hw_conn *np = c->np;
    const uint8_t *head;
    int rc;
    while ((rc = np_conn_collect(np)) == -EAGAIN) {
        rc = np_arm(np->rx);
        struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
        if (rc == -EAGAIN && poll(&p, 1, 0) > 0) /* nothing else would tell of it: heads are not read now */
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
        return hw_fail(-EPROTO, "a message of %zu bytes of the plugin's for %u of payload", r->size, c->len);
    c->has_message = true;
    return 0;
}

/* The slot goes back, to be filled again. */
static int end_message(struct carried *c)
{
    struct hw_conn *np = c->np;
    int rc = np_consumed(np->rx);
    if (rc == 0)
        rc = np_slots_post(&np->slots, np->taken);
    np->taken++;
    c->has_message = false;
    return rc;
}

static int64_t read_payload(struct hw_conn *conn, const struct hw_piece *piece, uint32_t n)
{
    struct carried *c = get_carried(conn);
    struct hw_conn *np = c->np;
    int64_t sum = 0;
    uint64_t at = 0; /* of the first piece */
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

static int discard_payload(struct hw_conn *conn)
{
    return np_slots_cut(&get_carried(conn)->np->slots);
}

static int settle_heads(struct hw_conn *conn)
{
    return hw_tcp_io.settle(get_carried(conn)->heads);
}

/* ---- the rest ------------------------------------------------------------------------------------------------------
 */

static int check_carried(struct hw_conn *conn, uint64_t *window)
{
    struct carried *c = get_carried(conn);
    int rc = c->np ? np_health(c->np->host) : 0;
    /* what failed after all was given to the plugin rings for nobody */
    if (rc == 0 && c->np)
        rc = np_conn_reclaim(c->np);
    uint64_t heads = UINT64_MAX;
    return rc < 0 ? rc : hw_tcp_io.check(c->heads, c->np ? &heads : window);
}

static const struct hw_rail_io carried_io = {.attach = attach_carried,
                                             .write = write_heads,
                                             .read = read_heads,
                                             .settle = settle_heads,
                                             .close = close_carried,
                                             .check = check_carried,
                                             .apart = get_apart,
                                             .write_apart = write_payload,
                                             .read_apart = read_payload,
                                             .discard = discard_payload,
                                             .stop_reading = stop_reading};

const struct hw_carrier hw_netplugin_carrier = {
    .io = &carried_io, .make = make_carried, .meet = meet_carried, .meeting_fd = get_meeting_fd};

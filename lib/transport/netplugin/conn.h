/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the netplugin transport: meet.c makes the two plugins meet, netplugin.c drives it for lib/engine,
 * carrier.c under a rail. */
#ifndef HW_NETPLUGIN_CONN_H
#define HW_NETPLUGIN_CONN_H

#include "transport/netplugin/host/host.h"
#include "transport/netplugin/slots.h"
#include "transport/transport.h"

#include <stdatomic.h>

#define NP_SLOT_MAX (4u << 20)

struct hw_conn {
    struct hw_conn *tcp; /* of the tcp transport: opaque here */
    bool heads_follow;   /* carrier.c: what comes behind the greetings on tcp's socket are heads of frames */
    struct np_host *host;
    int fd;        /* tcp's */
    int set;       /* epoll, for the engine */
    int event;     /* both comms ring it */
    bool tcp_news; /* something has happened on the socket */
    enum { TCP, GREET, JOIN, READY } state;
    uint64_t deadline, request_ms;
    const struct hw_tp_env *env;
    bool server, unpacks; /* server: the client greets first, and says which GPUs the connection is for */
    uint8_t out[HW_PLUGIN_GREET], in[HW_PLUGIN_GREET_MOST];
    unsigned out_done, in_have, dev;
    struct hw_plugin_greet peer; /* once it is there */
    bool greeted;
    int gpu, peer_gpu; /* -1: not said */
    struct np_listener *listener;
    struct np_comm *tx, *rx;
    uint32_t slot, nslots; /* bytes of one; each way */
    struct np_slots slots;

    /* Send ring, all counts ever: over at the plugin <= given to it <= filled <= posted by the engine; and what that
     * has released. */
    uint64_t posted, filled, given, over, released;
    struct {
        uint8_t head[HW_CHUNK_HEAD];
        const struct hw_space *space;
        const void *ptr;
        uint32_t len;
    } send[NP_SLOTS];
    _Atomic uint64_t sent; /* given, for other threads */

    /* Receive: the oldest slot. */
    uint64_t came, taken; /* messages; slots given back */
    struct np_result result[NP_SLOTS];
    enum { HEAD, HEAD_SEEN, BODY, BODY_DONE } rx_state;
    uint32_t rx_at, rx_len; /* of the payload: copied so far; the piece that was posted */
    const struct hw_space *rx_space;
    void *rx_ptr; /* NULL: nowhere */
};

/* The longest message: whole pages, no more than the plugin takes. The pages of a slot that are not used cost nothing.
 */
uint32_t np_conn_slot(const struct np_props *p);
/* All but the tcp connection, over fd and from nic; fd stays the caller's. -errno. */
int np_conn_new(const struct hw_tp_env *env, int fd, const char *nic, struct hw_conn **out);
/* Frees that, after np_conn_close_plugin() where it was READY or on the way there. */
void np_conn_free(struct hw_conn *c);
void np_conn_close_plugin(struct hw_conn *c);
/* Takes note of what has happened at c->set. */
void np_conn_listen(struct hw_conn *c);
/* On towards READY: 0, -EAGAIN, else it is dead. */
int np_conn_advance(struct hw_conn *c);
/* Takes note of what the plugin has sent, whose slots are free. -errno: it is dead. */
int np_conn_reclaim(struct hw_conn *c);
/* Takes note of messages that have come: 0 there is one; -EAGAIN; else why there will be no more. */
int np_conn_collect(struct hw_conn *c);

/* Both greetings, the client's first, as far as the socket goes; then the plugin's connections are begun: 0, -EAGAIN,
 * or why not. */
int np_conn_greet(struct hw_conn *c);
/* 0 both connections of the plugin stand, and have their slots; -EAGAIN, or why not. */
int np_conn_join(struct hw_conn *c);

#endif

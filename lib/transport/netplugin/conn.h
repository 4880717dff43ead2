/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the netplugin transport: meet.c makes the two plugins meet, netplugin.c does all else. */
#ifndef HW_NETPLUGIN_CONN_H
#define HW_NETPLUGIN_CONN_H

#include "transport/netplugin/host/host.h"
#include "transport/netplugin/slots.h"
#include "transport/transport.h"

#include <stdatomic.h>

struct hw_conn {
    struct hw_conn *tcp; /* of the tcp transport: opaque here */
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

/* Both greetings, the client's first, as far as the socket goes; then the plugin's connections are begun: 0, -EAGAIN,
 * or why not. */
int np_conn_greet(struct hw_conn *c);
/* 0 both connections of the plugin stand, and have their slots; -EAGAIN, or why not. */
int np_conn_join(struct hw_conn *c);

#endif

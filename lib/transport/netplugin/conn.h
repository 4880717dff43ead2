/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's part of a connection of transport netplugin: meet.c makes the two plugins meet, netplugin.c moves
 * payloads. */
#ifndef HW_NETPLUGIN_CONN_H
#define HW_NETPLUGIN_CONN_H

#include "transport/netplugin/host/host.h"
#include "transport/netplugin/slots.h"
#include "transport/transport.h"

#include <stdatomic.h>

#define NP_SLOT_MAX (4u << 20)

struct np_conn {
    struct np_host *host;
    int fd;        /* of the socket that carries the greetings, then heads of frames */
    int set;       /* epoll, of both, while the two plugins meet */
    int event;     /* both comms ring it */
    bool tcp_news; /* something has happened on the socket */
    enum { GREET, JOIN, READY } state;
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

    uint64_t filled, given, over; /* messages sent: put into slots, given to the plugin, over there */
    uint64_t came, taken;         /* messages received; slots given back */
    struct np_result result[NP_SLOTS];
};

/* The longest message: whole pages, no more than the plugin takes. The pages of a slot that are not used cost nothing.
 */
uint32_t np_conn_slot(const struct np_props *p);
/* Over fd and from nic; fd stays the caller's. -errno. */
int np_conn_new(const struct hw_tp_env *env, int fd, const char *nic, struct np_conn **out);
/* Frees that, after np_conn_close_plugin() where it was READY or on the way there. */
void np_conn_free(struct np_conn *c);
void np_conn_close_plugin(struct np_conn *c);
/* Takes note of what has happened at c->set. */
void np_conn_listen(struct np_conn *c);
/* On towards READY: 0, -EAGAIN, else it is dead. */
int np_conn_advance(struct np_conn *c);
/* Takes note of what the plugin has sent, whose slots are free. -errno: it is dead. */
int np_conn_reclaim(struct np_conn *c);
/* Takes note of messages that have come: 0 there is one; -EAGAIN; else why there will be no more. */
int np_conn_collect(struct np_conn *c);

/* Both greetings, the client's first, as far as the socket goes; then the plugin's connections are begun: 0, -EAGAIN,
 * or why not. */
int np_conn_greet(struct np_conn *c);
/* 0 both connections of the plugin stand, and have their slots; -EAGAIN, or why not. */
int np_conn_join(struct np_conn *c);

#endif

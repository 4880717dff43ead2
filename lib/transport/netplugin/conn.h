/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's part of a connection of transport netplugin: meet.c connects the two plugins, netplugin.c moves
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
    int fd;        /* the socket that carries the greetings, then heads of frames */
    int set;       /* epoll for both while the two plugins connect */
    int event;     /* both comms signal it */
    bool tcp_news; /* there was an event on the socket */
    enum { GREET, JOIN, READY } state;
    uint64_t deadline, request_ms;
    const struct hw_tp_env *env;
    bool server, unpacks; /* server: the client greets first, and names the GPUs of the connection */
    uint8_t out[HW_PLUGIN_GREET], in[HW_PLUGIN_GREET_MOST];
    unsigned out_done, in_have, dev;
    struct hw_plugin_greet peer; /* valid once greeted */
    bool greeted;
    int gpu, peer_gpu; /* -1: not specified */
    struct np_listener *listener;
    struct np_comm *tx, *rx;
    uint32_t slot, nslots; /* bytes of a slot; slots in each direction */
    struct np_slots slots;

    uint64_t filled, given, over; /* messages sent: put into slots, passed to the plugin, complete */
    uint64_t came, taken;         /* messages received; slots returned */
    struct np_result result[NP_SLOTS];
};

/* Returns the size of the longest message: whole pages, no more than the plugin accepts. Unused pages of a slot cost
 * nothing. */
uint32_t np_conn_slot(const struct np_props *p);
/* Makes a connection over fd and from nic; the caller keeps fd. -errno. */
int np_conn_new(const struct hw_tp_env *env, int fd, const char *nic, struct np_conn **out);
/* Frees the connection; call np_conn_close_plugin() first if it reached GREET or later. */
void np_conn_free(struct np_conn *c);
void np_conn_close_plugin(struct np_conn *c);
/* Reads the events of c->set. */
void np_conn_listen(struct np_conn *c);
/* Advances towards READY: 0, -EAGAIN, else it is dead. */
int np_conn_advance(struct np_conn *c);
/* Frees the slots of messages that the plugin has sent. -errno: it is dead. */
int np_conn_reclaim(struct np_conn *c);
/* Collects received messages: 0: there is one; -EAGAIN; else why no more will come. */
int np_conn_collect(struct np_conn *c);

/* Exchanges both greetings, the client's first, as far as the socket allows; then starts the plugin's connections: 0,
 * -EAGAIN, or the error. */
int np_conn_greet(struct np_conn *c);
/* Returns 0 once both connections of the plugin are up and have their slots; -EAGAIN, or the error. */
int np_conn_join(struct np_conn *c);

#endif

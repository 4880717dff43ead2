/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's part of a connection of transport netplugin. meet.c connects the two plugins, and netplugin.c moves
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
    int fd;        /* socket that carries the greetings, and then frame headers and small payloads */
    int set;       /* epoll instance for fd and event while the two plugins connect */
    int event;     /* eventfd that both comms signal */
    bool tcp_news; /* an event occurred on the socket */
    enum { GREET, JOIN, READY } state;
    uint64_t deadline, request_ms;
    const struct hw_tp_env *env;
    bool server, unpacks; /* server: this side waits for the client's greeting, which contains the connection's GPUs */
    uint8_t out[HW_PLUGIN_GREET], in[HW_PLUGIN_GREET_MOST];
    unsigned out_done, in_have, dev;
    struct hw_plugin_greet peer; /* valid if greeted is true */
    bool greeted;
    int gpu, peer_gpu; /* -1 if not specified */
    struct np_listener *listener;
    struct np_comm *tx, *rx;
    uint32_t slot, nslots; /* bytes per slot, and slots in each direction */
    struct np_slots slots;

    uint64_t filled, given, over; /* messages sent: copied to slots, passed to the plugin, complete */
    uint64_t came, taken;         /* messages received, and slots returned */
    struct np_result result[NP_SLOTS];
};

/* Returns the maximum message size in bytes: the plugin's limit, but at most NP_SLOT_MAX, rounded down to whole pages.
 */
uint32_t np_conn_slot(const struct np_props *p);
/* Creates a connection over fd, from nic. The caller remains the owner of fd. Returns 0 or -errno. */
int np_conn_new(const struct hw_tp_env *env, int fd, const char *nic, struct np_conn **out);
/* Frees the connection. Call np_conn_close_plugin() first. */
void np_conn_free(struct np_conn *c);
void np_conn_close_plugin(struct np_conn *c);
/* Reads the events of c->set. */
void np_conn_listen(struct np_conn *c);
/* Advances towards READY. Returns 0, or -EAGAIN if the connection is not ready yet. After any other error the
 * connection is dead. */
int np_conn_advance(struct np_conn *c);
/* Frees the slots of messages that the plugin has sent. Returns 0, or -errno if the connection is dead. */
int np_conn_reclaim(struct np_conn *c);
/* Collects received messages. Returns 0 if a message is available, -EAGAIN if not yet, or another error if no more
 * messages will arrive. */
int np_conn_collect(struct np_conn *c);

/* Exchanges the greetings, the client's first, and then starts the plugin's connections. Returns 0, -EAGAIN, or the
 * error. */
int np_conn_greet(struct np_conn *c);
/* Returns 0 once both connections of the plugin are established and have their slots, -EAGAIN until then, or the error.
 */
int np_conn_join(struct np_conn *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every knob of the library in one table: name, type, default, bounds, unit, documentation. The environment
 * (HAWSER_<NAME>), the tool's --knob NAME=VALUE, hawser_options.knobs and the man page all come from it.
 */
#ifndef HW_KNOB_H
#define HW_KNOB_H

#include "base/base.h"

struct hw_knobs {
    uint64_t channels;        /* data connections per NIC pair */
    uint64_t chunk;           /* bytes: largest chunk */
    uint64_t min_chunk;       /* bytes: smallest chunk that a transfer's tail is cut into */
    uint64_t window;          /* requests posted and not confirmed, per channel */
    uint64_t threads;         /* progress threads; 0: by the machine */
    bool pin;                 /* pin progress threads near their NIC */
    uint64_t spin_us;         /* how long a waiter polls for a small message before it sleeps */
    uint64_t busy_us;         /* how long a progress thread polls after it had work */
    uint64_t inline_max;      /* bytes: messages up to this ride on the control connection */
    uint64_t sndbuf, rcvbuf;  /* bytes per data connection; 0: the kernel's autotuning */
    char transport[256];      /* "tcp", "devmem", "netplugin:PLUGIN" */
    char congestion[16];      /* "auto", "system", or an algorithm's name */
    bool splice;              /* send host memory by reference (vmsplice) where it pays */
    uint64_t stage;           /* bytes per connection and direction that GPU memory passes through */
    uint64_t stall_ms;        /* an unacknowledged path is dead after this */
    uint64_t peer_timeout_ms; /* a peer with no live control connection is dead after this */
    uint64_t handshake_ms;    /* deadline of each bootstrap message */
    uint64_t op_timeout_ms;   /* default deadline of an operation; 0: none */
    uint64_t keepalive_ms;    /* idle time before an idle connection is probed */
    uint64_t max_peers;       /* accepted at once */
    uint64_t max_ops;         /* operations pending per peer */
    uint64_t notify_queue;    /* notifications kept per peer */
    uint64_t unexpected;      /* bytes of messages kept per peer before their receive is posted */
    char devmem_socket[108];  /* hawserd's; empty: its usual place */
    char devmem_memory[16];   /* "auto", "host", "cuda:N" */
    uint64_t devmem_pool;     /* bytes of it per NIC */
    uint64_t devmem_queues;   /* per NIC */
    uint64_t devmem_piece;    /* bytes; 0: a page of the kernel's */
    bool require_direct;      /* no falling back to a way that is not the device path */
    char nics[256];           /* NICs to use, comma-separated; empty: by routes */
    char rails[1024];         /* which NICs may be joined: the text, or @FILE; empty: all with all */
    char advertise[512];      /* [NIC=]ADDRESS[:PORT], comma-separated: what peers are told instead of our own */
    uint64_t require_nics;    /* pairs that have to work for a connection to stand; 0: one */
    uint64_t path_ms;         /* how long a path is waited for when a peer is connected to */
    char same_machine[8];     /* "auto", "yes", "no": may a transport be used that needs two machines? */
    char plugin_devices[256]; /* "eth1=0,eth2=1": which device of a plugin's is which NIC's */
    char plugin_trace[256];   /* a file for every call into the plugin; empty: none */
    bool plugin_trace_polls;  /* with those that come to nothing */
    char plugin_unpack[8];    /* "kernel", "d2d", "host" */
    uint64_t plugin_spin_us;  /* how long the plugin's process polls before it sleeps */
    bool plugin_threads;      /* connections of a plugin's are made in a thread each */
};

/* Fills k: defaults, then the environment, then list ("name=value", NULL-terminated, or NULL).
 * -EINVAL with the bad name or value, its bounds and unit in the text; *k is then as before. HAWSER_* names in the
 * environment that are no knob's belong to others (HAWSER_NCCL_*) and are left alone. min_chunk is cut to chunk. */
int hw_knobs_load(struct hw_knobs *k, const char *const *list);

/* Sets one knob from text. As above. */
int hw_knob_set(struct hw_knobs *k, const char *name, const char *value);

/* The value of knob i as text into buf, for tables of what is in force. Returns false past the last. */
bool hw_knob_text(const struct hw_knobs *k, size_t i, const char **name, char *buf, size_t cap);

#endif

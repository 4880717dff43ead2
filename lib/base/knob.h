/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every knob of the library in one table: name, type, default, bounds, unit, documentation. The environment
 * (HAWSER_<NAME>), the tool's --knob NAME=VALUE, hawser_options.knobs and the man page all come from it.
 */
#ifndef HW_KNOB_H
#define HW_KNOB_H

#include "base/base.h"

#define HW_CHANNELS_LEAST 4 /* of a pair of NICs, where knob channels does not say */

struct hw_knobs {
    uint64_t channels;        /* connections per pair of NICs, besides those for small messages; 0: as it pays */
    uint64_t window;          /* bytes in flight on a connection that the peer has not confirmed */
    uint64_t threads;         /* progress threads; 0: by the CPUs */
    bool pin;                 /* pin progress threads near their NIC */
    uint64_t spin_us;         /* how long a caller who waits polls before it sleeps */
    uint64_t busy_us;         /* how long a progress thread polls after it had work */
    uint64_t sndbuf, rcvbuf;  /* bytes per connection; 0: the kernel's autotuning */
    char transport[256];      /* "tcp", "devmem", "netplugin:PLUGIN" */
    char congestion[16];      /* "auto", "system", or an algorithm's name */
    bool splice;              /* send host memory by reference (vmsplice) where it pays */
    uint64_t stage;           /* bytes per connection and direction that GPU memory passes through */
    uint64_t stall_ms;        /* a connection that is not acknowledged is dead after this */
    uint64_t peer_timeout_ms; /* a peer that was not heard on any rail is dead after this */
    uint64_t handshake_ms;    /* deadline of a handshake, and of each message of it */
    uint64_t op_timeout_ms;   /* of an operation that brings no deadline; 0: none */
    uint64_t keepalive_ms;    /* a silent peer is asked for a sign of life after this */
    uint64_t max_peers;       /* at once: no more are accepted */
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
    bool metrics;             /* answer on a local socket what was counted */
    char metrics_dir[200];    /* the folder for it; empty: the first of hw_rundir_path() */
    char metrics_kind[16];    /* what the context is for, as metrics show it */
};

/* Knob channels, or the least that it stands for. */
static inline uint64_t hw_knob_channels(const struct hw_knobs *k)
{
    return k->channels ? k->channels : HW_CHANNELS_LEAST;
}

/* Fills k: defaults, then the environment, then list ("name=value", NULL-terminated, or NULL).
 * -EINVAL with the bad name or value, its bounds and unit in the text; *k is then as before. HAWSER_* names in the
 * environment that are no knob's belong to others (HAWSER_NCCL_*) and are left alone, but those of
 * knobs that are gone: a setting that does nothing any more is refused, with what to do instead in the text. */
int hw_knobs_load(struct hw_knobs *k, const char *const *list);

/* Sets one knob from text. As above. */
int hw_knob_set(struct hw_knobs *k, const char *name, const char *value);

/* The value of knob i as text into buf, for tables of what is in force. Returns false past the last. */
bool hw_knob_text(const struct hw_knobs *k, size_t i, const char **name, char *buf, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of the library's knobs: name, type, default, bounds, unit, documentation. The environment
 * (HAWSER_<NAME>), the tool's --knob NAME=VALUE, hawser_options.knobs and the man page use this table.
 */
#ifndef HW_KNOB_H
#define HW_KNOB_H

#include "base/base.h"

#define HW_CHANNELS_LEAST 4 /* connections per pair of NICs if knob channels is 0 */

struct hw_knobs {
    uint64_t channels; /* connections per pair of NICs, without those for small messages; 0: the library chooses */
    uint64_t window;   /* most unconfirmed bytes in flight on a connection */
    uint64_t threads;  /* progress threads; 0: the library chooses by the number of CPUs */
    bool pin;          /* pin progress threads near their NIC */
    uint64_t spin_us;  /* how long a waiting caller polls before it sleeps */
    uint64_t busy_us;  /* how long a progress thread polls after it had work */
    uint64_t sndbuf, rcvbuf;  /* bytes per connection; 0: the kernel's autotuning */
    char transport[256];      /* "tcp", "devmem", "netplugin:PLUGIN" */
    char congestion[16];      /* "auto", "system", or an algorithm's name */
    bool splice;              /* send host memory by reference (vmsplice) where that is faster */
    uint64_t stage;           /* bytes of pinned staging memory per connection and direction for GPU memory */
    uint64_t stall_ms;        /* a connection without acknowledgement for this long is dead */
    uint64_t peer_timeout_ms; /* a peer without traffic on any rail for this long is dead */
    uint64_t handshake_ms;    /* deadline of a handshake and of each of its messages */
    uint64_t op_timeout_ms;   /* deadline of operations that set none; 0: none */
    uint64_t keepalive_ms;    /* idle time after which a peer is probed */
    uint64_t max_peers;       /* most peers at a time; further ones are refused */
    char devmem_socket[108];  /* hawserd's socket; empty: the default path */
    char devmem_memory[16];   /* "auto", "host", "cuda:N" */
    uint64_t devmem_pool;     /* bytes of devmem memory per NIC */
    uint64_t devmem_queues;   /* per NIC */
    uint64_t devmem_piece;    /* bytes; 0: the kernel's page size */
    bool require_direct;      /* fail instead of falling back from the device path */
    char nics[256];           /* NICs to use, comma-separated; empty: by routes */
    char rails[1024];         /* which NICs may be paired: the text, or @FILE; empty: all with all */
    char advertise[512];   /* [NIC=]ADDRESS[:PORT], comma-separated: addresses told to peers instead of the NICs' own */
    uint64_t require_nics; /* pairs of NICs that must work for a connection to succeed; 0: one */
    uint64_t path_ms;      /* how long a connect waits for one path */
    char same_machine[8];  /* "auto", "yes", "no": may transports be used that need two machines */
    char plugin_devices[256]; /* "eth1=0,eth2=1": the plugin's device number of each NIC */
    char plugin_trace[256];   /* file that receives every call into the plugin; empty: none */
    bool plugin_trace_polls;  /* trace polls without a result too */
    char plugin_unpack[8];    /* "kernel", "d2d", "host" */
    uint64_t plugin_spin_us;  /* how long the plugin's process polls before it sleeps */
    bool plugin_threads;      /* make each connection of a plugin in its own thread */
    bool metrics;             /* serve the counters on a local socket */
    char metrics_dir[200];    /* folder of that socket; empty: the first of hw_rundir_path() */
    char metrics_kind[16];    /* purpose of the context, shown in metrics */
};

/* Returns knob channels, or its least value if the knob is 0. */
static inline uint64_t hw_knob_channels(const struct hw_knobs *k)
{
    return k->channels ? k->channels : HW_CHANNELS_LEAST;
}

/* Fills k from the defaults, then the environment, then list ("name=value", NULL-terminated, or NULL). -EINVAL with the
 * bad name or value, its bounds and unit in the text; *k is unchanged then. Ignores HAWSER_* variables that are no
 * knobs (HAWSER_NCCL_*), but refuses those of removed knobs, because the setting would have no effect; the text says
 * what to do instead. */
int hw_knobs_load(struct hw_knobs *k, const char *const *list);

/* Sets one knob from text. Errors as hw_knobs_load(). */
int hw_knob_set(struct hw_knobs *k, const char *name, const char *value);

/* Writes the value of knob i as text into buf, for tables of the values in force. Returns false past the last knob. */
bool hw_knob_text(const struct hw_knobs *k, size_t i, const char **name, char *buf, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's knobs. A single table in knob.c contains the name, type, default, bounds, unit and documentation of
 * each knob. The environment (HAWSER_<NAME>), the tool's --knob NAME=VALUE, hawser_options.knobs and the man page use
 * this table.
 */
#ifndef HW_KNOB_H
#define HW_KNOB_H

#include "base/base.h"

#define HW_CHANNELS_LEAST 4 /* minimum number of connections per pair of NICs if knob channels is 0 */

struct hw_knobs {
    uint64_t channels; /* connections per pair of NICs, except those for small messages; 0 if the library chooses */
    uint64_t window;   /* maximum number of unconfirmed bytes in flight on a connection */
    uint64_t threads;  /* progress threads; 0 if the library chooses based on the number of CPUs */
    bool pin;          /* pin progress threads to CPUs near their NIC */
    uint64_t spin_us;  /* time in us that a waiting caller polls before it sleeps */
    uint64_t busy_us;  /* maximum time in us that a progress thread polls for more work before it sleeps */
    /* Mbit/s in one direction; from this rate to twice this rate, progress threads do not poll; 0 for no limit */
    uint64_t busy_below;
    uint64_t sndbuf, rcvbuf;  /* bytes per connection; 0 for the kernel's autotuning */
    char transport[256];      /* "tcp", "devmem" or "netplugin:PLUGIN" */
    char congestion[16];      /* "auto", "system", or the name of an algorithm */
    bool splice;              /* send host memory by reference (vmsplice) where this is faster */
    uint64_t stage;           /* bytes of pinned staging memory for GPU memory, per connection and direction */
    uint64_t stall_ms;        /* time without acknowledgement after which a connection is dead */
    uint64_t peer_timeout_ms; /* time without traffic on any rail after which a peer is dead */
    uint64_t handshake_ms;    /* deadline of a handshake and of each of its messages */
    uint64_t op_timeout_ms;   /* deadline of operations, except receives, that specify none; 0 for no deadline */
    uint64_t keepalive_ms;    /* idle time after which a peer is sent a keepalive */
    uint64_t max_peers;       /* maximum number of peers at a time; further incoming peers are refused */
    char devmem_socket[108];  /* path of hawserd's socket; "" for the default path */
    char devmem_memory[16];   /* "auto", "host" or "cuda:N" */
    uint64_t devmem_pool;     /* bytes of devmem memory per NIC and GPU */
    uint64_t devmem_queues;   /* receive queues per NIC and GPU */
    uint64_t devmem_piece;    /* size of the pieces that NICs fill, in bytes; 0 for the kernel's page size */
    bool require_direct;      /* fail instead of falling back from the device path */
    char nics[1024];          /* up to 64 NICs to use, comma-separated; "" for all NICs with a route */
    char rails[1024];         /* NICs that may be paired, as text or @FILE; "" for no restriction */
    char advertise[512];   /* comma-separated [NIC=]ADDRESS[:PORT] that peers use in place of the NICs' own addresses */
    uint64_t require_nics; /* minimum number of pairs of NICs that must work for a connection to succeed; 0 for one */
    uint64_t path_ms;      /* maximum time that a connect waits for a path */
    char same_machine[8];  /* "auto", "yes" or "no": whether to connect to a peer on this machine */
    char plugin_devices[256]; /* the plugin's device number for each NIC, such as "eth1=0,eth2=1" */
    char plugin_trace[256];   /* file to which the calls into the plugin are appended; "" for none */
    bool plugin_trace_polls;  /* also trace polls without a result */
    char plugin_unpack[8];    /* "kernel", "d2d" or "host" */
    uint64_t plugin_spin_us;  /* time in us that the plugin's process polls before it sleeps */
    bool plugin_threads;      /* set up each connection of a plugin in a separate thread */
    bool metrics;             /* serve the counters on a local socket */
    char metrics_dir[200];    /* folder of the metrics socket; "" for the first usable folder of hw_rundir_path() */
    char metrics_kind[16];    /* purpose of the context, shown in the metrics */
};

/* Returns the value of knob channels, or the minimum if the knob is 0. */
static inline uint64_t hw_knob_channels(const struct hw_knobs *k)
{
    return k->channels ? k->channels : HW_CHANNELS_LEAST;
}

/* Fills k from the defaults, then from the environment, then from list (NULL-terminated "name=value" strings, or NULL).
 * Fails with -EINVAL if a name or value is bad, and then leaves *k unchanged. Ignores HAWSER_* variables that are not
 * knobs, such as HAWSER_NCCL_*, but rejects the variables of removed knobs, because they would have no effect. */
int hw_knobs_load(struct hw_knobs *k, const char *const *list);

/* Sets one knob from text. Fails with -EINVAL if the name or the value is bad, and then leaves *k unchanged. */
int hw_knob_set(struct hw_knobs *k, const char *name, const char *value);

/* Sets *name to the name of knob i and writes its value as text into buf. Returns false if there is no knob i. */
bool hw_knob_text(const struct hw_knobs *k, size_t i, const char **name, char *buf, size_t cap);

#endif

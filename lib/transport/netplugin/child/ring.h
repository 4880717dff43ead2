/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What parent and child share: one sealed memfd, and the messages on the socket between them.
 *
 * The parent takes nothing in here on trust, for the child runs a stranger's code that can write all of it: it reads a
 * value once, checks it against what it keeps to itself, and only then uses it (check.c). Neither the offsets nor the
 * sizes that it uses come from here.
 *
 * A connection's direction is a ring of NP_RING requests and counters that only rise: posted >= started >= done, and
 * for receives done >= consumed (by the caller). All orders are FIFO, so nothing else is needed: request n lies in
 * entry n % NP_RING until it is done (sends) or consumed (receives).
 */
#ifndef HW_NETPLUGIN_RING_H
#define HW_NETPLUGIN_RING_H

#include "base/base.h"
#include "mem/cuda.h"
#include "transport/netplugin/table/abi.h"

#include <stdatomic.h>

enum {
    NP_RING = NCCL_NET_MAX_REQUESTS,
    NP_COMMS = 1024,  /* listeners, connections' directions: at once */
    NP_MEMS = 1024,   /* memory shared with the child */
    NP_MRS = 16384,   /* registrations */
    NP_DEVICES = 64,  /* more are not looked at */
    NP_LOG = 1 << 20, /* bytes of output that are kept at least */
    NP_TEXT = 200,    /* of one error */
    NP_FRAGS = NET_UNPACK_MAX_SLICE_PAGES,
};

/* What the child is doing in the plugin, for the day on which it does not come back. */
enum np_call {
    NP_NOTHING, /* not in the plugin */
    NP_DLOPEN,
    NP_INIT,
    NP_GETDEVICES,
    NP_PROPERTIES,
    NP_LISTEN,
    NP_CONNECT,
    NP_ACCEPT,
    NP_REGMR,
    NP_DEREGMR,
    NP_ISEND,
    NP_IRECV,
    NP_TEST,
    NP_FLUSH,
    NP_UNPACK,
    NP_CONSUMED,
    NP_CLOSE,
    NP_FINALIZE,
    NP_DLCLOSE,
    NP_CALLS
};
extern const char *const np_call_names[NP_CALLS];

struct np_entry {
    /* The parent's. */
    uint32_t mr;
    int32_t tag;
    uint64_t offset, len; /* in the registration */
    /* The child's. */
    uint64_t size;  /* what test() said, or the fragments' sum */
    uint32_t known; /* ... if it was said */
    uint32_t frags;
    uint64_t nulls; /* how often the plugin gave no request for it */
    uint64_t pad[2];
};
_Static_assert(sizeof(struct np_entry) == 64, "a cache line");

enum np_state { NP_OPENING = 1, NP_OPEN, NP_FAILED };

struct np_ring {
    /* The parent's. */
    _Alignas(64) _Atomic uint64_t posted;
    _Atomic uint64_t consumed;
    _Alignas(64) _Atomic uint32_t armed; /* by the parent: the eventfd is to be rung. Only exchanged, by both */
    /* The child's. */
    _Alignas(64) _Atomic uint64_t started;
    _Atomic uint64_t done;
    _Atomic uint32_t state; /* enum np_state */
    int32_t rc;             /* -errno, with NP_FAILED */
    char text[NP_TEXT];     /* ... and why */
    struct np_entry entry[NP_RING];
};

struct np_shared {
    /* The parent's. */
    _Alignas(64) _Atomic uint32_t bell; /* futex: the child sleeps on it */
    _Atomic uint32_t messages;          /* on the socket, sent so far */
    /* The child's. */
    _Alignas(64) _Atomic uint32_t asleep; /* only read by operations that write, too: see np_wake() */
    _Alignas(64) _Atomic uint64_t beat;   /* rises with each round of its loop */
    _Atomic uint32_t doing;               /* enum np_call */
    _Atomic uint32_t joining;             /* ... of the threads that make connections: the last one to begin */
    _Atomic uint32_t hung;                /* ... in which one of these has been for too long */
    struct np_ring ring[NP_COMMS];
};

/* Where a receive's fragments are shown to the parent: one memfd for each receiving connection that unpacks. */
struct np_frag_area {
    struct loadMeta list[NP_RING][NP_FRAGS];
};

/* ---- messages: one datagram each on a SOCK_SEQPACKET pair, each answered by one -------------- */

enum np_op {
    NP_OP_LOAD = 1, /* the library and its table: nothing of it is called yet */
    NP_OP_INIT,
    NP_OP_PROPERTIES, /* number: the device */
    NP_OP_LISTEN,     /* slot; number: the device; memory: the GPU that is set, UINT32_MAX: none */
    NP_OP_CONNECT,    /* slot; number: the device; memory: likewise; handle; deadline; the eventfd */
    NP_OP_ACCEPT,     /* slot; number: the listener's slot; deadline; the eventfd, and perhaps the fragments' memfd */
    NP_OP_CLOSE,      /* slot */
    NP_OP_MAP,        /* number: the memory; len, at offset of the file that comes along */
    NP_OP_GPU,        /* number: the device; memory: the GPU that is asked for, UINT32_MAX: the nearest */
    NP_OP_ALLOC,      /* number: the memory; len, on the GPU `memory`, of the child's own */
    NP_OP_UNMAP,      /* number: the memory */
    NP_OP_REG,        /* slot; number: the registration; memory; offset, len */
    NP_OP_DEREG,      /* number: the registration */
    NP_OP_QUIT,
};

struct np_message {
    uint32_t op, seq;
    uint32_t slot, number, memory, pad;
    uint64_t offset, len, deadline;
    uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
};

/* A device, as the plugin's properties have it. */
struct np_device {
    char name[64], pci[128];
    uint64_t guid, max_bytes; /* of one request, as the plugin says */
    float latency;            /* us */
    int32_t ptr_support, speed, port, max_comms, max_recvs, type, type_version, reg_is_global;
};

struct np_hello {
    uint32_t version, devices;
    char table[64];
};

/* GPU memory of the child's, for the parent to open. */
struct np_gpu {
    CUipcMemHandle handle;
    uint64_t offset;
    int32_t device; /* NP_OP_GPU's answer: which it is */
    int32_t pad;
};

struct np_reply {
    uint32_t seq;
    int32_t rc; /* 0 or -errno, and then: */
    char text[NP_TEXT];
    union {
        struct np_hello hello;
        struct np_device device;
        struct np_gpu gpu;
        uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
    } u;
};

/* ---- check.c: what comes from the child, before anything is done with it --------------------- */

/* A reply of n bytes to message seq: 0 or -EPROTO. Then out->rc is 0 or -errno, and the texts within end. */
int np_check_reply(const void *bytes, size_t n, uint32_t seq, enum np_op op, struct np_reply *out);

/* A counter of the child's: between the last value seen and the most there can be. */
int np_check_counter(const char *what, uint64_t value, uint64_t least, uint64_t most);

/* Copies n entries of a receive's list and checks them: each within a bounce buffer of any size, and within the len
 * bytes that were posted. *size: their sum. -EPROTO. */
int np_check_frags(const struct loadMeta *list, uint32_t n, uint64_t len, struct loadMeta *out, uint64_t *size);

/* The last lines of the n bytes of text, as one line of at most cap - 1 bytes: " | " between them, what no terminal
 * should see taken out. Returns buf. */
char *np_log_line(const char *text, size_t n, char *buf, size_t cap);

/* ---- child.c --------------------------------------------------------------------------------- */

struct np_child {
    struct np_shared *shared;
    const char *plugin; /* path or name */
    int socket, log;    /* log: a file that only grows, and is emptied from its start */
    int warnings;       /* the same, of the plugin's own warnings alone */
    int parent;         /* its pid */
    unsigned newest;    /* table */
    unsigned spin_us;   /* before it naps between two looks */
    unsigned call_ms;   /* what a connect or an accept may take beyond what is known of the plugin's */
    bool one_thread, trace_polls;
    int trace;  /* a file; -1: none */
    int unpack; /* enum hw_gather_way */
};
/* The child's whole life, from fork() on. */
void np_child_main(const struct np_child *c) __attribute__((noreturn));

#endif

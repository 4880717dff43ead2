/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that parent and child share (one sealed memfd), and the messages on the socket between them.
 *
 * The parent trusts nothing in here, because the child runs foreign code that can write all of it: it reads a value
 * once, checks it against private state, and only then uses it (check.c). The offsets and sizes that it uses do not
 * come from here.
 *
 * A direction of a connection is a ring of NP_RING requests with counters that only grow: posted >= started >= done,
 * and for receives done >= consumed (by the caller). Everything is FIFO: request n is in entry n % NP_RING until it is
 * done (sends) or consumed (receives).
 */
#ifndef HW_NETPLUGIN_RING_H
#define HW_NETPLUGIN_RING_H

#include "base/base.h"
#include "mem/cuda.h"
#include "transport/netplugin/table/abi.h"

#include <stdatomic.h>

enum {
    NP_RING = NCCL_NET_MAX_REQUESTS,
    NP_COMMS = 1024,  /* listeners and connection directions at a time */
    NP_MEMS = 1024,   /* blocks of memory shared with the child */
    NP_MRS = 16384,   /* registrations */
    NP_DEVICES = 64,  /* further devices are ignored */
    NP_LOG = 1 << 20, /* least bytes of output that are kept */
    NP_TEXT = 200,    /* of one error */
    NP_FRAGS = NET_UNPACK_MAX_SLICE_PAGES,
};

/* The plugin call that the child is in, to report a call that does not return. */
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
    uint64_t offset, len; /* within the registration */
    /* The child's. */
    uint64_t size;  /* as test() reported it, or the sum of the fragments */
    uint32_t known; /* whether size was reported */
    uint32_t frags;
    uint64_t nulls; /* how often the plugin returned no request for it */
    uint64_t pad[2];
};
_Static_assert(sizeof(struct np_entry) == 64, "a cache line");

enum np_state { NP_OPENING = 1, NP_OPEN, NP_FAILED };

struct np_ring {
    /* The parent's. */
    _Alignas(64) _Atomic uint64_t posted;
    _Atomic uint64_t consumed;
    _Alignas(64) _Atomic uint32_t armed; /* set by the parent: signal the eventfd. Both sides only exchange it */
    /* The child's. */
    _Alignas(64) _Atomic uint64_t started;
    _Atomic uint64_t done;
    _Atomic uint32_t state; /* enum np_state */
    int32_t rc;             /* -errno, with NP_FAILED */
    char text[NP_TEXT];     /* reason for rc */
    struct np_entry entry[NP_RING];
};

struct np_shared {
    /* The parent's. */
    _Alignas(64) _Atomic uint32_t bell; /* futex: the child sleeps on it */
    _Atomic uint32_t messages;          /* sent on the socket so far */
    /* The child's. */
    _Alignas(64) _Atomic uint32_t asleep; /* operations that only read it write too: see np_wake() */
    _Alignas(64) _Atomic uint64_t beat;   /* incremented in each round of the loop */
    _Atomic uint32_t doing;               /* enum np_call */
    _Atomic uint32_t joining;             /* the same of the threads that make connections: the last call begun */
    _Atomic uint32_t hung;                /* the call in which such a thread has been for too long */
    struct np_ring ring[NP_COMMS];
};

/* Shows the fragments of receives to the parent: one memfd for each receiving connection that unpacks. */
struct np_frag_area {
    struct loadMeta list[NP_RING][NP_FRAGS];
};

/* ---- messages: one datagram each on a SOCK_SEQPACKET pair, each answered by one -------------- */

enum np_op {
    NP_OP_LOAD = 1, /* loads the library and its table; calls none of its functions */
    NP_OP_INIT,
    NP_OP_PROPERTIES, /* number: the device */
    NP_OP_LISTEN,     /* slot; number: the device; memory: the GPU to set, UINT32_MAX: none */
    NP_OP_CONNECT,    /* slot; number: the device; memory: likewise; handle; deadline; the eventfd */
    NP_OP_ACCEPT,     /* slot; number: the listener's slot; deadline; the eventfd, and perhaps the fragments' memfd */
    NP_OP_CLOSE,      /* slot */
    NP_OP_MAP,        /* number: the memory; len, at offset of the attached file */
    NP_OP_GPU,        /* number: the device; memory: the requested GPU, UINT32_MAX: the nearest */
    NP_OP_ALLOC,      /* number: the memory; allocates len bytes on GPU `memory` */
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

/* A device, from the plugin's properties. */
struct np_device {
    char name[64], pci[128];
    uint64_t guid, max_bytes; /* max_bytes: of one request, as the plugin reports it */
    float latency;            /* us */
    int32_t ptr_support, speed, port, max_comms, max_recvs, type, type_version, reg_is_global;
};

struct np_hello {
    uint32_t version, devices;
    char table[64];
};

/* GPU memory of the child, for the parent to open. */
struct np_gpu {
    CUipcMemHandle handle;
    uint64_t offset;
    int32_t device; /* answer to NP_OP_GPU: the GPU's number */
    int32_t pad;
};

struct np_reply {
    uint32_t seq;
    int32_t rc; /* 0 or -errno; then: */
    char text[NP_TEXT];
    union {
        struct np_hello hello;
        struct np_device device;
        struct np_gpu gpu;
        uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
    } u;
};

/* ---- check.c: checks of everything that comes from the child ----------------------------------- */

/* Checks a reply of n bytes to message seq: 0 or -EPROTO. out->rc is then 0 or -errno, and the texts are terminated. */
int np_check_reply(const void *bytes, size_t n, uint32_t seq, enum np_op op, struct np_reply *out);

/* Checks a counter of the child: between the last value seen and the largest possible. */
int np_check_counter(const char *what, uint64_t value, uint64_t least, uint64_t most);

/* Copies n entries of a receive's list and checks them: each within a bounce buffer of any size, and within the len
 * bytes that were posted. *size: their sum. -EPROTO. */
int np_check_frags(const struct loadMeta *list, uint32_t n, uint64_t len, struct loadMeta *out, uint64_t *size);

/* Writes the last lines of the n bytes of text as one line of at most cap - 1 bytes: joined by " | ", without
 * characters that a terminal should not receive. Returns buf. */
char *np_log_line(const char *text, size_t n, char *buf, size_t cap);

/* ---- child.c --------------------------------------------------------------------------------- */

struct np_child {
    struct np_shared *shared;
    const char *plugin; /* path or name */
    int socket, log;    /* log: a file that only grows, and whose beginning is freed */
    int warnings;       /* likewise, for the plugin's own warnings */
    int parent;         /* its pid */
    unsigned newest;    /* table */
    unsigned spin_us;   /* of polling before it sleeps between two checks */
    unsigned call_ms;   /* longest time for a connect or an accept beyond the plugin's known sleep */
    bool one_thread, trace_polls;
    int trace;  /* a file; -1: none */
    int unpack; /* enum hw_gather_way */
};
/* Runs the child from fork() to its end. */
void np_child_main(const struct np_child *c) __attribute__((noreturn));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that the parent and the child share (one sealed memfd), and the messages on the socket between them.
 *
 * The child runs foreign code that can write to all of this memory, so the parent does not trust its contents. The
 * parent reads a value once, checks the value against private state, and only then uses it (check.c).
 *
 * A direction of a connection is a ring of NP_RING requests with counters that only increase: posted >= started >=
 * done, and for receives done >= consumed (by the caller). Requests are processed in FIFO order. Request n is in entry
 * n % NP_RING until it is done (sends) or consumed (receives).
 */
#ifndef HW_NETPLUGIN_RING_H
#define HW_NETPLUGIN_RING_H

#include "base/base.h"
#include "mem/cuda.h"
#include "transport/netplugin/table/abi.h"

#include <stdatomic.h>

enum {
    NP_RING = NCCL_NET_MAX_REQUESTS,
    NP_COMMS = 1024,  /* maximum number of listeners and connection directions */
    NP_MEMS = 1024,   /* maximum number of memory blocks shared with the child */
    NP_MRS = 16384,   /* maximum number of registrations */
    NP_DEVICES = 64,  /* maximum number of devices; the rest are ignored */
    NP_LOG = 1 << 20, /* minimum number of output bytes that are kept */
    NP_TEXT = 200,    /* size of an error text */
    NP_FRAGS = NET_UNPACK_MAX_SLICE_PAGES,
};

/* Plugin call that the child is in. Used to report a call that hangs or ends the child. */
enum np_call {
    NP_NOTHING, /* outside the plugin */
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
    /* Written by the parent. */
    uint32_t mr;
    int32_t tag;
    uint64_t offset, len; /* range within the registration */
    /* Written by the child. */
    uint64_t size;  /* size reported by test(), or the sum of the fragments */
    uint32_t known; /* nonzero if size is valid */
    uint32_t frags;
    uint64_t nulls; /* number of attempts for which the plugin returned no request; reset by the parent */
    uint64_t pad[2];
};
_Static_assert(sizeof(struct np_entry) == 64, "a cache line");

enum np_state { NP_OPENING = 1, NP_OPEN, NP_FAILED };

struct np_ring {
    /* Written by the parent. */
    _Alignas(64) _Atomic uint64_t posted;
    _Atomic uint64_t consumed;
    _Alignas(64) _Atomic uint32_t
        armed; /* set by the parent to request a signal on the eventfd; both sides change it only with an exchange */
    /* Written by the child. */
    _Alignas(64) _Atomic uint64_t started;
    _Atomic uint64_t done;
    _Atomic uint32_t state; /* enum np_state */
    int32_t rc;             /* -errno if state is NP_FAILED */
    char text[NP_TEXT];     /* reason for rc */
    struct np_entry entry[NP_RING];
};

struct np_shared {
    /* Written by the parent. */
    _Alignas(64) _Atomic uint32_t bell; /* futex on which the child sleeps */
    _Atomic uint32_t messages;          /* number of messages sent on the socket */
    /* Written by the child. */
    _Alignas(64) _Atomic uint32_t asleep; /* np_wake() reads it with a read-modify-write operation */
    _Alignas(64) _Atomic uint64_t beat;   /* incremented in each round of the loop */
    _Atomic uint32_t doing;               /* enum np_call */
    _Atomic uint32_t joining;             /* enum np_call: last call entered by a thread that sets up a connection */
    _Atomic uint32_t hung;                /* enum np_call: call in which such a thread exceeded its time limit */
    struct np_ring ring[NP_COMMS];
};

/* Publishes the fragments of receives to the parent, in one memfd for each receiving connection that unpacks. */
struct np_frag_area {
    struct loadMeta list[NP_RING][NP_FRAGS];
};

/* ---- messages: datagrams on a SOCK_SEQPACKET pair, each with one reply ---------------------------- */

enum np_op {
    NP_OP_LOAD = 1, /* loads the library and finds its table, but calls no function of the table */
    NP_OP_INIT,
    NP_OP_PROPERTIES, /* number: device */
    NP_OP_LISTEN,     /* slot; number: device; memory: GPU to make current, or UINT32_MAX for none */
    NP_OP_CONNECT,    /* slot; number: device; memory: as for NP_OP_LISTEN; handle; deadline; descriptor: the eventfd */
    NP_OP_ACCEPT, /* slot; number: slot of the listener; deadline; descriptors: the eventfd and optionally the memfd of
                     the fragments */
    NP_OP_CLOSE,  /* slot */
    NP_OP_MAP,    /* number: memory; len bytes at offset in the attached file */
    NP_OP_GPU,    /* number: device; memory: requested GPU, or UINT32_MAX for the nearest */
    NP_OP_ALLOC,  /* number: memory; allocates len bytes on GPU `memory` */
    NP_OP_UNMAP,  /* number: memory */
    NP_OP_REG,    /* slot; number: registration; memory; offset; len */
    NP_OP_DEREG,  /* number: registration */
    NP_OP_QUIT,
};

struct np_message {
    uint32_t op, seq;
    uint32_t slot, number, memory, pad;
    uint64_t offset, len, deadline;
    uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
};

/* Properties of a device as reported by the plugin. */
struct np_device {
    char name[64], pci[128];
    uint64_t guid, max_bytes; /* max_bytes: maximum size of one request */
    float latency;            /* in us */
    int32_t ptr_support, speed, port, max_comms, max_recvs, type, type_version, reg_is_global;
};

struct np_hello {
    uint32_t version, devices;
    char table[64];
};

/* GPU memory allocated by the child, to be opened by the parent. */
struct np_gpu {
    CUipcMemHandle handle;
    uint64_t offset;
    int32_t device; /* number of the GPU in a reply to NP_OP_GPU */
    int32_t pad;
};

struct np_reply {
    uint32_t seq;
    int32_t rc; /* 0, or -errno with the reason in text */
    char text[NP_TEXT];
    union {
        struct np_hello hello;
        struct np_device device;
        struct np_gpu gpu;
        uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
    } u;
};

/* ---- check.c: checks of data from the child ----------------------------------------------------- */

/* Checks a reply of n bytes to message seq. Returns 0 or -EPROTO. On success, out->rc is 0 or -errno, and all strings
 * are terminated. */
int np_check_reply(const void *bytes, size_t n, uint32_t seq, enum np_op op, struct np_reply *out);

/* Checks that a counter of the child is between the last value seen and the largest possible value. */
int np_check_counter(const char *what, uint64_t value, uint64_t least, uint64_t most);

/* Copies n entries of a receive's list and checks that each entry is within the len posted bytes. The size of the
 * bounce buffer is not checked. Returns the sum of the lengths in *size. Fails with -EPROTO or -EMSGSIZE for invalid
 * entries. */
int np_check_frags(const struct loadMeta *list, uint32_t n, uint64_t len, struct loadMeta *out, uint64_t *size);

/* Writes the last lines of the n bytes of text as one line of at most cap - 1 bytes. Lines are joined by " | ", and
 * control characters are replaced. Returns buf. */
char *np_log_line(const char *text, size_t n, char *buf, size_t cap);

/* ---- child.c --------------------------------------------------------------------------------- */

struct np_child {
    struct np_shared *shared;
    const char *plugin; /* path or name */
    int socket, log;    /* log: file for output; grows, while its beginning is freed */
    int warnings;       /* file for the plugin's warnings; grows like log */
    int parent;         /* pid of the parent */
    unsigned newest;    /* newest table version to use */
    unsigned spin_us;   /* time in us for which the loop polls without finding work before it sleeps */
    unsigned call_ms;   /* time limit in ms of a connect or an accept, in addition to the plugin's known sleep */
    bool one_thread, trace_polls;
    int trace;  /* file, or -1 for none */
    int unpack; /* enum hw_gather_way */
};
/* Runs the child after fork(). Does not return. */
void np_child_main(const struct np_child *c) __attribute__((noreturn));

#endif

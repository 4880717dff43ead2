/* SPDX-License-Identifier: Apache-2.0 */
/* Private definitions of the child. child.c runs the loop, child_comm.c opens and closes connections, child_flow.c
 * advances requests, child_unpack.c reorders scattered receives, and child_gpu.c manages GPUs and their memory. */
#ifndef HW_NETPLUGIN_CHILD_H
#define HW_NETPLUGIN_CHILD_H

#include "mem/gather.h"
#include "transport/netplugin/child/ring.h"
#include "transport/netplugin/table/quirks.h"
#include "transport/netplugin/table/table.h"

#include <pthread.h>

enum kid_kind { KID_LISTENER, KID_SEND, KID_RECV };

struct kid;

struct kid_comm {
    struct kid *k;
    enum kid_kind kind;
    struct np_ring *ring;
    void *comm; /* the plugin's comm, or NULL until the connection is established */
    int bell;   /* eventfd, or -1 for listeners */

    /* For setting up the connection. */
    struct kid_comm *listener;
    int dev;
    _Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE]; /* kept between calls, because connect() may change it */
    _Atomic uint64_t deadline;
    uint64_t tries;
    ncclNetDeviceHandle_t dh_room, *dh;
    bool threaded;
    pthread_t thread;
    _Atomic uint64_t calling; /* hw_now() when the connection's thread entered the plugin, or 0 outside the plugin */
    ncclResult_t result;
    _Atomic bool over; /* the thread has written comm and result, and is ending */
    struct kid_comm *next_orphan;

    unsigned window;
    uint64_t started, come, done, given; /* numbers of requests: started, reported complete by test(), with all data at
                                          * the destination, and passed to irecvConsumed() */
    void *req[NP_RING];
    void *flush[NP_RING];       /* requests of iflush() for data received into GPU memory */
    const struct hw_space *gpu; /* GPU that is current during calls for this connection, or NULL for none */
    bool unpacks;               /* receives stay held until irecvConsumed() */
    /* For a connection that receives scattered data. */
    bool scatters; /* a scattered receive has arrived */
    const struct netUnpackMeta *meta;
    const uint8_t *bounce;
    /* Set if the bounce buffer is in gpu's memory. Otherwise the buffer is in host memory. */
    struct hw_gather *gather;
    size_t bounce_len;
    /* number of the last batch started, and of the last batch of each receive, or 0 for none */
    uint64_t batches, batch[NP_RING];
    struct np_frag_area
        *frags; /* area from which the parent reads the fragments; NULL if the child reorders the data itself */
};

struct kid_mr {
    struct kid_comm *comm; /* NULL if the entry is unused */
    void *mh;
    uint8_t *at;
    size_t len;
    bool cuda; /* the registration is of GPU memory */
};

struct kid {
    const struct np_child *c;
    struct np_shared *s;
    void *library;
    struct np_table t;
    const struct np_quirk *q;
    uint32_t taken; /* number of messages received from the parent */
    unsigned top;   /* one more than the highest slot in use */
    unsigned turn;  /* slot that the loop tries next */
    struct kid_comm *comm[NP_COMMS];
    struct {
        uint8_t *at;
        size_t len;
        const struct hw_space *gpu; /* GPU of the memory, or NULL for host memory */
    } mem[NP_MEMS];
    const struct hw_space *set; /* GPU that is current in the loop's thread */
    struct kid_mr mr[NP_MRS];
    struct kid_comm *orphans;
    unsigned joining; /* number of connections that separate threads are setting up */
    unsigned hang_ms; /* time limit of a connect or an accept, in ms */
};

/* Plugin call that this thread is executing. */
extern __thread enum np_call kid_here;

/* Records that the loop's thread enters or leaves a plugin call. */
static inline void kid_enter(struct kid *k, enum np_call call)
{
    kid_here = call;
    atomic_store_explicit(&k->s->doing, call, memory_order_relaxed);
}
static inline void kid_leave(struct kid *k)
{
    kid_here = NP_NOTHING;
    atomic_store_explicit(&k->s->doing, NP_NOTHING, memory_order_relaxed);
}

/* Converts a plugin result to 0 or -errno, and sets hw_error() on failure. */
int kid_result(enum np_call call, ncclResult_t rc);

/* Signals the connection's eventfd if the parent waits for a signal. */
void kid_ring(struct kid_comm *c);
/* Marks the connection as permanently failed, with the text of hw_error(). */
void kid_fail(struct kid_comm *c, int rc);

/* ---- child_comm.c: the handlers of messages return 0 or -errno with hw_error(). The caller closes the descriptors
 * unless stated otherwise. */
int kid_listen(struct kid *k, const struct np_message *m, uint8_t handle[NCCL_NET_HANDLE_MAXSIZE]);
/* Connecting and accepting always take ownership of fd[0], the eventfd, and of fd[1] if present. */
int kid_connect(struct kid *k, const struct np_message *m, int *fd);
int kid_accept(struct kid *k, const struct np_message *m, int *fd);
int kid_close(struct kid *k, const struct np_message *m);
int kid_map(struct kid *k, const struct np_message *m, int fd);
int kid_unmap(struct kid *k, const struct np_message *m);
int kid_reg(struct kid *k, const struct np_message *m);
int kid_dereg(struct kid *k, const struct np_message *m);
/* Frees connections that were closed while their thread was still connecting, and listeners that were closed during an
 * accept, once the thread or the accept has ended. */
void kid_orphans(struct kid *k);
/* Closes all connections and listeners that no thread uses. Returns false if threads are still in the plugin. */
bool kid_close_all(struct kid *k);

/* Flags that a round of the loop returns. */
enum { KID_MOVED = 1, KID_PENDING = 2 };
unsigned kid_setup(struct kid *k, struct kid_comm *c);
/* Reports to the parent if a thread exceeds the time limit of a connect or an accept. */
void kid_watch(struct kid *k);

/* ---- child_flow.c */
unsigned kid_progress(struct kid *k, struct kid_comm *c);

/* ---- child_unpack.c */
/* Finds the buffers of scattered data from the device's handle. */
int kid_unpack_open(struct kid *k, struct kid_comm *c);
void kid_unpack_close(struct kid_comm *c);
/* Handles an arrived receive: starts to reorder the data, or publishes the fragments to the parent. */
int kid_unpack(struct kid *k, struct kid_comm *c, struct np_entry *e);
/* Returns 1 if receive n is in place, 0 if not yet, or -errno. */
int kid_unpacked(struct kid_comm *c, uint64_t n);

/* ---- child_gpu.c */
int kid_gpu(struct kid *k, const struct np_message *m, struct np_gpu *out);
int kid_alloc(struct kid *k, const struct np_message *m, struct np_gpu *out);
/* Returns in *out the GPU of a message to listen or connect, or NULL if the message has none. */
int kid_gpu_of(const struct np_message *m, const struct hw_space **out);
/* Makes the GPU current, because plugins query CUDA for the current device. NULL changes nothing. */
void kid_set_gpu(struct kid *k, const struct hw_space *gpu);

#endif

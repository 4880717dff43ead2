/* SPDX-License-Identifier: Apache-2.0 */
/* Private definitions of the child: child.c runs the loop, child_comm.c makes and closes connections, child_flow.c
 * advances requests, child_unpack.c reorders scattered receives, child_gpu.c has GPUs and their memory. */
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
    void *comm; /* the plugin's comm; NULL until it is made */
    int bell;   /* eventfd; -1 for listeners */

    /* Used until the connection is made. */
    struct kid_comm *listener;
    int dev;
    _Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE]; /* kept between calls, as connect() left it */
    _Atomic uint64_t deadline;
    uint64_t tries;
    ncclNetDeviceHandle_t dh_room, *dh;
    bool threaded;
    pthread_t thread;
    _Atomic uint64_t calling; /* when its thread entered the plugin, hw_now(); 0: not in the plugin */
    ncclResult_t result;
    _Atomic bool over; /* the thread has written comm and result, and has ended */
    struct kid_comm *next_orphan;

    unsigned window;
    uint64_t started, come, done, given; /* started; reported complete by test; in place; passed to irecvConsumed */
    void *req[NP_RING];
    void *flush[NP_RING];       /* requests of iflush(), for data received into GPU memory */
    const struct hw_space *gpu; /* the GPU that is set during calls for this connection; NULL: none */
    bool unpacks;               /* receives stay held until irecvConsumed */
    /* For a receiving connection whose data arrive scattered. */
    bool scatters; /* one did */
    const struct netUnpackMeta *meta;
    const uint8_t *bounce;
    /* in gpu's memory, if the bounce buffer and the destinations are there; otherwise both are in host memory */
    struct hw_gather *gather;
    size_t bounce_len;
    uint64_t batches, batch[NP_RING]; /* of the gather: batches started so far; last batch of each receive, 0: none */
    struct np_frag_area *frags;       /* the parent reads the fragments here and reports when they are consumed */
};

struct kid_mr {
    struct kid_comm *comm; /* NULL: no registration */
    void *mh;
    uint8_t *at;
    size_t len;
    bool cuda; /* GPU memory */
};

struct kid {
    const struct np_child *c;
    struct np_shared *s;
    void *library;
    struct np_table t;
    const struct np_quirk *q;
    uint32_t taken; /* messages */
    unsigned top;   /* all slots in use are below this one */
    unsigned turn;  /* the connection that the loop tries next */
    struct kid_comm *comm[NP_COMMS];
    struct {
        uint8_t *at;
        size_t len;
        const struct hw_space *gpu; /* GPU of the memory; NULL: host memory */
    } mem[NP_MEMS];
    const struct hw_space *set; /* the GPU that this thread has set */
    struct kid_mr mr[NP_MRS];
    struct kid_comm *orphans;
    unsigned joining; /* connections that are made by a thread of their own */
    unsigned hang_ms; /* longest time for a connect or an accept */
};

/* The plugin call that this thread is in. */
extern __thread enum np_call kid_here;

/* Enters and leaves a call of the plugin on the loop's thread. */
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

/* Returns the errno of the plugin's result and sets the text; 0 for ncclSuccess. */
int kid_result(enum np_call call, ncclResult_t rc);

/* Signals the connection's eventfd if the parent sleeps on it. */
void kid_ring(struct kid_comm *c);
/* Sets the connection's state to failed, finally; the text is hw_error(). */
void kid_fail(struct kid_comm *c, int rc);

/* ---- child_comm.c: the answers to messages; 0 or -errno with hw_error(). They own descriptors only where stated. */
int kid_listen(struct kid *k, const struct np_message *m, uint8_t handle[NCCL_NET_HANDLE_MAXSIZE]);
/* Takes ownership of fd[0], the eventfd, and fd[1] if there is one, in any case. */
int kid_connect(struct kid *k, const struct np_message *m, int *fd);
int kid_accept(struct kid *k, const struct np_message *m, int *fd);
int kid_close(struct kid *k, const struct np_message *m);
int kid_map(struct kid *k, const struct np_message *m, int fd);
int kid_unmap(struct kid *k, const struct np_message *m);
int kid_reg(struct kid *k, const struct np_message *m);
int kid_dereg(struct kid *k, const struct np_message *m);
/* Frees connections that were closed while their thread was making them, and listeners that were closed during an
 * accept. */
void kid_orphans(struct kid *k);
/* Closes everything. Returns false if threads are still in the plugin. */
bool kid_close_all(struct kid *k);

/* Results of a round. */
enum { KID_MOVED = 1, KID_PENDING = 2 };
unsigned kid_setup(struct kid *k, struct kid_comm *c);
/* Tells the parent if a thread has been in one connect or accept for too long. */
void kid_watch(struct kid *k);

/* ---- child_flow.c */
unsigned kid_progress(struct kid *k, struct kid_comm *c);

/* ---- child_unpack.c */
/* Finds where scattered data will arrive, from the device's handle. */
int kid_unpack_open(struct kid *k, struct kid_comm *c);
void kid_unpack_close(struct kid_comm *c);
/* A receive has arrived: starts to reorder it, or shows its fragments to the parent. */
int kid_unpack(struct kid *k, struct kid_comm *c, struct np_entry *e);
/* Returns 1 if receive n is in place, 0 if not, or -errno. */
int kid_unpacked(struct kid_comm *c, uint64_t n);

/* ---- child_gpu.c */
int kid_gpu(struct kid *k, const struct np_message *m, struct np_gpu *out);
int kid_alloc(struct kid *k, const struct np_message *m, struct np_gpu *out);
/* Reads the GPU in a message to listen or connect; NULL: none. */
int kid_gpu_of(const struct np_message *m, const struct hw_space **out);
/* Sets the current GPU, because plugins ask CUDA for it. NULL: no matter. */
void kid_set_gpu(struct kid *k, const struct hw_space *gpu);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The child's inside: child.c runs it, child_comm.c makes and closes connections, child_flow.c moves requests,
 * child_unpack.c puts scattered ones in order, child_gpu.c has GPUs and memory of theirs. */
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
    void *comm; /* the plugin's; NULL while it is being made */
    int bell;   /* eventfd; -1 for listeners */

    /* While it is being made. */
    struct kid_comm *listener;
    int dev;
    _Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE]; /* in place from call to call, as connect() left it */
    _Atomic uint64_t deadline;
    uint64_t tries;
    ncclNetDeviceHandle_t dh_room, *dh;
    bool threaded;
    pthread_t thread;
    _Atomic uint64_t calling; /* since when its thread is in the plugin, hw_now(); 0: it is not */
    ncclResult_t result;
    _Atomic bool over; /* the thread has written comm and result, and is gone */
    struct kid_comm *next_orphan;

    unsigned window;
    uint64_t started, come, done, given; /* test said so; it is in its place; given to irecvConsumed */
    void *req[NP_RING];
    void *flush[NP_RING];       /* of what has come into a GPU's memory: iflush()'s request */
    const struct hw_space *gpu; /* the one that is set in calls about it; NULL: none */
    bool unpacks;               /* its receives are held until irecvConsumed */
    /* A receiving one whose data come scattered. */
    bool scatters; /* one did */
    const struct netUnpackMeta *meta;
    const uint8_t *bounce;
    struct hw_gather *gather; /* the bounce buffer is gpu's, as what is put in order then; NULL: both are the host's */
    size_t bounce_len;
    uint64_t batches, batch[NP_RING]; /* of the gather: started so far; a receive's last one, 0: none */
    struct np_frag_area *frags;       /* they are shown to the parent, who says when they are consumed */
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
    unsigned top;   /* slots in use lie below */
    unsigned turn;  /* connections that the loop makes: the first one that may be tried */
    struct kid_comm *comm[NP_COMMS];
    struct {
        uint8_t *at;
        size_t len;
        const struct hw_space *gpu; /* whose it is; NULL: host memory */
    } mem[NP_MEMS];
    const struct hw_space *set; /* the GPU that this thread has set */
    struct kid_mr mr[NP_MRS];
    struct kid_comm *orphans;
    unsigned joining; /* connections that have a thread */
    unsigned hang_ms; /* what a connect or an accept may take */
};

/* What this thread is doing in the plugin. */
extern __thread enum np_call kid_here;

/* Around each call of the plugin, of the loop's thread. */
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

/* The errno and the text of what the plugin gave back; 0 for ncclSuccess. */
int kid_result(enum np_call call, ncclResult_t rc);

/* The bell of a connection, if the parent sleeps on it. */
void kid_ring(struct kid_comm *c);
/* Its state, for good; the text is hw_error(). */
void kid_fail(struct kid_comm *c, int rc);

/* ---- child_comm.c: the answers to messages; 0 or -errno with hw_error(). Descriptors are theirs where they are said
 * to be taken. */
int kid_listen(struct kid *k, const struct np_message *m, uint8_t handle[NCCL_NET_HANDLE_MAXSIZE]);
/* Takes fd[0], the bell, and fd[1] where there is one, whatever comes of it. */
int kid_connect(struct kid *k, const struct np_message *m, int *fd);
int kid_accept(struct kid *k, const struct np_message *m, int *fd);
int kid_close(struct kid *k, const struct np_message *m);
int kid_map(struct kid *k, const struct np_message *m, int fd);
int kid_unmap(struct kid *k, const struct np_message *m);
int kid_reg(struct kid *k, const struct np_message *m);
int kid_dereg(struct kid *k, const struct np_message *m);
/* What was closed while a thread of its own was making it, and listeners that were closed under an accept. */
void kid_orphans(struct kid *k);
/* False: threads are still in the plugin. */
bool kid_close_all(struct kid *k);

/* What a round found. */
enum { KID_MOVED = 1, KID_PENDING = 2 };
unsigned kid_setup(struct kid *k, struct kid_comm *c);
/* Has a thread been in one connect or accept for too long? Tells the parent. */
void kid_watch(struct kid *k);

/* ---- child_flow.c */
unsigned kid_progress(struct kid *k, struct kid_comm *c);

/* ---- child_unpack.c */
/* Where the data will come scattered: from the device's handle. */
int kid_unpack_open(struct kid *k, struct kid_comm *c);
void kid_unpack_close(struct kid_comm *c);
/* A receive has come: begins to put it in order, or shows it to the parent. */
int kid_unpack(struct kid *k, struct kid_comm *c, struct np_entry *e);
/* Is receive n in its place? 1, 0 or -errno. */
int kid_unpacked(struct kid_comm *c, uint64_t n);

/* ---- child_gpu.c */
int kid_gpu(struct kid *k, const struct np_message *m, struct np_gpu *out);
int kid_alloc(struct kid *k, const struct np_message *m, struct np_gpu *out);
/* The GPU in a message to listen or connect: NULL where there is none. */
int kid_gpu_of(const struct np_message *m, const struct hw_space **out);
/* Plugins ask CUDA which device is set. NULL: it does not matter. */
void kid_set_gpu(struct kid *k, const struct hw_space *gpu);

#endif

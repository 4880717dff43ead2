/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of a struct dm_ctx, for bind.c and source.c. */
#ifndef HW_DEVMEM_CTX_H
#define HW_DEVMEM_CTX_H

#include "transport/devmem/bind.h"
#include "transport/devmem/helper.h"

#include <pthread.h>
#include <stdatomic.h>

#define DM_SOURCES  64  /* ranges of memory bound for sending, per context */
#define DM_LANDINGS 256 /* of all NICs and GPUs, per context */
#define DM_WARNINGS 16

struct dm_nic {
    char name[HAWSER_NIC_NAME];
    struct dm_landing *unsaid; /* where payload lands for which nobody says a GPU; NULL: not chosen yet */
    bool no_sending;           /* learned once: kernel or driver cannot */
};

/* Where payload lands: memory of one GPU, behind queues of one NIC that are for it alone (a queue has one dma-buf). It
 * stays as long as the context. Of these fields claims alone is under mu; the rest is the thread's. */
struct dm_landing {
    unsigned nic;
    bool bound;
    struct dm_pool pool;
    struct dm_binding binding;
    unsigned claims; /* that stand */
};

struct dm_range {
    enum { FREE, WANTED, BOUND, BAD, LEAVING } state;
    unsigned nic;
    const struct hw_space *space;
    struct dm_source is; /* size 0: not bound yet, or never */
    size_t len, window;  /* WANTED: of what is to be sent, and of what is to be bound around it */
    uint32_t binding;
};

struct dm_claim {
    struct dm_ctx *ctx;
    struct dm_claim *next; /* in the queue */
    unsigned nic;
    int gpu;                    /* whose memory the payload is for; -1: not said */
    struct dm_landing *landing; /* once decided */
    int sock, event;
    bool decided, abandoned;
    bool leaving; /* in the queue to give its rule back */
    int rc;
    char text[HW_ERR_TEXT];
    uint32_t rule, dmabuf_id;
    uint64_t epoch;
};

struct dm_ctx {
    const struct hw_tp_env *env;
    pthread_mutex_t mu;
    pthread_t thread;
    bool running, stop;
    int wake; /* eventfd */
    struct dm_claim *queue;
    struct dm_nic nics[HW_NIC_MAX];
    unsigned nnics;
    struct dm_landing landings[DM_LANDINGS];
    unsigned nlandings;
    struct dm_range sources[DM_SOURCES];
    bool sources_wanted;
    uint64_t swept;           /* when a sweep was last asked for */
    _Atomic uint64_t epoch;   /* rises when hawserd is lost: grants of earlier ones are void */
    struct dm_helper *helper; /* the thread's */
    atomic_int dead;
    char why[HW_ERR_TEXT];
    uint64_t warned[DM_WARNINGS]; /* hashes */
    unsigned nwarned;
};

/* The thread: the conversation with hawserd stands after it. 0 or -errno. */
int dm_ctx_helper(struct dm_ctx *x);
/* The thread: takes note where rc, a call's, says that hawserd is gone; returns rc. */
int dm_ctx_asked(struct dm_ctx *x, int rc);
/* Under mu: the thread runs after it, for there is something to do. */
int dm_ctx_start(struct dm_ctx *x);
/* Has the thread look for what there is to do. */
void dm_ctx_ring(struct dm_ctx *x);
/* Under mu: the number of a NIC; HW_NIC_MAX: there are too many. */
unsigned dm_ctx_nic(struct dm_ctx *x, const char *name);

/* The thread: lets go what is bound for sending and is not to be any more, and binds what is wanted. */
void dm_sources_run(struct dm_ctx *x);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Private definitions of struct dm_ctx, for bind.c and source.c. */
#ifndef HW_DEVMEM_CTX_H
#define HW_DEVMEM_CTX_H

#include "transport/devmem/bind.h"
#include "transport/devmem/helper.h"

#include <pthread.h>
#include <stdatomic.h>

#define DM_SOURCES  64  /* ranges of memory bound for sending, per context */
#define DM_LANDINGS 256 /* over all NICs and GPUs, per context */
#define DM_WARNINGS 16

struct dm_nic {
    char name[HAWSER_NIC_NAME];
    struct dm_landing *unsaid; /* landing of payload without a specified GPU; NULL: not chosen yet */
    bool no_sending;           /* kernel or driver cannot send from device memory */
};

/* Where payload arrives: memory of one GPU, bound to queues of one NIC that are reserved for it (a queue has one
 * dma-buf). It lives as long as the context. mu guards only claims; the other fields belong to the thread. */
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
    size_t len, window;  /* WANTED: size of the data to send, and of the range to bind around it */
    uint32_t binding;
};

struct dm_claim {
    struct dm_ctx *ctx;
    struct dm_claim *next; /* in the queue */
    unsigned nic;
    int gpu;                    /* GPU whose memory the payload is for; -1: not specified */
    struct dm_landing *landing; /* once decided */
    int sock, event;
    bool decided, abandoned;
    bool leaving; /* queued to release its rule */
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
    uint64_t swept;           /* when a sweep was last requested */
    _Atomic uint64_t epoch;   /* grows when hawserd is lost: grants of earlier epochs are void */
    struct dm_helper *helper; /* the thread's */
    atomic_int dead;
    char why[HW_ERR_TEXT];
    uint64_t warned[DM_WARNINGS]; /* hashes */
    unsigned nwarned;
};

/* On the thread: ensures the connection to hawserd. 0 or -errno. */
int dm_ctx_helper(struct dm_ctx *x);
/* On the thread: records that hawserd is gone if rc, the result of a call, says so; returns rc. */
int dm_ctx_asked(struct dm_ctx *x, int rc);
/* Under mu: ensures that the thread runs, because there is work. */
int dm_ctx_start(struct dm_ctx *x);
/* Wakes the thread to look for work. */
void dm_ctx_ring(struct dm_ctx *x);
/* Under mu: returns the number of a NIC; HW_NIC_MAX: there are too many. */
unsigned dm_ctx_nic(struct dm_ctx *x, const char *name);

/* On the thread: releases send bindings that are no longer wanted, and binds wanted ones. */
void dm_sources_run(struct dm_ctx *x);

#endif

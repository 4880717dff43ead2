/* SPDX-License-Identifier: Apache-2.0 */
/* Private definitions of struct dm_ctx, for bind.c and source.c. */
#ifndef HW_DEVMEM_CTX_H
#define HW_DEVMEM_CTX_H

#include "transport/devmem/bind.h"
#include "transport/devmem/helper.h"

#include <pthread.h>
#include <stdatomic.h>

#define DM_SOURCES  64  /* maximum number of memory ranges that a context binds for sending */
#define DM_LANDINGS 256 /* maximum number of landings of a context, over all NICs and GPUs */
#define DM_WARNINGS 16

struct dm_nic {
    char name[HAWSER_NIC_NAME];
    struct dm_landing *unsaid; /* landing of payload without a specified GPU, or NULL if not chosen yet */
    bool no_sending;           /* the kernel or the driver cannot send from device memory */
};

/* The destination of payload: memory of one GPU, or of the host, that is bound to reserved queues of one NIC (a queue
 * has one dma-buf). A landing exists as long as the context. mu protects claims. Only the thread writes the other
 * members. */
struct dm_landing {
    unsigned nic;
    bool bound;
    struct dm_pool pool;
    struct dm_binding binding;
    unsigned claims; /* number of valid claims */
};

struct dm_range {
    enum { FREE, WANTED, BOUND, BAD, LEAVING } state;
    unsigned nic;
    const struct hw_space *space;
    struct dm_source is; /* size 0 if the range is not bound yet or could not be bound */
    size_t len, window;  /* WANTED: length of the data to send, and window for dmabuf_of() */
    uint32_t binding;
};

struct dm_claim {
    struct dm_ctx *ctx;
    struct dm_claim *next; /* next claim in the queue */
    unsigned nic;
    int gpu;                    /* GPU for which the payload is received, or -1 if not specified */
    struct dm_landing *landing; /* valid once the claim is granted */
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
    int wake; /* an eventfd */
    struct dm_claim *queue;
    struct dm_nic nics[HW_NIC_MAX];
    unsigned nnics;
    struct dm_landing landings[DM_LANDINGS];
    unsigned nlandings;
    struct dm_range sources[DM_SOURCES];
    bool sources_wanted;
    uint64_t swept;           /* time at which a sweep was last requested */
    _Atomic uint64_t epoch;   /* incremented when hawserd is lost; grants of earlier epochs are invalid */
    struct dm_helper *helper; /* used only by the thread */
    atomic_int dead;
    char why[HW_ERR_TEXT];
    uint64_t warned[DM_WARNINGS]; /* hashes of the warnings that were logged */
    unsigned nwarned;
};

/* Connects to hawserd unless already connected. Called on the thread. Returns 0 or a negative errno. */
int dm_ctx_helper(struct dm_ctx *x);
/* Checks whether rc, the result of a call, indicates the loss of hawserd, and if so records the loss. Returns rc.
 * Called on the thread. */
int dm_ctx_asked(struct dm_ctx *x, int rc);
/* Starts the thread unless it is already running. Returns 0 or a negative errno. Called with mu held. */
int dm_ctx_start(struct dm_ctx *x);
/* Wakes the thread, which then checks for work. */
void dm_ctx_ring(struct dm_ctx *x);
/* Returns the number of a NIC, which is added if it is new, or HW_NIC_MAX if there are too many. Called with mu held.
 */
unsigned dm_ctx_nic(struct dm_ctx *x, const char *name);

/* Releases send bindings that are no longer wanted, and creates the wanted bindings. Called on the thread. */
void dm_sources_run(struct dm_ctx *x);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bindings of a context. For each receiving NIC, and each GPU that the NIC receives data for, a pool of memory
 * (knob devmem_memory) is bound to queues that are reserved for this pool. Rules steer connections to these queues. GPU
 * memory of the application is bound for sending. hawserd (helper.h) grants all bindings and rules. A separate thread
 * communicates with hawserd, so that no connection waits for hawserd.
 */
#ifndef HW_DEVMEM_BIND_H
#define HW_DEVMEM_BIND_H

#include "mem/space.h"
#include "transport/transport.h"

struct dm_ctx;

/* Returns NULL if out of memory or descriptors. env must outlive the context. */
struct dm_ctx *dm_ctx_new(const struct hw_tp_env *env);
void dm_ctx_free(struct dm_ctx *x);

/* Makes the context fail instead of falling back, with the reason rc and why. See dm_ctx_alive(). */
void dm_ctx_kill(struct dm_ctx *x, int rc, const char *why);
/* Returns 0, or the reason that dm_ctx_kill() received. */
int dm_ctx_alive(struct dm_ctx *x);
/* Warns that connections over the NIC do not use device memory, once for each NIC and reason, and at most 16 times per
 * context (DM_WARNINGS). */
void dm_ctx_warn(struct dm_ctx *x, const char *nic, bool receives, const char *why);

/* Parses knob devmem_memory. Returns the ordinal of a GPU, one of these constants, or -EINVAL. */
#define DM_MEMORY_AUTO (-4097)
#define DM_MEMORY_HOST (-4098)
int dm_memory_device(const char *where);

/* Memory that receives payload. The memory exists as long as the context. */
struct dm_pool {
    const struct hw_space *space;
    struct hw_dmabuf buf;
};

/* ---- receiving: a connection's claim to a bound queue */

struct dm_claim;

/* Requests that data for sock, whose local end is on the NIC, be steered to memory of this GPU (-1 if not specified;
 * see knob devmem_memory). event, an eventfd, is signalled when the request is decided. Fails with a negative errno
 * such as -ENOMEM. */
int dm_claim_new(struct dm_ctx *x, const char *nic, int gpu, int sock, int event, struct dm_claim **out);
/* Returns 0 if the connection is steered; payload then arrives in *pool, whose dma-buf has the kernel's ID *dmabuf_id.
 * Fails with -EAGAIN while the request is undecided, or with the reason for the refusal. */
int dm_claim_test(struct dm_claim *c, const struct dm_pool **pool, uint32_t *dmabuf_id);
/* Returns 0, or -ENOLINK if the grant is no longer valid. */
int dm_claim_health(const struct dm_claim *c);
/* Returns the number of connections that currently share the pool. */
unsigned dm_claim_sharers(const struct dm_claim *c);
void dm_claim_free(struct dm_claim *c);

/* ---- sending */

struct dm_source {
    uint64_t id;         /* identifies the allocation */
    const uint8_t *base; /* start of the bound range */
    size_t size;
    uint32_t dmabuf_id;
};

/* Returns true if [ptr, ptr+len) is bound to the NIC for sending. Otherwise starts, if possible, to bind the range
 * together with a part of the surrounding allocation. */
bool dm_source_find(struct dm_ctx *x, const char *nic, const struct hw_space *space, const void *ptr, size_t len,
                    struct dm_source *out);
/* Starts to release the bindings that overlap [ptr, ptr+len), which is no longer registered. These bindings would
 * prevent the memory from being freed. */
void dm_source_forget(struct dm_ctx *x, const struct hw_space *space, const void *ptr, size_t len);
/* Marks a range that the kernel could not send from. Afterwards dm_source_find() does not return the range. */
void dm_source_bad(struct dm_ctx *x, const char *nic, const struct dm_source *s);

#endif

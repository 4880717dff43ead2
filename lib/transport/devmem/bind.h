/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bindings of a context: for each receiving NIC, and each GPU that it receives for, a pool of the GPU's memory
 * bound to queues reserved for it; the rules that steer connections there; and the application's memory bound for
 * sending. hawserd (helper.h) grants all of it. A separate thread talks to hawserd, so that no connection waits for it.
 */
#ifndef HW_DEVMEM_BIND_H
#define HW_DEVMEM_BIND_H

#include "mem/space.h"
#include "transport/transport.h"

struct dm_ctx;

/* Returns NULL if there is no memory. env must outlive it. */
struct dm_ctx *dm_ctx_new(const struct hw_tp_env *env);
void dm_ctx_free(struct dm_ctx *x);

/* Makes the context fail instead of falling back: rc and why are the reason. See dm_ctx_alive(). */
void dm_ctx_kill(struct dm_ctx *x, int rc, const char *why);
/* Returns 0, or the reason given to dm_ctx_kill(). */
int dm_ctx_alive(struct dm_ctx *x);
/* Warns, once for each NIC and reason, that connections over it do not use device memory. */
void dm_ctx_warn(struct dm_ctx *x, const char *nic, const char *why);

/* Parses knob devmem_memory. Returns a GPU's ordinal, one of these constants, or -EINVAL. */
#define DM_MEMORY_AUTO (-4097)
#define DM_MEMORY_HOST (-4098)
int dm_memory_device(const char *where);

/* Memory in which payload arrives; it lives as long as the context. */
struct dm_pool {
    const struct hw_space *space;
    struct hw_dmabuf buf;
};

/* ---- receiving: one connection's claim to a bound queue */

struct dm_claim;

/* Requests that sock, whose local end is on the NIC, be steered to memory of this GPU (-1: not specified; see knob
 * devmem_memory). event (an eventfd) is signalled once that is decided. -ENOMEM. */
int dm_claim_new(struct dm_ctx *x, const char *nic, int gpu, int sock, int event, struct dm_claim **out);
/* Returns 0 if the connection is steered: payload arrives in *pool with *dmabuf_id; -EAGAIN: undecided; else the reason
 * why not. */
int dm_claim_test(struct dm_claim *c, const struct dm_pool **pool, uint32_t *dmabuf_id);
/* Returns 0; -ENOLINK: the grant is no longer valid. */
int dm_claim_health(const struct dm_claim *c);
/* Returns how many connections share its pool now. */
unsigned dm_claim_sharers(const struct dm_claim *c);
void dm_claim_free(struct dm_claim *c);

/* ---- sending */

struct dm_source {
    uint64_t id;         /* identifies the allocation */
    const uint8_t *base; /* start of the bound range */
    size_t size;
    uint32_t dmabuf_id;
};

/* Returns true if [ptr, ptr+len) is bound to the NIC for sending. If not, starts to bind it with a part of the
 * allocation around it; always returns false if binding is impossible. */
bool dm_source_find(struct dm_ctx *x, const char *nic, const struct hw_space *space, const void *ptr, size_t len,
                    struct dm_source *out);
/* [ptr, ptr+len) is no longer registered: releases the binding around it, which would keep the memory from being
 * freed. */
void dm_source_forget(struct dm_ctx *x, const struct hw_space *space, const void *ptr, size_t len);
/* The kernel could not send from it: never returns this range again. */
void dm_source_bad(struct dm_ctx *x, const char *nic, const struct dm_source *s);

#endif

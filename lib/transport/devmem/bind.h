/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a context has bound: for each NIC that receives, and each GPU that it receives for, a pool of the GPU's memory
 * behind queues that are for it alone, the rules that steer connections there, and the application's own memory bound
 * for sending. All of it is granted by hawserd (helper.h), with which a thread of its own speaks, so that no connection
 * ever waits for it.
 */
#ifndef HW_DEVMEM_BIND_H
#define HW_DEVMEM_BIND_H

#include "mem/space.h"
#include "transport/transport.h"

struct dm_ctx;

/* NULL: no memory. env must outlive it. */
struct dm_ctx *dm_ctx_new(const struct hw_tp_env *env);
void dm_ctx_free(struct dm_ctx *x);

/* Receiving is to fail and not to fall back: the reason why it did. See dm_ctx_alive(). */
void dm_ctx_kill(struct dm_ctx *x, int rc, const char *why);
/* 0, or that reason. */
int dm_ctx_alive(struct dm_ctx *x);
/* Says, once for each NIC and reason, that connections over it go without. */
void dm_ctx_warn(struct dm_ctx *x, const char *nic, const char *why);

/* What knob devmem_memory says: a GPU's ordinal, one of these, or -EINVAL. */
#define DM_MEMORY_AUTO (-4097)
#define DM_MEMORY_HOST (-4098)
int dm_memory_device(const char *where);

/* Memory that payload arrives in; it lives as long as the context. */
struct dm_pool {
    const struct hw_space *space;
    struct hw_dmabuf buf;
};

/* ---- receiving: one connection's claim to a bound queue */

struct dm_claim;

/* Asks for sock, whose local end is the NIC's, to be steered, its payload into memory of this GPU (-1: nobody says
 * which; see knob devmem_memory); event (an eventfd) is rung once it is decided. -ENOMEM. */
int dm_claim_new(struct dm_ctx *x, const char *nic, int gpu, int sock, int event, struct dm_claim **out);
/* 0 it is, and what arrives lies in *pool with *dmabuf_id; -EAGAIN; else why not. */
int dm_claim_test(struct dm_claim *c, const struct dm_pool **pool, uint32_t *dmabuf_id);
/* 0; -ENOLINK: what was granted holds no more. */
int dm_claim_health(const struct dm_claim *c);
/* How many connections share its pool now. */
unsigned dm_claim_sharers(const struct dm_claim *c);
void dm_claim_free(struct dm_claim *c);

/* ---- sending */

struct dm_source {
    uint64_t id;         /* of the allocation */
    const uint8_t *base; /* of the range that is bound */
    size_t size;
    uint32_t dmabuf_id;
};

/* Is [ptr, ptr+len) bound to the NIC for sending? If it is not yet, that is begun, with some of its allocation around
 * it; false for good where it cannot be. */
bool dm_source_find(struct dm_ctx *x, const char *nic, const struct hw_space *space, const void *ptr, size_t len,
                    struct dm_source *out);
/* [ptr, ptr+len) is registered no more: what is bound around it is let go, as it would not be free before. */
void dm_source_forget(struct dm_ctx *x, const struct hw_space *space, const void *ptr, size_t len);
/* The kernel would not send from it: it is not to be found again. */
void dm_source_bad(struct dm_ctx *x, const char *nic, const struct dm_source *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The application's registered memory, and the regions that peers may access. */
#include "context/context.h"

#include <stdlib.h>

/* An exported region. */
struct region {
    struct hw_export export;
    struct hawser_mem *mem;
    struct hw_list of_mem;
    atomic_bool over; /* peers no longer access the region */
};

int hawser_mem_register(hawser *h, enum hawser_mem_kind kind, void *ptr, size_t len, hawser_mem **out)
{
    *out = NULL;
    if (!ptr || (uintptr_t)ptr + len < (uintptr_t)ptr)
        return hw_fail(-EINVAL, "cannot register %zu bytes at %p: the address is NULL or the range overflows", len,
                       ptr);
    const struct hw_space *space;
    int rc = hw_space_find(kind, ptr, len, &space);
    if (rc < 0)
        return rc;
    struct hawser_mem *m = calloc(1, sizeof *m);
    if (!m)
        return hw_no_memory("a registration");
    m->h = h;
    m->space = space;
    m->ptr = ptr;
    m->len = len;
    hw_list_init(&m->exports);
    if (!space->direct) { /* some transports need to know the GPU */
        const struct hw_space *none = NULL;
        (void)atomic_compare_exchange_strong(&h->env.gpu, &none, space);
    }
    pthread_mutex_lock(&h->lock);
    hw_list_append(&h->mems, &m->in_context);
    h->metrics.registered[!space->direct] += len;
    pthread_mutex_unlock(&h->lock);
    *out = m;
    return 0;
}

int hawser_mem_alloc(hawser *h, enum hawser_mem_kind kind, int device, size_t len, hawser_mem **out)
{
    const struct hw_space *space;
    void *ptr = NULL;
    *out = NULL;
    if (len == 0)
        return hw_fail(-EINVAL, "cannot allocate 0 bytes");
    int rc = hw_space_device(kind, device, &space);
    if (rc == 0)
        rc = space->ops->alloc(space, len, &ptr);
    if (rc < 0)
        return rc;
    rc = hawser_mem_register(h, kind, ptr, len, out);
    if (rc < 0)
        space->ops->free(space, ptr, len);
    else
        (*out)->own = true;
    return rc;
}

void *hawser_mem_ptr(hawser_mem *m)
{
    return m->ptr;
}

static int check_range(const hawser_mem *m, uint64_t offset, size_t len)
{
    if (offset > m->len || len > m->len - offset)
        return hw_fail(-EFAULT, "%zu bytes at offset %llu exceed the registered memory of %zu bytes", len,
                       (unsigned long long)offset, m->len);
    return 0;
}

int hawser_mem_load(hawser_mem *m, uint64_t offset, void *buf, size_t len)
{
    int rc = check_range(m, offset, len);
    return rc < 0 ? rc : hw_load(m->space, buf, m->ptr + offset, len);
}

int hawser_mem_store(hawser_mem *m, uint64_t offset, const void *buf, size_t len)
{
    int rc = check_range(m, offset, len);
    return rc < 0 ? rc : hw_store(m->space, m->ptr + offset, buf, len);
}

/* ---- regions ---------------------------------------------------------------------------------------- */

static void end_region(struct hw_export *x)
{
    struct region *r = hw_container_of(x, struct region, export);
    struct hawser *h = r->mem->h;
    atomic_store(&r->over, true); /* the thread that revokes the region may free r from here on */
    hw_driver_notify(&h->driver[0]);
}

int hawser_export(hawser_mem *m, uint64_t offset, uint64_t len, uint32_t rights, hawser_peer *peer,
                  uint8_t key[HAWSER_KEY_SIZE])
{
    struct hawser *h = m->h;
    if (rights == 0 || rights & ~(HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE))
        return hw_fail(-EINVAL, "invalid access rights of an export: 0x%x", rights);
    if (offset > m->len || len > m->len - offset)
        return hw_fail(-EFAULT, "cannot export %llu bytes at offset %llu of registered memory of %zu bytes",
                       (unsigned long long)len, (unsigned long long)offset, m->len);
    if (peer && peer->h != h)
        return hw_fail(-EINVAL, "cannot export memory to a peer of another context");
    struct region *r = calloc(1, sizeof *r);
    if (!r)
        return hw_no_memory("a region");
    hw_list_init(&r->of_mem);
    r->mem = m;
    r->export = (struct hw_export){.space = m->space,
                                   .ptr = m->ptr + offset,
                                   .len = len,
                                   .rights = rights,
                                   .only = peer ? &peer->peer : NULL,
                                   .revoked = end_region};
    hw_random(&r->export.secret, sizeof r->export.secret);
    int rc = hw_export_add(&h->domain, &r->export);
    if (rc < 0) {
        free(r);
        return rc;
    }
    pthread_mutex_lock(&h->lock);
    hw_list_append(&m->exports, &r->of_mem);
    pthread_mutex_unlock(&h->lock);
    hw_region_encode(
        key, &(struct hawser_region){.id = r->export.id, .secret = r->export.secret, .length = len, .rights = rights});
    return 0;
}

int hawser_import(const uint8_t key[HAWSER_KEY_SIZE], struct hawser_region *out)
{
    return hw_region_decode(key, out);
}

static bool is_region_over(void *arg)
{
    const struct region *r = arg;
    return atomic_load(&r->over);
}

/* Removes the region from its list. Called with the context's lock held. The caller then calls revoke_region(). */
static void unlist_region(struct region *r)
{
    hw_list_remove(&r->of_mem);
    atomic_fetch_add(&r->mem->revoking, 1);
}

/* Revokes and frees a region that is in no list. Another thread that deregisters the memory may free r->mem as soon as
 * r->mem->revoking is 0. */
static void revoke_region(struct region *r)
{
    struct hawser *h = r->mem->h;
    hw_export_revoke(&r->export);
    (void)hw_driver_wait(&h->driver[0], is_region_over, r, HW_NEVER); /* ends when no rail accesses the memory */
    atomic_fetch_sub(&r->mem->revoking, 1);
    hw_driver_notify(&h->driver[0]);
    free(r);
}

static bool is_memory_unused(void *arg)
{
    const struct hawser_mem *m = arg;
    return atomic_load(&m->revoking) == 0;
}

/* Removes the region with this id and secret from its list and returns it, or NULL. Called with the context's lock
 * held. */
static struct region *take_region(struct hawser *h, uint64_t id, uint64_t secret)
{
    struct region *r = NULL;
    pthread_mutex_lock(&h->domain.lock);
    struct hw_export *x = hw_export_find(&h->domain, id);
    if (x && x->secret == secret)
        r = hw_container_of(x, struct region, export);
    if (r && hw_list_empty(&r->of_mem)) /* another thread is revoking the region */
        r = NULL;
    if (r)
        unlist_region(r);
    pthread_mutex_unlock(&h->domain.lock);
    return r;
}

int hawser_revoke(hawser *h, const uint8_t key[HAWSER_KEY_SIZE])
{
    struct hawser_region key_of;
    int rc = hw_region_decode(key, &key_of);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&h->lock);
    struct region *r = take_region(h, key_of.id, key_of.secret);
    pthread_mutex_unlock(&h->lock);
    if (!r)
        return hw_fail(-ESTALE, "the region has already been revoked, or is unknown");
    revoke_region(r);
    return 0;
}

static struct region *take_first_region(hawser_mem *m)
{
    pthread_mutex_lock(&m->h->lock);
    struct region *r = hw_list_first(&m->exports, struct region, of_mem);
    if (r)
        unlist_region(r);
    pthread_mutex_unlock(&m->h->lock);
    return r;
}

static void free_memory(hawser_mem *m)
{
    if (m->own)
        m->space->ops->free(m->space, m->ptr, m->len);
    free(m);
}

int hawser_mem_deregister(hawser_mem *m)
{
    struct region *r;
    if (!m)
        return 0;
    if (atomic_load(&m->busy))
        return hw_fail(-EBUSY, "operations in flight still use the memory");
    while ((r = take_first_region(m)))
        revoke_region(r);
    /* waits for regions that other threads are revoking */
    (void)hw_driver_wait(&m->h->driver[0], is_memory_unused, m, HW_NEVER);
    if (m->h->tp->forget)
        m->h->tp->forget(&m->h->env, m->space, m->ptr, m->len);
    pthread_mutex_lock(&m->h->lock);
    hw_list_remove(&m->in_context);
    m->h->metrics.registered[!m->space->direct] -= m->len;
    pthread_mutex_unlock(&m->h->lock);
    free_memory(m);
    return 0;
}

void hw_memory_forget_peer(struct hawser *h, const struct hw_peer *p)
{
    static const struct hw_peer nobody;
    pthread_mutex_lock(&h->lock);
    pthread_mutex_lock(&h->domain.lock);
    hw_list_each(it, tmp, &h->mems)
    {
        struct hawser_mem *m = hw_container_of(it, struct hawser_mem, in_context);
        hw_list_each(at, next, &m->exports)
        {
            struct region *r = hw_container_of(at, struct region, of_mem);
            if (r->export.only == p)
                r->export.only = &nobody;
        }
    }
    pthread_mutex_unlock(&h->domain.lock);
    pthread_mutex_unlock(&h->lock);
}

void hw_memory_free_all(struct hawser *h)
{
    hw_list_each(it, tmp, &h->mems)
    {
        struct hawser_mem *m = hw_container_of(it, struct hawser_mem, in_context);
        hw_list_each(at, next, &m->exports)
        {
            free(hw_container_of(at, struct region, of_mem));
        }
        free_memory(m);
    }
}

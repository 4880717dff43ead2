/* SPDX-License-Identifier: Apache-2.0 */
/* The application's memory that is bound to NICs for sending. */
#include "transport/devmem/ctx.h"

#include <unistd.h>

/* The kernel keeps 72 bytes for each page that is bound for sending (net_devmem_bind_dmabuf(), net/core/devmem.c), so
 * only the used part of a framework's allocation of many GB is bound. The first range of an allocation begins and ends
 * at multiples of WINDOW around the data, or at the ends of the allocation. The window doubles with each further range.
 */
#define WINDOW      ((size_t)64 << 20)
#define WINDOWS_MAX 16u

/* Releases bindings of memory that the application has freed or deregistered. Freed memory stays allocated until the
 * release. */
static void sources_sweep(struct dm_ctx *x)
{
    for (unsigned i = 0; i < DM_SOURCES; i++) {
        struct dm_range *s = &x->sources[i];
        pthread_mutex_lock(&x->mu);
        bool leaves = s->state == LEAVING || ((s->state == BOUND || s->state == BAD) &&
                                              s->space->ops->dmabuf_id(s->space, s->is.base) != s->is.id);
        uint32_t binding = s->binding;
        if (leaves)
            s->state = FREE;
        pthread_mutex_unlock(&x->mu);
        if (leaves && binding && x->helper)
            (void)dm_ctx_asked(x, dm_helper_release(x->helper, binding));
    }
}

/* Releases ranges and then binds the wanted ranges, one by one. */
void dm_sources_run(struct dm_ctx *x)
{
    sources_sweep(x);
    for (unsigned i = 0; i < DM_SOURCES; i++) {
        struct dm_range *s = &x->sources[i];
        pthread_mutex_lock(&x->mu);
        bool wanted = s->state == WANTED;
        struct dm_nic *n = &x->nics[s->nic];
        struct dm_source is = s->is;
        const struct hw_space *space = s->space;
        const size_t len = s->len, window = s->window;
        pthread_mutex_unlock(&x->mu);
        if (!wanted)
            continue;
        struct hw_dmabuf b;
        struct dm_binding bound;
        bool asked = false;
        int rc = dm_ctx_helper(x);
        if (rc == 0 && (rc = space->ops->dmabuf_of(space, is.base, len, window, &b)) == 0) {
            asked = b.id == is.id;
            rc = asked ? dm_ctx_asked(x, dm_helper_bind_tx(x->helper, n->name, b.fd, &bound))
                       : hw_fail(-ESTALE, "memory of %s was freed in the meantime", space->name);
            hw_close(&b.fd);
        }
        if (rc)
            hw_log(x->env->log, rc == -ESTALE ? HAWSER_LOG_DEBUG : HAWSER_LOG_INFO,
                   "%s: %s memory is sent through the host: %s", n->name, space->name, hw_error());
        pthread_mutex_lock(&x->mu);
        n->no_sending |= asked && rc == -EOPNOTSUPP; /* the NIC cannot send from any device memory */
        if (s->state == WANTED) { /* false if the range was dropped in the meantime, when hawserd was lost */
            s->state = rc ? BAD : BOUND;
            if (rc == -ERANGE) { /* the rest of the allocation can be bound */
                size_t within = (uintptr_t)is.base % (size_t)sysconf(_SC_PAGESIZE);
                s->is.base = is.base - within;
                s->is.size = within + len;
            }
            if (rc == 0) {
                s->binding = bound.id;
                s->is.dmabuf_id = bound.dmabuf_id;
                s->is.base = b.base;
                s->is.size = b.size;
            }
        }
        pthread_mutex_unlock(&x->mu);
    }
}

static bool is_in_source_range(const struct dm_range *s, const uint8_t *p, size_t len)
{
    return p >= s->is.base && p + len <= s->is.base + s->is.size;
}

bool dm_source_find(struct dm_ctx *x, const char *nic, const struct hw_space *space, const void *ptr, size_t len,
                    struct dm_source *out)
{
    uint64_t id = space->ops->dmabuf_id(space, ptr);
    if (!id)
        return false;
    bool found = false, wake = false, settled = false;
    unsigned ranges = 0;
    pthread_mutex_lock(&x->mu);
    unsigned n = dm_ctx_nic(x, nic);
    struct dm_range *room = NULL;
    for (unsigned i = 0; i < DM_SOURCES && !found; i++) {
        struct dm_range *t = &x->sources[i];
        if (t->state == FREE) {
            room = room ? room : t;
        } else if (t->nic != n || t->space != space || t->is.id != id) {
            continue;
        } else if (t->state == BOUND && is_in_source_range(t, ptr, len)) {
            found = settled = true;
            *out = t->is;
        } else if (t->is.size == 0 || t->state == LEAVING || is_in_source_range(t, ptr, len)) {
            settled = true; /* WANTED or LEAVING: available soon; BAD: never */
        } else {
            ranges++;
        }
    }
    if (!settled && n < HW_NIC_MAX && !x->nics[n].no_sending && dm_ctx_start(x) == 0) {
        if (room)
            *room = (struct dm_range){.state = WANTED,
                                      .nic = n,
                                      .space = space,
                                      .is = {.id = id, .base = ptr},
                                      .len = len,
                                      .window = WINDOW << HW_MIN(ranges, WINDOWS_MAX)};
        uint64_t now = hw_now();
        if (room || now - x->swept > 1000 * HW_MS) { /* if no slot is free, a sweep may free one */
            x->swept = now;
            x->sources_wanted = wake = true;
        }
    }
    pthread_mutex_unlock(&x->mu);
    if (wake)
        dm_ctx_ring(x);
    return found;
}

void dm_source_forget(struct dm_ctx *x, const struct hw_space *space, const void *ptr, size_t len)
{
    const uint8_t *from = ptr, *to = from + len;
    bool any = false;
    pthread_mutex_lock(&x->mu);
    for (unsigned i = 0; i < DM_SOURCES; i++) {
        struct dm_range *s = &x->sources[i];
        if ((s->state == BOUND || s->state == BAD) && s->space == space && s->is.base < to &&
            from < s->is.base + HW_MAX(s->is.size, (size_t)1)) {
            s->state = LEAVING;
            any = true;
        }
    }
    x->sources_wanted |= any;
    pthread_mutex_unlock(&x->mu);
    if (any)
        dm_ctx_ring(x);
}

void dm_source_bad(struct dm_ctx *x, const char *nic, const struct dm_source *is)
{
    pthread_mutex_lock(&x->mu);
    for (unsigned i = 0; i < DM_SOURCES; i++) {
        struct dm_range *s = &x->sources[i];
        if (s->state == BOUND && s->is.id == is->id && s->is.dmabuf_id == is->dmabuf_id &&
            strcmp(x->nics[s->nic].name, nic) == 0)
            s->state = BAD;
    }
    pthread_mutex_unlock(&x->mu);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The context: options, loops, memory and regions, connecting and accepting. */
#include "engine/engine.h"
#include "net/advertise.h"
#include "net/rails.h"
#include "transport/devmem/devmem.h"
#include "transport/netplugin/netplugin.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NETPLUGIN "netplugin:"

void hw_event(struct hawser *h)
{
    if (!atomic_load_explicit(&h->event_wanted, memory_order_relaxed) || h->flags & HAWSER_CALLER_PROGRESS)
        return;
    uint64_t one = 1;
    while (write(h->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* Two at least, since a receiver is busier than its sender and one loop is one CPU (docs/performance.md); half the CPUs
 * and eight at most, the application wants the rest. They sleep when there is nothing to do. */
static unsigned loops_wanted(const struct hawser *h)
{
    if (h->flags & HAWSER_CALLER_PROGRESS)
        return 1;
    if (h->k.threads)
        return (unsigned)HW_MIN(h->k.threads, (uint64_t)HW_LOOPS_MAX);
    cpu_set_t may;
    unsigned cpus = sched_getaffinity(0, sizeof(may), &may) == 0 ? (unsigned)CPU_COUNT(&may) : 1;
    return cpus < 2 ? 1 : HW_MAX(2u, HW_MIN(cpus / 2, 8u));
}

static void free_context(struct hawser *h)
{
    for (unsigned i = 0; i < h->nloops && h->loops; i++)
        hw_loop_stop(&h->loops[i]);
    hw_listener_stop(h);
    for (unsigned i = 0; i < h->nloops && h->loops; i++)
        while (atomic_load(&h->loops[i].callers)) /* their operations are over: they are on their way out */
            sched_yield();
    for (unsigned i = 0; i < h->nloops && h->loops; i++)
        hw_loop_free(&h->loops[i]);
    free(h->loops);
    free(h->regions);
    if (h->tp == &h->own_tp)
        hw_netplugin_close(&h->env);
    if (h->tp == &hw_devmem)
        hw_devmem_close(&h->env);
    hw_close(&h->event_fd);
    pthread_mutex_destroy(&h->mu);
    free(h);
}

int hawser_open(const struct hawser_options *opts, hawser **out)
{
    struct hawser_options o = {.size = sizeof(o)};
    if (!out)
        return hw_fail(-EINVAL, "no place for the new context");
    *out = NULL;
    if (opts) {
        if (opts->size < offsetof(struct hawser_options, log) || opts->size > 4096)
            return hw_fail(-EINVAL, "hawser_options.size is %zu", opts->size);
        memcpy(&o, opts, HW_MIN(opts->size, sizeof(o)));
    }
    if (o.flags & ~(HAWSER_CALLER_PROGRESS | HAWSER_INSECURE))
        return hw_fail(-EINVAL, "unknown flags 0x%x", o.flags);
    if (o.key && (o.key_len < HW_KEY_MIN || o.key_len > HW_KEY_MAX))
        return hw_fail(-EINVAL, "a job key of %zu bytes; %d to %d are allowed", o.key_len, HW_KEY_MIN, HW_KEY_MAX);
    int rc = hw_crypto_init();
    if (rc)
        return rc;
    struct hawser *h = calloc(1, sizeof(*h));
    if (!h)
        return hw_no_memory("a context");
    h->event_fd = -1;
    pthread_mutex_init(&h->mu, NULL);
    hw_list_init(&h->peers);
    hw_list_init(&h->accepts);
    hw_list_init(&h->graves);
    hw_list_init(&h->mems);
    h->flags = o.flags;
    h->log = (struct hw_logger){.fn = o.log, .arg = o.log_arg, .level = HAWSER_LOG_DEBUG};
    h->keyed = o.key != NULL;
    hw_boot_key(h->key, o.key, o.key ? o.key_len : 0);
    h->tp = &hw_tcp;
    h->env = (struct hw_tp_env){.knobs = &h->k, .log = &h->log};
    if ((rc = hw_knobs_load(&h->k, o.knobs)))
        goto fail;
    char *rails = NULL;
    if ((rc = hw_advertise_check(h->k.advertise)) || (rc = hw_rails_read(h->k.rails, &rails)) ||
        (rc = hw_rails_check(rails))) {
        free(rails);
        goto fail;
    }
    free(rails);
    const char *self = h->k.same_machine;
    if (strcmp(self, "auto") != 0 && strcmp(self, "yes") != 0 && strcmp(self, "no") != 0) {
        rc = hw_fail(-EINVAL, "knob same_machine: \"%s\" is neither auto, yes nor no", self);
        goto fail;
    }
    if (strncmp(h->k.transport, NETPLUGIN, strlen(NETPLUGIN)) == 0) { /* before there are threads: it forks */
        if ((rc = hw_netplugin_open(h->k.transport + strlen(NETPLUGIN), &h->env, &h->own_tp)))
            goto fail;
        h->tp = &h->own_tp;
    } else if (strcmp(h->k.transport, hw_devmem.name) == 0) {
        if ((rc = hw_devmem_open(&h->env)))
            goto fail;
        h->tp = &hw_devmem;
    } else if (strcmp(h->k.transport, hw_tcp.name) != 0) {
        rc = hw_fail(-EINVAL, "knob transport: \"%s\" is neither tcp, devmem nor netplugin:PLUGIN", h->k.transport);
        goto fail;
    }
    if (h->k.require_direct && !h->tp->caps.device_path) {
        rc = hw_fail(-EOPNOTSUPP,
                     "knob require_direct: transport %s lands nothing in GPU memory: all of it would pass "
                     "through the host's; take devmem, or a plugin that takes GPU memory",
                     h->k.transport);
        goto fail;
    }
    if (!h->env.ident[0])
        snprintf(h->env.ident, sizeof(h->env.ident), "%s", h->tp->name);
    unsigned want = loops_wanted(h);
    h->loops = calloc(want, sizeof(*h->loops));
    h->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!h->loops || h->event_fd < 0) {
        rc = h->loops ? hw_fail(-errno, "making an eventfd: %s", strerror(errno)) : hw_no_memory("loops");
        goto fail;
    }
    for (unsigned i = 0; i < want; i++) {
        h->nloops = i + 1;
        if ((rc = hw_loop_init(&h->loops[i], h, i)))
            goto fail;
    }
    for (unsigned i = 0; i < want && !(h->flags & HAWSER_CALLER_PROGRESS); i++)
        if ((rc = hw_loop_start(&h->loops[i])))
            goto fail;
    *out = h;
    return 0;
fail:
    free_context(h);
    return rc;
}

static void detach_peer(struct hawser_peer *p)
{
    struct hawser *h = p->h;
    pthread_mutex_lock(&h->mu);
    if (!hw_list_empty(&p->in_accept)) {
        hw_list_remove(&p->in_accept);
        atomic_fetch_sub(p->known ? &h->naccepts : &h->ngraves, 1);
    }
    hw_list_remove(&p->in_ctx);
    h->npeers--;
    for (uint32_t i = 0; i < h->nregions; i++) /* what was exported to it alone is of no use any more */
        if (h->regions[i] && h->regions[i]->peer == p)
            h->regions[i]->rights = 0;
    pthread_mutex_unlock(&h->mu);
}

void hawser_peer_close(hawser_peer *p)
{
    if (!p)
        return;
    detach_peer(p); /* no listener finds it any more */
    pthread_mutex_lock(&p->mu);
    if (atomic_load(&p->state) >= 0) {
        hw_peer_confirm(p); /* whose bytes have arrived here may know that they have */
        if (hw_ctl_add(p, HW_F_BYE, 0, 0, NULL, 0, NULL, 0) == 0)
            hw_ctl_flush(p);
        /* an orderly end, unlike every other close of ours: what was sent, BYE last, still arrives */
        if (p->ctl.fd >= 0 && !p->ctl.broken)
            (void)shutdown(p->ctl.fd, SHUT_WR);
        p->said_bye = true;
        hw_peer_fail(p, -ESHUTDOWN, "closed by this side");
    }
    pthread_mutex_unlock(&p->mu);
    hw_peer_free(p);
}

void hawser_close(hawser *h)
{
    if (!h)
        return;
    for (;;) {
        pthread_mutex_lock(&h->mu);
        struct hawser_peer *p = hw_list_first(&h->peers, struct hawser_peer, in_ctx);
        pthread_mutex_unlock(&h->mu);
        if (p) {
            hawser_peer_close(p);
            continue;
        }
        if (!h->listener)
            break;
        /* and no new ones */
        hw_loop_acquire(&h->loops[0]);
        hw_listener_stop(h);
        hw_loop_release(&h->loops[0]);
    }
    hw_list_each(it, tmp, &h->mems)
    {
        struct hawser_mem *m = hw_container_of(it, struct hawser_mem, in_ctx);
        hw_list_each(rt, rtmp, &m->regions)
        {
            free(hw_container_of(rt, struct hw_region, in_mem));
        }
        free(m);
    }
    free_context(h);
}

const char *hawser_error(void)
{
    return hw_error();
}

const char *hawser_version(void)
{
    return "0.1.0";
}

int hawser_progress(hawser *h, int timeout_ms)
{
    if (!(h->flags & HAWSER_CALLER_PROGRESS))
        return -EAGAIN; /* threads do it */
    struct hw_loop *l = &h->loops[0];
    hw_loop_acquire(l);
    bool did = hw_loop_drive(l, timeout_ms == 0 ? 0 : hw_deadline(timeout_ms));
    hw_loop_release(l);
    return did ? 0 : -EAGAIN;
}

int hawser_eventfd(hawser *h)
{
    if (h->flags & HAWSER_CALLER_PROGRESS) {
        if (!atomic_exchange(&h->event_wanted, true)) {
            int rc = hw_loop_pollable(&h->loops[0]);
            if (rc) {
                atomic_store(&h->event_wanted, false);
                return rc;
            }
        }
        return h->loops[0].epfd;
    }
    atomic_store(&h->event_wanted, true);
    return h->event_fd;
}

/* ---- memory and regions -------------------------------------------------------------------------- */

int hawser_mem_register(hawser *h, enum hawser_mem_kind kind, void *ptr, size_t len, hawser_mem **out)
{
    *out = NULL;
    if (!ptr || (uintptr_t)ptr + len < (uintptr_t)ptr)
        return hw_fail(-EINVAL, "registering %zu bytes at %p", len, ptr);
    const struct hw_space *space;
    int rc = hw_space_find(kind, ptr, len, &space);
    if (rc)
        return rc;
    struct hawser_mem *m = calloc(1, sizeof(*m));
    if (!m)
        return hw_fail(-ENOMEM, "no memory to register memory");
    if (!space->direct) {
        const struct hw_space *none = NULL;
        (void)atomic_compare_exchange_strong(&h->env.gpu, &none, space);
    }
    m->h = h;
    m->space = space;
    m->ptr = ptr;
    m->len = len;
    hw_list_init(&m->regions);
    pthread_mutex_lock(&h->mu);
    hw_list_append(&h->mems, &m->in_ctx);
    pthread_mutex_unlock(&h->mu);
    *out = m;
    return 0;
}

int hawser_mem_alloc(hawser *h, enum hawser_mem_kind kind, int device, size_t len, hawser_mem **out)
{
    const struct hw_space *space;
    void *ptr;
    *out = NULL;
    if (len == 0)
        return hw_fail(-EINVAL, "allocating no bytes");
    int rc = hw_space_device(kind, device, &space);
    if (rc == 0)
        rc = space->ops->alloc(space, len, &ptr);
    if (rc)
        return rc;
    rc = hawser_mem_register(h, kind, ptr, len, out);
    if (rc) {
        space->ops->free(space, ptr, len);
        return rc;
    }
    (*out)->own = true;
    return 0;
}

void *hawser_mem_ptr(hawser_mem *m)
{
    return m->ptr;
}

static int within(const hawser_mem *m, uint64_t offset, size_t len)
{
    if (offset > m->len || len > m->len - offset)
        return hw_fail(-EFAULT, "bytes %llu to %llu lie outside memory of %zu", (unsigned long long)offset,
                       (unsigned long long)(offset + len), m->len);
    return 0;
}

int hawser_mem_load(hawser_mem *m, uint64_t offset, void *buf, size_t len)
{
    int rc = within(m, offset, len);
    return rc ? rc : hw_load(m->space, buf, m->ptr + offset, len);
}

int hawser_mem_store(hawser_mem *m, uint64_t offset, const void *buf, size_t len)
{
    int rc = within(m, offset, len);
    return rc ? rc : hw_store(m->space, m->ptr + offset, buf, len);
}

int hawser_export(hawser_mem *m, uint64_t offset, uint64_t len, uint32_t rights, hawser_peer *peer,
                  uint8_t key[HAWSER_KEY_SIZE])
{
    struct hawser *h = m->h;
    if (rights == 0 || rights & ~(HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE))
        return hw_fail(-EINVAL, "exporting with rights 0x%x", rights);
    if (offset > m->len || len > m->len - offset)
        return hw_fail(-EFAULT, "exporting bytes %llu to %llu of memory of %zu", (unsigned long long)offset,
                       (unsigned long long)(offset + len), m->len);
    struct hw_region *r = calloc(1, sizeof(*r));
    if (!r)
        return hw_fail(-ENOMEM, "no memory to export a region");
    r->base = m->ptr + offset;
    r->length = len;
    r->rights = rights;
    r->peer = peer;
    r->mem = m;
    hw_random(&r->secret, sizeof(r->secret));
    pthread_mutex_lock(&h->mu);
    uint32_t i = 0;
    while (i < h->nregions && h->regions[i])
        i++;
    if (i == h->nregions) {
        uint32_t n = h->nregions ? h->nregions * 2 : 16;
        struct hw_region **grown = realloc(h->regions, n * sizeof(struct hw_region *));
        if (!grown) {
            pthread_mutex_unlock(&h->mu);
            free(r);
            return hw_fail(-ENOMEM, "no memory to export a region");
        }
        memset(grown + h->nregions, 0, (n - h->nregions) * sizeof(struct hw_region *));
        h->regions = grown;
        h->nregions = n;
    }
    if (++h->region_gen == 0)
        h->region_gen = 1; /* 0 as an id is none */
    r->id = (uint64_t)h->region_gen << 32 | i;
    h->regions[i] = r;
    hw_list_append(&m->regions, &r->in_mem);
    hw_region_encode(key, &(struct hawser_region){.id = r->id, .secret = r->secret, .length = len, .rights = rights});
    pthread_mutex_unlock(&h->mu);
    return 0;
}

int hawser_import(const uint8_t key[HAWSER_KEY_SIZE], struct hawser_region *out)
{
    return hw_region_decode(key, out);
}

/* With the region out of the table: no loop uses it any more once each has been driven from here. */
static void let_go(struct hawser *h, uint64_t id)
{
    for (unsigned i = 0; i < h->nloops; i++) {
        hw_loop_acquire(&h->loops[i]);
        struct hw_loop *l = &h->loops[i];
        pthread_mutex_lock(&l->qmu);
        for (struct hw_list *it = l->lanes.next; it != &l->lanes; it = it->next) {
            struct hw_lane *lane = hw_container_of(it, struct hw_lane, all);
            struct hawser_peer *p = lane->peer;
            pthread_mutex_unlock(&l->qmu);
            pthread_mutex_lock(&p->mu);
            if (i == 0) { /* reads that are being served from it */
                hw_list_each(st, stmp, &p->served)
                {
                    struct hawser_op *op = hw_container_of(st, struct hawser_op, pending);
                    bool uses = false;
                    for (size_t v = 0; v < op->nvecs; v++)
                        uses |= op->vecs[v].region == id;
                    if (!uses || op->aborting)
                        continue;
                    if (atomic_load(&p->state) >= 0)
                        hw_ctl_error(p, op->id, -ESTALE, "the region was revoked");
                    hw_op_abort(op, -ESTALE, NULL);
                }
            }
            uint32_t n = atomic_load(&p->nchans);
            for (uint32_t k = 0; k < n; k++) {
                struct hw_chan *c = &p->chans[k];
                if (c->lane == lane && c->conn && c->rx_region == id) {
                    hw_ctl_error(p, c->rx_head.op, -ESTALE, "the region was revoked");
                    h->tp->discard(c->conn);
                    c->rx_region = 0;
                }
            }
            hw_op_lane_scan(lane);
            pthread_mutex_unlock(&p->mu);
            pthread_mutex_lock(&l->qmu);
        }
        pthread_mutex_unlock(&l->qmu);
        hw_loop_release(l);
    }
}

static int revoke_id(struct hawser *h, uint64_t id, uint64_t secret, bool check)
{
    uint32_t i = (uint32_t)id;
    pthread_mutex_lock(&h->mu);
    struct hw_region *r = i < h->nregions ? h->regions[i] : NULL;
    if (!r || r->id != id || (check && r->secret != secret)) {
        pthread_mutex_unlock(&h->mu);
        return hw_fail(-ESTALE, "there is no such region to revoke");
    }
    h->regions[i] = NULL;
    hw_list_remove(&r->in_mem);
    pthread_mutex_unlock(&h->mu);
    let_go(h, id);
    free(r);
    return 0;
}

int hawser_revoke(hawser *h, const uint8_t key[HAWSER_KEY_SIZE])
{
    struct hawser_region r;
    int rc = hw_region_decode(key, &r);
    return rc ? rc : revoke_id(h, r.id, r.secret, true);
}

int hawser_mem_deregister(hawser_mem *m)
{
    if (!m)
        return 0;
    struct hawser *h = m->h;
    if (atomic_load(&m->busy))
        return hw_fail(-EBUSY, "%u operations still use the memory", atomic_load(&m->busy));
    for (;;) {
        pthread_mutex_lock(&h->mu);
        struct hw_region *r = hw_list_first(&m->regions, struct hw_region, in_mem);
        uint64_t id = r ? r->id : 0;
        pthread_mutex_unlock(&h->mu);
        if (!r)
            break;
        (void)revoke_id(h, id, 0, false);
    }
    pthread_mutex_lock(&h->mu);
    hw_list_remove(&m->in_ctx);
    pthread_mutex_unlock(&h->mu);
    if (h->tp->forget)
        h->tp->forget(&h->env, m->space, m->ptr, m->len);
    if (m->own)
        m->space->ops->free(m->space, m->ptr, m->len);
    free(m);
    return 0;
}

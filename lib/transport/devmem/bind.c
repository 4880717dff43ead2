/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "mem/cuda.h"
#include "transport/devmem/ctx.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CALL_MS 5000 /* time limit of one request to hawserd, in ms; binding restarts a queue of the NIC */

/* ---- the thread ----------------------------------------------------------------------------------------- */

int dm_ctx_helper(struct dm_ctx *x)
{
    const char *path = x->env->knobs->devmem_socket;
    if (x->helper)
        return 0;
    return dm_helper_open(*path ? path : NULL, CALL_MS, &x->helper);
}

/* Handles the loss of hawserd, which ends all bindings and rules. */
static void helper_lost(struct dm_ctx *x, const char *why)
{
    dm_helper_close(x->helper);
    x->helper = NULL;
    hw_log(x->env->log, HAWSER_LOG_WARN, "lost the connection to hawserd (%s): re-establishing the devmem connections",
           why);
    pthread_mutex_lock(&x->mu);
    atomic_fetch_add(&x->epoch, 1);
    for (unsigned i = 0; i < x->nlandings; i++) {
        x->landings[i].bound = false;
        x->landings[i].claims = 0;
    }
    for (unsigned i = 0; i < DM_SOURCES; i++)
        x->sources[i].state = FREE;
    pthread_mutex_unlock(&x->mu);
}

int dm_ctx_asked(struct dm_ctx *x, int rc)
{
    if (rc == -EPIPE || rc == -ETIMEDOUT) {
        char text[HW_ERR_TEXT];
        snprintf(text, sizeof(text), "%s", hw_error());
        helper_lost(x, text);
        (void)hw_fail_copy(rc, text);
    }
    return rc;
}

/* Returns the number of leading folders that the sysfs paths of two devices have in common. */
static unsigned in_common(const char *a, const char *b)
{
    char x[PATH_MAX], y[PATH_MAX];
    unsigned n = 0;
    if (!realpath(a, x) || !realpath(b, y))
        return 0;
    for (size_t i = 0; x[i] && x[i] == y[i]; i++)
        n += x[i] == '/';
    return n;
}

/* Finds the GPU nearest to the NIC by PCI path, or the host if there is no GPU. Creates a CUDA context only on the
 * chosen GPU. */
static int find_space_near_nic(const char *nic, const struct hw_space **out)
{
    char here[64 + HAWSER_NIC_NAME], there[64];
    int best = -1, n = hw_cuda_count();
    unsigned most = 0;
    struct hw_gpu_info info;
    snprintf(here, sizeof(here), "/sys/class/net/%s/device", nic);
    for (int i = 0; i < n; i++) {
        if (hw_cuda_info(i, &info))
            continue;
        snprintf(there, sizeof(there), "/sys/bus/pci/devices/%s", info.pci);
        unsigned common = in_common(here, there);
        if (best < 0 || common > most) {
            best = i;
            most = common;
        }
    }
    *out = &hw_host;
    return best < 0 ? 0 : hw_space_device(HAWSER_MEM_CUDA, best, out);
}

int dm_memory_device(const char *where)
{
    char *end;
    if (strcmp(where, "auto") == 0)
        return DM_MEMORY_AUTO;
    if (strcmp(where, "host") == 0)
        return DM_MEMORY_HOST;
    long n = strncmp(where, "cuda:", 5) == 0 ? strtol(where + 5, &end, 10) : -1;
    if (n < 0 || n > 1023 || *end || where[5] < '0' || where[5] > '9')
        return hw_fail(-EINVAL, "knob devmem_memory: \"%s\" is not one of auto, host, cuda:0 to cuda:1023", where);
    return (int)n;
}

/* Chooses the memory for the payload of this GPU (-1 if not specified). Knob devmem_memory has precedence. */
static int choose_space(struct dm_ctx *x, const struct dm_nic *n, int gpu, const struct hw_space **out)
{
    const struct hw_space *seen = atomic_load(&x->env->gpu);
    const int device = dm_memory_device(x->env->knobs->devmem_memory);
    *out = &hw_host;
    if (device >= 0)
        return hw_space_device(HAWSER_MEM_CUDA, device, out);
    if (device != DM_MEMORY_AUTO)
        return 0;
    if (gpu >= 0)
        return hw_space_device(HAWSER_MEM_CUDA, gpu, out);
    if (!seen)
        return find_space_near_nic(n->name, out);
    *out = seen;
    return 0;
}

/* Finds or creates the landing for this GPU and NIC. */
static int landing_make(struct dm_ctx *x, unsigned nic, int gpu, struct dm_landing **out)
{
    const struct hw_space *space;
    struct dm_nic *n = &x->nics[nic];
    if (gpu < 0 && n->unsaid) {
        *out = n->unsaid;
        return 0;
    }
    int rc = choose_space(x, n, gpu, &space);
    if (rc)
        return rc;
    struct dm_landing *l = x->landings, *end = l + x->nlandings;
    while (l < end && (l->nic != nic || l->pool.space != space))
        l++;
    if (l == end && x->nlandings == DM_LANDINGS)
        return hw_fail(-E2BIG, "devmem supports at most %d pairs of a NIC and a GPU (or the host)", DM_LANDINGS);
    if (l == end) {
        *l = (struct dm_landing){.nic = nic, .pool = {.space = space}};
        if ((rc = space->ops->dmabuf_alloc(space, x->env->knobs->devmem_pool, &l->pool.buf)))
            return rc;
        x->nlandings++;
    }
    if (gpu < 0)
        n->unsaid = l;
    *out = l;
    return 0;
}

/* Releases the queues of unused landings on a NIC. Returns true if a queue was released and hawserd is still
 * connected. */
static bool release_idle(struct dm_ctx *x, unsigned nic)
{
    bool any = false;
    for (struct dm_landing *l = x->landings; l < x->landings + x->nlandings; l++) {
        pthread_mutex_lock(&x->mu);
        bool idle = l->nic == nic && l->bound && l->claims == 0;
        pthread_mutex_unlock(&x->mu);
        if (!idle || !x->helper)
            continue;
        l->bound = false;
        any |= dm_ctx_asked(x, dm_helper_release(x->helper, l->binding.id)) == 0;
    }
    return any && x->helper; /* the release may have detected the loss of hawserd */
}

static int bind_queues(struct dm_ctx *x, struct dm_landing *l)
{
    const struct hw_knobs *k = x->env->knobs;
    const char *name = x->nics[l->nic].name;
    int rc = dm_ctx_asked(x, dm_helper_bind_rx(x->helper, name, l->pool.buf.fd, (unsigned)k->devmem_queues,
                                               (uint32_t)k->devmem_piece, &l->binding));
    l->bound = rc == 0;
    if (rc == 0)
        hw_log(x->env->log, HAWSER_LOG_INFO,
               "%s: %zu bytes of %s memory are bound to %u queues of this NIC, in pieces of %s", name, l->pool.buf.size,
               l->pool.space->name, l->binding.nqueues,
               l->binding.page   ? "the size that knob devmem_piece sets"
               : k->devmem_piece ? "a page (the kernel, the driver or the memory does not support knob devmem_piece)"
                                 : "a page");
    return rc;
}

static int receive_here(struct dm_ctx *x, struct dm_claim *c)
{
    struct dm_landing *l = NULL;
    uint32_t queue;
    int rc = dm_ctx_helper(x);
    if (rc || (rc = landing_make(x, c->nic, c->gpu, &l)))
        return rc;
    if (!l->bound) {
        rc = bind_queues(x, l);
        /* Each GPU has its own queues, so the queues of an idle GPU can be reassigned. */
        if ((rc == -EBUSY || rc == -EDQUOT || rc == -ENOSPC) && release_idle(x, c->nic))
            rc = bind_queues(x, l);
        if (rc)
            return rc;
    }
    rc = dm_ctx_asked(x, dm_helper_steer(x->helper, l->binding.id, c->sock, &c->rule, &queue));
    if (rc)
        return rc;
    c->landing = l;
    c->dmabuf_id = l->binding.dmabuf_id;
    c->epoch = atomic_load(&x->epoch);
    return 0;
}

static void claim_destroy(struct dm_claim *c)
{
    hw_close(&c->sock);
    free(c);
}

static void claim_run(struct dm_ctx *x, struct dm_claim *c)
{
    if (c->leaving) {
        if (x->helper && c->epoch == atomic_load(&x->epoch))
            (void)dm_ctx_asked(x, dm_helper_release(x->helper, c->rule));
        claim_destroy(c);
        return;
    }
    int rc = receive_here(x, c);
    pthread_mutex_lock(&x->mu);
    c->decided = true;
    c->rc = rc;
    if (rc)
        snprintf(c->text, sizeof(c->text), "%s", hw_error());
    else
        c->landing->claims++;
    bool abandoned = c->abandoned;
    if (!abandoned)
        (void)!write(c->event, &(uint64_t){1}, sizeof(uint64_t));
    else if (rc == 0)
        c->landing->claims--;
    pthread_mutex_unlock(&x->mu);
    if (abandoned && rc == 0 && x->helper)
        (void)dm_ctx_asked(x, dm_helper_release(x->helper, c->rule));
    if (abandoned)
        claim_destroy(c);
}

static void *run_devmem_thread(void *arg)
{
    struct dm_ctx *x = arg;
    hw_own_thread = true;
    for (;;) {
        struct pollfd p[2] = {{.fd = x->wake, .events = POLLIN},
                              {.fd = x->helper ? dm_helper_fd(x->helper) : -1, .events = POLLIN}};
        (void)poll(p, 2, -1);
        uint64_t n;
        (void)!read(x->wake, &n, sizeof(n));
        if (p[1].revents)
            helper_lost(x, "its socket was closed");
        for (;;) {
            pthread_mutex_lock(&x->mu);
            struct dm_claim *c = x->queue;
            bool stop = x->stop, wanted = x->sources_wanted;
            if (c)
                x->queue = c->next;
            x->sources_wanted = false;
            pthread_mutex_unlock(&x->mu);
            if (stop && !c)
                return NULL;
            if (c)
                claim_run(x, c);
            if (wanted)
                dm_sources_run(x);
            if (!c && !wanted)
                break;
        }
    }
}

/* ---- the context ------------------------------------------------------------------------------------ */

struct dm_ctx *dm_ctx_new(const struct hw_tp_env *env)
{
    struct dm_ctx *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->env = env;
    x->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (x->wake < 0) {
        free(x);
        return NULL;
    }
    pthread_mutex_init(&x->mu, NULL);
    return x;
}

void dm_ctx_ring(struct dm_ctx *x)
{
    (void)!write(x->wake, &(uint64_t){1}, sizeof(uint64_t));
}

void dm_ctx_free(struct dm_ctx *x)
{
    if (!x)
        return;
    if (x->running) {
        pthread_mutex_lock(&x->mu);
        x->stop = true;
        pthread_mutex_unlock(&x->mu);
        dm_ctx_ring(x);
        pthread_join(x->thread, NULL);
    }
    dm_helper_close(x->helper);
    for (unsigned i = 0; i < x->nlandings; i++) {
        struct dm_pool *pool = &x->landings[i].pool;
        pool->space->ops->dmabuf_free(pool->space, &pool->buf);
    }
    hw_close(&x->wake);
    pthread_mutex_destroy(&x->mu);
    free(x);
}

int dm_ctx_start(struct dm_ctx *x)
{
    if (x->running)
        return 0;
    int rc = hw_thread_start(&x->thread, run_devmem_thread, x, "the thread of transport devmem");
    if (rc)
        return rc;
    (void)pthread_setname_np(x->thread, "hawser/devmem");
    x->running = true;
    return 0;
}

void dm_ctx_kill(struct dm_ctx *x, int rc, const char *why)
{
    pthread_mutex_lock(&x->mu);
    if (!atomic_load(&x->dead)) {
        snprintf(x->why, sizeof(x->why), "%s", why);
        atomic_store(&x->dead, rc);
    }
    pthread_mutex_unlock(&x->mu);
}

int dm_ctx_alive(struct dm_ctx *x)
{
    int rc = atomic_load(&x->dead);
    return rc ? hw_fail_copy(rc, x->why) : 0;
}

void dm_ctx_warn(struct dm_ctx *x, const char *nic, bool receives, const char *why)
{
    const uint64_t hash = hw_hash(hw_hash(HW_HASH_START, nic, strlen(nic)), why, strlen(why));
    pthread_mutex_lock(&x->mu);
    bool told = x->nwarned == DM_WARNINGS;
    for (unsigned i = 0; i < x->nwarned; i++)
        told |= x->warned[i] == hash;
    if (!told)
        x->warned[x->nwarned++] = hash;
    pthread_mutex_unlock(&x->mu);
    hw_log(x->env->log, told ? HAWSER_LOG_DEBUG : HAWSER_LOG_WARN, "%s: using plain tcp instead of devmem to %s: %s",
           nic, receives ? "receive" : "send", why);
}

unsigned dm_ctx_nic(struct dm_ctx *x, const char *name)
{
    unsigned i = 0;
    while (i < x->nnics && strcmp(x->nics[i].name, name) != 0)
        i++;
    if (i == x->nnics && i < HW_NIC_MAX) {
        memset(&x->nics[i], 0, sizeof(x->nics[i]));
        snprintf(x->nics[i].name, sizeof(x->nics[i].name), "%s", name);
        x->nnics++;
    }
    return i;
}

/* ---- claims ------------------------------------------------------------------------------------------ */

static void enqueue_claim(struct dm_ctx *x, struct dm_claim *c)
{
    struct dm_claim **at = &x->queue;
    while (*at)
        at = &(*at)->next;
    c->next = NULL;
    *at = c;
}

int dm_claim_new(struct dm_ctx *x, const char *nic, int gpu, int sock, int event, struct dm_claim **out)
{
    struct dm_claim *c = calloc(1, sizeof(*c));
    if (!c)
        return hw_no_memory("a connection");
    c->ctx = x;
    c->event = event;
    c->gpu = gpu;
    c->sock = fcntl(sock, F_DUPFD_CLOEXEC, 0); /* the connection may be closed before the thread processes the claim */
    int rc = c->sock < 0 ? hw_fail(-errno, "duplicating the descriptor of a connection: %s", strerror(errno)) : 0;
    if (rc == 0) {
        pthread_mutex_lock(&x->mu);
        c->nic = dm_ctx_nic(x, nic);
        rc = c->nic == HW_NIC_MAX ? hw_fail(-E2BIG, "devmem supports at most %d NICs", HW_NIC_MAX) : dm_ctx_start(x);
        if (rc == 0)
            enqueue_claim(x, c);
        pthread_mutex_unlock(&x->mu);
    }
    if (rc) {
        claim_destroy(c);
        return rc;
    }
    dm_ctx_ring(x);
    *out = c;
    return 0;
}

int dm_claim_test(struct dm_claim *c, const struct dm_pool **pool, uint32_t *dmabuf_id)
{
    pthread_mutex_lock(&c->ctx->mu);
    int rc = c->decided ? c->rc : -EAGAIN;
    pthread_mutex_unlock(&c->ctx->mu);
    if (rc == -EAGAIN)
        return rc;
    hw_close(&c->sock);
    if (rc)
        return hw_fail_copy(rc, c->text);
    *pool = &c->landing->pool;
    *dmabuf_id = c->dmabuf_id;
    return 0;
}

int dm_claim_health(const struct dm_claim *c)
{
    return c->epoch == atomic_load(&c->ctx->epoch)
               ? 0
               : hw_fail(-ENOLINK, "the connection to hawserd was lost, which released the bindings of %s",
                         c->ctx->nics[c->nic].name);
}

unsigned dm_claim_sharers(const struct dm_claim *c)
{
    pthread_mutex_lock(&c->ctx->mu);
    unsigned n = c->landing->claims;
    pthread_mutex_unlock(&c->ctx->mu);
    return n;
}

void dm_claim_free(struct dm_claim *c)
{
    if (!c)
        return;
    struct dm_ctx *x = c->ctx;
    pthread_mutex_lock(&x->mu);
    bool decided = c->decided, held = decided && c->rc == 0;
    c->abandoned = true;
    if (held) {
        if (c->epoch == atomic_load(&x->epoch))
            c->landing->claims--;
        c->leaving = true;
        enqueue_claim(x, c);
    }
    pthread_mutex_unlock(&x->mu);
    if (held)
        dm_ctx_ring(x);
    else if (decided)
        claim_destroy(c);
}

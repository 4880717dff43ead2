/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/devmem/bind.h"
#include "mem/cuda.h"
#include "transport/devmem/helper.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CALL_MS 5000 /* of one request to hawserd: binding restarts a queue of the NIC's */
#define SOURCES 64   /* ranges of memory bound for sending, per context */
/* The kernel keeps 72 bytes for each page that is bound for sending (net_devmem_bind_dmabuf(), net/core/devmem.c): of a
 * framework's allocation of many GB only the part that is sent is bound. The first range of an allocation has WINDOW
 * bytes at most, each further one twice as many as the one before. */
#define WINDOW      ((size_t)64 << 20)
#define WINDOWS_MAX 16u
#define WARNINGS    16

struct nic {
    char name[HAWSER_NIC_NAME];
    bool pooled, bound;
    struct dm_pool pool;
    struct dm_binding binding;
    unsigned claims; /* that stand */
    bool no_sending; /* learned once: kernel or driver cannot */
};

struct source {
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
    struct nic nics[HW_NIC_MAX];
    unsigned nnics;
    struct source sources[SOURCES];
    bool sources_wanted;
    uint64_t swept;           /* when a sweep was last asked for */
    _Atomic uint64_t epoch;   /* rises when hawserd is lost: grants of earlier ones are void */
    struct dm_helper *helper; /* the thread's */
    atomic_int dead;
    char why[HW_ERR_TEXT];
    uint64_t warned[WARNINGS]; /* hashes */
    unsigned nwarned;
};

/* ---- the thread ------------------------------------------------------------------------------------- */

static int helper_up(struct dm_ctx *x)
{
    const char *path = x->env->knobs->devmem_socket;
    if (x->helper)
        return 0;
    return dm_helper_open(*path ? path : NULL, CALL_MS, &x->helper);
}

/* With its bindings and rules. */
static void helper_lost(struct dm_ctx *x, const char *why)
{
    dm_helper_close(x->helper);
    x->helper = NULL;
    hw_log(x->env->log, HAWSER_LOG_WARN, "hawserd is gone (%s): connections over devmem are made anew", why);
    pthread_mutex_lock(&x->mu);
    atomic_fetch_add(&x->epoch, 1);
    for (unsigned i = 0; i < x->nnics; i++) {
        x->nics[i].bound = false;
        x->nics[i].claims = 0;
    }
    for (unsigned i = 0; i < SOURCES; i++)
        x->sources[i].state = FREE;
    pthread_mutex_unlock(&x->mu);
}

static int asked(struct dm_ctx *x, int rc)
{
    if (rc == -EPIPE || rc == -ETIMEDOUT) {
        char text[HW_ERR_TEXT];
        snprintf(text, sizeof(text), "%s", hw_error());
        helper_lost(x, text);
        (void)hw_fail_copy(rc, text);
    }
    return rc;
}

/* How many folders of the device tree two devices have in common: bridges, switches, roots. */
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

/* The GPU nearest to the NIC by PCI; no GPU: the host. A context is made only of the one that is chosen. */
static int nearest(const char *nic, const struct hw_space **out)
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
        return hw_fail(-EINVAL, "knob devmem_memory: \"%s\" is neither auto, host, nor cuda:NUMBER", where);
    return (int)n;
}

static int pool_make(struct dm_ctx *x, struct nic *n)
{
    const struct hw_knobs *k = x->env->knobs;
    const char *where = k->devmem_memory;
    const struct hw_space *space = &hw_host, *gpu = atomic_load(&x->env->gpu);
    int rc = 0;
    if (n->pooled)
        return 0;
    int device = dm_memory_device(where);
    if (device >= 0) {
        rc = hw_space_device(HAWSER_MEM_CUDA, device, &space);
    } else if (device == DM_MEMORY_AUTO) {
        rc = gpu ? 0 : nearest(n->name, &space);
        space = gpu ? gpu : space;
    }
    if (rc == 0)
        rc = space->ops->dmabuf_alloc(space, k->devmem_pool, &n->pool.buf);
    if (rc == 0) {
        n->pool.space = space;
        n->pooled = true;
    }
    return rc;
}

static int receive_here(struct dm_ctx *x, struct dm_claim *c)
{
    struct nic *n = &x->nics[c->nic];
    uint32_t queue;
    int rc = helper_up(x);
    if (rc == 0)
        rc = pool_make(x, n);
    if (rc == 0 && !n->bound) {
        const struct hw_knobs *k = x->env->knobs;
        rc = asked(x, dm_helper_bind_rx(x->helper, n->name, n->pool.buf.fd, (unsigned)k->devmem_queues,
                                        (uint32_t)k->devmem_piece, &n->binding));
        n->bound = rc == 0;
        if (rc == 0)
            hw_log(x->env->log, HAWSER_LOG_INFO,
                   "%s: %zu bytes of %s memory are bound to %u of its queues, in pieces of %s", n->name,
                   n->pool.buf.size, n->pool.space->name, n->binding.nqueues,
                   n->binding.page   ? "devmem_piece"
                   : k->devmem_piece ? "a page: larger ones (devmem_piece) kernel, driver or memory do not have"
                                     : "a page");
    }
    if (rc == 0)
        rc = asked(x, dm_helper_steer(x->helper, n->binding.id, c->sock, &c->rule, &queue));
    if (rc == 0) {
        c->dmabuf_id = n->binding.dmabuf_id;
        c->epoch = atomic_load(&x->epoch);
    }
    return rc;
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
            (void)asked(x, dm_helper_release(x->helper, c->rule));
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
        x->nics[c->nic].claims++;
    bool abandoned = c->abandoned;
    if (!abandoned)
        (void)!write(c->event, &(uint64_t){1}, sizeof(uint64_t));
    else if (rc == 0)
        x->nics[c->nic].claims--;
    pthread_mutex_unlock(&x->mu);
    if (abandoned && rc == 0 && x->helper)
        (void)asked(x, dm_helper_release(x->helper, c->rule));
    if (abandoned)
        claim_destroy(c);
}

/* Memory that is bound, and not the application's any more, is not free before it is let go. */
static void sources_sweep(struct dm_ctx *x)
{
    for (unsigned i = 0; i < SOURCES; i++) {
        struct source *s = &x->sources[i];
        pthread_mutex_lock(&x->mu);
        bool leaves = s->state == LEAVING || ((s->state == BOUND || s->state == BAD) &&
                                              s->space->ops->dmabuf_id(s->space, s->is.base) != s->is.id);
        uint32_t binding = s->binding;
        if (leaves)
            s->state = FREE;
        pthread_mutex_unlock(&x->mu);
        if (leaves && binding && x->helper)
            (void)asked(x, dm_helper_release(x->helper, binding));
    }
}

/* Binds what is wanted for sending, one by one. */
static void sources_run(struct dm_ctx *x)
{
    sources_sweep(x);
    for (unsigned i = 0; i < SOURCES; i++) {
        struct source *s = &x->sources[i];
        pthread_mutex_lock(&x->mu);
        bool wanted = s->state == WANTED;
        struct nic *n = &x->nics[s->nic];
        struct dm_source is = s->is;
        const struct hw_space *space = s->space;
        const size_t len = s->len, window = s->window;
        pthread_mutex_unlock(&x->mu);
        if (!wanted)
            continue;
        struct hw_dmabuf b;
        struct dm_binding bound;
        int rc = helper_up(x);
        if (rc == 0 && (rc = space->ops->dmabuf_of(space, is.base, len, window, &b)) == 0) {
            rc = b.id == is.id ? asked(x, dm_helper_bind_tx(x->helper, n->name, b.fd, &bound))
                               : hw_fail(-ESTALE, "memory of %s was freed meanwhile", space->name);
            hw_close(&b.fd);
        }
        if (rc)
            hw_log(x->env->log, rc == -ESTALE ? HAWSER_LOG_DEBUG : HAWSER_LOG_INFO,
                   "%s: what lies in %s memory is sent by way of the host: %s", n->name, space->name, hw_error());
        pthread_mutex_lock(&x->mu);
        n->no_sending |= rc == -EOPNOTSUPP;
        if (s->state == WANTED) { /* and not thrown away with hawserd */
            s->state = rc ? BAD : BOUND;
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

static void *run(void *arg)
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
                sources_run(x);
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

static void ring(struct dm_ctx *x)
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
        ring(x);
        pthread_join(x->thread, NULL);
    }
    dm_helper_close(x->helper);
    for (unsigned i = 0; i < x->nnics; i++)
        if (x->nics[i].pooled)
            x->nics[i].pool.space->ops->dmabuf_free(x->nics[i].pool.space, &x->nics[i].pool.buf);
    hw_close(&x->wake);
    pthread_mutex_destroy(&x->mu);
    free(x);
}

/* Under mu: the thread, once there is something for it to do. */
static int start(struct dm_ctx *x)
{
    if (x->running)
        return 0;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited: signals are the application's business */
    int rc = pthread_create(&x->thread, NULL, run, x);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return hw_fail(-rc, "starting a thread: %s", strerror(rc));
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

void dm_ctx_warn(struct dm_ctx *x, const char *nic, const char *why)
{
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (const char *s = nic; *s; s++)
        hash = (hash ^ (uint8_t)*s) * 1099511628211u;
    for (const char *s = why; *s; s++)
        hash = (hash ^ (uint8_t)*s) * 1099511628211u;
    pthread_mutex_lock(&x->mu);
    bool told = x->nwarned == WARNINGS;
    for (unsigned i = 0; i < x->nwarned; i++)
        told |= x->warned[i] == hash;
    if (!told)
        x->warned[x->nwarned++] = hash;
    pthread_mutex_unlock(&x->mu);
    hw_log(x->env->log, told ? HAWSER_LOG_DEBUG : HAWSER_LOG_WARN, "%s: no devmem, plain tcp instead: %s", nic, why);
}

/* Under mu. HW_NIC_MAX: there are too many. */
static unsigned nic_of(struct dm_ctx *x, const char *name)
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

static void enqueue(struct dm_ctx *x, struct dm_claim *c)
{
    struct dm_claim **at = &x->queue;
    while (*at)
        at = &(*at)->next;
    c->next = NULL;
    *at = c;
}

int dm_claim_new(struct dm_ctx *x, const char *nic, int sock, int event, struct dm_claim **out)
{
    struct dm_claim *c = calloc(1, sizeof(*c));
    if (!c)
        return hw_fail(-ENOMEM, "no memory for a connection");
    c->ctx = x;
    c->event = event;
    c->sock = fcntl(sock, F_DUPFD_CLOEXEC, 0); /* the connection may be closed before its turn comes */
    int rc = c->sock < 0 ? hw_fail(-errno, "one more descriptor for a connection: %s", strerror(errno)) : 0;
    pthread_mutex_lock(&x->mu);
    if (rc == 0 && (c->nic = nic_of(x, nic)) == HW_NIC_MAX)
        rc = hw_fail(-E2BIG, "more than %d NICs", HW_NIC_MAX);
    if (rc == 0)
        rc = start(x);
    if (rc == 0)
        enqueue(x, c);
    pthread_mutex_unlock(&x->mu);
    if (rc) {
        claim_destroy(c);
        return rc;
    }
    ring(x);
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
    *pool = &c->ctx->nics[c->nic].pool;
    *dmabuf_id = c->dmabuf_id;
    return 0;
}

int dm_claim_health(const struct dm_claim *c)
{
    return c->epoch == atomic_load(&c->ctx->epoch)
               ? 0
               : hw_fail(-ENOLINK, "hawserd has gone, and with it what was bound to %s", c->ctx->nics[c->nic].name);
}

unsigned dm_claim_sharers(const struct dm_claim *c)
{
    pthread_mutex_lock(&c->ctx->mu);
    unsigned n = c->ctx->nics[c->nic].claims;
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
            x->nics[c->nic].claims--;
        c->leaving = true;
        enqueue(x, c);
    }
    pthread_mutex_unlock(&x->mu);
    if (held)
        ring(x);
    else if (decided)
        claim_destroy(c);
}

/* ---- sending ------------------------------------------------------------------------------------------ */

static bool covers(const struct source *s, const uint8_t *p, size_t len)
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
    unsigned n = nic_of(x, nic);
    struct source *room = NULL;
    for (unsigned i = 0; i < SOURCES && !found; i++) {
        struct source *t = &x->sources[i];
        if (t->state == FREE) {
            room = room ? room : t;
        } else if (t->nic != n || t->space != space || t->is.id != id) {
            continue;
        } else if (t->state == BOUND && covers(t, ptr, len)) {
            found = settled = true;
            *out = t->is;
        } else if (t->is.size == 0 || t->state == LEAVING || covers(t, ptr, len)) {
            settled = true; /* wanted or leaving: soon; bad: never */
        } else {
            ranges++;
        }
    }
    if (!settled && n < HW_NIC_MAX && !x->nics[n].no_sending && start(x) == 0) {
        if (room)
            *room = (struct source){.state = WANTED,
                                    .nic = n,
                                    .space = space,
                                    .is = {.id = id, .base = ptr},
                                    .len = len,
                                    .window = WINDOW << HW_MIN(ranges, WINDOWS_MAX)};
        uint64_t now = hw_now();
        if (room || now - x->swept > 1000 * HW_MS) { /* none is free: perhaps after a sweep */
            x->swept = now;
            x->sources_wanted = wake = true;
        }
    }
    pthread_mutex_unlock(&x->mu);
    if (wake)
        ring(x);
    return found;
}

void dm_source_forget(struct dm_ctx *x, const struct hw_space *space, const void *ptr, size_t len)
{
    const uint8_t *from = ptr, *to = from + len;
    bool any = false;
    pthread_mutex_lock(&x->mu);
    for (unsigned i = 0; i < SOURCES; i++) {
        struct source *s = &x->sources[i];
        if ((s->state == BOUND || s->state == BAD) && s->space == space && s->is.base < to &&
            from < s->is.base + HW_MAX(s->is.size, (size_t)1)) {
            s->state = LEAVING;
            any = true;
        }
    }
    x->sources_wanted |= any;
    pthread_mutex_unlock(&x->mu);
    if (any)
        ring(x);
}

void dm_source_bad(struct dm_ctx *x, const char *nic, const struct dm_source *is)
{
    pthread_mutex_lock(&x->mu);
    for (unsigned i = 0; i < SOURCES; i++) {
        struct source *s = &x->sources[i];
        if (s->state == BOUND && s->is.id == is->id && s->is.dmabuf_id == is->dmabuf_id &&
            strcmp(x->nics[s->nic].name, nic) == 0)
            s->state = BAD;
    }
    pthread_mutex_unlock(&x->mu);
}

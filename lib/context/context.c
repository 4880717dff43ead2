/* SPDX-License-Identifier: Apache-2.0 */
/* The context: opening, options, loops, closing. */
#include "context/context.h"

#include "base/fork.h"
#include "base/thread.h"
#include "net/advertise.h"
#include "net/cpus.h"
#include "net/rails.h"
#include "transport/devmem/devmem.h"
#include "transport/netplugin/netplugin.h"
#include "transport/tcp/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define PATH_CHECK_MS 20 /* longest interval between two checks of a path with data in flight */

/* Returns the number of loops. The default is half the CPUs, because the application needs the other CPUs, but at least
 * 2 and at most 16, or 1 on a single CPU. Two is the minimum because a receiver is busier than its sender and one loop
 * uses one CPU (docs/performance.md). Idle loops sleep. */
static unsigned count_drivers(const struct hawser *h)
{
    if (h->flags & HAWSER_CALLER_PROGRESS)
        return 1;
    if (h->k.threads)
        return (unsigned)HW_MIN(h->k.threads, (uint64_t)HW_LOOPS_MAX);
    unsigned cpus = hw_cpus_read(0).n;
    return cpus < 2 ? 1 : HW_MAX(2u, HW_MIN(cpus / 2, 16u));
}

static void stop_drivers(struct hawser *h)
{
    for (unsigned i = 0; i < h->n_drivers; i++)
        hw_driver_stop(&h->driver[i]);
    for (unsigned i = 0; i < h->n_drivers; i++)
        hw_driver_free(&h->driver[i]);
    free(h->driver);
}

static int start_drivers(struct hawser *h)
{
    unsigned n = count_drivers(h);
    char name[16];
    h->driver = calloc(n, sizeof *h->driver);
    if (!h->driver)
        return hw_no_memory("the event loops");
    for (; h->n_drivers < n; h->n_drivers++) {
        int rc = hw_driver_init(&h->driver[h->n_drivers], h->driver, n);
        if (rc < 0)
            return rc;
        h->driver[h->n_drivers].spin = h->k.spin_us * 1000;
        h->driver[h->n_drivers].busy = h->k.busy_us * 1000;
        h->driver[h->n_drivers].busy_below = h->k.busy_below * 1000000 / 8;
    }
    for (unsigned i = 0; i < n && !(h->flags & HAWSER_CALLER_PROGRESS); i++) {
        snprintf(name, sizeof name, "hawser/%u", i);
        int rc = hw_driver_start(&h->driver[i], name);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_knobs(struct hawser *h)
{
    HW_AUTO_FREE char *rails = NULL;
    const char *self = h->k.same_machine;
    int rc = hw_advertise_check(h->k.advertise);
    if (rc == 0)
        rc = hw_rails_read(h->k.rails, &rails);
    if (rc == 0)
        rc = hw_rails_check(rails);
    if (rc < 0)
        return rc;
    if (strcmp(self, "auto") != 0 && strcmp(self, "yes") != 0 && strcmp(self, "no") != 0)
        return hw_fail(-EINVAL, "knob same_machine: \"%s\" is not one of auto, yes, no", self);
    return 0;
}

static const struct hw_transport *const transports[] = {&hw_tcp, &hw_devmem, &hw_netplugin};

/* Returns the text after the transport's name in knob transport, or NULL if the knob selects another transport. */
static const char *get_transport_arg(const struct hw_transport *tp, const char *knob)
{
    size_t n = strlen(tp->name);
    if (strncmp(knob, tp->name, n) != 0)
        return NULL;
    if (tp == &hw_netplugin) /* the argument is the plugin */
        return knob[n] == ':' ? knob + n + 1 : NULL;
    return knob[n] ? NULL : "";
}

/* Opens the transport that knob transport selects. The netplugin transport forks, so this must happen before the
 * context has threads. */
static int open_transport(struct hawser *h)
{
    const char *arg = NULL;
    const struct hw_transport *tp = NULL;
    for (size_t i = 0; i < HW_ARRAY_LEN(transports) && !arg; i++) {
        tp = transports[i];
        arg = get_transport_arg(tp, h->k.transport);
    }
    if (!arg)
        return hw_fail(-EINVAL, "knob transport: \"%s\" is not one of tcp, devmem, netplugin:PLUGIN", h->k.transport);
    h->env.caps = tp->caps;
    snprintf(h->env.ident, sizeof h->env.ident, "%s", tp->name);
    int rc = tp->open ? tp->open(arg, &h->env) : 0;
    if (rc < 0)
        return rc;
    h->tp = tp;
    if (h->k.require_direct && !h->env.caps.device_path)
        return hw_fail(
            -EOPNOTSUPP,
            "knob require_direct: transport %s never places data directly in GPU memory, only through host memory; use "
            "devmem, or a plugin that supports GPU memory",
            h->k.transport);
    return 0;
}

static void close_transport(struct hawser *h)
{
    if (h->tp && h->tp->close)
        h->tp->close(&h->env);
}

static int read_context_options(const struct hawser_options *in, struct hawser_options *o)
{
    *o = (struct hawser_options){.size = sizeof *o};
    if (in && (in->size < offsetof(struct hawser_options, log) || in->size > 4096))
        return hw_fail(-EINVAL, "invalid hawser_options.size: %zu", in->size);
    if (in)
        memcpy(o, in, HW_MIN(in->size, sizeof *o));
    uint32_t unknown = o->flags & ~(HAWSER_CALLER_PROGRESS | HAWSER_INSECURE | HAWSER_EVENTS | HAWSER_TRUSTED);
    if (unknown)
        return hw_fail(-EINVAL, "unknown flags 0x%x", unknown);
    if (o->key && (o->key_len < HW_KEY_MIN || o->key_len > HW_KEY_MAX))
        return hw_fail(-EINVAL, "invalid job key length: %zu bytes; %d to %d are allowed", o->key_len, HW_KEY_MIN,
                       HW_KEY_MAX);
    return 0;
}

static void free_context(struct hawser *h)
{
    stop_drivers(h);
    hw_events_free(h);
    hw_idle_free(&h->idle);
    hw_listener_free(h);
    hw_memory_free_all(h);
    hw_domain_free(&h->domain);
    close_transport(h);
    hw_fork_close(&h->event_fd);
    hw_fork_close(&h->carrier_fd);
    pthread_mutex_destroy(&h->lock);
    pthread_mutex_destroy(&h->queue_lock);
    pthread_cond_destroy(&h->someone);
    free(h);
}

/* Sets the limits of rails from the knobs. */
static void set_limits(struct hawser *h)
{
    h->limits = (struct hw_rail_limits){
        .window = h->k.window,
        .check = HW_MIN(h->k.stall_ms / 2, PATH_CHECK_MS) * HW_MS,
        .patience = 10 * HW_MS,
        .ping = HW_MIN(h->k.keepalive_ms, h->k.peer_timeout_ms / 4) * HW_MS,
        .dead = h->k.peer_timeout_ms * HW_MS,
    };
}

int hawser_open(const struct hawser_options *opts, hawser **out)
{
    struct hawser_options o;
    if (!out)
        return hw_fail(-EINVAL, "the pointer for the new context is NULL");
    *out = NULL;
    int rc = read_context_options(opts, &o);
    if (rc == 0)
        rc = hw_crypto_init();
    if (rc < 0)
        return rc;
    struct hawser *h = calloc(1, sizeof *h);
    if (!h)
        return hw_no_memory("a context");
    pthread_mutex_init(&h->lock, NULL);
    hw_lock_init(&h->queue_lock);
    hw_idle_init(&h->idle);
    hw_cond_init(&h->someone);
    hw_list_init(&h->peers);
    hw_list_init(&h->accepts);
    hw_list_init(&h->graves);
    hw_list_init(&h->mems);
    hw_list_init(&h->queue);
    hw_domain_init(&h->domain);
    h->flags = o.flags;
    h->log = (struct hw_logger){.fn = o.log, .arg = o.log_arg, .level = HAWSER_LOG_DEBUG};
    h->keyed = o.key != NULL;
    hw_boot_key(h->key, o.key, o.key ? o.key_len : 0);
    h->env = (struct hw_tp_env){.knobs = &h->k, .log = &h->log};
    h->event_fd = h->carrier_fd = h->metrics.fd = h->metrics.reader.fd = -1;
    rc = hw_knobs_load(&h->k, o.knobs);
    h->k.splice &= (o.flags & HAWSER_TRUSTED) != 0;
    if (rc == 0)
        rc = check_knobs(h);
    if (rc == 0)
        rc = open_transport(h);
    if (rc == 0) {
        h->event_fd = hw_fork_guard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        rc = h->event_fd < 0 ? hw_fail(-errno, "creating an eventfd: %s", strerror(errno)) : 0;
    }
    if (rc == 0) {
        set_limits(h);
        rc = start_drivers(h);
    }
    if (rc == 0) {
        hw_nics_watch(h);
        hw_metrics_start(h);
    }
    if (rc < 0) {
        HW_KEEP_ERROR();
        free_context(h);
        return rc;
    }
    *out = h;
    return 0;
}

void hw_context_visit(struct hawser *h)
{
    for (unsigned i = 0; i < h->n_drivers; i++) {
        hw_driver_enter(&h->driver[i]);
        hw_driver_end(&h->driver[i]);
    }
}

void hawser_close(hawser *h)
{
    if (!h)
        return;
    hw_driver_enter(&h->driver[0]);
    hw_listener_stop(h); /* no new connections */
    hw_metrics_stop(h);
    hw_driver_end(&h->driver[0]);
    for (;;) {
        pthread_mutex_lock(&h->lock);
        struct hawser_peer *p = hw_list_first(&h->peers, struct hawser_peer, in_context);
        pthread_mutex_unlock(&h->lock);
        if (!p)
            break;
        hawser_peer_close(p);
    }
    free_context(h);
}

const char *hawser_error(void)
{
    return hw_error();
}

const char *hawser_version(void)
{
    return "1.0.0";
}

int hawser_progress(hawser *h, int timeout_ms)
{
    if (!(h->flags & HAWSER_CALLER_PROGRESS))
        return -EAGAIN; /* the library's threads do the work */
    return hw_driver_turn(&h->driver[0], timeout_ms ? hw_deadline(timeout_ms) : 0) ? 0 : -EAGAIN;
}

int hawser_eventfd(hawser *h)
{
    if (h->flags & HAWSER_CALLER_PROGRESS)
        return hw_driver_fd(&h->driver[0]);
    atomic_store(&h->event_wanted, true);
    return h->event_fd;
}

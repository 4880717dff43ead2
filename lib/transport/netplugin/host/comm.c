/* SPDX-License-Identifier: Apache-2.0 */
/* The parent's side of connections. Messages set up and close connections and registrations. Requests use only the
 * ring. */
#include "transport/netplugin/host/host_inner.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* np_wait() polls for WAIT_SPIN_US, then yields its CPU between polls until WAIT_YIELD_US have passed, and then
     * sleeps. Waking the child takes tens of microseconds on a virtual machine. */
    WAIT_SPIN_US = 25,
    WAIT_YIELD_US = 400,
    WAIT_SLICE_MS = 100, /* longest sleep before the child's health is checked */
    GRACE_MS = 1000,     /* allows the child's own deadline to fire first, because the child reports the reason */
};

/* ---- devices -------------------------------------------------------------------------------- */

/* Returns the MTU of the NIC that has the plugin's device name, or 1500 (Ethernet) if no NIC of this machine has that
 * name. */
static uint32_t read_plugin_nic_mtu(const char *name)
{
    char path[128];
    unsigned mtu = 0;
    if (*name && !strchr(name, '/')) {
        snprintf(path, sizeof(path), "/sys/class/net/%s/mtu", name);
        FILE *f = fopen(path, "re");
        char text[16] = "";
        if (f && fgets(text, sizeof(text), f))
            mtu = (unsigned)strtoul(text, NULL, 10);
        if (f)
            fclose(f);
    }
    return mtu ? mtu : 1500;
}

/* Queries the properties once and caches them. Later the child's loop may be in a call that sleeps, while a new
 * connection needs the properties at once. */
static int ask_device(struct np_host *h, unsigned dev, struct np_device *out)
{
    struct np_message m = {.op = NP_OP_PROPERTIES, .number = dev};
    struct np_reply r;
    pthread_mutex_lock(&h->devices_lock);
    const bool known = h->known[dev];
    *out = h->device[dev];
    pthread_mutex_unlock(&h->devices_lock);
    if (known)
        return 0;
    int rc = np_ask(h, &m, NULL, 0, &r);
    if (rc < 0)
        return rc;
    *out = r.u.device;
    pthread_mutex_lock(&h->devices_lock);
    h->device[dev] = *out;
    h->known[dev] = true;
    pthread_mutex_unlock(&h->devices_lock);
    return 0;
}

int np_props(struct np_host *h, unsigned dev, struct np_props *out)
{
    struct np_device its, *d = &its;
    int rc = np_usable(h);
    if (rc < 0)
        return rc;
    if (dev >= h->info.devices)
        return hw_fail(-ENODEV, "plugin %s: device %u does not exist: the number of devices is %u", h->name, dev,
                       h->info.devices);
    rc = ask_device(h, dev, d);
    if (rc < 0)
        return rc;
    *out = (struct np_props){
        .guid = d->guid,
        .ptr_support = d->ptr_support,
        .speed = d->speed,
        .port = d->port,
        .max_comms = d->max_comms,
        .latency = d->latency,
        .unpacks = d->type == NCCL_NET_DEVICE_UNPACK,
    };
    memcpy(out->name, d->name, sizeof(out->name));
    memcpy(out->pci, d->pci, sizeof(out->pci));
    uint64_t most = (uint64_t)NCCL_MAX_NET_SIZE; /* test() reports the size as an int in all versions */
    if (d->max_bytes)
        most = HW_MIN(most, d->max_bytes);
    if (out->unpacks)
        most = HW_MIN(most, (uint64_t)NET_UNPACK_MAX_SLICE_SIZE);
    out->max_size = (uint32_t)HW_MIN(most, (uint64_t)np_quirk_size(h->info.quirk, read_plugin_nic_mtu(out->name)));
    return 0;
}

/* ---- making and closing --------------------------------------------------------------------- */

static int ask_close(struct np_host *h, uint32_t slot)
{
    struct np_message m = {.op = NP_OP_CLOSE, .slot = slot};
    int rc = np_ask(h, &m, NULL, 0, NULL);
    np_number_free(h, h->slot, slot);
    return rc;
}

int np_listen(struct np_host *h, unsigned dev, int gpu, uint8_t handle[NP_HANDLE_SIZE], struct np_listener **out)
{
    struct np_reply r;
    int rc = np_usable(h);
    if (rc < 0)
        return rc;
    if (dev >= h->info.devices)
        return hw_fail(-ENODEV, "plugin %s: device %u does not exist: the number of devices is %u", h->name, dev,
                       h->info.devices);
    struct np_listener *l = calloc(1, sizeof(*l));
    const int slot = l ? np_number(h, h->slot, NP_COMMS) : -1;
    if (!l)
        return hw_no_memory("a listener of plugin %s", h->name);
    if (slot < 0) {
        free(l);
        return hw_fail(-ENOMEM, "plugin %s: too many listeners and connections: at most %d", h->name, NP_COMMS);
    }
    struct np_message m = {.op = NP_OP_LISTEN, .slot = (uint32_t)slot, .number = dev, .memory = np_gpu_word(gpu)};
    rc = np_ask(h, &m, NULL, 0, &r);
    if (rc < 0) {
        np_number_free(h, h->slot, (uint32_t)slot);
        free(l);
        return rc;
    }
    *l = (struct np_listener){.h = h, .slot = (uint32_t)slot, .dev = dev};
    const size_t meant = h->info.quirk->handle_bytes ? h->info.quirk->handle_bytes : NP_HANDLE_SIZE;
    memcpy(handle, r.u.handle, NP_HANDLE_SIZE);
    memset(handle + meant, 0, NP_HANDLE_SIZE - meant);
    pthread_mutex_lock(&h->lock);
    hw_list_append(&h->listeners, &l->link);
    pthread_mutex_unlock(&h->lock);
    *out = l;
    return 0;
}

int np_listener_close(struct np_listener *l)
{
    int rc = ask_close(l->h, l->slot);
    pthread_mutex_lock(&l->h->lock);
    hw_list_remove(&l->link);
    pthread_mutex_unlock(&l->h->lock);
    free(l);
    return rc;
}

void np_comm_drop(struct np_comm *c)
{
    hw_list_each(it, tmp, &c->mrs)
    {
        struct np_mr *mr = hw_container_of(it, struct np_mr, link);
        mr->m->regs--;
        c->h->mr[mr->id] = false;
        free(mr);
    }
    if (c->own_event)
        hw_close(&c->event);
    if (c->frags)
        munmap((void *)(uintptr_t)c->frags, sizeof(*c->frags));
    free(c);
}

/* Sets fds[0] to the eventfd and, if the parent reads the fragments, fds[1] to their memfd. */
static int open_comm_in_child(struct np_comm *c, struct np_message *m, unsigned dev, int event, int fds[2])
{
    struct np_props props;
    void *at;
    int rc = np_props(c->h, dev, &props);
    if (rc < 0)
        return rc;
    c->max_size = props.max_size;
    c->own_event = event < 0;
    c->event = event < 0 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : event;
    fds[0] = c->event;
    if (c->event < 0)
        return hw_fail(-errno, "creating an eventfd: %s", strerror(errno));
    if (!c->sends && c->h->o.list && props.unpacks) {
        rc = np_shared_memory("hawser-plugin-fragments", sizeof(*c->frags), &fds[1], &at);
        if (rc < 0)
            return rc;
        c->frags = at;
    }
    const int slot = np_number(c->h, c->h->slot, NP_COMMS);
    if (slot < 0)
        return hw_fail(-ENOMEM, "plugin %s: too many listeners and connections: at most %d", c->h->name, NP_COMMS);
    c->slot = m->slot = (uint32_t)slot;
    c->ring = &c->h->s->ring[slot];
    memset(c->ring, 0, sizeof(*c->ring)); /* the child does not read a slot that was not assigned to it */
    atomic_store(&c->ring->state, NP_OPENING);
    m->deadline = c->deadline;
    rc = np_ask(c->h, m, fds, fds[1] >= 0 ? 2 : 1, NULL);
    if (rc < 0)
        np_number_free(c->h, c->h->slot, c->slot);
    return rc;
}

static int create_plugin_comm(struct np_host *h, struct np_message *m, unsigned dev, uint64_t deadline, int event,
                              struct np_comm **out)
{
    int fds[2] = {-1, -1};
    struct np_comm *c = calloc(1, sizeof(*c));
    if (!c)
        return hw_no_memory("a connection of plugin %s", h->name);
    c->h = h;
    c->event = -1;
    c->sends = m->op == NP_OP_CONNECT;
    c->deadline = deadline;
    hw_list_init(&c->mrs);
    int rc = open_comm_in_child(c, m, dev, event, fds);
    hw_close(&fds[1]);
    if (rc < 0) {
        np_comm_drop(c);
        return rc;
    }
    pthread_mutex_lock(&h->lock);
    hw_list_append(&h->comms, &c->link);
    pthread_mutex_unlock(&h->lock);
    *out = c;
    return 0;
}

int np_connect(struct np_host *h, unsigned dev, int gpu, const uint8_t handle[NP_HANDLE_SIZE], uint64_t deadline,
               int event, struct np_comm **out)
{
    struct np_message m = {.op = NP_OP_CONNECT, .number = dev, .memory = np_gpu_word(gpu)};
    memcpy(m.handle, handle, NP_HANDLE_SIZE);
    return create_plugin_comm(h, &m, dev, deadline, event, out);
}

int np_accept(struct np_listener *l, uint64_t deadline, int event, struct np_comm **out)
{
    struct np_message m = {.op = NP_OP_ACCEPT, .number = l->slot};
    int rc = np_usable(l->h);
    if (rc < 0)
        return rc;
    if (l->taken)
        return hw_fail(-EINVAL,
                       "plugin %s: this listener was already used to accept a connection, and can accept only one",
                       l->h->name);
    rc = create_plugin_comm(l->h, &m, l->dev, deadline, event, out);
    l->taken = rc == 0;
    return rc;
}

int np_comm_close(struct np_comm *c)
{
    struct np_host *h = c->h;
    int rc = ask_close(h, c->slot);
    pthread_mutex_lock(&h->lock);
    hw_list_remove(&c->link);
    np_comm_drop(c);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* ---- state ---------------------------------------------------------------------------------- */

/* Marks the connection dead. */
static int kill_comm(struct np_comm *c, int rc)
{
    c->rc = rc;
    snprintf(c->why, sizeof(c->why), "%s", hw_error());
    return rc;
}

/* Copies the error that the child reports for a connection. */
static int adopt_child_error(struct np_comm *c)
{
    char text[NP_TEXT];
    int rc = c->ring->rc;
    memcpy(text, c->ring->text, sizeof(text));
    text[sizeof(text) - 1] = 0;
    if (rc >= 0 || rc < -4095)
        rc = -EIO;
    return kill_comm(c, np_blame(c->h, rc, text));
}

/* Returns -EAGAIN if the connection and the child are healthy or a completed request was not reported yet, or else the
 * error. */
static int nothing_yet(struct np_comm *c)
{
    if (atomic_load_explicit(&c->ring->state, memory_order_acquire) == NP_FAILED) {
        /* Requests that completed before the failure are reported first. */
        if (!c->open || atomic_load_explicit(&c->ring->done, memory_order_acquire) == c->tested)
            return adopt_child_error(c);
        return -EAGAIN;
    }
    int rc = np_health(c->h);
    return rc < 0 ? kill_comm(c, rc) : -EAGAIN;
}

int np_established(struct np_comm *c)
{
    int rc = np_usable(c->h);
    if (rc < 0 || c->rc)
        return rc < 0 ? rc : hw_fail_copy(c->rc, c->why);
    if (!c->open) {
        if (atomic_load_explicit(&c->ring->state, memory_order_acquire) == NP_OPEN) {
            c->open = true;
            return 0;
        }
        rc = nothing_yet(c);
        if (rc == -EAGAIN && c->deadline != HW_NEVER && hw_now_coarse() > c->deadline + GRACE_MS * HW_MS)
            rc = kill_comm(c, hw_fail(-ETIMEDOUT, "plugin %s: no connection before the deadline", c->h->name));
        return rc;
    }
    return 0;
}

int np_event(const struct np_comm *c)
{
    return c->event;
}

int np_arm(struct np_comm *c)
{
    struct np_ring *r = c->ring;
    (void)atomic_exchange(&r->armed, 1); /* see kid_ring() in child.c */
    const uint32_t state = atomic_load_explicit(&r->state, memory_order_acquire);
    if (state == NP_FAILED || (!c->open && state == NP_OPEN) ||
        (c->open && atomic_load_explicit(&r->done, memory_order_acquire) != c->tested))
        return 0;
    return -EAGAIN;
}

/* ---- requests ------------------------------------------------------------------------------- */

static int post_plugin_request(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag,
                               uint64_t deadline)
{
    struct np_host *h = c->h;
    if (c->rc)
        return hw_fail_copy(c->rc, c->why);
    int rc = np_usable(h);
    if (rc < 0)
        return rc;
    if (!c->open || mr->c != c)
        return hw_fail(-EINVAL,
                       "plugin %s: the request's connection is not established, or its memory is registered with "
                       "another connection",
                       h->name);
    if (len > c->max_size)
        return hw_fail(-EMSGSIZE, "plugin %s: a request of %zu bytes; at most %u are allowed", h->name, len,
                       c->max_size);
    if (offset > mr->len || len > mr->len - offset)
        return hw_fail(-EINVAL, "plugin %s: a request for %zu bytes at offset %zu exceeds a registration of %zu bytes",
                       h->name, len, offset, mr->len);
    if (c->posted - (c->sends ? c->tested : c->consumed) >= h->info.window)
        return -EAGAIN;
    struct np_entry *e = &c->ring->entry[c->posted % NP_RING];
    e->mr = mr->id;
    e->tag = tag;
    e->offset = offset;
    e->len = len;
    e->nulls = 0;
    c->req[c->posted % NP_RING].len = len;
    c->req[c->posted % NP_RING].deadline = deadline;
    atomic_store_explicit(&c->ring->posted, ++c->posted, memory_order_release);
    np_wake(h);
    return 0;
}

int np_isend(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline)
{
    return c->sends ? post_plugin_request(c, mr, offset, len, tag, deadline)
                    : hw_fail(-EINVAL, "plugin %s: cannot send on a connection for receiving", c->h->name);
}

int np_irecv(struct np_comm *c, struct np_mr *mr, size_t offset, size_t len, int tag, uint64_t deadline)
{
    return !c->sends ? post_plugin_request(c, mr, offset, len, tag, deadline)
                     : hw_fail(-EINVAL, "plugin %s: cannot receive on a connection for sending", c->h->name);
}

/* Marks the connection dead because the oldest request's deadline has passed. */
static int too_late(struct np_comm *c)
{
    const char *what = c->sends ? "isend" : "irecv";
    const uint64_t n = c->tested;
    if (atomic_load_explicit(&c->ring->started, memory_order_relaxed) <= n)
        return kill_comm(c, hw_fail(-ETIMEDOUT,
                                    "plugin %s: %s %llu of %zu bytes: the plugin did not accept the request before the "
                                    "deadline (calls: %llu)",
                                    c->h->name, what, (unsigned long long)n, c->req[n % NP_RING].len,
                                    (unsigned long long)c->ring->entry[n % NP_RING].nulls));
    return kill_comm(c, hw_fail(-ETIMEDOUT,
                                "plugin %s: %s %llu of %zu bytes: accepted, but not complete before the deadline: %s",
                                c->h->name, what, (unsigned long long)n, c->req[n % NP_RING].len,
                                c->sends ? "the peer does not receive, or the plugin stalls"
                                         : "the peer does not send, or the plugin stalls"));
}

static int read_comm_result(struct np_comm *c, struct np_result *out)
{
    const struct np_entry *e = &c->ring->entry[c->tested % NP_RING];
    const size_t len = c->req[c->tested % NP_RING].len;
    const uint64_t size = *(const volatile uint64_t *)&e->size;
    const uint32_t frags = *(const volatile uint32_t *)&e->frags;
    *out = (struct np_result){.size = len, .known = !c->sends && *(const volatile uint32_t *)&e->known};
    if (out->known)
        out->size = size;
    out->frags = c->sends ? 0 : frags;
    if (out->size > len || out->frags > NP_FRAGS) {
        hw_fail(-EPROTO, "the plugin reports an invalid result for a receive of %zu bytes: %zu bytes, fragments: %u",
                len, out->size, frags);
        return kill_comm(c, np_distrust(c->h));
    }
    c->req[c->tested % NP_RING].frags = out->frags;
    c->tested++;
    return 0;
}

int np_test(struct np_comm *c, struct np_result *out)
{
    if (!*c->h->mine)
        return np_usable(c->h);
    if (c->rc)
        return hw_fail_copy(c->rc, c->why);
    if (c->tested == c->posted)
        return hw_fail(-EINVAL, "plugin %s: no request is posted", c->h->name);
    const uint64_t done = atomic_load_explicit(&c->ring->done, memory_order_acquire);
    if (done != c->tested) {
        if (np_check_counter("completed", done, c->tested, c->posted) < 0)
            return kill_comm(c, np_distrust(c->h));
        return read_comm_result(c, out);
    }
    int rc = nothing_yet(c);
    if (rc == -EAGAIN && hw_now_coarse() > c->req[c->tested % NP_RING].deadline)
        rc = too_late(c);
    return rc;
}

int np_wait(struct np_comm *c, uint64_t deadline, struct np_result *out)
{
    const uint64_t begin = hw_now();
    for (;;) {
        int rc = np_test(c, out);
        if (rc != -EAGAIN)
            return rc;
        const uint64_t now = hw_now();
        if (now - begin < WAIT_SPIN_US * 1000ull)
            continue;
        if (now >= deadline)
            return hw_fail(-EAGAIN, "plugin %s: the request is not complete yet", c->h->name);
        if (now - begin < WAIT_YIELD_US * 1000ull) {
            (void)sched_yield();
            continue;
        }
        if (np_arm(c) == 0)
            continue;
        struct pollfd p[2] = {{.fd = c->event, .events = POLLIN},
                              {.fd = c->h->socket}}; /* reports POLLHUP when the child dies */
        const uint64_t ms = (HW_MIN(deadline, now + WAIT_SLICE_MS * HW_MS) - now) / HW_MS;
        uint64_t rung;
        if (poll(p, 2, (int)ms + 1) > 0 && (p[0].revents & POLLIN))
            (void)!read(c->event, &rung, sizeof(rung));
    }
}

int np_fragments(struct np_comm *c, struct hw_frag *frags, size_t room, size_t *n)
{
    static __thread struct loadMeta list[NP_FRAGS];
    const unsigned at = (unsigned)(c->consumed % NP_RING);
    uint64_t size;
    int rc = np_usable(c->h);
    if (rc < 0)
        return rc;
    if (c->sends || c->consumed == c->tested)
        return hw_fail(-EINVAL, "plugin %s: no receive to unpack", c->h->name);
    *n = c->frags ? c->req[at].frags : 0;
    if (*n > room)
        return hw_fail(-ENOSPC, "plugin %s: %zu fragments do not fit into a list of %zu", c->h->name, *n, room);
    if (*n > 0 && np_check_frags(c->frags->list[at], (uint32_t)*n, c->req[at].len, list, &size) < 0)
        return kill_comm(c, np_distrust(c->h));
    for (size_t i = 0; i < *n; i++)
        frags[i] = (struct hw_frag){.src_off = list[i].src_off, .dst_off = list[i].dst_off, .len = list[i].len};
    return 0;
}

int np_consumed(struct np_comm *c)
{
    int rc = np_usable(c->h);
    if (rc < 0)
        return rc;
    if (c->sends || c->consumed == c->tested)
        return hw_fail(-EINVAL, "plugin %s: no receive to release", c->h->name);
    atomic_store_explicit(&c->ring->consumed, ++c->consumed, memory_order_release);
    if (c->frags)
        np_wake(c->h);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/slots.h"

#include "mem/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    STALL_MS = 2,    /* time in ms after which the wait for a copy sleeps instead of spinning */
    NAP_US = 20,     /* sleep in us between checks after that */
    SETTLE_MS = 500, /* time in ms after which a device that has not completed its copies is considered stuck */
    DEPTH = 2 * NP_SLOTS + 2, /* maximum number of copies in flight in one direction */
};

static uint8_t *host_slot(const struct np_slots *s, bool receives, uint64_t i)
{
    return s->base + ((receives ? s->n : 0) + i % s->n) * (size_t)s->size;
}

static uint8_t *gpu_slot(const struct np_slots *s, bool receives, uint64_t i)
{
    return s->gpu_base + ((receives ? s->n : 0) + i % s->n) * (size_t)s->size;
}

static uint8_t *head_of(const struct np_slots *s, bool receives, uint64_t i)
{
    return s->heads + ((receives ? s->n : 0) + i % s->n) * NP_ROOM;
}

/* Adds to a counter that only one thread writes. */
static void add_to(_Atomic uint64_t *count, uint64_t n)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* ---- copies ----------------------------------------------------------------------------------------------- */

static int fail_slot_copy(const struct np_slots *s)
{
    return hw_wrap(-ENXIO, "copying on %s", s->gpu->name);
}

static int start_slot_copy(struct np_slots *s, struct np_way *w, void *to, const void *from, size_t len)
{
    int rc = len ? s->gpu->ops->copy(w->q, to, from, len) : 0;
    if (rc && rc != -EAGAIN)
        return fail_slot_copy(s);
    w->started += rc == 0 && len;
    return rc ? -EBUSY : 0;
}

static int test_slot_copy(struct np_slots *s, struct np_way *w, uint64_t ticket)
{
    if (w->over < ticket && s->gpu->ops->done(w->q, &w->over))
        return fail_slot_copy(s);
    if (w->over >= ticket) {
        w->waiting_since = 0;
        return 0;
    }
    const uint64_t now = hw_now();
    if (!w->waiting_since)
        w->waiting_since = now;
    if (now - w->waiting_since > STALL_MS * HW_MS)
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000L}, NULL);
    return -EBUSY;
}

/* Waits until all copies of a direction are complete or the device has failed. Returns false if the device is stuck. */
static bool wait_slot_copies(struct np_slots *s, struct np_way *w)
{
    const uint64_t until = hw_deadline(SETTLE_MS);
    while (test_slot_copy(s, w, w->started) == -EBUSY)
        if (hw_now() >= until)
            return false;
    return true;
}

/* ---- the GPU's -------------------------------------------------------------------------------------------- */

static size_t heads_len(const struct np_slots *s)
{
    const size_t page = hw_cuda_page();
    return ((size_t)2 * s->n * NP_ROOM + page - 1) / page * page;
}

static void close_gpu(struct np_slots *s)
{
    if (s->out.q)
        s->gpu->ops->queue_close(s->out.q);
    if (s->in.q)
        s->gpu->ops->queue_close(s->in.q);
    if (s->heads) {
        s->gpu->ops->unpin(s->gpu, s->heads);
        hw_pages_free(s->heads, heads_len(s));
    }
    if (s->gpu_tx_mr)
        (void)np_dereg(s->gpu_tx_mr);
    if (s->gpu_rx_mr)
        (void)np_dereg(s->gpu_rx_mr);
    if (s->gpu_mem)
        (void)np_mem_free(s->gpu_mem);
    s->out.q = s->in.q = NULL;
    s->heads = NULL;
    s->gpu_tx_mr = s->gpu_rx_mr = NULL;
    s->gpu_mem = NULL;
    s->gpu = NULL;
}

static int open_gpu_slots(struct np_slots *s, const struct hw_space *space)
{
    const size_t ring = (size_t)s->n * s->size;
    s->gpu = space;
    int rc = np_mem_alloc_on(s->host, space, 2 * ring, &s->gpu_mem);
    if (rc || (rc = np_reg(s->tx, s->gpu_mem, 0, ring, &s->gpu_tx_mr)) ||
        (rc = np_reg(s->rx, s->gpu_mem, ring, ring, &s->gpu_rx_mr)))
        return rc;
    s->gpu_base = np_mem_ptr(s->gpu_mem);
    uint8_t *heads = hw_pages_alloc(heads_len(s), space->numa);
    if (!heads)
        return hw_no_memory("%zu bytes of headers", heads_len(s));
    rc = space->ops->pin(space, heads, heads_len(s));
    if (rc) {
        hw_pages_free(heads, heads_len(s));
        return rc;
    }
    s->heads = heads;
    memset(heads, 0, heads_len(s));
    rc = space->ops->queue_open(space, DEPTH, &s->out.q);
    return rc ? rc : space->ops->queue_open(space, DEPTH, &s->in.q);
}

/* Returns true if there are slots in the memory of this GPU. Creates them when memory of a GPU is first used, if the
 * plugin accepts GPU memory and `only` permits this GPU. */
static bool has_gpu_slots(struct np_slots *s, const struct hw_space *space)
{
    if (!s->tried && s->cuda && (s->only < 0 || s->only == space->device)) {
        s->tried = true;
        if (open_gpu_slots(s, space) == 0) {
            hw_log(s->log, HAWSER_LOG_DEBUG, "a connection's messages are placed in memory of %s from now on",
                   space->name);
        } else {
            if (np_warn_once(s->host))
                hw_log(s->log, HAWSER_LOG_WARN, "%s: its memory is staged through host memory: %s", space->name,
                       hw_error());
            close_gpu(s);
        }
    }
    return s->gpu == space;
}

/* ---- open and close --------------------------------------------------------------------------------------- */

int np_slots_open(struct np_slots *s)
{
    const size_t ring = (size_t)s->n * s->size;
    int rc = np_mem_alloc(s->host, 2 * ring, &s->mem);
    if (rc || (rc = np_reg(s->tx, s->mem, 0, ring, &s->tx_mr)) || (rc = np_reg(s->rx, s->mem, ring, ring, &s->rx_mr)))
        return rc;
    s->base = np_mem_ptr(s->mem);
    const struct hw_space *gpu;
    s->land = s->told = s->told && hw_space_device(HAWSER_MEM_CUDA, s->only, &gpu) == 0 && has_gpu_slots(s, gpu);
    for (uint64_t i = 0; i < s->n; i++)
        if ((rc = np_slots_post(s, i)))
            return rc;
    return 0;
}

void np_slots_close(struct np_slots *s)
{
    s->gpu_tx_mr = s->gpu_rx_mr = NULL; /* freed with the connections */
    if (s->gpu && (!wait_slot_copies(s, &s->out) || !wait_slot_copies(s, &s->in)))
        hw_log(s->log, HAWSER_LOG_ERROR, "%s hangs in a copy: the connection's memory there is not freed",
               s->gpu->name);
    else if (s->gpu)
        close_gpu(s);
    if (s->mem)
        (void)np_mem_free(s->mem);
    s->mem = NULL;
}

/* ---- sending ---------------------------------------------------------------------------------------------- */

static void write_slot_head(struct np_slots *s, uint64_t i, const uint8_t head[NP_HEAD], bool gpu)
{
    uint8_t *room = gpu ? head_of(s, false, i) : host_slot(s, false, i);
    memset(room + NP_HEAD, 0, NP_ROOM - NP_HEAD);
    memcpy(room, head, NP_HEAD);
    s->send[i % s->n].gpu = gpu;
}

static int copy_to_host_slot(uint8_t *to, const struct hw_space *space, const void *ptr, uint32_t len)
{
    if (!space->direct)
        return hw_load(space, to, ptr, len) ? -ENXIO : 0;
    if (len)
        memcpy(to, ptr, len);
    return 0;
}

/* Starts a copy into a slot. If the queue is full, waits for one of its copies. */
static int start_copy_out(struct np_slots *s, void *to, const void *from, size_t len)
{
    const uint64_t until = hw_deadline(SETTLE_MS);
    int rc;
    while ((rc = start_slot_copy(s, &s->out, to, from, len)) == -EBUSY) {
        rc = test_slot_copy(s, &s->out, s->out.over + 1);
        if ((rc && rc != -EBUSY) || hw_now() >= until)
            return rc == -EBUSY ? hw_fail(-ENXIO, "copying on %s: the GPU hangs", s->gpu->name) : rc;
    }
    return rc;
}

int np_slots_gather(struct np_slots *s, uint64_t i, const uint8_t head[NP_HEAD], const struct np_part *part, uint32_t n)
{
    const bool gpu = !part->space->direct && has_gpu_slots(s, part->space);
    uint8_t *to = (gpu ? gpu_slot(s, false, i) : host_slot(s, false, i)) + NP_ROOM;
    write_slot_head(s, i, head, gpu);
    int rc = gpu ? start_copy_out(s, to - NP_ROOM, head_of(s, false, i), NP_ROOM) : 0;
    for (; n && rc == 0; to += part->len, part++, n--)
        rc = gpu ? start_copy_out(s, to, part->ptr, part->len)
                 : copy_to_host_slot(to, part->space, part->ptr, part->len);
    s->send[i % s->n].ticket = s->out.started;
    return rc;
}

int np_slots_settle(struct np_slots *s)
{
    return !s->gpu || wait_slot_copies(s, &s->out) ? 0 : hw_fail(-ENXIO, "%s hangs in a copy", s->gpu->name);
}

int np_slots_send(struct np_slots *s, uint64_t i, uint32_t len, uint64_t deadline)
{
    const bool gpu = s->send[i % s->n].gpu;
    int rc = gpu ? test_slot_copy(s, &s->out, s->send[i % s->n].ticket) : 0;
    if (rc)
        return rc;
    rc = np_isend(s->tx, gpu ? s->gpu_tx_mr : s->tx_mr, i % s->n * s->size, NP_ROOM + len, 0, deadline);
    if (rc == 0 && gpu)
        add_to(&s->tx_device, len);
    return rc;
}

/* ---- receiving -------------------------------------------------------------------------------------------- */

int np_slots_post(struct np_slots *s, uint64_t i)
{
    s->recv[i % s->n].gpu = s->land;
    return np_irecv(s->rx, s->land ? s->gpu_rx_mr : s->rx_mr, i % s->n * s->size, s->size, 0, HW_NEVER);
}

int np_slots_came(struct np_slots *s, uint64_t i)
{
    if (!s->recv[i % s->n].gpu)
        return 0;
    int rc = start_slot_copy(s, &s->in, head_of(s, true, i), gpu_slot(s, true, i), NP_ROOM);
    s->recv[i % s->n].ticket = s->in.started;
    return rc;
}

int np_slots_head(struct np_slots *s, uint64_t i, const uint8_t **head)
{
    const bool gpu = s->recv[i % s->n].gpu;
    int rc = gpu ? test_slot_copy(s, &s->in, s->recv[i % s->n].ticket) : 0;
    *head = gpu ? head_of(s, true, i) : host_slot(s, true, i);
    return rc;
}

/* Copies payload from a GPU slot to ptr, in the memory of the same GPU. Returns -EBUSY until the copy is complete. */
static int take_gpu_slot(struct np_slots *s, const uint8_t *from, void *ptr, uint32_t len)
{
    int rc;
    if (!s->taking) {
        if ((rc = start_slot_copy(s, &s->in, ptr, from, len)))
            return rc;
        s->taking = s->in.started;
    }
    if ((rc = test_slot_copy(s, &s->in, s->taking)))
        return rc;
    s->taking = 0;
    add_to(&s->rx_device, len);
    return 0;
}

int np_slots_take(struct np_slots *s, uint64_t i, uint32_t at, const struct hw_space *space, void *ptr, uint32_t len)
{
    uint8_t *from = host_slot(s, true, i) + NP_ROOM + at;
    const bool gpu = s->recv[i % s->n].gpu, ours = !space->direct && has_gpu_slots(s, space);
    s->land = s->told || ours;
    if (gpu && ours)
        return take_gpu_slot(s, gpu_slot(s, true, i) + NP_ROOM + at, ptr, len);
    if (gpu && hw_load(s->gpu, from, gpu_slot(s, true, i) + NP_ROOM + at, len))
        return -ENXIO;
    if (space->direct && len)
        memcpy(ptr, from, len);
    if (!space->direct && hw_store(space, ptr, from, len))
        return -ENXIO;
    if (!space->direct)
        add_to(&s->rx_copied, len);
    return 0;
}

int np_slots_cut(struct np_slots *s)
{
    int rc = 0;
    if (s->taking && !wait_slot_copies(s, &s->in)) {
        rc = hw_fail(-ENXIO, "%s hangs in a copy, and may still write to memory that is about to be freed",
                     s->gpu->name);
        hw_log(s->log, HAWSER_LOG_ERROR, "%s", hw_error());
    }
    s->taking = 0;
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/devmem/rx.h"
#include "mem/gather.h"
#include "transport/devmem/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCRATCH    (256u << 10) /* maximum bytes of one recvmsg(), all of which may be ordinary data */
#define HELD       8192u        /* maximum number of pages that are held at a time */
#define GIVE_BACK  64u          /* minimum number of pages that are returned together while more data arrives */
#define DEPTH      64u          /* maximum number of gathers in flight */
#define DISCARD_MS 500          /* time limit in ms for gathers in flight when a receive is discarded */

struct held {
    uint32_t token;
    /* number of the gather that reads the page; 0 if none does, UINT64_MAX if the gather has not started */
    uint64_t batch;
};

struct dm_rx {
    int fd;
    const struct dm_pool *pool;
    uint32_t dmabuf_id;
    uint8_t *scratch; /* SCRATCH bytes for ordinary data, and as many for copies between GPUs */
    struct dm_received r;

    /* The posted receive. */
    const struct hw_space *space;
    uint8_t *to;
    uint32_t len, have;

    struct hw_gather *gather;       /* gathers within the pool's space */
    uint64_t started, over;         /* numbers of the last gather that was started, and of the last that is complete */
    struct hw_frag wait[DM_PIECES]; /* fragments whose gather could not start yet */
    unsigned nwait, started_of;

    struct held *held;   /* ring buffer */
    uint64_t head, tail; /* pages [tail, head) are held */
    bool strayed;
    struct dm_rx_counts n;
};

int dm_rx_new(int fd, const struct dm_pool *pool, uint32_t dmabuf_id, struct dm_rx **out)
{
    struct dm_rx *rx = calloc(1, sizeof(*rx));
    if (!rx)
        return hw_no_memory("a connection's receive buffers");
    rx->fd = fd;
    rx->pool = pool;
    rx->dmabuf_id = dmabuf_id;
    rx->scratch = malloc((size_t)2 * SCRATCH);
    rx->held = calloc(HELD, sizeof(*rx->held));
    int rc = rx->scratch && rx->held ? 0 : hw_no_memory("a connection's receive buffers");
    if (rc == 0)
        rc = hw_gather_open(pool->space, HW_GATHER_KERNEL, DEPTH, HELD, &rx->gather);
    if (rc) {
        dm_rx_free(rx);
        return rc;
    }
    *out = rx;
    return 0;
}

void dm_rx_free(struct dm_rx *rx)
{
    if (!rx)
        return;
    if (rx->gather)
        hw_gather_close(rx->gather);
    free(rx->scratch);
    free(rx->held);
    free(rx);
}

void dm_rx_post(struct dm_rx *rx, const struct hw_space *space, void *ptr, uint32_t len)
{
    rx->space = space;
    rx->to = ptr;
    rx->len = len;
    rx->have = 0;
}

static int fail_rx_device(const char *doing)
{
    char text[HW_ERR_TEXT];
    snprintf(text, sizeof(text), "%s", hw_error());
    return hw_fail(-ENXIO, "%s: %s", doing, text);
}

/* Gives the oldest pages that no gather reads back to the kernel, if there are at least at_least such pages. */
static int return_rx_pages(struct dm_rx *rx, unsigned at_least)
{
    uint32_t tokens[GIVE_BACK * 4];
    for (;;) {
        unsigned n = 0;
        while (rx->tail + n < rx->head && n < HW_ARRAY_LEN(tokens) &&
               rx->held[(rx->tail + n) % HELD].batch <= rx->over) {
            tokens[n] = rx->held[(rx->tail + n) % HELD].token;
            n++;
        }
        if (n == 0 || n < at_least)
            return 0;
        int rc = dm_give_back(rx->fd, tokens, n);
        if (rc < 0)
            return rc;
        rx->tail += n;
    }
}

static int poll_rx_gather(struct dm_rx *rx)
{
    if (rx->over == rx->started)
        return 0;
    return hw_gather_done(rx->gather, &rx->over) ? fail_rx_device("gathering") : 0;
}

/* Starts the gather of the waiting fragments. Returns 0, -EBUSY or -ENXIO. */
static int start_rx_gather(struct dm_rx *rx)
{
    const struct hw_gather_bufs b = {
        .dst = rx->to, .dst_size = rx->len, .src = rx->pool->buf.base, .src_size = rx->pool->buf.size};
    while (rx->started_of < rx->nwait) {
        size_t taken = 0;
        int rc = hw_gather_start(rx->gather, &b, rx->wait + rx->started_of, rx->nwait - rx->started_of, &taken);
        if (rc == -EAGAIN)
            return poll_rx_gather(rx) ? -ENXIO : -EBUSY;
        if (rc)
            return fail_rx_device("gathering");
        rx->started++;
        /* the waiting fragments are in the last pages that are held */
        uint64_t first = rx->head - (rx->nwait - rx->started_of);
        for (size_t i = 0; i < taken; i++)
            rx->held[(first + i) % HELD].batch = rx->started;
        rx->started_of += (unsigned)taken;
    }
    rx->nwait = rx->started_of = 0;
    return poll_rx_gather(rx);
}

/* Copies a piece synchronously, with the CPU or the driver. */
static int copy_rx_piece(struct dm_rx *rx, const struct hw_space *from_space, const uint8_t *from, uint32_t len)
{
    uint8_t *to = rx->to + rx->have;
    int rc = 0;
    if (rx->space->direct)
        rc = from_space->direct ? (memcpy(to, from, len), 0) : hw_load(from_space, to, from, len);
    else if (from_space->direct)
        rc = hw_store(rx->space, to, from, len);
    else /* between two GPUs; no piece is larger than a receive */
        rc = hw_load(from_space, rx->scratch + SCRATCH, from, len) ||
             hw_store(rx->space, to, rx->scratch + SCRATCH, len);
    dm_count(&rx->n.copied, len);
    return rc ? fail_rx_device("copying") : 0;
}

static int place_received_pieces(struct dm_rx *rx, const struct dm_received *r, uint64_t *moved)
{
    const uint8_t *host = rx->scratch;
    int rc = 0;
    for (unsigned i = 0; i < r->n; i++) {
        const struct dm_piece *p = &r->piece[i];
        if (p->len > rx->len - rx->have)
            return hw_fail(-EPROTO, "devmem receive: more bytes than were requested");
        if (p->device && (p->dmabuf_id != rx->dmabuf_id || p->offset > rx->pool->buf.size ||
                          p->len > rx->pool->buf.size - p->offset))
            return hw_fail(-EPROTO,
                           "devmem receive: %u bytes at %llu of dma-buf %u are outside this connection's memory",
                           p->len, (unsigned long long)p->offset, p->dmabuf_id);
        if (p->device) {
            bool gather = rx->to && rx->space == rx->pool->space;
            rx->held[rx->head++ % HELD] = (struct held){.token = p->token, .batch = gather ? UINT64_MAX : 0};
            dm_count(&rx->n.device, p->len);
            if (gather && rx->space->direct)
                dm_count(&rx->n.copied, p->len);
            if (gather)
                rx->wait[rx->nwait++] = (struct hw_frag){.src_off = p->offset, .dst_off = rx->have, .len = p->len};
            else if (rx->to && rc == 0)
                rc = copy_rx_piece(rx, rx->pool->space, rx->pool->buf.base + p->offset, p->len);
        } else {
            if (rx->to && rc == 0)
                rc = copy_rx_piece(rx, &hw_host, host, p->len);
            host += p->len;
        }
        rx->have += p->len;
        *moved += p->len;
    }
    if (rx->head - rx->tail > atomic_load_explicit(&rx->n.held_most, memory_order_relaxed))
        atomic_store_explicit(&rx->n.held_most, (uint32_t)(rx->head - rx->tail), memory_order_relaxed);
    return rc;
}

int dm_rx_run(struct dm_rx *rx, uint64_t *moved)
{
    for (;;) {
        int rc = start_rx_gather(rx);
        if (rc)
            return rc;
        bool whole = rx->have == rx->len;
        if ((rc = return_rx_pages(rx, whole ? 1 : GIVE_BACK)))
            return rc;
        if (whole)
            return rx->over == rx->started ? 0 : -EBUSY;
        if (HELD - (rx->head - rx->tail) < DM_PIECES)
            return -EBUSY;
        ssize_t n = dm_recv(rx->fd, rx->scratch, HW_MIN(rx->len - rx->have, SCRATCH), &rx->r);
        dm_count(&rx->n.calls, 1);
        if (n == 0)
            return hw_fail(-EPIPE, "the peer closed the connection");
        if (n == -EAGAIN || n == -EBUSY) {
            if ((rc = poll_rx_gather(rx)) || (rc = return_rx_pages(rx, 1)))
                return rc;
            return rx->head == rx->tail ? (int)n : -EBUSY; /* the sender may be waiting for pages that are held here */
        }
        if (n < 0)
            return (int)n;
        rx->strayed |= rx->r.plain;
        if ((rc = place_received_pieces(rx, &rx->r, moved)))
            return rc;
    }
}

int dm_rx_discard(struct dm_rx *rx)
{
    uint64_t until = hw_now() + DISCARD_MS * HW_MS;
    for (; rx->nwait > rx->started_of; rx->nwait--) /* no gather reads these pages */
        rx->held[(rx->head - (rx->nwait - rx->started_of)) % HELD].batch = 0;
    rx->nwait = rx->started_of = 0;
    int rc;
    while ((rc = poll_rx_gather(rx)) == 0 && rx->over < rx->started && hw_now() < until)
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    rx->to = NULL;
    if (rx->over == rx->started)
        return 0;
    return rc < 0 ? hw_wrap(-ENXIO, "waiting for the GPU's gather")
                  : hw_fail(-ENXIO, "the GPU's gather did not complete within %d ms", DISCARD_MS);
}

bool dm_rx_strayed(const struct dm_rx *rx)
{
    return rx->strayed;
}

const struct dm_rx_counts *dm_rx_counts(const struct dm_rx *rx)
{
    return &rx->n;
}

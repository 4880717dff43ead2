/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scattered receives in the child (GPUDirect-TCPX, netUnpackMeta in abi.h). The fragments are in the plugin's bounce
 * buffer and their list is in the metadata queue. The connection's device handle points to both. In GPU memory, a
 * gather on that GPU reorders the fragments. The receive keeps its slot and its pages until the gather is complete.
 */
#include "transport/netplugin/child/child.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Returns true if the CPU can read the memory. The kernel reports EFAULT for a GPU address. */
static bool is_cpu_readable(const void *p, size_t len)
{
    int fd[2];
    bool yes = false;
    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    yes = write(fd[1], p, 1) == 1 && write(fd[1], (const char *)p + len - 1, 1) == 1;
    close(fd[0]);
    close(fd[1]);
    return yes;
}

/* Reads the structure at the handle. Returns 1 and leaves *u unchanged if the structure is on a GPU although no GPU was
 * current when the connection was made. In this case no scattered data will arrive on this connection. */
static int read_handle(const struct kid_comm *c, const void *handle, struct unpackNetDeviceHandle *u)
{
    size_t len;
    if (is_cpu_readable(handle, sizeof(*u))) {
        memcpy(u, handle, sizeof(*u));
        return 0;
    }
    if (!c->gpu)
        return 1;
    int rc = hw_cuda_rest(c->gpu, handle, &len);
    if (rc == 0 && len < sizeof(*u))
        rc = hw_fail(-EPROTO, "an unpacking handle of %zu bytes where %zu were expected", len, sizeof(*u));
    return rc < 0 ? hw_wrap(rc, "reading the unpacking handle") : hw_load(c->gpu, u, handle, sizeof(*u));
}

int kid_unpack_open(struct kid *k, struct kid_comm *c)
{
    const ncclNetDeviceHandle_t *dh = c->dh;
    if (c->kind != KID_RECV || !dh || dh->netDeviceType != NCCL_NET_DEVICE_UNPACK)
        return 0;
    if (dh->netDeviceVersion != NCCL_NET_DEVICE_UNPACK_VERSION)
        return hw_fail(-EPROTO, "the connection uses unpacking version %d, but only version %d is supported",
                       dh->netDeviceVersion, NCCL_NET_DEVICE_UNPACK_VERSION);
    if (!np_table_has_consumed(&k->t))
        return hw_fail(-EPROTO, "the connection needs unpacking, but the plugin's table has no irecvConsumed");
    c->unpacks = true;
    struct unpackNetDeviceHandle u = {0};
    int rc = dh->handle ? read_handle(c, dh->handle, &u) : 1;
    if (rc)
        return HW_MIN(rc, 0);
    const bool host = u.bounce_buf && is_cpu_readable(u.bounce_buf, 1);
    if (!u.meta || !u.bounce_buf || !is_cpu_readable(u.meta, sizeof(*u.meta)) || (!host && !c->gpu))
        return hw_fail(-EPROTO, "the unpacking handle has no usable metadata queue or bounce buffer");
    if (!host) {
        rc = hw_cuda_rest(c->gpu, u.bounce_buf, &c->bounce_len);
        if (rc == 0)
            rc = hw_gather_open(c->gpu, (enum hw_gather_way)k->c->unpack, NP_RING, c->window * NP_FRAGS, &c->gather);
        if (rc < 0)
            return hw_wrap(rc, "unpacking");
    }
    c->meta = u.meta;
    c->bounce = u.bounce_buf;
    return 0;
}

void kid_unpack_close(struct kid_comm *c)
{
    hw_gather_close(c->gather);
    c->gather = NULL;
}

/* Starts the gather of n checked fragments. The gather is complete when its last batch is complete. */
static int start_gather(struct kid_comm *c, uint8_t *to, size_t len, const struct loadMeta *list, uint32_t n)
{
    static struct hw_frag frags[NP_FRAGS];
    const struct hw_gather_bufs b = {.dst = to, .dst_size = len, .src = c->bounce, .src_size = c->bounce_len};
    size_t taken;
    uint64_t upto;
    for (uint32_t i = 0; i < n; i++)
        frags[i] = (struct hw_frag){.src_off = list[i].src_off, .dst_off = list[i].dst_off, .len = list[i].len};
    for (size_t at = 0; at < n; at += taken) {
        int rc = hw_gather_start(c->gather, &b, frags + at, n - at, &taken);
        while (rc == -EAGAIN) { /* a short wait, because the gather was opened for the whole window */
            rc = hw_gather_done(c->gather, &upto);
            if (rc == 0)
                rc = hw_gather_start(c->gather, &b, frags + at, n - at, &taken);
        }
        if (rc < 0)
            return rc;
        c->batches++;
    }
    c->batch[c->come % NP_RING] = c->batches;
    return 0;
}

int kid_unpacked(struct kid_comm *c, uint64_t n)
{
    uint64_t upto = 0;
    if (!c->gather || !c->batch[n % NP_RING])
        return 1;
    int rc = hw_gather_done(c->gather, &upto);
    return rc < 0 ? rc : upto >= c->batch[n % NP_RING];
}

/* A receive's slot in the metadata queue is its number modulo the queue's depth. */
int kid_unpack(struct kid *k, struct kid_comm *c, struct np_entry *e)
{
    static struct loadMeta mine[NP_FRAGS];
    const unsigned slot = (unsigned)(c->come % NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH);
    const uint64_t n = *(const volatile uint64_t *)&c->meta->cnt[slot];
    const struct kid_mr *mr = &k->mr[e->mr];
    uint8_t *to = mr->at + e->offset;

    c->batch[c->come % NP_RING] = 0;
    if (c->gather && !mr->cuda) /* with a bounce buffer on the GPU, only receives into GPU memory arrive scattered */
        return 0;
    if (n > NP_FRAGS)
        return hw_fail(-EPROTO, "receive %llu has %llu fragments, but a slot of the metadata queue holds at most %d",
                       (unsigned long long)c->come, (unsigned long long)n, NP_FRAGS);
    int rc = np_check_frags(c->meta->mem[slot], (uint32_t)n, e->len, mine, &e->size);
    if (rc < 0)
        return rc;
    /* A plugin may itself copy the data into host memory, and then reports no fragments. */
    c->scatters |= n > 0;
    if (!c->scatters)
        return 0;
    e->frags = (uint32_t)n;
    e->known = true;
    if (c->frags) {
        memcpy(c->frags->list[c->come % NP_RING], mine, n * sizeof(mine[0]));
        return 0;
    }
    kid_enter(k, NP_UNPACK);
    if (c->gather)
        rc = start_gather(c, to, e->len, mine, (uint32_t)n);
    else
        for (uint32_t i = 0; i < n; i++)
            memcpy(to + mine[i].dst_off, c->bounce + mine[i].src_off, mine[i].len);
    kid_leave(k);
    return rc;
}

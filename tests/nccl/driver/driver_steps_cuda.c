/* SPDX-License-Identifier: Apache-2.0 */
/* Tests messages between GPUs, and between GPU and host, if the plugin accepts GPU memory and there is a CUDA driver.
 * Also tests memory that the plugin must refuse. */
#include "driver.h"

#include "base/pattern.h"
#include "mem/cuda.h"
#include "mem/space.h"

#include <stdlib.h>
#include <string.h>

#define KIB   (1024u)
#define MIB   (1024u * 1024)
#define GAP   512u /* minimum gap before and after each message */
#define EMPTY 0xee /* initial contents of the gaps and of receive buffers */

static const size_t sizes[] = {0, 1, 4 * KIB + 1, MIB, 8 * MIB};
#define N HW_ARRAY_LEN(sizes)

/* This rank's end of a connection: a buffer, registered as a whole, and the offsets of the messages in the buffer. */
struct end {
    struct comm *c;
    const struct hw_space *space;
    void *mh;
    uint8_t *p, *want; /* the buffer, and its expected final contents */
    size_t len, at[N], size[N];
    void *req[N];
    struct phandle ph[N];
    bool flush;
};

static int end_open(struct end *e, struct comm *c, const struct hw_space *space)
{
    void *p;
    int rc;

    *e = (struct end){.c = c, .space = space};
    for (size_t i = 0; i < N; i++) {
        e->size[i] = HW_MIN(sizes[i], opt.max_size);
        e->len = (e->len + GAP + opt.align - 1) / opt.align * opt.align;
        e->at[i] = e->len + (opt.align == 1 ? 2 * i + 1 : 0); /* unaligned, unless the plugin needs alignment */
        e->len = e->at[i] + e->size[i];
    }
    e->len += GAP;
    if ((rc = space->ops->alloc(space, e->len, &p)))
        return rc;
    e->p = p;
    e->want = malloc(e->len);
    if (!e->want)
        return hw_fail(-ENOMEM, "%zu bytes to compare with", e->len);
    memset(e->want, EMPTY, e->len);
    if (!c->sends && (rc = hw_store(space, e->p, e->want, e->len)))
        return rc;
    for (size_t i = 0; i < N; i++)
        hw_pattern_fill(e->want + e->at[i], e->size[i], c->id * N + i, 0);
    if (c->sends && (rc = hw_store(space, e->p, e->want, e->len)))
        return rc;
    return net_fail(net_reg_as(c->r, c->c, e->p, e->len, space->direct ? NCCL_PTR_HOST : NCCL_PTR_CUDA, &e->mh),
                    space->direct ? "regMr of host memory" : "regMr of GPU memory");
}

static int end_close(struct end *e)
{
    int rc = net_fail(net_dereg(e->c->r, e->c->c, e->mh), "deregMr");
    e->space->ops->free(e->space, e->p, e->len);
    free(e->want);
    return rc;
}

/* Posts message i. Returns 1, or 0 if the plugin cannot accept another request yet. */
static int post(struct end *e, size_t i)
{
    struct comm *c = e->c;
    uint8_t *p = e->p + e->at[i];
    int rc;

    prof_begin(&e->ph[i], c->sends, e->size[i], e->size[i]);
    rc = net_fail(c->sends ? net_isend(c->r, c->c, p, e->size[i], 7, e->mh, &e->ph[i], &e->req[i])
                           : net_irecv(c->r, c->c, p, e->size[i], 7, e->mh, &e->ph[i], &e->req[i]),
                  c->sends ? "isend" : "irecv");
    return rc ? rc : e->req[i] != NULL;
}

/* Flushes like NCCL after a receive into GPU memory. A NULL request means that the flush is done. Like NCCL, passes no
 * size pointer to test. */
static int flush(struct end *e, size_t i)
{
    struct comm *c = e->c;
    struct wait w = wait_for("iflush of GPU memory");
    void *req = NULL;
    int done = 0, rc = net_fail(net_flush(c->r, c->c, e->p + e->at[i], e->size[i], e->mh, &req), "iflush");

    while (!rc && req && !(rc = net_fail(net_test(c->r, req, &done, NULL), "test of iflush")) && !done)
        rc = wait_turn(c->r, &w);
    return rc;
}

/* Checks message i immediately, with the contents that a GPU kernel would see now. */
static int check(struct end *e, size_t i)
{
    uint8_t *got = malloc(e->size[i] + 1);
    uint64_t bad, first = 0;
    int rc = got ? hw_load(e->space, got, e->p + e->at[i], e->size[i]) : hw_fail(-ENOMEM, "%zu bytes", e->size[i]);

    bad = rc ? 0 : hw_pattern_check(got, e->size[i], e->c->id * N + i, 0, &first);
    free(got);
    if (bad)
        return hw_fail(-EBADMSG, "%llu of %zu bytes in %s memory are wrong, the first at %llu", (unsigned long long)bad,
                       e->size[i], e->space->name, (unsigned long long)first);
    return rc;
}

static int arrived(struct end *e, size_t i, int size)
{
    int rc;

    if (!opt.no_sizes && size != (int)e->size[i])
        return hw_fail(-EBADMSG, "test says %d bytes, %zu were sent", size, e->size[i]);
    if ((rc = comm_arrived(e->c, e->req[i], e->p + e->at[i], e->size[i])))
        return rc;
    if (!e->space->direct && e->size[i] && (rc = flush(e, i)))
        return rc;
    return check(e, i);
}

/* Checks the whole buffer, including the gaps and the sent data. */
static int check_all(struct end *e)
{
    uint8_t *got = malloc(e->len);
    size_t at = 0;
    int rc = got ? hw_load(e->space, got, e->p, e->len) : hw_fail(-ENOMEM, "%zu bytes", e->len);

    while (!rc && at < e->len && got[at] == e->want[at])
        at++;
    if (!rc && at < e->len)
        rc = hw_fail(-EBADMSG, "byte %zu of %zu in %s memory is %#x, not %#x", at, e->len, e->space->name, got[at],
                     e->want[at]);
    free(got);
    return rc;
}

/* Transfers all messages in order, with as many in flight as the plugin accepts. */
static int move(struct end *e)
{
    struct comm *c = e->c;
    struct wait w = wait_for("messages of GPU memory");
    size_t posted = 0, over = 0, depth = depth_of(N);
    int rc = 0;

    while (over < N) {
        int n = 0, done = 0, size[8] = {-1};
        while (posted < N && posted - over < depth && (n = post(e, posted)) > 0)
            posted++;
        if (n < 0)
            return n;
        if (posted > over && (rc = net_fail(net_test(c->r, e->req[over], &done, size), "test")))
            return hw_wrap(rc, "message %zu of %zu bytes", over, e->size[over]);
        if (!done) {
            if ((rc = wait_turn(c->r, &w)))
                return rc;
            continue;
        }
        if (!(rc = prof_end(&e->ph[over], "done")) && !c->sends)
            rc = arrived(e, over, size[0]);
        if (rc)
            return hw_wrap(rc, "message %zu of %zu bytes", over, e->size[over]);
        over++;
        w = wait_for(w.what);
    }
    return check_all(e);
}

static int talk(struct rank *r, int sender, const struct hw_space *from, const struct hw_space *to)
{
    struct comm *c;
    struct end e;
    int rc = comm_open(r, sender, &c);

    if (!rc)
        rc = end_open(&e, c, c->sends ? from : to);
    if (!rc)
        rc = move(&e);
    if (!rc)
        rc = end_close(&e); /* after a failure, the memory may still be in use */
    if (!rc)
        rc = comm_close(c);
    return rc;
}

/* Aborts on both sides with messages in flight. The memory is freed after deregMr, so the plugin must not access it. */
static int abandon(struct rank *r, const struct hw_space *gpu)
{
    struct comm *c;
    struct end e;
    int n = 1, rc = comm_open(r, 0, &c);

    if (!rc)
        rc = end_open(&e, c, gpu);
    for (size_t i = 0; i < depth_of(N) && !rc && n > 0; i++)
        if ((n = post(&e, i)) < 0)
            rc = n;
    if (rc || (rc = barrier(r)))
        return rc;
    rc = end_close(&e);
    return rc ? rc : comm_close(c);
}

static int refused(struct comm *c, void *p, size_t len, int type, const char *what)
{
    void *mh = NULL;
    ncclResult_t rc = net_reg_as(c->r, c->c, p, len, type, &mh);

    if (rc == ncclSuccess)
        return hw_fail(-EPROTO, "regMr takes %s", what);
    return 0;
}

/* Checks that the plugin refuses host memory, freed GPU memory and an invalid dma-buf, and that the connection still
 * works afterwards. */
static int wrong(struct rank *r, const struct hw_space *gpu)
{
    static const struct flow_spec after = {
        .what = "messages after refused memory", .n = 10, .depth = 4, .min = 1, .max = 20000};
    const size_t len = 64 * KIB;
    struct comm *c;
    uint8_t *host = aligned_alloc(4 * KIB, len);
    void *freed;
    int rc = host ? comm_open(r, 0, &c) : hw_fail(-ENOMEM, "%zu bytes", len);

    if (!rc)
        rc = refused(c, host, len, NCCL_PTR_CUDA, "host memory for a GPU's");
    if (gpu) {
        if (!rc)
            rc = gpu->ops->alloc(gpu, len, &freed);
        if (!rc)
            rc = refused(c, freed, len, NCCL_PTR_DMABUF, "a dma-buf that was not offered");
        if (!rc) {
            gpu->ops->free(gpu, freed, len);
            rc = refused(c, freed, len, NCCL_PTR_CUDA, "GPU memory that is freed");
        }
    }
    free(host);
    return rc ? rc : flow_all(c, &after);
}

static int steps_of(struct rank *r, const struct hw_space *gpu)
{
    int rc = wrong(r, gpu);

    for (int sender = 0; sender < 2 && !rc; sender++) {
        if ((rc = hw_wrap(talk(r, sender, gpu, gpu), "GPU to GPU")) ||
            (rc = hw_wrap(talk(r, sender, gpu, &hw_host), "GPU to host")) ||
            (rc = hw_wrap(talk(r, sender, &hw_host, gpu), "host to GPU")))
            return rc;
    }
    if (!rc && !opt.no_abort)
        rc = hw_wrap(abandon(r, gpu), "giving up");
    return rc ? rc : hw_wrap(talk(r, 0, gpu, gpu), "after that");
}

int step_cuda(struct rank *r)
{
    const struct hw_space *gpu = NULL;
    struct props p;
    char why[HW_ERR_TEXT];
    int n, rc = net_fail(net_props(r, (int)opt.dev, &p), "getProperties");

    if (rc)
        return rc;
    if (!(p.ptr_support & NCCL_PTR_CUDA)) {
        if (opt.cuda)
            return hw_fail(-ENODEV, "the plugin takes no GPU memory");
        rc = wrong(r, NULL);
        return rc ? rc : SKIP("the plugin takes no GPU memory, and refuses it");
    }
    n = hw_cuda_count();
    r->cuda = true;
    rc = n < 0 ? n : hw_space_device(HAWSER_MEM_CUDA, r->id % HW_MAX(n, 1), &gpu);
    if (rc && opt.cuda)
        return rc;
    if (rc) {
        snprintf(why, sizeof(why), "%s", hw_error());
        return SKIP("%s", why);
    }
    if (p.device_type == NCCL_NET_DEVICE_UNPACK)
        return SKIP("receives into GPU memory come scattered, for kernels of NCCL's");
    if ((rc = hw_cuda_enter(gpu))) /* NCCL's threads call the plugin with their GPU current */
        return rc;
    rc = steps_of(r, gpu);
    hw_cuda_leave();
    return rc;
}

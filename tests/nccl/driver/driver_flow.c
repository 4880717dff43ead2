/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers messages over connections. Each message has its own pattern, which is checked byte by byte on arrival,
 * including the bytes around the message. Only the oldest request of a connection is tested. */
#include "driver.h"

#include "base/pattern.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD      128 /* guard bytes before and after each receive */
#define GUARD_BYTE 0xee
#define SKEW_MAX   64

size_t depth_of(size_t want)
{
    size_t most = net_version() == 6 ? NCCL_NET_MAX_REQUESTS_V6 : NCCL_NET_MAX_REQUESTS;
    most = HW_MIN(most, opt.depth_max);
    return HW_MIN(want, most);
}

/* Returns a pseudorandom number, the same on both ranks (splitmix64's finaliser). */
static uint64_t chance(uint64_t a, uint64_t b)
{
    uint64_t z = (a + 1) * 0x9e3779b97f4a7c15ull + b;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static size_t size_of(const struct flow *f, unsigned i)
{
    size_t n = f->s.n_sizes ? f->s.sizes[i % f->s.n_sizes]
                            : f->s.min + (size_t)(chance(f->c->id, i) % (f->s.max - f->s.min + 1));
    return HW_MIN(n, opt.max_size);
}

static uint64_t seed_of(const struct flow *f, unsigned i)
{
    return chance(f->c->id + 0x5eed, i);
}

/* Returns a different tag for each message of a connection, so that plugins that match by tag are tested. */
static int tag_of(const struct flow *f, unsigned i)
{
    return (int)(chance(f->c->id + 0x7a6, 0) % 1000000) + (int)i;
}

int flow_open(struct flow *f, struct comm *c, const struct flow_spec *s)
{
    size_t align = HW_MAX(opt.align, (uint64_t)SKEW_MAX);
    *f = (struct flow){.c = c, .s = *s};
    f->s.depth = (unsigned)depth_of(s->depth);
    for (size_t i = 0; i < s->n_sizes; i++)
        f->s.max = HW_MAX(f->s.max, s->sizes[i]);
    f->s.max = HW_MIN(f->s.max, opt.max_size);
    f->s.min = HW_MIN(f->s.min, f->s.max);
    f->stride = (f->s.max + s->slack + 2 * (size_t)(GUARD + SKEW_MAX) + 2 * align - 1) / align * align;
    f->raw_len = f->stride * f->s.depth + align;
    f->raw = mmap(NULL, f->raw_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->raw == MAP_FAILED) {
        f->raw = NULL;
        return hw_fail(-ENOMEM, "%zu bytes for a flow", f->raw_len);
    }
    f->base = f->raw; /* page-aligned, which meets every alignment requirement */
    if (s->register_each)
        return 0;
    return net_fail(net_reg(c->r, c->c, f->base, f->raw_len, &f->mh), "regMr");
}

/* Returns the address of message i. The alignment varies from message to message, unless the plugin needs aligned
 * addresses. */
static uint8_t *place(const struct flow *f, unsigned i)
{
    uint8_t *p = f->base + f->stride * (i % f->s.depth);
    return opt.align > 1 ? p + (GUARD + opt.align - 1) / opt.align * opt.align : p + GUARD + i * 7 % SKEW_MAX;
}

static void guard(struct flow_slot *s)
{
    memset(s->p - GUARD, GUARD_BYTE, GUARD);
    memset(s->p + s->room, GUARD_BYTE, GUARD);
}

static bool guarded(const struct flow_slot *s)
{
    for (size_t i = 0; i < GUARD; i++)
        if (*(s->p - GUARD + i) != GUARD_BYTE || s->p[s->room + i] != GUARD_BYTE)
            return false;
    return true;
}

/* Returns the contents of *request before the call: the previous request, NCCL's hint, or an invalid pointer. */
static void *stale(const struct flow *f, struct flow_slot *s, unsigned i)
{
    s->hinted = false;
    if (f->s.hint && !f->c->sends && !opt.no_hint && i % 2) {
        s->hinted = true;
        return (void *)(uintptr_t)NCCL_NET_OPTIONAL_RECV_COMPLETION;
    }
    return i % 3 ? (void *)(uintptr_t)0xbadc0ffee0ddull : s->req;
}

int flow_post(struct flow *f)
{
    unsigned i = f->posted;
    struct comm *c = f->c;
    struct flow_slot *s = &f->slot[i % f->s.depth];
    void *mh = f->mh, *before, *req;
    int rc;

    if (i == f->s.n || i - f->done == f->s.depth)
        return 0;
    s->p = place(f, i);
    s->size = size_of(f, i);
    s->room = c->sends ? s->size : s->size + (f->s.slack ? chance(i, c->id) % (f->s.slack + 1) : 0);
    s->room = HW_MIN(s->room, HW_MAX(opt.max_size, s->size));
    if (f->s.register_each) {
        if (!s->mh && (rc = net_fail(net_reg(c->r, c->c, s->p, HW_MAX(s->room, (size_t)1), &s->mh), "regMr")))
            return rc;
        mh = s->mh;
    }
    before = req = stale(f, s, i);
    prof_begin(&s->ph, c->sends, s->size, s->room);
    if (c->sends) {
        hw_pattern_fill(s->p, s->size, seed_of(f, i), 0);
        rc = net_fail(net_isend(c->r, c->c, s->p, s->size, tag_of(f, i), mh, &s->ph, &req), "isend");
    } else {
        guard(s);
        rc = net_fail(net_irecv(c->r, c->c, s->p, s->room, tag_of(f, i), mh, &s->ph, &req), "irecv");
    }
    if (rc)
        return hw_wrap(rc, "%s, message %u of %zu bytes", f->s.what, i, s->size);
    if (req == before && req && (s->hinted || i % 3))
        return hw_fail(-EPROTO, "%s, message %u: %s left *request as it was (%p)", f->s.what, i,
                       c->sends ? "isend" : "irecv", before);
    s->req = req;
    if (!req)
        return 0;
    f->posted++;
    return 1;
}

/* Copies the fragments from the plugin's bounce memory with the CPU, as an NCCL kernel does on the GPU for UNPACK
 * devices (abi.h). */
static int unpack(struct comm *c, uint8_t *p, size_t room)
{
    const struct unpackNetDeviceHandle *d;
    uint64_t q = c->received % NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH, cnt;

    if (!c->dh || c->dh->netDeviceType != NCCL_NET_DEVICE_UNPACK)
        return 0;
    d = c->dh->handle;
    cnt = d->meta->cnt[q];
    if (cnt > NET_UNPACK_MAX_SLICE_PAGES)
        return hw_fail(-EBADMSG, "the metadata queue says %llu fragments", (unsigned long long)cnt);
    for (uint64_t i = 0; i < cnt; i++) {
        const struct loadMeta *m = &d->meta->mem[q][i];
        if (m->dst_off > room || m->len > room - m->dst_off)
            return hw_fail(-EBADMSG, "fragment %llu lies outside the receive", (unsigned long long)i);
        memcpy(p + m->dst_off, (const uint8_t *)d->bounce_buf + m->src_off, m->len);
    }
    return 0;
}

int comm_arrived(struct comm *c, void *req, uint8_t *p, size_t room)
{
    int rc = unpack(c, p, room);
    if (!rc && opt.consumed)
        rc = net_fail(net_consumed(c->r, c->c, req), "irecvConsumed");
    c->received++;
    return rc;
}

static int flush(struct flow *f, struct flow_slot *s, void *mh)
{
    struct wait w = wait_for("iflush");
    void *req = (void *)(uintptr_t)0xbadc0ffee0ddull;
    int sizes[8], done = 0, rc;

    if ((rc = net_fail(net_flush(f->c->r, f->c->c, s->p, s->size, mh, &req), "iflush")) || !req)
        return rc;
    while (!(rc = net_fail(net_test(f->c->r, req, &done, sizes), "test of iflush")) && !done)
        if ((rc = wait_turn(f->c->r, &w)))
            return rc;
    return rc;
}

static int arrived(struct flow *f, unsigned i, int size)
{
    struct flow_slot *s = &f->slot[i % f->s.depth];
    uint64_t first = 0, bad;
    int rc;

    if (!opt.no_sizes && size != (int)s->size)
        return hw_fail(-EBADMSG, "%s, message %u: test says %d bytes, %zu were sent (room for %zu)", f->s.what, i, size,
                       s->size, s->room);
    if ((rc = comm_arrived(f->c, s->req, s->p, s->room)))
        return rc;
    bad = hw_pattern_check(s->p, s->size, seed_of(f, i), 0, &first);
    if (bad && s->hinted) { /* the hint lets the request complete before the data arrives */
        struct wait w = wait_for("data of a receive with optional completion");
        while ((bad = hw_pattern_check(s->p, s->size, seed_of(f, i), 0, &first)))
            if (wait_turn(f->c->r, &w))
                break;
    }
    if (bad)
        return hw_fail(-EBADMSG, "%s, message %u of %zu bytes: %llu of them are wrong, the first at %llu", f->s.what, i,
                       s->size, (unsigned long long)bad, (unsigned long long)first);
    if (!guarded(s))
        return hw_fail(-EBADMSG, "%s, message %u of %zu bytes: bytes outside the receive of %zu were written",
                       f->s.what, i, s->size, s->room);
    if (opt.flush && s->size && (rc = flush(f, s, f->s.register_each ? s->mh : f->mh)))
        return rc;
    return 0;
}

int flow_test(struct flow *f)
{
    unsigned i = f->done;
    struct flow_slot *s = &f->slot[i % f->s.depth];
    int done = 0x5a5a5a5a, sizes[8] = {-1, -1, -1, -1, -1, -1, -1, -1}, rc;

    if (i == f->posted)
        return 0;
    rc = net_fail(net_test(f->c->r, s->req, &done, sizes), "test");
    if (rc)
        return hw_wrap(rc, "%s, message %u of %zu bytes", f->s.what, i, s->size);
    if (done == 0x5a5a5a5a)
        return hw_fail(-EPROTO, "%s, message %u: test did not write done", f->s.what, i);
    if (!done)
        return 0;
    if ((rc = prof_end(&s->ph, "done")))
        return hw_wrap(rc, "%s, message %u of %zu bytes", f->s.what, i, s->size);
    if (!f->c->sends && (rc = arrived(f, i, sizes[0])))
        return rc;
    if (s->mh) {
        rc = net_fail(net_dereg(f->c->r, f->c->c, s->mh), "deregMr");
        s->mh = NULL;
        if (rc)
            return rc;
    }
    f->done++;
    return 1;
}

int flow_step(struct flow *f)
{
    int events = 0, n;
    while ((n = flow_post(f)) > 0)
        events += n;
    if (n < 0)
        return n;
    n = flow_test(f);
    return n < 0 ? n : events + n;
}

static void flow_free(struct flow *f)
{
    if (f->raw)
        munmap(f->raw, f->raw_len);
    f->raw = NULL;
}

int flow_close(struct flow *f)
{
    int rc = 0, rc2;
    for (unsigned i = 0; i < FLOW_DEPTH; i++) {
        if (!f->slot[i].mh)
            continue;
        rc2 = net_fail(net_dereg(f->c->r, f->c->c, f->slot[i].mh), "deregMr");
        rc = rc ? rc : rc2;
        f->slot[i].mh = NULL;
    }
    if (!f->s.register_each && f->raw) {
        rc2 = net_fail(net_dereg(f->c->r, f->c->c, f->mh), "deregMr");
        rc = rc ? rc : rc2;
    }
    flow_free(f);
    return rc;
}

int flow_abandon(struct flow *f)
{
    int rc = net_fail(net_dereg(f->c->r, f->c->c, f->mh), "deregMr");
    int rc2 = comm_close(f->c);
    for (unsigned i = f->done; i < f->posted && !rc2; i++)
        rc2 = prof_end(&f->slot[i % f->s.depth].ph, "given up, its connection closed");
    flow_free(f);
    return rc ? rc : rc2;
}

int flow_run(struct rank *r, struct flow *f, size_t n)
{
    struct wait w = wait_for(f[0].s.what);
    size_t left = n;

    while (left > 0) {
        int events = 0;
        left = n;
        for (size_t i = 0; i < n; i++) {
            int got = flow_step(&f[i]);
            if (got < 0)
                return got;
            events += got;
            left -= f[i].done == f[i].s.n;
        }
        if (events)
            w = wait_for(f[0].s.what); /* a new deadline after each event */
        int rc = events ? 0 : wait_turn(r, &w);
        if (rc)
            return rc;
    }
    return 0;
}

int flow_all(struct comm *c, const struct flow_spec *s)
{
    struct flow f;
    int rc = flow_open(&f, c, s);
    if (!rc)
        rc = flow_run(c->r, &f, 1);
    return rc ? rc : flow_close(&f); /* after a failure, the connection may still use the memory */
}

int exchange(struct rank *r, const struct flow_spec *s)
{
    struct comm *c[2];
    struct flow f[2] = {{0}};
    int rc;

    for (int i = 0; i < 2; i++)
        if ((rc = comm_open(r, i, &c[i])))
            return rc;
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_open(&f[i], c[i], s);
    if (!rc)
        rc = flow_run(r, f, 2);
    for (int i = 0; i < 2 && !rc; i++)
        if (!(rc = flow_close(&f[i])))
            rc = comm_close(c[i]);
    return rc;
}

int flow_until_error(struct flow *f)
{
    struct wait w = wait_for("an error of the plugin");
    for (;;) {
        int n = flow_step(f), rc;
        if (n == -EREMOTEIO)
            return 0;
        if (n < 0)
            return n;
        if (f->done == f->s.n)
            return hw_fail(-EPROTO, "%s: all %u messages went through, no error", f->s.what, f->done);
        if (n == 0 && (rc = wait_turn(f->c->r, &w)))
            return rc;
        if (hw_now() >= w.end)
            return hw_fail(-ETIMEDOUT, "%s: no error within %llu s", f->s.what, (unsigned long long)opt.deadline);
    }
}

int flow_some(struct flow *f, size_t n, unsigned want)
{
    struct wait w = wait_for("the first messages of a stream");
    for (;;) {
        int events = 0, rc;
        bool enough = true;
        for (size_t i = 0; i < n; i++) {
            int got = flow_step(&f[i]);
            if (got < 0)
                return got;
            events += got;
            enough = enough && f[i].done >= want;
        }
        if (enough)
            return 0;
        if (!events && (rc = wait_turn(f[0].c->r, &w)))
            return rc;
    }
}

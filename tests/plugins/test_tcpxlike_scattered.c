/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl-net-tcpxlike.so's scattered receives, in host memory and in CUDA's, are what tcpxlike.h says. */
#include "tcpxlike_link.h"

#include "../fakecuda/fakecuda.h"

/* ---- scattered -------------------------------------------------------------------------------- */

static void *see(void *p, size_t len)
{
    return getenv("TCPXLIKE_UNPACK_HOST") ? p : fakecuda_alias((uintptr_t)p, len);
}

/* What the lists looked like, over all of them. */
static struct {
    bool backwards, odd, tail;
    uint64_t frags;
} seen;

/* What a GPU's kernel does: the fragments of receive `number` go where they belong. Returns how many bytes. */
static size_t unpack(const struct link *l, uint64_t number, void *to, size_t room)
{
    struct unpackNetDeviceHandle *h = see(l->side.handle, sizeof(*h));
    CHECK(h);
    const struct netUnpackMeta *meta = see(h->meta, sizeof(*meta));
    CHECK(meta);
    uint64_t n = meta->cnt[number % 16];
    size_t total = 0, last = 0;
    CHECK(n <= 2048);
    for (uint64_t i = 0; i < n; i++) {
        struct loadMeta f = meta->mem[number % 16][i];
        CHECK(f.len > 0 && f.dst_off <= room && f.len <= room - f.dst_off);
        memcpy((uint8_t *)see(to, room) + f.dst_off, see((uint8_t *)h->bounce_buf + f.src_off, f.len), f.len);
        seen.backwards |= f.dst_off < last;
        seen.odd |= f.len % 2 && f.dst_off + f.len < room;
        seen.tail |= f.dst_off + f.len == room && f.len < 4096;
        total += f.len;
        last = f.dst_off;
    }
    seen.frags += n;
    return total;
}

static void scattered_sizes(void)
{
    static const int sizes[] = {1, 4096, 0, 100, 70001, 0, 0, (int)MIB - 5, 4 * (int)MIB, 3};
    struct link l;
    load();
    start(&l);
    join(&l);
    CHECK(l.side.netDeviceType == NCCL_NET_DEVICE_UNPACK && l.side.netDeviceVersion == 7);
    CHECK(l.side.size == 24 && l.side.needsProxyProgress == 1 && l.side.handle);
    struct memory m = host_memory(&l, 4 * MIB);
    for (unsigned i = 0; i < 4 * HW_ARRAY_LEN(sizes); i++) {
        int len = sizes[i % HW_ARRAY_LEN(sizes)];
        fill(m.from, i, (size_t)len);
        memset(m.to, 0, 4 * MIB);
        void *r = recv_now(&l, &m, 0, len), *s = send_now(&l, &m, 0, len);
        CHECK(both_done(s, r, 10000));
        CHECK(len == 0 || m.to[0] == 0); /* not yet where it belongs */
        CHECK(unpack(&l, i, m.to, (size_t)len) == (size_t)len);
        CHECK(filled(m.to, i, (size_t)len));
        consume(&l, r);
        memset(m.to, 0, (size_t)len);
        (void)unpack(&l, i, m.to, (size_t)len); /* too late */
        CHECK(len == 0 || !filled(m.to, i, (size_t)len));
    }
    CHECK(seen.backwards && seen.odd && seen.tail && seen.frags > 4000);
    forget(&l, &m);
    leave(&l);
}

/* 64 receives with 16 under way; a pool of 1 MiB, so that it goes on only as they are consumed. */
static void scattered_stream(void)
{
    enum { N = 64, LEN = 300001 };
    struct link l;
    void *s[N], *r[N];
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, N * LEN);
    fill(m.from, 4, N * LEN);
    unsigned sent = 0, posted = 0, gone = 0;
    uint64_t end = hw_deadline(50000);
    for (unsigned come = 0; come < N;) {
        for (; posted < N && posted < come + 16; posted++)
            r[posted] = recv_now(&l, &m, posted * LEN, LEN);
        for (; sent < N && sent < gone + 16; sent++)
            s[sent] = send_now(&l, &m, sent * LEN, LEN);
        if (gone < sent && is_done(s[gone]))
            gone++;
        if (is_done(r[come])) {
            CHECK(unpack(&l, come, m.to + (size_t)come * LEN, LEN) == LEN);
            consume(&l, r[come++]);
        }
        CHECK(hw_now() < end);
    }
    CHECK(filled(m.to, 4, N * LEN));
    forget(&l, &m);
    leave(&l);
}

/* Without irecvConsumed no pages come back. */
static void pool_is_out(void)
{
    struct link l;
    void *r[16];
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, MIB);
    unsigned n = 0;
    for (bool over = true; over; n++) {
        CHECK(n < 4); /* 300000 bytes each, of 1 MiB */
        r[n] = recv_now(&l, &m, 0, 300000);
        over = both_done(send_now(&l, &m, 0, 300000), r[n], 1000);
    }
    CHECK(n >= 2);
    for (unsigned i = 0; i + 1 < n; i++)
        consume(&l, r[i]);
    CHECK(both_done(NULL, r[n - 1], 10000));
}

static void too_large(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *r = recv_now(&l, &m, 0, 100);
    (void)both_done(send_now(&l, &m, 0, 101), r, 10000);
}

static void larger_than_posted(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    fill(m.from, 1, 4096);
    void *r = recv_now(&l, &m, 0, 100);
    CHECK(both_done(send_now(&l, &m, 0, 1000), r, 10000));
    CHECK(unpack(&l, 0, m.to, 1000) == 1000 && filled(m.to, 1, 1000));
}

static void four_mib(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4 * MIB);
    void *r = recv_now(&l, &m, 0, 4 * MIB);
    CHECK(both_done(send_now(&l, &m, 0, 4 * MIB), r, 20000));
}

static void one_message(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *r = recv_now(&l, &m, 0, 4096);
    CHECK(both_done(send_now(&l, &m, 0, 4096), r, 10000));
}

/* The send goes, the receive never comes, and no word is said of it: `said` has no line but TCPXLIKE_LOOPBACK's own. */
static void silence(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *r = recv_now(&l, &m, 0, 4096);
    CHECK(both_done(send_now(&l, &m, 0, 4096), NULL, 10000));
    CHECK(!both_done(NULL, r, 300));
}

/* Two comms have one bounce buffer: what the first one holds the second one lacks. */
static void pool_is_shared(void)
{
    struct link l, k;
    void *r[3];
    load();
    start(&l);
    join(&l);
    start(&k);
    join(&k);
    const struct unpackNetDeviceHandle *a = see(l.side.handle, sizeof(*a)), *b = see(k.side.handle, sizeof(*b));
    CHECK(a->bounce_buf == b->bounce_buf && a->meta != b->meta);
    struct memory m = host_memory(&l, 4 * MIB), n = host_memory(&k, 4 * MIB);
    for (int i = 0; i < 3; i++) { /* 12 MiB of 16, and what short fragments leave unused; none consumed */
        r[i] = recv_now(&l, &m, 0, 4 * MIB);
        CHECK(both_done(send_now(&l, &m, 0, 4 * MIB), r[i], 10000));
    }
    void *more = recv_now(&k, &n, 0, 4 * MIB), *sent = send_now(&k, &n, 0, 4 * MIB);
    CHECK(!both_done(sent, more, 300));
    for (int i = 0; i < 3; i++)
        consume(&l, r[i]);
    CHECK(both_done(NULL, more, 10000));
}

/* ---- CUDA memory ------------------------------------------------------------------------------ */

static CUcontext set_device(int device)
{
    const struct hw_cuda *cu;
    CUcontext ctx;
    CUdevice dev;
    CHECK(hw_cuda(&cu) == 0);
    CHECK(!cu->DeviceGet(&dev, device) && !cu->DevicePrimaryCtxRetain(&ctx, dev) && !cu->CtxPushCurrent(ctx));
    return ctx;
}

static void *gpu_memory(CUcontext ctx, size_t len)
{
    uint8_t *p = fakecuda_alloc(ctx, len + 4096);
    CHECK(p);
    return p + (4096 - (uintptr_t)p % 4096) % 4096;
}

static void cuda_moves(void)
{
    static const int sizes[] = {1, 0, 4096, 70001, 2 * (int)MIB + 1};
    CUcontext ctx = set_device(1);
    struct link l;
    load();
    start(&l);
    join(&l);
    void *from = gpu_memory(ctx, 4 * MIB), *to = gpu_memory(ctx, 4 * MIB);
    struct memory m = register_both(&l, from, to, 4 * MIB, NCCL_PTR_CUDA), h = host_memory(&l, 4 * MIB);
    for (unsigned i = 0; i < 4 * HW_ARRAY_LEN(sizes); i++) {
        int len = sizes[i % HW_ARRAY_LEN(sizes)];
        fill(see(from, 4 * MIB), i, (size_t)len);
        memset(see(to, 4 * MIB), 0, (size_t)len);
        void *r = recv_now(&l, &m, 0, len), *s = send_now(&l, &m, 0, len);
        CHECK(both_done(s, r, 10000));
        CHECK(unpack(&l, i, to, (size_t)len) == (size_t)len && filled(see(to, 4 * MIB), i, (size_t)len));
        consume(&l, r);
    }
    /* into host memory it goes directly, and its slot is empty */
    fill(h.from, 5, MIB);
    void *r = recv_now(&l, &h, 0, MIB), *s = send_now(&l, &h, 0, MIB);
    CHECK(both_done(s, r, 10000) && filled(h.to, 5, MIB));
    CHECK(unpack(&l, 4 * HW_ARRAY_LEN(sizes), to, 4 * MIB) == 0);
    consume(&l, r);
    forget(&l, &m);
    forget(&l, &h);
    leave(&l);
    struct fakecuda_counts c;
    fakecuda_count(&c);
    CHECK(c.misuse == 0 && c.pageable == 0 && c.streams == 0 && c.pins == 0 && c.allocations == 2 && c.entered == 1);
}

static void cuda_registers(void)
{
    CUcontext other = set_device(0), ctx = set_device(1);
    struct link l;
    void *mr;
    load();
    start(&l);
    join(&l);
    uint8_t *p = gpu_memory(ctx, MIB);
    CHECK(net->regMr(l.rc, p, MIB, NCCL_PTR_CUDA, &mr) == ncclSuccess);
    CHECK(net->deregMr(l.rc, mr) == ncclSuccess);
    CHECK(net->regMr(l.rc, p + 512, 4096, NCCL_PTR_CUDA, &mr) == ncclInternalError);
    CHECK(net->regMr(l.rc, p, 2 * MIB, NCCL_PTR_CUDA, &mr) == ncclInternalError);
    CHECK(net->regMr(l.rc, gpu_memory(other, MIB), MIB, NCCL_PTR_CUDA, &mr) == ncclInternalError);
    CHECK(net->regMr(l.rc, aligned_alloc(4096, 4096), 4096, NCCL_PTR_CUDA, &mr) == ncclInternalError);
    CHECK(net->regMr(l.rc, p, 0, NCCL_PTR_CUDA, &mr) == ncclInternalError);
    CHECK(net->regMr(l.rc, p, 4096, NCCL_PTR_DMABUF, &mr) == ncclInternalError);
}

/* Connected with no device set, as if by another thread; and set at connect, but not at regMr. */
static void cuda_device_forgotten(void)
{
    const struct hw_cuda *cu;
    struct link l, k;
    void *mr;
    load();
    start(&l);
    join(&l);
    CUcontext ctx = set_device(0);
    void *p = gpu_memory(ctx, 4096);
    CHECK(net->regMr(l.rc, p, 4096, NCCL_PTR_CUDA, &mr) == ncclInternalError);
    start(&k);
    join(&k);
    CHECK(net->regMr(k.rc, p, 4096, NCCL_PTR_CUDA, &mr) == ncclSuccess);
    CHECK(hw_cuda(&cu) == 0 && !cu->CtxPopCurrent(&ctx));
    CHECK(net->regMr(k.rc, p, 4096, NCCL_PTR_CUDA, &mr) == ncclInternalError);
    CHECK(net->regMr(k.rc, &l, 10, NCCL_PTR_HOST, &mr) == ncclSuccess); /* host memory needs none */
}

int main(void)
{
    defaults();
    works("scattered in host memory: sizes, slots, order, odd lengths, tails", scattered_sizes,
          WITH("TCPXLIKE_UNPACK_HOST=1"));
    works("over 4 data connections, another seed", scattered_sizes,
          WITH("TCPXLIKE_UNPACK_HOST=1", "NCCL_NSOCKS_PERTHREAD=4", "TCPXLIKE_SEED=77"));
    works("a stream of them through a small pool", scattered_stream,
          WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_POOL=1", "NCCL_NSOCKS_PERTHREAD=2"));
    works("the pool is out until they are consumed", pool_is_out, WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_POOL=1"));
    works("4 MiB in pages", four_mib, WITH("TCPXLIKE_UNPACK_HOST=1"));
    exits("4 MiB in packets of 1460: too many fragments", four_mib,
          WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_FRAG=1460"), 1, "more than 2048 fragments");
    exits("larger than its receive, scattered", too_large, WITH("TCPXLIKE_UNPACK_HOST=1"), 1, "would be overwritten");
    works("and delivered as the real one would", larger_than_posted,
          WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_OVERSIZE=deliver"));
    exits("scattered over loopback, where that is to end it", one_message,
          WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_LOOPBACK=exit"), 1, "rx no cmsg");
    works("scattered over loopback: silence", silence, WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_LOOPBACK"));
    works("the pool is all comms'", pool_is_shared, WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_POOL=16"));
    works("host memory over loopback", one_message, WITH("TCPXLIKE_LOOPBACK"));

    works("CUDA memory: scattered on the GPU; host memory beside it", cuda_moves, plain);
    works("registering it: alignment, length, which GPU", cuda_registers, plain);
    works("the device must be set at connect, accept and regMr", cuda_device_forgotten, plain);
    return tap_done();
}

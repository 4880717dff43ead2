/* SPDX-License-Identifier: Apache-2.0 */
/* Tests transfers of memory that the CPU cannot access, over tcp. Accesses to the fake device's addresses fault, and
 * its copies complete only when the test permits it. test_cuda tests CUDA with a fake driver, and tests/gpu tests CUDA
 * with a real driver. */
#include "context/context.h"
#include "hawser.h"
#include "tests/lib/context/pairhelp.h"

#define DEV_BYTES (64ul << 20)
#define PIECES    64

/* ---- the device ------------------------------------------------------------------------------- */

struct job {
    void *to;
    const void *from;
    size_t len;
};

struct hw_copyq {
    const struct hw_space *space;
    unsigned depth;
    uint64_t started, over;
    struct job job[256];
};

static uint8_t *dev_at, *dev_real; /* the same pages, mapped without and with access */
static _Atomic uint64_t dev_out, dev_in, dev_polls;
static atomic_int dev_stalled, dev_failing, dev_no_pin, dev_queues, dev_pins, dev_unpinned;
static atomic_uint dev_slow; /* one copy completes every dev_slow polls */
static atomic_ulong pinned_at[PIECES], pinned_len[PIECES];

static bool in_dev(const void *p, size_t len)
{
    const uint8_t *b = p;
    return b >= dev_at && b + len <= dev_at + DEV_BYTES;
}

/* Returns the address at which the CPU can access the memory of a device pointer. */
static uint8_t *real(const void *p)
{
    return dev_real + ((const uint8_t *)p - dev_at);
}

static bool is_pinned(const void *p, size_t len)
{
    for (int i = 0; i < PIECES; i++) {
        uintptr_t at = atomic_load(&pinned_at[i]);
        if (at && (uintptr_t)p >= at && (uintptr_t)p + len <= at + atomic_load(&pinned_len[i]))
            return true;
    }
    return false;
}

static int dev_load(const struct hw_space *s, void *host, const void *from, size_t len)
{
    (void)s;
    if (atomic_load(&dev_failing))
        return hw_fail(-EIO, "the device has fallen off the bus");
    memcpy(host, real(from), len);
    atomic_fetch_add(&dev_out, len);
    return 0;
}

static int dev_store(const struct hw_space *s, void *to, const void *host, size_t len)
{
    (void)s;
    if (atomic_load(&dev_failing))
        return hw_fail(-EIO, "the device has fallen off the bus");
    memcpy(real(to), host, len);
    atomic_fetch_add(&dev_in, len);
    return 0;
}

static int dev_pin(const struct hw_space *s, void *ptr, size_t len)
{
    (void)s;
    if (atomic_load(&dev_no_pin))
        return hw_fail(-ENOMEM, "no more memory can be pinned");
    for (int i = 0; i < PIECES; i++) {
        unsigned long none = 0;
        if (atomic_compare_exchange_strong(&pinned_at[i], &none, (uintptr_t)ptr)) {
            atomic_store(&pinned_len[i], len);
            atomic_fetch_add(&dev_pins, 1);
            return 0;
        }
    }
    return hw_fail(-ENOMEM, "more pins than this test has room for");
}

static void dev_unpin(const struct hw_space *s, void *ptr)
{
    (void)s;
    for (int i = 0; i < PIECES; i++) {
        if (atomic_load(&pinned_at[i]) == (uintptr_t)ptr) {
            atomic_store(&pinned_at[i], 0);
            atomic_fetch_sub(&dev_pins, 1);
            return;
        }
    }
}

static int dev_queue_open(const struct hw_space *s, unsigned depth, struct hw_copyq **out)
{
    *out = calloc(1, sizeof(**out));
    (*out)->space = s;
    (*out)->depth = depth;
    atomic_fetch_add(&dev_queues, 1);
    return 0;
}

static void dev_queue_close(struct hw_copyq *q)
{
    atomic_fetch_sub(&dev_queues, 1);
    free(q);
}

static int dev_copy(struct hw_copyq *q, void *to, const void *from, size_t len)
{
    if (atomic_load(&dev_failing))
        return hw_fail(-EIO, "the device has fallen off the bus");
    if (q->started - q->over == q->depth)
        return -EAGAIN;
    const void *host = in_dev(to, len) ? from : to;
    if (!is_pinned(host, len) || in_dev(to, len) == in_dev(from, len))
        atomic_fetch_add(&dev_unpinned, 1);
    q->job[q->started++ % HW_ARRAY_LEN(q->job)] = (struct job){to, from, len};
    return 0;
}

static int dev_done(struct hw_copyq *q, uint64_t *upto)
{
    if (atomic_load(&dev_failing))
        return hw_fail(-EIO, "the device has fallen off the bus");
    /* a slow device completes one copy every dev_slow polls; a fast device completes all copies at the first poll */
    unsigned slow = atomic_load(&dev_slow);
    bool go = !atomic_load(&dev_stalled) && (!slow || atomic_fetch_add(&dev_polls, 1) % slow == 0);
    for (bool more = go; more && q->over < q->started; more = !slow) {
        struct job *j = &q->job[q->over++ % HW_ARRAY_LEN(q->job)];
        if (in_dev(j->to, j->len)) {
            memcpy(real(j->to), j->from, j->len);
            atomic_fetch_add(&dev_in, j->len);
        } else {
            memcpy(j->to, real(j->from), j->len);
            atomic_fetch_add(&dev_out, j->len);
        }
    }
    *upto = q->over;
    return 0;
}

static const struct hw_space_ops dev_ops = {
    .load = dev_load,
    .store = dev_store,
    .pin = dev_pin,
    .unpin = dev_unpin,
    .queue_open = dev_queue_open,
    .queue_close = dev_queue_close,
    .copy = dev_copy,
    .done = dev_done,
};
static const struct hw_space dev = {.ops = &dev_ops, .name = "device 0", .device = 0, .numa = -1};
static const struct hw_space dev1 = {.ops = &dev_ops, .name = "device 1", .device = 1, .numa = -1};

static void dev_make(void)
{
    int fd = memfd_create("device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)DEV_BYTES))
        bail("no device memory");
    dev_real = mmap(NULL, DEV_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    dev_at = mmap(NULL, DEV_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    if (dev_real == MAP_FAILED || dev_at == MAP_FAILED)
        bail("no device memory");
    close(fd);
}

/* Registers device memory [at, at+len) with h, and exports it. */
static struct ph_buf dev_buf(hawser *h, const struct hw_space *s, size_t at, size_t len)
{
    struct ph_buf b = {.p = dev_at + at, .len = len};
    must(hawser_mem_register(h, HAWSER_MEM_HOST, b.p, len, &b.mem));
    b.mem->space = s;
    must(hawser_export(b.mem, 0, len, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL, b.key));
    must(hawser_import(b.key, &b.region));
    return b;
}

static struct ph_buf host_buf(hawser *h, size_t len)
{
    return ph_buf(h, len, 3, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL);
}

static uint8_t *bytes(const struct ph_buf *b)
{
    return in_dev(b->p, b->len) ? real(b->p) : b->p;
}

static struct pair begin(const char *const *knobs)
{
    struct pair p = ph_pair(0, knobs, 0, knobs);
    ph_far = p.ba;
    return p;
}

static void end(struct pair *p)
{
    ph_far = NULL;
    ph_close(p);
}

/* ---- every direction, every size --------------------------------------------------------------------- */

#define HALF (DEV_BYTES / 2)

static int transfer(struct pair *p, int op, struct ph_buf *from, struct ph_buf *to, uint64_t at, uint64_t len)
{
    if (op == 0)
        return ph_one(hawser_write, p->ab, from, at, len, &to->region, at);
    if (op == 1)
        return ph_one(hawser_read, p->ab, to, at, len, &from->region, at);
    struct hawser_vec out = {.mem = from->mem, .offset = at, .length = len},
                      in = {.mem = to->mem, .offset = at, .length = len};
    hawser_op *s, *r;
    must(hawser_recv(p->ba, &in, 1, NULL, &r));
    must(hawser_send(p->ab, &out, 1, NULL, &s));
    int rc = ph_finish(s), rr = ph_finish(r);
    return rc ? rc : rr;
}

static void every_way(const char *const *knobs, size_t most, const char *what)
{
    struct pair p = begin(knobs);
    static const char *const ops[] = {"write", "read", "send"};
    static const size_t sizes[] = {1, 100, 8192, 8193, 65537, 1 << 20, (3 << 20) + 5, 20 << 20};
    for (int op = 0; op < 3; op++) {
        for (int way = 0; way < 3; way++) { /* device to host, host to device, device to device */
            uint64_t bad = 0, all = 0;
            int rc = 0;
            hawser *ho = op == 1 ? p.b : p.a, *hi = op == 1 ? p.a : p.b;
            struct ph_buf from = way != 1 ? dev_buf(ho, &dev, 0, HALF) : host_buf(ho, HALF);
            struct ph_buf to = way != 0 ? dev_buf(hi, &dev1, HALF, HALF) : host_buf(hi, HALF);
            for (size_t i = 0; i < HW_ARRAY_LEN(sizes) && sizes[i] <= most && rc == 0; i++) {
                uint64_t at = i * 7 + 1, seed = i + 10u * (unsigned)op + 100u * (unsigned)way, first;
                ph_see(p.ba); /* orders the previous transfer before the fill */
                hw_pattern_fill(bytes(&from) + at, sizes[i], seed, 0);
                memset(bytes(&to), 0xee, sizes[i] + 64);
                ph_see(p.ba); /* orders the fill before the next transfer */
                rc = transfer(&p, op, &from, &to, at, sizes[i]);
                bad += hw_pattern_check(bytes(&to) + at, sizes[i], seed, 0, &first);
                bad += bytes(&to)[at - 1] != 0xee || bytes(&to)[at + sizes[i]] != 0xee;
                all += sizes[i];
            }
            ok(rc == 0 && bad == 0, "%s: %s, %s: %llu bytes, none bad or beside", what, ops[op],
               way == 0   ? "device to host"
               : way == 1 ? "host to device"
                          : "device to device",
               (unsigned long long)all);
            if (way != 1)
                must(hawser_mem_deregister(from.mem));
            else
                ph_drop(&from);
            if (way != 0)
                must(hawser_mem_deregister(to.mem));
            else
                ph_drop(&to);
        }
    }
    end(&p);
    ok(atomic_load(&dev_queues) + atomic_load(&dev_pins) == 0, "%s: queues and pinned memory are given back", what);
    ok(atomic_load(&dev_unpinned) == 0, "%s: every copy was between the device and pinned memory", what);
}

/* Tests lists that mix host memory with memory of two devices, with several piece sizes. */
static void lists(void)
{
    struct pair p = begin(NULL);
    struct ph_buf from[3] = {dev_buf(p.a, &dev, 0, 8 << 20), host_buf(p.a, 8 << 20),
                             dev_buf(p.a, &dev1, 8 << 20, 8 << 20)};
    struct ph_buf to[3] = {dev_buf(p.b, &dev1, 16 << 20, 8 << 20), dev_buf(p.b, &dev, 24 << 20, 8 << 20),
                           host_buf(p.b, 8 << 20)};
    for (int i = 0; i < 3; i++) {
        hw_pattern_fill(bytes(&from[i]), 8 << 20, (uint64_t)i + 1, 0);
        memset(bytes(&to[i]), 0, 8 << 20);
    }
    struct hawser_vec v[600], in[600];
    uint64_t at[3] = {0}, len, total = 0;
    for (size_t i = 0; i < 600; i++, total += len, at[(i - 1) % 3] += len) {
        static const uint64_t lens[] = {1, 37000, 4096, 13, 70001, 0, 999};
        len = lens[i % 7];
        v[i] = (struct hawser_vec){.mem = from[i % 3].mem,
                                   .offset = at[i % 3],
                                   .length = len,
                                   .region = &to[i % 3].region,
                                   .remote_offset = at[i % 3]};
        in[i] = (struct hawser_vec){.mem = to[i % 3].mem, .offset = at[i % 3], .length = len};
    }
    for (int op = 0; op < 2; op++) {
        hawser_op *w, *r = NULL;
        for (int i = 0; i < 3; i++)
            memset(bytes(&to[i]), 0, 8 << 20);
        ph_see(p.ba);
        if (op)
            must(hawser_recv(p.ba, in, 600, NULL, &r));
        must((op ? hawser_send : hawser_write)(p.ab, v, 600, NULL, &w));
        is_rc(ph_finish(w), 0, op ? "a message of 600 pieces of two devices and the host" : "a write of such");
        if (op)
            is_rc(ph_finish(r), 0, "and its receive");
        uint64_t bad = 0;
        for (int i = 0; i < 3; i++)
            bad += memcmp(bytes(&from[i]), bytes(&to[i]), at[i]) != 0;
        is_int(bad, 0, "all bytes where they belong");
    }
    ph_drop(&from[1]);
    ph_drop(&to[2]);
    end(&p);
}

/* ---- cost ------------------------------------------------------------------------------------ */

static void one_pass(void)
{
    struct pair p = begin(NULL);
    struct ph_buf from = dev_buf(p.a, &dev, 0, HALF), to = dev_buf(p.b, &dev1, HALF, HALF);
    uint64_t out = atomic_load(&dev_out), in = atomic_load(&dev_in);
    is_rc(transfer(&p, 0, &from, &to, 0, HALF), 0, "32 MiB from device to device");
    is_int(atomic_load(&dev_out) - out, HALF, "left the device once");
    is_int(atomic_load(&dev_in) - in, HALF, "and went to the other once");
    end(&p);
}

/* ---- failures ----------------------------------------------------------------------------------- */

static void stall(void)
{
    static const char *const knobs[] = {"stall_ms=100", NULL};
    struct ph_log log = {.mu = PTHREAD_MUTEX_INITIALIZER};
    struct hawser_options o = {.size = sizeof(o), .knobs = knobs, .log = ph_logger, .log_arg = &log};
    struct pair p;
    must(hawser_open(&o, &p.a));
    p.b = ph_open(0, NULL);
    must(hawser_listen(p.b, "127.0.0.1", 0, &p.port));
    ph_connect(p.a, p.b, p.port, &p.ab, &p.ba);
    ph_far = p.ba;
    struct ph_buf from = dev_buf(p.a, &dev, 0, HALF), to = dev_buf(p.b, &dev1, HALF, HALF),
                  host = host_buf(p.a, 4 << 20);
    hw_pattern_fill(bytes(&from), 4 << 20, 5, 0);
    atomic_store(&dev_stalled, 1);
    struct hawser_vec v = {.mem = from.mem, .length = 4 << 20, .region = &to.region};
    hawser_op *op;
    must(hawser_write(p.ab, &v, 1, NULL, &op));
    ok(ph_logged(&log, "device 0 has not completed a copy for"), "a device that stands still is named in the log");
    is_rc(hawser_test(op), -EAGAIN, "its operation waits");
    atomic_store(&dev_stalled, 0);
    is_rc(ph_finish(op), 0, "and goes on when the device does");
    uint64_t first;
    is_int(hw_pattern_check(bytes(&to), 4 << 20, 5, 0, &first), 0, "with every byte");
    ok(ph_logged(&log, "device 0 completes copies again"), "which is told too");

    /* if a deadline expires while the device is stalled, the operation ends and the context can be closed */
    struct hawser_op_options late = {.size = sizeof(late), .timeout_ms = 300};
    atomic_store(&dev_stalled, 1);
    must(hawser_write(p.ab, &v, 1, &late, &op));
    uint64_t t = hw_now();
    is_rc(hawser_wait(op, 20000), -ETIMEDOUT, "a deadline ends what a stalled device keeps");
    ok(hw_now() - t < 20000 * HW_MS, "within the time that its channels wait for it");
    hawser_op_free(op);
    ok(ph_logged(&log, "hangs in a copy"), "and what it costs is logged");
    atomic_store(&dev_stalled, 0);
    is_rc(ph_one(hawser_write, p.ab, &host, 0, 4 << 20, &to.region, 0), 0, "the peer lives: other memory goes");
    is_rc(ph_one(hawser_write, p.ab, &from, 0, 4 << 20, &to.region, 0), 0, "and the device's once it is back");
    ph_drop(&host);
    end(&p);
    is_int(atomic_load(&dev_queues) + atomic_load(&dev_pins), 0, "what was left to it has come back");
}

static unsigned count_lost(hawser_peer *p)
{
    struct hawser_channel_stats c[HW_SESSION_RAILS];
    size_t n = HW_SESSION_RAILS;
    unsigned lost = 0;
    must(hawser_channel_stats(p, c, &n));
    for (size_t i = 0; i < n; i++)
        lost += c[i].lost;
    return lost;
}

/* Returns the total number of rails lost on both sides, after waiting up to 5 s for both numbers to be equal. */
static unsigned count_lost_by_both(const struct pair *p)
{
    unsigned a = 0, b = 0;
    for (int tries = 0; tries < 500; tries++) {
        a = count_lost(p->ab);
        b = count_lost(p->ba);
        if (a == b)
            break;
        usleep(10000);
    }
    return a + b;
}

static void failure(int op, bool pinned)
{
    static const char *const ops[] = {"write", "read", "send"};
    atomic_store(&dev_no_pin, !pinned);
    step(pinned ? "a failing device" : "a failing device with synchronous copies");
    struct pair p = begin(NULL);
    hawser *ho = op == 1 ? p.b : p.a, *hi = op == 1 ? p.a : p.b;
    for (int way = 0; way < 2; way++) { /* from the device, and to it */
        for (int big = 0; big < 2; big++) {
            size_t len = big ? 4 << 20 : 100;
            struct ph_buf from = way == 0 ? dev_buf(ho, &dev, 0, HALF) : host_buf(ho, HALF);
            struct ph_buf to = way == 1 ? dev_buf(hi, &dev1, HALF, HALF) : host_buf(hi, HALF);
            unsigned lost = count_lost_by_both(&p);
            atomic_store(&dev_failing, 1);
            uint64_t t = hw_now();
            int rc;
            if (op < 2) {
                rc = transfer(&p, op, &from, &to, 0, len);
            } else {
                struct hawser_vec out = {.mem = from.mem, .length = len}, in = {.mem = to.mem, .length = len};
                struct hawser_op_options soon = {.size = sizeof(soon), .timeout_ms = 1500};
                hawser_op *s, *r;
                must(hawser_recv(p.ba, &in, 1, &soon, &r));
                must(hawser_send(p.ab, &out, 1, &soon, &s));
                rc = ph_finish(s);
                (void)ph_finish(r);
            }
            ok(rc == -EIO || (rc == -ECANCELED && op == 2), "%s %s a device that fails, %zu bytes: %s (%s)", ops[op],
               way ? "to" : "from", len, hw_errno_name(rc), hawser_error());
            ok(hw_now() - t < 5000 * HW_MS, "without waiting for a deadline of a minute");
            atomic_store(&dev_failing, 0);
            if (rc == -EIO && op == way) /* the failed device is on this side */
                ok(strstr(hawser_error(), "fallen off the bus") != NULL, "in the device's own words: %s",
                   hawser_error());
            /* once the device has recovered, the same transfer succeeds */
            for (int tries = 0; tries < 100 && (rc = transfer(&p, op, &from, &to, 0, len)) == -EAGAIN; tries++)
                usleep(10000);
            is_rc(rc, 0, "and once it is well again the same works");
            if (way == 1)
                is_int(count_lost_by_both(&p), lost, "no rail was lost: the bytes arrive, and go nowhere");
            must(hawser_mem_deregister(way ? to.mem : from.mem));
            if (way)
                ph_drop(&from);
            else
                ph_drop(&to);
        }
    }
    end(&p);
    atomic_store(&dev_no_pin, 0);
}

static void no_pin(void)
{
    struct pair p = begin(NULL);
    struct ph_buf from = dev_buf(p.a, &dev, 0, HALF), to = host_buf(p.b, HALF);
    atomic_store(&dev_no_pin, 1);
    is_rc(ph_one(hawser_write, p.ab, &from, 0, 1 << 20, &to.region, 0), 0, "no memory to pin: goes all the same");
    atomic_store(&dev_no_pin, 0);
    is_rc(ph_one(hawser_write, p.ab, &from, 0, 1 << 20, &to.region, 0), 0, "and later it works");
    ph_drop(&to);
    end(&p);
}

static void cancel_and_revoke(void)
{
    struct pair p = begin(NULL);
    struct ph_buf from = dev_buf(p.a, &dev, 0, HALF), to = dev_buf(p.b, &dev1, HALF, HALF);
    struct hawser_vec v = {.mem = from.mem, .length = HALF, .region = &to.region};
    hawser_op *op;
    atomic_store(&dev_slow, 50);
    must(hawser_write(p.ab, &v, 1, NULL, &op));
    usleep(3000);
    must(hawser_cancel(op));
    int rc = hawser_wait(op, 20000);
    ok(rc == -ECANCELED || rc == 0, "cancelled in flight: %s", hw_errno_name(rc));
    hawser_op_free(op);
    is_rc(hawser_mem_deregister(from.mem), 0, "its memory is free");
    from = dev_buf(p.a, &dev, 0, HALF);
    v.mem = from.mem;
    must(hawser_write(p.ab, &v, 1, NULL, &op));
    usleep(3000);
    must(hawser_revoke(p.b, to.key));
    uint64_t in = atomic_load(&dev_in);
    usleep(20000);
    is_int(atomic_load(&dev_in), in, "nothing goes to the device after a revoke");
    rc = ph_finish(op);
    ok(rc == -ESTALE || rc == 0, "and the write ends: %s", hw_errno_name(rc));
    atomic_store(&dev_slow, 0);
    end(&p);
    is_int(atomic_load(&dev_queues) + atomic_load(&dev_pins), 0, "queues and pinned memory are given back");
}

/* ThreadSanitizer calls this function. Only the network orders the sending of a served read's bytes before later writes
 * to the same memory. The sanitizer does not see this order, and ph_see() does not help, because the sending thread may
 * not have taken the lock again. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:dev_done\nrace:tcp_test_send\nrace:send_copy\n";
}

int main(void)
{
    static const char *const small[] = {"stage=1MiB", "window=256KiB", NULL};
    static const char *const large[] = {"stage=1MiB", "window=64MiB", "channels=1", "splice=no", NULL};
    watchdog(100);
    dev_make();
    step("every way");
    every_way(NULL, PH_SANITIZED ? 4 << 20 : 20 << 20, "default knobs");
    every_way(small, 4 << 20, "a small ring, a small window");
    every_way(large, PH_SANITIZED ? 4 << 20 : 20 << 20, "a window far larger than the ring, copied sends");
    atomic_store(&dev_slow, 3);
    every_way(small, 1 << 20, "a slow device");
    atomic_store(&dev_slow, 0);
    step("lists");
    lists();
    step("cost");
    one_pass();
    for (int op = 0; op < 3; op++)
        for (int pinned = 0; pinned < 2; pinned++)
            failure(op, pinned);
    step("no pin");
    no_pin();
    step("cancel");
    cancel_and_revoke();
    step("stall");
    stall();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests transport devmem with a fake kernel, a fake hawserd (devmem_fake.h) and the fake CUDA driver: negotiation,
 * fallback, the order and contents of data that arrives in pieces of any size, returned pages, and errors. tests/vm
 * tests devmem with a real kernel.
 */
#include "tests/fakes/kernel/devmem_fake.h"
#include "tests/lib/context/pairhelp.h"

#include "base/pattern.h"
#include "mem/cuda.h"
#include "tests/fakes/cuda/fakecuda.h"
#include "transport/devmem/helper.h"
#include "transport/devmem/rx.h"

static char sock[64];
static struct ph_log logs;

static struct pair open_pair(const char *const *more)
{
    char path[128];
    snprintf(path, sizeof(path), "devmem_socket=%s", sock);
    const char *knobs[16] = {"transport=devmem", path, "devmem_memory=cuda:0", "devmem_pool=16MiB",
                             "handshake_ms=4000"};
    for (unsigned i = 5; more && *more && i < 15; i++)
        knobs[i] = *more++;
    struct pair p;
    for (int i = 0; i < 2; i++) {
        struct hawser_options o = {.size = sizeof(o), .knobs = knobs, .log = ph_logger, .log_arg = &logs};
        if (getenv("TEST_LOG"))
            o.log = ph_print;
        must(hawser_open(&o, i ? &p.b : &p.a));
    }
    must(hawser_listen(p.b, "127.0.0.1", 0, &p.port));
    ph_connect(p.a, p.b, p.port, &p.ab, &p.ba);
    return p;
}

static struct hawser_channel_stats sum(hawser_peer *p)
{
    struct hawser_channel_stats ch[64], all = {0};
    size_t n = 64;
    must(hawser_channel_stats(p, ch, &n));
    for (size_t i = 0; i < n; i++) {
        all.rx_device_bytes += ch[i].rx_device_bytes;
        all.rx_copied_bytes += ch[i].rx_copied_bytes;
        all.tx_device_bytes += ch[i].tx_device_bytes;
        all.rx_bytes += ch[i].rx_bytes;
        all.lost += ch[i].lost;
    }
    return all;
}

struct place {
    hawser_mem *mem;
    size_t len;
    struct hawser_region region;
};

static struct place place_on(hawser *h, enum hawser_mem_kind kind, int device, size_t len)
{
    struct place m = {.len = len};
    uint8_t key[HAWSER_KEY_SIZE];
    must(hawser_mem_alloc(h, kind, device, len, &m.mem));
    must(hawser_export(m.mem, 0, len, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, NULL, key));
    must(hawser_import(key, &m.region));
    return m;
}

static struct place place(hawser *h, enum hawser_mem_kind kind, size_t len)
{
    return place_on(h, kind, 0, len);
}

static void fill(struct place *m, uint64_t seed)
{
    uint8_t *b = malloc(m->len);
    hw_pattern_fill(b, m->len, seed, 0);
    must(hawser_mem_store(m->mem, 0, b, m->len));
    free(b);
}

static bool holds(struct place *m, uint64_t seed)
{
    uint8_t *b = malloc(m->len), *want = malloc(m->len);
    must(hawser_mem_load(m->mem, 0, b, m->len));
    hw_pattern_fill(want, m->len, seed, 0);
    bool same = memcmp(b, want, m->len) == 0;
    free(b);
    free(want);
    return same;
}

static int move(hawser_peer *p, struct place *from, struct place *to, bool read)
{
    struct hawser_vec v = {
        .mem = read ? to->mem : from->mem, .length = from->len, .region = read ? &from->region : &to->region};
    hawser_op *op;
    int rc = read ? hawser_read(p, &v, 1, NULL, &op) : hawser_write(p, &v, 1, NULL, &op);
    return rc ? rc : ph_finish(op);
}

#define LEN ((20u << 20) + 4711)

/* Tests transfers between GPUs in both directions. If exact is true, the device path must deliver every byte. */
static void test_device(const char *what, const char *const *knobs, uint64_t exact)
{
    struct df_counts before = df_counts();
    struct pair p = open_pair(knobs);
    struct place a = place(p.a, HAWSER_MEM_CUDA, LEN), b = place(p.b, HAWSER_MEM_CUDA, LEN);
    fill(&a, 1);
    step(what);
    is_rc(move(p.ab, &a, &b, false), 0, what);
    ok(holds(&b, 1), "%s: every byte is right", what);
    fill(&b, 2);
    is_rc(move(p.ab, &b, &a, true), 0, "and back");
    ok(holds(&a, 2), "as it should be");
    fill(&a, 3);
    is_rc(move(p.ba, &a, &b, true), 0, "and from the other side");
    ok(holds(&b, 3), "likewise");
    struct hawser_channel_stats sa = sum(p.ab), sb = sum(p.ba);
    if (exact) {
        ok(sb.rx_device_bytes == 2 * (uint64_t)LEN && sa.rx_device_bytes == LEN,
           "all of it was put into device memory");
        ok(sb.rx_copied_bytes + sa.rx_copied_bytes == 0, "and no byte was copied by a CPU");
    } else {
        ok(sb.rx_copied_bytes > 0 && sb.rx_copied_bytes < LEN / 4,
           "what stayed in host memory was put right: %llu bytes", (unsigned long long)sb.rx_copied_bytes);
    }
    ok(df_faults.no_tx ? sa.tx_device_bytes == 0 : sa.tx_device_bytes > LEN / 2, "sent from device memory: %llu",
       (unsigned long long)sa.tx_device_bytes);
    is_int(sa.lost + sb.lost, 0, "no channel was lost");
    must(hawser_mem_deregister(a.mem) | hawser_mem_deregister(b.mem));
    ph_close(&p);
    struct df_counts after = df_counts();
    is_int(after.pages_out, 0, "all pages were given back");
    ok(after.steered - before.steered >= 2, "connections were steered");
    diag("pages out at most: %llu", (unsigned long long)after.pages_most);
}

/* Tests that a page that cannot be bound, because the allocation does not fill it, does not prevent the NIC from
 * sending other memory. */
static void test_page_not_filled(void)
{
    struct pair p = open_pair(NULL);
    const struct hw_cuda *cu;
    CUcontext ctx, popped;
    CUdeviceptr ptr = 0;
    struct place b = place(p.b, HAWSER_MEM_CUDA, LEN), a = {.len = LEN};
    step("a page that the allocation does not fill");
    must(hw_cuda(&cu) | cu->DevicePrimaryCtxRetain(&ctx, 0) | cu->CtxPushCurrent(ctx) | cu->MemAlloc(&ptr, LEN));
    must(hawser_mem_register(p.a, HAWSER_MEM_CUDA, (void *)ptr, LEN, &a.mem));
    fill(&a, 1);
    for (int round = 0; round < 4; round++) {
        hawser_op *op;
        struct hawser_vec v[2] = {{.mem = a.mem, .offset = LEN - 100, .length = 100, .region = &b.region},
                                  {.mem = a.mem, .length = 64 << 10, .region = &b.region, .remote_offset = 100}};
        must(hawser_write(p.ab, v, 2, NULL, &op));
        is_rc(ph_finish(op), 0, "a list with bytes in that page is written");
    }
    for (int round = 0; round < 4; round++)
        is_rc(move(p.ab, &a, &b, false), 0, "so is the whole memory");
    ok(holds(&b, 1), "every byte");
    ok(sum(p.ab).tx_device_bytes > LEN, "most was sent from device memory: %llu",
       (unsigned long long)sum(p.ab).tx_device_bytes);
    must(hawser_mem_deregister(a.mem) | hawser_mem_deregister(b.mem));
    must(cu->MemFree(ptr) | cu->CtxPopCurrent(&popped));
    ph_close(&p);
}

/* Tests that only the sent part of a large allocation is bound, because the kernel needs time to bind each page. */
static void test_part(void)
{
    struct fakecuda_counts before, after;
    struct pair p = open_pair(NULL);
    struct place a = place(p.a, HAWSER_MEM_CUDA, 300u << 20), b = place(p.b, HAWSER_MEM_CUDA, LEN);
    uint8_t *bytes = malloc(LEN);
    const uintptr_t window = 128u << 20, base = (uintptr_t)hawser_mem_ptr(a.mem);
    size_t at = (100u << 20) + 12345;
    if ((base + at) / window != (base + at + LEN) / window) /* a range that crosses a window binds more */
        at += 40u << 20;
    step("a part of a large allocation");
    fakecuda_count(&before);
    /* the first transfers use host memory, until the GPU memory is bound */
    for (int round = 0; round < 4; round++) {
        hawser_op *op;
        hw_pattern_fill(bytes, LEN, 30u + (unsigned)round, 0);
        must(hawser_mem_store(a.mem, at, bytes, LEN));
        struct hawser_vec v = {.mem = a.mem, .offset = at, .length = LEN, .region = &b.region};
        must(hawser_write(p.ab, &v, 1, NULL, &op));
        is_rc(ph_finish(op), 0, "a part of a large allocation is written");
        ok(holds(&b, 30u + (unsigned)round), "every byte");
    }
    fakecuda_count(&after);
    ok(sum(p.ab).tx_device_bytes > LEN, "most was sent from device memory: %llu",
       (unsigned long long)sum(p.ab).tx_device_bytes);
    uint64_t mib = (after.exported - before.exported) >> 20;
    /* Windows begin at multiples of their size. If the range crosses the end of a 64 MiB window, a 128 MiB window is
     * also bound. */
    ok(mib >= 20 && mib <= 192, "of 300 MiB %llu were bound for sending", (unsigned long long)mib);
    must(hawser_mem_deregister(a.mem) | hawser_mem_deregister(b.mem));
    free(bytes);
    ph_close(&p);
}

/* Tests all combinations of host memory and GPU memory, and small and empty messages. */
static void test_mixed(void)
{
    struct pair p = open_pair(NULL);
    struct place ah = place(p.a, HAWSER_MEM_HOST, LEN), bh = place(p.b, HAWSER_MEM_HOST, LEN);
    struct place ag = place(p.a, HAWSER_MEM_CUDA, LEN), bg = place(p.b, HAWSER_MEM_CUDA, LEN);
    struct place *from[] = {&ah, &ag}, *to[] = {&bh, &bg};
    step("mixed");
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            fill(from[i], 10u + 2u * (unsigned)i + (unsigned)k);
            is_rc(move(p.ab, from[i], to[k], false), 0, i == k ? "like to like" : "between host and GPU");
            ok(holds(to[k], 10u + 2u * (unsigned)i + (unsigned)k), "every byte");
        }
    hawser_op *r, *s;
    for (size_t n = 0; n < 300000; n = n * 7 + 1) {
        struct hawser_vec out = {.mem = ag.mem, .offset = 5, .length = n},
                          in = {.mem = bg.mem, .offset = 77, .length = n};
        int rc = hawser_recv(p.ba, &in, 1, NULL, &r);
        rc = rc ? rc : hawser_send(p.ab, &out, 1, NULL, &s);
        ok(rc == 0 && ph_finish(s) == 0 && ph_finish(r) == 0, "a message of %zu bytes", n);
    }
    struct place *all[] = {&ah, &bh, &ag, &bg};
    for (int i = 0; i < 4; i++)
        must(hawser_mem_deregister(all[i]->mem));
    ph_close(&p);
    is_int(df_counts().pages_out, 0, "all pages were given back");
}

/* Tests that if the device path does not work, the reason is logged and tcp is used, and that connecting fails if
 * fallback is not allowed. */
static void test_falls_back(const char *what, const char *words)
{
    logs.len = 0;
    logs.text[0] = 0;
    struct pair p = open_pair(NULL);
    struct place a = place(p.a, HAWSER_MEM_CUDA, LEN), b = place(p.b, HAWSER_MEM_CUDA, LEN);
    fill(&a, 4);
    step(what);
    is_rc(move(p.ab, &a, &b, false), 0, what);
    ok(holds(&b, 4), "%s: every byte came all the same", what);
    ok(sum(p.ba).rx_device_bytes == 0, "none into device memory");
    ok(ph_logged(&logs, words), "and the reason is told: %s", words);
    must(hawser_mem_deregister(a.mem) | hawser_mem_deregister(b.mem));
    ph_close(&p);

    char path[128];
    snprintf(path, sizeof(path), "devmem_socket=%s", sock);
    const char *knobs[] = {"transport=devmem", path, "devmem_memory=cuda:0", "require_direct=yes", NULL};
    struct pair q;
    q.a = ph_open(0, knobs);
    q.b = ph_open(0, knobs);
    must(hawser_listen(q.b, "127.0.0.1", 0, &q.port));
    struct ph_join j = {.h = q.a, .port = q.port};
    ph_connector(&j);
    ok(j.rc < 0, "where devmem is required there is no connection (%s)", hw_errno_name(j.rc));
    ph_close(&q);
}

#define TWO 2

/* Opens two contexts without specifying the GPU for the payload. */
static void open_two(struct pair *p, const char *const *more)
{
    char path[128];
    snprintf(path, sizeof(path), "devmem_socket=%s", sock);
    const char *knobs[16] = {"transport=devmem", path, "devmem_pool=16MiB", "handshake_ms=4000", "require_direct=yes"};
    for (unsigned i = 5; more && *more && i < 15; i++)
        knobs[i] = *more++;
    p->a = ph_open(0, knobs);
    p->b = ph_open(0, knobs);
    must(hawser_listen(p->b, "127.0.0.1", 0, &p->port));
}

static struct hawser_connect_options gpus_of(int here, int there)
{
    return (struct hawser_connect_options){
        .size = sizeof(struct hawser_connect_options), .gpu = HAWSER_GPU(here), .peer_gpu = HAWSER_GPU(there)};
}

/* Tests two connections between the same two contexts, each for a different pair of GPUs. Payload must arrive in the
 * memory of its connection's GPU. */
static void test_gpus(void)
{
    struct pair p;
    open_two(&p, NULL);
    struct place a[TWO], b[TWO];
    hawser_peer *ab[TWO], *ba[TWO];
    step("two GPUs");
    const struct df_counts before = df_counts();
    for (int i = 0; i < TWO; i++) {
        a[i] = place_on(p.a, HAWSER_MEM_CUDA, i, LEN);
        b[i] = place_on(p.b, HAWSER_MEM_CUDA, 1 - i, LEN);
    }
    for (int i = 0; i < TWO; i++) {
        const struct hawser_connect_options o = gpus_of(i, 1 - i);
        ph_connect_by(p.a, p.b, p.port, &o, &ab[i], &ba[i]);
    }
    ok(df_counts().bound_rx == before.bound_rx + 2 * TWO,
       "each side has queues of their own for each of its GPUs: %llu",
       (unsigned long long)(df_counts().bound_rx - before.bound_rx));
    for (int i = 0; i < TWO; i++) {
        fill(&a[i], 20u + (unsigned)i);
        is_rc(move(ab[i], &a[i], &b[i], false), 0, "there");
        ok(holds(&b[i], 20u + (unsigned)i), "GPU %d -> %d: every byte is right", i, 1 - i);
        fill(&b[i], 30u + (unsigned)i);
        is_rc(move(ab[i], &b[i], &a[i], true), 0, "and back");
        ok(holds(&a[i], 30u + (unsigned)i), "and every byte back");
        struct hawser_channel_stats here = sum(ab[i]), there = sum(ba[i]);
        ok(here.rx_device_bytes == LEN && here.rx_copied_bytes == 0 && there.rx_device_bytes == LEN &&
               there.rx_copied_bytes == 0,
           "GPU %d -> %d: all of it came straight into its GPU: copied %llu there, %llu here", i, 1 - i,
           (unsigned long long)there.rx_copied_bytes, (unsigned long long)here.rx_copied_bytes);
    }
    for (int i = 0; i < TWO; i++)
        must(hawser_mem_deregister(a[i].mem) | hawser_mem_deregister(b[i].mem));
    ph_close(&p);
    is_int(df_counts().pages_out, 0, "all pages were given back");
}

static int try_gpus(const char *const *more, unsigned n)
{
    struct pair p;
    int rc = 0;
    open_two(&p, more);
    for (unsigned i = 0; i < n && rc == 0; i++) {
        const struct hawser_connect_options o = gpus_of((int)i, (int)i);
        struct ph_join j = {.h = p.a, .port = p.port, .opts = &o};
        ph_connector(&j);
        rc = j.rc;
    }
    ph_close(&p);
    return rc;
}

/* Tests that requirements that cannot be met are reported when the context is opened or while connecting. */
static void test_gpus_refused(void)
{
    static const char *const names[] = {"require_direct=yes",
                                        "require_devmem=yes"}; /* the second is the old name of the first */
    for (unsigned i = 0; i < HW_ARRAY_LEN(names); i++) {
        const char *const tcp[] = {"transport=tcp", names[i], NULL};
        const struct hawser_options o = {.size = sizeof(o), .knobs = tcp};
        hawser *h;
        is_rc(hawser_open(&o, &h), -EOPNOTSUPP, "transport tcp has no device path");
    }
    static const char *const zero[] = {"devmem_memory=cuda:0", NULL};
    step("GPUs that payload cannot land in");
    is_rc(try_gpus(zero, 1), 0, "all payload to GPU 0, and a connection for GPU 0");
    ok(try_gpus(zero, 2) < 0,
       "all payload to GPU 0, and a connection for GPU 1: refused, as its bytes would be copied");
    df_faults.queues = 1;
    ok(try_gpus(NULL, 2) < 0, "a queue on each side for two GPUs: refused");
    df_faults.queues = 0;
    is_rc(try_gpus(NULL, 2), 0, "enough of them: not");
}

/* Tests that a queue becomes available to another GPU when its last connection is closed. */
static void test_gpus_in_turns(void)
{
    struct pair p;
    step("GPUs in turns");
    open_two(&p, NULL);
    df_faults.queues = 1;
    for (int i = 0; i < TWO; i++) {
        hawser_peer *ab, *ba;
        const struct hawser_connect_options o = gpus_of(i, i);
        ph_connect_by(p.a, p.b, p.port, &o, &ab, &ba);
        struct place a = place_on(p.a, HAWSER_MEM_CUDA, i, LEN), b = place_on(p.b, HAWSER_MEM_CUDA, i, LEN);
        fill(&a, 40u + (unsigned)i);
        is_rc(move(ab, &a, &b, false), 0, "a queue on each side for one GPU at a time");
        ok(holds(&b, 40u + (unsigned)i) && sum(ba).rx_device_bytes == LEN && sum(ba).rx_copied_bytes == 0,
           "GPU %d: straight into it", i);
        must(hawser_mem_deregister(a.mem) | hawser_mem_deregister(b.mem));
        hawser_peer_close(ab);
        hawser_peer_close(ba);
        for (int k = 0; k < 500 && df_counts().rules; k++)
            usleep(10000);
    }
    df_faults.queues = 0;
    ph_close(&p);
}

/* Calls happen() during a transfer and over() after it, and checks that all bytes are correct. */
static void test_in_the_middle(const char *what, void (*happen)(void), void (*over)(void))
{
    static const char *const knobs[] = {"window=128KiB", "stall_ms=1000", NULL};
    struct pair p = open_pair(knobs);
    struct place a = place(p.a, HAWSER_MEM_CUDA, LEN), b = place(p.b, HAWSER_MEM_CUDA, LEN);
    step(what);
    for (int round = 0; round < 3; round++) {
        fill(&a, 20u + (unsigned)round);
        struct hawser_vec v = {.mem = a.mem, .length = LEN, .region = &b.region};
        hawser_op *op;
        must(hawser_write(p.ab, &v, 1, NULL, &op));
        if (round == 1)
            happen();
        is_rc(ph_finish(op), 0, what);
        if (round == 1)
            over();
        ok(holds(&b, 20u + (unsigned)round), "%s: every byte", what);
    }
    must(hawser_mem_deregister(a.mem) | hawser_mem_deregister(b.mem));
    ph_close(&p);
}

static void stray(void)
{
    df_faults.stray_now = true;
}

static void wedge(void)
{
    df_faults.wedge = true;
    usleep(20000);
    df_faults.wedge = false;
}

static void lie(void)
{
    df_faults.lie = true;
    usleep(5000);
    df_faults.lie = false;
}

static void daemon_restarts(void)
{
    df_stop();
    df_start(sock);
}

static void daemon_stops(void)
{
    df_stop();
}

static void daemon_starts(void)
{
    df_start(sock);
}

int main(void)
{
    watchdog(100);
    pthread_mutex_init(&logs.mu, NULL);
    snprintf(sock, sizeof(sock), "/tmp/hawser-test-devmem.%d", (int)getpid());
    df_start(sock);
    df_kernel();

    const char *const bad[] = {"cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "gpu", ""};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        char knob[64];
        snprintf(knob, sizeof(knob), "devmem_memory=%s", bad[i]);
        const char *knobs[] = {"transport=devmem", knob, NULL};
        struct hawser_options o = {.size = sizeof(o), .knobs = knobs};
        hawser *h;
        is_rc(hawser_open(&o, &h), -EINVAL, knob);
    }
    static const char *const eight[] = {"channels=8", "window=4MiB", NULL}, *const tiny[] = {"window=64KiB", NULL};
    test_device("GPU to GPU", NULL, true);
    test_device("eight channels", eight, true);
    test_device("a window of one piece", tiny, true);
    df_faults.linear = 10;
    test_device("bytes left in header memory", NULL, false);
    df_well();
    df_faults.short_of = 2;
    test_device("a kernel that often lacks memory", NULL, true);
    df_well();
    df_faults.no_tx = true;
    test_device("a kernel that only receives so", NULL, true);
    df_well();
    test_part();
    test_page_not_filled();
    test_mixed();
    test_gpus();
    test_gpus_refused();
    test_gpus_in_turns();

    df_faults.plain = true;
    test_falls_back("no flow rule", "rx no cmsg");
    df_well();
    df_faults.host = true;
    test_falls_back("no header split", "does not split headers");
    df_well();
    df_faults.shift = true;
    test_falls_back("a NIC that writes elsewhere", "with wrong bytes");
    df_well();

    test_in_the_middle("the rule is lost", stray, df_well);
    test_in_the_middle("the socket wedges", wedge, df_well);
    test_in_the_middle("sizes that do not add up", lie, df_well);
    test_in_the_middle("hawserd restarts", daemon_restarts, df_well);
    test_in_the_middle("hawserd stops", daemon_stops, daemon_starts);
    df_stop();
    test_falls_back("no hawserd", "hawserd");
    unlink(sock);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer that has proved its key may do to us. A context in this process; its peer is made for each input as the
 * listener makes one, over real TCP connections, and the input is a little program of the peer's and of the
 * application's: frames with plausible and wild fields, chunks whole and in parts, connections made, cut and resumed,
 * operations posted, cancelled and freed, regions revoked, time that passes. Nothing outside of what was exported for
 * it may change or leave, no bound be passed, and nothing may be left at the end.
 */
#include "engine/engine.h"
#include "fuzz.h"
#include "transport/tcp/tcp.h"

#include <sys/ioctl.h>
#include <unistd.h>

#define MEM     ((size_t)40 * 1024)
#define GUARD   ((size_t)1024)
#define REGION  ((size_t)8192)
#define CHANS   4
#define OPS     16
#define BUF     ((size_t)3000)
#define MAX_OPS 32

enum { R_RW, R_READ, R_WRITE, R_LATE, REGIONS };
_Static_assert(GUARD + REGIONS * (REGION + GUARD) <= MEM, "room for all");

static const char secret[] = "not for peers to see";

struct local { /* an operation of the application's */
    hawser_op *op;
    hawser_mem *mem;
    uint8_t *buf;
};

struct game {
    const uint8_t *in, *end;
    struct hawser_peer *p;
    int ctl;         /* our end */
    uint64_t ctl_rx; /* bytes that came by it */
    int chan[CHANS];
    uint32_t gen;
    uint64_t seq[CHANS];
    uint8_t frame[HW_FRAME_MAX]; /* the last one */
    size_t frame_len;
    struct local op[OPS];
    struct hawser_region region[REGIONS];
    uint8_t key[REGIONS][HAWSER_KEY_SIZE];
    bool client;
};

static hawser *ctx;
static struct hw_transport tp;
static uint8_t *mem, golden[MEM];
static hawser_mem *mem_reg;
static int listener;
static union hw_addr where;
static struct game *now;

/* ---- the input ------------------------------------------------------------------------------- */

static uint8_t u8(struct game *g)
{
    return g->in < g->end ? *g->in++ : 0;
}

static uint32_t u16(struct game *g)
{
    uint32_t a = u8(g);
    return a | (uint32_t)u8(g) << 8;
}

/* Small, near what matters, or wild. */
static uint64_t number(struct game *g, uint64_t near)
{
    uint8_t k = u8(g);
    if (k < 128)
        return k;
    if (k < 192)
        return near + (k & 7) - 4;
    if (k < 224)
        return u16(g);
    if (k < 240)
        return (uint64_t)-1 - (k & 15);
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v = v << 8 | u8(g);
    return v;
}

/* ---- plumbing -------------------------------------------------------------------------------- */

static void tcp_pair(int *ours, int *theirs)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 4096; /* so that chunks wait to be sent */
    FUZZ_CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
    /* from another address each time: connections that ended in order keep their ports for a minute */
    static uint32_t from;
    struct sockaddr_in src = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f010001 + ++from % 65000)};
    int one = 1;
    (void)setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    FUZZ_CHECK(bind(fd, (struct sockaddr *)&src, sizeof(src)) == 0);
    while (connect(fd, &where.sa, sizeof(where.in))) {
        if (errno == EINTR) /* libFuzzer's clock; nothing was sent yet, or the next call says EISCONN */
            continue;
        if (errno == EISCONN)
            break;
        perror("connecting over the loopback"); /* the machine's trouble, not the library's */
        exit(1);
    }
    do
        *theirs = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (*theirs < 0 && errno == EINTR);
    FUZZ_CHECK(*theirs >= 0);
    *ours = fd;
}

static void put(int fd, const void *p, size_t n)
{
    if (fd >= 0 && n)
        (void)!send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Takes in what the context has sent; its secrets must not be there. */
static size_t drain(int fd)
{
    static uint8_t buf[64 * 1024];
    size_t all = 0;
    ssize_t n;
    while (fd >= 0 && (n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
        FUZZ_CHECK(!memmem(buf, (size_t)n, secret, sizeof(secret) - 1));
        all += (size_t)n;
    }
    return all;
}

static void drain_all(struct game *g)
{
    g->ctl_rx += drain(g->ctl);
    for (int i = 0; i < CHANS; i++)
        drain(g->chan[i]);
}

/* The client's data connections go to us and not to where the peer says. */
static int fuzz_connect(const struct hw_tp_env *env, const struct hw_nic *nic, const uint8_t *handle, size_t len,
                        const struct hw_conn_ident *ident, struct hw_conn **out)
{
    int ours, theirs;
    union hw_addr a;
    FUZZ_CHECK(hw_tcp_handle_addr(handle, len, &a) == 0 && hw_address_allowed(ctx, false, &a) && *nic->name);
    if (ident->channel >= CHANS || (ident->gen & 3) == 3)
        return hw_fail(-ECONNREFUSED, "not now");
    tcp_pair(&ours, &theirs);
    int rc = hw_tcp.accept(env, theirs, out);
    FUZZ_CHECK(rc == 0);
    hw_sock_abort(&now->chan[ident->channel]);
    now->chan[ident->channel] = ours;
    now->seq[ident->channel] = 0;
    now->gen = ident->gen;
    return 0;
}

static void drive(int n)
{
    hw_loop_acquire(&ctx->loops[0]);
    while (n-- > 0 && hw_loop_drive(&ctx->loops[0], 0))
        ;
    hw_loop_release(&ctx->loops[0]);
}

/* Regions at GUARD, and every REGION + GUARD from there. All else of mem, and what may only be written, is secret. */
static size_t region_at(int i)
{
    return GUARD + (size_t)i * (REGION + GUARD);
}

static void start(void)
{
    static const char *const knobs[] = {"max_ops=32",        "notify_queue=4", "unexpected=4KiB", "window=4",
                                        "chunk=64KiB",       "min_chunk=4KiB", "inline_max=2KiB", "spin_us=0",
                                        "handshake_ms=1000", "splice=0",       "sndbuf=4096",     NULL};
    struct hawser_options o = {.size = sizeof(o), .flags = HAWSER_CALLER_PROGRESS, .knobs = knobs};
    socklen_t len = sizeof(where);
    FUZZ_CHECK(hawser_open(&o, &ctx) == 0);
    tp = hw_tcp;
    tp.connect = fuzz_connect;
    ctx->tp = &tp;
    ctx->loops[0].next_tick = HW_NEVER; /* time passes when the input says so */
    where.in.sin_family = AF_INET;
    where.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(listener >= 0 && bind(listener, &where.sa, sizeof(where.in)) == 0 && listen(listener, 64) == 0);
    FUZZ_CHECK(getsockname(listener, &where.sa, &len) == 0);
    mem = malloc(MEM);
    for (size_t at = 0; at < MEM; at++)
        golden[at] = (uint8_t)secret[at % (sizeof(secret) - 1)];
    memset(golden + region_at(R_READ), 'r', REGION);
    FUZZ_CHECK(mem && hawser_mem_register(ctx, HAWSER_MEM_HOST, mem, MEM, &mem_reg) == 0);
}

static void export_region(struct game *g, int i)
{
    static const uint32_t rights[REGIONS] = {[R_RW] = HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE,
                                             [R_READ] = HAWSER_REMOTE_READ,
                                             [R_WRITE] = HAWSER_REMOTE_WRITE,
                                             [R_LATE] = HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE};
    FUZZ_CHECK(hawser_export(mem_reg, region_at(i), REGION, rights[i], i & 1 ? g->p : NULL, g->key[i]) == 0);
    FUZZ_CHECK(hawser_import(g->key[i], &g->region[i]) == 0);
}

/* What nobody may have changed: all but the regions for writing. */
static void check_memory(void)
{
    size_t at = 0;
    for (int i = 0; i <= REGIONS; i++) {
        size_t to = i < REGIONS ? region_at(i) : MEM;
        FUZZ_CHECK(memcmp(mem + at, golden + at, to - at) == 0);
        at = to + (i == R_READ || i == REGIONS ? 0 : REGION);
    }
}

/* ---- the peer -------------------------------------------------------------------------------- */

static void send_frame(struct game *g, uint8_t type, uint8_t flags, uint64_t id, const void *body, size_t n)
{
    hw_frame_head(g->frame, type, flags, id, (uint32_t)n);
    if (n)
        memcpy(g->frame + HW_FRAME_HEAD, body, n);
    g->frame_len = HW_FRAME_HEAD + n;
    put(g->ctl, g->frame, g->frame_len);
}

static size_t region_fields(struct game *g, uint8_t *out)
{
    unsigned i = u8(g);
    struct hawser_region *r = &g->region[i % REGIONS];
    hw_put64(out, r->id + (i & 64));
    hw_put64(out + 8, r->secret ^ (i & 128));
    hw_put64(out + 16, number(g, REGION));
    return 24;
}

static size_t setup_body(struct game *g, uint8_t *out)
{
    uint8_t n = u8(g), what = u8(g);
    struct hw_setup s = {.unexpected = (uint32_t)number(g, 4096),
                         .max_ops = (uint32_t)number(g, MAX_OPS),
                         .n = what & 1 ? n : n % CHANS + 1};
    hw_setup_head(out, &s);
    size_t len = HW_SETUP_HEAD;
    for (unsigned i = 0; i < s.n; i++) {
        struct hw_setup_entry e = {.nic = "lo", .handle_len = 20};
        e.nic[1] = (char)('o' + (what >> 1 & 3) * (i % 3));
        e.handle[0] = what & 8 ? u8(g) : 4;
        hw_put16(e.handle + 2, hw_addr_port(&where));
        memcpy(e.handle + 4, "\177\0\0\1", 4);
        if (what & 16)
            e.handle[4] = u8(g);
        if (what & 32)
            e.handle_len = u8(g) % HW_HANDLE_MAX;
        len += hw_setup_entry_encode(out + len, &e);
    }
    return what & 64 ? len - len / 4 : len;
}

/* A frame that concerns a stream: of few streams, with numbers that meet. */
static void play_stream(struct game *g)
{
    static uint8_t body[HW_STREAM_HEAD + 4096];
    static const uint8_t types[] = {HW_F_MESSAGE, HW_F_ANNOUNCE, HW_F_GRANT, HW_F_OFF,
                                    HW_F_REFUSE,  HW_F_POSTED,   HW_F_END,   HW_F_MESSAGE};
    uint8_t what = u8(g), type = types[what & 7];
    size_t n = HW_STREAM_HEAD;
    uint64_t id = number(g, g->p->next_id);
    hw_put32(body, what >> 3 & 3);
    hw_put32(body + 4, what & 128 ? u8(g) : 0);
    hw_put64(body + 8, number(g, 8) + (what & 32 ? u8(g) : 0));
    if (type == HW_F_MESSAGE) {
        n += u16(g) % 4096;
        memset(body + HW_STREAM_HEAD, 'm', n - HW_STREAM_HEAD);
    } else if (type == HW_F_ANNOUNCE || type == HW_F_GRANT) {
        hw_put64(body + n, number(g, BUF) << (what & 64 ? 6 : 0));
        n += 8;
    }
    send_frame(g, type, 0, id, body, n);
}

static void play_frame(struct game *g)
{
    static uint8_t body[HW_FRAME_MAX + (size_t)HW_SETUP_MAX * HW_SETUP_ENTRY_MAX];
    uint8_t type = u8(g), flags = 0;
    size_t n = 0, data;
    uint64_t id = number(g, 0);
    switch (type % 17) {
    case HW_F_SETUP:
        n = setup_body(g, body);
        break;
    case HW_F_ACK:
        id = g->ctl_rx - HW_MIN(id, g->ctl_rx); /* how far back */
        hw_put64(body, number(g, g->p->send_seq));
        n = 8;
        break;
    case HW_F_CONFIRM:
    case HW_F_CHAN_DOWN:
        hw_put32(body, (uint32_t)number(g, CHANS));
        hw_put32(body + 4, g->gen - (u8(g) & 3));
        n = 8;
        break;
    case HW_F_WRITE:
        n = region_fields(g, body);
        data = u16(g) % (HW_INLINE_MAX + 2);
        memset(body + n, 'w', data);
        n += data;
        break;
    case HW_F_SEND:
    case HW_F_NOTIFY:
        n = u16(g) % 4096;
        memset(body, 's', n);
        break;
    case HW_F_RTS:
        hw_put64(body, number(g, BUF));
        n = 8;
        break;
    case HW_F_READ:
        flags = u8(g) & 3;
        for (unsigned k = 1 + u8(g) % 20; k > 0; k--, n += HW_READ_ENTRY) {
            region_fields(g, body + n);
            hw_put64(body + n + 24, number(g, REGION));
        }
        break;
    case HW_F_READ_DATA:
        hw_put64(body, number(g, BUF));
        n = 8 + u16(g) % 4096;
        memset(body + 8, 'd', n - 8);
        break;
    case HW_F_ERROR:
        hw_put32(body, (uint32_t)number(g, 4096));
        n = 4 + u8(g);
        memset(body + 4, g->end > g->in ? *g->in : 'e', n - 4);
        break;
    case HW_F_CANCEL:
        hw_put32(body, u8(g));
        n = 4;
        break;
    case HW_F_CTS:
    case HW_F_PING:
    case HW_F_BYE:
        break;
    default: /* raw */
        n = u8(g);
        n = HW_MIN(n, (size_t)(g->end - g->in));
        memcpy(body, g->in, n);
        g->in += n;
        type = u8(g);
    }
    if (n <= HW_FRAME_MAX - HW_FRAME_HEAD)
        send_frame(g, type % 17, flags, id, body, n);
}

static void play_chunk(struct game *g)
{
    static uint8_t raw[HW_CHUNK_HEAD + 65536];
    unsigned i = u8(g) % CHANS, what = u8(g);
    struct hw_chunk_head h = {.type = (uint8_t)((what & 15) % 6), .op = number(g, 0), .seq = ++g->seq[i]};
    uint8_t fields[24];
    size_t n = u16(g), put_n;
    h.len = (uint32_t)n;
    if (h.type == HW_C_WRITE) {
        region_fields(g, fields);
        h.region = hw_get64(fields);
        h.secret = hw_get64(fields + 8);
        h.offset = hw_get64(fields + 16);
    } else {
        h.offset = number(g, BUF);
    }
    if (h.type == HW_C_EAGER) {
        h.region = what >> 5 & 3;
        h.secret = number(g, 8);
        h.offset = what & 128 ? h.offset : 0;
    }
    if (h.type == HW_C_STREAM) {
        h.op = number(g, g->p->next_id);
        h.region = number(g, BUF) << (what & 32 ? 5 : 0);
        h.secret = number(g, 0) & 3;
    }
    if ((what & 0xe0) == 0xe0)
        h.seq = number(g, h.seq);
    hw_chunk_encode(raw, &h);
    memset(raw + HW_CHUNK_HEAD, 'c', n);
    put_n = HW_CHUNK_HEAD + n;
    if (what & 16) /* a part of it; the rest may come by `more of a chunk` */
        put_n = u16(g) % (put_n + 1);
    put(g->chan[i], raw, put_n);
}

static void new_channel(struct game *g)
{
    unsigned i = u8(g);
    int ours, theirs;
    g->gen += u8(g) & 3;
    if (g->client || (i % CHANS) >= atomic_load(&g->p->nchans))
        return;
    tcp_pair(&ours, &theirs);
    hw_sock_abort(&g->chan[i % CHANS]);
    g->chan[i % CHANS] = ours;
    g->seq[i % CHANS] = 0;
    /* as listener.c's join_session() */
    pthread_mutex_lock(&ctx->mu);
    struct hw_chan *c = &g->p->chans[i % CHANS];
    hw_sock_abort(&c->fresh.fd);
    c->fresh.fd = theirs;
    c->fresh.gen = g->gen;
    atomic_store(&c->lane->scan, true);
    hw_lane_queue(c->lane);
    pthread_mutex_unlock(&ctx->mu);
}

static void new_control(struct game *g, bool first, uint64_t rx_offset)
{
    int ours, theirs;
    tcp_pair(&ours, &theirs);
    hw_sock_abort(&g->ctl);
    g->ctl = ours;
    if (g->client) {
        hw_loop_acquire(&ctx->loops[0]);
        pthread_mutex_lock(&g->p->mu);
        /* as reconnect_ready(), which has none while another stands */
        if (g->p->ctl.fd >= 0 || hw_ctl_install(g->p, theirs, rx_offset))
            close(theirs);
        pthread_mutex_unlock(&g->p->mu);
        hw_loop_release(&ctx->loops[0]);
        return;
    }
    pthread_mutex_lock(&ctx->mu);
    hw_sock_abort(&g->p->ctl.new_fd);
    g->p->ctl.new_fd = theirs;
    g->p->ctl.new_first = first;
    g->p->ctl.new_rx_offset = rx_offset;
    atomic_store(&g->p->ctl.has_new, true);
    hw_lane_queue(&g->p->lanes[0]);
    pthread_mutex_unlock(&ctx->mu);
}

/* ---- the application ------------------------------------------------------------------------- */

static void end_local(struct local *l)
{
    hawser_op_free(l->op);
    l->op = NULL;
    FUZZ_CHECK(hawser_mem_deregister(l->mem) == 0); /* -EBUSY: an operation that is over holds memory */
    free(l->buf);
}

static void post(struct game *g)
{
    unsigned what = u8(g);
    struct local *l = &g->op[u8(g) % OPS];
    size_t len = number(g, BUF) % (32 * BUF), cut = u16(g) % (len + 1);
    struct hawser_region far = {.id = 1, .secret = 2, .length = UINT64_MAX, .rights = 3};
    struct hawser_op_options o = {.size = sizeof(o), .timeout_ms = (int)(u8(g) * 10)};
    if (l->op)
        end_local(l);
    l->buf = malloc(len + 1);
    FUZZ_CHECK(l->buf && hawser_mem_register(ctx, HAWSER_MEM_HOST, l->buf, len + 1, &l->mem) == 0);
    memset(l->buf, 'a', len + 1);
    struct hawser_vec v[3] = {{.mem = l->mem, .length = cut, .region = &far},
                              {.mem = l->mem, .offset = cut, .region = &far},
                              {.mem = l->mem, .offset = cut, .length = len - cut, .region = &far}};
    int rc;
    if (what & 32 && (what % 6 == 0 || what % 6 == 5 || what % 6 == 2))
        o.stream = what >> 6;
    switch (what % 6) {
    case 0:
    case 5:
        rc = hawser_recv(g->p, v, 3, &o, &l->op);
        break;
    case 1:
        rc = hawser_read(g->p, v, 3, &o, &l->op);
        break;
    case 2:
        rc = hawser_send(g->p, v, 3, &o, &l->op);
        break;
    case 3:
        o.notify = what & 16 ? "note" : NULL;
        o.notify_len = 4;
        rc = hawser_write(g->p, v, 3, &o, &l->op);
        break;
    default:
        rc = hawser_notify(g->p, l->buf, HW_MIN(len, HAWSER_NOTIFY_MAX), &o, &l->op);
    }
    FUZZ_CHECK(rc <= 0 && (rc == 0) == (l->op != NULL));
    if (rc)
        end_local(l);
}

static void pass_time(uint64_t ms)
{
    struct hw_loop *l = &ctx->loops[0];
    hw_loop_acquire(l);
    if (now->p->ctl.fd >= 0 || !now->client) /* a client would reconnect, which is not for here */
        (void)hw_lane_tick(&now->p->lanes[0], hw_now() + ms * HW_MS);
    hw_loop_release(l);
}

static void check_bounds(struct game *g)
{
    struct hawser_peer *p = g->p;
    FUZZ_CHECK(p->nops <= MAX_OPS && p->nserved <= MAX_OPS && p->nnotes <= 4 && p->nunexpected <= MAX_OPS);
    FUZZ_CHECK(p->unexpected_bytes <= 4096 && p->ctl.tx_cap <= 16 << 20 && p->nretry <= p->retry_cap);
    FUZZ_CHECK(p->ctl.tx_sent <= p->ctl.tx_len && p->ctl.tx_len <= p->ctl.tx_cap);
    for (uint32_t i = 0; i < atomic_load(&p->nchans); i++)
        FUZZ_CHECK(p->chans[i].win_n <= p->chans[i].window && p->chans[i].tx_confirmed <= p->chans[i].tx_seq);
}

static void turn(struct game *g)
{
    uint8_t op = u8(g);
    unsigned i;
    uint8_t note[HAWSER_NOTIFY_MAX];
    size_t n;
    switch (op % 20) {
    case 0:
    case 1:
    case 2:
    case 3:
        play_frame(g);
        break;
    case 4:
    case 5:
        play_chunk(g);
        break;
    case 6:
        new_channel(g);
        break;
    case 7:
    case 8:
        post(g);
        break;
    case 9:
        i = u8(g) % OPS;
        if (g->op[i].op && op & 32)
            (void)hawser_cancel(g->op[i].op);
        else if (g->op[i].op)
            end_local(&g->op[i]);
        break;
    case 10: /* many of the last */
        for (n = u8(g) % 65; n > 0; n--)
            put(g->ctl, g->frame, g->frame_len);
        break;
    case 11: /* more of a chunk */
        i = u8(g) % CHANS;
        n = u16(g);
        put(g->chan[i], g->frame, HW_MIN(n, sizeof(g->frame)));
        break;
    case 12:
        i = u8(g);
        if (i & 64)
            hw_sock_abort(&g->chan[i % CHANS]);
        else
            hw_close(&g->chan[i % CHANS]);
        break;
    case 13:
        if (op & 32)
            hw_sock_abort(&g->ctl);
        else
            hw_close(&g->ctl);
        break;
    case 14:
        new_control(g, op & 128, number(g, g->p->ctl.tx_base + g->p->ctl.tx_len));
        break;
    case 15:
        drain_all(g);
        break;
    case 16:
        pass_time(number(g, 1000) % 100000);
        break;
    case 17:
        if (hawser_revoke(ctx, g->key[R_LATE]) == -ESTALE)
            export_region(g, R_LATE);
        break;
    case 18:
        (void)hawser_notification(g->p, note, sizeof(note), &n);
        if (op & 32)
            play_stream(g);
        if (op & 128)
            (void)hawser_stream_close(g->p, u8(g) & 3);
        break;
    default:
        drive(u8(g) % 8);
    }
    if (!(op & 16))
        drive(2);
    check_bounds(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct game g;
    if (!ctx)
        start();
    memset(&g, 0, sizeof(g));
    now = &g;
    g.in = data;
    g.end = data + size;
    g.client = u8(&g) & 1;
    g.gen = 1;
    g.ctl = -1;
    for (int i = 0; i < CHANS; i++)
        g.chan[i] = -1;
    memcpy(mem, golden, MEM);
    /* what may be read and may have been written with anything is no secret */
    memset(mem + region_at(R_RW), 'x', REGION);
    memset(mem + region_at(R_LATE), 'x', REGION);
    g.p = hw_peer_new(ctx, g.client);
    FUZZ_CHECK(g.p);
    g.p->session = 1;
    g.p->ctl.remote = g.p->ctl.local = where;
    snprintf(g.p->name, sizeof(g.p->name), "fuzz");
    if (g.client) {
        g.p->want_nics = strdup("");
        g.p->want_peer_nics = strdup("");
        g.p->want_channels = CHANS;
    }
    pthread_mutex_lock(&ctx->mu);
    hw_list_append(&ctx->peers, &g.p->in_ctx);
    ctx->npeers++;
    pthread_mutex_unlock(&ctx->mu);
    for (int i = 0; i < REGIONS; i++)
        export_region(&g, i);
    new_control(&g, true, 0);
    drive(2);
    while (g.in < g.end)
        turn(&g);
    drain_all(&g);
    drive(4);
    hawser_peer_close(g.p);
    for (int i = 0; i < OPS; i++) {
        if (!g.op[i].op)
            continue;
        FUZZ_CHECK(hawser_test(g.op[i].op) != -EAGAIN);
        end_local(&g.op[i]);
    }
    for (int i = 0; i < REGIONS; i++)
        (void)hawser_revoke(ctx, g.key[i]);
    drain_all(&g);
    hw_sock_abort(&g.ctl);
    for (int i = 0; i < CHANS; i++)
        hw_sock_abort(&g.chan[i]);
    check_memory();
    FUZZ_CHECK(ctx->npeers == 0 && hw_list_empty(&ctx->peers) && hw_list_empty(&ctx->accepts));
    int fd = dup(listener);
    FUZZ_CHECK(fd >= 0 && fd < 32); /* the lowest that is free: none is left behind */
    close(fd);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the library between two processes, over loopback. bench/builds compares two builds of it, and bench/rows
 * compares it with socket_bench.
 *
 *     engine_bench CASE SECONDS      prints a JSON object (measure.h)
 *
 * With BENCH_TRUSTED=1, contexts are opened with HAWSER_TRUSTED. A case with several operations in flight replaces the
 * operations that have ended with one call of hawser_submit().
 */
#include "hawser.h"
#include "measure.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define MEMORY (256u << 20)
#define DEEP   1024
#define VECS   8192

#define TAGS_MOST 60000 /* receives in flight with different tags; a peer can have 65,536 */

enum what {
    WRITE,      /* writes one after the other, each with a handle */
    BATCH,      /* several writes in flight, which end with completions */
    NOTIFY,     /* writes with a notification */
    PINGPONG,   /* a message in each direction */
    BESIDE,     /* writes of 8 bytes beside a stream of 64 MiB writes to the same peer */
    BESIDE_RAW, /* messages over a plain socket beside the same stream */
    TAGS,       /* receives with different tags: all are posted, and then cancelled */
};

static const struct bench_case {
    const char *name;
    enum what what;
    size_t bytes;
    unsigned deep;   /* operations in flight */
    unsigned pieces; /* descriptors of an operation; 0 means 1 */
} cases[] = {
    {"write-8", WRITE, 8, 1, 0},
    {"write-4K", WRITE, 4096, 1, 0},
    {"write-64K", WRITE, 65536, 1, 0},
    {"write-1M", WRITE, 1 << 20, 1, 0},
    {"write-16M", WRITE, 16 << 20, 1, 0},
    {"write-32M", WRITE, 32 << 20, 1, 0},
    {"write-64M", WRITE, 64 << 20, 1, 0},
    {"list-1024x64K", WRITE, 64 << 20, 1, 1024},
    {"list-8192x4K", WRITE, 32 << 20, 1, 8192},
    {"notify-8", NOTIFY, 8, 1, 0},
    {"notify-64K", NOTIFY, 65536, 1, 0},
    {"pingpong-8", PINGPONG, 8, 1, 0},
    {"rate-8", BATCH, 8, 64, 0},
    {"rate-8-x1024", BATCH, 8, 1024, 0},
    {"write-4K-x16", BATCH, 4096, 16, 0},
    {"write-64K-x8", BATCH, 65536, 8, 0},
    {"write-1M-x4", BATCH, 1 << 20, 4, 0},
    {"write-16M-x2", BATCH, 16 << 20, 2, 0},
    {"stream-128K", BATCH, 128 << 10, 32, 0},
    {"stream-1M", BATCH, 1 << 20, 16, 0},
    {"stream-16M", BATCH, 16 << 20, 2, 0},
    {"stream-64M", BATCH, 64 << 20, 2, 0},
    {"beside-8", BESIDE, 8, 1, 0},
    {"beside-8-raw", BESIDE_RAW, 8, 1, 0},
    {"recv-tags-1000", TAGS, 8, 1000, 0},
    {"recv-tags-60000", TAGS, 8, TAGS_MOST, 0},
};

static void die(const char *what)
{
    fprintf(stderr, "engine_bench: %s: %s\n", what, hawser_error());
    _exit(1);
}

static void check(int rc, const char *what)
{
    if (rc < 0)
        die(what);
}

static void move_bytes(int fd, void *data, size_t len, bool out)
{
    if ((out ? send(fd, data, len, 0) : recv(fd, data, len, MSG_WAITALL)) != (ssize_t)len)
        die("the other process");
}

static hawser *open_context(hawser_mem **mem, uint32_t flags)
{
    struct hawser_options o = {.size = sizeof o};
    o.flags = flags | (getenv("BENCH_TRUSTED") ? HAWSER_TRUSTED : 0);
    hawser *h;
    check(hawser_open(&o, &h), "opening");
    check(hawser_mem_alloc(h, HAWSER_MEM_HOST, -1, MEMORY, mem), "allocating");
    memset(hawser_mem_ptr(*mem), 1, MEMORY);
    return h;
}

static void wait_and_free(hawser_op *op)
{
    check(hawser_wait(op, 30000), "an operation");
    hawser_op_free(op);
}

/* Sends a message and receives one if `first`; otherwise receives and then sends. */
static void bounce(hawser_peer *p, hawser_mem *mem, size_t bytes, bool first)
{
    struct hawser_vec out = {.mem = mem, .length = bytes}, in = {.mem = mem, .offset = MEMORY / 2, .length = bytes};
    hawser_op *s, *r;
    check(hawser_recv(p, &in, 1, NULL, &r), "receiving");
    if (!first)
        wait_and_free(r);
    check(hawser_send(p, &out, 1, NULL, &s), "sending");
    if (first)
        wait_and_free(r);
    wait_and_free(s);
}

static void *echo(void *arg)
{
    char data[48];
    for (;;) {
        move_bytes(*(const int *)arg, data, sizeof data, false);
        move_bytes(*(const int *)arg, data, 24, true);
    }
    return NULL;
}

/* Takes notifications forever, and sleeps in between. */
static void take_notifications(hawser *h)
{
    for (;;) {
        struct hawser_completion c[16];
        int n = hawser_poll_wait(h, c, 16, -1);
        check(n, "waiting for notifications");
        for (int i = 0; i < n; i++)
            hawser_data_free(c[i].data);
    }
}

static void serve(int fd, int raw, const struct bench_case *c)
{
    hawser_mem *mem;
    hawser *h = open_context(&mem, c->what == NOTIFY ? HAWSER_EVENTS : 0);
    hawser_peer *p;
    pthread_t t;
    uint16_t port;
    uint8_t key[HAWSER_KEY_SIZE];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    check(hawser_listen(h, "127.0.0.1", 0, &port), "listening");
    check(hawser_export(mem, 0, MEMORY, HAWSER_REMOTE_WRITE, NULL, key), "exporting");
    move_bytes(fd, &port, sizeof port, true);
    move_bytes(fd, key, sizeof key, true);
    if (c->what == NOTIFY)
        take_notifications(h); /* the peer's arrival is an event too */
    check(hawser_accept(h, 10000, &p), "accepting");
    if (c->what == BESIDE_RAW && pthread_create(&t, NULL, echo, &raw))
        die("a thread");
    for (;;)
        if (c->what == PINGPONG)
            bounce(p, mem, c->bytes, false);
        else
            pause();
}

/* ---- this side ------------------------------------------------------------------------------------------ */

struct run {
    hawser *h;
    hawser_peer *p;
    hawser_mem *mem;
    const struct hawser_region *region;
    const struct bench_case *c;
    int raw;
    pid_t other;
    struct measure m;
};

/* Fills v with the descriptors of an operation at position k of the memory, modulo the memory's size. Returns their
 * number.
 */
static size_t lay_out(const struct run *r, unsigned k, size_t bytes, unsigned pieces, struct hawser_vec *v)
{
    uint64_t at = (uint64_t)k * bytes % MEMORY;
    size_t n = pieces ? pieces : 1, each = bytes / n;
    for (size_t i = 0; i < n; i++) /* in reverse order, so that they cannot be merged */
        v[i] = (struct hawser_vec){.mem = r->mem,
                                   .offset = at + (n - 1 - i) * each,
                                   .length = each,
                                   .region = r->region,
                                   .remote_offset = at + i * each};
    return n;
}

static void do_one(struct run *r, unsigned k)
{
    static struct hawser_vec v[VECS];
    const struct hawser_op_options told = {.size = sizeof told, .notify = "12345678", .notify_len = 8};
    hawser_op *op;
    if (r->c->what == PINGPONG) {
        bounce(r->p, r->mem, r->c->bytes, true);
        return;
    }
    if (r->c->what == BESIDE_RAW) {
        char data[48] = {0};
        move_bytes(r->raw, data, sizeof data, true);
        move_bytes(r->raw, data, 24, false);
        return;
    }
    size_t n = lay_out(r, k, r->c->bytes, r->c->pieces, v);
    check(hawser_write(r->p, v, n, r->c->what == NOTIFY ? &told : NULL, &op), "writing");
    wait_and_free(op);
}

static void run_one_by_one(struct run *r, double seconds)
{
    uint64_t now = hw_now(), end = now + (uint64_t)(seconds * 1e9);
    for (unsigned k = 0; now < end; k++) {
        uint64_t start = now;
        do_one(r, k);
        now = hw_now();
        if (k == 4) { /* warm */
            begin_measure(&r->m, r->other);
            now = hw_now();
        }
        if (k <= 4)
            continue;
        hw_hist_add(&r->m.took, now - start);
        r->m.ops++;
        r->m.bytes += r->c->bytes;
    }
}

static void run_batches(struct run *r, double seconds)
{
    static struct hawser_request req[DEEP];
    static struct hawser_vec v[DEEP];
    static struct hawser_completion c[DEEP];
    uint64_t turn = 0, end = hw_now() + (uint64_t)(seconds * 1e9);
    unsigned k = 0;
    assert(r->c->deep > 0);
    for (int more = (int)r->c->deep; hw_now() < end; turn += (unsigned)more) {
        for (int i = 0; i < more; i++) {
            (void)lay_out(r, k++ % (2 * r->c->deep), r->c->bytes, 0, &v[i]);
            req[i] = (struct hawser_request){.kind = HAWSER_WRITE, .vecs = &v[i], .n_vecs = 1};
        }
        check(hawser_submit(r->p, req, (size_t)more, NULL), "submitting");
        more = hawser_poll_wait(r->h, c, DEEP, 30000);
        check(more, "waiting");
        for (int i = 0; i < more; i++)
            check(c[i].result, "an operation");
        if (turn < 4 * r->c->deep && turn + (unsigned)more >= 4 * r->c->deep) /* warm */
            begin_measure(&r->m, r->other);
        else if (turn >= 4 * r->c->deep) {
            r->m.ops += (unsigned)more;
            r->m.bytes += (unsigned)more * r->c->bytes;
        }
    }
}

static void run_tags(struct run *r, double seconds)
{
    static hawser_op *op[TAGS_MOST];
    uint64_t end = hw_now() + (uint64_t)(seconds * 1e9);
    for (bool warm = true; warm || hw_now() < end; warm = false) {
        for (unsigned i = 0; i < r->c->deep; i++) {
            const struct hawser_op_options o = {.size = sizeof o, .tag = i};
            const struct hawser_vec v = {.mem = r->mem, .length = r->c->bytes};
            check(hawser_recv(r->p, &v, 1, &o, &op[i]), "posting a receive");
        }
        for (unsigned i = 0; i < r->c->deep; i++)
            check(hawser_cancel(op[i]), "cancelling");
        for (unsigned i = 0; i < r->c->deep; i++) {
            (void)hawser_wait(op[i], 30000);
            hawser_op_free(op[i]);
        }
        if (warm)
            begin_measure(&r->m, r->other);
        else
            r->m.ops += r->c->deep;
    }
}

/* Keeps two writes of 64 MiB in flight, from the memory above the first 64 MiB. */
static void *keep_writing(void *arg)
{
    struct run *r = arg;
    hawser_op *op[2] = {0};
    for (unsigned k = 0;; k ^= 1) {
        uint64_t at = (uint64_t)(k + 1) * (64u << 20);
        struct hawser_vec v = {
            .mem = r->mem, .offset = at, .length = 64 << 20, .region = r->region, .remote_offset = at};
        if (op[k])
            wait_and_free(op[k]);
        check(hawser_write(r->p, &v, 1, NULL, &op[k]), "writing");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const struct bench_case *c = NULL;
    int fd[2], raw[2];
    for (size_t i = 0; argc > 2 && i < HW_ARRAY_LEN(cases); i++)
        if (strcmp(cases[i].name, argv[1]) == 0)
            c = &cases[i];
    if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0) {
        fprintf(stderr, "usage: engine_bench CASE SECONDS; cases:");
        for (size_t i = 0; i < HW_ARRAY_LEN(cases); i++)
            fprintf(stderr, " %s", cases[i].name);
        fprintf(stderr, "\n");
        return 1;
    }
    connect_pair(raw);
    pid_t child = fork();
    if (child == 0)
        serve(fd[1], raw[1], c);
    static struct run r;
    r = (struct run){.c = c, .raw = raw[0], .other = child};
    pthread_t t;
    uint16_t port;
    uint8_t key[HAWSER_KEY_SIZE];
    struct hawser_region region;
    r.region = &region;
    r.h = open_context(&r.mem, 0);
    move_bytes(fd[0], &port, sizeof port, false);
    move_bytes(fd[0], key, sizeof key, false);
    check(hawser_import(key, &region), "importing");
    check(hawser_connect(r.h, "127.0.0.1", port, NULL, 10000, &r.p), "connecting");
    if ((c->what == BESIDE || c->what == BESIDE_RAW) && pthread_create(&t, NULL, keep_writing, &r))
        die("a thread");
    if (c->what == BATCH)
        run_batches(&r, strtod(argv[2], NULL));
    else if (c->what == TAGS)
        run_tags(&r, strtod(argv[2], NULL));
    else
        run_one_by_one(&r, strtod(argv[2], NULL));
    print_measure(&r.m);
    _exit(0); /* the child ends too */
}

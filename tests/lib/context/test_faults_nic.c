/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests NICs that go down or lose all packets during a transfer, in a lab of two nodes with four NICs each. The faults
 * affect one, three or all NICs on either side, including the NIC of the first rail, and are temporary, permanent or
 * flapping. Checks that every byte arrives correctly and only once.
 *   test_faults_nic [write|read|send]    HAWSER_TEST_LONG=1 tests every fault with every operation
 */
#include "faults.h"

#include "lab/lab.h"
#include "tests/tap.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NICS 4
#define RATE \
    (200u * 1000 * 1000) /* bits per second of each NIC; slow enough to hit a transfer and to run on two cores */
#define SIZE      (96u << 20)
#define MORE      (16u << 20)
#define CHANNELS  2
#define ALL       ((1u << NICS) - 1)
#define LIMIT_S   115 /* time limit for the tests of one operation */
#define BACK_MS   10000
#define SLACK_MS  2000 /* time to detect a dead NIC and resend its chunks */
#define FLAP_MS   8000
#define FLAP_DOWN 200
#define FLAP_UP   300

struct client {
    enum f_op op;
    size_t size, more;
    int timeout_ms;
    char knob[4][64];
    atomic_int state; /* 1 connected, 2 transferring, 3 transfer completed, 4 ended */
    atomic_int go, stop;
    atomic_ullong moved;
    atomic_ullong ns, end, bad, total, rx_bytes;
    atomic_int rc;
    atomic_uint rounds;
    char err[256];
    pthread_mutex_t mu; /* shared between processes */
    size_t nchans;
    struct hawser_channel_stats st[F_CHANS_MAX];
};

struct both {
    struct f_server sv;
    struct client cl;
};

static char self[256], lab[HW_LAB_NAME_MAX + 1];
static struct both *sh;
static int sh_fd;

/* ---- processes in the nodes ----------------------------------------------------------------------------------- */

static void client_log(void *arg, int level, const char *line)
{
    (void)arg;
    if (getenv("FAULTS_LOG"))
        fprintf(stderr, "# client %5llu.%03llu %d %s\n", (unsigned long long)(hw_now() / 1000000000),
                (unsigned long long)(hw_now() / 1000000 % 1000), level, line);
}

static void snapshot(struct client *c, hawser_peer *p)
{
    pthread_mutex_lock(&c->mu);
    c->nchans = F_CHANS_MAX;
    hawser_channel_stats(p, c->st, &c->nchans);
    pthread_mutex_unlock(&c->mu);
}

static int client_main(struct client *c)
{
    const char *knobs[8] = {0};
    size_t k = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(c->knob); i++)
        if (*c->knob[i])
            knobs[k++] = c->knob[i];
    struct hawser_options o = {.size = sizeof(o), .log = client_log, .knobs = knobs};
    struct hawser_connect_options co = {.size = sizeof(co), .channels = CHANNELS};
    struct f_client f = {.moved = &c->moved, .timeout_ms = c->timeout_ms};
    hawser *h;
    uint64_t ns = 0, bad = 0;
    int rc = hawser_open(&o, &h);
    if (rc == 0)
        rc = f_connect(&f, h, "198.18.0.2", (uint16_t)atomic_load(&sh->sv.port), c->size, &co, 10000);
    if (rc) {
        snprintf(c->err, sizeof(c->err), "%s", hawser_error());
        atomic_store(&c->rc, rc);
        atomic_store(&c->state, 4);
        return 1;
    }
    snapshot(c, f.p);
    atomic_store(&c->state, 1);
    if (!f_reaches(&c->go, 1, 10000))
        return 1;
    atomic_store(&c->state, 2);
    rc = f_transfer(&f, c->op, 1, c->size, &ns, &bad);
    snprintf(c->err, sizeof(c->err), "%s", rc ? hawser_error() : "");
    atomic_store(&c->ns, ns);
    atomic_store(&c->end, hw_now());
    atomic_store(&c->rc, rc);
    atomic_store(&c->bad, bad);
    atomic_fetch_add(&c->total, c->size);
    snapshot(c, f.p);
    atomic_store(&c->state, 3);
    for (uint64_t seed = 2; rc == 0 && !atomic_load(&c->stop); seed++) {
        rc = f_transfer(&f, c->op, seed, c->more, NULL, &bad);
        atomic_fetch_add(&c->total, c->more);
        atomic_fetch_add(&c->rounds, 1);
        snapshot(c, f.p);
    }
    if (rc && !atomic_load(&c->rc)) {
        snprintf(c->err, sizeof(c->err), "%s", hawser_error());
        atomic_store(&c->rc, rc);
    }
    atomic_store(&c->bad, bad);
    snapshot(c, f.p);
    for (size_t i = 0; i < c->nchans; i++)
        atomic_fetch_add(&c->rx_bytes, c->st[i].rx_bytes);
    f_close(&f);
    hawser_close(h);
    atomic_store(&c->state, 4);
    return 0;
}

static int node_main(int argc, char **argv)
{
    size_t size = sizeof(*sh);
    if (argc < 4)
        return 2;
    sh_fd = (int)strtol(argv[2], NULL, 10);
    sh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, sh_fd, 0);
    close(sh_fd);
    if (sh == MAP_FAILED)
        return 2;
    alarm(LIMIT_S);
    const char *knobs[8] = {0};
    size_t k = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(sh->cl.knob); i++)
        if (*sh->cl.knob[i])
            knobs[k++] = sh->cl.knob[i];
    return strcmp(argv[3], "serve") == 0 ? f_serve(&sh->sv, "0.0.0.0", sh->cl.size, knobs) : client_main(&sh->cl);
}

/* ---- links ---------------------------------------------------------------------------------------------------- */

static void links(const char *node, unsigned mask, bool up)
{
    for (unsigned i = 0; i < NICS; i++)
        if (mask & 1u << i && hw_lab_link(lab, node, i, up))
            diag("link %s eth%u: %s", node, i, hw_error());
}

/* If `is` is false, makes the node send packets on these NICs to an Ethernet address that no NIC has, so the packets
 * are lost without an error. If `is` is true, undoes this. */
static void heard(const char *node, unsigned mask, bool is)
{
    for (unsigned i = 0; i < NICS; i++) {
        char script[256];
        int status = 0;
        pid_t pid;
        snprintf(script, sizeof script,
                 "for to in $(ip neigh show dev eth%u | cut -d' ' -f1); do ip neigh %s $to dev eth%u %s; done", i,
                 is ? "del" : "replace", i, is ? "" : "lladdr 02:00:00:00:00:01 nud permanent");
        const char *argv[] = {"sh", "-c", script, NULL};
        if (!(mask & 1u << i))
            continue;
        if (hw_lab_spawn(lab, node, (char *const *)(uintptr_t)argv, -1, &pid) || waitpid(pid, &status, 0) != pid ||
            status)
            diag("%s eth%u, heard: %d: status %d %s", node, i, is, status, hw_error());
    }
}

static void all_up(void)
{
    links("a", ALL, true);
    links("b", ALL, true);
}

/* ---- a server and a client -------------------------------------------------------------------------------------- */

static pid_t server, client;

static bool start_in(const char *node, const char *role, pid_t *pid)
{
    char fd[16];
    snprintf(fd, sizeof(fd), "%d", sh_fd);
    const char *argv[] = {self, "--node", fd, role, NULL};
    if (hw_lab_spawn(lab, node, (char *const *)(uintptr_t)argv, -1, pid) == 0)
        return true;
    diag("starting %s: %s", role, hw_error());
    return false;
}

static bool start(enum f_op op, size_t size, int timeout_ms, const char *knob1, const char *knob2)
{
    memset(sh, 0, sizeof(*sh));
    struct client *c = &sh->cl;
    pthread_mutexattr_t at;
    pthread_mutexattr_init(&at);
    pthread_mutexattr_setpshared(&at, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&c->mu, &at);
    pthread_mutexattr_destroy(&at);
    c->op = op;
    c->size = size;
    c->more = HW_MIN(size, MORE);
    c->timeout_ms = timeout_ms;
    snprintf(c->knob[0], sizeof(c->knob[0]), "%s", knob1 ? knob1 : "");
    snprintf(c->knob[1], sizeof(c->knob[1]), "%s", knob2 ? knob2 : "");
    server = client = 0;
    if (!start_in("b", "serve", &server) || !f_reaches(&sh->sv.port, 1, 10000) || !start_in("a", "client", &client))
        return false;
    if (!f_reaches(&c->state, 1, 15000) || atomic_load(&c->state) != 1) {
        diag("the client did not connect: %d %s", atomic_load(&c->rc), c->err);
        return false;
    }
    return true;
}

/* Stops both processes. Returns true if both exit with status 0. */
static bool finish(void)
{
    atomic_store(&sh->cl.stop, 1);
    int c = client ? f_reap(client, 20000) : 0;
    for (int i = 0; i < 2000 && atomic_load(&sh->sv.sessions); i++)
        f_sleep_ms(5);
    atomic_store(&sh->sv.stop, 1);
    int s = server ? f_reap(server, 10000) : 0;
    client = server = 0;
    if (c || s)
        diag("the client ended with %d, the server with %d", c, s);
    return c == 0 && s == 0;
}

static void abandon(void)
{
    if (client)
        f_reap(client, 0);
    if (server)
        f_reap(server, 0);
    client = server = 0;
}

static bool moved_enough(void *arg)
{
    (void)arg;
    return atomic_load(&sh->cl.moved) >= sh->cl.size * 3 / 10 || atomic_load(&sh->cl.state) >= 3;
}

static int nic_of(const struct hawser_channel_stats *st)
{
    return strncmp(st->nic, "eth", 3) == 0 ? st->nic[3] - '0' : -1;
}

/* Returns how many channels of the NICs in mask are up. For all channels of these NICs, stores how often they were
 * lost, how many bytes they carried, and their number. */
static unsigned look(unsigned mask, unsigned *lost, uint64_t *bytes, unsigned *n)
{
    unsigned up = 0;
    *lost = *n = 0;
    *bytes = 0;
    pthread_mutex_lock(&sh->cl.mu);
    for (size_t i = 0; i < sh->cl.nchans; i++) {
        const struct hawser_channel_stats *st = &sh->cl.st[i];
        int nic = nic_of(st);
        if (nic < 0 || !(mask & 1u << nic))
            continue;
        ++*n;
        up += st->up;
        *lost += st->lost;
        *bytes += sh->cl.op == F_READ ? st->rx_bytes : st->tx_bytes;
    }
    pthread_mutex_unlock(&sh->cl.mu);
    return up;
}

static bool all_back(void *arg)
{
    unsigned lost, n, mask = *(unsigned *)arg;
    uint64_t bytes;
    return look(mask, &lost, &bytes, &n) == n && n;
}

struct growth {
    unsigned mask;
    uint64_t from[NICS];
};

static bool has_grown(void *arg)
{
    struct growth *g = arg;
    unsigned lost, n;
    for (unsigned i = 0; i < NICS; i++) {
        uint64_t bytes;
        if (g->mask & 1u << i && (look(1u << i, &lost, &bytes, &n), bytes <= g->from[i]))
            return false;
    }
    return true;
}

/* ---- scenarios -------------------------------------------------------------------------------------------------- */

struct fault {
    const char *what, *node;
    unsigned mask;
    unsigned down_ms; /* 0 if the NICs are restored only after the transfer */
    bool never;       /* the NICs are never restored */
    unsigned ops;     /* operations in the short run, one bit per enum f_op */
};

#define W 1u
#define R 2u
#define S 4u

static const struct fault faults[] = {
    {"one NIC of four", "a", 1u << 1, 0, false, W | R | S},
    {"one NIC of four at the server", "b", 1u << 2, 0, false, W | R},
    {"the first rail's NIC", "a", 1u << 0, 0, false, W | S},
    {"the first rail's NIC at the server", "b", 1u << 0, 0, false, W | R},
    {"three NICs of four", "a", 7u, 0, false, W | R},
    {"three NICs of four at the server", "b", 14u, 0, false, S},
    {"all NICs for a second", "a", ALL, 1000, false, W | R | S},
    {"all NICs for a second at the server", "b", ALL, 1000, false, W},
    {"one NIC for good", "a", 1u << 3, 0, true, R | S},
};

static uint64_t base_ns; /* duration of a transfer without a fault */

static void common_checks(enum f_op op, const char *what)
{
    struct client *c = &sh->cl;
    uint64_t total = atomic_load(&c->total);
    uint64_t rx = op == F_READ ? atomic_load(&c->rx_bytes) : atomic_load(&sh->sv.rx_bytes);
    is_int(atomic_load(&c->bad) + atomic_load(&sh->sv.bad), 0, "no byte is wrong, late or out of place");
    if (!ok(rx == total, "each byte came once (%s, %s)", f_op_name(op), what))
        diag("%llu bytes received of %llu sent", (unsigned long long)rx, (unsigned long long)total);
}

/* Starts a transfer, and calls set() to make the node's NICs fail during the transfer. If this is impossible, reports a
 * failed test and returns false. */
static bool start_and_hit(enum f_op op, const char *node, unsigned mask, int op_ms, const char *knob1,
                          const char *knob2, void (*set)(const char *node, unsigned mask, bool works), const char *what)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        if (!ok(start(op, SIZE, op_ms, knob1, knob2), "%s: %s: a server and a client", f_op_name(op), what)) {
            abandon();
            return false;
        }
        atomic_store(&sh->cl.go, 1);
        f_until(moved_enough, NULL, 20000);
        set(node, mask, false);
        if (atomic_load(&sh->cl.state) == 2)
            return true;
        /* on a busy machine, the transfer may complete before this process runs again */
        diag("the transfer was over before the fault: once more");
        set(node, mask, true);
        ok(finish(), "both end in order");
    }
    return ok(false, "%s: %s: the fault came in the middle", f_op_name(op), what);
}

static void run_fault(enum f_op op, const struct fault *f)
{
    struct client *c = &sh->cl;
    unsigned lost, n, alive = NICS - (unsigned)__builtin_popcount(f->mask);
    uint64_t bytes;
    if (!start_and_hit(op, f->node, f->mask, 0, NULL, NULL, links, f->what))
        return;
    if (f->down_ms) {
        f_sleep_ms(f->down_ms);
        links(f->node, f->mask, true);
    }
    bool through = f_reaches(&c->state, 3, 45000);
    ok(through, "the fault came in the middle, and the transfer ended");
    is_int(atomic_load(&c->rc), 0, "the transfer is complete");
    if (atomic_load(&c->rc))
        diag("%s", c->err);
    /* the first 30 % of the transfer uses all NICs, and the rest uses the remaining NICs */
    uint64_t base = base_ns / HW_MS, took = atomic_load(&c->ns) / HW_MS;
    uint64_t limit = base + (alive ? base * 7 / 10 * (NICS - alive) / alive : f->down_ms + 2000ull) + SLACK_MS;
    ok(took <= limit, "%s: %s: %llu ms, %llu without a fault, %llu allowed", f_op_name(op), f->what,
       (unsigned long long)took, (unsigned long long)base, (unsigned long long)limit);
    look(f->mask, &lost, &bytes, &n);
    ok(lost >= 1, "%u of %u channels of the NIC are reported lost", lost, n);
    if (!f->never) {
        struct growth g = {.mask = f->mask};
        for (unsigned i = 0; i < NICS; i++)
            look(1u << i, &lost, &g.from[i], &n);
        uint64_t t0 = hw_now();
        links(f->node, f->mask, true);
        unsigned mask = f->mask;
        bool back = f_until(all_back, &mask, BACK_MS) && f_until(has_grown, &g, 5000);
        ok(back, "the NIC is used again %llu ms after it is back", (unsigned long long)((hw_now() - t0) / HW_MS));
    } else {
        for (int i = 0; i < 1000 && atomic_load(&c->rounds) < 2; i++)
            f_sleep_ms(10);
        ok(atomic_load(&c->rounds) >= 2, "and it goes on without the NIC");
    }
    ok(finish(), "both end in order");
    common_checks(op, f->what);
    all_up();
}

static void baseline(enum f_op op)
{
    if (!ok(start(op, SIZE, 0, NULL, NULL), "%s: a server and a client", f_op_name(op))) {
        abandon();
        return;
    }
    atomic_store(&sh->cl.go, 1);
    f_reaches(&sh->cl.state, 3, 30000);
    base_ns = atomic_load(&sh->cl.ns);
    is_int(atomic_load(&sh->cl.rc), 0, "a transfer without a fault");
    diag("%s: %llu ms without a fault: %.0f MB/s of %.0f", f_op_name(op), (unsigned long long)(base_ns / HW_MS),
         (double)SIZE * 1e3 / (double)base_ns, NICS * RATE / 8e6);
    ok(finish(), "both end in order");
    unsigned lost, n;
    uint64_t bytes;
    look(ALL, &lost, &bytes, &n);
    is_int(n, NICS * CHANNELS, "every NIC has its channels");
    is_int(lost, 0, "no channel was lost");
    common_checks(op, "no fault");
}

static void flapping(enum f_op op)
{
    if (!ok(start(op, MORE, 0, NULL, NULL), "%s: flapping: a server and a client", f_op_name(op))) {
        abandon();
        return;
    }
    atomic_store(&sh->cl.go, 1);
    uint64_t end = hw_deadline(FLAP_MS);
    for (unsigned i = 0; hw_now() < end; i = (i + 1) % NICS) {
        const char *node = i % 2 ? "b" : "a";
        links(node, 1u << i, false);
        f_sleep_ms(FLAP_DOWN);
        links(node, 1u << i, true);
        f_sleep_ms(FLAP_UP);
    }
    unsigned rounds = atomic_load(&sh->cl.rounds), mask = ALL;
    f_until(all_back, &mask, BACK_MS);
    unsigned lost, n;
    uint64_t bytes;
    is_int(look(ALL, &lost, &bytes, &n), NICS * CHANNELS, "every channel is up after the flapping");
    ok(finish(), "both end in order");
    is_int(atomic_load(&sh->cl.rc), 0, "every transfer is complete");
    if (atomic_load(&sh->cl.rc))
        diag("%s", sh->cl.err);
    /* The minimum is low, because a flap stalls a transfer until the dead path is detected (stall_ms). */
    ok(rounds >= 5, "%s: flapping: %u transfers of 16 MiB in 8 s, channels lost %u times", f_op_name(op), rounds, lost);
    common_checks(op, "flapping");
    all_up();
}

/* Takes down all NICs permanently. If op_ms is not 0, the operation must fail by this deadline. Otherwise, both sides
 * must give up on the peer within a bounded time, with a typed error. */
static void all_for_good(enum f_op op, const char *node, int op_ms)
{
    const int peer_ms = op_ms ? 10000 : 2000, stall_ms = 500;
    if (!start_and_hit(op, node, ALL, op_ms ? op_ms : 60000, op_ms ? NULL : "peer_timeout_ms=2000", "keepalive_ms=1000",
                       links, "all NICs for good"))
        return;
    uint64_t down = hw_now();
    f_reaches(&sh->cl.state, 3, 30000);
    int rc = atomic_load(&sh->cl.rc);
    /* the deadline starts with the operation, not while the buffer is filled, which is slow with a sanitizer */
    long long ms = (long long)(op_ms ? atomic_load(&sh->cl.ns) : atomic_load(&sh->cl.end) - down) / (long long)HW_MS;
    ok(f_typed(rc), "%s: all NICs of %s for good: the operation fails with %d: %s", f_op_name(op), node, rc,
       sh->cl.err);
    if (op_ms) {
        ok(rc == -ETIMEDOUT && ms >= op_ms - 50 && ms <= op_ms + 2000, "by its deadline of %d ms: %lld ms", op_ms, ms);
        finish();
    } else {
        ok(ms <= peer_ms + 2 * stall_ms + 1000, "within peer_timeout_ms of %d and the time to notice: %lld ms", peer_ms,
           ms);
        /* A server that only receives has no unacknowledged data, so keepalive (1 s) and TCP_USER_TIMEOUT must detect
         * the failure. */
        for (int i = 0; i < 1200 && atomic_load(&sh->sv.sessions); i++)
            f_sleep_ms(10);
        is_int(atomic_load(&sh->sv.sessions), 0, "the server gives the peer up too");
        long long sms = (long long)(atomic_load(&sh->sv.last_end) - down) / (long long)HW_MS;
        ok(f_typed(atomic_load(&sh->sv.last_rc)) && sms <= 2 * peer_ms + 3000, "with %d after %lld ms",
           atomic_load(&sh->sv.last_rc), sms);
        finish();
    }
    is_int(atomic_load(&sh->sv.bad), 0, "no byte is out of place");
    all_up();
}

/* Tests that a failed NIC is detected although the knobs let TCP stall for a minute. Only the kernel's report that the
 * link is down (links()), or data that arrives on other NICs (heard()), ends the rails in time. The other side is
 * informed over the remaining NICs. */
static void found_out(enum f_op op, const char *node, void (*set)(const char *, unsigned, bool), const char *what)
{
    struct client *c = &sh->cl;
    if (!start_and_hit(op, node, 1u << 1, 60000, "stall_ms=60000", "peer_timeout_ms=3600000", set, what))
        return;
    bool through = f_reaches(&c->state, 3, 15000);
    ok(through && !atomic_load(&c->rc), "%s: %s, of %s: that is found out in time: %d %s", f_op_name(op), what, node,
       atomic_load(&c->rc), c->err);
    set(node, 1u << 1, true);
    if (!through) {
        abandon();
        return;
    }
    unsigned mask = 1u << 1;
    ok(f_until(all_back, &mask, BACK_MS), "and it is used again");
    ok(finish(), "both end in order");
    common_checks(op, what);
}

static void suite(unsigned ops)
{
    bool all = getenv("HAWSER_TEST_LONG") != NULL;
    const char *only = getenv("FAULTS_ONLY"); /* for debugging: the only fault to test */
    for (unsigned op = F_WRITE; op <= F_SEND; op++) {
        if (!(ops & 1u << op))
            continue;
        baseline(op);
        for (size_t i = 0; i < HW_ARRAY_LEN(faults); i++)
            if (all || (only ? strcmp(faults[i].what, only) == 0 : faults[i].ops & 1u << op))
                run_fault(op, &faults[i]);
        if (!only) {
            found_out(op, "a", links, "a link that is gone");
            found_out(op, "b", links, "a link that is gone");
            found_out(op, "a", heard, "a NIC that is not heard");
            found_out(op, "b", heard, "a NIC that is not heard");
        }
        if (all || op == F_WRITE)
            flapping(op);
        if (all || op == F_READ)
            all_for_good(op, "a", 0);
        if (all || op == F_WRITE)
            all_for_good(op, "b", 0);
        if (all || op == F_SEND)
            all_for_good(op, "a", 1200);
    }
}

/* ---- the program ------------------------------------------------------------------------------------------------ */

static int watched(unsigned ops)
{
    struct hw_lab_spec s = {.name = lab, .nodes = 2, .nics = NICS};
    for (unsigned i = 0; i < NICS; i++)
        s.rate[i] = RATE;
    int rc = hw_lab_up(&s);
    if (rc == -EPERM || rc == -EACCES)
        tap_skip_all("no lab is possible here: %s", hw_error());
    if (rc) {
        ok(false, "a lab: %s", hw_error());
        return 1;
    }
    sh = f_shared(sizeof(*sh), &sh_fd);
    suite(ops);
    return tap_done();
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--node") == 0)
        return node_main(argc, argv);
    unsigned ops = argc < 2 ? W | R | S : strcmp(argv[1], "write") == 0 ? W : strcmp(argv[1], "read") == 0 ? R : S;
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return 1;
    snprintf(lab, sizeof(lab), "tf%d", (int)getpid());
    /* Run in a separate process, so the lab is removed even if the test crashes or hangs. */
    unsigned limit = getenv("HAWSER_TEST_LONG") ? 10 * LIMIT_S : argc < 2 ? 3 * LIMIT_S : LIMIT_S;
    pid_t pid = f_fork(limit);
    if (pid == 0)
        exit(watched(ops));
    int st = f_reap(pid, (int)limit * 1000);
    (void)hw_lab_down(lab);
    if (st < 0 || st >= 1000) {
        printf("Bail out! the test ended with %d (no end within %u s, or a signal)\n", st, limit);
        return 1;
    }
    return st;
}

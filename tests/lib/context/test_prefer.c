/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests preferred NICs (hawser_connect_options.prefer) between two nodes of a lab with three NICs each. While a
 * preferred NIC works, the other NICs must carry nothing. While no preferred NIC works, the other NICs must carry
 * everything, whether the kernel reports the failure or packets are lost. Also tests that an operation does not wait
 * for the next ping if the first rail is down and nothing else is in flight, and that the first rails of a context's
 * peers use different NICs.
 *
 * The client is a process in node a, which prints the TAP output and takes down its own NICs. The server is a process
 * in node b.
 */
#include "faults.h"

#include "lab/lab.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define NICS    3
#define SIZE    (8u << 20)
#define LIMIT_S 110
#define OP_MS   14000 /* shorter than all timeouts and ping intervals that the knobs below set */

static const char *const patient[] = {"stall_ms=60000", "peer_timeout_ms=60000", "keepalive_ms=15000", NULL};

static void bail(const char *what)
{
    printf("Bail out! %s\n", what);
    exit(1);
}

static char self[256], lab[HW_LAB_NAME_MAX + 1];
static struct f_server *sv;
static int sv_fd;

/* ---- the client, in node a ----------------------------------------------------------------------------------- */

static int run(const char *fmt, unsigned nic)
{
    char line[256];
    snprintf(line, sizeof line, fmt, nic, nic);
    return system(line); /* NOLINT(cert-env33-c): the test's own commands */
}

/* If `lose` is true, causes packets sent through the NIC to be lost without an error. Otherwise, undoes this. */
static void lose_packets(unsigned nic, bool lose)
{
    int rc =
        lose ? run("for to in $(ip neigh show dev eth%u | cut -d' ' -f1); do ip neigh replace $to dev eth%u "
                   "lladdr 02:00:00:00:00:01 nud permanent; done",
                   nic)
             : run("for to in $(ip neigh show dev eth%u | cut -d' ' -f1); do ip neigh del $to dev eth%u; done", nic);
    if (rc)
        bail("ip neigh");
}

struct carried {
    uint64_t bytes[NICS]; /* bytes in both directions */
    unsigned up[NICS], channels[NICS];
};

static struct carried look(hawser_peer *p)
{
    struct carried c = {0};
    struct hawser_channel_stats st[F_CHANS_MAX];
    size_t n = F_CHANS_MAX;
    hawser_channel_stats(p, st, &n);
    for (size_t i = 0; i < n; i++) {
        unsigned nic = (unsigned)(st[i].nic[3] - '0');
        if (nic >= NICS)
            continue;
        c.bytes[nic] += st[i].tx_bytes + st[i].rx_bytes;
        c.up[nic] += st[i].up;
        c.channels[nic]++;
    }
    return c;
}

/* Waits up to `ms` milliseconds until the NIC has a channel that is up or, if `up` is false, has no such channel. */
static bool wait_for_nic(hawser_peer *p, unsigned nic, bool up, unsigned ms)
{
    for (unsigned t = 0; t < ms; t += 20, f_sleep_ms(20))
        if ((look(p).up[nic] > 0) == up)
            return true;
    return false;
}

static hawser *open_context(const char *const *knobs)
{
    struct hawser_options o = {.size = sizeof o, .knobs = knobs};
    hawser *h;
    if (hawser_open(&o, &h))
        bail(hawser_error());
    return h;
}

static struct f_client connect_by(hawser *h, const char *prefer, uint32_t channels)
{
    struct hawser_connect_options o = {.size = sizeof o, .channels = channels, .prefer = prefer};
    struct f_client f = {.timeout_ms = OP_MS};
    if (f_connect(&f, h, "198.18.0.2", (uint16_t)atomic_load(&sv->port), SIZE, &o, 10000))
        bail(hawser_error());
    return f;
}

static uint64_t seed;

static void transfer(struct f_client *f, size_t size, const char *what)
{
    static const enum f_op ops[] = {F_WRITE, F_READ, F_SEND};
    uint64_t bad = 0;
    int rc = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(ops) && rc == 0; i++)
        rc = f_transfer(f, ops[i], ++seed, size, NULL, &bad);
    if (!ok(rc == 0 && bad == 0, "%s: a write, a read and a send arrive whole", what))
        diag("%d %s, %llu bytes wrong", rc, rc ? hawser_error() : "", (unsigned long long)bad);
}

static bool has_state(hawser_peer *p, const char *nic, uint32_t state)
{
    struct hawser_path path[16];
    size_t n = 16;
    hawser_paths(p, path, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(path[i].nic, nic) == 0)
            return path[i].state == state;
    return false;
}

static void prefer_one(void)
{
    diag("one of three NICs is preferred");
    hawser *h = open_context(patient);
    struct f_client f = connect_by(h, "eth1", 2);
    struct carried c = look(f.p), d;
    ok(c.channels[1] == 2 && c.up[1] == 2, "it has the channels that were asked for: %u, %u up", c.channels[1],
       c.up[1]);
    ok(c.up[0] == 0 && c.up[2] == 0 && c.channels[0] == 1, "the others are not connected");
    ok(has_state(f.p, "eth1", HAWSER_PATH_USED) && has_state(f.p, "eth0", HAWSER_PATH_SPARE) &&
           has_state(f.p, "eth2", HAWSER_PATH_SPARE),
       "hawser_paths() says that they are spare");
    transfer(&f, SIZE, "by the preferred NIC");
    c = look(f.p);
    ok(c.bytes[1] >= 2ull * SIZE && c.bytes[0] == 0 && c.bytes[2] == 0, "no byte went by the others");

    run("ip link set eth%u down", 1);
    transfer(&f, SIZE, "its link is down");
    d = look(f.p);
    ok(d.bytes[0] + d.bytes[2] >= 2ull * SIZE && d.bytes[1] == c.bytes[1], "the others carried it");
    run("ip link set eth%u up", 1);
    ok(wait_for_nic(f.p, 1, true, 20000), "it is back");
    ok(wait_for_nic(f.p, 0, false, 20000) && wait_for_nic(f.p, 2, false, 20000), "and then the others are let go");
    c = look(f.p);
    transfer(&f, SIZE, "by the preferred NIC again");
    d = look(f.p);
    ok(d.bytes[1] >= c.bytes[1] + 2ull * SIZE && d.bytes[0] == c.bytes[0] && d.bytes[2] == c.bytes[2],
       "no byte went by the others");

    lose_packets(1, true);
    transfer(&f, SIZE, "its packets vanish");
    d = look(f.p);
    ok(d.bytes[0] + d.bytes[2] > c.bytes[0] + c.bytes[2], "the others carried it");
    lose_packets(1, false);
    ok(wait_for_nic(f.p, 1, true, 20000) && wait_for_nic(f.p, 0, false, 30000),
       "it is back, and the others are let go");

    run("ip link set eth%u down", 1);
    run("ip link set eth%u down", 0);
    transfer(&f, SIZE, "one of the spare ones is down, too");
    run("ip link set eth%u up", 0);
    run("ip link set eth%u up", 1);
    is_int(hawser_peer_state(f.p), 0, "the peer lives");
    f_close(&f);
    hawser_close(h);
}

/* Returns the number of the NIC that the first rail uses. The first rail carries small messages. */
static unsigned first_nic(hawser_peer *p)
{
    struct hawser_channel_stats st[F_CHANS_MAX];
    size_t n = F_CHANS_MAX;
    hawser_channel_stats(p, st, &n);
    return (unsigned)(st[0].nic[3] - '0');
}

static void take_turns(void)
{
    struct f_client f[NICS];
    unsigned seen = 0;
    diag("several peers of one context");
    hawser *h = open_context(NULL);
    for (unsigned i = 0; i < NICS; i++) {
        f[i] = connect_by(h, NULL, 1);
        seen |= 1u << first_nic(f[i].p);
    }
    ok(seen == (1u << NICS) - 1, "their small messages use different NICs: bit mask %x", seen);
    for (unsigned i = 0; i < NICS; i++) {
        transfer(&f[i], 4096, "a small one");
        f_close(&f[i]);
    }
    hawser_close(h);
}

static void prefer_others(void)
{
    struct hawser_connect_options o = {.size = sizeof o, .prefer = "eth1,eth7"};
    hawser_peer *p;
    diag("other preferences");
    hawser *h = open_context(NULL);
    is_int(hawser_connect(h, "198.18.0.2", (uint16_t)atomic_load(&sv->port), &o, 5000, &p), -ENODEV,
           "a NIC that there is not");
    ok(strstr(hawser_error(), "eth7") != NULL, "is named: %s", hawser_error());
    struct f_client f = connect_by(h, "lo", 1);
    ok(wait_for_nic(f.p, 0, true, 20000) && wait_for_nic(f.p, 1, true, 20000) && wait_for_nic(f.p, 2, true, 20000),
       "where no preferred NIC leads to the peer all carry");
    f_close(&f);
    f = connect_by(h, "eth0,eth2", 1);
    transfer(&f, SIZE, "two are preferred");
    struct carried c = look(f.p);
    ok(c.bytes[0] && c.bytes[2] && !c.bytes[1] && !c.up[1], "both carry, the third one does not");
    run("ip link set eth%u down", 0);
    transfer(&f, SIZE, "one of two is down");
    f_sleep_ms(1000); /* time for attempts to connect over the NIC that is down to fail */
    ok(!look(f.p).up[1], "the third one is not called while the other one works");
    run("ip link set eth%u up", 0);
    f_close(&f);
    hawser_close(h);
}

/* Makes writes while nothing else is in flight that would wake another rail, and the next ping is 15 s away. */
static void first_rail_is_down(void)
{
    uint64_t worst = 0;
    int rc = 0;
    diag("the first rail is down");
    hawser *h = open_context(patient);
    struct f_client f = connect_by(h, NULL, 1);
    run("ip link set eth%u down", 0);
    ok(wait_for_nic(f.p, 0, false, 10000), "the NIC of the first rail is down");
    for (unsigned i = 0; i < 5 && rc == 0; i++) {
        struct hawser_vec v = {.mem = f.mem, .length = 64 << 10, .region = &f.region};
        struct hawser_op_options o = {.size = sizeof o, .timeout_ms = OP_MS};
        hawser_op *op;
        f_sleep_ms(300); /* time for operations in flight to complete */
        uint64_t t0 = hw_now();
        rc = hawser_write(f.p, &v, 1, &o, &op);
        rc = rc ? rc : hawser_wait(op, OP_MS);
        worst = HW_MAX(worst, hw_now() - t0);
        hawser_op_free(op);
    }
    ok(rc == 0 && worst < 10000 * HW_MS, "writes of 64 KiB with nothing else under way: %llu ms at most (%d)",
       (unsigned long long)(worst / HW_MS), rc);
    run("ip link set eth%u up", 0);
    f_close(&f);
    hawser_close(h);
}

static int run_client(void)
{
    prefer_one();
    take_turns();
    prefer_others();
    first_rail_is_down();
    return tap_done();
}

/* ---- the program ------------------------------------------------------------------------------------------------ */

static pid_t spawn(const char *node, const char *role)
{
    char fd[16];
    pid_t pid;
    snprintf(fd, sizeof fd, "%d", sv_fd);
    const char *argv[] = {self, "--node", fd, role, NULL};
    if (hw_lab_spawn(lab, node, (char *const *)(uintptr_t)argv, -1, &pid))
        bail(hw_error());
    return pid;
}

static int node_main(char **argv)
{
    sv_fd = (int)strtol(argv[2], NULL, 10);
    sv = mmap(NULL, sizeof *sv, PROT_READ | PROT_WRITE, MAP_SHARED, sv_fd, 0);
    close(sv_fd);
    if (sv == MAP_FAILED)
        return 2;
    alarm(LIMIT_S);
    return strcmp(argv[3], "serve") == 0 ? f_serve(sv, "0.0.0.0", SIZE, patient) : run_client();
}

static int watched(void)
{
    struct hw_lab_spec s = {.name = lab, .nodes = 2, .nics = NICS};
    int rc = hw_lab_up(&s);
    if (rc == -EPERM || rc == -EACCES)
        tap_skip_all("no lab is possible here: %s", hw_error());
    if (rc)
        bail(hw_error());
    sv = f_shared(sizeof *sv, &sv_fd);
    pid_t server = spawn("b", "serve");
    if (!f_reaches(&sv->port, 1, 10000))
        bail("the server does not start");
    rc = f_reap(spawn("a", "client"), LIMIT_S * 1000);
    atomic_store(&sv->stop, 1);
    return f_reap(server, 10000) ? 1 : rc;
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return node_main(argv);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return 1;
    snprintf(lab, sizeof lab, "tp%d", (int)getpid());
    fflush(stdout);
    /* Run in a separate process, so the lab is removed even if the test crashes or hangs. */
    pid_t pid = f_fork(LIMIT_S);
    if (pid == 0)
        exit(watched());
    int st = f_reap(pid, LIMIT_S * 1000);
    (void)hw_lab_down(lab);
    if (st < 0 || st >= 1000) {
        printf("Bail out! the test ended with %d\n", st);
        return 1;
    }
    return st;
}

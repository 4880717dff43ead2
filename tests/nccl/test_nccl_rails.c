/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the NCCL plugin over several NICs. Two ranks, in a lab of two nodes with four NICs each, act like the driver's
 * ranks (tests/nccl/driver) and check every byte. One communicator must use all NICs. A slow NIC must carry less and
 * not determine the speed. Messages must survive the loss of a NIC. If all NICs go down, NCCL must get an error in
 * time. test_nccl_rails PLUGIN test_nccl_rails PLUGIN N    measures (bench/nccl_faults) the longest times without a
 * message, with N faults of each kind during messages in both directions. With HAWSER_NCCL_NEAR=1, all messages use the
 *                               NIC of one device
 */
#include "tests/nccl/driver/driver.h"

#include "lab/lab.h"
#include "tests/tap.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NICS     4
#define RATE     (200u * 1000 * 1000) /* usual bits per second of a NIC */
#define SIZE     (1u << 20)           /* bytes of a message, as in NCCL's rings */
#define DEPTH    8
#define MESSAGES 64
#define LIMIT_S  90 /* seconds for the whole test, without faults */

struct options opt = {
    .deadline = 20, .depth_max = NCCL_NET_MAX_REQUESTS, .max_size = UINT64_MAX, .align = 1, .profile = true};

/* Memory that the test and both ranks share. */
struct world {
    struct shared sh;
    unsigned messages; /* messages in each direction */
    bool until_error;
    struct {
        atomic_uint done; /* messages received */
        atomic_int state; /* 1 when connected, 3 when finished */
        atomic_int rc;
        atomic_uint_least64_t ns; /* time taken to transfer all messages */
        char why[HW_ERR_TEXT];
        uint64_t tx[NICS]; /* bytes sent on each NIC in that time */
    } rank[2];
};

static char self[256], lab[HW_LAB_NAME_MAX + 1];
static struct world *w;
static int w_fd;

/* ---- in a node ------------------------------------------------------------------------------------------------- */

/* Replaces each tx[i] with the bytes that NIC i has sent, less the old tx[i]. If tx starts at 0, a second call thus
 * stores the bytes since the first call. The ninth number after the name in the kernel's lines counts sent bytes. */
static void count(uint64_t tx[NICS])
{
    char line[512];
    unsigned nic;
    unsigned long long n;
    FILE *f = fopen("/proc/self/net/dev", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, " eth%u: %*u %*u %*u %*u %*u %*u %*u %*u %llu", &nic, &n) == 2 && nic < NICS)
            tx[nic] = n - tx[nic];
    if (f)
        fclose(f);
}

static int turn(struct rank *r, struct flow f[2], struct wait *wait)
{
    int events = 0, rc;
    for (int i = 0; i < 2; i++) {
        int n = flow_step(&f[i]);
        if (n < 0)
            return n;
        events += n;
        if (!f[i].c->sends)
            atomic_store(&w->rank[r->id].done, f[i].done);
    }
    if (!events && (rc = wait_turn(r, wait)))
        return rc;
    if (events)
        *wait = wait_for("messages over NICs");
    return 0;
}

/* Transfers messages over one connection in each direction, like a communicator with two ranks. */
static int talk(struct rank *r)
{
    struct flow_spec s = {.what = "messages over NICs", .n = w->messages, .depth = DEPTH, .min = SIZE, .max = SIZE};
    struct comm *c[2];
    struct flow f[2] = {{0}};
    struct wait wait = wait_for(s.what);
    uint64_t tx[NICS] = {0};
    int rc = 0;

    for (int i = 0; i < 2 && !rc; i++)
        if (!(rc = comm_open(r, i, &c[i])))
            rc = flow_open(&f[i], c[i], &s);
    if (rc || (rc = barrier(r)))
        return rc;
    count(tx);
    atomic_store(&w->rank[r->id].state, 1);
    uint64_t t0 = hw_now();
    while (!rc && (f[0].done < s.n || f[1].done < s.n))
        rc = turn(r, f, &wait);
    atomic_store(&w->rank[r->id].ns, hw_now() - t0);
    if (w->until_error && rc == -EREMOTEIO)
        return flow_abandon(&f[0]) || flow_abandon(&f[1]) ? -EREMOTEIO : 0;
    if (rc || (rc = barrier(r)))
        return rc;
    count(tx);
    memcpy(w->rank[r->id].tx, tx, sizeof(tx));
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_close(&f[i]);
    if (!rc && w->until_error)
        rc = hw_fail(-EPROTO, "all messages went through, no error");
    return rc;
}

/* Gives the NICs of this node other addresses. */
static int change_addresses(void)
{
    for (unsigned i = 0; i < NICS; i++) {
        char command[128];
        snprintf(command, sizeof(command), "ip addr flush dev eth%u && ip addr add 198.18.%u.77/24 dev eth%u", i, i, i);
        if (system(command)) // NOLINT(cert-env33-c)
            return hw_fail(-EIO, "%s failed", command);
    }
    return 0;
}

/* Adds IPv6 addresses to the NICs of this node, and removes the IPv4 addresses from the NICs of node b. */
static int use_ipv6(int rank)
{
    for (unsigned i = 0; i < NICS; i++) {
        char command[256];
        snprintf(command, sizeof(command),
                 "echo 0 > /proc/sys/net/ipv6/conf/eth%u/disable_ipv6 && ip -6 addr add fd00:%u::%d/64 dev eth%u "
                 "nodad; [ %d = 0 ] || ip -4 addr flush dev eth%u",
                 i, i, rank + 1, i, rank, i);
        if (system(command)) // NOLINT(cert-env33-c)
            return hw_fail(-EIO, "%s failed", command);
    }
    return 0;
}

static int rank_main(char **argv)
{
    struct rank r = {.id = argv[2][0] - '0', .ctl = -1, .step = 1, .name = "rails"};
    r.fd = (int)strtol(argv[4], NULL, 10);
    w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED, (int)strtol(argv[3], NULL, 10), 0);
    if (w == MAP_FAILED)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(w->messages > 100000 ? 0 : LIMIT_S);
    r.sh = &w->sh;
    opt.plugin = argv[5];
    opt.verbose = getenv("RAILS_LOG") != NULL;
    int rc = getenv("RAILS_IPV6") ? use_ipv6(r.id) : 0, rc2;
    if (!rc)
        rc = net_load(&r);
    if (!rc && r.id == 1 && getenv("RAILS_READDRESS"))
        rc = change_addresses();
    if (!rc)
        rc = barrier(&r);
    if (!rc)
        rc = talk(&r);
    if (rc) {
        snprintf(w->rank[r.id].why, sizeof(w->rank[0].why), "%s", hw_error());
        atomic_store(&w->sh.gone, r.step + 1);
    }
    if (!rc)
        rc = comm_close_all(&r);
    if (r.loaded && (rc2 = net_unload(&r)) && !rc)
        rc = rc2;
    atomic_store(&w->rank[r.id].rc, rc);
    atomic_store(&w->rank[r.id].state, 3);
    return 0;
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static const char *plugin;
static pid_t pid[2];

static void nap(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static bool reaches(int rank, int state, unsigned ms)
{
    for (uint64_t end = hw_now() + ms * HW_MS; hw_now() < end; nap(2))
        if (atomic_load(&w->rank[rank].state) >= state)
            return true;
    return false;
}

static bool start(const char *what, unsigned messages, bool until_error)
{
    int pair[2];
    bool good = true;

    memset(w, 0, sizeof(*w));
    w->messages = messages;
    w->until_error = until_error;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
        return ok(false, "%s: a socketpair", what);
    for (int i = 0; i < 2; i++) {
        char id[2] = {(char)('0' + i)}, shared[16], to[16], node[2] = {(char)('a' + i)};
        const char *argv[] = {self, "--rank", id, shared, to, plugin, NULL};
        snprintf(shared, sizeof(shared), "%d", w_fd);
        snprintf(to, sizeof(to), "%d", pair[i]);
        pid[i] = 0;
        if (hw_lab_spawn(lab, node, (char *const *)(uintptr_t)argv, -1, &pid[i]))
            good = ok(false, "%s: rank %d: %s", what, i, hw_error());
    }
    close(pair[0]);
    close(pair[1]);
    for (int i = 0; i < 2 && good; i++)
        if (!reaches(i, 1, 15000) || atomic_load(&w->rank[i].rc))
            good = ok(false, "%s: rank %d is connected: %s", what, i, w->rank[i].why);
    return good;
}

static void reap(void)
{
    for (int i = 0; i < 2; i++) {
        int st;
        if (!pid[i])
            continue;
        bool ended = reaches(i, 3, 1);
        for (int n = 0; n < 2500 && ended && waitpid(pid[i], &st, WNOHANG) == 0; n++)
            nap(2);
        (void)kill(pid[i], SIGKILL); /* the process may still be running */
        (void)waitpid(pid[i], &st, 0);
        pid[i] = 0;
    }
}

/* Waits for both ranks to finish, and checks that every byte was correct. */
static bool finish(const char *what)
{
    bool good = true;
    for (int i = 0; i < 2; i++)
        good = reaches(i, 3, 40000) && good;
    for (int i = 0; i < 2; i++)
        if (atomic_load(&w->rank[i].state) < 3 || atomic_load(&w->rank[i].rc)) {
            good = false;
            diag("rank %d: %d after %u messages: %s", i, atomic_load(&w->rank[i].rc), atomic_load(&w->rank[i].done),
                 w->rank[i].why);
            diag("its plugin's last warning: %.400s", w->sh.warn[i]);
        }
    reap();
    return ok(good, "%s: all messages arrive, every byte right", what);
}

static void links(const char *node, unsigned mask, bool up)
{
    for (unsigned i = 0; i < NICS; i++)
        if (mask & 1u << i && hw_lab_link(lab, node, i, up))
            diag("link %s eth%u: %s", node, i, hw_error());
}

/* Stores the share of rank 0's bytes on each NIC, in per mille. */
static void shares(const char *what, unsigned share[NICS])
{
    uint64_t sum = 0;
    for (int i = 0; i < NICS; i++)
        sum += w->rank[0].tx[i];
    for (int i = 0; i < NICS; i++)
        share[i] = sum ? (unsigned)(w->rank[0].tx[i] * 1000 / sum) : 0;
    diag("%s: %u messages of 1 MiB each way in %llu ms; per mille by NIC: %u %u %u %u", what, w->messages,
         (unsigned long long)(atomic_load(&w->rank[0].ns) / HW_MS), share[0], share[1], share[2], share[3]);
}

static uint64_t base_ns; /* duration with all NICs at their usual rate */

static void all_of_them(void)
{
    unsigned share[NICS], least = 1000;
    if (!start("four NICs", MESSAGES, false) || !finish("four NICs"))
        return;
    shares("four NICs", share);
    base_ns = atomic_load(&w->rank[0].ns);
    for (int i = 0; i < NICS; i++)
        least = share[i] < least ? share[i] : least;
    ok(least >= 30, "one communicator uses all four"); /* the shares are equal unless the CPU is the bottleneck */
}

/* Limits one NIC to a tenth of the others' rate. If the bytes were divided equally, that NIC's quarter would take ten
 * times as long as before. */
static void a_slow_one(void)
{
    unsigned share[NICS];
    if (hw_lab_rate(lab, "a", 3, RATE / 10))
        diag("the rate of eth3: %s", hw_error());
    if (start("a slow NIC", MESSAGES, false) && finish("a slow NIC")) {
        shares("a slow NIC", share);
        ok(share[3] > 0 && share[3] < 125, "the slow NIC carries less than half of a quarter");
        uint64_t ns = atomic_load(&w->rank[0].ns);
        ok(ns < 5 * base_ns, "and does not set the pace: %llu ms, %llu before", (unsigned long long)(ns / HW_MS),
           (unsigned long long)(base_ns / HW_MS));
    }
    reap();
    (void)hw_lab_rate(lab, "a", 3, RATE);
}

/* Tests HAWSER_NCCL_NEAR, with which each NIC is a separate group. The ranks' device belongs to eth0, so eth0 carries
 * the bytes. */
static void near_one(void)
{
    unsigned share[NICS];
    if (start("the NIC of a device", MESSAGES / 2, false) && finish("the NIC of a device")) {
        shares("the NIC of a device", share);
        ok(share[0] > 900, "it carries all");
    }
    reap();
    setenv("HAWSER_NCCL_LANES", "1", 1);
    if (start("fewer sessions than groups", MESSAGES / 2, false) && finish("fewer sessions than groups"))
        ok(strstr(w->sh.warn[0], "number of groups of NICs; using 4"), "the plugin uses one session for each group: %s",
           w->sh.warn[0]);
    reap();
    unsetenv("HAWSER_NCCL_LANES");
}

/* Takes the NICs in `mask` down after a third of the messages. */
static void dead(const char *what, const char *node, unsigned mask)
{
    const unsigned n = 96;
    if (start(what, n, false)) {
        for (int i = 0; i < 10000 && atomic_load(&w->rank[0].done) < n / 3; i++)
            nap(1);
        links(node, mask, false);
        ok(atomic_load(&w->rank[0].state) < 3, "%s: it comes in the middle, after %u messages", what,
           atomic_load(&w->rank[0].done));
        finish(what);
    }
    reap();
    links(node, mask, true);
}

/* Only the last NIC of node b is up before the ranks start. Rank 1 must connect to the last address of rank 0, and not
 * spend the time of the test on the addresses that node b does not reach. */
static void last_rail_only(void)
{
    links("b", (1u << (NICS - 1)) - 1, false);
    if (start("one NIC at one end, on the last rail", MESSAGES / 4, false))
        finish("one NIC at one end, on the last rail");
    reap();
    links("b", (1u << (NICS - 1)) - 1, true);
}

static void none_left(void)
{
    const unsigned peer_ms = 2000;
    setenv("HAWSER_PEER_TIMEOUT_MS", "2000", 1);
    setenv("HAWSER_KEEPALIVE_MS", "500", 1);
    if (start("no NIC is left", 100000, true)) {
        for (int i = 0; i < 10000 && atomic_load(&w->rank[0].done) < 8; i++)
            nap(1);
        uint64_t t0 = hw_now();
        links("a", (1u << NICS) - 1, false);
        bool both = reaches(0, 3, 15000) && reaches(1, 3, 15000);
        ok(both && !atomic_load(&w->rank[0].rc) && !atomic_load(&w->rank[1].rc),
           "no NIC is left: both ranks get an error of NCCL's, %llu ms later (HAWSER_PEER_TIMEOUT_MS=%u)",
           (unsigned long long)((hw_now() - t0) / HW_MS), peer_ms);
        for (int i = 0; i < 2; i++)
            if (atomic_load(&w->rank[i].rc) || !w->sh.warn[i][0])
                diag("rank %d: %d %s; warned: %.300s", i, atomic_load(&w->rank[i].rc), w->rank[i].why, w->sh.warn[i]);
        ok(w->sh.warn[0][0] && w->sh.warn[1][0], "and say why: %.200s", w->sh.warn[0]);
    }
    reap();
    unsetenv("HAWSER_PEER_TIMEOUT_MS");
    unsetenv("HAWSER_KEEPALIVE_MS");
    links("a", (1u << NICS) - 1, true);
}

/* ---- successive faults ------------------------------------------------------------------------------ */

/* Duration of a fault, and of the pause before the next fault. The pause is 20 times as long with HAWSER_NCCL_NEAR. */
#define FAULT_MS 300

/* Starts or stops the loss of packets that the node sends on this NIC to known neighbours. No error reports the loss.
 */
static void lose_packets(const char *node, unsigned nic, bool lose)
{
    char script[256];
    int st;
    pid_t pid_sh;
    snprintf(script, sizeof(script),
             "for to in $(ip neigh show dev eth%u | cut -d' ' -f1); do ip neigh %s $to dev eth%u %s; done", nic,
             lose ? "replace" : "del", nic, lose ? "lladdr 02:00:00:00:00:01 nud permanent" : "");
    const char *argv[] = {"sh", "-c", script, NULL};
    if (hw_lab_spawn(lab, node, (char *const *)(uintptr_t)argv, -1, &pid_sh) || waitpid(pid_sh, &st, 0) != pid_sh || st)
        diag("%s eth%u: losing packets: %d: %s", node, nic, lose, hw_error());
}

static void take_link_down(const char *node, unsigned nic, bool down)
{
    links(node, 1u << nic, !down);
}

/* Watches both ranks for `ms`, and returns the longest time, in ms, for which a rank received no message. */
static unsigned watch_gap(unsigned ms)
{
    uint64_t last[2], longest = 0, end = hw_now() + ms * HW_MS;
    unsigned done[2];
    for (int i = 0; i < 2; i++) {
        last[i] = hw_now();
        done[i] = atomic_load(&w->rank[i].done);
    }
    for (uint64_t now = hw_now(); now < end; nap(1), now = hw_now())
        for (int i = 0; i < 2; i++) {
            unsigned n = atomic_load(&w->rank[i].done);
            if (n != done[i])
                last[i] = now;
            done[i] = n;
            longest = HW_MAX(longest, now - last[i]);
        }
    return (unsigned)(longest / HW_MS);
}

static int compare_gaps(const void *a, const void *b)
{
    return (int)*(const unsigned *)a - (int)*(const unsigned *)b;
}

static bool is_running(void)
{
    return atomic_load(&w->rank[0].state) == 1 && atomic_load(&w->rank[1].state) == 1;
}

static void measure_faults(unsigned n)
{
    static const struct {
        const char *what, *node;
        void (*set)(const char *node, unsigned nic, bool broken);
    } kinds[] = {{"no fault", "a", NULL},
                 {"link down at the sender of rank 0", "a", take_link_down},
                 {"link down at its receiver", "b", take_link_down},
                 {"packets lost from node a", "a", lose_packets},
                 {"packets lost from node b", "b", lose_packets}};
    unsigned *gap = calloc(n, sizeof(*gap));
    bool near = getenv("HAWSER_NCCL_NEAR") && strcmp(getenv("HAWSER_NCCL_NEAR"), "1") == 0;
    for (size_t k = 0; k < HW_ARRAY_LEN(kinds) && gap; k++) {
        unsigned i = 0;
        if (start(kinds[k].what, 1000000, false))
            for (; i < n && is_running(); i++) {
                unsigned nic = near ? 0 : i % NICS;
                if (kinds[k].set)
                    kinds[k].set(kinds[k].node, nic, true);
                gap[i] = watch_gap(FAULT_MS);
                if (kinds[k].set)
                    kinds[k].set(kinds[k].node, nic, false);
                /* This pause is also long enough to release spare NICs. */
                gap[i] = HW_MAX(gap[i], watch_gap(near ? 20 * FAULT_MS : FAULT_MS));
            }
        bool good = i == n && is_running();
        for (int r = 0; r < 2 && !good; r++)
            diag("rank %d: %d after %u messages: %s", r, atomic_load(&w->rank[r].rc), atomic_load(&w->rank[r].done),
                 w->rank[r].why);
        qsort(gap, i, sizeof(*gap), compare_gaps);
        ok(good, "%s: %u times, %u messages of 1 MiB, every byte right; longest pause: median %u, p99 %u, most %u ms",
           kinds[k].what, i, atomic_load(&w->rank[0].done) + atomic_load(&w->rank[1].done), i ? gap[i / 2] : 0,
           i ? gap[(i - 1) * 99 / 100] : 0, i ? gap[i - 1] : 0);
        for (int r = 0; r < 2; r++)
            if (pid[r])
                (void)kill(pid[r], SIGKILL);
        reap();
    }
    free(gap);
}

static int watched(unsigned faults)
{
    struct hw_lab_spec s = {.name = lab, .nodes = 2, .nics = NICS};
    for (unsigned i = 0; i < NICS; i++)
        s.rate[i] = faults ? 0 : RATE; /* unlimited with faults, because full queues lengthen round trips */
    int rc = hw_lab_up(&s);
    if (rc == -EPERM || rc == -EACCES)
        tap_skip_all("no lab is possible here: %s", hw_error());
    if (rc) {
        ok(false, "a lab: %s", hw_error());
        return tap_done();
    }
    w_fd = memfd_create("rails", 0);
    if (w_fd < 0 || ftruncate(w_fd, sizeof(*w)))
        return 1;
    w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED, w_fd, 0);
    if (w == MAP_FAILED)
        return 1;
    if (faults) {
        measure_faults(faults);
        return tap_done();
    }
    all_of_them();
    a_slow_one();
    dead("a NIC dies", "a", 1u << 1);
    dead("the first rail's NIC dies at the other end", "b", 1u << 0);
    last_rail_only();
    none_left();
    setenv("HAWSER_NCCL_NEAR", "1", 1);
    near_one();
    dead("the NIC of the device dies", "a", 1u << 0);
    dead("the NIC of the device dies at the other end", "b", 1u << 0);
    unsetenv("HAWSER_NCCL_NEAR");
    setenv("RAILS_READDRESS", "1", 1);
    if (start("node b gets other addresses after the init of rank 1", MESSAGES / 4, false))
        finish("node b gets other addresses after the init of rank 1");
    reap();
    unsetenv("RAILS_READDRESS");
    setenv("RAILS_IPV6", "1", 1);
    if (access("/proc/sys/net/ipv6", F_OK))
        diag("without IPv6 in the kernel, a node with both families and a node with IPv6 are not tested");
    else if (start("node a has both families, node b only IPv6", MESSAGES / 4, false))
        finish("node a has both families, node b only IPv6");
    reap();
    return tap_done();
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--rank") == 0)
        return rank_main(argv);
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (argc < 2 || argc > 3 || n < 0)
        return 2;
    plugin = argv[1];
    unsigned faults = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    snprintf(lab, sizeof(lab), "tn%d", (int)getpid());
    /* Run the test in a separate process, so that this process can always remove the lab. */
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(faults ? LIMIT_S + faults * 60 : LIMIT_S);
        exit(watched(faults));
    }
    int st = -1;
    while (child > 0 && waitpid(child, &st, 0) < 0 && errno == EINTR)
        ;
    (void)hw_lab_down(lab);
    if (child < 0 || !WIFEXITED(st)) {
        printf("Bail out! the test ended with status %#x\n", (unsigned)st);
        return 1;
    }
    return WEXITSTATUS(st);
}

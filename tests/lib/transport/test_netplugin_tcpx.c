/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a plugin that behaves like GPUDirect-TCPX: its required environment, window, handles and scattered receives.
 * Each failure of the plugin must cause an error that names the failure. */
#include "netplugin_pair.h"
#include "transport/netplugin/table/abi.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define STEERING      "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS"
#define STEERING_NONE "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=0"
#define STEERING_LONG "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=1500000"
/* Environments of the plugin. With WITH(), the plugin's accept() and connect() do not sleep. */
#define AWAKE(...) \
    ((const char *const[]){"NCCL_DYNAMIC_CHUNK_SIZE=524288", "TCPXLIKE_LOOPBACK=1", __VA_ARGS__ __VA_OPT__(, ) NULL})
#define WITH(...) AWAKE(STEERING_NONE, "TCPXLIKE_CONNECT_MICROS=0" __VA_OPT__(, ) __VA_ARGS__)

static struct np_host *open_with(const char *const *env, bool list)
{
    return open_host(TCPXLIKE, &(struct np_options){.env = env, .any_env = true, .list = list, .call_ms = 2000});
}

/* ---- the environment ------------------------------------------------------------------------ */

struct grades {
    int n[3];
    char bad[400];
};

static void count(void *arg, enum np_grade grade, const char *line)
{
    struct grades *g = arg;
    g->n[grade]++;
    if (grade == NP_BAD)
        snprintf(g->bad, sizeof(g->bad), "%s", line);
}

static void check_env(const char *what, int bad, int warned, const char *in_bad, const char *const *env)
{
    struct grades g = {0};
    int rc = np_check_env(np_quirk_of("GPUDirectTCPX_v7"), env, count, &g);
    ok(rc == bad && g.n[NP_BAD] == bad && g.n[NP_WARN] == warned && (!in_bad || strstr(g.bad, in_bad)), "%s", what);
    if (rc != bad || g.n[NP_WARN] != warned)
        diag("%d bad, %d warned of; the last bad one: %s", rc, g.n[NP_WARN], g.bad);
}

#define G           "NCCL_GPUDIRECTTCPX_"
#define IFNAME(nic) G "SOCKET_IFNAME=" nic

static void test_env(void)
{
    char dir[] = "/tmp/hawser-test-XXXXXX", prefix[128];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!mkdtemp(dir) || s < 0)
        exit(1);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/rx_rule_manager", dir);
    snprintf(prefix, sizeof(prefix), G "UNIX_CLIENT_PREFIX=%s", dir);
    ok(bind(s, (struct sockaddr *)&at, sizeof(at)) == 0, "a socket where the manager's would be");
    const char *chunk = "NCCL_DYNAMIC_CHUNK_SIZE=524288", *nic = IFNAME("lo"), *ctrl = G "CTRL_DEV=lo";
    const char *no_prefix = G "UNIX_CLIENT_PREFIX=/", *sync = G "RECV_SYNC=1";
    const char *no_nic = IFNAME("lo,nosuch0"), *path = IFNAME("../net/lo");

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
    check_env("all as it should be", 0, 0, NULL, ENV(chunk, prefix, nic, ctrl));
    check_env("NICs that are not named are warned of", 0, 2, NULL, ENV(chunk, prefix));
    check_env("no chunk size is bad", 1, 0, "NCCL_DYNAMIC_CHUNK_SIZE is not set", ENV(prefix, nic, ctrl));
    check_env("0 too", 1, 0, "524288", ENV("NCCL_DYNAMIC_CHUNK_SIZE=0", prefix, nic, ctrl));
    check_env("another one is warned of", 0, 1, NULL, ENV("NCCL_DYNAMIC_CHUNK_SIZE=65536", prefix, nic, ctrl));
    check_env("no manager is bad", 1, 0, "rx_rule_manager", ENV(chunk, no_prefix, nic, ctrl));
    check_env("a NIC that is not there is bad", 1, 0, "'nosuch0'", ENV(chunk, prefix, no_nic, ctrl));
    check_env("a path is no NIC", 1, 0, "'../net/lo'", ENV(chunk, prefix, path, ctrl));
    check_env("RECV_SYNC is warned of", 0, 1, NULL, ENV(chunk, prefix, nic, ctrl, sync));
    check_env("nothing at all", 2, 2, NULL, ENV("X=1"));
    is_int(np_check_env(np_quirk_of("AWS Libfabric"), ENV("X=1"), NULL, NULL), 0, "other plugins want nothing");

    struct np_host *h = NULL;
    is_int(np_open(TCPXLIKE, &(struct np_options){.env = ENV(prefix, "NCCL_DYNAMIC_CHUNK_SIZE=0")}, &h), -EINVAL,
           "a plugin whose environment is bad is refused");
    ok(strstr(hw_error(), "NCCL_DYNAMIC_CHUNK_SIZE") && strstr(hw_error(), "tcpxlike"), "%s", hw_error());
    is_int(np_open(TCPXLIKE, &(struct np_options){.env = ENV(prefix, chunk)}, &h), 0, "and with a good one opened");
    np_close(h);
    close(s);
    unlink(at.sun_path);
    rmdir(dir);
}

static void test_quirks(void)
{
    const struct np_quirk *tcpx = np_quirk_of("GPUDirectTCPX_v7"), *other = np_quirk_of("Socket");
    ok(tcpx->max_requests == 16 && tcpx->handle_bytes == 80, "TCPX's row");
    ok(np_quirk_of("FastSocket")->setup_threads, "fastsocket's row");
    ok(!other->max_requests && !other->setup_threads && !other->n_env, "the last row");
    is_int(np_quirk_size(tcpx, 65536), 4 << 20, "4 MiB with a large MTU");
    is_int(np_quirk_size(tcpx, 8244), 4 << 20, "and with a gVNIC's");
    is_int(np_quirk_size(tcpx, 5000), 2 << 20, "a packet of 5000 bytes may lie in three pages");
    is_int(np_quirk_size(tcpx, 1500), 1 << 20, "1 MiB with Ethernet's: 2048 fragments are the end");
    is_int(np_quirk_size(tcpx, 0), 512 << 10, "less with none at all");
    ok(np_quirk_size(other, 1500) == UINT32_MAX, "others have no such limit");
#define ENV_OF(...) ((const char *const[]){__VA_ARGS__, NULL})
    is_int(np_quirk_wait_ms(tcpx, ENV_OF("X=1")), 5000, "TCPX's accept() sleeps for 5 s");
    is_int(np_quirk_wait_ms(tcpx, ENV_OF(STEERING "=2000000")), 2001, "or what its variable says");
    is_int(np_quirk_wait_ms(tcpx, ENV_OF(STEERING "=long")), 5000, "which may be no number");
    is_int(np_quirk_wait_ms(tcpx, ENV_OF(STEERING "=99999999999999999999")), 5000, "or none that there is");
    is_int(np_quirk_wait_ms(other, ENV_OF(STEERING "=2000000")), 0, "others' do not sleep");
}

/* ---- behaving ------------------------------------------------------------------------------- */

/* Checks that the plugin's report lists no open objects. */
static void check_report(const char *file)
{
    char line[200] = "";
    FILE *f = fopen(file, "re");
    if (f) {
        (void)!fgets(line, sizeof(line), f);
        fclose(f);
    }
    line[strcspn(line, "\n")] = 0;
    ok(strstr(line, "listens=0 comms=0 registrations=0"), "the plugin was left with nothing open: %s", line);
    unlink(file);
}

static void test_works(bool scattered)
{
    char report[64], env[96];
    snprintf(report, sizeof(report), "/tmp/hawser-tcpx-%d", (int)getpid());
    snprintf(env, sizeof(env), "TCPXLIKE_REPORT=%s", report);
    struct np_host *h = open_with(
        WITH(env, scattered ? "TCPXLIKE_UNPACK_HOST=1" : "TCPXLIKE_UNPACK_HOST=0", "NCCL_NSOCKS_PERTHREAD=4"), false);
    struct np_props props;
    struct np_result r;
    struct pair p;
    ok(strcmp(np_info(h)->table, "GPUDirectTCPX_v7") == 0 && np_info(h)->version == 7, "TCPX's table");
    is_int(np_info(h)->window, 16, "its window");
    is_int(np_props(h, 0, &props), 0, "properties");
    ok(props.unpacks && props.max_size == 4 << 20, "it unpacks, 4 MiB at most");
    pair_open(&p, h, 0, 32 << 20);
    ok(pair_run(&p, 60, 100000, 1) == 0, "60 messages");
    ok(pair_run(&p, 20, 1 << 20, 2) == 0, "20 of 1 MiB");
    ok(pair_run(&p, 40, 777, 3) == 0, "40 of 777 bytes");
    ok(pair_run(&p, 5, 0, 4) == 0, "5 of none");
    is_int(np_isend(p.send, p.smr, 0, (4 << 20) + 1, 0, HW_NEVER), -EMSGSIZE, "4 MiB and a byte are refused");

    is_int(np_irecv(p.recv, p.rmr, 0, 50000, 0, HW_NEVER), 0, "a receive larger than its send");
    is_int(np_isend(p.send, p.smr, 0, 30000, 0, HW_NEVER), 0, "is sent to");
    is_int(np_wait(p.recv, hw_deadline(SOON), &r), 0, "it comes");
    if (scattered)
        ok(r.known && r.size == 30000 && r.frags > 1, "in %u fragments, whose sum is its size", r.frags);
    else
        ok(!r.known && r.size == 50000 && r.frags == 0, "and nobody says how large it was");
    is_int(np_wait(p.send, hw_deadline(SOON), &r), 0, "it went");

    unsigned n = 0;
    while (np_isend(p.send, p.smr, 0, 10, 0, HW_NEVER) == 0)
        n++;
    is_int(n, 16, "16 sends, and then -EAGAIN");
    is_int(np_consumed(p.recv), 0, "given back");
    pair_close(&p);
    ok(np_health(h) == 0 && no_report(h), "the child is well");
    np_close(h);
    check_report(report);
}

/* Tests receives that return their fragments without copying them, for callers that gather the fragments. */
static void test_list(void)
{
    struct np_host *h = open_with(WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_FRAG=1500"), true);
    static struct hw_frag frags[2048];
    static uint8_t seen[100000];
    struct np_result r;
    struct pair p;
    size_t n = 1;
    pair_open(&p, h, 0, 4 << 20);
    is_int(np_fragments(p.recv, frags, 2048, &n), -EINVAL, "nothing to be unpacked yet");
    for (int i = 0; i < 20; i++) {
        int rc = np_irecv(p.recv, p.rmr, 0, sizeof(seen), 0, HW_NEVER);
        if (rc == 0)
            rc = np_isend(p.send, p.smr, 0, sizeof(seen), 0, HW_NEVER);
        if (rc == 0)
            rc = np_wait(p.recv, hw_deadline(SOON), &r);
        if (rc == 0)
            rc = np_fragments(p.recv, frags, 2048, &n);
        memset(seen, 0, sizeof(seen));
        bool good = rc == 0 && n == r.frags && r.size == sizeof(seen);
        for (size_t f = 0; good && f < n; f++)
            for (uint64_t b = 0; b < frags[f].len; b++)
                seen[frags[f].dst_off + b]++;
        for (size_t b = 0; good && b < sizeof(seen); b++)
            good = seen[b] == 1;
        if (i == 0)
            is_int(np_fragments(p.recv, frags, n - 1, &n), -ENOSPC, "room for one less is too little");
        if (!good || np_consumed(p.recv) < 0 || np_wait(p.send, hw_deadline(SOON), &r) < 0) {
            ok(false, "receive %d: %zu fragments: %s", i, n, hw_error());
            break;
        }
    }
    ok(n > 66, "20 receives, each byte in one of some %zu fragments; more than the 16 that fit unless consumed", n);
    pair_close(&p);
    np_close(h);
}

/* ---- misbehaving ---------------------------------------------------------------------------- */

/* Checks that a fault ends the host if host_dies is true, and otherwise only the connection on which it occurs. */
static void check_fault(const char *fault, const char *mode, int want, const char *says, bool host_dies)
{
    char env[64];
    snprintf(env, sizeof(env), "TCPXLIKE_FAULT=%s", fault);
    struct np_host *h = open_with(WITH(env, mode), false);
    struct np_result r;
    struct pair p, q;
    const int ms = want == -ETIMEDOUT ? 500 : SOON;
    int rc = 0;
    pair_open(&p, h, 0, 1 << 20);
    pair_open(&q, h, 0, 1 << 20);
    for (int i = 0; rc == 0 && i < 4; i++) {
        rc = np_irecv(p.recv, p.rmr, 0, 5000, 0, hw_deadline(ms));
        if (rc == 0)
            rc = np_isend(p.send, p.smr, 0, 5000, 0, hw_deadline(ms));
        if (rc == 0)
            rc = np_wait(p.recv, hw_deadline(SOON), &r);
        if (rc == 0)
            rc = np_consumed(p.recv);
        if (rc == 0)
            rc = np_wait(p.send, hw_deadline(SOON), &r);
    }
    is_int(rc, want, fault);
    ok(strstr(hw_error(), says) && strstr(hw_error(), "tcpxlike"), "%s", hw_error());
    if (!host_dies) {
        ok(pair_run(&q, 5, 1000, 1) == 0, "another connection goes on");
        is_int(np_health(h), 0, "the host is well");
    } else {
        char out[4096];
        is_int(np_isend(q.send, q.smr, 0, 1, 0, HW_NEVER), want, "all of the host gives that error");
        ok(np_output(h, out, sizeof(out)) > 0 && strstr(out, "as tests have it"), "the plugin's output is kept");
    }
    pair_close(&p);
    pair_close(&q);
    np_close(h);
}

static void test_faults(void)
{
    check_fault("exit@5", "TCPXLIKE_UNPACK_HOST=1", -EIO, "exited with status 1", true);
    check_fault("die@4", "TCPXLIKE_UNPACK_HOST=1", -EIO, "SIGKILL", true);
    check_fault("crash@6", "TCPXLIKE_UNPACK_HOST=0", -EIO, "SIGSEGV", true);
    check_fault("nocmsg@3:recv", "TCPXLIKE_UNPACK_HOST=1", -EIO, "rx no cmsg", true);
    check_fault("error@3:recv", "TCPXLIKE_UNPACK_HOST=1", -EIO, "ncclInternalError", false);
    check_fault("stall@2:recv", "TCPXLIKE_UNPACK_HOST=1", -ETIMEDOUT, "irecv 1 of 5000 bytes", false);
    check_fault("stall@2:send", "TCPXLIKE_UNPACK_HOST=0", -ETIMEDOUT, "irecv 1 of 5000 bytes", false);
}

static void test_other_faults(void)
{
    struct np_host *h = NULL;
    struct np_options o = {.any_env = true, .open_ms = 300};
    uint8_t handle[NP_HANDLE_SIZE];
    struct np_listener *l;
    struct np_comm *c;
    struct np_mem *m;
    struct np_mr *mr;
    struct pair p;

    o.env = WITH("TCPXLIKE_FAULT=hang-init");
    is_int(np_open(TCPXLIKE, &o, &h), -ETIMEDOUT, "init hangs");
    ok(strstr(hw_error(), "in init"), "%s", hw_error());

    h = open_with(WITH("TCPXLIKE_FAULT=noaccept"), false);
    is_int(np_listen(h, 0, -1, handle, &l), 0, "a listener");
    uint64_t rest[6];
    memcpy(rest, handle + 80, sizeof(rest));
    ok(!(rest[0] | rest[1] | rest[2] | rest[3] | rest[4] | rest[5]), "whose handle has nothing behind byte 80");
    is_int(np_accept(l, hw_deadline(200), -1, &c), 0, "that accepts nobody");
    is_int(established(c), -ETIMEDOUT, "is given up");
    ok(strstr(hw_error(), "accept"), "%s", hw_error());
    is_int(np_listener_close(l), 0, "the listener first, which is allowed");
    is_int(np_comm_close(c), 0, "then the connection");
    np_close(h);

    h = open_with(WITH("TCPXLIKE_FAULT=slowaccept=300,slowconnect=200"), false);
    pair_open(&p, h, 0, 1 << 16);
    ok(pair_run(&p, 3, 3000, 1) == 0, "slow to connect, and that is all");
    pair_close(&p);
    np_close(h);

    h = open_with(WITH("TCPXLIKE_FAULT=fail-regmr"), false);
    p.event = -1;
    is_int(pair_make(&p, h, 0, 1 << 16), -EIO, "regMr fails");
    ok(strstr(hw_error(), "regMr"), "%s", hw_error());
    is_int(np_health(h), 0, "and the host is well");
    pair_unmake(&p);
    np_close(h);

    h = open_with(((const char *const[]){"NCCL_DYNAMIC_CHUNK_SIZE=524288", "TCPXLIKE_UNPACK_HOST=1",
                                         "TCPXLIKE_LOOPBACK=exit", STEERING_NONE, NULL}),
                  false);
    pair_open(&p, h, 0, 1 << 16);
    is_int(pair_run(&p, 1, 3000, 1), -1, "scattered receives from this machine itself");
    ok(np_health(h) == -EIO && strstr(hw_error(), "rx no cmsg"), "%s", hw_error());
    pair_close(&p);
    np_close(h);

    h = open_with(WITH("TCPXLIKE_UNPACK_HOST=1", "TCPXLIKE_OVERSIZE=deliver"), false);
    pair_open(&p, h, 0, 1 << 16);
    struct np_result r;
    is_int(np_irecv(p.recv, p.rmr, 0, 1000, 0, HW_NEVER), 0, "a receive smaller than its send");
    is_int(np_isend(p.send, p.smr, 0, 2000, 0, HW_NEVER), 0, "a send");
    is_int(np_wait(p.recv, hw_deadline(SOON), &r), -EMSGSIZE, "is refused, not written past its end");
    ok(strstr(hw_error(), "exceeds the 1000 bytes"), "%s", hw_error());
    is_int(np_mem_alloc(h, 1 << 16, &m), 0, "memory");
    is_int(np_reg(p.send, m, 100, 1 << 12, &mr), -EINVAL, "not aligned as TCPX wants it");
    is_int(np_mem_free(m), 0, "freed");
    pair_close(&p);
    np_close(h);
}

/* ---- sleeping ------------------------------------------------------------------------------- */

#define PAIRS 6

/* Tests that connections are established in parallel while an established connection continues to transfer data. */
static void test_sleeps(void)
{
    struct np_host *h = open_with(AWAKE(STEERING_LONG, "TCPXLIKE_CONNECT_MICROS=300000"), false);
    struct np_listener *l[PAIRS];
    struct np_comm *send[PAIRS], *recv[PAIRS];
    uint8_t handle[NP_HANDLE_SIZE];
    unsigned rounds = 0, up = 0;
    struct pair p;
    is_int(np_info(h)->wait_ms, 1501, "the host knows how long accept() sleeps");
    pair_open(&p, h, 0, 1 << 20);
    const uint64_t since = hw_now();
    for (int i = 0; i < PAIRS; i++) {
        bool good = np_listen(h, 0, -1, handle, &l[i]) == 0 &&
                    np_connect(h, 0, -1, handle, hw_deadline(SOON), -1, &send[i]) == 0 &&
                    np_accept(l[i], hw_deadline(SOON), -1, &recv[i]) == 0;
        if (!good) {
            printf("Bail out! %s\n", hw_error());
            exit(1);
        }
    }
    ok(hw_now() - since < 1400 * HW_MS, "nobody waits for the calls that sleep");
    while (up < PAIRS && hw_now() - since < SOON * HW_MS) {
        up = 0;
        for (int i = 0; i < PAIRS; i++)
            up += np_established(send[i]) == 0 && np_established(recv[i]) == 0;
        rounds += pair_run(&p, 5, 10000, 1) == 0;
    }
    const uint64_t ms = (hw_now() - since) / HW_MS;
    ok(up == PAIRS && ms >= 1500 && ms < PAIRS * 1500 / 2, "%d connections in %llu ms", PAIRS, (unsigned long long)ms);
    ok(rounds > 3, "another one ran %u times meanwhile", rounds);
    for (int i = 0; i < PAIRS; i++) {
        np_comm_close(send[i]);
        np_comm_close(recv[i]);
        np_listener_close(l[i]);
    }
    ok(np_health(h) == 0 && no_report(h), "the child is well");
    pair_close(&p);
    np_close(h);

    h = open_host(TCPXLIKE,
                  &(struct np_options){.env = WITH("TCPXLIKE_UNPACK_HOST=1"), .any_env = true, .one_thread = true});
    pair_open(&p, h, 0, 1 << 20);
    ok(pair_run(&p, 5, 10000, 1) == 0, "with one thread for a plugin that is not safe for more");
    pair_close(&p);
    np_close(h);
}

/* Tests that an exit or a hang in the thread of a connection is reported like an exit or a hang elsewhere. */
static void test_bad_sleep(const char *fault, int want, const char *says)
{
    struct np_host *h = open_host(TCPXLIKE, &(struct np_options){.env = WITH(fault), .any_env = true, .call_ms = 700});
    struct pair p = {.event = -1};
    int rc = pair_make(&p, h, 0, 1 << 16);
    is_int(rc, want, fault);
    ok(strstr(hw_error(), says), "%s", hw_error());
    pair_unmake(&p);
    np_close(h);
}

/* Tests that a listener is not closed at the end while accept() still uses it in another thread. */
static void test_end_in_sleep(void)
{
    char trap[64], env[96];
    snprintf(trap, sizeof(trap), "/tmp/hawser-tcpx-trap-%d", (int)getpid());
    snprintf(env, sizeof(env), "TCPXLIKE_TRAP=%s", trap);
    struct np_host *h = open_with(AWAKE(STEERING_LONG, "TCPXLIKE_CONNECT_MICROS=0", env), false);
    uint8_t handle[NP_HANDLE_SIZE];
    struct np_listener *l;
    struct np_comm *send, *recv;
    is_int(np_listen(h, 0, -1, handle, &l), 0, "a listener");
    is_int(np_connect(h, 0, -1, handle, hw_deadline(SOON), -1, &send), 0, "a connection to it");
    is_int(np_accept(l, hw_deadline(SOON), -1, &recv), 0, "is being accepted");
    (void)usleep(500000);
    np_close(h);
    ok(access(trap, F_OK) < 0, "the listener is not closed meanwhile");
    unlink(trap);
}

int main(void)
{
    const int fds = proc_entries("/proc/self/fd");
    test_quirks();
    test_env();
    test_works(false);
    test_works(true);
    test_list();
    test_faults();
    test_other_faults();
    test_sleeps();
    test_end_in_sleep();
    test_bad_sleep("TCPXLIKE_FAULT=exit-accept", -EIO, "exited with status 1 in accept");
    test_bad_sleep("TCPXLIKE_FAULT=hang-accept", -ETIMEDOUT, "hung for 701 ms in accept and was ended");
    is_int(proc_entries("/proc/self/fd"), fds, "no descriptor is left open");
    is_int(children(), 0, "and no child, living or dead");
    return tap_done();
}

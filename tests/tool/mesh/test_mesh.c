/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parts of `hawser mesh` that need no network: parsing of the launchers' variables and of host lists, the
 * schedule, messages, JSON lines, findings that need no statistics, and the comparison with a baseline. */
#include "tests/tap.h"

#include "tool/launch/launch_env.h"
#include "tool/mesh/judge/mesh_plan.h"
#include "tool/mesh/show/mesh_json.h"
#include "tool/mesh/show/mesh_out.h"

#include <math.h>

/* ---- variables ---------------------------------------------------------------------------------- */

#define VARS 12
struct env_case {
    const char *what, *vars[VARS];
    int rc;
    const char *launcher, *meet, *name, *rack;
    uint32_t rank, size, names;
    uint16_t port; /* 0: any of the ports for jobs is correct */
};

static const struct env_case cases[] = {
    {"nothing", {"PATH=/bin"}, -ENOENT, NULL, NULL, NULL, NULL, 0, 0, 0, 0},
    {"our own",
     {"HAWSER_MESH_RANK=2", "HAWSER_MESH_SIZE=3", "HAWSER_MESH_MEET=head:4000", "HAWSER_MESH_NAME=n2",
      "HAWSER_MESH_RACK=r1"},
     0,
     "hawser",
     "head",
     "n2",
     "r1",
     2,
     3,
     0,
     4000},
    {"our own, with names",
     {"HAWSER_MESH_RANK=0", "HAWSER_MESH_SIZE=2", "HAWSER_MESH_MEET=head", "HAWSER_MESH_NAMES=x,y"},
     0,
     "hawser",
     "head",
     "",
     "",
     0,
     2,
     2,
     LAUNCH_PORT},
    {"our own, a name too few",
     {"HAWSER_MESH_RANK=0", "HAWSER_MESH_SIZE=3", "HAWSER_MESH_MEET=head", "HAWSER_MESH_NAMES=x,y"},
     -EINVAL,
     NULL,
     NULL,
     NULL,
     NULL,
     0,
     0,
     0,
     0},
    {"our own, no place", {"HAWSER_MESH_RANK=0", "HAWSER_MESH_SIZE=2"}, -EINVAL, NULL, NULL, NULL, NULL, 0, 0, 0, 0},
    {"our own, a rank too high",
     {"HAWSER_MESH_RANK=2", "HAWSER_MESH_SIZE=2", "HAWSER_MESH_MEET=h"},
     -EINVAL,
     NULL,
     NULL,
     NULL,
     NULL,
     0,
     0,
     0,
     0},
    {"torchrun",
     {"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "LOCAL_RANK=0",
      "TORCHELASTIC_RUN_ID=none"},
     0,
     "torchrun",
     "10.0.0.1",
     "",
     "",
     1,
     4,
     0,
     0},
    {"torchrun within srun",
     {"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=10.0.0.1", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_NODELIST=a"},
     0,
     "torchrun",
     "10.0.0.1",
     "",
     "",
     1,
     4,
     0,
     0},
    {"srun",
     {"SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST=node[08-10],login",
      "SLURMD_NODENAME=login", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_TOPOLOGY_ADDR=spine0.leaf1.login"},
     0,
     "slurm",
     "node08",
     "login",
     "spine0.leaf1",
     3,
     4,
     4,
     0},
    {"srun, two ranks a node",
     {"SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TOPOLOGY_ADDR=n2"},
     0,
     "slurm",
     "n1",
     "",
     "",
     3,
     4,
     0,
     0},
    {"a batch script without srun", {"SLURM_PROCID=0"}, -EINVAL, NULL, NULL, NULL, NULL, 0, 0, 0, 0},
    {"mpirun",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=123", "PMIX_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=1"},
     0,
     "openmpi",
     "",
     "",
     "",
     1,
     2,
     0,
     0},
    {"mpirun within salloc",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=9", "PMIX_NAMESPACE=1"},
     0,
     "openmpi",
     "",
     "",
     "",
     1,
     2,
     0,
     0},
    {"mpirun on one host",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     0,
     "openmpi",
     "127.0.0.1",
     "",
     "",
     1,
     2,
     0,
     LAUNCH_PORT},
    {"a place by hand beats PMIx",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "HAWSER_MESH_MEET=[fd00::1]:77"},
     0,
     "openmpi",
     "fd00::1",
     "",
     "",
     1,
     2,
     0,
     77},
    {"PMIx alone", {"PMIX_RANK=5", "PMIX_NAMESPACE=job.1"}, 0, "pmix", "", "", "", 5, 0, 0, 0},
    {"nonsense for a number",
     {"RANK=one", "WORLD_SIZE=4", "MASTER_ADDR=h"},
     -EINVAL,
     NULL,
     NULL,
     NULL,
     NULL,
     0,
     0,
     0,
     0},
};

static void test_env(void)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(cases); i++) {
        const struct env_case *c = &cases[i];
        struct launch_seat s;
        int rc = launch_env(c->vars, &s);
        bool good = rc == c->rc;
        if (good && rc == 0)
            good = strcmp(s.launcher, c->launcher) == 0 && strcmp(s.meet, c->meet) == 0 &&
                   strcmp(s.name, c->name) == 0 && strcmp(s.rack, c->rack) == 0 && s.rank == c->rank &&
                   s.size == c->size && s.n_names == c->names &&
                   (c->port ? s.port == c->port : s.port >= LAUNCH_PORT && s.port < 32768);
        if (!ok(good, "variables: %s", c->what))
            diag("%d (%s): %s, meet '%s' port %u, name '%s', rack '%s', rank %u of %u, %u names", rc,
                 rc < 0 ? hw_error() : "", s.launcher, s.meet, s.port, s.name, s.rack, s.rank, s.size, s.n_names);
        launch_seat_free(&s);
    }
}

/* Tests that the error message describes the fault in HAWSER_MESH_NAMES. */
static void test_names(void)
{
    static const char *const bad[][2] = {{"HAWSER_MESH_NAMES=n[1-2", "HAWSER_MESH_NAMES: 'n[1-2' has an unclosed"},
                                         {"HAWSER_MESH_NAMES=n[1-5000]", "HAWSER_MESH_NAMES: too many hosts"},
                                         {"HAWSER_MESH_NAMES=a,b,c", "must list exactly HAWSER_MESH_SIZE (2) names"}};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        const char *const vars[] = {"HAWSER_MESH_RANK=0", "HAWSER_MESH_SIZE=2", "HAWSER_MESH_MEET=h", bad[i][0], NULL};
        struct launch_seat s;
        int rc = launch_env(vars, &s);
        ok(rc < 0 && strstr(hw_error(), bad[i][1]), "%s: %s", bad[i][0], hw_error());
        launch_seat_free(&s);
    }
}

static void test_nodelist(void)
{
    static const struct {
        const char *text, *want; /* NULL: refused */
    } lists[] = {{"a", "a"},
                 {"a,b", "a,b"},
                 {"n[1-3]", "n1,n2,n3"},
                 {"n[08-11,2],x", "n08,n09,n10,n11,n2,x"},
                 {"r[1-2]n[3-4]-ib", "r1n3-ib,r1n4-ib,r2n3-ib,r2n4-ib"},
                 {"", NULL},
                 {"n[1-", NULL},
                 {"n[3-1]", NULL},
                 {"n[a]", NULL},
                 {"n[1-5000]", NULL},
                 {"a,,b", NULL},
                 {"n[1,]", NULL}};
    for (size_t i = 0; i < HW_ARRAY_LEN(lists); i++) {
        char **names = NULL, got[256] = "";
        uint32_t n = 0;
        int rc = launch_nodelist(lists[i].text, &names, &n);
        for (uint32_t k = 0; rc == 0 && k < n; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", k ? "," : "", names[k]);
        ok(lists[i].want ? rc == 0 && strcmp(got, lists[i].want) == 0 : rc < 0, "list of hosts '%s': '%s'",
           lists[i].text, got);
        launch_names_free(names, n);
    }
}

/* ---- the schedule --------------------------------------------------------------------------------- */

static void test_plan(uint32_t n)
{
    struct mesh_pair *p = calloc(n / 2 + 1, sizeof *p);
    bool *met = calloc((size_t)n * n, sizeof *met), *busy = calloc(n, sizeof *busy);
    uint32_t *asks = calloc(n, sizeof *asks);
    bool once = true, alone = true;
    size_t all = 0;
    for (uint32_t r = 0; r < mesh_rounds(n); r++) {
        size_t k = mesh_round(n, r, p);
        memset(busy, 0, n * sizeof *busy);
        for (size_t i = 0; i < k; i++) {
            const uint32_t a = p[i].a, b = p[i].b;
            alone = alone && a < n && b < n && a != b && !busy[a] && !busy[b];
            once = once && !met[(size_t)a * n + b] && !met[(size_t)b * n + a];
            busy[a] = busy[b] = met[(size_t)a * n + b] = true;
            asks[a]++;
            all++;
        }
    }
    uint32_t least = n, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        least = HW_MIN(least, asks[i]);
        most = HW_MAX(most, asks[i]);
    }
    ok(once && alone && all == (size_t)n * (n - 1) / 2, "%u nodes: every pair once, no node in two pairs of a round",
       n);
    ok(n < 2 || most - least <= 2 + n / 8, "%u nodes: a node asks in about half of its pairs (%u to %u of %u)", n,
       least, most, n - 1);
    free(p);
    free(met);
    free(busy);
    free(asks);
}

static void test_disjoint(void)
{
    struct mesh_pair todo[] = {{0, 1}, {0, 2}, {3, 4}, {1, 2}, {4, 5}}, out[8];
    size_t n = HW_ARRAY_LEN(todo);
    is_int(mesh_take_disjoint(todo, &n, 6, out, 8), 2, "pairs that share no node are taken");
    ok(n == 3 && todo[0].b == 2 && todo[2].a == 4 && out[1].a == 3, "the others stay, in their order");
    is_int(mesh_take_disjoint(todo, &n, 6, out, 1), 1, "no more than there is room for");
}

/* ---- messages and files ----------------------------------------------------------------------------- */

static void test_messages(void)
{
    uint8_t buf[MESH_MESSAGE];
    struct mesh_message
        m = {.type = MESH_ORDER,
             .order = {.seq = 3, .what = MESH_RAILS, .size = 1, .depth = 1, .duration_ms = 5, .n_targets = 1}},
        got;
    snprintf(m.order.target[0].addr, sizeof m.order.target[0].addr, "10.0.0.1");
    m.order.target[0].port = 7;
    int len = mesh_encode(&m, buf);
    ok(len > 0 && mesh_decode(buf, (size_t)len, &got) == 0 && memcmp(&got.order, &m.order, sizeof got.order) == 0,
       "an order comes through");
    ok(mesh_decode(buf, (size_t)len - 1, &got) == -EPROTO, "one that is cut is refused");
    buf[4] = MESH_VERSION + 1;
    ok(mesh_decode(buf, (size_t)len, &got) == -EPROTO, "one of another version too");
    m.order.target[0].port = 0;
    ok(mesh_encode(&m, buf) == -EINVAL, "one without a port is not sent");
    m = (struct mesh_message){.type = MESH_HELLO, .hello = {.rank = 4, .size = 4, .name = "a", .addr = "b", .port = 1}};
    ok(mesh_encode(&m, buf) == -EINVAL, "nor a rank beyond the size");
}

static void add(struct mesh *m, uint16_t from, uint16_t to, enum mesh_kind kind, uint8_t nic, double v)
{
    const struct mesh_sample s = {from, to, (uint8_t)kind, nic, nic, (float)v};
    if (mesh_add(m, &s) < 0)
        exit(99);
}

/* Creates six identical nodes with two NICs each. */
static void make_cluster(struct mesh *m)
{
    if (mesh_init(m, 6) < 0)
        exit(99);
    for (uint16_t i = 0; i < 6; i++) {
        snprintf(m->node[i].name, MESH_NAME, "node%u", i);
        snprintf(m->node[i].version, sizeof m->node[i].version, "1.0.0");
        (void)mesh_nic(&m->node[i], "eth0");
        (void)mesh_nic(&m->node[i], "eth1");
        for (unsigned k = 0; k < 2; k++) {
            m->node[i].nic[k].speed = 100000;
            m->node[i].nic[k].mtu = 9000;
        }
        for (uint16_t j = 0; j < 6; j++) {
            if (i == j)
                continue;
            add(m, i, j, MESH_K_WAY, MESH_ALL, 20);
            add(m, i, j, MESH_K_LATENCY, MESH_ALL, 10);
            for (uint8_t k = 0; k < 2; k++) {
                add(m, i, j, MESH_K_WAY, k, 10);
                add(m, i, j, MESH_K_RAIL, k, 10);
            }
        }
    }
}

/* Checks that there is exactly one finding and that it contains this text, or, if the text is "", that there are no
 * findings. */
static void expect(struct mesh *m, const char *want, const char *what)
{
    struct mesh_findings f;
    char text[512] = "";
    int rc = mesh_judge(m, &f);
    if (rc == 0 && f.n)
        mesh_say(m, &f.f[0], text, sizeof text);
    if (!ok(rc == 0 && f.n == (*want != 0) && strstr(text, want), "%s: %s", what, text))
        diag("%zu findings", f.n);
    mesh_findings_free(&f);
}

static void test_facts(void)
{
    struct mesh m;
    make_cluster(&m);
    expect(&m, "", "a cluster that is well");
    m.node[2].nic[1].speed = 25000;
    expect(&m, "node2 eth1 runs at 25000 Mbit/s, while most others run at 100000", "a NIC that runs slowly");
    m.node[2].nic[1].speed = 100000;
    m.node[3].nic[0].mtu = 1500;
    expect(&m, "node3 eth0 has an MTU of 1500, while most others have 9000", "an MTU");
    m.node[3].nic[0].mtu = 9000;
    m.node[4].nic[1].rx_errors = 500;
    expect(&m, "node4 eth1 counted 500 errors", "errors");
    m.node[4].nic[1].rx_errors = 0;
    snprintf(m.node[5].version, sizeof m.node[5].version, "0.9");
    expect(&m, "node5 has hawser 0.9", "another version");
    snprintf(m.node[5].version, sizeof m.node[5].version, "1.0.0");
    (void)mesh_add_fault(&m, 1, 2, 77, "");
    expect(&m, "node1 and node2: 77 bytes arrived with wrong contents", "wrong bytes");
    (void)mesh_add_fault(&m, 2, 1, 3, "");
    (void)mesh_add_fault(&m, 1, 2, 20, "");
    expect(&m, "node1 and node2: 100 bytes arrived with wrong contents",
           "wrong bytes of one pair in three measurements");
    m.n_faults = 0;
    (void)mesh_add_fault(&m, 1, 2, 0, "no route");
    (void)mesh_add_fault(&m, 2, 1, 0, "no route");
    expect(&m, "node1 and node2: a transfer failed: no route", "a pair that fails");
    const struct mesh_sample worked = {2, 1, MESH_K_WAY, MESH_ALL, MESH_ALL, 3};
    (void)mesh_add_again(&m, &worked);
    expect(&m, "", "one that failed once only");
    m.n_faults = m.n_again = 0;
    m.node[1].state = MESH_ABSENT;
    expect(&m, "node1 never arrived", "a node that never came");
    m.node[1].state = MESH_WELL;
    for (size_t i = 0; i < m.n_samples; i++)
        if (m.sample[i].nic == 1 && m.sample[i].kind != MESH_K_LATENCY &&
            (m.sample[i].from == 3 || m.sample[i].to == 3))
            m.sample[i].value = 0;
    expect(&m, "node3 eth1 carries nothing, unlike eth1 on most other nodes", "a NIC that carries nothing");
    const struct mesh_sample repeated = {3, 4, MESH_K_RAIL, 1, 1, 3};
    (void)mesh_add_again(&m, &repeated);
    expect(&m, "", "one that carries something when it is measured alone");
    m.n_again = 0;
    for (size_t i = 0; i < m.n_samples; i++)
        if (m.sample[i].kind == MESH_K_WAY && (m.sample[i].from == 3 || m.sample[i].to == 3) && m.sample[i].from != 1 &&
            m.sample[i].to != 1)
            m.sample[i].value = 0;
    expect(&m, "", "one that carried nothing with a single peer");
    mesh_free(&m);
}

static void test_cut_off(void)
{
    struct mesh m;
    struct mesh_findings f = {0};
    char text[512] = "";
    make_cluster(&m);
    for (size_t i = 0; i < m.n_samples; i++)
        if (m.sample[i].from == 3 || m.sample[i].to == 3)
            m.sample[i].value = 0;
    m.node[5].state = MESH_DIED;
    (void)mesh_add_fault(&m, 3, 5, 0, "node5 died");
    (void)mesh_add_fault(&m, 3, 1, 77, "");
    (void)mesh_add_fault(&m, 3, 1, 0, "no route");
    (void)mesh_add_fault(&m, 3, 2, 0, "no route");
    int rc = mesh_judge_facts(&m, &f);
    for (size_t i = 0; i < f.n; i++)
        if (f.f[i].what == MESH_F_CUT)
            mesh_say(&m, &f.f[i], text, sizeof text);
    ok(rc == 0 && strcmp(text, "node3 answers, but no transfer with it worked: no route") == 0,
       "the reason for a node without transfers is that of a failure: %s", text);
    mesh_findings_free(&f);
    mesh_free(&m);
}

static bool are_alike(const struct mesh *a, const struct mesh *b)
{
    for (size_t i = 0; i < a->n_samples; i++) {
        const struct mesh_sample *x = &a->sample[i], *y = &b->sample[i];
        if (x->from != y->from || x->to != y->to || x->kind != y->kind || x->nic != y->nic || x->to_nic != y->to_nic ||
            x->value != y->value)
            return false;
    }
    return true;
}

static void test_files(void)
{
    struct mesh m, got;
    struct mesh_findings f;
    make_cluster(&m);
    snprintf(m.node[1].rack, MESH_NAME, "r1");
    (void)mesh_add_fault(&m, 1, 2, 0, "a \"reason\"");
    const struct mesh_sample again = {1, 2, MESH_K_RAIL, 1, 0, 5};
    (void)mesh_add_again(&m, &again);
    (void)mesh_judge(&m, &f);
    FILE *t = tmpfile();
    ok(t && mesh_write(&m, &f, t) == 0, "a mesh is written");
    rewind(t);
    ok(mesh_read(t, "t", &got) == 0 && got.n == 6 && got.n_samples == m.n_samples && got.n_again == 1 &&
           got.n_faults == 1,
       "and read: %s", hw_error());
    ok(strcmp(got.node[1].rack, "r1") == 0 && got.node[3].nic[1].speed == 100000 &&
           strcmp(got.fault[0].text, "a \"reason\"") == 0 && got.again[0].nic == 1 && got.again[0].to_nic == 0 &&
           are_alike(&got, &m),
       "all of it");
    fclose(t);
    mesh_findings_free(&f);
    struct mesh_findings changed = {0};
    ok(mesh_compare(&got, &m, &changed) == 0 && changed.n == 0, "it is as its baseline");
    for (size_t i = 0; i < got.n_samples; i++)
        if (got.sample[i].kind == MESH_K_WAY && (got.sample[i].from == 4 || got.sample[i].to == 4))
            got.sample[i].value /= 2.0f;
    ok(mesh_compare(&got, &m, &changed) == 0 && changed.n == 1 && changed.f[0].node == 4 &&
           fabs(changed.f[0].ratio - 0.5) < 0.01,
       "a node that is slower than it was");
    mesh_findings_free(&changed);
    for (size_t i = 0; i < got.n_samples; i++)
        got.sample[i].value = m.sample[i].value * (got.sample[i].kind == MESH_K_LATENCY ? 2.0f : 1.0f);
    ok(mesh_compare(&got, &m, &changed) == 0 && changed.n == 1 && changed.f[0].node < 0,
       "all latencies longer than they were");
    mesh_findings_free(&changed);
    mesh_free(&got);
    mesh_free(&m);
}

static void test_bad_files(void)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[1]",
        "{\"type\":\"node\",\"node\":0}",
        "{\"type\":\"sample\",\"kind\":\"one way\",\"from\":0,\"to\":1}",
        "{\"type\":\"run\",\"schema\":\"other\",\"nodes\":1}",
        "{\"type\":\"run\",\"schema\":\"hawser-mesh-1\",\"nodes\":5000}",
        "{\"type\":\"run\",\"schema\":\"hawser-mesh-1\",\"nodes\":2}",
        "{\"type\":\"run\",\"schema\":\"hawser-mesh-1\",\"nodes\":1}\n{\"type\":\"node\",\"node\":1,\"name\":\"a\","
        "\"state\":\"well\"}",
        "{\"type\":\"run\",\"schema\":\"hawser-mesh-1\",\"nodes\":1}\n{\"type\":\"node\",\"node\":0,\"name\":\"a\","
        "\"state\":\"odd\"}",
        "{\"type\":\"run\",\"schema\":\"hawser-mesh-1\",\"nodes\":1}\n{\"type\":\"node\",\"node\":0,\"name\":\"a\","
        "\"state\":\"well\"}\n"
        "{\"type\":\"sample\",\"kind\":\"one way\",\"from\":0,\"to\":0,\"GBps\":1}",
    };
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        struct mesh m;
        FILE *t = fmemopen((void *)(uintptr_t)bad[i], HW_MAX(strlen(bad[i]), 1u), "r");
        ok(t && mesh_read(t, "t", &m) < 0, "refused: %.60s", bad[i]);
        if (t)
            fclose(t);
        mesh_free(&m);
    }
}

int main(void)
{
    static const uint32_t sizes[] = {2, 3, 4, 5, 8, 9, 64, 65, 1000};
    test_env();
    test_names();
    test_nodelist();
    for (size_t i = 0; i < HW_ARRAY_LEN(sizes); i++)
        test_plan(sizes[i]);
    test_disjoint();
    test_messages();
    test_facts();
    test_cut_off();
    test_files();
    test_bad_files();
    return tap_done();
}

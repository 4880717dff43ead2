/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of node/ and of lib/net's sysfs reader: files under a root, PCI distances, four nodes as fixtures, damaged
 * files, and the guarantees of plans. */
#include "net/sysfs.h"
#include "node/plan.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char tmp[64];

static void put(const char *path, const char *bytes, size_t n)
{
    char full[512];
    snprintf(full, sizeof(full), "%s/%s", tmp, path);
    unlink(full);
    FILE *f = fopen(full, "w");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        printf("Bail out! %s cannot be written\n", full);
        exit(1);
    }
}

/* Runs `program options a b` and waits until it exits. b may be NULL. */
static void command(const char *program, const char *options, const char *a, const char *b)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execlp(program, program, options, a, b, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        printf("Bail out! %s failed\n", program);
        exit(1);
    }
}

static int scan(struct hw_node *n, const char *dir)
{
    const struct hw_scan opt = {0};
    int root = hw_root_open(dir), rc = root < 0 ? root : hw_node_scan(n, root, &opt);
    if (root < 0)
        *n = (struct hw_node){0};
    hw_close(&root);
    return rc;
}

static int fixture(struct hw_node *n, const char *name)
{
    char dir[512];
    snprintf(dir, sizeof(dir), TEST_DATA "/nodes/%s", name);
    return scan(n, dir);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void files(void)
{
    char b[64], full[512];
    int64_t i = 77;
    uint64_t u = 77;
    struct hw_names l;
    int root = hw_root_open(tmp);
    put("text", "  two words\n\n", 13);
    put("empty", "", 0);
    put("blank", " \n\t\n", 4);
    put("nul", "a\0b\n", 4);
    put("hex", "0x00ff\n", 7);
    put("minus", "-1\n", 3);
    put("huge", "18446744073709551616\n", 21);
    put("long", "0123456789012345678901234567890123456789012345678901234567890123456789", 70);
    snprintf(full, sizeof(full), "%s/fifo", tmp);
    mkfifo(full, 0600);
    snprintf(full, sizeof(full), "%s/out", tmp);
    ok(symlink("/etc/passwd", full) == 0, "an absolute link can be made");
    snprintf(full, sizeof(full), "%s/up", tmp);
    ok(symlink("../../../../../../../../etc/passwd", full) == 0, "and one that climbs");
    snprintf(full, sizeof(full), "%s/loop", tmp);
    ok(symlink("loop", full) == 0, "and one to itself");
    is_int(hw_root_text(root, b, sizeof(b), "te%s", "xt"), 9, "a text is trimmed");
    is_str(b, "two words", "and otherwise as it is");
    is_int(hw_root_text(root, b, sizeof(b), "empty"), -ENODATA, "an empty file");
    is_int(hw_root_text(root, b, sizeof(b), "blank"), -ENODATA, "a blank file");
    is_int(hw_root_text(root, b, sizeof(b), "nul"), -EINVAL, "a file that is no text");
    is_int(hw_root_text(root, b, sizeof(b), "long"), -E2BIG, "a file larger than the buffer");
    is_int(hw_root_text(root, b, sizeof(b), "fifo"), -EINVAL, "a FIFO does not hang");
    is_int(hw_root_text(root, b, sizeof(b), "."), -EINVAL, "a folder");
    is_int(hw_root_text(root, b, sizeof(b), "loop"), -ELOOP, "a link to itself");
    is_int(hw_root_text(root, b, sizeof(b), "nothing"), -ENOENT, "what is not there");
    ok(strstr(hw_error(), "nothing"), "an error names the file: %s", hw_error());
    is_int(hw_root_text(root, b, sizeof(b), "out"), -ENOENT, "an absolute link stays within the root");
    is_int(hw_root_text(root, b, sizeof(b), "up"), -ENOENT, "so does one that climbs");
    is_int(hw_root_u64(root, &u, "hex"), 0, "a number in hexadecimal");
    is_int(u, 255, "is read");
    is_int(hw_root_i64(root, &i, "minus"), 0, "a negative number");
    is_int(i, -1, "is read");
    is_int(hw_root_u64(root, &u, "minus"), -EINVAL, "but not where there can be none");
    is_int(hw_root_u64(root, &u, "huge"), -EINVAL, "2^64 is too large");
    is_int(hw_root_u64(root, &u, "text"), -EINVAL, "words are no number");
    is_int(u, 255, "what is refused leaves the output alone");
    is_int(hw_root_link_name(root, b, sizeof(b), "out"), 6, "a link's last part");
    is_str(b, "passwd", "is a name");
    is_int(hw_root_link(root, b, sizeof(b), "text"), -EINVAL, "a file is no link");
    is_int(hw_root_list(root, &l, "."), 0, "a folder is listed");
    is_int(l.n, 12, "with all that is in it");
    hw_names_free(&l);
    is_int(hw_root_list(root, &l, "text"), -ENOTDIR, "a file is no folder");
    hw_names_free(&l);
    memset(full, 'x', sizeof(full) - 1);
    full[sizeof(full) - 1] = 0;
    is_int(hw_root_text(root, b, sizeof(b), "%s%s%s%s%s%s%s%s%s", full, full, full, full, full, full, full, full, full),
           -ENAMETOOLONG, "a path that is too long");
    hw_close(&root);
    is_int(hw_root_open("/nonexistent"), -ENOENT, "a root that is not there");
    struct hw_node n;
    is_int(scan(&n, tmp), -ENOENT, "a folder without sys is no machine");
    hw_node_free(&n);
}

static void parsers(void)
{
    cpu_set_t set;
    size_t count = 0;
    uint64_t number;
    ok(hw_text_u64("0XfF", &number) == 0 && number == 255 && hw_text_u64("0x0X5", &number) == -EINVAL &&
           hw_text_u64("0X0x5", &number) == -EINVAL,
       "a hexadecimal number has one 0x");
    ok(hw_text_cpulist("0-3,8,4095-4096", &set, &count) == 0 && count == 7 && CPU_COUNT(&set) == 5 &&
           CPU_ISSET(8, &set),
       "a list of CPUs, with some beyond what a cpu_set_t holds");
    static const char *const bad_cpus[] = {"", "a", "1-", "-1", "3-1", "1,", ",1", "1,1", "0-3,2", "1 2", "99999999"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad_cpus); i++)
        is_int(hw_text_cpulist(bad_cpus[i], &set, &count), -EINVAL, bad_cpus[i]);
    struct hw_bdf b;
    char text[HW_BDF_TEXT];
    ok(hw_bdf_parse("00000000:8A:1f.7", &b) == 0 && strcmp(hw_bdf_text(b, text), "0000:8a:1f.7") == 0,
       "NVML's spelling of an address becomes sysfs's");
    ok(hw_bdf_parse("10000:e0:01.0", &b) == 0 && b.domain == 0x10000, "a domain of five digits");
    static const char *const bad_bdf[] = {"",
                                          "8a:00.0",
                                          "0000:8a:00",
                                          "0000:8a:20.0",
                                          "0000:8a:00.8",
                                          "0000:8a:00.0 ",
                                          "000g:8a:00.0",
                                          "000000000:8a:00.0",
                                          "0000:8a:00.00"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad_bdf); i++)
        is_int(hw_bdf_parse(bad_bdf[i], &b), -EINVAL, bad_bdf[i]);
    unsigned mts = 1;
    ok(hw_pci_speed_parse("32.0 GT/s PCIe", &mts) == 0 && mts == 32000, "a link's speed");
    ok(hw_pci_speed_parse("2.5 GT/s", &mts) == 0 && mts == 2500, "as older kernels write it");
    ok(hw_pci_speed_parse("Unknown", &mts) == 0 && mts == 0, "not known");
    is_int(hw_pci_speed_parse("fast", &mts), -EINVAL, "no speed");
    is_int(hw_pci_MBps(8000, 8), 7876, "8 GT/s by 8 lanes carries 7.88 GB/s");
}

/* ---- distances ------------------------------------------------------------------------------ */

static enum hw_dist far(const char *a, int na, const char *b, int nb)
{
    struct hw_pci_path x, y;
    if (hw_pci_path_parse(a, &x) < 0 || hw_pci_path_parse(b, &y) < 0)
        return (enum hw_dist) - 1;
    enum hw_dist d = hw_pci_distance(&x, na, &y, nb);
    return d == hw_pci_distance(&y, nb, &x, na) ? d : (enum hw_dist) - 1; /* symmetric */
}

static void distances(void)
{
#define ROOT "../../devices/pci0000:00/"
    is_int(far(ROOT "0000:00:03.0/virtio2/net/eth0", -1, ROOT "0000:00:03.0", -1), HW_DIST_X, "the same device");
    is_int(far(ROOT "0000:00:01.0/0000:01:00.0", 0, ROOT "0000:00:01.0/0000:01:00.1", 0), HW_DIST_PIX, "two functions");
    is_int(far(ROOT "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0,
               ROOT "0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", 0),
           HW_DIST_PIX, "two ports of a switch");
    is_int(far(ROOT "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0/0000:04:00.0/0000:05:00.0", 0,
               ROOT "0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:06:00.0", 0),
           HW_DIST_PXB, "a switch behind a switch");
    is_int(far(ROOT "0000:00:01.0/0000:01:00.0", 0, ROOT "0000:00:02.0/0000:02:00.0", 0), HW_DIST_PHB,
           "two root ports");
    is_int(far(ROOT "0000:00:05.0", -1, ROOT "0000:00:10.0", -1), HW_DIST_PHB, "a flat bus");
    is_int(far(ROOT "0000:00:05.0", 0, "../../devices/pci0000:40/0000:40:10.0", 0), HW_DIST_NODE, "two host bridges");
    is_int(far(ROOT "0000:00:05.0", -1, "../../devices/pci0000:40/0000:40:10.0", -1), HW_DIST_NODE, "no node is said");
    is_int(far(ROOT "0000:00:05.0", 0, "../../devices/pci0000:80/0000:80:10.0", 1), HW_DIST_SYS, "two NUMA nodes");
    is_int(far(ROOT "0000:00:01.0", 0, ROOT "0000:00:01.0/0000:01:00.0", 0), HW_DIST_PIX,
           "a bridge and what is behind it");
    is_int(far("../../devices/LNXSYSTM:00/VMBUS:00/pci0001:00/0001:00:00.0", 0,
               "../../devices/LNXSYSTM:00/VMBUS:00/pci0002:00/0002:00:02.0", 0),
           HW_DIST_NODE, "each device a host bridge of its own, as Hyper-V has it");
    is_int(far(ROOT "0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0", 0, ROOT "0000:00:02.0", 0), HW_DIST_PHB,
           "a domain behind a device");
    struct hw_pci_path p;
    is_int(hw_pci_path_parse("../../devices/virtual/net/lo", &p), -ENOENT, "a virtual device has no way");
    char deep[1024] = "pci0000:00";
    for (int i = 0; i < 40; i++)
        strcat(deep, "/0000:01:00.0");
    is_int(hw_pci_path_parse(deep, &p), -E2BIG, "a way without end");
}

/* ---- fixtures ------------------------------------------------------------------------------- */

/* Returns the plan as text, such as "0=eth1;1=eth1", or "" if there is no plan. */
static char *planned(const struct hw_node *n, const struct hw_plan_want *want, char *buf, size_t cap)
{
    struct hw_plan p;
    size_t at = 0;
    *buf = 0;
    if (hw_plan_make(&p, n, want) == 0) {
        for (size_t k = 0; k < p.n_gpus; k++) {
            at += (size_t)snprintf(buf + at, cap - at, "%s%d=", k ? ";" : "", p.gpu[k].gpu);
            for (size_t i = 0; i < p.gpu[k].n_nics; i++)
                at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? "," : "", n->netdev[p.gpu[k].nic[i]].name);
        }
    }
    hw_plan_free(&p);
    return buf;
}

static void fixtures(void)
{
    struct hw_node n;
    char t[512];
    const struct hw_plan_want all = {0};
    is_int(fixture(&n, "a3-high"), 0, "a3-high");
    ok(n.n_gpu == 8 && n.n_cuda == 8 && n.n_netdev == 6 && n.n_numa == 2 && n.n_note == 0, "its parts");
    is_str(planned(&n, &all, t, sizeof(t)), "0=eth1;1=eth1;2=eth2;3=eth2;4=eth3;5=eth3;6=eth4;7=eth4",
           "the seeds' mapping");
    is_str(planned(&n, &(struct hw_plan_want){.gpus = "5,0-1"}, t, sizeof(t)), "0=eth1;1=eth1;5=eth3", "for some GPUs");
    is_str(planned(&n, &(struct hw_plan_want){.gpus = "0,4", .nics = "eth0"}, t, sizeof(t)), "0=eth0;4=eth0",
           "with a NIC that is not planned otherwise");
    is_str(planned(&n, &(struct hw_plan_want){.gpus = "0-2", .map = "0,1=lo;2-3=eth4,eth3"}, t, sizeof(t)),
           "0=lo;1=lo;2=eth3,eth4", "by hand, whatever the NICs are");
    is_str(planned(&n, &(struct hw_plan_want){.gpus = "0-2", .map = "1=eth3"}, t, sizeof(t)), "0=eth1;1=eth3;2=eth2",
           "by hand for one, the others as planned");
    is_int(hw_node_numa_distance(&n, 0, 1), 21, "the NUMA nodes' distance");
    is_str(hw_node_cpus(&n, 1), "52-103,156-207", "a node's CPUs");
    is_str(hw_node_cpus(&n, -1), "0-207", "all CPUs where no node is said");
    static const struct {
        const char *map;
        int rc;
        const char *says;
    } bad[] = {{"", -EINVAL, ""},
               {"0", -EINVAL, "0"},
               {"0=", -EINVAL, "0="},
               {"=eth1", -EINVAL, "=eth1"},
               {"0=eth1;", -EINVAL, ";"},
               {"0=eth1,", -EINVAL, ","},
               {"0=eth9", -ENODEV, "eth9"},
               {"0=eth", -ENODEV, "'eth'"},
               {"8=eth1", -ENODEV, "GPU 8"},
               {"0-99999=eth1", -ENODEV, "GPU 8"},
               {"0=eth1;0=eth2", -EINVAL, "twice"},
               {"0,0=eth1", -EINVAL, "twice"},
               {"0=eth1,eth1", -EINVAL, "twice"},
               {"3-1=eth1", -EINVAL, "3-1"},
               {"0=eth1=eth2", -EINVAL, "eth2"},
               {"0 =eth1", -EINVAL, "0 ="},
               {"99999999999999999999=eth1", -EINVAL, "999"}};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        struct hw_plan p;
        int rc = hw_plan_make(&p, &n, &(struct hw_plan_want){.map = bad[i].map});
        ok(rc == bad[i].rc && strstr(hw_error(), bad[i].says), "map '%s': %s", bad[i].map, hw_error());
        hw_plan_free(&p);
    }
    /* CUDA's order differs from the order of addresses; six GPUs are hidden, and one of CUDA's GPUs is not in sysfs */
    struct hw_bdf cuda[3] = {n.gpu[7].at, n.gpu[0].at, {.domain = 9}};
    hw_node_free(&n);
    int root = hw_root_open(TEST_DATA "/nodes/a3-high");
    is_int(hw_node_scan(&n, root, &(struct hw_scan){.cuda = cuda, .n_cuda = 3}), 0, "a3-high as CUDA numbers it");
    hw_close(&root);
    ok(n.n_cuda == 3 && n.n_gpu == 9 && n.n_note == 1 && n.gpu[2].pci < 0 && n.gpu[3].ordinal < 0,
       "CUDA's GPUs come first");
    planned(&n, &all, t, sizeof(t));
    ok(strncmp(t, "0=eth4;1=eth1;2=eth", 19) == 0, "each is served, without a way too: %s", t);
    hw_node_free(&n);

    is_int(fixture(&n, "hca8"), 0, "hca8");
    is_str(planned(&n, &all, t, sizeof(t)), "0=rdma0;1=rdma1;2=rdma2;3=rdma3;4=rdma4;5=rdma5;6=rdma6;7=rdma7",
           "a NIC each, and management on its bond");
    ok(n.n_rdma == 10 && strcmp(n.netdev[5].name, "rdma0") == 0 && strcmp(n.netdev[5].rdma, "mlx5_0") == 0,
       "RDMA devices and their interfaces");
    hw_node_free(&n);
    is_int(fixture(&n, "flat-vm"), 0, "flat-vm");
    is_str(planned(&n, &all, t, sizeof(t)), "0=ens17;1=ens17;2=ens17;3=ens17", "what is left beside the default route");
    is_str(planned(&n, &(struct hw_plan_want){.nics = "ens16,ens17"}, t, sizeof(t)), "0=ens16;1=ens16;2=ens17;3=ens17",
           "two NICs, two GPUs each");
    is_str(planned(&n, &(struct hw_plan_want){.gpus = "1-3", .nics = "ens16,ens17"}, t, sizeof(t)),
           "1=ens16;2=ens16,ens17;3=ens17", "two NICs for three GPUs: the middle one has both");
    is_int(n.netdev[1].speed, -1, "a speed that the driver does not know is not known");
    hw_node_free(&n);
    /* the same machine with IPv6 only; the default route of ens16 is unreachable, that of ens17 is not */
    static const char v6[] = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
                             "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200    ens16\n"
                             "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
                             "fe800000000000000000000000000001 00000400 00000001 00000000 00000003    ens17\n";
    snprintf(t, sizeof(t), "%s/v6", tmp);
    command("cp", "-a", TEST_DATA "/nodes/flat-vm", t);
    put("v6/proc/net/ipv6_route", v6, sizeof(v6) - 1);
    put("v6/proc/net/route", "Iface\tDestination\n", 18);
    is_int(scan(&n, t), 0, "flat-vm with IPv6 alone");
    is_str(planned(&n, &all, t, sizeof(t)), "0=ens16;1=ens16;2=ens16;3=ens16", "IPv6's default route counts too");
    hw_node_free(&n);
    is_int(fixture(&n, "laptop"), 0, "laptop");
    ok(n.n_gpu == 2 && n.n_cuda == 1, "two GPUs, one of them CUDA's");
    is_str(planned(&n, &all, t, sizeof(t)), "0=wlan0", "the default route's NIC where there is no other");
    hw_node_free(&n);
}

/* guarantees of a plan, on random nodes */

static unsigned long long seed;

static unsigned rnd(unsigned below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull; /* Knuth's MMIX */
    return (unsigned)(seed >> 33) % below;
}

/* Places GPUs and NICs at random under `switches` switches of two roots, or all on one bus if `switches` is 0. */
static void random_node(struct hw_node *n, unsigned gpus, unsigned nics, unsigned switches)
{
    *n = (struct hw_node){.pci = calloc(gpus + nics, sizeof(*n->pci)),
                          .gpu = calloc(gpus + 1, sizeof(*n->gpu)),
                          .netdev = calloc(nics + 1, sizeof(*n->netdev))};
    for (unsigned i = 0; i < gpus + nics; i++) {
        unsigned s = switches ? rnd(switches) : 0, numa = switches ? s % 2 : 0;
        struct hw_pci_dev *d = &n->pci[n->n_pci++];
        *d = (struct hw_pci_dev){.numa = (int)numa, .class = i < gpus ? 0x030200 : 0x020000};
        snprintf(d->path.root, sizeof(d->path.root), "pci0000:%02x", numa);
        if (switches)
            d->path.at[d->path.depth++] = (struct hw_bdf){0, (uint8_t)numa, (uint8_t)s, 0};
        d->path.at[d->path.depth++] = (struct hw_bdf){0, (uint8_t)(2 + s), (uint8_t)(i / 8), (uint8_t)(i % 8)};
        if (i < gpus) {
            n->gpu[n->n_gpu++] = (struct hw_gpu){d->path.at[d->path.depth - 1], (int)i, (int)i};
            n->n_cuda++;
            continue;
        }
        struct hw_netdev *e = &n->netdev[n->n_netdev++];
        *e = (struct hw_netdev){.pci = (int)i, .speed = -1, .mtu = 1500, .state = "up"};
        snprintf(e->name, sizeof(e->name), "eth%u", i - gpus);
    }
}

static const char *broken(const struct hw_node *n, const struct hw_plan *p, bool flat)
{
    if (p->n_gpus != n->n_cuda)
        return "not every GPU is in it";
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < n->n_netdev; i++) {
        size_t users = 0;
        for (size_t k = 0; k < p->n_gpus; k++)
            for (size_t j = 0; j < p->gpu[k].n_nics; j++)
                users += p->gpu[k].nic[j] == (int)i;
        if ((users == 0) != (p->why[i] != NULL))
            return "a NIC that serves none says no reason, or one that serves says one";
        least = HW_MIN(least, users);
        most = HW_MAX(most, users);
    }
    /* on a flat node, every NIC serves a GPU; the NICs' numbers of GPUs differ by at most 1, or by 2 if unavoidable */
    if (flat && (least == 0 || most - least > 1 + (p->n_gpus % n->n_netdev != 0)))
        return "shared unevenly";
    for (size_t k = 0; k < p->n_gpus; k++) {
        int best = HW_DIST_SYS, gpu = n->gpu[p->gpu[k].gpu].pci;
        if (p->gpu[k].n_nics == 0)
            return "a GPU without a NIC";
        for (size_t i = 0; i < n->n_netdev; i++)
            best = HW_MIN(best, (int)hw_node_distance(n, gpu, n->netdev[i].pci));
        for (size_t i = 0; i < p->gpu[k].n_nics; i++)
            if ((int)hw_node_distance(n, gpu, n->netdev[p->gpu[k].nic[i]].pci) != best)
                return "a NIC that is not the nearest";
    }
    return NULL;
}

static void promises(void)
{
    const struct hw_plan_want all = {0};
    int bad = 0, made = 0;
    for (int flat = 0; flat < 2; flat++) {
        for (unsigned round = 0; round < 1500; round++) {
            struct hw_node n;
            struct hw_plan p;
            seed = 2 * round + (unsigned)flat;
            unsigned gpus = rnd(round % 50 == 0 ? 200 : 17), nics = 1 + rnd(round % 50 == 1 ? 200 : 12);
            random_node(&n, gpus, nics, flat ? 0 : 1 + rnd(6));
            int rc = hw_plan_make(&p, &n, &all);
            const char *fault = rc < 0 ? hw_error() : gpus ? broken(&n, &p, flat) : NULL;
            if (fault && bad++ < 5)
                diag("%u GPUs, %u NICs, %s, seed %llu: %s", gpus, nics, flat ? "flat" : "switches", seed, fault);
            made++;
            hw_plan_free(&p);
            hw_node_free(&n);
        }
    }
    ok(bad == 0 && made == 3000, "%d nodes of any number of GPUs and NICs: all served by the nearest, evenly", made);
    struct hw_node n;
    struct hw_plan p;
    random_node(&n, 2, 2, 0);
    n.netdev[1].speed = 200000;
    n.netdev[0].speed = 1000;
    char t[64];
    is_str(planned(&n, &all, t, sizeof(t)), "0=eth1;1=eth1", "a NIC of a two hundredth of the speed is left out");
    strcpy(n.netdev[1].state, "down");
    is_str(planned(&n, &all, t, sizeof(t)), "0=eth0;1=eth0", "unless the fast one is down");
    strcpy(n.netdev[0].state, "down");
    int rc = hw_plan_make(&p, &n, &all);
    ok(rc == -ENODEV && strstr(hw_error(), "eth0: down"), "no NIC that is up: %s", hw_error());
    hw_plan_free(&p);
    strcpy(n.netdev[0].state, "up");
    n.live = true;
    rc = hw_plan_make(&p, &n, &all);
    ok(rc == -ENODEV && strstr(hw_error(), "no IP address"), "no NIC with an address: %s", hw_error());
    hw_plan_free(&p);
    hw_node_free(&n);
    random_node(&n, 2, 0, 0);
    rc = hw_plan_make(&p, &n, &all);
    ok(rc == -ENODEV, "no NIC at all: %s", hw_error());
    hw_plan_free(&p);
    hw_node_free(&n);
}

/* randomly damaged files */

static char **all_files;
static size_t n_files;

static int gather(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    if (type != FTW_F && type != FTW_SL && type != FTW_SLN)
        return 0;
    char **more = realloc(all_files, (n_files + 1) * sizeof(*more));
    if (!more)
        return -1;
    all_files = more;
    all_files[n_files++] = strdup(path);
    return 0;
}

static void bend(const char *path)
{
    static const char *const junk[] = {
        "",         "\n",   "-1",          "0x", "99999999999999999999", "-9223372036854775808",
        "../../..", "0-",   "16.0 GT/s x", "10", "10 20 30 40",          "up\nup",
        "\xff\xfe", "%s%n", "0000:00:00.0"};
    static const char *const target[] = {"/",
                                         "loop",
                                         "..",
                                         "",
                                         "../../../devices/pci0000:00/0000:00:01.0",
                                         "../../../devices/pci0000:00/0000:ff:1f.7/0000:ff:1f.7",
                                         "../../devices/pci0000:00/pci0000:00/pci0000:00",
                                         "/etc/passwd"};
    unlink(path);
    switch (rnd(6)) {
    case 0:
        break; /* deleted */
    case 1:
        mkdir(path, 0700);
        break;
    case 2:
        mkfifo(path, 0600);
        break;
    case 3:
        if (symlink(target[rnd(HW_ARRAY_LEN(target))], path) < 0)
            break; /* "" is not a valid target, so the file remains deleted */
        break;
    default: {
        FILE *f = fopen(path, "w");
        if (!f)
            break;
        if (rnd(4) == 0)
            for (unsigned i = rnd(9000); i > 0; i--)
                fputc((int)rnd(256), f);
        else
            fputs(junk[rnd(HW_ARRAY_LEN(junk))], f);
        fclose(f);
    }
    }
}

static void bent(const char *name, unsigned rounds)
{
    char from[512], to[128];
    snprintf(from, sizeof(from), TEST_DATA "/nodes/%s", name);
    snprintf(to, sizeof(to), "%s/%s", tmp, name);
    unsigned long long served = 0, notes = 0, refused = 0;
    for (unsigned round = 0; round < rounds; round++) {
        struct hw_node n;
        struct hw_plan p;
        seed = 1000 + round;
        command("cp", "-a", from, to);
        nftw(to, gather, 16, FTW_PHYS);
        for (unsigned k = 1 + rnd(round % 4 == 0 ? 300 : 20); k > 0; k--)
            bend(all_files[rnd((unsigned)n_files)]);
        int rc = scan(&n, to);
        p = (struct hw_plan){0};
        if (rc == 0)
            rc = hw_plan_make(&p, &n, &(struct hw_plan_want){0});
        for (size_t k = 0; k < p.n_gpus && rc == 0; k++)
            served += p.gpu[k].n_nics > 0;
        if (rc == 0 && p.n_gpus != n.n_cuda)
            ok(false, "%s, round %u: %zu GPUs, %zu planned", name, round, n.n_cuda, p.n_gpus);
        refused += rc < 0 && *hw_error() != 0;
        hw_plan_free(&p);
        notes += n.n_note;
        hw_node_free(&n);
        command("rm", "-rf", to, NULL);
        for (size_t i = 0; i < n_files; i++)
            free(all_files[i]);
        n_files = 0;
    }
    free(all_files);
    all_files = NULL;
    ok(served > 0 && notes > 0, "%s bent %u times: %llu GPUs served, %llu notes, %llu refused with a reason", name,
       rounds, served, notes, refused);
}

/* Resolves a path with ".." during renames of other files, which can make the kernel return EAGAIN (openat2(2)). */
static void renames(void)
{
    char a[128], b[128], stays[128], link[160], text[64];
    snprintf(a, sizeof(a), "%s/here", tmp);
    snprintf(b, sizeof(b), "%s/there", tmp);
    snprintf(stays, sizeof(stays), "%s/stays", tmp);
    snprintf(link, sizeof(link), "%s/up", stays);
    if (mkdir(stays, 0700) || mkdir(a, 0700))
        exit(1);
    put("stays/file", "x", 1);
    if (symlink("../stays/../stays/../stays/file", link))
        exit(1);
    pid_t pid = fork();
    while (pid == 0)
        if (rename(a, b) || rename(b, a))
            _exit(1);
    int root = hw_root_open(tmp), bad = 0;
    for (int i = 0; i < 20000; i++)
        bad += hw_root_text(root, text, sizeof(text), "stays/up") != 1;
    is_int(bad, 0, "what is renamed elsewhere meanwhile is in no reading's way");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    hw_close(&root);
}

int main(void)
{
    strcpy(tmp, "/tmp/test_node.XXXXXX");
    if (!mkdtemp(tmp)) {
        printf("Bail out! no folder for temporary files\n");
        return 1;
    }
    files();
    renames();
    parsers();
    distances();
    fixtures();
    promises();
    bent("a3-high", 24);
    bent("hca8", 12);
    command("rm", "-rf", tmp, NULL);
    return tap_done();
}

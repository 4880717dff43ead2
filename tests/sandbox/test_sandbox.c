/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of sandbox/: the rules of the tree; names; that lib/net and node/ read a rebuilt sysfs like the original; the
 * effects of a move. */
#include "net/sysfs.h"
#include "node/node.h"
#include "sandbox/move/again.h"
#include "sandbox/plan/env.h"
#include "sandbox/sysfs/sysfs.h"
#include "tests/tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char tmp[64] = "/tmp/test_sandbox.XXXXXX";

/* ---- names ---------------------------------------------------------------------------------- */

static void names(void)
{
    static const char *const good[] = {
        "eth0", "0000:00:1f.6", "mlx5_0", "pci0000:00",
        "a",    "LNXSYSTM:00",  "x+-_.:", "0123456789012345678901234567890123456789012345678901234567890ab"};
    static const char *const bad[] = {
        "",      ".",   "..",  ".x",  "-x",
        "_x",    "a/b", "a b", "a\n", "\xc3\xa4",
        "a\xc3", "a*",  "a\\", "~",   "0123456789012345678901234567890123456789012345678901234567890abc"};
    for (size_t i = 0; i < HW_ARRAY_LEN(good); i++)
        ok(sbx_name_ok(good[i]) && sbx_path_ok(good[i]), "'%s' is a name", good[i]);
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++)
        ok(!sbx_name_ok(bad[i]), "%zu of those that are none", i);
    ok(sbx_path_ok("devices/pci0000:00/0000:00:1f.6") && !sbx_path_ok("/devices") && !sbx_path_ok("devices/") &&
           !sbx_path_ok("a//b") && !sbx_path_ok("a/../b") && !sbx_path_ok("a/.b"),
       "paths are names with slashes between");
}

/* ---- the tree ------------------------------------------------------------------------------- */

static const char *link_at(struct sbx_tree *t, const char *path)
{
    const struct sbx_node *n = sbx_tree_find(t, path);
    return n && n->kind == SBX_LINK ? n->data : NULL;
}

static void tree(void)
{
    struct sbx_tree t;
    is_int(sbx_tree_init(&t), 0, "an empty tree");
    sbx_tree_link(&t, "class/net/eth0", "devices/pci0000:00/0000:00:01.0/net/eth0");
    sbx_tree_link(&t, "devices/pci0000:00/0000:00:01.0/net/eth0/device", "devices/pci0000:00/0000:00:01.0");
    sbx_tree_link(&t, "devices/pci0000:00/0000:00:01.0/net/eth0/subsystem", "class/net");
    sbx_tree_link(&t, "a", "b");
    sbx_tree_link(&t, "dd/x", "d");
    is_str(link_at(&t, "class/net/eth0"), "../../devices/pci0000:00/0000:00:01.0/net/eth0",
           "a link down another branch");
    is_str(link_at(&t, "/devices/pci0000:00/0000:00:01.0/net/eth0/device"), "../../../0000:00:01.0",
           "a link to what is above it goes up and down again");
    is_str(link_at(&t, "devices/pci0000:00/0000:00:01.0/net/eth0/subsystem"), "../../../../../class/net",
           "and to a class");
    is_str(link_at(&t, "a"), "b", "beside it");
    is_str(link_at(&t, "dd/x"), "../d", "a name that begins the same is another");
    sbx_tree_file(&t, "f", "one", 3, false);
    sbx_tree_file(&t, "f", "two", 3, true);
    const struct sbx_node *f = sbx_tree_find(&t, "f");
    ok(f && f->n_data == 3 && strcmp(f->data, "one") == 0 && !f->live, "what is there stays");
    sbx_tree_file(&t, "empty", NULL, 0, false);
    ok(sbx_tree_find(&t, "empty") && !sbx_tree_find(&t, "none") && !sbx_tree_find(&t, "f/x") &&
           !sbx_tree_find(&t, "a/x"),
       "what is found, and what is not: nothing is below files and links");
    ok(sbx_tree_find(&t, "") == t.root && sbx_tree_find(&t, "/") == t.root, "the root");
    bool sorted = true;
    for (size_t i = 1; i < t.root->n_child; i++)
        sorted &= strcmp(t.root->child[i - 1]->name, t.root->child[i]->name) < 0;
    ok(sorted && t.root->n_child == 6, "names are in order");
    is_int(t.rc, 0, "all of that was right");
    sbx_tree_dir(&t, "f/x");
    is_int(t.rc, -EEXIST, "a folder in the place of a file");
    sbx_tree_file(&t, "later", "x", 1, false);
    ok(!sbx_tree_find(&t, "later"), "after a failure nothing more is added");
    sbx_tree_free(&t);
    static const char *const bad[] = {"", "/x", "x/", "x//y", ".", "..", "x/../y", "x/./y"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        sbx_tree_init(&t);
        sbx_tree_file(&t, bad[i], "x", 1, false);
        is_int(t.rc, -EINVAL, bad[i]);
        sbx_tree_free(&t);
    }
    sbx_tree_init(&t);
    sbx_tree_dir(&t, "x");
    sbx_tree_file(&t, "x", "x", 1, false);
    is_int(t.rc, -EEXIST, "a file in the place of a folder");
    ok(sbx_tree_write(&t, tmp) < 0 && strstr(hw_error(), "already exists and is another kind of file"),
       "a tree that is not whole is not written: %s", hw_error());
    sbx_tree_free(&t);
}

/* ---- the scan of a rebuilt tree ------------------------------------------------------------- */

static bool same_pci(const struct hw_node *a, const struct hw_node *b)
{
    bool same = a->n_pci == b->n_pci;
    for (size_t i = 0; i < a->n_pci && same; i++)
        same = memcmp(&a->pci[i], &b->pci[i], sizeof(a->pci[i])) == 0;
    return same;
}

static bool same_net(const struct hw_node *a, const struct hw_node *b)
{
    bool same = a->n_netdev == b->n_netdev && a->n_rdma == b->n_rdma;
    for (size_t i = 0; i < a->n_netdev && same; i++) {
        struct hw_netdev x = a->netdev[i], y = b->netdev[i];
        x.default_route = y.default_route = false; /* from /proc */
        same = strcmp(x.name, y.name) == 0 && strcmp(x.driver, y.driver) == 0 && strcmp(x.state, y.state) == 0 &&
               strcmp(x.master, y.master) == 0 && strcmp(x.over, y.over) == 0 && strcmp(x.rdma, y.rdma) == 0 &&
               x.pci == y.pci && x.speed == y.speed && x.mtu == y.mtu && x.loopback == y.loopback;
        if (!same)
            diag("%s differs", x.name);
    }
    for (size_t i = 0; i < a->n_rdma && same; i++) {
        const struct hw_rdma *x = &a->rdma[i], *y = &b->rdma[i];
        same = strcmp(x->name, y->name) == 0 && x->pci == y->pci && strcmp(x->state, y->state) == 0 &&
               strcmp(x->rate, y->rate) == 0 && strcmp(x->link, y->link) == 0;
    }
    return same;
}

static bool same_numa(const struct hw_node *a, const struct hw_node *b)
{
    bool same = a->cpus && b->cpus && a->n_numa == b->n_numa && strcmp(a->cpus, b->cpus) == 0 &&
                strcmp(a->machine, b->machine) == 0;
    for (size_t i = 0; i < a->n_numa && same; i++) {
        const struct hw_numa *x = &a->numa[i], *y = &b->numa[i];
        same = x->id == y->id && strcmp(x->cpus, y->cpus) == 0 && x->package == y->package &&
               memcmp(x->distance, y->distance, a->n_numa * sizeof(*x->distance)) == 0;
    }
    return same;
}

static void node(const char *name)
{
    char dir[512], out[128];
    struct sbx_snapshot s;
    struct sbx_tree t;
    struct hw_node a = {0}, b = {0};
    snprintf(dir, sizeof(dir), TEST_DATA "/nodes/%s", name);
    snprintf(out, sizeof(out), "%s/%s", tmp, name);
    mkdir(out, 0700);
    snprintf(out, sizeof(out), "%s/%s/sys", tmp, name);
    int root = hw_root_open(dir);
    is_int(sbx_snapshot_take(&s, root, &(struct sbx_take){0}), 0, name);
    is_int(sbx_sysfs_build(&t, &s, NULL), 0, "is rebuilt, all of it");
    is_int(sbx_tree_write(&t, out), 0, "and written");
    uint64_t begin = hw_now();
    is_int(sbx_tree_write(&t, out), 0, "again");
    diag("%zu nodes in %llu us", t.n_nodes, (unsigned long long)((hw_now() - begin) / 1000));
    snprintf(out, sizeof(out), "%s/%s", tmp, name);
    int again = hw_root_open(out);
    if (ok(hw_node_scan(&a, root, &(struct hw_scan){0}) == 0 && hw_node_scan(&b, again, &(struct hw_scan){0}) == 0,
           "both are scanned")) {
        ok(same_pci(&a, &b), "%zu PCI devices are the same", a.n_pci);
        ok(a.gpu && b.gpu && a.n_gpu == b.n_gpu && memcmp(a.gpu, b.gpu, a.n_gpu * sizeof(*a.gpu)) == 0, "GPUs too");
        ok(same_net(&a, &b), "interfaces and RDMA devices too");
        ok(same_numa(&a, &b), "NUMA nodes and CPUs too");
    }
    is_int(b.n_note, 0, "nothing was odd");
    hw_node_free(&a);
    hw_node_free(&b);
    hw_close(&root);
    hw_close(&again);
    sbx_tree_free(&t);
    sbx_snapshot_free(&s);
    snprintf(out, sizeof(out), "%s/%s/sys", tmp, name);
    ok(sbx_tree_remove(out) == 0 && access(out, F_OK) < 0, "and removed");
    is_int(sbx_tree_remove(out), 0, "twice does no harm");
    snprintf(out, sizeof(out), "%s/%s", tmp, name);
    is_int(sbx_tree_remove(out), -EINVAL, "an empty folder is none of ours");
    ok(rmdir(out) == 0, "and still there, with nothing left in it");
}

static void others_folder(void)
{
    char dir[128], file[160];
    snprintf(dir, sizeof(dir), "%s/other", tmp);
    snprintf(file, sizeof(file), "%s/precious", dir);
    mkdir(dir, 0700);
    FILE *f = fopen(file, "w");
    ok(f && fclose(f) == 0, "somebody's folder");
    is_int(sbx_tree_remove(dir), -EINVAL, "is not removed");
    ok(access(file, F_OK) == 0, "and still has what it had");
    unlink(file);
    rmdir(dir);
}

/* ---- after a move --------------------------------------------------------------------------- */

#define V4 "0000:0000:0000:0000:0000:ffff:0a00:0001"

/* Writes text to tmp/PATH after creating the parent folders. */
static void put(const char *text, const char *fmt, ...) HW_PRINTF(2, 3);
static void put(const char *text, const char *fmt, ...)
{
    char path[256];
    int n = snprintf(path, sizeof(path), "%s/", tmp);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, ap);
    va_end(ap);
    for (char *p = path + n; (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%s\n", text) < 0 || fclose(f) != 0)
        abort();
}

/* Creates the link from a class to a device. */
static void put_link(const char *m, const char *class, const char *name)
{
    char to[128], at[128];
    snprintf(to, sizeof(to), "../../devices/virtual/%s/%s", class, name);
    put("", "%s/sys/class/%s/.keep", m, class);
    snprintf(at, sizeof(at), "%s/%s/sys/class/%s/%s", tmp, m, class, name);
    if (symlink(to, at) < 0 && errno != EEXIST)
        abort();
}

/* Creates RDMA device dev of machine m with a table of eight GIDs, of which the GID at index is a RoCE v2 GID of nic.
 * With index -1, the table is empty. */
static void put_rdma(const char *m, const char *dev, int index, const char *nic)
{
    for (int i = 0; i < 8; i++) {
        put(i == index ? V4 : "0000:0000:0000:0000:0000:0000:0000:0000",
            "%s/sys/devices/virtual/infiniband/%s/ports/1/gids/%d", m, dev, i);
        put(i == index ? "RoCE v2" : "", "%s/sys/devices/virtual/infiniband/%s/ports/1/gid_attrs/types/%d", m, dev, i);
        put(i == index ? nic : "", "%s/sys/devices/virtual/infiniband/%s/ports/1/gid_attrs/ndevs/%d", m, dev, i);
    }
    put_link(m, "infiniband", dev);
    put("4: ACTIVE", "%s/sys/devices/virtual/infiniband/%s/ports/1/state", m, dev);
    put("Ethernet", "%s/sys/devices/virtual/infiniband/%s/ports/1/link_layer", m, dev);
}

static void put_nic(const char *m, const char *nic, const char *ifindex)
{
    put_link(m, "net", nic);
    put("1", "%s/sys/devices/virtual/net/%s/type", m, nic);
    put(ifindex, "%s/sys/devices/virtual/net/%s/ifindex", m, nic);
}

static void *come_late(void *arg)
{
    (void)arg;
    usleep(2 * SBX_STABLE_MS * 1000);
    put_rdma("there", "mlx5_0", 5, "rdma0");
    return NULL;
}

static const char *env_of(const struct sbx_plan *p, bool moved, const char *name)
{
    static char value[64];
    struct sbx_env e;
    *value = 0;
    if (sbx_env_make(&e, p, &(struct sbx_env_want){.moved = moved}) < 0)
        abort();
    for (size_t i = 0; i < e.n; i++)
        if (strcmp(e.v[i].name, name) == 0)
            snprintf(value, sizeof(value), "%s", e.v[i].value);
    sbx_env_free(&e);
    return value;
}

static void count_line(void *arg, int level, const char *line)
{
    (void)level;
    diag("%s", line);
    ++*(int *)arg;
}

static void after_move(void)
{
    char dir[128], path[256];
    struct sbx_snapshot s;
    struct sbx_plan p = {0};
    struct sbx_tree t;
    struct sbx_want want = {.nics = "rdma0,rdma1"};
    int lines = 0;
    const struct hw_logger log = {.fn = count_line, .arg = &lines, .level = HAWSER_LOG_WARN};
    pthread_t late;
    put_nic("here", "rdma0", "7");
    put_nic("here", "rdma1", "8");
    put_nic("here", "other", "9");
    put_rdma("here", "mlx5_0", 3, "rdma0");
    put_rdma("here", "mlx5_1", 3, "rdma1");
    put_rdma("here", "mlx5_2", 3, "other");
    snprintf(dir, sizeof(dir), "%s/here", tmp);
    int root = hw_root_open(dir);
    is_int(sbx_snapshot_take(&s, root, &(struct sbx_take){0}), 0, "a node before the move");
    is_int(sbx_plan_make(&p, &s, &want), 0, "its plan");
    is_str(env_of(&p, false, "NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1", "two devices");
    is_str(env_of(&p, false, "NCCL_IB_GID_INDEX"), "", "before the move no GID index is said");

    /* The kernel has recreated the GIDs at other indexes, one of them later than the other. The third device, which the
     * plan left out, has a GID with the name of a NIC in the container. */
    put_nic("there", "rdma0", "2");
    put_nic("there", "rdma1", "3");
    put_rdma("there", "mlx5_0", -1, "");
    put_rdma("there", "mlx5_1", 5, "rdma1");
    put_rdma("there", "mlx5_2", 1, "rdma0");
    snprintf(dir, sizeof(dir), "%s/there/sys", tmp);
    int sysfs = hw_root_open(dir);
    if (pthread_create(&late, NULL, come_late, NULL) != 0)
        abort();
    is_int(sbx_again(&s, &p, &want, sysfs, &log), 0, "it is looked at again in the container");
    pthread_join(late, NULL);
    is_int(lines, 0, "nothing is missing");
    is_str(env_of(&p, true, "NCCL_IB_GID_INDEX"), "5",
           "the GID's index is the one after the move, which was waited for");
    is_str(env_of(&p, true, "NCCL_IB_HCA"), "=mlx5_0:1,mlx5_1:1", "nothing is added");
    is_int(sbx_sysfs_build(&t, &s, &p), 0, "a sysfs");
    const struct sbx_node *was = sbx_tree_find(&t, "devices/virtual/infiniband/mlx5_0/ports/1/gids/3"),
                          *now = sbx_tree_find(&t, "devices/virtual/infiniband/mlx5_0/ports/1/gids/5"),
                          *index = sbx_tree_find(&t, "devices/virtual/net/rdma1/ifindex");
    ok(was && strncmp(was->data, "0000:0000:0000:0000:0000:0000", 29) == 0, "has no GID where it was");
    ok(now && strncmp(now->data, V4, strlen(V4)) == 0, "but where it is");
    ok(index && strcmp(index->data, "3\n") == 0, "and the interfaces' own numbers in the container");
    ok(!sbx_tree_find(&t, "devices/virtual/infiniband/mlx5_2"), "and nothing of the device that was left out");
    sbx_tree_free(&t);

    snprintf(path, sizeof(path), "%s/there/sys/devices/virtual/infiniband/mlx5_1", tmp);
    snprintf(dir, sizeof(dir), "%s/there/gone", tmp);
    ok(rename(path, dir) == 0, "a device that the container does not see");
    is_int(sbx_again(&s, &p, &want, sysfs, &log), 0, "is no error,");
    is_int(lines, 1, "but told");
    is_str(env_of(&p, true, "NCCL_IB_HCA"), "=mlx5_0:1", "and left out");
    hw_close(&sysfs);
    hw_close(&root);
    sbx_plan_free(&p);
    sbx_snapshot_free(&s);
    snprintf(path, sizeof(path), "rm -rf %s/here %s/there", tmp, tmp);
    ok(system(path) == 0, "cleaned up"); /* NOLINT(cert-env33-c) */
}

int main(void)
{
    if (!mkdtemp(tmp)) {
        printf("Bail out! %s cannot be made\n", tmp);
        return 1;
    }
    names();
    tree();
    node("a3-high");
    node("hca8");
    node("flat-vm");
    node("laptop");
    others_folder();
    after_move();
    rmdir(tmp);
    return tap_done();
}

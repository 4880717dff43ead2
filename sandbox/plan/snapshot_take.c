/* SPDX-License-Identifier: Apache-2.0 */
/* Takes a snapshot of this machine's sysfs, or of a sysfs below another root. Everything is read from files, except
 * this machine's IP addresses. docs/sandbox.md lists the files that programs need. */
#include "net/sysfs.h"
#include "node/node.h"
#include "sandbox/plan/snapshot.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct take {
    struct sbx_snapshot *s;
    int root;
    const char *sys; /* path of sysfs below root: "sys/", or "" if root is a sysfs */
    const struct sbx_take *opt;
};

/* Adds the file `name` of folder dir (below sys/) if it can be read. */
static int take_attr_file(const struct take *t, struct sbx_attrs *a, const char *dir, const char *name)
{
    char text[HW_ATTR_MAX];
    int rc = hw_root_text(t->root, text, sizeof(text), "%s%s/%s", t->sys, dir, name);
    if (rc < 0 && rc != -ENODATA)
        return 0;
    return sbx_attr_add(a, name, rc < 0 ? "" : text);
}

static int take_attr_files(const struct take *t, struct sbx_attrs *a, const char *dir, const char *const *name,
                           size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take_attr_file(t, a, dir, name[i]);
    return rc;
}

/* Lists a folder below sys/. The list is empty if the folder cannot be listed. */
static struct hw_names list_sysfs_folder(const struct take *t, const char *dir, const char *sub)
{
    struct hw_names l;
    if (hw_root_list(t->root, &l, "%s%s/%s", t->sys, dir, sub) < 0)
        hw_names_free(&l);
    return l;
}

/* Adds all readable files of folder dir/sub, as "sub/name". */
static int take_folder_files(const struct take *t, struct sbx_attrs *a, const char *dir, const char *sub)
{
    struct hw_names l __attribute__((cleanup(hw_names_free))) = list_sysfs_folder(t, dir, sub);
    int rc = 0;
    for (size_t i = 0; i < l.n && rc == 0; i++) {
        char name[2 * SBX_NAME];
        if (!sbx_name_ok(l.name[i]))
            continue;
        snprintf(name, sizeof(name), "%s/%s", sub, l.name[i]);
        rc = take_attr_file(t, a, dir, name);
    }
    return rc;
}

/* Returns the path of class/name, which is the target of its link, "../../devices/...". In a sysfs that was rebuilt
 * with folders instead of links, the device counts as virtual. Returns NULL if the device must be left out; *rc is then
 * an error or 0. */
static char *resolve_sysfs_path(const struct take *t, const char *class, const char *kind, const char *name, int *rc)
{
    char link[PATH_MAX];
    const char *p = link;
    if (hw_root_link(t->root, link, sizeof(link), "sys/%s/%s", class, name) < 0)
        snprintf(link, sizeof(link), "devices/virtual/%s/%s", kind, name);
    while (strncmp(p, "../", 3) == 0)
        p += 3;
    if (strncmp(p, "sys/", 4) == 0) /* fixtures and copies may have this prefix */
        p += 4;
    if (strncmp(p, "devices/", 8) != 0 || !sbx_path_ok(p)) {
        t->s->skipped++;
        return NULL;
    }
    char *copy = strdup(p);
    if (!copy)
        *rc = hw_no_memory("the snapshot");
    return copy;
}

static void link_name(const struct take *t, char out[SBX_NAME], const char *dir, const char *name)
{
    if (hw_root_link_name(t->root, out, SBX_NAME, "sys/%s/%s", dir, name) < 0 || !sbx_name_ok(out))
        out[0] = 0;
}

static void *alloc_snapshot_array(size_t n, size_t size, int *rc)
{
    void *v = calloc(n + 1, size);
    if (!v)
        *rc = hw_no_memory("the snapshot");
    return v;
}

/* ---- PCI ------------------------------------------------------------------------------------ */

/* Reads the configuration space, from which hwloc determines the buses and links of bridges. An unprivileged process
 * can read 64 bytes, and root up to 4096. At most 256 bytes are read here, because the extended capabilities contain
 * serial numbers. */
static int take_pci_config(const struct take *t, struct sbx_pci *d)
{
    uint8_t buf[256];
    int fd = hw_root_fd(t->root, O_RDONLY, "sys/%s/config", d->path);
    ssize_t n = fd < 0 ? -1 : pread(fd, buf, sizeof(buf), 0);
    hw_close(&fd);
    if (n <= 0)
        return 0;
    d->config = malloc((size_t)n);
    if (!d->config)
        return hw_no_memory("the snapshot");
    memcpy(d->config, buf, (size_t)n);
    d->n_config = (size_t)n;
    return 0;
}

static int take_pci(const struct take *t, const struct hw_node *n)
{
    static const char *const name[] = {"class",
                                       "vendor",
                                       "device",
                                       "subsystem_vendor",
                                       "subsystem_device",
                                       "revision",
                                       "numa_node",
                                       "local_cpus",
                                       "local_cpulist",
                                       "modalias",
                                       "uevent",
                                       "max_link_speed",
                                       "max_link_width",
                                       "current_link_speed",
                                       "current_link_width",
                                       "secondary_bus_number",
                                       "subordinate_bus_number"};
    struct sbx_snapshot *s = t->s;
    int rc = 0;
    s->pci = alloc_snapshot_array(n->n_pci, sizeof(*s->pci), &rc);
    for (size_t i = 0; i < n->n_pci && rc == 0; i++) {
        struct sbx_pci *d = &s->pci[s->n_pci];
        char bdf[HW_BDF_TEXT];
        hw_bdf_text(n->pci[i].path.at[n->pci[i].path.depth - 1], bdf);
        d->path = resolve_sysfs_path(t, "bus/pci/devices", "pci", bdf, &rc);
        if (!d->path)
            continue;
        s->n_pci++;
        link_name(t, d->driver, d->path, "driver");
        rc = take_attr_files(t, &d->attr, d->path, name, HW_ARRAY_LEN(name));
        if (rc < 0)
            return rc;
        rc = take_pci_config(t, d);
    }
    return rc;
}

/* ---- interfaces ----------------------------------------------------------------------------- */

static const char *const net_file[] = {"mtu",    "type",         "flags",    "ifindex",   "iflink",
                                       "dev_id", "dev_port",     "carrier",  "operstate", "speed",
                                       "duplex", "tx_queue_len", "addr_len", "uevent",    "address"};

static int take_net(const struct take *t, const struct hw_node *n)
{
    struct sbx_snapshot *s = t->s;
    int rc = 0;
    s->net = alloc_snapshot_array(n->n_netdev, sizeof(*s->net), &rc);
    for (size_t i = 0; i < n->n_netdev && rc == 0; i++) {
        const struct hw_netdev *from = &n->netdev[i];
        struct sbx_netdev *d = &s->net[s->n_net];
        if (!sbx_name_ok(from->name)) {
            s->skipped++;
            continue;
        }
        d->path = resolve_sysfs_path(t, "class/net", "net", from->name, &rc);
        if (!d->path)
            continue;
        s->n_net++;
        memcpy(d->name, from->name, sizeof(d->name));
        d->default_route = from->default_route;
        link_name(t, d->driver, d->path, "device/driver");
        link_name(t, d->bus, d->path, "device/subsystem");
        link_name(t, d->master, d->path, "master");
        if (sbx_name_ok(from->over))
            memcpy(d->over, from->over, sizeof(d->over));
        rc = take_attr_files(t, &d->attr, d->path, net_file, HW_ARRAY_LEN(net_file) - t->opt->no_addresses);
    }
    return rc;
}

static int add_snapshot_addr(struct sbx_snapshot *s, const struct ifaddrs *i)
{
    char name[IFNAMSIZ];
    /* omit the suffix of an alias, such as ":1" in eth0:1 */
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(i->ifa_name, ":"), i->ifa_name);
    int at = sbx_find_net(s, name), family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    if (at < 0 || (family != AF_INET && family != AF_INET6))
        return 0;
    struct sbx_netdev *d = &s->net[at];
    struct sbx_addr a = {.family = family}, *more = realloc(d->addr, (d->n_addr + 1) * sizeof(*more));
    uint8_t mask[16] = {0};
    if (!more)
        return hw_no_memory("the snapshot");
    d->addr = more;
    if (family == AF_INET) {
        a.v4 = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        if (i->ifa_netmask)
            memcpy(mask, &((const struct sockaddr_in *)(const void *)i->ifa_netmask)->sin_addr, 4);
    } else {
        a.v6 = ((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
        if (i->ifa_netmask)
            memcpy(mask, &((const struct sockaddr_in6 *)(const void *)i->ifa_netmask)->sin6_addr, 16);
    }
    for (size_t k = 0; k < sizeof(mask); k++)
        a.prefix += (unsigned)__builtin_popcount(mask[k]);
    d->addr[d->n_addr++] = a;
    return 0;
}

static int take_addrs(const struct take *t)
{
    struct ifaddrs *list;
    if (!t->opt->live || t->opt->no_addresses)
        return 0;
    if (getifaddrs(&list) < 0)
        return hw_fail(-errno, "listing the addresses of network interfaces: %s", strerror(errno));
    int rc = 0;
    for (const struct ifaddrs *i = list; i && rc == 0; i = i->ifa_next)
        rc = add_snapshot_addr(t->s, i);
    freeifaddrs(list);
    t->s->addresses = true;
    return rc;
}

/* ---- RDMA ----------------------------------------------------------------------------------- */

static const char zero_gid[] = "0000:0000:0000:0000:0000:0000:0000:0000";

/* Reads the nonzero GIDs. Reading the type or ndev of an unused entry fails with EINVAL
 * (drivers/infiniband/core/sysfs.c, _show_port_gid_attr()), and so does reading ndev on InfiniBand. */
static int take_gids(const struct take *t, const char *dir, struct sbx_port *p)
{
    struct hw_names l __attribute__((cleanup(hw_names_free))) = list_sysfs_folder(t, dir, "gids");
    int rc = 0;
    p->gid = alloc_snapshot_array(l.n, sizeof(*p->gid), &rc);
    for (size_t i = 0; i < l.n && rc == 0; i++) {
        struct sbx_gid *g = &p->gid[p->n_gid];
        char text[64]; /* includes space for the newline */
        uint64_t index;
        if (hw_text_u64(l.name[i], &index) < 0 || index > 65535)
            continue;
        p->gids = HW_MAX(p->gids, (unsigned)index + 1);
        if (t->opt->no_addresses ||
            hw_root_text(t->root, text, sizeof(text), "%s%s/gids/%s", t->sys, dir, l.name[i]) != sizeof(g->gid) - 1 ||
            strcmp(text, zero_gid) == 0)
            continue;
        memcpy(g->gid, text, sizeof(g->gid));
        g->index = (unsigned)index;
        p->n_gid++;
        if (hw_root_text(t->root, g->type, sizeof(g->type), "%s%s/gid_attrs/types/%s", t->sys, dir, l.name[i]) < 0)
            g->type[0] = 0;
        if (hw_root_text(t->root, g->ndev, sizeof(g->ndev), "%s%s/gid_attrs/ndevs/%s", t->sys, dir, l.name[i]) < 0 ||
            !sbx_name_ok(g->ndev))
            g->ndev[0] = 0;
    }
    return rc;
}

/* Adds the first P_Key and all nonzero P_Keys, because most of the table's 128 entries are zero. */
static int take_pkeys(const struct take *t, struct sbx_attrs *a, const char *dir)
{
    struct sbx_attrs all __attribute__((cleanup(sbx_attrs_free))) = {0};
    int rc = take_folder_files(t, &all, dir, "pkeys");
    for (size_t i = 0; i < all.n && rc == 0; i++)
        if (strcmp(all.v[i].value, "0x0000") != 0 || strcmp(all.v[i].name, "pkeys/0") == 0)
            rc = sbx_attr_add(a, all.v[i].name, all.v[i].value);
    return rc;
}

static int take_ports(const struct take *t, struct sbx_rdma *r)
{
    static const char *const name[] = {"state",  "phys_state", "rate",     "lid",       "lid_mask_count",
                                       "sm_lid", "sm_sl",      "cap_mask", "link_layer"};
    struct hw_names l __attribute__((cleanup(hw_names_free))) = list_sysfs_folder(t, r->path, "ports");
    int rc = 0;
    r->port = alloc_snapshot_array(l.n, sizeof(*r->port), &rc);
    for (size_t i = 0; i < l.n && rc == 0; i++) {
        char dir[PATH_MAX];
        uint64_t port;
        if (hw_text_u64(l.name[i], &port) < 0 || port > 255)
            continue;
        struct sbx_port *p = &r->port[r->n_port++];
        p->port = (unsigned)port;
        snprintf(dir, sizeof(dir), "%s/ports/%u", r->path, p->port);
        rc = take_attr_files(t, &p->attr, dir, name, HW_ARRAY_LEN(name));
        if (rc < 0 || (rc = take_pkeys(t, &p->attr, dir)) < 0 ||
            (rc = take_folder_files(t, &p->attr, dir, "counters")) < 0 ||
            (rc = take_folder_files(t, &p->attr, dir, "hw_counters")) < 0)
            return rc;
        rc = take_gids(t, dir, p);
    }
    return rc;
}

static int take_uverbs(const struct take *t)
{
    static const char *const name[] = {"dev", "abi_version"};
    struct hw_names l __attribute__((cleanup(hw_names_free))) = list_sysfs_folder(t, "class", "infiniband_verbs");
    int rc = 0;
    for (size_t i = 0; i < l.n && rc == 0; i++) {
        char ibdev[SBX_NAME];
        if (!sbx_name_ok(l.name[i]) ||
            hw_root_text(t->root, ibdev, sizeof(ibdev), "sys/class/infiniband_verbs/%s/ibdev", l.name[i]) < 0)
            continue;
        int at = sbx_find_rdma(t->s, ibdev);
        if (at < 0 || t->s->rdma[at].uverbs[0])
            continue;
        struct sbx_rdma *r = &t->s->rdma[at];
        r->uverbs_path = resolve_sysfs_path(t, "class/infiniband_verbs", "infiniband_verbs", l.name[i], &rc);
        if (!r->uverbs_path)
            continue;
        snprintf(r->uverbs, sizeof(r->uverbs), "%s", l.name[i]);
        rc = take_attr_files(t, &r->uverbs_attr, r->uverbs_path, name, HW_ARRAY_LEN(name));
    }
    return rc;
}

static int take_rdma(const struct take *t, const struct hw_node *n)
{
    static const char *const name[] = {"node_type", "board_id",  "fw_ver",         "hca_type",
                                       "hw_rev",    "node_guid", "sys_image_guid", "node_desc"};
    struct sbx_snapshot *s = t->s;
    int rc = 0;
    s->rdma = alloc_snapshot_array(n->n_rdma, sizeof(*s->rdma), &rc);
    for (size_t i = 0; i < n->n_rdma && rc == 0; i++) {
        struct sbx_rdma *r = &s->rdma[s->n_rdma];
        if (!sbx_name_ok(n->rdma[i].name)) {
            s->skipped++;
            continue;
        }
        r->path = resolve_sysfs_path(t, "class/infiniband", "infiniband", n->rdma[i].name, &rc);
        if (!r->path)
            continue;
        s->n_rdma++;
        memcpy(r->name, n->rdma[i].name, sizeof(r->name));
        rc = take_attr_files(t, &r->attr, r->path, name, HW_ARRAY_LEN(name) - (t->opt->no_addresses ? 3 : 0));
        if (rc < 0)
            return rc;
        rc = take_ports(t, r);
    }
    return rc < 0 ? rc : take_uverbs(t);
}

/* ---- NUMA nodes, CPUs, the rest ------------------------------------------------------------- */

/* Adds a node's total memory, as in "Node 0 MemTotal:  16318312 kB". The rest of meminfo is volatile. */
static int take_memory(const struct take *t)
{
    int rc = 0;
    for (size_t i = 0; i < t->s->n_numa && rc == 0; i++) {
        char text[HW_ATTR_MAX];
        if (hw_root_text(t->root, text, sizeof(text), "sys/devices/system/node/node%u/meminfo", t->s->numa[i].id) < 0)
            continue;
        text[strcspn(text, "\n")] = 0;
        if (strstr(text, " MemTotal: "))
            rc = sbx_attr_add(&t->s->numa[i].attr, "meminfo", text);
    }
    return rc;
}

static int take_numbered(const struct take *t, const char *dir, const char *prefix, const char *const *name, size_t n,
                         struct sbx_numbered **out, size_t *count)
{
    struct hw_names l __attribute__((cleanup(hw_names_free))) = list_sysfs_folder(t, dir, ".");
    int rc = 0;
    size_t skip = strlen(prefix);
    *out = alloc_snapshot_array(l.n, sizeof(**out), &rc);
    for (size_t i = 0; i < l.n && rc == 0; i++) {
        char path[256], again[SBX_NAME];
        uint64_t id;
        /* skip "cpufreq", which is not a CPU, and "node007", which would duplicate "node7" */
        if (strncmp(l.name[i], prefix, skip) != 0 || hw_text_u64(l.name[i] + skip, &id) < 0 || id > 65535)
            continue;
        snprintf(again, sizeof(again), "%s%u", prefix, (unsigned)id);
        if (strcmp(again, l.name[i]) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, again);
        struct sbx_numbered *v = &(*out)[(*count)++];
        v->id = (unsigned)id;
        rc = take_attr_files(t, &v->attr, path, name, n);
    }
    return rc;
}

static int take_nodes_and_cpus(const struct take *t)
{
    static const char *const numa[] = {"cpumap", "cpulist", "distance"};
    /* caches are left out: they have many files, and on x86 CPUID reports them */
    static const char *const cpu[] = {"online",
                                      "topology/physical_package_id",
                                      "topology/die_id",
                                      "topology/core_id",
                                      "topology/package_cpus",
                                      "topology/die_cpus",
                                      "topology/core_cpus",
                                      "topology/core_cpus_list",
                                      "topology/core_siblings",
                                      "topology/thread_siblings",
                                      "topology/thread_siblings_list"};
    struct sbx_snapshot *s = t->s;
    int rc = take_numbered(t, "devices/system/node", "node", numa, HW_ARRAY_LEN(numa), &s->numa, &s->n_numa);
    if (rc < 0 || (rc = take_memory(t)) < 0)
        return rc;
    return take_numbered(t, "devices/system/cpu", "cpu", cpu, HW_ARRAY_LEN(cpu), &s->cpu, &s->n_cpu);
}

static int take_rest(const struct take *t)
{
    static const char *const path[] = {"devices/system/cpu/online",
                                       "devices/system/cpu/possible",
                                       "devices/system/cpu/present",
                                       "devices/system/cpu/kernel_max",
                                       "devices/system/node/online",
                                       "devices/system/node/possible",
                                       "devices/system/node/has_cpu",
                                       "devices/system/node/has_memory",
                                       "class/infiniband_verbs/abi_version",
                                       "kernel/mm/memory_peers/nv_mem/version",
                                       "kernel/mm/memory_peers/nv_mem_nc/version",
                                       "kernel/mm/transparent_hugepage/enabled",
                                       "kernel/mm/transparent_hugepage/hpage_pmd_size",
                                       "module/nvidia/version",
                                       "module/nvidia_peermem/version"};
    static const char *const dmi[] = {"sys_vendor", "product_name"};
    int rc = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(path) && rc == 0; i++) {
        char text[HW_ATTR_MAX];
        if (hw_root_text(t->root, text, sizeof(text), "sys/%s", path[i]) > 0)
            rc = sbx_attr_add(&t->s->file, path[i], text);
    }
    for (size_t i = 0; i < HW_ARRAY_LEN(dmi) && rc == 0; i++) {
        char text[HW_ATTR_MAX], at[64];
        snprintf(at, sizeof(at), "devices/virtual/dmi/id/%s", dmi[i]);
        if (hw_root_text(t->root, text, sizeof(text), "sys/class/dmi/id/%s", dmi[i]) > 0)
            rc = sbx_attr_add(&t->s->file, at, text);
    }
    return rc;
}

int sbx_snapshot_take(struct sbx_snapshot *out, int root, const struct sbx_take *opt)
{
    *out = (struct sbx_snapshot){.gids = !opt->no_addresses};
    struct hw_node n __attribute__((cleanup(hw_node_free))) = {0};
    struct take t = {out, root, "sys/", opt};
    int rc = hw_node_scan(&n, root, &(struct hw_scan){0});
    if (rc < 0 || (rc = take_pci(&t, &n)) < 0 || (rc = take_net(&t, &n)) < 0 || (rc = take_rdma(&t, &n)) < 0 ||
        (rc = take_nodes_and_cpus(&t)) < 0 || (rc = take_rest(&t)) < 0 || (rc = sbx_snapshot_settle(out)) < 0)
        return rc;
    return take_addrs(&t);
}

/* ---- after a move --------------------------------------------------------------------------- */

/* Reads the GIDs of all ports of r again. A device that is not in this sysfs has no GIDs afterwards. */
static int retake_gids(const struct take *t, struct sbx_rdma *r)
{
    int rc = 0;
    for (size_t k = 0; k < r->n_port && rc == 0; k++) {
        struct sbx_port *p = &r->port[k];
        char dir[PATH_MAX];
        free(p->gid);
        p->gid = NULL;
        p->n_gid = 0;
        snprintf(dir, sizeof(dir), "class/infiniband/%s/ports/%u", r->name, p->port);
        rc = take_gids(t, dir, p);
    }
    return rc;
}

static int retake_net(const struct take *t, struct sbx_netdev *d)
{
    char dir[2 * SBX_NAME];
    struct sbx_attrs now = {0};
    snprintf(dir, sizeof(dir), "class/net/%s", d->name);
    int rc = take_attr_files(t, &now, dir, net_file, HW_ARRAY_LEN(net_file));
    if (rc == 0 && now.n) {
        struct sbx_attrs was = d->attr;
        d->attr = now;
        now = was;
    }
    sbx_attrs_free(&now);
    return rc;
}

int sbx_snapshot_again(struct sbx_snapshot *s, int sysfs, const bool *moved)
{
    const struct sbx_take opt = {0};
    struct take t = {s, sysfs, "", &opt};
    int rc = 0;
    for (size_t i = 0; i < s->n_net && rc == 0; i++)
        if (moved[i])
            rc = retake_net(&t, &s->net[i]);
    for (size_t i = 0; i < s->n_rdma && rc == 0; i++)
        rc = retake_gids(&t, &s->rdma[i]);
    return rc < 0 ? rc : sbx_snapshot_settle(s);
}

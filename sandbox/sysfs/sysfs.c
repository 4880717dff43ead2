/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the tree of a sandbox's sysfs. docs/sandbox.md lists the parts of the tree that each program requires to be
 * correct. */
#include "sandbox/sysfs/sysfs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct build {
    struct sbx_tree *t;
    const struct sbx_snapshot *s;
    const struct sbx_plan *plan; /* NULL to include everything */
};

#define FMT(buf, ...) snprintf(buf, sizeof(buf), __VA_ARGS__)

static void put_tree_file(struct build *b, const char *dir, const char *name, const char *value, const char *end,
                          bool live)
{
    char path[PATH_MAX], line[8192];
    FMT(path, "%s%s%s", dir, *dir ? "/" : "", name);
    int n = FMT(line, "%s%s", value, end);
    sbx_tree_file(b->t, path, line, HW_MIN((size_t)n, sizeof(line) - 1), live);
}

/* Adds a file with its text and the trailing newline of sysfs. */
static void put_text_file(struct build *b, const char *dir, const char *name, const char *value, bool live)
{
    put_tree_file(b, dir, name, value, "\n", live);
}

static void put_attr_files(struct build *b, const char *dir, const struct sbx_attrs *a, bool live)
{
    for (size_t i = 0; i < a->n; i++)
        put_text_file(b, dir, a->v[i].name, a->v[i].value, live);
}

static void link_to(struct build *b, const char *dir, const char *name, const char *to)
{
    char path[PATH_MAX];
    FMT(path, "%s/%s", dir, name);
    sbx_tree_link(b->t, path, to);
}

/* Writes the path of the folder that is `parts` components above path. Returns false if there is none. */
static bool get_ancestor_path(const char *path, int parts, char out[SBX_PATH + 1])
{
    snprintf(out, SBX_PATH + 1, "%s", path);
    for (; parts > 0; parts--) {
        char *slash = strrchr(out, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
    return true;
}

/* ---- PCI ------------------------------------------------------------------------------------ */

static void build_driver_links(struct build *b, const char *device, const char *bus, const char *name)
{
    char path[2 * SBX_NAME + 32];
    FMT(path, "bus/%s/drivers/%s", bus, name);
    sbx_tree_dir(b->t, path);
    link_to(b, device, "driver", path);
    link_to(b, path, strrchr(device, '/') + 1, device);
}

static bool is_pci_shown(const struct build *b, int pci)
{
    return pci >= 0 && !(b->plan && b->plan->pci_why[pci]);
}

static void build_pci_device(struct build *b, const struct sbx_pci *d)
{
    char bdf[HW_BDF_TEXT], above[SBX_PATH + 1], bus[SBX_PATH + 64], path[SBX_PATH + 64];
    hw_bdf_text(d->way.at[d->way.depth - 1], bdf);
    sbx_tree_dir(b->t, d->path);
    put_attr_files(b, d->path, &d->attr, false);
    if (d->n_config) {
        FMT(path, "%s/config", d->path);
        sbx_tree_file(b->t, path, d->config, d->n_config, false);
    }
    link_to(b, d->path, "subsystem", "bus/pci");
    link_to(b, "bus/pci/devices", bdf, d->path);
    if (d->driver[0])
        build_driver_links(b, d->path, "pci", d->driver);
    /* NCCL finds the devices of a bus through /sys/class/pci_bus/DDDD:BB/../../DDDD:BB:DD.F */
    if (!get_ancestor_path(d->path, 1, above))
        return;
    *strrchr(bdf, ':') = 0;
    FMT(bus, "%s/pci_bus/%s", above, bdf);
    sbx_tree_dir(b->t, bus);
    link_to(b, "class/pci_bus", bdf, bus);
    link_to(b, bus, "subsystem", "class/pci_bus");
}

/* ---- interfaces ----------------------------------------------------------------------------- */

static bool net_in(const struct build *b, size_t i)
{
    return !b->plan || b->s->net[i].loopback || sbx_nic_in(b->plan, i);
}

/* Writes the interface's path in the sandbox. An interface whose PCI device is not shown becomes virtual. */
static void net_path(const struct build *b, const struct sbx_netdev *d, char out[SBX_PATH + 1])
{
    if (d->pci < 0 || is_pci_shown(b, d->pci))
        snprintf(out, SBX_PATH + 1, "%s", d->path);
    else
        snprintf(out, SBX_PATH + 1, "devices/virtual/net/%s", d->name);
}

/* Adds the link dir/name to interface `other`, if the sandbox has that interface. */
static void net_link(struct build *b, const char *dir, const char *name, const char *other)
{
    char to[SBX_PATH + 1];
    int at = *other ? sbx_find_net(b->s, other) : -1;
    if (at < 0 || !net_in(b, (size_t)at))
        return;
    net_path(b, &b->s->net[at], to);
    link_to(b, dir, name, to);
}

static bool is_virtual(const char *path)
{
    return strncmp(path, "devices/virtual/", 16) == 0;
}

static void build_net_device(struct build *b, const struct sbx_netdev *d)
{
    char path[SBX_PATH + 1], device[SBX_PATH + 1], lower[SBX_NAME + 8];
    net_path(b, d, path);
    sbx_tree_dir(b->t, path);
    put_attr_files(b, path, &d->attr, false);
    link_to(b, path, "subsystem", "class/net");
    link_to(b, "class/net", d->name, path);
    FMT(lower, "lower_%s", d->over);
    net_link(b, path, "master", d->master);
    net_link(b, path, lower, d->over);
    if (is_virtual(path) || !get_ancestor_path(path, 2, device))
        return;
    link_to(b, path, "device", device);
    if (d->bus[0] && strcmp(d->bus, "pci") != 0) {
        char bus[SBX_NAME + 8];
        FMT(bus, "bus/%s", d->bus);
        sbx_tree_dir(b->t, bus);
        link_to(b, device, "subsystem", bus);
    }
    if (d->driver[0] && d->bus[0])
        build_driver_links(b, device, d->bus, d->driver);
}

/* ---- RDMA ----------------------------------------------------------------------------------- */

/* Adds every entry of the table, because NCCL treats an entry that it cannot open as an error, and an entry that it
 * cannot read as unused. */
static void build_gid_files(struct build *b, const char *dir, const struct sbx_port *p)
{
    for (unsigned i = 0, k = 0; i < p->gids; i++) {
        const struct sbx_gid *g = k < p->n_gid && p->gid[k].index == i ? &p->gid[k++] : NULL;
        const char *const file[] = {"gids", "gid_attrs/types", "gid_attrs/ndevs"};
        const char *const value[] = {g ? g->gid : "0000:0000:0000:0000:0000:0000:0000:0000", g ? g->type : "",
                                     g ? g->ndev : ""};
        for (size_t n = 0; n < HW_ARRAY_LEN(file); n++) {
            char name[64];
            FMT(name, "%s/%u", file[n], i);
            put_tree_file(b, dir, name, value[n], *value[n] ? "\n" : "", true);
        }
    }
}

static void build_rdma_device(struct build *b, const struct sbx_rdma *r)
{
    char device[SBX_PATH + 1], dir[SBX_PATH + 64];
    sbx_tree_dir(b->t, r->path);
    put_attr_files(b, r->path, &r->attr, false);
    link_to(b, r->path, "subsystem", "class/infiniband");
    link_to(b, "class/infiniband", r->name, r->path);
    bool hangs = !is_virtual(r->path) && get_ancestor_path(r->path, 2, device);
    if (hangs)
        link_to(b, r->path, "device", device);
    for (size_t i = 0; i < r->n_port; i++) {
        FMT(dir, "%s/ports/%u", r->path, r->port[i].port);
        put_attr_files(b, dir, &r->port[i].attr, true);
        build_gid_files(b, dir, &r->port[i]);
    }
    if (!r->uverbs[0])
        return;
    put_attr_files(b, r->uverbs_path, &r->uverbs_attr, false);
    put_text_file(b, r->uverbs_path, "ibdev", r->name, false);
    link_to(b, r->uverbs_path, "subsystem", "class/infiniband_verbs");
    link_to(b, "class/infiniband_verbs", r->uverbs, r->uverbs_path);
    if (hangs)
        link_to(b, r->uverbs_path, "device", device);
}

/* ---- the tree ------------------------------------------------------------------------------- */

static void build_numbered_dirs(struct build *b, const char *prefix, const struct sbx_numbered *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char dir[64];
        FMT(dir, "%s%u", prefix, v[i].id);
        sbx_tree_dir(b->t, dir);
        put_attr_files(b, dir, &v[i].attr, false);
    }
}

int sbx_sysfs_build(struct sbx_tree *out, const struct sbx_snapshot *s, const struct sbx_plan *plan)
{
    /* folders that every tree has; fs/cgroup is a mount point */
    static const char *const dir[] = {"block",   "bus/pci/devices",    "bus/pci/drivers",    "class/net", "dev",
                                      "devices", "firmware",           "fs/cgroup",          "kernel",    "module",
                                      "power",   "devices/system/cpu", "devices/system/node"};
    struct build b = {out, s, plan};
    sbx_tree_init(out);
    for (size_t i = 0; i < HW_ARRAY_LEN(dir) && out->rc == 0; i++)
        sbx_tree_dir(out, dir[i]);
    for (size_t i = 0; i < s->n_pci && out->rc == 0; i++)
        if (is_pci_shown(&b, (int)i))
            build_pci_device(&b, &s->pci[i]);
    for (size_t i = 0; i < s->n_net && out->rc == 0; i++)
        if (net_in(&b, i))
            build_net_device(&b, &s->net[i]);
    for (size_t i = 0; i < s->n_rdma && out->rc == 0; i++)
        if (!plan || !plan->rdma[i].why[0])
            build_rdma_device(&b, &s->rdma[i]);
    build_numbered_dirs(&b, "devices/system/node/node", s->numa, s->n_numa);
    build_numbered_dirs(&b, "devices/system/cpu/cpu", s->cpu, s->n_cpu);
    for (size_t i = 0; i < s->file.n; i++)
        put_text_file(&b, "", s->file.v[i].name, s->file.v[i].value, false);
    if (sbx_tree_find(out, "devices/virtual/dmi/id"))
        sbx_tree_link(out, "class/dmi/id", "devices/virtual/dmi/id");
    return out->rc;
}

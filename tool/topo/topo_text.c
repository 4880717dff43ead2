/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/topo/topo.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Prints an item of a list, preceded by a comma unless it is the first. */
static void print_list_item(FILE *f, bool *first, const char *fmt, ...) HW_PRINTF(3, 4);
static void print_list_item(FILE *f, bool *first, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!*first)
        fputs(", ", f);
    *first = false;
    vfprintf(f, fmt, ap);
    va_end(ap);
}

static void print_topo_summary(const struct topo *t, FILE *f)
{
    size_t nics = 0, cpus = 0;
    for (size_t i = 0; i < t->node.n_netdev; i++)
        nics += topo_on_pci(&t->node.netdev[i]);
    for (size_t i = 0; i < t->node.n_numa; i++)
        cpus += t->node.numa[i].n_cpus;
    fprintf(f, "%s%s%s: %zu GPU%s, %zu NIC%s, %zu NUMA node%s, %zu CPU%s\n", t->from ? t->from : "this machine",
            t->node.machine[0] ? ", " : "", t->node.machine, t->node.n_gpu, hw_plural(t->node.n_gpu), nics,
            hw_plural(nics), t->node.n_numa, hw_plural(t->node.n_numa), cpus, hw_plural(cpus));
    if (t->cuda[0])
        fprintf(f, "GPUs are numbered by PCI address: %s\n", t->cuda);
    for (size_t i = 0; i < t->node.n_note; i++)
        fprintf(f, "note: %s\n", t->node.note[i]);
    if (t->node.notes_lost)
        fprintf(f, "note: %zu further note%s not shown\n", t->node.notes_lost,
                t->node.notes_lost == 1 ? " is" : "s are");
}

/* ---- PCI tree ------------------------------------------------------------------------------- */

static void numa_line(const struct topo *t, int id, FILE *f)
{
    if (id < 0) {
        fprintf(f, "\nNUMA node unknown\n");
        return;
    }
    fprintf(f, "\nNUMA node %d: ", id);
    bool first = true;
    for (size_t i = 0; i < t->node.n_numa; i++) {
        const struct hw_numa *m = &t->node.numa[i];
        if (m->id != id)
            continue;
        if (m->cpus[0])
            print_list_item(f, &first, "CPUs %s", m->cpus);
        if (m->package >= 0)
            print_list_item(f, &first, "package %d", m->package);
        for (size_t k = 0; m->distance && k < t->node.n_numa; k++)
            if (k != i)
                print_list_item(f, &first, "distance %u to node %d", m->distance[k], t->node.numa[k].id);
    }
    fputc('\n', f);
}

static void link_items(FILE *f, bool *first, const struct hw_pci_dev *d)
{
    if (!d->mts || !d->lanes)
        return;
    print_list_item(f, first, "PCIe %g GT/s x%u (%.1f GB/s)", d->mts / 1000.0, d->lanes,
                    hw_pci_MBps(d->mts, d->lanes) / 1000.0);
    if (d->max_mts > d->mts || d->max_lanes > d->lanes)
        print_list_item(f, first, "supports %g GT/s x%u", d->max_mts / 1000.0, d->max_lanes);
}

static void nic_items(FILE *f, bool *first, const struct topo *t, const struct hw_netdev *d)
{
    char speed[32];
    if (d->driver[0])
        print_list_item(f, first, "%s", d->driver);
    if (*topo_speed(d->speed, speed, sizeof(speed)))
        print_list_item(f, first, "%s", speed);
    if (d->mtu >= 0)
        print_list_item(f, first, "MTU %lld", (long long)d->mtu);
    if (d->state[0] && strcmp(d->state, "unknown") != 0)
        print_list_item(f, first, "%s", d->state);
    if (t->node.live && !d->address && strcmp(d->state, "down") != 0)
        print_list_item(f, first, "no IP address");
    if (d->rdma[0])
        print_list_item(f, first, "RDMA %s", d->rdma);
    if (d->over[0])
        print_list_item(f, first, "over %s", d->over);
    if (d->master[0])
        print_list_item(f, first, "part of %s", d->master);
    if (d->default_route)
        print_list_item(f, first, "default route");
}

static void gpu_items(FILE *f, bool *first, const struct topo *t, const struct hw_gpu *g)
{
    const struct hw_pci_dev *d = g->pci < 0 ? NULL : &t->node.pci[g->pci];
    if (t->info && g->ordinal >= 0)
        print_list_item(f, first, "%s, %.0f GiB", t->info[g->ordinal].name,
                        (double)t->info[g->ordinal].memory / (1u << 30));
    else if (d)
        print_list_item(f, first, "%s%s%04x:%04x", hw_pci_vendor(d->vendor), *hw_pci_vendor(d->vendor) ? " " : "",
                        d->vendor, d->device);
    if (d && d->driver[0])
        print_list_item(f, first, "%s", d->driver);
    if (d)
        link_items(f, first, d);
}

/* Begins a line of the tree with the indented address and a name. */
static void begin_tree_line(FILE *f, unsigned depth, const char *at, const char *name)
{
    fprintf(f, "%*s%-*s  %-10s ", (int)(2 * depth), "", (int)(24 - HW_MIN(2 * depth, 11u)), at, name);
}

static void print_pci_device(const struct topo *t, int pci, FILE *f)
{
    const struct hw_node *n = &t->node;
    const struct hw_pci_dev *d = &n->pci[pci];
    const struct hw_gpu *g = topo_gpu_at(t, pci);
    char at[HW_BDF_TEXT], name[32];
    bool first, said = false;
    hw_bdf_text(d->path.at[d->path.depth - 1], at);
    if (g) {
        begin_tree_line(f, d->path.depth + 1, at, topo_gpu_name(g, name, sizeof(name)));
        gpu_items(f, (first = true, &first), t, g);
        fputc('\n', f);
        said = true;
    }
    for (size_t i = 0; i < n->n_netdev; i++) {
        if (n->netdev[i].pci != pci || !topo_on_pci(&n->netdev[i]))
            continue;
        begin_tree_line(f, d->path.depth + 1, said ? "" : at, n->netdev[i].name);
        nic_items(f, (first = true, &first), t, &n->netdev[i]);
        if (!said)
            link_items(f, &first, d);
        fputc('\n', f);
        said = true;
    }
    for (size_t i = 0; i < n->n_rdma; i++) {
        const struct hw_rdma *r = &n->rdma[i];
        bool told = false; /* true if an interface's line already shows this device */
        for (size_t k = 0; k < n->n_netdev; k++)
            told |= strcmp(n->netdev[k].rdma, r->name) == 0;
        if (r->pci != pci || told)
            continue;
        begin_tree_line(f, d->path.depth + 1, said ? "" : at, r->name);
        first = true;
        if (r->link[0])
            print_list_item(f, &first, "RDMA over %s", r->link);
        if (r->rate[0])
            print_list_item(f, &first, "%s", r->rate);
        if (r->state[0])
            print_list_item(f, &first, "%s", r->state);
        fputc('\n', f);
        said = true;
    }
    if (!said) {
        begin_tree_line(f, d->path.depth + 1, at, "bridge");
        link_items(f, (first = true, &first), d);
        fputc('\n', f);
    }
}

static int print_pci_tree(const struct topo *t, FILE *f)
{
    size_t n;
    int *order = topo_order(t, &n), numa = -2;
    const char *root = "";
    if (!order)
        return hw_no_memory("the tree");
    for (size_t i = 0; i < n; i++) {
        const struct hw_pci_dev *d = &t->node.pci[order[i]];
        if (d->numa != numa) {
            numa_line(t, d->numa, f);
            numa = d->numa;
            root = "";
        }
        if (strcmp(root, d->path.root) != 0)
            fprintf(f, "  %s\n", d->path.root);
        root = d->path.root;
        print_pci_device(t, order[i], f);
    }
    free(order);
    bool any = false;
    for (size_t i = 0; i < t->node.n_netdev; i++) {
        const struct hw_netdev *d = &t->node.netdev[i];
        if (topo_on_pci(d))
            continue;
        if (!any)
            fprintf(f, "\nInterfaces without a PCI device\n");
        any = true;
        fprintf(f, "  %-15s ", d->name);
        bool first = true;
        nic_items(f, &first, t, d);
        fputc('\n', f);
    }
    for (size_t i = 0; i < t->node.n_gpu; i++)
        if (t->node.gpu[i].pci < 0) {
            char at[HW_BDF_TEXT];
            fprintf(f, "\nGPU %d at %s is not in sysfs\n", t->node.gpu[i].ordinal, hw_bdf_text(t->node.gpu[i].at, at));
        }
    return 0;
}

/* ---- distance matrix and plan --------------------------------------------------------------- */

static void print_distance_matrix(const struct topo *t, FILE *f)
{
    const struct hw_node *n = &t->node;
    size_t nics = 0;
    for (size_t i = 0; i < n->n_netdev; i++)
        nics += topo_on_pci(&n->netdev[i]);
    if (n->n_gpu == 0 || nics == 0)
        return;
    fprintf(f, "\n%-14s", "Distances");
    for (size_t i = 0; i < n->n_netdev; i++)
        if (topo_on_pci(&n->netdev[i]))
            fprintf(f, "  %5s", n->netdev[i].name);
    fputc('\n', f);
    for (size_t g = 0; g < n->n_gpu; g++) {
        char name[32], at[HW_BDF_TEXT];
        /* a GPU that CUDA does not report has no number */
        bool cuda = n->gpu[g].ordinal >= 0;
        fprintf(f, "  %-12s", cuda ? topo_gpu_name(&n->gpu[g], name, sizeof(name)) : hw_bdf_text(n->gpu[g].at, at));
        for (size_t i = 0; i < n->n_netdev; i++)
            if (topo_on_pci(&n->netdev[i]))
                fprintf(f, "  %*s", (int)HW_MAX(strlen(n->netdev[i].name), (size_t)5),
                        n->gpu[g].pci < 0 ? "?" : hw_dist_name(hw_node_distance(n, n->gpu[g].pci, n->netdev[i].pci)));
        fputc('\n', f);
    }
    fprintf(f, "  as in nvidia-smi topo: PIX crosses at most one PCI bridge, PXB several bridges, PHB\n  the host "
               "bridge, NODE two host bridges of one NUMA node, SYS two NUMA nodes\n");
}

static int print_topo_plan(const struct topo *t, FILE *f)
{
    const struct hw_node *n = &t->node;
    fprintf(f, "\nPlan\n");
    if (!t->planned) {
        fprintf(f, "  none: %s\n", t->why);
        return 0;
    }
    if (t->plan.n_gpus == 0)
        fprintf(f, "  no GPU to plan for\n");
    for (size_t k = 0; k < t->plan.n_gpus; k++) {
        const struct hw_plan_gpu *g = &t->plan.gpu[k];
        fprintf(f, "  GPU %-3d  ", g->gpu);
        for (size_t i = 0; i < g->n_nics; i++) {
            const struct hw_netdev *d = &n->netdev[g->nic[i]];
            int gpu = n->gpu[g->gpu].pci;
            fprintf(f, "%s%s (%s)", i ? ", " : "", d->name,
                    gpu < 0 || d->pci < 0 ? "no PCI path" : hw_dist_name(hw_node_distance(n, gpu, d->pci)));
        }
        fprintf(f, "  CPUs %s%s\n", g->cpus[0] ? g->cpus : "unknown", g->mapped ? "  by --map" : "");
    }
    bool first = true;
    for (size_t i = 0; i < n->n_netdev; i++) {
        if (!t->plan.why[i])
            continue;
        if (first)
            fprintf(f, "  not used: ");
        print_list_item(f, &first, "%s (%s)", n->netdev[i].name, t->plan.why[i]);
    }
    if (!first)
        fputc('\n', f);
    if (t->plan.n_gpus == 0)
        return 0;
    char *map = topo_map(t);
    if (!map)
        return hw_no_memory("the map");
    fprintf(f, "  as an option: --map \"%s\"\n", map);
    free(map);
    return 0;
}

int topo_text(const struct topo *t, FILE *out)
{
    print_topo_summary(t, out);
    int rc = print_pci_tree(t, out);
    if (rc < 0)
        return rc;
    print_distance_matrix(t, out);
    return print_topo_plan(t, out);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/topo/topo.h"

#include <stdlib.h>
#include <string.h>

const struct hw_gpu *topo_gpu_at(const struct topo *t, int pci)
{
    for (size_t i = 0; i < t->node.n_gpu; i++)
        if (t->node.gpu[i].pci == pci)
            return &t->node.gpu[i];
    return NULL;
}

static bool is_topo_leaf(const struct topo *t, int pci)
{
    bool yes = topo_gpu_at(t, pci);
    for (size_t i = 0; i < t->node.n_netdev; i++)
        yes |= t->node.netdev[i].pci == pci && topo_on_pci(&t->node.netdev[i]);
    for (size_t i = 0; i < t->node.n_rdma; i++)
        yes |= t->node.rdma[i].pci == pci;
    return yes;
}

static bool is_path_above(const struct hw_pci_path *a, const struct hw_pci_path *b)
{
    return a->depth < b->depth && hw_bdf_cmp(a->at[a->depth - 1], b->at[a->depth - 1]) == 0;
}

/* Compares PCI devices by NUMA node, with unknown nodes last, and then by the path from the root. */
static int by_way(const void *a, const void *b, void *arg)
{
    const struct hw_pci_dev *pci = arg, *x = &pci[*(const int *)a], *y = &pci[*(const int *)b];
    if (x->numa != y->numa)
        return (unsigned)x->numa < (unsigned)y->numa ? -1 : 1;
    int c = strcmp(x->path.root, y->path.root);
    for (unsigned i = 0; c == 0 && i < x->path.depth && i < y->path.depth; i++)
        c = hw_bdf_cmp(x->path.at[i], y->path.at[i]);
    return c ? c : (int)x->path.depth - (int)y->path.depth;
}

int *topo_order(const struct topo *t, size_t *n)
{
    const struct hw_node *d = &t->node;
    int *order = malloc((d->n_pci + 1) * sizeof(*order));
    bool *show = calloc(d->n_pci + 1, 1);
    *n = 0;
    for (size_t i = 0; order && show && i < d->n_pci; i++) {
        if (!is_topo_leaf(t, (int)i))
            continue;
        for (size_t k = 0; k < d->n_pci; k++)
            show[k] |= k == i || is_path_above(&d->pci[k].path, &d->pci[i].path);
    }
    for (size_t i = 0; order && show && i < d->n_pci; i++)
        if (show[i])
            order[(*n)++] = (int)i;
    if (*n > 1)
        qsort_r(order, *n, sizeof(*order), by_way, d->pci);
    if (!show) {
        free(order);
        order = NULL;
    }
    free(show);
    return order;
}

static bool same_nics(const struct hw_plan_gpu *a, const struct hw_plan_gpu *b)
{
    return a->n_nics == b->n_nics && memcmp(a->nic, b->nic, a->n_nics * sizeof(*a->nic)) == 0;
}

char *topo_map(const struct topo *t)
{
    char *text = NULL;
    size_t len, k = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    while (k < t->plan.n_gpus) {
        const struct hw_plan_gpu *g = &t->plan.gpu[k];
        fprintf(f, "%s%d", k ? ";" : "", g->gpu);
        for (k++; k < t->plan.n_gpus && same_nics(g, &t->plan.gpu[k]); k++)
            fprintf(f, ",%d", t->plan.gpu[k].gpu);
        for (size_t i = 0; i < g->n_nics; i++)
            fprintf(f, "%c%s", i ? ',' : '=', t->node.netdev[g->nic[i]].name);
    }
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

char *topo_gpu_name(const struct hw_gpu *g, char *buf, size_t cap)
{
    if (g->ordinal < 0)
        snprintf(buf, cap, "GPU");
    else
        snprintf(buf, cap, "GPU %d", g->ordinal);
    return buf;
}

char *topo_speed(int64_t mbps, char *buf, size_t cap)
{
    *buf = 0;
    if (mbps >= 1000)
        snprintf(buf, cap, "%g Gb/s", (double)mbps / 1000);
    else if (mbps >= 0)
        snprintf(buf, cap, "%d Mb/s", (int)mbps);
    return buf;
}

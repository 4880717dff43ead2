/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/json.h"
#include "tool/topo/topo.h"

#include <stdlib.h>
#include <string.h>

static void write_topo_text(struct hw_json *j, const char *key, const char *value)
{
    hw_json_str(j, key, value && *value ? value : NULL);
}

/* Writes a number, or null if v is the value that means unknown. */
static void write_topo_number(struct hw_json *j, const char *key, int64_t v, int64_t unknown)
{
    if (v == unknown)
        hw_json_null(j, key);
    else
        hw_json_i64(j, key, v);
}

static void write_topo_address(struct hw_json *j, const char *key, const struct hw_node *n, int pci)
{
    char at[HW_BDF_TEXT];
    if (pci < 0)
        hw_json_null(j, key);
    else
        hw_json_str(j, key, hw_bdf_text(n->pci[pci].path.at[n->pci[pci].path.depth - 1], at));
}

static int write_topo_pci(struct hw_json *j, const struct topo *t)
{
    size_t n;
    int *order = topo_order(t, &n);
    if (!order)
        return hw_no_memory("the tree");
    hw_json_array(j, "pci");
    for (size_t i = 0; i < n; i++) {
        const struct hw_pci_dev *d = &t->node.pci[order[i]];
        char at[HW_BDF_TEXT];
        hw_json_object(j, NULL);
        write_topo_address(j, "address", &t->node, order[i]);
        hw_json_str(j, "root", d->path.root);
        hw_json_array(j, "above"); /* bridges from the root down */
        for (unsigned k = 0; k + 1 < d->path.depth; k++)
            hw_json_str(j, NULL, hw_bdf_text(d->path.at[k], at));
        hw_json_end(j);
        hw_json_u64(j, "class", d->class);
        hw_json_u64(j, "vendor", d->vendor);
        hw_json_u64(j, "device", d->device);
        write_topo_text(j, "driver", d->driver);
        write_topo_number(j, "numa", d->numa, -1);
        write_topo_number(j, "link_MTs", d->mts, 0);
        write_topo_number(j, "link_lanes", d->lanes, 0);
        write_topo_number(j, "max_link_MTs", d->max_mts, 0);
        write_topo_number(j, "max_link_lanes", d->max_lanes, 0);
        hw_json_end(j);
    }
    hw_json_end(j);
    free(order);
    return 0;
}

static void write_topo_gpus(struct hw_json *j, const struct topo *t)
{
    const struct hw_node *n = &t->node;
    hw_json_array(j, "gpus");
    for (size_t i = 0; i < n->n_gpu; i++) {
        const struct hw_gpu *g = &n->gpu[i];
        char at[HW_BDF_TEXT];
        hw_json_object(j, NULL);
        write_topo_number(j, "gpu", g->ordinal, -1);
        hw_json_str(j, "pci", hw_bdf_text(g->at, at));
        write_topo_text(j, "name", t->info && g->ordinal >= 0 ? t->info[g->ordinal].name : NULL);
        write_topo_number(j, "numa", hw_node_numa_of(n, g->pci), -1);
        hw_json_object(j, "distance");
        for (size_t k = 0; g->pci >= 0 && k < n->n_netdev; k++)
            if (n->netdev[k].pci >= 0)
                hw_json_str(j, n->netdev[k].name, hw_dist_name(hw_node_distance(n, g->pci, n->netdev[k].pci)));
        hw_json_end(j);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void write_topo_nics(struct hw_json *j, const struct hw_node *n)
{
    hw_json_array(j, "nics");
    for (size_t i = 0; i < n->n_netdev; i++) {
        const struct hw_netdev *d = &n->netdev[i];
        hw_json_object(j, NULL);
        hw_json_str(j, "nic", d->name);
        write_topo_address(j, "pci", n, d->pci);
        write_topo_number(j, "numa", hw_node_numa_of(n, d->pci), -1);
        write_topo_text(j, "driver", d->driver);
        write_topo_number(j, "speed_Mbps", d->speed, -1);
        write_topo_number(j, "mtu", d->mtu, -1);
        write_topo_text(j, "state", d->state);
        write_topo_text(j, "over", d->over);
        write_topo_text(j, "master", d->master);
        write_topo_text(j, "rdma", d->rdma);
        hw_json_bool(j, "loopback", d->loopback);
        hw_json_bool(j, "default_route", d->default_route);
        if (n->live)
            hw_json_bool(j, "address", d->address);
        else
            hw_json_null(j, "address");
        hw_json_end(j);
    }
    hw_json_end(j);
    hw_json_array(j, "rdma");
    for (size_t i = 0; i < n->n_rdma; i++) {
        hw_json_object(j, NULL);
        hw_json_str(j, "device", n->rdma[i].name);
        write_topo_address(j, "pci", n, n->rdma[i].pci);
        write_topo_text(j, "state", n->rdma[i].state);
        write_topo_text(j, "rate", n->rdma[i].rate);
        write_topo_text(j, "link_layer", n->rdma[i].link);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void write_topo_numa(struct hw_json *j, const struct hw_node *n)
{
    hw_json_array(j, "numa");
    for (size_t i = 0; i < n->n_numa; i++) {
        const struct hw_numa *m = &n->numa[i];
        hw_json_object(j, NULL);
        hw_json_i64(j, "node", m->id);
        write_topo_text(j, "cpus", m->cpus);
        write_topo_number(j, "package", m->package, -1);
        hw_json_array(j, "distance");
        for (size_t k = 0; m->distance && k < n->n_numa; k++)
            hw_json_u64(j, NULL, m->distance[k]);
        hw_json_end(j);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static int write_topo_plan(struct hw_json *j, const struct topo *t)
{
    if (!t->planned) {
        hw_json_null(j, "plan");
        hw_json_str(j, "no_plan", t->why);
        return 0;
    }
    char *map = topo_map(t);
    if (!map)
        return hw_no_memory("the map");
    hw_json_array(j, "plan");
    for (size_t k = 0; k < t->plan.n_gpus; k++) {
        const struct hw_plan_gpu *g = &t->plan.gpu[k];
        hw_json_object(j, NULL);
        hw_json_i64(j, "gpu", g->gpu);
        hw_json_array(j, "nics");
        for (size_t i = 0; i < g->n_nics; i++)
            hw_json_str(j, NULL, t->node.netdev[g->nic[i]].name);
        hw_json_end(j);
        write_topo_text(j, "cpus", g->cpus);
        hw_json_bool(j, "by_map", g->mapped);
        hw_json_end(j);
    }
    hw_json_end(j);
    hw_json_object(j, "not_used");
    for (size_t i = 0; i < t->node.n_netdev; i++)
        if (t->plan.why[i])
            hw_json_str(j, t->node.netdev[i].name, t->plan.why[i]);
    hw_json_end(j);
    write_topo_text(j, "map", map);
    free(map);
    return 0;
}

int topo_json(const struct topo *t, FILE *out)
{
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-topo-1");
    write_topo_text(&j, "from", t->from);
    write_topo_text(&j, "machine", t->node.machine);
    write_topo_text(&j, "cuda", t->cuda); /* why CUDA's order is unknown; null if it is known */
    write_topo_numa(&j, &t->node);
    int rc = write_topo_pci(&j, t);
    write_topo_gpus(&j, t);
    write_topo_nics(&j, &t->node);
    int rc2 = write_topo_plan(&j, t);
    hw_json_array(&j, "notes");
    for (size_t i = 0; i < t->node.n_note; i++)
        hw_json_str(&j, NULL, t->node.note[i]);
    hw_json_end(&j);
    hw_json_u64(&j, "notes_left_out", t->node.notes_lost);
    hw_json_end(&j);
    if (rc < 0 || rc2 < 0)
        return rc < 0 ? rc : rc2;
    rc = hw_json_finish(&j);
    return rc < 0 ? hw_fail(rc, "writing the JSON failed: %s", hw_errno_text(rc)) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the file for NCCL_TOPO_FILE: a tree of <cpu>, <pci>, <gpu> and <nic><net>, as NCCL builds it from sysfs and
 * dumps it (NCCL's src/graph/xml.cc and topo.cc, 2.18 to 2.30). A switch is one element, so the upper bridge of each
 * pair on the path (a switch's upstream and downstream ports) represents both. Speed and width are the lower of the
 * device's maximum and the maximum of the parent port. NCCL treats empty values as unknown and determines missing
 * values itself (a GPU's compute capability, a NIC's number). NCCL drops a <net> whose name no network plugin reports.
 */
#include "sandbox/sysfs/sysfs.h"

#include <stdlib.h>
#include <string.h>

struct xml {
    const struct sbx_snapshot *s;
    const struct sbx_plan *p;
    FILE *out;
    bool *done; /* by PCI device: true if the file contains an element for the device */
    int *up;    /* by PCI device: index of the parent element, or -1 if the parent is a CPU */
};

static bool is_pci_planned(const struct xml *x, size_t i)
{
    return !x->p->pci_why[i];
}

/* Writes an attribute. Escapes markup, and replaces control characters, because the value comes from a file. */
static void write_xml_attr(const struct xml *x, const char *name, const char *value)
{
    fprintf(x->out, " %s=\"", name);
    for (; *value; value++) {
        const char *esc = *value == '&' ? "&amp;" : *value == '<' ? "&lt;" : *value == '"' ? "&quot;" : NULL;
        if (esc)
            fputs(esc, x->out);
        else
            fputc((unsigned char)*value < ' ' ? '?' : *value, x->out);
    }
    fputc('"', x->out);
}

static const char *get_pci_attr(const struct sbx_pci *d, const char *name)
{
    const char *v = sbx_attr(&d->attr, name);
    return v ? v : "";
}

/* Returns the lower of the values in the files of the device and of its parent port, or "" if neither file contains a
 * number. */
static const char *get_lower_link_attr(const struct xml *x, const struct sbx_pci *d, const char *file)
{
    int above = d->way.depth > 1 ? sbx_find_pci(x->s, d->way.at[d->way.depth - 2]) : -1;
    const char *a = get_pci_attr(d, file), *b = above < 0 ? "" : get_pci_attr(&x->s->pci[above], file);
    double va = strtod(a, NULL), vb = strtod(b, NULL);
    if (va <= 0)
        return vb > 0 ? b : "";
    return vb > 0 && vb < va ? b : a;
}

/* Returns a GPU's number in the sandbox, where CUDA numbers the GPUs from 0, or -1 for any other device. */
static int gpu_ordinal(const struct xml *x, size_t pci)
{
    int n = 0;
    for (size_t i = 0; i < x->p->n_gpu; i++) {
        if (x->p->gpu[i].why[0] || x->p->gpu[i].ordinal < 0)
            continue;
        if (x->p->gpu[i].pci == (int)pci)
            return n;
        n++;
    }
    return -1;
}

/* Converts a rate such as "400 Gb/sec (4X NDR)" to Mbit/s. */
static long parse_port_rate(const struct sbx_port *p)
{
    const char *text = sbx_attr(&p->attr, "rate");
    return text ? (long)(strtod(text, NULL) * 1000) : 0;
}

/* Writes <net> elements for the plan's RDMA ports on PCI device pci or, if there are none, for the device's first
 * interface in the plan, with the names that NCCL's IB and socket transports use. Returns the number of elements. If
 * out is NULL, only counts them. */
static size_t list_net_elements(const struct xml *x, size_t pci, FILE *out, int depth)
{
    const struct sbx_snapshot *s = x->s;
    size_t n = 0;
    for (size_t i = 0; i < s->n_rdma; i++) {
        const struct sbx_rdma *r = &s->rdma[i];
        for (size_t k = 0, m = 0; k < x->p->rdma[i].n_port && r->pci == (int)pci; k++) {
            while (r->port[m].port != x->p->rdma[i].port[k]) /* both lists are in the same order */
                m++;
            const struct sbx_port *port = &r->port[m];
            n++;
            if (!out)
                continue;
            fprintf(out, "%*s<net name=\"%s\" port=\"%u\"", depth, "", r->name, port->port);
            if (parse_port_rate(port) > 0)
                fprintf(out, " speed=\"%ld\"", parse_port_rate(port));
            fprintf(out, "/>\n");
        }
    }
    for (size_t i = 0; i < s->n_net && n == 0; i++) {
        const struct sbx_netdev *d = &s->net[i];
        if (d->pci != (int)pci || !sbx_nic_in(x->p, i))
            continue;
        const char *speed = sbx_attr(&d->attr, "speed");
        n++;
        if (!out)
            break;
        fprintf(out, "%*s<net name=\"%s\" port=\"0\"", depth, "", d->name);
        if (speed && strtol(speed, NULL, 10) > 0)
            fprintf(out, " speed=\"%ld\"", strtol(speed, NULL, 10));
        fprintf(out, "/>\n");
    }
    return n;
}

/* Returns true for a GPU or a NIC of the sandbox. */
static bool is_xml_leaf(const struct xml *x, size_t i)
{
    return is_pci_planned(x, i) && (gpu_ordinal(x, i) >= 0 || list_net_elements(x, i, NULL, 0) > 0);
}

static void write_pci_element(struct xml *x, size_t i, int depth)
{
    const struct sbx_pci *d = &x->s->pci[i];
    char at[HW_BDF_TEXT];
    fprintf(x->out, "%*s<pci busid=\"%s\"", depth, "", hw_bdf_text(d->way.at[d->way.depth - 1], at));
    write_xml_attr(x, "class", get_pci_attr(d, "class"));
    write_xml_attr(x, "vendor", get_pci_attr(d, "vendor"));
    write_xml_attr(x, "device", get_pci_attr(d, "device"));
    write_xml_attr(x, "subsystem_vendor", get_pci_attr(d, "subsystem_vendor"));
    write_xml_attr(x, "subsystem_device", get_pci_attr(d, "subsystem_device"));
    write_xml_attr(x, "link_speed", get_lower_link_attr(x, d, "max_link_speed"));
    write_xml_attr(x, "link_width", get_lower_link_attr(x, d, "max_link_width"));
    fprintf(x->out, ">\n");
    int gpu = gpu_ordinal(x, i);
    if (gpu >= 0)
        fprintf(x->out, "%*s<gpu dev=\"%d\"/>\n", depth + 2, "", gpu);
    if (is_xml_leaf(x, i) && list_net_elements(x, i, NULL, 0) > 0) {
        fprintf(x->out, "%*s<nic>\n", depth + 2, "");
        list_net_elements(x, i, x->out, depth + 4);
        fprintf(x->out, "%*s</nic>\n", depth + 2, "");
    }
    for (size_t k = 0; k < x->s->n_pci; k++)
        if (x->done[k] && x->up[k] == (int)i)
            write_pci_element(x, k, depth + 2);
    fprintf(x->out, "%*s</pci>\n", depth, "");
}

/* Chooses the elements to write: the leaves, and above each leaf every second bridge, which for a switch is its
 * upstream port. */
static void choose_xml_elements(struct xml *x)
{
    for (size_t i = 0; i < x->s->n_pci; i++) {
        const struct hw_pci_path *way = &x->s->pci[i].way;
        if (!is_xml_leaf(x, i))
            continue;
        x->done[i] = true;
        int below = (int)i;
        for (unsigned depth = way->depth; depth > 2; depth -= 2) {
            int above = sbx_find_pci(x->s, way->at[depth - 3]);
            if (above < 0)
                break;
            x->done[above] = true;
            x->up[below] = above;
            below = above;
        }
    }
}

static const char *numa_of_pci(const struct sbx_pci *d)
{
    const char *v = sbx_attr(&d->attr, "numa_node");
    return v && *v ? v : "-1";
}

static void write_cpu_elements(struct xml *x)
{
    const struct sbx_snapshot *s = x->s;
    for (size_t i = 0; i < s->n_pci; i++) {
        if (!x->done[i] || x->up[i] >= 0)
            continue;
        /* when the first element of a NUMA node is reached, all elements of the node are written */
        const char *numa = numa_of_pci(&s->pci[i]);
        const char *map = NULL;
        for (size_t k = 0; k < s->n_numa; k++)
            if (strtol(numa, NULL, 10) == (long)s->numa[k].id)
                map = sbx_attr(&s->numa[k].attr, "cpumap");
        fprintf(x->out, "  <cpu");
        write_xml_attr(x, "numaid", numa);
        if (map)
            write_xml_attr(x, "affinity", map);
        fprintf(x->out, ">\n");
        for (size_t k = i; k < s->n_pci; k++) {
            if (!x->done[k] || x->up[k] >= 0 || strcmp(numa_of_pci(&s->pci[k]), numa) != 0)
                continue;
            write_pci_element(x, k, 4);
            x->up[k] = (int)s->n_pci; /* marks the element as written */
        }
        fprintf(x->out, "  </cpu>\n");
    }
}

int sbx_nccl_topo(const struct sbx_snapshot *s, const struct sbx_plan *plan, FILE *out)
{
    struct xml x = {s, plan, out, calloc(s->n_pci + 1, sizeof(bool)), malloc((s->n_pci + 1) * sizeof(int))};
    int rc = x.done && x.up ? 0 : hw_no_memory("NCCL's topology");
    if (rc == 0) {
        for (size_t i = 0; i < s->n_pci; i++)
            x.up[i] = -1;
        choose_xml_elements(&x);
        fprintf(out, "<system version=\"1\">\n");
        write_cpu_elements(&x);
        fprintf(out, "</system>\n");
        if (fflush(out) != 0 || ferror(out))
            rc = hw_fail(-EIO, "writing NCCL's topology failed");
    }
    free(x.done);
    free(x.up);
    return rc;
}

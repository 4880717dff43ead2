/* SPDX-License-Identifier: Apache-2.0 */
/* Code that is shared by snapshots from sysfs and from files. */
#include "sandbox/plan/snapshot.h"
#include "net/sysfs.h"

#include <stdlib.h>
#include <string.h>

enum { TYPE_LOOPBACK = 772 }; /* from include/uapi/linux/if_arp.h */

bool sbx_name_ok(const char *name)
{
    size_t n = 0;
    for (; name[n]; n++) {
        unsigned char c = (unsigned char)name[n];
        /* not isalnum(), which depends on the locale */
        bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!letter && (n == 0 || !strchr("_.:+-", c)))
            return false;
    }
    return n > 0 && n < SBX_NAME;
}

bool sbx_path_ok(const char *path)
{
    char part[SBX_NAME];
    if (strlen(path) > SBX_PATH)
        return false;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (n >= sizeof(part))
            return false;
        memcpy(part, p, n);
        part[n] = 0;
        if (!sbx_name_ok(part))
            return false;
        p += n;
        if (!*p)
            return true;
    }
}

static int by_attr_name(const void *a, const void *b)
{
    return strcmp(((const struct sbx_attr *)a)->name, ((const struct sbx_attr *)b)->name);
}

const char *sbx_attr(const struct sbx_attrs *a, const char *name)
{
    const struct sbx_attr key = {.name = (char *)(uintptr_t)name};
    const struct sbx_attr *f = a->n ? bsearch(&key, a->v, a->n, sizeof(*a->v), by_attr_name) : NULL;
    return f ? f->value : NULL;
}

int sbx_attr_add(struct sbx_attrs *a, const char *name, const char *value)
{
    if ((a->n & (a->n + 1)) == 0) { /* the capacity of 1, 3, 7, 15... is exhausted */
        struct sbx_attr *more = realloc(a->v, (2 * a->n + 1) * sizeof(*more));
        if (!more)
            return hw_no_memory("the snapshot");
        a->v = more;
    }
    struct sbx_attr f = {strdup(name), strdup(value)};
    if (!f.name || !f.value) {
        free(f.name);
        free(f.value);
        return hw_no_memory("the snapshot");
    }
    a->v[a->n++] = f;
    return 0;
}

void sbx_attrs_free(struct sbx_attrs *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->v[i].name);
        free(a->v[i].value);
    }
    free(a->v);
}

static void free_numbered(struct sbx_numbered *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sbx_attrs_free(&v[i].attr);
    free(v);
}

void sbx_snapshot_free(struct sbx_snapshot *s)
{
    for (size_t i = 0; i < s->n_pci; i++) {
        free(s->pci[i].path);
        free(s->pci[i].config);
        sbx_attrs_free(&s->pci[i].attr);
    }
    for (size_t i = 0; i < s->n_net; i++) {
        free(s->net[i].path);
        free(s->net[i].addr);
        sbx_attrs_free(&s->net[i].attr);
    }
    for (size_t i = 0; i < s->n_rdma; i++) {
        struct sbx_rdma *r = &s->rdma[i];
        for (size_t k = 0; k < r->n_port; k++) {
            free(r->port[k].gid);
            sbx_attrs_free(&r->port[k].attr);
        }
        free(r->port);
        free(r->path);
        free(r->uverbs_path);
        sbx_attrs_free(&r->attr);
        sbx_attrs_free(&r->uverbs_attr);
    }
    free_numbered(s->numa, s->n_numa);
    free_numbered(s->cpu, s->n_cpu);
    sbx_attrs_free(&s->file);
    free(s->pci);
    free(s->net);
    free(s->rdma);
    *s = (struct sbx_snapshot){0};
}

/* ---- looking up ----------------------------------------------------------------------------- */

int sbx_find_net(const struct sbx_snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->n_net; i++)
        if (strcmp(s->net[i].name, name) == 0)
            return (int)i;
    return -1;
}

int sbx_find_rdma(const struct sbx_snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->n_rdma; i++)
        if (strcmp(s->rdma[i].name, name) == 0)
            return (int)i;
    return -1;
}

static struct hw_bdf get_last_bdf(const struct hw_pci_path *p)
{
    return p->at[p->depth - 1];
}

static int by_snapshot_bdf(const void *a, const void *b)
{
    return hw_bdf_cmp(get_last_bdf(&((const struct sbx_pci *)a)->way), get_last_bdf(&((const struct sbx_pci *)b)->way));
}

int sbx_find_pci(const struct sbx_snapshot *s, struct hw_bdf bdf)
{
    const struct sbx_pci key = {.way = {.depth = 1, .at = {bdf}}};
    const struct sbx_pci *d = s->n_pci ? bsearch(&key, s->pci, s->n_pci, sizeof(*s->pci), by_snapshot_bdf) : NULL;
    return d ? (int)(d - s->pci) : -1;
}

/* ---- settling ------------------------------------------------------------------------------- */

static int settle_attrs(struct sbx_attrs *a, const char *of)
{
    if (a->n)
        qsort(a->v, a->n, sizeof(*a->v), by_attr_name);
    for (size_t i = 1; i < a->n; i++)
        if (strcmp(a->v[i - 1].name, a->v[i].name) == 0)
            return hw_fail(-EINVAL, "%s has the file %s more than once", of, a->v[i].name);
    return 0;
}

/* Returns the index of the last PCI function on the path, or -1 if there is none. */
static int pci_above(const struct sbx_snapshot *s, const char *path)
{
    struct hw_pci_path way;
    return hw_pci_path_parse(path, &way) < 0 ? -1 : sbx_find_pci(s, get_last_bdf(&way));
}

/* Checks that the path ends in /folder/name. */
static int check_end(const char *path, const char *folder, const char *name)
{
    char end[2 * SBX_NAME];
    int n = snprintf(end, sizeof(end), "/%s/%s", folder, name);
    size_t len = strlen(path);
    if (len <= (size_t)n || strcmp(path + len - (size_t)n, end) != 0)
        return hw_fail(-EINVAL, "%s is not at '%.120s', which does not end in %s", name, path, end);
    return 0;
}

static uint32_t get_attr_number(const struct sbx_attrs *a, const char *name, uint32_t max)
{
    const char *text = sbx_attr(a, name);
    uint64_t v;
    return text && hw_text_u64(text, &v) == 0 && v <= max ? (uint32_t)v : 0;
}

static int settle_pci(struct sbx_snapshot *s)
{
    for (size_t i = 0; i < s->n_pci; i++) {
        struct sbx_pci *d = &s->pci[i];
        char text[HW_BDF_TEXT];
        int rc = settle_attrs(&d->attr, d->path);
        if (rc < 0 || (rc = hw_pci_path_parse(d->path, &d->way)) < 0)
            return rc;
        const char *slash = strrchr(d->path, '/');
        if (!slash || strcmp(slash + 1, hw_bdf_text(get_last_bdf(&d->way), text)) != 0)
            return hw_fail(-EINVAL, "'%.120s' does not end in a PCI address", d->path);
        d->class = get_attr_number(&d->attr, "class", 0xffffff);
        d->vendor = (uint16_t)get_attr_number(&d->attr, "vendor", 0xffff);
        d->device = (uint16_t)get_attr_number(&d->attr, "device", 0xffff);
    }
    if (s->n_pci)
        qsort(s->pci, s->n_pci, sizeof(*s->pci), by_snapshot_bdf);
    for (size_t i = 1; i < s->n_pci; i++)
        if (by_snapshot_bdf(&s->pci[i - 1], &s->pci[i]) == 0)
            return hw_fail(-EINVAL, "two PCI devices have the same address: %s", s->pci[i].path);
    return 0;
}

static int by_net_name(const void *a, const void *b)
{
    return strverscmp(((const struct sbx_netdev *)a)->name, ((const struct sbx_netdev *)b)->name);
}

static int settle_net(struct sbx_snapshot *s)
{
    for (size_t i = 0; i < s->n_net; i++) {
        struct sbx_netdev *d = &s->net[i];
        int rc = settle_attrs(&d->attr, d->name);
        if (rc < 0 || (rc = check_end(d->path, "net", d->name)) < 0)
            return rc;
        if (sbx_find_net(s, d->name) != (int)i)
            return hw_fail(-EINVAL, "the interface %s occurs twice", d->name);
        d->pci = pci_above(s, d->path);
        d->loopback = get_attr_number(&d->attr, "type", 65535) == TYPE_LOOPBACK;
    }
    if (s->n_net)
        qsort(s->net, s->n_net, sizeof(*s->net), by_net_name);
    return 0;
}

static int by_gid(const void *a, const void *b)
{
    unsigned x = ((const struct sbx_gid *)a)->index, y = ((const struct sbx_gid *)b)->index;
    return x < y ? -1 : x > y;
}

static int by_port(const void *a, const void *b)
{
    unsigned x = ((const struct sbx_port *)a)->port, y = ((const struct sbx_port *)b)->port;
    return x < y ? -1 : x > y;
}

static int settle_ports(struct sbx_rdma *r)
{
    if (r->n_port)
        qsort(r->port, r->n_port, sizeof(*r->port), by_port);
    for (size_t k = 0; k < r->n_port; k++) {
        struct sbx_port *p = &r->port[k];
        int rc = settle_attrs(&p->attr, r->name);
        if (rc < 0)
            return rc;
        if (k > 0 && p[-1].port == p->port)
            return hw_fail(-EINVAL, "%s has port %u twice", r->name, p->port);
        if (p->n_gid)
            qsort(p->gid, p->n_gid, sizeof(*p->gid), by_gid);
        for (size_t g = 0; g < p->n_gid; g++)
            if (p->gid[g].index >= p->gids || (g > 0 && p->gid[g - 1].index == p->gid[g].index))
                return hw_fail(-EINVAL, "port %u of %s has GID %u more than once, or beyond the end of its table",
                               p->port, r->name, p->gid[g].index);
    }
    return 0;
}

static int by_rdma_name(const void *a, const void *b)
{
    return strverscmp(((const struct sbx_rdma *)a)->name, ((const struct sbx_rdma *)b)->name);
}

static int settle_rdma(struct sbx_snapshot *s)
{
    for (size_t i = 0; i < s->n_rdma; i++) {
        struct sbx_rdma *r = &s->rdma[i];
        int rc = settle_attrs(&r->attr, r->name);
        if (rc < 0 || (rc = settle_attrs(&r->uverbs_attr, r->name)) < 0 || (rc = settle_ports(r)) < 0 ||
            (rc = check_end(r->path, "infiniband", r->name)) < 0 ||
            (r->uverbs[0] && (rc = check_end(r->uverbs_path, "infiniband_verbs", r->uverbs)) < 0))
            return rc;
        r->pci = pci_above(s, r->path);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(s->rdma[k].name, r->name) == 0)
                return hw_fail(-EINVAL, "two RDMA devices have the name %s", r->name);
            if (r->uverbs[0] && strcmp(s->rdma[k].uverbs, r->uverbs) == 0)
                return hw_fail(-EINVAL, "two RDMA devices have the uverbs device %s", r->uverbs);
        }
    }
    if (s->n_rdma)
        qsort(s->rdma, s->n_rdma, sizeof(*s->rdma), by_rdma_name);
    return 0;
}

static int by_numbered_id(const void *a, const void *b)
{
    unsigned x = ((const struct sbx_numbered *)a)->id, y = ((const struct sbx_numbered *)b)->id;
    return x < y ? -1 : x > y;
}

static int settle_numbered(struct sbx_numbered *v, size_t n, const char *what)
{
    if (n)
        qsort(v, n, sizeof(*v), by_numbered_id);
    for (size_t i = 0; i < n; i++) {
        int rc = settle_attrs(&v[i].attr, what);
        if (rc < 0)
            return rc;
        if (i > 0 && v[i - 1].id == v[i].id)
            return hw_fail(-EINVAL, "%s %u occurs twice", what, v[i].id);
    }
    return 0;
}

int sbx_snapshot_settle(struct sbx_snapshot *s)
{
    int rc = settle_pci(s);
    if (rc < 0 || (rc = settle_net(s)) < 0 || (rc = settle_rdma(s)) < 0 ||
        (rc = settle_numbered(s->numa, s->n_numa, "NUMA node")) < 0 ||
        (rc = settle_numbered(s->cpu, s->n_cpu, "CPU")) < 0)
        return rc;
    return settle_attrs(&s->file, "the snapshot");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the plan as text and as JSON. */
#include "sandbox/plan/plan.h"
#include "sys/json.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

char *sbx_plan_nics(const struct sbx_plan *p)
{
    char *text = NULL;
    size_t len, n = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    for (size_t i = 0; i < p->n_nic; i++)
        if (sbx_nic_in(p, i))
            fprintf(f, "%s%s", n++ ? "," : "", p->nic[i].name);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

char *sbx_plan_hcas(const struct sbx_plan *p)
{
    char *text = NULL;
    size_t len, n = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    for (size_t i = 0; i < p->n_rdma; i++)
        for (size_t k = 0; k < p->rdma[i].n_port; k++)
            fprintf(f, "%s%s:%u", n++ ? "," : "", p->rdma[i].name, p->rdma[i].port[k]);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static const char *address_of(const struct sbx_snapshot *s, int pci, char buf[HW_BDF_TEXT])
{
    return pci < 0 ? NULL : hw_bdf_text(s->pci[pci].way.at[s->pci[pci].way.depth - 1], buf);
}

static char *ip_text(const struct sbx_addr *a, char buf[64])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    inet_ntop(a->family, &a->v4, ip, sizeof(ip)); /* v4 and v6 begin at the same address */
    snprintf(buf, 64, "%s/%u", ip, a->prefix);
    return buf;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_plan_row(FILE *out, const char *name, const char *at, const char *why, const char *more)
{
    const char *last = *why ? why : more;
    int width = *last ? 14 : 1; /* prevents trailing spaces */
    fprintf(out, "  %-3s %-16s %-*s%s%s\n", *why ? "-" : "yes", name, width, at ? at : "-", *last ? " " : "", last);
}

static void print_plan_nics(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out)
{
    fprintf(out, "NICs\n");
    for (size_t i = 0; i < p->n_nic; i++) {
        char bdf[HW_BDF_TEXT], more[256] = "", ip[64];
        const struct sbx_netdev *d = &s->net[i];
        size_t n = 0;
        for (size_t r = 0; r < p->n_rdma; r++)
            if (!p->rdma[r].why[0] && sbx_rdma_on(s, r, i) && n < sizeof(more))
                n += (size_t)snprintf(more + n, sizeof(more) - n, "%s%s", n ? " " : "", p->rdma[r].name);
        for (size_t k = 0; k < d->n_addr && n < sizeof(more); k++)
            n += (size_t)snprintf(more + n, sizeof(more) - n, "%s%s", n ? " " : "", ip_text(&d->addr[k], ip));
        print_plan_row(out, p->nic[i].name, address_of(s, d->pci, bdf), p->nic[i].why, more);
    }
}

static void print_plan_rdma(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out)
{
    if (p->n_rdma)
        fprintf(out, "\nRDMA devices\n");
    for (size_t i = 0; i < p->n_rdma; i++) {
        char bdf[HW_BDF_TEXT], more[256] = "";
        size_t n = 0;
        for (size_t k = 0; k < p->rdma[i].n_port && n < sizeof(more); k++)
            n += (size_t)snprintf(more + n, sizeof(more) - n, "%s%u", n ? "," : "port ", p->rdma[i].port[k]);
        if (p->rdma[i].gid_index >= 0 && n < sizeof(more))
            snprintf(more + n, sizeof(more) - n, ", GID %d", p->rdma[i].gid_index);
        print_plan_row(out, p->rdma[i].name, address_of(s, s->rdma[i].pci, bdf), p->rdma[i].why, more);
    }
}

static size_t print_plan_gpus(const struct sbx_plan *p, FILE *out)
{
    size_t in = 0;
    if (p->n_gpu)
        fprintf(out, "\nGPUs\n");
    for (size_t i = 0; i < p->n_gpu; i++) {
        char name[32] = "GPU";
        if (p->gpu[i].ordinal >= 0)
            snprintf(name, sizeof(name), "GPU %d", p->gpu[i].ordinal);
        print_plan_row(out, name, p->gpu[i].at, p->gpu[i].why, "");
        in += !p->gpu[i].why[0];
    }
    return in;
}

int sbx_plan_text(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out)
{
    HW_AUTO_FREE char *netdevs = sbx_plan_nics(p), *ibdevs = sbx_plan_hcas(p);
    if (!netdevs || !ibdevs)
        return hw_no_memory("the text of the plan");
    print_plan_nics(p, s, out);
    print_plan_rdma(p, s, out);
    size_t n = print_plan_gpus(p, out);
    fputc('\n', out);
    for (size_t i = 0; i < p->n_warning; i++)
        fprintf(out, "warning: %s\n", p->warning[i]);
    fprintf(out, "netdevs: %s\nibdevs:  %s\nGPUs:    %zu\n", *netdevs ? netdevs : "none", *ibdevs ? ibdevs : "none", n);
    if (*netdevs)
        fprintf(out, "run on the peer, for a plan with the same NICs:\n  hawser sandbox plan --peer-nics %s\n",
                netdevs);
    return 0;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void write_plan_verdict(struct hw_json *j, const char *why)
{
    hw_json_bool(j, "in", !*why);
    hw_json_str(j, "why", *why ? why : NULL);
}

static void write_json_plan_nics(struct hw_json *j, const struct sbx_plan *p, const struct sbx_snapshot *s)
{
    hw_json_array(j, "nics");
    for (size_t i = 0; i < p->n_nic; i++) {
        const struct sbx_netdev *d = &s->net[i];
        char bdf[HW_BDF_TEXT], ip[64];
        hw_json_object(j, NULL);
        hw_json_str(j, "nic", p->nic[i].name);
        write_plan_verdict(j, p->nic[i].why);
        hw_json_str(j, "pci", address_of(s, d->pci, bdf));
        hw_json_array(j, "rdma");
        for (size_t r = 0; r < p->n_rdma; r++)
            if (sbx_rdma_on(s, r, i))
                hw_json_str(j, NULL, p->rdma[r].name);
        hw_json_end(j);
        hw_json_array(j, "addresses");
        for (size_t k = 0; k < d->n_addr; k++)
            hw_json_str(j, NULL, ip_text(&d->addr[k], ip));
        hw_json_end(j);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void json_rdma(struct hw_json *j, const struct sbx_plan *p, const struct sbx_snapshot *s)
{
    hw_json_array(j, "rdma");
    for (size_t i = 0; i < p->n_rdma; i++) {
        const struct sbx_plan_rdma *r = &p->rdma[i];
        char bdf[HW_BDF_TEXT];
        hw_json_object(j, NULL);
        hw_json_str(j, "device", r->name);
        write_plan_verdict(j, r->why);
        hw_json_str(j, "pci", address_of(s, s->rdma[i].pci, bdf));
        hw_json_str(j, "uverbs", s->rdma[i].uverbs[0] ? s->rdma[i].uverbs : NULL);
        hw_json_array(j, "ports");
        for (size_t k = 0; k < r->n_port; k++)
            hw_json_u64(j, NULL, r->port[k]);
        hw_json_end(j);
        if (r->gid_index < 0)
            hw_json_null(j, "gid_index");
        else
            hw_json_i64(j, "gid_index", r->gid_index);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void json_gpus(struct hw_json *j, const struct sbx_plan *p)
{
    hw_json_array(j, "gpus");
    for (size_t i = 0; i < p->n_gpu; i++) {
        hw_json_object(j, NULL);
        if (p->gpu[i].ordinal < 0)
            hw_json_null(j, "gpu");
        else
            hw_json_i64(j, "gpu", p->gpu[i].ordinal);
        hw_json_str(j, "pci", p->gpu[i].at);
        write_plan_verdict(j, p->gpu[i].why);
        hw_json_end(j);
    }
    hw_json_end(j);
}

int sbx_plan_json(const struct sbx_plan *p, const struct sbx_snapshot *s, FILE *out)
{
    struct hw_json j;
    HW_AUTO_FREE char *netdevs = sbx_plan_nics(p), *ibdevs = sbx_plan_hcas(p);
    char bdf[HW_BDF_TEXT];
    if (!netdevs || !ibdevs)
        return hw_no_memory("the text of the plan");
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-sandbox-plan-1");
    write_json_plan_nics(&j, p, s);
    json_rdma(&j, p, s);
    json_gpus(&j, p);
    hw_json_object(&j, "pci_left_out");
    for (size_t i = 0; i < s->n_pci; i++)
        if (p->pci_why[i])
            hw_json_str(&j, address_of(s, (int)i, bdf), p->pci_why[i]);
    hw_json_end(&j);
    hw_json_str(&j, "netdevs", netdevs);
    hw_json_str(&j, "ibdevs", ibdevs);
    hw_json_array(&j, "warnings");
    for (size_t i = 0; i < p->n_warning; i++)
        hw_json_str(&j, NULL, p->warning[i]);
    hw_json_end(&j);
    hw_json_end(&j);
    int rc = hw_json_finish(&j);
    return rc < 0 ? hw_fail(rc, "the plan could not be written: %s", hw_errno_text(rc)) : rc;
}

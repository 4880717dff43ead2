/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of RDMA ports, and of the sysctls that matter if several NICs share a subnet. */
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"

#include <string.h>

static void gids_of(struct dr_report *d, const char *dev, const char *port)
{
    struct hw_names l = {0};
    char subject[48], text[128], layer[32] = "", state[32] = "";
    size_t gids = 0, v2 = 0;
    int root = d->m->root;
    snprintf(subject, sizeof subject, "%.30s/%.8s", dev, port);
    int rc = hw_root_list(root, &l, "sys/class/infiniband/%s/ports/%s/gids", dev, port);
    for (size_t i = 0; i < l.n; i++) {
        if (hw_root_text(root, text, sizeof text, "sys/class/infiniband/%s/ports/%s/gids/%s", dev, port, l.name[i]) <
                0 ||
            strspn(text, "0:") == strlen(text))
            continue; /* an empty entry of the table */
        gids++;
        v2 += hw_root_text(root, text, sizeof text, "sys/class/infiniband/%s/ports/%s/gid_attrs/types/%s", dev, port,
                           l.name[i]) > 0 &&
              strcmp(text, "RoCE v2") == 0;
    }
    hw_names_free(&l);
    if (rc < 0) {
        dr_say(d, DR_SKIP, subject, "the port's GID table cannot be read: %s", hw_errno_text(-rc));
        return;
    }
    (void)hw_root_text(root, layer, sizeof layer, "sys/class/infiniband/%s/ports/%s/link_layer", dev, port);
    (void)hw_root_text(root, state, sizeof state, "sys/class/infiniband/%s/ports/%s/state", dev, port);
    bool ethernet = strcmp(layer, "InfiniBand") != 0;
    if (*state && !strstr(state, "ACTIVE")) {
        dr_say(d, DR_WARN, subject, "the port's state is '%s'", state);
        dr_mend(d, "ip link   # a RoCE port's NIC must be up; InfiniBand needs a running subnet manager");
    } else if (gids == 0) {
        dr_say(d, DR_FAIL, subject, "the port's GID table is empty");
        dr_mend(d, "ip addr add ADDRESS/PREFIX dev NIC   # use the NIC of %s; its addresses become GIDs", dev);
    } else if (ethernet && v2 == 0) {
        dr_say(d, DR_WARN, subject, "%zu GID%s, but none for RoCE v2, which routed networks need and NCCL prefers",
               gids, hw_plural(gids));
        dr_mend(d, "ip addr add ADDRESS/PREFIX dev NIC   # use the NIC of %s; an IPv4 address becomes a RoCE v2 GID",
                dev);
    } else
        dr_say(d, DR_PASS, subject, "%zu GID%s%s", gids, hw_plural(gids), ethernet ? ", RoCE v2 among them" : "");
}

void dr_rdma_gids(struct dr_report *d)
{
    struct hw_names devs = {0}, ports = {0};
    size_t before = d->n;
    (void)hw_root_list(d->m->root, &devs, "sys/class/infiniband");
    for (size_t i = 0; i < devs.n; i++) {
        if (hw_root_list(d->m->root, &ports, "sys/class/infiniband/%s/ports", devs.name[i]) == 0)
            for (size_t k = 0; k < ports.n; k++)
                gids_of(d, devs.name[i], ports.name[k]);
        hw_names_free(&ports);
    }
    hw_names_free(&devs);
    if (d->n == before)
        dr_say(d, DR_SKIP, NULL, "no RDMA device");
}

int dr_shares_subnet(const struct dr_machine *m, int nic)
{
    const struct dr_nic *n = &m->nic[nic];
    for (int other = 0; other < m->n_nics; other++)
        for (int i = 0; other != nic && m->nic[other].up && i < m->nic[other].n_addrs; i++)
            for (int k = 0; n->up && k < n->n_addrs; k++)
                if (n->addr[k].addr.sa.sa_family == AF_INET && hw_nic_reaches(&n->addr[k], &m->nic[other].addr[i].addr))
                    return other;
    return -1;
}

/* Stores the effective value of a sysctl for a NIC in *out: the larger of the NIC's value and the value of "all"
 * (include/linux/inetdevice.h, IN_DEV_MAXCONF; IN_DEV_ORCONF gives the same for flags). Returns 0 or a negative
 * errno. */
static int sysctl_of(const struct dr_machine *m, const char *nic, const char *name, int64_t *out)
{
    int64_t all;
    int rc = hw_root_i64(m->root, &all, "proc/sys/net/ipv4/conf/all/%s", name);
    if (rc == 0)
        rc = hw_root_i64(m->root, out, "proc/sys/net/ipv4/conf/%s/%s", nic, name);
    if (rc == 0)
        *out = HW_MAX(*out, all);
    return rc;
}

/* Reports one result for each NIC that shares its subnet with another NIC, or SKIP if there is none. verdict returns
 * the outcome for value v. */
static void each_sharing(struct dr_report *d, const char *name, const char *mend,
                         enum dr_outcome (*verdict)(int64_t v, bool rdma, const char **what))
{
    size_t before = d->n;
    for (int i = 0; i < d->m->n_nics; i++) {
        const struct dr_nic *n = &d->m->nic[i];
        int other = dr_shares_subnet(d->m, i);
        const char *what = "";
        int64_t v = 0;
        if (other < 0)
            continue;
        if (sysctl_of(d->m, n->name, name, &v) < 0) {
            dr_say(d, DR_SKIP, n->name, "%s", hw_error());
            continue;
        }
        bool rdma = hw_root_has(d->m->root, "sys/class/net/%s/device/infiniband", n->name);
        enum dr_outcome o = verdict(v, rdma, &what);
        dr_say(d, o, n->name, "%lld%s", (long long)v, what);
        if (o != DR_PASS)
            dr_mend(d, "%s", mend);
    }
    if (d->n == before)
        dr_say(d, DR_SKIP, NULL, "no two NICs share an IPv4 subnet");
}

/* An RDMA connection is bound to the NIC with the hardware address that ARP returned, so a wrong ARP answer breaks
 * the connection. */
static enum dr_outcome arp_ignore(int64_t v, bool rdma, const char **what)
{
    *what = v >= 1 ? "" : ", so this NIC also answers ARP requests for other NICs' addresses";
    return v >= 1 ? DR_PASS : rdma ? DR_FAIL : DR_WARN;
}

void dr_rdma_arp_ignore(struct dr_report *d)
{
    each_sharing(d, "arp_ignore", "sysctl -w net.ipv4.conf.all.arp_ignore=1", arp_ignore);
}

static enum dr_outcome arp_announce(int64_t v, bool rdma, const char **what)
{
    *what = v >= 2 ? "" : ", so this NIC may send ARP requests with another NIC's address";
    return v >= 2 ? DR_PASS : rdma ? DR_FAIL : DR_WARN;
}

void dr_rdma_arp_announce(struct dr_report *d)
{
    each_sharing(d, "arp_announce", "sysctl -w net.ipv4.conf.all.arp_announce=2", arp_announce);
}

static enum dr_outcome arp_filter(int64_t v, bool rdma, const char **what)
{
    (void)rdma;
    *what = v ? ": without a routing rule for each NIC, only one of the NICs answers ARP requests" : "";
    return v ? DR_WARN : DR_PASS;
}

void dr_rdma_arp_filter(struct dr_report *d)
{
    each_sharing(d, "arp_filter",
                 "ip rule add from ADDRESS lookup TABLE   # for each NIC; or set arp_filter=0, arp_ignore=1",
                 arp_filter);
}

static enum dr_outcome rp_filter(int64_t v, bool rdma, const char **what)
{
    (void)rdma;
    *what = v == 1 ? ", strict" : v == 0 ? ", off" : ", loose";
    return v == 1 ? DR_WARN : DR_PASS;
}

void dr_rdma_rp_filter(struct dr_report *d)
{
    each_sharing(d, "rp_filter", "sysctl -w net.ipv4.conf.all.rp_filter=2", rp_filter);
}
